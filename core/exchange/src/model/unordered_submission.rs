//! A build in which announced data is not ordered before its announcement.
#![allow(dead_code, reason = "not everything of the shipped source is called here")]

include!("sources.rs");

mod sync {
    pub use loom::sync::atomic::fence;
    use loom::sync::atomic::{AtomicU32 as Checked32, AtomicU64 as Checked64, Ordering};

    /// An atomic whose stores release nothing.
    #[derive(Debug)]
    pub struct AtomicU64(Checked64);

    impl AtomicU64 {
        pub fn new(value: u64) -> Self {
            Self(Checked64::new(value))
        }

        pub fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        pub fn store(&self, value: u64, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    /// An atomic whose stores release nothing.
    #[derive(Debug)]
    pub struct AtomicU32(Checked32);

    impl AtomicU32 {
        pub fn new(value: u32) -> Self {
            Self(Checked32::new(value))
        }

        pub fn load(&self, order: Ordering) -> u32 {
            self.0.load(order)
        }

        pub fn store(&self, value: u32, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }

        pub fn swap(&self, value: u32, order: Ordering) -> u32 {
            self.0.swap(value, order)
        }
    }
}
