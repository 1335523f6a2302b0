//! Calls of the firmware: PSCI and SMCCC by SMC (DEN0022, DEN0028).

use super::machine::Firmware;
use crate::board::StartError;
use smccc::{Call, psci};
use weir_units::Pa;

/// Starts the core with affinity `mpidr` at physical address `entry` with `context` in x0.
///
/// # Errors
///
/// Returns a [`StartError`].
pub fn cpu_on(mpidr: u64, entry: Pa, context: u64) -> Result<(), StartError> {
    psci::cpu_on::<Firmware>(mpidr, entry.0, context).map_err(|error| match error {
        psci::Error::InvalidParameters => StartError::Absent,
        psci::Error::NotSupported => StartError::NoPsci,
        error => StartError::Refused(i64::from(error) as i32),
    })
}

/// Turns the machine off; returns only if the firmware cannot do so.
pub fn system_off() {
    let _ = psci::system_off::<Firmware>();
}

/// Returns the firmware's answer to SMCCC_ARCH_FEATURES for `function`; -1 if it does not support
/// the call.
#[must_use]
#[inline(never)]
pub fn arch_features(function: u32) -> i32 {
    const PSCI_FEATURES: u32 = 0x8400_000a;
    const SMCCC_VERSION: u32 = 0x8000_0000;
    const SMCCC_ARCH_FEATURES: u32 = 0x8000_0001;
    let call = |id: u32, argument: u32| {
        Firmware::call32(id, [argument, 0, 0, 0, 0, 0, 0])[0].cast_signed()
    };
    if call(PSCI_FEATURES, SMCCC_VERSION) < 0 || call(SMCCC_VERSION, 0) < 0x1_0001 {
        return -1;
    }
    call(SMCCC_ARCH_FEATURES, function)
}

/// Calls the silicon provider's service (SiP) with the arguments from x1 on. Returns x0, which is
/// -1 if the firmware does not support the call.
#[must_use]
pub fn sip(function: u32, [x1, x2, x3, x4]: [u64; 4]) -> u64 {
    let mut arguments = [0; 17];
    arguments[..4].copy_from_slice(&[x1, x2, x3, x4]);
    Firmware::call64(function, arguments)[0]
}

/// Passes a call of the guest on to the firmware. Used only for the SMCCC workarounds, which take
/// no address.
pub fn forward(function: u32, argument: u64) {
    Firmware::call32(function, [argument as u32, 0, 0, 0, 0, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::machine::{recorded, set};

    #[test]
    fn a_core_is_started_by_one_call() {
        set("smc 0xc4000003", 0);
        assert!(cpu_on(0x101, Pa(0x4020_0400), 3).is_ok());
        assert_eq!(recorded(), ["smc 0xc4000003 0x101 0x40200400 0x3"]);
    }

    #[test]
    fn absent_cores_and_firmware_have_their_own_errors() {
        let failed = |code: i64| {
            set("smc 0xc4000003", code.cast_unsigned());
            cpu_on(1, Pa(0), 1)
        };
        assert!(matches!(failed(-2), Err(StartError::Absent)), "INVALID_PARAMETERS");
        assert!(matches!(failed(-1), Err(StartError::NoPsci)), "NOT_SUPPORTED");
        assert!(matches!(failed(-4), Err(StartError::Refused(-4))), "ALREADY_ON");
    }

    #[test]
    fn features_are_asked_of_a_firmware_that_has_them() {
        assert_eq!(arch_features(0x8000_8000), -1);
        assert_eq!(recorded(), ["smc 0x8400000a 0x80000000"], "PSCI 0.2");
        set("smc 0x8400000a", 0);
        set("smc 0x80000000", 0x1_0000);
        set("smc 0x80000001", 0);
        assert_eq!(arch_features(0x8000_8000), -1, "SMCCC 1.0");
        recorded();
        set("smc 0x80000000", 0x1_0001);
        assert_eq!(arch_features(0x8000_8000), 0);
        let lines = ["smc 0x8400000a 0x80000000", "smc 0x80000000", "smc 0x80000001 0x80008000"];
        assert_eq!(recorded(), lines);
    }
}
