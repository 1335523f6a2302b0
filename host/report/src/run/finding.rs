//! The findings of a run: what was observed of flows, memory budgets, tasks and interrupts, with
//! the verdict on each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_analysis::verdict::Verdict;

/// The time that a run's latencies are measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The emulated clock: instructions of cores that run concurrently.
    #[default]
    Emulated,
    /// The board's.
    Board,
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is not "holds"; empty if it is.
    pub reason: String,
}

impl Default for Finding {
    fn default() -> Self {
        Self::not_judged("")
    }
}

impl Finding {
    /// Returns the finding that an object holds.
    #[must_use]
    pub fn holds() -> Self {
        Self { verdict: Verdict::Holds, reason: String::new() }
    }

    /// Returns the finding that an object is not judged, with the reason.
    #[must_use]
    pub fn not_judged(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::NotJudged, reason: reason.into() }
    }

    /// Returns the finding that an object does not hold, with the reason.
    #[must_use]
    pub fn failed(reason: String) -> Self {
        Self { verdict: Verdict::DoesNotHold, reason }
    }
}

/// The latencies of a flow's packets, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// The shortest.
    pub min: u64,
    /// The median; none if records of the trace were lost.
    pub p50: Option<u64>,
    /// The 99th percentile by nearest rank; none if records of the trace were lost.
    pub p99: Option<u64>,
    /// The maximum.
    pub max: u64,
    /// The number of the first packet that took `max`, counted from 1.
    pub max_packet: u64,
    /// The arrival of that packet, in nanoseconds since the hypervisor started.
    pub max_arrived_ns: u64,
}

/// The use of a memory budget by a vCPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct BudgetFinding {
    /// The vCPU.
    pub vcpu: u8,
    /// The counted accesses: `all`, `reads` or `writes`.
    pub counts: String,
    /// The budget of the VM, in accesses per period.
    pub budget: u64,
    /// The period in ns.
    pub period_ns: u64,
    /// Periods that were observed.
    pub periods: u64,
    /// The most accesses in a period.
    pub max_used: u64,
    /// Periods in which the vCPU was suspended.
    pub throttled_periods: u64,
    /// The time for which the vCPU was suspended, in ns.
    #[serde(default)]
    pub throttled_ns: u64,
    /// The longest time for which it was suspended at once, in ns.
    #[serde(default)]
    pub max_throttled_ns: u64,
    /// The most accesses above the limit that was in force.
    pub max_beyond: u64,
    /// The most accesses that may be counted above a limit.
    pub overshoot: Option<u64>,
    /// Periods with more than that.
    pub exceeded_periods: u64,
    /// The verdict.
    #[serde(flatten)]
    pub finding: Finding,
}

/// A task, by the marks of its VM in the trace.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TaskFinding {
    /// The name.
    pub name: String,
    /// The deadline in ns.
    pub deadline_ns: u64,
    /// Activations that its VM marked; none without a mark.
    pub activations: Option<u64>,
    /// Missed deadlines: of activations, and of releases without an activation.
    pub misses: Option<u64>,
    /// The bound on its response time in ns; none if the analysis has none.
    pub bound_ns: Option<u64>,
    /// The longest response time in ns, from a release to the mark of its completion; none without
    /// an activation.
    pub observed_max_ns: Option<u64>,
    /// The number of the first activation with that response time, counted from 1.
    #[serde(default)]
    pub max_activation: Option<u64>,
    /// The first activations with missed deadlines.
    #[serde(default)]
    pub missed: Vec<MissedActivation>,
    /// The verdict.
    #[serde(flatten)]
    pub finding: Finding,
}

/// An activation with a missed deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissedActivation {
    /// Its number, counted from 1.
    pub activation: u64,
    /// The release, in nanoseconds since the hypervisor started.
    pub release_ns: u64,
    /// The response time in ns, at least.
    pub response_ns: u64,
    /// The releases before it that got no activation of their own.
    pub skipped: u32,
}

/// The delays until a VM had the core for an interrupt.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct InterruptFinding {
    /// The interrupt's number.
    pub intid: u32,
    /// The deadline in ns.
    pub deadline_ns: u64,
    /// The number of times that it was delivered.
    pub delivered: u64,
    /// The number of times later than the deadline, or not until the end of the run.
    pub late: u64,
    /// The bound on the delay in ns; none if the analysis has none.
    pub bound_ns: Option<u64>,
    /// The observed maximum in ns.
    pub max_ns: u64,
    /// The verdict.
    #[serde(flatten)]
    pub finding: Finding,
}
