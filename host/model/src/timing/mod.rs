//! The parts of a system that the analysis needs: flows, budgets, schedules, tasks. `weir analyze`
//! and `weir plan` need no others, so a file without images or cores is good enough for them.

pub(crate) mod engine;
pub(crate) mod flow;
pub(crate) mod memory_budget;
pub(crate) mod schedule;
pub(crate) mod task;
pub(crate) mod workload;

pub use crate::fault::FilePlace;
pub use crate::keys::workload::KERNELS;
pub use crate::measured::{
    Interference, Larger, MeasuredOn, Origin, Overhead, OverheadTable, OverheadValues, Saturation,
    Sharing,
};
pub use engine::{Crossover, Movers, qos_bandwidth};
pub use flow::{DEFAULT_CHUNK, DEFAULT_PORT, DataPath, Dma, Flow, PathSource};
pub use memory_budget::MemoryBudget;
pub use schedule::{Class, Entity, Schedule, SharedCore, TimedLine};
pub use task::Task;
pub use workload::{Mode, Network, Transfers, Workload, WorkloadKind, WorkloadPhase};
