//! The tasks of a VM.

use crate::fault::FilePlace;
use weir_units::Nanos;

/// A task of a VM.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// WCET without interference.
    pub wcet: Nanos,
    /// Least time between two activations.
    pub period: Nanos,
    /// Relative deadline.
    pub deadline: Nanos,
    /// Release jitter.
    pub jitter: Nanos,
    /// Blocking by lower priorities.
    pub blocking: Nanos,
    /// Its core; without it the VM's first.
    pub core: Option<u64>,
    /// Its own accesses in an activation.
    pub accesses: Option<u64>,
    /// Its header.
    pub place: FilePlace,
}
