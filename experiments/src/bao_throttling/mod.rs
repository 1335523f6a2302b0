//! bao-throttling, chapters 4 and 5.

pub mod budgets;
pub mod dma;
pub mod tlb;

use crate::memory::board;
use crate::statement::Paper;
use weir_image::Result;
use weir_simulator::SimulatedBoard;

const PAPER: Paper = Paper("bao-throttling");
const MEMORY: &str = "zcu104";

/// The work of the channels of a DMA engine that interfere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Copies of a chunk each (section 5.3, and 5.4.1 with arrays of many pages).
    Simple,
    /// 16 bytes of each page of an array, from descriptors (section 5.4.2).
    Linked,
}

impl Mode {
    /// The keys of a workload that works in this mode: linked channels go through 4096 pages, the
    /// others through `simple`.
    fn keys(self, simple: &str) -> String {
        let work = match self {
            Self::Simple => simple,
            Self::Linked => "size = \"16MiB\", mode = \"linked\", piece = \"16B\"",
        };
        format!("{work}, gap = \"{DRIVER_NS}ns\"")
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Linked => "linked",
        }
    }
}

/// Time from the end of a transfer until the driver has started the next one. Fitted to Table 5.1,
/// the channel without interference; the thesis prints no other time of its driver.
const DRIVER_NS: u64 = 910;

/// The text of a VM in which `channels` of an engine work, with these keys of their workload.
fn dma_vm(engine: &str, core: u64, memory: &str, channels: u64, keys: &str) -> String {
    if channels == 0 {
        return String::new();
    }
    format!(
        "[[vm]]\nname = \"{engine}-channels\"\ncpus = [{core}]\nmemory = \"{memory}\"\n\
         image = {{ elf = \"memory-stressor\" }}\n\
         workload = {{ kind = \"dma\", engine = \"{engine}\", channels = {channels}, {keys} }}\n"
    )
}

/// The board of these VMs; the LPD's engine has this level of its regulator, and the L2 allocates
/// its lines if it is so set: the thesis' driver is taken to set the attributes that allocate.
fn board_of(vms: &str, level: u64, allocates: bool) -> Result<SimulatedBoard> {
    let values = [("dma.lpd.qos", level.to_string()), ("dma.lpd.allocates", allocates.to_string())];
    board(&format!("platform = \"zcu104\"\n{vms}"), MEMORY, &values)
}
