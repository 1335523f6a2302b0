//! Checks its registers all the time: general ones, FP and SIMD, system registers, the timer. It
//! finds out when another VM on its core in between changes them, or sees them.
//!
//! A round fills every register that no interrupt handler of its own uses with values that no other
//! round has, waits, and compares. Between rounds it sleeps until its timer's next tick, if
//! `sleep=1`.
//!
//! Arguments: `rounds=` (1000), `spin=` (1000) turns of the loop in which a round waits, `tick_us=`
//! (1000), `sleep=` (0), `seed=` (1), `then=fault`, `then=reset` (in the first boot only) or, as
//! without it, off.
//!
//! ```text
//! context: 1000 rounds, 0 damaged, 12 ticks, 0 early, 0 odd
//! ```

#![no_std]
#![no_main]

use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering},
};
use weir_guest::{
    Board, board, cpu, entry,
    gic::{self, Interrupt},
    hypercall, println, psci, time,
};

entry!(main);

static PERIOD: AtomicU64 = AtomicU64::new(0);
static TICKS: AtomicU64 = AtomicU64::new(0);
/// Ticks that came before their time.
static EARLY: AtomicU64 = AtomicU64::new(0);
/// Interrupts that are not the timer's.
static ODD: AtomicU64 = AtomicU64::new(0);

/// The values of a round.
fn value(seed: u64, n: u64) -> u64 {
    (seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

macro_rules! system_registers {
    ($($name:literal & $mask:literal,)*) => {
        /// Those that rule nothing that this guest does, with the bits of each that it can write.
        const MASKS: &[u64] = &[$($mask,)*];

        fn write(values: &[u64]) {
            let mut values = values.iter();
            $(
                let value = values.next().copied().unwrap_or(0);
                // SAFETY: see above.
                unsafe { asm!(concat!("msr ", $name, ", {}"), in(reg) value, options(nostack)) }
            )*
        }

        fn read(values: &mut [u64]) {
            let mut values = values.iter_mut();
            $(
                let value: u64;
                // SAFETY: reading has no effect.
                unsafe { asm!(concat!("mrs {}, ", $name), out(reg) value, options(nostack)) }
                if let Some(place) = values.next() {
                    *place = value;
                }
            )*
        }
    };
}

system_registers! {
    "tpidr_el0" & 0xffff_ffff_ffff_ffff,
    "tpidrro_el0" & 0xffff_ffff_ffff_ffff,
    "tpidr_el1" & 0xffff_ffff_ffff_ffff,
    "contextidr_el1" & 0xffff_ffff,
    "far_el1" & 0xffff_ffff_ffff_ffff,
    "sp_el0" & 0xffff_ffff_ffff_fff0,
    "cntp_cval_el0" & 0x7fff_ffff_ffff_ffff,
    "csselr_el1" & 0x3,
    "cntkctl_el1" & 0x3,
}

const SYSTEM: usize = MASKS.len();
/// FP and SIMD: 32 registers of 16 bytes, and the bits of FPCR and FPSR that do nothing here.
const ROUNDING: u64 = 3 << 22;
const FLAGS: u64 = 0x1f;

/// Loads x0 to x17, x23 to x28 and all of FP and SIMD from `values`, waits, and stores them to
/// `after`.
#[inline(never)]
fn hold(values: &[u64; 88], after: &mut [u64; 88], spin: u64) {
    // SAFETY: both are 24 + 64 words. No register but those that are named is changed.
    unsafe {
        asm!(
            ".arch_extension fp", ".arch_extension simd",
            "stp x29, x30, [sp, #-32]!", "stp x21, x22, [sp, #16]",
            "mov x30, x20",
            "add x29, x30, #192",
            "ldp q0, q1, [x29]", "ldp q2, q3, [x29, #32]", "ldp q4, q5, [x29, #64]", "ldp q6, q7, [x29, #96]",
            "ldp q8, q9, [x29, #128]", "ldp q10, q11, [x29, #160]", "ldp q12, q13, [x29, #192]", "ldp q14, q15, [x29, #224]",
            "ldp q16, q17, [x29, #256]", "ldp q18, q19, [x29, #288]", "ldp q20, q21, [x29, #320]", "ldp q22, q23, [x29, #352]",
            "ldp q24, q25, [x29, #384]", "ldp q26, q27, [x29, #416]", "ldp q28, q29, [x29, #448]", "ldp q30, q31, [x29, #480]",
            "ldr x29, [sp, #24]",
            "ldp x0, x1, [x30]", "ldp x2, x3, [x30, #16]", "ldp x4, x5, [x30, #32]", "ldp x6, x7, [x30, #48]",
            "ldp x8, x9, [x30, #64]", "ldp x10, x11, [x30, #80]", "ldp x12, x13, [x30, #96]", "ldp \
                x14, x15, [x30, #112]",
            "ldp x16, x17, [x30, #128]", "ldp x23, x24, [x30, #144]", "ldp x25, x26, [x30, \
                #160]", "ldp x27, x28, [x30, #176]",
            "2:", "subs x29, x29, #1", "b.ne 2b",
            "ldr x30, [sp, #16]",
            "stp x0, x1, [x30]", "stp x2, x3, [x30, #16]", "stp x4, x5, [x30, #32]", "stp x6, x7, [x30, #48]",
            "stp x8, x9, [x30, #64]", "stp x10, x11, [x30, #80]", "stp x12, x13, [x30, #96]", "stp \
                x14, x15, [x30, #112]",
            "stp x16, x17, [x30, #128]", "stp x23, x24, [x30, #144]", "stp x25, x26, [x30, \
                #160]", "stp x27, x28, [x30, #176]",
            "add x29, x30, #192",
            "stp q0, q1, [x29]", "stp q2, q3, [x29, #32]", "stp q4, q5, [x29, #64]", "stp q6, q7, [x29, #96]",
            "stp q8, q9, [x29, #128]", "stp q10, q11, [x29, #160]", "stp q12, q13, [x29, \
                #192]", "stp q14, q15, [x29, #224]",
            "stp q16, q17, [x29, #256]", "stp q18, q19, [x29, #288]", "stp q20, q21, [x29, \
                #320]", "stp q22, q23, [x29, #352]",
            "stp q24, q25, [x29, #384]", "stp q26, q27, [x29, #416]", "stp q28, q29, [x29, \
                #448]", "stp q30, q31, [x29, #480]",
            "ldp x29, x30, [sp], #32",
            in("x20") values, in("x21") after, in("x22") spin,
            out("x0") _, out("x1") _, out("x2") _, out("x3") _, out("x4") _, out("x5") _, out("x6") _, out("x7") _,
            out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _, out("x14") _, out("x15") _,
            out("x16") _, out("x17") _, out("x23") _, out("x24") _, out("x25") _, out("x26") _, out("x27") _, out("x28") _,
        );
    }
}

/// FPCR and FPSR by their encodings: the assembler knows their names only with FP.
fn floating_point() -> (u64, u64) {
    let (control, status): (u64, u64);
    // SAFETY: reading has no effect.
    unsafe {
        asm!("mrs {}, S3_3_C4_C4_0", "mrs {}, S3_3_C4_C4_1", out(reg) control, out(reg) status);
    }
    (control, status)
}

/// A round: how many registers were not as they were left.
fn round(seed: u64, spin: u64) -> u64 {
    let mut values = [0; 88];
    for (n, place) in values.iter_mut().enumerate() {
        *place = value(seed, n as u64);
    }
    let mut system = [0; SYSTEM];
    for ((n, place), mask) in system.iter_mut().enumerate().zip(MASKS) {
        *place = value(seed, 100 + n as u64) & mask;
    }
    let (control, status) = (value(seed, 200) & ROUNDING, value(seed, 201) & FLAGS);
    write(&system);
    // SAFETY: rounding and the cumulative flags matter to no one here.
    unsafe {
        asm!("msr S3_3_C4_C4_0, {}", "msr S3_3_C4_C4_1, {}", in(reg) control, in(reg) status);
    }
    let mut after = [0; 88];
    hold(&values, &mut after, spin);
    let mut system_after = [0; SYSTEM];
    read(&mut system_after);
    let all = values.iter().chain(&system).zip(after.iter().chain(&system_after));
    let damaged = all.filter(|(before, after)| before != after).count() as u64;
    damaged + u64::from(floating_point() != (control, status))
}

fn main(board: &'static Board) -> ! {
    let args = board.args;
    let (rounds, spin) = (args.number("rounds", 1000), args.number("spin", 1000).max(1));
    let (sleep, seed) = (args.number("sleep", 0), args.number("seed", 1));
    let period = time::ns_to_ticks(args.number("tick_us", 1000).max(1) * 1000, time::frequency());
    // SAFETY: CPACR_EL1.FPEN: FP and SIMD don't trap.
    unsafe { asm!("msr cpacr_el1, {}", "isb", in(reg) 3_u64 << 20) }
    PERIOD.store(period, Ordering::Relaxed);
    gic::init(tick);
    gic::enable(board.virtual_timer);
    time::arm(time::now() + period);
    cpu::unmask_interrupts();
    let mut damaged = 0;
    for n in 0..rounds {
        damaged += round(value(seed, n), spin);
        if sleep != 0 {
            cpu::wait_for_interrupt();
        }
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "context: {rounds} rounds, {damaged} damaged, {} ticks, {} early, {} odd",
        count(&TICKS),
        count(&EARLY),
        count(&ODD)
    );
    let first_life = hypercall::restarts() == 0;
    match args.get("then") {
        Some("reset") if first_life => psci::system_reset(),
        Some("fault") if first_life => {
            // SAFETY: there is nothing; the VM's boot ends here.
            unsafe {
                core::ptr::write_volatile(core::ptr::without_provenance_mut(0x10_0000), 0_u64);
            }
        }
        _ => {}
    }
    psci::system_off()
}

fn tick(interrupt: Interrupt) {
    if interrupt.intid != board().virtual_timer {
        ODD.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // From the timer itself, which a hypervisor may have moved on: see `ticks` of a system file.
    let deadline: u64;
    // SAFETY: reading has no effect.
    unsafe { asm!("mrs {}, cntv_cval_el0", out(reg) deadline, options(nostack)) }
    if time::now() < deadline {
        EARLY.fetch_add(1, Ordering::Relaxed);
    }
    TICKS.fetch_add(1, Ordering::Relaxed);
    time::arm(deadline + PERIOD.load(Ordering::Relaxed));
}
