//! A run's tables.

use crate::failure::Result;
use std::io::Write;
use weir_analysis::verdict::Verdict;
use weir_memory::Owner;
use weir_report::table;
use weir_simulator::{
    BudgetOutcome, JobsOutcome, MOST_OF_A_CURVE, Outcome, SameWork, Simulated, VmOutcome,
    arrival_curve, max_latency_ns, within_bound,
};

/// Prints what a run came to.
pub fn tables(out: &mut impl Write, result: &Simulated) -> Result {
    let Outcome { vms, span_ns, .. } = &result.outcome;
    let mut rows = table([
        "VM",
        "accesses",
        "slowdown",
        "mean ns",
        "50 %",
        "99 %",
        "99.9 %",
        "max",
        "alone: mean",
        "MB/s",
    ]);
    for (vm, alone) in vms.iter().zip(&result.alone) {
        let work = SameWork::of(vm, alone.as_ref(), 0);
        let of_alone = alone.as_ref().map(|alone| ns(alone.outcome.latency.mean().0));
        rows.add_row([
            vm.name.clone(),
            vm.accesses.to_string(),
            work.map_or("-".to_owned(), |work| format!("{:.2}", work.slowdown())),
            ns(vm.latency.mean().0),
            vm.latency.at_most_ns(500).to_string(),
            vm.latency.at_most_ns(990).to_string(),
            vm.latency.at_most_ns(999).to_string(),
            vm.latency.most_ns().to_string(),
            of_alone.unwrap_or_else(|| "-".to_owned()),
            format!("{:.1}", vm.mb_per_s(*span_ns)),
        ]);
    }
    writeln!(out, "{rows}")?;
    jobs(out, result)?;
    flows(out, result)?;
    waits(out, &result.outcome)?;
    counts(
        out,
        "L2 lines evicted: by (row), of (column)",
        &result.outcome,
        &result.outcome.evictions,
    )?;
    counts(
        out,
        "DRAM rows closed: by (row), of (column)",
        &result.outcome,
        &result.outcome.closed,
    )?;
    arrivals(out, vms)?;
    translations(out, &result.outcome)?;
    budgets(out, vms)
}

/// Lengths of windows in which refills are counted, in ns.
const WINDOWS: [u64; 4] = [100, 1000, 4000, 16_000];

/// Arrival curves at a few lengths.
fn arrivals(out: &mut impl Write, vms: &[VmOutcome]) -> Result {
    let lengths = WINDOWS.map(|length| format!("{} us", ns(length)));
    let title = std::iter::once("L2 refills, at most in any".to_owned());
    let mut rows = table(title.chain(lengths).collect::<Vec<_>>());
    for vm in vms {
        let curve = arrival_curve(vm);
        let known = |length| curve.horizon().0 >= length || vm.arrivals.len() < MOST_OF_A_CURVE;
        let at = WINDOWS.map(|length| {
            if known(length) {
                curve.at(weir_analysis::Nanos(length)).to_string()
            } else {
                format!("{MOST_OF_A_CURVE} or more")
            }
        });
        rows.add_row(std::iter::once(vm.name.clone()).chain(at).collect::<Vec<_>>());
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

/// Passes that periods release, and packets: which met their deadlines.
fn jobs(out: &mut impl Write, result: &Simulated) -> Result {
    let vms = &result.outcome.vms;
    if vms.iter().all(|vm| vm.jobs.is_none()) {
        return Ok(());
    }
    let mut rows = table([
        "jobs",
        "ended",
        "deadline us",
        "met",
        "missed",
        "response: mean ns",
        "99 %",
        "max",
        "alone: mean",
        "max",
    ]);
    for (vm, alone) in vms.iter().zip(&result.alone) {
        let Some(jobs) = &vm.jobs else { continue };
        let alone = alone.as_ref().and_then(|alone| alone.outcome.jobs.as_ref());
        let of_alone =
            |of: &dyn Fn(&JobsOutcome) -> String| alone.map_or_else(|| "-".to_owned(), of);
        let with_deadline =
            |count: u64| jobs.deadline_ns.map_or_else(|| "-".to_owned(), |_| count.to_string());
        rows.add_row([
            vm.name.clone(),
            jobs.ended.to_string(),
            jobs.deadline_ns.map_or_else(|| "-".to_owned(), ns),
            with_deadline(jobs.met),
            with_deadline(jobs.missed),
            ns(jobs.response.mean().0),
            jobs.response.at_most_ns(990).to_string(),
            jobs.response.most_ns().to_string(),
            of_alone(&|alone| ns(alone.response.mean().0)),
            of_alone(&|alone| alone.response.most_ns().to_string()),
        ]);
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

/// The flows' packets, and their maximum latency next to the bound of the analysis.
fn flows(out: &mut impl Write, result: &Simulated) -> Result {
    if let Some(why) = &result.left_out {
        writeln!(out, "flows are left out: {why}")?;
    }
    if result.outcome.flows.is_empty() {
        return Ok(());
    }
    let mut rows = table([
        "flow",
        "packets",
        "deadline us",
        "met",
        "missed",
        "lost",
        "mean ns",
        "99 %",
        "max ns",
        "bound",
        "verdict",
    ]);
    for (flow, bound) in result.outcome.flows.iter().zip(&result.bounds) {
        let deadline = |text: String| flow.deadline_ns.map_or_else(|| "-".to_owned(), |_| text);
        let verdict = within_bound(flow, *bound).map_or(Verdict::NotJudged, Verdict::of);
        rows.add_row([
            flow.name.clone(),
            flow.arrived.to_string(),
            deadline(ns(flow.deadline_ns.unwrap_or(0))),
            deadline(flow.met.to_string()),
            deadline(flow.missed.to_string()),
            flow.lost.to_string(),
            ns(flow.latency.mean().0),
            flow.latency.at_most_ns(990).to_string(),
            max_latency_ns(flow).to_string(),
            bound.map_or_else(|| "-".to_owned(), |bound| bound.to_string()),
            verdict.to_string(),
        ]);
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

/// What the SMMU's translation buffer units counted, where one was used.
fn translations(out: &mut impl Write, outcome: &Outcome) -> Result {
    for tbu in &outcome.tbus {
        if tbu.lookups.iter().all(|count| *count == 0) {
            continue;
        }
        let title = format!("TBU {}", tbu.name);
        let mut rows =
            table([title.as_str(), "translations", "walks", "entries of others thrown out"]);
        for (index, vm) in outcome.vms.iter().enumerate() {
            rows.add_row([
                vm.name.clone(),
                tbu.lookups[index].to_string(),
                tbu.misses[index].to_string(),
                tbu.of_others(index).to_string(),
            ]);
        }
        writeln!(out, "{rows}")?;
    }
    Ok(())
}

/// Picoseconds as nanoseconds with one digit behind the point.
pub fn ns(ps: u64) -> String {
    format!("{}.{}", ps / 1000, ps % 1000 / 100)
}

/// Writes how long each VM waited for each other.
fn waits(out: &mut impl Write, outcome: &Outcome) -> Result {
    let vms = &outcome.vms;
    let mut rows = table(
        std::iter::once("waited, us: VM (row) for VM (column)".to_owned())
            .chain(vms.iter().map(|vm| vm.name.clone()))
            .chain(["all".to_owned()])
            .collect::<Vec<_>>(),
    );
    let us = |ps: u64| format!("{}.{:03}", ps / 1_000_000, ps % 1_000_000 / 1000);
    for (vm, victim) in vms.iter().zip(0..) {
        let by = (0..).take(vms.len()).map(|by| us(outcome.waits.get(Owner(victim), Owner(by)).0));
        let all = us(outcome.waits.suffered(Owner(victim)).0);
        rows.add_row(std::iter::once(vm.name.clone()).chain(by).chain([all]).collect::<Vec<_>>());
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

fn counts(out: &mut impl Write, title: &str, outcome: &Outcome, counts: &[Vec<u64>]) -> Result {
    let names = outcome.vms.iter().map(|vm| vm.name.clone());
    let mut rows = table(std::iter::once(title.to_owned()).chain(names).collect::<Vec<_>>());
    for (vm, row) in outcome.vms.iter().zip(counts) {
        let row = row.iter().map(u64::to_string);
        rows.add_row(std::iter::once(vm.name.clone()).chain(row).collect::<Vec<_>>());
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

fn budgets(out: &mut impl Write, vms: &[VmOutcome]) -> Result {
    if vms.iter().all(|vm| vm.budgets.is_empty()) {
        return Ok(());
    }
    let mut rows =
        table(["budgets", "granted", "most in a period", "period us", "periods", "stopped, share"]);
    let pair = |reads: u64, writes: u64, two: bool| {
        if two { format!("{reads} + {writes}") } else { reads.to_string() }
    };
    for vm in vms {
        for (vcpu, budget) in vm.budgets.iter().enumerate() {
            let BudgetOutcome { granted, most, .. } = budget;
            let two = granted.writes != u64::MAX;
            let stopped = budget.stopped_ns * 100 / (budget.periods * budget.period_ns).max(1);
            rows.add_row([
                format!("{}, vCPU {vcpu}", vm.name),
                pair(granted.reads, granted.writes, two),
                pair(most.reads, most.writes, two),
                ns(budget.period_ns),
                budget.periods.to_string(),
                format!("{stopped} %"),
            ]);
        }
    }
    writeln!(out, "{rows}")?;
    Ok(())
}
