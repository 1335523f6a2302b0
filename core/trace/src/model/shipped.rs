//! Writer and reader as shipped.
#![allow(dead_code, reason = "not everything of the shipped source is called here")]

include!("sources.rs");

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}
