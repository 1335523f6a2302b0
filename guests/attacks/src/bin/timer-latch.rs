//! Leaves interrupts of its timers pending on a core that it shares: it makes the timers' PPIs
//! edge-triggered, disables them, lets the timers fall due again and again, and sets the PPIs
//! pending. The next VM on the core must not see any of it.
//!
//! With `then=reset` it resets itself after each `rounds=` (100000) of that, so that the next boot,
//! and another VM's, could find what the last one left.

#![no_std]
#![no_main]

use core::arch::asm;
use weir_guest::{Board, entry, gic, psci, time};

entry!(main);

/// The physical timer of EL1.
const PHYSICAL_TIMER: u32 = 30;

fn main(board: &'static Board) -> ! {
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
