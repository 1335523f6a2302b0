//! The VMs of a board.

use crate::{budget::Counter, trace::Traces};
use weir_budget::Setting;
use weir_model::timing::Workload;

/// A vCPU.
#[derive(Clone, Debug)]
pub(crate) struct Vcpu {
    pub core: usize,
    /// How it is regulated, by what counters, and with which of the [`weir_budget::GroupBudget`].
    pub regulation: Option<(Setting, [Counter; 2], usize)>,
}

/// A VM.
#[derive(Clone, Debug)]
pub(crate) struct Vm {
    pub name: String,
    pub vcpus: Vec<Vcpu>,
    pub workload: Option<Workload>,
    /// The trace that each vCPU replays, if any.
    pub traces: Traces,
    /// Its RAM, by the physical addresses of its pages.
    pub pages: Vec<u64>,
    /// The addresses by which it and its devices access these pages.
    pub addresses: Vec<u64>,
    /// The DMA engine that works for it, the first of its channels there, and the bytes of a
    /// descriptor.
    pub engine: Option<(usize, usize, u64)>,
}
