//! The memory budget of a VM, shared by all of its cores.

use core::sync::atomic::{AtomicU32, AtomicU64};
use weir_budget::GroupBudget;

/// The memory budget of a VM, shared by all of its cores.
pub struct VmBudget {
    pub group: GroupBudget,
    /// The limits that were set last: reads and writes.
    pub limits: [AtomicU64; 2],
    /// The number of times that the limits were set.
    pub changes: AtomicU32,
}

impl VmBudget {
    /// Returns the initial state, before a VM is set up.
    pub const fn new() -> Self {
        Self {
            group: GroupBudget::new(),
            limits: [const { AtomicU64::new(0) }; 2],
            changes: AtomicU32::new(0),
        }
    }
}
