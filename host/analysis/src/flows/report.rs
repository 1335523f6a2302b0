//! One answer about a flow set, with everything that a person wants to see in addition to the
//! verdict.

use super::demand::{Analyzer, Effort, FailingInstant, MinBandwidth, Schedulability};
use super::task::{FlowError, TransformedTask};
use crate::units::BytesPerSec;

/// A flow after its transformation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskReport {
    /// The exact task.
    pub task: TransformedTask,
    /// C' at the bandwidth asked, ns.
    pub c_ns: f64,
    /// D', ns.
    pub d_ns: f64,
    /// P', ns.
    pub p_ns: f64,
    /// J', ns.
    pub j_ns: f64,
    /// q' at the bandwidth asked, ns.
    pub q_ns: f64,
    /// The least t - Q - DBF over the flow's own deadlines, ns; `None` if U' > 1 or it was not
    /// found in time.
    pub slack_ns: Option<f64>,
}

/// The results of the analysis of a flow set.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSetReport {
    /// Whether it is schedulable at the bandwidth asked.
    pub verdict: Schedulability,
    /// The earliest instant at which it fails, if it does.
    pub first_failure: Option<FailingInstant>,
    /// The smallest bandwidth that would do.
    pub min_bandwidth: MinBandwidth,
    /// U' at the bandwidth asked; `None` where a flow is left no period.
    pub utilization: Option<f64>,
    /// One a flow, in their order.
    pub tasks: Vec<TaskReport>,
}

/// Analyzes tasks next to best effort, see [`Analyzer::new`], with its own effort for the slacks.
///
/// # Errors
///
/// If the bandwidth is 0 or over 1 PiB/s.
pub fn report(
    tasks: &[TransformedTask],
    best_effort: &[TransformedTask],
    bandwidth: BytesPerSec,
    effort: Effort,
    slack: Effort,
) -> Result<FlowSetReport, FlowError> {
    let mut analyzer = Analyzer::new(tasks, best_effort);
    let verdict = analyzer.verdict(bandwidth, effort)?;
    let first_failure = match verdict {
        Schedulability::Unschedulable(_) => analyzer.first_failure(bandwidth, effort)?,
        _ => None,
    };
    let slack = analyzer.slack(bandwidth, slack)?;
    // A lower bound of what the verdict has shown not to be negative.
    let none = if verdict == Schedulability::Schedulable { 0.0 } else { f64::NEG_INFINITY };
    Ok(FlowSetReport {
        verdict,
        first_failure,
        min_bandwidth: analyzer.min_bandwidth(effort),
        utilization: analyzer.utilization(bandwidth),
        tasks: tasks
            .iter()
            .zip(slack)
            .map(|(task, slack_ns)| TaskReport {
                task: *task,
                c_ns: task.wcet.nanos(bandwidth),
                d_ns: task.deadline.as_nanos_f64(),
                p_ns: task.period.as_nanos_f64(),
                j_ns: task.jitter.as_nanos_f64(),
                q_ns: task.blocking_nanos(bandwidth),
                slack_ns: slack_ns.map(|slack: f64| slack.max(none)),
            })
            .collect(),
    })
}
