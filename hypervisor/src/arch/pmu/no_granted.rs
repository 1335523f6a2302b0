//! Replaces `granted` in a hypervisor without this part: no VM has event counters.

use weir_units::IntId;
use weir_vdev::esr::SysRegAccess;

/// The interrupt of no guest's event counters.
pub const INTID: Option<IntId> = None;

/// The PMU that no vCPU has.
pub enum VirtualPmu {}

impl VirtualPmu {
    /// Returns `value`: the feature ID registers show no PMU.
    pub const fn shown(_access: SysRegAccess, value: u64) -> u64 {
        value
    }
}
