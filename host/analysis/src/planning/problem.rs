//! The input of the search: what the board has, and what the VMs and flows of a file demand.

use super::board::{BoardClasses, is_best_effort};
use crate::{
    Bytes, BytesPerSec, Nanos,
    memory::{RegulatorModel, SaturationTable},
    system::{Limits, Mover, regulation},
};
use weir_model::{
    System, Vm,
    platform::DmaEngine,
    timing::{MemoryBudget, Saturation},
};

/// The resources of a board and the demands on them.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Cache colors that can be given to VMs.
    pub colors: u32,
    /// Capacity of the last-level cache in one color.
    pub color_bytes: Bytes,
    /// DRAM banks that can be given to VMs, independent of colors.
    pub banks: u32,
    /// DRAM in one bank.
    pub bank_bytes: Bytes,
    /// Whether each color fixes its part of DRAM, so that statements about banks apply to colors.
    pub banks_are_colors: bool,
    /// Cache line.
    pub line: Bytes,
    /// The least budget that the regulator can enforce (rt-virtio V-A: 50 in 30 us).
    pub min_accesses: u64,
    /// Pairs of budget and DMA bandwidth below saturation; its period is that of all budgets.
    pub saturation: SaturationTable,
    /// Chunk sizes to choose from, with the DMA bandwidth that each can reach.
    pub chunks: Vec<(Bytes, BytesPerSec)>,
    /// The VMs.
    pub vms: Vec<VmDemands>,
    /// The rates of the flows with deadlines, in 2^-20 B/ns.
    pub flows: Vec<u64>,
    /// A fixed DMA bandwidth.
    pub dma: Option<BytesPerSec>,
    /// Whether there are also best-effort flows, which demand nothing and use any DMA bandwidth.
    pub best_effort_flows: bool,
}

/// A VM's demands.
#[derive(Clone, Debug)]
pub struct VmDemands {
    /// A best-effort VM gets the remaining resources and demands only memory.
    pub best_effort: bool,
    /// Bytes that must fit into its colors; 0 requires one color.
    pub working_set: Bytes,
    /// Bytes that must fit into its banks.
    pub memory: Bytes,
    /// Refill bandwidth that it must be guaranteed.
    pub bandwidth: BytesPerSec,
    /// Whether it has tasks, which must meet their deadlines.
    pub has_tasks: bool,
    /// A fixed budget, in accesses per period of the saturation table.
    pub given: Option<u64>,
    /// Constraints on a budget that the search chooses.
    pub shape: BudgetShape,
}

/// Constraints on a chosen budget of a VM, in addition to its demands.
#[derive(Clone, Copy, Debug)]
pub struct BudgetShape {
    /// The least budget with which the part of each vCPU can be enforced.
    pub least: u64,
    /// The most accesses that the VM's cores can make in a period.
    pub most: u64,
    /// The budget is a multiple of this: the number of vCPUs if each has an equal budget.
    pub step: u64,
    /// Whether the VM's cores delay each other. If so, a larger budget can make its tasks later.
    pub siblings: bool,
    /// The regulation, which determines the guaranteed part of the budget.
    pub regulation: RegulatorModel,
}

impl Default for BudgetShape {
    fn default() -> Self {
        Self {
            least: 0,
            most: u64::MAX,
            step: 1,
            siblings: false,
            regulation: RegulatorModel::Static,
        }
    }
}

/// One demand, in the order in which a conflict lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Demand {
    /// The working set of a VM: colors.
    WorkingSet(usize),
    /// The memory of a VM: banks.
    Memory(usize),
    /// The bandwidth of a VM.
    Bandwidth(usize),
    /// The deadlines of a VM's tasks.
    Task(usize),
    /// A flow.
    Flow(usize),
}

impl Problem {
    /// Returns the problem of a file. `timed` are the positions of the flows with deadlines.
    pub fn new(
        system: &System,
        board: Option<&BoardClasses>,
        table: &SaturationTable,
        timed: &[usize],
    ) -> Self {
        let saturation = system.saturation.as_ref();
        let most = Mover::of(system).bandwidth(system);
        let most = most.map_or(BytesPerSec(u64::MAX), |(most, _)| BytesPerSec(most));
        let line = saturation.map(|known| known.line).or_else(|| system.line());
        let line = line.unwrap_or(Bytes(1));
        let least = saturation.map_or(0, |known| known.min_accesses);
        let left = board.map_or(0, |board| board.left(system.guests()));
        let vms = system.guests().iter().map(|vm| VmDemands {
            working_set: vm.working_set.filter(|_| board.is_some()).unwrap_or_default(),
            memory: Bytes(board.map_or(0, |board| board.memory(vm, left))),
            ..VmDemands::new(system, vm, table, (line, least))
        });
        let rate = |position: &usize| {
            let flow = &system.flows[*position];
            let period = flow.period.map_or(1, |period| period.0.max(1));
            u64::try_from((u128::from(flow.size.0) << 20) / u128::from(period)).unwrap_or(u64::MAX)
        };
        Self {
            // Without a board to divide, each VM gets one of many colors, and none is written.
            colors: board.map_or(u32::MAX, |board| board.colors),
            color_bytes: Bytes(board.map_or(u64::MAX, |board| board.color_bytes)),
            banks: board.map_or(u32::MAX, |board| board.banks.unwrap_or(board.colors)),
            bank_bytes: Bytes(board.map_or(u64::MAX, BoardClasses::piece)),
            banks_are_colors: board.is_some_and(|board| board.banks.is_none()),
            line,
            min_accesses: least,
            saturation: table.clone(),
            chunks: chunks(system, saturation, table, most),
            vms: vms.collect(),
            flows: timed.iter().map(rate).collect(),
            dma: system.dma.bandwidth.map(|rate| most.min(rate)),
            best_effort_flows: timed.len() < system.flows.len(),
        }
    }

    /// Returns all demands.
    pub fn demands(&self) -> Vec<Demand> {
        let mut all = Vec::new();
        for (i, vm) in self.vms.iter().enumerate() {
            let demands = [
                (!vm.best_effort, Demand::WorkingSet(i)),
                (!vm.best_effort && vm.bandwidth.0 > 0, Demand::Bandwidth(i)),
                (!vm.best_effort && vm.has_tasks, Demand::Task(i)),
                (vm.memory.0 > 0, Demand::Memory(i)),
            ];
            all.extend(demands.into_iter().filter(|(is_made, _)| *is_made).map(|(_, it)| it));
        }
        all.extend((0..self.flows.len()).map(Demand::Flow));
        all
    }

    /// Returns the DMA bandwidths to try if all flows are best effort, in order of preference.
    ///
    /// The first is the largest that does not lower the sum of budgets. Each next one is half of
    /// the previous one, for tasks that the previous one makes late.
    pub fn dma_of_best_effort(&self) -> Vec<BytesPerSec> {
        if let Some(given) = self.dma {
            return vec![given];
        }
        let table = &self.saturation;
        let free = table.max_budget(BytesPerSec(0)).and_then(|most| table.max_dma(most));
        let least = table.points().iter().map(|point| point.dma).filter(|dma| dma.0 > 0).min();
        let most = free.filter(|dma| dma.0 > 0).or(least).unwrap_or_default();
        (0..u64::BITS).map(|half| BytesPerSec(most.0 >> half)).take_while(|dma| dma.0 > 0).collect()
    }
}

/// Returns the chunk sizes to choose from, with the bandwidth that each reaches, at most `most`.
fn chunks(
    system: &System,
    saturation: Option<&Saturation>,
    table: &SaturationTable,
    most: BytesPerSec,
) -> Vec<(Bytes, BytesPerSec)> {
    let fastest = table.points().iter().map(|point| point.dma).max().unwrap_or_default();
    let mut chunks = saturation.map(|known| known.chunks.clone()).unwrap_or_default();
    chunks.retain(|(size, _)| system.dma.chunk.is_none_or(|given| given == *size));
    if system.engine().is_some() {
        chunks.retain(|(size, _)| *size <= DmaEngine::CHUNK);
    }
    if chunks.is_empty() {
        chunks.push((system.chunk(), fastest));
    }
    chunks.into_iter().map(|(size, reach)| (size, most.min(reach))).collect()
}

impl VmDemands {
    fn new(system: &System, vm: &Vm, table: &SaturationTable, (line, least): (Bytes, u64)) -> Self {
        let limits = Limits::of(system, vm);
        // Without a table no budget is chosen, and the bandwidth is not judged.
        let is_judged = system.saturation.is_some() || limits.is_some();
        let required = vm.memory_budget.as_ref().and_then(|asked| asked.required);
        let required = required.filter(|_| is_judged).map_or(0, |rate| rate.0);
        let (bandwidth, given) = match limits {
            None => (next_to_polls(system, vm, required, (table.period(), line)), None),
            Some(limits) => {
                let guaranteed = limits.guaranteed();
                let got = u128::from(guaranteed.accesses) * u128::from(line.0) * 1_000_000_000;
                if got >= u128::from(required) * u128::from(guaranteed.period.0) {
                    let counted = table.counted(limits.most, limits.regulation);
                    (0, Some(counted.unwrap_or(u64::MAX)))
                } else {
                    // It is too little in its own period, so it is in the table's.
                    (required, Some(0))
                }
            }
        };
        Self {
            best_effort: is_best_effort(vm),
            working_set: Bytes(0),
            memory: Bytes(0),
            bandwidth: BytesPerSec(bandwidth),
            has_tasks: !vm.tasks.is_empty(),
            given,
            shape: BudgetShape::of(system, vm, table.period(), least),
        }
    }
}

/// Returns the bandwidth of the budget that guarantees a VM `required` bytes/s next to EL2's polls;
/// the greatest if none does.
fn next_to_polls(system: &System, vm: &Vm, required: u64, (period, line): (Nanos, Bytes)) -> u64 {
    let Some(polling) = system.polling(vm, period).filter(|_| required > 0) else {
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

impl BudgetShape {
    /// Returns the constraints on a budget that is chosen for a VM, at least `least`.
    fn of(system: &System, vm: &Vm, period: Nanos, least: u64) -> Self {
        let vcpus = vm.cpus.len().max(1);
        // The cores make no more accesses, so a larger budget limits nothing.
        let each = system.polling(vm, period).map_or(u64::MAX, |polling| polling.most_in(period));
        let most = each.saturating_mul(vcpus as u64);
        let siblings = vcpus > 1 && system.delay().is_some_and(|(delay, _)| delay.0 > 0);
        // Without a table no budget is chosen.
        let asked = vm.memory_budget.as_ref().filter(|_| system.saturation.is_some());
        let Some(asked) = asked else {
            return Self { least: vcpus as u64, most, siblings, ..Self::default() };
        };
        let part = if asked.has_debt() { 1 } else { least.max(1) };
        let regulation = regulation(system.guests(), vm, None);
        let one = if asked.is_pool() { regulation.enough(1) } else { asked.least_whole(1, vcpus) };
        Self {
            least: asked.least_whole(part, vcpus).max(one),
            most,
            siblings,
            step: if asked.is_each() { vcpus as u64 } else { 1 },
            regulation,
        }
    }

    /// Returns the least budget of this shape that is at least `budget`.
    pub fn up(&self, budget: u64) -> u64 {
        budget.max(self.least).checked_next_multiple_of(self.step.max(1)).unwrap_or(u64::MAX)
    }
}

/// Returns the vCPUs that have what the file writes each; 1 if all have it together.
pub fn sharers(vm: &Vm) -> u64 {
    let each = vm.memory_budget.as_ref().is_some_and(MemoryBudget::is_each);
    if each { vm.cpus.len().max(1) as u64 } else { 1 }
}

/// The error of a question that the effort does not suffice to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsure;
