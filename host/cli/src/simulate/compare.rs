//! What colors and budgets do: the system with both, with either, with neither.

use super::{failed, tables::ns, warn};
use crate::{failure::Result, screen};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::Write;
use weir_report::table;
use weir_simulator::{Alone, Outcome, SameWork, SimulatedBoard, Simulation, VmOutcome};

/// A variant of the system.
#[derive(Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the fields are the keys of the JSON result")]
pub struct Variant {
    /// The name of the variant.
    pub variant: String,
    /// The VMs in the order of the file.
    pub vms: Vec<VariantVm>,
    /// Lines of other VMs that each VM evicted from the second level.
    evicted_of_others: Vec<u64>,
}

/// The outcome of a VM in a variant.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct VariantVm {
    /// The name of the VM.
    name: String,
    /// How many times as slow as alone the VM was; none if it completed nothing.
    pub slowdown: Option<f64>,
    /// The mean latency of its accesses in ps.
    latency_mean_ps: u64,
    /// The 99th percentile of the latency in ns.
    latency_p99_ns: u64,
    /// The most reads and writes in a period, of each regulated vCPU.
    most_in_a_period: Vec<[u64; 2]>,
    /// The greatest budget of reads at the start of a period, of each regulated vCPU; 2^64 - 1
    /// without a limit.
    granted: Vec<u64>,
}

/// The outcomes of the four variants, by name, and what each VM does alone.
type Variants = (Vec<(&'static str, Outcome)>, Vec<Option<Alone>>);

/// Runs the four variants.
fn simulate(simulation: &Simulation) -> Result<Variants> {
    let board = &simulation.board;
    let variants: [(&str, SimulatedBoard); 4] = [
        ("as described", board.clone()),
        ("without budgets", board.unregulated()),
        ("without colors and banks", board.undivided()),
        ("with neither", board.undivided().unregulated()),
    ];
    let outcomes = variants
        .par_iter()
        .map(|(name, board)| Ok((*name, simulation.simulate(board).map_err(failed)?)))
        .collect::<Result<Vec<_>>>()?;
    let all: Vec<_> = outcomes.iter().map(|(_, outcome)| outcome).collect();
    warn(all.iter().find_map(|outcome| simulation.too_short(outcome)).as_ref())?;
    let alone = simulation.alone(&all).map_err(failed)?;
    Ok((outcomes, alone))
}

/// The four variants, for JSON.
pub fn describe(simulation: &Simulation) -> Result<Vec<Variant>> {
    let (outcomes, alone) = simulate(simulation)?;
    let all: Vec<_> = outcomes
        .iter()
        .enumerate()
        .map(|(variant, (name, outcome))| {
            let vm = |(vm, alone): (&VmOutcome, &Option<Alone>)| VariantVm {
                name: vm.name.clone(),
                slowdown: SameWork::of(vm, alone.as_ref(), variant).map(SameWork::rounded),
                latency_mean_ps: vm.latency.mean().0,
                latency_p99_ns: vm.latency.at_most_ns(990),
                most_in_a_period: vm
                    .budgets
                    .iter()
                    .map(|budget| [budget.most.reads, budget.most.writes])
                    .collect(),
                granted: vm.budgets.iter().map(|budget| budget.granted.reads).collect(),
            };
            let vms = outcome.vms.iter().zip(&alone).map(vm).collect();
            Variant { variant: (*name).to_owned(), vms, evicted_of_others: evicted(outcome) }
        })
        .collect();
    Ok(all)
}

/// Runs the four variants and prints them.
pub fn run(simulation: &Simulation, json: bool) -> Result {
    let mut out = screen::stdout();
    if json {
        writeln!(out, "{:#}", weir_report::versioned(describe(simulation)?))?;
        return Ok(());
    }
    let (outcomes, alone) = simulate(simulation)?;
    let mut rows = table([
        "variant",
        "VM",
        "slowdown",
        "mean ns",
        "99 %",
        "of others evicted",
        "most in a period",
    ]);
    for (variant, (name, outcome)) in outcomes.iter().enumerate() {
        let evicted = evicted(outcome);
        for ((vm, alone), evicted) in outcome.vms.iter().zip(&alone).zip(evicted) {
            let periods: Vec<_> = vm
                .budgets
                .iter()
                .map(|budget| format!("{} of {}", budget.most.reads, budget.granted.reads))
                .collect();
            rows.add_row([
                (*name).to_owned(),
                vm.name.clone(),
                SameWork::of(vm, alone.as_ref(), variant)
                    .map_or("-".to_owned(), |work| format!("{:.2}", work.slowdown())),
                ns(vm.latency.mean().0),
                vm.latency.at_most_ns(990).to_string(),
                evicted.to_string(),
                periods.join(", "),
            ]);
        }
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

/// Lines of other VMs that each VM evicted from the second level.
fn evicted(outcome: &Outcome) -> Vec<u64> {
    let of_others = |(by, row): (usize, &Vec<u64>)| {
        row.iter().enumerate().filter(|(of, _)| *of != by).map(|(_, count)| count).sum()
    };
    outcome.evictions.iter().enumerate().map(of_others).collect()
}
