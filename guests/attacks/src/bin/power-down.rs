//! Powers its core down by CPU_SUSPEND, `rounds=` (20) times, with a timer armed that is to wake
//! it. After each wake-up the timer is still due and must interrupt, once; and so must the next one
//! that is armed then. With `by=sgi` no timer is armed, and SGIs of the second core are to wake it.
//!
//! ```text
//! power-down: 20 rounds, 40 interrupts
//! ```

#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt, SgiTarget},
    println, psci, time,
};

entry!(main);

static ROUNDS: AtomicU64 = AtomicU64::new(0);
static CAME: AtomicU64 = AtomicU64::new(0);

/// The SGI by which the second core wakes the first.
const SGI: u32 = 1;

fn main(_: &'static Board) -> ! {
    gic::init(count);
    if by_sgi() {
        // SAFETY: the core was not started before.
        unsafe { psci::start_core(1, wake_first) }.expect("a second core");
    }
    sleep()
}

fn by_sgi() -> bool {
    board().args.get("by") == Some("sgi")
}

fn rounds() -> u64 {
    board().args.number("rounds", 20)
}

/// Sends an SGI to the first core every 100 us until it has done its rounds.
fn wake_first(_: usize) {
    while ROUNDS.load(Ordering::Relaxed) < rounds() {
        let end = time::now_ns() + 100_000;
        while time::now_ns() < end {
            cpu::relax();
        }
        gic::send(SGI, SgiTarget::Core(0));
    }
}

fn arm(ns: u64) {
    time::arm(time::now() + time::ns_to_ticks(ns, time::frequency()));
}

fn sleep() -> ! {
    if by_sgi() {
        gic::enable(SGI);
    } else {
        gic::enable(board().virtual_timer);
        arm(100_000);
    }
    // SAFETY: nothing on the stack is used again.
    let refused = unsafe { psci::power_down(woken) };
    println!("power-down: FAILED: {refused:?}");
    psci::system_off()
}

fn woken() -> ! {
    if by_sgi() {
        wait();
    } else {
        gic::enable(board().virtual_timer);
        wait();
        arm(50_000);
        wait();
    }
    let rounds = ROUNDS.fetch_add(1, Ordering::Relaxed) + 1;
    if rounds < self::rounds() {
        sleep()
    }
    if by_sgi() {
        println!("power-down: {rounds} rounds by SGIs");
        psci::system_off()
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
