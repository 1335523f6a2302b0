//! Flows: senders, receivers, and the broker's view of the VMs' memory.

mod broker;

pub use broker::window;

use crate::{MAX_VMS, PAGE};
use core::ops::Range;
use weir_units::Cid;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most flows of a system.
pub const MAX_FLOWS: usize = 32;
/// Periods and deadlines are below this, in ns.
pub const FLOW_TIME_LIMIT: u64 = 1 << 62;
/// `Region::kind` of the exchange, the memory that the hypervisor and the broker both access: RAM
/// that outlives the broker's boots.
pub const EXCHANGE: u64 = 2;
/// Bytes of the exchange.
pub const EXCHANGE_LEN: u64 = 0x2_0000;
/// Address of the exchange in the broker's VM, above the windows.
pub const EXCHANGE_IPA: u64 = 0x60_0000_0000;
/// Where the broker sees the RAM of VMs in flows and at the switch.
pub const WINDOWS: Range<u64> = WINDOW..WINDOW * (MAX_VMS as u64 + 1);
/// Bytes of a virtio device's registers.
pub const VIRTIO_LEN: u64 = PAGE;
/// Bytes of the registers of a socket device on PCI.
pub const VSOCK_BAR_LEN: u64 = 0x4000;
/// Where such a device is: its number on bus 0, and it has function 0 alone. Devices of a board are
/// seldom there.
pub const VSOCK_SLOT: u32 = 31;
/// `PackedHeader::broker` of a system without one.
pub const NO_BROKER: u32 = u32::MAX;
/// `PackedHeader::engine_from` of a system in which the core moves all.
pub const NO_ENGINE: u64 = u64::MAX;
/// Most bytes of a chunk in a system with a DMA engine that moves some: a chunk is one transfer,
/// which the broker cannot take back.
pub const ENGINE_CHUNK: u64 = 64 << 10;
/// The most nanoseconds that the DMA engine can be given for a chunk.
pub const ENGINE_LIMIT: u64 = 5_000_000;
/// The highest level of the DMA engine's QoS regulator: a fraction of 12 bits.
pub const ENGINE_LEVELS: u64 = 0xfff;
/// The first context identifier of the receivers of a flow to several: those of VMs are below.
pub const FIRST_GROUP: Cid = Cid(256);

/// Where the broker sees the RAM of the system's first VM; the next ones' follow at this distance
/// each.
const WINDOW: u64 = 1 << 35;

/// A flow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PackedFlow {
    /// The VM that sends.
    pub from: u32,
    /// The VM that receives.
    pub to: u32,
    /// The receiver's vsock port.
    pub port: u32,
    /// Most bytes of a packet's payload.
    pub size: u32,
    /// Least time between two packets, in ns; 0 for a flow of best effort.
    pub period: u64,
    /// Relative deadline in ns; 0 for a flow of best effort.
    pub deadline: u64,
    /// Most bytes/s; 0 for no limit but the period.
    pub rate: u64,
    /// Where the flows begin that are one to several receivers: one entry for each; its own place
    /// for a flow to one.
    pub first: u32,
    /// How many they are; 1 for a flow to one.
    pub members: u32,
}
