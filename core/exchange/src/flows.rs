//! The exchange of the flows: settings, the VMs' socket devices, and records and counts of packets.
//!
//! A *port* is a VM's socket device, identified by the VM's index in the system. EL2 emulates its
//! registers; the broker reads and writes its rings (see [`crate::device`]). Every word has one
//! writer, and there is no lock, so neither side can delay the other. The words that the broker
//! writes are claims: EL2 passes counts and records on, and makes no decision based on them.

pub use super::sizes::{FLOWS, PORTS, RECORDS};
use super::{
    device::DeviceWords,
    ram::Map,
    sync::{AtomicU32, AtomicU64, fence},
};
use core::{
    ops::Range,
    sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use weir_units::{Cid, IntId, Nanos};

/// Address at which the broker sees the exchange.
pub const ADDRESS: u64 = 0x60_0000_0000;
/// Addresses at which the broker sees the VMs in flows.
pub const WINDOWS: Range<u64> = 1 << 35..9 << 35;
/// The SGI that notifies the broker of changes in the exchange.
pub const SGI: IntId = IntId(1);

/// The longest time that the DMA engine can be given for a chunk: 64 KiB at 13 MB/s, which is below
/// the slowest QoS level of rt-virtio's Table I. It is a quarter of the time that EL2 allows for an
/// access of the broker.
pub const ENGINE_LIMIT: Nanos = Nanos(5_000_000);

/// The bit of the word with the interrupt's number that holds
/// [`BrokerSettings::engine_is_coherent`].
const ENGINE_IS_COHERENT: u32 = 32;

/// Number of records that EL2 takes in one call of the broker.
pub const TAKEN: u32 = 2;

/// A flow of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerFlow {
    /// The sender's port.
    pub from: u8,
    /// The receiver's port.
    pub to: u8,
    /// The first of the flows to the same group of receivers; the flow's own index for a flow to
    /// one receiver.
    pub first: u8,
    /// Number of flows in the group; 1 for a flow to one receiver.
    pub members: u8,
    /// The receiver's vsock port.
    pub port: u32,
    /// The context identifier by which the sender addresses the receivers.
    pub destination: Cid,
    /// Largest payload of a packet, in bytes.
    pub size: u32,
    /// Shortest time between two packets, in ns; 0 for a best-effort flow.
    pub period: u64,
    /// Relative deadline in ns; 0 for a best-effort flow.
    pub deadline: u64,
    /// Largest rate in bytes/s; 0 for no limit.
    pub rate: u64,
    /// Number of bytes that may be sent at once.
    pub burst: u64,
}

impl BrokerFlow {
    /// An unused flow.
    pub const NONE: Self = Self {
        from: 0,
        to: 0,
        first: 0,
        members: 1,
        port: 0,
        destination: Cid(0),
        size: 0,
        period: 0,
        deadline: 0,
        rate: 0,
        burst: 0,
    };
}

/// Settings that apply to all flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerSettings {
    /// Number of flows.
    pub flows: u8,
    /// Largest number of bytes between two decisions: S_c.
    pub chunk: u32,
    /// Largest rate of all flows together, in bytes/s; 0 for no limit.
    pub rate: u64,
    /// Value of the counter at the hypervisor's time 0, in ticks.
    pub start: u64,
    /// Smallest chunk in bytes that the DMA engine moves, if the chunk is contiguous; `u64::MAX` if
    /// the core moves all chunks.
    pub engine_from: u64,
    /// The interrupt of the DMA engine.
    pub engine_intid: IntId,
    /// Whether the DMA engine is coherent with the cores' caches.
    pub engine_is_coherent: bool,
    /// Longest time that the DMA engine may take for a chunk before the broker gives up; all other
    /// flows can wait for this time.
    pub engine_limit: Nanos,
}

impl Default for BrokerSettings {
    /// Returns settings without flows and without an engine.
    fn default() -> Self {
        Self {
            flows: 0,
            chunk: 0,
            rate: 0,
            start: 0,
            engine_from: u64::MAX,
            engine_intid: IntId(0),
            engine_is_coherent: false,
            engine_limit: ENGINE_LIMIT,
        }
    }
}

/// Counts of a flow's packets since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketCounts {
    /// Packets that have arrived.
    pub packets: u64,
    /// Packets that were given up.
    pub lost: u64,
    /// The longest latency, in ns.
    pub observed_max_ns: u64,
    /// The shortest latency, in ns; `u64::MAX` before the first packet.
    pub least_ns: u64,
    /// Packets that arrived after their deadline.
    pub late: u64,
    /// The number of the packet with the longest latency, counted from 1.
    pub observed_max_packet: u64,
    /// Arrival time of that packet, in ns of the counter.
    pub observed_max_arrived_ns: u64,
    /// Number of times that the receiver was dropped, if it is one of several.
    pub dropped: u64,
}

impl PacketCounts {
    /// The counts of a flow without packets.
    pub const NONE: Self = Self {
        packets: 0,
        lost: 0,
        observed_max_ns: 0,
        least_ns: u64::MAX,
        late: 0,
        observed_max_packet: 0,
        observed_max_arrived_ns: 0,
        dropped: 0,
    };
}

/// The event that a [`PacketRecord`] describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEvent {
    /// A packet was taken out of its sender's ring. [`PacketRecord::value`]: the time at which its
    /// driver notified, in ns of the counter.
    Sent,
    /// A chunk was moved into a receiver's buffer. [`PacketRecord::value`]: its length in bytes.
    Chunk,
    /// A packet has arrived. [`PacketRecord::value`]: the time at which it became eligible, in ns
    /// of the counter.
    Arrived,
}

/// A record that EL2 puts into the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// The event.
    pub event: PacketEvent,
    /// The sender's port, or for a chunk the receiver's port.
    pub port: usize,
    /// The receiver's port, for a packet that has arrived.
    pub to: usize,
    /// The flow and the head of the packet's chain; or the head of the chunk's buffer.
    pub detail: u32,
    /// Durations of the phases of `weir_trace::phases`.
    pub phases: u64,
    /// A value that depends on the event.
    pub value: u64,
}

impl PacketRecord {
    /// Returns the words: detail in bits 63:32, the receiver's port in 15:12, the port in 11:8, the
    /// event in 7:0.
    fn to_words(self) -> [u64; 3] {
        let word = u64::from(self.detail) << 32
            | (self.to as u64 & 0xf) << 12
            | (self.port as u64 & 0xf) << 8
            | self.event as u64;
        [word, self.phases, self.value]
    }

    fn from_words([word, phases, value]: [u64; 3]) -> Option<Self> {
        let event = match word as u8 {
            0 => PacketEvent::Sent,
            1 => PacketEvent::Chunk,
            2 => PacketEvent::Arrived,
            _ => return None,
        };
        let [port, to] = [8, 12].map(|shift| (word >> shift & 0xf) as usize % PORTS);
        Some(Self { event, port, to, detail: (word >> 32) as u32, phases, value })
    }
}

/// A flow in the exchange.
#[derive(Debug)]
#[repr(C)]
struct FlowWords {
    /// Written by EL2 before the broker starts: sender, receiver, first and members, one byte each,
    /// and the vsock port above them; destination; size; period; deadline; rate; burst.
    settings: [AtomicU64; 7],
    /// Written by the broker.
    counts: [AtomicU64; 8],
}

/// A VM's socket device.
#[derive(Debug)]
#[repr(C)]
pub struct PortRings {
    /// The device.
    pub device: DeviceWords,
    /// Written by the broker: packets of the VM that were malformed or not allowed.
    refused: AtomicU64,
}

impl PortRings {
    /// Returns how many packets of the VM were refused. The broker counts them, so this is its
    /// claim.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Counts a refused packet.
    pub fn refuse(&self) {
        self.refused.store(self.refused().wrapping_add(1), Relaxed);
    }
}

/// The exchange of the flows: all zeros until EL2 configures it.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Exchange {
    /// Written by EL2 before the broker starts.
    settings: [AtomicU64; 7],
    flows: [FlowWords; FLOWS],
    ports: [PortRings; PORTS],
    /// The place of the RAM of the VMs in flows.
    pub ram: Map,
    /// Written by the broker: number of times that it was about to sleep.
    dozes: AtomicU32,
    /// Written by the broker: number of records so far, modulo 2^32.
    recorded: AtomicU32,
    records: [[AtomicU64; 3]; RECORDS],
    /// Written by the broker: the record of the packet that arrives with its next call.
    arrival: [AtomicU64; 3],
}

impl Default for Exchange {
    fn default() -> Self {
        Self::new()
    }
}

impl Exchange {
    /// Returns an exchange without flows: all words are zero.
    #[must_use]
    pub fn new() -> Self {
        let port = |_| PortRings { device: DeviceWords::new(), refused: AtomicU64::new(0) };
        Self {
            settings: longs(),
            flows: core::array::from_fn(|_| FlowWords { settings: longs(), counts: longs() }),
            ports: core::array::from_fn(port),
            ram: Map::new(),
            dozes: AtomicU32::new(0),
            recorded: AtomicU32::new(0),
            records: core::array::from_fn(|_| longs()),
            arrival: longs(),
        }
    }

    /// Returns port `index`, a number below [`PORTS`].
    #[must_use]
    pub fn port(&self, index: usize) -> &PortRings {
        &self.ports[index % PORTS]
    }

    /// Returns which of the first `ports` devices have changed since this was last called with
    /// `known`, one bit each. EL2 has a separate word for each device, so notifications of one port
    /// wait neither for those of another port nor for the broker.
    pub fn changed(&self, known: &mut [u32; PORTS], ports: usize) -> u32 {
        let mut changed = 0;
        for (index, (port, known)) in self.ports.iter().zip(known).take(ports).enumerate() {
            let count = port.device.changes();
            changed |= u32::from(count != *known) << index;
            *known = count;
        }
        changed
    }

    /// Writes the settings and the flows. Called by EL2 before the broker starts.
    pub fn configure(
        &self,
        settings: &BrokerSettings,
        flows: impl IntoIterator<Item = BrokerFlow>,
    ) {
        let BrokerSettings { flows: count, chunk, rate, start, engine_from, engine_limit, .. } =
            *settings;
        let line = u64::from(settings.engine_intid.0)
            | u64::from(settings.engine_is_coherent) << ENGINE_IS_COHERENT;
        let limit = engine_limit.0;
        store(&self.settings, [count.into(), chunk.into(), rate, start, engine_from, line, limit]);
        for (place, flow) in self.flows.iter().zip(flows) {
            let bytes = [flow.from, flow.to, flow.first, flow.members];
            let ends = u64::from(u32::from_le_bytes(bytes)) | u64::from(flow.port) << 32;
            let BrokerFlow { destination, size, period, deadline, rate, burst, .. } = flow;
            let words = [ends, destination.0, size.into(), period, deadline, rate, burst];
            store(&place.settings, words);
            place.counts[LEAST].store(u64::MAX, Relaxed);
        }
        fence(Release);
    }

    /// Returns the settings that apply to all flows.
    #[must_use]
    pub fn settings(&self) -> BrokerSettings {
        let [flows, chunk, rate, start, engine_from, line, limit] = load(&self.settings);
        BrokerSettings {
            flows: (flows as u8).min(FLOWS as u8),
            chunk: (chunk as u32).max(1),
            rate,
            start,
            engine_from,
            engine_intid: IntId(line as u32),
            engine_is_coherent: line >> ENGINE_IS_COHERENT & 1 != 0,
            engine_limit: Nanos(limit),
        }
    }

    /// Returns flow `index`.
    #[must_use]
    pub fn flow(&self, index: usize) -> BrokerFlow {
        let [ends, destination, size, period, deadline, rate, burst] =
            load(&self.flows[index % FLOWS].settings);
        let [from, to, first, members] = (ends as u32).to_le_bytes();
        BrokerFlow {
            from: from % PORTS as u8,
            to: to % PORTS as u8,
            first: first % FLOWS as u8,
            members: members.clamp(1, PORTS as u8),
            port: (ends >> 32) as u32,
            destination: Cid(destination),
            size: size as u32,
            period,
            deadline,
            rate,
            burst,
        }
    }

    /// Returns the packet counts of flow `index`. The broker counts them, so these are its claims.
    #[must_use]
    pub fn counts(&self, index: usize) -> PacketCounts {
        let [
            packets,
            lost,
            observed_max_ns,
            least_ns,
            late,
            observed_max_packet,
            observed_max_arrived_ns,
            dropped,
        ] = load(&self.flows[index % FLOWS].counts);
        PacketCounts {
            packets,
            lost,
            observed_max_ns,
            least_ns,
            late,
            observed_max_packet,
            observed_max_arrived_ns,
            dropped,
        }
    }

    /// Writes the packet counts of flow `index`.
    pub fn set_counts(&self, index: usize, counts: PacketCounts) {
        let PacketCounts { packets, lost, observed_max_ns, least_ns, late, .. } = counts;
        let PacketCounts { observed_max_packet, observed_max_arrived_ns, dropped, .. } = counts;
        let words = [
            packets,
            lost,
            observed_max_ns,
            least_ns,
            late,
            observed_max_packet,
            observed_max_arrived_ns,
            dropped,
        ];
        store(&self.flows[index % FLOWS].counts, words);
    }

    /// Announces that the broker is about to sleep: from now on it must be woken for every change
    /// that its next poll, after this call, does not see.
    pub fn doze(&self) {
        self.dozes.store(self.dozes.load(Relaxed).wrapping_add(1), Relaxed);
        // SeqCst together with the fence in `Doorbell::must_ring`: either the broker sees what was
        // written before that fence, or `must_ring` sees the new count.
        fence(SeqCst);
    }

    /// Returns whether the broker has finished its setup, which is the case once it has found
    /// nothing to do. Called when VMs first start, long before the count can wrap.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // Relaxed: only the start time of other VMs depends on it.
        self.dozes.load(Relaxed) != 0
    }

    /// Writes record number `count`.
    pub fn record(&self, count: u32, record: PacketRecord) {
        store(&self.records[count as usize % RECORDS], record.to_words());
        // Release: pairs with `next_record`.
        self.recorded.store(count.wrapping_add(1), Release);
    }

    /// Writes the record of the packet that arrives with the next call, or that there is none.
    pub fn arrive(&self, record: Option<PacketRecord>) {
        match record {
            Some(record) => store(&self.arrival, record.to_words()),
            None => self.arrival[0].store(u64::MAX, Relaxed),
        }
    }

    /// Returns the record of the packet that arrives with this call.
    pub fn arrival(&self) -> Option<PacketRecord> {
        PacketRecord::from_words(load(&self.arrival))
            .filter(|record| record.event == PacketEvent::Arrived)
    }

    /// Returns the next record for EL2, which has taken `taken` records so far. If the broker
    /// claims more records than fit, the oldest are lost. One call returns one record; the caller
    /// bounds its calls by [`TAKEN`].
    pub fn next_record(&self, taken: &mut u32) -> Option<PacketRecord> {
        let recorded = self.recorded.load(Acquire);
        let waiting = recorded.wrapping_sub(*taken);
        if waiting == 0 {
            return None;
        }
        if waiting > RECORDS as u32 {
            *taken = recorded.wrapping_sub(RECORDS as u32);
        }
        let words = load(&self.records[*taken as usize % RECORDS]);
        *taken = taken.wrapping_add(1);
        PacketRecord::from_words(words)
    }
}

/// Index of [`PacketCounts::least_ns`] in [`FlowWords::counts`].
const LEAST: usize = 3;

/// State by which EL2 decides whether to send the broker its SGI: once each time that the broker is
/// about to sleep, with any concurrent activity. All cores share one doorbell, in EL2's own memory.
#[derive(Debug)]
pub struct Doorbell {
    /// The broker's count of dozes when the doorbell was last rung.
    rung: AtomicU32,
}

impl Doorbell {
    /// Returns the state for a broker that has not started.
    #[must_use]
    pub fn new() -> Self {
        Self { rung: AtomicU32::new(0) }
    }

    /// Returns whether the broker needs its SGI to see what was written to the exchange before.
    #[must_use]
    pub fn must_ring(&self, exchange: &Exchange) -> bool {
        // See `Exchange::doze`.
        fence(SeqCst);
        let dozes = exchange.dozes.load(Relaxed);
        // If the doorbell was already rung for this doze, the broker polls again after that SGI and
        // has not announced its next doze yet, so no further SGI is needed.
        self.rung.swap(dozes, Relaxed) != dozes
    }
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

fn longs<const N: usize>() -> [AtomicU64; N] {
    core::array::from_fn(|_| AtomicU64::new(0))
}

fn store<const N: usize>(places: &[AtomicU64; N], words: [u64; N]) {
    places.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
}

fn load<const N: usize>(places: &[AtomicU64; N]) -> [u64; N] {
    places.each_ref().map(|place| place.load(Relaxed))
}
