//! The driver of a vCPU's regulator: what `budget.rs` of the hypervisor is on a board.

use crate::outcome::BudgetOutcome;
use weir_abi::regulation::{self, Regulation};
use weir_budget::BudgetVerdict;
use weir_budget::Counts;
use weir_budget::Event;
use weir_budget::GroupBudget;
use weir_budget::Periods;
use weir_budget::Regulate;
use weir_budget::Regulator;
use weir_budget::Setting;
use weir_memory::hierarchy::CoreTraffic;
use weir_units::Nanos;

/// What a core's counters can be set to count: the common events of the Armv8 PMU (DDI0487,
/// D11.11.2) that have to do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// MEM_ACCESS: loads and stores.
    Accesses,
    /// L2D_CACHE_REFILL: lines brought into the L2.
    Refills,
    /// L2D_CACHE_WB: lines written back from it.
    WriteBacks,
    /// BUS_ACCESS: both, in lines.
    Both,
}

impl Counter {
    /// The event of this number.
    pub fn of(number: u16) -> Option<Self> {
        Some(match number {
            0x13 => Self::Accesses,
            0x17 => Self::Refills,
            0x18 => Self::WriteBacks,
            0x19 => Self::Both,
            _ => return None,
        })
    }

    /// What each of a regulation's two budgets counts; a monitor counts lines at the memory.
    pub fn pair(regulation: &Regulation) -> Option<[Self; 2]> {
        let two = regulation.writes != u64::MAX;
        if regulation.source == regulation::COUNTER_PAGE {
            return Some([if two { Self::Refills } else { Self::Both }, Self::WriteBacks]);
        }
        let reads = Self::of(regulation.events[0])?;
        Some([reads, if two { Self::of(regulation.events[1])? } else { Self::WriteBacks }])
    }

    fn value(self, accesses: u64, traffic: CoreTraffic) -> u64 {
        match self {
            Self::Accesses => accesses,
            Self::Refills => traffic.refills,
            Self::WriteBacks => traffic.write_backs,
            Self::Both => traffic.refills + traffic.write_backs,
        }
    }
}

/// The memory budget of a regulated vCPU.
pub(crate) struct Budget {
    regulator: Regulator,
    counters: [Counter; 2],
    two: bool,
    pub periods: Periods,
    /// The index of its [`GroupBudget`] in the run.
    pub group: usize,
    /// Its bit in [`BudgetVerdict::wake`].
    pub member: u32,
    limit: Counts,
    /// Whether the vCPU may run.
    pub runs: bool,
    /// Whether an interrupt is on its way.
    pub called: bool,
    begun: Counts,
    /// When the present period ends.
    boundary: Nanos,
    stopped_at: Nanos,
    outcome: BudgetOutcome,
}

impl Budget {
    pub fn new(setting: &Setting, counters: [Counter; 2], group: usize) -> Self {
        let two = setting.budget.writes != u64::MAX;
        Self {
            regulator: Regulator::new(setting),
            counters,
            two,
            periods: setting.periods(),
            group,
            member: setting.member_bit(),
            limit: Counts::NEVER,
            runs: true,
            called: false,
            begun: Counts::ZERO,
            boundary: Nanos(0),
            stopped_at: Nanos(0),
            outcome: BudgetOutcome { period_ns: setting.period.0, ..BudgetOutcome::default() },
        }
    }

    /// The counts of its core.
    pub fn counts(&self, accesses: u64, traffic: CoreTraffic) -> Counts {
        let [reads, writes] = self.counters.map(|counter| counter.value(accesses, traffic));
        Counts { reads, writes: if self.two { writes } else { 0 } }
    }

    /// Whether its counters call for an interrupt that is not on its way yet.
    pub fn calls(&mut self, counts: Counts) -> bool {
        let calls = self.runs && !self.called && counts.reached(self.limit);
        self.called |= calls;
        calls
    }

    /// Asks the regulator; returns the vCPUs to step because of it, by [`Self::member`].
    pub fn step(&mut self, group: &GroupBudget, now: Nanos, counts: Counts, event: Event) -> u32 {
        let BudgetVerdict { run, limit, wake } = self.regulator.step(group, now, counts, event);
        if now >= self.boundary {
            if event != Event::Start {
                self.outcome.period_ended(counts.minus(self.begun));
            }
            self.boundary = self.periods.next(now);
            self.begun = counts;
            if run {
                self.outcome.begins(limit, counts);
            }
        }
        if self.runs && !run {
            self.outcome.throttled += 1;
            self.stopped_at = now;
        } else if run && !self.runs {
            self.outcome.stopped_ns += now.0 - self.stopped_at.0;
        }
        self.runs = run;
        self.limit = limit;
        self.called = false;
        wake
    }

    /// Forgets what it has counted for the report.
    pub fn clear(&mut self, now: Nanos) {
        let BudgetOutcome { period_ns, granted, .. } = self.outcome;
        self.outcome = BudgetOutcome { period_ns, granted, ..BudgetOutcome::default() };
        self.stopped_at = now;
    }

    /// The counts until now.
    pub fn finish(mut self, now: Nanos) -> BudgetOutcome {
        if !self.runs {
            self.outcome.stopped_ns += now.0 - self.stopped_at.0;
        }
        self.outcome
    }
}
