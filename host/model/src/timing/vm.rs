//! A file's values of the time and bandwidth of a VM.

use super::memory_budget::MemoryBudget;
use super::workload::Workload;
use crate::fault::FilePlace;
use crate::object::named;
use weir_units::{Bytes, Nanos};

/// A VM's demands.
#[derive(Clone, Debug)]
pub struct TimedVm {
    /// Its name.
    pub name: String,
    /// The cores of its vCPUs, as far as the file states.
    pub cpus: Vec<u64>,
    /// Its RAM, if the file sets it.
    pub memory: Option<Bytes>,
    /// 0 is best effort.
    pub criticality: u64,
    /// What should stay in its part of the cache.
    pub working_set: Option<Bytes>,
    /// Its memory budget.
    pub memory_budget: Option<MemoryBudget>,
    /// Its tasks by falling priority.
    pub tasks: Vec<Task>,
    /// Whether it has a port of the switch.
    pub has_port: bool,
    /// What it does to memory in a simulation.
    pub workload: Option<Workload>,
    /// The names of the board's devices that it has; none for the rest of them.
    pub(crate) devices: Option<Vec<String>>,
    /// Whether the file sets its image: then it has no devices but these.
    pub(crate) built: bool,
    /// Its header.
    pub place: FilePlace,
}

named! { TimedVm: vm(name) }

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
