//! The report of a run: the result of each VM and flow, as JSON and as a table.
//!
//! The report does not depend on the host: the same bytes on the wire give the same report.

mod engine;
mod event;
mod fault;
mod flow;
#[cfg(test)]
mod page;
mod run;
mod tally;
#[cfg(test)]
mod tests;
mod vm;

pub use engine::EngineRun;
pub(crate) use event::{WITHOUT_BROKER, in_words};
pub use fault::{FAULTS_LISTED, FaultReport, RefusedDma};
pub(crate) use flow::FlowFacts;
pub use flow::FlowRun;
pub use run::{Counted, End, RunReport, Totals};
pub(crate) use tally::{Tally, TaskFacts, VmFacts};
pub use vm::{ConsoleCounts, Expected, FrameCounts, State, VcpuRun, VmRun};
