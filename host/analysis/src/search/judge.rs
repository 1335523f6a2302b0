//! The judge of flows and tasks that the search asks, and the standard one.

use super::problem::System;
use crate::flows::{Analyzer, Effort, Flow, MinBandwidth, Setting, Verdict, transform};
use crate::memory::{Bound, Budget, Interferer, Regulation, execution_bound};
use crate::units::{Bytes, BytesPerSec};

/// The load of the DMA engine while a task runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The positions of the flows that it moves, in addition to best-effort flows.
    pub flows: Vec<usize>,
    /// The chunk size, if there are flows.
    pub chunk: Option<Bytes>,
    /// The DMA bandwidth.
    pub dma: BytesPerSec,
}

/// The error of a question that the effort does not suffice to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsure;

/// Decides how much DMA bandwidth flows need and whether tasks hold.
///
/// The search assumes that the answers are monotonic: more DMA bandwidth never makes a flow worse,
/// and more flows or larger budgets of other VMs never make a task better.
pub trait Judge {
    /// Returns the least DMA bandwidth with which the flows at these positions hold; `None` if no
    /// bandwidth is enough. If the exact least one is too expensive, returns a sufficient one.
    ///
    /// # Errors
    /// If the effort is spent before a bandwidth is proven.
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Result<Option<BytesPerSec>, Unsure>;

    /// Returns whether the flows hold at a DMA bandwidth.
    ///
    /// # Errors
    /// If the effort is spent first.
    fn flows_hold(&self, flows: &[usize], chunk: Bytes, dma: BytesPerSec) -> Result<bool, Unsure>;

    /// Returns whether the critical task of a VM meets its deadline with these budgets and this
    /// load of the DMA engine.
    ///
    /// # Errors
    /// If the effort is spent first.
    fn task_holds(&self, vm: usize, budgets: &[u64], moved: &Moved) -> Result<bool, Unsure>;
}

/// The judge for flows of the paper's data path and one critical task per VM.
pub(super) struct Standard<'a> {
    pub(super) system: &'a System,
    pub(super) effort: Effort,
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

/// Returns whether the critical task of VM `i`, if it has one, meets its deadline with these
/// budgets.
pub(super) fn task_holds(system: &System, budgets: &[u64], i: usize) -> bool {
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
