//! Explains a run: the parts of a packet's latency, of a period of a memory budget, or of the
//! response time of a task's activation, from the records of its trace.
//!
//! The parts of a time follow each other without a gap, so that they sum to it exactly. Time that
//! no record explains is a part of its own ([`NOT_RECORDED`]).

mod broker;
mod budget;
mod flow;
mod render;
mod subject;
mod survey;
mod task;
#[cfg(test)]
mod tests;

use crate::run::{RunReport, read_report};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use subject::{Chosen, Facts, ReportedRun};
use survey::Survey;
use weir_analysis::verdict::Verdict;
use weir_image::Result;

/// The name of the parts that no record explains.
pub const NOT_RECORDED: &str = "not recorded";

/// The question about a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhyQuery {
    /// The subject; none for the worst one of the run: first what does not hold, then the greatest
    /// ratio of maximum and bound.
    pub subject: Option<Subject>,
    /// The number of the packet, activation or period, from 1; none for the one with the longest
    /// latency, response or throttling.
    pub number: Option<u64>,
}

/// The subject of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A flow by its name.
    Flow(String),
    /// A task by its name, or `VM/TASK`.
    Task(String),
    /// The memory budget of a VM: `VM`, `VM/VCPU` or `VM/VCPU/ACCESSES`.
    Budget(String),
}

/// The kind of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectKind {
    /// A packet of a flow: `total_ns` is its latency.
    Flow,
    /// An activation of a task: `total_ns` is its response time.
    Task,
    /// A period of a memory budget: `total_ns` is its length.
    Budget,
}

/// A part of a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TimePart {
    /// The beginning, in ns since the hypervisor's start.
    pub from_ns: u64,
    /// The length in ns.
    pub ns: u64,
    /// What happened.
    pub what: String,
    /// The VM whose time it is; none if it is not known.
    pub vm: Option<String>,
    /// The core of this VM; none if it is not known.
    pub core: Option<u16>,
    /// The term of the bound that covers it, by the symbols of `docs/theory/analysis.md`; none if
    /// none does, or it is not known.
    pub term: Option<String>,
}

/// The parts of a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WhyReport {
    /// The run.
    pub run: PathBuf,
    /// The kind of the subject.
    pub kind: SubjectKind,
    /// The name of the subject.
    pub name: String,
    /// Why this subject was chosen; none if the caller named it.
    pub chosen: Option<String>,
    /// The number of the packet, the activation or the period, from 1.
    pub number: Option<u64>,
    /// How many packets, periods or activations there are.
    pub count: u64,
    /// The beginning, in ns since the hypervisor's start.
    pub from_ns: Option<u64>,
    /// The time that the parts sum to, in ns.
    pub total_ns: u64,
    /// The bound on it in ns; none if the report has none.
    pub bound_ns: Option<u64>,
    /// The deadline in ns; none if there is none.
    pub deadline_ns: Option<u64>,
    /// The verdict of the run on the subject.
    pub verdict: Option<Verdict>,
    /// The parts in the order of time.
    pub parts: Vec<TimePart>,
    /// What a reader has to know of the parts.
    pub notes: Vec<String>,
}

impl WhyReport {
    /// Builds the report on what was chosen, without parts.
    fn new(run: &Path, chosen: &Chosen) -> Self {
        let [bound_ns, deadline_ns] = chosen.limits();
        Self {
            run: run.to_owned(),
            kind: chosen.kind(),
            name: chosen.name.clone(),
            chosen: chosen.reason.clone(),
            number: None,
            count: 0,
            from_ns: None,
            total_ns: 0,
            bound_ns,
            deadline_ns,
            verdict: chosen.verdict(),
            parts: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Explains a run, which is named by its directory.
///
/// # Errors
///
/// The call is wrong if the run has no such subject, packet, activation or period, or left no report or trace.
/// The system is at fault if the run shows nothing that could be explained.
///
/// # Examples
///
/// ```no_run
/// use std::path::Path;
/// use weir_report::why::{Subject, WhyQuery, why};
///
/// # fn main() -> weir_image::Result {
/// let subject = Some(Subject::Flow("messages".to_owned()));
/// let report = why(Path::new("runs/2026-01-31T12-00-00Z"), &WhyQuery { subject, number: None })?;
/// assert_eq!(report.total_ns, report.parts.iter().map(|part| part.ns).sum::<u64>());
/// # Ok(())
/// # }
/// ```
pub fn why(run: &Path, query: &WhyQuery) -> Result<WhyReport> {
    ExplainedRun::of(run, read_report(run)?).why(query)
}

/// A run of which several subjects are explained. Its packets are surveyed once, for the first flow.
#[derive(Debug)]
pub(crate) struct ExplainedRun {
    reported: ReportedRun,
    survey: Option<Survey>,
}

impl ExplainedRun {
    /// Returns the run in a directory, with its report.
    pub fn of(run: &Path, report: RunReport) -> Self {
        Self { reported: ReportedRun::of(run, report), survey: None }
    }

    /// Explains a subject.
    ///
    /// # Errors
    ///
    /// As [`why`].
    pub fn why(&mut self, query: &WhyQuery) -> Result<WhyReport> {
        let chosen = self.reported.choose(query)?;
        let run = &self.reported.run;
        match &chosen.facts {
            Facts::Flow(flow) => {
                let survey = match &mut self.survey {
                    Some(survey) => survey,
                    none => none.insert(flow::survey(run)?),
                };
                flow::explain(run, survey, (&chosen, flow), query.number)
            }
            Facts::Task(task) => task::explain(run, (&chosen, task), query.number),
            Facts::Budget(budget) => budget::explain(run, (&chosen, budget), query.number),
        }
    }
}

/// The state of a core that VMs share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CoreState {
    /// The observed vCPU has it, or it is not shared.
    #[default]
    Own,
    /// Another VM has it.
    Other(u8),
    /// No guest has it.
    Free,
}

impl CoreState {
    /// Returns the other VM that has the core.
    const fn other(self) -> Option<u8> {
        match self {
            Self::Other(vm) => Some(vm),
            Self::Own | Self::Free => None,
        }
    }
}

/// Appends a part, or lengthens the last one if it is the same.
fn push(parts: &mut Vec<TimePart>, part: TimePart) {
    if part.ns == 0 {
        return;
    }
    match parts.last_mut() {
        Some(last)
            if (&last.what, &last.vm, last.core, &last.term)
                == (&part.what, &part.vm, part.core, &part.term) =>
        {
            last.ns = last.ns.saturating_add(part.ns);
        }
        _ => parts.push(part),
    }
}
