//! Starts the other cores and turns the board off: with the firmware, or on a board without
//! firmware with a spin table and a device.

mod bcm2711;
mod gem5;
mod spin_table;

use crate::{
    arch::{memory, psci},
    board::{HAS_SPIN_TABLE, POWER, Power, StartError},
};
use weir_units::CoreId;

/// Starts core `index`, with the affinity `mpidr`, in `secondary_main`.
///
/// # Errors
///
/// Returns a [`StartError`].
#[inline(always)]
pub fn start_core(index: u64, mpidr: u64) -> Result<(), StartError> {
    if HAS_SPIN_TABLE {
        return spin_table::start_core(index);
    }
    psci::cpu_on(mpidr, memory::secondary_entry(), index)
}

/// Reports that the calling core has arrived. On a board with a spin table, waits until all cores
/// have arrived, because a spin table reports nothing; firmware has already answered for each core.
pub fn came(core: CoreId) {
    if HAS_SPIN_TABLE {
        spin_table::came(core);
    }
}

/// Lets the cores that have arrived continue. Called on the boot core.
pub fn all_came() {
    if HAS_SPIN_TABLE {
        spin_table::all_came();
    }
}

/// Returns the firmware's answer to SMCCC_ARCH_FEATURES for `function`; -1 if the firmware does not
/// support the call, or if there is no firmware.
#[must_use]
pub fn arch_features(function: u32) -> i32 {
    if HAS_SPIN_TABLE { spin_table::arch_features(function) } else { psci::arch_features(function) }
}

/// Passes a call of the guest on to the firmware. Used only for the SMCCC workarounds, which take
/// no address.
#[inline(always)]
pub fn forward(function: u32, argument: u64) {
    if HAS_SPIN_TABLE {
        spin_table::forward(function, argument);
    } else {
        psci::forward(function, argument);
    }
}

/// Calls the silicon provider's service (SiP) with these arguments from x1 on. Returns x0, which is
/// -1 if the firmware does not support the call, or if there is no firmware.
#[must_use]
pub fn sip(function: u32, arguments: [u64; 4]) -> u64 {
    if HAS_SPIN_TABLE {
        spin_table::sip(function, arguments)
    } else {
        psci::sip(function, arguments)
    }
}

/// Turns the board off. Returns only if that takes a while or cannot be done.
pub fn power_off() {
    match POWER {
        Power::Firmware => psci::system_off(),
        Power::Bcm2711 => bcm2711::power_off(),
        Power::Gem5 => gem5::power_off(),
        Power::Nothing => {}
    }
}
