//! The *partition*: what EL2 and the I/O service VM share, in memory that both map. Every word has
//! one writer and there is no lock, so that neither can delay the other. What the service VM writes
//! are claims, by which EL2 decides only which cores to interrupt.
//!
//! - [`flows`]: settings and counts of flows, records for the trace, the socket devices of VMs.
//! - [`switch`]: settings and counts of the switch's ports, and their network devices.
//! - [`device`]: a virtio device between EL2, which has its registers, and the service VM, which
//!   has its rings.
//! - [`devices`]: the devices that EL2 visits for one call of the service VM's.
//! - [`ram`]: where the service VM sees the RAM of VMs.

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

/// How many there are of what is shared; tests put fewer in their place.
mod sizes {
    /// Most ports: one a VM.
    pub const PORTS: usize = 8;
    /// Most flows of a system.
    pub const FLOWS: usize = 32;
    /// Most pieces of RAM of all VMs in a [`Map`](crate::ram::Map).
    pub const PIECES: usize = 256;
    /// Records that EL2 has not taken yet; more are lost.
    pub const RECORDS: usize = 64;
}

/// What orders hypervisor and broker; tests put checked ones in their place.
mod sync {
    pub use core::sync::atomic::{AtomicU32, AtomicU64, fence};
}
