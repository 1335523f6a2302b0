// memcpy and memset for EL2, 64 and 128 bytes at a time. The linker uses them in place of the
// functions in compiler_builtins, which move 8 bytes with four instructions. EL2 must not use FP
// registers, and its SCTLR allows unaligned accesses to Normal memory. Neither function may be used
// on device registers.

    .section .text.memcpy, "ax"
    .global memcpy
// x0: destination, x1: source, x2: bytes. Returns x0. The two areas do not overlap.
memcpy:
    mov     x3, x0
    subs    x2, x2, #64
    b.lo    2f
1:  ldp     x4, x5, [x1]
    ldp     x6, x7, [x1, #16]
    ldp     x8, x9, [x1, #32]
    ldp     x10, x11, [x1, #48]
    add     x1, x1, #64
    stp     x4, x5, [x3]
    stp     x6, x7, [x3, #16]
    stp     x8, x9, [x3, #32]
    stp     x10, x11, [x3, #48]
    add     x3, x3, #64
    subs    x2, x2, #64
    b.hs    1b
// The low six bits of x2 are still those of the length.
2:  tbz     x2, #5, 8f
    ldp     x4, x5, [x1]
    ldp     x6, x7, [x1, #16]
    add     x1, x1, #32
    stp     x4, x5, [x3]
    stp     x6, x7, [x3, #16]
    add     x3, x3, #32
8:  tbz     x2, #4, 3f
    ldp     x4, x5, [x1], #16
    stp     x4, x5, [x3], #16
3:  tbz     x2, #3, 4f
    ldr     x4, [x1], #8
    str     x4, [x3], #8
4:  tbz     x2, #2, 5f
    ldr     w4, [x1], #4
    str     w4, [x3], #4
5:  tbz     x2, #1, 6f
    ldrh    w4, [x1], #2
    strh    w4, [x3], #2
6:  tbz     x2, #0, 7f
    ldrb    w4, [x1]
    strb    w4, [x3]
7:  ret

    .section .text.memset, "ax"
    .global memset
// x0: destination, w1: the byte, x2: bytes. Returns x0.
memset:
    mov     x3, x0
    and     x1, x1, #0xff
    mov     x4, #0x0101010101010101
    mul     x4, x1, x4
    subs    x2, x2, #128
    b.lo    2f
1:  stp     x4, x4, [x3, #16]
    stp     x4, x4, [x3, #32]
    stp     x4, x4, [x3, #48]
    stp     x4, x4, [x3, #64]
    stp     x4, x4, [x3, #80]
    stp     x4, x4, [x3, #96]
    stp     x4, x4, [x3, #112]
    stp     x4, x4, [x3], #128
    subs    x2, x2, #128
    b.hs    1b
// The low seven bits of x2 are still those of the length.
2:  tbz     x2, #6, 8f
    stp     x4, x4, [x3, #16]
    stp     x4, x4, [x3, #32]
    stp     x4, x4, [x3, #48]
    stp     x4, x4, [x3], #64
8:  tbz     x2, #5, 9f
    stp     x4, x4, [x3, #16]
    stp     x4, x4, [x3], #32
9:  tbz     x2, #4, 3f
    stp     x4, x4, [x3], #16
3:  tbz     x2, #3, 4f
    str     x4, [x3], #8
4:  tbz     x2, #2, 5f
    str     w4, [x3], #4
5:  tbz     x2, #1, 6f
    strh    w4, [x3], #2
6:  tbz     x2, #0, 7f
    strb    w4, [x3]
7:  ret
