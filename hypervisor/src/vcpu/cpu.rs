//! The cores: the state that each core keeps for itself.

use super::schedule::{self, CoreSchedule, Member};
use crate::{
    arch::{gic, pmu::granted::VirtualPmu, sysreg, timer},
    budget,
    console::{self, Wire},
    optional::Optional,
    report::Report,
    vm::{self, VcpuRef},
};
use core::cell::UnsafeCell;
use weir_abi::{Features, MAX_CORES};
use weir_units::{CoreId, IntId};
use weir_vdev::smccc::Mitigations;

/// The state that a core keeps for itself.
pub struct Core {
    /// The core's number, as the platform counts.
    pub id: CoreId,
    /// The core's only vCPU; `None` on a core that several vCPUs share, or that has none.
    pub sole: Option<&'static VcpuRef>,
    /// The vCPU whose state is on the core.
    pub current: Option<&'static VcpuRef>,
    /// The core's vCPUs, and which of them runs.
    pub schedule: Option<&'static mut CoreSchedule>,
    /// Whether the interrupts of guests are held back by their priority.
    pub holds_guests: bool,
    /// An interrupt that was acknowledged on the fast path and is handled on the slow one.
    pub acknowledged: u64,
    /// The board's UART, on the console core.
    pub wire: Option<Wire<Report>>,
    /// The mitigations of speculation attacks that the firmware offers.
    pub mitigations: Mitigations,
    /// The periodic report of the counters, which the core's own timer starts.
    pub heartbeat: Heartbeat,
    /// The memory budget of the vCPU that has the core.
    pub budget: budget::Handle,
    /// The vCPU's own PMU, if it was granted one.
    pub pmu: Optional<VirtualPmu, { Features::BUDGETS.is_built() }>,
    /// The interrupt of the PMU if only the memory budget uses the PMU.
    pub budget_intid: IntId,
}

impl Core {
    /// Sets the core's vCPUs. Called once, when the VMs are known.
    pub fn connect(&mut self) {
        self.schedule = schedule::of_core(self.id);
        let shares = self.schedule.as_deref().is_some_and(|its| its.shared.is_some());
        self.sole = vm::vcpus_of_core(self.id).next().filter(|_| !shares);
    }

    /// Returns whether several vCPUs can run here.
    #[inline(always)]
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        Features::SHARED_CORES.is_built() && self.sole.is_none()
    }

    /// Returns the schedule's entry of the vCPU whose state is on the core.
    #[inline(always)]
    pub fn resident(&mut self) -> Option<&mut Member> {
        self.schedule.as_deref_mut()?.resident()
    }

    /// Returns the schedule's entry of the only vCPU of a core that is not shared.
    #[inline(always)]
    pub fn only(&mut self) -> Option<&mut Member> {
        self.schedule.as_deref_mut()?.only()
    }

    /// Returns whether the memory budget of the current vCPU is spent.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.holds())
    }

    /// Returns whether the counters must be reported at `now`. If so, starts that report and
    /// schedules the next one.
    #[inline(always)]
    pub fn beats(&mut self, now: u64) -> bool {
        let due = now >= self.heartbeat.next;
        if due {
            self.heartbeat.next = now + self.heartbeat.period_ns;
            console::begin_report();
        }
        due
    }

    /// Arms the core's own timer for the earliest event that is due.
    #[inline(always)]
    pub fn arm(&self) {
        self.arm_before(u64::MAX);
    }

    /// Arms the core's own timer for the earliest event that is due, or for `due` if that is
    /// earlier.
    #[inline(always)]
    pub fn arm_before(&self, due: u64) {
        let budget = self.budget.as_ref().map_or(u64::MAX, |budget| budget.deadline);
        timer::fire_at(budget.min(self.heartbeat.next).min(due));
    }
}

/// The schedule of the reports of the counters, which the console core makes.
pub struct Heartbeat {
    /// Nanoseconds from one report to the next.
    pub period_ns: u64,
    /// Time at which the next report is due, in ns; `u64::MAX` for never.
    pub next: u64,
}

struct Local(UnsafeCell<Core>);

// SAFETY: only core `n` uses element `n`: `claim` is called once there, and passes the only
// reference to the exception vectors by TPIDR_EL2.
unsafe impl Sync for Local {}

static LOCAL: [Local; MAX_CORES] = [const {
    Local(UnsafeCell::new(Core {
        id: CoreId(0),
        sole: None,
        current: None,
        schedule: None,
        holds_guests: false,
        acknowledged: gic::NOTHING,
        wire: None,
        mitigations: Mitigations::NONE,
        heartbeat: Heartbeat { period_ns: 0, next: u64::MAX },
        budget: budget::Handle::NONE,
        pmu: Optional::NONE,
        budget_intid: gic::SPECIAL,
    }))
}; MAX_CORES];

/// Makes the calling core number `id` and returns its state.
///
/// # Safety
///
/// Called once on each core, with a number below [`MAX_CORES`] that no other core has.
pub unsafe fn claim(id: CoreId) -> &'static mut Core {
    let place = LOCAL[id.index() % MAX_CORES].0.get();
    // SAFETY: by the contract the element belongs to this core, and it is static.
    unsafe { sysreg::tpidr_el2::write(place as u64) };
    // SAFETY: by the contract this element has no other user.
    let core = unsafe { &mut *place };
    core.id = id;
    core
}
