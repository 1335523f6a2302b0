//! Time, order and speed of packet transfers: earliest deadline first (rt-virtio, section III),
//! periods that are enforced by delay, and token buckets for boards without a bandwidth regulator.

mod bucket;
mod edf;
mod pace;

pub use bucket::Bucket;
pub use edf::{Edf, Full};
pub use pace::{Pace, Stamp};
