//! The results of a run, as `report.json` has them.
//!
//! The report does not depend on the host: the same bytes on the wire give the same report.

mod engine;
mod facts;
mod fault;
mod finding;
mod flow;
mod read;
mod report;
mod vm;

pub use engine::EngineRun;
pub use facts::{CoreCounts, GuestPackage, RunFacts, TraceSize};
pub use fault::{DeniedOperation, FAULTS_LISTED, FaultReport, RefusedDma};
pub use finding::{
    BudgetFinding, Clock, Finding, InterruptFinding, Latency, MissedActivation, TaskFinding,
};
pub use flow::{FlowRun, LatencyBucket};
pub(crate) use read::read_json;
pub use read::{read_report, read_run_file};
pub use report::{CoreRun, Counted, End, RunReport, Totals};
pub use vm::{ConsoleCounts, Expected, FrameCounts, State, VcpuRun, VmRun};
