// Exception vectors of EL2, and the return into the guest.
//
// While a guest runs, SP_EL2 is the top of its core's stack and TPIDR_EL2 points to the core's
// `Core`. An exception stores the guest's registers in a `Frame` there. An interrupt, a call and an
// access to a system register save only the registers that a Rust function may change, and so does
// a data abort whose load or store has one of these as its operand. If the handler returns
// non-zero, the vectors save the other registers, too, and call `handle_interrupt` or
// `handle_action` with that value.

    .equ    FRAME, 256                      // x0 to x30 and a word of padding

    .macro  save_volatile
    stp     x0, x1, [sp, #-FRAME]!
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    str     x18, [sp, #144]
    str     x30, [sp, #240]
    .endm

    .macro  save_rest
    str     x19, [sp, #152]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    .endm

    .macro  load_x2_to_x17 frame
    ldp     x2, x3, [\frame, #16]
    ldp     x4, x5, [\frame, #32]
    ldp     x6, x7, [\frame, #48]
    ldp     x8, x9, [\frame, #64]
    ldp     x10, x11, [\frame, #80]
    ldp     x12, x13, [\frame, #96]
    ldp     x14, x15, [\frame, #112]
    ldp     x16, x17, [\frame, #128]
    .endm

    .macro  restore_volatile
    load_x2_to_x17 sp
    ldr     x18, [sp, #144]
    ldr     x30, [sp, #240]
    ldp     x0, x1, [sp], #FRAME
    .endm

    // Stops speculation behind the ERET, because some cores continue there ("Straight-line
    // speculation", Arm). DSB and ISB stand in for SB, which some cores lack. The barriers are
    // never executed.
    .macro  eret_only
    eret
    dsb     nsh
    isb
    .endm

    .macro  own_fault
    .balign 128
    mrs     x0, esr_el2
    mrs     x1, elr_el2
    mrs     x2, far_el2
    b       {own_exception}
    .endm

    .section .vectors, "ax"
    .balign 2048
    .global vectors
vectors:
    .rept   8                               // from EL2 itself: a fault of ours, nothing that a guest can cause
    own_fault
    .endr
    .rept   2                               // from a guest, with 64-bit and with 32-bit registers
    .balign 128
    save_volatile
    b       sync
    .balign 128
    save_volatile
    mrs     x0, tpidr_el2
    bl      {handle_irq}
    cbnz    x0, irq_slow
    restore_volatile
    eret_only
    .balign 128
    own_fault                               // FIQ: no interrupt of group 0 is configured
    .balign 128
    save_volatile
    save_rest
    mrs     x0, tpidr_el2
    bl      {handle_serror}
    b       sync_done
    .endr

sync:
    mrs     x2, esr_el2
    ubfx    x3, x2, #27, #5
    cmp     x3, #11                         // EC 0x16 and 0x17: HVC and SMC from AArch64
    b.eq    call
    cmp     x3, #12                         // EC 0x18: MSR or MRS
    b.eq    register
    cmp     x3, #18                         // EC 0x24: data abort
    b.eq    data_abort
sync_all:
    save_rest
    mov     x0, sp
    mrs     x1, tpidr_el2                   // x2 is the syndrome
    bl      {handle_sync}
sync_done:
    cbnz    x0, act
resume_sp:
    ldr     x19, [sp, #152]
    ldp     x20, x21, [sp, #160]
    ldp     x22, x23, [sp, #176]
    ldp     x24, x25, [sp, #192]
    ldp     x26, x27, [sp, #208]
    ldp     x28, x29, [sp, #224]
    restore_volatile
    eret_only

irq_slow:
    save_rest
    mov     x1, x0
    mrs     x0, tpidr_el2
    bl      {handle_interrupt}
    b       resume_sp

call:
    mov     x0, sp
    mrs     x1, tpidr_el2
    bl      {handle_call}
    cbnz    x0, call_slow
    restore_volatile
    eret_only

register:
    ubfx    x3, x2, #5, #5                  // the general register
    cmp     x3, #18
    b.hi    sync_all                        // not saved yet
    mov     x0, sp
    mrs     x1, tpidr_el2
    bl      {handle_register}
    cbnz    x0, call_slow
    restore_volatile
    eret_only

data_abort:
    ubfx    x3, x2, #16, #5                 // the general register; 0 if the syndrome names none
    cmp     x3, #18
    b.hi    data_abort_all                  // not saved yet
    mov     x0, sp
    mrs     x1, tpidr_el2
    bl      {handle_data_abort}
    cbnz    x0, call_slow
    restore_volatile
    eret_only

data_abort_all:
    save_rest
    mov     x0, sp
    mrs     x1, tpidr_el2
    bl      {handle_data_abort}
    b       sync_done

call_slow:
    save_rest
act:
    mov     x1, x0
    mrs     x0, tpidr_el2
    bl      {handle_action}
    b       resume_sp

    .section .text.enter, "ax"
    .global enter
// Enters the guest. x0: the registers of the guest, x1: the top of this core's stack.
enter:
    mov     sp, x1
    load_x2_to_x17 x0
    ldp     x18, x19, [x0, #144]
    ldp     x20, x21, [x0, #160]
    ldp     x22, x23, [x0, #176]
    ldp     x24, x25, [x0, #192]
    ldp     x26, x27, [x0, #208]
    ldp     x28, x29, [x0, #224]
    ldr     x30, [x0, #240]
    ldp     x0, x1, [x0]
    eret_only

    .section .text.resume, "ax"
    .global resume
// Enters the guest. x0: a frame at the top of this core's stack, with the guest's registers.
resume:
    mov     sp, x0
    b       resume_sp
