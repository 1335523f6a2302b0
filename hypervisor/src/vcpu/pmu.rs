//! The PMU of a vCPU that was granted one. Connects its model (`weir_vdev::pmu`), which decides,
//! with the core's counters.

use super::cpu::Core;
use super::inject::inject_undefined;
use crate::{
    arch::{
        Frame,
        gic::PhysicalLine,
        pmu::{
            counters,
            granted::{Granted, VirtualPmu},
            pmu_intid,
        },
        sysreg,
    },
    notice::{self, Text},
    optional::Optional,
    vm::{VcpuRef, virtual_gic::settle},
};
use weir_abi::{Features, KEPT_COUNTERS, MAX_PMU_COUNTERS};
use weir_trace::wire::ExitCause;
use weir_vdev::{
    esr::SysRegAccess,
    pmu::{INTID, MOST, PmuOutcome},
};

const _: () = assert!(MAX_PMU_COUNTERS as usize <= MOST, "the model has them all");

/// Sets up core `core`'s part in the PMU: the counters that its VM was granted, and the owner of
/// the interrupt. Called after the core's budget has started.
pub fn start(core: &mut Core) {
    let Some(vcpu_ref) = core.sole else { return };
    let count = if Features::BUDGETS.is_built() { vcpu_ref.vm.view().vm.pmu } else { 0 };
    let intid = pmu_intid(core.id);
    if count == 0 {
        core.budget_intid = intid;
        return;
    }
    let there = counters();
    if there < u64::from(KEPT_COUNTERS + count) {
        notice::refuse(&[
            b"a VM was granted ",
            Text::number(count.into(), 10).as_bytes(),
            b" event counters in addition to weir's 2, and the cores have ",
            Text::number(there, 10).as_bytes(),
            b": correct `counters` under [pmu] in the platform file",
        ]);
    }
    PhysicalLine::new(intid, core.id).claim(core.id);
    core.pmu = Optional::new(Some(VirtualPmu::new(count)));
    reset(core);
}

/// Resets the PMU because the vCPU starts or goes off: its counters are stopped at 0.
pub fn reset(core: &mut Core) {
    if let (Some(pmu), Some(vcpu_ref)) = (core.pmu.as_mut(), core.sole) {
        pmu.reset(&mut Granted(vcpu_ref.vm.view().vm.pmu));
        update(core, vcpu_ref);
    }
}

/// Updates the PMU's interrupt line, after its interrupt came or something else may have changed
/// the line.
pub fn update(core: &mut Core, vcpu_ref: &'static VcpuRef) {
    if let Some(pmu) = core.pmu.as_mut() {
        let high = pmu.line(&mut Granted(vcpu_ref.vm.view().vm.pmu));
        let kick = vcpu_ref.vm.gic.lock().set_private_level(vcpu_ref.vcpu, INTID, high);
        settle(vcpu_ref.vm, vcpu_ref.vcpu, kick);
    }
}

/// Carries out a trapped access to the PMU. Returns false if the access is not one to the PMU, or
/// if the VM has no PMU. The guest's program counter is already behind the instruction.
pub fn access(
    frame: &mut Frame,
    core: &mut Core,
    vcpu_ref: &'static VcpuRef,
    access: SysRegAccess,
) -> bool {
    let Some(pmu) = core.pmu.as_mut() else { return false };
    let value = if access.is_write() { frame.get(access.rt()) } else { 0 };
    let mut counters = Granted(vcpu_ref.vm.view().vm.pmu);
    // SPSR_EL2.M: EL0, in AArch64 or AArch32 state.
    let user = sysreg::spsr_el2::read() & 0b1111 == 0;
    let Some(outcome) = pmu.access(access, value, user, &mut counters) else { return false };
    vcpu_ref.exit(ExitCause::SystemRegister);
    match outcome {
        PmuOutcome::Read(value) => frame.set(access.rt(), value),
        PmuOutcome::Written => update(core, vcpu_ref),
        PmuOutcome::Undefined => inject_undefined(),
    }
    true
}
