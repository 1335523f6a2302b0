//! The result of a simulation as JSON has it.

use super::result::{Alone, SameWork, Simulated, arrival_curve, max_latency_ns, within_bound};
use crate::{BudgetOutcome, FlowOutcome, JobsOutcome, LatencyHistogram, Outcome, VmOutcome};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use weir_analysis::verdict::Verdict;
use weir_memory::Owner;

/// Values by VM, in the order of the file.
struct ByVm<'a, T>(Vec<(&'a str, T)>);

impl<T: Serialize> Serialize for ByVm<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The counts of each VM.
type Counts<'a> = ByVm<'a, u64>;
/// The counts of each VM, by the VM that they concern.
type Matrix<'a> = ByVm<'a, Counts<'a>>;

/// A simulation.
#[derive(Serialize, JsonSchema)]
pub struct SimulationRecord<'a> {
    /// The measurement interval in ns.
    span_ns: u64,
    /// The length of a slice of it, in ns.
    slice_ns: u64,
    /// The VMs in the order of the file.
    vms: Vec<SimulatedVm<'a>>,
    /// The flows in the order of the file; empty where they are not simulated.
    flows: Vec<SimulatedFlow<'a>>,
    /// Why the flows are not simulated.
    flows_left_out: Option<&'a str>,
    /// Lines of the second level that each VM evicted, by the VM that they belonged to.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, u64>>")]
    evicted: Matrix<'a>,
    /// Open DRAM rows that each VM closed, by the VM that they belonged to.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, u64>>")]
    rows_closed: Matrix<'a>,
    /// The translation buffer units (TBU) of the SMMU.
    tbus: Vec<SimulatedTbu<'a>>,
    /// The lines that the second level can hold; 0 without one.
    l2_capacity: u64,
    /// The lines of each VM in it when the measurement interval began and when it ended.
    #[schemars(with = "BTreeMap<String, [u64; 2]>")]
    l2_lines: ByVm<'a, [u64; 2]>,
    /// The reason why the run is too short for its figures, if it is.
    too_short: Option<&'a str>,
    /// For how long requests to the second level waited because its registers or buffers were all
    /// in use, in ps.
    l2_blocked_ps: u64,
    /// The files of `--output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<String>>,
}

/// The outcome of a VM.
#[derive(Serialize, JsonSchema)]
struct SimulatedVm<'a> {
    /// The name of the VM.
    name: &'a str,
    /// Accesses that were answered; of the channels of a DMA engine, transfers.
    accesses: u64,
    /// How many times as slow as alone the VM was; none if it completed nothing.
    slowdown: Option<f64>,
    /// Both times of the slowdown.
    same_work: Option<SameWorkTimes>,
    /// The latencies of its accesses.
    latency_ns: &'a LatencyHistogram,
    /// The VM without the others and without budgets; none if it does nothing.
    alone: Option<AloneRecord<'a>>,
    /// The jobs of its tasks, if they are released one by one.
    jobs: Option<&'a JobsOutcome>,
    /// The mean time of a pass of its first vCPU, in ps; none if no pass ended.
    pass_ps: Option<u64>,
    /// Lines that its cores brought into the second level.
    refills: u64,
    /// Dirty lines that they pushed out of it.
    write_backs: u64,
    /// Bytes that DMA channels moved for it.
    dma_bytes: u64,
    /// The bandwidth of its cores and DMA channels, both ways, in MB/s.
    mb_per_s: f64,
    /// Lines that it moved, both ways, in each slice.
    lines_per_slice: &'a [u64],
    /// How much longer its lines took than lines that never wait, in ps.
    delay_ps: u64,
    /// The parts of this delay, in ps, by the VM that it waited for.
    #[schemars(with = "BTreeMap<String, u64>")]
    waited_for_ps: Counts<'a>,
    /// The steps of the upper arrival curve of its refills: each the length of a window in ns and
    /// the lines in it.
    arrival_curve: Vec<[u64; 2]>,
    /// The budget of each regulated vCPU.
    budgets: &'a [BudgetOutcome],
}

/// The same work with the other VMs and alone.
#[derive(Serialize, JsonSchema)]
struct SameWorkTimes {
    /// Jobs, transfers or accesses.
    units: u64,
    /// The time with the others, in ps.
    together_ps: u64,
    /// The time alone, in ps.
    alone_ps: u64,
}

/// The outcome of a VM alone.
#[derive(Serialize, JsonSchema)]
struct AloneRecord<'a> {
    /// Accesses that were answered.
    accesses: u64,
    /// Their latencies.
    latency_ns: &'a LatencyHistogram,
}

/// The outcome of a flow, compared with its bound.
#[derive(Serialize, JsonSchema)]
struct SimulatedFlow<'a> {
    /// The outcome.
    #[serde(flatten)]
    outcome: &'a FlowOutcome,
    /// The observed maximum of the latency in ns, rounded up.
    observed_max_ns: u64,
    /// The latency bound of the analysis in ns.
    bound_ns: Option<u64>,
    /// Whether the maximum is within the bound.
    within_bound: Option<bool>,
    /// The verdict.
    verdict: Verdict,
}

/// The outcome of a translation buffer unit.
#[derive(Serialize, JsonSchema)]
struct SimulatedTbu<'a> {
    /// The name of the unit.
    name: &'a str,
    /// Translations that were asked for.
    #[schemars(with = "BTreeMap<String, u64>")]
    lookups: Counts<'a>,
    /// Those that needed a walk.
    #[schemars(with = "BTreeMap<String, u64>")]
    walks: Counts<'a>,
    /// Entries that each VM evicted, by the VM that they belonged to.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, u64>>")]
    evicted: Matrix<'a>,
}

impl<'a> SimulationRecord<'a> {
    /// Returns the record of a simulation, as `weir simulate run --json` prints it.
    #[must_use]
    pub fn of(result: &'a Simulated) -> Self {
        let Outcome {
            vms,
            flows,
            waits,
            l2,
            evictions,
            closed,
            tbus,
            blocked_ps,
            span_ns,
            slice_ns,
        } = &result.outcome;
        let each = vms.iter().zip(&result.alone).zip(0_u8..).map(|((vm, alone), index)| {
            let work = SameWork::of(vm, alone.as_ref(), 0);
            let wait = |by| waits.get(Owner(index), Owner(by)).0;
            let blame: Vec<u64> = (0_u8..).take(vms.len()).map(wait).collect();
            SimulatedVm {
                name: &vm.name,
                accesses: vm.accesses,
                slowdown: work.map(SameWork::rounded),
                same_work: work.map(|work| SameWorkTimes {
                    units: work.units,
                    together_ps: work.together.0,
                    alone_ps: work.alone.0,
                }),
                latency_ns: &vm.latency,
                alone: alone.as_ref().map(|Alone { outcome, .. }| AloneRecord {
                    accesses: outcome.accesses,
                    latency_ns: &outcome.latency,
                }),
                jobs: vm.jobs.as_ref(),
                pass_ps: vm.pass.map(|pass| pass.0),
                refills: vm.refills,
                write_backs: vm.write_backs,
                dma_bytes: vm.moved,
                mb_per_s: vm.mb_per_s(*span_ns),
                lines_per_slice: &vm.slices,
                delay_ps: vm.delay_ps,
                waited_for_ps: by_vm(vms, &blame),
                arrival_curve: arrival_curve(vm).pairs(),
                budgets: &vm.budgets,
            }
        });
        let flows = flows.iter().zip(&result.bounds).map(|(flow, bound)| SimulatedFlow {
            outcome: flow,
            observed_max_ns: max_latency_ns(flow),
            bound_ns: *bound,
            within_bound: within_bound(flow, *bound),
            verdict: within_bound(flow, *bound).map_or(Verdict::NotJudged, Verdict::of),
        });
        let tbus = tbus.iter().map(|tbu| SimulatedTbu {
            name: &tbu.name,
            lookups: by_vm(vms, &tbu.lookups),
            walks: by_vm(vms, &tbu.misses),
            evicted: matrix(vms, &tbu.evictions),
        });
        Self {
            span_ns: *span_ns,
            slice_ns: *slice_ns,
            vms: each.collect(),
            flows: flows.collect(),
            flows_left_out: result.left_out.as_deref(),
            evicted: matrix(vms, evictions),
            rows_closed: matrix(vms, closed),
            tbus: tbus.collect(),
            l2_capacity: l2.capacity,
            l2_lines: ByVm(
                vms.iter().zip(&l2.lines).map(|(vm, at)| (vm.name.as_str(), *at)).collect(),
            ),
            too_short: result.too_short.as_deref(),
            l2_blocked_ps: *blocked_ps,
            files: None,
        }
    }
}

/// Returns counts with the names of their VMs.
fn by_vm<'a>(vms: &'a [VmOutcome], counts: &[u64]) -> Counts<'a> {
    ByVm(vms.iter().zip(counts).map(|(vm, count)| (vm.name.as_str(), *count)).collect())
}

/// Returns rows of counts with the names of their VMs.
fn matrix<'a>(vms: &'a [VmOutcome], rows: &[Vec<u64>]) -> Matrix<'a> {
    let row = |(vm, row): (&'a VmOutcome, &Vec<u64>)| (vm.name.as_str(), by_vm(vms, row));
    ByVm(vms.iter().zip(rows).map(row).collect())
}
