//! The search for budgets: for tasks that need more than their VM demands, and for best effort.

use core::ops::RangeInclusive;

use super::judge::Unsure;
use super::needs::Need;
use super::problem::{Demand, System, Vm};

/// Returns whether the tasks of a VM hold with these budgets of all VMs.
type TaskHolds<'a> = dyn Fn(usize, &[u64]) -> Result<bool, Unsure> + 'a;

/// The result of [`raise`].
pub(super) enum Raised {
    /// The least budgets, no smaller than the initial ones, with which all demanded tasks hold.
    Hold(Vec<u64>),
    /// The tasks of a VM are late with the greatest budget that is left for it.
    Late {
        /// The VM.
        vm: usize,
        /// The budgets of all VMs, with the greatest for `vm`.
        budgets: Vec<u64>,
    },
}

/// Raises the budgets of VMs that make their own tasks late.
///
/// Larger budgets of other VMs never make a task better. So the least budget with which a VM's
/// tasks hold only grows with the others, and the result is the least, VM by VM, of all budgets up
/// to `total` with which all tasks hold.
pub(super) fn raise(
    system: &System,
    mut budgets: Vec<u64>,
    kept: &[Demand],
    total: u64,
    task_holds: &TaskHolds,
) -> Result<Raised, Unsure> {
    loop {
        let mut raised = false;
        for demand in kept {
            let Demand::Task(vm) = *demand else { continue };
            if task_holds(vm, &budgets)? {
                continue;
            }
            let (asked, least) = (&system.vms[vm], budgets[vm]);
            let others = sum(&budgets).saturating_sub(least);
            let step = asked.shape.step.max(1);
            let most = total.saturating_sub(others).min(asked.shape.most) / step;
            let mut tried = budgets.clone();
            let mut holds = |steps: u64| {
                tried[vm] = steps * step;
                task_holds(vm, &tried)
            };
            let found = if asked.given.is_some() || most * step <= least {
                None
            } else if asked.shape.siblings {
                least_of(least / step + 1..=most, holds)?
            } else if holds(most)? {
                Some(least_above(least / step, most, holds)?)
            } else {
                None
            };
            let Some(found) = found else {
                if asked.given.is_none() {
                    budgets[vm] = least.max(most * step);
                }
                return Ok(Raised::Late { vm, budgets });
            };
            budgets[vm] = found * step;
            raised = true;
        }
        if !raised {
            return Ok(Raised::Hold(budgets));
        }
    }
}

/// Returns the least number of a range that holds; larger ones need not hold.
fn least_of(
    mut range: RangeInclusive<u64>,
    mut holds: impl FnMut(u64) -> Result<bool, Unsure>,
) -> Result<Option<u64>, Unsure> {
    let found = range.find_map(|number| match holds(number) {
        Ok(true) => Some(Ok(number)),
        Ok(false) => None,
        Err(Unsure) => Some(Err(Unsure)),
    });
    found.transpose()
}

/// Returns the least number above `late` that holds; `late` does not, `good` and all larger ones
/// do.
fn least_above(
    mut late: u64,
    mut good: u64,
    mut holds: impl FnMut(u64) -> Result<bool, Unsure>,
) -> Result<u64, Unsure> {
    while good - late > 1 {
        let middle = late + (good - late) / 2;
        if holds(middle)? { good = middle } else { late = middle }
    }
    Ok(good)
}

/// Returns the budgets of all VMs: the needs, and for best effort equal parts of the most that the
/// demands permit and its cores can use.
pub(super) fn budgets(
    system: &System,
    needs: &[Need],
    kept: &[Demand],
    total: u64,
    task_holds: &TaskHolds,
) -> Result<Option<Vec<u64>>, Unsure> {
    let takes_rest = |vm: &Vm| vm.best_effort && vm.given.is_none();
    let sharers = system.vms.iter().filter(|vm| takes_rest(vm)).count() as u64;
    let with = |extra: u64| -> Vec<u64> {
        let mut rank = 0;
        needs
            .iter()
            .zip(&system.vms)
            .map(|(need, vm)| {
                if !takes_rest(vm) {
                    return need.budget;
                }
                let part = extra / sharers + u64::from(rank < extra % sharers);
                rank += 1;
                let step = vm.shape.step.max(1);
                let most = vm.shape.most - vm.shape.most % step;
                // Only the rest is rounded to whole steps: the need is a multiple already.
                need.budget.saturating_add(part - part % step).min(most).max(need.budget)
            })
            .collect()
    };
    let holds = |extra: u64| -> Result<Option<Vec<u64>>, Unsure> {
        let budgets = with(extra);
        if sum(&budgets) > total {
            return Ok(None);
        }
        Ok(match raise(system, budgets, kept, total, task_holds)? {
            Raised::Hold(budgets) => Some(budgets),
            Raised::Late { .. } => None,
        })
    };
    let Some(mut best) = holds(0)? else { return Ok(None) };
    if sharers == 0 {
        return Ok(Some(best));
    }
    let (mut good, mut bad) = (0, total.saturating_mul(sharers).saturating_add(1));
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        // A budget that was not proven within the effort is not used.
        if let Ok(Some(budgets)) = holds(middle) {
            (good, best) = (middle, budgets);
        } else {
            bad = middle;
        }
    }
    Ok(Some(best))
}

/// Returns the sum of budgets. An unlimited budget is the greatest number, and so is a sum with it.
pub(super) fn sum(budgets: &[u64]) -> u64 {
    budgets.iter().fold(0u64, |sum, budget| sum.saturating_add(*budget))
}

/// Returns the sum of the budgets of best effort.
pub(super) fn of_best_effort(system: &System, budgets: &[u64]) -> u64 {
    budgets
        .iter()
        .zip(&system.vms)
        .filter(|(_, vm)| vm.best_effort)
        .fold(0, |sum: u64, (budget, _)| sum.saturating_add(*budget))
}
