//! Puts its exception vectors where nothing is mapped and takes an exception: it takes one after another and executes nothing. Under
//! QEMU's instruction counting virtual time then stands still for everybody.
//!
//! `wait_ms=` (0) it waits before.

#![no_std]
#![no_main]

use core::arch::asm;
use weir_guest::{Board, cpu, entry, println, psci, time};

entry!(main);

/// TTBR1's half of the addresses, which this guest does not use.
const NOWHERE: u64 = 0xffff_0000_0000_0000;

fn main(board: &'static Board) -> ! {
    cpu::mask_interrupts();
    time::spin_for_ns(board.args.number("wait_ms", 0) * 1_000_000);
    println!("no-vectors: here");
    // SAFETY: ends this guest, one way or the other.
    unsafe { asm!("msr vbar_el1, {}", "isb", "udf #0", in(reg) NOWHERE) };
    psci::system_reset()
}
