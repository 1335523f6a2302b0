//! Planning: chooses what a system file leaves open, and proves the choice by the analysis.
//!
//! `problem` has the input of the search, which `board` counts colors and banks for; `obstacle`
//! finds budgets that cannot be chosen. `schedules` chooses the schedules of shared cores, before
//! everything else. `search` and `budgets` find the best setting and ask `judge`, which analyzes the
//! file with what is being tried. `edit` writes the choices into the text, and `refusal` explains
//! why there is no plan.

mod board;
mod budgets;
mod edit;
mod judge;
mod obstacle;
mod problem;
mod refusal;
mod schedules;
mod search;
#[cfg(test)]
mod tests;

use crate::{
    BytesPerSec, Nanos,
    flows::{Effort, MAX_BANDWIDTH, Reading},
    memory::{Budget, SaturationPoint, SaturationTable},
    system::{self, Options, Report, analyze, analyze_timing},
    units::Events,
    verdict::Verdict,
};
use board::{BoardClasses, is_best_effort};
use edit::numbers;
use judge::{Asker, EFFORT};
use problem::Problem;
use schemars::JsonSchema;
use search::{PlanSetting, Refusal, search};
use serde::Serialize;
use std::{error, fmt};
use weir_model::{Code, Faults, System, SystemFile, Vm, timing::Saturation};

pub use refusal::{Conflict, Shortage};
pub use schedules::{CoreChoice, ScheduleChoice, ServerChoice, SlotChoice};

/// How to plan.
#[derive(Clone, Copy)]
pub struct PlanOptions<'a> {
    /// How much may be spent on the whole search, in steps of about 1 ns; 10^10 by default.
    pub max_steps: u64,
    /// Called now and then with the number of questions and the steps that are left.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

impl Default for PlanOptions<'_> {
    fn default() -> Self {
        Self { max_steps: 10_000_000_000, progress: None }
    }
}

impl fmt::Debug for PlanOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanOptions").field("max_steps", &self.max_steps).finish_non_exhaustive()
    }
}

/// A planned system: the file with the choices written into it, and its analysis. The verdict is
/// never "does not hold". It is "not judged" where an input is missing.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The choices.
    pub choices: Choices,
    /// The file with the choices. Its text differs from the original only where something was
    /// chosen.
    pub file: SystemFile,
    /// The analysis of this file.
    pub report: Report,
    /// What was not chosen, what it takes to have it chosen, and what the figures on memory assume.
    pub left_out: Vec<String>,
}

/// The choices of a plan. Serialized it is the key `plan` of `weir plan --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Choices {
    /// The schedules of shared cores that were chosen.
    pub cores: Vec<CoreChoice>,
    /// The values of each VM: its budget, chosen or kept, and the colors and banks that were
    /// chosen.
    pub vms: Vec<VmChoice>,
    /// The chunk size of the flows in bytes, if there are flows with deadlines.
    pub chunk: Option<u64>,
    /// The DMA bandwidth in bytes/s; 0 without flows.
    pub dma_bandwidth: u64,
    /// The sum of the budgets of best effort, in the period of the saturation table.
    pub best_effort_budget: Option<u64>,
    /// The same in bytes/s.
    pub best_effort_bandwidth: Option<u64>,
    /// The period of the saturation table.
    #[serde(skip)]
    pub period: Option<Nanos>,
    /// Whether the system has flows.
    #[serde(skip)]
    pub has_flows: bool,
}

/// The values of a VM in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VmChoice {
    /// The VM.
    pub name: String,
    /// Its colors, if they were chosen.
    pub colors: Option<String>,
    /// Its banks, if they were chosen.
    pub banks: Option<String>,
    /// Its memory budget, in accesses of all its vCPUs per period; none if it has none.
    pub budget: Option<u64>,
    /// The period of the budget in ns.
    pub period_ns: Option<u64>,
}

/// Why there is no plan.
#[derive(Clone, Debug)]
pub enum PlanError {
    /// The file or the plan for it does not hold, or an input is missing without which nothing can
    /// be chosen: overheads of flows, or `accesses` of a task.
    Faults(Faults),
    /// The demands of the file conflict.
    Conflict(Conflict),
    /// The effort was spent before a plan was found or excluded.
    GaveUp,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults(faults) => faults.fmt(f),
            Self::Conflict(conflict) => {
                if conflict.demands.is_empty() {
                    f.write_str("the values that the file gives are too large already")?;
                } else {
                    write!(f, "these demands conflict: {}", conflict.demands.join(", "))?;
                }
                conflict.shortages.iter().try_for_each(|short| write!(f, "; {}", short.text))
            }
            Self::GaveUp => f.write_str("the effort was spent before a plan was found or excluded"),
        }
    }
}

impl error::Error for PlanError {}

impl From<Faults> for PlanError {
    fn from(faults: Faults) -> Self {
        Self::Faults(faults)
    }
}

/// Chooses what a system file leaves open - schedules, colors, banks, memory budgets, DMA bandwidth
/// and chunk size - so that all demands of the file hold and best effort gets the most memory
/// bandwidth, and proves it by [`analyze`].
///
/// Demands are `criticality`, `working_set`, tasks, flows and the bandwidth that a VM requires.
/// Values in the file are kept. Open is the schedule of a core that is in the `cpus` of several VMs
/// and has no `[[core]]`: it becomes servers of fixed priority, or a time
/// table. Open is also a `memory_budget` that is left out or has only
/// `required`, `colors` and `banks` that are left out for a VM with `working_set`, and `bandwidth`
/// and `chunk` of `[dma]`. Budgets are chosen only if the saturation of the memory is known
/// (`[saturation]`, or a platform that has it, such as `zcu102`); [`Plan::left_out`] reports what
/// was not chosen.
///
/// ```
/// use std::path::Path;
/// use weir_analysis::{PlanOptions, plan, verdict::Verdict};
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
/// let plan = plan(&file, &PlanOptions::default())?;
/// assert_eq!(plan.report.verdict, Some(Verdict::Holds));
/// assert!(plan.file.text().contains("[dma]"));
/// # Ok::<(), weir_analysis::PlanError>(())
/// ```
///
/// # Errors
///
/// Why there is no plan.
pub fn plan(file: &SystemFile, options: &PlanOptions) -> Result<Plan, PlanError> {
    let mut conflict = None;
    for slack in SLACKS {
        let cores = match schedules::choose(file.system(), slack, options) {
            Ok(cores) if cores.is_empty() => return plan_values(file, options, Vec::new()),
            Ok(cores) => schedules::choices(file.system(), &cores),
            Err(refused) => return Err(conflict.unwrap_or(refused)),
        };
        let text = edit::schedules(file.text(), &cores);
        let scheduled = file.with_text(&text.map_err(|error| not_edited(file, &error))?)?;
        match plan_values(&scheduled, options, cores) {
            // Budgets that are open make tasks longer than the schedules were chosen for.
            Err(PlanError::Conflict(found)) => {
                conflict.get_or_insert(PlanError::Conflict(found));
            }
            planned => return planned,
        }
    }
    Err(conflict.unwrap_or(PlanError::GaveUp))
}

/// The factors, in percent, by which schedules are chosen for longer tasks if the memory budgets
/// that follow make tasks late.
const SLACKS: [u64; 4] = [100, 125, 160, 200];

/// Returns the error about a file that cannot be edited.
fn not_edited(file: &SystemFile, error: &str) -> PlanError {
    let system = file.system();
    let place = system.guests().first().map(|vm| vm.place.clone()).unwrap_or_default();
    let help = "write each VM as a [[vm]] table, and each core as a [[core]] table";
    let message = format!("the system: the file cannot be edited: {error}");
    Faults(vec![system.fault(Code::PlanBudget, &place, message, help)]).into()
}

/// Chooses what a file with schedules leaves open.
fn plan_values(
    file: &SystemFile,
    options: &PlanOptions,
    cores: Vec<CoreChoice>,
) -> Result<Plan, PlanError> {
    let system = file.system();
    let choice = choose(system, file.text(), options)?;
    let planned = edit::write(file.text(), system, &choice);
    let file = file.with_text(&planned.map_err(|error| not_edited(file, &error))?)?;
    file.system().check_budgets()?;
    let report = analyze(&file, &Options { effort: EFFORT, ..Options::default() })?;
    if report.verdict == Some(Verdict::DoesNotHold) {
        return Err(Faults(report.refused()).into());
    }
    let choices = Choices { cores, ..choices(file.system(), &choice) };
    let mut left_out: Vec<String> =
        left_out(file.system()).into_iter().map(str::to_owned).collect();
    left_out.extend(report.memory.iter().flat_map(|memory| memory.notes.iter().cloned()));
    Ok(Plan { choices, file, report, left_out })
}

/// The choices.
struct Choice {
    setting: PlanSetting,
    /// The colors and banks that were divided, if any.
    board: Option<BoardClasses>,
}

/// Returns the choices, as the planned file has them.
fn choices(system: &System, choice: &Choice) -> Choices {
    let vms = system.guests().iter().zip(&choice.setting.shares).map(|(vm, share)| {
        let budget = vm.memory_budget.as_ref().and_then(|bandwidth| bandwidth.budget);
        let board = choice.board.as_ref().filter(|_| !is_best_effort(vm));
        VmChoice {
            name: vm.name.clone(),
            colors: board.map(|_| numbers(share.colors)),
            banks: board.and_then(|board| board.banks).map(|_| numbers(share.banks)),
            budget: budget.map(|budget| budget.0),
            period_ns: budget.map(|budget| budget.1.0),
        }
    });
    let known = system.saturation.as_ref();
    let accesses = choice.setting.best_effort;
    let bandwidth =
        |known: &Saturation| Budget { accesses, period: known.period }.bandwidth(known.line).0;
    Choices {
        cores: Vec::new(),
        vms: vms.collect(),
        chunk: choice.setting.chunk.map(|chunk| chunk.0),
        dma_bandwidth: choice.setting.dma.0,
        best_effort_budget: known.map(|_| accesses),
        best_effort_bandwidth: known.map(bandwidth),
        period: known.map(|known| known.period),
        has_flows: !system.flows.is_empty(),
    }
}

/// Returns what was left alone where next to nothing was chosen, and what it takes to have it
/// chosen.
fn left_out(system: &System) -> Vec<&'static str> {
    let mut left = Vec::new();
    if system.saturation.is_none() {
        left.push(
            "budgets were not chosen: the saturation of the memory is not known; add [saturation], \
             or name a platform that has it (zcu102)",
        );
        if system.guests().iter().all(|vm| vm.working_set.is_none()) {
            left.push("colors were not chosen: no VM has a `working_set`");
        }
    }
    left
}

/// Finds the best setting.
fn choose(system: &System, text: &str, options: &PlanOptions) -> Result<Choice, PlanError> {
    let wrong = |faults| PlanError::Faults(Faults(faults));
    let table = match &system.saturation {
        Some(saturation) => {
            short_table(system, saturation)?;
            let left = less_forgiven(system, saturation)?;
            system::saturation(system, &left).map_err(wrong)?
        }
        None => unlimited(system)?,
    };
    if !system.flows.is_empty() {
        system::path(system, Reading::Printed).map_err(wrong)?;
    }
    obstacle::check(system).map_err(wrong)?;
    // Everything without a meaning is reported before anything is chosen.
    let bandwidth = (!system.flows.is_empty()).then_some(BytesPerSec(1));
    analyze_timing(system, &Options { bandwidth, effort: Effort(1), ..Options::default() })?;

    let timed: Vec<usize> =
        (0..system.flows.len()).filter(|flow| !system.flows[*flow].best_effort).collect();
    let board = BoardClasses::of(system, text);
    // Its own banks cost a VM memory, and no file requires them, so they are given up first.
    let colors_only = board.as_ref().and_then(BoardClasses::colors_only);
    let boards: Vec<Option<BoardClasses>> =
        std::iter::once(board).chain(colors_only.map(Some)).collect();
    let problem =
        |board: &Option<BoardClasses>| Problem::new(system, board.as_ref(), &table, &timed);
    let problems: Vec<_> = boards.iter().map(problem).collect();
    let asker = Asker::new(system, table.period(), timed, options);
    match search(&problems, &asker, || asker.allow_explanation()) {
        Ok((position, setting)) => {
            Ok(Choice { setting, board: boards.into_iter().nth(position).flatten() })
        }
        Err(Refusal::Conflict { demands, minimal, shortages }) => {
            Err(PlanError::Conflict(Conflict::new(&demands, minimal, shortages, &asker)))
        }
        Err(Refusal::GaveUp) => Err(PlanError::GaveUp),
    }
}

/// Refuses a table for a period that the table itself calls too short for a budget.
fn short_table(system: &System, saturation: &Saturation) -> Result<(), Faults> {
    let chosen = |vm: &&Vm| vm.memory_budget.as_ref().is_none_or(|its| its.budget.is_none());
    let Some(vm) = system.guests().iter().find(chosen) else { return Ok(()) };
    let (period, least) = (saturation.period, saturation.min_period);
    if period >= least {
        return Ok(());
    }
    let place = vm.memory_budget.as_ref().map_or(&vm.place, |asked| &asked.place);
    let message = format!(
        "{vm}: no budget can be planned: [saturation] is for periods of {period}, and budgets with \
         periods below {least} are not kept"
    );
    let help = format!(
        "measure it for such a period: `weir calibrate --period {least}`; or write `accesses` and \
         `period` for each VM"
    );
    Err(Faults(vec![system.fault(Code::PlanBudget, place, message, help)]))
}

/// Returns the table less what VMs without debt may take beyond their budgets.
fn less_forgiven(system: &System, from: &Saturation) -> Result<Saturation, Faults> {
    let without = || system.guests().iter().filter(|vm| system::forgiven(system, vm) > Events(0));
    let forgiven =
        without().fold(Events(0), |sum, vm| sum.saturating_add(system::forgiven(system, vm)));
    let points = from.points.iter();
    let points: Vec<_> =
        points.filter_map(|(budget, dma)| Some((budget.checked_sub(forgiven.0)?, *dma))).collect();
    if let (true, Some(first)) = (points.is_empty(), without().next()) {
        let place = first.memory_budget.as_ref().map_or(&first.place, |asked| &asked.place);
        let names: Vec<_> = without().map(ToString::to_string).collect();
        let message = format!(
            "{}: may take {forgiven} accesses beyond the budgets in {}, which saturates the memory",
            names.join(", "),
            from.period
        );
        let help = "remove `debt = false`: what goes beyond is then taken off the next budget";
        return Err(Faults(vec![system.fault(Code::MemoryBandwidth, place, message, help)]));
    }
    Ok(Saturation { points, ..from.clone() })
}

/// Returns the table of a memory without known saturation: nothing is known to saturate it.
fn unlimited(system: &System) -> Result<SaturationTable, Faults> {
    let dma = if system.flows.is_empty() { 0 } else { MAX_BANDWIDTH };
    let point = SaturationPoint { total_budget: u64::MAX, dma: BytesPerSec(dma) };
    SaturationTable::new(Nanos(1), vec![point]).map_err(|_| Faults::default())
}
