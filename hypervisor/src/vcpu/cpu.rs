//! The cores: what each keeps to itself.

use super::schedule::{self, CoreSchedule, Member};
use crate::{
    arch::{gic, pmu::granted::VirtualPmu, sysreg, timer},
    budget,
    console::Wire,
    optional::Optional,
    report::Report,
    vm::{self, VcpuRef},
};
use core::cell::UnsafeCell;
use weir_abi::{Features, MAX_CORES};
use weir_units::{CoreId, IntId};
use weir_vdev::smccc::Mitigations;

/// What a core keeps to itself.
pub struct Core {
    /// Its number, as the platform counts.
    pub id: CoreId,
    /// Its only vCPU; `None` on a core that several share, or that has none.
    pub sole: Option<&'static VcpuRef>,
    /// The vCPU with its state on the core.
    pub current: Option<&'static VcpuRef>,
    /// Its vCPUs, and which of them has it.
    pub schedule: Option<&'static mut CoreSchedule>,
    /// The interrupts of guests are held back by their priority.
    pub holds_guests: bool,
    /// An interrupt that was acknowledged on the fast path and is handled on the slow one.
    pub acknowledged: u64,
    /// The board's UART, on the console core.
    pub wire: Option<Wire>,
    /// What the firmware offers against speculation attacks.
    pub mitigations: Mitigations,
    /// What its own timer is for.
    pub heartbeat: Heartbeat,
    /// What is left of a report of the counters.
    pub report: Option<Report>,
    /// Counts what the vCPU that it runs takes of a memory budget.
    pub budget: budget::Handle,
    /// The vCPU's own PMU, if it was granted one.
    pub pmu: Optional<VirtualPmu, { Features::BUDGETS.is_built() }>,
    /// The interrupt of the PMU where only the budget uses that.
    pub budget_intid: IntId,
}

impl Core {
    /// Gives it its vCPUs; once, when the VMs are known.
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

    /// The vCPU with its state on the core, as its schedule knows it.
    #[inline(always)]
    pub fn resident(&mut self) -> Option<&mut Member> {
        self.schedule.as_deref_mut()?.resident()
    }

    /// The only vCPU, as its schedule knows it, on a core that it does not share.
    #[inline(always)]
    pub fn only(&mut self) -> Option<&mut Member> {
        self.schedule.as_deref_mut()?.only()
    }

    /// Whether the memory budget of the current vCPU is spent.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.holds())
    }

    /// Whether the counters are to be reported at `now`. Plans the next report then.
    #[inline(always)]
    pub fn beats(&mut self, now: u64) -> bool {
        let due = now >= self.heartbeat.next;
        if due {
            self.heartbeat.next = now + self.heartbeat.period_ns;
            self.report.get_or_insert_default();
        }
        due
    }

    /// Arms its own timer for what is due first.
    #[inline(always)]
    pub fn arm(&self) {
        self.arm_before(u64::MAX);
    }

    /// The same, or for `due`.
    #[inline(always)]
    pub fn arm_before(&self, due: u64) {
        let budget = self.budget.as_ref().map_or(u64::MAX, |budget| budget.deadline);
        timer::fire_at(budget.min(self.heartbeat.next).min(due));
    }
}

/// The reports of the counters, which the console core makes.
pub struct Heartbeat {
    /// Nanoseconds from one report to the next.
    pub period_ns: u64,
    /// When the next report is due; `u64::MAX` for never.
    pub next: u64,
}

struct Local(UnsafeCell<Core>);

// SAFETY: element `n` is used by core `n` alone: `claim` is called there once, and hands the only
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
        report: None,
        budget: budget::Handle::NONE,
        pmu: Optional::NONE,
        budget_intid: gic::SPECIAL,
    }))
}; MAX_CORES];

/// Makes the calling core number `id` and gives it its own.
///
/// # Safety
///
/// Called once on each core, with a number below [`MAX_CORES`] that no other core has.
pub unsafe fn claim(id: CoreId) -> &'static mut Core {
    let place = LOCAL[id.index() % MAX_CORES].0.get();
    // SAFETY: the element is this core's by the contract, and is there for good.
    unsafe { sysreg::tpidr_el2::write(place as u64) };
    // SAFETY: by the contract this element has no other user.
    let core = unsafe { &mut *place };
    core.id = id;
    core
}
