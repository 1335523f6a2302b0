//! The output of a running hypervisor: the frames on its wire, and the rings in which bytes wait
//! for the wire; the trace that each core writes, and the trace's readers. Both ends use this
//! crate: the hypervisor encodes, the `weir` command decodes.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod counter_page;
#[cfg(any(feature = "decode", test))]
pub mod decode;
#[cfg(test)]
#[expect(
    clippy::duplicate_mod,
    reason = "the shipped source, with checked atomics in the place of core's"
)]
mod model;
pub mod phases;
#[cfg(any(feature = "decode", test))]
pub mod reader;
pub mod record;
pub mod recorder;
pub mod ring;
pub mod sender;
mod statics;
#[cfg(test)]
mod tests;
pub mod wire;

/// The atomics that order the writer and the readers of a trace; tests substitute checked ones.
mod sync {
    pub use core::sync::atomic::{AtomicU64, Ordering, fence};
}
