//! Interrupts of a core that several VMs share.

use super::{deliver_slowly, drain};
use crate::{
    arch::{gic, timer},
    trace,
    vcpu::{admission::LineVerdict, cpu::Core},
    vm::{self, vcpu_on},
};
use weir_abi::Features;
use weir_trace::wire::ExitCause;
use weir_units::IntId;

/// Delivers a device interrupt to its VM on a core that several VMs share. The interrupt has been
/// acknowledged, and its priority dropped.
pub fn share_out(core: &mut Core, intid: IntId) {
    let index = core.id;
    if !Features::SHARED_CORES.is_built() {
        return gic::PhysicalLine::new(intid, index).set_active(false);
    }
    let vcpu_ref = vm::owner(intid).and_then(|vm| vcpu_on(vm, index));
    let is_current = vcpu_ref.is_some_and(|vcpu_ref| {
        core.current.is_some_and(|current| core::ptr::eq(current, vcpu_ref))
    });
    let (Some(schedule), Some(vcpu_ref)) = (core.schedule.as_deref_mut(), vcpu_ref) else {
        return gic::PhysicalLine::new(intid, index).set_active(false);
    };
    trace::push(vcpu_ref.ring, vcpu_ref.origin.tag(trace::RecordKind::Interrupt, intid.0), 0, 0);
    let now = timer::now_ns();
    let entity = schedule.entity(vcpu_ref.vm.index());
    let scheduler = schedule.shared.as_ref().map(|shared| &shared.scheduler);
    let may_take = |priority| scheduler.is_some_and(|scheduler| scheduler.may_take(priority));
    let rule = schedule.rules.iter_mut().flatten().find(|rule| rule.is_of(intid));
    let verdict = rule
        .map_or(LineVerdict::Deliver, |rule| rule.come(vcpu_ref, index, now, is_current, may_take));
    schedule.stale |= verdict != LineVerdict::Deliver;
    if verdict != LineVerdict::Mask {
        deliver_slowly(vcpu_ref, intid);
        schedule.rouse();
    }
    let (Some(entity), false) = (entity, is_current) else { return };
    if let (LineVerdict::Preempt(priority), Some(shared)) = (verdict, schedule.shared.as_mut()) {
        shared.scheduler.preempt(entity, priority);
    }
    schedule.account = schedule.account.with(entity);
}

/// Handles, on a core that several VMs share, SGIs of guests and changes that other vCPUs made in a
/// distributor.
pub fn message(core: &mut Core) {
    if !Features::SHARED_CORES.is_built() {
        return;
    }
    if let Some(vcpu_ref) = core.current {
        vcpu_ref.interrupt(ExitCause::Message, gic::SGI_GUEST);
        let _ = drain(vcpu_ref);
    }
    if let Some(schedule) = core.schedule.as_deref_mut() {
        schedule.blame();
        schedule.rouse();
    }
}
