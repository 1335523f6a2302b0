/* The parts of weir.h that are not inline. */
#include <stddef.h>

#include "weir.h"

/* Distributor (IHI0069 12.8); the second frame of a redistributor has the same offsets. */
#define GICD_CTLR 0x0000
#define IGROUPR 0x0080
#define ISENABLER 0x0100
#define ICENABLER 0x0180
#define IPRIORITYR 0x0400
#define ITARGETSR 0x0800
#define IROUTER 0x6000
/* Redistributor */
#define GICR_WAKER 0x0014
#define GICR_SGI 0x10000
/* CPU interface (GICv2) */
#define GICC_CTLR 0x00
#define GICC_PMR 0x04
#define GICC_IAR 0x0c
#define GICC_EOIR 0x10
/* CPU interface (GICv3) */
#define ICC_PMR_EL1 "S3_0_C4_C6_0"
#define ICC_IAR1_EL1 "S3_0_C12_C12_0"
#define ICC_EOIR1_EL1 "S3_0_C12_C12_1"
#define ICC_CTLR_EL1 "S3_0_C12_C12_4"
#define ICC_SRE_EL1 "S3_0_C12_C12_5"
#define ICC_IGRPEN1_EL1 "S3_0_C12_C12_7"

/* Numbers from here on are no interrupts. */
#define FIRST_SPECIAL 1020

int main(const void *device_tree);

/* Reading the version is an exit to the hypervisor: weir_gic_init does so once. */
static int gic_version;

void weir_caches_on(void)
{
	/* Blocks of 1 GiB, and of 2 MiB where RAM is (DDI0487 D8.3). */
	static uint64_t table[512] __attribute__((aligned(4096)));
	static uint64_t ram[512] __attribute__((aligned(4096)));
	const uint64_t device = 3ull << 53 | 1 << 10 | 1, memory = 1 << 10 | 3 << 8 | 1 << 2 | 1;
	const uint64_t base = WEIR_RAM & ~0x3fffffffull;
	extern char __bss_start, __stack_end;

	for (uint64_t i = 0; i < 512; i++) {
		uint64_t address = base + (i << 21);
		int is_ram = address >= WEIR_RAM && address < WEIR_RAM + (uint64_t)WEIR_RAM_SIZE;

		table[i] = i << 30 | device;
		ram[i] = address | (is_ram ? memory : device);
	}
	table[base >> 30] = (uint64_t)ram | 3;
	__asm__ volatile("dsb sy" : : : "memory");
	/* What was written without caches is in memory; lines that a loader left would hide it. */
	for (char *line = &__bss_start; line < &__stack_end; line += 16)
		__asm__ volatile("dc ivac, %0" : : "r"(line) : "memory");
	weir_write_sysreg("mair_el1", 0xff04);
	/* 39 bits of address, walks write-back and inner shareable, no TTBR1. */
	weir_write_sysreg("tcr_el1", 1 << 23 | 3 << 12 | 1 << 10 | 1 << 8 | (64 - 39) |
				       (weir_read_sysreg("id_aa64mmfr0_el1") & 7) << 32);
	weir_write_sysreg("ttbr0_el1", (uint64_t)table);
	__asm__ volatile("isb\n\ttlbi vmalle1\n\tic iallu\n\tdsb sy\n\tisb" : : : "memory");
	/* The RES1 bits, I, C, M. */
	__asm__ volatile("msr sctlr_el1, %0\n\tisb" : : "r"(0x30d01805ull) : "memory");
}

void weir_puts(const char *text)
{
	while (*text)
		weir_putc(*text++);
}

void weir_put_number(uint64_t number)
{
	char digits[21];
	char *first = &digits[20];

	*first = 0;
	do {
		*--first = '0' + number % 10;
		number /= 10;
	} while (number);
	weir_puts(first);
}

void weir_put_hex(uint64_t number)
{
	int shift = 60;

	weir_puts("0x");
	while (shift > 0 && !(number >> shift))
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		weir_putc("0123456789abcdef"[number >> shift & 0xf]);
}

/* Waits until the distributor has taken earlier writes into effect: RWP, zero on GICv2. */
static void wait_for_distributor(void)
{
	while (weir_read32(WEIR_DISTRIBUTOR + GICD_CTLR) >> 31)
		;
}

void weir_gic_init(void)
{
	gic_version = weir_gic_version();
	if (gic_version == 2) {
		weir_write32(WEIR_DISTRIBUTOR + GICD_CTLR, 1);
		weir_write32(WEIR_CPU_INTERFACE + GICC_PMR, 0xff);
		weir_write32(WEIR_CPU_INTERFACE + GICC_CTLR, 1);
		return;
	}
	/* Affinity routing, then Group 1. */
	weir_write32(WEIR_DISTRIBUTOR + GICD_CTLR, 1 << 4);
	wait_for_distributor();
	weir_write32(WEIR_DISTRIBUTOR + GICD_CTLR, 1 << 4 | 1 << 1);
	wait_for_distributor();
	/* ProcessorSleep off, then until ChildrenAsleep is off. */
	weir_write32(WEIR_REDISTRIBUTORS + GICR_WAKER, 0);
	while (weir_read32(WEIR_REDISTRIBUTORS + GICR_WAKER) & 1 << 2)
		;
	weir_write_sysreg(ICC_SRE_EL1, weir_read_sysreg(ICC_SRE_EL1) | 1);
	__asm__ volatile("isb" : : : "memory");
	weir_write_sysreg(ICC_PMR_EL1, 0xff);
	weir_write_sysreg(ICC_CTLR_EL1, 0);
	weir_write_sysreg(ICC_IGRPEN1_EL1, 1);
	__asm__ volatile("isb" : : : "memory");
}

/* The registers of an interrupt; on GICv2 the distributor has those of this core, too. */
static uintptr_t frame(uint32_t intid)
{
	if (intid < 32 && gic_version == 3)
		return WEIR_REDISTRIBUTORS + GICR_SGI;
	return WEIR_DISTRIBUTOR;
}

void weir_gic_enable(uint32_t intid)
{
	uintptr_t word = frame(intid) + intid / 32 * 4;
	uint32_t bit = 1u << intid % 32;

	weir_write8(frame(intid) + IPRIORITYR + intid, 0xa0);
	if (gic_version == 3) {
		weir_write32(word + IGROUPR, weir_read32(word + IGROUPR) | bit);
		if (intid >= 32)
			weir_write64(WEIR_DISTRIBUTOR + IROUTER + intid * 8,
				     weir_read_sysreg("mpidr_el1") & 0xff00ffffff);
	} else if (intid >= 32) {
		/* The targets of SGIs read as this core; zero if it is the only one. */
		weir_write8(WEIR_DISTRIBUTOR + ITARGETSR + intid,
			    weir_read8(WEIR_DISTRIBUTOR + ITARGETSR));
	}
	weir_write32(word + ISENABLER, bit);
}

void weir_gic_disable(uint32_t intid)
{
	weir_write32(frame(intid) + ICENABLER + intid / 32 * 4, 1u << intid % 32);
	wait_for_distributor();
}

/* Called by the vector of IRQs. */
void weir_irq(void)
{
	uint32_t iar;

	if (gic_version == 2) {
		iar = weir_read32(WEIR_CPU_INTERFACE + GICC_IAR);
		if ((iar & 0x3ff) < FIRST_SPECIAL) {
			weir_interrupt(iar & 0x3ff);
			weir_write32(WEIR_CPU_INTERFACE + GICC_EOIR, iar);
		}
		return;
	}
	iar = (uint32_t)weir_read_sysreg(ICC_IAR1_EL1);
	/* The priority must be in effect before the handler runs (IHI0069 4.1.1). */
	__asm__ volatile("dsb sy" : : : "memory");
	if (iar < FIRST_SPECIAL) {
		weir_interrupt(iar);
		weir_write_sysreg(ICC_EOIR1_EL1, iar);
		__asm__ volatile("isb" : : : "memory");
	}
}

__attribute__((weak)) void weir_interrupt(uint32_t intid)
{
	(void)intid;
}

__attribute__((weak)) uint64_t weir_exception(uint64_t vector, uint64_t esr, uint64_t elr,
					      uint64_t far)
{
	weir_puts("exception: vector ");
	weir_put_number(vector);
	weir_puts(", ESR ");
	weir_put_hex(esr);
	weir_puts(", ELR ");
	weir_put_hex(elr);
	weir_puts(", FAR ");
	weir_put_hex(far);
	weir_putc('\n');
	weir_off();
}

/* Called by start.S. */
void weir_start(const void *device_tree)
{
	/* 8 bits and FIFOs (UARTLCR_H), then on (UARTCR). weir's UART ignores both. */
	weir_write32(WEIR_UART + 0x2c, 0x70);
	weir_write32(WEIR_UART + 0x30, 0x301);
	main(device_tree);
	weir_off();
}

/*
 * A compiler calls these without being asked. The empty assembly keeps it from making each loop a
 * call of the function itself.
 */
void *memset(void *to, int byte, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		((char *)to)[i] = (char)byte;
		__asm__ volatile("" : : : "memory");
	}
	return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		((char *)to)[i] = ((const char *)from)[i];
		__asm__ volatile("" : : : "memory");
	}
	return to;
}

void *memmove(void *to, const void *from, size_t len)
{
	if ((uintptr_t)to - (uintptr_t)from >= len)
		return memcpy(to, from, len);
	while (len--) {
		((char *)to)[len] = ((const char *)from)[len];
		__asm__ volatile("" : : : "memory");
	}
	return to;
}

int memcmp(const void *a, const void *b, size_t len)
{
	const unsigned char *left = a, *right = b;

	for (size_t i = 0; i < len; i++)
		if (left[i] != right[i])
			return left[i] - right[i];
	return 0;
}
