//! The options of a run.

use crate::plugin::Watch;
use crate::serial::{Loader, SerialLine};
use crate::start::RunBounds;
use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use weir_analysis::system::OverheadSource;
use weir_image::Environment;

/// The input of the VMs' consoles in QEMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConsoleInput {
    /// There is none: two runs give the same report and logs, byte for byte.
    #[default]
    None,
    /// Clients of the run's socket type, and virtual time is never ahead of the host's. The input
    /// is recorded.
    Live,
    /// The recorded input of the run in this directory, of the same image and to its end.
    Replay(PathBuf),
}

/// The options of a run.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct RunOptions {
    /// The checkout and the tools.
    pub environment: Environment,
    /// Uses the hypervisor and the guests of the last build, without calling cargo.
    pub no_build: bool,
    /// Builds the hypervisor with all its parts, not only those that the system uses.
    pub all_parts: bool,
    /// Ends the run after this long: of virtual time in QEMU, of the host's time on a board.
    pub time: Option<Duration>,
    /// The most by which the clocks of two running cores may be apart in QEMU; none is 100 ns.
    pub quantum: Option<Duration>,
    /// The board whose memory's time is charged to the cores in QEMU, one of
    /// `weir_simulator::MemoryModel::names`.
    pub memory: Option<String>,
    /// The input of the VMs' consoles in QEMU. A board always takes input.
    pub input: ConsoleInput,
    /// A verdict "not judged" does not fail the run.
    pub accept_not_judged: bool,
    /// A plug-in that watches each access.
    pub watch: Option<Watch>,
    /// Continues after the last expected line.
    pub keep_running: bool,
    /// Boots this image, or expects it on the board, instead of building one.
    pub image_file: Option<PathBuf>,
    /// The serial line of the board that runs the system, instead of QEMU.
    pub serial: Option<SerialLine>,
    /// The board sends its trace, too, whenever the line is free.
    pub serial_trace: bool,
    /// Loads the image on the board. Without one the user does that.
    pub loader: Option<Loader>,
    /// Additional arguments of QEMU.
    pub qemu_args: Vec<OsString>,
    /// What the analysis bounds. What has no bound is not compared.
    pub bounds: RunBounds,
    /// The origin of the overheads behind `bounds`, which `run.json` records.
    pub overheads: Vec<OverheadSource>,
    /// Ends the run cleanly when it becomes true.
    pub interrupt: Arc<AtomicBool>,
}

impl RunOptions {
    /// Returns the options of a run that ends with the last expected line.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        Self { environment, ..Self::default() }
    }
}
