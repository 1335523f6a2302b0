//! The run loop of a core that several VMs share.

use super::{
    Core, Exit, RecordKind, VcpuState, arm, attend, give, leave, run, serve_interrupt, timer,
};
use crate::trace;
use weir_abi::Features;
use weir_trace::record::Origin;

/// Does the work of [`super::handle_interrupt`] on a core that several VMs share: goes on with the
/// current one, or with the one that has the core now.
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
        // They pay for the decision too that they have made necessary, with those that have due
        // timers, unless one gets the core.
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

/// Notes that EL2 began at `ticks` with an event that can take the core from its vCPU; 0 if there
/// is no such event, or no vCPU has the core.
pub fn set_began(core: &mut Core, ticks: u64) {
    if Features::SHARED_CORES.is_built()
        && let Some(schedule) = core.schedule.as_deref_mut()
    {
        schedule.began = ticks;
    }
}

/// Notes that EL2 begins now, unless a begin is noted already.
pub fn begin(core: &mut Core) {
    if let Some(schedule) = core.schedule.as_deref_mut()
        && schedule.shared.is_some()
        && schedule.began == 0
    {
        schedule.began = timer::ticks();
    }
}

/// Records that no guest has the core, once until one has it.
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
/// `held` says whether the memory budget of the current vCPU is spent.
fn switch(core: &mut Core, entity: Option<u8>, held: bool) -> ! {
    let left = leave(core);
    if let Some(schedule) = core.schedule.as_deref_mut() {
        // The decision stands, unless the vCPU went off, or what is pending changes something. If
        // its budget is spent, the schedule has to be asked again when there is a new one, which
        // the decision does not include.
        let stands = !held && left == Some(VcpuState::Ready);
        schedule.stale = false;
        // What came for the vCPU that has left is handled in its time, not in the next one's.
        attend(core);
        if stands && core.schedule.as_deref().is_some_and(|schedule| !schedule.stale) {
            give(core, entity);
        }
    }
    run(core)
}
