//! A victim that measures: reads lines of `size=` bytes (1 MiB) one after the other for `for_us=` (10000), and looks at the clock after
//! every eighth.
//!
//! ```text
//! reader: 123456 reads, 1 gaps above 50 us, the longest 70123 ns
//! ```
//!
//! A *gap* is the time between two looks; one of more than `gap_us=` (50) means that something else had the core.

#![no_std]
#![no_main]

use core::arch::asm;
use weir_guest::{Board, entry, println, psci, time};

entry!(main);

/// Image, stacks and device tree are below.
const IMAGE: u64 = 2 << 20;
const LINE: u64 = 64;

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let size = args.number("size", 1 << 20);
    assert!(size <= board.ram.size.saturating_sub(IMAGE), "size={size}: too large");
    let start = board.ram.base + IMAGE;
    let most = args.number("gap_us", 50) * 1000;
    let begun = time::now_ns();
    let end = begun + args.number("for_us", 10_000) * 1000;
    let (mut reads, mut gaps, mut longest, mut before, mut at) = (0_u64, 0_u64, 0, begun, 0);
    while before < end {
        for _ in 0..8 {
            // SAFETY: a load from RAM that nobody else uses; checked above.
            unsafe { asm!("ldr xzr, [{}]", in(reg) start + at, options(nostack, preserves_flags)) };
            at = (at + LINE) % size;
        }
        reads += 8;
        let now = time::now_ns();
        gaps += u64::from(now - before > most);
        longest = longest.max(now - before);
        before = now;
    }
    println!(
        "reader: {reads} reads, {gaps} gaps above {} us, the longest {longest} ns",
        most / 1000
    );
    psci::system_off()
}
