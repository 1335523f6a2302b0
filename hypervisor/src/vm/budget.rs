//! The memory budget of a VM, as all of its cores access it.

use core::sync::atomic::{AtomicU32, AtomicU64};
use weir_budget::GroupBudget;

/// The memory budget of a VM, as all of its cores access it.
pub struct VmBudget {
    pub group: GroupBudget,
    /// The budget that was set last, reads and writes.
    pub limits: [AtomicU64; 2],
    /// The number of times that the budget was set.
    pub changes: AtomicU32,
}

impl VmBudget {
    /// Returns the budget of no VM.
    pub const fn new() -> Self {
        Self {
            group: GroupBudget::new(),
            limits: [const { AtomicU64::new(0) }; 2],
            changes: AtomicU32::new(0),
        }
    }
}
