//! The broker: it moves the packets of all flows, earliest deadline first, in chunks (rt-virtio,
//! sections III and IV).
//!
//! - [`shared`]: what hypervisor and broker share. Every word has one writer; there is no lock, so
//!   that neither can hold the other up.
//! - [`broker`]: what to move next, and what became of it. `guests/service` is the VM around it.
//! - [`device`]: a virtio device between EL2, which has its registers, and the service VM, which
//!   has its rings.
//! - [`switch`]: frames from one VM's network device to another's.
//!
//! The hypervisor checks what guests say and hands over addresses in the broker's own address
//! space; the broker's stage 2 has the flows' VMs in it, senders read-only, and nothing else. What
//! the broker says back is a claim that the hypervisor checks.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod broker;
pub mod device;
#[cfg(test)]
#[expect(
    clippy::duplicate_mod,
    reason = "the shipped source, with checked atomics in the place of core's"
)]
mod model;
pub mod shared;
mod statics;
pub mod switch;
pub mod transfer;

/// How many there are of what is shared; tests put fewer in their place.
mod sizes {
    /// Most ports: one a VM.
    pub const PORTS: usize = 8;
    /// Entries of a port's rings: as many as a virtqueue has, so that they never overflow.
    pub const RING: usize = weir_vsock::queue::MAX_SIZE as usize;
    /// Most flows of a system.
    pub const FLOWS: usize = 32;
}

/// What orders hypervisor and broker; tests put checked ones in their place.
mod sync {
    pub use core::sync::atomic::{AtomicU32, AtomicU64, fence};
}
