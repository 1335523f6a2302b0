//! Reads, writes or walks through memory, to fill caches and close rows, or to find out what share of the cache the VM has.
//!
//! Arguments: `mode=read` (the default) or `write` goes over `size=` bytes (1 MiB) in steps of `stride=` bytes (64), one
//! access each, `passes=` times (0, for ever); between two passes it sleeps until `period_us=` (0, not at all) have gone by
//! since the first of them began. `mode=zero` zeroes them, all of them, by DC ZVA where that is allowed (DCZID_EL0.DZP) and
//! else by stores; `stride=` is then what one instruction zeroes.
//!
//! `mode=walk` follows pointers instead, through the same places in a random order that is always the same, so that each
//! load needs the one before: a latency benchmark after IsolBench (P. K. Valsan, H. Yun, F. Farshchi: Taming Non-Blocking
//! Caches to Improve Isolation in Multicore Real-Time Systems, RTAS 2016). It does so for `size=`, twice `size=`, and so on
//! up to `upto=` (`size=`): after one pass that doesn't count, as many as `loads=` (1000000) loads need, between two markers
//! for `weir observe`.
//!
//! ```text
//! hog: write 1048576 bytes by 64
//! hog: 10 passes, 163840 accesses, 4 ns each
//!
//! hog: walk 16384 bytes by 64, 1024 accesses, 5 ns each
//! hog: walked
//! ```
//!
//! The first line follows the first pass. After the last one: SYSTEM_OFF.

#![no_std]
#![no_main]

use core::arch::asm;
use weir_guest::{
    Board, cpu, entry, gic,
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
            println!("hog: walked");
        }
        other => panic!("mode={other}: read, write, zero or walk"),
    }
    psci::system_off()
}

fn go_over(board: &Board, mode: &str, range: Range, pass: fn(Range)) {
    let passes = board.args.number("passes", 0);
    let period = board.args.number("period_us", 0) * 1000;
    let period = time::ns_to_ticks(period, time::frequency());
    gic::init(|_| ());
    gic::enable(board.virtual_timer);
    let (mut done, mut busy) = (0, 0);
    while passes == 0 || done < passes {
        let start = time::now();
        pass(range);
        busy += time::now() - start;
        done += 1;
        if done == 1 {
            println!("hog: {mode} {} bytes by {}", range.count * range.stride, range.stride);
        }
        sleep_until(start + period);
    }
    let accesses = range.count * passes;
    let each = time::ticks_to_ns(busy, time::frequency()) / accesses;
    println!("hog: {passes} passes, {accesses} accesses, {each} ns each");
}

fn walk_through(range: Range, passes: u64) {
    // SAFETY: `main` checked that the range is in RAM, behind the image, and aligned; nobody else uses it.
    unsafe { shuffle(range) };
    let mut at = walk(range, range.start, 1);
    let start = time::now();
    marker::<PHASE>();
    at = walk(range, at, passes);
    marker::<PHASE>();
    let accesses = range.count * passes;
    let each = time::ticks_to_ns(time::now() - start, time::frequency()) / accesses;
    assert!(at == range.start, "the walk is a circle");
    let size = range.count * range.stride;
    println!("hog: walk {size} bytes by {}, {accesses} accesses, {each} ns each", range.stride);
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

/// One pass with `$access` of the place at `{at}`: eight to a turn, so that accesses are half of the instructions.
macro_rules! pass {
    ($range:ident, $access:literal) => {{
        let (mut at, stride) = ($range.start, $range.stride);
        for _ in 0..$range.count / 8 {
            // SAFETY: `main` checked that the range is in RAM, behind the image, and aligned; nobody else uses it.
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
        // SAFETY: as in `pass`: the block around `at`, which begins a page and is a multiple of blocks, is in the range.
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

fn walk(range: Range, mut at: u64, passes: u64) -> u64 {
    for _ in 0..range.count * passes {
        // SAFETY: `shuffle` left in each place the address of another one.
        at = unsafe { (at as *const u64).read_volatile() };
    }
    at
}

/// Makes of all places one cycle in random order (Sattolo's algorithm), each with the address of the next.
///
/// # Safety
///
/// The range is in RAM, aligned to 8 bytes, and nobody else uses it.
unsafe fn shuffle(range: Range) {
    let place = |index: u64| (range.start + index * range.stride) as *mut u64;
    for index in 0..range.count {
        // SAFETY: by the contract.
        unsafe { place(index).write_volatile(place(index) as u64) };
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for index in (1..range.count).rev() {
        // xorshift64 (G. Marsaglia: Xorshift RNGs, 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (one, other) = (place(index), place(random % index));
        // SAFETY: by the contract; both are in the range.
        let values = unsafe { (one.read_volatile(), other.read_volatile()) };
        // SAFETY: as above.
        unsafe { one.write_volatile(values.1) };
        // SAFETY: as above.
        unsafe { other.write_volatile(values.0) };
    }
}
