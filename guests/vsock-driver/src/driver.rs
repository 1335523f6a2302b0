//! The driver of a socket device.

use crate::{
    Header,
    answers::Answers,
    bus::{self, Reason},
    cut::cut,
    memory::Memory,
};
use core::cell::UnsafeCell;
use virtio_drivers::{
    queue::VirtQueue,
    transport::{DeviceType, SomeTransport, Transport},
};
use weir_guest::marker::{self, marker};
use weir_units::Cid;
use weir_vsock::vsock::{HEADER_LEN, MAX_PAYLOAD};

bitflags::bitflags! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Features: u64 {
        const EVENT_INDEX = 1 << 29;
        const VERSION_1 = 1 << 32;
    }
}

const RX: u16 = 0;
const TX: u16 = 1;
const EVENT: u16 = 2;
const QUEUE: usize = 64;
/// Packets that are under way at once.
const SLOTS: usize = 4;
/// Bytes of a receive buffer behind its header.
const RECEIVE: usize = 4096;

struct Slot {
    /// The header, and the payload behind it.
    bytes: [u8; HEADER_LEN + MAX_PAYLOAD as usize],
    len: usize,
    /// Buffers that it is cut into; none for one with the header and one with the payload.
    pieces: Option<usize>,
    token: Option<u16>,
}

impl Slot {
    /// Calls `body` with the buffers.
    fn with<T>(&self, body: impl FnOnce(&[&[u8]]) -> T) -> T {
        let bytes = &self.bytes[..HEADER_LEN + self.len];
        let (header, payload) = bytes.split_at(HEADER_LEN);
        match self.pieces {
            Some(pieces) => {
                let (pieces, count) = cut(bytes, pieces);
                body(&pieces[..count])
            }
            None if payload.is_empty() => body(&[header]),
            None => body(&[header, payload]),
        }
    }
}

struct Buffers {
    slots: [Slot; SLOTS],
    receive: [[u8; HEADER_LEN + RECEIVE]; QUEUE],
    answers: Answers,
}

struct Store(UnsafeCell<Buffers>);

// SAFETY: `SocketDriver::open` takes the only reference, once.
unsafe impl Sync for Store {}

static BUFFERS: Store = Store(UnsafeCell::new(Buffers {
    slots: [const {
        let bytes = [0; HEADER_LEN + MAX_PAYLOAD as usize];
        Slot { bytes, len: 0, pieces: None, token: None }
    }; SLOTS],
    receive: [[0; HEADER_LEN + RECEIVE]; QUEUE],
    answers: Answers::new(),
}));

static REASON: Reason = Reason::new();

/// Lowers the interrupt of the socket device; for the guest's handler.
pub fn acknowledge() {
    REASON.acknowledge();
}

/// The guest's socket device.
pub struct SocketDriver {
    transport: SomeTransport<'static>,
    rx: VirtQueue<Memory, QUEUE>,
    tx: VirtQueue<Memory, QUEUE>,
    _events: VirtQueue<Memory, QUEUE>,
    buffers: &'static mut Buffers,
    /// The slot of the answer that is under way.
    answering: Option<usize>,
    /// Buffers that the next packet with a payload is cut into.
    pieces: Option<usize>,
    cid: Cid,
}

impl SocketDriver {
    /// Sets up the device at `base`: [`weir_guest::Board::socket`] says where that is.
    ///
    /// # Panics
    ///
    /// When there is no socket device, or when called twice.
    #[must_use]
    pub fn open(base: u64) -> Self {
        let mut transport = bus::find(base, DeviceType::Socket, &REASON);
        let features = transport.begin_init(Features::all());
        let event_index = features.contains(Features::EVENT_INDEX);
        let mut queue = |index| {
            VirtQueue::new(&mut transport, index, false, event_index).expect("a queue of 64")
        };
        let (rx, tx, events) = (queue(RX), queue(TX), queue(EVENT));
        transport.finish_init();
        // By words, as the configuration is aligned to no more (virtio 1.2, section 2.5).
        let word = |at| transport.read_config_space::<u32>(at).expect("a context identifier");
        let cid = Cid(u64::from(word(0)) | u64::from(word(4)) << 32);
        assert_eq!(Memory::pages_used(), 6, "opened once");
        // SAFETY: the assertion says that this is the first call.
        let buffers = unsafe { &mut *BUFFERS.0.get() };
        let (answering, pieces) = (None, None);
        let mut socket =
            Self { transport, rx, tx, _events: events, buffers, answering, pieces, cid };
        for index in 0..QUEUE {
            socket.offer(index);
        }
        socket.transport.notify(RX);
        socket
    }

    /// The guest's context identifier.
    #[must_use]
    pub const fn cid(&self) -> Cid {
        self.cid
    }

    /// Packets with a payload are cut into so many buffers, at most as many as the ring has.
    pub const fn cut(&mut self, pieces: usize) {
        self.pieces = Some(pieces);
    }

    fn offer(&mut self, index: usize) {
        let buffer = self.buffers.receive[index].as_mut_slice();
        // SAFETY: the buffer is static, and not read before `receive` gets its token back.
        // Buffers come back in any order, but descriptors are single, so that the token is the
        // descriptor and `receive` finds the buffer by it.
        let token = unsafe { self.rx.add(&[], &mut [buffer]) }.expect("as many as descriptors");
        assert_eq!(usize::from(token), index, "a buffer has its own descriptor");
    }

    /// Sends a packet: `fill` writes its payload, `header.len` bytes. False when as many as there
    /// can be are under way.
    ///
    /// # Panics
    ///
    /// With more than 64 KiB.
    pub fn send(&mut self, header: &Header, fill: impl FnOnce(&mut [u8])) -> bool {
        let put = self.put(header, fill);
        self.notify();
        put
    }

    /// As [`Self::send`], but tells the device nothing before [`Self::notify`].
    ///
    /// # Panics
    ///
    /// With more than 64 KiB.
    pub fn put(&mut self, header: &Header, fill: impl FnOnce(&mut [u8])) -> bool {
        self.reclaim();
        self.add(header, fill).is_some()
    }

    /// Answers a packet: at once, or when the device has returned what it has. One answer is under
    /// way at a time, as a device takes more of them one by one only. The next ones wait, one for
    /// each connection. Of those to one peer 16 wait; then resets are dropped.
    pub fn answer(&mut self, header: &Header) {
        self.buffers.answers.push(header);
        self.reclaim();
    }

    /// Adds a packet to the ring; gives the number of its slot, or none if there is no room.
    fn add(&mut self, header: &Header, fill: impl FnOnce(&mut [u8])) -> Option<usize> {
        let number = self.buffers.slots.iter().position(|slot| slot.token.is_none())?;
        let slot = &mut self.buffers.slots[number];
        slot.len = header.len as usize;
        slot.pieces = self.pieces.filter(|_| slot.len > 0);
        if self.tx.available_desc() < slot.pieces.unwrap_or(2) {
            return None;
        }
        let (first, payload) = slot.bytes.split_at_mut(HEADER_LEN);
        first.copy_from_slice(&header.to_bytes());
        fill(&mut payload[..slot.len]);
        let tx = &mut self.tx;
        // SAFETY: the buffers are static, and `reclaim` alone touches them before their token is
        // back.
        let added = slot.with(|buffers| unsafe { tx.add(buffers, &mut []) });
        slot.token = Some(added.expect("there are as many descriptors"));
        Some(number)
    }

    /// Tells the device that there are packets, if it wants to know.
    pub fn notify(&mut self) {
        if self.tx.should_notify() {
            marker::<{ marker::VIRTIO_NOTIFY }>();
            self.transport.notify(TX);
        }
    }

    /// Whether [`Self::send`] would send.
    pub fn can_send(&mut self) -> bool {
        self.reclaim();
        self.has_room()
    }

    /// Returns whether there are a slot and descriptors for a packet.
    fn has_room(&self) -> bool {
        self.buffers.slots.iter().any(|slot| slot.token.is_none())
            && self.tx.available_desc() >= self.pieces.unwrap_or(2)
    }

    /// Whether the device has returned all that was sent, and no answer waits.
    pub fn is_idle(&mut self) -> bool {
        self.reclaim();
        self.buffers.answers.is_empty()
            && self.buffers.slots.iter().all(|slot| slot.token.is_none())
    }

    /// Takes back what the device has returned, and sends the next answer.
    fn reclaim(&mut self) {
        while let Some(token) = self.tx.peek_used() {
            let slot = self.buffers.slots.iter_mut().find(|slot| slot.token == Some(token));
            let slot = slot.expect("the device returns what it was given");
            let tx = &mut self.tx;
            // SAFETY: these are the buffers of this token.
            let popped = slot.with(|buffers| unsafe { tx.pop_used(token, buffers, &mut []) });
            popped.expect("it was peeked at");
            slot.token = None;
        }
        let slots = &self.buffers.slots;
        let is_under_way = self.answering.is_some_and(|number| slots[number].token.is_some());
        if is_under_way || !self.has_room() {
            return;
        }
        self.answering = None;
        if let Some(header) = self.buffers.answers.pop() {
            self.answering = self.add(&header, |_| ());
            self.notify();
        }
    }

    /// Takes the next packet that has come: `body` sees its header and its payload. False if there
    /// is none.
    ///
    /// # Panics
    ///
    /// When the device breaks the rules.
    pub fn receive(&mut self, body: impl FnOnce(&Header, &[u8])) -> bool {
        if !self.buffers.answers.is_empty() {
            self.reclaim();
        }
        let Some(token) = self.rx.peek_used() else { return false };
        let index = usize::from(token);
        let buffer = self.buffers.receive[index].as_mut_slice();
        // SAFETY: the token is the buffer's number: see `offer`.
        let written = unsafe { self.rx.pop_used(token, &[], &mut [buffer]) };
        let written = written.expect("it was peeked at") as usize;
        let buffer = &self.buffers.receive[index];
        let (header, payload) =
            buffer[..written].split_first_chunk().expect("a packet has a header");
        let header = Header::from_bytes(header);
        assert_eq!(header.len as usize, payload.len(), "the device wrote what the header says");
        body(&header, payload);
        self.offer(index);
        if self.rx.should_notify() {
            self.transport.notify(RX);
        }
        true
    }
}
