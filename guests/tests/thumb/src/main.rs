//! Runs T32 code at EL0 that accesses the virtual PL011 by instructions of 16 and of 32 bits, in an
//! IT block and outside, and waits by WFI. Behind each is an instruction that adds another power of
//! two to a sum; one that an IT block must leave out adds 8.
//!
//! ```text
//! thumb: sum 0x77
//! ```

#![no_std]
#![no_main]

use core::arch::global_asm;
use weir_guest::{Board, cpu, entry, println, psci, time};

entry!(main);

global_asm!(
    r#"
    .section .text.thumb, "ax"
    .balign 2048
// Exceptions from EL0 in AArch32 end it; others end it with another sum.
thumb_vectors:
    .rept   12
    b       thumb_failed
    .balign 128
    .endr
    b       thumb_done
    .balign 128
    .rept   3
    b       thumb_failed
    .balign 128
    .endr

// x0: a PL011. Returns the sum in x0. EL0 in AArch32 has no way to x19 to x23.
    .global thumb_run
thumb_run:
    stp     x29, x30, [sp, #-64]!
    stp     x19, x20, [sp, #16]
    stp     x21, x22, [sp, #32]
    mrs     x19, vbar_el1
    mrs     x20, sctlr_el1
    adr     x1, thumb_vectors
    msr     vbar_el1, x1
    // Without a stage 1, EL0 can access what EL1 can. Not disabled: WFI (nTWI), IT blocks (ITD).
    mov     x2, #0x1005
    bic     x1, x20, x2
    bic     x1, x1, #(1 << 7)
    orr     x1, x1, #(1 << 16)
    msr     sctlr_el1, x1
    adr     x1, thumb_code
    msr     elr_el1, x1
    mov     x1, #0x1f0                      // user mode, T32, A, I and F masked
    msr     spsr_el1, x1
    mov     x2, #0
    mov     x4, #0
    isb
    eret
thumb_failed:
    mrs     x4, esr_el1
thumb_done:
    msr     sctlr_el1, x20
    msr     vbar_el1, x19
    isb
    mov     x0, x4
    ldp     x19, x20, [sp, #16]
    ldp     x21, x22, [sp, #32]
    ldp     x29, x30, [sp], #64
    ret

    .balign 4
thumb_code:
    .hword  0x6981                          // ldr   r1, [r0, #0x18]
    .hword  0x3401                          // adds  r4, #1
    .hword  0x6382                          // str   r2, [r0, #0x38]
    .hword  0x3402                          // adds  r4, #2
    .hword  0x42a4                          // cmp   r4, r4
    .hword  0xbf06                          // itte  eq
    .hword  0x6981                          // ldreq r1, [r0, #0x18]
    .hword  0x3404                          // addeq r4, #4
    .hword  0x3408                          // addne r4, #8
    .hword  0xf8d0, 0x1018                  // ldr.w r1, [r0, #0x18]
    .hword  0x3410                          // adds  r4, #16
    .hword  0xbf30                          // wfi
    .hword  0x3420                          // adds  r4, #32
    .hword  0x42a4                          // cmp   r4, r4
    .hword  0xbf08                          // it    eq
    .hword  0xbf30                          // wfieq
    .hword  0x3440                          // adds  r4, #64
    .hword  0xdf00                          // svc   #0
    .hword  0xdf00
"#
);

unsafe extern "C" {
    fn thumb_run(uart: u64) -> u64;
}

fn main(board: &'static Board) -> ! {
    cpu::mask_interrupts();
    weir_guest::gic::init(|_| {});
    weir_guest::gic::enable(board.virtual_timer);
    // Pending from now on, so that each WFI ends.
    time::arm(time::now());
    // SAFETY: its registers and this guest's are given back as they were. The device and the code
    // lie below 4 GiB.
    let sum = unsafe { thumb_run(board.uart.base) };
    time::disarm();
    println!("thumb: sum {sum:#x}");
    psci::system_off()
}
