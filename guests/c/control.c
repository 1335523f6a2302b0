/*
 * A task with a period of 1 ms on the virtual timer. Every 1000 activations it prints the line from
 * which a run judges the task `control` of the system file:
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
	if (intid != WEIR_VIRTUAL_TIMER)
		return;
	misses += weir_period_next(&period);
	activations++;
	/* The work of the task goes here. */
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
