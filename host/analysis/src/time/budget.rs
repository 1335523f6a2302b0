//! The effect of a VM's own memory budget on its tasks.

use crate::units::{Events, Nanos};

/// A budget that a core's tasks may spend, and then wait for the next period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnBudget {
    /// Accesses that are guaranteed in each period after the first [`late`](Self::late) ones. At 0
    /// no task makes progress.
    pub guaranteed: u64,
    /// Its period.
    pub period: Nanos,
    /// Accesses that may have been made beyond it before, and are taken off it.
    pub debt: Events,
    /// Periods that may give nothing. The first may be spent as a task arrives; a member of
    /// MemGuard may have lent the next one.
    pub late: u64,
    /// The time until the VM has the core again after a suspension: in a round that continues
    /// without the suspended VM, the time slices of all others.
    pub back: Nanos,
    /// Tasks on other cores that spend the same budget.
    pub others: Vec<Spender>,
}

/// A task on another core that spends the same budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spender {
    /// Least time between two activations; at least 1 ns.
    pub period: Nanos,
    /// Its deadline: what is still at work arrived less than that before.
    pub deadline: Nanos,
    /// Its accesses in an activation.
    pub accesses: u64,
}

impl OwnBudget {
    /// For how long a core is suspended at most in a window of length `window` in which its own
    /// tasks make `accesses`.
    ///
    /// For any phase of the periods, a core waits once for what was spent before, and each further
    /// time after a whole budget. So with A accesses the waits are late + floor((A + debt) /
    /// guaranteed), each shorter than a period plus `back`.
    pub(super) fn wait(&self, window: u64, accesses: u128) -> Option<u128> {
        let mut sum = accesses.checked_add(self.debt.0.into())?;
        for other in &self.others {
            let reach = u128::from(window) + u128::from(other.deadline.0);
            let jobs = reach.div_ceil(other.period.0.max(1).into());
            sum = sum.checked_add(jobs.checked_mul(other.accesses.into())?)?;
        }
        let spent = sum.checked_div(self.guaranteed.into())?;
        let each = u128::from(self.period.0).checked_add(self.back.0.into())?;
        spent.checked_add(self.late.into())?.checked_mul(each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Supply, Task, VmSchedule, response_times};
    use proptest::prelude::*;

    /// A task of a core that is followed step by step.
    #[derive(Clone, Copy, Debug)]
    struct Step {
        cost: u64,
        period: u64,
        /// In so many of its first steps it makes an access each.
        accesses: u64,
        /// When it arrives first.
        first: u64,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (1..5_u64, 8..40_u64, 0..5_u64, 0..40_u64).prop_map(
            |(cost, period, accesses, first)| Step {
                cost,
                period,
                accesses: accesses.min(cost),
                first,
            },
        );
        prop::collection::vec(step, 1..4)
    }

    /// The longest from an arrival to the end, of each task, with `budget` accesses in each period.
    fn run(tasks: &[Step], budget: u64, period: u64) -> Vec<u64> {
        const END: u64 = 2000;
        let mut arrived: Vec<Vec<u64>> = vec![Vec::new(); tasks.len()];
        let mut done = vec![0_u64; tasks.len()];
        let mut observed_max = vec![0; tasks.len()];
        let mut spent = 0;
        for now in 0..END {
            if now % period == 0 {
                spent = 0;
            }
            for (task, queue) in tasks.iter().zip(&mut arrived) {
                if now >= task.first && (now - task.first) % task.period == 0 {
                    queue.push(now);
                }
            }
            if spent == budget {
                continue;
            }
            let Some(i) = arrived.iter().position(|queue| !queue.is_empty()) else { continue };
            spent += u64::from(done[i] < tasks[i].accesses);
            done[i] += 1;
            if done[i] == tasks[i].cost {
                done[i] = 0;
                observed_max[i] = observed_max[i].max(now + 1 - arrived[i].remove(0));
            }
        }
        observed_max
    }

    proptest! {
        #[test]
        fn no_task_exceeds_the_bound_on_budget_waits(
            tasks in steps(), budget in 1..12_u64, period in 1..30_u64,
        ) {
            // What has no bound takes long to find.
            let share = |of: fn(&Step) -> u64| {
                tasks.iter().map(|task| of(task) * 1000 / task.period).sum::<u64>()
            };
            prop_assume!(
                share(|task| task.cost) < 700
                    && share(|task| task.accesses) < 700 * budget / period
            );
            let load = tasks.iter().map(|task| Task {
                wcet: Nanos(task.cost),
                period: Nanos(task.period),
                accesses: Some(task.accesses),
                ..Task::default()
            });
            let load: Vec<_> = load.collect();
            let own = OwnBudget {
                guaranteed: budget,
                period: Nanos(period),
                debt: Events(0),
                late: 1,
                back: Nanos(0),
                others: Vec::new(),
            };
            let supply = Supply::new(VmSchedule::Dedicated, vec![]).unwrap();
            let bounds = response_times(&load, &supply, None, Some(&own));
            for (bound, observed_max) in bounds.iter().zip(run(&tasks, budget, period)) {
                if let Some(bound) = bound {
                    prop_assert!(observed_max <= bound.0, "{observed_max} of {bound:?}");
                }
            }
        }
    }

    #[test]
    fn a_task_that_spends_two_budgets_waits_three_times() {
        let own = OwnBudget {
            guaranteed: 10,
            period: Nanos(100),
            debt: Events(0),
            late: 1,
            back: Nanos(0),
            others: Vec::new(),
        };
        assert_eq!(own.wait(0, 9), Some(100));
        assert_eq!(own.wait(0, 10), Some(200));
        assert_eq!(own.wait(0, 20), Some(300));
        assert_eq!(OwnBudget { debt: Events(1), ..own.clone() }.wait(0, 9), Some(200));
        let other = Spender { period: Nanos(50), deadline: Nanos(50), accesses: 3 };
        // Three jobs of the other core's task reach into a window of 100.
        assert_eq!(OwnBudget { others: vec![other], ..own }.wait(100, 1), Some(200));
    }
}
