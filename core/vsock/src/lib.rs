//! The device's side of virtio (virtio 1.2): split rings, the MMIO and the PCI transport, vsock
//! packets and the rules by which a system's flows allow them, frames and the ports to which a
//! switch passes them.
//!
//! The crate is pure: it accesses guest memory through [`GuestMemory`], which copies. Every driver
//! is assumed to be hostile: data that it can change while the device reads them are copied once
//! and then checked, every loop is bounded by the ring's size or by [`queue::STRIDE`], no index is
//! trusted, and nothing that a driver writes can make this crate panic.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod device;
pub mod flows;
pub mod memory;
pub mod mmio;
pub mod multicast;
pub mod net;
pub mod pci;
pub mod queue;
pub mod transport;
pub mod vsock;

pub use memory::{GuestMemory, Outside, Ram};
