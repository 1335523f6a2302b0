//! The proof of a plan, by other rules than those that it was found by.

use super::judge::task_holds;
use super::plan::Plan;
use super::problem::{Demand, System};
use crate::flows::{Analyzer, Effort, Setting, Verdict, transform};
use crate::memory::Budget;

/// The demands that a plan does not meet, and `None` for a rule of the platform that it breaks
/// (overlap, saturation, a budget or a chunk that is not to be had).
#[must_use]
pub fn check(system: &System, plan: &Plan, effort: Effort) -> Vec<Option<Demand>> {
    let platform = &system.platform;
    let mut faults = Vec::new();
    if plan.shares.len() != system.vms.len() {
        return vec![None];
    }
    let within = |(first, count): (u32, u32), most: u32| {
        first.checked_add(count).is_some_and(|end| end <= most)
    };
    let apart = |a: (u32, u32), b: (u32, u32)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
    for (i, (share, vm)) in plan.shares.iter().zip(&system.vms).enumerate() {
        if !within(share.colors, platform.colors)
            || !within(share.banks, platform.banks)
            || share.colors.1 == 0
        {
            faults.push(None);
            continue;
        }
        for (other, other_vm) in plan.shares.iter().zip(&system.vms).skip(i + 1) {
            let shared = vm.best_effort && other_vm.best_effort;
            let disjoint = apart(share.colors, other.colors) && apart(share.banks, other.banks);
            if !(shared || disjoint) {
                faults.push(None);
            }
        }
        let chosen_wrong = share.budget < platform.min_accesses.max(vm.shape.least)
            || !share.budget.is_multiple_of(vm.shape.step.max(1));
        if vm.given.map_or(chosen_wrong, |given| share.budget != given) {
            faults.push(None);
        }
        let cache = u64::from(share.colors.1).saturating_mul(platform.color_bytes.0);
        if !vm.best_effort && cache < vm.working_set.0 {
            faults.push(Some(Demand::WorkingSet(i)));
        }
        let neighbors = plan.shares.iter().zip(&system.vms).filter(|(s, _)| s.banks == share.banks);
        let memory: u64 = neighbors.map(|(_, vm)| vm.memory.0).fold(0, u64::saturating_add);
        if u64::from(share.banks.1).saturating_mul(platform.bank_bytes.0) < memory {
            faults.push(Some(Demand::Memory(i)));
        }
        // The caller accounts for the guaranteed part of a given budget.
        let guaranteed = vm.given.unwrap_or_else(|| vm.shape.regulation.guaranteed(share.budget));
        let budget = Budget { accesses: guaranteed, period: platform.saturation.period() };
        let rate = u128::from(budget.accesses) * u128::from(platform.line.0) * 1_000_000_000;
        if !vm.best_effort && rate < u128::from(vm.bandwidth.0) * u128::from(budget.period.0) {
            faults.push(Some(Demand::Bandwidth(i)));
        }
        let budgets: Vec<u64> = plan.shares.iter().map(|s| s.budget).collect();
        if !vm.best_effort && !task_holds(system, &budgets, i) {
            faults.push(Some(Demand::Task(i)));
        }
    }
    let total = plan.shares.iter().fold(0u64, |sum, s| sum.saturating_add(s.budget));
    if !platform.saturation.holds(total, plan.dma) {
        faults.push(None);
    }
    let Some(chunk) = plan.chunk else {
        faults.extend((0..system.flows.len()).map(|i| Some(Demand::Flow(i))));
        let wrong = plan.dma.0 == 0 || system.dma.is_some_and(|given| given != plan.dma);
        if system.best_effort_flows && wrong {
            faults.push(None);
        }
        return faults;
    };
    if !platform.chunks.iter().any(|&(size, reach)| size == chunk && plan.dma <= reach)
        || system.dma.is_some_and(|given| given != plan.dma)
    {
        faults.push(None);
    }
    let setting = Setting { chunk, ..system.setting };
    let holds = transform(&system.flows, &setting, &system.overheads).is_ok_and(|tasks| {
        let mut analyzer = Analyzer::new();
        analyzer.load(&tasks);
        analyzer.verdict(plan.dma, effort) == Ok(Verdict::Schedulable)
    });
    if !holds {
        faults.extend((0..system.flows.len()).map(|i| Some(Demand::Flow(i))));
    }
    faults
}
