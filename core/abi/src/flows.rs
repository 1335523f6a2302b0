//! Flows: their senders and receivers, and the broker's view of the VMs' memory.

mod broker;

pub use broker::window;

use crate::{MAX_VMS, PAGE};
use core::ops::Range;
use weir_units::Cid;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Largest number of flows of a system.
pub const MAX_FLOWS: usize = 32;
/// Limit of periods and deadlines, in ns; all are below it.
pub const FLOW_TIME_LIMIT: u64 = 1 << 62;
/// `Region::kind` of the exchange, the memory that both the hypervisor and the broker access: RAM
/// that persists across the broker's boots.
pub const EXCHANGE: u64 = 2;
/// Bytes of the exchange.
pub const EXCHANGE_LEN: u64 = 0x2_0000;
/// Address of the exchange in the broker's VM, above the windows.
pub const EXCHANGE_IPA: u64 = 0x60_0000_0000;
/// Addresses at which the broker sees the RAM of VMs in flows and at the switch.
pub const WINDOWS: Range<u64> = WINDOW..WINDOW * (MAX_VMS as u64 + 1);
/// Bytes of a virtio device's registers.
pub const VIRTIO_LEN: u64 = PAGE;
/// Bytes of the registers of a socket device on PCI.
pub const VSOCK_BAR_LEN: u64 = 0x4000;
/// The device number on bus 0 of a socket device on PCI; it has only function 0. Devices of a board
/// rarely use this number.
pub const VSOCK_SLOT: u32 = 31;
/// `PackedHeader::broker` of a system without a broker.
pub const NO_BROKER: u32 = u32::MAX;
/// `PackedHeader::engine_from` of a system in which the core moves all chunks.
pub const NO_ENGINE: u64 = u64::MAX;
/// Largest chunk in bytes in a system with a DMA engine: a chunk is one transfer, which the broker
/// cannot cancel.
pub const ENGINE_CHUNK: u64 = 64 << 10;
/// Longest time that the DMA engine can be given for a chunk, in ns.
pub const ENGINE_LIMIT: u64 = 5_000_000;
/// The highest level of the DMA engine's QoS regulator, which is a 12-bit fraction.
pub const ENGINE_LEVELS: u64 = 0xfff;
/// The first context identifier of the groups of receivers; the identifiers of VMs are below it.
pub const FIRST_GROUP: Cid = Cid(256);

/// Address at which the broker sees the RAM of the system's first VM, and the distance between the
/// addresses of consecutive VMs.
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
    /// Largest payload of a packet, in bytes.
    pub size: u32,
    /// Shortest time between two packets, in ns; 0 for a best-effort flow.
    pub period: u64,
    /// Relative deadline in ns; 0 for a best-effort flow.
    pub deadline: u64,
    /// Largest rate in bytes/s; 0 if only the period limits it.
    pub rate: u64,
    /// Index of the first flow to the same group of receivers (each receiver has one entry); the
    /// flow's own index for a flow to one receiver.
    pub first: u32,
    /// Number of flows in the group; 1 for a flow to one receiver.
    pub members: u32,
}
