//! What the cores of a VM share of its memory budget.

use core::sync::atomic::{AtomicU32, AtomicU64};
use weir_budget::Shared;

/// What the cores of a VM share of its memory budget.
pub struct VmBudget {
    pub shared: Shared,
    /// The budget that it was last set to, reads and writes.
    pub limits: [AtomicU64; 2],
    /// How often that was.
    pub changes: AtomicU32,
}

impl VmBudget {
    /// Of no VM.
    pub const fn new() -> Self {
        Self {
            shared: Shared::new(),
            limits: [const { AtomicU64::new(0) }; 2],
            changes: AtomicU32::new(0),
        }
    }
}
