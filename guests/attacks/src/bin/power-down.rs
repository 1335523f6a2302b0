//! Powers its core down by CPU_SUSPEND, `rounds=` (20) times, with a timer armed that is to wake
//! it. After each wake-up the timer is still due and must interrupt, once; and so must the next one
//! that is armed then. With `by=sgi` no timer is armed, and SGIs of the second core are to wake it.
//! With `by=pmu` an overflow of an event counter, which is pending at the call, is to wake it.
//!
//! Each time it arms a breakpoint before, and the counters if its VM was granted some. After the
//! wake-up, both must be as after a reset of the core.
//!
//! ```text
//! power-down: 20 rounds, 40 interrupts
//! power-down: FAILED: a breakpoint is still armed
//! ```

#![no_std]
#![no_main]

use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering},
};
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt, SgiTarget},
    println, psci, time,
};

entry!(main);

static ROUNDS: AtomicU64 = AtomicU64::new(0);
static CAME: AtomicU64 = AtomicU64::new(0);

/// The SGI by which the second core wakes the first.
const SGI: u32 = 1;
/// The PMU's interrupt on the virtual board.
const PMU: u32 = 23;

/// `DBGBCR0_EL1`: all four bytes of an instruction at EL1, enabled. `MDSCR_EL1`: monitor debug.
const BREAKPOINT: u64 = 0xf << 5 | 1 << 1 | 1;
const MDE: u64 = 1 << 15;
/// `PMCR_EL0.E`; event counter 0.
const ENABLE: u64 = 1;
const COUNTER: u64 = 1;

/// Writes a system register.
macro_rules! write {
    ($name:literal, $value:expr) => {
        // SAFETY: a debug register, with debug exceptions masked, or a counter's, which changes
        // nothing but what is counted.
        unsafe { asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) $value, options(nostack)) }
    };
}

/// Reads a system register.
macro_rules! read {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading it changes nothing.
        unsafe { asm!(concat!("mrs {}, ", $name), out(reg) value, options(nostack)) }
        value
    }};
}

fn main(_: &'static Board) -> ! {
    gic::init(count);
    if by("sgi") {
        // SAFETY: the core was not started before.
        unsafe { psci::start_core(1, wake_first) }.expect("a second core");
    }
    sleep()
}

fn by(what: &str) -> bool {
    board().args.get("by") == Some(what)
}

/// Returns whether there are event counters: ID_AA64DFR0_EL1.PMUVer.
fn has_pmu() -> bool {
    read!("id_aa64dfr0_el1") >> 8 & 0xf != 0
}

/// Arms what the power-down is to reset, with debug exceptions masked.
fn arm_state() {
    write!("dbgbvr0_el1", 0x1000_u64);
    write!("dbgbcr0_el1", BREAKPOINT);
    write!("mdscr_el1", MDE);
    if has_pmu() {
        write!("pmcr_el0", ENABLE);
        write!("pmcntenset_el0", COUNTER);
        write!("pmuserenr_el0", 1_u64);
        write!("pmovsset_el0", COUNTER);
        if by("pmu") {
            write!("pmintenset_el1", COUNTER);
        }
    }
}

/// Returns which of it is still armed.
fn kept_state() -> Option<&'static str> {
    if read!("mdscr_el1") != 0 || read!("dbgbcr0_el1") & 1 != 0 {
        return Some("a breakpoint is still armed");
    }
    if !has_pmu() {
        return None;
    }
    let (enabled, overflows) = (read!("pmcntenset_el0"), read!("pmovsset_el0"));
    let (control, user) = (read!("pmcr_el0") & ENABLE, read!("pmuserenr_el0"));
    (enabled | overflows | control | user | read!("pmintenset_el1") != 0)
        .then_some("an event counter is still set up")
}

fn rounds() -> u64 {
    board().args.number("rounds", 20)
}

/// Sends an SGI to the first core every 100 us until it has done its rounds.
fn wake_first(_: usize) {
    while ROUNDS.load(Ordering::Relaxed) < rounds() {
        let end = time::now_ns() + 100_000;
        while time::now_ns() < end {
            cpu::relax();
        }
        gic::send(SGI, SgiTarget::Core(0));
    }
}

fn arm(ns: u64) {
    time::arm(time::now() + time::ns_to_ticks(ns, time::frequency()));
}

fn sleep() -> ! {
    if by("sgi") {
        gic::enable(SGI);
    } else if by("pmu") {
        gic::enable(PMU);
    } else {
        gic::enable(board().virtual_timer);
        arm(100_000);
    }
    arm_state();
    // SAFETY: nothing on the stack is used again.
    let refused = unsafe { psci::power_down(woken) };
    println!("power-down: FAILED: {refused:?}");
    psci::system_off()
}

fn woken() -> ! {
    if let Some(kept) = kept_state() {
        println!("power-down: FAILED: {kept}");
        psci::system_off()
    }
    if by("sgi") {
        wait();
    } else if !by("pmu") {
        gic::enable(board().virtual_timer);
        wait();
        arm(50_000);
        wait();
    }
    let rounds = ROUNDS.fetch_add(1, Ordering::Relaxed) + 1;
    if rounds < self::rounds() {
        sleep()
    }
    if by("sgi") || by("pmu") {
        println!("power-down: {rounds} rounds by {}", board().args.get("by").unwrap_or_default());
        psci::system_off()
    }
    println!("power-down: {rounds} rounds, {} interrupts", CAME.load(Ordering::Relaxed));
    psci::system_off()
}

/// Waits for an interrupt, at most a millisecond.
fn wait() {
    let (before, end) = (CAME.load(Ordering::Relaxed), time::now_ns() + 1_000_000);
    cpu::unmask_interrupts();
    while CAME.load(Ordering::Relaxed) == before && time::now_ns() < end {
        cpu::relax();
    }
    cpu::mask_interrupts();
}

fn count(_: Interrupt) {
    time::disarm();
    CAME.fetch_add(1, Ordering::Relaxed);
}
