//! The search's questions, answered by the analysis of the file with what is being tried.

use crate::{
    analyze::{
        flows::{self, CHUNK},
        time,
    },
    progress::Spinner,
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};
use weir_analysis::{
    Bytes, BytesPerSec,
    flows::Effort,
    plan::{Judge, Moved, Unsure},
};
use weir_model::Timing;
use weir_model::timing::Bandwidth;

/// How much may be spent on one question of the search.
pub const EFFORT: Effort = Effort(1 << 26);
/// What asking takes in itself for each flow of the file, in the unit of [`Effort`]: it is copied, transformed and sorted.
const ASKING: u64 = 1024;
/// What it takes at least to find the least bandwidth: about as much as to exclude alignments once.
const LEAST: u64 = 1 << 17;
/// What the response times of a VM's tasks take, each.
const TASK: u64 = 1 << 13;

/// What may be spent on saying why there is no plan: a few questions.
const EXPLANATION: u64 = 1 << 29;

type Known = HashMap<(Vec<usize>, u64), Result<Option<u64>, Unsure>>;

/// Answers the search.
pub struct Asker<'a> {
    pub timing: &'a Timing,
    /// The period of all budgets that are tried.
    period: weir_units::Nanos,
    /// Positions in the file of the search's flows.
    timed: Vec<usize>,
    known: RefCell<Known>,
    left: Cell<u64>,
    asked: Cell<u64>,
    spinner: Spinner,
}

impl<'a> Asker<'a> {
    pub fn new(
        timing: &'a Timing,
        period: weir_units::Nanos,
        timed: Vec<usize>,
        effort: u64,
    ) -> Self {
        Self {
            timing,
            period,
            timed,
            known: RefCell::default(),
            left: Cell::new(effort),
            asked: Cell::new(0),
            spinner: Spinner::new("planning".to_owned()),
        }
    }

    /// Whether the whole effort is spent.
    pub fn spent(&self) -> bool {
        self.left.get() == 0
    }

    /// Allows what it takes to explain an answer, whatever was spent on finding it.
    pub fn allow_explanation(&self) {
        self.left.set(EXPLANATION);
    }

    /// Takes the price of a question; gives what may be spent on its answer.
    fn pay(&self, price: u64) -> Result<Effort, Unsure> {
        let asked = self.asked.get() + 1;
        self.asked.set(asked);
        if asked.is_multiple_of(64) {
            let left = self.left.get() >> 20;
            self.spinner.say(format!("planning: {asked} questions, {left} million steps left"));
        }
        let left = self.left.get().saturating_sub(price);
        self.left.set(left);
        if left == 0 { Err(Unsure) } else { Ok(Effort(EFFORT.0.min(left))) }
    }

    fn spend(&self, steps: u64) {
        self.left.set(self.left.get().saturating_sub(steps));
    }

    /// The file with some of its flows.
    fn with(&self, flows: &[usize], chunk: Bytes) -> Timing {
        let mut timing = self.timing.clone();
        timing.dma.chunk = Some(chunk);
        let mut kept: Vec<usize> =
            flows.iter().filter_map(|flow| self.timed.get(*flow)).copied().collect();
        kept.sort_unstable();
        let mut position = 0..;
        timing.flows.retain(|flow| {
            let here = position.next().unwrap_or(0);
            flow.best_effort || kept.binary_search(&here).is_ok()
        });
        timing
    }

    /// The tasks of a VM beside budgets and what is moved, with the causes of missing bounds if `explain`; none where they can't be analyzed.
    pub fn tasks(
        &self,
        vm: usize,
        (budgets, moved): (&[u64], &Moved),
        explain: bool,
    ) -> Option<time::Time> {
        // Which flows there are matters to the tasks of who copies them.
        let mut tried = if self.timing.dma.path.is_of_vms() {
            let chunk = self.timing.dma.chunk;
            self.with(&moved.flows, moved.chunk.or(chunk).unwrap_or(Bytes(CHUNK)))
        } else {
            self.timing.clone()
        };
        // Without [saturation] no budget is written.
        let written = tried.saturation.is_some();
        for (vm, budget) in tried.vms.iter_mut().zip(budgets).filter(|_| written) {
            let asked = vm.bandwidth.as_ref();
            if asked.is_none_or(|asked| asked.budget.is_none()) {
                let chosen = (*budget, self.period);
                vm.bandwidth = Some(Bandwidth::with_budget(asked, vm.cpus.len(), chosen));
            }
        }
        time::tasks(&tried, vm, Some(moved.dma), explain).ok()
    }
}

impl Judge for Asker<'_> {
    fn least_dma(&self, flows: &[usize], chunk: Bytes) -> Result<Option<BytesPerSec>, Unsure> {
        let key = (flows.to_vec(), chunk.0);
        if let Some(known) = self.known.borrow().get(&key) {
            return known.map(|least| least.map(BytesPerSec));
        }
        let effort = self.pay(LEAST + ASKING * self.timing.flows.len() as u64)?;
        let (least, spent) = flows::least(&self.with(flows, chunk), effort);
        self.spend(spent);
        let least = least.map_err(|flows::GaveUp| Unsure).map(|least| least.map(|b| b.max(1)));
        self.known.borrow_mut().insert(key, least);
        least.map(|least| least.map(BytesPerSec))
    }

    fn flows_hold(&self, flows: &[usize], chunk: Bytes, dma: BytesPerSec) -> Result<bool, Unsure> {
        let effort = self.pay(ASKING * self.timing.flows.len() as u64)?;
        let (holds, spent) = flows::hold(&self.with(flows, chunk), dma.0, effort);
        self.spend(spent);
        holds.map_err(|flows::GaveUp| Unsure)
    }

    fn task_holds(&self, vm: usize, budgets: &[u64], moved: &Moved) -> Result<bool, Unsure> {
        let tasks = self.timing.vms.get(vm).map_or(0, |vm| vm.tasks.len() as u64);
        self.pay(TASK * tasks.max(1))?;
        Ok(self.tasks(vm, (budgets, moved), false).is_some_and(|time| time.holds()))
    }
}
