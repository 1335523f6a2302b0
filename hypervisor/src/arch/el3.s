// The start of a board without firmware: every core enters the first byte of the image in EL3. This
// code sets EL3 up for the levels below and continues in EL2. The boot core (Aff0 is 0) continues
// at once; each other core continues when its entry of the spin table is not zero. The memory of
// the table must be zero at reset.
//
// The EL3 vectors and the loop of the waiting cores are copied behind the table, outside of RAM,
// because the memory that the image was loaded to may become memory of a VM. No core enters EL3
// again: SMC is undefined (SMD), and no exception, interrupt or register access is routed to EL3.

    .section .head.el3, "ax"
    .global other_level
// x1: CurrentEL, which is not EL2
other_level:
    cmp     x1, #(3 << 2)
    b.ne    not_el2
    ldr     x1, ={scr}
    msr     scr_el3, x1
    ldr     x1, =0x30c50830                 // SCTLR_EL3: RES1; MMU and caches off
    msr     sctlr_el3, x1
    mov     x1, #(1 << 8)                   // EZ: nothing is trapped
    msr     cptr_el3, x1
    msr     mdcr_el3, xzr
    ldr     x1, ={counter}
    msr     cntfrq_el0, x1
    // SCR_EL3 is written before the GIC register, because it selects which copy of the register is
    // accessed.
    isb
    mov     x1, #0xf                        // SRE, DFB, DIB, Enable
    msr     S3_6_C12_C12_5, x1              // ICC_SRE_EL3
    isb
    // Each core writes the same bytes, so one that already executes them sees no change.
    adr     x1, resident
    ldr     x2, ={resident}
    add     x3, x1, #{resident_len}
    msr     vbar_el3, x2
1:  ldp     x4, x5, [x1], #16
    stp     x4, x5, [x2], #16
    cmp     x1, x3
    b.lo    1b
    // The stores complete before the instructions are fetched.
    dsb     sy
    ic      iallu
    dsb     sy
    isb
    mov     x1, #0x3c9                      // EL2h, D, A, I and F masked
    msr     spsr_el3, x1
    mrs     x1, mpidr_el1
    and     x1, x1, #0xff
    ldr     x2, ={resident} + (wait - resident)
    cbz     x1, 2f
    br      x2
2:  ldr     x1, ={gicd}
    mov     w2, #0x70                       // DS, ARE_NS, ARE_S: one security state
    str     w2, [x1]
3:  ldr     w2, [x1]                        // RWP: the write is not everywhere yet
    tbnz    w2, #31, 3b
    adr     x1, boot_core
    msr     elr_el3, x1
    mov     x0, #0                          // no device tree
    eret
    dsb     nsh                             // stop speculation, as in vectors.s
    isb

    .balign 8
// 16 vectors of 128 bytes. In each one a core waits forever. The loop of the waiting cores is in
// the first one.
resident:
    wfe
    b       resident
// x1: number of the core
wait:
    adr     x2, resident
    sub     x2, x2, #{behind_table}
    add     x2, x2, x1, lsl #3
1:  wfe
    ldr     x3, [x2]
    cbz     x3, 1b
    msr     elr_el3, x3
    eret
    dsb     nsh                             // stop speculation, as in vectors.s
    isb
    .balign 8
    .space  128 - (. - resident)
    .rept   15
    wfe
    b       . - 4
    .space  120
    .endr
    .ltorg
