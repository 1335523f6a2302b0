//! Why there is no plan: a minimal set of demands that conflict, and what they are short of.

use super::judge::Asker;
use crate::{
    Nanos,
    memory::Budget,
    search::{self, Demand},
    system::Limits,
};
use serde::Serialize;
use weir_model::{
    Timing,
    timing::{MemoryBudget, TimedVm},
};

/// Demands of a file that cannot be met together.
#[derive(Clone, Debug, Serialize)]
pub struct Conflict {
    /// The conflicting demands; empty if what the file and the platform give is too much already.
    pub demands: Vec<String>,
    /// Whether the demands have a plan without any one of them.
    pub minimal: bool,
    /// What the demands are short of.
    pub shortages: Vec<Shortage>,
}

/// Something that there is too little of.
#[derive(Clone, Debug, Serialize)]
pub struct Shortage {
    /// The resource.
    pub what: String,
    /// The unit of the numbers.
    pub unit: &'static str,
    /// How much is demanded; none if no amount is enough.
    pub asked: Option<u64>,
    /// How much there is.
    pub have: u64,
    /// The difference.
    pub missing: Option<u64>,
    /// All of that in a sentence.
    pub text: String,
}

impl Shortage {
    fn new(what: &str, unit: &'static str, asked: u64, have: u64, text: &str) -> Self {
        let missing = asked.saturating_sub(have);
        let text = format!("{what}: {text}: {missing} {unit} too little");
        Self { what: what.to_owned(), unit, asked: Some(asked), have, missing: Some(missing), text }
    }
}

impl Conflict {
    pub(super) fn new(
        conflict: &search::Conflict,
        shortages: Vec<search::Shortage>,
        asker: &Asker,
    ) -> Self {
        Self {
            demands: conflict.demands.iter().map(|demand| name(asker.timing, *demand)).collect(),
            minimal: conflict.minimal,
            shortages: shortages.into_iter().flat_map(|short| shortage(asker, short)).collect(),
        }
    }
}

fn shortage(by: &Asker, shortage: search::Shortage) -> Vec<Shortage> {
    let timing = by.timing;
    let vm = |vm: usize| timing.vms.get(vm).map_or("?", |vm| vm.name.as_str());
    let of = |asked: u64, have: u64| format!("{asked} are needed, and there are {have}");
    match shortage {
        search::Shortage::Colors { asked, have } => {
            vec![Shortage::new("colors", "colors", asked, have, &of(asked, have))]
        }
        search::Shortage::Banks { asked, have } => {
            vec![Shortage::new("banks", "banks", asked, have, &of(asked, have))]
        }
        search::Shortage::Given { vm: index, .. } => {
            let bandwidth = timing.vms.get(index).and_then(|vm| vm.memory_budget.as_ref());
            let line = timing.saturation.as_ref().map_or(1, |saturation| saturation.line.0.max(1));
            let given = bandwidth.and_then(|asked| asked.required.zip(asked.budget));
            let Some((required, (have, period))) = given else {
                return Vec::new();
            };
            let bytes = u128::from(required.0) * u128::from(period.0);
            let asked = bytes.div_ceil(u128::from(line) * 1_000_000_000);
            let asked = u64::try_from(asked).unwrap_or(u64::MAX);
            let text =
                format!("{required} take {asked} accesses in {period}, and the file gives {have}");
            vec![Shortage::new(&format!("budget of {}", vm(index)), "accesses", asked, have, &text)]
        }
        search::Shortage::Budgets { asked, have } => {
            let Some(period) = timing.saturation.as_ref().map(|saturation| saturation.period)
            else {
                return vec![Shortage::new("budgets", "accesses", asked, have, &of(asked, have))];
            };
            let (mut short, counted) = bursts(timing, period);
            // At their rate in the table's period, bursts count for less.
            let asked = counted
                .iter()
                .fold(asked, |sum, [whole, rate]| sum.saturating_sub(*whole).saturating_add(*rate));
            if asked > have {
                let text = format!(
                    "the least budgets of all VMs are {asked} accesses in {period}, and the memory saturates above {have}"
                );
                short.push(Shortage::new("budgets", "accesses", asked, have, &text));
            }
            short
        }
        search::Shortage::Dma { chunk, asked, have, budgets } => {
            let most = format!(
                "there are {} B/s next to budgets of {budgets}, in chunks of {chunk}",
                have.0
            );
            let Some(asked) = asked else {
                let text =
                    format!("DMA bandwidth: no bandwidth is enough for the flows, and {most}");
                return vec![Shortage {
                    what: "DMA bandwidth".to_owned(),
                    unit: "B/s",
                    asked: None,
                    have: have.0,
                    missing: None,
                    text,
                }];
            };
            let index = if timing.dma.bandwidth.is_some_and(|given| given.0 == asked.0) {
                "the file gives"
            } else {
                "the flows need"
            };
            let text = format!("{index} {} B/s, {most}", asked.0);
            vec![Shortage::new("DMA bandwidth", "B/s", asked.0, have.0, &text)]
        }
        search::Shortage::Task { vm: index, budgets, moved } => {
            let Some(time) = by.tasks(index, (&budgets, &moved), true) else {
                return Vec::new();
            };
            let open =
                |vm: &TimedVm| vm.memory_budget.as_ref().is_none_or(|its| its.budget.is_none());
            let chosen = timing.vms.get(index).is_some_and(open);
            let known = timing.saturation.as_ref().filter(|_| chosen).zip(budgets.get(index));
            let most = known.map_or(String::new(), |(known, budget)| {
                format!(
                    ", even with the greatest budget that is left, {budget} in {}",
                    known.period
                )
            });
            let late = time.late().map(|task| {
                let missing = task.response_ns.map(|response| response - task.deadline_ns);
                let reason = task.cause.clone().unwrap_or_default();
                Shortage {
                    what: format!("deadline of {}: {}", vm(index), task.name),
                    unit: "ns",
                    asked: task.response_ns,
                    have: task.deadline_ns,
                    missing,
                    text: match missing {
                        Some(missing) => format!("{reason}: {missing} ns too late{most}"),
                        None => reason,
                    },
                }
            });
            late.collect()
        }
    }
}

/// Kept budgets of a longer period than the table's `period`: each may be spent in one burst.
/// Returns a shortage for each, and what it counts for, whole and at its rate.
fn bursts(timing: &Timing, period: Nanos) -> (Vec<Shortage>, Vec<[u64; 2]>) {
    let least = timing.saturation.as_ref().map_or(1, |saturation| saturation.min_accesses.max(1));
    let of = |vm: &TimedVm| {
        let limits = Limits::of(timing, vm).filter(|limits| limits.written.period > period)?;
        let Budget { accesses, period: written } = limits.written;
        let each = vm.memory_budget.as_ref().is_some_and(MemoryBudget::is_each);
        let sharers = if each { vm.cpus.len().max(1) as u64 } else { 1 };
        let rate = u128::from(accesses) * u128::from(period.0) / u128::from(written.0);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let text = format!(
            "budget of {}: {accesses} accesses in {written} may be one burst, which counts whole in {period}; the same rate is {rate} in {period}: write accesses = {}, period = \"{period}\"",
            vm.name,
            rate.max(least).div_ceil(sharers)
        );
        let shortage = Shortage {
            what: format!("budget of {}", vm.name),
            unit: "accesses",
            asked: Some(accesses),
            have: rate,
            missing: Some(accesses.saturating_sub(rate)),
            text,
        };
        let whole = limits.regulation.most(limits.most.accesses, 1).unwrap_or(u64::MAX);
        Some((shortage, [whole, rate]))
    };
    timing.vms.iter().filter_map(of).unzip()
}

/// The name of a demand.
fn name(timing: &Timing, demand: Demand) -> String {
    let vm = |vm: usize| timing.vms.get(vm).map_or("?", |vm| vm.name.as_str());
    let mut timed = timing.flows.iter().filter(|flow| !flow.best_effort);
    match demand {
        Demand::WorkingSet(at) => format!("working set of {}", vm(at)),
        Demand::Memory(at) => format!("memory of {}", vm(at)),
        Demand::Bandwidth(at) => format!("bandwidth of {}", vm(at)),
        Demand::Task(at) => format!("tasks of {}", vm(at)),
        Demand::Flow(at) => {
            format!("flow {}", timed.nth(at).map_or("?", |flow| flow.name.as_str()))
        }
    }
}
