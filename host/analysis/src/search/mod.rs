//! The search for a setting in which every demand holds and best effort is left the most memory
//! bandwidth: colors, banks, budgets, DMA bandwidth and chunk size.
//!
//! The search is exact because the parts meet in few numbers. Colors and banks are counted; budgets
//! and DMA bandwidth meet in the saturation table; a chunk size fixes the least DMA bandwidth of
//! the flows; and both the saturation and every critical task's bound only get worse as best effort
//! gets more, so its largest budget is found by halving. The answer is proven by [`check`], which
//! shares no decision with the search.

mod check;
mod conflict;
#[cfg(test)]
mod tests;

use core::{fmt, ops::RangeInclusive};

use crate::flows::{Analyzer, Effort, Flow, MinBandwidth, Overheads, Setting, Verdict, transform};
use crate::memory::{
    Bound, Budget, CriticalTask, Interferer, Regulation, SaturationTable, execution_bound,
};
use crate::units::{Bytes, BytesPerSec, Events, Nanos};

pub use check::check;
pub use conflict::{Conflict, Shortage, shortages};

/// What the platform offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Cache colors that can be given to VMs.
    pub colors: u32,
    /// Capacity of the last-level cache in one color.
    pub color_bytes: Bytes,
    /// DRAM banks that can be given to VMs, independent of colors (where a color fixes bank bits,
    /// the number of choices that are left).
    pub banks: u32,
    /// DRAM in one bank.
    pub bank_bytes: Bytes,
    /// Cache line.
    pub line: Bytes,
    /// Least budget per period that the regulator enforces well (rt-virtio V-A: 50 in 30 us).
    pub min_accesses: u64,
    /// Harmless pairs of budget and DMA bandwidth; its period is that of all budgets.
    pub saturation: SaturationTable,
    /// Chunk sizes to choose from, with the DMA bandwidth that each can reach.
    pub chunks: Vec<(Bytes, BytesPerSec)>,
    /// Accesses that still pass between overflow and stop.
    pub overshoot: Events,
    /// A color's part of DRAM comes with it and no other does, so that what is said of banks is
    /// said of colors.
    pub banks_are_colors: bool,
}

/// A VM's demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Best effort takes what is left of everything and demands nothing but memory.
    pub best_effort: bool,
    /// What must fit into its colors; 0 asks for one color.
    pub working_set: Bytes,
    /// What must fit into its banks.
    pub memory: Bytes,
    /// Refill bandwidth that it must get.
    pub bandwidth: BytesPerSec,
    /// A task and the time in which it must finish beside all others.
    pub critical: Option<(CriticalTask, Nanos)>,
    /// A budget, accesses per period of the saturation table, that is not to be chosen.
    pub given: Option<u64>,
    /// What a budget that is chosen must be.
    pub shape: Shape,
}

/// What a chosen budget of a VM must be, beside enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The least, so that each vCPU's part is one that can be.
    pub least: u64,
    /// The most that the VM's cores can make in a period.
    pub most: u64,
    /// It is a multiple of this: the vCPUs, where each has the same budget for itself.
    pub step: u64,
    /// Whether the VM's cores delay each other, so that its tasks may be later with a larger
    /// budget.
    pub siblings: bool,
    /// How it is spent, which says how much of it is sure.
    pub regulation: Regulation,
}

impl Default for Shape {
    fn default() -> Self {
        Self { least: 0, most: u64::MAX, step: 1, siblings: false, regulation: Regulation::Static }
    }
}

impl Shape {
    /// The least budget of this shape that is no less.
    fn up(&self, budget: u64) -> u64 {
        budget.max(self.least).checked_next_multiple_of(self.step.max(1)).unwrap_or(u64::MAX)
    }
}

/// A system to be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The board.
    pub platform: Platform,
    /// The VMs; flows name them by position.
    pub vms: Vec<Vm>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// Overheads of the flows.
    pub overheads: Overheads,
    /// Everything about flows but the chunk, which is chosen.
    pub setting: Setting,
    /// A DMA bandwidth that is not to be chosen.
    pub dma: Option<BytesPerSec>,
    /// Whether there are flows of best effort as well, which demand nothing and take what DMA
    /// bandwidth there is.
    pub best_effort_flows: bool,
}

impl System {
    /// The DMA bandwidths that flows of best effort alone may have, the best first: the most that
    /// takes nothing from budgets, and for tasks that this makes late half as much, again and
    /// again.
    fn dma_of_best_effort(&self) -> Vec<BytesPerSec> {
        if let Some(given) = self.dma {
            return vec![given];
        }
        let table = &self.platform.saturation;
        let beside = table.max_budget(BytesPerSec(0)).and_then(|most| table.max_dma(most));
        let least = table.points().iter().map(|point| point.dma).filter(|dma| dma.0 > 0).min();
        let most = beside.filter(|dma| dma.0 > 0).or(least).unwrap_or_default();
        (0..u64::BITS).map(|half| BytesPerSec(most.0 >> half)).take_while(|dma| dma.0 > 0).collect()
    }
}

/// What the DMA engine does beside a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The positions of the flows that it moves, beside those of best effort.
    pub flows: Vec<usize>,
    /// In chunks of so many bytes, if there are flows.
    pub chunk: Option<Bytes>,
    /// How fast.
    pub dma: BytesPerSec,
}

/// An answer that was not found: the effort was spent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsure;

/// Who says what flows need and whether tasks hold. Flows only get better with more DMA bandwidth,
/// tasks only worse with more flows or budgets.
pub trait Judge {
    /// The least DMA bandwidth of the flows at these positions with a chunk size (or a proven one,
    /// where the exact least is out of reach); `None` if none is enough.
    ///
    /// # Errors
    /// If the effort was spent before one was proven.
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Result<Option<BytesPerSec>, Unsure>;

    /// Whether the flows hold at a DMA bandwidth.
    ///
    /// # Errors
    /// If the effort was spent first.
    fn flows_hold(&self, flows: &[usize], chunk: Bytes, dma: BytesPerSec) -> Result<bool, Unsure>;

    /// Whether the critical task of a VM is done in time beside these budgets and what is moved.
    ///
    /// # Errors
    /// If the effort was spent first.
    fn task_holds(&self, vm: usize, budgets: &[u64], moved: &Moved) -> Result<bool, Unsure>;
}

/// Flows of the paper's data path and one critical task a VM.
struct Standard<'a> {
    system: &'a System,
    effort: Effort,
}

impl Standard<'_> {
    fn load(&self, flows: &[usize], chunk: Bytes) -> Option<Analyzer> {
        let flows: Vec<Flow> =
            flows.iter().filter_map(|&i| self.system.flows.get(i).copied()).collect();
        let setting = Setting { chunk, ..self.system.setting };
        let tasks = transform(&flows, &setting, &self.system.overheads).ok()?;
        let mut analyzer = Analyzer::new();
        analyzer.load(&tasks);
        Some(analyzer)
    }
}

impl Judge for Standard<'_> {
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Result<Option<BytesPerSec>, Unsure> {
        let Some(mut analyzer) = self.load(flows, chunk) else {
            return Ok(None);
        };
        match analyzer.min_bandwidth(self.effort) {
            MinBandwidth::Exactly(b) => Ok(Some(b)),
            MinBandwidth::GaveUp { enough, .. } => enough.map(Some).ok_or(Unsure),
            MinBandwidth::Never(_) => Ok(None),
        }
    }

    fn flows_hold(&self, flows: &[usize], chunk: Bytes, dma: BytesPerSec) -> Result<bool, Unsure> {
        let Some(mut analyzer) = self.load(flows, chunk) else {
            return Ok(false);
        };
        match analyzer.verdict(dma, self.effort) {
            Ok(Verdict::Schedulable) => Ok(true),
            Ok(Verdict::GaveUp { .. }) => Err(Unsure),
            Ok(Verdict::Unschedulable(_)) | Err(_) => Ok(false),
        }
    }

    fn task_holds(&self, vm: usize, budgets: &[u64], _: &Moved) -> Result<bool, Unsure> {
        Ok(task_holds(self.system, budgets, vm))
    }
}

/// One demand, to say which can't live together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Demand {
    /// The working set of a VM: colors.
    WorkingSet(usize),
    /// The memory of a VM: banks.
    Memory(usize),
    /// The bandwidth of a VM.
    Bandwidth(usize),
    /// The deadline of a VM's critical task.
    Task(usize),
    /// A flow.
    Flow(usize),
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkingSet(vm) => write!(f, "working set of VM {vm}"),
            Self::Memory(vm) => write!(f, "memory of VM {vm}"),
            Self::Bandwidth(vm) => write!(f, "bandwidth of VM {vm}"),
            Self::Task(vm) => write!(f, "critical task of VM {vm}"),
            Self::Flow(flow) => write!(f, "flow {flow}"),
        }
    }
}

/// What a VM is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// First color and number of colors.
    pub colors: (u32, u32),
    /// First bank and number of banks.
    pub banks: (u32, u32),
    /// Accesses per period of the saturation table.
    pub budget: u64,
}

/// A setting in which everything holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One a VM. All best-effort VMs share the same colors and banks.
    pub shares: Vec<Share>,
    /// Chunk size; `None` without flows.
    pub chunk: Option<Bytes>,
    /// DMA bandwidth; 0 without flows.
    pub dma: BytesPerSec,
    /// Sum of the budgets of best effort per period.
    pub best_effort: u64,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Demands can't live together.
    Conflict(Conflict),
    /// The effort was spent before a plan was found or excluded.
    GaveUp,
}

/// The best plan.
///
/// # Errors
/// The conflict, if there is no plan.
pub fn plan(system: &System, effort: Effort) -> Result<Plan, Refusal> {
    plan_by(&[system], &Standard { system, effort }).map(|(_, plan)| plan)
}

/// The best plan of the first system that has one, with the position of the system. The systems say
/// the same demands in different ways; another judge says what their flows and tasks need.
///
/// # Errors
/// The conflict, if none has a plan.
pub fn plan_by(systems: &[&System], judge: &dyn Judge) -> Result<(usize, Plan), Refusal> {
    let mut all = Vec::new();
    let mut unsure = false;
    for (position, system) in systems.iter().enumerate() {
        let asked = demands(system);
        match search(system, &asked, judge) {
            Ok(Some(plan)) => return Ok((position, plan)),
            Ok(None) => {}
            Err(Unsure) => unsure = true,
        }
        all.extend(asked);
    }
    if unsure {
        return Err(Refusal::GaveUp);
    }
    all.sort_unstable();
    all.dedup();
    Err(Refusal::Conflict(conflict::minimal(systems, &all, judge)))
}

fn demands(system: &System) -> Vec<Demand> {
    let mut all = Vec::new();
    for (i, vm) in system.vms.iter().enumerate() {
        if !vm.best_effort {
            all.push(Demand::WorkingSet(i));
            if vm.bandwidth.0 > 0 {
                all.push(Demand::Bandwidth(i));
            }
            if vm.critical.is_some() {
                all.push(Demand::Task(i));
            }
        }
        if vm.memory.0 > 0 {
            all.push(Demand::Memory(i));
        }
    }
    all.extend((0..system.flows.len()).map(Demand::Flow));
    all
}

/// What the kept demands ask of each VM.
struct Need {
    colors: u64,
    banks: u64,
    budget: u64,
    /// What a given budget must be at least.
    floor: u64,
}

fn need(system: &System, i: usize, kept: &[Demand]) -> Need {
    let (vm, platform) = (&system.vms[i], &system.platform);
    let keeps = |demand| kept.contains(&demand);
    let colors = if keeps(Demand::WorkingSet(i)) {
        vm.working_set.0.div_ceil(platform.color_bytes.0.max(1)).max(1)
    } else {
        // Nobody runs without a color and a bank.
        1
    };
    let banks = if keeps(Demand::Memory(i)) {
        vm.memory.0.div_ceil(platform.bank_bytes.0.max(1)).max(1)
    } else {
        1
    };
    let (mut budget, mut floor) = (platform.min_accesses, 0);
    if keeps(Demand::Bandwidth(i)) {
        let bytes = u128::from(vm.bandwidth.0) * u128::from(platform.saturation.period().0);
        let accesses = bytes.div_ceil(u128::from(platform.line.0.max(1)) * 1_000_000_000);
        floor = u64::try_from(accesses).unwrap_or(u64::MAX);
        if vm.given.is_none() {
            floor = vm.shape.regulation.enough(floor);
        }
        budget = budget.max(floor);
    }
    let budget = vm.shape.up(budget);
    let colors = if platform.banks_are_colors { colors.max(banks) } else { colors };
    let banks = if platform.banks_are_colors { colors } else { banks };
    Need { colors, banks, budget: vm.given.unwrap_or(budget), floor }
}

fn flows_among(kept: &[Demand]) -> Vec<usize> {
    kept.iter().filter_map(|d| if let Demand::Flow(i) = d { Some(*i) } else { None }).collect()
}

/// The best plan for some of the demands; `None` if there is none.
fn search(system: &System, kept: &[Demand], judge: &dyn Judge) -> Result<Option<Plan>, Unsure> {
    let platform = &system.platform;
    let needs: Vec<Need> = (0..system.vms.len()).map(|i| need(system, i, kept)).collect();
    if needs.iter().any(|need| need.budget < need.floor) {
        return Ok(None);
    }
    let Some((colors, banks)) = place(system, &needs) else {
        return Ok(None);
    };
    let flows = flows_among(kept);
    let mut unsure = false;
    let mut choices: Vec<(Option<Bytes>, BytesPerSec)> = Vec::new();
    // Tasks of who copies the flows may be late at the least bandwidth alone.
    let mut faster = Vec::new();
    let least: Vec<u64> = needs.iter().map(|need| need.budget).collect();
    let harmless = platform.saturation.max_dma(sum(&least));
    if flows.is_empty() && system.best_effort_flows {
        choices.extend(system.dma_of_best_effort().into_iter().map(|dma| (None, dma)));
    } else if flows.is_empty() {
        choices.push((None, BytesPerSec(0)));
    } else {
        for &(chunk, reach) in &platform.chunks {
            match judge.least_dma(&flows, chunk) {
                Ok(Some(least)) => {
                    let dma = system.dma.unwrap_or(least);
                    if least <= dma && dma <= reach {
                        choices.push((Some(chunk), dma));
                    }
                    let top = harmless.map(|harmless| harmless.min(reach));
                    if let (None, Some(top)) = (system.dma, top.filter(|top| *top > least)) {
                        faster.push((Some(chunk), top));
                    }
                }
                Ok(None) => {}
                Err(Unsure) => unsure = true,
            }
        }
    }
    if !kept.iter().any(|demand| matches!(demand, Demand::Task(_))) {
        faster.clear();
    }
    let mut best: Option<Plan> = None;
    let slower = choices.len();
    for (tried, (chunk, dma)) in choices.into_iter().chain(faster).enumerate() {
        if tried >= slower && best.is_some() {
            break;
        }
        let Some(total) = platform.saturation.max_budget(dma) else {
            continue;
        };
        let moved = Moved { flows: flows.clone(), chunk, dma };
        let holds = |vm: usize, budgets: &[u64]| judge.task_holds(vm, budgets, &moved);
        let budgets = match budgets(system, &needs, kept, total, &holds) {
            Ok(Some(budgets)) => budgets,
            Ok(None) => continue,
            Err(Unsure) => {
                unsure = true;
                continue;
            }
        };
        let best_effort: u64 = total_of(system, &budgets, true);
        // More for best effort first, then less for the DMA engine.
        let better = best.as_ref().is_none_or(|b| (best_effort, b.dma) > (b.best_effort, dma));
        if better {
            let shares = (0..system.vms.len())
                .map(|i| Share { colors: colors[i], banks: banks[i], budget: budgets[i] })
                .collect();
            best = Some(Plan { shares, chunk, dma, best_effort });
        }
        // What moves best effort alone is tried from the most on.
        if flows.is_empty() {
            break;
        }
    }
    if best.is_none() && unsure { Err(Unsure) } else { Ok(best) }
}

type Ranges = Vec<(u32, u32)>;

/// Colors and banks: each VM its own, best effort together what is left.
fn place(system: &System, needs: &[Need]) -> Option<(Ranges, Ranges)> {
    let ranges = |most: u32, of: fn(&Need) -> u64| -> Option<Ranges> {
        let mut next = 0u32;
        let mut ranges = vec![(0, 0); needs.len()];
        for (i, need) in needs.iter().enumerate().filter(|(i, _)| !system.vms[*i].best_effort) {
            let count = u32::try_from(of(need)).ok()?;
            ranges[i] = (next, count);
            next = next.checked_add(count).filter(|&n| n <= most)?;
        }
        let left = most - next;
        let shared: u64 = needs
            .iter()
            .enumerate()
            .filter(|(i, _)| system.vms[*i].best_effort)
            .map(|(_, n)| of(n))
            .max()
            .unwrap_or(0);
        if u64::from(left) < shared {
            return None;
        }
        for (range, _) in ranges.iter_mut().zip(&system.vms).filter(|(_, vm)| vm.best_effort) {
            *range = (next, left);
        }
        Some(ranges)
    };
    let banks = |need: &Need| need.banks;
    let colors = |need: &Need| need.colors;
    let memory: u128 =
        system.vms.iter().filter(|vm| vm.best_effort).map(|vm| u128::from(vm.memory.0)).sum();
    let (colors, banks) =
        (ranges(system.platform.colors, colors)?, ranges(system.platform.banks, banks)?);
    // The best-effort VMs' memories lie side by side in the banks that they share; a demand that
    // was dropped counts as one bank.
    let asked: u64 =
        needs.iter().zip(&system.vms).filter(|(_, vm)| vm.best_effort).map(|(n, _)| n.banks).sum();
    let shared = banks.iter().zip(&system.vms).find(|(_, vm)| vm.best_effort).map(|(b, _)| b.1);
    let whole = memory.div_ceil(u128::from(system.platform.bank_bytes.0.max(1)));
    match shared {
        Some(count) if u128::from(count) < whole.min(u128::from(asked)) => None,
        _ => Some((colors, banks)),
    }
}

/// Whether the tasks of a VM hold beside budgets.
type TaskHolds<'a> = dyn Fn(usize, &[u64]) -> Result<bool, Unsure> + 'a;

/// What becomes of budgets that are raised until all demanded tasks hold.
enum Raised {
    /// The least budgets, no less than those that were given, in which they hold.
    Hold(Vec<u64>),
    /// The tasks of this VM are late with the greatest budget that is left for it, which is in
    /// these.
    Late {
        /// The VM.
        vm: usize,
        /// All budgets.
        budgets: Vec<u64>,
    },
}

/// Raises the budgets of VMs whose tasks wait for them too long. A task gets no better with others'
/// budgets, so each VM's least budget in which its tasks hold only grows with these, and the result
/// is the least, VM by VM, of all budgets up to `total` in which all tasks hold.
fn raise(
    system: &System,
    mut budgets: Vec<u64>,
    kept: &[Demand],
    total: u64,
    task_holds: &TaskHolds,
) -> Result<Raised, Unsure> {
    loop {
        let mut raised = false;
        for demand in kept {
            let Demand::Task(vm) = *demand else { continue };
            if task_holds(vm, &budgets)? {
                continue;
            }
            let (asked, least) = (&system.vms[vm], budgets[vm]);
            let others = sum(&budgets).saturating_sub(least);
            let step = asked.shape.step.max(1);
            let most = total.saturating_sub(others).min(asked.shape.most) / step;
            let mut tried = budgets.clone();
            let mut holds = |steps: u64| {
                tried[vm] = steps * step;
                task_holds(vm, &tried)
            };
            let found = if asked.given.is_some() || most * step <= least {
                None
            } else if asked.shape.siblings {
                least_of(least / step + 1..=most, holds)?
            } else if holds(most)? {
                Some(least_above(least / step, most, holds)?)
            } else {
                None
            };
            let Some(found) = found else {
                if asked.given.is_none() {
                    budgets[vm] = least.max(most * step);
                }
                return Ok(Raised::Late { vm, budgets });
            };
            budgets[vm] = found * step;
            raised = true;
        }
        if !raised {
            return Ok(Raised::Hold(budgets));
        }
    }
}

/// The least number of a range that holds, where larger ones may not.
fn least_of(
    mut range: RangeInclusive<u64>,
    mut holds: impl FnMut(u64) -> Result<bool, Unsure>,
) -> Result<Option<u64>, Unsure> {
    let found = range.find_map(|number| match holds(number) {
        Ok(true) => Some(Ok(number)),
        Ok(false) => None,
        Err(Unsure) => Some(Err(Unsure)),
    });
    found.transpose()
}

/// The least number above `late`, which does not hold, where `good` and all larger ones do.
fn least_above(
    mut late: u64,
    mut good: u64,
    mut holds: impl FnMut(u64) -> Result<bool, Unsure>,
) -> Result<u64, Unsure> {
    while good - late > 1 {
        let middle = late + (good - late) / 2;
        if holds(middle)? { good = middle } else { late = middle }
    }
    Ok(good)
}

/// Budgets of all VMs: what each needs, and best effort an even part of the most that harms no
/// other VM and that its cores can use.
fn budgets(
    system: &System,
    needs: &[Need],
    kept: &[Demand],
    total: u64,
    task_holds: &TaskHolds,
) -> Result<Option<Vec<u64>>, Unsure> {
    let takes_rest = |vm: &Vm| vm.best_effort && vm.given.is_none();
    let sharers = system.vms.iter().filter(|vm| takes_rest(vm)).count() as u64;
    let with = |extra: u64| -> Vec<u64> {
        let mut rank = 0;
        needs
            .iter()
            .zip(&system.vms)
            .map(|(need, vm)| {
                if !takes_rest(vm) {
                    return need.budget;
                }
                let part = extra / sharers + u64::from(rank < extra % sharers);
                rank += 1;
                let step = vm.shape.step.max(1);
                let most = vm.shape.most - vm.shape.most % step;
                // Whole steps of the rest alone: what is needed is some already.
                need.budget.saturating_add(part - part % step).min(most).max(need.budget)
            })
            .collect()
    };
    let holds = |extra: u64| -> Result<Option<Vec<u64>>, Unsure> {
        let budgets = with(extra);
        if sum(&budgets) > total {
            return Ok(None);
        }
        Ok(match raise(system, budgets, kept, total, task_holds)? {
            Raised::Hold(budgets) => Some(budgets),
            Raised::Late { .. } => None,
        })
    };
    let Some(mut best) = holds(0)? else { return Ok(None) };
    if sharers == 0 {
        return Ok(Some(best));
    }
    let (mut good, mut bad) = (0, total.saturating_mul(sharers).saturating_add(1));
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        // What was not shown in time is not given away.
        if let Ok(Some(budgets)) = holds(middle) {
            (good, best) = (middle, budgets);
        } else {
            bad = middle;
        }
    }
    Ok(Some(best))
}

fn sum(budgets: &[u64]) -> u64 {
    budgets.iter().fold(0u64, |sum, budget| sum.saturating_add(*budget))
}

fn task_holds(system: &System, budgets: &[u64], i: usize) -> bool {
    let Some((task, deadline)) = &system.vms[i].critical else {
        return true;
    };
    let interferers: Vec<Interferer> = budgets
        .iter()
        .enumerate()
        .filter(|(k, _)| *k != i)
        .map(|(_, &accesses)| Interferer {
            budget: Budget { accesses, period: system.platform.saturation.period() },
            regulation: Regulation::Static,
            overshoot: system.platform.overshoot,
            write_back: true,
            vms: 1,
        })
        .collect();
    matches!(execution_bound(task, &interferers), Bound::AtMost(t) if t <= *deadline)
}

/// The budgets together. What is not limited is the greatest number, and so is the sum with it.
fn total_of(system: &System, budgets: &[u64], best_effort: bool) -> u64 {
    budgets
        .iter()
        .zip(&system.vms)
        .filter(|(_, vm)| vm.best_effort == best_effort)
        .fold(0, |sum: u64, (budget, _)| sum.saturating_add(*budget))
}
