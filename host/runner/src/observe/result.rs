//! What was seen, in a JSON result.

use super::record::AccessTrace;
use crate::report::End;
use schemars::JsonSchema;
use serde::Serialize;
use weir_qemu_plugin::caches::CountMatrix;

/// The accesses to memory that were seen of a system.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ObservationRecord {
    /// The name of the system file without its extension.
    pub system: String,
    /// Why the run ended.
    pub ended_by: End,
    /// The last time that was reported, in ns since the hypervisor started.
    pub time_ns: u64,
    /// Whether the run was good and a guest started.
    pub as_expected: bool,
    /// Whether a guest started; nothing is counted before.
    pub guest_started: bool,
    /// The owners of accesses; the rows and columns of `matrices`.
    pub owners: Vec<OwnerRecord>,
    /// Evictions from the shared cache.
    pub evictions: IsolationSums,
    /// Evictions from L1 data caches.
    pub l1_evictions: IsolationSums,
    /// Closed DRAM rows.
    pub row_conflicts: IsolationSums,
    /// The counts per pair of owners.
    pub matrices: Matrices,
    /// Where the hypervisor evicted lines of VMs that were not on that VM's memory, the places with
    /// most evictions first.
    pub intrusions: Vec<IntrusionRecord>,
    /// The further places.
    pub intrusions_left_out: LeftOut,
    /// The counts of VMs at their markers.
    pub marks: Vec<MarkRecord>,
    /// Loads and stores that reached a device, which are no memory accesses.
    pub device_accesses: u64,
    /// Blocks of code outside of RAM, which were not counted.
    pub unseen_blocks: u64,
    /// The traces of `--record`.
    pub recorded: Vec<AccessTrace>,
    /// What the model does not count.
    pub not_seen: Vec<&'static str>,
}

/// The counts of an owner, in lines.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OwnerRecord {
    /// A name for people.
    pub name: String,
    /// `vm`, `weir` (on its own memory), `weir-for-vm` (on a VM's part) or `elsewhere`.
    pub kind: &'static str,
    /// Loads and stores.
    pub accesses: u64,
    /// Those that missed the core's L1 data cache.
    pub l1_misses: u64,
    /// Fetches.
    pub fetches: u64,
    /// Those that missed the core's L1 instruction cache.
    pub l1i_misses: u64,
    /// Lookups in the shared cache.
    pub l2_accesses: u64,
    /// Those that missed it.
    pub l2_misses: u64,
    /// Lines read from and written to DRAM.
    pub dram_accesses: u64,
    /// Those to an open row.
    pub row_hits: u64,
    /// The VM, of `vm` and `weir-for-vm`.
    pub vm: Option<String>,
}

/// Events across the boundaries of isolation.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct IsolationSums {
    /// By a VM to what is another VM's.
    pub between_vms: u64,
    /// By the hypervisor, on its own memory, to what is a VM's.
    pub of_vms_by_weir: u64,
    /// By a VM to what is the hypervisor's.
    pub of_weir_by_vms: u64,
}

/// Counts with a row for each owner that did it, and in it one count for each owner that it was
/// done to.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Matrices {
    /// Lines that left an L1 data cache.
    pub l1_evictions: CountMatrix,
    /// Lines that left the shared cache.
    pub l2_evictions: CountMatrix,
    /// Closed DRAM rows.
    pub rows_closed: CountMatrix,
}

/// A place at which the hypervisor evicted lines of VMs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IntrusionRecord {
    /// The virtual address of the instruction, in hexadecimal; none if it was itself what was
    /// fetched.
    pub pc: Option<String>,
    /// The function of the hypervisor.
    pub function: Option<String>,
    /// The physical address of the page that it touched, in hexadecimal.
    pub page: String,
    /// Evicted lines.
    pub count: u64,
}

/// What is not among `intrusions`.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct LeftOut {
    /// Further places.
    pub places: u64,
    /// Evictions there.
    pub evictions: u64,
}

/// The counts of a VM when it executed a marker, in lines.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MarkRecord {
    /// The VM.
    pub vm: String,
    /// The number of the marker.
    pub marker: u8,
    /// Loads and stores so far.
    pub accesses: u64,
    /// Those that missed the L1 data caches.
    pub l1_misses: u64,
    /// Lookups that missed the shared cache.
    pub l2_misses: u64,
}
