//! Measures how long a load takes when each needs the one before, after IsolBench's benchmark of
//! latency (P. K. Valsan, H. Yun, F. Farshchi: Taming Non-Blocking Caches to Improve Isolation in
//! Multicore Real-Time Systems, RTAS 2016): it follows pointers through places in a random order
//! that is always the same.
//!
//! Arguments: `size=` bytes (1 MiB) with a place every `stride=` bytes (64); `rounds=` (10, 0 for
//! ever) of `loads=` loads each (100000, rounded up to whole cycles) after one cycle that doesn't
//! count; every `report=` rounds (0, in the end alone) a line of what they took. Before and after
//! each round `weir observe` finds a marker.
//!
//! ```text
//! latency: 1048576 bytes by 64, 7 rounds of 16384 loads
//! latency: 7 rounds, min 2.00 avg 2.13 max 2.91 ns a load
//! ```
//!
//! *min*, *avg* and *max* are those of the rounds' own averages, since their last line, by the
//! virtual counter; so a round that was held up in the middle shows in *max*. After the last line:
//! SYSTEM_OFF.

#![no_std]
#![no_main]

use core::fmt;
use weir_guest::{
    Board,
    chase::ChasedPlaces,
    entry,
    marker::{PHASE, marker},
    println, psci, time,
};

entry!(main);

/// Image, stacks and device tree are below.
const IMAGE: u64 = 2 << 20;

/// What the rounds since the last line took, in hundredths of a nanosecond for each load.
struct Times {
    rounds: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Times {
    const NONE: Self = Self { rounds: 0, sum: 0, min: u64::MAX, max: 0 };

    fn add(&mut self, time: u64) {
        self.rounds += 1;
        self.sum = self.sum.saturating_add(time);
        self.min = self.min.min(time);
        self.max = self.max.max(time);
    }
}

/// Hundredths, as a decimal fraction.
struct Hundredths(u64);

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let (size, stride) = (args.number("size", 1 << 20), args.number("stride", 64));
    assert!(stride >= 8 && stride.is_multiple_of(8), "stride={stride}: a multiple of 8");
    assert!(size >= stride, "size={size}: less than stride={stride}");
    let room = board.ram.size.saturating_sub(IMAGE);
    assert!(size <= room, "size={size}: this VM has room for {room} bytes");
    let count = size / stride;
    let loads = args.number("loads", 100_000).max(1);
    let loads = loads.checked_next_multiple_of(count).unwrap_or(count);
    let (rounds, report) = (args.number("rounds", 10), args.number("report", 0));

    // SAFETY: checked above to lie in RAM, behind the image; this is the only core, and the stride
    // keeps the places aligned.
    let places = unsafe { ChasedPlaces::new(board.ram.base + IMAGE, count, stride) };
    let start = places.shuffle();
    // SAFETY: shuffled above, and nothing else stores there; so below.
    let mut at = unsafe { places.walk(start, count) };
    if rounds == 0 {
        println!("latency: {size} bytes by {stride}, rounds of {loads} loads");
    } else {
        println!("latency: {size} bytes by {stride}, {rounds} rounds of {loads} loads");
    }
    let (mut times, mut done) = (Times::NONE, 0);
    while rounds == 0 || done < rounds {
        marker::<PHASE>();
        let before = time::now();
        // SAFETY: as above.
        at = unsafe { places.walk(at, loads) };
        let ticks = time::now() - before;
        marker::<PHASE>();
        assert!(at == start, "the walk is a circle");
        times.add(time::ticks_to_ns(ticks, time::frequency()).saturating_mul(100) / loads);
        done += 1;
        let Times { rounds: new, sum, min, max } = times;
        if done == rounds || report != 0 && new == report {
            let [min, avg, max] = [min, sum / new, max].map(Hundredths);
            println!("latency: {new} rounds, min {min} avg {avg} max {max} ns a load");
            times = Times::NONE;
        }
    }
    psci::system_off()
}
