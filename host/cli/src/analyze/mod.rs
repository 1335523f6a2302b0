//! `weir analyze`: whether a system holds its timing, before it runs.

mod counted;
pub mod curves;
pub mod flows;
pub mod lack;
pub mod memory;
pub mod own;
pub mod regulation;
pub mod time;
mod ways;

use crate::{
    environment::Environment,
    failure::{CALL, Failure, GOOD, Result, SYSTEM},
    image, screen,
};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::{
    fmt::Write as _,
    io::Write,
    path::{Path, PathBuf},
};
use weir_analysis::{
    flows::{Effort, MAX_BANDWIDTH, Reading},
    verdict::{Judgement, Verdict},
};
use weir_model::Fault;
use weir_model::Faults;
use weir_model::Timing;
use weir_units::BytesPerSec;

/// Says whether the flows, budgets and tasks of systems hold, and how much would be enough.
///
/// Only the parts of a system file that concern time and bandwidth are read: a file without images or cores is good
/// enough.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir analyze flows.toml\n  weir analyze flows.toml --model table3\n  weir analyze tests/systems/flows-many.toml --overheads overheads.toml\n  weir analyze --json a.toml b.toml\n  weir analyze --trace accesses.txt --service 50/30us\n\nExit status: 0 all holds, 1 something does not hold or is not judged, 2 the call is wrong: a file can't be read, or says nothing that could be judged, 3 the answer can't be written."
)]
pub struct Arguments {
    /// The system files.
    #[arg(required_unless_present = "trace")]
    files: Vec<PathBuf>,
    /// How Eq. 20 and 22 of rt-virtio are read: as printed, or as its Table III was computed (474 ns less, optimistic).
    #[arg(long, value_enum, default_value = "printed")]
    model: ReadingName,
    /// Take overheads from this file, a TOML file with `[overheads]` or a `platform` that has them, before those of the
    /// system and its platform, and so the bandwidth of the copy that it was measured with.
    #[arg(long, value_name = "FILE")]
    overheads: Option<PathBuf>,
    /// Take this bandwidth, in bytes/s or with a unit like 485MB/s, instead of `[dma]` `bandwidth`.
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    bandwidth: Option<u64>,
    /// How much may be spent on one answer, in evaluations of one flow's demand (about 1 ns each) before it is given up.
    #[arg(long, value_name = "STEPS", default_value_t = Effort::default().0, allow_negative_numbers = true)]
    max_steps: u64,
    /// Print arrival curves of a trace: a text file with the time of an event, in ns, in each line.
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// With --trace: delay and backlog of the events at a service of Q in each period P, like 50/30us. The Q may come
    /// anywhere in a period, so early in one and late in the next.
    #[arg(long, value_name = "Q/P", requires = "trace", value_parser = curves::Service::parse, allow_hyphen_values = true)]
    service: Option<curves::Service>,
    /// Exit with status 0 also where something is not judged because an input is missing.
    #[arg(long)]
    accept_not_judged: bool,
    /// Print the result as JSON, one line for each file.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ReadingName {
    Printed,
    Table3,
}

impl ReadingName {
    fn reading(self) -> Reading {
        match self {
            Self::Printed => Reading::Printed,
            Self::Table3 => Reading::Table3,
        }
    }
}

fn rate(text: &str) -> std::result::Result<u64, String> {
    let rate = text.parse().ok().or_else(|| BytesPerSec::parse(text).ok().map(|rate| rate.0));
    match rate {
        None => Err("write a whole number of bytes/s, or one with a unit like 485MB/s".to_owned()),
        Some(0) => Err("nothing moves at 0 B/s: write at least 1".to_owned()),
        Some(rate) if rate > MAX_BANDWIDTH => {
            Err(format!("the analysis takes bandwidths up to {MAX_BANDWIDTH} B/s (1 PiB/s)"))
        }
        Some(rate) => Ok(rate),
    }
}

/// What was asked beside the files.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// How two equations are read.
    pub reading: Reading,
    /// Instead of the file's.
    pub bandwidth: Option<u64>,
    /// How much may be spent on one answer.
    pub effort: Effort,
}

impl Default for Question {
    fn default() -> Self {
        Self { reading: Reading::Printed, bandwidth: None, effort: Effort::default() }
    }
}

/// What a file asks for that this version does not enforce.
#[derive(Debug, Default)]
pub struct Unkept {
    /// Rules that the analysis counts on, of a file that says enough to be built and run.
    pub rules: Vec<Fault>,
    /// Everything else, which no verdict needs or which is for the analysis alone.
    pub assumed: Vec<Fault>,
}

/// What the analysis says of a file.
#[derive(Debug, Default)]
pub struct Analysis {
    /// Of its flows, if it has some.
    pub flows: Option<flows::Flows>,
    /// Of its budgets, if it has some.
    pub memory: Option<memory::Memory>,
    /// Of its schedules and tasks, if it has some.
    pub time: Option<time::Time>,
    /// What the verdicts assume of the platform, with the source.
    pub assumes: Vec<String>,
    /// Why its flows are not judged, if they have no overheads.
    pub open: Vec<Fault>,
    /// What the file asks for that a run of it would not enforce.
    pub unenforced: Vec<Fault>,
    /// Whether a flow asks for more than best effort.
    timed: bool,
}

impl Analysis {
    /// Analyzes what a file says.
    ///
    /// # Errors
    ///
    /// Everything in the file that has no meaning for the analysis. Flows without overheads are no
    /// error: they are not judged.
    pub fn of(timing: &Timing, question: &Question) -> std::result::Result<Self, Faults> {
        let mut faults: Vec<Fault> = Vec::new();
        let mut keep = |found: Vec<Fault>| {
            for fault in found {
                // Flows and tasks may meet the same fault of a core's schedule.
                let same = |other: &Fault| {
                    (other.code, &other.message) == (fault.code, &fault.message)
                        && other.location() == fault.location()
                };
                if !faults.iter().any(same) {
                    faults.push(fault);
                }
            }
        };
        let mut timing = timing.clone();
        if let Some(bandwidth) = question.bandwidth {
            timing.dma.bandwidth = Some(BytesPerSec(bandwidth));
        }
        let flows = flows::analyze(&timing, question).map_err(&mut keep).ok().flatten();
        // Memory and tasks are judged beside the DMA that the flows were judged at, wherever its bandwidth came from.
        if let Some(bandwidth) = flows.as_ref().and_then(flows::Flows::bandwidth) {
            timing.dma.bandwidth = Some(BytesPerSec(bandwidth));
        }
        let least = flows.as_ref().and_then(flows::Flows::min_bandwidth);
        let memory = memory::analyze(&timing, least).map_err(&mut keep).ok().flatten();
        let time = time::analyze(&timing).map_err(&mut keep).ok().flatten();
        let tasks = timing.vms.iter().any(|vm| !vm.tasks.is_empty());
        let assumes = if memory.is_some() || tasks { timing.memory_sources() } else { Vec::new() };
        if faults.iter().all(|fault| fault.code == flows::NO_OVERHEADS) {
            let timed = timing.flows.iter().any(|flow| !flow.best_effort);
            // Best effort needs no overheads.
            let open = if timed { faults } else { Vec::new() };
            Ok(Self { flows, memory, time, assumes, open, unenforced: Vec::new(), timed })
        } else {
            Err(Faults(faults))
        }
    }

    /// Takes what the file asks for that this version does not enforce. A system that would run
    /// is not judged for a rule; the analysis of another file assumes it.
    pub fn bear(&mut self, unkept: Unkept) {
        self.unenforced = unkept.rules;
        self.assumes.extend(unkept.assumed.into_iter().map(|fault| fault.message));
    }

    /// Whether the file says anything that can be judged.
    pub fn judged(&self) -> bool {
        let parts = [self.timed, self.memory.is_some(), self.time.is_some()];
        parts.contains(&true) || !self.open.is_empty()
    }

    /// Returns the worst verdict of all parts, with every missing input. Where there is nothing to
    /// judge it holds.
    pub fn judgement(&self) -> Judgement {
        let parts = [
            self.flows.as_ref().map(flows::Flows::judgement),
            self.memory.as_ref().map(memory::Memory::judgement),
            self.time.as_ref().map(time::Time::judgement),
        ];
        let open = self.open.iter().chain(&self.unenforced).map(|fault| {
            Judgement::not_judged(&fault.message, fault.help.as_deref().unwrap_or_default())
        });
        parts.into_iter().flatten().chain(open).collect()
    }

    /// Returns what is not judged, and what to supply, a line for each.
    pub fn not_judged(&self) -> Vec<String> {
        self.judgement().missing().iter().map(|missing| format!("not judged: {missing}")).collect()
    }

    /// Returns the worst verdict of all parts.
    pub fn verdict(&self) -> Verdict {
        self.judgement().verdict()
    }

    /// What does not hold, as faults of the file.
    pub fn faults(&self, timing: &Timing) -> Vec<Fault> {
        let mut faults = Vec::new();
        faults.extend(self.flows.iter().flat_map(|flows| flows.faults(timing)));
        faults.extend(self.memory.iter().flat_map(|memory| memory.faults(timing)));
        faults.extend(self.time.iter().flat_map(|time| time.faults(timing)));
        faults
    }

    /// As JSON, without the file's name.
    pub fn to_json(&self) -> Value {
        let mut json = json!({ "flows": self.flows.as_ref().map(flows::Flows::to_json) });
        if !self.open.is_empty() {
            json["faults"] = Faults(self.open.clone()).to_json();
        }
        if let Some(memory) = &self.memory {
            json["memory"] = memory.to_json();
        }
        if let Some(time) = &self.time {
            json["time"] = time.to_json();
        }
        json
    }

    /// For a person.
    fn text(&self) -> String {
        let mut text = String::new();
        let parts = [
            self.flows.as_ref().map(ToString::to_string),
            self.memory.as_ref().map(ToString::to_string),
            self.time.as_ref().map(ToString::to_string),
        ];
        for part in parts.into_iter().flatten() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{part}");
        }
        for line in self.not_judged() {
            let _ = writeln!(text, "{line}");
        }
        for assumed in &self.assumes {
            let _ = writeln!(text, "assumed: {assumed}");
        }
        text
    }
}

/// How much a check may spend on one answer.
const CHECK: Effort = Effort(1 << 26);

/// Analyzes a system that is being checked.
///
/// The text says what is not judged, in the words of `weir analyze`, and notes.
///
/// # Errors
///
/// What does not hold, and what keeps it from being analyzed.
pub fn check(timing: &Timing) -> std::result::Result<String, Faults> {
    let mut left_out = Vec::new();
    for vm in &timing.vms {
        if vm.bandwidth.as_ref().is_some_and(|asked| asked.budget.is_none()) {
            let name = &vm.name;
            left_out.push(format!(
                "{name} is not limited: it has no budget, which `weir plan` would choose"
            ));
        }
    }
    left_out.extend(time::worst_looks(timing));
    left_out.extend(counted::notes(timing));
    let analysis = Analysis::of(timing, &Question { effort: CHECK, ..Question::default() })?;
    left_out.extend(analysis.not_judged());
    let borne = analysis.memory.as_ref().and_then(|memory| memory.overcommitted(timing));
    left_out.extend(borne.map(|reason| format!("{reason}; the file bears it: overcommit = true")));
    left_out.extend(analysis.memory.iter().flat_map(memory::Memory::notes).cloned());
    let faults = analysis.faults(timing);
    if faults.is_empty() { Ok(left_out.join("\n")) } else { Err(Faults(faults)) }
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    let mut status = GOOD;
    if !arguments.trace.is_empty() {
        let traces = curves::Traces::read(&arguments.trace, arguments.service)?;
        let mut out = screen::stdout();
        if arguments.json {
            writeln!(out, "{}", traces.to_json())?;
        } else {
            write!(out, "{traces}")?;
        }
        if !traces.holds() {
            status = SYSTEM;
        }
    }
    let overheads = arguments.overheads.as_deref().map(overheads).transpose()?;
    let question = Question {
        reading: arguments.model.reading(),
        bandwidth: arguments.bandwidth,
        effort: Effort(arguments.max_steps),
    };
    let answer = |path: &PathBuf| {
        let (mut timing, unkept) = crate::check::to_analyze(path, None, environment)?;
        if let Some(given) = &overheads {
            timing.prefer(given);
        }
        let mut analysis = Analysis::of(&timing, &question)?;
        analysis.bear(unkept);
        Ok(analysis)
    };
    // Results come out as they are needed, however many files there are.
    for files in arguments.files.chunks(64) {
        let answers: Vec<_> = files.par_iter().map(answer).collect();
        for (file, answer) in files.iter().zip(answers) {
            let said = tell(file, &answer, arguments)?;
            // A system that does not hold is the stronger news.
            if status != SYSTEM && said != GOOD {
                status = said;
            }
        }
    }
    if status == GOOD { Ok(()) } else { Err(Failure::said(status)) }
}

/// The overheads of a file that was given for them.
fn overheads(path: &Path) -> Result<Timing> {
    let timing = Timing::load(path).map_err(|faults| Failure {
        status: image::whose(&faults),
        text: image::rendered(&faults),
    })?;
    if timing.overheads.is_empty() {
        let text = format!(
            "{} says no overheads: add [overheads] with hc = {{ min = 939, max = 949 }} and so on in ns, or name a platform that has them",
            path.display()
        );
        return Err(Failure::call(text));
    }
    Ok(timing)
}

/// What a file must say to be judged.
const NOTHING: &str = "nothing to judge: there is no [[flow]] beside best effort, no `memory_budget` of a VM, no [[vm.task]], no [[irq]] with a `deadline` and no [[core]]";

/// Prints an answer; gives the status that it amounts to.
fn tell(
    file: &Path,
    answer: &std::result::Result<Analysis, Faults>,
    &Arguments { json, accept_not_judged, .. }: &Arguments,
) -> Result<u8> {
    let mut out = screen::stdout();
    let name = file.display();
    match answer {
        Ok(analysis) if json => {
            let mut line = json!({ "file": name.to_string(), "holds": null, "verdict": null });
            if analysis.judged() {
                let judgement = analysis.judgement();
                line["holds"] = judgement.verdict().truth().into();
                line["verdict"] = judgement.verdict().key().into();
                line["not_judged"] = missing_json(&judgement);
                line["assumed"] = analysis.assumes.clone().into();
            } else {
                line["nothing"] = NOTHING.into();
            }
            if let (Some(line), Value::Object(parts)) = (line.as_object_mut(), analysis.to_json()) {
                line.extend(parts);
            }
            writeln!(out, "{line}")?;
        }
        Ok(analysis) if !analysis.judged() => {
            out.flush()?;
            writeln!(screen::stderr(), "{name}: {NOTHING}")?;
        }
        Ok(analysis) => {
            let verdict = match analysis.verdict() {
                Verdict::Holds => "all holds".to_owned(),
                other => other.to_string(),
            };
            write!(out, "{name}: {verdict}\n{}", analysis.text())?;
        }
        Err(faults) if json => {
            let line = json!({
                "file": name.to_string(),
                "holds": Verdict::DoesNotHold.truth(),
                "verdict": Verdict::DoesNotHold.key(),
                "flows": null,
                "faults": faults.to_json(),
            });
            writeln!(out, "{line}")?;
        }
        Err(faults) => {
            out.flush()?;
            writeln!(screen::stderr(), "{name}: {}", image::rendered(faults))?;
        }
    }
    Ok(match answer {
        Err(faults) => image::whose(faults),
        Ok(analysis) if !analysis.judged() => CALL,
        Ok(analysis) => status(analysis.verdict(), accept_not_judged),
    })
}

/// Returns the exit status for a verdict.
pub fn status(verdict: Verdict, accept_not_judged: bool) -> u8 {
    match verdict {
        Verdict::Holds => GOOD,
        Verdict::NotJudged if accept_not_judged => GOOD,
        Verdict::NotJudged | Verdict::DoesNotHold => SYSTEM,
    }
}

/// Returns what is missing, for a program.
pub fn missing_json(judgement: &Judgement) -> Value {
    let missing = judgement.missing().iter();
    missing.map(|one| json!({ "what": one.what, "supply": one.supply })).collect()
}
