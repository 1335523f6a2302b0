//! Virtio sockets and network devices for bare-metal guests: drivers that sleep where they wait,
//! and one end of a stream.
//!
//! Queues and transport are those of `virtio-drivers`. Its own socket driver needs an allocator and
//! waits for each packet without sleeping, which a core that others share an emulated clock with
//! must not do.

#![cfg_attr(not(test), no_std)]

#[cfg(any(test, all(target_os = "none", feature = "driver")))]
mod answers;
#[cfg(any(test, all(target_os = "none", feature = "driver")))]
mod cut;
pub mod pattern;
pub mod stream;

#[cfg(all(target_os = "none", feature = "driver"))]
mod bus;
#[cfg(all(target_os = "none", feature = "driver"))]
mod driver;
#[cfg(all(target_os = "none", feature = "driver"))]
pub mod ethernet;
#[cfg(all(target_os = "none", feature = "driver"))]
mod memory;

#[cfg(all(target_os = "none", feature = "driver"))]
pub use driver::SocketDriver;
#[cfg(all(target_os = "none", feature = "driver"))]
pub use driver::acknowledge;
pub use weir_units::Cid;
pub use weir_vsock::vsock::{Header, MAX_PAYLOAD};
