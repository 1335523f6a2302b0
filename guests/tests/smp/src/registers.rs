//! Patterns in registers, to see whether anything outside of this core's program changes them.
//!
//! The target has no floating point, so that nothing that the compiler emits touches V0 to V31,
//! FPCR or FPSR: a pattern put there stays until the next [`fill_simd`].

use core::arch::global_asm;

unsafe extern "C" {
    fn smp_fill_simd(pattern: u64, fpcr: u64, fpsr: u64);
    fn smp_check_simd(pattern: u64, fpcr: u64, fpsr: u64) -> u64;
    fn smp_hold_general(pattern: u64, device: u64, rounds: u64) -> u64;
}

global_asm!(
    r"
    .arch_extension fp
    .arch_extension simd
    .text

    // Vn = pattern + n in the low half, pattern in the high half.
    smp_fill_simd:
        msr     fpcr, x1
        msr     fpsr, x2
        .irp    reg, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
        add     x2, x0, #\reg
        fmov    d\reg, x2
        mov     v\reg\().d[1], x0
        .endr
        ret

    smp_check_simd:
        mrs     x3, fpcr
        cmp     x3, x1
        b.ne    1f
        mrs     x3, fpsr
        cmp     x3, x2
        b.ne    1f
        .irp    reg, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
        fmov    x2, d\reg
        sub     x2, x2, #\reg
        cmp     x2, x0
        b.ne    1f
        mov     x2, v\reg\().d[1]
        cmp     x2, x0
        b.ne    1f
        .endr
        mov     x0, #0
        ret
    1:  mov     x0, #1
        ret

    // Holds pattern + n in Xn, n = 3 to 29, over x2 rounds. Each round reads the device register at
    // x1 into X30, and an ID register (its read traps) into each of them: some are saved later
    // than others. Returns the number of rounds in which a register had changed or been read wrong.
    smp_hold_general:
        stp     x29, x30, [sp, #-112]!
        stp     x19, x20, [sp, #16]
        stp     x21, x22, [sp, #32]
        stp     x23, x24, [sp, #48]
        stp     x25, x26, [sp, #64]
        stp     x27, x28, [sp, #80]
        str     xzr, [sp, #96]
        .irp    reg, 3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29
        add     x\reg, x0, #\reg
        .endr
    1:  ldr     w30, [x1]
        yield
        mrs     x30, id_aa64pfr0_el1
        mrs     xzr, id_aa64pfr0_el1
        .irp    reg, 3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29
        mrs     x\reg, id_aa64pfr0_el1
        cmp     x\reg, x30
        add     x\reg, x0, #\reg
        b.ne    2f
        .endr
        .irp    reg, 3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29
        sub     x30, x\reg, #\reg
        cmp     x30, x0
        b.ne    2f
        .endr
        b       3f
    2:  ldr     x30, [sp, #96]
        add     x30, x30, #1
        str     x30, [sp, #96]
    3:  subs    x2, x2, #1
        b.ne    1b
        ldr     x0, [sp, #96]
        ldp     x19, x20, [sp, #16]
        ldp     x21, x22, [sp, #32]
        ldp     x23, x24, [sp, #48]
        ldp     x25, x26, [sp, #64]
        ldp     x27, x28, [sp, #80]
        ldp     x29, x30, [sp], #112
        ret
    "
);

/// What a core holds in its SIMD registers.
fn pattern(core: usize) -> u64 {
    0x5eed_0000_c0de_0000 + core as u64 * 0x0001_0001_0000_1000
}

/// FPCR: another rounding mode (RMode) for each core.
fn fpcr(core: usize) -> u64 {
    (core as u64 & 3) << 22
}

/// FPSR: another set of cumulative exception flags (IOC to IXC) for each core.
fn fpsr(core: usize) -> u64 {
    !(core as u64) & 0x1f
}

/// Puts this core's pattern into the SIMD registers, FPCR and FPSR.
pub fn fill_simd(core: usize) {
    // SAFETY: compiled code does not use these registers; `aarch64-rt` has set CPACR_EL1.FPEN.
    unsafe { smp_fill_simd(pattern(core), fpcr(core), fpsr(core)) };
}

/// Whether the SIMD registers hold what [`fill_simd`] has put there.
pub fn simd_is_intact(core: usize) -> bool {
    // SAFETY: reads registers that compiled code does not use.
    unsafe { smp_check_simd(pattern(core), fpcr(core), fpsr(core)) == 0 }
}

/// Holds a pattern in the general registers over `rounds` rounds of reads, of the device register
/// at `device` and of an ID register into each of them, with any interrupts in between. Says
/// whether it stayed, and all reads of the ID register were alike.
pub fn general_stay_intact(core: usize, device: u64, rounds: u64) -> bool {
    // SAFETY: follows the procedure call standard; `device` is read only.
    unsafe { smp_hold_general(pattern(core), device, rounds) == 0 }
}
