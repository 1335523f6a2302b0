//! Why there is no plan: a minimal set of demands that conflict, and what they are short of.

use super::{
    judge::Asker,
    problem::{Demand, sharers},
    search,
};
use crate::{BytesPerSec, Nanos, memory::Budget, system::Limits};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::{System, Vm};

/// Demands of a file that cannot be met together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Conflict {
    /// The conflicting demands; empty if what the file and the platform give is too much already.
    pub demands: Vec<String>,
    /// Whether the demands have a plan without any one of them.
    pub minimal: bool,
    /// What the demands are short of.
    pub shortages: Vec<Shortage>,
}

/// Something that there is too little of.
#[derive(Clone, Debug, Serialize, JsonSchema)]
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
    fn new(what: impl Into<String>, unit: &'static str, (asked, have): (u64, u64)) -> Self {
        let (what, missing) = (what.into(), asked.saturating_sub(have));
        let text = format!(
            "{what}: {asked} are needed, and there are {have}: {missing} {unit} too little"
        );
        Self { what, unit, asked: Some(asked), have, missing: Some(missing), text }
    }

    /// Returns what servers need of a core: `asked` ns of each ms, if each of them has a budget.
    pub(super) fn of_core(core: u64, asked: Option<u64>, parts: &str) -> Self {
        let (what, have) = (format!("core {core}"), 1_000_000);
        let missing = asked.and_then(|asked| asked.checked_sub(have));
        let text = match (asked, missing) {
            (Some(asked), Some(_)) => {
                format!("{what}: {parts}: together {} of each ms", Nanos(asked))
            }
            (Some(_), None) => format!("{what}: {parts}, but they have no servers together"),
            (None, _) => format!("{what}: {parts}"),
        };
        Self { what, unit: "ns of each ms", asked, have, missing, text }
    }

    /// Explains the numbers by `why` instead.
    fn because(mut self, why: &str) -> Self {
        let missing = self.missing.unwrap_or(0);
        self.text = format!("{}: {why}: {missing} {} too little", self.what, self.unit);
        self
    }
}

impl Conflict {
    pub(super) fn new(
        demands: &[Demand],
        minimal: bool,
        shortages: Vec<search::SearchShortage>,
        asker: &Asker,
    ) -> Self {
        let demands = demands.iter().map(|demand| name(asker.system, *demand)).collect();
        let shortages = shortages.into_iter().flat_map(|one| shortage(asker, one)).collect();
        Self { demands, minimal, shortages }
    }
}

fn vm_name(system: &System, vm: usize) -> &str {
    system.guests().get(vm).map_or("?", |vm| &vm.name)
}

fn shortage(by: &Asker, shortage: search::SearchShortage) -> Vec<Shortage> {
    let system = by.system;
    match shortage {
        search::SearchShortage::Colors { asked, have } => {
            vec![Shortage::new("colors", "colors", (asked, have))]
        }
        search::SearchShortage::Banks { asked, have } => {
            vec![Shortage::new("banks", "banks", (asked, have))]
        }
        search::SearchShortage::Given { vm } => given(system, vm).into_iter().collect(),
        search::SearchShortage::Budgets { asked, have } => budgets(system, asked, have),
        search::SearchShortage::Dma { chunk, asked, have, budgets } => {
            let what = "DMA bandwidth";
            let most = format!(
                "there are {} B/s next to budgets of {budgets}, in chunks of {chunk}",
                have.0
            );
            let Some(asked) = asked else {
                let text = format!("{what}: no bandwidth is enough for the flows, and {most}");
                let (what, missing) = (what.to_owned(), None);
                return vec![Shortage {
                    what,
                    unit: "B/s",
                    asked: None,
                    have: have.0,
                    missing,
                    text,
                }];
            };
            let by_file = system.dma.bandwidth.is_some_and(|given| given == asked);
            let source = if by_file { "the file gives" } else { "the flows need" };
            let why = format!("{source} {} B/s, {most}", asked.0);
            vec![Shortage::new(what, "B/s", (asked.0, have.0)).because(&why)]
        }
        search::SearchShortage::Task { vm, budgets, dma } => late(by, vm, &budgets, dma),
    }
}

/// Returns what a given budget lacks for the bandwidth that its VM requires.
fn given(system: &System, vm: usize) -> Option<Shortage> {
    let asked = system.guests().get(vm)?.memory_budget.as_ref()?;
    let (required, (have, period)) = asked.required.zip(asked.budget)?;
    let line = system.saturation.as_ref().map_or(1, |saturation| saturation.line.0.max(1));
    let bytes = u128::from(required.0) * u128::from(period.0);
    let needed = bytes.div_ceil(u128::from(line) * 1_000_000_000);
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    let why = format!("{required} take {needed} accesses in {period}, and the file gives {have}");
    let what = format!("budget of {}", vm_name(system, vm));
    Some(Shortage::new(what, "accesses", (needed, have)).because(&why))
}

/// Returns what the least budgets lack.
fn budgets(system: &System, asked: u64, have: u64) -> Vec<Shortage> {
    let Some(period) = system.saturation.as_ref().map(|saturation| saturation.period) else {
        return vec![Shortage::new("budgets", "accesses", (asked, have))];
    };
    let (mut short, counted): (Vec<_>, Vec<_>) =
        system.guests().iter().filter_map(|vm| burst(system, vm, period)).unzip();
    // At their rate in the table's period, bursts count for less.
    let asked = counted
        .iter()
        .fold(asked, |sum, [whole, rate]| sum.saturating_sub(*whole).saturating_add(*rate));
    if asked > have {
        let why = format!(
            "the least budgets of all VMs are {asked} accesses in {period}, and the memory \
             saturates above {have}"
        );
        short.push(Shortage::new("budgets", "accesses", (asked, have)).because(&why));
    }
    short
}

/// Returns the shortage by a kept budget of a longer period than the table's `period`, which may be
/// spent in one burst, and what the budget counts for: whole and at its rate.
fn burst(system: &System, vm: &Vm, period: Nanos) -> Option<(Shortage, [u64; 2])> {
    let limits = Limits::of(system, vm).filter(|limits| limits.written.period > period)?;
    let Budget { accesses, period: written } = limits.written;
    let rate = u128::from(accesses) * u128::from(period.0) / u128::from(written.0);
    let rate = u64::try_from(rate).unwrap_or(u64::MAX);
    let least = system.saturation.as_ref().map_or(1, |saturation| saturation.min_accesses.max(1));
    let mut shortage =
        Shortage::new(format!("budget of {}", vm.name), "accesses", (accesses, rate));
    shortage.text = format!(
        "{}: {accesses} accesses in {written} may be one burst, which counts whole in {period}; \
         the same rate is {rate} in {period}: write accesses = {}, period = \"{period}\"",
        shortage.what,
        rate.max(least).div_ceil(sharers(vm))
    );
    let whole = limits.regulation.most(limits.most.accesses, 1).unwrap_or(u64::MAX);
    Some((shortage, [whole, rate]))
}

/// Returns the tasks of a VM that are late with these budgets.
fn late(by: &Asker, vm: usize, budgets: &[u64], dma: BytesPerSec) -> Vec<Shortage> {
    let Some(time) = by.tasks(vm, (budgets, dma), true) else { return Vec::new() };
    let asked = by.system.guests().get(vm).and_then(|vm| vm.memory_budget.as_ref());
    let is_chosen = asked.is_none_or(|asked| asked.budget.is_none());
    let known = by.system.saturation.as_ref().filter(|_| is_chosen).zip(budgets.get(vm));
    let most = known.map_or(String::new(), |(known, budget)| {
        let period = known.period;
        format!(", even with the greatest budget that is left, {budget} in {period}")
    });
    let late = time.late().map(|task| {
        let missing = task.response_ns.map(|response| response - task.deadline_ns);
        let reason = task.cause.clone().unwrap_or_default();
        Shortage {
            what: format!("deadline of {}: {}", vm_name(by.system, vm), task.name),
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

/// Returns the name of a demand.
fn name(system: &System, demand: Demand) -> String {
    let (what, vm) = match demand {
        Demand::WorkingSet(vm) => ("working set", vm),
        Demand::Memory(vm) => ("memory", vm),
        Demand::Bandwidth(vm) => ("bandwidth", vm),
        Demand::Task(vm) => ("tasks", vm),
        Demand::Flow(position) => {
            let flow = system.flows.iter().filter(|flow| !flow.best_effort).nth(position);
            return format!("flow {}", flow.map_or("?", |flow| &flow.name));
        }
    };
    format!("{what} of {}", vm_name(system, vm))
}
