// The start of every core, from the jump of the loader to the first Rust function.
//
// The image starts at the physical address that the loader chose, at EL2, with the MMU off and
// interrupts masked (the arm64 boot protocol; PSCI CPU_ON for the other cores). The first page of
// the image is the trampoline. It is the only code that runs at its physical address, and it is
// mapped one to one while the MMU is turned on.

    .section .head, "ax"
    .global _start
_start:
    // The arm64 Image header (Linux, Documentation/arch/arm64/booting).
    b       boot_core
    .word   0
    .quad   0                               // text_offset
    .quad   __image_size                    // weir build adds what it puts before .bss
    .quad   0xa                             // little endian, 4 KiB pages, anywhere in memory
    .quad   0
    .quad   0
    .quad   0
    .ascii  "ARM\x64"
    .word   0

// x0: physical address of the board's device tree
boot_core:
    mrs     x1, CurrentEL
    cmp     x1, #(2 << 2)
    b.ne    other_level
    mov     x19, x0
    adrp    x20, __image_start
    ldr     x22, [x20, #16]                 // image_size; .bss and the stacks are the end of it
    add     x22, x22, x20
    ldr     x1, =__behind_size
    sub     x22, x22, x1                    // physical address of .bss
    // Tables: 0 root, 1 and 2 the image, 3 and 4 the trampoline.
    ldr     x21, ={stage1}
    ldr     x1, =__file_end
    sub     x21, x21, x1
    add     x21, x21, x22
    // A loader that ran with caches on may have left lines of these tables in the caches. The code
    // below writes the tables with the MMU off; a clean stale line would hide these writes from the
    // table walker, which reads through the caches.
    mov     x0, x21
    mov     x1, #({boot_tables} * 4096 / 512)
1:  .rept   8
    dc      ivac, x0
    add     x0, x0, #64
    .endr
    subs    x1, x1, #1
    b.ne    1b
    // The invalidation completes before the stores below, which write the same lines.
    dsb     sy
    mov     x0, x21
    mov     x1, #({boot_tables} * 4096 / 128)
1:  .rept   8
    stp     xzr, xzr, [x0], #16
    .endr
    subs    x1, x1, #1
    b.ne    1b

    add     x0, x21, #(2 * 4096)            // next entry of the image's level 3
    mov     x1, x20                         // next physical page
    ldr     w2, =__text_size
    ldr     x3, ={code}
    bl      map_pages
    ldr     w2, =__rodata_size
    ldr     x3, ={read}
    bl      map_pages
    ldr     w2, =__data_size
    ldr     x3, ={read_write}
    bl      map_pages
    mov     x1, x22
    ldr     w2, =__variables_size
    bl      map_pages
    mov     x4, #{max_cores}
2:  add     x0, x0, #(({stack_guard} / 4096) * 8)   // the guard below each stack stays unmapped
    add     x1, x1, #{stack_guard}
    mov     w2, #{stack_size}
    bl      map_pages
    subs    x4, x4, #1
    b.ne    2b

    add     x0, x21, #(1 * 4096)           // root -> level 2 -> level 3 of the image
    orr     x0, x0, #3
    str     x0, [x21, #(({hyp_base} >> 30) * 8)]
    add     x0, x21, #(2 * 4096)
    orr     x0, x0, #3
    str     x0, [x21, #(1 * 4096)]
    add     x0, x21, #(3 * 4096)           // and of the trampoline, at its physical address
    orr     x0, x0, #3
    ubfx    x1, x20, #30, #9
    str     x0, [x21, x1, lsl #3]
    add     x2, x21, #(3 * 4096)
    add     x0, x21, #(4 * 4096)
    orr     x0, x0, #3
    ubfx    x1, x20, #21, #9
    str     x0, [x2, x1, lsl #3]
    add     x2, x21, #(4 * 4096)
    ldr     x3, ={code}
    orr     x3, x3, x20
    ubfx    x1, x20, #12, #9
    str     x3, [x2, x1, lsl #3]
    adr     x0, stage1_root
    str     x21, [x0]
    mov     x0, x19
    mov     x1, x20
    mov     x19, #0
    ldr     x30, =zero_bss
    b       mmu_on

// x0: next entry, x1: next page, w2: bytes, x3: attributes. Advances x0 and x1.
map_pages:
    cbz     w2, 2f
1:  orr     x5, x1, x3
    str     x5, [x0], #8
    add     x1, x1, #4096
    subs    w2, w2, #4096
    b.ne    1b
2:  ret

    .global secondary_start
// x0: number of the core, from CPU_ON's context
secondary_start:
    mov     x19, x0
    ldr     x30, ={secondary_main}
// Turns the MMU on and goes to x30 on the stack of core x19; keeps x0 and x1.
mmu_on:
    // HCR_EL2 is unknown after firmware, and with E2H set TCR_EL2 has another layout. RW alone is
    // set: EL1 is AArch64, and all other controls are off.
    mov     x2, #(1 << 31)
    msr     hcr_el2, x2
    isb
    ldr     x21, stage1_root
    ldr     x2, ={mair}
    msr     mair_el2, x2
    ldr     x2, ={tcr}
    msr     tcr_el2, x2
    msr     ttbr0_el2, x21
    // The TLB and the instruction cache may hold entries from before the hypervisor started, so
    // both are invalidated. The DSB orders the stores to the tables before the walks that follow;
    // the ISB orders the register writes above before the MMU is turned on.
    tlbi    alle2
    ic      iallu
    dsb     sy
    isb
    ldr     x2, ={sctlr}
    msr     sctlr_el2, x2
    isb
    ldr     x2, =__image_end
    mov     x3, #({stack_size} + {stack_guard})
    mov     x4, #({max_cores} - 1)
    sub     x4, x4, x19
    msub    x2, x3, x4, x2
    mov     sp, x2
    ldr     x2, =vectors
    msr     vbar_el2, x2
    ret     x30

    .global move_in
// Continues in the copy of the trampoline at physical address x1, by the tables that the copy
// names, on a new stack. x0: physical address of the trampoline that this core started in.
move_in:
    adr     x2, 1f
    bfi     x0, x2, #0, #12                 // to where it stays when the MMU goes off
    br      x0
1:  mrs     x2, sctlr_el2
    bic     x2, x2, #1                      // MMU
    bic     x2, x2, #(1 << 2)               // data caches
    msr     sctlr_el2, x2
    // The instructions and constants that follow are read by physical address from memory: the
    // loader cleaned the first trampoline to memory, and the code that made the copy cleaned the
    // copy.
    isb
    mov     x19, #0
    ldr     x30, ={boot_moved}
    adr     x2, mmu_on
    bfi     x1, x2, #0, #12
    br      x1

    .balign 8
    .global stage1_root
// Physical address of the stage 1 tables; each copy of the trampoline has its own value.
stage1_root:
    .quad   0

    .global not_el2
// Entry of a core that was started below EL2, or in EL3 on a board whose start does not expect
// that. Prints a message on the UART and turns the machine off; if that fails, the core waits
// forever.
not_el2:
    adr     x1, 3f
    ldr     x2, ={uart}
    mov     w3, #{uart_on}                  // the firmware may not have turned it on
    str     w3, [x2, #{uart_control}]
1:  ldrb    w3, [x1], #1
    cbz     w3, 2f
5:  ldr     w4, [x2, #{uart_status}]
    tbnz    w4, #{uart_full}, 5b
    str     w3, [x2, #{uart_data}]
    b       1b
2:  ldr     w0, =0x84000008                 // PSCI SYSTEM_OFF; below EL2 the conduit is HVC
    mrs     x1, CurrentEL
    cmp     x1, #(1 << 2)
    b.ne    4f
    hvc     #0
4:  wfi
    b       4b
3:  .asciz  "weir: needs EL2, and this core did not start in it: let the firmware start it there, or QEMU by virtualization=on\r\n"
    .ltorg

    .pushsection .text.zero_bss, "ax"
// Runs on the boot core at its virtual address, with the MMU and the caches on. Zeroes .bss except
// the tables in use, and continues at boot_main. Keeps x0 and x1. Leaves the stacks and .noinit as
// they are.
zero_bss:
    mrs     x2, dczid_el0
    and     x3, x2, #0xf
    mov     x4, #4
    lsl     x3, x4, x3                      // bytes that DC ZVA zeroes
    ldr     x4, =__file_end
    ldr     x5, ={stage1}
    bl      zero_pages
    add     x4, x5, #({boot_tables} * 4096)
    ldr     x5, =__bss_end
    bl      zero_pages
    b       {boot_main}

// Zeroes whole pages from x4 up to x5; x2: DCZID_EL0, x3: its block in bytes. Leaves x4 at x5.
zero_pages:
    cmp     x4, x5
    b.hs    3f
    // DC ZVA is prohibited (DZP), or eight of its blocks are more than a page.
    tst     x2, #0x18
    b.ne    2f
1:  .rept   8
    dc      zva, x4
    add     x4, x4, x3
    .endr
    cmp     x4, x5
    b.lo    1b
    ret
2:  .rept   8
    stp     xzr, xzr, [x4], #16
    .endr
    cmp     x4, x5
    b.lo    2b
3:  ret
    .ltorg
    .popsection
