//! The board's SMMU: what its devices reach of memory.
//!
//! A device's accesses are a *stream*; what a VM's devices reach is a *domain*. A stream that is
//! attached to no domain is aborted.

mod v3;

pub use v3::{attach, detach, init, take_faults};

use weir_units::{Pa, VmId};

/// What the devices of a VM reach.
#[derive(Clone, Copy, Debug)]
pub struct Domain {
    /// The VM.
    pub vm: VmId,
    /// Its tables, of the format that [`init`] gave.
    pub root: Pa,
}

impl Domain {
    /// Tells its cached translations from others': above 0.
    fn id(&self) -> u16 {
        u16::from(self.vm.0) + 1
    }
}

/// The SMMU did not complete its commands.
#[derive(Clone, Copy, Debug)]
pub struct Silent;
