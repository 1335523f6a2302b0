// A start without firmware: every core comes to the image's first byte in EL3. Sets EL3 up for what
// runs below, and goes on in EL2: the boot core (Aff0 is 0) at once, each other one when its entry
// of the spin table is not zero; the memory of the table must be zero at reset.
//
// The EL3 vectors and the loop of the waiting cores are copied behind the table, outside of RAM:
// the memory that the image was loaded to may become a VM's. Nothing enters EL3 again: SMC is
// undefined (SMD), and no exception, interrupt or register access is routed there.

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
    // SCR_EL3 before the register of the GIC, whose copy it chooses.
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
    // The stores, before the instructions are fetched.
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
// 16 vectors of 128 bytes, each a core that stays; the loop of waiting cores is in the first one.
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
