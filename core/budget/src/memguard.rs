use crate::word::Word;
use crate::{
    BudgetVerdict, Counts, Event, GroupBudget, Refused, Regulate, Setting,
    clock::Clock,
    group::{GroupWords, MAX_MEMBERS, Mark, Waiter},
    setting::{VcpuShare, or_default_slice, poolable},
};
use weir_units::Nanos;

/// A budget of Q accesses for each vCPU, which lends to the other vCPUs the part that it is not
/// expected to need (MemGuard, after bao-throttling 2.4.2).
///
/// All vCPUs with this regulator, of all VMs of the board, are one *domain* with one global pool
/// per period.
///
/// ```text
///             keeps need, gives Q - need              spent: draws a slice, or what it is owed
/// Start, Period ------------------------> runs <------------------------------------------> pool
///                                          |  ^                                              |
///         Stop: gives what is left --------+  |                                              | has nothing
///                                             | all have spent theirs, and `spare`           v
///                                             +--------------------------------------- suspended ---> Period
/// need := min(Q, max(1, keep, predicted) + debt)  predicted := predicted + (used - predicted) /
/// 2^smoothing
/// ```
///
/// *Misprediction.* A vCPU that is suspended although it used less than Q gave too much. In the
/// next period it gives nothing, and first draws the amount that it was short of; after that,
/// prediction continues from Q. MemGuard would let the vCPU run on up to Q at once, in addition to
/// vCPUs with a budget left; here the sum of the domain's budgets is never exceeded.
///
/// *Spare.* With [`Setting::spare`], when all vCPUs of the domain have spent their budgets and
/// found the pool empty, all of them run without a limit until their next period: best effort for
/// the domain, and no bound for others. A vCPU that is off has spent its budget by [`Event::Stop`].
///
/// **Bound** (without spare). The domain makes, in any k consecutive periods, at most k times the
/// sum of its budgets plus one overshoot for each vCPU; without debt k overshoots for each.
/// **Guarantee.** A vCPU that wants it gets Q (minus its debt) in each period, or falls short by at
/// most the amount that it gave at the beginning of the period, which is at most Q - keep, and then
/// not in the next period as well: in k periods by at most (k + 1) / 2 (rounded down) times that
/// amount. The amount that it gave at a Stop is not owed.
#[derive(Clone, Debug)]
pub struct Memguard {
    clock: Clock,
    share: VcpuShare,
    debt: bool,
    spare: bool,
    keep_percent: u8,
    smoothing: u8,
    /// Q, the vCPU's own budget.
    budget: Counts,
    /// The slice in the setting.
    slice: Counts,
    /// The vCPU's own view of the waiting vCPUs, with its bit.
    waiter: Waiter,
    /// The vCPUs of the domain, one bit each.
    members: u32,
    period: u64,
    /// The counts at the beginning of this period.
    opened: Counts,
    /// The cumulative counts up to which Q would reach in this period if nothing had been given.
    entitled: Counts,
    /// The cumulative counts up to which this vCPU has budget.
    limit: Counts,
    predicted: Counts,
    /// The amount by which the vCPU fell short in the last period and that it has not drawn yet.
    owed: Counts,
    /// Whether the vCPU gave away all that it had left in this period.
    stopped: bool,
}

impl Memguard {
    /// Returns the regulator that `setting` describes.
    #[must_use]
    pub const fn new(setting: &Setting) -> Self {
        let share = setting.vcpu_share();
        let budget = share.of(setting.budget);
        Self {
            clock: Clock::new(setting),
            share,
            debt: setting.debt,
            spare: setting.spare,
            keep_percent: if setting.keep_percent > 100 { 100 } else { setting.keep_percent },
            smoothing: if setting.smoothing > 63 { 63 } else { setting.smoothing },
            budget,
            slice: setting.slice,
            waiter: Waiter::new(setting.member_bit()),
            members: match setting.members {
                1..MAX_MEMBERS => (1 << setting.members) - 1,
                _ => u32::MAX,
            },
            period: 0,
            opened: Counts::ZERO,
            entitled: Counts::ZERO,
            limit: Counts::NEVER,
            predicted: budget,
            owed: Counts::ZERO,
            stopped: false,
        }
    }

    /// Sets the budget, see [`super::Regulator::set_budget`].
    ///
    /// # Errors
    ///
    /// Returns an error if the budget gives this vCPU nothing, or more than a pool holds; the old
    /// budget stays.
    pub const fn set_budget(&mut self, budget: Counts) -> Result<(), Refused> {
        let own = self.share.of(budget);
        match poolable(own) {
            Ok(()) => {
                self.budget = own;
                Ok(())
            }
            Err(refused) => Err(refused),
        }
    }

    fn begin<W: Word>(&mut self, group: &GroupWords<W>, now: Nanos, counts: Counts, passed: u64) {
        let started = self.period != 0;
        self.period = self.clock.index(now);
        if started {
            self.learn(counts);
        }
        let unseen = self.budget.times(passed.saturating_sub(1));
        let base = if self.debt { counts.least(self.limit.plus(unseen)) } else { counts };
        // At least one access is kept, by which the vCPU shows that it wants more.
        let kept = self.budget.percent(self.keep_percent).most(Counts { reads: 1, writes: 1 });
        let need = self.predicted.most(kept).plus(counts.minus(base));
        let gift = self.budget.minus(need).nothing_where_free(self.budget);
        let given = group.give(self.period, gift);
        self.opened = counts;
        self.entitled = base.plus(self.budget);
        self.limit = self.entitled.minus(given);
        self.stopped = false;
        let owed = self.owed;
        self.draw(group, owed);
    }

    /// Updates the prediction from this vCPU's use in the period that is over and from the amount
    /// that it was short of.
    fn learn(&mut self, counts: Counts) {
        let used = counts.minus(self.opened);
        let short = self.entitled.minus(self.limit).where_reached(counts, self.limit);
        let predict = |budget: u64, predicted: u64, used: u64| {
            let (predicted, used) = (predicted.min(budget), used.min(budget));
            let away = predicted.abs_diff(used);
            let step = away >> self.smoothing;
            // Rounded up, so that the prediction reaches the used amount.
            let step = if step << self.smoothing == away { step } else { step + 1 };
            if used > predicted { predicted + step } else { predicted - step }
        };
        self.predicted = if short == Counts::ZERO {
            Counts {
                reads: predict(self.budget.reads, self.predicted.reads, used.reads),
                writes: predict(self.budget.writes, self.predicted.writes, used.writes),
            }
        } else {
            self.budget
        };
        self.owed = if self.stopped { Counts::ZERO } else { short };
    }

    fn draw<W: Word>(&mut self, group: &GroupWords<W>, want: Counts) {
        let got = group.draw(self.period, Counts::ZERO, want.nothing_where_free(self.budget));
        self.limit = self.limit.plus(got).never_where_free(self.budget);
        self.owed = self.owed.minus(got);
    }

    /// Records that this vCPU has no budget left. Returns whether the same is true for all vCPUs of
    /// the domain, and whether that is new.
    fn spend<W: Word>(&self, group: &GroupWords<W>) -> Mark {
        if self.spare {
            group.spent.mark(self.period, self.waiter.member, self.members)
        } else {
            Mark::default()
        }
    }

    pub(super) fn step_on<W: Word>(
        &mut self,
        group: &GroupWords<W>,
        now: Nanos,
        counts: Counts,
        event: Event,
    ) -> BudgetVerdict {
        let passed = self.clock.passed(now);
        if passed != 0 {
            self.begin(group, now, counts, passed);
        }
        if event == Event::Stop {
            let left = self.limit.minus(counts).nothing_where_free(self.limit);
            let given = group.give(self.period, left);
            self.limit = self.limit.least(counts);
            self.stopped = true;
            self.waiter.withdraw(&group.waiting, self.period);
            let all = if given == Counts::ZERO { 0 } else { u32::MAX };
            let mut wake = group.waiting.take(self.period, all);
            if self.spare {
                group.throttled.take(self.period, self.waiter.member);
                let all = if self.spend(group).news { u32::MAX } else { 0 };
                wake |= group.throttled.take(self.period, all);
            }
            return BudgetVerdict { wake, ..BudgetVerdict::suspend() };
        }
        if counts.reached(self.limit) {
            let slice = or_default_slice(self.slice, self.budget, 1);
            self.draw(group, counts.missing(self.limit, slice.most(self.owed)));
            let asks = event != Event::Descheduled;
            if counts.reached(self.limit) && asks && self.waiter.ask(&group.waiting, self.period) {
                // A vCPU that returned budget before this vCPU asked did not see its request.
                self.draw(group, counts.missing(self.limit, slice.most(self.owed)));
            }
            if counts.reached(self.limit) {
                if self.spare && asks {
                    group.throttled.ask(self.period, self.waiter.member);
                }
                let spent = self.spend(group);
                if spent.all {
                    self.limit = Counts::NEVER;
                    self.waiter.withdraw(&group.waiting, self.period);
                    group.throttled.take(self.period, self.waiter.member);
                    let all = if spent.news { u32::MAX } else { 0 };
                    let wake = group.throttled.take(self.period, all);
                    return BudgetVerdict { wake, ..BudgetVerdict::run_until(self.limit) };
                }
            } else {
                self.waiter.withdraw(&group.waiting, self.period);
                if self.spare {
                    group.throttled.take(self.period, self.waiter.member);
                }
            }
        }
        BudgetVerdict::judge(counts, self.limit)
    }
}

impl Regulate for Memguard {
    #[inline]
    fn step(
        &mut self,
        group: &GroupBudget,
        now: Nanos,
        counts: Counts,
        event: Event,
    ) -> BudgetVerdict {
        self.step_on(&group.0, now, counts, event)
    }
}
