//! The search for a setting in which every demand holds and best effort is left the most memory
//! bandwidth: colors, banks, budgets, DMA bandwidth and chunk size.
//!
//! The search is exact because few numbers connect its parts. Colors and banks are counted; budgets
//! and DMA bandwidth meet in the saturation table; a chunk size fixes the least DMA bandwidth of
//! the flows. Both the saturation and the bound of every task only get worse as best effort gets
//! more, so that bisection finds its largest budget.

use super::{
    budgets::{Late, budgets, sum},
    problem::{Demand, Problem, Unsure},
};
use crate::{Bytes, BytesPerSec};

/// Decides how much DMA bandwidth flows need and whether tasks hold.
///
/// The search assumes that the answers are monotonic: more DMA bandwidth never makes a flow worse,
/// and more flows or larger budgets of other VMs never make a task better.
pub trait Judge {
    /// Returns the least DMA bandwidth with which the flows at these positions hold; none if no
    /// bandwidth is enough. If the exact least one is too expensive, returns a sufficient one.
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Result<Option<BytesPerSec>, Unsure>;

    /// Returns whether the flows at these positions hold at a DMA bandwidth.
    fn flows_hold(&self, flows: &[usize], chunk: Bytes, dma: BytesPerSec) -> Result<bool, Unsure>;

    /// Returns whether the tasks of a VM meet their deadlines with these budgets and this DMA
    /// bandwidth.
    fn task_holds(&self, vm: usize, budgets: &[u64], dma: BytesPerSec) -> Result<bool, Unsure>;
}

/// First position and number.
pub type PositionRange = (u32, u32);

/// The resources of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmResources {
    pub colors: PositionRange,
    pub banks: PositionRange,
    /// Accesses per period of the saturation table.
    pub budget: u64,
}

/// A setting in which every demand holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanSetting {
    /// One per VM. All best-effort VMs share the same colors and banks.
    pub shares: Vec<VmResources>,
    /// Chunk size; none without flows.
    pub chunk: Option<Bytes>,
    /// DMA bandwidth; 0 without flows.
    pub dma: BytesPerSec,
    /// Sum of the budgets of best effort per period.
    pub best_effort: u64,
}

/// What demands are short of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchShortage {
    /// Colors that all together take.
    Colors { asked: u64, have: u64 },
    /// Banks that all together take.
    Banks { asked: u64, have: u64 },
    /// A VM's given budget is less than its bandwidth takes.
    Given { vm: usize },
    /// The least budgets of all VMs together, in accesses per period of the saturation table, and
    /// the most below saturation without DMA.
    Budgets { asked: u64, have: u64 },
    /// DMA bandwidth for the flows.
    Dma {
        /// The chunk size with which the least is missing.
        chunk: Bytes,
        /// The least that is enough; none if nothing is.
        asked: Option<BytesPerSec>,
        /// The given bandwidth, or the most that the engine reaches below saturation with the least
        /// budgets.
        have: BytesPerSec,
        /// The sum of the least budgets.
        budgets: u64,
    },
    /// A VM's tasks are late with these budgets of all VMs, of this one the greatest that is left
    /// for it.
    Task { vm: usize, budgets: Vec<u64>, dma: BytesPerSec },
}

/// Why there is no setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Demands that cannot be met together, and what they are short of.
    Conflict {
        demands: Vec<Demand>,
        /// Whether there is a setting without any one of them. If not, the effort was spent before
        /// that was decided.
        minimal: bool,
        shortages: Vec<SearchShortage>,
    },
    /// The effort was spent before a setting was found or excluded.
    GaveUp,
}

/// Why there is no setting for some of the demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    Short(Vec<SearchShortage>),
    Unsure,
}

/// Returns the best setting of the first problem that has one, with the position of the problem.
/// The problems state the same demands in different ways. `explain` is called before the search for
/// a minimal conflict ends and the shortages are determined.
///
/// # Errors
///
/// The conflict, if none has a setting.
pub fn search(
    problems: &[Problem],
    judge: &dyn Judge,
    explain: impl FnOnce(),
) -> Result<(usize, PlanSetting), Refusal> {
    let mut all = Vec::new();
    let mut is_unsure = false;
    for (position, problem) in problems.iter().enumerate() {
        let demands = problem.demands();
        match attempt(problem, &demands, judge, true) {
            Ok(setting) => return Ok((position, setting)),
            Err(failed) => is_unsure |= failed == Failed::Unsure,
        }
        all.extend(demands);
    }
    if is_unsure {
        return Err(Refusal::GaveUp);
    }
    all.sort_unstable();
    all.dedup();
    let (demands, minimal) = minimal(problems, all, judge);
    explain();
    let last = problems.last().map(|problem| attempt(problem, &demands, judge, true));
    let shortages = match last {
        Some(Err(Failed::Short(shortages))) => shortages,
        _ => Vec::new(),
    };
    Err(Refusal::Conflict { demands, minimal, shortages })
}

/// Returns a minimal conflict among demands that conflict, and whether it is minimal.
///
/// Without a demand a setting stays one, so that one pass over the demands is enough: it drops each
/// demand without which the others still conflict. A demand is kept if that is not decided. Flows
/// of low rates are dropped first: the more each demand asks, the fewer are left.
fn minimal(problems: &[Problem], all: Vec<Demand>, judge: &dyn Judge) -> (Vec<Demand>, bool) {
    let mut order = all.clone();
    order.sort_by_key(|demand| match demand {
        Demand::Flow(flow) => problems[0].flows[*flow],
        _ => u64::MAX,
    });
    let (mut demands, mut minimal) = (all, true);
    for demand in order {
        let without: Vec<_> = demands.iter().copied().filter(|other| *other != demand).collect();
        let tried: Vec<_> =
            problems.iter().map(|problem| attempt(problem, &without, judge, false)).collect();
        if tried.iter().any(Result::is_ok) {
            continue;
        }
        if tried.contains(&Err(Failed::Unsure)) {
            minimal = false;
        } else {
            demands = without;
        }
    }
    (demands, minimal)
}

/// Returns a setting for some of the demands; the best one if `best`, else any.
pub fn attempt(
    problem: &Problem,
    kept: &[Demand],
    judge: &dyn Judge,
    best: bool,
) -> Result<PlanSetting, Failed> {
    let needs: Vec<Need> = (0..problem.vms.len()).map(|vm| Need::of(problem, vm, kept)).collect();
    let mut short: Vec<_> = (0..needs.len())
        .filter(|vm| needs[*vm].budget < needs[*vm].floor)
        .map(|vm| SearchShortage::Given { vm })
        .collect();
    let (colors, banks) = place(problem, &needs, &mut short);
    let least: Vec<u64> = needs.iter().map(|need| need.budget).collect();
    let harmless = problem.saturation.max_dma(sum(&least));
    if harmless.is_none() {
        let have = problem.saturation.max_budget(BytesPerSec(0)).unwrap_or(0);
        short.push(SearchShortage::Budgets { asked: sum(&least), have });
    }
    let (Some(harmless), true) = (harmless, short.is_empty()) else {
        return Err(Failed::Short(short));
    };
    let flows: Vec<usize> = kept
        .iter()
        .filter_map(|demand| if let Demand::Flow(flow) = demand { Some(*flow) } else { None })
        .collect();
    let has_tasks = kept.iter().any(|demand| matches!(demand, Demand::Task(_)));
    // Whether there is any setting without tasks is decided at the largest bandwidths.
    let is_least = best || has_tasks;
    let movers = Movers::new(problem, (&flows, is_least), judge, (harmless, sum(&least)));
    let mut found: Option<PlanSetting> = None;
    let (mut late, mut is_unsure) = (None, movers.is_unsure);
    for (chunk, dma) in movers.tried {
        if found.is_some() && (flows.is_empty() || !best) {
            break;
        }
        let total = problem.saturation.max_budget(dma).unwrap_or(0);
        let holds = |vm: usize, budgets: &[u64]| judge.task_holds(vm, budgets, dma);
        let budgets = match budgets(problem, &least, kept, (total, best), &holds) {
            Ok(Ok(budgets)) => budgets,
            Ok(Err(Late { vm, budgets })) => {
                // With flows the first one has the least bandwidth, else the last one.
                let this = SearchShortage::Task { vm, budgets, dma };
                late = if flows.is_empty() { Some(this) } else { late.or(Some(this)) };
                continue;
            }
            Err(Unsure) => {
                is_unsure = true;
                continue;
            }
        };
        let of_best_effort = budgets.iter().zip(&problem.vms).filter(|(_, vm)| vm.best_effort);
        let best_effort = of_best_effort.fold(0, |sum: u64, (one, _)| sum.saturating_add(*one));
        // The most for best effort is preferred, then the least for the DMA engine.
        let is_better = found.as_ref().is_none_or(|b| (best_effort, b.dma) > (b.best_effort, dma));
        if is_better {
            let places = colors.iter().zip(&banks).zip(budgets);
            let shares = places
                .map(|((&colors, &banks), budget)| VmResources { colors, banks, budget })
                .collect();
            found = Some(PlanSetting { shares, chunk, dma, best_effort });
        }
    }
    let short = || late.or(movers.shortage).into_iter().collect();
    found.ok_or_else(|| if is_unsure { Failed::Unsure } else { Failed::Short(short()) })
}

/// The chunk sizes and DMA bandwidths to try.
struct Movers {
    /// Each chunk size at the least bandwidth of the flows, or at the given one.
    tried: Vec<(Option<Bytes>, BytesPerSec)>,
    /// Why a chunk size is not among them; of several, the one to which the least is missing.
    shortage: Option<SearchShortage>,
    is_unsure: bool,
}

impl Movers {
    /// Returns what to try next to the least budgets of `budgets` in total, which leave a bandwidth
    /// of `harmless` below saturation. Unless `is_least`, a sufficient bandwidth is as good as the
    /// least one.
    fn new(
        problem: &Problem,
        (flows, is_least): (&[usize], bool),
        judge: &dyn Judge,
        (harmless, budgets): (BytesPerSec, u64),
    ) -> Self {
        let mut movers = Self { tried: Vec::new(), shortage: None, is_unsure: false };
        if flows.is_empty() && !problem.best_effort_flows {
            movers.tried.push((None, BytesPerSec(0)));
            return movers;
        }
        if flows.is_empty() {
            let all = problem.dma_of_best_effort().into_iter();
            movers.tried.extend(all.filter(|dma| *dma <= harmless).map(|dma| (None, dma)));
            let chunk = problem.chunks.first().map_or(Bytes(0), |chunk| chunk.0);
            let asked = problem.dma;
            movers.shortage = Some(SearchShortage::Dma { chunk, asked, have: harmless, budgets });
            return movers;
        }
        let mut nearest = u64::MAX;
        for &(chunk, reach) in &problem.chunks {
            let most = reach.min(harmless);
            let have = problem.dma.unwrap_or(most);
            let least = if is_least {
                judge.least_dma(flows, chunk)
            } else {
                judge.flows_hold(flows, chunk, have).map(|holds| holds.then_some(have))
            };
            let Ok(least) = least else {
                movers.is_unsure = true;
                continue;
            };
            match least {
                Some(least) if least <= have && have <= most => {
                    movers.tried.push((Some(chunk), problem.dma.unwrap_or(least)));
                }
                _ => {
                    let have = have.min(most);
                    // A given bandwidth above saturation is the demanded one.
                    let asked = least.map(|least| least.max(problem.dma.unwrap_or(least)));
                    let missing = asked.map_or(u64::MAX, |asked| asked.0.saturating_sub(have.0));
                    if movers.shortage.is_none() || missing < nearest {
                        nearest = missing;
                        movers.shortage = Some(SearchShortage::Dma { chunk, asked, have, budgets });
                    }
                }
            }
        }
        movers
    }
}

/// The needs of a VM under some of the demands.
struct Need {
    colors: u64,
    banks: u64,
    budget: u64,
    /// The least value of a given budget.
    floor: u64,
}

impl Need {
    fn of(problem: &Problem, i: usize, kept: &[Demand]) -> Self {
        let vm = &problem.vms[i];
        // A VM cannot run without a color and a bank.
        let pieces = |demand, bytes: Bytes, piece: Bytes| {
            if kept.contains(&demand) { bytes.0.div_ceil(piece.0.max(1)).max(1) } else { 1 }
        };
        let mut colors = pieces(Demand::WorkingSet(i), vm.working_set, problem.color_bytes);
        let mut banks = pieces(Demand::Memory(i), vm.memory, problem.bank_bytes);
        if problem.banks_are_colors {
            colors = colors.max(banks);
            banks = colors;
        }
        let mut floor = 0;
        if kept.contains(&Demand::Bandwidth(i)) {
            let bytes = u128::from(vm.bandwidth.0) * u128::from(problem.saturation.period().0);
            let accesses = bytes.div_ceil(u128::from(problem.line.0.max(1)) * 1_000_000_000);
            floor = u64::try_from(accesses).unwrap_or(u64::MAX);
            if vm.given.is_none() {
                floor = vm.shape.regulation.enough(floor);
            }
        }
        let budget = vm.given.unwrap_or_else(|| vm.shape.up(problem.min_accesses.max(floor)));
        Self { colors, banks, budget, floor }
    }
}

/// Returns the ranges of colors and banks: a disjoint range for each VM, and the rest for all
/// best-effort VMs together. Adds what is missing to `short`.
fn place(
    problem: &Problem,
    needs: &[Need],
    short: &mut Vec<SearchShortage>,
) -> (Vec<PositionRange>, Vec<PositionRange>) {
    let rest = || needs.iter().zip(&problem.vms).filter(|(_, vm)| vm.best_effort);
    // The best-effort VMs' memories are disjoint in the banks that these VMs share; a demand that
    // was dropped counts as one bank.
    let memory = rest().fold(0_u64, |sum, (_, vm)| sum.saturating_add(vm.memory.0));
    let each = rest().fold(0_u64, |sum, (need, _)| sum.saturating_add(need.banks));
    let together = memory.div_ceil(problem.bank_bytes.0.max(1)).min(each);
    let ranges = |most: u32, of: fn(&Need) -> u64, together: u64| {
        let shared = rest().map(|(need, _)| of(need)).max().unwrap_or(0).max(together);
        let mut asked = shared;
        let mut next = 0_u32;
        let mut ranges = Vec::new();
        for (need, vm) in needs.iter().zip(&problem.vms) {
            if vm.best_effort {
                ranges.push((0, 0));
                continue;
            }
            asked = asked.saturating_add(of(need));
            let count = u32::try_from(of(need)).unwrap_or(u32::MAX);
            ranges.push((next, count));
            next = next.saturating_add(count);
        }
        let left = (next, most.saturating_sub(next));
        for (range, _) in ranges.iter_mut().zip(&problem.vms).filter(|(_, vm)| vm.best_effort) {
            *range = left;
        }
        (ranges, asked)
    };
    let (colors, asked) = ranges(problem.colors, |need| need.colors, 0);
    let have = u64::from(problem.colors);
    if asked > have {
        short.push(SearchShortage::Colors { asked, have });
    }
    let lacks_colors = asked > have;
    let (banks, asked) = ranges(problem.banks, |need| need.banks, together);
    let have = u64::from(problem.banks);
    // If banks are colors, a shortage of colors covers the shortage of banks.
    if asked > have && !lacks_colors {
        short.push(SearchShortage::Banks { asked, have });
    }
    (colors, banks)
}
