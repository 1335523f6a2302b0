//! The schedules of cores that vCPUs share.

pub use weir_abi::Shared;

use crate::system;

/// Returns the schedule of core `core`; `None` if at most one vCPU runs there.
pub fn of_core(core: usize) -> Option<Shared> {
    system::get().shared(core)
}
