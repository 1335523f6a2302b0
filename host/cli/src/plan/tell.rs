//! What was chosen, or why nothing could be, in words and as JSON.

use super::{Choice, ask::Asker, board::is_best_effort, edit::numbers};
use serde_json::{Value, json};
use std::fmt::Write as _;
use weir_analysis::{
    memory::Budget,
    plan::{Conflict, Demand, Shortage},
};
use weir_model::Timing;
use weir_model::timing::TimedVm;

/// So many of a long list are told to a person.
const TOLD: usize = 16;

/// Why there is no plan.
pub struct Refused {
    demands: Vec<String>,
    smallest: bool,
    at_least: usize,
    /// Where the search for a smaller set ended by the limit.
    spent: bool,
    shortages: Vec<Short>,
}

/// Something that there is too little of.
struct Short {
    what: String,
    unit: &'static str,
    asked: Option<u64>,
    have: u64,
    text: String,
}

impl Short {
    fn new(what: &str, unit: &'static str, asked: u64, have: u64, text: &str) -> Self {
        let missing = asked.saturating_sub(have);
        let text = format!("{what}: {text}: {missing} {unit} too little");
        Self { what: what.to_owned(), unit, asked: Some(asked), have, text }
    }
}

impl Refused {
    pub fn new(conflict: &Conflict, shortages: Vec<Shortage>, asker: &Asker, spent: bool) -> Self {
        Self {
            demands: conflict.demands.iter().map(|demand| name(asker.timing, *demand)).collect(),
            smallest: conflict.smallest,
            at_least: conflict.at_least,
            spent,
            shortages: shortages.into_iter().flat_map(|short| shortage(asker, short)).collect(),
        }
    }

    pub fn to_json(&self) -> Value {
        let shortages = self.shortages.iter().map(|short| {
            json!({
                "what": short.what,
                "unit": short.unit,
                "asked": short.asked,
                "have": short.have,
                "missing": short.asked.map(|asked| asked.saturating_sub(short.have)),
                "text": short.text,
            })
        });
        json!({
            "demands": self.demands,
            "smallest": self.smallest,
            "at_least": self.at_least,
            "shortages": shortages.collect::<Vec<_>>(),
        })
    }

    pub fn text(&self) -> String {
        let mut text = String::from("there is no plan: ");
        // Writing to a string does not fail.
        if self.demands.is_empty() {
            text.push_str("what the file and the platform give already (least budgets, budgets, DMA bandwidth) is too much, whatever is demanded of it");
        } else {
            text.push_str("these demands can't be met together");
        }
        for demand in self.demands.iter().take(TOLD) {
            let _ = write!(text, "\n  {demand}");
        }
        if self.demands.len() > TOLD {
            let _ = write!(text, "\n  and {} more; --json has all", self.demands.len() - TOLD);
        }
        for short in &self.shortages {
            let _ = write!(text, "\n{}", short.text);
        }
        if !self.smallest {
            let why = if self.spent {
                "the effort was spent (--max-steps)"
            } else {
                "it takes too many steps"
            };
            let _ = write!(
                text,
                "\nperhaps {} of the demands are too many already: {why} before that was known",
                self.at_least.max(1)
            );
        }
        text
    }
}

fn shortage(by: &Asker, shortage: Shortage) -> Vec<Short> {
    let timing = by.timing;
    let vm = |vm: usize| timing.vms.get(vm).map_or("?", |vm| vm.name.as_str());
    let of = |asked: u64, have: u64| format!("{asked} are needed, there are {have}");
    match shortage {
        Shortage::Colors { asked, have } => {
            vec![Short::new("colors", "colors", asked, have, &of(asked, have))]
        }
        Shortage::Banks { asked, have } => {
            vec![Short::new("banks", "banks", asked, have, &of(asked, have))]
        }
        Shortage::Given { vm: who, .. } => {
            let bandwidth = timing.vms.get(who).and_then(|vm| vm.bandwidth.as_ref());
            let line = timing.saturation.as_ref().map_or(1, |saturation| saturation.line.0.max(1));
            let given = bandwidth.and_then(|asked| asked.required.zip(asked.budget));
            let Some((required, (have, period))) = given else {
                return Vec::new();
            };
            let bytes = u128::from(required.0) * u128::from(period.0);
            let asked = bytes.div_ceil(u128::from(line) * 1_000_000_000);
            let asked = u64::try_from(asked).unwrap_or(u64::MAX);
            let text =
                format!("{required} take {asked} accesses in {period}, and the file says {have}");
            vec![Short::new(&format!("budget of {}", vm(who)), "accesses", asked, have, &text)]
        }
        Shortage::Budgets { asked, have } => {
            let period = timing.saturation.as_ref().map(|saturation| saturation.period);
            let each = period.map_or(String::new(), |period| format!(" in {period}"));
            let text =
                format!("the least of all VMs are {asked} accesses{each}, and {have} are harmless");
            vec![Short::new("budgets", "accesses", asked, have, &text)]
        }
        Shortage::Dma { chunk, asked, have, budgets } => {
            let most = format!(
                "there are {} B/s beside budgets of {budgets}, in chunks of {chunk}",
                have.0
            );
            let Some(asked) = asked else {
                let text =
                    format!("DMA bandwidth: no bandwidth is enough for the flows, and {most}");
                return vec![Short {
                    what: "DMA bandwidth".to_owned(),
                    unit: "B/s",
                    asked: None,
                    have: have.0,
                    text,
                }];
            };
            let who = if timing.dma.bandwidth.is_some_and(|given| given.0 == asked.0) {
                "the file says"
            } else {
                "the flows need"
            };
            let text = format!("{who} {} B/s, {most}", asked.0);
            vec![Short::new("DMA bandwidth", "B/s", asked.0, have.0, &text)]
        }
        Shortage::Task { vm: who, budgets, moved } => {
            let Some(time) = by.tasks(who, (&budgets, &moved), true) else {
                return Vec::new();
            };
            let open = |vm: &TimedVm| vm.bandwidth.as_ref().is_none_or(|its| its.budget.is_none());
            let chosen = timing.vms.get(who).is_some_and(open);
            let known = timing.saturation.as_ref().filter(|_| chosen).zip(budgets.get(who));
            let most = known.map_or(String::new(), |(known, budget)| {
                format!(
                    ", also with the greatest budget that is left, {budget} in {}",
                    known.period
                )
            });
            let late = time.late().map(|(task, response, deadline, reason)| Short {
                what: format!("deadline of {}: {task}", vm(who)),
                unit: "ns",
                asked: response,
                have: deadline,
                text: match response {
                    Some(response) => {
                        format!("{reason}: {} ns too late{most}", response - deadline)
                    }
                    None => reason.to_owned(),
                },
            });
            late.collect()
        }
    }
}

/// What a demand is called.
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

/// The choices as JSON.
pub fn describe(timing: &Timing, choice: &Choice) -> Value {
    let vms = timing.vms.iter().zip(&choice.plan.shares).map(|(vm, share)| {
        let budget = vm.bandwidth.as_ref().and_then(|bandwidth| bandwidth.budget);
        let own = !is_best_effort(vm);
        let board = choice.board.as_ref().filter(|_| own);
        json!({
            "name": vm.name,
            "colors": board.map(|_| numbers(share.colors)),
            "banks": board.and_then(|board| board.banks).map(|_| numbers(share.banks)),
            "budget": budget.map(|budget| budget.0),
            "period_ns": budget.map(|budget| budget.1.0),
        })
    });
    let rest = choice.saturation.as_ref().map(|saturation| {
        let period = saturation.period;
        Budget { accesses: choice.plan.best_effort, period }.bandwidth(saturation.line).0
    });
    json!({
        "vms": vms.collect::<Vec<_>>(),
        "chunk": choice.plan.chunk.map(|chunk| chunk.0),
        "dma_bandwidth": choice.plan.dma.0,
        "best_effort_budget": rest.map(|_| choice.plan.best_effort),
        "best_effort_bandwidth": rest,
    })
}

/// The choices in a few lines.
pub fn summary(timing: &Timing, choice: &Choice) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for vm in &timing.vms {
        if let Some((budget, period)) = vm.bandwidth.as_ref().and_then(|bandwidth| bandwidth.budget)
        {
            let _ = writeln!(text, "{}: {budget} accesses in {period}", vm.name);
        }
    }
    let dma = choice.plan.dma;
    if let Some(chunk) = choice.plan.chunk {
        let _ = writeln!(text, "DMA: {dma} in chunks of {chunk}");
    } else if choice.flows {
        let _ = writeln!(text, "DMA: {dma} for best effort");
    }
    if let Some(saturation) = &choice.saturation {
        let _ = writeln!(
            text,
            "best effort: {} accesses in {}",
            choice.plan.best_effort, saturation.period
        );
    }
    text
}

/// What was left alone where next to nothing was chosen, and what it takes to have it chosen.
pub fn left_out(timing: &Timing, choice: &Choice) -> Vec<&'static str> {
    let mut left = Vec::new();
    if choice.saturation.is_none() {
        left.push(
            "budgets were not chosen: nobody says when the memory saturates; add [saturation], or name a platform that has it (zcu102)",
        );
        if timing.vms.iter().all(|vm| vm.working_set.is_none()) {
            left.push("colors were not chosen: no VM has a `working_set`");
        }
    }
    left
}
