//! Replaces `partition` in a hypervisor without this part: no core has a schedule.

use weir_units::{CoreId, Nanos};

/// The most vCPUs of a core.
pub const MEMBERS: usize = 1;

/// Whether the one vCPU of a core is ready.
#[derive(Clone, Copy)]
pub struct Ready(bool);

impl Ready {
    pub const NONE: Self = Self(false);

    #[expect(clippy::unused_self, reason = "as in `weir_sched`")]
    pub const fn with(self, _entity: u8) -> Self {
        Self(true)
    }

    pub const fn has(self, _entity: u8) -> bool {
        self.0
    }
}

/// The schedule that no core has.
pub struct ReadySchedule {
    /// Decides.
    pub partition: PartitionSchedule,
}

/// The decisions that no core needs.
pub enum PartitionSchedule {}

/// Returns that no core has a schedule.
pub fn of_core(_core: CoreId) -> Option<ReadySchedule> {
    None
}

impl ReadySchedule {
    pub fn vms(&self) -> &[u8] {
        match self.partition {}
    }
}

impl PartitionSchedule {
    pub fn needs_entries(&self) -> bool {
        match *self {}
    }

    pub fn entered(&self, _now: Nanos) {
        match *self {}
    }
}
