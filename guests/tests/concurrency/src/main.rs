//! Measures what cores see of each other's time: it runs directly on QEMU's board, and shows
//! whether the emulated clock is that of cores that run concurrently.
//!
//! For each number of other busy cores:
//!
//! - the time of an SGI to a core that sleeps, and back;
//! - the time of a message in memory to a core that polls;
//! - the lateness of timers, on a core that sleeps and on a busy one.
//!
//! Then, with all cores busy: TLB maintenance on all cores, a lock without `yield`, exclusive
//! increments, and whether the counter goes back, on a core or from a core to another one that got
//! a message.
//!
//! ```text
//! concurrency: SGI there, 2 busy: 100 times, 151 to 151
//! concurrency: locked 8000 of 8000
//! concurrency: done at 12345678
//! ```
//!
//! Times are in ticks of the counter, which is 1 GHz under the emulated clock.

#![no_std]
#![no_main]

use core::arch::asm;
use core::fmt;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use weir_guest::{
    Board, MAX_CORES, board, cpu, entry,
    gic::{self, Interrupt, SgiTarget},
    println, psci, time,
};

entry!(main);

/// Repetitions of each measurement.
const TIMES: u64 = 100;
/// Increments of each core.
const INCREMENTS: u64 = 2000;
/// Ticks until the other cores have changed to another job.
const SETTLE: u64 = 50_000;

const MESSAGE: u32 = 1;
const WAKE: u32 = 2;

/// A job of a core that does not measure.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    /// Sleeps.
    Idle,
    /// Executes instructions without memory accesses.
    Busy,
    /// Sleeps, and answers an SGI with one.
    Echo,
    /// Polls for a message and answers it.
    Poll,
    /// Increments the counters, once.
    Increment,
    /// Compares its counter with the one in a message.
    Witness,
}

static JOBS: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(Job::Idle as u32) }; MAX_CORES];
static ONLINE: AtomicU32 = AtomicU32::new(1);
static SENT: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicU64 = AtomicU64::new(0);
static DUE: AtomicU64 = AtomicU64::new(0);
static LOCKED: AtomicBool = AtomicBool::new(false);
static UNDER_LOCK: AtomicU64 = AtomicU64::new(0);
static EXCLUSIVE: AtomicU64 = AtomicU64::new(0);
static FINISHED: AtomicU32 = AtomicU32::new(0);
static BACKWARD: AtomicU64 = AtomicU64::new(0);
static EARLIEST: AtomicU64 = AtomicU64::new(0);
static STAMP: AtomicU64 = AtomicU64::new(0);

/// The extremes of a series.
struct Series {
    times: AtomicU64,
    min: AtomicI64,
    max: AtomicI64,
}

impl Series {
    const fn new() -> Self {
        let (min, max) = (AtomicI64::new(i64::MAX), AtomicI64::new(i64::MIN));
        Self { times: AtomicU64::new(0), min, max }
    }

    /// Adds the time from `start` to `end`, which are counters of two cores: it is negative if the
    /// clock of the second one is behind.
    fn add(&self, start: u64, end: u64) {
        let value = end.wrapping_sub(start).cast_signed();
        self.times.fetch_add(1, SeqCst);
        self.min.fetch_min(value, SeqCst);
        self.max.fetch_max(value, SeqCst);
    }

    fn clear(&self) {
        self.times.store(0, SeqCst);
        self.min.store(i64::MAX, SeqCst);
        self.max.store(i64::MIN, SeqCst);
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, max] = [&self.min, &self.max].map(|it| it.load(SeqCst));
        let times = self.times.load(SeqCst);
        write!(f, "{times} times, {min} to {max}")
    }
}

static THERE: Series = Series::new();
static BACK: Series = Series::new();
static LATE: Series = Series::new();

fn main(board: &'static Board) -> ! {
    gic::init(handle);
    for core in 1..board.cores().len() {
        // SAFETY: the firmware starts core 0 only.
        let started = unsafe { psci::start_core(core, work) };
        assert!(started.is_ok(), "CPU_ON of core {core}: {started:?}");
    }
    let cores = board.cores().len();
    gic::enable(board.virtual_timer);
    cpu::unmask_interrupts();
    while (ONLINE.load(Acquire) as usize) < cores {}
    println!("concurrency: {cores} cores, {} Hz", time::frequency());
    for busy in 0..cores - 1 {
        give_all(Job::Idle);
        (2..2 + busy).for_each(|core| give(core, Job::Busy));
        exchange_interrupts(busy);
        exchange_messages(busy);
        measure_timer(busy, true);
        measure_timer(busy, false);
    }
    maintain(cores);
    increment(cores);
    compare(cores);
    println!("concurrency: done at {}", time::now());
    psci::system_off()
}

/// The loop of a core that does not measure.
fn work(core: usize) {
    cpu::unmask_interrupts();
    ONLINE.fetch_add(1, Release);
    let job = &JOBS[core];
    let (mut last, mut message) = (0, 0);
    loop {
        let given = job.load(Acquire);
        if given == Job::Idle as u32 || given == Job::Echo as u32 {
            cpu::mask_interrupts();
            if job.load(Acquire) == given {
                cpu::wait_for_interrupt();
            }
            cpu::unmask_interrupts();
        } else if given == Job::Busy as u32 {
            for _ in 0..50 {
                // SAFETY: does nothing; keeps the loop.
                unsafe { asm!("", options(nomem, nostack, preserves_flags)) };
            }
        } else if given == Job::Poll as u32 {
            let sent = SENT.load(Acquire);
            if sent != message {
                message = sent;
                ANSWERED.store(time::now(), Release);
            }
        } else if given == Job::Increment as u32 {
            add_all();
            job.store(Job::Idle as u32, Release);
            FINISHED.fetch_add(1, Release);
        } else {
            let stamp = STAMP.load(Acquire);
            let now = time::now();
            if now < last {
                BACKWARD.fetch_add(1, Relaxed);
            }
            last = now;
            if now < stamp {
                EARLIEST.fetch_max(stamp - now, Relaxed);
            }
        }
    }
}

fn handle(interrupt: Interrupt) {
    let now = time::now();
    if interrupt.intid == MESSAGE {
        let sent = SENT.load(Acquire);
        if cpu::index() == 0 {
            BACK.add(sent, now);
            ANSWERED.store(now, Release);
        } else {
            THERE.add(sent, now);
            SENT.store(time::now(), Release);
            gic::send(MESSAGE, SgiTarget::Core(0));
        }
    } else if interrupt.intid == board().virtual_timer {
        LATE.add(DUE.load(Acquire), now);
        time::disarm();
        DUE.store(0, Release);
    }
}

fn give(core: usize, job: Job) {
    JOBS[core].store(job as u32, Release);
    gic::send(WAKE, SgiTarget::Core(core));
}

fn give_all(job: Job) {
    (1..board().cores().len()).for_each(|core| give(core, job));
    spin(SETTLE);
}

fn spin(ticks: u64) {
    let end = time::now() + ticks;
    while time::now() < end {}
}

/// SGIs to core 1, which sleeps, and back.
fn exchange_interrupts(busy: usize) {
    [&THERE, &BACK].into_iter().for_each(Series::clear);
    give(1, Job::Echo);
    spin(SETTLE);
    for time in 0..TIMES {
        ANSWERED.store(0, Release);
        cpu::mask_interrupts();
        SENT.store(time::now(), Release);
        gic::send(MESSAGE, SgiTarget::Core(1));
        while ANSWERED.load(Acquire) == 0 {
            cpu::sleep();
        }
        cpu::unmask_interrupts();
        spin(1000 + time * 17);
    }
    println!("concurrency: SGI there, {busy} busy: {THERE}");
    println!("concurrency: SGI back, {busy} busy: {BACK}");
}

/// Messages in memory to core 1, which polls.
fn exchange_messages(busy: usize) {
    static MESSAGES: Series = Series::new();
    MESSAGES.clear();
    give(1, Job::Poll);
    spin(SETTLE);
    for time in 0..TIMES {
        ANSWERED.store(0, Release);
        SENT.store(time::now(), Release);
        while ANSWERED.load(Acquire) == 0 {
            core::hint::spin_loop();
        }
        MESSAGES.add(SENT.load(Acquire), time::now());
        spin(500 + time * 13);
    }
    println!("concurrency: message and back, {busy} busy: {MESSAGES}");
    give(1, Job::Idle);
    spin(SETTLE);
}

/// Timers of core 0.
fn measure_timer(busy: usize, sleeps: bool) {
    LATE.clear();
    for time in 0..TIMES {
        cpu::mask_interrupts();
        let due = time::now() + 3000 + time * 37;
        DUE.store(due, Release);
        time::arm(due);
        if sleeps {
            while DUE.load(Acquire) != 0 {
                cpu::sleep();
            }
            cpu::unmask_interrupts();
        } else {
            cpu::unmask_interrupts();
            while DUE.load(Acquire) != 0 {
                core::hint::spin_loop();
            }
        }
    }
    let core = if sleeps { "asleep" } else { "awake" };
    println!("concurrency: timer late {core}, {busy} busy: {LATE}");
}

/// TLB maintenance on all cores while they are busy.
fn maintain(cores: usize) {
    static MAINTENANCE: Series = Series::new();
    give_all(Job::Busy);
    for _ in 0..TIMES {
        let start = time::now();
        // SAFETY: drops cached translations, which the tables in memory replace.
        unsafe { asm!("dsb ishst", "tlbi vmalle1is", "dsb ish", "isb", options(nostack)) };
        MAINTENANCE.add(start, time::now());
    }
    println!("concurrency: TLB maintenance, {} busy: {MAINTENANCE}", cores - 1);
}

/// Increments under a lock that does not yield, and exclusive ones.
fn add_all() {
    for _ in 0..INCREMENTS {
        while LOCKED.swap(true, Acquire) {}
        UNDER_LOCK.store(UNDER_LOCK.load(Relaxed) + 1, Relaxed);
        LOCKED.store(false, Release);
        EXCLUSIVE.fetch_add(1, Relaxed);
    }
}

fn increment(cores: usize) {
    (1..cores).for_each(|core| give(core, Job::Increment));
    add_all();
    while (FINISHED.load(Acquire) as usize) < cores - 1 {}
    let expected = INCREMENTS * cores as u64;
    println!("concurrency: locked {} of {expected}", UNDER_LOCK.load(Acquire));
    println!("concurrency: exclusive {} of {expected}", EXCLUSIVE.load(Acquire));
}

/// The counters of the cores: each compares its own with the last one that core 0 stored.
fn compare(cores: usize) {
    give_all(Job::Witness);
    for _ in 0..TIMES * 100 {
        STAMP.store(time::now(), Release);
    }
    give_all(Job::Idle);
    println!("concurrency: {} went back, {} busy", BACKWARD.load(Acquire), cores - 1);
    println!("concurrency: a message came {} early", EARLIEST.load(Acquire));
}
