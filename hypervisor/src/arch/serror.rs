//! SErrors that accesses of a guest raise late.

use super::{dsb_sy, isb, machine::take_serror, sysreg::isr_el1};
use weir_vdev::esr::is_serror_pending;

/// Takes a pending SError that the accesses of this core's guest have raised. Returns whether there
/// was one.
#[must_use]
pub fn take() -> bool {
    // The guest's stores to devices and memory complete before ISR_EL1 is read; the ISB makes the
    // read come after the DSB.
    dsb_sy();
    isb();
    let pending = is_serror_pending(isr_el1::read());
    if pending {
        take_serror();
    }
    pending
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::machine::{recorded, set};

    #[test]
    fn a_late_serror_is_looked_for_behind_barriers() {
        assert!(!take());
        assert_eq!(recorded(), ["dsb sy", "isb"]);
        // ISR_EL1.A.
        set("isr_el1", 1 << 8);
        assert!(take());
        assert_eq!(recorded(), ["dsb sy", "isb", "SError taken"]);
        assert!(!take(), "it is taken once");
    }
}
