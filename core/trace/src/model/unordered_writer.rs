//! A writer without its barrier.
#![allow(dead_code, reason = "not everything of the shipped source is called here")]

include!("sources.rs");

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering};

    pub fn fence(order: Ordering) {
        if order != Ordering::Release {
            loom::sync::atomic::fence(order);
        }
    }
}
