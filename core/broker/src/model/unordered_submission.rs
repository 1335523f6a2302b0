//! A hypervisor that announces a packet in no order with the packet itself.
#![allow(dead_code, reason = "not everything of the shipped source is called here")]

include!("parts.rs");

mod sync {
    pub use loom::sync::atomic::{AtomicU32, fence};
    use loom::sync::atomic::{AtomicU64 as Checked, Ordering};

    /// Releases nothing.
    #[derive(Debug)]
    pub struct AtomicU64(Checked);

    impl AtomicU64 {
        pub fn new(value: u64) -> Self {
            Self(Checked::new(value))
        }

        pub fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        pub fn store(&self, value: u64, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }
    }
}
