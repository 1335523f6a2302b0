//! Memory-budget regulators: how many accesses a vCPU may make in a period, and how its unused
//! budget is used. The hypervisor and the simulator run this code.
//!
//! Every operation is bounded, and none panics, overflows or allocates.
//!
//! A *driver* (the hypervisor, or the simulator) has one [`Regulator`] for each regulated vCPU and
//! one [`GroupBudget`] for each VM and for MemGuard's domain. It passes to the regulator the event
//! ([`Event`]), the time, and the values of the vCPU's counters. The [`BudgetVerdict`] states
//! whether the vCPU may run and at which counts the driver must ask again.
//!
//! The driver must raise these events and keep these rules:
//! - [`Event::Start`] once, at boot, never at a VM's restart; a second one is treated as a
//!   [`Event::Count`].
//! - [`Event::Period`] at each boundary of the setting's [`Periods`], also for a vCPU that is
//!   suspended.
//! - [`Event::Stop`] when the vCPU goes off, and at each boundary while it is off; [`Event::Count`]
//!   before it runs again.
//! - [`Event::Count`] when a counter reached the limit, when it was polled, and when the
//!   [`BudgetVerdict::wake`] of another vCPU requests it; the wake-up must not arrive before the
//!   stores of that vCPU's step. For a vCPU that does not have its core, [`Event::Descheduled`]
//!   instead.
//! - Counts never decrease, and each regulator gets the [`GroupBudget`] that [`RegulatorKind`]
//!   names.
//!
//! The time determines the effect, not the event's name: the first event at or after a boundary
//! replenishes the budget, and a `Period` that comes early or twice replenishes nothing. Below, *a
//! period* of a vCPU lies between two such steps, and the *overshoot* is the number of accesses
//! between reaching a limit and being suspended: the latency of an interrupt, or the interval of a
//! poll.
//!
//! ```
//! use weir_units::Nanos;
//! use weir_budget::Counts;
//! use weir_budget::Event;
//! use weir_budget::Regulate;
//! use weir_budget::Regulator;
//! use weir_budget::Setting;
//! use weir_budget::GroupBudget;
//!
//! static GROUP: GroupBudget = GroupBudget::new();
//! let setting = Setting::new(Nanos(1_000_000), Counts::one(4000), 0, 1);
//! setting.check()?;
//! let mut regulator = Regulator::new(&setting);
//! let mut step = |now, reads, event| {
//!     regulator.step(&GROUP, Nanos(now), Counts { reads, writes: 0 }, event)
//! };
//! assert_eq!(step(0, 0, Event::Start).limit.reads, 4000);
//! // Two accesses were under way when the interrupt came. The next budget is smaller by them.
//! assert!(!step(700_000, 4002, Event::Count).run);
//! assert_eq!(step(1_000_000, 4002, Event::Period).limit.reads, 8000);
//! # Ok::<(), weir_budget::Refused>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod clock;
mod compensation;
mod counts;
mod fixed;
mod group;
mod memguard;
mod periods;
mod pool;
mod setting;
mod word;

pub use compensation::Compensation;
pub use counts::Counts;
pub use fixed::Static;
pub use group::GroupBudget;
pub use memguard::Memguard;
pub use periods::Periods;
pub use pool::Pool;
pub use setting::{BudgetScope, MAX_VCPUS, Refused, RegulatorKind, Setting};

use weir_units::Nanos;

/// An event of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The machine starts to run.
    Start,
    /// A boundary between periods has passed, possibly earlier, possibly several at once: the time
    /// determines how many.
    Period,
    /// A counter has reached the limit, or was polled; a polled counter may be below the limit.
    Count,
    /// The same as `Count`, for a vCPU that does not have the core because another vCPU took it. It
    /// does not ask to be woken, because that would interrupt the other vCPU.
    Descheduled,
    /// The vCPU has nothing to run or is off. Its remaining budget may go to others.
    Stop,
}

/// The decision about a vCPU from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetVerdict {
    /// Whether the vCPU may run. If not, it stays suspended until a later step decides otherwise;
    /// without a [`BudgetVerdict::wake`] from another vCPU that is the step of the next period.
    pub run: bool,
    /// The cumulative counts at which to ask again, whichever is reached first; `u64::MAX` means
    /// never.
    pub limit: Counts,
    /// The suspended vCPUs of this [`GroupBudget`] for which budget has become free, by
    /// [`Setting::member_bit`]: step them with [`Event::Count`]. If a driver does not do so, they
    /// stay suspended until their next period, which costs throughput but violates no bound. All
    /// verdicts of a period together name a vCPU at most once, with [`Setting::spare`] at most
    /// twice.
    pub wake: u32,
}

impl BudgetVerdict {
    const fn run_until(limit: Counts) -> Self {
        Self { run: true, limit, wake: 0 }
    }

    const fn suspend() -> Self {
        Self { run: false, limit: Counts::NEVER, wake: 0 }
    }

    /// Lets the vCPU run while none of `counts` has reached `limit`.
    #[inline]
    const fn judge(counts: Counts, limit: Counts) -> Self {
        if counts.reached(limit) { Self::suspend() } else { Self::run_until(limit) }
    }
}

/// The only operation of a regulator.
pub trait Regulate {
    /// Processes `event` at `now`, with the vCPU's counters at `counts`, and decides.
    fn step(
        &mut self,
        group: &GroupBudget,
        now: Nanos,
        counts: Counts,
        event: Event,
    ) -> BudgetVerdict;
}

/// The regulator of one vCPU.
#[derive(Clone, Debug)]
pub enum Regulator {
    /// See [`Static`].
    Static(Static),
    /// See [`Pool`].
    Pool(Pool),
    /// See [`Memguard`].
    Memguard(Memguard),
    /// See [`Compensation`].
    Compensation(Compensation),
}

impl Regulator {
    /// Returns the regulator that `setting` describes. For a setting that [`Setting::check`]
    /// refuses, the regulator is safe but useless.
    #[must_use]
    pub const fn new(setting: &Setting) -> Self {
        match setting.kind {
            RegulatorKind::Static => Self::Static(Static::new(setting)),
            RegulatorKind::Pool => Self::Pool(Pool::new(setting)),
            RegulatorKind::Memguard => Self::Memguard(Memguard::new(setting)),
            RegulatorKind::Compensation => Self::Compensation(Compensation::new(setting)),
        }
    }

    /// Changes the budget (with the meaning of [`Setting::budget`]) from the next period on. A
    /// budget of the VM must be changed for each of its vCPUs.
    ///
    /// # Errors
    ///
    /// Returns an error if [`Setting::check`] would refuse the budget; the old budget stays.
    pub const fn set_budget(&mut self, budget: Counts) -> Result<(), Refused> {
        match self {
            Self::Static(regulator) => regulator.set_budget(budget),
            Self::Pool(regulator) => regulator.set_budget(budget),
            Self::Memguard(regulator) => regulator.set_budget(budget),
            Self::Compensation(regulator) => regulator.set_budget(budget),
        }
    }
}

impl Regulator {
    /// Returns whether this is a static budget of reads only, with debt, of a vCPU that publishes
    /// nothing; then [`Self::next_period`] can be used. This never changes.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!(self, Self::Static(regulator) if regulator.is_plain())
    }

    /// Does the step at `now`, with the counter of the vCPU of a [plain](Self::is_plain) regulator
    /// at `reads`, if it is the first step of the next period and the vCPU may run. Returns the
    /// count of reads at which to ask again, and the end of the period. Returns none and changes
    /// nothing if another step is needed.
    #[inline]
    pub const fn next_period(&mut self, now: Nanos, reads: u64) -> Option<(u64, Nanos)> {
        match self {
            Self::Static(regulator) => regulator.next_period(now, reads),
            _ => None,
        }
    }
}

impl Regulate for Regulator {
    #[inline]
    fn step(
        &mut self,
        group: &GroupBudget,
        now: Nanos,
        counts: Counts,
        event: Event,
    ) -> BudgetVerdict {
        match self {
            Self::Static(regulator) => regulator.step(group, now, counts, event),
            Self::Pool(regulator) => regulator.step(group, now, counts, event),
            Self::Memguard(regulator) => regulator.step(group, now, counts, event),
            Self::Compensation(regulator) => regulator.step(group, now, counts, event),
        }
    }
}
