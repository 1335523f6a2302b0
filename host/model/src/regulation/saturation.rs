//! The checks against the saturation table: of single budgets, of the polling interval, and of the
//! sum of all budgets.

use super::checker::Checker;
use crate::counters::CounterEvent;
use crate::diagnostics::Code;
use crate::fault::{Fault, FilePlace};
use crate::measured::Saturation;
use crate::platform::Platform;
use crate::timing::memory_budget::MemoryBudget;
use crate::vm::Vm;

impl Checker<'_> {
    /// Checks that the sum of all budgets is below saturation.
    pub(super) fn sum(&mut self) {
        let Some(saturation) = &self.saturation() else {
            return;
        };
        let limited =
            |vm: &&Vm| vm.memory_budget.as_ref().and_then(MemoryBudget::refills).is_some();
        let vms: Vec<_> = self.system.guests().iter().filter(limited).collect();
        let rules = || vms.iter().filter_map(|vm| vm.memory_budget.as_ref());
        let mut all = self.system.guests().iter().filter_map(|vm| vm.memory_budget.as_ref());
        if all.any(MemoryBudget::overcommits) {
            return;
        }
        // Lines in the saturation table's period, rounded up for each VM.
        let lines = rules().filter_map(|bandwidth| {
            let (_, budget, period) = bandwidth.settable_refills()?;
            let scaled = u128::from(budget) * u128::from(saturation.period.0);
            Some(scaled.div_ceil(u128::from(period.0.max(1))))
        });
        let sum: u128 = lines.sum();
        let most = saturation.points.iter().map(|(budget, _)| *budget).max().unwrap_or(0);
        let last = rules().next_back();
        if sum > u128::from(most)
            && let Some(last) = last
        {
            let names: Vec<_> = vms.iter().map(ToString::to_string).collect();
            let set = if rules().any(|rules| rules.keys.adjust.is_some()) {
                "may be set to"
            } else {
                "are"
            };
            // The analysis counts a budget of a longer period whole; this sum does not.
            let is_longer = |rules: &MemoryBudget| {
                rules.settable_refills().is_some_and(|(_, _, period)| period > saturation.period)
            };
            let even = if rules().any(is_longer) { ", spread evenly" } else { "" };
            let message = format!(
                "{}: the memory budgets {set} {sum} lines in {}{even}; [saturation] of {} allows \
                 {most}",
                names.join(", "),
                saturation.period,
                self.platform_title()
            );
            let help = self.to_fit(&vms, saturation, most);
            self.fault(Code::BudgetsOverSaturation, &last.budget_place(), message, help);
        }
    }

    /// Suggests how to bring the budgets of these VMs below saturation, by changing only that of
    /// the last VM if this is enough.
    fn to_fit(&self, vms: &[&Vm], saturation: &Saturation, most: u64) -> String {
        let all = format!(
            "lower them, and `max` where `adjust` has one, until they are at most {most} lines in \
             {} together, where a budget of a longer period counts whole",
            saturation.period
        );
        let Some((last, others)) = vms.split_last() else { return all };
        // The analysis assumes that a budget can be spent in one burst, and that a compensated VM
        // can spend the budget of its whole window.
        let counted = |vm: &Vm| {
            let bandwidth = vm.memory_budget.as_ref()?;
            let (_, budget, period) = bandwidth.settable_refills()?;
            let periods = saturation.period.0.div_ceil(period.0.max(1));
            let times = periods.saturating_mul(bandwidth.window.unwrap_or(1).into());
            let overshoot = self.system.overshoot(vm, period).filter(|_| !bandwidth.keys.debt);
            let beyond = overshoot.unwrap_or_default().saturating_mul(vm.cpus.len().max(1) as u64);
            Some((budget, times, beyond.saturating_mul(periods).0))
        };
        let of_others = others.iter().filter_map(|vm| counted(vm));
        let taken = of_others.fold(0_u64, |sum, (budget, times, beyond)| {
            sum.saturating_add(budget.saturating_mul(times)).saturating_add(beyond)
        });
        let (Some((_, times, beyond)), Some(bandwidth)) = (counted(last), &last.memory_budget)
        else {
            return all;
        };
        let whole = most.saturating_sub(taken).saturating_sub(beyond) / times.max(1);
        let room = whole / bandwidth.share.max(1);
        if room == 0 || whole < last.cpus.len() as u64 {
            return all;
        }
        let adjust = bandwidth.keys.adjust.as_ref().map_or("", |_| ", also for `max` of `adjust`");
        let period = bandwidth.budget.map_or(saturation.period, |(_, period)| period);
        let whole = if period > saturation.period {
            format!(
                "a budget can be spent at once, so it counts whole in each {}; ",
                saturation.period
            )
        } else {
            String::new()
        };
        format!("{whole}write at most {room} in each {period}{adjust}")
    }
}

impl Checker<'_> {
    /// Returns the diagnostic if the measurement shows that this period or budget cannot be enforced.
    pub(super) fn unkept(
        &self,
        saturation: &Saturation,
        vm: &Vm,
        bandwidth: &MemoryBudget,
        events: &[CounterEvent],
    ) -> Option<Fault> {
        let (_, period) = bandwidth.budget?;
        let least = saturation.min_period;
        if period < least {
            let message = format!(
                "{vm}: period = \"{period}\" is shorter than the `min_period` of [saturation] ({least})"
            );
            let help = format!("write a period of at least \"{least}\"");
            let place = bandwidth.place_of(bandwidth.keys.period.as_ref());
            return Some(self.system.fault(Code::BudgetPeriod, &place, message, help));
        }
        if bandwidth.keys.debt {
            return None;
        }
        // Reads and writes have a counter each. A vCPU overshoots, so that its part must be enough.
        let rules = &bandwidth.keys;
        let share = |budget: u64| budget.saturating_mul(bandwidth.share);
        let enough = bandwidth.least_whole(saturation.min_accesses, vm.cpus.len());
        let reads = rules.amount().filter(|_| events[0].is_traffic());
        for budget in [reads, rules.writes.as_ref()].into_iter().flatten() {
            let written = budget.value;
            let least = rules.adjust.as_ref().map_or(written, |adjust| adjust.min.min(written));
            if share(least) >= enough {
                continue;
            }
            let (set, key, place) = match &rules.adjust {
                Some(adjust) if least < written => {
                    ("an adjustable budget", " for `min`", FilePlace(adjust.span.clone()))
                }
                _ => ("a budget", "", FilePlace(budget.span.clone())),
            };
            let message = format!(
                "{vm}: {set} of {least} gives a vCPU less than the `min_accesses` of [saturation] ({})",
                saturation.min_accesses
            );
            let help = format!("write at least {}{key}", enough.div_ceil(bandwidth.share.max(1)));
            return Some(self.system.fault(Code::BudgetTooSmall, &place, message, help));
        }
        None
    }

    /// Returns the diagnostic of a `poll` that is coarser than the platform's, with which the overshoot
    /// of `[saturation]` was measured.
    pub(super) fn coarse_poll(
        &self,
        platform: &Platform,
        vm: &Vm,
        bandwidth: &MemoryBudget,
    ) -> Option<Fault> {
        let poll = bandwidth.keys.poll.as_ref()?;
        let most = platform.counters.counter_page.as_ref()?.poll.value;
        if poll.value <= most {
            return None;
        }
        let message = format!(
            "{vm}: poll = \"{}\" is coarser than the {most} at which [saturation] was measured",
            poll.value
        );
        let help = format!("write at most \"{most}\"");
        Some(self.system.fault(Code::BudgetPoll, &FilePlace(poll.span.clone()), message, help))
    }
}
