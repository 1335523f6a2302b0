//! Uses the event counters that its VM was granted (`pmu = N`), as an operating system would, and
//! reaches for those beyond.
//!
//! It counts the cycles of a loop, increments by software, and takes overflow interrupts,
//! also of the cycle counter, which overflows after 32 or 64 bits (`PMCR_EL0.LC`). Then for
//! `passes=` (1000) passes it does to the PMU what would stop or reset all of its counters, were
//! they all its own.
//!
//! ```text
//! counting: PMUv3 with 2 event counters
//! counting: 20000 cycles in a loop of 20000 instructions
//! counting: 5 increments of 5
//! counting: 3 overflows, 3 interrupts, 12 events late at most
//! counting: interrupts after 32 bits of cycles: 1, with PMCR_EL0.LC: 0
//! counting: done
//! ```

#![no_std]
#![no_main]

use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};
use weir_guest::{
    Board, cpu, entry,
    gic::{self, Interrupt},
    println, psci,
};

entry!(main);

/// The PMU's interrupt on the virtual board.
const INTID: u32 = 23;
/// PMU events.
const SOFTWARE_INCREMENT: u64 = 0;
const CPU_CYCLES: u64 = 0x11;
/// PMCR_EL0.E, .LC, and .P with .C.
const ENABLE: u64 = 1;
const LONG: u64 = 1 << 6;
const RESET: u64 = 6;
/// The bit of the cycle counter among those of the counters.
const CYCLES: u64 = 1 << 31;
/// Events to an overflow.
const DISTANCE: u64 = 1000;
const TURNS: u64 = 10_000;

static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Writes a PMU register.
macro_rules! write {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: this guest alone uses the PMU of its core; counting changes nothing else.
        unsafe { asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack)) }
    }};
}

/// Reads a system register.
macro_rules! read {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading it changes nothing.
        unsafe { asm!("isb", concat!("mrs {}, ", $name), out(reg) value, options(nostack)) }
        value
    }};
}

fn handle(interrupt: Interrupt) {
    if interrupt.intid == INTID {
        TAKEN.fetch_add(1, SeqCst);
        write!("pmovsclr_el0", read!("pmovsset_el0"));
    }
}

/// Two instructions a turn.
fn turn(turns: u64) {
    // SAFETY: counts a register down.
    unsafe {
        asm!("2:", "subs {0}, {0}, #1", "b.ne 2b", inout(reg) turns => _, options(nostack));
    }
}

/// How much counter 0 grows over `turns` turns. Not inlined, so that all calls execute the same
/// instructions around them.
#[inline(never)]
fn counted(turns: u64) -> u64 {
    let before = read!("pmevcntr0_el0");
    turn(turns);
    read!("pmevcntr0_el0") - before
}

fn overflows(count: u64) {
    let mut most = 0;
    for _ in 0..count {
        let taken = TAKEN.load(SeqCst);
        write!("pmevcntr0_el0", (1 << 32) - DISTANCE);
        // A loop that needs more than twice as much would hide a late one.
        let mut turns = 0;
        while TAKEN.load(SeqCst) == taken && turns < DISTANCE {
            turn(1);
            turns += 1;
        }
        most = most.max(read!("pmevcntr0_el0"));
    }
    let taken = TAKEN.load(SeqCst);
    println!("counting: {count} overflows, {taken} interrupts, {most} events late at most");
}

/// How many interrupts come while the cycle counter passes 32 bits, with this PMCR_EL0.
fn cycle_overflows(control: u64) -> u64 {
    let taken = TAKEN.load(SeqCst);
    write!("pmcr_el0", control);
    write!("pmccntr_el0", (1 << 32) - DISTANCE);
    while read!("pmccntr_el0") < (1 << 32) + DISTANCE {}
    TAKEN.load(SeqCst) - taken
}

fn main(board: &'static Board) -> ! {
    let version = read!("id_aa64dfr0_el1") >> 8 & 0xf;
    assert!(version != 0, "this VM has no PMU: give it `pmu = 2`");
    let counters = read!("pmcr_el0") >> 11 & 0x1f;
    println!("counting: PMUv{} with {counters} event counters", version + 2);
    gic::init(handle);
    gic::enable(INTID);
    cpu::unmask_interrupts();

    write!("pmevtyper0_el0", CPU_CYCLES);
    write!("pmevtyper1_el0", SOFTWARE_INCREMENT);
    write!("pmcr_el0", ENABLE | RESET);
    write!("pmcntenset_el0", CYCLES | 3);
    // What reading takes is in both.
    let loops = counted(1 + TURNS) - counted(1);
    println!("counting: {loops} cycles in a loop of {} instructions", 2 * TURNS);
    for _ in 0..5 {
        write!("pmswinc_el0", 2);
    }
    println!("counting: {} increments of 5", read!("pmevcntr1_el0"));
    let cycles = read!("pmccntr_el0");
    turn(TURNS);
    assert!(read!("pmccntr_el0") > cycles, "the cycle counter stands still");
    write!("pmintenset_el1", 1);
    overflows(3);
    write!("pmintenset_el1", CYCLES);
    let [short, long] = [ENABLE, ENABLE | LONG].map(cycle_overflows);
    println!("counting: interrupts after 32 bits of cycles: {short}, with PMCR_EL0.LC: {long}");

    // Counter 5 is the last of a Cortex-A53.
    for n in counters..6 {
        write!("pmselr_el0", n);
        write!("pmxevtyper_el0", CPU_CYCLES);
        write!("pmxevcntr_el0", 1 << 20);
        let seen = read!("pmxevcntr_el0") | read!("pmxevtyper_el0");
        assert!(seen == 0, "counter {n} beyond the last answers {seen:#x}");
    }
    for _ in 0..board.args.number("passes", 1000) {
        write!("pmcntenclr_el0", u64::from(u32::MAX));
        write!("pmintenclr_el1", u64::from(u32::MAX));
        write!("pmovsclr_el0", u64::from(u32::MAX));
        write!("pmovsset_el0", u64::from(u32::MAX));
        write!("pmcr_el0", RESET);
        write!("pmcr_el0", 0);
        turn(500);
    }
    println!("counting: done");
    psci::system_off()
}
