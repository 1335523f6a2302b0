//! The firmware below: PSCI and SMCCC calls by SMC (DEN0022, DEN0028).

use smccc::{Smc, psci};

/// Why a core could not be started.
pub enum StartError {
    /// The machine has no such core.
    Absent,
    /// The firmware refused, with this PSCI error code.
    Refused(i32),
}

/// Starts the core with affinity `mpidr` at physical address `entry` with `context` in x0.
///
/// # Errors
///
/// See [`StartError`].
pub fn cpu_on(mpidr: u64, entry: u64, context: u64) -> Result<(), StartError> {
    psci::cpu_on::<Smc>(mpidr, entry, context).map_err(|error| match error {
        psci::Error::InvalidParameters => StartError::Absent,
        error => StartError::Refused(i64::from(error) as i32),
    })
}

/// Turns the machine off; returns only where the firmware can't.
pub fn system_off() {
    let _ = psci::system_off::<Smc>();
}

/// What the firmware answers to SMCCC_ARCH_FEATURES for `function`; -1 where it doesn't know the
/// call.
#[must_use]
pub fn arch_features(function: u32) -> i32 {
    const PSCI_FEATURES: u32 = 0x8400_000a;
    const SMCCC_VERSION: u32 = 0x8000_0000;
    const SMCCC_ARCH_FEATURES: u32 = 0x8000_0001;
    let call =
        |id: u32, argument: u32| smccc::smc32(id, [argument, 0, 0, 0, 0, 0, 0])[0].cast_signed();
    if call(PSCI_FEATURES, SMCCC_VERSION) < 0 || call(SMCCC_VERSION, 0) < 0x1_0001 {
        return -1;
    }
    call(SMCCC_ARCH_FEATURES, function)
}

/// Passes a call of the guest's on to the firmware: only for the SMCCC workarounds, which take no
/// address.
pub fn forward(function: u32, argument: u64) {
    smccc::smc32(function, [argument as u32, 0, 0, 0, 0, 0, 0]);
}
