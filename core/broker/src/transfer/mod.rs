//! When packets are moved, in which order, and how fast: earliest deadline first (rt-virtio,
//! section III), periods kept by delay, and token buckets where a board has no regulator of its
//! own.

mod bucket;
mod edf;
mod pace;

pub use bucket::Bucket;
pub use edf::{Edf, Full};
pub use pace::{Pace, Stamp};
