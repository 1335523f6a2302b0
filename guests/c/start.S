/*
 * From the first instruction to weir_start, and the vector table. At entry the core is in EL1h with
 * all interrupts masked, MMU and caches off, and x0 is the address of the device tree. It is 0 for
 * an ELF file on QEMU without weir.
 */
	.section .text.start, "ax"
	.global	_start
_start:
	adrp	x1, weir_vectors
	add	x1, x1, :lo12:weir_vectors
	msr	vbar_el1, x1
	isb
	adrp	x1, __stack_end
	add	x1, x1, :lo12:__stack_end
	mov	sp, x1
	adrp	x1, __bss_start
	add	x1, x1, :lo12:__bss_start
	adrp	x2, __bss_end
	add	x2, x2, :lo12:__bss_end
1:	cmp	x1, x2
	b.hs	2f
	str	xzr, [x1], #8
	b	1b
2:	bl	weir_start
3:	wfi
	b	3b

	/* Bytes of the registers that a C function may change, and ELR_EL1 and SPSR_EL1. */
	.equ	FRAME, 176

	.macro	vector number, handler
	.balign	128
	sub	sp, sp, #FRAME
	stp	x0, x1, [sp]
	mov	x0, #\number
	b	\handler
	.endm

	.section .text, "ax"
	.balign	2048
weir_vectors:
	.irp	number, 0, 1, 2, 3, 4
	vector	\number, exception
	.endr
	vector	5, interrupt
	.irp	number, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	vector	\number, exception
	.endr

	.macro	save
	stp	x2, x3, [sp, #16]
	stp	x4, x5, [sp, #32]
	stp	x6, x7, [sp, #48]
	stp	x8, x9, [sp, #64]
	stp	x10, x11, [sp, #80]
	stp	x12, x13, [sp, #96]
	stp	x14, x15, [sp, #112]
	stp	x16, x17, [sp, #128]
	stp	x18, x30, [sp, #144]
	mrs	x2, elr_el1
	mrs	x3, spsr_el1
	stp	x2, x3, [sp, #160]
	.endm

interrupt:
	save
	bl	weir_irq
	b	return

exception:
	save
	mrs	x1, esr_el1
	mrs	x3, far_el1
	bl	weir_exception
	str	x0, [sp, #160]

return:
	ldp	x2, x3, [sp, #160]
	msr	elr_el1, x2
	msr	spsr_el1, x3
	ldp	x18, x30, [sp, #144]
	ldp	x16, x17, [sp, #128]
	ldp	x14, x15, [sp, #112]
	ldp	x12, x13, [sp, #96]
	ldp	x10, x11, [sp, #80]
	ldp	x8, x9, [sp, #64]
	ldp	x6, x7, [sp, #48]
	ldp	x4, x5, [sp, #32]
	ldp	x2, x3, [sp, #16]
	ldp	x0, x1, [sp]
	add	sp, sp, #FRAME
	eret

	.section .note.GNU-stack, "", %progbits
