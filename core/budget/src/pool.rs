use crate::word::Word;
use crate::{
    BudgetVerdict, Counts, Event, GroupBudget, Refused, Regulate, Setting,
    clock::Clock,
    fixed::Publisher,
    group::{GroupWords, Waiter},
    setting::{for_all, or_default_slice},
};
use weir_units::Nanos;

/// A budget of Q accesses in each period for all vCPUs of a VM together, which draw it in slices as
/// they need it: the budget for a guest with any number of cores that bao-throttling (2.5) asks
/// for.
///
/// ```text
///                           count reaches limit             the pool has nothing
/// Start, Period ---> runs ----------------------> draws ---------------------------> suspended
///    draws a bit     |  ^    overshoot + slice      |                                 |     |
///                    |  +---------------------------+          another gave back: Count     | Period
///                    |  limit := limit + drawn  <-------------------------------------+     |
///                    +--<-------------------------------------------------------------------+
/// ```
///
/// The first vCPU in a period fills the pool, in the same exchange in which it draws. An overshoot
/// is drawn together with the next slice, so it is paid at once if the pool has enough, and
/// otherwise (with debt) from the next period's pool. At a boundary a vCPU draws the amount that it
/// used in the last period, at most a slice, so that an idle vCPU withholds next to nothing from
/// the others. At [`Event::Stop`] it gives its remaining budget back.
///
/// **Bound.** All vCPUs of the VM together make, in any k consecutive periods, at most k Q accesses
/// plus one overshoot for each vCPU; without debt k overshoots for each. **Loss.** At the end of a
/// period up to a slice for each vCPU can be left while other vCPUs are suspended.
#[derive(Clone, Debug)]
pub struct Pool {
    clock: Clock,
    debt: bool,
    /// The budget of the VM.
    budget: Counts,
    /// The slice in the setting.
    slice: Counts,
    vcpus: u8,
    period: u64,
    /// The counts at the beginning of this period.
    opened: Counts,
    /// The cumulative counts up to which this vCPU has drawn.
    limit: Counts,
    publisher: Option<Publisher>,
    waiter: Waiter,
}

impl Pool {
    /// Returns the regulator that `setting` describes.
    #[must_use]
    pub const fn new(setting: &Setting) -> Self {
        Self {
            clock: Clock::new(setting),
            debt: setting.debt,
            budget: setting.budget,
            slice: setting.slice,
            vcpus: setting.vcpus,
            period: 0,
            opened: Counts::ZERO,
            limit: Counts::ZERO,
            publisher: Publisher::new(setting),
            waiter: Waiter::new(setting.member_bit()),
        }
    }

    /// Sets the budget, see [`super::Regulator::set_budget`].
    ///
    /// # Errors
    ///
    /// Returns an error if the budget is nothing, less than one access for each vCPU, or more than
    /// a pool holds; the old budget stays.
    pub const fn set_budget(&mut self, budget: Counts) -> Result<(), Refused> {
        match for_all(budget, self.vcpus) {
            Ok(()) => {
                self.budget = budget;
                Ok(())
            }
            Err(refused) => Err(refused),
        }
    }

    const fn slice(&self) -> Counts {
        or_default_slice(self.slice, self.budget, self.vcpus)
    }

    fn begin<W: Word>(&mut self, group: &GroupWords<W>, now: Nanos, counts: Counts) {
        let started = self.period != 0;
        self.period = self.clock.index(now);
        if let Some(publisher) = &mut self.publisher {
            publisher.publish(group, self.period, counts);
        }
        let used = if started { counts.minus(self.opened) } else { Counts::ZERO };
        self.opened = counts;
        if !(started && self.debt) {
            self.limit = counts;
        }
        let owed = counts.minus(self.limit);
        self.limit = self.limit.least(counts);
        let want = owed.plus(used.least(self.slice()).most(Counts { reads: 1, writes: 1 }));
        self.draw(group, want);
    }

    fn draw<W: Word>(&mut self, group: &GroupWords<W>, want: Counts) {
        let got = group.draw(self.period, self.budget, want.nothing_where_free(self.budget));
        self.limit = self.limit.plus(got).never_where_free(self.budget);
    }

    pub(super) fn step_on<W: Word>(
        &mut self,
        group: &GroupWords<W>,
        now: Nanos,
        counts: Counts,
        event: Event,
    ) -> BudgetVerdict {
        if self.clock.passed(now) != 0 {
            self.begin(group, now, counts);
        }
        if event == Event::Stop {
            let left = self.limit.minus(counts).nothing_where_free(self.budget);
            self.limit = self.limit.least(counts);
            let given = group.give(self.period, left);
            self.waiter.withdraw(&group.waiting, self.period);
            let all = if given == Counts::ZERO { 0 } else { u32::MAX };
            return BudgetVerdict {
                wake: group.waiting.take(self.period, all),
                ..BudgetVerdict::suspend()
            };
        }
        if counts.reached(self.limit) {
            self.draw(group, counts.missing(self.limit, self.slice()));
            if counts.reached(self.limit)
                && event != Event::Descheduled
                && self.waiter.ask(&group.waiting, self.period)
            {
                // A vCPU that returned budget before this vCPU asked did not see its request.
                self.draw(group, counts.missing(self.limit, self.slice()));
            }
            if !counts.reached(self.limit) {
                self.waiter.withdraw(&group.waiting, self.period);
            }
        }
        BudgetVerdict::judge(counts, self.limit)
    }
}

impl Regulate for Pool {
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
