//! The run loop of a core that several VMs share.

use super::{
    Core, Exit, RecordKind, VcpuState, arm, attend, give, leave, run, serve_interrupt, timer,
};
use crate::trace;
use weir_abi::Features;
use weir_trace::record::Origin;

/// Does the work of [`super::handle_interrupt`] on a core that several VMs share. Continues with
/// the current vCPU, or with the vCPU that has the core afterwards.
#[inline(never)]
pub fn handle_interrupt(core: &mut Core, exit: Exit) {
    let (index, came) = (core.id, timer::ticks());
    set_began(core, came);
    serve_interrupt(core, exit);
    let held = core.holds();
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    let causes = schedule.account;
    schedule.charge(came);
    let ticks = timer::ticks();
    let now = timer::ns_at(ticks);
    if schedule.stale || held || now >= schedule.until {
        // If the entities that caused this interrupt also made a decision necessary, they are
        // charged for the decision, too, together with entities whose timers are due, unless one of
        // them gets the core.
        if schedule.stale {
            schedule.account = causes;
        }
        let entity = schedule.decide(index, now, held);
        if entity != schedule.current {
            switch(core, entity, held);
        }
        schedule.charge(ticks);
    }
    set_began(core, 0);
    arm(core);
}

/// Notes that EL2 began at `ticks` to handle an event that can take the core from its vCPU; 0 if
/// there is no such event, or if no vCPU has the core.
pub fn set_began(core: &mut Core, ticks: u64) {
    if Features::SHARED_CORES.is_built()
        && let Some(schedule) = core.schedule.as_deref_mut()
    {
        schedule.began = ticks;
    }
}

/// Notes that EL2 begins now, unless a beginning is already noted.
pub fn begin(core: &mut Core) {
    if let Some(schedule) = core.schedule.as_deref_mut()
        && schedule.shared.is_some()
        && schedule.began == 0
    {
        schedule.began = timer::ticks();
    }
}

/// Records that no guest has the core, once until a guest has it again.
pub fn note_free(core: &mut Core) {
    if let Some(schedule) = core.schedule.as_deref_mut()
        && schedule.shared.is_some()
        && !schedule.is_free
    {
        schedule.is_free = true;
        trace::push(trace::ring(core.id), Origin::NO_VM.tag(RecordKind::CoreFree, 0), 0, 0);
    }
}

/// Takes the current vCPU off the core and gives the core to `entity`, as the schedule has decided.
/// `held` states whether the memory budget of the current vCPU is spent.
fn switch(core: &mut Core, entity: Option<u8>, held: bool) -> ! {
    let left = leave(core);
    if let Some(schedule) = core.schedule.as_deref_mut() {
        // The decision stands unless the vCPU went off or a pending event changes something. If the
        // vCPU's budget is spent, the schedule must be asked again when the budget is replenished,
        // which the decision does not take into account.
        let stands = !held && left == Some(VcpuState::Ready);
        schedule.stale = false;
        // Events for the vCPU that has left are handled in its time and not in the time of the next
        // vCPU.
        attend(core);
        if stands && core.schedule.as_deref().is_some_and(|schedule| !schedule.stale) {
            give(core, entity);
        }
    }
    run(core)
}
