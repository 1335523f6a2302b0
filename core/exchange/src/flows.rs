//! The exchange of the flows: settings, the VMs' socket devices, and records and counts of packets.
//!
//! A *port* is a VM's socket device, by the VM's place in the system. EL2 has its registers; the
//! broker reads and writes its rings (see [`crate::device`]). Every word has one writer, and there
//! is no lock, so that neither can delay the other. What the broker writes are claims: EL2 passes
//! counts and records on, and decides nothing by them.

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

/// Where the broker sees the exchange.
pub const ADDRESS: u64 = 0x60_0000_0000;
/// Where it sees the VMs in flows, those that it needs.
pub const WINDOWS: Range<u64> = 1 << 35..9 << 35;
/// The SGI by which it learns that there is something new in the exchange.
pub const SGI: IntId = IntId(1);

/// The longest that the DMA engine can be given for a chunk: 64 KiB at 13 MB/s, less than the
/// slowest QoS level of rt-virtio's Table I lets it have. A quarter of what EL2 lets an access of
/// the broker's take.
pub const ENGINE_LIMIT: Nanos = Nanos(5_000_000);

/// The bit of the last word of the settings that has [`BrokerSettings::engine_is_coherent`],
/// behind the interrupt's number.
const ENGINE_IS_COHERENT: u32 = 32;

/// Records that EL2 takes in one call of the broker's.
pub const TAKEN: u32 = 2;

/// A flow as the system has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerFlow {
    /// The sender's port.
    pub from: u8,
    /// The receiver's port.
    pub to: u8,
    /// Where the flows begin that are one to several receivers; its own place for a flow to one.
    pub first: u8,
    /// How many they are; 1 for a flow to one.
    pub members: u8,
    /// The receiver's vsock port.
    pub port: u32,
    /// The context identifier by which the sender knows the receivers.
    pub destination: Cid,
    /// Most bytes of a packet's payload.
    pub size: u32,
    /// Least time between two packets, in ns; 0 for a flow of best effort.
    pub period: u64,
    /// Relative deadline in ns; 0 for a flow of best effort.
    pub deadline: u64,
    /// Most bytes/s; 0 for no limit.
    pub rate: u64,
    /// Bytes that may go at once.
    pub burst: u64,
}

impl BrokerFlow {
    /// None.
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

/// What holds for all flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerSettings {
    /// How many flows there are.
    pub flows: u8,
    /// Most bytes between two decisions: S_c.
    pub chunk: u32,
    /// Most bytes/s of all flows together; 0 for no limit.
    pub rate: u64,
    /// The counter at the hypervisor's time 0, in its ticks.
    pub start: u64,
    /// Least bytes of a chunk that the DMA engine moves, if it lies in one piece; `u64::MAX` if the
    /// core moves all.
    pub engine_from: u64,
    /// The interrupt of the DMA engine.
    pub engine_intid: IntId,
    /// Whether the DMA engine sees what is in the cores' caches.
    pub engine_is_coherent: bool,
    /// How long the DMA engine may take for a chunk until the broker gives up: all other flows wait
    /// as long.
    pub engine_limit: Nanos,
}

impl Default for BrokerSettings {
    /// Without flows and without an engine.
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
    /// When that arrived, in ns of the counter.
    pub observed_max_arrived_ns: u64,
    /// How often the receiver was dropped, if it is one of several.
    pub dropped: u64,
}

impl PacketCounts {
    /// Of a flow without packets.
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

/// What a [`PacketRecord`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEvent {
    /// A packet was taken out of its sender's ring. [`PacketRecord::value`]: when its driver had
    /// notified of it, in ns of the counter.
    Sent,
    /// A chunk was moved into a receiver's buffer. [`PacketRecord::value`]: its bytes.
    Chunk,
    /// A packet has arrived. [`PacketRecord::value`]: when it could go, in ns of the counter.
    Arrived,
}

/// What EL2 is to put into the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// What it is about.
    pub event: PacketEvent,
    /// The port that it is of: of the sender, or of a chunk's receiver.
    pub port: usize,
    /// The receiver's port of a packet that has arrived.
    pub to: usize,
    /// The flow and the head of the packet's chain; or the head of the chunk's buffer.
    pub detail: u32,
    /// What the phases of `weir_trace::phases` took.
    pub phases: u64,
    /// By event.
    pub value: u64,
}

impl PacketRecord {
    /// Detail in bits 63:32, the receiver's port in 15:12, the port in 11:8, the event below.
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
    /// Written by EL2 before the broker starts: sender, receiver, first and members, a byte each,
    /// and the vsock port above; destination; size; period; deadline; rate; burst.
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
    /// Returns how many packets of the VM were refused. The broker counts, so it is its claim.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Counts a packet that is refused.
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
    /// Where RAM of the VMs in flows is.
    pub ram: Map,
    /// Written by the broker: how often it was about to sleep.
    dozes: AtomicU32,
    /// Written by the broker: records so far, modulo 2^32.
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
    /// All zeros: without flows.
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
    /// `known`, one bit each: EL2 has a word of its own for each, so that no port's notifications
    /// wait for another's, nor for the broker.
    pub fn changed(&self, known: &mut [u32; PORTS], ports: usize) -> u32 {
        let mut changed = 0;
        for (index, (port, known)) in self.ports.iter().zip(known).take(ports).enumerate() {
            let count = port.device.changes();
            changed |= u32::from(count != *known) << index;
            *known = count;
        }
        changed
    }

    /// EL2 says what the flows are, before the broker starts.
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

    /// Returns what holds for all flows.
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

    /// Returns what became of the packets of flow `index`. The broker counts, so these are its
    /// claims.
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

    /// Writes what became of the packets of flow `index`.
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

    /// The broker is about to sleep: from now on it must be woken for what it does not see when it
    /// looks behind this.
    pub fn doze(&self) {
        self.dozes.store(self.dozes.load(Relaxed).wrapping_add(1), Relaxed);
        // SeqCst with the fence in `Doorbell::must_ring`: either the broker sees what was written
        // there before, or that sees the new count.
        fence(SeqCst);
    }

    /// Returns whether the broker has set itself up: it found nothing to do at least once. Asked
    /// when VMs first start, long before the count wraps.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // Relaxed: only the time at which others start depends on it.
        self.dozes.load(Relaxed) != 0
    }

    /// Writes record number `count`.
    pub fn record(&self, count: u32, record: PacketRecord) {
        store(&self.records[count as usize % RECORDS], record.to_words());
        // Release: pairs with `next_record`.
        self.recorded.store(count.wrapping_add(1), Release);
    }

    /// Writes the record of a packet that arrives with the next call, or that there is none.
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

    /// Returns the next record for EL2, which has taken `taken` so far. If the broker claims more
    /// than there can be, the oldest are lost. One call takes one; the caller bounds its calls by
    /// [`TAKEN`].
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

/// [`PacketCounts::least_ns`] in [`FlowWords::counts`].
const LEAST: usize = 3;

/// By which EL2 knows whether to send the broker its SGI: once each time that it is about to sleep,
/// with any concurrent activity. One for all cores, in EL2's own memory.
#[derive(Debug)]
pub struct Doorbell {
    /// The broker's count of dozes when it was last rung.
    rung: AtomicU32,
}

impl Doorbell {
    /// For a broker that has not begun.
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
        // A VM that finds it rung for the same doze need not ring, as the broker looks behind that
        // SGI, and had not yet said its next doze.
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
