//! The two guests of mobivmm's experiments, VI: one sleeps and measures how long, the other is
//! interrupted.
//!
//! Both have a tick of their own, and set the next one from the timer's last deadline.
//!
//! `role=sleeper`: sleeps of `sleep` ticks (1), as an operating system counts them: to the first
//! tick that is at least that long away, which is one more. Each begins at another phase of its
//! ticks: the fractions of the golden ratio's multiples, which are spread evenly, however many
//! there are, and begin with 0, from which a sleep is longest. Between the ticks it is busy, as
//! mobivmm's guest keeps its slice.
//!
//! ```text
//! sleeper: 40 sleeps, response avg 35123 max 40001 us, 81 ticks
//! ```
//!
//! `role=loaded`: its second core raises line `line=` every `interval_us=`, a quarter more or less,
//! and, if there is one, line `second=` every `second_us=`; its first core is busy and takes
//! `work_us=` for each interrupt. With `sgi=1` it gets an SGI with each, and without `line=` that
//! alone. If it was given a network device on PCI, that is its first line: frames come to it from
//! elsewhere, and it takes them as it goes. A report comes every `report=` ticks, or from the
//! handler if the lines leave no time for anything else.
//!
//! ```text
//! loaded: 100 ticks, 812 interrupts, 203 of the second line, in 2010000 us
//! ```
//!
//! Arguments of both: `tick_us=` (10000); of the loaded one `seed=` (1).

#![no_std]
#![no_main]

use core::{
    arch::asm,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt, SgiTarget},
    println, psci,
    random::Random,
    time,
};
use weir_vsock_driver::ethernet::{self, Ethernet};

entry!(main);

static PERIOD: AtomicU64 = AtomicU64::new(0);
static TICKS: AtomicU64 = AtomicU64::new(0);
static WORK: AtomicU64 = AtomicU64::new(0);
/// The lines, and how often each came.
static LINES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static CAME: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// When each line is raised next, and how long after that again; by the second core.
static NEXT: [AtomicU64; 2] = [const { AtomicU64::new(u64::MAX) }; 2];
static EVERY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// When the loaded one began, when it last reported, and whether it does.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static REPORTED: AtomicU64 = AtomicU64::new(0);
static REPORTS: AtomicBool = AtomicBool::new(false);
/// Ticks between two reports.
static REPORT: AtomicU64 = AtomicU64::new(0);
/// Times as much without a report: the ticks and the loop do not run.
const STARVED: u64 = 4;

/// Whether an SGI goes with each.
static SGI: AtomicBool = AtomicBool::new(false);
/// That SGI.
const WITH_LINES: u32 = 3;

/// The golden ratio's fraction, in 64 bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

static RANDOM: Random = Random::new(1);

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let ticks = |us: u64| time::ns_to_ticks(us * 1000, time::frequency());
    RANDOM.seed(args.number("seed", 1));
    PERIOD.store(ticks(args.number("tick_us", 10_000).max(1)), Ordering::Relaxed);
    if args.get("role") == Some("loaded") {
        WORK.store(ticks(args.number("work_us", 20)), Ordering::Relaxed);
        SGI.store(args.number("sgi", 0) != 0, Ordering::Relaxed);
        for (n, [line, every]) in
            [["line", "interval_us"], ["second", "second_us"]].into_iter().enumerate()
        {
            LINES[n].store(args.number(line, 0), Ordering::Relaxed);
            EVERY[n].store(ticks(args.number(every, 0)), Ordering::Relaxed);
        }
        loaded(board)
    }
    sleeper(board)
}

fn begin(board: &Board) {
    gic::init(interrupt);
    gic::enable(board.virtual_timer);
    time::arm(time::now() + get(&PERIOD));
}

fn sleeper(board: &'static Board) -> ! {
    let (sleeps, length) = (board.args.number("sleeps", 40), board.args.number("sleep", 1));
    let (mut sum, mut max) = (0, 0);
    begin(board);
    cpu::unmask_interrupts();
    while get(&TICKS) == 0 {
        busy_for_a_while();
    }
    for sleep in 0..sleeps {
        let fraction = sleep.wrapping_mul(GOLDEN) >> 32;
        phase((fraction * get(&PERIOD)) >> 32);
        let begun = time::now();
        let end = get(&TICKS) + length + 1;
        while get(&TICKS) < end {
            busy_for_a_while();
        }
        let response = time::ticks_to_ns(time::now() - begun, time::frequency()) / 1000;
        sum += response;
        max = max.max(response);
    }
    println!(
        "sleeper: {sleeps} sleeps, response avg {} max {max} us, {} ticks",
        sum / sleeps.max(1),
        get(&TICKS)
    );
    psci::system_off()
}

/// Is busy for `length` of its own time, but not over four ticks.
fn phase(length: u64) {
    let begun = time::now();
    let (mut busy, mut last) = (0, begun);
    while busy < length && last - begun < 4 * get(&PERIOD) {
        busy_for_a_while();
        let now = time::now();
        // If it takes longer than this, another VM had the core.
        busy += (now - last).min(get(&PERIOD) / 100);
        last = now;
    }
}

fn loaded(board: &'static Board) -> ! {
    let report = board.args.number("report", 100).max(1);
    let now = time::now();
    REPORT.store(report, Ordering::Relaxed);
    BEGUN.store(now, Ordering::Relaxed);
    REPORTED.store(now, Ordering::Relaxed);
    begin(board);
    let mut network = board.pci.map(|device| {
        LINES[0].store(device.intid.into(), Ordering::Relaxed);
        Ethernet::open(device)
    });
    gic::enable(WITH_LINES);
    for line in &LINES {
        let intid = get(line) as u32;
        if intid != 0 {
            gic::route(intid, 0);
            // The first line goes before the second.
            gic::set_priority(
                intid,
                if core::ptr::eq(line, &raw const LINES[0]) { 0x40 } else { 0x80 },
            );
            gic::enable(intid);
        }
    }
    if board.cores().len() > 1 {
        // SAFETY: the core is off, and this is the only start.
        let _ = unsafe { psci::start_core(1, raise) };
    }
    cpu::unmask_interrupts();
    let mut next = report;
    loop {
        if get(&TICKS) >= next {
            next += report;
            report_load();
        }
        if let Some(network) = &mut network {
            while network.receive(|_| ()) {}
        }
        busy_for_a_while();
    }
}

/// Reports, unless this interrupts a report.
fn report_load() {
    if REPORTS.swap(true, Ordering::Relaxed) {
        return;
    }
    let now = time::now();
    REPORTED.store(now, Ordering::Relaxed);
    println!(
        "loaded: {} ticks, {} interrupts, {} of the second line, in {} us",
        get(&TICKS),
        get(&CAME[0]),
        get(&CAME[1]),
        time::ticks_to_ns(now - get(&BEGUN), time::frequency()) / 1000
    );
    REPORTS.store(false, Ordering::Relaxed);
}

/// Computes for some microseconds.
fn busy_for_a_while() {
    for _ in 0..2500 {
        // SAFETY: does nothing.
        unsafe { asm!("nop", options(nomem, nostack)) }
    }
}

/// The second core.
fn raise(_: usize) {
    let now = time::now();
    for (next, every) in NEXT.iter().zip(&EVERY) {
        if get(every) > 0 {
            next.store(now + get(every), Ordering::Relaxed);
        }
    }
    gic::enable(board().virtual_timer);
    time::arm(get(&NEXT[0]).min(get(&NEXT[1])));
    cpu::unmask_interrupts();
    loop {
        cpu::wait_for_interrupt();
    }
}

fn interrupt(interrupt: Interrupt) {
    if interrupt.intid == board().virtual_timer {
        return if cpu::index() == 0 { tick() } else { raise_lines() };
    }
    for (line, came) in LINES.iter().zip(&CAME) {
        if get(line) == u64::from(interrupt.intid) {
            came.fetch_add(1, Ordering::Relaxed);
            ethernet::acknowledge(interrupt.intid);
            let end = time::now() + get(&WORK);
            while time::now() < end {
                busy_for_a_while();
            }
            if time::now() - get(&REPORTED) > STARVED * get(&REPORT) * get(&PERIOD) {
                report_load();
            }
        }
    }
}

fn tick() {
    TICKS.fetch_add(1, Ordering::Relaxed);
    let deadline: u64;
    // SAFETY: reading has no effect.
    unsafe { asm!("mrs {}, cntv_cval_el0", out(reg) deadline, options(nostack)) }
    time::arm(deadline + get(&PERIOD));
}

fn raise_lines() {
    let now = time::now();
    for n in 0..LINES.len() {
        if get(&NEXT[n]) <= now {
            let line = get(&LINES[n]) as u32;
            if line != 0 {
                gic::set_pending(line);
            }
            if SGI.load(Ordering::Relaxed) {
                gic::send(WITH_LINES, SgiTarget::Core(0));
            }
            // A quarter more or less, or the lines would keep in step with the schedule.
            let next = get(&NEXT[n]) + RANDOM.about(get(&EVERY[n]));
            NEXT[n].store(next, Ordering::Relaxed);
        }
    }
    time::arm(get(&NEXT[0]).min(get(&NEXT[1])));
}
