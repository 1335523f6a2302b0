//! The report of schedules, tasks and interrupts.

use crate::Nanos;
use crate::system::messages;
use crate::verdict::{Judgement, Missing, Verdict};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::{
    Code, Fault, System, Vm,
    timing::{FilePlace, Task},
};

/// The suggestion for a late task that has no other one.
pub(super) const MORE_TIME: &str = "give the VM a larger share of the core";

/// The suggestion for a task that would be late on a core of its own.
pub(super) const LESS_WORK: &str =
    "lower `wcet` or raise `period` of the VM's tasks: they need more than a whole core";

/// The bounds of schedules, tasks and interrupts.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct TimeReport {
    /// Whether all of them hold; none if an input is missing.
    pub holds: Option<bool>,
    /// The verdict on all of them.
    pub verdict: Verdict,
    /// The supply of each shared core.
    pub cores: Vec<CoreSupply>,
    /// The tasks.
    pub tasks: Vec<TaskBound>,
    /// The interrupts that have a deadline.
    pub interrupts: Vec<InterruptBound>,
    /// Whether the responses contain the delay by memory accesses of other VMs.
    pub memory_interference: bool,
    /// Why something does not hold, with a suggestion each.
    #[serde(rename = "reasons", serialize_with = "messages")]
    #[schemars(with = "Vec<String>")]
    pub causes: Vec<Fault>,
    /// What the bounds contain, and what they take for granted.
    pub notes: Vec<String>,
    /// Inputs without which something is not judged.
    #[serde(skip)]
    pub missing: Vec<Missing>,
}

/// The guarantees of a shared core's schedule for each VM.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CoreSupply {
    /// The number of the core.
    pub id: u64,
    /// Its VMs, and the broker.
    pub vms: Vec<VmSupply>,
}

/// A linear lower bound on the supply of a VM: `share` of any window, less `delay_ns`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VmSupply {
    /// The VM.
    pub name: String,
    /// The part of the core, 0 to 1; none if no time is guaranteed.
    pub share: Option<f64>,
    /// The delay in ns; none if no time is guaranteed.
    pub delay_ns: Option<u64>,
}

/// The response-time bound of a task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskBound {
    /// The VM of the task.
    pub vm: String,
    /// The task.
    pub name: String,
    /// The bound on its response time in ns; none if there is no bound.
    pub response_ns: Option<u64>,
    /// Its relative deadline in ns.
    pub deadline_ns: u64,
    /// Whether it meets its deadline; none if an input is missing.
    pub holds: Option<bool>,
    /// The verdict on its deadline.
    pub verdict: Verdict,
    /// Why it is late.
    #[serde(skip)]
    pub cause: Option<String>,
}

impl TaskBound {
    pub(super) fn new(vm: &Vm, task: &Task, response: Option<Nanos>, is_open: bool) -> Self {
        let verdict = match response {
            Some(response) if response <= task.deadline && is_open => Verdict::NotJudged,
            response => Verdict::of(response.is_some_and(|response| response <= task.deadline)),
        };
        Self {
            vm: vm.name.clone(),
            name: task.name.clone(),
            response_ns: response.map(|response| response.0),
            deadline_ns: task.deadline.0,
            holds: verdict.truth(),
            verdict,
            cause: None,
        }
    }
}

/// The bound on the time that an interrupt waits for its VM.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InterruptBound {
    /// The VM that the interrupt belongs to.
    pub vm: String,
    /// The number or name of the interrupt.
    pub interrupt: String,
    /// The bound on the time until its VM has the core, in ns; none if there is no bound.
    pub wait_ns: Option<u64>,
    /// Its deadline in ns.
    pub deadline_ns: u64,
    /// Whether it meets its deadline; none if an input is missing.
    pub holds: Option<bool>,
    /// The verdict on its deadline.
    pub verdict: Verdict,
}

impl TimeReport {
    /// Sets the verdict, once all parts are known.
    pub(super) fn judged(mut self) -> Self {
        self.verdict = self.judgement().verdict();
        self.holds = self.verdict.truth();
        self
    }

    /// Returns the verdict on all schedules, tasks and interrupts, with the missing inputs.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        let missing = self.missing.iter().cloned().map(Judgement::from);
        missing.fold(Judgement::of(self.causes.is_empty()), Judgement::and)
    }

    /// Returns the tasks that are late or have no bound.
    pub fn late(&self) -> impl Iterator<Item = &TaskBound> {
        self.tasks.iter().filter(|task| task.cause.is_some())
    }

    pub(super) fn refute(
        &mut self,
        system: &System,
        place: &FilePlace,
        reason: String,
        suggestion: Option<String>,
    ) {
        let suggestion = suggestion.unwrap_or_else(|| MORE_TIME.to_owned());
        self.causes.push(system.fault(Code::TaskDeadlineMissed, place, reason, suggestion));
    }
}
