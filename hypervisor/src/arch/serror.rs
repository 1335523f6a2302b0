//! SErrors that a guest's accesses raise late.

use super::{dsb_sy, isb, sysreg::isr_el1};
use core::arch::global_asm;
use weir_vdev::esr::is_serror_pending;

// The only vector that can be taken while D, I and F are masked and no instruction faults is that
// of an SError at EL2, which returns. The exception overwrites the registers that describe the
// guest's, so these are put back.
global_asm!(
    ".pushsection .text.take_serror, \"ax\"",
    ".balign 2048",
    "serror_vectors:",
    ".space 0x380",
    "eret",
    ".global take_serror",
    "take_serror:",
    "mrs x0, vbar_el2",
    "mrs x1, elr_el2",
    "mrs x2, spsr_el2",
    "mrs x3, esr_el2",
    "adr x4, serror_vectors",
    "msr vbar_el2, x4",
    "isb",
    "msr daifclr, #4",
    // The pending SError is taken here.
    "isb",
    "msr daifset, #4",
    "msr vbar_el2, x0",
    "msr elr_el2, x1",
    "msr spsr_el2, x2",
    "msr esr_el2, x3",
    "isb",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn take_serror();
}

/// Takes the SError that the accesses of the guest that ran on this core have raised. Returns
/// whether there was one.
#[must_use]
pub fn take() -> bool {
    // The guest's stores to devices and memory complete before ISR_EL1 is read; the ISB makes the
    // read come after the DSB.
    dsb_sy();
    isb();
    let pending = is_serror_pending(isr_el1::read());
    if pending {
        // SAFETY: it changes x0 to x4, which the C calling convention lets it, and nothing else: it
        // restores VBAR_EL2, ELR_EL2, SPSR_EL2 and ESR_EL2, and SErrors are masked at EL2 before
        // and after.
        unsafe { take_serror() }
    }
    pending
}
