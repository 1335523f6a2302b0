//! Exceptions that EL2 makes a guest take.

use crate::{arch::sysreg, vm::ids};
use weir_vdev::inject::{self, InjectedException, Injection, Interrupted};

/// Makes the guest of this core take an exception at EL1.
pub fn inject(kind: InjectedException) {
    take(&prepare(kind));
}

/// Returns the state that the guest's EL1 sees of an exception of `kind`.
pub fn prepare(kind: InjectedException) -> Injection {
    inject::inject(kind, &interrupted(), ids())
}

/// Returns the state of this core's guest at the exception that led to EL2.
pub fn interrupted() -> Interrupted {
    Interrupted {
        spsr: sysreg::spsr_el2::read(),
        elr: sysreg::elr_el2::read(),
        vbar: sysreg::vbar_el1::read(),
        sctlr: sysreg::sctlr_el1::read(),
    }
}

/// Makes the guest continue at its exception vector.
pub fn take(injection: &Injection) {
    sysreg::esr_el1::write(injection.esr);
    sysreg::elr_el1::write(injection.elr);
    sysreg::spsr_el1::write(injection.spsr);
    if let Some(far) = injection.far {
        sysreg::far_el1::write(far);
    }
    sysreg::elr_el2::write(injection.pc);
    sysreg::spsr_el2::write(injection.pstate);
}

/// Makes the instruction before the guest's program counter UNDEFINED. EL2 had already advanced the
/// program counter past it.
pub fn inject_undefined() {
    sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_sub(4));
    inject(InjectedException::Undefined);
}
