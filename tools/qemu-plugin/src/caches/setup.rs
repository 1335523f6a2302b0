//! The input of the caches job: the chip, the VMs of each core, and the owner of each page.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_memory::cache::{CacheConfig, Replacement};
use weir_memory::dram::{AddressFields, AddressMap};
use weir_memory::hierarchy::{Hierarchy, HierarchyConfig, L2Config, L2Sharing};
use weir_memory::units::Bytes;

use super::recorder::RecordingLimit;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The file behind the argument `caches`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The VMs' names.
    pub vms: Vec<String>,
    /// For each core the places in `vms` of those that run there. Of several an access is that of
    /// the page's owner.
    pub cores: Vec<Vec<usize>>,
    /// Each core's L1 data cache.
    pub l1d: CacheShape,
    /// Each core's L1 instruction cache.
    pub l1i: CacheShape,
    /// The L2 that all cores share.
    pub l2: CacheShape,
    /// For each bit of a DRAM bank's number the address bits that it is the XOR of; none if banks
    /// are not to be counted.
    pub banks: Vec<u64>,
    /// Bytes of a row of a bank.
    pub row: u64,
    /// Physical address of the first byte of RAM.
    pub ram: u64,
    /// Bytes of RAM.
    pub ram_len: u64,
    /// Physical address of the data register of the UART that is the machine's console; what was
    /// seen is kept for each byte that is written there.
    pub uart: Option<u64>,
    /// The owners of its pages. Pages that are not listed have no owner.
    pub pages: Vec<PageRun>,
    /// The recording to make of the VMs' accesses, if anything.
    pub record: Option<RecordingLimit>,
}

/// A cache's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheShape {
    /// Its bytes.
    pub size: u64,
    /// Lines of a set.
    pub ways: u32,
    /// Bytes of a line.
    pub line: u64,
}

/// Pages that follow each other and have one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRun {
    /// Physical address of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The VM by its place in [`Setup::vms`]; the hypervisor's without one.
    pub vm: Option<usize>,
}

impl CacheShape {
    fn config(self) -> CacheConfig {
        CacheConfig {
            size: Bytes(self.size),
            ways: self.ways,
            line: Bytes(self.line),
            replacement: Replacement::Lru,
        }
    }
}

impl Setup {
    /// Reads the file.
    ///
    /// # Errors
    /// Errors of the file system; `InvalidData` for a file that is none.
    pub fn read(file: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }

    /// Empty caches and closed rows, counting for `owners` owners.
    ///
    /// # Errors
    /// A sentence about what does not fit.
    pub(super) fn hierarchy(&self, owners: usize) -> Result<Hierarchy, String> {
        // Rows need every address bit up to RAM's end.
        let bits = u64::BITS - (self.ram + self.ram_len).leading_zeros();
        let fields = AddressFields::from_banks(self.banks.clone(), self.row.trailing_zeros(), bits);
        let dram = if self.banks.is_empty() { None } else { Some(AddressMap::new(fields)) };
        let config = HierarchyConfig {
            cores: self.cores.len(),
            owners,
            l1d: self.l1d.config(),
            l1i: Some(self.l1i.config()),
            l2: Some(L2Config {
                cache: self.l2.config(),
                sharing: L2Sharing::Shared,
                inclusive: false,
            }),
            dram: dram.transpose().map_err(|error| error.to_string())?,
        };
        Hierarchy::new(config).map_err(|error| error.to_string())
    }
}
