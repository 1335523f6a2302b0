//! Planning: chooses what a system file leaves open, and proves the choice by the analysis.
//!
//! `judge` answers the questions of [`crate::search`] by analyzing the file with what is being
//! tried, `board` counts colors and banks, `obstacle` finds budgets that cannot be chosen, `edit`
//! writes the choices into the text, and `refusal` explains why there is no plan.

mod board;
mod edit;
mod judge;
mod obstacle;
mod refusal;

use crate::{
    Bytes, BytesPerSec, Nanos,
    flows::{Effort, MAX_BANDWIDTH, Overheads, Reading, Setting},
    memory::{Budget, CriticalTask, SaturationPoint, SaturationTable},
    search::{self, Platform, Refusal, Shape, System, Vm, check, plan_by, shortages},
    system::{self, Limits, Options, Report, analyze, analyze_timing, regulation},
    verdict::Verdict,
};
use board::{Board, is_best_effort};
use edit::numbers;
use judge::{Asker, EFFORT};
use serde::Serialize;
use std::{error, fmt};
use weir_model::{
    Code, Fault, Faults, SystemFile, Timing,
    timing::{MemoryBudget, Saturation, TimedVm},
};

use crate::units::Events;
pub use refusal::{Conflict, Shortage};

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

/// A planned system: the file with the choices written into it, and its analysis, whose verdict is
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choices {
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// Chooses what a system file leaves open - colors, banks, memory budgets, DMA bandwidth and chunk
/// size - so that all demands of the file hold and best effort gets the most memory bandwidth, and
/// proves it by [`analyze`].
///
/// Demands are `criticality`, `working_set`, tasks, flows and the bandwidth that a VM requires.
/// Values in the file are kept. Open is a `memory_budget` that is left out or has only
/// `required`, `colors` and `banks` that are left out for a VM with `working_set`, and `bandwidth`
/// and `chunk` of `[dma]`. Budgets are chosen only if the saturation of the memory is known
/// (`[saturation]`, or a platform that has it, such as `zcu102`); [`Plan::left_out`] reports what
/// was not chosen.
///
/// ```
/// use std::path::Path;
/// use weir_analysis::{PlanOptions, plan};
/// use weir_model::{Catalog, SystemFile};
///
/// let text = r#"
/// platform = "zcu102"
///
/// [[vm]]
/// name = "control"
/// cpus = [0]
/// criticality = 1
/// memory_budget = { required = "100MB/s" }
///
/// [[vm]]
/// name = "logger"
/// cpus = [1]
/// "#;
/// let file = SystemFile::parse(Path::new("system.toml"), text, &Catalog::default())?;
/// let plan = plan(&file, &PlanOptions::default())?;
/// assert!(plan.choices.vms.iter().all(|vm| vm.budget.is_some()));
/// # Ok::<(), weir_analysis::PlanError>(())
/// ```
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
    let timing = file.timing();
    let choice = choose(timing, file.text(), options)?;
    let planned = edit::write(file.text(), timing, &choice).map_err(|error| {
        let place = timing.vms.first().map(|vm| vm.place.clone()).unwrap_or_default();
        let help = "write each VM as a [[vm]] table";
        let message = format!("the file cannot be edited: {error}");
        Faults(vec![timing.fault(Code::PlanEdit, &place, message, help)])
    })?;
    let file = file.with_text(&planned)?;
    file.timing().check_budgets()?;
    let report = analyze(&file, &Options { effort: EFFORT, ..Options::default() })?;
    if report.verdict == Some(Verdict::DoesNotHold) {
        return Err(Faults(report.refused()).into());
    }
    let choices = choices(file.timing(), &choice);
    let mut left_out: Vec<String> =
        left_out(file.timing(), &choice).into_iter().map(str::to_owned).collect();
    left_out.extend(report.memory.iter().flat_map(|memory| memory.notes.iter().cloned()));
    Ok(Plan { choices, file, report, left_out })
}

/// The choices, as the planned file has them.
fn choices(timing: &Timing, choice: &Choice) -> Choices {
    let vms = timing.vms.iter().zip(&choice.plan.shares).map(|(vm, share)| {
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
    let saturation = choice.saturation.as_ref();
    let accesses = choice.plan.best_effort;
    Choices {
        vms: vms.collect(),
        chunk: choice.plan.chunk.map(|chunk| chunk.0),
        dma_bandwidth: choice.plan.dma.0,
        best_effort_budget: saturation.map(|_| accesses),
        best_effort_bandwidth: saturation
            .map(|known| Budget { accesses, period: known.period }.bandwidth(known.line).0),
        period: saturation.map(|known| known.period),
        has_flows: choice.flows,
    }
}

/// What was left alone where next to nothing was chosen, and what it takes to have it chosen.
fn left_out(timing: &Timing, choice: &Choice) -> Vec<&'static str> {
    let mut left = Vec::new();
    if choice.saturation.is_none() {
        left.push(
            "budgets were not chosen: the saturation of the memory is not known; add [saturation], or name a platform that has it (zcu102)",
        );
        if timing.vms.iter().all(|vm| vm.working_set.is_none()) {
            left.push("colors were not chosen: no VM has a `working_set`");
        }
    }
    left
}

/// The choices.
struct Choice {
    plan: search::Plan,
    /// The colors and banks that were divided, if any.
    board: Option<Board>,
    /// The saturation of the memory; without it no budgets are chosen.
    saturation: Option<Saturation>,
    /// Whether the file has flows.
    flows: bool,
}

/// Returns the saturation of the memory, if it is known. Without it no budgets are chosen, and the
/// report lists what is not judged.
fn saturation_of(timing: &Timing) -> Result<Option<Saturation>, Faults> {
    if let Some(saturation) = &timing.saturation {
        short_table(timing, saturation)?;
    }
    Ok(timing.saturation.clone())
}

/// Refuses a table for a period that the table itself calls too short for a budget.
fn short_table(timing: &Timing, saturation: &Saturation) -> Result<(), Faults> {
    let chosen = |vm: &&TimedVm| vm.memory_budget.as_ref().is_none_or(|its| its.budget.is_none());
    let Some(vm) = timing.vms.iter().find(chosen) else { return Ok(()) };
    let (period, least) = (saturation.period, saturation.min_period);
    if period >= least {
        return Ok(());
    }
    let place = vm.memory_budget.as_ref().map_or(&vm.place, |asked| &asked.place);
    let message = format!(
        "no budget can be planned for {}: [saturation] is for periods of {period}, and budgets with periods below {least} are not kept",
        vm.name
    );
    let help = format!(
        "measure it for such a period: `weir calibrate --period {least}`; or write `accesses` and `period` for each VM"
    );
    Err(Faults(vec![timing.fault(Code::PlanBudget, place, message, help)]))
}

/// Returns the table less what VMs without debt may take beyond their budgets.
fn less_forgiven(timing: &Timing, from: &Saturation) -> Result<Saturation, Vec<Fault>> {
    let without = || timing.vms.iter().filter(|vm| system::forgiven(timing, vm) > Events(0));
    let forgiven =
        without().fold(Events(0), |sum, vm| sum.saturating_add(system::forgiven(timing, vm)));
    let points = from.points.iter();
    let points: Vec<_> =
        points.filter_map(|(budget, dma)| Some((budget.checked_sub(forgiven.0)?, *dma))).collect();
    if let (true, Some(first)) = (points.is_empty(), without().next()) {
        let place = first.memory_budget.as_ref().map_or(&first.place, |asked| &asked.place);
        let names: Vec<_> = without().map(|vm| vm.name.as_str()).collect();
        let message = format!(
            "without debt {} may take {forgiven} accesses beyond what they are given in {}, which saturates the memory",
            names.join(", "),
            from.period
        );
        let help = "remove `debt = false`: what goes beyond is then taken off the next budget";
        return Err(vec![timing.fault(Code::MemoryBandwidth, place, message, help)]);
    }
    Ok(Saturation { points, ..from.clone() })
}

fn choose(timing: &Timing, text: &str, options: &PlanOptions) -> Result<Choice, PlanError> {
    let wrong = |faults| PlanError::Faults(Faults(faults));
    let saturation = saturation_of(timing).map_err(PlanError::Faults)?;
    let table = match &saturation {
        Some(saturation) => {
            let left = less_forgiven(timing, saturation).map_err(wrong)?;
            system::saturation(timing, &left).map_err(wrong)?
        }
        None => unlimited(timing).map_err(PlanError::Faults)?,
    };
    let copy = system::most_copied(timing).map(BytesPerSec);
    let table = if timing.dma.path.is_of_vms() { next_to_copies(table, copy) } else { table };
    if !timing.flows.is_empty() {
        system::Input::of(timing, Reading::Printed).map_err(wrong)?;
    }
    obstacle::check(timing).map_err(wrong)?;
    // Everything without a meaning is reported before anything is chosen.
    let bandwidth = (!timing.flows.is_empty()).then_some(BytesPerSec(1));
    let probe = Options { bandwidth, effort: Effort(1), ..Options::default() };
    analyze_timing(timing, &probe)?;

    let timed: Vec<usize> =
        (0..timing.flows.len()).filter(|flow| !timing.flows[*flow].best_effort).collect();
    let board = Board::of(timing, text);
    // Its own banks cost a VM memory, and no file requires them, so they are given up first.
    let colors_only = board.as_ref().and_then(Board::colors_only);
    let boards: Vec<Option<Board>> = std::iter::once(board).chain(colors_only.map(Some)).collect();
    let systems: Vec<System> = boards
        .iter()
        .map(|board| system(timing, board.as_ref(), saturation.as_ref(), &table, &timed))
        .collect();
    let systems: Vec<&System> = systems.iter().collect();
    let period = table.period();
    let asker = Asker::new(timing, period, timed, options);
    match plan_by(&systems, &asker) {
        Ok((position, plan)) => {
            let system = systems[position];
            let flows = !timing.flows.is_empty();
            // Colors, banks and budgets are checked again by other rules than those of the search;
            // the flows are proven from the file.
            let divided =
                System { flows: Vec::new(), dma: None, best_effort_flows: false, ..system.clone() };
            if check(&divided, &plan, EFFORT).is_empty() {
                let board = boards.into_iter().nth(position).flatten();
                return Ok(Choice { plan, board, saturation, flows });
            }
            let place = timing.vms.first().map(|vm| vm.place.clone()).unwrap_or_default();
            let message = "the plan was refuted by its own check";
            let fault = timing.fault(Code::PlanRefuted, &place, message, "report this system file");
            Err(PlanError::Faults(Faults(vec![fault])))
        }
        Err(Refusal::Conflict(conflict)) => {
            asker.allow_explanation();
            let last = systems.last().map(|system| shortages(system, &conflict.demands, &asker));
            let last = last.unwrap_or_default();
            Err(PlanError::Conflict(Conflict::new(&conflict, last, &asker)))
        }
        Err(Refusal::GaveUp) => Err(PlanError::GaveUp),
    }
}

/// Returns the table for flows that the cores of VMs copy, whose budgets count the copies: any
/// bandwidth up to `copy` takes nothing else.
fn next_to_copies(table: SaturationTable, copy: Option<BytesPerSec>) -> SaturationTable {
    let total_budget = table.max_budget(BytesPerSec(0)).unwrap_or(0);
    let fastest = table.points().iter().map(|point| point.dma).max().unwrap_or_default();
    let dma = copy.unwrap_or(fastest);
    let point = SaturationPoint { total_budget, dma };
    SaturationTable::new(table.period(), vec![point]).unwrap_or(table)
}

/// Returns the table of a memory whose saturation is not known: nothing is known to saturate it.
fn unlimited(timing: &Timing) -> Result<SaturationTable, Faults> {
    let dma = if timing.flows.is_empty() { 0 } else { MAX_BANDWIDTH };
    let point = SaturationPoint { total_budget: u64::MAX, dma: BytesPerSec(dma) };
    SaturationTable::new(Nanos(1), vec![point]).map_err(|_| Faults::default())
}

/// Returns the demands of a file as the search needs them.
fn system(
    timing: &Timing,
    board: Option<&Board>,
    saturation: Option<&Saturation>,
    table: &SaturationTable,
    timed: &[usize],
) -> System {
    let fastest = table.points().iter().map(|point| point.dma).max().unwrap_or_default();
    let known = saturation.map(|saturation| saturation.chunks.as_slice()).unwrap_or_default();
    let mut chunks: Vec<(Bytes, BytesPerSec)> = known.to_vec();
    let most = system::most_copied(timing).map_or(BytesPerSec(u64::MAX), BytesPerSec);
    if let Some(given) = timing.dma.chunk {
        chunks.retain(|(size, _)| size.0 == given.0);
        if chunks.is_empty() {
            chunks.push((given, fastest));
        }
    } else if chunks.is_empty() {
        chunks.push((Bytes(system::CHUNK), fastest));
    }
    for (_, reach) in &mut chunks {
        *reach = most.min(*reach);
    }
    let line = saturation.map(|saturation| saturation.line).or_else(|| timing.line());
    let line = Bytes(line.map_or(1, |line| line.0));
    let least = saturation.map_or(0, |saturation| saturation.min_accesses);
    let demands =
        |vm| Vm { shape: shape(timing, vm, table, least), ..demands(timing, vm, table, line) };
    let mut vms: Vec<Vm> = timing.vms.iter().map(demands).collect();
    if let Some(board) = board {
        let left = board.left(&timing.vms);
        for (vm, asked) in vms.iter_mut().zip(&timing.vms) {
            vm.working_set = Bytes(asked.working_set.map_or(0, |set| set.0));
            vm.memory = Bytes(board.memory(asked, left));
        }
    }
    let period = table.period();
    let overshoots = timing.vms.iter().map(|vm| timing.overshoot(vm, period));
    System {
        platform: Platform {
            // Without a board to divide, each VM gets one of many colors, and none is written.
            colors: board.map_or(u32::MAX, |board| board.colors),
            color_bytes: Bytes(board.map_or(u64::MAX, |board| board.color_bytes)),
            banks: board.map_or(u32::MAX, |board| board.banks.unwrap_or(board.colors)),
            bank_bytes: Bytes(board.map_or(u64::MAX, Board::piece)),
            line,
            min_accesses: least,
            saturation: table.clone(),
            chunks,
            overshoot: overshoots.max().flatten().unwrap_or_default(),
            banks_are_colors: board.is_some_and(|board| board.banks.is_none()),
        },
        vms,
        flows: flows_of(timing, timed),
        overheads: Overheads::default(),
        setting: Setting { chunk: Bytes(1), queues: None, reading: Reading::Printed },
        dma: timing.dma.bandwidth.map(|rate| most.min(rate)),
        best_effort_flows: timed.len() < timing.flows.len(),
    }
}

/// The search needs positions and rates of flows; the judge knows their demand.
fn flows_of(timing: &Timing, timed: &[usize]) -> Vec<crate::flows::Flow> {
    let flow = |flow: &usize| {
        let flow = &timing.flows[*flow];
        crate::flows::Flow {
            size: flow.size,
            period: Nanos(flow.period.map_or(1, |time| time.0)),
            deadline: Nanos(flow.deadline.map_or(1, |time| time.0)),
            from: 0,
            to: 1,
        }
    };
    timed.iter().map(flow).collect()
}

/// Returns the constraints on a budget that is chosen for a VM, at least `least`.
fn shape(timing: &Timing, vm: &TimedVm, table: &SaturationTable, least: u64) -> Shape {
    let vcpus = vm.cpus.len().max(1);
    let pool = vm.memory_budget.as_ref().is_some_and(MemoryBudget::is_pool);
    let period = table.period();
    // The cores make no more accesses, so a larger budget limits nothing.
    let each = timing.polling(vm, period).map_or(u64::MAX, |polling| polling.most_in(period));
    let most = each.saturating_mul(vcpus as u64);
    let siblings = vcpus > 1 && timing.delay().is_some_and(|(delay, _)| delay.0 > 0);
    // Without a table no budget is chosen.
    let bandwidth = vm.memory_budget.as_ref().filter(|_| timing.saturation.is_some());
    let Some(bandwidth) = bandwidth else {
        return Shape { least: vcpus as u64, most, siblings, ..Shape::default() };
    };
    let part = if bandwidth.has_debt() { 1 } else { least.max(1) };
    let regulation = regulation(&timing.vms, vm, None);
    let whole =
        |each| if pool { regulation.enough(each) } else { bandwidth.least_whole(each, vcpus) };
    Shape {
        least: bandwidth.least_whole(part, vcpus).max(whole(1)),
        most,
        siblings,
        step: if bandwidth.is_each() { vcpus as u64 } else { 1 },
        regulation,
    }
}

/// Returns the bandwidth of the budget that guarantees a VM `required` bytes/s next to EL2's polls;
/// the greatest if none does.
fn next_to_polls(
    timing: &Timing,
    vm: &TimedVm,
    required: u64,
    table: &SaturationTable,
    line: Bytes,
) -> u64 {
    let period = table.period();
    let Some(polling) = timing.polling(vm, period).filter(|_| required > 0) else {
        return required;
    };
    let second = u128::from(line.0.max(1)) * 1_000_000_000;
    let least = (u128::from(required) * u128::from(period.0)).div_ceil(second);
    let vcpus = vm.cpus.len().max(1) as u64;
    let whole = u64::try_from(least).ok().and_then(|least| polling.enough(least, period, vcpus));
    // Rounded down, it needs the same budget: one line per period is many bytes/s.
    let rate = |whole| u64::try_from(u128::from(whole) * second / u128::from(period.0.max(1)));
    whole.and_then(|whole| rate(whole).ok()).map_or(u64::MAX, |rate| rate.max(required))
}

fn demands(timing: &Timing, vm: &TimedVm, table: &SaturationTable, line: Bytes) -> Vm {
    let asked = vm.memory_budget.as_ref();
    let given = Limits::of(timing, vm);
    // Without a table no budget is chosen, and the bandwidth is not judged.
    let known = timing.saturation.is_some() || given.is_some();
    let required = asked.and_then(|asked| asked.required).filter(|_| known);
    // The search asks the judge about all tasks of a VM that has one.
    let critical = vm.tasks.first().map(|task| {
        let alone = task.wcet;
        let task_of = CriticalTask { alone, accesses: 0, delay: Nanos(0), per_access: None };
        (task_of, task.deadline)
    });
    let mut bandwidth = required.map_or(0, |rate| rate.0);
    if given.is_none() {
        bandwidth = next_to_polls(timing, vm, bandwidth, table, line);
    }
    let mut counted =
        given.map(|given| table.counted(given.most, given.regulation).unwrap_or(u64::MAX));
    if let Some(given) = given {
        let guaranteed = given.guaranteed();
        let got = u128::from(guaranteed.accesses) * u128::from(line.0) * 1_000_000_000;
        if got >= u128::from(bandwidth) * u128::from(guaranteed.period.0) {
            bandwidth = 0;
        } else {
            // It is too little in its own period, so it is in the table's.
            counted = Some(0);
        }
    }
    Vm {
        best_effort: is_best_effort(vm),
        working_set: Bytes(0),
        memory: Bytes(0),
        bandwidth: BytesPerSec(bandwidth),
        critical,
        given: counted,
        shape: Shape::default(),
    }
}
