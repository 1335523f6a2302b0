//! The broker: takes packets of all flows out of their senders' rings and moves them, earliest
//! deadline first, in chunks (rt-virtio, sections III and IV), and passes on the frames of the
//! switch.
//!
//! - [`shared`]: what EL2 and the broker share of the flows. Every word has one writer and there is
//!   no lock, so that neither can delay the other.
//! - [`broker`]: what to take and to move next, and what became of it. `guests/service` is the VM
//!   around it.
//! - [`device`]: a virtio device between EL2, which has its registers, and the service VM, which
//!   has its rings.
//! - [`ram`]: where the service VM sees the RAM of VMs.
//! - [`switch`]: frames from one VM's network device to another's.
//!
//! The broker's stage 2 maps the RAM of VMs in flows and at the switch, the shared memory, and
//! nothing else. EL2 decides nothing by what the broker reports.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod broker;
mod control;
pub mod device;
mod flow;
mod intake;
#[cfg(test)]
#[expect(
    clippy::duplicate_mod,
    reason = "the shipped source, with checked atomics in the place of core's"
)]
mod model;
pub mod ram;
pub mod shared;
mod socket;
pub mod switch;
pub mod transfer;

/// How many there are of what is shared; tests put fewer in their place.
mod sizes {
    /// Most ports: one a VM.
    pub const PORTS: usize = 8;
    /// Entries of a virtqueue at most.
    pub const RING: usize = weir_vsock::queue::MAX_SIZE as usize;
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
