//! The search for a setting in which every demand holds and best effort is left the most memory bandwidth: colors,
//! banks, budgets, DMA bandwidth and chunk size.
//!
//! The search is exact because the parts meet in few numbers. Colors and banks are counted; budgets and DMA bandwidth
//! meet in the saturation table; a chunk size fixes the least DMA bandwidth of the flows; and both the saturation and
//! every critical task's bound only get worse as best effort gets more, so its largest budget is found by halving.
//! The answer is proven by [`check`], which shares no decision with the search.

use core::fmt;

use crate::flows::{Analyzer, Effort, Flow, MinBandwidth, Overheads, Setting, Verdict, transform};
use crate::memory::{
    Bound, Budget, CriticalTask, Interferer, Regulation, SaturationTable, execution_bound,
};
use crate::units::{Bytes, BytesPerSec, Nanos};

/// What the platform offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Cache colors that can be given to VMs.
    pub colors: u32,
    /// Capacity of the last-level cache in one color.
    pub color_bytes: Bytes,
    /// DRAM banks that can be given to VMs, independent of colors (where a color fixes bank bits, the number of
    /// choices that are left).
    pub banks: u32,
    /// DRAM in one bank.
    pub bank_bytes: Bytes,
    /// Cache line.
    pub line: Bytes,
    /// Least budget per period that the regulator enforces well (rt-virtio V-A: 50 in 30 us).
    pub least_budget: u64,
    /// Harmless pairs of budget and DMA bandwidth; its period is that of all budgets.
    pub saturation: SaturationTable,
    /// Chunk sizes to choose from, with the DMA bandwidth that each can reach.
    pub chunks: Vec<(Bytes, BytesPerSec)>,
    /// Accesses that still pass between overflow and stop.
    pub overshoot: u64,
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
}

/// Who says what flows need and whether tasks hold. Both only get worse with more flows, budgets or DMA bandwidth.
pub trait Judge {
    /// The least DMA bandwidth of the flows at these positions with a chunk size; `None` if none is enough.
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Option<BytesPerSec>;
    /// Whether the critical task of a VM is done in time beside these budgets and this DMA bandwidth.
    fn task_holds(&self, vm: usize, budgets: &[u64], dma: BytesPerSec) -> bool;
}

/// Flows of the paper's data path and one critical task a VM.
struct Standard<'a> {
    system: &'a System,
    effort: Effort,
}

impl Judge for Standard<'_> {
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Option<BytesPerSec> {
        let flows: Vec<Flow> =
            flows.iter().filter_map(|&i| self.system.flows.get(i).copied()).collect();
        least_dma(self.system, &flows, chunk, self.effort)
    }

    fn task_holds(&self, vm: usize, budgets: &[u64], _dma: BytesPerSec) -> bool {
        task_holds(self.system, budgets, vm)
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
pub struct Conflict {
    /// Demands that can't live together; without any one of them the others can.
    pub demands: Vec<Demand>,
    /// Whether no smaller set conflicts (else only no subset of this one).
    pub smallest: bool,
}

/// The best plan.
///
/// # Errors
/// The conflict, if there is no plan.
pub fn plan(system: &System, effort: Effort) -> Result<Plan, Conflict> {
    plan_by(system, &Standard { system, effort })
}

/// The best plan, where another judge says what flows and tasks need.
///
/// # Errors
/// The conflict, if there is no plan.
pub fn plan_by(system: &System, judge: &dyn Judge) -> Result<Plan, Conflict> {
    let all = demands(system);
    match search(system, &all, judge) {
        Some(plan) => Ok(plan),
        None => Err(conflict(system, &all, judge)),
    }
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
    let (mut budget, mut floor) = (platform.least_budget, 0);
    if keeps(Demand::Bandwidth(i)) {
        let bytes = u128::from(vm.bandwidth.0) * u128::from(platform.saturation.period().0);
        let accesses = bytes.div_ceil(u128::from(platform.line.0.max(1)) * 1_000_000_000);
        floor = u64::try_from(accesses).unwrap_or(u64::MAX);
        budget = budget.max(floor);
    }
    Need { colors, banks, budget: vm.given.unwrap_or(budget), floor }
}

fn search(system: &System, kept: &[Demand], judge: &dyn Judge) -> Option<Plan> {
    let platform = &system.platform;
    let needs: Vec<Need> = (0..system.vms.len()).map(|i| need(system, i, kept)).collect();
    if needs.iter().any(|need| need.budget < need.floor) {
        return None;
    }
    let (colors, banks) = place(system, &needs)?;
    let flows: Vec<usize> =
        kept.iter().filter_map(|d| if let Demand::Flow(i) = d { Some(*i) } else { None }).collect();

    let choices: Vec<(Option<Bytes>, BytesPerSec)> = if flows.is_empty() {
        vec![(None, BytesPerSec(0))]
    } else {
        platform
            .chunks
            .iter()
            .filter_map(|&(chunk, reach)| {
                let least = judge.least_dma(&flows, chunk)?;
                let dma = system.dma.unwrap_or(least);
                (least <= dma && dma <= reach).then_some((Some(chunk), dma))
            })
            .collect()
    };
    let mut best: Option<Plan> = None;
    for (chunk, dma) in choices {
        let Some(total) = platform.saturation.max_budget(dma) else {
            continue;
        };
        let holds = |vm: usize, budgets: &[u64]| judge.task_holds(vm, budgets, dma);
        let Some(budgets) = budgets(system, &needs, kept, total, &holds) else {
            continue;
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
    }
    best
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
    // The best-effort VMs' memories lie side by side in the banks that they share; a demand that was dropped counts
    // as one bank.
    let asked: u64 =
        needs.iter().zip(&system.vms).filter(|(_, vm)| vm.best_effort).map(|(n, _)| n.banks).sum();
    let shared = banks.iter().zip(&system.vms).find(|(_, vm)| vm.best_effort).map(|(b, _)| b.1);
    let whole = memory.div_ceil(u128::from(system.platform.bank_bytes.0.max(1)));
    match shared {
        Some(count) if u128::from(count) < whole.min(u128::from(asked)) => None,
        _ => Some((colors, banks)),
    }
}

/// The least DMA bandwidth of the flows with a chunk size; a proven one if the exact one is out of reach.
fn least_dma(system: &System, flows: &[Flow], chunk: Bytes, effort: Effort) -> Option<BytesPerSec> {
    let setting = Setting { chunk, ..system.setting };
    let tasks = transform(flows, &setting, &system.overheads).ok()?;
    let mut analyzer = Analyzer::new();
    analyzer.load(&tasks);
    match analyzer.min_bandwidth(effort) {
        MinBandwidth::Exactly(b) => Some(b),
        MinBandwidth::GaveUp { enough, .. } => enough,
        MinBandwidth::Never(_) => None,
    }
}

/// Budgets of all VMs: what each needs, and best effort an even part of the most that harms nobody.
fn budgets(
    system: &System,
    needs: &[Need],
    kept: &[Demand],
    total: u64,
    task_holds: &dyn Fn(usize, &[u64]) -> bool,
) -> Option<Vec<u64>> {
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
                need.budget.saturating_add(part)
            })
            .collect()
    };
    let holds = |extra: u64| {
        let budgets = with(extra);
        budgets.iter().fold(0u64, |s, b| s.saturating_add(*b)) <= total
            && kept
                .iter()
                .all(|d| if let Demand::Task(i) = d { task_holds(*i, &budgets) } else { true })
    };
    if !holds(0) {
        return None;
    }
    if sharers == 0 {
        return Some(with(0));
    }
    let (mut good, mut bad) = (0, total.saturating_add(1));
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Some(with(good))
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
        })
        .collect();
    matches!(execution_bound(task, &interferers), Bound::AtMost(t) if t <= *deadline)
}

fn total_of(system: &System, budgets: &[u64], best_effort: bool) -> u64 {
    budgets
        .iter()
        .zip(&system.vms)
        .filter(|(_, vm)| vm.best_effort == best_effort)
        .map(|(b, _)| *b)
        .sum()
}

/// The demands that a plan does not meet, and `None` for a rule of the platform that it breaks (overlap, saturation,
/// a budget or a chunk that is not to be had).
#[must_use]
pub fn check(system: &System, plan: &Plan, effort: Effort) -> Vec<Option<Demand>> {
    let platform = &system.platform;
    let mut faults = Vec::new();
    if plan.shares.len() != system.vms.len() {
        return vec![None];
    }
    let within = |(first, count): (u32, u32), most: u32| {
        first.checked_add(count).is_some_and(|end| end <= most)
    };
    let apart = |a: (u32, u32), b: (u32, u32)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
    for (i, (share, vm)) in plan.shares.iter().zip(&system.vms).enumerate() {
        if !within(share.colors, platform.colors)
            || !within(share.banks, platform.banks)
            || share.colors.1 == 0
        {
            faults.push(None);
            continue;
        }
        for (other, other_vm) in plan.shares.iter().zip(&system.vms).skip(i + 1) {
            let shared = vm.best_effort && other_vm.best_effort;
            let disjoint = apart(share.colors, other.colors) && apart(share.banks, other.banks);
            if !(shared || disjoint) {
                faults.push(None);
            }
        }
        if vm.given.map_or(share.budget < platform.least_budget, |given| share.budget != given) {
            faults.push(None);
        }
        let cache = u64::from(share.colors.1).saturating_mul(platform.color_bytes.0);
        if !vm.best_effort && cache < vm.working_set.0 {
            faults.push(Some(Demand::WorkingSet(i)));
        }
        let neighbors = plan.shares.iter().zip(&system.vms).filter(|(s, _)| s.banks == share.banks);
        let memory: u64 = neighbors.map(|(_, vm)| vm.memory.0).fold(0, u64::saturating_add);
        if u64::from(share.banks.1).saturating_mul(platform.bank_bytes.0) < memory {
            faults.push(Some(Demand::Memory(i)));
        }
        let budget = Budget { accesses: share.budget, period: platform.saturation.period() };
        let rate = u128::from(budget.accesses) * u128::from(platform.line.0) * 1_000_000_000;
        if !vm.best_effort && rate < u128::from(vm.bandwidth.0) * u128::from(budget.period.0) {
            faults.push(Some(Demand::Bandwidth(i)));
        }
        let budgets: Vec<u64> = plan.shares.iter().map(|s| s.budget).collect();
        if !vm.best_effort && !task_holds(system, &budgets, i) {
            faults.push(Some(Demand::Task(i)));
        }
    }
    let total = plan.shares.iter().fold(0u64, |sum, s| sum.saturating_add(s.budget));
    if !platform.saturation.holds(total, plan.dma) {
        faults.push(None);
    }
    let Some(chunk) = plan.chunk else {
        faults.extend((0..system.flows.len()).map(|i| Some(Demand::Flow(i))));
        return faults;
    };
    if !platform.chunks.iter().any(|&(size, reach)| size == chunk && plan.dma <= reach)
        || system.dma.is_some_and(|given| given != plan.dma)
    {
        faults.push(None);
    }
    let setting = Setting { chunk, ..system.setting };
    let holds = transform(&system.flows, &setting, &system.overheads).is_ok_and(|tasks| {
        let mut analyzer = Analyzer::new();
        analyzer.load(&tasks);
        analyzer.verdict(plan.dma, effort) == Ok(Verdict::Schedulable)
    });
    if !holds {
        faults.extend((0..system.flows.len()).map(|i| Some(Demand::Flow(i))));
    }
    faults
}

/// Subsets that are tried before an irreducible conflict has to do.
const SUBSETS: usize = 20_000;

/// The smallest conflict: dropping a demand never hurts, so the first size at which a subset has no plan is the
/// smallest.
fn conflict(system: &System, all: &[Demand], judge: &dyn Judge) -> Conflict {
    // An irreducible one first: drop whatever can be dropped.
    let mut kept = all.to_vec();
    let mut i = 0;
    while i < kept.len() {
        let mut without = kept.clone();
        without.remove(i);
        if search(system, &without, judge).is_none() {
            kept = without;
        } else {
            i += 1;
        }
    }
    let mut left = SUBSETS;
    for size in 0..kept.len() {
        let mut picked: Vec<usize> = (0..size).collect();
        loop {
            if left == 0 {
                return Conflict { demands: kept, smallest: false };
            }
            left -= 1;
            let subset: Vec<Demand> = picked.iter().map(|&i| all[i]).collect();
            if search(system, &subset, judge).is_none() {
                return Conflict { demands: subset, smallest: true };
            }
            // The next combination in order.
            let Some(at) = (0..size).rev().find(|&i| picked[i] < all.len() - size + i) else {
                break;
            };
            picked[at] += 1;
            for i in at + 1..size {
                picked[i] = picked[i - 1] + 1;
            }
        }
    }
    Conflict { demands: kept, smallest: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::Reading;
    use crate::memory::SaturationPoint;

    const EFFORT: Effort = Effort(1 << 20);

    fn small_system(r: &mut fastrand::Rng) -> System {
        let vms: Vec<Vm> = (0..r.usize(2..=3))
            .map(|i| Vm {
                best_effort: i > 0 && r.u8(0..3) == 0,
                working_set: Bytes(r.u64(0..100)),
                memory: Bytes(r.u64(1..90)),
                bandwidth: BytesPerSec(r.u64(0..4) * 2_000_000),
                critical: (r.u8(0..4) == 0).then(|| {
                    let task = CriticalTask {
                        alone: Nanos(r.u64(1000..50_000)),
                        accesses: r.u64(0..200),
                        delay: Nanos(r.u64(1..200)),
                        per_access: r.bool().then_some(1),
                    };
                    (task, Nanos(r.u64(30_000..200_000)))
                }),
                given: (r.u8(0..5) == 0).then(|| r.u64(1..6)),
            })
            .collect();
        let flows = (0..r.usize(0..3))
            .map(|_| {
                let from = r.u32(0..vms.len() as u32);
                let period = Nanos(r.u64(60_000..600_000));
                let to = (from + 1) % vms.len() as u32;
                Flow { size: Bytes(r.u64(1..9000)), period, deadline: period, from, to }
            })
            .collect();
        let points = (0..r.usize(1..5))
            .map(|_| SaturationPoint {
                total_budget: r.u64(4..13),
                dma: BytesPerSec(r.u64(2..14) * 60_000_000),
            })
            .collect();
        System {
            platform: Platform {
                colors: r.u32(3..6),
                color_bytes: Bytes(64),
                banks: r.u32(3..6),
                bank_bytes: Bytes(64),
                line: Bytes(64),
                least_budget: r.u64(0..3),
                saturation: SaturationTable::new(Nanos(30_000), points).unwrap(),
                chunks: vec![
                    (Bytes(1024), BytesPerSec(500_000_000)),
                    (Bytes(4096), BytesPerSec(700_000_000)),
                    (Bytes(8192), BytesPerSec(800_000_000)),
                ],
                overshoot: r.u64(0..2),
            },
            vms,
            flows,
            overheads: Overheads::RT_VIRTIO,
            setting: Setting { chunk: Bytes(1), queues: None, reading: Reading::Printed },
            dma: (r.u8(0..5) == 0).then(|| BytesPerSec(r.u64(1..6) * 60_000_000)),
        }
    }

    /// Every division of colors and banks, every budget, every chunk and every DMA bandwidth at which the table or a
    /// flow set changes: the most that best effort can get, by `check` alone.
    fn exhaustive(system: &System) -> Option<u64> {
        let n = system.vms.len();
        let p = &system.platform;
        let divisions = |most: u32| -> Vec<Ranges> {
            // Own ranges in order, best effort at the end and together.
            let mut all = vec![vec![]];
            for vm in &system.vms {
                all = all
                    .into_iter()
                    .flat_map(|counts: Vec<u32>| {
                        let range = if vm.best_effort { 0..=0 } else { 1..=most };
                        range.map(move |c| [counts.clone(), vec![c]].concat())
                    })
                    .filter(|counts| counts.iter().sum::<u32>() <= most)
                    .collect();
            }
            all.into_iter()
                .map(|counts| {
                    let used: u32 = counts.iter().sum();
                    let mut next = 0;
                    counts
                        .iter()
                        .zip(&system.vms)
                        .map(|(&c, vm)| {
                            let first = next;
                            next += c;
                            if vm.best_effort { (used, most - used) } else { (first, c) }
                        })
                        .collect()
                })
                .collect()
        };
        let top = p.saturation.points().iter().map(|x| x.total_budget).max().unwrap();
        let mut dmas: Vec<BytesPerSec> = p.saturation.points().iter().map(|x| x.dma).collect();
        dmas.push(BytesPerSec(0));
        dmas.extend(system.dma);
        let mut chunks: Vec<Option<Bytes>> = vec![None];
        if !system.flows.is_empty() {
            chunks = p.chunks.iter().map(|c| Some(c.0)).collect();
            dmas.extend(
                p.chunks.iter().filter_map(|c| least_dma(system, &system.flows, c.0, EFFORT)),
            );
        }
        // The parts of a plan are independent but for budgets and DMA bandwidth: find one division that has no fault
        // of its own, then run through the rest.
        let mut best = None;
        let divisions: Vec<(Ranges, Ranges)> = divisions(p.colors)
            .into_iter()
            .flat_map(|c| divisions(p.banks).into_iter().map(move |b| (c.clone(), b)))
            .collect();
        let generous = |shares: &(Ranges, Ranges)| {
            let plan = Plan {
                shares: (0..n)
                    .map(|i| Share { colors: shares.0[i], banks: shares.1[i], budget: 1 << 20 })
                    .collect(),
                chunk: None,
                dma: BytesPerSec(0),
                best_effort: 0,
            };
            let faults = check(system, &plan, EFFORT);
            // One fault is the saturation by these budgets, and one each a budget that is not the given one; flows and
            // tasks are judged below.
            let given = system.vms.iter().filter(|vm| vm.given.is_some()).count();
            faults.iter().filter(|f| f.is_none()).count() == 1 + given
                && !faults
                    .iter()
                    .any(|f| matches!(f, Some(Demand::WorkingSet(_) | Demand::Memory(_))))
        };
        let (colors, banks) = divisions.into_iter().find(generous)?;
        let mut budgets = vec![0u64; n];
        'budgets: loop {
            for &chunk in &chunks {
                for &dma in &dmas {
                    let plan = Plan {
                        shares: (0..n)
                            .map(|i| Share {
                                colors: colors[i],
                                banks: banks[i],
                                budget: budgets[i],
                            })
                            .collect(),
                        chunk,
                        dma,
                        best_effort: total_of(system, &budgets, true),
                    };
                    if best.is_none_or(|b| plan.best_effort > b)
                        && check(system, &plan, EFFORT).is_empty()
                    {
                        best = Some(plan.best_effort);
                    }
                }
            }
            for b in &mut budgets {
                *b += 1;
                if *b <= top {
                    continue 'budgets;
                }
                *b = 0;
            }
            return best;
        }
    }

    #[test]
    fn as_good_as_trying_everything() {
        let systems = if cfg!(debug_assertions) { 40 } else { 1000 };
        let mut r = fastrand::Rng::with_seed(5);
        let (mut planned, mut refused) = (0, 0);
        for _ in 0..systems {
            let system = small_system(&mut r);
            let expected = exhaustive(&system);
            match plan(&system, EFFORT) {
                Ok(plan) => {
                    planned += 1;
                    assert_eq!(check(&system, &plan, EFFORT), vec![], "{system:?} {plan:?}");
                    assert_eq!(Some(plan.best_effort), expected, "{system:?} {plan:?}");
                }
                Err(conflict) => {
                    refused += 1;
                    assert_eq!(expected, None, "{system:?} {conflict:?}");
                    assert_conflict(&system, &conflict);
                }
            }
        }
        assert!(planned * 5 > systems && refused * 5 > systems, "{planned} {refused}");
    }

    /// The demands conflict, each of them is needed for it, and no smaller set does.
    fn assert_conflict(system: &System, conflict: &Conflict) {
        let judge = Standard { system, effort: EFFORT };
        assert!(search(system, &conflict.demands, &judge).is_none());
        assert!(conflict.smallest);
        let all = demands(system);
        for mask in 0u32..1 << all.len() {
            if (mask.count_ones() as usize) < conflict.demands.len() {
                let subset: Vec<Demand> =
                    (0..all.len()).filter(|i| mask >> i & 1 == 1).map(|i| all[i]).collect();
                assert!(search(system, &subset, &judge).is_some(), "{subset:?} {conflict:?}");
            }
        }
    }
}
