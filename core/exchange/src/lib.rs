//! The *exchange*: memory that both EL2 and the I/O service VM map, in which each leaves data for
//! the other. rt-virtio calls this memory a partition. Every word has one writer and there is no
//! lock, so neither side can delay the other. The words that the service VM writes are claims. EL2
//! uses them only to decide which cores to interrupt.
//!
//! - [`flows`]: settings and counts of flows, records for the trace, the socket devices of VMs.
//! - [`switch`]: settings and counts of the switch's ports, and their network devices.
//! - [`device`]: the words of a virtio device that EL2, which has its registers, shares with the
//!   service VM, which serves its rings.
//! - [`devices`]: the devices that EL2 visits for one call of the service VM.
//! - [`ram`]: the addresses at which the service VM sees the RAM of VMs.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod device;
pub mod devices;
pub mod flows;
#[cfg(test)]
#[expect(
    clippy::duplicate_mod,
    reason = "the shipped source, with checked atomics in the place of core's"
)]
mod model;
pub mod ram;
pub mod switch;

/// Numbers of ports, flows, pieces and records in the exchange. Tests use smaller ones.
mod sizes {
    /// Largest number of ports, one per VM.
    pub const PORTS: usize = 8;
    /// Largest number of flows of a system.
    pub const FLOWS: usize = 32;
    /// Largest number of pieces of RAM of all VMs in a [`Map`](crate::ram::Map).
    pub const PIECES: usize = 256;
    /// Number of records that EL2 has not taken yet; further records overwrite the oldest.
    pub const RECORDS: usize = 64;
}

/// Atomics and fences that order the accesses of hypervisor and broker. Tests use those of `loom`.
mod sync {
    pub use core::sync::atomic::{AtomicU32, AtomicU64, fence};
}
