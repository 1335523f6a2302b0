//! The run loop: gives the core to a vCPU, and carries out what the handlers ask for.
//!
//! The *current* vCPU is the one with its state on the core. On a core that vCPUs share, its state
//! leaves the core when another one runs or when it waits: the general registers and those of EL1
//! go to its place in the VM ([`Vm::context`](crate::vm::Vm::context)), the list registers into the
//! model of the GIC, and its timers stop. On a core with one vCPU the state stays while the vCPU
//! waits; it leaves only when the vCPU is powered down or off.

mod shared;

use super::{
    action::Action,
    cpu::Core,
    interrupts::{drain, own_interrupt},
    lifecycle::{self, Next, Start},
    messages::serve,
    pmu,
    prepare::keep_branches_apart,
    schedule::{Calls, Member, OffCoreState, is_called, off},
};
use crate::{
    arch::{
        context::{GuestContext, enter_guest, guest_frame, resume_guest, stop_timers},
        gic, memory, serror,
        sysreg::{self, cntpct_el0},
        timer, wait_for_interrupt,
    },
    budget, console, mail, system,
    trace::RecordKind,
    virtio::service,
    vm::{
        Ending, VcpuRef, debug, ending,
        interrupts::{Lines, kick},
        space::Load,
    },
};
use weir_abi::schedule::LOSE_TICKS;
use weir_sched::partition::Ready;
use weir_trace::{
    record::outgoing,
    wire::{FaultKind, What, WireEvent},
};
use weir_units::Nanos;
use weir_vdev::gic::{ResetStep, Signaling};

/// Marker for a plug-in that counts instructions: another vCPU than before gets the core.
const MARK_SWITCH: u32 = 37;

/// Markers for a plug-in that counts instructions: a step of a load begins, which clears RAM, or
/// which does not.
const MARK_CLEAR: u32 = 40;
const MARK_COPY: u32 = 41;

/// Nanoseconds between two checks whether the broker is ready.
const BROKER_POLL: u64 = 10_000;

/// What a synchronous exception or an SError asked for. Called by the vectors if a handler returned
/// [`Exit::ACT`](super::action::Exit::ACT).
pub extern "C" fn handle_action(core: &mut Core) {
    if !carry_out(core) {
        run(core);
    }
}

/// What an interrupt left to do. Called by the vectors if the fast path returned
/// [`Exit::ACT`](super::action::Exit::ACT).
pub extern "C" fn handle_interrupt(core: &mut Core) {
    if core.is_shared() {
        return shared::handle_interrupt(core);
    }
    serve_interrupt(core);
    if core.holds() {
        hold(core);
        if rest(core) {
            return release(core);
        }
        choose(core);
    }
}

/// Handles an interrupt and the messages that came with it.
#[inline(always)]
fn serve_interrupt(core: &mut Core) {
    // The fast path may have handled its interrupt already.
    if core.acknowledged != gic::NOTHING || core.report.is_some() {
        own_interrupt(core);
    }
    if !mail::is_quiet(core.id) {
        serve(core);
    }
    if !carry_out(core) {
        run(core);
    }
}

/// Carries out the action that a handler asked for. Returns whether the current vCPU goes on.
#[inline(always)]
fn carry_out(core: &mut Core) -> bool {
    core.action.is_none() || act(core)
}

#[inline(never)]
fn act(core: &mut Core) -> bool {
    shared::begin(core);
    let goes_on = match core.action.take() {
        None => true,
        Some(Action::Wait) => !wait(core),
        Some(Action::PowerDown { entry, x0 }) => {
            power_down(core, entry, x0);
            false
        }
        Some(Action::Off) => {
            park(core);
            false
        }
        Some(Action::Stop(ending, event)) => {
            stop(core, ending, event);
            false
        }
    };
    if goes_on {
        shared::set_began(core, 0);
    }
    goes_on
}

/// Runs the vCPUs of this core.
pub fn run(core: &mut Core) -> ! {
    if core.current.is_some() && rest(core) {
        resume(core);
    }
    choose(core)
}

/// Gives the core, which no vCPU has, to one after the other of its vCPUs.
#[inline(never)]
fn choose(core: &mut Core) -> ! {
    loop {
        attend(core);
        let (index, now) = (core.id, timer::now_ns());
        let Some(schedule) = core.schedule.as_deref_mut() else {
            wait_for_interrupt();
            continue;
        };
        // An interrupt for the core's only vCPU, which is powered down, went to the model.
        if schedule.partition.is_none() {
            schedule.rouse();
        }
        let entity = schedule.decide(index, now, false);
        give(core, entity);
    }
}

/// Gives the core, which no vCPU has, to `entity`, or lets it wait for an interrupt. Returns if
/// another decision is due.
fn give(core: &mut Core, entity: Option<u8>) {
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    // No vCPU has the core, so none is delayed.
    schedule.account = Ready::NONE;
    let state = entity.and_then(|entity| schedule.member(entity)).map(|member| member.state);
    if !matches!(state, Some(OffCoreState::Ready)) {
        shared::note_free(core);
    }
    let (Some(entity), Some(state)) = (entity, state) else {
        shared::set_began(core, 0);
        arm(core);
        return wait_for_interrupt();
    };
    match state {
        OffCoreState::Ending(_) => return lead(core, entity),
        OffCoreState::Halting(step) => return halt(core, entity, step),
        OffCoreState::Loading(_) => load(core, entity),
        OffCoreState::Awaiting(since, _) => await_broker(core, entity, since),
        OffCoreState::Starting(step) => start(core, entity, step),
        _ => return enter(core, entity),
    }
    // The core was the VM's.
    shared::set_began(core, 0);
}

/// Handles the pending interrupts and the messages to this core, while no guest runs.
fn attend(core: &mut Core) {
    while acknowledge(&mut core.acknowledged) {
        own_interrupt(core);
        carry_out(core);
    }
    serve(core);
    carry_out(core);
}

/// Acknowledges the interrupt that is pending, and returns whether there is one: it is in
/// `acknowledged` then.
fn acknowledge(acknowledged: &mut u64) -> bool {
    let iar = gic::acknowledge();
    let came = gic::intid(iar) < gic::SPECIAL;
    if came {
        *acknowledged = iar;
    }
    came
}

/// Holds the interrupts of guests back, so that none of them, however many come, ends the wait of
/// the current vCPU for its memory budget.
#[inline(always)]
fn hold(core: &mut Core) {
    core.holds_guests = true;
    gic::hold_guests(true);
}

/// Lets the current vCPU rest, its state on the core, until it may go on. Returns whether it may,
/// or has gone off. Only the one vCPU of a core rests: there is nothing to decide meanwhile, and
/// the core's timer is armed for what the core itself needs.
#[inline(always)]
fn rest(core: &mut Core) -> bool {
    loop {
        wait_for_interrupt();
        attend(core);
        let Some(vcpu_ref) = core.current else { return false };
        if core.waits {
            if !has_pending(vcpu_ref, gic::Interface::save().signaling()) {
                continue;
            }
            core.waits = false;
            note(core, vcpu_ref, true);
        }
        if !core.holds() {
            return true;
        }
        hold(core);
    }
}

/// Arms the core's timer for what is due first.
fn arm(core: &Core) {
    core.arm_before(core.schedule.as_deref().map_or(u64::MAX, |schedule| schedule.until));
}

/// Returns whether the current vCPU `vcpu_ref` has an interrupt pending that `wakes` signals.
fn has_pending(vcpu_ref: &'static VcpuRef, wakes: Signaling) -> bool {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    let mut gic = vm.gic.lock();
    gic.fold(vcpu, &Lines::new(vm));
    gic.has_pending(vcpu, wakes) || !vm.mail.is_empty(vcpu)
}

/// Tells the budget that the current vCPU waits or goes off, or (`on`) that it is about to run
/// again.
fn note(core: &mut Core, vcpu_ref: &VcpuRef, on: bool) {
    let index = core.id;
    if let Some(budget) = core.budget.as_mut() {
        budget.note(vcpu_ref, index, on);
        core.arm();
    }
}

/// Goes on with the load of the image of `entity`'s VM, until an interrupt comes.
fn load(core: &mut Core, entity: u8) {
    arm(core);
    let index = core.id;
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    let Some(member) = schedule.member(entity) else { return };
    let OffCoreState::Loading(progress) = &mut member.state else { return };
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
        let now = timer::now_ns();
        member.state = OffCoreState::Awaiting(now, now);
        schedule.stale = true;
    }
    if core.acknowledged != gic::NOTHING {
        own_interrupt(core);
        carry_out(core);
    }
}

/// Lets the VM of `entity`, after its image is loaded, start. At its first start a VM in a flow
/// waits until the broker is ready, so that no packet waits for the broker's start; the wait is
/// bounded, because a broker may never become ready. On a shared core the VM polls in its own
/// slots, because a timer would interrupt those of the other VMs.
fn await_broker(core: &mut Core, entity: u8, since: u64) {
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    schedule.stale = true;
    let is_shared = schedule.partition.is_some();
    let Some(member) = schedule.member(entity) else { return };
    let vm = member.vcpu_ref.vm;
    if vm.restarts() == 0
        && let Some(longest) = service::wait_for_broker(vm)
    {
        let now = timer::now_ns();
        if now - since < longest {
            let due = if is_shared { 0 } else { now + BROKER_POLL };
            member.state = OffCoreState::Awaiting(since, due);
            return;
        }
        console::event(vm.event(What::BrokerLate, 0));
    }
    member.state = OffCoreState::Starting(Some(Start::default()));
}

/// Goes on with stopping the VM of `entity` for good.
fn halt(core: &mut Core, entity: u8, step: ResetStep) {
    arm(core);
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    schedule.stale = true;
    let Some(member) = schedule.member(entity) else { return };
    let next = lifecycle::halt(member.vcpu_ref.vm, step);
    member.state = next.map_or(OffCoreState::Off, OffCoreState::Halting);
}

/// Goes on with the start of the VM of `entity`.
fn start(core: &mut Core, entity: u8, step: Option<Start>) {
    arm(core);
    let index = core.id;
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    schedule.stale = true;
    let Some(member) = schedule.member(entity) else { return };
    if let Some(step) = step {
        member.state = OffCoreState::Starting(step.step(member.vcpu_ref));
    } else {
        let vm = member.vcpu_ref.vm.view().vm;
        member.come_on(index, vm.entry, vm.device_tree);
    }
}

/// Gives the core to `entity`, which is ready. Returns only if its memory budget is spent.
fn enter(core: &mut Core, entity: u8) {
    let index = core.id;
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    let (last, shares) = (schedule.last, schedule.partition.is_some());
    let Some(member) = schedule.member(entity) else { return };
    let vcpu_ref = member.vcpu_ref;
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    if let Some(budget) = member.budget.as_mut() {
        budget.enter(index);
        budget.resume(vcpu_ref, index);
        if budget.holds() {
            return budget.leave(index);
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
    // A vCPU's first time takes longer.
    let began = if fresh { 0 } else { began };
    core.acknowledged = gic::NOTHING;
    let (root, id) = (vm.root(), vm.id());
    if fresh {
        memory::enter_stage2(root, id);
    } else {
        memory::switch_stage2(root, id);
    }
    sysreg::vmpidr_el2::write(1 << 31 | vcpu as u64);
    // SAFETY: on its core, which has no other reference.
    let context = unsafe { vm.context(vcpu) };
    if vm.view().vm.ticks == LOSE_TICKS {
        context.lose_ticks(cntpct_el0::read());
    }
    context.load();
    debug::enter(vcpu_ref);
    let others = vm.gic.lock().restore(vcpu, &mut Lines::new(vm));
    kick(vm, others);
    if fresh {
        pmu::reset(core);
    }
    if !vm.mail.is_empty(vcpu) {
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
        && let Some(shared) = schedule.partition.as_mut()
        && shared.partition.needs_entries()
    {
        shared.partition.entered(Nanos(timer::now_ns()));
    }
    arm(core);
    gic::enable_virtual(true);
    // SAFETY: `index` is this core's. The context is the VM's and not on the stack, nothing of which
    // is used again; it was loaded above, behind the VM's stage 2.
    unsafe { enter_guest(index, &context.frame) }
}

/// Lets the interrupts of the current vCPU through. Its state has stayed on the core.
#[inline(always)]
fn release(core: &mut Core) {
    if core::mem::take(&mut core.holds_guests) {
        gic::hold_guests(false);
    } else {
        gic::enable_virtual(true);
    }
    core.acknowledged = gic::NOTHING;
}

/// Goes on with the current vCPU. Its state has stayed on the core.
fn resume(core: &mut Core) -> ! {
    release(core);
    // SAFETY: its state is on the core, and the exception that led here was its guest's.
    unsafe { resume_guest(core.id) }
}

/// Takes the current vCPU off the core. It stays ready.
fn leave(core: &mut Core) {
    blame_serror(core);
    let index = core.id;
    let Some(vcpu_ref) = core.current.take() else { return };
    let budget = core.budget.take();
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    detach_gic(core, vcpu_ref);
    // SAFETY: on its core, which has no other reference to the context; the vCPU is current, so its
    // general registers are in the frame.
    unsafe { vm.context(vcpu).save(guest_frame(index)) };
    stop_timers();
    if let Some(member) = vacate(core, budget) {
        member.state = OffCoreState::Ready;
    }
}

/// Takes the interrupts of the current vCPU, `vcpu_ref`, out of the list registers into the model.
fn detach_gic(core: &mut Core, vcpu_ref: &VcpuRef) {
    if core::mem::take(&mut core.holds_guests) {
        gic::hold_guests(false);
    }
    gic::enable_virtual(false);
    let others = vcpu_ref.vm.gic.lock().save(vcpu_ref.vcpu, &mut Lines::new(vcpu_ref.vm));
    kick(vcpu_ref.vm, others);
}

/// Notes that the vCPU that had the core has left it, and gives it its `budget` back. Returns it,
/// whose state the caller sets.
fn vacate(core: &mut Core, mut budget: budget::Handle) -> Option<&mut Member> {
    if let Some(budget) = budget.as_mut() {
        budget.leave(core.id);
    }
    let schedule = core.schedule.as_deref_mut()?;
    schedule.stale = true;
    core.waits = false;
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
    core.waits = true;
    note(core, vcpu_ref, false);
    // Held back, the interrupts in its list registers do not keep the core from sleeping.
    gic::enable_virtual(false);
    true
}

/// Lets the current vCPU wait and then start at `entry` with `x0`, all of its state but the timers
/// lost. Its CPU interface is off: any interrupt that the distributor forwards ends the wait.
fn power_down(core: &mut Core, entry: u64, x0: u64) {
    let Some(vcpu_ref) = core.current else { return };
    // An overflow that EL2 has not seen yet ends the wait, although the reset below clears it.
    pmu::update(core, vcpu_ref);
    // With an interrupt pending it goes on at once, and keeps what is left of its budget.
    if core.sole.is_some() && !has_pending(vcpu_ref, Signaling::ALL) {
        note(core, vcpu_ref, false);
    }
    suspend(core, vcpu_ref, Signaling::ALL, |context| {
        *context = GuestContext::reset(entry, x0).with_timers_of(context);
    });
    debug::reset(vcpu_ref);
    pmu::reset(core);
}

/// Takes the current vCPU off the core until it has an interrupt that `wakes` signals. `change`
/// changes its state.
fn suspend(
    core: &mut Core,
    vcpu_ref: &'static VcpuRef,
    wakes: Signaling,
    change: impl FnOnce(&mut GuestContext),
) {
    let entity = core.schedule.as_deref().and_then(|schedule| schedule.current);
    leave(core);
    let member = core.schedule.as_deref_mut().and_then(|schedule| schedule.member(entity?));
    // If its VM was stopped for an SError, it is off now.
    let Some(member) = member.filter(|member| matches!(member.state, OffCoreState::Ready)) else {
        return;
    };
    // SAFETY: on its core, which has no other reference.
    let context = unsafe { vcpu_ref.vm.context(vcpu_ref.vcpu) };
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    let due = {
        let gic = vm.gic.lock();
        context.deadline(|intid| gic.may_signal(vcpu, intid, wakes))
    };
    let due = due.map_or(u64::MAX, timer::due_ns);
    change(context);
    member.wakes = wakes;
    // What came before the vCPU left the core is in the model now.
    if !is_called(vcpu_ref, wakes) {
        member.state = OffCoreState::Waiting(due);
    }
}

/// Stops the VM of the current vCPU, and takes the vCPU off the core.
fn stop(core: &mut Core, ending: Ending, event: WireEvent) {
    if let Some(vcpu_ref) = core.current {
        ending::end(vcpu_ref, ending, event);
        // What it asks for can wait: without a current vCPU, nothing is left of it.
        if acknowledge(&mut core.acknowledged) {
            own_interrupt(core);
        }
    }
    park(core);
}

/// Turns the current vCPU off.
fn park(core: &mut Core) {
    let Some(vcpu_ref) = core.current else { return };
    let vm = vcpu_ref.vm;
    // Before the leader sees that this vCPU is off, and before another VM has the core.
    if core.is_shared() && serror::take() {
        ending::stop(vm, FaultKind::SError);
    }
    vcpu_ref.record(RecordKind::VcpuOff, 0, 0, 0);
    note(core, vcpu_ref, false);
    stop_timers();
    pmu::reset(core);
    detach_gic(core, vcpu_ref);
    ending::parked(vcpu_ref, core.id);
    core.current = None;
    let budget = core.budget.take();
    if let Some(member) = vacate(core, budget) {
        member.state = off(vcpu_ref);
    }
}

/// Stops the current VM if its accesses have raised an SError that is pending: the next VM must not
/// be blamed for it.
fn blame_serror(core: &mut Core) {
    if let Some(vcpu_ref) = core.current
        && core.is_shared()
        && serror::take()
    {
        let _ = super::fault::fault(core, vcpu_ref, FaultKind::SError, 0);
        carry_out(core);
    }
}

/// Goes on with a VM that is stopping, in the time of its first vCPU `entity`.
fn lead(core: &mut Core, entity: u8) {
    arm(core);
    let Some(schedule) = core.schedule.as_deref_mut() else { return };
    schedule.stale = true;
    let Some(member) = schedule.member(entity) else { return };
    let vcpu_ref = member.vcpu_ref;
    member.state = match lifecycle::lead(vcpu_ref) {
        Next::Nothing => OffCoreState::Off,
        Next::Later(due) => OffCoreState::Ending(due.max(1)),
        Next::Again => OffCoreState::Ending(0),
        Next::Halt => OffCoreState::Halting(ResetStep::default()),
        Next::Restart => {
            if let Some(budget) = member.budget.as_mut() {
                budget.begin_load(vcpu_ref, core.id);
            }
            OffCoreState::Loading(Load::default())
        }
    };
}
