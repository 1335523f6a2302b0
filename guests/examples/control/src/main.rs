//! A periodic real-time task on the virtual timer, which measures its own activation latency.
//!
//! Every period has an absolute deadline: the start plus a multiple of the period. The timer's
//! interrupt handler is the task; its latency is the time from the deadline to the handler's first
//! reading of the counter. An activation is a *miss* if it starts a period or more after its
//! deadline, and each further deadline that passed until then, which gets no activation of its
//! own, is a miss too. Between activations the core sleeps in WFI.
//!
//! With `work_us=` the handler then computes for so long, of its core's own time. An activation
//! that ends a period or more after its deadline is a miss, too. The handler marks each activation
//! in the trace, as task `control`; a run has the response times of that task from these marks.
//!
//! Arguments: `period_us=` (1000), `work_us=` (0), `activations=` (1000) until the first report,
//! `report=` (1000) activations between further ones, `histogram=1` to print the buckets (lower end
//! in ns, count) with each report. `phase_us=` puts the deadlines so long behind the multiples of
//! the period on the counter, where the frames of a time table of that length begin; without it the
//! first is a period after the start.
//!
//! ```text
//! control: 1000 activations, 0 misses
//! control: latency min 640 avg 812 p99 1023 max 2112 ns
//! ```

#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};
use weir_guest::{
    Board, Histogram, Mutex, board, cpu, entry,
    gic::{self, Interrupt},
    mark, print, println, time,
};

entry!(main);

/// The task of the system file.
const CONTROL: mark::Task = mark::Task::new("control");

/// What the task found so far.
#[derive(Clone)]
struct Record {
    latency_ns: Histogram,
    misses: u64,
}

/// What the task found so far, and when to report it.
struct Task {
    record: Record,
    /// The activation after which it is reported next.
    next_report: u64,
    /// What is to be reported: taken by the activation itself, as another one may come before the
    /// program goes on.
    report: Option<Record>,
}

/// The handler takes the lock; other code that takes it masks interrupts.
static TASK: Mutex<Task> = Mutex::new(Task {
    record: Record { latency_ns: Histogram::new(), misses: 0 },
    next_report: u64::MAX,
    report: None,
});
/// Activations between two reports.
static BETWEEN: AtomicU64 = AtomicU64::new(0);
/// Ticks.
static PERIOD: AtomicU64 = AtomicU64::new(0);
/// Rounds of [`spin`] for the work of an activation.
static WORK: AtomicU64 = AtomicU64::new(0);
/// The next activation, in ticks of the virtual counter.
static DEADLINE: AtomicU64 = AtomicU64::new(0);

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let period = time::ns_to_ticks(args.number("period_us", 1000) * 1000, time::frequency());
    assert!(period > 0, "a period is at least one tick");
    BETWEEN.store(args.number("report", 1000).max(1), Ordering::Relaxed);
    TASK.lock().next_report = args.number("activations", 1000).max(1);

    PERIOD.store(period, Ordering::Relaxed);
    WORK.store(rounds_in(args.number("work_us", 0) * 1000), Ordering::Relaxed);
    gic::init(activate);
    let mut start = time::now() + period;
    if args.get("phase_us").is_some() {
        let phase = time::ns_to_ticks(args.number("phase_us", 0) * 1000, time::frequency());
        start = start.next_multiple_of(period) + phase;
    }
    DEADLINE.store(start, Ordering::Relaxed);
    gic::enable(board.virtual_timer);
    time::arm(start);

    loop {
        cpu::sleep();
        let due = TASK.lock().report.take();
        if let Some(record) = due {
            cpu::unmask_interrupts();
            report(&record);
            cpu::mask_interrupts();
        }
    }
}

/// Computes for so many rounds.
fn spin(rounds: u64) {
    for round in 0..rounds {
        core::hint::black_box(round);
    }
}

/// Returns the rounds of [`spin`] that take `ns` of the core's own time. Others may have the core
/// meanwhile, so the shortest of some measurements is right.
fn rounds_in(ns: u64) -> u64 {
    const ROUNDS: u64 = 10_000;
    if ns == 0 {
        return 0;
    }
    let measure = || {
        let start = time::now();
        spin(ROUNDS);
        time::ticks_to_ns(time::now() - start, time::frequency())
    };
    let shortest = (0..8).map(|_| measure()).min().unwrap_or(0);
    ns * ROUNDS / shortest.max(1)
}

fn activate(interrupt: Interrupt) {
    let now = time::now();
    if interrupt.intid != board().virtual_timer {
        return;
    }
    let (mut deadline, period) = (DEADLINE.load(Ordering::Relaxed), PERIOD.load(Ordering::Relaxed));
    let late = now.saturating_sub(deadline);
    let passed = late / period;
    CONTROL.release(deadline, passed);
    deadline += (passed + 1) * period;
    DEADLINE.store(deadline, Ordering::Relaxed);
    time::arm(deadline);
    spin(WORK.load(Ordering::Relaxed));
    let response = late + (time::now() - now);
    CONTROL.complete();

    let mut task = TASK.lock();
    task.record.latency_ns.record(time::ticks_to_ns(late, time::frequency()));
    task.record.misses += passed.max(u64::from(response >= period));
    if task.record.latency_ns.count() == task.next_report {
        task.report = Some(task.record.clone());
        task.next_report += BETWEEN.load(Ordering::Relaxed);
    }
}

fn report(Record { latency_ns: latency, misses }: &Record) {
    println!("control: {} activations, {misses} misses", latency.count());
    println!(
        "control: latency min {} avg {} p99 {} max {} ns",
        latency.min(),
        latency.mean(),
        latency.percentile(99),
        latency.max(),
    );
    if board().args.number("histogram", 0) == 1 {
        print!("control: histogram");
        for (lower, count) in latency.buckets() {
            print!(" {lower}:{count}");
        }
        println!();
    }
}
