//! The report of a run.

use super::{engine::EngineRun, finding::Clock, flow::FlowRun, vm::VmRun};
use crate::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_analysis::verdict::Verdict;

/// The time until which the flows of a run are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The end of the run, or the last expected line.
    ToTheEnd,
    /// This time, in nanoseconds since the hypervisor started; the run continued after it.
    Until(u64),
    /// The counts of a flow are missing.
    Never,
}

/// Upper bound on the time between records that the hypervisor sends together.
const REPORTING_NS: u64 = 1_000_000;

/// The reason of the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Every expected line was printed.
    AllMet,
    /// The time of `--for` elapsed.
    TimeOver,
    /// The system stopped: every VM is off, or a VM with `on_fault = "stop-system"` had a fault.
    SystemStop,
    /// Ctrl-C, or another signal.
    Interrupted,
    /// QEMU ended, or the serial line was closed, before the system reported its stop.
    MachineGone,
    /// The machine sent nothing for longer than the limit.
    Silent,
}

/// The switches between the vCPUs of a core that VMs share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoreRun {
    /// The core.
    pub core: u8,
    /// The number of switches in the trace; none without a trace.
    pub switches: Option<u64>,
    /// The longest of them in ns: from when EL2 began the work that took the core from a vCPU until
    /// the next one had it.
    pub max_switch_ns: Option<u64>,
    /// The longest switch that the system file or the platform states, in ns.
    pub stated_switch_ns: Option<u64>,
}

/// The sums over all VMs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Expected lines.
    pub expected: usize,
    /// Expected lines that were printed.
    pub met: usize,
    /// Boots that another one followed.
    pub restarts: u64,
    /// Faults that stopped a VM.
    pub faults: u64,
    /// Refused operations.
    pub denials: u64,
    /// Exits to EL2, of the VMs with counters.
    pub exits: u64,
    /// Virtual interrupts put into list registers, of the VMs with counters.
    pub injected: u64,
    /// Console bytes that the hypervisor dropped.
    pub dropped: u64,
    /// Records of events and counters that the hypervisor dropped.
    pub records_lost: u64,
    /// Frames that are damaged or name a VM that does not exist.
    pub damaged_frames: u64,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    /// The name of the system file without its extension.
    pub system: String,
    /// The platform that it ran on.
    pub platform: String,
    /// Whether the hypervisor reported that it runs on all cores.
    pub started: bool,
    /// Why the run ended.
    pub ended_by: End,
    /// The last time that was reported, in nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The clock of the latencies.
    pub clock: Clock,
    /// The board whose memory's time was charged to the emulated cores; none if each instruction
    /// took 1 ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The most severe verdict on flows, budgets, tasks and interrupts: `holds`, `not-judged` or
    /// `does-not-hold`; none if the system has none of them.
    pub verdict: Option<Verdict>,
    /// The flows, budgets, tasks and interrupts with this verdict.
    pub verdict_of: Vec<String>,
    /// The VMs in the order of the file.
    pub vms: Vec<VmRun>,
    /// The flows in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowRun>,
    /// The cores that VMs share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<CoreRun>,
    /// What limits the DMA engine, if it moves chunks of flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineRun>,
    /// The sums over all VMs.
    pub totals: Totals,
    /// Resets of the board during the run. Everything else is counted from the last one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub board_resets: u64,
    /// The lines that the hypervisor printed.
    pub hypervisor: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl End {
    /// Returns the reason as the end of a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::AllMet => "every expected line was seen",
            Self::TimeOver => "the time is over",
            Self::SystemStop => "the system ended itself",
            Self::Interrupted => "the run was interrupted",
            Self::MachineGone => "the machine was gone before the system ended",
            Self::Silent => "the machine fell silent",
        }
    }

    /// Returns whether the run ended as planned.
    #[must_use]
    pub const fn is_planned(self) -> bool {
        matches!(self, Self::AllMet | Self::TimeOver | Self::SystemStop)
    }
}

impl RunReport {
    /// Returns the report as JSON, in the form of `weir run --json` and `report.json`.
    #[must_use]
    pub fn json(&self) -> Json {
        crate::versioned(self)
    }

    /// Returns the time until which the flows were counted.
    #[must_use]
    pub fn flows_counted(&self) -> Counted {
        let Some(counted) = self.flows.iter().map(|flow| flow.counted_ns).min() else {
            return Counted::ToTheEnd;
        };
        let Some(counted) = counted else { return Counted::Never };
        let met = self.vms.iter().flat_map(|vm| &vm.expect).filter_map(|line| line.time_ns);
        let late = match self.ended_by {
            End::AllMet => met.max().is_some_and(|met| counted < met),
            // The hypervisor reports the counts when it stops.
            End::SystemStop => false,
            End::TimeOver | End::Interrupted | End::MachineGone | End::Silent => {
                counted.saturating_add(REPORTING_NS) < self.time_ns
            }
        };
        if late { Counted::Until(counted) } else { Counted::ToTheEnd }
    }
}
