//! Support for a board without PSCI: each other core waits until its entry of a table is not zero,
//! and jumps to the address there, at the exception level of the boot core (Linux,
//! Documentation/arch/arm64/booting.rst, "spin-table").
//!
//! Such a board has no service at EL3: an SMC would be undefined, or enter EL3 without a handler.

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

/// The spin table: one entry for each core.
// SAFETY: `start` uses this only if `HAS_SPIN_TABLE`; then stage 1 maps the page as a device
// (`START_DEVICES`). The page is outside of [memory] (`weir check` refuses a board file otherwise),
// so neither weir nor a VM has it as RAM. A core that reads an entry executes only firmware until
// the entry is written.
const TABLE: Device = unsafe { Device::new("spin-table", device(Pa(SPIN_TABLE))) };

/// The cores that have arrived, one bit each; kept because a spin table reports nothing.
static CAME: AtomicU32 = AtomicU32::new(0);
/// Whether all cores have arrived.
static ALL_CAME: AtomicBool = AtomicBool::new(false);
/// The longest time that a core may need to arrive, in ns.
const LIMIT_NS: u64 = 1_000_000_000;

/// Reports that the calling core has arrived, and waits until all have. So no VM runs before the
/// boot core has decided whether to refuse to start because a core is missing.
pub fn came(core: CoreId) {
    // Relaxed, as below: no other data depends on it.
    CAME.fetch_or(1 << core.0, Ordering::Relaxed);
    while !ALL_CAME.load(Ordering::Relaxed) {
        relax();
    }
}

/// Lets the cores that have arrived continue. Called on the boot core.
pub fn all_came() {
    ALL_CAME.store(true, Ordering::Relaxed);
}

/// Starts core `index` in `secondary_main`, and waits until it has arrived; arch/spin_table.s
/// derives the index from the core's affinity.
///
/// # Errors
///
/// Returns [`StartError::Silent`] if the core does not arrive in time.
pub fn start_core(index: u64) -> Result<(), StartError> {
    // The stores to tables and variables that the core will read complete before the store to its
    // entry.
    dsb_sy();
    TABLE.write(Register::<u64>::at(0).nth(index), memory::secondary_entry().0);
    // The store to the entry completes before the event that ends the core's wait for it.
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

/// Returns -1, the answer of a firmware that does not support the call.
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
