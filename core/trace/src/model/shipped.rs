//! Writer and reader as they ship.
#![allow(dead_code, reason = "not everything of the shipped source is called here")]

include!("sources.rs");

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}
