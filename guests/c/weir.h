/*
 * A guest of weir in C: the virtual board, hypercalls, PSCI, console, virtual timer and interrupt
 * controller, for one core.
 *
 * The guest is a file with
 *
 *     int main(const void *device_tree);      SYSTEM_OFF follows its return
 *     void weir_interrupt(uint32_t intid);    if it enables interrupts
 *
 * linked with start.S and weir.c by guest.ld. MMU, caches and floating point are off. Therefore
 * compile with -mgeneral-regs-only and -mstrict-align. Atomics work once caches are on. The device
 * tree has the VM's `args` in /chosen/bootargs.
 *
 * The same program runs on QEMU's `virt` machine without weir, where `device_tree` is NULL.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stdint.h>

/*
 * Default addresses of the virtual board, which are also in the device tree. For a VM whose key
 * `board` moves one of them, compile with -DWEIR_UART=ADDRESS or the like.
 */
#ifndef WEIR_DISTRIBUTOR
#define WEIR_DISTRIBUTOR 0x08000000
#endif
/* RAM, in blocks of 2 MiB. Larger VMs also change LENGTH in guest.ld. */
#ifndef WEIR_RAM
#define WEIR_RAM 0x40000000
#endif
#ifndef WEIR_RAM_SIZE
#define WEIR_RAM_SIZE 0x200000
#endif
/* GICv3 */
#ifndef WEIR_REDISTRIBUTORS
#define WEIR_REDISTRIBUTORS 0x080a0000
#endif
/* GICv2 */
#ifndef WEIR_CPU_INTERFACE
#define WEIR_CPU_INTERFACE 0x08010000
#endif
/* PL011 */
#ifndef WEIR_UART
#define WEIR_UART 0x09000000
#endif
#ifndef WEIR_UART_INTID
#define WEIR_UART_INTID 33
#endif

/* The virtual timer's interrupt, a PPI. */
#define WEIR_VIRTUAL_TIMER 27

/*
 * Function identifiers of hypercalls: docs/reference/generated/hypercalls.md. Those of the broker are not
 * listed.
 */
#define WEIR_NULL 0xc6000000
#define WEIR_RESTARTS 0xc6000001
#define WEIR_SET_BUDGET 0xc6000002
#define WEIR_HAND_OVER 0xc6000004
#define WEIR_HAS_DEVICES 0xc6000005
#define WEIR_MARK 0xc6000008
#define WEIR_PV_TIME_FEATURES 0xc5000020
#define WEIR_PV_TIME_ST 0xc5000021
#define WEIR_HYPERVISOR_UID 0x8600ff01
#define WEIR_HYPERVISOR_REVISION 0x8600ff03
#define WEIR_SMCCC_VERSION 0x80000000
#define WEIR_PSCI_VERSION 0x84000000
#define WEIR_PSCI_SYSTEM_OFF 0x84000008
#define WEIR_PSCI_SYSTEM_RESET 0x84000009

/* Results of a call that does not exist here, and of one that the system file does not allow. */
#define WEIR_NOT_SUPPORTED (-1)
#define WEIR_DENIED (-3)

/* ---- Device registers ----------------------------------------------------------------------- */

/*
 * Each access is one load or store of a general register without writeback. A compiler may make a
 * volatile access one with writeback, which a hypervisor cannot emulate: it would end the VM.
 */
static inline uint32_t weir_read32(uintptr_t address)
{
	uint32_t value;

	__asm__ volatile("ldr %w0, [%1]" : "=r"(value) : "r"(address) : "memory");
	return value;
}

static inline void weir_write32(uintptr_t address, uint32_t value)
{
	__asm__ volatile("str %w0, [%1]" : : "rZ"(value), "r"(address) : "memory");
}

static inline uint8_t weir_read8(uintptr_t address)
{
	uint32_t value;

	__asm__ volatile("ldrb %w0, [%1]" : "=r"(value) : "r"(address) : "memory");
	return (uint8_t)value;
}

static inline void weir_write8(uintptr_t address, uint8_t value)
{
	__asm__ volatile("strb %w0, [%1]" : : "rZ"((uint32_t)value), "r"(address) : "memory");
}

static inline void weir_write64(uintptr_t address, uint64_t value)
{
	__asm__ volatile("str %x0, [%1]" : : "rZ"(value), "r"(address) : "memory");
}

/* Reads and writes a system register. The name is text: weir_read_sysreg("mpidr_el1"). */
#define weir_read_sysreg(name)                                                                     \
	({                                                                                         \
		uint64_t value_;                                                                   \
		__asm__ volatile("mrs %0, " name : "=r"(value_) : : "memory");                     \
		value_;                                                                            \
	})
#define weir_write_sysreg(name, value)                                                             \
	__asm__ volatile("msr " name ", %x0" : : "rZ"((uint64_t)(value)) : "memory")

/*
 * Turns the MMU and the caches on: RAM is cacheable memory at its own address, all else is devices.
 * Call it first in main, once.
 */
void weir_caches_on(void);

/* ---- Hypercalls ----------------------------------------------------------------------------- */

/* Calls `function` by HVC with x1 to x3 and returns x0. */
static inline int64_t weir_call(uint32_t function, uint64_t x1, uint64_t x2, uint64_t x3)
{
	register uint64_t r0 __asm__("x0") = function;
	register uint64_t r1 __asm__("x1") = x1;
	register uint64_t r2 __asm__("x2") = x2;
	register uint64_t r3 __asm__("x3") = x3;

	__asm__ volatile("hvc #0"
			 : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3)
			 :
			 : "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
			   "x15", "x16", "x17", "memory");
	return (int64_t)r0;
}

/* Does nothing. Returns 0, or WEIR_NOT_SUPPORTED without weir. */
static inline int64_t weir_null(void)
{
	return weir_call(WEIR_NULL, 0, 0, 0);
}

/* Returns the restarts of this VM by reset or fault, or WEIR_NOT_SUPPORTED without weir. */
static inline int64_t weir_restarts(void)
{
	return weir_call(WEIR_RESTARTS, 0, 0, 0);
}

/*
 * Sets the memory budget of a VM, per period and from the next period on. `vm` is the VM's place
 * in the system file, `reads` the budget of all accesses if writes are not counted apart. Returns
 * 0, or WEIR_DENIED if `adjust` does not allow it.
 */
static inline int64_t weir_set_budget(uint64_t vm, uint64_t reads, uint64_t writes)
{
	return weir_call(WEIR_SET_BUDGET, vm, reads, writes);
}

/*
 * Hands the console and the active devices to the VM at this place in the system file. Returns 0,
 * or WEIR_DENIED without `focus = true` or if that VM does not run.
 */
static inline int64_t weir_hand_over(uint64_t vm)
{
	return weir_call(WEIR_HAND_OVER, vm, 0, 0);
}

/* Returns 1 if the active devices are this VM's, otherwise 0. */
static inline int64_t weir_has_devices(void)
{
	return weir_call(WEIR_HAS_DEVICES, 0, 0, 0);
}

/*
 * Returns the nanoseconds for which this vCPU was ready and another VM had its core (DEN0057), or
 * WEIR_NOT_SUPPORTED if it shares no core.
 */
static inline int64_t weir_stolen_ns(void)
{
	int64_t record = weir_call(WEIR_PV_TIME_ST, 0, 0, 0);

	return record < 0 ? record : *(volatile int64_t *)(record + 8);
}

/* ---- Marks in the trace --------------------------------------------------------------------- */

/* The first eight bytes of a name, as marks have it. The compiler computes it for a literal. */
static inline uint64_t weir_name(const char *text)
{
	uint64_t name = 0;

	for (int i = 0; i < 8 && text[i]; i++)
		name |= (uint64_t)(uint8_t)text[i] << 8 * i;
	return name;
}

/*
 * Marks that an activation of the VM's task `name` in the system file begins. It was released at
 * `release`, in ticks of the virtual counter; `skipped` further releases have passed since the last
 * activation and get none of their own. A run judges the task's response times by these marks.
 */
static inline void weir_task_release(const char *name, uint64_t release, uint64_t skipped)
{
	weir_call(WEIR_MARK, 1 | skipped << 32, weir_name(name), release);
}

/* Marks that the activation is complete. */
static inline void weir_task_complete(const char *name)
{
	weir_call(WEIR_MARK, 2, weir_name(name), 0);
}

/* Marks that a section of the program begins and ends, which `weir trace` shows as a slice. */
static inline void weir_section_begin(const char *name)
{
	weir_call(WEIR_MARK, 3, weir_name(name), 0);
}

static inline void weir_section_end(const char *name)
{
	weir_call(WEIR_MARK, 4, weir_name(name), 0);
}

/* ---- PSCI ----------------------------------------------------------------------------------- */

/* PSCI SYSTEM_OFF: stops the VM for good. */
__attribute__((noreturn)) static inline void weir_off(void)
{
	for (;;)
		weir_call(WEIR_PSCI_SYSTEM_OFF, 0, 0, 0);
}

/* PSCI SYSTEM_RESET: restarts the VM from its pristine image. */
__attribute__((noreturn)) static inline void weir_reset(void)
{
	for (;;)
		weir_call(WEIR_PSCI_SYSTEM_RESET, 0, 0, 0);
}

/* ---- Console, polled ------------------------------------------------------------------------ */

static inline void weir_putc(char c)
{
	/* UARTFR.TXFF */
	while (weir_read32(WEIR_UART + 0x18) & 1 << 5)
		;
	weir_write32(WEIR_UART, (uint8_t)c);
}

/* Prints `text`, without a line feed behind it. */
void weir_puts(const char *text);

/* Prints a number in decimal, and in hexadecimal behind 0x. */
void weir_put_number(uint64_t number);
void weir_put_hex(uint64_t number);

/* ---- Interrupts ----------------------------------------------------------------------------- */

/* Returns 3 for a GICv3, 2 for a GICv2. */
static inline int weir_gic_version(void)
{
	return weir_read_sysreg("id_aa64pfr0_el1") >> 24 & 0xf ? 3 : 2;
}

/*
 * Turns the interrupt controller on for this core, with all interrupts disabled. The guest calls it
 * before the functions below.
 */
void weir_gic_init(void);

/*
 * Enables an interrupt on this core, at the priority 0xa0, and disables it. A device's interrupt is
 * level-sensitive unless the guest changes GICD_ICFGR.
 */
void weir_gic_enable(uint32_t intid);
void weir_gic_disable(uint32_t intid);

/*
 * Handles an interrupt between its acknowledgement and its end, with interrupts masked. The guest
 * defines it; the one in weir.c does nothing.
 */
void weir_interrupt(uint32_t intid);

/*
 * Handles any other exception. `vector` is the entry of the vector table, 0 to 15: 4 is a
 * synchronous exception, 7 an SError. Returns the address at which the program goes on. The one in
 * weir.c prints its arguments and turns the VM off.
 */
uint64_t weir_exception(uint64_t vector, uint64_t esr, uint64_t elr, uint64_t far);

/* IRQs are masked when main begins. */
static inline void weir_unmask(void)
{
	__asm__ volatile("msr daifclr, #2\n\tisb" : : : "memory");
}

static inline void weir_mask(void)
{
	__asm__ volatile("msr daifset, #2" : : : "memory");
}

/*
 * Sleeps until an interrupt is pending and has it handled. IRQs are masked before and after, so no
 * interrupt is lost between the caller's last test and the sleep.
 */
static inline void weir_sleep(void)
{
	__asm__ volatile("dsb sy\n\twfi" : : : "memory");
	weir_unmask();
	weir_mask();
}

/* ---- Virtual timer -------------------------------------------------------------------------- */

/* Ticks per second of the counter. */
static inline uint64_t weir_hz(void)
{
	return weir_read_sysreg("cntfrq_el0");
}

/* The virtual counter, in ticks. */
static inline uint64_t weir_now(void)
{
	__asm__ volatile("isb" : : : "memory");
	return weir_read_sysreg("cntvct_el0");
}

/* Returns the ticks in `ns` nanoseconds, rounded down. */
static inline uint64_t weir_ticks(uint64_t ns)
{
	uint64_t hz = weir_hz();

	return ns / 1000000000 * hz + ns % 1000000000 * hz / 1000000000;
}

/*
 * Has the timer signal WEIR_VIRTUAL_TIMER when the counter reaches `deadline`. The signal lasts
 * until the deadline is moved or the timer is off.
 */
static inline void weir_timer_set(uint64_t deadline)
{
	weir_write_sysreg("cntv_cval_el0", deadline);
	weir_write_sysreg("cntv_ctl_el0", 1);
	__asm__ volatile("isb" : : : "memory");
}

static inline void weir_timer_off(void)
{
	weir_write_sysreg("cntv_ctl_el0", 0);
	__asm__ volatile("isb" : : : "memory");
}

/* A periodic release, in ticks. The releases are the start plus multiples of the period. */
struct weir_period {
	uint64_t length;
	uint64_t release;
};

/* Starts a period of `ns` nanoseconds, at least one tick; the first release is one period away. */
static inline void weir_period_start(struct weir_period *period, uint64_t ns)
{
	uint64_t ticks = weir_ticks(ns);

	period->length = ticks ? ticks : 1;
	period->release = weir_now() + period->length;
	weir_timer_set(period->release);
}

/*
 * Sets the timer to the next release that is in the future. Returns the number of releases that
 * passed since the current one. The handler of the timer's interrupt calls this first.
 */
static inline uint64_t weir_period_next(struct weir_period *period)
{
	uint64_t missed = (weir_now() - period->release) / period->length;

	period->release += (missed + 1) * period->length;
	weir_timer_set(period->release);
	return missed;
}

#endif
