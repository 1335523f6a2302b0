//! A build in which a reset and the beginning of a copy may not see each other, nor a doze and a
//! packet.
#![allow(dead_code, reason = "not everything of the shipped source is called here")]

include!("sources.rs");

mod sync {
    use loom::sync::atomic::Ordering;
    pub use loom::sync::atomic::{AtomicU32, AtomicU64};

    pub fn fence(order: Ordering) {
        if order != Ordering::SeqCst {
            loom::sync::atomic::fence(order);
        }
    }
}
