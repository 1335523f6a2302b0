/*
 * Streams between VMs by a flow of weir: a driver of the virtio socket device (virtio 1.2, section
 * 5.10) on the MMIO transport, for one core. Link vsock.o, too.
 *
 *     static uint8_t room[4096];
 *     static struct weir_stream stream = { .room = room, .room_size = sizeof room };
 *
 *     weir_caches_on();
 *     weir_gic_init();
 *     weir_gic_enable(WEIR_SOCKET_INTID);    and weir_interrupt calls weir_socket_interrupt
 *     weir_socket_open();
 *     weir_stream_connect(&stream, 4, 5000);
 *     weir_stream_wait(&stream, weir_now() + weir_ticks(1000000));
 *     weir_stream_send(&stream, &setpoint, sizeof setpoint);
 *
 * No function waits but weir_stream_wait. So an RTOS can call the others from a task that sleeps
 * until the device's interrupt. They are not reentrant.
 *
 * The VM's memory must be cacheable, as the broker's is: without weir_caches_on neither would see
 * what the other has written on a board.
 */
#ifndef WEIR_VSOCK_H
#define WEIR_VSOCK_H

#include "weir.h"

/* The device and its interrupt, an SPI. They are in the device tree, too. */
#ifndef WEIR_SOCKET
#define WEIR_SOCKET 0x0a000000
#endif
#ifndef WEIR_SOCKET_INTID
#define WEIR_SOCKET_INTID 48
#endif

/* Bytes of the longest message, and messages that can be under way. */
#ifndef WEIR_MESSAGE
#define WEIR_MESSAGE 4096
#endif
#ifndef WEIR_SENDING
#define WEIR_SENDING 4
#endif
/*
 * Receive buffers of 4 KiB, a power of two. Several flows to a VM share them: see "Rules" of
 * docs/explanation/messages.md.
 */
#ifndef WEIR_RECEIVING
#define WEIR_RECEIVING 32
#endif

enum weir_stream_state {
	WEIR_STREAM_CLOSED,     /* Not connected, or refused. */
	WEIR_STREAM_LISTENING,  /* Waits for a peer at its port. */
	WEIR_STREAM_CONNECTING, /* Waits for the peer's answer. */
	WEIR_STREAM_OPEN,
	WEIR_STREAM_CLOSING, /* Closed by its owner; the peer has not confirmed it yet. */
	WEIR_STREAM_ENDED,   /* The peer has sent all; what came can still be taken. */
	WEIR_STREAM_BROKEN,  /* A reset: what came is not all that the peer sent. */
};

/*
 * One end of a stream. The owner sets `room`, where data that came wait, and its size, a power of
 * two. It may read `state`.
 */
struct weir_stream {
	uint8_t *room;
	uint32_t room_size;
	enum weir_stream_state state;
	uint64_t peer;
	uint32_t port, peer_port;
	/* Bytes in total, modulo 2^32: sent, received, taken, and what the peer knows of `taken`. */
	uint32_t sent, received, taken, told;
	/* The peer's room and what it has taken of it. */
	uint32_t peer_room, peer_taken;
	/* The operation that the peer must still be told, or 0. */
	uint16_t owed;
	struct weir_stream *next;
};

/*
 * Resets the device and sets it up. All streams are closed. Returns this VM's context identifier,
 * or 0 if there is no such device.
 */
uint64_t weir_socket_open(void);

/* Lowers the device's interrupt; for weir_interrupt. */
void weir_socket_interrupt(void);

/* Asks the peer for a connection to its port. Returns 0, or -1 if too much is under way. */
int weir_stream_connect(struct weir_stream *stream, uint64_t peer, uint32_t port);

/* Accepts the next connection to this port. */
void weir_stream_listen(struct weir_stream *stream, uint32_t port);

/* Takes what has come from the device, for all streams. The functions below do so, too. */
void weir_socket_poll(void);

/*
 * Sends a message of at most WEIR_MESSAGE bytes. Returns 0; 1 if the peer has no room for it yet,
 * or too much is under way; -1 if the stream is not open.
 */
int weir_stream_send(struct weir_stream *stream, const void *message, uint32_t len);

/* Takes up to `len` bytes that have come. Returns their number; -1 if nothing more will come. */
int32_t weir_stream_take(struct weir_stream *stream, void *to, uint32_t len);

/* Ends the stream. The peer can take what was sent; then the stream is closed. */
void weir_stream_close(struct weir_stream *stream);

/*
 * Sleeps until the stream has data or another state, or until the counter has reached `deadline`.
 * Returns 1 at the deadline, else 0. IRQs must be masked, as in main, and the device's interrupt
 * enabled. Each interrupt ends the sleep for a moment, so the deadline is noticed at the guest's
 * next timer interrupt.
 */
int weir_stream_wait(struct weir_stream *stream, uint64_t deadline);

#endif
