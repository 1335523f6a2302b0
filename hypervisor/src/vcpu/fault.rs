//! Faults by which a VM stops.

use super::action::{Action, Exit};
use crate::{
    arch::sysreg,
    cpu::Core,
    trace,
    vm::{Ending, Seat},
};
use weir_trace::wire::{Event, ExitCause, FaultKind, What};

/// Stops the VM of the current vCPU `seat` for a fault at `address`.
#[cold]
pub fn fault(core: &mut Core, seat: &'static Seat, kind: FaultKind, address: u64) -> Exit {
    seat.exit(ExitCause::Fault);
    seat.record(trace::Kind::VmFault, kind as u32, sysreg::esr_el2::read(), address);
    let event = Event {
        detail: kind as u32,
        syndrome: sysreg::esr_el2::read(),
        address,
        pc: sysreg::elr_el2::read(),
        guest_syndrome: sysreg::esr_el1::read(),
        guest_elr: sysreg::elr_el1::read(),
        ..seat.vm.event(What::VmFault, seat.vcpu)
    };
    core.ask(Action::Stop(Ending::Fault, event))
}
