//! Constructors of rings that are a `static`.

use crate::{
    recorder::{HEADER_WORDS, SLOT_WORDS, TraceRing},
    sync::AtomicU64,
};

impl<const N: usize> TraceRing<N> {
    /// Returns a ring of zeros, whose core has not begun to write.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            header: [const { AtomicU64::new(0) }; HEADER_WORDS],
            slots: [const { [const { AtomicU64::new(0) }; SLOT_WORDS] }; N],
        }
    }
}

impl<const N: usize> Default for TraceRing<N> {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(
    size_of::<TraceRing<64>>() == crate::recorder::HEADER + 64 * crate::recorder::SLOT
        && size_of::<crate::recorder::RingHeader>() == crate::recorder::HEADER
        && size_of::<crate::record::Record>() == crate::recorder::SLOT
);
