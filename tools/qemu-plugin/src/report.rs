//! The file that the plug-in writes, and its readers read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The counts of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountReport {
    /// Instructions of all vCPUs before the first marker 0, without the next ones; none if no guest
    /// came that far.
    pub boot_instructions: Option<u64>,
    /// Instructions of all vCPUs before the first marker 0 by which EL2 cleared the RAM of VMs.
    pub clearing_instructions: Option<u64>,
    /// The longest non-preemptible section of EL2, in instructions. EL2 runs with interrupts
    /// masked, so this bounds the delay of an interrupt: from a vector, or a wait or a read of
    /// ICC_IAR1_EL1 inside EL2, to the next of those or the ERET. Each vCPU's first stretch, its
    /// boot, is left out, and so is what follows the last instruction of a guest.
    pub longest_masked: Option<Longest>,
    /// By number of the vCPU.
    pub vcpus: Vec<VcpuInstructions>,
    /// By name of the path ([`crate::path::name`]); only paths that were marked or taken.
    pub paths: BTreeMap<String, PathReport>,
}

/// The longest stretch with interrupts masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Longest {
    /// Its length.
    pub instructions: u64,
    /// The path that it belongs to.
    pub path: String,
    /// The vCPU that it ran on.
    pub vcpu: usize,
}

/// Everything that one vCPU executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuInstructions {
    /// Instructions at EL2, those before the first guest included.
    pub el2_instructions: u64,
    /// Instructions of guests.
    pub guest_instructions: u64,
    /// The share of both that was executed before the first marker 0, without the clearing of RAM.
    pub boot_instructions: u64,
}

/// The stretches of one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Number of markers. A path with markers and no stretch costs no EL2 instruction.
    pub marks: u64,
    /// Number of stretches.
    pub n: u64,
    /// Instructions from the first at EL2 to the ERET, both included.
    pub instructions: Summary,
    /// Median of the barriers (DSB, DMB, ISB, SB) in a stretch.
    pub barriers: u64,
    /// Median of the TLBI, DC and IC operations in a stretch.
    pub maintenance: u64,
    /// Median of the instructions in a stretch that read or wrote a device.
    pub device_accesses: u64,
    /// Median of the accesses to GIC CPU interface registers in a stretch.
    pub gic_sysregs: u64,
}

/// The distribution of one quantity over the stretches of a path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The least.
    pub min: u64,
    /// The median; of an even number of values the lower one in the middle.
    pub median: u64,
    /// The greatest.
    pub max: u64,
    /// The arithmetic mean.
    pub mean: f64,
}

impl CountReport {
    /// Writes the report as JSON. The file appears under its name when it is complete.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        write(self, file)
    }

    /// Reads a report back.
    ///
    /// # Errors
    /// Errors of the file system; `InvalidData` for a file that is no report.
    pub fn read(file: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }
}

/// Writes `contents` as JSON, atomically.
pub(crate) fn write(contents: &impl Serialize, file: &Path) -> io::Result<()> {
    let mut unfinished = file.as_os_str().to_owned();
    unfinished.push(format!(".{}.tmp", std::process::id()));
    let mut text = serde_json::to_string_pretty(contents)?;
    text.push('\n');
    fs::write(&unfinished, text)?;
    fs::rename(&unfinished, file).inspect_err(|_| {
        // Best effort: the error to report is the one of the rename.
        let _ = fs::remove_file(&unfinished);
    })
}
