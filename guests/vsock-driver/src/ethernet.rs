//! The driver of a network device.

use crate::{
    bus::{self, Reason},
    cut::cut,
    memory::Memory,
};
use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};
use virtio_drivers::{
    queue::VirtQueue,
    transport::{DeviceType, SomeTransport, Transport},
};
use weir_guest::{
    board::GuestDevice,
    marker::{self, marker},
};
use weir_vsock::net::{HEADER_LEN, MOST_FRAME};

bitflags::bitflags! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Features: u64 {
        const MAC = 1 << 5;
        const EVENT_INDEX = 1 << 29;
        const VERSION_1 = 1 << 32;
        const ACCESS_PLATFORM = 1 << 33;
    }
}

const RX: u16 = 0;
const TX: u16 = 1;
const QUEUE: usize = 64;
/// Devices of a guest: its own port, and one that it drives for others.
const DEVICES: usize = 2;
const LEN: usize = HEADER_LEN + MOST_FRAME;

struct Buffers {
    receive: [[u8; LEN]; QUEUE],
    send: [[u8; LEN]; QUEUE],
}

struct Store(UnsafeCell<[Buffers; DEVICES]>);

// SAFETY: `Ethernet::open` takes the only reference to each element, once.
unsafe impl Sync for Store {}

static BUFFERS: Store = Store(UnsafeCell::new(
    [const { Buffers { receive: [[0; LEN]; QUEUE], send: [[0; LEN]; QUEUE] } }; DEVICES],
));
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// The interrupt of each device, and where its reason is.
static LINES: [(AtomicU32, Reason); DEVICES] =
    [const { (AtomicU32::new(0), Reason::new()) }; DEVICES];

/// Lowers interrupt `intid` if it is one of the devices'; for the guest's handler.
pub fn acknowledge(intid: u32) {
    for (line, reason) in &LINES {
        if line.load(Ordering::Relaxed) == intid {
            reason.acknowledge();
        }
    }
}

/// A network device, without offloads.
pub struct Ethernet {
    transport: SomeTransport<'static>,
    rx: VirtQueue<Memory, QUEUE>,
    tx: VirtQueue<Memory, QUEUE>,
    buffers: &'static mut Buffers,
    /// Of each buffer to send from: the token, the length and the pieces of what is under way.
    sent: [Option<(u16, usize, usize)>; QUEUE],
    /// Buffers that the next frame is cut into.
    pieces: usize,
    mac: [u8; 6],
}

impl Ethernet {
    /// Sets up the network device with its registers, or the configuration space of its bus, at
    /// `device.base`.
    ///
    /// # Panics
    ///
    /// When there is none, or for a third one.
    #[must_use]
    pub fn open(device: GuestDevice) -> Self {
        let place = OPENED.fetch_add(1, Ordering::Relaxed);
        let (line, reason) = LINES.get(place).expect("two devices at most");
        let mut transport = bus::find(device.base, DeviceType::Network, reason);
        line.store(device.intid, Ordering::Relaxed);
        let features = transport.begin_init(Features::all());
        let event_index = features.contains(Features::EVENT_INDEX);
        let mut queue = |index| {
            VirtQueue::new(&mut transport, index, false, event_index).expect("a queue of 64")
        };
        let (rx, tx) = (queue(RX), queue(TX));
        transport.finish_init();
        let mac = core::array::from_fn(|at| {
            transport.read_config_space::<u8>(at).expect("a device has an address")
        });
        // SAFETY: `place` is given out once, so this is the only reference to the element.
        let buffers = unsafe { &mut *BUFFERS.0.get().cast::<Buffers>().add(place) };
        let sent = [None; QUEUE];
        let mut ethernet = Self { transport, rx, tx, buffers, sent, pieces: 1, mac };
        for index in 0..QUEUE {
            ethernet.offer(index);
        }
        ethernet.transport.notify(RX);
        ethernet
    }

    /// Its address.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Frames are cut into so many buffers, at most as many as the ring has.
    pub const fn cut(&mut self, pieces: usize) {
        self.pieces = pieces;
    }

    fn offer(&mut self, index: usize) {
        let buffer = self.buffers.receive[index].as_mut_slice();
        // SAFETY: the buffer is static, and not read before `receive` gets its token back.
        // Buffers come back in any order, but descriptors are single, so that the token is the
        // descriptor and `receive` finds the buffer by it.
        let token = unsafe { self.rx.add(&[], &mut [buffer]) }.expect("as many as descriptors");
        assert_eq!(usize::from(token), index, "a buffer has its own descriptor");
    }

    /// Whether [`Self::send`] would send.
    pub fn can_send(&mut self) -> bool {
        self.reclaim();
        self.tx.available_desc() >= self.pieces
    }

    /// Sends a frame. False when as many as there can be are under way.
    ///
    /// # Panics
    ///
    /// With more than 1514 bytes.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        if !self.can_send() {
            return false;
        }
        let Some(place) = self.sent.iter().position(Option::is_none) else { return false };
        let len = HEADER_LEN + frame.len();
        let buffer = &mut self.buffers.send[place][..len];
        buffer[HEADER_LEN..].copy_from_slice(frame);
        let (pieces, count) = cut(buffer, self.pieces);
        // SAFETY: the buffer is static, and `reclaim` alone frees it, once its token is back.
        let token = unsafe { self.tx.add(&pieces[..count], &mut []) };
        self.sent[place] = Some((token.expect("as many as descriptors"), len, self.pieces));
        if self.tx.should_notify() {
            marker::<{ marker::VIRTIO_NOTIFY }>();
            self.transport.notify(TX);
        }
        true
    }

    fn reclaim(&mut self) {
        while let Some(token) = self.tx.peek_used() {
            let its =
                |sent: &Option<(u16, usize, usize)>| sent.is_some_and(|(its, ..)| its == token);
            let place = self.sent.iter().position(its).expect("it returns what it was given");
            let (_, len, pieces) = self.sent[place].unwrap_or_default();
            let (pieces, count) = cut(&self.buffers.send[place][..len], pieces);
            // SAFETY: these are the buffers of this token.
            let popped = unsafe { self.tx.pop_used(token, &pieces[..count], &mut []) };
            popped.expect("it was peeked at");
            self.sent[place] = None;
        }
    }

    /// Takes the next frame that has come. False if there is none.
    ///
    /// # Panics
    ///
    /// When the device breaks the rules.
    pub fn receive(&mut self, body: impl FnOnce(&[u8])) -> bool {
        let Some(token) = self.rx.peek_used() else { return false };
        let index = usize::from(token);
        let buffer = self.buffers.receive[index].as_mut_slice();
        // SAFETY: the token is the buffer's number: see `offer`.
        let written = unsafe { self.rx.pop_used(token, &[], &mut [buffer]) };
        let written = written.expect("it was peeked at") as usize;
        if let Some(frame) = self.buffers.receive[index].get(HEADER_LEN..written) {
            body(frame);
        }
        self.offer(index);
        if self.rx.should_notify() {
            self.transport.notify(RX);
        }
        true
    }
}

/// A MAC address as it is written.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub [u8; 6]);

impl core::fmt::Display for Shown {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}
