//! A board without PSCI: each other core waits until its entry of a table is not zero, and jumps to
//! the address there, at the exception level of the boot core (Linux,
//! Documentation/arch/arm64/booting.rst, "spin-table").
//!
//! There is no service at EL3: an SMC would be undefined, or enter EL3 without a handler.

use crate::{
    arch::{
        dsb_sy,
        memory::{self, device},
        mmio::{Device, Register},
        relax, send_event, timer,
    },
    board::{SPIN_TABLE, StartError},
};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use weir_units::{CoreId, Pa};

/// The table: an entry for each core.
// SAFETY: `start` comes here only if `HAS_SPIN_TABLE`, and then stage 1 maps the page as a device
// (`START_DEVICES`). It is outside of [memory] (`weir
// check` refuses a board file otherwise), so neither weir nor a VM has it as RAM, and a core that
// reads an entry executes only firmware until the entry is written.
const TABLE: Device = unsafe { Device::new("spin-table", device(Pa(SPIN_TABLE))) };

/// The cores that have come, a bit each: a spin table reports nothing.
static CAME: AtomicU32 = AtomicU32::new(0);
/// No core is missing.
static ALL_CAME: AtomicBool = AtomicBool::new(false);
/// How long a core may need, in ns.
const LIMIT_NS: u64 = 1_000_000_000;

/// The calling core has come. Waits until all have: no VM runs for the time after which the boot
/// core refuses to start without one.
pub fn came(core: CoreId) {
    // Relaxed, as below: nothing else is read by it.
    CAME.fetch_or(1 << core.0, Ordering::Relaxed);
    while !ALL_CAME.load(Ordering::Relaxed) {
        relax();
    }
}

/// Lets the cores that have come go on, on the boot core.
pub fn all_came() {
    ALL_CAME.store(true, Ordering::Relaxed);
}

/// Starts core `index` in `secondary_main`, and waits until it is there; arch/spin_table.s finds
/// the index by the core's affinity.
///
/// # Errors
///
/// [`StartError::Silent`] if it does not come.
pub fn start_core(index: u64) -> Result<(), StartError> {
    // The stores to tables and variables that the core will read, before that of its entry.
    dsb_sy();
    TABLE.write(Register::<u64>::at(0).nth(index), memory::secondary_entry().0);
    // The store of the entry, before the event that ends the core's wait for it.
    dsb_sy();
    send_event();
    let due = timer::now_ns().saturating_add(LIMIT_NS);
    while CAME.load(Ordering::Relaxed) >> index & 1 == 0 {
        if timer::now_ns() >= due {
            return Err(StartError::Silent);
        }
        relax();
    }
    Ok(())
}

/// Returns -1, the answer of SMCCC_ARCH_FEATURES for a function that is not implemented.
pub const fn arch_features(_function: u32) -> i32 {
    -1
}

/// Does nothing: [`arch_features`] offers no function to forward.
pub const fn forward(_function: u32, _argument: u64) {}

/// Returns -1, the answer of a firmware that doesn't know the call.
pub const fn sip(_function: u32, _arguments: [u64; 4]) -> u64 {
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::machine::{on_write, recorded, set, set_next};

    #[test]
    fn a_core_is_released_by_its_entry_and_an_event() {
        let _user = timer::tests::CLOCK_USER.lock();
        set("cntfrq_el0", 1_000_000_000);
        timer::start();
        recorded();
        all_came();
        on_write("spin-table+0x18", |_| came(CoreId(3)));
        assert!(start_core(3).is_ok());
        let entry = memory::secondary_entry().0;
        let store = format!("spin-table+0x18 = {entry:#x} (64 bits)");
        assert_eq!(recorded(), ["dsb sy", &store, "dsb sy", "sev"]);
    }

    #[test]
    fn a_core_that_does_not_come_is_reported() {
        let _user = timer::tests::CLOCK_USER.lock();
        set("cntfrq_el0", 1_000_000_000);
        timer::start();
        set_next("cntpct_el0", &[0, LIMIT_NS - 1, LIMIT_NS]);
        assert!(matches!(start_core(2), Err(StartError::Silent)));
    }

    #[test]
    fn firmware_without_el3_is_never_called() {
        assert_eq!(arch_features(0x8000_8000), -1);
        forward(0x8000_8000, 0);
        assert_eq!(sip(0xc200_2000, [0; 4]), u64::MAX);
        super::super::bcm2711::power_off();
        let lines = recorded();
        assert!(lines.iter().all(|line| !line.starts_with("smc")), "{lines:?}");
    }
}
