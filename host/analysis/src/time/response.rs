//! Response times of the tasks of a VM under a supply.

use super::{NEVER, OwnBudget, STEPS, Supply};
use crate::memory::Interferer;
use crate::units::Nanos;
use weir_model::timing::Task;

/// The effect of other VMs' memory accesses on a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreInterference {
    /// The other VMs, and the DMA engine.
    pub interferers: Vec<Interferer>,
    /// How much one transaction can delay the core.
    pub delay: Nanos,
    /// The most transactions of one interferer that can delay one own access; `None` if unknown.
    pub per_access: Option<u64>,
}

impl CoreInterference {
    /// The most delay in a window of length `t` in which the core itself makes at most `accesses`,
    /// if that is known.
    fn in_window(&self, t: Nanos, accesses: Option<u64>) -> u128 {
        let transactions: u128 = self
            .interferers
            .iter()
            .map(|i| u128::from(i.delaying(t, accesses, self.per_access)))
            .sum();
        transactions * u128::from(self.delay.0)
    }
}

/// The response-time bounds of tasks, highest priority first; `None` where there is no bound (or
/// none was reached in bounded time). Every access that other VMs issue in a task's busy window
/// delays it, as far as the task's own accesses are not known; a task that can be blocked meets all
/// that is issued, because the blocker's accesses are not known.
/// Where the tasks may spend their VM's own budget, `own`, they wait for it; that is left out of a
/// task where the accesses of those that it waits for are not known.
#[must_use]
pub fn response_times(
    tasks: &[Task],
    supply: &Supply,
    interference: Option<&CoreInterference>,
    own: Option<&OwnBudget>,
) -> Vec<Option<Nanos>> {
    (0..tasks.len()).map(|i| response_time(tasks, i, supply, (interference, own))).collect()
}

fn response_time(
    tasks: &[Task],
    i: usize,
    supply: &Supply,
    (interference, own): (Option<&CoreInterference>, Option<&OwnBudget>),
) -> Option<Nanos> {
    let task = &tasks[i];
    let known = |k: usize| tasks[k].accesses.map(u128::from);
    // The blocker is one job of a task of lower priority.
    let blocker = match task.blocking.0 {
        0 => Some(0),
        _ => (i + 1..tasks.len()).map(known).try_fold(0, |most, its| its.map(|its| most.max(its))),
    };
    let mut steps = STEPS;
    let mut bound = 0;
    // Jobs in one busy period: a job may still be there when the next arrives.
    let mut window = 0u64;
    for job in 0u64.. {
        let demand = u128::from(task.blocking.0) + u128::from(job + 1) * u128::from(task.wcet.0);
        loop {
            steps = steps.checked_sub(1)?;
            let jobs_of = |t: &Task| {
                let window = u128::from(window) + u128::from(t.jitter.0);
                window.div_ceil(u128::from(t.period.0.max(1))).max(1)
            };
            let higher: u128 = tasks[..i].iter().map(|t| jobs_of(t) * u128::from(t.wcet.0)).sum();
            let made = known(i).and_then(|its| {
                let mut sum = u128::from(job + 1).checked_mul(its)?;
                for (k, t) in tasks[..i].iter().enumerate() {
                    sum = sum.checked_add(jobs_of(t).checked_mul(known(k)?)?)?;
                }
                Some(sum)
            });
            let delays = interference.map_or(0, |interference| {
                let unblocked = made.filter(|_| task.blocking.0 == 0);
                interference
                    .in_window(Nanos(window), unblocked.and_then(|made| u64::try_from(made).ok()))
            });
            let waits = match own.zip(made).zip(blocker) {
                Some(((own, made), blocker)) => own.wait(window, made.checked_add(blocker)?)?,
                None => 0,
            };
            let busy = demand.checked_add(higher)?.checked_add(delays)?;
            let needed = u64::try_from(busy.checked_add(waits)?).ok()?;
            let next = supply.window_for(Nanos(needed))?.0;
            if next <= window {
                break;
            }
            window = next;
        }
        let release = job.checked_mul(task.period.0)?;
        bound = bound.max(window.saturating_sub(release).saturating_add(task.jitter.0));
        if window.saturating_add(task.jitter.0) <= release.saturating_add(task.period.0) {
            break;
        }
    }
    (bound <= NEVER).then_some(Nanos(bound))
}
