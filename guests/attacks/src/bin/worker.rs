//! The victim on a shared core: does a fixed amount of work, measures how long that takes, and
//! counts interrupts that it did not ask for.
//!
//! Its timers' interrupts are enabled, and it never arms a timer. Arguments: `steps=` (4000) of
//! 2500 instructions.
//!
//! ```text
//! worker: 4000 steps in 20153 us, 0 interrupts
//! ```

#![no_std]
#![no_main]

use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering},
};
use weir_guest::{
    Board, cpu, entry,
    gic::{self, Interrupt},
    println, psci, time,
};

entry!(main);

/// The physical timer of EL1.
const PHYSICAL_TIMER: u32 = 30;

static CAME: AtomicU64 = AtomicU64::new(0);

fn main(board: &'static Board) -> ! {
    let steps = board.args.number("steps", 4000);
    gic::init(count);
    gic::enable(board.virtual_timer);
    gic::enable(PHYSICAL_TIMER);
    cpu::unmask_interrupts();
    let begun = time::now_ns();
    for _ in 0..steps {
        for _ in 0..2500 {
            // SAFETY: does nothing.
            unsafe { asm!("nop", options(nomem, nostack)) }
        }
    }
    let us = (time::now_ns() - begun) / 1000;
    println!("worker: {steps} steps in {us} us, {} interrupts", CAME.load(Ordering::Relaxed));
    psci::system_off()
}

fn count(_: Interrupt) {
    CAME.fetch_add(1, Ordering::Relaxed);
}
