//! The result of a run.

use crate::{FlowOutcome, JobsOutcome, LatencyHistogram};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use weir_budget::Counts;
use weir_memory::Picos;
use weir_memory::system::Waits;

/// How a vCPU's budget was used, in whole periods of the measurement interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BudgetOutcome {
    /// The length of a period in ns.
    pub period_ns: u64,
    /// The greatest budgets of reads and of writes at the start of a period; no limit is
    /// `u64::MAX`, and none in JSON.
    #[serde(serialize_with = "limits")]
    #[schemars(with = "[Option<u64>; 2]")]
    pub granted: Counts,
    /// Periods that ended.
    pub periods: u64,
    /// The most that one of them used of each of the two budgets; where there is one, of `reads`.
    #[serde(rename = "most_in_a_period", serialize_with = "counts")]
    #[schemars(with = "[u64; 2]")]
    pub most: Counts,
    /// All that they used of each.
    #[serde(serialize_with = "counts")]
    #[schemars(with = "[u64; 2]")]
    pub total: Counts,
    /// How often the vCPU was suspended.
    pub throttled: u64,
    /// For how long it was, in ns.
    pub stopped_ns: u64,
}

fn counts<S: Serializer>(counts: &Counts, serializer: S) -> Result<S::Ok, S::Error> {
    [counts.reads, counts.writes].serialize(serializer)
}

fn limits<S: Serializer>(limits: &Counts, serializer: S) -> Result<S::Ok, S::Error> {
    let limit = |limit: u64| (limit != u64::MAX).then_some(limit);
    [limit(limits.reads), limit(limits.writes)].serialize(serializer)
}

impl BudgetOutcome {
    pub(crate) fn begins(&mut self, limit: Counts, counts: Counts) {
        let of = |limit: u64, count: u64| if limit == u64::MAX { limit } else { limit - count };
        self.granted.reads = self.granted.reads.max(of(limit.reads, counts.reads));
        self.granted.writes = self.granted.writes.max(of(limit.writes, counts.writes));
    }

    pub(crate) fn period_ended(&mut self, used: Counts) {
        self.periods += 1;
        self.most.reads = self.most.reads.max(used.reads);
        self.most.writes = self.most.writes.max(used.writes);
        self.total = self.total.plus(used);
    }
}

/// How far a VM has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkMark {
    /// Units that it has completed: jobs where they are released, transfers where a DMA engine
    /// works for it, or else accesses.
    pub units: u64,
    /// When the last of them was, from the begin of the simulation.
    pub at: Picos,
    /// Of jobs: all their responses together.
    pub responses: Picos,
}

/// The outcome of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmOutcome {
    /// Its name.
    pub name: String,
    /// Accesses that were answered; of a DMA engine's channels, transfers.
    pub accesses: u64,
    /// How long they took.
    pub latency: LatencyHistogram,
    /// Lines that its cores brought into the second level.
    pub refills: u64,
    /// Dirty lines that they pushed out of it.
    pub write_backs: u64,
    /// Lines moved, both ways, in each of the slices of the span.
    pub slices: Vec<u64>,
    /// How much longer its lines from DRAM and the second level, and those of DMA engines that work
    /// for it, took than lines that never wait, in ps: the row of [`Outcome::waits`] adds up to it.
    pub delay_ps: u64,
    /// When it brought lines in, in ns from the begin of the span; the first ones of them.
    pub arrivals: Vec<u64>,
    /// The budget of each regulated vCPU.
    pub budgets: Vec<BudgetOutcome>,
    /// Mean time of the passes that the first vCPU made through what it does, from beginning to
    /// beginning; `None` if none ended.
    pub pass: Option<Picos>,
    /// Its passes or packets, if they are released one by one.
    pub jobs: Option<JobsOutcome>,
    /// Bytes that DMA channels moved for it.
    pub moved: u64,
    /// How far it had come when the span began, and when it ended.
    pub work: [WorkMark; 2],
}

impl VmOutcome {
    /// Returns the megabytes (10^6 bytes) per second that the VM's cores moved in a span of
    /// `span_ns`, both ways, with those that DMA channels copied for it.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate for printing")]
    pub fn mb_per_s(&self, span_ns: u64) -> f64 {
        const LINE: u64 = 64;
        let bytes = ((self.refills + self.write_backs) * LINE + self.moved) as f64;
        (bytes * 1e4 / span_ns.max(1) as f64).round() / 10.0
    }
}

/// The counts of a translation buffer unit of the SMMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TbuOutcome {
    /// Its name.
    pub name: String,
    /// Translations asked for, by VM.
    pub lookups: Vec<u64>,
    /// Those that needed a walk: writes of its TLB.
    pub misses: Vec<u64>,
    /// Entries evicted by the row's VM from the column's VM.
    pub evictions: Vec<Vec<u64>>,
}

/// The contents of the second level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecondLevel {
    /// The lines that it can hold; 0 without one.
    pub capacity: u64,
    /// The lines of each VM in it when the measurement interval began and when it ended.
    pub lines: Vec<[u64; 2]>,
}

/// A VM whose lines grow by more than one in so many of the second level's has not filled it yet.
const SETTLED: u64 = 20;

impl SecondLevel {
    /// Returns the VM, of those that `is_steady` returns true for, whose lines grew the most during
    /// the measurement interval; none if no VM's grew by more than a twentieth of what the second
    /// level can hold.
    ///
    /// While a cache fills, nothing is evicted from it and little is written back. Therefore the
    /// figures of a run that ends before depend on its length, and on how fast a budget lets a VM
    /// fill the cache.
    #[must_use]
    pub fn filling(&self, is_steady: impl Fn(usize) -> bool) -> Option<usize> {
        let grown = |&vm: &usize| self.lines[vm][1].saturating_sub(self.lines[vm][0]);
        let most = (0..self.lines.len()).filter(|vm| is_steady(*vm)).max_by_key(grown)?;
        (grown(&most) * SETTLED > self.capacity).then_some(most)
    }
}

/// The result of a run, without its warm-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The VMs, in the order of the file.
    pub vms: Vec<VmOutcome>,
    /// The flows, in the order of the file; none where they are not simulated.
    pub flows: Vec<FlowOutcome>,
    /// Waiting time of each VM's lines, by the owner that they waited for; owners are the VMs by
    /// index.
    pub waits: Waits,
    /// The contents of the second level.
    pub l2: SecondLevel,
    /// Lines of the second level that the row's VM evicted from the column's VM.
    pub evictions: Vec<Vec<u64>>,
    /// Rows of DRAM banks of the column's VM that the row's VM closed.
    pub closed: Vec<Vec<u64>>,
    /// The translation buffer units, in the order of their names.
    pub tbus: Vec<TbuOutcome>,
    /// For how long requests to the second level waited because its registers or buffers were all
    /// in use, in ps.
    pub blocked_ps: u64,
    /// Length of the measurement interval, in ns.
    pub span_ns: u64,
    /// Length of a slice, in ns.
    pub slice_ns: u64,
}

impl TbuOutcome {
    /// Entries of other VMs that one VM's devices threw out.
    #[must_use]
    pub fn of_others(&self, vm: usize) -> u64 {
        let row = self.evictions.get(vm).into_iter().flatten().enumerate();
        row.filter(|(of, _)| *of != vm).map(|(_, count)| count).sum()
    }
}
