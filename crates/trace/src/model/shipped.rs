//! Writer and reader as they ship.
#![allow(dead_code, reason = "not everything of the shipped source is called here")]

use crate::record;
#[path = "../reader.rs"]
pub mod reader;
#[path = "../recorder.rs"]
pub mod recorder;

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

/// An empty ring.
pub fn ring<const N: usize>() -> recorder::Ring<N> {
    recorder::Ring {
        header: std::array::from_fn(|_| sync::AtomicU64::new(0)),
        slots: std::array::from_fn(|_| std::array::from_fn(|_| sync::AtomicU64::new(0))),
    }
}
