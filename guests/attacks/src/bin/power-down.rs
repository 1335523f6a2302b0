//! Powers its core down by CPU_SUSPEND, `rounds=` (20) times, with a timer armed that is to wake
//! it. After each wake-up the timer is still due and must interrupt, once; and so must the next one
//! that is armed then.
//!
//! ```text
//! power-down: 20 rounds, 40 interrupts
//! ```

#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt},
    println, psci, time,
};

entry!(main);

static ROUNDS: AtomicU64 = AtomicU64::new(0);
static CAME: AtomicU64 = AtomicU64::new(0);

fn main(_: &'static Board) -> ! {
    gic::init(count);
    sleep()
}

fn arm(ns: u64) {
    time::arm(time::now() + time::ns_to_ticks(ns, time::frequency()));
}

fn sleep() -> ! {
    gic::enable(board().virtual_timer);
    arm(100_000);
    // SAFETY: nothing on the stack is used again.
    let refused = unsafe { psci::power_down(woken) };
    println!("power-down: FAILED: {refused:?}");
    psci::system_off()
}

fn woken() -> ! {
    gic::enable(board().virtual_timer);
    wait();
    arm(50_000);
    wait();
    let rounds = ROUNDS.fetch_add(1, Ordering::Relaxed) + 1;
    if rounds < board().args.number("rounds", 20) {
        sleep()
    }
    println!("power-down: {rounds} rounds, {} interrupts", CAME.load(Ordering::Relaxed));
    psci::system_off()
}

/// Waits for an interrupt, at most a millisecond.
fn wait() {
    let (before, end) = (CAME.load(Ordering::Relaxed), time::now_ns() + 1_000_000);
    cpu::unmask_interrupts();
    while CAME.load(Ordering::Relaxed) == before && time::now_ns() < end {
        cpu::relax();
    }
    cpu::mask_interrupts();
}

fn count(_: Interrupt) {
    time::disarm();
    CAME.fetch_add(1, Ordering::Relaxed);
}
