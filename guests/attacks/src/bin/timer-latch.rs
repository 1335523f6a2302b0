//! Leaves interrupts of its timers pending on a core that it shares: it makes the timers' PPIs
//! edge-triggered, disables them, lets the timers fall due again and again, and sets the PPIs
//! pending. The next VM on the core must not see any of it.
//!
//! With `then=reset` it resets itself after each `rounds=` (100000) of that, so that the next boot,
//! and another VM's, could find what the last one left.
//!
//! With `by=other` (GICv3) its second vCPU, on another core, sets these PPIs of the first vCPU
//! pending all the time: also while EL2, on the shared core, has acknowledged one and not yet
//! delivered it. The first vCPU lets its virtual timer fall due once per major frame, and masks the
//! interrupt: what such a race leaves behind then stays until another VM has the core.

#![no_std]
#![no_main]

use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering},
};
use weir_guest::{
    Board, cpu, entry,
    gic::{self, Interrupt},
    mmio, println, psci, time,
};

entry!(main);

/// The physical timer of EL1.
const PHYSICAL_TIMER: u32 = 30;

/// GICR_ISPENDR0 of the first vCPU.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// Interrupts that the first vCPU took.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Turns the timer off.
fn taken(_: Interrupt) {
    TAKEN.fetch_add(1, Ordering::Relaxed);
    time::disarm();
}

/// Sets the timers' PPIs of the first vCPU pending, again and again.
fn race(_: usize) {
    let pending = PENDING.load(Ordering::Relaxed);
    for round in 1_u64.. {
        // SAFETY: a register of the virtual GIC.
        unsafe { mmio::write32(pending, 1 << 27 | 1 << PHYSICAL_TIMER) };
        if round.is_multiple_of(1000) {
            let taken = TAKEN.load(Ordering::Relaxed);
            println!("timer-latch: {round} rounds, {taken} interrupts taken");
        }
    }
}

/// Lets the timer fall due, with interrupts masked for most of two milliseconds, again and again.
fn be_raced(board: &'static Board) -> ! {
    gic::init(taken);
    // The registers are in the redistributor of the core that asks.
    PENDING.store(gic::register(PHYSICAL_TIMER, gic::ISPENDR), Ordering::Relaxed);
    gic::enable(board.virtual_timer);
    // SAFETY: the core is off, and this is the only start.
    let _ = unsafe { psci::start_core(1, race) };
    let after = |begun: u64, ns| begun + time::ns_to_ticks(ns, time::frequency());
    loop {
        let begun = time::now();
        time::arm(after(begun, 10_000));
        while time::now() < after(begun, 1_900_000) {
            cpu::relax();
        }
        cpu::unmask_interrupts();
        cpu::relax();
        cpu::mask_interrupts();
    }
}

fn main(board: &'static Board) -> ! {
    if board.args.get("by") == Some("other") {
        be_raced(board)
    }
    let (rounds, resets) =
        (board.args.number("rounds", 100_000), board.args.get("then") == Some("reset"));
    gic::init(|_| ());
    for intid in [board.virtual_timer, PHYSICAL_TIMER] {
        gic::disable(intid);
        gic::set_edge(intid, true);
    }
    loop {
        for round in 0..rounds {
            // The lines rise, and fall.
            time::arm(time::now());
            // SAFETY: programs the physical timer of this core: due now, then off.
            unsafe {
                asm!(
                    "mrs {now}, cntpct_el0",
                    "msr cntp_cval_el0, {now}",
                    "msr cntp_ctl_el0, {on}",
                    "isb",
                    "msr cntp_ctl_el0, xzr",
                    "isb",
                    now = out(reg) _,
                    on = in(reg) 1_u64,
                    options(nostack),
                );
            }
            time::disarm();
            if round % 16 == 0 {
                gic::set_pending(board.virtual_timer);
                gic::set_pending(PHYSICAL_TIMER);
            }
        }
        if resets {
            psci::system_reset()
        }
    }
}
