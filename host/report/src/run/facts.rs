//! What depends on the host in a run, as `run.json` has it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_analysis::system::OverheadSource;

/// The facts of a run. A run on a board has no values of QEMU, and one in QEMU none of a board.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunFacts {
    /// The system file.
    pub system: Option<String>,
    /// The date.
    pub started: Option<String>,
    /// The command.
    pub command: Vec<String>,
    /// The version of weir.
    pub weir: Option<String>,
    /// The build of the hypervisor.
    pub hypervisor_build: Option<String>,
    /// The origin of the overheads behind the bounds of flows.
    pub overheads: Vec<OverheadSource>,
    /// The inputs on which the verdicts rest.
    pub assumed: Vec<String>,
    /// The version of QEMU.
    pub qemu: Option<String>,
    /// QEMU's command.
    pub qemu_command: Vec<String>,
    /// The end of QEMU.
    pub qemu_status: Option<String>,
    /// The serial line of the board.
    pub serial: Option<String>,
    /// The identity of the image that the board runs.
    pub image_id: Option<String>,
    /// The size of the image in bytes.
    pub image_bytes: Option<u64>,
    /// The check sum of the image.
    pub image_crc32: Option<String>,
    /// True if the consoles of the VMs had input, which was recorded.
    pub takes_input: bool,
    /// The limit of the run's time in ns.
    pub limit_ns: Option<u64>,
    /// True if the run went on after the last expected line.
    pub keep_running: bool,
    /// The most by which the clocks of two cores could be apart, in ns.
    pub quantum_ns: Option<u64>,
    /// The board whose memory was modeled.
    pub memory: Option<String>,
    /// The last counts of the counter page, by core.
    pub counter_page: Option<Vec<CoreCounts>>,
    /// The Debian packages of the guests.
    pub debian_packages: Option<Vec<GuestPackage>>,
    /// The time that the run took on the host, in seconds.
    pub seconds: Option<f64>,
    /// The size of the trace.
    pub trace: Option<TraceSize>,
}

/// A Debian package of a guest.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GuestPackage {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
    /// The SHA-256 of its file.
    pub sha256: String,
}

/// The counts of a core in the counter page.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CoreCounts {
    /// The number of the core.
    pub core: usize,
    /// Lines brought into its cache.
    pub refills: u64,
    /// Lines written back from it.
    pub write_backs: u64,
    /// Those of the hypervisor among the first.
    pub hypervisor_refills: u64,
    /// Those of the hypervisor among the second.
    pub hypervisor_write_backs: u64,
}

/// The size of a trace.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TraceSize {
    /// The number of records; none without a trace.
    pub records: Option<u64>,
    /// The number of records that were lost.
    pub lost: Option<u64>,
    /// Why there is no trace.
    pub absent: Option<String>,
}
