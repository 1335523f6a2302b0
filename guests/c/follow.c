/*
 * Takes the setpoints of setpoint.c from port 5000, and ends with the stream:
 *
 *     follow: 100 setpoints in order, 0 others, ended
 */
#include "vsock.h"

#define PORT 5000

struct setpoint {
	uint64_t number, value;
};

static uint8_t room[1024];
static struct weir_stream stream = { .room = room, .room_size = sizeof room };

void weir_interrupt(uint32_t intid)
{
	if (intid == WEIR_SOCKET_INTID)
		weir_socket_interrupt();
}

int main(const void *device_tree)
{
	struct setpoint setpoint;
	uint64_t in_order = 0, others = 0;
	uint32_t have = 0;
	int32_t taken;

	(void)device_tree;
	weir_caches_on();
	weir_gic_init();
	weir_gic_enable(WEIR_SOCKET_INTID);
	if (!weir_socket_open()) {
		weir_puts("follow: no socket device: a [[flow]] must name this VM\n");
		return 1;
	}
	weir_stream_listen(&stream, PORT);
	for (;;) {
		weir_stream_wait(&stream, UINT64_MAX);
		taken = weir_stream_take(&stream, (uint8_t *)&setpoint + have, sizeof setpoint - have);
		if (taken < 0)
			break;
		have += taken;
		if (have < sizeof setpoint)
			continue;
		have = 0;
		/* The use of the setpoint goes here. */
		if (setpoint.number == in_order)
			in_order++;
		else
			others++;
	}
	weir_puts("follow: ");
	weir_put_number(in_order);
	weir_puts(" setpoints in order, ");
	weir_put_number(others);
	weir_puts(stream.state == WEIR_STREAM_ENDED ? " others, ended\n" : " others, broken\n");
	return 0;
}
