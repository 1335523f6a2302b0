/*
 * A task with a period of 1 ms on the virtual timer. It marks each activation in the trace; from
 * the marks a run judges the task `control` of the system file. Every 1000 activations it prints
 *
 *     control: 1000 activations, 0 misses
 *
 * The handler of the timer's interrupt is the task. A release that passes before the handler has
 * read the counter has no activation and counts as a miss.
 */
#include "weir.h"

#define PERIOD_NS 1000000
#define REPORT 1000

static struct weir_period period;
/* Written by the handler. */
static volatile uint64_t activations, misses;

void weir_interrupt(uint32_t intid)
{
	uint64_t release = period.release, skipped;

	if (intid != WEIR_VIRTUAL_TIMER)
		return;
	skipped = weir_period_next(&period);
	weir_task_release("control", release, skipped);
	misses += skipped;
	activations++;
	/* The work of the task goes here. */
	weir_task_complete("control");
}

int main(const void *device_tree)
{
	uint64_t next = REPORT;

	(void)device_tree;
	weir_gic_init();
	weir_gic_enable(WEIR_VIRTUAL_TIMER);
	weir_period_start(&period, PERIOD_NS);
	for (;;) {
		/* Interrupts are masked but in the sleep and while the line is printed. */
		weir_sleep();
		uint64_t done = activations, missed = misses;

		if (done < next)
			continue;
		next += REPORT;
		weir_unmask();
		weir_puts("control: ");
		weir_put_number(done);
		weir_puts(" activations, ");
		weir_put_number(missed);
		weir_puts(" misses\n");
		weir_mask();
	}
}
