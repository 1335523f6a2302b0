//! PCI functions that are assigned to VMs.

mod functions;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Largest number of functions of a system.
pub const MAX_FUNCTIONS: usize = 16;
/// Bytes of a VM's configuration space: all buses, of which only the first has functions.
pub const ECAM_LEN: u64 = 256 << 20;
/// Limit of the stream numbers at the SMMU.
pub const STREAM_LIMIT: u32 = 256;

/// A PCI function that is assigned to a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PciFunction {
    /// Index of the VM in the table of VMs.
    pub vm: u32,
    /// Device and function on bus 0: bits 7:3 and 2:0.
    pub address: u32,
    /// Stream number of the function at the SMMU.
    pub stream: u32,
    /// Zero.
    pub reserved: u32,
    /// IPA of the VM's configuration space, the same for all of its functions.
    pub ecam: u64,
    /// Start of the range of its base addresses: physical and intermediate physical address.
    pub bars: u64,
    /// Length of that range in bytes.
    pub bars_len: u64,
}
