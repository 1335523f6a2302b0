//! What a VM's tasks need of its own budget, and how long they wait for it where that may be spent.

use super::{memory::Limits, regulation::vcpus};
use weir_analysis::{
    Nanos,
    memory::Regulation,
    time::{OwnBudget, Spender},
};
use weir_model::Timing;
use weir_model::timing::Bandwidth;
use weir_model::timing::Task;
use weir_model::timing::TimedVm;

/// What a VM's own budget does to its tasks on one core.
#[derive(Debug, PartialEq, Eq)]
pub enum Own {
    /// They never spend it, or there is none.
    Enough,
    /// Nobody says how many accesses the tasks make, or what the budget counts of them.
    Unknown,
    /// They may spend it, and then wait.
    Waits(OwnBudget),
}

/// The core of one of the VM's tasks.
pub fn core_of(vm: &TimedVm, task: &Task) -> Option<u64> {
    task.core.or(vm.cpus.first().copied())
}

/// The VM's tasks on a core.
fn on(vm: &TimedVm, core: Option<u64>) -> impl Iterator<Item = &Task> {
    vm.tasks.iter().filter(move |task| core_of(vm, task) == core)
}

/// The most accesses that some of a VM's tasks make in a period; none where nobody says how many they make. Whatever is at work in
/// a period arrived in it, or less than its deadline before.
fn in_a_period<'a>(period: Nanos, tasks: impl Iterator<Item = &'a Task>) -> Option<u64> {
    let mut sum = 0_u64;
    for task in tasks {
        let reach = period.0.saturating_add(task.deadline.0);
        let jobs = reach.div_ceil(task.period.0.max(1));
        sum = sum.saturating_add(task.accesses?.saturating_mul(jobs));
    }
    Some(sum)
}

/// What the budget that the file gives a VM does to its tasks on `core`, whoever may change it. It takes `back` to have the core again behind a suspension.
pub fn on_core(timing: &Timing, vm: &TimedVm, core: Option<u64>, back: Nanos) -> Own {
    let Some(asked) = vm.bandwidth.as_ref().filter(|asked| asked.budget.is_some()) else {
        return Own::Enough;
    };
    let Some(limits) = Limits::of(timing, vm) else { return Own::Unknown };
    let (budget, period, pool) = (tightest(asked, &limits), limits.least.period, asked.is_pool());
    if unspent(timing, vm) > 0 {
        return Own::Enough;
    }
    let made =
        if pool { in_a_period(period, vm.tasks.iter()) } else { in_a_period(period, on(vm, core)) };
    let Some(made) = made else { return Own::Unknown };
    let vcpus = vcpus(vm);
    let part = if pool { budget } else { asked.least_part(budget, vcpus as usize) };
    let sure = limits.regulation.sure(part);
    let lends = matches!(limits.regulation, Regulation::Memguard { .. });
    if made == 0 || made < sure && !lends {
        return Own::Enough;
    }
    let overshoot = timing.overshoot(vm, period).unwrap_or(0);
    let sharers = if pool { u64::from(vcpus) } else { 1 };
    let others = vm.tasks.iter().filter(|task| pool && core_of(vm, task) != core);
    Own::Waits(OwnBudget {
        sure,
        period,
        debt: if asked.has_debt() { overshoot.saturating_mul(sharers) } else { 0 },
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

/// How many accesses a VM may make before one of its budgets is spent: each may push a line out, too, which a budget of writes counts.
fn tightest(asked: &Bandwidth, limits: &Limits) -> u64 {
    asked.writes().map_or(limits.least.accesses, |writes| limits.least.accesses.min(writes))
}

/// The least part of a VM's budget that a vCPU has, and its period; none where no part stays its own.
fn part(timing: &Timing, vm: &TimedVm) -> Option<(u64, Nanos)> {
    let asked = vm.bandwidth.as_ref().filter(|asked| asked.has_parts())?;
    let limits = Limits::of(timing, vm)?;
    Some((asked.least_part(tightest(asked, &limits), vcpus(vm) as usize), limits.least.period))
}

/// What is left of each vCPU's part of a VM's budget after all that its core can make in a period where the monitor counts; 0 where that may be
/// all of it, or a vCPU has no part that stays its own.
pub fn unspent(timing: &Timing, vm: &TimedVm) -> u64 {
    let known = || {
        let (part, period) = part(timing, vm)?;
        Some(part.saturating_sub(timing.looks(vm, period)?.most_in(period)))
    };
    known().unwrap_or(0)
}

/// The least that is left of the budget of the vCPU on `core` whatever the VM's tasks there do; 0 where they may spend it, nobody says what they
/// do, or a vCPU has no part that stays its own.
pub fn left(timing: &Timing, vm: &TimedVm, core: Option<u64>) -> u64 {
    let known = || {
        on(vm, core).next()?;
        let (part, period) = part(timing, vm)?;
        Some(part.saturating_sub(in_a_period(period, on(vm, core))?))
    };
    known().unwrap_or(0).max(unspent(timing, vm))
}
