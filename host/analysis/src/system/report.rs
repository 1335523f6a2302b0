//! The report on a system.

use super::{
    Options,
    budgets::{self, BudgetBound, MemoryReport},
    flow_report::{FlowBound, FlowsReport},
    flows, tasks,
    tasks::{InterruptBound, TaskBound, TimeReport},
    uncounted,
};
use crate::{
    BytesPerSec,
    flows::Effort,
    verdict::{Judgement, Missing, Verdict},
};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use weir_model::{Fault, FaultRecord, Faults, System, SystemFile, Vm};

/// The result of [`analyze`].
///
/// Serialized it is the object that `weir analyze --json` prints for a file.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// Whether everything holds; none if an input is missing or there is nothing to judge.
    pub holds: Option<bool>,
    /// The most severe verdict of all parts; none if the file has nothing that can be judged.
    pub verdict: Option<Verdict>,
    /// What is not judged, and how to supply what is missing for it.
    pub not_judged: Vec<Missing>,
    /// The assumptions of the verdict, with the source.
    pub assumed: Vec<String>,
    /// The bounds of the flows, if the file has flows and their overheads are known.
    pub flows: Option<FlowsReport>,
    /// Why the flows were not analyzed, with places in the file. Not among [`Self::causes`];
    /// [`Self::not_judged`] names the same inputs.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "objects")]
    #[schemars(with = "Vec<FaultRecord>")]
    pub faults: Vec<Fault>,
    /// The memory budgets, if the file has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// The schedules, tasks and interrupts, if the file has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeReport>,
}

fn objects<S: Serializer>(faults: &[Fault], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(faults.iter().map(Fault::record))
}

impl Report {
    /// Returns the latency bounds of the flows that have a deadline; none if the flows were not
    /// analyzed. The field `flows` has the rest, such as the least bandwidth.
    pub fn flows(&self) -> impl Iterator<Item = &FlowBound> {
        self.flows.iter().flat_map(|flows| &flows.flows)
    }

    /// Returns the response-time bounds of the tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskBound> {
        self.time.iter().flat_map(|time| &time.tasks)
    }

    /// Returns the bounds on the waiting time of interrupts that have a deadline.
    pub fn interrupts(&self) -> impl Iterator<Item = &InterruptBound> {
        self.time.iter().flat_map(|time| &time.interrupts)
    }

    /// Returns the memory budgets of the VMs.
    pub fn budgets(&self) -> impl Iterator<Item = &BudgetBound> {
        self.memory.iter().flat_map(|memory| &memory.vms)
    }

    /// Returns why something does not hold: each cause has its place in the file and a suggestion.
    pub fn causes(&self) -> impl Iterator<Item = &Fault> {
        let memory = self.memory.iter().flat_map(|memory| &memory.causes);
        let time = self.time.iter().flat_map(|time| &time.causes);
        self.flow_causes().chain(memory).chain(time)
    }

    /// Returns the causes without a saturated memory that the file accepts (`overcommit = true`),
    /// as [`check`] does.
    #[must_use]
    pub fn refused(&self) -> Vec<Fault> {
        let memory = self.memory.iter().flat_map(MemoryReport::refused);
        let time = self.time.iter().flat_map(|time| &time.causes);
        self.flow_causes().chain(memory).chain(time).cloned().collect()
    }

    /// Returns why flows do not hold, if they are judged.
    fn flow_causes(&self) -> impl Iterator<Item = &Fault> {
        let judged = self.flows.iter().filter(|flows| flows.of_another_hypervisor.is_none());
        judged.flat_map(|flows| &flows.causes)
    }
}

/// Analyzes a system file: bounds the latency of its flows, the response time of its tasks, the
/// wait of its interrupts and the bandwidth of its memory budgets, and compares them with what the
/// file demands.
///
/// ```
/// use std::path::Path;
/// use weir_analysis::{Options, analyze, verdict::Verdict};
/// use weir_model::{Catalog, SystemFile};
///
/// let text = r#"
/// platform = "qemu-virt"
///
/// [[vm]]
/// name = "camera"
/// cpus = [0]
///
/// [[vm]]
/// name = "control"
/// cpus = [1]
///
/// [[flow]]
/// name = "frames"
/// from = "camera"
/// to = "control"
/// size = "4KiB"
/// period = "10ms"
/// "#;
/// let file = SystemFile::parse(Path::new("system.toml"), text, &Catalog::default())?;
/// let report = analyze(&file, &Options::default())?;
/// assert_eq!(report.verdict, Some(Verdict::Holds));
/// let frames = report.flows().next().expect("a flow");
/// assert!(frames.bound_ns.is_some_and(|bound| bound < 10_000_000));
/// # Ok::<(), weir_model::Faults>(())
/// ```
///
/// # Errors
///
/// Everything in the file that has no meaning for the analysis. A missing input is no error: what
/// needs it is not judged.
pub fn analyze(system: &SystemFile, options: &Options) -> Result<Report, Faults> {
    let is_built = system.system().is_complete();
    let mut report = analyze_as(is_built, system.system(), options)?;
    let assumed = system.assumed().into_iter().map(|fault| fault.message);
    report.assumed.extend(assumed);
    for rule in system.unenforced() {
        report.miss(missing(&rule));
    }
    Ok(report)
}

fn missing(fault: &Fault) -> Missing {
    Missing { what: fault.message.clone(), supply: fault.help.clone().unwrap_or_default() }
}

impl Report {
    /// Takes another input without which something is not judged.
    fn miss(&mut self, missing: Missing) {
        if !self.not_judged.contains(&missing) {
            self.not_judged.push(missing);
        }
        self.verdict = self.verdict.map(|verdict| verdict.and(Verdict::NotJudged));
        self.holds = self.verdict.and_then(Verdict::truth);
    }
}

/// Analyzes a file's values of time and bandwidth.
///
/// # Errors
///
/// As [`analyze`].
pub(crate) fn analyze_timing(system: &System, options: &Options) -> Result<Report, Faults> {
    analyze_as(false, system, options)
}

/// The same, for a file with a verdict on what weir builds of it, or on its values alone.
fn analyze_as(is_built: bool, system: &System, options: &Options) -> Result<Report, Faults> {
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
    let mut system = system.clone();
    system.dma.bandwidth = options.bandwidth.or(system.dma.bandwidth);
    let mut flows = flows::analyze(&system, options).map_err(&mut keep).ok().flatten();
    if let Some(flows) = flows.as_mut().filter(|_| is_built) {
        flows.of_another_hypervisor = flows::of_another_hypervisor(&system);
    }
    // Memory and tasks are judged next to the DMA that the flows were judged at.
    if let Some(bandwidth) = flows.as_ref().and_then(|flows| flows.bandwidth) {
        system.dma.bandwidth = Some(BytesPerSec(bandwidth));
    }
    let least = flows.as_ref().and_then(|flows| flows.min_bandwidth);
    let memory = budgets::analyze(&system, least).map_err(&mut keep).ok().flatten();
    let time = tasks::analyze(&system).map_err(&mut keep).ok().flatten();
    if faults.iter().any(|fault| fault.code != flows::NO_OVERHEADS) {
        return Err(Faults(faults));
    }
    let has_tasks = system.guests().iter().any(|vm| !vm.tasks.is_empty());
    let assumed = if memory.is_some() || has_tasks { system.memory_sources() } else { Vec::new() };
    // Best effort needs no overheads.
    let is_timed = system.flows.iter().any(|flow| !flow.best_effort);
    let faults = if is_timed { faults } else { Vec::new() };
    let parts = [
        flows.as_ref().map(FlowsReport::judgement),
        memory.as_ref().map(MemoryReport::judgement),
        time.as_ref().map(TimeReport::judgement),
    ];
    let open = faults.iter().map(|fault| Judgement::from(missing(fault)));
    let judgement: Judgement = parts.into_iter().flatten().chain(open).collect();
    let is_judged = is_timed || memory.is_some() || time.is_some();
    let verdict = is_judged.then(|| judgement.verdict());
    Ok(Report {
        holds: verdict.and_then(Verdict::truth),
        verdict,
        not_judged: judgement.missing().to_vec(),
        assumed,
        flows,
        faults,
        memory,
        time,
    })
}

/// The effort of one answer of a check.
const CHECK: Effort = Effort(1 << 26);

/// Analyzes a system as `weir check` does: with less effort, and accepting what the file accepts.
/// Returns what is not judged and what the reader must know.
///
/// # Errors
///
/// What does not hold, and what keeps the system from being analyzed.
pub fn check(system: &System) -> Result<Vec<String>, Faults> {
    let mut notes = Vec::new();
    for vm in system.guests() {
        if vm.memory_budget.as_ref().is_some_and(|asked| asked.budget.is_none()) {
            notes.push(format!(
                "{vm} is not limited: it has no budget, which `weir plan` would choose"
            ));
        }
    }
    notes.extend(system.guests().iter().filter_map(without_limit));
    notes.extend(tasks::polling_shares(system));
    notes.extend(uncounted::notes(system));
    let report = analyze_as(true, system, &Options { effort: CHECK, ..Options::default() })?;
    notes.extend(report.not_judged.iter().map(|missing| format!("not judged: {missing}")));
    let accepted = report.memory.as_ref().and_then(MemoryReport::overcommitted);
    notes.extend(
        accepted.map(|fault| format!("{}; the file accepts it: overcommit = true", fault.message)),
    );
    notes.extend(report.memory.iter().flat_map(|memory| memory.notes.iter().cloned()));
    let refused = report.refused();
    if refused.is_empty() { Ok(notes) } else { Err(Faults(refused)) }
}

/// Returns the note on a VM whose budget is more than its cores can spend: a core has no two
/// accesses in a nanosecond.
fn without_limit(vm: &Vm) -> Option<String> {
    let (budget, period) = vm.memory_budget.as_ref()?.budget?;
    let most = period.0.saturating_mul(vm.cpus.len().max(1) as u64);
    (budget > most).then(|| {
        format!(
            "{vm} is not limited: its memory budget of {budget} in {period} is more than one \
             access per nanosecond of each of its cores"
        )
    })
}

/// The rules behind those of the file itself, which every verb goes by that builds or runs a
/// system.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckRules {
    /// Whether a system is good that nothing can be built for yet.
    pub planning: bool,
    /// Whether a system is good if its timing does not hold.
    pub ignore_verdict: bool,
}

impl CheckRules {
    /// Judges a system; returns the notes of [`check`].
    ///
    /// # Errors
    ///
    /// What this version does not build or enforce, and what does not hold.
    pub fn judge(self, system: &System) -> Result<Vec<String>, Faults> {
        let mut faults = if self.planning { Vec::new() } else { system.unbuilt() };
        let mut notes = Vec::new();
        match check(system) {
            Ok(found) => notes = found,
            Err(found) if self.ignore_verdict => {
                notes.extend(found.0.iter().map(Fault::note));
            }
            Err(found) => faults.extend(found.0),
        }
        if self.planning {
            let rules = system.unenforced_rules();
            notes.extend(rules.iter().map(|rule| format!("not judged: {}", rule.note())));
        }
        if faults.is_empty() { Ok(notes) } else { Err(Faults(faults)) }
    }
}
