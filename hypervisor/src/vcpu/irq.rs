//! The IRQ exception: the fast path while a guest runs, and EL2's own interrupts.

mod shared;

use super::cpu::Core;
use super::{action::Exit, fault::fault, pmu};
use crate::{
    arch::{
        gic::{self, Version},
        isb,
        pmu::is_pmu,
        timer,
    },
    board::{SMMU_LINE, UART_LINE},
    budget::Event as BudgetEvent,
    mail,
    vm::{
        VcpuRef, focus, pci,
        virtual_gic::{GicHardware, kick},
    },
};
use weir_abi::INTID_LIMIT;
use weir_trace::wire::{ExitCause, FaultKind};
use weir_units::IntId;
use weir_vdev::gic::Posted;

/// Handles an interrupt that came while a guest ran. The fast path serves the core's only vCPU;
/// [`own_interrupt`] handles everything else.
#[inline(always)]
pub extern "C" fn handle_irq(core: &mut Core) -> Exit {
    let iar = gic::acknowledge();
    let intid = gic::intid(iar);
    let Some(vcpu_ref) = core.sole else { return slow(core, iar) };
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    // The most frequent interrupts are tested first, because each comparison here costs the
    // interrupts behind it an instruction or two.
    if intid == gic::PPI_VIRTUAL_TIMER {
        gic::drop_priority(iar);
        vcpu_ref.interrupt(ExitCause::Timer, intid);
        if !vm.gic.lock().put_private(vcpu, intid, &mut GicHardware::new(vm)) {
            return deliver(vcpu_ref, intid);
        }
        return Exit::RESUME;
    }
    if (32..INTID_LIMIT.into()).contains(&intid.0) {
        // EL2 owns some SPIs. No guest has these, so `put_spi` finds no list register for them.
        if !vm.gic.lock().put_spi(vcpu, intid, &mut GicHardware::new(vm)) {
            return spi_slowly(core, vcpu_ref, iar);
        }
        gic::drop_priority(iar);
        vcpu_ref.interrupt(ExitCause::DeviceIrq, intid);
        return Exit::RESUME;
    }
    if intid == gic::SGI_GUEST {
        gic::end(iar);
        vcpu_ref.interrupt(ExitCause::Message, intid);
        return drain(vcpu_ref);
    }
    if intid == gic::PPI_HYP_TIMER {
        vcpu_ref.counts.exit(ExitCause::OwnIrq);
        return clock(core, vcpu_ref, iar);
    }
    others(core, vcpu_ref, iar)
}

/// Handles an SPI that is not put into a list register at once: an SPI of EL2, or one that the
/// guest cannot take now.
#[inline(never)]
fn spi_slowly(core: &mut Core, vcpu_ref: &'static VcpuRef, iar: u64) -> Exit {
    let intid = gic::intid(iar);
    if is_pmu(intid) || intid == UART_LINE || intid == SMMU_LINE {
        return others(core, vcpu_ref, iar);
    }
    gic::drop_priority(iar);
    vcpu_ref.interrupt(ExitCause::DeviceIrq, intid);
    deliver(vcpu_ref, intid)
}

/// Handles the less frequent interrupts of [`handle_irq`].
#[inline(never)]
fn others(core: &mut Core, vcpu_ref: &'static VcpuRef, iar: u64) -> Exit {
    let intid = gic::intid(iar);
    match intid {
        _ if intid == core.budget_intid => {
            vcpu_ref.counts.exit(ExitCause::OwnIrq);
            overflow(core, vcpu_ref, iar)
        }
        gic::PPI_PHYSICAL_TIMER => {
            gic::drop_priority(iar);
            vcpu_ref.interrupt(ExitCause::Timer, intid);
            deliver(vcpu_ref, intid)
        }
        _ => slow(core, iar),
    }
}

/// Handles the core's own timer: reports, and the periods and polls of the memory budget. Requests
/// the run loop if the vCPU must stop, or if a report is due.
#[inline(never)]
fn clock(core: &mut Core, vcpu_ref: &'static VcpuRef, iar: u64) -> Exit {
    let now = timer::ns_at(timer::ticks());
    if let Some(budget) = core.budget.as_mut()
        && now < core.heartbeat.next
        && budget.begin_quickly(vcpu_ref, now)
    {
        timer::fire_next_at(budget.deadline.min(core.heartbeat.next));
        isb();
        gic::end(iar);
        return Exit::RESUME;
    }
    clock_slowly(core, Some(vcpu_ref), iar, now)
}

/// Does the rest of [`clock`]. It is a separate function so that the fast path saves no registers.
#[inline(never)]
fn clock_slowly(core: &mut Core, vcpu_ref: Option<&'static VcpuRef>, iar: u64, now: u64) -> Exit {
    let mut exit = Exit::RESUME;
    if let (Some(budget), Some(vcpu_ref)) = (core.budget.as_mut(), vcpu_ref)
        && now >= budget.deadline
    {
        budget.step(vcpu_ref, core.id, now, BudgetEvent::Count);
        exit = Exit::unless(budget.holds());
        if !budget.is_counted() {
            exit = fault(vcpu_ref, FaultKind::Uncounted, 0);
        }
    }
    if core.beats(now) {
        exit = exit.max(Exit::LOOK);
    }
    core.arm();
    isb();
    gic::end(iar);
    exit
}

/// Handles the interrupt of a counter that reached the limit of the memory budget of the core's
/// only vCPU. Requests the run loop if the vCPU must stop.
#[inline(never)]
fn overflow(core: &mut Core, vcpu_ref: &'static VcpuRef, iar: u64) -> Exit {
    let now = timer::ns_at(timer::ticks());
    if let Some(budget) = core.budget.as_mut()
        && budget.stop_quickly(vcpu_ref, now)
    {
        gic::end(iar);
        return Exit::REST;
    }
    overflow_slowly(core, Some(vcpu_ref), iar, now)
}

/// Does the rest of [`overflow`], or all of it if the run loop handles the interrupt.
#[inline(never)]
fn overflow_slowly(
    core: &mut Core,
    vcpu_ref: Option<&'static VcpuRef>,
    iar: u64,
    now: u64,
) -> Exit {
    let mut exit = Exit::RESUME;
    if let (Some(budget), Some(vcpu_ref)) = (core.budget.as_mut(), vcpu_ref) {
        let deadline = budget.deadline;
        budget.step(vcpu_ref, core.id, now, BudgetEvent::Count);
        exit = Exit::unless(budget.holds());
        // The deadline has changed only if a period has begun.
        if budget.deadline != deadline {
            core.arm();
        }
    }
    gic::end(iar);
    exit
}

#[cold]
fn slow(core: &mut Core, iar: u64) -> Exit {
    core.acknowledged = iar;
    Exit::LOOK
}

/// Puts a physical interrupt into a list register, or into the model if none is free.
#[inline(never)]
fn deliver(vcpu_ref: &'static VcpuRef, intid: IntId) -> Exit {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    let mask = vm.gic.lock().deliver_slowly(vcpu, intid, &mut GicHardware::new(vm));
    kick(vm, mask);
    Exit::resume()
}

/// Delivers an interrupt that did not come by the fast path; the fast path counts interrupts as
/// exits, so this function counts it as injected.
fn deliver_slowly(vcpu_ref: &'static VcpuRef, intid: IntId) {
    vcpu_ref.counts.injected();
    let _ = deliver(vcpu_ref, intid);
}

/// Delivers the SGIs that other vCPUs sent to this core's vCPU.
#[inline(never)]
pub fn drain(vcpu_ref: &'static VcpuRef) -> Exit {
    let VcpuRef { vm, vcpu, counts, .. } = *vcpu_ref;
    counts.injected();
    let left = vm.gic.lock().put_posted(vcpu, &vm.sgis, &mut GicHardware::new(vm));
    match left {
        None => Exit::resume(),
        Some(left) => take_posted(vcpu_ref, left),
    }
}

/// Does the rest of [`drain`]. It is a separate function so that the fast path needs no frame.
#[cold]
#[inline(never)]
#[expect(clippy::needless_pass_by_value, reason = "a reference would be to the caller's frame")]
fn take_posted(vcpu_ref: &'static VcpuRef, left: Posted<Version>) -> Exit {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    let mask = vm.gic.lock().take_posted(vcpu, &left, &mut GicHardware::new(vm));
    kick(vm, mask);
    Exit::resume()
}

/// Handles the interrupt in `core.acknowledged`. Returns the action for the current vCPU, if there is
/// one.
#[inline(always)]
pub fn own_interrupt(core: &mut Core) -> Exit {
    // The most frequent case is the start of a period of the core's only vCPU.
    if let Some(vcpu_ref) = core.current
        && gic::intid(core.acknowledged) == gic::PPI_HYP_TIMER
        && !core.is_shared()
    {
        vcpu_ref.counts.exit(ExitCause::OwnIrq);
        let iar = core::mem::replace(&mut core.acknowledged, gic::NOTHING);
        return clock(core, vcpu_ref, iar);
    }
    own_interrupt_slowly(core)
}

/// Does the rest of [`own_interrupt`].
#[inline(never)]
fn own_interrupt_slowly(core: &mut Core) -> Exit {
    let mut exit = Exit::RESUME;
    let iar = core::mem::replace(&mut core.acknowledged, gic::NOTHING);
    let intid = gic::intid(iar);
    let vcpu_ref = core.current;
    let count = |cause| {
        if let Some(vcpu_ref) = vcpu_ref {
            vcpu_ref.interrupt(cause, intid);
        }
    };
    // Counts the interrupt without recording it, because its consequences are recorded.
    let tick = || {
        if let Some(vcpu_ref) = vcpu_ref {
            vcpu_ref.counts.exit(ExitCause::OwnIrq);
        }
    };
    match intid {
        gic::SGI_MESSAGE => {
            // A message of the console core to itself is not recorded: a record of 32 bytes for
            // each 16 bytes that are sent would keep the trace from ever being sent completely.
            if mail::is_console(core.id) {
                tick();
            } else {
                count(ExitCause::Message);
            }
            gic::end(iar);
        }
        gic::SGI_GUEST => {
            gic::end(iar);
            match core.sole {
                Some(vcpu_ref) => _ = drain(vcpu_ref),
                None => shared::message(core),
            }
        }
        gic::PPI_MAINTENANCE => {
            count(ExitCause::Maintenance);
            if let Some(&VcpuRef { vm, vcpu, .. }) = vcpu_ref {
                let mask = vm.gic.lock().refresh(vcpu, &mut GicHardware::new(vm));
                kick(vm, mask);
            }
            // The interrupt line falls with the change that the model just made. If the interrupt
            // were ended before, it would come again.
            isb();
            gic::end(iar);
        }
        gic::PPI_HYP_TIMER => {
            tick();
            let schedule = core.schedule.as_deref();
            let is_shared = schedule.is_some_and(|schedule| schedule.shared.is_some());
            if is_shared && core.budget.is_none() && timer::now_ns() < core.heartbeat.next {
                // This tick belongs to the schedule. The run loop arms the timer when the schedule
                // has decided.
                timer::stop();
                gic::end(iar);
            } else {
                exit = match vcpu_ref {
                    Some(vcpu_ref) => clock(core, vcpu_ref, iar),
                    None => clock_slowly(core, None, iar, timer::now_ns()),
                };
            }
        }
        _ if is_pmu(intid) => {
            tick();
            // The PMU is also updated for a vCPU that is powered down: its line stays high until
            // the model masks it.
            if let Some(vcpu_ref) = vcpu_ref.or(core.sole) {
                pmu::update(core, vcpu_ref);
            }
            exit = overflow_slowly(core, vcpu_ref, iar, timer::now_ns());
        }
        gic::PPI_VIRTUAL_TIMER | gic::PPI_PHYSICAL_TIMER => {
            match vcpu_ref {
                Some(vcpu_ref) => {
                    gic::drop_priority(iar);
                    deliver_slowly(vcpu_ref, intid);
                }
                // The interrupt belongs to a vCPU that has just left the core; it comes again when
                // the vCPU is back.
                None => gic::end(iar),
            }
        }
        _ if intid == UART_LINE => {
            count(ExitCause::OwnIrq);
            if let Some(wire) = &mut core.wire {
                let hand_over = wire.receive();
                wire.drain();
                if hand_over {
                    focus::hand_over();
                }
            }
            gic::end(iar);
        }
        _ if intid == SMMU_LINE => {
            count(ExitCause::OwnIrq);
            pci::report_faults();
            gic::end(iar);
        }
        IntId(32..) if intid.0 < u32::from(INTID_LIMIT) => {
            gic::drop_priority(iar);
            match core.sole {
                Some(vcpu_ref) => deliver_slowly(vcpu_ref, intid),
                None => shared::share_out(core, intid),
            }
        }
        _ if intid >= gic::SPECIAL => {}
        // A private interrupt that EL2 has not enabled.
        _ => gic::end(iar),
    }
    exit
}
