//! The search for budgets: for tasks that need more than their VM demands, and for best effort.

use super::problem::{Demand, Problem, Unsure, VmDemands};

/// Returns whether the tasks of a VM hold with these budgets of all VMs.
type TaskHolds<'a> = dyn Fn(usize, &[u64]) -> Result<bool, Unsure> + 'a;

/// The tasks of a VM are late with the greatest budget that is left for it.
#[derive(Debug)]
pub struct Late {
    pub vm: usize,
    /// The budgets of all VMs, with the greatest for `vm`.
    pub budgets: Vec<u64>,
}

/// Returns the budgets of all VMs, at least `least`: for tasks what they need, and if `best` for
/// best effort equal parts of the most that the demands permit and its cores can use. The sum is at
/// most `total`.
pub fn budgets(
    problem: &Problem,
    least: &[u64],
    kept: &[Demand],
    (total, best): (u64, bool),
    task_holds: &TaskHolds,
) -> Result<Result<Vec<u64>, Late>, Unsure> {
    let takes_rest = |vm: &VmDemands| vm.best_effort && vm.given.is_none();
    let sharers = problem.vms.iter().filter(|vm| takes_rest(vm)).count() as u64;
    let with = |extra: u64| -> Vec<u64> {
        let mut budgets = least.to_vec();
        let rest = budgets.iter_mut().zip(&problem.vms).filter(|(_, vm)| takes_rest(vm));
        for (rank, (budget, vm)) in (0..).zip(rest) {
            let part = extra / sharers + u64::from(rank < extra % sharers);
            let step = vm.shape.step.max(1);
            let most = vm.shape.most - vm.shape.most % step;
            // Only the rest is rounded to whole steps: the need is a multiple already.
            *budget = budget.saturating_add(part - part % step).min(most).max(*budget);
        }
        budgets
    };
    let mut found = match raise(problem, with(0), kept, total, task_holds)? {
        Ok(budgets) => budgets,
        Err(late) => return Ok(Err(late)),
    };
    if sharers == 0 || !best {
        return Ok(Ok(found));
    }
    let (mut good, mut bad) = (0, total.saturating_mul(sharers).saturating_add(1));
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        let tried = with(middle);
        let is_below = sum(&tried) <= total;
        // A budget that was not proven within the effort is not used.
        match is_below.then(|| raise(problem, tried, kept, total, task_holds)) {
            Some(Ok(Ok(budgets))) => (good, found) = (middle, budgets),
            _ => bad = middle,
        }
    }
    Ok(Ok(found))
}

/// Raises the budgets of VMs that make their own tasks late.
///
/// Larger budgets of other VMs never make a task better. So the least budget with which a VM's
/// tasks hold only grows with the others, and the result is the least, VM by VM, of all budgets up
/// to `total` with which all tasks hold.
fn raise(
    problem: &Problem,
    mut budgets: Vec<u64>,
    kept: &[Demand],
    total: u64,
    task_holds: &TaskHolds,
) -> Result<Result<Vec<u64>, Late>, Unsure> {
    loop {
        let mut is_raised = false;
        for demand in kept {
            let Demand::Task(vm) = *demand else { continue };
            if task_holds(vm, &budgets)? {
                continue;
            }
            let (asked, least) = (&problem.vms[vm], budgets[vm]);
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
                first(least / step + 1, most, holds)?
            } else if holds(most)? {
                Some(least_above(least / step, most, holds)?)
            } else {
                None
            };
            let Some(found) = found else {
                if asked.given.is_none() {
                    budgets[vm] = least.max(most * step);
                }
                return Ok(Err(Late { vm, budgets }));
            };
            budgets[vm] = found * step;
            is_raised = true;
        }
        if !is_raised {
            return Ok(Ok(budgets));
        }
    }
}

/// Returns the least number from `first` to `last` that holds; larger ones need not hold.
fn first(
    first: u64,
    last: u64,
    mut holds: impl FnMut(u64) -> Result<bool, Unsure>,
) -> Result<Option<u64>, Unsure> {
    for number in first..=last {
        if holds(number)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
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

/// Returns the sum of budgets. An unlimited budget is the greatest number, and so is a sum with it.
pub fn sum(budgets: &[u64]) -> u64 {
    budgets.iter().fold(0, |sum: u64, budget| sum.saturating_add(*budget))
}
