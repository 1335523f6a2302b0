//! The analysis of a system file: flows, memory budgets, schedules, tasks and interrupts.
//!
//! The layers, each of which uses those before it only: `mover`, `regulation`, `limits`, `supply`,
//! `cause` and `suggestion` (why something does not hold, and what to change), `flows`,
//! `own_budget`, `budgets` and `tasks` (the bounds), `report`.

mod budgets;
mod cause;
mod flow_report;
mod flows;
mod limits;
mod mover;
mod options;
mod overheads;
mod own_budget;
mod regulation;
mod report;
mod suggestion;
mod supply;
mod tasks;
#[cfg(test)]
mod tests;
mod uncounted;

pub use budgets::{BudgetBound, MemoryReport};
pub use flow_report::{FlowAssumptions, FlowBound, FlowsReport, MinBandwidthIs};
pub use flows::{Bounds, OtherVms, bounds, end_to_end, quiet_bounds};
pub use options::Options;
pub use overheads::{OverheadSource, overhead_sources};
pub use report::{CheckRules, Report, analyze, check};
pub use supply::supply;
pub use tasks::{CoreSupply, InterruptBound, TaskBound, TimeReport, VmSupply, supplies, times};

pub(crate) use crate::flows::Mover;
pub(crate) use flows::{GaveUp, hold, least, path};
pub(crate) use limits::{Limits, forgiven, saturation};
pub(crate) use regulation::regulation;
pub(crate) use report::analyze_timing;
pub(crate) use supply::{guaranteed, is_kept};
pub(crate) use tasks::tasks;

use serde::Serializer;
use weir_model::Fault;

/// Serializes faults as their messages.
fn messages<S: Serializer>(faults: &[Fault], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(faults.iter().map(|fault| &fault.message))
}
