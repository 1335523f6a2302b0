// The sources that all builds of writer and reader include; each build has its own `sync`.

use crate::record;
#[path = "../reader.rs"]
pub mod reader;
#[path = "../recorder.rs"]
pub mod recorder;

/// Returns an empty ring.
pub fn ring<const N: usize>() -> recorder::TraceRing<N> {
    recorder::TraceRing {
        header: std::array::from_fn(|_| sync::AtomicU64::new(0)),
        slots: std::array::from_fn(|_| std::array::from_fn(|_| sync::AtomicU64::new(0))),
    }
}
