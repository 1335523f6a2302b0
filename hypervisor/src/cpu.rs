//! The cores: what each keeps to itself.

use crate::{
    arch::{gic, pmu::granted::VirtualPmu, relax, sysreg, timer},
    budget::{self, Budget},
    console::{self, Wire},
    vcpu::{
        action::{Action, Exit},
        schedule::CoreSchedule,
    },
    vm::{VcpuRef, report::Report},
};
use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, Ordering},
};
use weir_abi::MAX_CORES;
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
    /// What a handler asked the run loop to do with the current vCPU.
    pub action: Option<Action>,
    /// The current vCPU waits for an interrupt, its state on the core.
    pub waits: bool,
    /// The interrupts of guests are held back by their priority.
    pub holds_guests: bool,
    /// An interrupt that was acknowledged on the fast path and is handled on the slow one.
    pub acknowledged: u64,
    /// The board's UART, on the console core.
    pub wire: Option<Wire>,
    /// What the firmware offers against speculation attacks.
    pub mitigations: Mitigations,
    /// What its own timer is for.
    pub ticks: Ticks,
    /// What is left of a report of the counters.
    pub report: Option<Report>,
    /// Counts what the vCPU that it runs takes of a memory budget.
    pub budget: Option<budget::Handle>,
    /// The vCPU's own PMU, if it was granted one.
    pub pmu: Option<VirtualPmu>,
    /// The interrupt of the PMU where only the budget uses that.
    pub budget_intid: IntId,
}

impl Core {
    /// Asks the run loop for `action`, unless another one was asked for.
    pub fn ask(&mut self, action: Action) -> Exit {
        self.action.get_or_insert(action);
        Exit::ACT
    }

    /// Whether the memory budget of the current vCPU is spent.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.budget.as_deref().is_some_and(Budget::holds)
    }

    /// QEMU only: yields at a tick so that other emulated cores run, then schedules the next tick.
    /// Returns whether a counter report is due. A core with a budget loses its turn whenever it
    /// arms its timer for a poll or a period, as nothing is due earlier. It gets the turn again
    /// until it had as long as this core has between two ticks.
    #[cold]
    #[inline(never)]
    pub fn give_turn(&mut self) -> bool {
        let now = clock_ns();
        // Relaxed: only the host reads it. Masked, so that no number can reach beyond.
        PROGRESS[self.id.index() % MAX_CORES].store(now, Ordering::Relaxed);
        console::announce_standstill();
        relax();
        let lent_ns = LENT_NS.load(Ordering::Relaxed);
        if lent_ns > 0 && self.budget.is_none() && self.current.is_some() {
            lend(now, lent_ns);
        }
        if self.ticks.tick(clock_ns()) {
            self.report.get_or_insert_default();
        }
        self.report.is_some()
    }

    /// Arms its own timer for what is due first.
    #[inline(always)]
    pub fn arm(&self) {
        self.arm_before(u64::MAX);
    }

    /// The same, or for `due`.
    #[inline(always)]
    pub fn arm_before(&self, due: u64) {
        let budget = self.budget.as_deref().map_or(u64::MAX, |budget| budget.deadline);
        timer::fire_at(budget.min(self.ticks.next).min(due));
    }
}

/// The time of each core's last tick. The host sees by them whether virtual time goes on.
#[unsafe(export_name = "weir_progress")]
static PROGRESS: [AtomicU64; MAX_CORES] = [const { AtomicU64::new(0) }; MAX_CORES];

/// Nanoseconds that others get of a turn that a tick ends, however often they lose it; 0 unless a
/// VM has a memory budget. Apart from the cores' own data, so that no path of a budget loads it.
pub static LENT_NS: AtomicU64 = AtomicU64::new(0);

/// A turn that is given away and comes back this soon, in ns, was used by no core.
const UNUSED_NS: u64 = 100;

/// What a core's own timer is for, next to its budget: reports, on the console core, and under
/// QEMU's instruction counting to end a core's turn, which lasts until the next timer deadline.
pub struct Ticks {
    /// Nanoseconds from one tick to the next; 0 for none.
    pub interval_ns: u64,
    /// When the next tick is due; `u64::MAX` for never.
    pub next: u64,
    /// Nanoseconds from one report of the counters to the next; 0 for none.
    pub report_ns: u64,
    /// When the last report was due.
    pub reported: u64,
}

impl Ticks {
    /// Plans the first tick.
    pub fn start(&mut self, now: u64) {
        self.next = if self.interval_ns > 0 { now + self.interval_ns } else { u64::MAX };
    }

    /// Whether the counters are to be reported at `now`, when a tick was due.
    #[inline(always)]
    pub fn tick(&mut self, now: u64) -> bool {
        self.next = now + self.interval_ns;
        let due = self.report_ns > 0 && now.saturating_sub(self.reported) >= self.report_ns;
        if due {
            self.reported = now - now % self.report_ns;
        }
        due
    }
}

/// The time, read in one place: the paths that a budget's figures are of keep what was inlined into
/// them.
#[inline(never)]
fn clock_ns() -> u64 {
    timer::now_ns()
}

/// Gives the turn away until others have had it for `lent_ns` from `now` on, or do not use it.
fn lend(now: u64, lent_ns: u64) {
    let (mut unused, mut before) = (0, now);
    loop {
        let after = clock_ns();
        // A short one may be that of a core between two steps at EL2.
        unused = if after - before < UNUSED_NS { unused + 1 } else { 0 };
        if unused == 4 || after - now >= lent_ns {
            return;
        }
        before = after;
        relax();
    }
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
        action: None,
        waits: false,
        holds_guests: false,
        acknowledged: gic::NOTHING,
        wire: None,
        mitigations: Mitigations::NONE,
        ticks: Ticks { interval_ns: 0, next: u64::MAX, report_ns: 0, reported: 0 },
        report: None,
        budget: None,
        pmu: None,
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
