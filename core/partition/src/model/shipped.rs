//! The partition as it ships.
#![allow(dead_code, reason = "not everything of the shipped source is called here")]

include!("parts.rs");

mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
}
