//! The broker: moves the packets of all flows, earliest deadline first, in chunks (rt-virtio,
//! sections III and IV), and passes on the frames of the switch.
//!
//! - [`shared`]: the rings that hypervisor and broker share for flows. Every word has one writer
//!   and there is no lock, so that neither can delay the other.
//! - [`broker`]: what to move next, and what became of it. `guests/service` is the VM around it.
//! - [`device`]: a virtio device between EL2, which has its registers, and the service VM, which
//!   has its rings.
//! - [`switch`]: frames from one VM's network device to another's.
//!
//! For flows, the hypervisor reads the guests' rings and hands over addresses in the broker's
//! address space; for the switch, the broker reads them itself. The broker's stage 2 maps the RAM
//! of VMs in flows (senders read-only) and at the switch, the shared memory, and nothing else. The
//! hypervisor checks what the broker reports.

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
