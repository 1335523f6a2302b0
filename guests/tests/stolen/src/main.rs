//! Compares the stolen time that it is told (DEN0057) with what it misses: gaps in its own time,
//! and how late it wakes.
//!
//! For `ms=` (100) milliseconds it is busy, and every `sleep=` (8) turns of a millisecond it sleeps
//! for one. What is neither its own nor slept was stolen.
//!
//! ```text
//! stolen: 100 ms, of them 41230 us own, 8000 us slept, 50801 us missed, 50790 us reported
//! stolen: it adds up
//! ```
//!
//! With `write=1` it then tries to change the record. Without a record it prints
//! `stolen: no record`.

#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};
use weir_guest::{
    Board, cpu, entry,
    gic::{self, Interrupt},
    hypercall, mmio, mmu, println, psci, time,
};

entry!(main);

/// If the time between two readings of the clock is longer than this, in ns, another VM or EL2 had
/// the core.
const GAP_NS: u64 = 5_000;
const MS: u64 = 1_000_000;

static WOKEN: AtomicU64 = AtomicU64::new(0);

fn tick(_: Interrupt) {
    WOKEN.store(time::now_ns(), Ordering::Relaxed);
    time::disarm();
}

/// Where the time went, in ns.
#[derive(Default)]
struct Spent {
    own: u64,
    slept: u64,
    missed: u64,
}

impl Spent {
    /// Is busy until `end`, a time in ns.
    fn busy(&mut self, end: u64) {
        let mut last = time::now_ns();
        while last < end {
            let now = time::now_ns();
            let passed = now - last;
            if passed > GAP_NS {
                self.missed += passed;
            } else {
                self.own += passed;
            }
            last = now;
            cpu::relax();
        }
    }

    /// Sleeps for a millisecond, and wakes when the core is free.
    fn sleep(&mut self) {
        let begun = time::now_ns();
        WOKEN.store(0, Ordering::Relaxed);
        time::arm(time::now() + time::ns_to_ticks(MS, time::frequency()));
        while WOKEN.load(Ordering::Relaxed) == 0 {
            cpu::wait_for_interrupt();
        }
        let woken = WOKEN.load(Ordering::Relaxed);
        let passed = woken - begun;
        self.slept += passed.min(MS);
        self.missed += passed.saturating_sub(MS);
        self.own += time::now_ns() - woken;
    }
}

fn main(board: &'static Board) -> ! {
    let (ms, every) = (board.args.number("ms", 100), board.args.number("sleep", 8).max(1));
    let Some(place) = hypercall::stolen_time() else {
        println!("stolen: no record");
        psci::system_off()
    };
    // SAFETY: DEN0057 says that there is memory; no other core runs, and nothing was mapped there.
    unsafe { mmu::add_page(place) };
    // SAFETY: as above; revision and attributes, then the time.
    let (header, told) = unsafe { (mmio::read64(place), || mmio::read64(place + 8)) };
    gic::init(tick);
    gic::enable(board.virtual_timer);
    cpu::unmask_interrupts();
    let (begun, told_before) = (time::now_ns(), told());
    let mut spent = Spent::default();
    let mut turn = 0;
    while time::now_ns() - begun < ms * MS {
        spent.busy(time::now_ns() + MS);
        turn += 1;
        if turn % every == 0 {
            spent.sleep();
        }
    }
    let (told, all) = (told() - told_before, time::now_ns() - begun);
    println!(
        "stolen: {} ms, of them {} us own, {} us slept, {} us missed, {} us reported",
        all / MS,
        spent.own / 1000,
        spent.slept / 1000,
        spent.missed / 1000,
        told / 1000
    );
    // A twentieth is what EL2 itself takes in gaps, and what falls between two readings of the
    // clock.
    let adds_up = header == 0 && told > 0 && spent.missed.abs_diff(told) <= spent.missed / 20 + MS;
    println!("stolen: it {} up", if adds_up { "adds" } else { "does not add" });
    if board.args.number("write", 0) != 0 && hypercall::restarts() == 0 {
        // SAFETY: a store that is refused.
        unsafe { mmio::write64(place + 8, 0) };
        println!("stolen: the record can be changed");
    }
    psci::system_off()
}
