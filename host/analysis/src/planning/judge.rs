//! Answers the questions of the search by analyzing the file with what is being tried.

use super::{PlanOptions, problem::Unsure, search::Judge};
use crate::{
    Bytes, BytesPerSec, Nanos,
    flows::Effort,
    system::{self, GaveUp, TimeReport},
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};
use weir_model::System;
use weir_model::timing::MemoryBudget;

/// The effort of one question of the search.
pub const EFFORT: Effort = Effort(1 << 26);
/// The price of a question for each flow of the file, in the unit of [`Effort`]: the flow is
/// copied, transformed and sorted.
const ASKING: u64 = 1024;
/// The price of the least bandwidth: about that of excluding alignments once.
const LEAST: u64 = 1 << 17;
/// The price of the response time of a task.
const TASK: u64 = 1 << 13;

/// The effort of an explanation: a few questions.
const EXPLANATION: u64 = 1 << 29;

type Known = HashMap<(Vec<usize>, u64), Result<Option<u64>, Unsure>>;

/// Answers the search.
pub struct Asker<'a> {
    pub system: &'a System,
    /// The period of all budgets that are tried.
    period: Nanos,
    /// Positions in the file of the search's flows.
    timed: Vec<usize>,
    known: RefCell<Known>,
    left: Cell<u64>,
    asked: Cell<u64>,
    options: &'a PlanOptions<'a>,
}

impl<'a> Asker<'a> {
    pub fn new(
        system: &'a System,
        period: Nanos,
        timed: Vec<usize>,
        options: &'a PlanOptions<'a>,
    ) -> Self {
        Self {
            system,
            period,
            timed,
            known: RefCell::default(),
            left: Cell::new(options.max_steps),
            asked: Cell::new(0),
            options,
        }
    }

    /// Allows the effort of an explanation.
    pub fn allow_explanation(&self) {
        self.left.set(EXPLANATION);
    }

    /// Subtracts the price of a question. Returns the effort of its answer.
    fn pay(&self, price: u64) -> Result<Effort, Unsure> {
        let asked = self.asked.get() + 1;
        self.asked.set(asked);
        if let (Some(progress), true) = (self.options.progress, asked.is_multiple_of(64)) {
            progress(asked, self.left.get());
        }
        let left = self.left.get().saturating_sub(price);
        self.left.set(left);
        if left == 0 { Err(Unsure) } else { Ok(Effort(EFFORT.0.min(left))) }
    }

    fn spend(&self, steps: u64) {
        self.left.set(self.left.get().saturating_sub(steps));
    }

    /// Returns the file with some of its flows.
    fn with(&self, flows: &[usize], chunk: Bytes) -> System {
        let mut system = self.system.clone();
        system.dma.chunk = Some(chunk);
        let mut kept: Vec<usize> =
            flows.iter().filter_map(|flow| self.timed.get(*flow)).copied().collect();
        kept.sort_unstable();
        let mut position = 0..;
        system.flows.retain(|flow| {
            let here = position.next().unwrap_or(0);
            flow.best_effort || kept.binary_search(&here).is_ok()
        });
        system
    }

    /// Analyzes the tasks of a VM next to budgets and a DMA bandwidth, with causes of missing bounds
    /// if `explain`; none if they cannot be analyzed.
    pub fn tasks(
        &self,
        vm: usize,
        (budgets, dma): (&[u64], BytesPerSec),
        explain: bool,
    ) -> Option<TimeReport> {
        let mut tried = self.system.clone();
        // Without [saturation] no budget is written.
        let written = tried.saturation.is_some();
        for (vm, budget) in tried.vms.iter_mut().zip(budgets).filter(|_| written) {
            let asked = vm.memory_budget.as_ref();
            if asked.is_none_or(|asked| asked.budget.is_none()) {
                let chosen = (*budget, self.period);
                vm.memory_budget = Some(MemoryBudget::with_budget(asked, vm.cpus.len(), chosen));
            }
        }
        system::tasks(&tried, vm, Some(dma), explain).ok()
    }
}

impl Judge for Asker<'_> {
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Result<Option<BytesPerSec>, Unsure> {
        let key = (flows.to_vec(), chunk.0);
        if let Some(known) = self.known.borrow().get(&key) {
            return known.map(|least| least.map(BytesPerSec));
        }
        let effort = self.pay(LEAST + ASKING * self.system.flows.len() as u64)?;
        let (least, spent) = system::least(&self.with(flows, chunk), effort);
        self.spend(spent);
        let least = least.map_err(|GaveUp| Unsure).map(|least| least.map(|b| b.max(1)));
        self.known.borrow_mut().insert(key, least);
        least.map(|least| least.map(BytesPerSec))
    }

    fn flows_hold(&self, flows: &[usize], chunk: Bytes, dma: BytesPerSec) -> Result<bool, Unsure> {
        let effort = self.pay(ASKING * self.system.flows.len() as u64)?;
        let (holds, spent) = system::hold(&self.with(flows, chunk), dma, effort);
        self.spend(spent);
        holds.map_err(|GaveUp| Unsure)
    }

    fn task_holds(&self, vm: usize, budgets: &[u64], dma: BytesPerSec) -> Result<bool, Unsure> {
        let tasks = self.system.guests().get(vm).map_or(0, |vm| vm.tasks.len() as u64);
        self.pay(TASK * tasks.max(1))?;
        Ok(self.tasks(vm, (budgets, dma), false).is_some_and(|time| time.causes.is_empty()))
    }
}
