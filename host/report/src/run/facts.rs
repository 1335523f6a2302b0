//! What depends on the host in a run, as `run.json` has it.

use serde::Deserialize;

/// The facts of a run. A run on a board has no values of QEMU, and one in QEMU none of a board.
#[derive(Clone, Debug, Default, Deserialize)]
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
    pub overheads: Vec<OverheadOrigin>,
    /// What the verdicts rest on.
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
    /// The limit of the run's time in ns.
    pub limit_ns: Option<u64>,
    /// The most by which the clocks of two cores could be apart, in ns.
    pub quantum_ns: Option<u64>,
    /// The Debian packages of the guests.
    pub debian_packages: Option<Vec<GuestPackage>>,
    /// The time that the run took on the host, in seconds.
    pub seconds: Option<f64>,
    /// The size of the trace.
    pub trace: Option<TraceSize>,
}

/// The origin of a table of overheads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OverheadOrigin {
    /// The file or the platform.
    pub file: String,
    /// The command that measured them.
    pub command: Option<String>,
    /// The build of the hypervisor that they were measured on.
    pub build: Option<String>,
    /// The day on which they were measured.
    pub date: Option<String>,
    /// Whether they were measured on the build of the run; none if that is not known.
    pub same_build: Option<bool>,
}

/// A Debian package of a guest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GuestPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The size of a trace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TraceSize {
    /// The number of records; none without a trace.
    pub records: Option<u64>,
    /// Why there is no trace.
    pub absent: Option<String>,
}
