//! PCI functions that VMs were given.

mod functions;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most functions of a system.
pub const MAX_FUNCTIONS: usize = 16;
/// Bytes of a VM's configuration space: all buses, of which the first has functions.
pub const ECAM_LEN: u64 = 256 << 20;
/// One above the highest stream at the SMMU.
pub const STREAM_LIMIT: u32 = 256;

/// A PCI function that a VM was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PciFunction {
    /// The VM's place in the table of VMs.
    pub vm: u32,
    /// Device and function on bus 0: bits 7:3 and 2:0.
    pub address: u32,
    /// Its number at the SMMU.
    pub stream: u32,
    /// Zero.
    pub reserved: u32,
    /// IPA of the VM's configuration space, the same for all of its functions.
    pub ecam: u64,
    /// Where its base addresses are: physical and intermediate physical address.
    pub bars: u64,
    /// How many bytes they may take.
    pub bars_len: u64,
}
