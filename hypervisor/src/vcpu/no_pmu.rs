//! Replaces `pmu` in a hypervisor without this part: no VM has event counters.

use crate::{
    arch::{Frame, pmu::pmu_intid},
    cpu::Core,
    vm::VcpuRef,
};
use weir_vdev::esr::SysRegAccess;

/// Leaves the interrupt of the PMU to the budget.
pub fn start(core: &mut Core) {
    core.budget_intid = pmu_intid(core.id);
}

/// Resets nothing.
pub fn reset(_core: &mut Core) {}

/// Changes no line.
pub fn update(_core: &mut Core, _vcpu_ref: &'static VcpuRef) {}

/// Returns that the access is not to the PMU.
pub fn access(_: &mut Frame, _: &mut Core, _: &'static VcpuRef, _: SysRegAccess) -> bool {
    false
}
