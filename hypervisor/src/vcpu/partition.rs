//! The schedules of cores that vCPUs share.

pub use weir_abi::{MAX_VMS as MEMBERS, ReadySchedule};
pub use weir_sched::partition::Ready;

use crate::system;
use weir_units::CoreId;

/// Returns the schedule of core `core`; `None` if at most one vCPU runs there.
pub fn of_core(core: CoreId) -> Option<ReadySchedule> {
    system::get().shared(core.index())
}
