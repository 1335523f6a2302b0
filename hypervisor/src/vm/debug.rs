//! Breakpoints, watchpoints and single step of VMs: connects the model (`weir_vdev::debug`) with
//! the core's registers.
//!
//! The model of a vCPU always has the values of its registers, because each access traps. The
//! hardware has them only while they are armed.

use super::{VcpuRef, ids};
use crate::arch::{Frame, isb, sysreg};
use weir_abi::MAX_CORES;
use weir_trace::wire::ExitCause;
use weir_vdev::{
    debug::{Debug, DebugAccess},
    esr::SysRegAccess,
};

/// Returns the model of a vCPU's debug registers.
///
/// # Safety
///
/// Called on the vCPU's core, which has no other reference to the model.
unsafe fn model(vcpu_ref: &VcpuRef) -> &'static mut Debug {
    let kept = vcpu_ref.vm.kept();
    // SAFETY: the contract.
    unsafe { &mut *kept.debug[vcpu_ref.vcpu % MAX_CORES].0.get() }
}

/// Carries out a guest's access to a debug register. Returns false if the access is to another
/// register.
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

/// Resets the registers of a vCPU that starts. Called on its core.
pub fn reset(vcpu_ref: &VcpuRef) {
    // SAFETY: called on the vCPU's core; no other reference outlives the function that made it.
    *unsafe { model(vcpu_ref) } = Debug::RESET;
}

/// Loads this core's debug registers for a vCPU that is about to run on it.
#[inline(always)]
pub fn enter(vcpu_ref: &VcpuRef) {
    // SAFETY: called on the vCPU's core; no other reference outlives the function that made it.
    let debug = unsafe { model(vcpu_ref) };
    if debug.is_armed() || Debug::enables(sysreg::mdscr_el1::read()) {
        load(debug);
    }
}

/// Copies the registers to the hardware if they are armed; otherwise disables the hardware's
/// registers.
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
