//! The budget of a VM as its own tasks see it: whether they can spend it, and how long they wait
//! then.

use super::{limits::Limits, regulation::vcpus};
use crate::units::Events;
use crate::{
    Nanos,
    memory::RegulatorModel,
    time::{OwnBudget, Spender},
};
use weir_model::System;
use weir_model::Vm;
use weir_model::timing::MemoryBudget;
use weir_model::timing::Task;

/// The effect of a VM's own budget on its tasks on one core.
#[derive(Debug, PartialEq, Eq)]
pub enum Own {
    /// The tasks cannot spend the budget, or there is none.
    Enough,
    /// The `accesses` of the tasks, or what the budget counts of them, are not known.
    Unknown,
    /// The tasks may spend the budget and wait for its replenishment.
    Waits(OwnBudget),
}

/// Returns the core of a task.
pub fn core_of(vm: &Vm, task: &Task) -> Option<u64> {
    task.core.or_else(|| vm.first_core())
}

/// Returns the tasks of a VM on a core.
fn on(vm: &Vm, core: Option<u64>) -> impl Iterator<Item = &Task> {
    vm.tasks.iter().filter(move |task| core_of(vm, task) == core)
}

/// Returns the most accesses of some tasks in a period; none if they are not known. An activation
/// that runs in a period arrived in it, or less than its deadline before.
fn in_a_period<'a>(period: Nanos, tasks: impl Iterator<Item = &'a Task>) -> Option<u64> {
    let mut sum = 0_u64;
    for task in tasks {
        let reach = period.0.saturating_add(task.deadline.0);
        let jobs = reach.div_ceil(task.period.0.max(1));
        sum = sum.saturating_add(task.accesses?.saturating_mul(jobs));
    }
    Some(sum)
}

/// Returns the effect of the VM's budget on its tasks on `core`. After a suspension it takes `back`
/// until the VM has the core again.
pub fn on_core(system: &System, vm: &Vm, core: Option<u64>, back: Nanos) -> Own {
    let Some(asked) = vm.memory_budget.as_ref().filter(|asked| asked.budget.is_some()) else {
        return Own::Enough;
    };
    let Some(limits) = Limits::of(system, vm) else { return Own::Unknown };
    let (budget, period, pool) = (tightest(asked, &limits), limits.least.period, asked.is_pool());
    if unspent(system, vm) > 0 {
        return Own::Enough;
    }
    let made =
        if pool { in_a_period(period, vm.tasks.iter()) } else { in_a_period(period, on(vm, core)) };
    let Some(made) = made else { return Own::Unknown };
    let vcpus = vcpus(vm);
    let part = if pool { budget } else { asked.least_part(budget, vcpus as usize) };
    let guaranteed = limits.regulation.guaranteed(part);
    let lends = matches!(limits.regulation, RegulatorModel::Memguard { .. });
    if made == 0 || made < guaranteed && !lends {
        return Own::Enough;
    }
    let overshoot = system.overshoot(vm, period).unwrap_or_default();
    let sharers = if pool { u64::from(vcpus) } else { 1 };
    let others = vm.tasks.iter().filter(|task| pool && core_of(vm, task) != core);
    Own::Waits(OwnBudget {
        guaranteed,
        period,
        debt: if asked.has_debt() { overshoot.saturating_mul(sharers) } else { Events(0) },
        late: if lends { 2 } else { 1 },
        back,
        others: others
            .map(|task| Spender {
                period: task.period,
                deadline: task.deadline,
                accesses: task.accesses.unwrap_or(0),
            })
            .collect(),
    })
}

/// Returns the accesses that a VM can make before one of its budgets is spent. Each may write a
/// line back, which a budget of writes counts.
fn tightest(asked: &MemoryBudget, limits: &Limits) -> u64 {
    asked.writes().map_or(limits.least.accesses, |writes| limits.least.accesses.min(writes))
}

/// Returns the least part of a VM's budget that a vCPU has to itself, and the period; none if no
/// vCPU has a part to itself.
fn part(system: &System, vm: &Vm) -> Option<(u64, Nanos)> {
    let asked = vm.memory_budget.as_ref().filter(|asked| asked.has_parts())?;
    let limits = Limits::of(system, vm)?;
    Some((asked.least_part(tightest(asked, &limits), vcpus(vm) as usize), limits.least.period))
}

/// Returns what is left of each vCPU's part after the most accesses that its core can make in a
/// period, if the counter page counts them. Returns 0 if that may be all of it, or if no vCPU has a
/// part to itself.
pub fn unspent(system: &System, vm: &Vm) -> u64 {
    let known = || {
        let (part, period) = part(system, vm)?;
        Some(part.saturating_sub(system.polling(vm, period)?.most_in(period)))
    };
    known().unwrap_or(0)
}

/// Returns the least that the VM's tasks on `core` leave of the vCPU's part. Returns 0 if they may
/// spend it, if their `accesses` are not known, or if no vCPU has a part to itself.
pub fn left(system: &System, vm: &Vm, core: Option<u64>) -> u64 {
    let known = || {
        on(vm, core).next()?;
        let (part, period) = part(system, vm)?;
        Some(part.saturating_sub(in_a_period(period, on(vm, core))?))
    };
    known().unwrap_or(0).max(unspent(system, vm))
}
