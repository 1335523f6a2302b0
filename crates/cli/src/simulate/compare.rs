//! What colors and budgets do: the system with both, with either, with neither.

use super::{
    system::{Simulation, slowdown},
    tell::ns,
};
use crate::{failure::Result, run::show::table};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::io::Write;
use weir_sim::{Board, Outcome};

/// Runs the four variants and prints them.
pub fn run(simulation: &Simulation, json: bool) -> Result {
    let board = &simulation.board;
    let variants: [(&str, Board); 4] = [
        ("as the file says", board.clone()),
        ("without budgets", board.unregulated()),
        ("without colors and banks", board.undivided()),
        ("with neither", board.undivided().unregulated()),
    ];
    let alone = simulation.alone()?;
    let outcomes = variants
        .par_iter()
        .map(|(name, board)| Ok((*name, simulation.simulate(board)?)))
        .collect::<Result<Vec<_>>>()?;
    let mut out = anstream::stdout().lock();
    if json {
        let all: Vec<_> = outcomes
            .iter()
            .map(|(name, outcome)| {
                let vms: Vec<_> = outcome.vms.iter().zip(&alone).map(|(vm, alone)| json!({
                    "name": vm.name,
                    "slowdown": slowdown(vm, alone.as_ref()).map(|times| (times * 1000.0).round() / 1000.0),
                    "latency_mean_ps": vm.latency.mean().0,
                    "latency_p99_ns": vm.latency.at_most_ns(990),
                    "most_in_a_period": vm.budgets.iter().map(|budget| [budget.most.reads, budget.most.writes]).collect::<Vec<_>>(),
                    "granted": vm.budgets.iter().map(|budget| budget.granted.reads).collect::<Vec<_>>(),
                })).collect();
                json!({ "variant": name, "vms": vms, "evicted_of_others": evicted(outcome) })
            })
            .collect();
        writeln!(out, "{:#}", Value::from(all))?;
        return Ok(());
    }
    let mut rows = table([
        "variant",
        "VM",
        "slowdown",
        "mean ns",
        "99 %",
        "of others evicted",
        "most in a period",
    ]);
    for (name, outcome) in &outcomes {
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
                slowdown(vm, alone.as_ref()).map_or("-".to_owned(), |times| format!("{times:.2}")),
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
