//! Reads, writes or walks through memory, to fill caches and close rows, or to find out what share
//! of the cache the VM has.
//!
//! Arguments: `mode=read` (the default) or `write` goes over `size=` bytes (1 MiB) in steps of
//! `stride=` bytes (64), one access each, `passes=` times (0, for ever); between two passes it
//! sleeps until `period_us=` (0, not at all) have gone by since the first of them began.
//! `mode=zero` zeroes them, all of them, by DC ZVA where that is allowed (DCZID_EL0.DZP) and else
//! by stores; `stride=` is then what one instruction zeroes. They are IsolBench's benchmark of
//! bandwidth (P. K. Valsan, H. Yun, F. Farshchi: Taming Non-Blocking Caches to Improve Isolation in
//! Multicore Real-Time Systems, RTAS 2016), and its relatives.
//!
//! `mode=rowmiss` writes so that each access needs another row of the same DRAM bank than the one
//! before, as USTRESS does: of the pieces of `row=` bytes (8192) that `size=` holds it takes those
//! in the first one's bank, and writes the first line of each, then the second of each, and so on.
//! `banks=` tells a bank's number: for each of its bits the address bits that it is the XOR of, as
//! a mask, such as `banks=0x90000,0x120000,0x240000` for the platform's `[[16, 19], [17, 20], [18,
//! 21]]`; no mask may have a bit below `row=`. They are bits of physical addresses: `physical=` is
//! that of the VM's first byte of RAM (the one that it sees). Its pages must follow each other
//! there, so not those of a VM with `colors` or `banks`. It takes 2048 pieces at most; more than
//! the cache has ways for what lies in one bank miss it.
//!
//! With `report_us=` (0, none) these modes print how many lines of 64 bytes each such time took,
//! whatever a pass takes, where places that share a line are parts of it; it reads the clock
//! each 64 accesses.
//!
//! `mode=walk` follows pointers instead, through the same places in a random order that is always
//! the same, so that each load needs the one before; see the guest `latency` for times alone. It
//! does so for `size=`, twice `size=`, and so on up to `upto=` (`size=`): after one pass that
//! doesn't count, as many as `loads=` (1000000) loads need, between two markers for `weir observe`.
//!
//! ```text
//! memory-stressor: write 1048576 bytes by 64
//! memory-stressor: 151552 lines in 1000 us
//! memory-stressor: 10 passes, 163840 accesses, 4 ns each
//!
//! memory-stressor: walk 16384 bytes by 64, 1024 accesses, 5 ns each
//! memory-stressor: walked
//! ```
//!
//! The first line follows the first pass. After the last one: SYSTEM_OFF.

#![no_std]
#![no_main]

mod rows;

use core::arch::asm;
use rows::Rows;
use weir_guest::{
    Args, Board,
    chase::ChasedPlaces,
    cpu, entry, gic,
    marker::{PHASE, marker},
    println, psci, time,
};

entry!(main);

/// Image, stacks and device tree are below.
const IMAGE: u64 = 2 << 20;

/// What is gone over.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    /// Places in it.
    count: u64,
    /// Bytes from one place to the next.
    stride: u64,
}

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let (size, stride) = (args.number("size", 1 << 20), args.number("stride", 64));
    assert!(stride >= 8 && stride.is_multiple_of(8), "stride={stride}: a multiple of 8");
    assert!(size >= stride, "size={size}: less than stride={stride}");
    let range = |size: u64| {
        let room = board.ram.size.saturating_sub(IMAGE);
        assert!(size <= room, "{size} bytes: this VM has room for {room}");
        Range { start: board.ram.base + IMAGE, count: size / stride, stride }
    };
    match args.get("mode").unwrap_or("read") {
        "read" => go_over(board, "read", range(size), read),
        "write" => go_over(board, "write", range(size), write),
        "rowmiss" => {
            let rows = Rows::find(&board.args, board.ram.base, range(size));
            let range = Range { count: rows.lines(stride), ..range(size) };
            Stressor::new(board)
                .go_over("rowmiss", range, |range, part| rows.write(range.stride, part));
        }
        "zero" => match zva_block() {
            Some(block) => {
                let range = Range { count: size / block, stride: block, ..range(size) };
                go_over(board, "zero", range, zero_blocks);
            }
            None => {
                go_over(board, "zero", Range { count: size / 8, stride: 8, ..range(size) }, zero);
            }
        },
        "walk" => {
            let mut size = size;
            while size <= args.number("upto", size) {
                let range = range(size);
                walk_through(range, args.number("loads", 1_000_000).div_ceil(range.count).max(1));
                size *= 2;
            }
            println!("memory-stressor: walked");
        }
        other => panic!("mode={other}: read, write, zero or walk"),
    }
    psci::system_off()
}

/// Bytes of a cache line.
const LINE: u64 = 64;
/// Accesses between two readings of the clock, where lines are to be printed.
const CHUNK: u64 = 64;

fn go_over(board: &Board, mode: &str, range: Range, pass: fn(Range)) {
    Stressor::new(board).go_over(mode, range, |range, part| {
        pass(Range { start: range.start + part.start * range.stride, count: part.count, ..range });
    });
}

/// Some of the places of a range.
#[derive(Clone, Copy)]
struct Part {
    /// Number of the first.
    start: u64,
    count: u64,
}

/// What the passes of all modes have in common. Times are in ticks.
struct Stressor {
    passes: u64,
    period: u64,
    /// Time between two lines; 0 for none.
    report: u64,
    /// When the last line was due, and the bytes of cache lines that were gone over since.
    reported: u64,
    bytes: u64,
}

impl Stressor {
    fn new(board: &Board) -> Self {
        gic::init(|_| ());
        gic::enable(board.virtual_timer);
        let ticks = |args: Args<'_>, key| {
            let ns = args.number(key, 0).saturating_mul(1000);
            time::ns_to_ticks(ns, time::frequency())
        };
        Self {
            passes: board.args.number("passes", 0),
            period: ticks(board.args, "period_us"),
            report: ticks(board.args, "report_us"),
            reported: time::now(),
            bytes: 0,
        }
    }

    fn go_over(mut self, mode: &str, range: Range, pass: impl Fn(Range, Part)) {
        let (mut done, mut busy) = (0, 0);
        self.reported = time::now();
        while self.passes == 0 || done < self.passes {
            let start = time::now();
            if self.report == 0 {
                pass(range, Part { start: 0, count: range.count });
            } else {
                let bytes = match mode {
                    // All of them are touched.
                    "zero" => range.stride,
                    // Each needs its line anew.
                    "rowmiss" => LINE,
                    _ => range.stride.min(LINE),
                };
                self.in_chunks(range, bytes, &pass);
            }
            busy += time::now() - start;
            done += 1;
            if done == 1 {
                println!(
                    "memory-stressor: {mode} {} bytes by {}",
                    range.count * range.stride,
                    range.stride
                );
            }
            sleep_until(start + self.period);
        }
        let accesses = range.count * self.passes;
        let each = time::ticks_to_ns(busy, time::frequency()) / accesses;
        println!("memory-stressor: {} passes, {accesses} accesses, {each} ns each", self.passes);
    }

    /// One pass of accesses that take `bytes` of cache lines each, with a report when it is due.
    fn in_chunks(&mut self, range: Range, bytes: u64, pass: &impl Fn(Range, Part)) {
        let mut start = 0;
        while start < range.count {
            let count = CHUNK.min(range.count - start);
            pass(range, Part { start, count });
            start += count;
            self.bytes += count * bytes;
            let now = time::now();
            let since = now - self.reported;
            if since >= self.report {
                let us = time::ticks_to_ns(since, time::frequency()) / 1000;
                println!("memory-stressor: {} lines in {us} us", self.bytes / LINE);
                (self.reported, self.bytes) = (now, 0);
            }
        }
    }
}

fn walk_through(range: Range, passes: u64) {
    // SAFETY: `main` checked that the range is in RAM, behind the image, and aligned; nothing else
    // uses it.
    let places = unsafe { ChasedPlaces::new(range.start, range.count, range.stride) };
    let first = places.shuffle();
    // SAFETY: shuffled above, and nothing else is stored there.
    let mut at = unsafe { places.walk(first, range.count) };
    let start = time::now();
    marker::<PHASE>();
    let accesses = range.count * passes;
    // SAFETY: as above.
    at = unsafe { places.walk(at, accesses) };
    marker::<PHASE>();
    let each = time::ticks_to_ns(time::now() - start, time::frequency()) / accesses;
    assert!(at == first, "the walk is a circle");
    let size = range.count * range.stride;
    println!(
        "memory-stressor: walk {size} bytes by {}, {accesses} accesses, {each} ns each",
        range.stride
    );
}

/// Waits for a time in ticks, if it has not come yet.
fn sleep_until(end: u64) {
    while time::now() < end {
        time::arm(end);
        cpu::wait_for_interrupt();
        // Before the interrupt is taken: the line falls, and it does not come again.
        time::disarm();
        cpu::unmask_interrupts();
        cpu::mask_interrupts();
    }
}

/// One pass with `$access` of the place at `{at}`: eight to a turn, so that accesses are half of
/// the instructions.
macro_rules! pass {
    ($range:ident, $access:literal) => {{
        let (mut at, stride) = ($range.start, $range.stride);
        for _ in 0..$range.count / 8 {
            // SAFETY: `main` checked that the range is in RAM, behind the image, and aligned;
            // nothing else uses it.
            unsafe {
                asm!(
                    ".rept 8", $access, "add {at}, {at}, {stride}", ".endr",
                    at = inout(reg) at, stride = in(reg) stride, value = inout(reg) 0_u64 => _,
                    options(nostack, preserves_flags)
                );
            }
        }
        for _ in 0..$range.count % 8 {
            // SAFETY: as above.
            unsafe { asm!($access, at = in(reg) at, value = inout(reg) 0_u64 => _, options(nostack, preserves_flags)) };
            at += stride;
        }
    }};
}

fn read(range: Range) {
    pass!(range, "ldr {value}, [{at}]");
}

fn write(range: Range) {
    pass!(range, "str {value}, [{at}]");
}

fn zero(range: Range) {
    for place in 0..range.count {
        // SAFETY: as in `pass`.
        unsafe { ((range.start + place * range.stride) as *mut u64).write_volatile(0) };
    }
}

/// As `zero`, `range.stride` bytes at a time, which is what DC ZVA zeroes.
fn zero_blocks(range: Range) {
    for place in 0..range.count {
        let at = range.start + place * range.stride;
        // SAFETY: as in `pass`: the block around `at`, which begins a page and is a multiple of
        // blocks, is in the range.
        unsafe { asm!("dc zva, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
}

/// Bytes that DC ZVA zeroes, if it is allowed.
fn zva_block() -> Option<u64> {
    let dczid: u64;
    // SAFETY: reads an ID register.
    unsafe { asm!("mrs {}, dczid_el0", out(reg) dczid, options(nomem, nostack, preserves_flags)) };
    (dczid & 1 << 4 == 0).then_some(4 << (dczid & 0xf))
}
