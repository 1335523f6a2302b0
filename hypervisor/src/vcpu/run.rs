//! The run loop: gives the core to a vCPU, and carries out the requests of the handlers.
//!
//! The *current* vCPU is the one whose state is on the core. On a core that vCPUs share, the state
//! of a vCPU leaves the core when another vCPU runs or when the vCPU waits: the general registers
//! and the EL1 registers go to its place in the VM ([`Vm::context`](crate::vm::Vm::context)), the
//! list registers go into the model of the GIC, and its timers stop. On a core with one vCPU the
//! state stays while the vCPU waits; it leaves the core only when the vCPU is powered down or off.

mod shared;
#[cfg(test)]
mod tests;

use super::{
    action::Exit,
    cpu::Core,
    irq::{drain, own_interrupt},
    lifecycle::{self, Start},
    messages::serve,
    pmu,
    prepare::keep_branches_apart,
    schedule::{Calls, Member, is_called},
};
use crate::{
    arch::{
        context::{GuestContext, enter_guest, guest_frame, resume_guest, stop_timers},
        gic, memory, serror,
        sysreg::{self, cntpct_el0},
        timer, wait_for_interrupt,
    },
    budget, console, system,
    trace::RecordKind,
    virtio::service,
    vm::{
        VcpuRef, debug, ending,
        load::Load,
        virtual_gic::{GicHardware, kick},
    },
};
use weir_abi::schedule::LOSE_TICKS;
use weir_sched::{
    scheduler::Ready,
    vcpu::{NEVER, VcpuAction, VcpuEvent, VcpuState},
};
use weir_trace::{
    record::outgoing,
    wire::{FaultKind, What},
};
use weir_units::Nanos;
use weir_vdev::gic::{ResetStep, Signaling};

/// Marker for a plug-in that counts instructions: a different vCPU gets the core.
const MARK_SWITCH: u32 = 37;

/// Markers for a plug-in that counts instructions: a step of a load begins, which clears RAM
/// (`MARK_CLEAR`) or copies the image (`MARK_COPY`).
const MARK_CLEAR: u32 = 40;
const MARK_COPY: u32 = 41;

/// Nanoseconds between two checks of whether the broker is ready.
const BROKER_POLL: u64 = 10_000;

/// Carries out the request of the handler of a synchronous exception or an SError. Called by the
/// vectors if the request is not [`Exit::RESUME`]. It can unwind because the machine of the tests
/// unwinds when a guest is entered.
pub extern "C-unwind" fn handle_action(core: &mut Core, exit: Exit) {
    if !carry_out(core, exit) {
        run(core);
    }
}

/// Carries out the work that the fast path of an interrupt left over. Called by the vectors if the
/// fast path did not return [`Exit::RESUME`].
pub extern "C-unwind" fn handle_interrupt(core: &mut Core, exit: Exit) {
    if exit == Exit::REST {
        rest(core);
    } else if core.is_shared() {
        shared::handle_interrupt(core, exit);
    } else {
        handle_slowly(core, exit);
    }
}

/// Does the work of `handle_interrupt` on a core that is not shared. Not inlined, so that the short
/// path above saves no registers.
#[inline(never)]
fn handle_slowly(core: &mut Core, exit: Exit) {
    serve_interrupt(core, exit);
    if core.holds() {
        rest(core);
    }
}

/// Lets the core's only vCPU, whose memory budget is spent, rest with its state on the core.
/// Returns if the next event is the start of a period: the vCPU then continues with the new budget.
/// The run loop handles all other events.
#[inline(never)]
fn rest(core: &mut Core) {
    if let Some(member) = core.only() {
        member.befall(VcpuEvent::Spent);
    }
    hold(core);
    wait_for_interrupt();
    let came = acknowledge(&mut core.acknowledged);
    let exit = if came { own_interrupt(core) } else { Exit::RESUME };
    if exit == Exit::RESUME
        && !core.holds()
        && let Some(member) = core.only()
    {
        member.befall(VcpuEvent::Replenished);
        member.befall(VcpuEvent::Chosen);
        return release(core);
    }
    carry_out(core, exit);
    // The messages that the interrupt announced are handled before the core sleeps again.
    attend(core);
    run(core)
}

/// Handles an interrupt and the messages that came with it. Returns if the current vCPU keeps the
/// core for now.
#[inline(always)]
fn serve_interrupt(core: &mut Core, mut exit: Exit) {
    // The fast path may have handled its interrupt already.
    if core.acknowledged != gic::NOTHING {
        exit = exit.max(own_interrupt(core));
    }
    exit = exit.max(serve(core));
    if !carry_out(core, exit) {
        run(core);
    }
}

/// Carries out the request of a handler. Returns whether the current vCPU keeps the core for now.
#[inline(always)]
fn carry_out(core: &mut Core, exit: Exit) -> bool {
    exit <= Exit::REST || act(core, exit)
}

#[inline(never)]
fn act(core: &mut Core, exit: Exit) -> bool {
    shared::begin(core);
    let goes_on = match exit {
        Exit::WAIT => !wait(core),
        Exit::POWER_DOWN => {
            power_down(core);
            false
        }
        Exit::OFF => {
            // Ending a VM has taken some time, so an interrupt may be pending. Its request to the
            // vCPU is dropped, and all callers look for messages next.
            if core.current.is_some_and(|its| ending::is_ending(its.vm))
                && acknowledge(&mut core.acknowledged)
            {
                let _ = own_interrupt(core);
            }
            park(core);
            false
        }
        _ => true,
    };
    if goes_on {
        shared::set_began(core, 0);
    }
    goes_on
}

/// Runs the vCPUs of this core one after the other, as the core's schedule decides.
#[inline(never)]
pub fn run(core: &mut Core) -> ! {
    // Events for a vCPU that has just left are handled in its time and not in the time of the next
    // vCPU.
    if core.current.is_none() {
        attend(core);
    }
    loop {
        let entity = decide(core);
        give(core, entity);
        attend(core);
    }
}

/// Decides which entity gets the core now.
fn decide(core: &mut Core) -> Option<u8> {
    if !core.is_shared() {
        call(core);
    }
    let (index, now, held) = (core.id, timer::now_ns(), core.holds());
    core.schedule.as_deref_mut()?.decide(index, now, held)
}

/// Makes the core's only vCPU ready if it waits and has something to handle.
#[inline(always)]
fn call(core: &mut Core) {
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    let Some(vcpu_ref) = core.current else {
        // An interrupt for a vCPU that is powered down was put into the model.
        return schedule.rouse();
    };
    if let Some(member) = schedule.resident()
        && let VcpuState::Waiting { .. } = member.state()
        && has_pending(vcpu_ref, member.wakes)
    {
        member.befall(VcpuEvent::Called);
        note(core, vcpu_ref, true);
    }
}

/// Gives the core to `entity`, or lets it sleep until an interrupt comes. Returns if another
/// decision is needed.
fn give(core: &mut Core, entity: Option<u8>) {
    let Some(schedule) = core.schedule.as_deref_mut() else { return wait_for_interrupt() };
    // No vCPU has the core, so EL2 delays none and charges no time.
    schedule.account = Ready::NONE;
    let is_resident = schedule.current == entity;
    let Some((entity, member)) = entity.and_then(|entity| Some((entity, schedule.member(entity)?)))
    else {
        shared::note_free(core);
        shared::set_began(core, 0);
        return sleep(core);
    };
    let action = member.befall(VcpuEvent::Chosen);
    if action == VcpuAction::Run {
        return if is_resident { resume(core) } else { enter(core, entity) };
    }
    shared::note_free(core);
    match action {
        VcpuAction::Lead => return lead(core, entity),
        VcpuAction::Halt => return halt(core, entity),
        VcpuAction::Load => load(core, entity),
        VcpuAction::AskBroker => await_broker(core, entity),
        VcpuAction::Reset => start(core, entity),
        VcpuAction::Run | VcpuAction::Nothing => {}
    }
    // The core was used on behalf of the VM.
    shared::set_began(core, 0);
}

/// Lets the core sleep until an interrupt comes. If its only vCPU waits or is throttled, the vCPU's
/// state stays on the core, and the core's timer stays armed for the needs of the core itself.
fn sleep(core: &mut Core) {
    match core.resident() {
        None => arm(core),
        Some(member) if member.state() == VcpuState::Throttled => hold(core),
        Some(_) => {}
    }
    wait_for_interrupt();
}

/// Handles pending interrupts and the messages to this core, while no guest runs.
fn attend(core: &mut Core) {
    loop {
        while acknowledge(&mut core.acknowledged) {
            let exit = own_interrupt(core);
            carry_out(core, exit);
        }
        let exit = serve(core);
        if carry_out(core, exit) {
            return;
        }
        // The request may have acknowledged the interrupt of another message, so the mailbox is
        // checked again.
    }
}

/// Acknowledges the pending interrupt, if there is one, and stores it in `acknowledged`. Returns
/// whether there was one.
fn acknowledge(acknowledged: &mut u64) -> bool {
    let iar = gic::acknowledge();
    let came = gic::intid(iar) < gic::SPECIAL;
    if came {
        *acknowledged = iar;
    }
    came
}

/// Holds the interrupts of guests back, so that none of them ends the wait of the current vCPU for
/// its memory budget, however many come.
#[inline(always)]
fn hold(core: &mut Core) {
    core.holds_guests = true;
    gic::hold_guests(true);
}

/// Arms the core's timer for the earliest event that is due.
fn arm(core: &Core) {
    core.arm_before(core.schedule.as_deref().map_or(u64::MAX, |schedule| schedule.until));
}

/// Returns whether the current vCPU `vcpu_ref` has a pending interrupt that `wakes` signals.
fn has_pending(vcpu_ref: &'static VcpuRef, wakes: Signaling) -> bool {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    let mut gic = vm.gic.lock();
    gic.fold(vcpu, &GicHardware::new(vm));
    gic.has_pending(vcpu, wakes) || !vm.sgis.is_empty(vcpu)
}

/// Notifies the budget that the current vCPU is about to run again (`on`), or that it waits or goes
/// off.
fn note(core: &mut Core, vcpu_ref: &VcpuRef, on: bool) {
    let index = core.id;
    if let Some(budget) = core.budget.as_mut() {
        budget.note(vcpu_ref, index, on);
        core.arm();
    }
}

/// Continues loading the image of `entity`'s VM, until an interrupt comes.
fn load(core: &mut Core, entity: u8) {
    arm(core);
    let index = core.id;
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    let Some(member) = schedule.member(entity) else { return };
    let progress = &mut member.progress.load;
    let vcpu_ref = member.vcpu_ref;
    let view = vcpu_ref.vm.view();
    let budget = member.budget.as_mut().filter(|budget| budget.is_loading());
    let pieces = if budget.is_some() { Load::CHARGED } else { Load::FREE };
    if progress.clears(view) {
        crate::arch::mark::<MARK_CLEAR>();
    } else {
        crate::arch::mark::<MARK_COPY>();
    }
    let pause = &mut || acknowledge(&mut core.acknowledged);
    let done = progress.step(system::get(), view, index, pieces, pause);
    if let Some(budget) = budget {
        budget.charge(vcpu_ref, index, pieces.accesses());
    }
    if done {
        member.befall(VcpuEvent::Loaded);
        member.since = timer::now_ns();
        schedule.stale = true;
    }
    if core.acknowledged != gic::NOTHING {
        let exit = own_interrupt(core);
        carry_out(core, exit);
    }
}

/// Lets the VM of `entity`, after its image is loaded, start. At its first start a VM in a flow
/// waits until the broker is ready, so that no packet waits for the broker's start; the wait is
/// bounded, because a broker may never become ready. On a shared core the VM polls in its own
/// slots, because a timer would interrupt those of the other VMs.
fn await_broker(core: &mut Core, entity: u8) {
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    schedule.stale = true;
    let is_shared = schedule.shared.is_some();
    let Some(member) = schedule.member(entity) else { return };
    let vm = member.vcpu_ref.vm;
    if vm.restarts() == 0
        && let Some(longest) = service::wait_for_broker(vm)
    {
        let now = timer::now_ns();
        if now - member.since < longest {
            let due = Nanos(if is_shared { 0 } else { now + BROKER_POLL });
            member.befall(VcpuEvent::Delayed { due });
            return;
        }
        console::event(vm.event(What::BrokerLate, 0));
    }
    member.progress.start = Start::default();
    member.befall(VcpuEvent::Admitted);
}

/// Continues stopping the VM of `entity` for good.
fn halt(core: &mut Core, entity: u8) {
    arm(core);
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    schedule.stale = true;
    let Some(member) = schedule.member(entity) else { return };
    match lifecycle::halt(member.vcpu_ref.vm, member.progress.halt) {
        Some(next) => member.progress.halt = next,
        None => _ = member.befall(VcpuEvent::Halted),
    }
}

/// Continues starting the VM of `entity`.
fn start(core: &mut Core, entity: u8) {
    arm(core);
    let index = core.id;
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    schedule.stale = true;
    let Some(member) = schedule.member(entity) else { return };
    if let Some(next) = member.progress.start.step(member.vcpu_ref) {
        member.progress.start = next;
    } else {
        let vm = member.vcpu_ref.vm.view().vm;
        member.come_on(VcpuEvent::Reset, index, vm.entry, vm.device_tree);
    }
}

/// Gives the core to `entity`, which is ready. Returns only if the entity's memory budget is spent.
fn enter(core: &mut Core, entity: u8) {
    let index = core.id;
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    let (last, shares) = (schedule.last, schedule.shared.is_some());
    let Some(member) = schedule.member(entity) else { return };
    let vcpu_ref = member.vcpu_ref;
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    if let Some(budget) = member.budget.as_mut() {
        budget.enter(index);
        budget.resume(vcpu_ref, index);
        if budget.holds() {
            budget.leave(index);
            member.befall(VcpuEvent::Spent);
            return;
        }
    }
    vm.stolen_time().add(vcpu, timer::now_ns().saturating_sub(member.since));
    member.called = Calls::default();
    let fresh = core::mem::take(&mut member.fresh);
    core.budget = member.budget.take();
    core.current = Some(vcpu_ref);
    schedule.current = Some(entity);
    schedule.last = outgoing(vm.index() as u8, vcpu as u8);
    let switched = shares && schedule.last != last;
    let was_free = core::mem::take(&mut schedule.is_free);
    let began = core::mem::take(&mut schedule.began);
    // The first entry of a vCPU takes longer, so it is not recorded as a switch time.
    let began = if fresh { 0 } else { began };
    core.acknowledged = gic::NOTHING;
    let (root, id) = (vm.root(), vm.id());
    if fresh {
        memory::enter_stage2(root, id);
    } else {
        memory::switch_stage2(root, id);
    }
    sysreg::vmpidr_el2::write(1 << 31 | vcpu as u64);
    // SAFETY: called on the vCPU's core, which has no other reference to the context.
    let context = unsafe { vm.context(vcpu) };
    if vm.view().vm.ticks == LOSE_TICKS {
        context.lose_ticks(cntpct_el0::read());
    }
    context.load();
    debug::enter(vcpu_ref);
    let others = vm.gic.lock().restore(vcpu, &mut GicHardware::new(vm));
    kick(vm, others);
    if fresh {
        pmu::reset(core);
    }
    if !vm.sgis.is_empty(vcpu) {
        let _ = drain(vcpu_ref);
    }
    if switched {
        keep_branches_apart(core.mitigations);
        if !fresh {
            crate::arch::mark::<MARK_SWITCH>();
        }
        vcpu_ref.record(RecordKind::VcpuSwitch, last, began, 0);
        vcpu_ref.record(RecordKind::Enter, 0, 0, 0);
    } else if was_free {
        vcpu_ref.record(RecordKind::VcpuResume, 0, 0, 0);
    }
    if let Some(schedule) = core.schedule.as_deref_mut()
        && let Some(shared) = schedule.shared.as_mut()
        && shared.scheduler.needs_entries()
    {
        shared.scheduler.entered(Nanos(timer::now_ns()));
    }
    arm(core);
    gic::enable_virtual(true);
    // SAFETY: `index` is this core's number. The context is in the VM and not on the stack, and
    // nothing on the stack is used again; it was loaded above, after the VM's stage 2.
    unsafe { enter_guest(index, &context.frame) }
}

/// Lets the interrupts of the current vCPU through. The vCPU's state has stayed on the core.
#[inline(always)]
fn release(core: &mut Core) {
    if core::mem::take(&mut core.holds_guests) {
        gic::hold_guests(false);
    } else {
        gic::enable_virtual(true);
    }
    core.acknowledged = gic::NOTHING;
}

/// Continues with the current vCPU, whose state has stayed on the core.
fn resume(core: &mut Core) -> ! {
    release(core);
    // SAFETY: the vCPU's state is on the core, and the exception that led here came from its guest.
    unsafe { resume_guest(core.id) }
}

/// Takes the current vCPU off the core. It stays ready or throttled. Returns the vCPU's state, or
/// none if its VM was stopped because of an SError; then the vCPU is off.
fn leave(core: &mut Core) -> Option<VcpuState> {
    blame_serror(core);
    let index = core.id;
    let vcpu_ref = core.current.take()?;
    let budget = core.budget.take();
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    detach_gic(core, vcpu_ref);
    // SAFETY: called on the vCPU's core, which has no other reference to the context; the vCPU is
    // current, so its general registers are in the frame.
    unsafe { vm.context(vcpu).save(guest_frame(index)) };
    stop_timers();
    let member = vacate(core, budget)?;
    if member.state() == VcpuState::Running {
        member.befall(VcpuEvent::Preempted);
    }
    Some(member.state())
}

/// Moves the interrupts of the current vCPU, `vcpu_ref`, from the list registers into the model.
fn detach_gic(core: &mut Core, vcpu_ref: &VcpuRef) {
    if core::mem::take(&mut core.holds_guests) {
        gic::hold_guests(false);
    }
    gic::enable_virtual(false);
    let others = vcpu_ref.vm.gic.lock().save(vcpu_ref.vcpu, &mut GicHardware::new(vcpu_ref.vm));
    kick(vcpu_ref.vm, others);
}

/// Records that the vCPU that had the core has left it, and gives its `budget` back to it. Returns
/// the vCPU; the caller sets its state.
fn vacate(core: &mut Core, mut budget: budget::Handle) -> Option<&mut Member> {
    if let Some(budget) = budget.as_mut() {
        budget.leave(core.id);
    }
    let schedule = core.schedule.as_deref_mut()?;
    schedule.stale = true;
    let entity = schedule.current.take()?;
    let member = schedule.member(entity)?;
    member.budget = budget;
    member.since = timer::now_ns();
    Some(member)
}

/// Lets the current vCPU wait if it has no interrupt pending that its CPU interface signals.
/// Returns whether it waits.
fn wait(core: &mut Core) -> bool {
    let wakes = gic::Interface::save().signaling();
    let Some(vcpu_ref) = core.current.filter(|vcpu_ref| !has_pending(vcpu_ref, wakes)) else {
        return false;
    };
    if core.is_shared() {
        suspend(core, vcpu_ref, wakes, |_| ());
        return true;
    }
    if let Some(member) = core.resident() {
        member.wakes = wakes;
        // The vCPU's timers interrupt the core themselves.
        member.befall(VcpuEvent::Waits { due: NEVER });
    }
    note(core, vcpu_ref, false);
    // Virtual interrupts are disabled, so that those in the list registers do not keep the core
    // from sleeping.
    gic::enable_virtual(false);
    true
}

/// Lets the current vCPU wait and then start as [`Exit::POWER_DOWN`] describes. Because its CPU
/// interface is off, any interrupt that the distributor forwards ends the wait.
fn power_down(core: &mut Core) {
    let Some(vcpu_ref) = core.current else { return };
    // Updated first, so that an overflow that EL2 has not seen yet ends the wait, although the
    // reset below clears it.
    pmu::update(core, vcpu_ref);
    // With an interrupt pending the vCPU continues at once, and keeps the rest of its budget.
    if core.sole.is_some() && !has_pending(vcpu_ref, Signaling::ALL) {
        note(core, vcpu_ref, false);
    }
    suspend(core, vcpu_ref, Signaling::ALL, |context| {
        let (entry, x0) = (context.pc, context.frame.x[0]);
        *context = GuestContext::reset(entry, x0).with_timers_of(context);
    });
    debug::reset(vcpu_ref);
    pmu::reset(core);
}

/// Takes the current vCPU off the core until it has an interrupt that `wakes` signals. `change`
/// modifies its saved context.
fn suspend(
    core: &mut Core,
    vcpu_ref: &'static VcpuRef,
    wakes: Signaling,
    change: impl FnOnce(&mut GuestContext),
) {
    let entity = core.schedule.as_deref().and_then(|schedule| schedule.current);
    if leave(core) != Some(VcpuState::Ready) {
        return;
    }
    let member = core.schedule.as_deref_mut().and_then(|schedule| schedule.member(entity?));
    let Some(member) = member else { return };
    // SAFETY: called on the vCPU's core, which has no other reference to the context.
    let context = unsafe { vcpu_ref.vm.context(vcpu_ref.vcpu) };
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    let due = {
        let gic = vm.gic.lock();
        context.deadline(|intid| gic.may_signal(vcpu, intid, wakes))
    };
    let due = due.map_or(u64::MAX, timer::due_ns);
    change(context);
    member.wakes = wakes;
    // Interrupts that came before the vCPU left the core are in the model now.
    if !is_called(vcpu_ref, wakes) {
        member.befall(VcpuEvent::Waits { due: Nanos(due) });
    }
}

/// Turns the current vCPU off.
fn park(core: &mut Core) {
    let Some(vcpu_ref) = core.current else { return };
    let vm = vcpu_ref.vm;
    // Done before the leader sees that this vCPU is off, and before another VM has the core.
    if core.is_shared() && serror::take() {
        ending::stop(vm, FaultKind::SError);
    }
    vcpu_ref.record(RecordKind::VcpuOff, 0, 0, 0);
    note(core, vcpu_ref, false);
    stop_timers();
    pmu::reset(core);
    detach_gic(core, vcpu_ref);
    core.current = None;
    let (index, budget) = (core.id, core.budget.take());
    if let Some(member) = vacate(core, budget) {
        member.go_off(index);
    }
}

/// Stops the current VM if its accesses have raised an SError that is pending: the error must not
/// be attributed to the next VM.
fn blame_serror(core: &mut Core) {
    if let Some(vcpu_ref) = core.current
        && core.is_shared()
        && serror::take()
    {
        let exit = super::fault::fault(vcpu_ref, FaultKind::SError, 0);
        carry_out(core, exit);
    }
}

/// Continues with a VM that is stopping, in the time of its first vCPU `entity`.
fn lead(core: &mut Core, entity: u8) {
    arm(core);
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    schedule.stale = true;
    let Some(member) = schedule.member(entity) else { return };
    let event = lifecycle::lead(member.vcpu_ref);
    match event {
        VcpuEvent::Halts => member.progress.halt = ResetStep::default(),
        VcpuEvent::Restarts => {
            member.progress.load = Load::default();
            if let Some(budget) = member.budget.as_mut() {
                budget.begin_load(member.vcpu_ref, core.id);
            }
        }
        _ => {}
    }
    member.befall(event);
}
