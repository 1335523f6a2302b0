//! Breakpoints, watchpoints and single step of VMs: between the model (`weir_vdev::debug`) and the
//! core's registers.
//!
//! The model of a vCPU always has its values, as each access traps. The hardware has them while
//! they are armed.

use super::{VcpuRef, ids};
use crate::arch::{Frame, isb, sysreg};
use weir_abi::MAX_CORES;
use weir_trace::wire::ExitCause;
use weir_vdev::{
    debug::{Debug, DebugAccess},
    esr::SysRegAccess,
};

/// The model of a vCPU's registers.
///
/// # Safety
///
/// Called on the vCPU's core, which has no other reference to it.
unsafe fn model(vcpu_ref: &VcpuRef) -> &'static mut Debug {
    let kept = vcpu_ref.vm.kept();
    // SAFETY: the contract.
    unsafe { &mut *kept.debug[vcpu_ref.vcpu % MAX_CORES].0.get() }
}

/// Carries out a guest's access to one of these registers; false if it is to another one.
#[inline(never)]
pub fn access(frame: &mut Frame, vcpu_ref: &'static VcpuRef, access: SysRegAccess) -> bool {
    // SAFETY: the vCPU runs on this core, and the reference ends with this function.
    let debug = unsafe { model(vcpu_ref) };
    let value = if access.is_write() { frame.get(access.rt()) } else { 0 };
    match debug.access(access, value, ids().comparators()) {
        None => return false,
        Some(DebugAccess::Read(value)) => frame.set(access.rt(), value),
        Some(DebugAccess::Written) => load(debug),
    }
    vcpu_ref.rare_exit(ExitCause::SystemRegister);
    true
}

/// Resets the registers of a vCPU that comes on, on its core.
pub fn reset(vcpu_ref: &VcpuRef) {
    // SAFETY: as the contract asks; no other reference lives longer than its function.
    *unsafe { model(vcpu_ref) } = Debug::RESET;
}

/// Gives this core's debug registers to a vCPU that is about to run on it.
#[inline(always)]
pub fn enter(vcpu_ref: &VcpuRef) {
    // SAFETY: as the contract asks; no other reference lives longer than its function.
    let debug = unsafe { model(vcpu_ref) };
    if debug.is_armed() || Debug::enables(sysreg::mdscr_el1::read()) {
        load(debug);
    }
}

/// Copies the registers to the hardware if they are armed, or else disables the hardware's.
#[inline(never)]
fn load(debug: &Debug) {
    if debug.is_armed() {
        let (breakpoints, watchpoints) = ids().comparators();
        for (n, it) in debug.breakpoints().iter().enumerate().take(breakpoints.into()) {
            sysreg::write_breakpoint(n, it.value, it.control);
        }
        for (n, it) in debug.watchpoints().iter().enumerate().take(watchpoints.into()) {
            sysreg::write_watchpoint(n, it.value, it.control);
        }
    }
    sysreg::mdscr_el1::write(debug.control());
    isb();
}
