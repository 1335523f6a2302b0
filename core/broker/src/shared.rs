//! The partition that hypervisor and broker share.
//!
//! A *port* is a VM's socket device, by the VM's place in the system. The hypervisor submits
//! packets at their sender's port and offers buffers at their receiver's; each is a ring with the
//! hypervisor as the one writer. The broker answers in one ring of completions, whose one writer it
//! is. A port that is reset begins a new *epoch*: both its rings start anew, and completions of an
//! earlier epoch mean nothing any more.

pub use super::sizes::{FLOWS, PORTS, RING};
use super::sync::{AtomicU32, AtomicU64, fence};
use core::{
    ops::Range,
    sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use weir_trace::phases::pack;
use weir_units::IntId;
use weir_vsock::{
    queue::{MAX_SEGMENTS, Segment},
    vsock::HEADER_LEN,
};

/// Where the broker sees the partition.
pub const ADDRESS: u64 = 0x60_0000_0000;
/// Where it sees the VMs in flows, those that it needs.
pub const WINDOWS: Range<u64> = 1 << 35..9 << 35;
/// The SGI by which it learns that there is something new in the partition.
pub const SGI: IntId = IntId(1);

/// Entries of the ring of completions: every buffer and every packet of every port at once.
pub(super) const COMPLETIONS: usize = 2 * PORTS * RING;
/// Words of a header.
pub(super) const HEADER_WORDS: usize = HEADER_LEN / 4;

/// Bytes somewhere in the broker's address space, in pieces: a packet to send, or a buffer to
/// receive into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    segments: [Segment; MAX_SEGMENTS],
    count: usize,
}

impl Pieces {
    /// The first [`MAX_SEGMENTS`] of `segments`.
    pub fn new(segments: impl IntoIterator<Item = Segment>) -> Self {
        let mut pieces = Self::default();
        for (place, segment) in pieces.segments.iter_mut().zip(segments) {
            *place = segment;
            pieces.count += 1;
        }
        pieces
    }

    /// The pieces in order.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        self.segments.get(..self.count).unwrap_or(&[])
    }

    /// Bytes of all.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.segments().iter().map(|segment| u64::from(segment.len)).sum()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest piece from byte `offset` on: its address and its bytes.
    #[must_use]
    pub fn at(&self, mut offset: u64) -> Option<(u64, u64)> {
        for segment in self.segments() {
            let len = u64::from(segment.len);
            if offset < len {
                return Some((segment.address.wrapping_add(offset), len - offset));
            }
            offset -= len;
        }
        None
    }
}

/// A packet of a flow, as the hypervisor submits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The flow's number.
    pub flow: u8,
    /// Not moved before this time, in ns of the counter.
    pub eligible: u64,
    /// Absolute deadline in ns of the counter; `u64::MAX` without one.
    pub deadline: u64,
    /// The epoch of its receiver's port in which it was sent; in another one it is given up.
    pub epoch: u32,
    /// The header as it was checked.
    pub header: [u8; HEADER_LEN],
    /// The sender's buffers, its own copy of the header first.
    pub pieces: Pieces,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct SharedPieces {
    pub(super) addresses: [AtomicU64; MAX_SEGMENTS],
    pub(super) lens: [AtomicU32; MAX_SEGMENTS],
}

impl SharedPieces {
    fn set(&self, pieces: &Pieces) {
        for (index, segment) in pieces.segments.iter().enumerate() {
            let in_use = index < pieces.count;
            self.addresses[index].store(segment.address, Relaxed);
            self.lens[index].store(if in_use { segment.len } else { 0 }, Relaxed);
        }
    }

    fn get(&self) -> Pieces {
        let segments = self.addresses.iter().zip(&self.lens).map(|(address, len)| Segment {
            address: address.load(Relaxed),
            len: len.load(Relaxed),
        });
        Pieces::new(segments)
    }
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct SharedPacket {
    pub(super) eligible: AtomicU64,
    pub(super) deadline: AtomicU64,
    pub(super) pieces: SharedPieces,
    pub(super) header: [AtomicU32; HEADER_WORDS],
    pub(super) flow: AtomicU32,
    pub(super) epoch: AtomicU32,
}

/// The rings of one port.
#[derive(Debug)]
#[repr(C)]
pub struct PortRings {
    pub(super) epoch: AtomicU32,
    pub(super) submitted: AtomicU64,
    pub(super) offered: AtomicU64,
    pub(super) reserved: AtomicU32,
    /// When the last packet was submitted, in ticks of the counter.
    pub(super) rung: AtomicU64,
    pub(super) submissions: [AtomicU32; RING],
    pub(super) packets: [SharedPacket; RING],
    pub(super) heads: [AtomicU32; RING],
    pub(super) buffers: [SharedPieces; RING],
}

impl PortRings {
    /// The hypervisor submits the packet whose chain starts at `head`, which is not submitted now.
    pub fn submit(&self, head: u16, packet: &Packet) {
        self.submit_to(head, packet, 1);
    }

    /// The same for a packet to several receivers: bit n of `members` is for the n-th flow from the
    /// packet's on. Each that it is for answers once. Its epoch means nothing: see
    /// [`Partition::retire`].
    pub fn submit_to(&self, head: u16, packet: &Packet, members: u8) {
        let Some(place) = self.packets.get(usize::from(head)) else { return };
        place.eligible.store(packet.eligible, Relaxed);
        place.deadline.store(packet.deadline, Relaxed);
        place.pieces.set(&packet.pieces);
        for (word, bytes) in place.header.iter().zip(packet.header.as_chunks().0) {
            word.store(u32::from_le_bytes(*bytes), Relaxed);
        }
        place.flow.store(u32::from(packet.flow) | u32::from(members) << 8, Relaxed);
        place.epoch.store(packet.epoch, Relaxed);
        let count = self.submitted.load(Relaxed);
        self.submissions[count as usize % RING].store(head.into(), Relaxed);
        // Release: the packet is written before the count that announces it; pairs with
        // `submitted`.
        self.submitted.store(next(count), Release);
    }

    /// The hypervisor says when it had submitted the last packet, in ticks of the counter.
    pub fn ring(&self, ticks: u64) {
        self.rung.store(ticks, Relaxed);
    }

    /// What [`Self::ring`] said last.
    pub(crate) fn rung(&self) -> u64 {
        self.rung.load(Relaxed)
    }

    /// The hypervisor offers the buffer whose chain starts at `head`, which is not offered now.
    pub fn offer(&self, head: u16, pieces: &Pieces) {
        let count = self.offered.load(Relaxed);
        let place = count as usize % RING;
        self.heads[place].store(head.into(), Relaxed);
        self.buffers[place].set(pieces);
        // Release: as in `submit`; pairs with `offered`.
        self.offered.store(next(count), Release);
    }

    /// The epoch that the port is in.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Acquire)
    }

    /// Packets submitted in `epoch`, modulo 2^32.
    pub(crate) fn submitted(&self, epoch: u32) -> u32 {
        counted(self.submitted.load(Acquire), epoch)
    }

    /// Buffers offered in `epoch`, modulo 2^32.
    pub(crate) fn offered(&self, epoch: u32) -> u32 {
        counted(self.offered.load(Acquire), epoch)
    }

    /// Submission number `count`: its head and its packet's flow.
    pub(crate) fn submission(&self, count: u32) -> (u8, u8) {
        let head = self.submissions[count as usize % RING].load(Relaxed) as u8 % RING as u8;
        (head, self.packets[usize::from(head)].flow.load(Relaxed) as u8)
    }

    /// Which flows from its own on the packet at `head` is for, one bit each.
    pub(crate) fn members(&self, head: u8) -> u8 {
        (self.packets[usize::from(head) % RING].flow.load(Relaxed) >> 8) as u8
    }

    /// When the packet at `head` may go, and its deadline.
    pub(crate) fn times(&self, head: u8) -> (u64, u64) {
        let packet = &self.packets[usize::from(head) % RING];
        (packet.eligible.load(Relaxed), packet.deadline.load(Relaxed))
    }

    /// The epoch of its receiver's port in which the packet at `head` was sent.
    pub(crate) fn receivers_epoch(&self, head: u8) -> u32 {
        self.packets[usize::from(head) % RING].epoch.load(Relaxed)
    }

    /// The packet at `head`: its header and its buffers.
    pub(crate) fn packet(&self, head: u8) -> ([u8; HEADER_LEN], Pieces) {
        let packet = &self.packets[usize::from(head) % RING];
        let mut header = [0; HEADER_LEN];
        for (bytes, word) in header.as_chunks_mut().0.iter_mut().zip(&packet.header) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
        (header, packet.pieces.get())
    }

    /// Offer number `count`: its head and its buffer.
    pub(crate) fn buffer(&self, count: u32) -> (u8, Pieces) {
        let place = count as usize % RING;
        (self.heads[place].load(Relaxed) as u8, self.buffers[place].get())
    }

    /// Whether the port is still in `epoch`, and what was read of its rings before this call is of
    /// that epoch.
    pub(crate) fn is_in(&self, epoch: u32) -> bool {
        // Acquire: pairs with the fence in `Partition::reset`. Who read a word that was written in
        // a later epoch sees that epoch here.
        fence(Acquire);
        self.epoch.load(Relaxed) == epoch
    }
}

/// A count's word in its epoch, none yet. A count says which epoch it is of: who has seen the new
/// epoch may still see counts of the old.
const fn first(epoch: u32) -> u64 {
    (epoch as u64) << 32
}

/// The count in a word, if it is of `epoch`; else nothing has been counted in it yet, or it is
/// over.
const fn counted(word: u64, epoch: u32) -> u32 {
    if (word >> 32) as u32 == epoch { word as u32 } else { 0 }
}

/// How many submissions were taken back by what [`Partition::retired`] gives, if they are of
/// `epoch`.
pub(crate) const fn retired_before(word: u64, epoch: u32) -> Option<u32> {
    if (word >> 32) as u32 == epoch { Some(word as u32) } else { None }
}

/// The word behind this one in the same epoch.
const fn next(word: u64) -> u64 {
    first((word >> 32) as u32) | (word as u32).wrapping_add(1) as u64
}

/// By which the hypervisor knows whether to send the broker its SGI: once each time that it is
/// about to sleep, whoever does whatever meanwhile. One for all cores, in the hypervisor's own
/// memory.
#[derive(Debug)]
pub struct Doorbell {
    /// The broker's count of [`Partition::doze`] when it was last rung.
    rung: AtomicU32,
}

impl Doorbell {
    /// For a broker that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self { rung: AtomicU32::new(0) }
    }

    /// Whether the broker needs its SGI to see what was written to the partition before.
    #[must_use]
    pub fn must_ring(&self, partition: &Partition) -> bool {
        // See `Partition::doze`.
        fence(SeqCst);
        let dozes = partition.dozes.load(Relaxed);
        // Who finds it rung for the same doze need not ring, as the broker looks behind that SGI,
        // and had not yet said its next doze.
        self.rung.swap(dozes, Relaxed) != dozes
    }
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

/// What became of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainOutcome {
    /// A buffer of a receiver's was written, so many bytes with the header.
    Received(u32),
    /// A packet of a sender's has arrived.
    Sent,
    /// A packet of a sender's was given up.
    Lost,
}

/// The broker's answer about one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Whose chain.
    pub port: usize,
    /// The port's epoch in which the broker got it.
    pub epoch: u32,
    /// The chain's head.
    pub head: u16,
    /// The flow that it answers for; 0 of a buffer.
    pub flow: u8,
    /// What became of it.
    pub outcome: ChainOutcome,
    /// How long the broker took, by its own account (`weir_trace::phases`):
    /// [`Phase::of`](weir_trace::phases::Phase::of) a chunk, or of a packet.
    pub phases: u64,
}

impl Completion {
    /// Epoch in bits 63:32, port in 31:28, head in 27:20, 2 bits of outcome, 18 of length or of the
    /// flow's number.
    fn to_word(self) -> u64 {
        let (kind, len) = match self.outcome {
            ChainOutcome::Received(len) => (0, len),
            ChainOutcome::Sent => (1, self.flow.into()),
            ChainOutcome::Lost => (2, self.flow.into()),
        };
        u64::from(self.epoch) << 32
            | (self.port as u64 & 0xf) << 28
            | (u64::from(self.head) & 0xff) << 20
            | kind << 18
            | u64::from(len) & 0x3_ffff
    }

    fn from_word(word: u64, phases: u64) -> Option<Self> {
        let outcome = match word >> 18 & 3 {
            0 => ChainOutcome::Received((word & 0x3_ffff) as u32),
            1 => ChainOutcome::Sent,
            2 => ChainOutcome::Lost,
            _ => return None,
        };
        Some(Self {
            port: (word >> 28 & 0xf) as usize,
            epoch: (word >> 32) as u32,
            head: (word >> 20 & 0xff) as u16,
            flow: if matches!(outcome, ChainOutcome::Received(_)) { 0 } else { word as u8 },
            outcome,
            phases,
        })
    }
}

/// A flow as the broker must know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerFlow {
    /// The sender's port.
    pub from: u8,
    /// The receiver's port.
    pub to: u8,
    /// Most bytes/s; 0 for no limit.
    pub rate: u64,
    /// Bytes that may go at once.
    pub burst: u64,
}

/// What holds for all flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How many flows there are.
    pub flows: u8,
    /// Most bytes between two decisions: S_c.
    pub chunk: u32,
    /// Most bytes/s of all flows together; 0 for no limit.
    pub rate: u64,
    /// The counter at the hypervisor's time 0, in its ticks.
    pub start: u64,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct SharedFlow {
    pub(super) ports: AtomicU64,
    pub(super) rate: AtomicU64,
    pub(super) burst: AtomicU64,
    /// How many flows, from this one on, are one to several receivers; 0 or 1 of a flow to one.
    pub(super) members: AtomicU32,
    /// Which of such flows it is.
    pub(super) member: AtomicU32,
    /// What its sender's port had submitted, with the epoch, when [`Partition::retire`] was last
    /// called for it.
    pub(super) retired: AtomicU64,
    /// When the hypervisor is to be told because of it and those that are one with it, in ns of the
    /// counter; 0 before it has said so.
    pub(super) alarm: AtomicU64,
}

/// All that hypervisor and broker share.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Partition {
    /// Written by the hypervisor before the broker starts.
    pub(super) settings: [AtomicU64; 4],
    pub(super) flows: [SharedFlow; FLOWS],
    pub(super) ports: [PortRings; PORTS],
    /// Written by the broker: how often it was about to sleep.
    pub(super) dozes: AtomicU32,
    /// Written by the hypervisor before the broker starts: flows, from the first on, among which
    /// are all that have alarms.
    pub(super) alarms: AtomicU32,
    /// Written by the broker: the ports that the copy under way reads or writes, one bit each.
    pub(super) busy: AtomicU32,
    /// Written by the broker: completions so far, modulo 2^32.
    pub(super) completed: AtomicU32,
    pub(super) completions: [AtomicU64; COMPLETIONS],
    /// Of each completion, how long the broker's phases took.
    pub(super) phases: [AtomicU64; COMPLETIONS],
}

impl Partition {
    /// Port `index`, a number below [`PORTS`].
    #[must_use]
    pub fn port(&self, index: usize) -> &PortRings {
        &self.ports[index % PORTS]
    }

    /// The hypervisor says what the flows are, before the broker starts.
    pub fn configure(&self, settings: &Settings, flows: impl IntoIterator<Item = BrokerFlow>) {
        let Settings { flows: count, chunk, rate, start } = *settings;
        let words = [count.into(), chunk.into(), rate, start];
        for (place, word) in self.settings.iter().zip(words) {
            place.store(word, Relaxed);
        }
        for (place, flow) in self.flows.iter().zip(flows) {
            place.ports.store(u64::from(flow.from) | u64::from(flow.to) << 8, Relaxed);
            place.rate.store(flow.rate, Relaxed);
            place.burst.store(flow.burst, Relaxed);
        }
        fence(Release);
    }

    /// The hypervisor says that `count` flows from `first` on are one to several receivers, before
    /// the broker starts.
    pub fn group(&self, first: usize, count: usize) {
        for (member, flow) in self.flows.iter().skip(first).take(count).enumerate() {
            flow.members.store(if member == 0 { count as u32 } else { 0 }, Relaxed);
            flow.member.store(member as u32, Relaxed);
        }
        self.alarms.fetch_max(first as u32 + 1, Relaxed);
        fence(Release);
    }

    /// Of flow `index`: how many flows from it on are one to several receivers, and which of such
    /// flows it is.
    pub(crate) fn members(&self, index: usize) -> (usize, usize) {
        let flow = &self.flows[index % FLOWS];
        let [count, member] = [&flow.members, &flow.member].map(|word| word.load(Relaxed) as usize);
        (count.clamp(1, FLOWS), member % FLOWS)
    }

    /// The hypervisor takes back what was submitted for flow `index`, one of those to several
    /// receivers, and not answered: the broker answers that it is lost. Not beside
    /// [`PortRings::submit_to`]; and none for this flow may be submitted before these answers came.
    pub fn retire(&self, index: usize) {
        let submitted = &self.port(self.flow(index).from.into()).submitted;
        self.flows[index % FLOWS].retired.store(submitted.load(Relaxed), Relaxed);
        // Release: who sees a later epoch of the receiver's port sees this; pairs with
        // `PortRings::epoch`.
        fence(Release);
    }

    /// Changes with each call of [`Self::retire`] for flow `index`.
    pub(crate) fn retired(&self, index: usize) -> u64 {
        self.flows[index % FLOWS].retired.load(Relaxed)
    }

    /// The hypervisor says when it is to be told because of the flows to several receivers that
    /// begin with `first`, whatever else there is: at `ns` of the counter. Each group has a word of
    /// its own, so that nobody waits for who says it of another.
    pub fn set_alarm(&self, first: usize, ns: u64) {
        self.flows[first % FLOWS].alarm.store(ns, Relaxed);
    }

    /// When the hypervisor is to be told; `u64::MAX` for never.
    pub(crate) fn alarm(&self) -> u64 {
        let flows = self.flows.iter().take(self.alarms.load(Relaxed) as usize);
        let alarms = flows.map(|flow| flow.alarm.load(Relaxed));
        // 0: as the partition is found at first.
        alarms.filter(|ns| *ns != 0).min().unwrap_or(u64::MAX)
    }

    /// What holds for all flows.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let [flows, chunk, rate, start] = &self.settings;
        Settings {
            flows: (flows.load(Relaxed) as u8).min(FLOWS as u8),
            chunk: (chunk.load(Relaxed) as u32).max(1),
            rate: rate.load(Relaxed),
            start: start.load(Relaxed),
        }
    }

    /// Flow `index`.
    #[must_use]
    pub fn flow(&self, index: usize) -> BrokerFlow {
        let flow = &self.flows[index % FLOWS];
        let ports = flow.ports.load(Relaxed);
        BrokerFlow {
            from: ports as u8 % PORTS as u8,
            to: (ports >> 8) as u8 % PORTS as u8,
            rate: flow.rate.load(Relaxed),
            burst: flow.burst.load(Relaxed),
        }
    }

    /// The hypervisor resets a port: its rings are empty, and the broker begins no copy with what
    /// it knew of it. One that is under way may still go on until [`Self::is_copying`] says no.
    pub fn reset(&self, index: usize) {
        let port = self.port(index);
        let epoch = port.epoch.load(Relaxed).wrapping_add(1);
        port.epoch.store(epoch, Relaxed);
        // Release: the new epoch is written before anything of it; pairs with `PortRings::is_in`.
        // SeqCst with the fence in `begin_copy`: either the broker sees the new epoch there, or
        // `is_copying` sees its copy.
        fence(SeqCst);
        port.submitted.store(first(epoch), Relaxed);
        port.offered.store(first(epoch), Relaxed);
    }

    /// The broker is about to sleep: from now on it must be woken for what it does not see when it
    /// looks behind this.
    pub(crate) fn doze(&self) {
        self.dozes.store(self.dozes.load(Relaxed).wrapping_add(1), Relaxed);
        // SeqCst with the fence in `Doorbell::must_ring`: either the broker sees what was written
        // there before, or that sees the new count.
        fence(SeqCst);
    }

    /// Whether the broker has set itself up: it found nothing to do at least once. Asked when VMs
    /// first start, long before the count wraps.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // Relaxed: only the time at which others start depends on it.
        self.dozes.load(Relaxed) != 0
    }

    /// Whether the copy under way reads or writes memory of this port's VM.
    #[must_use]
    pub fn is_copying(&self, index: usize) -> bool {
        // Acquire: what the copy did comes before what the caller does next.
        self.busy.load(Acquire) >> (index % PORTS) & 1 != 0
    }

    /// The broker begins a copy between two ports; whether both are still in these epochs. If not,
    /// nothing may be copied.
    pub(crate) fn begin_copy(&self, from: (usize, u32), to: (usize, u32)) -> bool {
        self.busy.store(1 << from.0 | 1 << to.0, Relaxed);
        // See `reset`.
        fence(SeqCst);
        let current = |(port, epoch)| self.port(port).epoch.load(Relaxed) == epoch;
        let good = current(from) && current(to);
        if !good {
            self.end_copy();
        }
        good
    }

    /// The broker ends a copy.
    pub(crate) fn end_copy(&self) {
        // Release: pairs with `is_copying`.
        self.busy.store(0, Release);
    }

    /// The broker's completion number `count`; it has at most as many under way as there are
    /// entries.
    pub(crate) fn complete(&self, count: u32, completion: Completion) {
        self.completions[count as usize % COMPLETIONS].store(completion.to_word(), Relaxed);
        // Release: pairs with `completions`.
        self.completed.store(count.wrapping_add(1), Release);
    }

    /// The broker says how long the phases of completion number `count` took, in ticks, before it
    /// tells the hypervisor of it: a figure, on which nothing depends.
    pub(crate) fn note(&self, count: u32, ticks: [u64; 4]) {
        self.phases[count as usize % COMPLETIONS].store(pack(ticks), Relaxed);
    }

    /// The next completion for the hypervisor, which has taken `taken` so far. A broker that claims
    /// more than there can be is not believed: one call takes one, and the caller bounds its calls
    /// by [`Self::most_completions`].
    pub fn next_completion(&self, taken: &mut u32) -> Option<Completion> {
        // Bounded: words that mean nothing are skipped, and there are COMPLETIONS of them.
        for _ in 0..COMPLETIONS {
            let completed = self.completed.load(Acquire);
            if completed == *taken {
                return None;
            }
            let place = *taken as usize % COMPLETIONS;
            let [word, phases] =
                [&self.completions, &self.phases].map(|ring| ring[place].load(Relaxed));
            *taken = taken.wrapping_add(1);
            if let Some(completion) = Completion::from_word(word, phases)
                && completion.port < PORTS
            {
                return Some(completion);
            }
        }
        None
    }

    /// How many completions there can be at once.
    #[must_use]
    pub const fn most_completions() -> usize {
        COMPLETIONS
    }
}
