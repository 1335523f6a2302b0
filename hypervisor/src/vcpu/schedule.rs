//! The vCPUs of a core, and which of them runs. `weir_sched::scheduler` decides between several
//! vCPUs. A core with one vCPU has one entry and no scheduling timer.
//!
//! While a vCPU is off its core, the following become due for it:
//! - its timers: EL2's own timer is set to the first of them;
//! - its device interrupts: EL2 takes them as they come and puts them into the model of the GIC. A
//!   device interrupt stays active, and so interrupts the core only once, until its vCPU has been
//!   on the core and has handled it;
//! - SGIs, and changes in the distributor by other vCPUs of its VM: they wait until the vCPU is
//!   back, and this core gets one SGI;
//! - `CPU_ON`, and the end of its VM: a VM restarts at most once per round of the cores that it
//!   shares. The work after its end is done in the VM's own time ([`VcpuState::Ending`]).
//!
//! So a VM can take the core in another VM's time at most once per device interrupt and once per
//! time slice of its own. [`CoreSchedule::charge`] charges that time to the VM.

mod shared;

use super::lifecycle::{self, Start};
use crate::{
    arch::{context::GuestContext, timer},
    budget::{self, Event as BudgetEvent},
    halt,
    optional::Optional,
    system,
    vm::{self, CoreLocal, VcpuRef, ending, load::Load, vcpu_on},
};
use core::{cell::UnsafeCell, mem::MaybeUninit};
use weir_abi::{Features, MAX_CORES, MAX_VMS, ReadySchedule};
use weir_sched::{
    scheduler::Ready,
    vcpu::{VcpuAction, VcpuEvent, VcpuState},
};
use weir_trace::record::{NO_VM, outgoing};
use weir_units::{CoreId, Nanos};
use weir_vdev::gic::{ResetStep, Signaling};

/// The progress of the work that EL2 does in steps for a VM, on the core of the VM's first vCPU.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// The load of the VM's image.
    pub load: Load,
    /// The next step of the VM's start.
    pub start: Start,
    /// The next step of stopping the VM for good.
    pub halt: ResetStep,
}

/// A vCPU of the core.
pub struct Member {
    /// The identity of the vCPU.
    pub vcpu_ref: &'static VcpuRef,
    state: VcpuState,
    /// The work that EL2 does for the VM while this vCPU is off.
    pub progress: Progress,
    /// Time in ns since which the vCPU wants the core (if it is ready) or has been blocked.
    pub since: u64,
    /// The vCPU's memory budget; while the vCPU is current, the core has it.
    pub budget: budget::Handle,
    /// Whether the vCPU has not had the core since it started.
    pub fresh: bool,
    /// The reasons for which EL2 was interrupted for the vCPU since it last had the core.
    pub called: Calls,
    /// The interrupts that end the vCPU's wait, while it waits.
    pub wakes: Signaling,
}

impl Member {
    /// Returns the state of the vCPU.
    #[inline(always)]
    #[must_use]
    pub fn state(&self) -> VcpuState {
        self.state
    }

    /// Applies `event` to the state of the vCPU, which changes in no other way, and returns the
    /// work that its core must do next.
    #[inline(always)]
    pub fn befall(&mut self, event: VcpuEvent) -> VcpuAction {
        match self.state.after(event) {
            Ok((state, action)) => {
                self.state = state;
                action
            }
            Err(why) => halt::impossible(why.reason()),
        }
    }

    /// Makes the vCPU, which is off, ready to start at `entry` with `x0`, because of `event`.
    /// Called on core `core`.
    pub fn come_on(&mut self, event: VcpuEvent, core: CoreId, entry: u64, x0: u64) {
        self.befall(event);
        let vcpu_ref = self.vcpu_ref;
        // SAFETY: called on the vCPU's core, which has no other reference to the context.
        unsafe { *vcpu_ref.vm.context(vcpu_ref.vcpu) = GuestContext::reset(entry, x0) };
        self.since = timer::now_ns();
        self.fresh = true;
        if let Some(budget) = self.budget.as_mut() {
            budget.come_on(vcpu_ref, core);
        }
        lifecycle::started(vcpu_ref);
    }

    /// Turns off the vCPU, whose state is not on the core. Called on core `core`.
    pub fn go_off(&mut self, core: CoreId) {
        ending::parked(self.vcpu_ref, core);
        // Done last: a core that ends the VM from here on sees that this vCPU is off.
        self.befall(VcpuEvent::TurnedOff { leads: leads(self.vcpu_ref) });
    }

    /// Returns whether the memory budget of the vCPU, whose state is not on the core, holds it back
    /// at `now`. If so, lowers `wake`, the earliest time at which a vCPU becomes ready, to the time
    /// at which the budget must be asked again.
    fn is_held(&mut self, core: CoreId, now: u64, wake: &mut u64) -> bool {
        let Some(budget) = self.budget.as_mut() else { return false };
        match self.state {
            VcpuState::Ready | VcpuState::Throttled => {}
            // The load at the system's start is not charged to a budget.
            VcpuState::Loading if budget.is_loading() => {}
            _ => return false,
        }
        if budget.is_off() {
            budget.come_on(self.vcpu_ref, core);
        }
        if budget.holds() && now >= budget.deadline {
            budget.step(self.vcpu_ref, core, now, BudgetEvent::Descheduled);
        }
        if budget.holds() {
            *wake = budget.deadline.min(*wake);
        }
        budget.holds()
    }
}

/// The events that other cores left for a vCPU.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Whether there are SGIs for it.
    sgis: bool,
    /// Whether its interrupts were changed in the distributor.
    changes: bool,
}

/// The vCPUs of a core.
pub struct CoreSchedule {
    /// The schedule of a core that several VMs share; `None` on a core with at most one vCPU.
    pub shared: Optional<ReadySchedule, { Features::SHARED_CORES.is_built() }>,
    members: [Option<Member>; MAX_VMS],
    /// The member whose state is on the core.
    pub current: Option<u8>,
    /// Admission rules of the device interrupts of the core.
    pub rules: shared::Rules,
    /// The vCPU that had the core last, encoded as in `Kind::VcpuSwitch`.
    pub last: u32,
    /// Whether it was recorded that the core is free, and no guest has had the core since then.
    pub is_free: bool,
    /// Time at which EL2 began to handle an event that takes the core from its vCPU, in ticks; 0 if
    /// there is none.
    pub began: u64,
    /// Latest time at which the schedule must be asked again, in ns.
    pub until: u64,
    /// Whether the set of vCPUs that want the core has changed.
    pub stale: bool,
    /// The entities, other than the current vCPU, on behalf of which EL2 runs now.
    pub account: Ready,
}

impl CoreSchedule {
    /// Creates the schedule of core `core`.
    fn new(core: CoreId) -> Option<Self> {
        let shared = Optional::new(system::get().shared(core.index()));
        let mut members = [const { None }; MAX_VMS];
        let add = |place: &mut Option<Member>, vcpu_ref: &'static VcpuRef| {
            let state = if vcpu_ref.vcpu == 0 { VcpuState::Loading } else { VcpuState::Off };
            *place = Some(Member {
                vcpu_ref,
                state,
                progress: Progress::default(),
                since: 0,
                budget: budget::Handle::NONE,
                fresh: true,
                called: Calls::default(),
                wakes: Signaling::ALL,
            });
        };
        if let Some(shared) = shared.as_ref() {
            for (place, vm) in members.iter_mut().zip(shared.vms()) {
                add(place, vm::at((*vm).into()).and_then(|vm| vcpu_on(vm, core))?);
            }
        } else {
            members
                .iter_mut()
                .zip(vm::vcpus_of_core(core).take(1))
                .for_each(|(place, vcpu_ref)| add(place, vcpu_ref));
        }
        Some(Self {
            rules: shared::rules(&members, shared.is_some()),
            shared,
            members,
            current: None,
            last: outgoing(NO_VM, 0),
            is_free: false,
            began: 0,
            until: 0,
            stale: true,
            account: Ready::NONE,
        })
    }

    /// Starts the memory budgets of the vCPUs that have one. Called on core `core`.
    pub fn start_budgets(&mut self, core: CoreId) {
        for (place, member) in self.members.iter_mut().flatten().enumerate() {
            member.budget = budget::start(core, place, member.vcpu_ref);
            if let Some(budget) = member.budget.as_mut() {
                budget.leave(core);
            }
        }
    }

    /// Returns the vCPU of entity `entity`.
    pub fn member(&mut self, entity: u8) -> Option<&mut Member> {
        self.members.get_mut(usize::from(entity))?.as_mut()
    }

    /// Returns the vCPU whose state is on the core.
    #[inline(always)]
    pub fn resident(&mut self) -> Option<&mut Member> {
        let entity = self.current?;
        self.member(entity)
    }

    /// Returns the only vCPU of a core that has one vCPU.
    #[inline(always)]
    pub fn only(&mut self) -> Option<&mut Member> {
        self.members.first_mut()?.as_mut()
    }

    /// Returns all vCPUs, with their indices.
    pub fn members(&mut self) -> impl Iterator<Item = (u8, &mut Member)> {
        self.members.iter_mut().flatten().enumerate().map(|(place, it)| (place as u8, it))
    }

    /// Decides which entity has the core at `now`. `held` states whether the memory budget of the
    /// current vCPU is spent.
    pub fn decide(&mut self, core: CoreId, now: u64, held: bool) -> Option<u8> {
        let (ready, wake) = self.ready(core, now, held);
        self.stale = false;
        if self.shared.is_some() {
            return self.choose(now, ready, wake);
        }
        self.until = wake;
        ready.has(0).then_some(0)
    }

    /// Returns which entities want the core at `now`, and the time at which the next waiting entity
    /// wants it.
    fn ready(&mut self, core: CoreId, now: u64, held: bool) -> (Ready, u64) {
        let (mut ready, mut wake) = (Ready::NONE, u64::MAX);
        let current = self.current.map(usize::from);
        for (place, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { break };
            let is_current = current == Some(place);
            // Most vCPUs take this path: they want the core, and have no budget, or their budget is
            // on the core and not spent.
            if let VcpuState::Ready | VcpuState::Running = member.state
                && member.budget.is_none()
                && !(is_current && held)
            {
                ready = ready.with(place as u8);
                continue;
            }
            // On a core of its own, the budget of a vCPU that is off is given to other vCPUs in
            // each period. On a shared core it is not, because that would interrupt the other
            // vCPUs.
            if let Some(budget) = member.budget.as_mut()
                && budget.is_off()
                && self.shared.is_none()
            {
                if now >= budget.deadline {
                    budget.step(member.vcpu_ref, core, now, BudgetEvent::Descheduled);
                }
                wake = wake.min(budget.deadline);
            }
            if let Some(Nanos(due)) = member.state.due() {
                if due > now {
                    wake = wake.min(due);
                    continue;
                }
                if let VcpuState::Waiting { .. } = member.state {
                    member.since = member.since.max(due);
                }
                member.befall(VcpuEvent::Due);
                self.account = self.account.with(place as u8);
            }
            let held = if is_current { held } else { member.is_held(core, now, &mut wake) };
            match (member.state, held) {
                (VcpuState::Ready | VcpuState::Running, true) => {
                    member.befall(VcpuEvent::Spent);
                }
                (VcpuState::Throttled, false) => {
                    member.befall(VcpuEvent::Replenished);
                }
                // EL2 spends the budget on behalf of the vCPU.
                (VcpuState::Loading, true) => continue,
                _ => {}
            }
            if member.state.wants_core() {
                ready = ready.with(place as u8);
            }
        }
        (ready, wake)
    }

    /// Makes ready the vCPUs off the core that wait and have something to handle.
    pub fn rouse(&mut self) {
        let current = self.current.map(usize::from);
        for (place, member) in self.members.iter_mut().flatten().enumerate() {
            if let VcpuState::Waiting { .. } = member.state
                && current != Some(place)
                && is_called(member.vcpu_ref, member.wakes)
            {
                member.befall(VcpuEvent::Called);
                member.since = timer::now_ns();
                self.stale = true;
            }
        }
    }
}

/// The schedules of the cores. They are not part of the per-core data, which must stay small so
/// that one instruction reaches each of its fields.
static SCHEDULES: [CoreLocal<MaybeUninit<CoreSchedule>>; MAX_CORES] =
    [const { CoreLocal(UnsafeCell::new(MaybeUninit::uninit())) }; MAX_CORES];

/// Creates the schedule of core `core`. Called once on that core. Not inlined, so that its stack
/// frame does not stay on the stack.
#[inline(never)]
pub fn of_core(core: CoreId) -> Option<&'static mut CoreSchedule> {
    // SAFETY: each core calls this once, and no other code accesses its element.
    let place = unsafe { &mut *SCHEDULES[core.index() % MAX_CORES].0.get() };
    CoreSchedule::new(core).map(|schedule| place.write(schedule))
}

/// Returns whether a vCPU that is off its core has an interrupt that ends its wait, or must check
/// for one because other vCPUs of its VM have changed something. Of the vCPU's pending interrupts,
/// those that `wakes` signals end the wait.
pub fn is_called(vcpu_ref: &VcpuRef, wakes: Signaling) -> bool {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    if !vm.sgis.is_empty(vcpu) {
        return true;
    }
    let gic = vm.gic.lock();
    gic.is_wanted(vcpu) || gic.has_pending(vcpu, wakes)
}

/// Returns whether a vCPU that is off is the first vCPU of a VM that is stopping: the remaining
/// work is done in its time.
#[must_use]
pub fn leads(vcpu_ref: &VcpuRef) -> bool {
    vcpu_ref.vcpu == 0 && ending::is_ending(vcpu_ref.vm)
}
