//! The part of the report about a VM.

use super::fault::{DeniedOperation, FaultReport, RefusedDma};
use super::finding::{BudgetFinding, InterruptFinding, TaskFinding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a VM at the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Never started.
    #[default]
    NotStarted,
    /// Running.
    Running,
    /// Powered off by itself.
    Off,
    /// Stopped after a fault and not started again.
    Halted,
}

impl State {
    /// Returns the name as in the JSON form, with spaces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotStarted => "not started",
            Self::Running => "running",
            Self::Off => "off",
            Self::Halted => "halted",
        }
    }
}

/// The counts of a VM's console.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConsoleCounts {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Lines among them.
    pub lines: u64,
    /// Bytes that the hypervisor dropped.
    pub dropped: u64,
}

/// The last counters of a vCPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct VcpuRun {
    /// The number within the VM.
    #[serde(rename = "vcpu")]
    pub number: u8,
    /// The core of the platform that it runs on.
    pub core: u8,
    /// The time of the counters; none if none arrived.
    pub counted_ns: Option<u64>,
    /// `off`, `on` or `halted`.
    pub state: Option<String>,
    /// Exits to EL2 by cause; none if no counters arrived.
    pub exits: Option<BTreeMap<String, u64>>,
    /// Virtual interrupts put into list registers; none if no counters arrived.
    pub injected: Option<u64>,
}

/// An expected line.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Expected {
    /// The text that the line must contain.
    pub text: String,
    /// True if it was printed.
    pub met: bool,
    /// The time of the line, in nanoseconds since the hypervisor started.
    pub time_ns: Option<u64>,
}

/// A VM's part of the report.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct VmRun {
    /// The name.
    pub name: String,
    /// The state at the end of the run.
    pub state: State,
    /// The number of boots.
    pub boots: u32,
    /// The number of boots that another one followed.
    pub restarts: u32,
    /// The number of boots that ended by PSCI SYSTEM_RESET.
    pub resets: u32,
    /// The console.
    pub console: ConsoleCounts,
    /// Exits to EL2 by cause, of all vCPUs; none if the counters of a vCPU are missing.
    pub exits: Option<BTreeMap<String, u64>>,
    /// Virtual interrupts put into list registers, of all vCPUs; none if the counters of a vCPU are
    /// missing.
    pub injected: Option<u64>,
    /// The vCPUs.
    pub vcpus: Vec<VcpuRun>,
    /// Refused operations after which the VM continued, by name.
    pub denials: BTreeMap<String, u64>,
    /// The first refused operation of each kind in each boot, up to
    /// [`FAULTS_LISTED`](super::FAULTS_LISTED).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<DeniedOperation>,
    /// Refused accesses of its devices, up to [`FAULTS_LISTED`](super::FAULTS_LISTED).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dma: Vec<RefusedDma>,
    /// True if it started before the broker of its flows was ready.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub started_without_broker: bool,
    /// The frames of its network device, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<FrameCounts>,
    /// The number of faults that stopped it, by kind.
    pub fault_counts: BTreeMap<String, u64>,
    /// The first [`FAULTS_LISTED`](super::FAULTS_LISTED) faults.
    pub faults: Vec<FaultReport>,
    /// The number of faults that are not listed.
    pub faults_left_out: u64,
    /// Records of its events that the hypervisor dropped. Counts and states do not depend on them.
    pub records_lost: u64,
    /// The address in its last console line `connected to CID:PORT`.
    #[serde(skip)]
    pub connected: Option<String>,
    /// The expected lines.
    pub expect: Vec<Expected>,
    /// The use of the memory budgets of its vCPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetFinding>,
    /// The latencies of its interrupts that have deadlines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<InterruptFinding>,
    /// The tasks in the system file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskFinding>,
}

/// The frames of a VM's network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameCounts {
    /// Frames that it sent and that were forwarded.
    pub sent: u64,
    /// Frames that it received.
    pub received: u64,
    /// Frames that it sent above its permitted rate, and that were dropped.
    pub over_rate: u64,
    /// Frames that it sent and that were malformed, or had the source address of another VM.
    pub refused: u64,
    /// Frames for it that were dropped because it had no buffer for them or did not run.
    pub missed: u64,
}

impl VmRun {
    /// Returns its exits of all causes; none if the counters of a vCPU are missing.
    #[must_use]
    pub fn exit_count(&self) -> Option<u64> {
        self.exits.as_ref().map(|exits| exits.values().sum())
    }
}
