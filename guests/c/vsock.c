/* The driver that vsock.h documents. */
#include <stddef.h>

#include "vsock.h"

/* Registers of a device on the MMIO transport (virtio 1.2, 4.2.2) */
#define MAGIC 0x000
#define DEVICE_ID 0x008
#define DRIVER_FEATURES 0x020
#define DRIVER_FEATURES_SEL 0x024
#define QUEUE_SEL 0x030
#define QUEUE_NUM 0x038
#define QUEUE_READY 0x044
#define QUEUE_NOTIFY 0x050
#define INTERRUPT_STATUS 0x060
#define INTERRUPT_ACK 0x064
#define STATUS 0x070
#define QUEUE_DESC 0x080
#define QUEUE_DRIVER 0x090
#define QUEUE_DEVICE 0x0a0
#define CONFIG 0x100
/* Bits of STATUS: acknowledge and driver, features, all set up, and set by the device. */
#define DRIVER 3
#define FEATURES_OK 8
#define DRIVER_OK 4
#define NEEDS_RESET 64

/* Operations of a packet (5.10.6), and the type of streams */
enum { REQUEST = 1, RESPONSE, RST, SHUTDOWN, RW, CREDIT_UPDATE, CREDIT_REQUEST };
#define STREAM 1
#define BOTH_WAYS 3

#define PAGE_BYTES 4096

struct header {
	uint64_t src, dst;
	uint32_t src_port, dst_port, len;
	uint16_t type, op;
	uint32_t flags, room, taken;
} __attribute__((packed, aligned(4)));

#define HEADER_BYTES 44
_Static_assert(sizeof(struct header) == HEADER_BYTES, "5.10.6");

struct descriptor {
	uint64_t address;
	uint32_t len;
	uint16_t flags, next;
};
#define NEXT 1
#define WRITE 2

/* A ring with two descriptors for each message, and one with one for each receive buffer. */
#define SLOTS (2 * WEIR_SENDING)
_Static_assert(!(SLOTS & (SLOTS - 1)) && SLOTS <= WEIR_RECEIVING, "powers of two");
_Static_assert(!(WEIR_RECEIVING & (WEIR_RECEIVING - 1)), "a power of two");

static struct queue {
	struct descriptor table[WEIR_RECEIVING];
	struct {
		uint16_t flags, index, ring[WEIR_RECEIVING], event;
	} driver;
	struct {
		uint16_t flags, index;
		struct {
			uint32_t id, len;
		} ring[WEIR_RECEIVING];
		uint16_t event;
	} device __attribute__((aligned(4)));
	uint16_t seen;
} __attribute__((aligned(16))) queues[2];
#define RX 0
#define TX 1

static struct message {
	struct header header;
	uint8_t payload[WEIR_MESSAGE > PAGE_BYTES ? WEIR_MESSAGE : PAGE_BYTES];
} sending[WEIR_SENDING], receiving[WEIR_RECEIVING];
static uint8_t is_sending[WEIR_SENDING];
static struct weir_stream *streams;
static uint64_t own;
/* The handler of the interrupt has seen that the device's state changed. */
static volatile uint8_t has_changed;

/* Both sides' accesses to memory are in program order around it. */
static void barrier(void)
{
	__asm__ volatile("dmb ish" : : : "memory");
}

static uint16_t load(const uint16_t *word)
{
	return *(const volatile uint16_t *)word;
}

static uint32_t get(uint32_t offset)
{
	return weir_read32(WEIR_SOCKET + offset);
}

static void set(uint32_t offset, uint32_t value)
{
	weir_write32(WEIR_SOCKET + offset, value);
}

static void set64(uint32_t offset, const void *address)
{
	set(offset, (uint32_t)(uintptr_t)address);
	set(offset + 4, (uint32_t)((uintptr_t)address >> 32));
}

/* Gives the device the chain that begins with this descriptor. */
static void offer(struct queue *queue, uint16_t size, uint16_t first)
{
	queue->driver.ring[queue->driver.index % size] = first;
	/* The device reads the entry and what it describes after it has read the index. */
	barrier();
	*(volatile uint16_t *)&queue->driver.index = queue->driver.index + 1;
}

uint64_t weir_socket_open(void)
{
	if (get(MAGIC) != 0x74726976 || get(DEVICE_ID) != 19)
		return 0;
	set(STATUS, 0);
	while (get(STATUS))
		;
	for (struct weir_stream *stream = streams; stream; stream = stream->next)
		stream->state = WEIR_STREAM_CLOSED;
	streams = NULL;
	set(STATUS, DRIVER);
	/* VIRTIO_F_VERSION_1 alone. */
	set(DRIVER_FEATURES_SEL, 0);
	set(DRIVER_FEATURES, 0);
	set(DRIVER_FEATURES_SEL, 1);
	set(DRIVER_FEATURES, 1);
	set(STATUS, DRIVER | FEATURES_OK);
	for (uint32_t n = RX; n <= TX; n++) {
		struct queue *queue = &queues[n];

		queue->driver.index = queue->device.index = queue->seen = 0;
		set(QUEUE_SEL, n);
		set(QUEUE_NUM, n == RX ? WEIR_RECEIVING : SLOTS);
		set64(QUEUE_DESC, queue->table);
		set64(QUEUE_DRIVER, &queue->driver);
		set64(QUEUE_DEVICE, &queue->device);
		set(QUEUE_READY, 1);
	}
	for (uint16_t n = 0; n < WEIR_RECEIVING; n++) {
		queues[RX].table[n] = (struct descriptor){
			.address = (uint64_t)&receiving[n],
			.len = HEADER_BYTES + PAGE_BYTES,
			.flags = WRITE,
		};
		offer(&queues[RX], WEIR_RECEIVING, n);
	}
	for (int n = 0; n < WEIR_SENDING; n++)
		is_sending[n] = 0;
	set(STATUS, DRIVER | FEATURES_OK | DRIVER_OK);
	own = get(CONFIG) | (uint64_t)get(CONFIG + 4) << 32;
	set(QUEUE_NOTIFY, RX);
	return own;
}

void weir_socket_interrupt(void)
{
	uint32_t reasons = get(INTERRUPT_STATUS);

	has_changed |= reasons >> 1 & 1;
	set(INTERRUPT_ACK, reasons);
}

/* Returns a place for a message, or NULL. */
static struct message *place(void)
{
	struct queue *queue = &queues[TX];

	while (queue->seen != load(&queue->device.index)) {
		/* The entry is read after the index. */
		barrier();
		uint32_t id = queue->device.ring[queue->seen++ % SLOTS].id;

		if (id < SLOTS)
			is_sending[id / 2] = 0;
	}
	for (int n = 0; n < WEIR_SENDING; n++)
		if (!is_sending[n])
			return &sending[n];
	return NULL;
}

/* Sends what `place` returned, with the bytes in its payload. */
static void put(struct message *message, struct header header, uint32_t len)
{
	uint16_t n = (uint16_t)(message - sending), first = 2 * n;
	struct descriptor *table = &queues[TX].table[first];

	message->header = header;
	message->header.src = own;
	message->header.len = len;
	message->header.type = STREAM;
	table[0] = (struct descriptor){ (uint64_t)&message->header, HEADER_BYTES, len ? NEXT : 0,
					first + 1 };
	table[1] = (struct descriptor){ (uint64_t)message->payload, len, 0, 0 };
	is_sending[n] = 1;
	offer(&queues[TX], SLOTS, first);
	/* The device's flags are read after it can see the index (2.7.13.4.1). */
	barrier();
	if (!(load(&queues[TX].device.flags) & 1))
		set(QUEUE_NOTIFY, TX);
}

static struct header header_of(struct weir_stream *stream, uint16_t op)
{
	stream->told = stream->taken;
	return (struct header){
		.dst = stream->peer,
		.src_port = stream->port,
		.dst_port = stream->peer_port,
		.op = op,
		.flags = op == SHUTDOWN ? BOTH_WAYS : 0,
		.room = stream->room_size,
		.taken = stream->taken,
	};
}

/* Tells the peer what it must know, at once or later. */
static void tell(struct weir_stream *stream, uint16_t op)
{
	struct message *message = place();

	stream->owed = message ? 0 : op;
	if (message)
		put(message, header_of(stream, op), 0);
}

static void start(struct weir_stream *stream, enum weir_stream_state state)
{
	struct weir_stream **link = &streams;

	while (*link && *link != stream)
		link = &(*link)->next;
	if (!*link) {
		*link = stream;
		stream->next = NULL;
	}
	stream->state = state;
	stream->sent = stream->received = stream->taken = stream->told = 0;
	stream->peer_room = stream->peer_taken = 0;
	stream->owed = 0;
}

int weir_stream_connect(struct weir_stream *stream, uint64_t peer, uint32_t port)
{
	static uint32_t next_port = 1024;

	if (!place())
		return -1;
	start(stream, WEIR_STREAM_CONNECTING);
	stream->peer = peer;
	stream->peer_port = port;
	stream->port = next_port++;
	tell(stream, REQUEST);
	return 0;
}

void weir_stream_listen(struct weir_stream *stream, uint32_t port)
{
	start(stream, WEIR_STREAM_LISTENING);
	stream->port = port;
}

/* Keeps data that came. A peer that exceeds the room has broken the stream. */
static void keep(struct weir_stream *stream, const uint8_t *bytes, uint32_t len)
{
	if (len > stream->room_size - (stream->received - stream->taken)) {
		stream->state = WEIR_STREAM_BROKEN;
		tell(stream, RST);
		return;
	}
	for (uint32_t n = 0; n < len; n++)
		stream->room[stream->received++ & (stream->room_size - 1)] = bytes[n];
}

/* Takes a packet for a stream that has a peer. */
static void react(struct weir_stream *stream, const struct message *message, uint32_t len)
{
	const struct header *header = &message->header;

	stream->peer_room = header->room;
	stream->peer_taken = header->taken;
	switch (header->op) {
	case RESPONSE:
		if (stream->state == WEIR_STREAM_CONNECTING)
			stream->state = WEIR_STREAM_OPEN;
		break;
	case RW:
		if (stream->state == WEIR_STREAM_OPEN)
			keep(stream, message->payload, len);
		break;
	case CREDIT_REQUEST:
		tell(stream, CREDIT_UPDATE);
		break;
	case SHUTDOWN:
		if (stream->state == WEIR_STREAM_OPEN)
			stream->state = WEIR_STREAM_ENDED;
		else if (stream->state == WEIR_STREAM_CLOSING)
			stream->state = WEIR_STREAM_CLOSED;
		tell(stream, RST);
		break;
	case RST:
		if (stream->state == WEIR_STREAM_OPEN)
			stream->state = WEIR_STREAM_BROKEN;
		else if (stream->state != WEIR_STREAM_ENDED)
			stream->state = WEIR_STREAM_CLOSED;
		break;
	}
}

static void take_packet(const struct message *message, uint32_t len)
{
	const struct header *header = &message->header;
	struct weir_stream *stream = streams;

	if (header->type != STREAM || header->dst != own)
		return;
	for (; stream; stream = stream->next) {
		if (stream->port != header->dst_port || stream->state == WEIR_STREAM_CLOSED)
			continue;
		if (stream->state == WEIR_STREAM_LISTENING && header->op == REQUEST) {
			stream->peer = header->src;
			stream->peer_port = header->src_port;
			stream->state = WEIR_STREAM_OPEN;
			react(stream, message, len);
			tell(stream, RESPONSE);
			return;
		}
		if (stream->state != WEIR_STREAM_LISTENING && stream->peer == header->src &&
		    stream->peer_port == header->src_port) {
			react(stream, message, len);
			return;
		}
	}
	/* Of no stream: refused. Without a place for that the peer's next packet is. */
	struct message *answer = header->op == RST ? NULL : place();

	if (answer)
		put(answer, (struct header){ .dst = header->src, .src_port = header->dst_port,
					     .dst_port = header->src_port, .op = RST }, 0);
}

void weir_socket_poll(void)
{
	struct queue *queue = &queues[RX];
	int has_taken = 0;

	if (has_changed && get(STATUS) & NEEDS_RESET)
		for (struct weir_stream *stream = streams; stream; stream = stream->next)
			if (stream->state != WEIR_STREAM_CLOSED)
				stream->state = WEIR_STREAM_BROKEN;
	has_changed = 0;
	while (queue->seen != load(&queue->device.index)) {
		/* The entry and the packet are read after the index. */
		barrier();
		uint32_t id = queue->device.ring[queue->seen % WEIR_RECEIVING].id;
		uint32_t len = queue->device.ring[queue->seen % WEIR_RECEIVING].len;

		queue->seen++;
		has_taken = 1;
		if (id >= WEIR_RECEIVING)
			continue;
		if (len >= HEADER_BYTES && len <= HEADER_BYTES + PAGE_BYTES &&
		    len - HEADER_BYTES == receiving[id].header.len)
			take_packet(&receiving[id], len - HEADER_BYTES);
		offer(queue, WEIR_RECEIVING, (uint16_t)id);
	}
	barrier();
	if (has_taken && !(load(&queue->device.flags) & 1))
		set(QUEUE_NOTIFY, RX);
	for (struct weir_stream *stream = streams; stream; stream = stream->next)
		if (stream->owed)
			tell(stream, stream->owed);
}

int weir_stream_send(struct weir_stream *stream, const void *bytes, uint32_t len)
{
	struct message *message;

	weir_socket_poll();
	if (stream->state != WEIR_STREAM_OPEN || len > WEIR_MESSAGE)
		return -1;
	if (!len)
		return 0;
	if (stream->peer_room - (stream->sent - stream->peer_taken) < len || !(message = place()))
		return 1;
	for (uint32_t n = 0; n < len; n++)
		message->payload[n] = ((const uint8_t *)bytes)[n];
	stream->sent += len;
	put(message, header_of(stream, RW), len);
	return 0;
}

/* Whether a peer's packet can still change what the owner sees. */
static int can_change(enum weir_stream_state state)
{
	return state == WEIR_STREAM_LISTENING || state == WEIR_STREAM_CONNECTING ||
	       state == WEIR_STREAM_OPEN || state == WEIR_STREAM_CLOSING;
}

int32_t weir_stream_take(struct weir_stream *stream, void *to, uint32_t len)
{
	uint32_t n = 0;

	weir_socket_poll();
	while (n < len && stream->taken != stream->received)
		((uint8_t *)to)[n++] = stream->room[stream->taken++ & (stream->room_size - 1)];
	if (!n && !can_change(stream->state))
		return -1;
	if (stream->state == WEIR_STREAM_OPEN && stream->taken - stream->told >= stream->room_size / 4)
		tell(stream, CREDIT_UPDATE);
	return (int32_t)n;
}

void weir_stream_close(struct weir_stream *stream)
{
	if (stream->state == WEIR_STREAM_OPEN) {
		stream->state = WEIR_STREAM_CLOSING;
		tell(stream, SHUTDOWN);
	} else if (stream->state != WEIR_STREAM_CLOSING) {
		stream->state = WEIR_STREAM_CLOSED;
	}
}

int weir_stream_wait(struct weir_stream *stream, uint64_t deadline)
{
	enum weir_stream_state before = stream->state;

	for (;;) {
		weir_socket_poll();
		if (stream->state != before || stream->taken != stream->received || !can_change(before))
			return 0;
		if (weir_now() >= deadline)
			return 1;
		weir_sleep();
	}
}
