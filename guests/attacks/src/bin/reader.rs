//! A victim that measures: reads lines of `size=` bytes (1 MiB) one after the other for `for_us=`
//! (10000), and reads the clock after every eighth.
//!
//! ```text
//! reader: 123456 reads, 1 gaps above 50 us, the longest 70123 ns
//! ```
//!
//! `how=` says how it reads:
//!
//! | `how=` | each line |
//! | --- | --- |
//! | `load` (without it) | a load |
//! | `uncached` | a load with the MMU off, so that the access is Device memory's |
//! | `clean` | a store, DC CIVAC, a load: a write-back by maintenance, and what follows it |
//! | `invalidate` | a store, DC IVAC, a load |
//! | `prefetch` | PRFM of the line eight further on, a load |
//!
//! A *gap* is the time between two readings; one of more than `gap_us=` (50) means that something
//! else had the core.

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
    let how = args.get("how").unwrap_or("load");
    let read: unsafe fn(u64, u64) = match how {
        "load" => load,
        "uncached" => uncached,
        "clean" => clean,
        "invalidate" => invalidate,
        "prefetch" => prefetch,
        other => panic!("how={other}"),
    };
    let most = args.number("gap_us", 50) * 1000;
    let begun = time::now_ns();
    let end = begun + args.number("for_us", 10_000) * 1000;
    let (mut reads, mut gaps, mut longest, mut before, mut at) = (0_u64, 0_u64, 0, begun, 0);
    while before < end {
        for _ in 0..8 {
            // SAFETY: RAM that nothing else uses; checked above.
            unsafe { read(start + at, start + (at + 8 * LINE) % size) };
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

// Each reads a line at `at`; `ahead` is a later one.
//
// # Safety
//
// Both are in RAM that nothing else uses.

unsafe fn load(at: u64, _ahead: u64) {
    // SAFETY: a load; see above.
    unsafe { asm!("ldr xzr, [{}]", in(reg) at, options(nostack, preserves_flags)) };
}

unsafe fn uncached(at: u64, _ahead: u64) {
    // SAFETY: the MMU and the caches are off for one load only. The image, its stack and its data
    // are mapped to themselves, and nothing is written here.
    unsafe {
        asm!(
            "mrs {on}, sctlr_el1",
            "bic {off}, {on}, #1",
            "bic {off}, {off}, #4",
            "msr sctlr_el1, {off}",
            "isb",
            "ldr xzr, [{at}]",
            "msr sctlr_el1, {on}",
            "isb",
            on = out(reg) _,
            off = out(reg) _,
            at = in(reg) at,
            options(nostack, preserves_flags),
        );
    }
}

unsafe fn clean(at: u64, _ahead: u64) {
    // SAFETY: a line that nothing else uses.
    unsafe {
        asm!("str xzr, [{at}]", "dc civac, {at}", "dsb sy", "ldr xzr, [{at}]", at = in(reg) at, options(nostack, preserves_flags));
    }
}

unsafe fn invalidate(at: u64, _ahead: u64) {
    // SAFETY: a line that nothing else uses, with contents that are not needed.
    unsafe {
        asm!("str xzr, [{at}]", "dc ivac, {at}", "dsb sy", "ldr xzr, [{at}]", at = in(reg) at, options(nostack, preserves_flags));
    }
}

unsafe fn prefetch(at: u64, ahead: u64) {
    // SAFETY: a hint, and a load; see above.
    unsafe {
        asm!("prfm pldl2keep, [{ahead}]", "ldr xzr, [{at}]", ahead = in(reg) ahead, at = in(reg) at, options(nostack, preserves_flags));
    }
}
