//! A board with PSCI in its firmware.

use crate::{
    arch::{memory, psci},
    board::StartError,
};
use weir_units::CoreId;

#[cfg(feature = "engine")]
pub use crate::arch::psci::sip;
pub use crate::arch::psci::{arch_features, forward, system_off as power_off};

/// Does nothing: the firmware has answered that the core starts.
pub const fn came(_core: CoreId) {}

/// Does nothing: the firmware has answered for each core at once.
pub const fn all_came() {}

/// Starts core `index`, with the affinity `mpidr`, in `secondary_main`.
///
/// # Errors
///
/// See [`StartError`].
#[inline(always)]
pub fn start_core(index: u64, mpidr: u64) -> Result<(), StartError> {
    psci::cpu_on(mpidr, memory::secondary_entry(), index)
}
