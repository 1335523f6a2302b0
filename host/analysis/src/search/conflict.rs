//! Why there is no plan: a minimal set of demands that conflict, and what they are short of.
//!
//! Without a demand a plan stays a plan, so that one pass over the demands finds a minimal set: it
//! drops each demand without which the others still conflict.

use super::budgets::{Raised, raise, sum};
use super::judge::{Judge, Moved, Unsure};
use super::needs::{Need, flows_among, need, place};
use super::problem::{Demand, System};
use crate::units::{Bytes, BytesPerSec};

/// Demands that cannot be met together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The demands.
    pub demands: Vec<Demand>,
    /// Whether the demands have a plan without any one of them. If not, the effort was spent before
    /// that was decided.
    pub minimal: bool,
}

/// What demands are short of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Colors that all together take.
    Colors {
        /// Taken.
        asked: u64,
        /// There are so many.
        have: u64,
    },
    /// Banks that all together take.
    Banks {
        /// Taken.
        asked: u64,
        /// There are so many.
        have: u64,
    },
    /// A VM's given budget is less than its bandwidth takes, in accesses per period of the
    /// saturation table.
    Given {
        /// The VM.
        vm: usize,
        /// The budget for its bandwidth.
        asked: u64,
        /// Its budget.
        have: u64,
    },
    /// The least budgets of all VMs together, in accesses per period of the saturation table.
    Budgets {
        /// Their sum.
        asked: u64,
        /// The most that is below saturation without DMA.
        have: u64,
    },
    /// DMA bandwidth for the flows.
    Dma {
        /// The chunk size with which the least is missing.
        chunk: Bytes,
        /// The least that is enough; `None` if nothing is.
        asked: Option<BytesPerSec>,
        /// The given bandwidth, or the most that the engine reaches below saturation with the least
        /// budgets.
        have: BytesPerSec,
        /// The sum of the least budgets.
        budgets: u64,
    },
    /// A VM's tasks are late.
    Task {
        /// The VM.
        vm: usize,
        /// The budgets of all VMs: of this one the greatest that is left for it.
        budgets: Vec<u64>,
        /// The load of the DMA engine, at the least DMA bandwidth of the flows.
        moved: Moved,
    },
}

/// Whether there is a plan for these demands in one of the systems.
pub(super) fn feasible(
    systems: &[&System],
    kept: &[Demand],
    judge: &dyn Judge,
) -> Result<bool, Unsure> {
    let mut unsure = false;
    for system in systems {
        match is_feasible(system, kept, judge) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(Unsure) => unsure = true,
        }
    }
    if unsure { Err(Unsure) } else { Ok(false) }
}

/// Returns whether the search would find a plan, without the search for the best one. If no task
/// depends on the DMA bandwidth, it is enough that the flows hold at the largest permitted one: the
/// least one is not needed.
fn is_feasible(system: &System, kept: &[Demand], judge: &dyn Judge) -> Result<bool, Unsure> {
    let needs: Vec<Need> = (0..system.vms.len()).map(|i| need(system, i, kept)).collect();
    if needs.iter().any(|need| need.budget < need.floor) || place(system, &needs).is_none() {
        return Ok(false);
    }
    let budgets: Vec<u64> = needs.iter().map(|need| need.budget).collect();
    let Some(harmless) = system.platform.saturation.max_dma(sum(&budgets)) else {
        return Ok(false);
    };
    let flows = flows_among(kept);
    let hold = |chunk: Option<Bytes>, dma: BytesPerSec| -> Result<bool, Unsure> {
        let moved = Moved { flows: flows.clone(), chunk, dma };
        let total = system.platform.saturation.max_budget(dma).unwrap_or(0);
        let holds = |vm: usize, budgets: &[u64]| judge.task_holds(vm, budgets, &moved);
        let raised = raise(system, budgets.clone(), kept, total, &holds)?;
        Ok(matches!(raised, Raised::Hold(_)))
    };
    if flows.is_empty() && system.best_effort_flows {
        let mut unsure = false;
        for dma in system.dma_of_best_effort().into_iter().filter(|dma| *dma <= harmless) {
            match hold(None, dma) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(Unsure) => unsure = true,
            }
        }
        return if unsure { Err(Unsure) } else { Ok(false) };
    }
    if flows.is_empty() {
        return hold(None, BytesPerSec(0));
    }
    let careless = !kept.iter().any(|demand| matches!(demand, Demand::Task(_)));
    let mut unsure = false;
    for &(chunk, reach) in &system.platform.chunks {
        let most = reach.min(harmless);
        let top = system.dma.unwrap_or(most);
        if top > most || top.0 == 0 {
            continue;
        }
        let answer = judge.flows_hold(&flows, chunk, top).and_then(|enough| {
            if !enough || careless || hold(Some(chunk), top)? {
                return Ok(enough);
            }
            // The tasks are late at the most: perhaps not at the least.
            match (system.dma, judge.least_dma(&flows, chunk)?) {
                (None, Some(least)) => hold(Some(chunk), least),
                _ => Ok(false),
            }
        });
        match answer {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(Unsure) => unsure = true,
        }
    }
    if unsure { Err(Unsure) } else { Ok(false) }
}

/// Returns a minimal conflict among demands that conflict. A demand is kept if it is not decided
/// whether the others conflict without it.
pub(super) fn minimal(systems: &[&System], all: &[Demand], judge: &dyn Judge) -> Conflict {
    // Demands that ask least are dropped first: the more each one asks, the fewer are left.
    let mut order = all.to_vec();
    order.sort_by_cached_key(|demand| weight(systems, *demand));
    let (mut demands, mut minimal) = (all.to_vec(), true);
    for demand in order {
        let without: Vec<Demand> =
            demands.iter().copied().filter(|other| *other != demand).collect();
        match feasible(systems, &without, judge) {
            Ok(true) => {}
            Ok(false) => demands = without,
            Err(Unsure) => minimal = false,
        }
    }
    Conflict { demands, minimal }
}

/// How much a demand asks, for the order in which demands are dropped; flows by their rate in 2^-20
/// B/ns.
fn weight(systems: &[&System], demand: Demand) -> u64 {
    let flow = |i: usize| systems.first().and_then(|system| system.flows.get(i));
    match demand {
        Demand::Flow(i) => flow(i).map_or(0, |flow| {
            let rate = (u128::from(flow.size.0) << 20) / u128::from(flow.period.0.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        }),
        _ => u64::MAX,
    }
}

/// What demands that conflict are short of, by the rules of one system; of flows, with the chunk
/// with which the least is missing.
#[must_use]
pub fn shortages(system: &System, demands: &[Demand], judge: &dyn Judge) -> Vec<Shortage> {
    let platform = &system.platform;
    let needs: Vec<Need> = (0..system.vms.len()).map(|i| need(system, i, demands)).collect();
    let mut short = Vec::new();
    for (vm, need) in needs.iter().enumerate().filter(|(_, need)| need.budget < need.floor) {
        short.push(Shortage::Given { vm, asked: need.floor, have: need.budget });
    }
    let (asked, have) = (taken(system, &needs, |need| need.colors, 0), u64::from(platform.colors));
    if asked > have {
        short.push(Shortage::Colors { asked, have });
    }
    // The memories of best effort share banks; a demand that was dropped counts as one bank.
    let rest = || needs.iter().zip(&system.vms).filter(|(_, vm)| vm.best_effort);
    let memory = rest().fold(0u64, |sum, (_, vm)| sum.saturating_add(vm.memory.0));
    let each = rest().fold(0u64, |sum, (need, _)| sum.saturating_add(need.banks));
    let whole = memory.div_ceil(platform.bank_bytes.0.max(1)).min(each);
    let (asked, have) =
        (taken(system, &needs, |need| need.banks, whole), u64::from(platform.banks));
    // If banks are colors, a shortage of colors covers the shortage of banks.
    if asked > have && !short.iter().any(|short| matches!(short, Shortage::Colors { .. })) {
        short.push(Shortage::Banks { asked, have });
    }
    let budgets: Vec<u64> = needs.iter().map(|need| need.budget).collect();
    let total = sum(&budgets);
    let most = platform.saturation.max_budget(BytesPerSec(0)).unwrap_or(0);
    let Some(harmless) = platform.saturation.max_dma(total) else {
        short.push(Shortage::Budgets { asked: total, have: most });
        return short;
    };
    let flows = flows_among(demands);
    let mut moved = Moved { flows: flows.clone(), ..Moved::default() };
    if flows.is_empty() && system.best_effort_flows {
        let given = system.dma.filter(|given| *given > harmless);
        if let (Some(given), Some(&(chunk, _))) = (given, platform.chunks.first()) {
            short.push(Shortage::Dma { chunk, asked: Some(given), have: harmless, budgets: total });
            return short;
        }
        moved.dma = system.dma_of_best_effort().pop().unwrap_or_default();
    }
    if !flows.is_empty() {
        let mut nearest: Option<(u64, Shortage)> = None;
        let mut least_enough: Option<(BytesPerSec, Bytes)> = None;
        for &(chunk, reach) in &platform.chunks {
            let Ok(asked) = judge.least_dma(&flows, chunk) else {
                continue;
            };
            let most = reach.min(harmless);
            let have = system.dma.unwrap_or(most);
            match asked {
                Some(asked) if asked <= have && have <= most => {
                    let dma = system.dma.unwrap_or(asked);
                    let this = (dma, chunk);
                    least_enough = Some(least_enough.map_or(this, |least| least.min(this)));
                }
                _ => {
                    let have = have.min(most);
                    // A given bandwidth above saturation is the demanded one.
                    let asked = asked.map(|asked| asked.max(system.dma.unwrap_or(asked)));
                    let missing = asked.map_or(u64::MAX, |asked| asked.0.saturating_sub(have.0));
                    let this = Shortage::Dma { chunk, asked, have, budgets: total };
                    if nearest.as_ref().is_none_or(|nearest| missing < nearest.0) {
                        nearest = Some((missing, this));
                    }
                }
            }
        }
        match (least_enough, nearest) {
            (Some((least, chunk)), _) => (moved.dma, moved.chunk) = (least, Some(chunk)),
            (None, Some((_, shortage))) => {
                short.push(shortage);
                return short;
            }
            (None, None) => return short,
        }
    }
    let total = platform.saturation.max_budget(moved.dma).unwrap_or(0);
    let holds = |vm: usize, budgets: &[u64]| judge.task_holds(vm, budgets, &moved);
    let late = |demands: &[Demand]| match raise(system, budgets.clone(), demands, total, &holds) {
        Ok(Raised::Late { vm, budgets }) => {
            Some(Shortage::Task { vm, budgets, moved: moved.clone() })
        }
        Ok(Raised::Hold(_)) | Err(Unsure) => None,
    };
    let before = short.len();
    short.extend(demands.iter().filter_map(|demand| late(&[*demand])));
    // Each may hold by itself, and not all together.
    if short.len() == before {
        short.extend(late(demands));
    }
    short
}

/// What all VMs together take: each its own, best effort together the most of one of them, or
/// `whole`.
fn taken(system: &System, needs: &[Need], of: fn(&Need) -> u64, whole: u64) -> u64 {
    let (mut own, mut shared) = (0u64, whole);
    for (need, vm) in needs.iter().zip(&system.vms) {
        if vm.best_effort {
            shared = shared.max(of(need));
        } else {
            own = own.saturating_add(of(need));
        }
    }
    own.saturating_add(shared)
}
