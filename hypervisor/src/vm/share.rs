//! A core that vCPUs of several VMs share. `weir_sched::partition` says who has it; here one vCPU's state leaves the core and another's comes.
//!
//! The vCPU that has the core is *current*. Whenever EL2 is done with an exception it asks whether it is to stay so ([`settle`]); if not, its
//! context goes to its place in the VM ([`Vm::context`](super::Vm)), its list registers go into the model of the GIC, its timers stop, and
//! [`run`] finds out who is next. What a vCPU that is off the core waits for:
//! - its timers: EL2's own timer is set to the first of them;
//! - its device interrupts: they are taken as they come, and put into the model ([`deliver`]). A line stays active, and
//!   so comes once, until its vCPU has been on the core and has dealt with it;
//! - SGIs, and what its VM's other vCPUs change in the distributor: they are left where they are until it is back, and told to this core once;
//! - CPU_ON, and the end of its VM's life: at most one life begins in each round of the cores that
//!   the VM shares ([`round`]). What follows the end of a life is done in the VM's own turns
//!   ([`State::Ending`]).
//!
//! So no VM can take the core's time in another's turn more than once a line and once a turn of its own. What that takes is charged to it ([`Share::charge`]).

use super::{
    Place, Seat,
    admission::{Rule, Verdict},
    debug,
    interrupts::{Lines, kick},
    life::{self, Next},
    seat_of, space, traps,
};
use crate::{
    arch::{
        Frame,
        context::{Context, enter_guest, stop_timers},
        gic, memory, serror,
        sysreg::{self, cntpct_el0},
        timer, wait_for_interrupt as sleep,
    },
    cpu::Core,
    mail,
    meter::Meter,
    system,
    trace::{self, Kind},
};
use core::{cell::UnsafeCell, sync::atomic::Ordering};
use weir_budget::Event as Budget;
use weir_model::packed::{
    MAX_CORES, MAX_VMS, Shared,
    schedule::{self, MAX_RULES},
};
use weir_sched::partition::Ready;
use weir_trace::{
    record::{NO_VM, outgoing},
    wire::{ExitCause, FaultKind},
};
use weir_units::Nanos;
use weir_vdev::esr::Syndrome;

/// Marker for those who count from outside: another vCPU than before gets the core.
const MARK_SWITCH: u32 = 37;

/// What a vCPU does while it is not current.
#[derive(Clone, Copy)]
enum State {
    /// Off, as PSCI has it, or its VM has ended.
    Off,
    /// The first vCPU of a VM that is stopping. It wants the core from this time on, to go on with
    /// that.
    Ending(u64),
    /// Its VM's image is being loaded.
    Loading(space::Load),
    /// It wants the core.
    Ready,
    /// It waits for an interrupt, of its timers at this moment.
    Waiting(u64),
}

/// A vCPU on a shared core.
struct Member {
    seat: &'static Seat,
    state: State,
    /// Since when it wants the core, if it is ready or soon was.
    since: u64,
    /// While it is current, the meter is the core's.
    meter: Option<Meter>,
    /// It has not had the core in this life.
    fresh: bool,
    /// What it was called for since it last had the core.
    called: Calls,
}

/// What somebody else left for a vCPU.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Calls {
    /// SGIs.
    mail: bool,
    /// Changes of its interrupts in the distributor.
    changes: bool,
}

impl Calls {
    fn of(seat: &Seat) -> Self {
        let Seat { vm, vcpu, .. } = *seat;
        Self { mail: !vm.mail.is_empty(vcpu), changes: vm.gic.lock().is_wanted(vcpu) }
    }
}

/// The vCPUs that share a core.
pub struct Share {
    schedule: Shared,
    members: [Option<Member>; MAX_VMS],
    current: Option<u8>,
    /// Of the lines that have one.
    rules: [Option<Rule>; MAX_RULES],
    /// Who had it last, as [`Kind::VcpuSwitch`] tells it.
    last: u32,
    /// When the schedule is to be asked again.
    until: u64,
    /// Somebody has become ready, or waits no more.
    stale: bool,
    /// On whose account EL2 has the core now, beside the current one's.
    account: Ready,
}

impl Share {
    /// Core `core`'s, if it is shared.
    fn new(core: usize) -> Option<Self> {
        let schedule = system::get().shared(core)?;
        let mut members = [const { None }; MAX_VMS];
        for (member, vm) in members.iter_mut().zip(schedule.vms()) {
            let seat = super::all().nth((*vm).into()).and_then(|vm| seat_of(vm, core))?;
            let state =
                if seat.vcpu == 0 { State::Loading(space::Load::default()) } else { State::Off };
            let called = Calls::default();
            *member = Some(Member { seat, state, since: 0, meter: None, fresh: true, called });
        }
        let mut rules = [const { None }; MAX_RULES];
        let lines = members.iter().flatten().flat_map(|member| {
            let vm = member.seat.vm;
            vm.view().irqs.iter().filter_map(move |irq| Rule::new(vm, irq))
        });
        for (place, rule) in rules.iter_mut().zip(lines) {
            *place = Some(rule);
        }
        let last = outgoing(NO_VM, 0);
        Some(Self {
            schedule,
            members,
            current: None,
            rules,
            last,
            until: 0,
            stale: true,
            account: Ready::NONE,
        })
    }

    /// Starts the meters of those whose bandwidth is regulated; on core `core`.
    pub fn start_meters(&mut self, core: usize) {
        for member in self.members.iter_mut().flatten() {
            member.meter = Meter::start(core, member.seat);
            if let Some(meter) = &mut member.meter {
                meter.leave(core);
            }
        }
    }

    fn member(&mut self, party: u8) -> Option<&mut Member> {
        self.members.get_mut(usize::from(party))?.as_mut()
    }

    /// The vCPU that has the core.
    #[must_use]
    pub fn current(&self) -> Option<&'static Seat> {
        let place = usize::from(self.current?);
        Some(self.members.get(place)?.as_ref()?.seat)
    }

    /// Who is ready at `now`, and when the next one is that waits for its time to come. `held` says whether the current one's memory budget
    /// keeps it off.
    fn ready(&mut self, core: usize, now: u64, held: bool) -> (Ready, u64) {
        let (mut ready, mut wake) = (Ready::NONE, u64::MAX);
        let current = self.current.map(usize::from);
        for (place, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { break };
            if let State::Waiting(due) = member.state {
                if due > now {
                    wake = wake.min(due);
                    continue;
                }
                member.state = State::Ready;
                member.since = member.since.max(due);
                self.account = self.account.with(place as u8);
            }
            if let State::Ending(due @ 1..) = member.state {
                if due > now {
                    wake = wake.min(due);
                    continue;
                }
                member.state = State::Ending(0);
                self.account = self.account.with(place as u8);
            }
            let held = match (&member.state, &mut member.meter) {
                (State::Off, _) => true,
                (State::Ready, _) if current == Some(place) => held,
                // The system's start is not charged.
                (State::Loading(_), Some(meter)) if !meter.is_loading() => false,
                (State::Ready | State::Loading(_), Some(meter)) => {
                    if meter.holds() && now >= meter.deadline {
                        meter.step(member.seat, core, now, Budget::Descheduled);
                    }
                    if meter.holds() {
                        wake = wake.min(meter.deadline);
                    }
                    meter.holds()
                }
                _ => false,
            };
            if !held {
                ready = ready.with(place as u8);
            }
        }
        (ready, wake)
    }

    /// Charges what EL2 has done since `came`, while another VM has the core, to those on whose account it did it, in equal parts.
    fn charge(&mut self, came: u64) {
        let account = core::mem::take(&mut self.account);
        let Some(current) = self.current else { return };
        let parties = (0..MAX_VMS as u8).filter(|party| *party != current && account.has(*party));
        let count = parties.clone().count() as u64;
        if let Some(each) = timer::now_ns().saturating_sub(came).checked_div(count) {
            parties.for_each(|party| self.schedule.partition.charge(party, Nanos(each)));
        }
    }

    /// Whoever off the core has been left something that it was not called for yet is why EL2 has the core.
    fn blame(&mut self) {
        let current = self.current.map(usize::from);
        for (place, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { break };
            let calls = Calls::of(member.seat);
            if current != Some(place) && calls != member.called {
                member.called = calls;
                self.account = self.account.with(place as u8);
            }
        }
    }

    /// Those that wait and were told something want the core.
    fn rouse(&mut self) {
        for member in self.members.iter_mut().flatten() {
            if matches!(member.state, State::Waiting(_)) && is_called(member.seat) {
                member.state = State::Ready;
                member.since = timer::now_ns();
                self.stale = true;
            }
        }
    }
}

/// Beside the cores' own, which are small so that the paths of those that are not shared reach all of it at once.
static SHARES: [Place<Option<Share>>; MAX_CORES] =
    [const { Place(UnsafeCell::new(None)) }; MAX_CORES];

/// Gives a core its schedule and vCPUs, if it is shared; on that core, once. Not part of who calls it: its stack is needed no more when guests run.
#[inline(never)]
pub fn furnish(core: &mut Core) {
    // SAFETY: each core calls this once, and nobody else reaches for its element.
    let place = unsafe { &mut *SHARES[core.index % MAX_CORES].0.get() };
    *place = Share::new(core.index);
    core.share = place.as_mut();
}

/// Whether a vCPU that is off its core has something to look at.
fn is_called(seat: &Seat) -> bool {
    let Seat { vm, vcpu, .. } = *seat;
    if !vm.mail.is_empty(vcpu) {
        return true;
    }
    let gic = vm.gic.lock();
    gic.is_wanted(vcpu) || gic.has_pending(vcpu)
}

/// Who has the core at `now`: the party's number.
fn decide(core: &mut Core, now: u64) -> Option<u8> {
    let held = core.meter.as_ref().is_some_and(Meter::holds);
    let share = core.share.as_deref_mut()?;
    let (ready, wake) = share.ready(core.index, now, held);
    let mut credit = u64::MAX;
    for rule in share.rules.iter_mut().flatten() {
        if now >= rule.masked_until {
            rule.unmask();
        }
        credit = credit.min(rule.masked_until);
    }
    let decision = share.schedule.partition.step(Nanos(now), ready);
    share.until = decision.until.0.min(wake).min(credit);
    share.stale = false;
    decision.run
}

/// Arms the core's timer for whatever is due first.
fn arm(core: &Core) {
    core.arm_before(core.share.as_deref().map_or(u64::MAX, |share| share.until));
}

/// What a shared core does when no guest has it: who is next?
pub fn run(core: &mut Core) -> ! {
    loop {
        life::attend(core);
        let now = timer::now_ns();
        let party = decide(core, now);
        arm(core);
        let index = core.index;
        let Some(share) = core.share.as_deref_mut() else { break };
        // Nobody is kept waiting by it.
        share.account = Ready::NONE;
        let Some(member) = party.and_then(|party| share.member(party)) else {
            sleep();
            continue;
        };
        match &mut member.state {
            State::Ending(_) => lead(core, party.unwrap_or(0)),
            State::Loading(load) => {
                let seat = member.seat;
                let meter = member.meter.as_mut().filter(|meter| meter.is_loading());
                let pieces =
                    if meter.is_some() { space::Load::CHARGED } else { space::Load::SHARED };
                let done = load.step(system::get(), seat.vm.view(), index, pieces);
                if let Some(meter) = meter {
                    meter.charge(seat, index, pieces.accesses());
                }
                if done {
                    let (entry, device_tree) = life::start(seat);
                    come_on(member, index, entry, device_tree);
                    share.stale = true;
                }
            }
            _ => enter(core, party.unwrap_or(0)),
        }
    }
    life::run(core)
}

/// A vCPU comes on as after a reset; the schedule says when.
fn come_on(member: &mut Member, core: usize, entry: u64, x0: u64) {
    let seat = member.seat;
    // SAFETY: on its core, and the only reference.
    unsafe { *seat.vm.context(seat.vcpu) = Context::reset(entry, x0) };
    member.state = State::Ready;
    member.since = timer::now_ns();
    member.fresh = true;
    if let Some(meter) = &mut member.meter {
        meter.come_on(seat, core);
    }
    life::started(seat);
}

/// Gives the core to `party`, which is ready; comes back only if its memory budget is spent.
fn enter(core: &mut Core, party: u8) {
    let index = core.index;
    let Some(share) = core.share.as_deref_mut() else { return };
    let last = share.last;
    let Some(member) = share.member(party) else { return };
    let seat = member.seat;
    let Seat { vm, vcpu, .. } = *seat;
    if let Some(meter) = &mut member.meter {
        meter.enter(index);
        meter.resume(seat, index);
        if meter.holds() {
            return meter.leave(index);
        }
    }
    vm.stolen_time().add(vcpu, timer::now_ns().saturating_sub(member.since));
    member.called = Calls::default();
    let fresh = core::mem::take(&mut member.fresh);
    core.meter = member.meter.take();
    share.current = Some(party);
    share.last = outgoing(vm.index() as u8, vcpu as u8);
    let switched = share.last != last;
    core.acknowledged = gic::NOTHING;
    let (root, vmid) = (vm.root.load(Ordering::Relaxed), vm.index() as u64 + 1);
    if fresh {
        memory::enter_stage2(root, vmid);
    } else {
        memory::switch_stage2(root, vmid);
    }
    sysreg::vmpidr_el2::write(1 << 31 | vcpu as u64);
    // SAFETY: on its core, and the only reference.
    let context = unsafe { vm.context(vcpu) };
    if vm.view().vm.ticks == schedule::LOSE_TICKS {
        context.lose_ticks(cntpct_el0::read());
    }
    context.load();
    debug::enter(seat);
    let others = vm.gic.lock().restore(vcpu, &mut Lines::new(vm));
    kick(vm, others);
    traps::drain(seat);
    if switched {
        // The first time there is more to do.
        if !fresh {
            crate::arch::mark::<MARK_SWITCH>();
        }
        seat.record(Kind::VcpuSwitch, last, 0, 0);
        seat.record(Kind::Enter, 0, 0, 0);
    }
    if let Some(share) = core.share.as_deref_mut() {
        share.schedule.partition.entered(Nanos(timer::now_ns()));
    }
    arm(core);
    gic::enable_virtual(true);
    enter_guest(index, context.frame)
}

/// Takes the current vCPU off the core; what its general registers hold is in `frame`. Its member.
fn leave<'core>(frame: &Frame, core: &'core mut Core) -> Option<&'core mut Member> {
    let index = core.index;
    let mut meter = core.meter.take();
    let share = core.share.as_deref_mut()?;
    let party = share.current.take()?;
    share.stale = true;
    let member = share.member(party)?;
    let Seat { vm, vcpu, .. } = *member.seat;
    gic::enable_virtual(false);
    // Before the context is taken: what the list registers hold is the model's then.
    let others = vm.gic.lock().save(vcpu, &mut Lines::new(vm));
    kick(vm, others);
    // SAFETY: on its core, and the only reference.
    unsafe { *vm.context(vcpu) = Context::save(frame) };
    stop_timers();
    if let Some(meter) = &mut meter {
        meter.leave(index);
    }
    member.meter = meter;
    member.state = State::Ready;
    member.since = timer::now_ns();
    Some(member)
}

/// An interrupt while a guest ran.
#[inline(never)]
pub fn handle_message(frame: &Frame, core: &mut Core) {
    let came = timer::now_ns();
    if core.acknowledged != gic::NOTHING || core.report {
        traps::own_interrupt(core);
    }
    if let Some(seat) = core.current().filter(|_| !mail::is_quiet(core.index)) {
        traps::end_standstill(core, seat);
    }
    life::serve(core);
    if let Some(share) = core.share.as_deref_mut() {
        share.charge(came);
    }
    settle(frame, core);
}

/// At the end of an exception: goes on with the current vCPU, or with the one whose turn it is now.
#[inline(never)]
pub fn settle(frame: &Frame, core: &mut Core) {
    let held = core.meter.as_ref().is_some_and(Meter::holds);
    let Some(share) = &core.share else { return };
    let Some(current) = share.current else { return };
    let now = timer::now_ns();
    if share.stale || held || now >= share.until {
        if decide(core, now) != Some(current) {
            blame_serror(core);
            leave(frame, core);
            run(core);
        }
        // Of whoever waits for a timer of his, and has that now, but not the core.
        if let Some(share) = core.share.as_deref_mut() {
            share.charge(now);
        }
    }
    arm(core);
}

/// The current vCPU, stopped by `life::park`, is off.
pub fn parked(core: &mut Core) -> ! {
    let index = core.index;
    let mut meter = core.meter.take();
    if let Some(meter) = &mut meter {
        meter.leave(index);
    }
    if let Some(share) = core.share.as_deref_mut()
        && let Some(party) = share.current.take()
        && let Some(member) = share.member(party)
    {
        member.meter = meter;
        member.state = off(member.seat);
        share.stale = true;
    }
    run(core)
}

/// The state of a vCPU that is off. If it is the first of a VM that is stopping, the rest is done
/// in its turns.
fn off(seat: &Seat) -> State {
    if seat.vcpu == 0 && life::is_ending(seat.vm) { State::Ending(0) } else { State::Off }
}

/// Ends the current VM if its accesses have raised an SError that is pending: the next VM must not
/// be blamed for it.
fn blame_serror(core: &mut Core) {
    if serror::take()
        && let Some(seat) = core.current()
    {
        traps::fault(core, seat, FaultKind::SError, 0);
    }
}

/// Goes on with a VM that is stopping, in the turn of its first vCPU `party`.
fn lead(core: &mut Core, party: u8) {
    let member = core.share.as_deref_mut().and_then(|share| share.member(party));
    let Some(seat) = member.map(|member| member.seat) else { return };
    let next = life::lead(core, seat);
    let index = core.index;
    let Some(share) = core.share.as_deref_mut() else { return };
    share.stale = true;
    let Some(member) = share.member(party) else { return };
    member.state = match next {
        Next::Nothing => State::Off,
        Next::Later(due) => State::Ending(due.max(1)),
        Next::Life => {
            if let Some(meter) = &mut member.meter {
                meter.begin_load(seat, index);
            }
            State::Loading(space::Load::default())
        }
    };
}

/// How much time there is at least between the beginnings of two lives of a VM that vCPU `seat` leads: a round of any core that its other vCPUs share.
#[must_use]
pub fn round(seat: &Seat) -> u64 {
    system::get().round(seat.vm.index(), seat.vm.core_of(seat.vcpu)).0
}

/// Messages that concern the vCPUs of this core.
pub fn serve(core: &mut Core) {
    let index = core.index;
    let budget = mail::take(index, mail::BUDGET) != 0;
    let start = mail::take(index, mail::START) != 0;
    let stop = mail::take(index, mail::STOP) != 0;
    let ended = mail::take(index, mail::ENDED) != 0;
    let Some(share) = core.share.as_deref_mut() else { return };
    share.rouse();
    let current = share.current.map(usize::from);
    share.stale |= start | stop | ended | budget;
    for (place, member) in share.members.iter_mut().enumerate() {
        let Some(member) = member else { break };
        let is_current = current == Some(place);
        if start
            && matches!(member.state, State::Off)
            && let Some((entry, x0)) = life::claim_start(member.seat)
        {
            come_on(member, index, entry, x0);
            share.account = share.account.with(place as u8);
        }
        let stops = stop && !is_current && life::must_stop(member.seat);
        if stops && !matches!(member.state, State::Loading(_)) {
            member.state = off(member.seat);
            member.seat.record(Kind::VcpuOff, 0, 0, 0);
            life::parked(member.seat, index);
            share.account = share.account.with(place as u8);
        }
        if ended && matches!(member.state, State::Off) {
            member.state = off(member.seat);
            if matches!(member.state, State::Ending(_)) {
                share.account = share.account.with(place as u8);
            }
        }
        let meter = if is_current { &mut core.meter } else { &mut member.meter };
        let Some(meter) = meter else { continue };
        if budget && (is_current || meter.holds()) {
            let event = if is_current { Budget::Count } else { Budget::Descheduled };
            meter.step(member.seat, index, timer::now_ns(), event);
            share.account = share.account.with(place as u8);
        }
    }
    if stop
        && let Some(seat) = core.current()
        && life::must_stop(seat)
    {
        life::park(core, seat);
    }
}

/// A device interrupt came, was acknowledged, and its priority dropped.
pub fn deliver(core: &mut Core, intid: u32) {
    let index = core.index;
    let seat = super::owner(intid).and_then(|vm| seat_of(vm, index));
    let Some(seat) = seat.filter(|_| core.share.is_some()) else {
        return gic::Line::new(intid, index).set_active(false);
    };
    trace::push(seat.ring, seat.who.tag(Kind::Interrupt, intid), 0, 0);
    let current = core.current();
    let is_current = current.is_some_and(|current| core::ptr::eq(current, seat));
    let Some(share) = core.share.as_deref_mut() else { return };
    let now = timer::now_ns();
    let rule = share.rules.iter_mut().flatten().find(|rule| rule.is_of(intid));
    let may_take = |priority| share.schedule.partition.may_take(priority);
    let verdict =
        rule.map_or(Verdict::Deliver, |rule| rule.come(seat, index, now, is_current, may_take));
    let party = share.schedule.party(seat.vm.index());
    share.stale |= verdict != Verdict::Deliver;
    if verdict != Verdict::Mask {
        traps::deliver_slowly(seat, intid);
        share.rouse();
    }
    let (Some(party), false) = (party, is_current) else { return };
    if let Verdict::Preempt(priority) = verdict {
        share.schedule.partition.preempt(party, priority);
    }
    share.account = share.account.with(party);
}

/// SGIs of guests came, or what others changed in the distributor.
pub fn message(core: &mut Core) {
    if let Some(seat) = core.current() {
        seat.interrupt(ExitCause::Message, gic::SGI_GUEST);
        traps::drain(seat);
    }
    if let Some(share) = core.share.as_deref_mut() {
        share.blame();
        share.rouse();
    }
}

/// A synchronous exception of the current vCPU's guest.
#[inline(never)]
pub fn handle_sync(frame: &mut Frame, core: &mut Core) {
    let Some(seat) = core.current() else { return };
    traps::dispatch(frame, core, seat, Syndrome(sysreg::esr_el2::read()));
    // Time has its interrupt.
    if core.share.as_deref().is_some_and(|share| share.stale) {
        settle(frame, core);
    }
}

/// The current vCPU waits for an interrupt (WFI, CPU_SUSPEND), if it has none.
pub fn wait_for_interrupt(frame: &Frame, core: &mut Core) {
    let Some(&Seat { vm, vcpu, .. }) = core.share.as_deref().and_then(Share::current) else {
        return;
    };
    let pending = {
        let mut gic = vm.gic.lock();
        gic.fold(vcpu, &Lines::new(vm));
        gic.has_pending(vcpu)
    };
    if !pending && vm.mail.is_empty(vcpu) {
        idle(frame, core, None);
    }
}

/// The current vCPU waits for an interrupt and then begins at `entry` with `x0`, everything but its timers lost.
pub fn power_down(frame: &Frame, core: &mut Core, entry: u64, x0: u64) -> ! {
    idle(frame, core, Some((entry, x0)))
}

fn idle(frame: &Frame, core: &mut Core, reset: Option<(u64, u64)>) -> ! {
    blame_serror(core);
    if let Some(member) = leave(frame, core) {
        let Seat { vm, vcpu, .. } = *member.seat;
        // SAFETY: on its core, and the only reference.
        let context = unsafe { vm.context(vcpu) };
        let due = context.deadline().map_or(u64::MAX, timer::due_ns);
        if let Some((entry, x0)) = reset {
            *context = Context::reset(entry, x0).with_timers_of(context);
        }
        // What came before the vCPU left the core is in the model now.
        if !is_called(member.seat) {
            member.state = State::Waiting(due);
        }
    }
    run(core)
}
