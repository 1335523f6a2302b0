//! A simulation's result as JSON.

use super::result::{SameWork, Simulated, curve, max_latency_ns, within_bound};
use serde_json::{Value, json};
use weir_analysis::verdict::Verdict;
use weir_simulator::{LatencyHistogram, Outcome, VmOutcome};

/// As `--json` prints it.
pub fn describe(result: &Simulated) -> Value {
    let Outcome { vms, flows, waits, evictions, closed, tbus, blocked_ps, span_ns, slice_ns } =
        &result.outcome;
    let name = |vm: usize| vms[vm].name.clone();
    let matrix = |rows: &[Vec<u64>]| -> Value {
        rows.iter()
            .enumerate()
            .map(|(by, row)| {
                let of = row.iter().enumerate().map(|(of, count)| (name(of), json!(count)));
                (name(by), Value::Object(of.collect()))
            })
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let each = vms.iter().zip(&result.alone).zip(0_u8..).map(|((vm, alone), index)| {
        let work = SameWork::of(vm, alone.as_ref(), 0);
        let alone = alone.as_ref().map(|alone| &alone.outcome);
        let blame = vms.iter().zip(0_u8..).map(|(other, by)| {
            (
                other.name.clone(),
                json!(waits.get(weir_memory::Owner(index), weir_memory::Owner(by)).0),
            )
        });
        json!({
            "name": vm.name,
            "accesses": vm.accesses,
            "slowdown": work.map(SameWork::rounded),
            "same_work": work.map(|work| json!({
                "units": work.units,
                "together_ps": work.together.0,
                "alone_ps": work.alone.0,
            })),
            "latency_ns": latency(vm),
            "alone": alone.map(|alone| json!({
                "accesses": alone.accesses,
                "latency_ns": latency(alone),
            })),
            "jobs": vm.jobs.as_ref().map(|jobs| json!({
                "deadline_ns": jobs.deadline_ns,
                "ended": jobs.ended,
                "met": jobs.met,
                "missed": jobs.missed,
                "response_ns": distribution(&jobs.response),
            })),
            "pass_ps": vm.pass.map(|pass| pass.0),
            "refills": vm.refills,
            "write_backs": vm.write_backs,
            "dma_bytes": vm.moved,
            "mb_per_s": vm.mb_per_s(*span_ns),
            "lines_per_slice": vm.slices,
            "delay_ps": vm.delay_ps,
            "waited_for_ps": Value::Object(blame.collect()),
            "arrival_curve": curve(vm),
            "budgets": vm.budgets.iter().map(budget).collect::<Vec<_>>(),
        })
    });
    json!({
        "span_ns": span_ns,
        "slice_ns": slice_ns,
        "vms": each.collect::<Vec<_>>(),
        "flows": flows.iter().zip(&result.bounds).map(|(flow, bound)| json!({
            "name": flow.name,
            "sent": flow.sent,
            "arrived": flow.arrived,
            "deadline_ns": flow.deadline_ns,
            "met": flow.met,
            "missed": flow.missed,
            "lost": flow.lost,
            "latency_ns": distribution(&flow.latency),
            "observed_max_ns": max_latency_ns(flow),
            "bound_ns": bound,
            "within_bound": within_bound(flow, *bound),
            "verdict": within_bound(flow, *bound).map_or(Verdict::NotJudged, Verdict::of).key(),
        })).collect::<Vec<_>>(),
        "flows_left_out": result.left_out,
        "evicted": matrix(evictions),
        "rows_closed": matrix(closed),
        "tbus": tbus.iter().map(|tbu| json!({
            "name": tbu.name,
            "lookups": by_vm(vms, &tbu.lookups),
            "walks": by_vm(vms, &tbu.misses),
            "evicted": matrix(&tbu.evictions),
        })).collect::<Vec<_>>(),
        "l2_blocked_ps": blocked_ps,
    })
}

fn by_vm(vms: &[VmOutcome], counts: &[u64]) -> Value {
    let each = vms.iter().zip(counts).map(|(vm, count)| (vm.name.clone(), json!(count)));
    Value::Object(each.collect())
}

/// The values of each VM in a line of a sweep.
pub fn brief(result: &Simulated) -> Value {
    let vms = result.outcome.vms.iter().zip(&result.alone);
    let each = vms.map(|(vm, alone)| {
        json!({
            "name": vm.name,
            "accesses": vm.accesses,
            "slowdown": SameWork::of(vm, alone.as_ref(), 0).map(SameWork::rounded),
            "latency_ns": latency(vm),
            "mb_per_s": vm.mb_per_s(result.outcome.span_ns),
            "deadlines_missed": vm.jobs.as_ref().map(|jobs| jobs.missed),
            "delay_ps": vm.delay_ps,
            "budgets": vm.budgets.iter().map(budget).collect::<Vec<_>>(),
        })
    });
    each.collect()
}

fn budget(budget: &weir_simulator::BudgetOutcome) -> Value {
    let count = |count: u64| (count != u64::MAX).then_some(count);
    json!({
        "period_ns": budget.period_ns,
        "granted": [count(budget.granted.reads), count(budget.granted.writes)],
        "periods": budget.periods,
        "most_in_a_period": [budget.most.reads, budget.most.writes],
        "total": [budget.total.reads, budget.total.writes],
        "throttled": budget.throttled,
        "stopped_ns": budget.stopped_ns,
    })
}

fn latency(vm: &VmOutcome) -> Value {
    distribution(&vm.latency)
}

fn distribution(latency: &LatencyHistogram) -> Value {
    json!({
        "mean": latency.mean().0 / 1000,
        "p50": latency.at_most_ns(500),
        "p90": latency.at_most_ns(900),
        "p99": latency.at_most_ns(990),
        "p999": latency.at_most_ns(999),
        "max": latency.most_ns(),
    })
}
