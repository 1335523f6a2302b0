//! Flows, and what moves their bytes.

pub use crate::keys::timing::DataPath;

use crate::fault::FilePlace;
use crate::object::named;
use weir_units::{Bytes, BytesPerSec, Nanos};

/// The port of a flow that names none.
pub const DEFAULT_PORT: u32 = 5000;

/// Bytes that the broker moves between two decisions if the file does not set it (rt-virtio,
/// section V).
pub const DEFAULT_CHUNK: Bytes = Bytes(4096);

/// A flow.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// The VM that sends, a position in [`System::vms`](crate::System::vms).
    pub from: usize,
    /// The VMs that receive, at least one.
    pub to: Vec<usize>,
    /// The receivers' vsock port, if the file sets it.
    pub port: Option<u32>,
    /// Bytes of a packet, at least 1.
    pub size: Bytes,
    /// Least time between two packets, at least 1 ns; none if the flow is best effort.
    pub period: Option<Nanos>,
    /// How late a packet is released at most, in a simulation.
    pub jitter: Nanos,
    /// Relative deadline, at least 1 ns: the period if the file gives none; none if the flow is
    /// best effort.
    pub deadline: Option<Nanos>,
    /// No deadline, served when nothing else is.
    pub best_effort: bool,
    /// What the broker moves of it at most; at least `size` in each period.
    pub bandwidth: Option<BytesPerSec>,
    /// Its header.
    pub place: FilePlace,
    /// Of `size`, `period` and `deadline`, or else the header.
    pub places: [FilePlace; 3],
}

named! { Flow: flow(name) }

impl Flow {
    /// Returns whether VM `vm` sends or receives it.
    #[must_use]
    pub fn ends_at(&self, vm: usize) -> bool {
        self.from == vm || self.to.contains(&vm)
    }
}

/// Where the data path of a system comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathSource {
    /// Nothing names one: the default without a platform.
    #[default]
    Default,
    /// `[dma] path`.
    File,
    /// The platform has a DMA engine, or none.
    Platform,
}

/// `[dma]`.
#[derive(Clone, Debug, Default)]
pub struct Dma {
    /// At least 1 byte/s.
    pub bandwidth: Option<BytesPerSec>,
    /// At least 1 byte.
    pub chunk: Option<Bytes>,
    /// Where the file sets `chunk`.
    pub(crate) chunk_place: FilePlace,
    /// The least bytes of a chunk that the DMA engine moves, if the file sets it.
    pub engine_from: Option<Bytes>,
    /// The level of the engine's QoS regulator, 1 to 4095.
    pub qos_level: Option<u64>,
    /// Where the file sets `qos_level`.
    pub(crate) qos_place: FilePlace,
    /// At least 1.
    pub queues: Option<u32>,
    /// The mover of the bytes.
    pub path: DataPath,
    /// Where `path` comes from.
    pub path_source: PathSource,
    /// At least 1 byte/s.
    pub copy_bandwidth: Option<BytesPerSec>,
    /// The bandwidth of the DMA engine that was measured with the overheads, at least 1 byte/s.
    pub engine_bandwidth: Option<BytesPerSec>,
    /// The engine's name in the memory file, for a simulation.
    pub engine: Option<String>,
    /// The table; empty if there is none.
    pub place: FilePlace,
    /// Whether the file has the table.
    pub given: bool,
}
