//! The input of the search: the platform, the VMs and flows with their demands.

use core::fmt;

use crate::flows::{Flow, Overheads, Setting};
use crate::memory::{CriticalTask, Regulation, SaturationTable};
use crate::units::{Bytes, BytesPerSec, Events, Nanos};

/// The resources of the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Cache colors that can be given to VMs.
    pub colors: u32,
    /// Capacity of the last-level cache in one color.
    pub color_bytes: Bytes,
    /// DRAM banks that can be given to VMs, independent of colors. Where a color fixes bank bits,
    /// the number of remaining choices.
    pub banks: u32,
    /// DRAM in one bank.
    pub bank_bytes: Bytes,
    /// Cache line.
    pub line: Bytes,
    /// Least budget per period that the regulator can enforce (rt-virtio V-A: 50 in 30 us).
    pub min_accesses: u64,
    /// Pairs of budget and DMA bandwidth below saturation; its period is that of all budgets.
    pub saturation: SaturationTable,
    /// Chunk sizes to choose from, with the DMA bandwidth that each can reach.
    pub chunks: Vec<(Bytes, BytesPerSec)>,
    /// Accesses that a core makes between the overflow and its stop.
    pub overshoot: Events,
    /// Each color fixes its part of DRAM, so that statements about banks apply to colors.
    pub banks_are_colors: bool,
}

/// A VM's demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// A best-effort VM gets the remaining resources and demands only memory.
    pub best_effort: bool,
    /// Bytes that must fit into its colors; 0 requires one color.
    pub working_set: Bytes,
    /// Bytes that must fit into its banks.
    pub memory: Bytes,
    /// Refill bandwidth that it must be guaranteed.
    pub bandwidth: BytesPerSec,
    /// A task and its deadline, under interference from all other VMs.
    pub critical: Option<(CriticalTask, Nanos)>,
    /// A fixed budget, in accesses per period of the saturation table.
    pub given: Option<u64>,
    /// Constraints on a budget that the search chooses.
    pub shape: Shape,
}

/// Constraints on a chosen budget of a VM, in addition to its demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The least budget with which the part of each vCPU can be enforced.
    pub least: u64,
    /// The most accesses that the VM's cores can make in a period.
    pub most: u64,
    /// The budget is a multiple of this: the number of vCPUs if each has an equal budget.
    pub step: u64,
    /// Whether the VM's cores delay each other. If so, a larger budget can make its tasks later.
    pub siblings: bool,
    /// The regulation, which determines the guaranteed part of the budget.
    pub regulation: Regulation,
}

impl Default for Shape {
    fn default() -> Self {
        Self { least: 0, most: u64::MAX, step: 1, siblings: false, regulation: Regulation::Static }
    }
}

impl Shape {
    /// Returns the least budget of this shape that is at least `budget`.
    pub(super) fn up(&self, budget: u64) -> u64 {
        budget.max(self.least).checked_next_multiple_of(self.step.max(1)).unwrap_or(u64::MAX)
    }
}

/// A system to plan.
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
    /// The setting of flows. The search chooses its chunk size.
    pub setting: Setting,
    /// A fixed DMA bandwidth.
    pub dma: Option<BytesPerSec>,
    /// Whether there are also best-effort flows, which demand nothing and use any DMA bandwidth.
    pub best_effort_flows: bool,
}

impl System {
    /// Returns the DMA bandwidths to try if all flows are best effort, in order of preference.
    ///
    /// The first is the largest that does not lower the sum of budgets. Each next one is half of
    /// the previous one, for tasks that the previous one makes late.
    pub(super) fn dma_of_best_effort(&self) -> Vec<BytesPerSec> {
        if let Some(given) = self.dma {
            return vec![given];
        }
        let table = &self.platform.saturation;
        let free = table.max_budget(BytesPerSec(0)).and_then(|most| table.max_dma(most));
        let least = table.points().iter().map(|point| point.dma).filter(|dma| dma.0 > 0).min();
        let most = free.filter(|dma| dma.0 > 0).or(least).unwrap_or_default();
        (0..u64::BITS).map(|half| BytesPerSec(most.0 >> half)).take_while(|dma| dma.0 > 0).collect()
    }
}

/// One demand, as named in a [conflict](super::Conflict).
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

/// Returns all demands of a system.
pub(super) fn demands(system: &System) -> Vec<Demand> {
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
