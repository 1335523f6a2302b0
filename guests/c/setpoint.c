/*
 * Sends a setpoint each 10 ms by a flow to VM 4, port 5000, and ends after 100:
 *
 *     setpoint: 100 sent, 0 missed
 *
 * A release is missed if it passes before the handler runs, or if the flow takes no message then.
 */
#include "vsock.h"

#define PEER 4
#define PORT 5000
#define PERIOD_NS 10000000
#define MESSAGES 100

struct setpoint {
	uint64_t number, value;
};

static struct weir_period period;
static uint8_t room[64];
static struct weir_stream stream = { .room = room, .room_size = sizeof room };
/* Written by the handler. */
static volatile uint64_t releases, missed;

void weir_interrupt(uint32_t intid)
{
	if (intid == WEIR_SOCKET_INTID) {
		weir_socket_interrupt();
	} else if (intid == WEIR_VIRTUAL_TIMER) {
		missed += weir_period_next(&period);
		releases++;
	}
}

int main(const void *device_tree)
{
	uint64_t sent = 0, seen;

	(void)device_tree;
	weir_caches_on();
	weir_gic_init();
	weir_gic_enable(WEIR_VIRTUAL_TIMER);
	weir_gic_enable(WEIR_SOCKET_INTID);
	if (!weir_socket_open()) {
		weir_puts("setpoint: no socket device: a [[flow]] must name this VM\n");
		return 1;
	}
	/* The peer refuses until it listens. */
	weir_period_start(&period, PERIOD_NS);
	while (stream.state != WEIR_STREAM_OPEN) {
		weir_stream_connect(&stream, PEER, PORT);
		weir_stream_wait(&stream, weir_now() + period.length);
	}
	missed = 0;
	seen = releases;
	while (sent < MESSAGES) {
		struct setpoint setpoint = { .number = sent, .value = 1000 + sent % 10 };

		weir_sleep();
		if (releases == seen)
			continue;
		seen = releases;
		weir_section_begin("send");
		if (weir_stream_send(&stream, &setpoint, sizeof setpoint) == 0)
			sent++;
		else
			missed++;
		weir_section_end("send");
		if (stream.state != WEIR_STREAM_OPEN)
			break;
	}
	weir_stream_close(&stream);
	weir_stream_wait(&stream, weir_now() + period.length);
	weir_puts("setpoint: ");
	weir_put_number(sent);
	weir_puts(" sent, ");
	weir_put_number(missed);
	weir_puts(" missed\n");
	return 0;
}
