//! The board's SMMU, which limits the memory that devices can reach.
//!
//! The accesses of a device are a *stream*; the memory that the devices of a VM can reach is a
//! *domain*. The SMMU aborts accesses of a stream that is attached to no domain.

mod v3;

pub use v3::{attach, detach, init, take_faults};

use weir_units::{Pa, VmId};

/// The memory that the devices of a VM can reach.
#[derive(Clone, Copy, Debug)]
pub struct Domain {
    /// The VM.
    pub vm: VmId,
    /// The VM's translation tables, in the format that [`init`] returned.
    pub root: Pa,
}

impl Domain {
    /// Returns the identifier that tags the domain's cached translations; it is above 0.
    fn id(&self) -> u16 {
        u16::from(self.vm.0) + 1
    }
}

/// The SMMU did not complete its commands in time.
#[derive(Clone, Copy, Debug)]
pub struct Silent;
