//! Faults that stop a VM.

use super::action::Exit;
use crate::{
    arch::sysreg,
    trace,
    vm::{Ending, VcpuRef, ending},
};
use weir_trace::wire::{ExitCause, FaultKind, What, WireEvent};

/// Stops the VM of the current vCPU `vcpu_ref` because of a fault at `address`.
#[cold]
pub fn fault(vcpu_ref: &'static VcpuRef, kind: FaultKind, address: u64) -> Exit {
    vcpu_ref.rare_exit(ExitCause::Fault);
    vcpu_ref.record(trace::RecordKind::VmFault, kind as u32, sysreg::esr_el2::read(), address);
    let event = WireEvent {
        detail: kind as u32,
        syndrome: sysreg::esr_el2::read(),
        address,
        pc: sysreg::elr_el2::read(),
        guest_syndrome: sysreg::esr_el1::read(),
        guest_elr: sysreg::elr_el1::read(),
        ..vcpu_ref.vm.event(What::VmFault, vcpu_ref.vcpu)
    };
    ending::end(vcpu_ref, Ending::Fault, event);
    Exit::OFF
}
