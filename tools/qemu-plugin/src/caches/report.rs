//! The output of the caches job, and sums over it.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::recorder::Recorded;

/// The owner of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerKind {
    /// The VM of this number, at EL1 or EL0.
    Vm(usize),
    /// EL2, on its own memory.
    Weir,
    /// EL2, on memory that lies in the VM's part: its RAM while it is loaded, its pristine image,
    /// its tables and state.
    WeirFor(usize),
    /// EL2 or firmware, on memory without an owner: where the loader put the image.
    Unowned,
}

impl OwnerKind {
    /// The VM that owns the part of memory, cache and banks in which it happens.
    #[must_use]
    pub fn vm(self) -> Option<usize> {
        match self {
            Self::Vm(vm) | Self::WeirFor(vm) => Some(vm),
            Self::Weir | Self::Unowned => None,
        }
    }
}

/// One row for each owner that did it, in it one count for each that it was done to.
pub type CountMatrix = Vec<Vec<u64>>;

/// The counts of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedAccesses {
    /// Whether a guest ran; nothing is counted before.
    pub started: bool,
    /// The owners of accesses; the rows and columns of the matrices.
    pub owners: Vec<OwnerCounts>,
    /// Lines that left an L1 data cache, by the owner of the access and the owner of the line.
    pub l1_evictions: CountMatrix,
    /// Lines that left the L2, by the owner of the access and the owner of the line.
    pub l2_evictions: CountMatrix,
    /// Closed rows, by the owner of the access and the owner of the row.
    pub rows_closed: CountMatrix,
    /// Where accesses at EL2 evicted VMs' lines from the L2 that were not on that VM's memory, by
    /// instruction and page; the 64 places with most evictions, in that order.
    pub intrusions: Vec<Intrusion>,
    /// How many more places there were.
    pub places_left_out: u64,
    /// Evictions at these.
    pub evictions_left_out: u64,
    /// The counts of VMs at their markers; the first 256 of these.
    pub marks: Vec<MarkerCounts>,
    /// Loads and stores that reached a device, which are no memory accesses.
    pub device_accesses: u64,
    /// Blocks of code outside of RAM, which were not counted.
    pub unseen_blocks: u64,
    /// Bytes that the machine had written to its console when this was counted.
    pub console_bytes: u64,
    /// Of each VM what was recorded; nothing if that was not asked for.
    pub recorded: Vec<Recorded>,
}

/// The counts of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerCounts {
    /// For people.
    pub name: String,
    /// The kind of owner.
    pub kind: OwnerKind,
    /// Loads and stores, by lines touched.
    pub accesses: u64,
    /// Those that missed the core's L1 data cache.
    pub l1_misses: u64,
    /// Fetches, by lines touched in each block of code that ran.
    pub fetches: u64,
    /// Those that missed the core's L1 instruction cache.
    pub l1i_misses: u64,
    /// Lookups in the L2.
    pub l2_accesses: u64,
    /// Those that missed it.
    pub l2_misses: u64,
    /// Lines read from and written to DRAM.
    pub dram_accesses: u64,
    /// Those to an open row.
    pub row_hits: u64,
}

/// A place at EL2 that evicted VMs' lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intrusion {
    /// Virtual address of the instruction; 0 if it was itself what was fetched.
    pub pc: u64,
    /// Physical address of the page that it touched.
    pub page: u64,
    /// Lines.
    pub count: u64,
}

/// A VM's counts when it executed a marker ([`crate::path`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkerCounts {
    /// The VM.
    pub vm: usize,
    /// The marker's number.
    pub number: u8,
    /// Loads and stores so far, by lines touched.
    pub accesses: u64,
    /// Those that missed the L1 data caches.
    pub l1_misses: u64,
    /// Lookups that missed the L2.
    pub l2_misses: u64,
}

impl ObservedAccesses {
    /// Events by one VM's accesses, or by EL2's on its memory, to what is another VM's.
    #[must_use]
    pub fn between_vms(&self, counts: &CountMatrix) -> u64 {
        self.sum(counts, |by, of| matches!((by.vm(), of.vm()), (Some(by), Some(of)) if by != of))
    }

    /// Events by EL2's accesses on its own memory or on memory without an owner, to what is a VM's.
    #[must_use]
    pub fn by_weir(&self, counts: &CountMatrix) -> u64 {
        self.sum(counts, |by, of| by.vm().is_none() && of.vm().is_some())
    }

    /// Events by a VM's accesses to what is the hypervisor's. Lines of memory without an owner,
    /// left from the boot, don't count.
    #[must_use]
    pub fn of_weir(&self, counts: &CountMatrix) -> u64 {
        self.sum(counts, |by, of| by.vm().is_some() && of == OwnerKind::Weir)
    }

    fn sum(&self, counts: &CountMatrix, counted: impl Fn(OwnerKind, OwnerKind) -> bool) -> u64 {
        let rows = self.owners.iter().zip(counts);
        rows.flat_map(|(by, row)| {
            self.owners.iter().zip(row).map(move |(of, count)| (by, of, count))
        })
        .filter(|(by, of, _)| counted(by.kind, of.kind))
        .map(|(.., count)| count)
        .sum()
    }

    /// The counts of `kind`.
    #[must_use]
    pub fn owner(&self, kind: OwnerKind) -> Option<&OwnerCounts> {
        self.owners.iter().find(|owner| owner.kind == kind)
    }

    /// Writes it as JSON. The file appears under its name when it is complete.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        crate::report::write(self, file)
    }

    /// Reads it back.
    ///
    /// # Errors
    /// Errors of the file system; `InvalidData` for a file that is something else.
    pub fn read(file: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }
}
