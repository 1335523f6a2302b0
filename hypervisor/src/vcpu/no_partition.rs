//! Replaces `partition` in a hypervisor without this part: no core has a schedule.

use weir_sched::partition::{Decision, Ready};
use weir_units::{CoreId, Nanos};

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

    pub fn entity(&self, _vm: usize) -> Option<u8> {
        match self.partition {}
    }
}

impl PartitionSchedule {
    pub fn step(&self, _now: Nanos, _ready: Ready) -> Decision {
        match *self {}
    }

    pub fn charge(&self, _entity: u8, _time: Nanos) {
        match *self {}
    }

    pub fn needs_entries(&self) -> bool {
        match *self {}
    }

    pub fn entered(&self, _now: Nanos) {
        match *self {}
    }

    pub fn may_take(&self, _priority: u8) -> bool {
        match *self {}
    }

    pub fn preempt(&self, _entity: u8, _priority: u8) {
        match *self {}
    }
}
