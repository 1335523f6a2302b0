use crate::word::Word;
use crate::{
    BudgetVerdict, Counts, Event, GroupBudget, Refused, Regulate, Setting, clock::Clock,
    group::GroupWords, setting::VcpuShare,
};
use weir_units::Nanos;

/// A budget of Q accesses in each period P, and no more (bao-throttling, Figure 4.1 and Algorithms
/// 1 to 3; xen-throttling, III-B).
///
/// ```text
///            limit := count + Q                          count reaches limit
/// Start ---------------------------> runs ------------------------------------> suspended
///                                    |  ^                                           |
///                             Period |  | limit := min(count + Q, limit + Q)        | Period
///                                    +--+<------------------------------------------+
/// ```
///
/// A limit that only grows needs no reset of a counter (Algorithm 1, step 3), and it includes the
/// debt: accesses beyond the limit are subtracted from the next budget. While a debt is larger than
/// a budget, the vCPU stays suspended for whole periods. Unused budget is lost.
///
/// **Bound.** In any k consecutive periods at most k Q accesses plus one overshoot; without debt k
/// Q plus k overshoots. If several boundaries are passed in one step, the periods in between pay
/// debts but provide no budget.
#[derive(Clone, Debug)]
pub struct Static {
    clock: Clock,
    share: VcpuShare,
    debt: bool,
    /// The budget of this vCPU.
    budget: Counts,
    /// The cumulative counts at which this period's budget is spent. They are below the counts at
    /// the period's start if a debt is larger than a budget.
    limit: Counts,
    publisher: Option<Publisher>,
}

impl Static {
    /// Returns the regulator that `setting` describes.
    #[must_use]
    pub const fn new(setting: &Setting) -> Self {
        let share = setting.vcpu_share();
        Self {
            clock: Clock::new(setting),
            share,
            debt: setting.debt,
            budget: share.of(setting.budget),
            limit: Counts::NEVER,
            publisher: Publisher::new(setting),
        }
    }

    /// Sets the budget, see [`super::Regulator::set_budget`].
    ///
    /// # Errors
    ///
    /// Returns an error if the budget gives this vCPU nothing; the old budget stays.
    pub const fn set_budget(&mut self, budget: Counts) -> Result<(), Refused> {
        let own = self.share.of(budget);
        if own.is_nothing() {
            return Err(Refused::NoBudget);
        }
        self.budget = own;
        Ok(())
    }

    /// Returns whether [`Self::next_period`] can be used, now and later.
    pub(super) const fn is_plain(&self) -> bool {
        self.debt && self.publisher.is_none() && self.budget.writes == u64::MAX
    }

    /// Begins the next period, see [`super::Regulator::next_period`].
    #[inline]
    pub(super) const fn next_period(&mut self, now: Nanos, reads: u64) -> Option<(u64, Nanos)> {
        let fresh = reads.saturating_add(self.budget.reads);
        let paid = self.limit.reads.saturating_add(self.budget.reads);
        let limit = if fresh < paid { fresh } else { paid };
        if reads >= limit {
            return None;
        }
        let Some(end) = self.clock.begin_next(now) else { return None };
        self.limit.reads = limit;
        Some((limit, end))
    }

    #[inline]
    pub(super) fn step_on<W: Word>(
        &mut self,
        group: &GroupWords<W>,
        now: Nanos,
        counts: Counts,
    ) -> BudgetVerdict {
        let passed = self.clock.passed(now);
        if passed != 0 {
            if let Some(publisher) = &mut self.publisher {
                publisher.publish(group, self.clock.index(now), counts);
            }
            let fresh = counts.plus(self.budget);
            self.limit = if self.debt {
                let paid = if passed == 1 { self.budget } else { self.budget.times(passed) };
                fresh.least(self.limit.plus(paid))
            } else {
                fresh
            };
        }
        BudgetVerdict::judge(counts, self.limit)
    }
}

impl Regulate for Static {
    #[inline]
    fn step(&mut self, group: &GroupBudget, now: Nanos, counts: Counts, _: Event) -> BudgetVerdict {
        self.step_on(&group.0, now, counts)
    }
}

/// Publishes the accesses that a vCPU of a critical VM made in each period.
#[derive(Clone, Debug)]
pub(super) struct Publisher {
    vcpu: u8,
    /// The counts at the beginning of this period; none before the start.
    opened: Option<Counts>,
}

impl Publisher {
    pub(super) const fn new(setting: &Setting) -> Option<Self> {
        if setting.publish { Some(Self { vcpu: setting.vcpu, opened: None }) } else { None }
    }

    /// Publishes the period before `period`. If several periods have passed since the last step,
    /// only the last of them is published, with the accesses of all: none of them can have had
    /// more, so no VM is compensated for accesses that were made.
    pub(super) fn publish<W: Word>(&mut self, group: &GroupWords<W>, period: u64, counts: Counts) {
        if let Some(opened) = self.opened.replace(counts) {
            group.usage.publish(self.vcpu, period.saturating_sub(1), counts.minus(opened));
        }
    }
}
