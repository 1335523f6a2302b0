//! The exchange as it ships.
#![allow(dead_code, reason = "not everything of the shipped source is called here")]

include!("sources.rs");

mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
}
