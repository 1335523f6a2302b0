//! What a run showed of flows, memory budgets, tasks and interrupts, with the verdict on each.

use crate::observed::{ArrivedPacket, percentile};
use schemars::JsonSchema;
use serde::Serialize;
use weir_analysis::verdict::Verdict;

/// The time that a run's latencies are measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The emulated clock: instructions of cores that run concurrently.
    #[default]
    Emulated,
    /// The board's.
    Board,
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is not "holds"; empty if it is.
    pub reason: String,
}

impl Finding {
    pub(crate) fn holds() -> Self {
        Self { verdict: Verdict::Holds, reason: String::new() }
    }

    pub(crate) fn not_judged(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::NotJudged, reason: reason.into() }
    }

    pub(crate) fn failed(reason: String) -> Self {
        Self { verdict: Verdict::DoesNotHold, reason }
    }
}

/// The latencies of a flow's packets, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
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
    /// When that packet arrived, in nanoseconds since the hypervisor started.
    pub max_arrived_ns: u64,
}

impl Latency {
    /// Returns the latencies of all packets of a flow; none without a packet.
    #[must_use]
    pub fn of(packets: &[ArrivedPacket]) -> Option<Self> {
        let mut sorted: Vec<u64> = packets.iter().map(|packet| packet.latency_ns).collect();
        sorted.sort_unstable();
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let place = packets.iter().position(|packet| packet.latency_ns == max)?;
        Some(Self {
            min,
            p50: percentile(&sorted, 50),
            p99: percentile(&sorted, 99),
            max,
            max_packet: place as u64 + 1,
            max_arrived_ns: packets.get(place)?.arrived_ns,
        })
    }
}

/// How a vCPU used its memory budget.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BudgetFinding {
    /// The vCPU.
    pub vcpu: u8,
    /// What is counted: `all`, `reads` or `writes`.
    pub counts: &'static str,
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

/// A task, as its VM's console lines report on it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskFinding {
    /// Its name.
    pub name: String,
    /// Its deadline in ns.
    pub deadline_ns: u64,
    /// Activations that its VM reported; none without a report.
    pub activations: Option<u64>,
    /// Missed deadlines among them.
    pub misses: Option<u64>,
    /// The bound on its response time in ns; none if the analysis has none.
    pub bound_ns: Option<u64>,
    /// The observed maximum in ns; none if its VM did not report it.
    pub observed_max_ns: Option<u64>,
    /// The verdict.
    #[serde(flatten)]
    pub finding: Finding,
}

/// The delays until a VM had the core for an interrupt.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InterruptFinding {
    /// The interrupt's number.
    pub intid: u32,
    /// Its deadline in ns.
    pub deadline_ns: u64,
    /// How often it was delivered.
    pub delivered: u64,
    /// How often later than the deadline, or not until the end of the run.
    pub late: u64,
    /// The bound on the delay in ns; none if the analysis has none.
    pub bound_ns: Option<u64>,
    /// The observed maximum in ns.
    pub max_ns: u64,
    /// The verdict.
    #[serde(flatten)]
    pub finding: Finding,
}

/// The counts that a VM reported of a task, since the VM's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activations {
    /// Of the VM's earlier boots.
    before: (u64, u64),
    /// The last report.
    last: (u64, u64),
}

impl Activations {
    /// Takes the next report. Counts that fall are those of a restarted VM.
    pub fn take(&mut self, line: &TaskLine<'_>) {
        if line.activations < self.last.0 {
            self.before = self.sum();
        }
        self.last = (line.activations, line.misses);
    }

    /// Activations and misses of all boots.
    #[must_use]
    pub fn sum(&self) -> (u64, u64) {
        let ((a, b), (c, d)) = (self.before, self.last);
        (a.saturating_add(c), b.saturating_add(d))
    }
}

/// A VM's console line on a task of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLine<'a> {
    /// The task.
    pub name: &'a str,
    /// Activations since the VM's start.
    pub activations: u64,
    /// Missed deadlines among them.
    pub misses: u64,
    /// The longest response in ns, if the line has it.
    pub max_ns: Option<u64>,
}

impl<'a> TaskLine<'a> {
    /// Reads a line `NAME: N activations, M misses` or `NAME: N activations, M misses, response max
    /// R ns`, which may go on behind that.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_once(": ")?;
        let (activations, rest) = rest.split_once(" activations, ")?;
        let (misses, rest) = rest.split_once(" misses")?;
        let max = rest.strip_prefix(", response max ").and_then(|rest| rest.split_once(" ns"));
        Some(Self {
            name,
            activations: activations.parse().ok()?,
            misses: misses.parse().ok()?,
            max_ns: max.and_then(|(max, _)| max.parse().ok()),
        })
    }
}

/// The finding on a task before it is judged.
#[must_use]
pub fn open() -> Finding {
    Finding::not_judged("")
}
