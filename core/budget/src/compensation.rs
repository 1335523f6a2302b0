use crate::word::Word;
use crate::{
    BudgetVerdict, Counts, Event, GroupBudget, Refused, Regulate, Setting, clock::Clock,
    group::GroupWords, setting::VcpuShare,
};
use core::num::NonZeroU32;
use weir_units::Nanos;

/// A budget that grows by the budget that a critical VM left unused (xen-throttling, III-C).
///
/// In a period in which the critical VM makes A accesses, at most A accesses of another VM can
/// delay it. So of the Q accesses that were granted to this vCPU, Q - A had no effect, and they are
/// granted again, in each later period of the same window of N periods:
///
/// ```text
/// limit(j) := count + Q + credit(j)        credit(0) := 0, in the first of N periods
///
///                 credit(j) + Q - A(j)         if A(j) <= Q
/// credit(j+1) :=  credit(j) - (U(j) - Q)+      if A(j) > Q, where U(j) was used
/// ```
///
/// As long as A stays below Q, this is the sum in III-C. The second line is not in the paper, whose
/// windows are two periods long: with three periods and A = 0, 2Q, 2Q, the sum alone would let the
/// critical VM suffer 0 + 2Q + 2Q, which is more than 3Q.
///
/// The critical VM's regulators publish A(j) at the end of period j, on their own cores. Until all
/// of them have, A(j) counts as more than Q; this regulator reads it again when its budget is
/// spent. It gives up an A(j) that is not published by the end of period j + 1.
///
/// **Bound.** In a window the critical VM suffers, as the sum of min(A(j), U(j)), at most N Q from
/// each VM that compensates it and for each of the two counters, plus one overshoot (without debt
/// one for each period). The regulated VM itself uses at most N (N + 1) / 2 Q in a window. With
/// [`super::BudgetScope::Vm`], Q is the VM's, and each vCPU is granted its share of Q - A.
#[derive(Clone, Debug)]
pub struct Compensation {
    clock: Clock,
    share: VcpuShare,
    debt: bool,
    /// The Q of the VM, or of each vCPU.
    whole: Counts,
    /// This vCPU's Q.
    budget: Counts,
    window: NonZeroU32,
    critical_vcpus: u8,
    period: u64,
    /// The count at which this period's budget began: the counts at its beginning, minus the debt.
    base: Counts,
    limit: Counts,
    credit: Counts,
    /// The previous period, while its A is not known.
    open: Option<Open>,
    /// Whether the budget was changed, which begins a new window.
    changed: bool,
}

/// A period whose A is not known yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    period: u64,
    /// The credit that its use beyond Q has cost, which is correct if A > Q.
    taken: Counts,
}

impl Compensation {
    /// Returns the regulator that `setting` describes.
    #[must_use]
    pub const fn new(setting: &Setting) -> Self {
        let share = setting.vcpu_share();
        Self {
            clock: Clock::new(setting),
            share,
            debt: setting.debt,
            whole: setting.budget,
            budget: share.of(setting.budget),
            window: match NonZeroU32::new(setting.window) {
                Some(window) => window,
                None => NonZeroU32::MIN,
            },
            // There is no critical VM.
            critical_vcpus: if setting.critical_vcpus == 0 {
                u8::MAX
            } else {
                setting.critical_vcpus
            },
            period: 0,
            base: Counts::ZERO,
            limit: Counts::NEVER,
            credit: Counts::ZERO,
            open: None,
            changed: false,
        }
    }

    /// Sets the budget, see [`super::Regulator::set_budget`]. Begins a new window with the next
    /// period.
    ///
    /// # Errors
    ///
    /// Returns an error if the budget gives this vCPU nothing; the old budget stays.
    pub const fn set_budget(&mut self, budget: Counts) -> Result<(), Refused> {
        let own = self.share.of(budget);
        if own.is_nothing() {
            return Err(Refused::NoBudget);
        }
        self.whole = budget;
        self.budget = own;
        self.changed = true;
        Ok(())
    }
}

impl Compensation {
    fn begin<W: Word>(&mut self, group: &GroupWords<W>, now: Nanos, counts: Counts, passed: u64) {
        let last = core::mem::replace(&mut self.period, self.clock.index(now));
        let unseen = self.budget.times(passed.saturating_sub(1));
        let base = if self.debt { counts.least(self.limit.plus(unseen)) } else { counts };
        let window = u64::from(self.window.get());
        let same_window = last / window == self.period / window;
        if passed == 1 && last != 0 && same_window && !self.changed {
            self.settle(group);
            let used = base.minus(self.base);
            let taken = used.minus(self.budget).least(self.credit);
            self.credit = self.credit.minus(taken);
            self.open = Some(Open { period: last, taken });
        } else {
            self.credit = Counts::ZERO;
            self.open = None;
            self.changed = false;
        }
        self.base = base;
        self.limit = base.plus(self.budget).plus(self.credit);
        self.settle(group);
    }

    /// Adds the credit of the open period, if its A is known by now.
    fn settle<W: Word>(&mut self, group: &GroupWords<W>) {
        let Some(Open { period, taken }) = self.open else { return };
        let Some(critical) = group.usage.total(self.critical_vcpus, period) else { return };
        self.open = None;
        let gain = |whole: u64, critical: u64, taken: u64| {
            whole
                .checked_sub(critical)
                .map_or(0, |unused| self.share.of_count(unused).saturating_add(taken))
        };
        let gain = Counts {
            reads: gain(self.whole.reads, critical.reads, taken.reads),
            writes: gain(self.whole.writes, critical.writes, taken.writes),
        };
        self.credit = self.credit.plus(gain);
        self.limit = self.limit.plus(gain);
    }

    pub(super) fn step_on<W: Word>(
        &mut self,
        group: &GroupWords<W>,
        now: Nanos,
        counts: Counts,
    ) -> BudgetVerdict {
        let passed = self.clock.passed(now);
        if passed != 0 {
            self.begin(group, now, counts, passed);
        }
        if counts.reached(self.limit) && !self.changed {
            self.settle(group);
        }
        BudgetVerdict::judge(counts, self.limit)
    }
}

impl Regulate for Compensation {
    #[inline]
    fn step(&mut self, group: &GroupBudget, now: Nanos, counts: Counts, _: Event) -> BudgetVerdict {
        self.step_on(&group.0, now, counts)
    }
}
