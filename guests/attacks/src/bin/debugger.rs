//! Arms a breakpoint, a watchpoint and single step in turn and counts what comes of them. With
//! `hold=1` it then arms comparators over all addresses and sleeps, so that a VM that shares the
//! core would be stopped by them.
//!
//! ```text
//! debugger: 1 breakpoints, 1 watchpoints, 1 steps, 0 others
//! ```

#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use weir_guest::{
    Board, entry,
    exceptions::{self, Sync},
    gic, println, psci, time,
};

entry!(main);

/// Exception classes of a breakpoint, a software step and a watchpoint from the same level.
const CLASSES: [u64; 3] = [0x31, 0x35, 0x33];
/// How many of each came, and of others.
static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// `MDSCR_EL1`: monitor debug and kernel debug; single step and kernel debug.
const MDE_KDE: u64 = 1 << 15 | 1 << 13;
const SS_KDE: u64 = 1 | 1 << 13;
/// `DBGBCR0_EL1`: all four bytes of an instruction at EL1, enabled.
const BREAKPOINT: u64 = 0xf << 5 | 1 << 1 | 1;
/// `DBGWCR0_EL1`: stores to any of eight bytes at EL1, enabled.
const WATCHPOINT: u64 = 0xff << 5 | 2 << 3 | 1 << 1 | 1;
/// The same for loads and stores, with the lower 31 bits of the address left out, at EL1 and EL0.
const EVERYWHERE: u64 = 31 << 24 | 0xff << 5 | 3 << 3 | 3 << 1 | 1;

macro_rules! set_register {
    ($name:literal, $value:expr) => {
        // SAFETY: a debug register of this VM, which handles its exceptions.
        unsafe { asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) $value, options(nostack)) }
    };
}

#[inline(never)]
extern "C" fn target() {
    // SAFETY: does nothing; the function has an instruction of its own.
    unsafe { asm!("nop", options(nostack)) }
}

fn unmask_debug() {
    // SAFETY: debug exceptions are handled.
    unsafe { asm!("msr daifclr, #8", "isb", options(nostack)) }
}

fn mask_debug() {
    // SAFETY: only delays exceptions.
    unsafe { asm!("msr daifset, #8", options(nostack)) }
}

fn main(board: &'static Board) -> ! {
    exceptions::on_sync(count);
    set_register!("oslar_el1", 0_u64);

    set_register!("dbgbvr0_el1", target as extern "C" fn() as usize as u64);
    set_register!("dbgbcr0_el1", BREAKPOINT);
    set_register!("mdscr_el1", MDE_KDE);
    target();
    unmask_debug();
    target();

    set_register!("dbgwvr0_el1", WATCHED.as_ptr() as u64);
    set_register!("dbgwcr0_el1", WATCHPOINT);
    set_register!("mdscr_el1", MDE_KDE);
    WATCHED.store(1, Ordering::Relaxed);
    mask_debug();

    set_register!("mdscr_el1", SS_KDE);
    // SAFETY: returns to the next instruction with SPSR.SS set and debug exceptions unmasked, so
    // that one instruction is executed before the exception; its handler disables single step.
    // 0x3c5 without D is EL1h with A, I and F masked.
    unsafe {
        asm!(
            "adr {place}, 2f",
            "msr elr_el1, {place}",
            "msr spsr_el1, {state}",
            "eret",
            "2: nop",
            "nop",
            "nop",
            place = out(reg) _,
            state = in(reg) 0x1c5_u64 | 1 << 21,
        );
    }
    mask_debug();
    let [breakpoints, watchpoints, steps, others] =
        [0, 1, 2, 3].map(|kind: usize| COUNTS[kind].load(Ordering::Relaxed));
    println!(
        "debugger: {breakpoints} breakpoints, {watchpoints} watchpoints, {steps} steps, {others} \
         others"
    );
    if board.args.number("hold", 0) == 1 {
        hold(board);
    }
    psci::system_off()
}

/// Arms watchpoints over all memory and a breakpoint at the image's first instructions, and sleeps
/// with debug exceptions masked.
fn hold(board: &Board) -> ! {
    gic::init(|_| {});
    gic::enable(board.virtual_timer);
    set_register!("dbgbvr0_el1", board.ram.base + 0x8_0000);
    set_register!("dbgbcr0_el1", BREAKPOINT | 2 << 1);
    set_register!("dbgwvr0_el1", 0_u64);
    set_register!("dbgwcr0_el1", EVERYWHERE);
    set_register!("mdscr_el1", MDE_KDE | 1);
    loop {
        time::arm(time::now() + time::frequency() / 10_000);
        // SAFETY: sleeps until the timer's interrupt is pending.
        unsafe { asm!("wfi", options(nostack)) }
    }
}

/// Counts the exception, disarms what caused it and goes on at the same instruction.
fn count(exception: Sync) -> u64 {
    let kind = CLASSES.iter().position(|class| *class == exception.class());
    COUNTS[kind.unwrap_or(3)].fetch_add(1, Ordering::Relaxed);
    set_register!("mdscr_el1", 0_u64);
    if kind.is_some() { exception.elr } else { exception.elr + 4 }
}
