//! The rows of what a run is judged by.
#![expect(clippy::cast_precision_loss, reason = "a position is of pixels, a ratio of three digits")]

use crate::run::{Finding, RunReport};
use serde::Serialize;
use weir_analysis::verdict::Verdict;
use weir_image::{Failure, Result};

/// A flow, task, interrupt or memory budget with its limits and its verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct JudgedRow {
    /// The object as the report names it.
    pub name: String,
    /// The unit of the numbers.
    pub unit: &'static str,
    /// The observed maximum; none if nothing was observed.
    pub observed: Option<u64>,
    /// The bound: computed, or the stated overshoot of a budget.
    pub bound: Option<u64>,
    /// The deadline.
    pub deadline: Option<u64>,
    /// The observed maximum as a part of the bound or the deadline, the shorter one.
    pub ratio: Option<f64>,
    /// The verdict; none if there is neither bound nor deadline.
    pub verdict: Option<Verdict>,
    /// The verdict in words.
    pub words: String,
    /// Why the verdict is not "holds"; empty if it is.
    pub reason: String,
}

impl JudgedRow {
    fn new(
        name: String,
        unit: &'static str,
        [observed, bound, deadline]: [Option<u64>; 3],
        finding: Option<&Finding>,
    ) -> Self {
        let limit = bound.into_iter().chain(deadline).min().filter(|limit| *limit > 0);
        let verdict = finding.map(|finding| finding.verdict);
        Self {
            name,
            unit,
            observed,
            bound,
            deadline,
            ratio: observed.zip(limit).map(|(observed, limit)| observed as f64 / limit as f64),
            verdict,
            words: verdict.map_or_else(|| "no limit".to_owned(), |verdict| verdict.to_string()),
            reason: finding.map_or_else(String::new, |finding| finding.reason.clone()),
        }
    }
}

/// The class of a badge without a verdict.
pub(super) const NO_LIMITS: &str = "no-limits";

/// Returns the verdict of a run as a class of a badge and in words.
///
/// # Errors
///
/// The call is wrong if the rows contradict the report's verdict.
pub(super) fn verdict(report: &RunReport, rows: &[JudgedRow]) -> Result<(&'static str, String)> {
    if rows.iter().filter_map(|row| row.verdict).max() != report.verdict {
        let text = "the report is damaged: its `verdict` is not that of its parts; run the system \
                    again";
        return Err(Failure::call(text));
    }
    Ok(match report.verdict {
        Some(verdict) => (verdict.key(), verdict.to_string()),
        None => (NO_LIMITS, "no limits".to_owned()),
    })
}

/// Returns the rows of a run: flows, tasks, interrupts and budgets.
pub(super) fn rows(report: &RunReport) -> Vec<JudgedRow> {
    let mut rows = Vec::new();
    for flow in &report.flows {
        let observed = flow.latency_ns.map(|latency| latency.max);
        let numbers = [observed, flow.bound_ns, flow.deadline_ns];
        let name = format!("flow {}", flow.name);
        rows.push(JudgedRow::new(name, "ns", numbers, flow.finding.as_ref()));
    }
    for vm in &report.vms {
        for task in &vm.tasks {
            let numbers = [task.observed_max_ns, task.bound_ns, Some(task.deadline_ns)];
            let name = format!("task {} of {}", task.name, vm.name);
            rows.push(JudgedRow::new(name, "ns", numbers, Some(&task.finding)));
        }
        for line in &vm.interrupts {
            let observed = (line.delivered > 0).then_some(line.max_ns);
            let name = format!("interrupt {} of {}", line.intid, vm.name);
            let numbers = [observed, line.bound_ns, Some(line.deadline_ns)];
            rows.push(JudgedRow::new(name, "ns", numbers, Some(&line.finding)));
        }
        for budget in &vm.budgets {
            let observed = (budget.periods > 0).then_some(budget.max_beyond);
            let name = format!("budget of {}/{} ({})", vm.name, budget.vcpu, budget.counts);
            let numbers = [observed, budget.overshoot, None];
            let unit = "accesses above the budget";
            rows.push(JudgedRow::new(name, unit, numbers, Some(&budget.finding)));
        }
    }
    rows
}
