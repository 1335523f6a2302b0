//! The search for the best plan, by chunk size and DMA bandwidth.

use super::budgets::{budgets, of_best_effort, sum};
use super::conflict::{self, Conflict};
use super::judge::{Judge, Moved, Standard, Unsure};
use super::needs::{Need, flows_among, need, place};
use super::problem::{Demand, System, demands};
use crate::flows::Effort;
use crate::units::{Bytes, BytesPerSec};

/// The resources of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// First color and number of colors.
    pub colors: (u32, u32),
    /// First bank and number of banks.
    pub banks: (u32, u32),
    /// Accesses per period of the saturation table.
    pub budget: u64,
}

/// A setting in which every demand holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One per VM. All best-effort VMs share the same colors and banks.
    pub shares: Vec<Share>,
    /// Chunk size; `None` without flows.
    pub chunk: Option<Bytes>,
    /// DMA bandwidth; 0 without flows.
    pub dma: BytesPerSec,
    /// Sum of the budgets of best effort per period.
    pub best_effort: u64,
}

/// The reason why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The demands conflict.
    Conflict(Conflict),
    /// The effort was spent before a plan was found or excluded.
    GaveUp,
}

/// Returns the best plan.
///
/// # Errors
/// The conflict, if there is no plan.
pub fn plan(system: &System, effort: Effort) -> Result<Plan, Refusal> {
    plan_by(&[system], &Standard { system, effort }).map(|(_, plan)| plan)
}

/// Returns the best plan of the first system that has one, with the position of the system. The
/// systems state the same demands in different ways; `judge` decides about their flows and tasks.
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

/// Returns the best plan for some of the demands; `None` if there is none.
pub(super) fn search(
    system: &System,
    kept: &[Demand],
    judge: &dyn Judge,
) -> Result<Option<Plan>, Unsure> {
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
    // The tasks of a VM that copies the flows may be late only at the least bandwidth.
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
        let best_effort = of_best_effort(system, &budgets);
        // The most for best effort is preferred, then the least for the DMA engine.
        let better = best.as_ref().is_none_or(|b| (best_effort, b.dma) > (b.best_effort, dma));
        if better {
            let shares = (0..system.vms.len())
                .map(|i| Share { colors: colors[i], banks: banks[i], budget: budgets[i] })
                .collect();
            best = Some(Plan { shares, chunk, dma, best_effort });
        }
        // The bandwidths of best-effort flows are tried in order of preference.
        if flows.is_empty() {
            break;
        }
    }
    if best.is_none() && unsure { Err(Unsure) } else { Ok(best) }
}
