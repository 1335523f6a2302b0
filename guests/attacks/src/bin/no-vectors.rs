//! Takes an exception, and the first instruction of its vector takes the next one: it takes one
//! exception after another and executes nothing.
//!
//! `kind=`: `fetch` (default) has its vectors where nothing is mapped, `load` has vectors that load
//! from there. `wait_ms=` (0) it waits before.

#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use weir_guest::{Board, cpu, entry, println, psci, time};

entry!(main);

global_asm!(".balign 2048", "loading_vectors:", ".rept 16", "ldr x1, [x0]", ".balign 128", ".endr");

/// TTBR1's half of the addresses, which this guest does not use.
const NOWHERE: u64 = 0xffff_0000_0000_0000;

fn main(board: &'static Board) -> ! {
    cpu::mask_interrupts();
    time::spin_for_ns(board.args.number("wait_ms", 0) * 1_000_000);
    println!("no-vectors: here");
    let vectors: u64;
    // SAFETY: only takes an address.
    unsafe { asm!("adr {}, loading_vectors", out(reg) vectors) };
    let vectors = if board.args.get("kind") == Some("load") { vectors } else { NOWHERE };
    // SAFETY: ends this guest, one way or the other.
    unsafe { asm!("msr vbar_el1, {}", "isb", "udf #0", in(reg) vectors, in("x0") NOWHERE) };
    psci::system_reset()
}
