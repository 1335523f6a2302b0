//! The data of the virtio devices of a VM. The code that uses them is in `crate::virtio`.

pub mod lock;
pub mod network;
pub mod notify;
pub mod socket;
