//! The flows of rt-virtio's Table III in runs, each with the shortest period that weir's analysis
//! accepts, for `weir bench engine`.

use super::flows::{Case, exactly, load};
use crate::{
    environment::Environment,
    failure::{Failure, Result},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use weir_analysis::{
    Nanos, check,
    system::{OtherVms, quiet_bounds},
    verdict::Verdict,
};
use weir_experiments::{Table3Flow, table3_flows, write_changed};
use weir_model::{System, platform::Machine};
use weir_runner::report::FlowRun;

/// The board of the runs.
pub const PLATFORM: &str = "zcu102";
/// A flow of Table III, and what the others have instead.
pub const TABLE3: &str = "flows-table3";
/// The size of its packets, as its file has it.
pub const SIZE: &str = "12288";
const BANDWIDTH: &str = "\"148MB/s\"";
const PERIOD: &str = "period = \"150us\"";
const SENT: &str = "period_ns=150000";
/// The data paths, each with the keys that choose it.
pub const MOVED: [(&str, &str); 2] =
    [("dma", "path = \"dma\"\nengine_from = \"0B\""), ("broker", "path = \"broker\"")];
/// The interference of other VMs for which a period allows. The paper's analysis knows none that
/// misbehave.
const OTHERS: [OtherVms; 2] = [OtherVms::Quiet, OtherVms::Active];

/// A flow of Table III and its runs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Table3Row {
    /// The published values, and the smallest periods by the paper's constants.
    #[serde(flatten)]
    pub flow: Table3Flow,
    /// The runs.
    pub runs: Vec<Table3Run>,
}

/// A run of a flow of Table III.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Table3Run {
    /// The data path: `dma` or `broker`.
    pub path: String,
    /// The interference of other VMs for which the period allows.
    pub others: OtherVms,
    /// The period, which is the deadline, too, in ns.
    pub period_ns: u64,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Packets that arrived after their deadline.
    pub late: u64,
    /// The greatest latency in ns.
    pub observed_max_ns: u64,
    /// The bound on the latency in ns.
    pub bound_ns: Option<u64>,
    /// The verdict on the run.
    pub verdict: Option<Verdict>,
}

/// The number of runs of [`measure`].
pub fn runs() -> usize {
    table3_flows().len() * OTHERS.len() * MOVED.len()
}

/// Runs each flow by each data path next to VMs that do nothing, and next to VMs that do what they
/// may. Returns the rows, and the runs that do not hold; `done` is called after each run.
pub fn measure(
    scratch: &Path,
    environment: &Environment,
    mut done: impl FnMut(),
) -> Result<(Vec<Table3Row>, Vec<String>)> {
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for flow in table3_flows() {
        let mut runs = Vec::new();
        for (moved, others) in MOVED.into_iter().flat_map(|moved| OTHERS.map(|of| (moved, of))) {
            let found = latencies(flow, moved, others, scratch, environment)?;
            if found.verdict != Some(Verdict::Holds) {
                failures.push(format!("{}: {found:?}", name(flow, moved.0)));
            }
            runs.push(found);
            done();
        }
        rows.push(Table3Row { flow, runs });
    }
    Ok((rows, failures))
}

/// Runs a flow of Table III by a data path, with the shortest period that weir's analysis accepts
/// for the emulated board next to such `others`.
fn latencies(
    flow: Table3Flow,
    (path, keys): (&str, &str),
    others: OtherVms,
    scratch: &Path,
    environment: &Environment,
) -> Result<Table3Run> {
    let size = flow.size.to_string();
    let bandwidth = format!("\"{}MB/s\"", flow.in_table().0);
    let name = name(flow, path);
    let mut changes = vec![(SIZE, &*size), (BANDWIDTH, &bandwidth), (MOVED[0].1, keys)];
    let file = scratch.join(&name).with_extension("toml");
    let write =
        |changes: &[_]| write_changed(&environment.system(TABLE3)?, changes.iter().copied(), &file);
    write(&changes)?;
    let system = load(&file, Some(PLATFORM), Machine::Qemu, environment)?;
    let (period, quiet) = shortest_period(system, others)
        .ok_or_else(|| Failure::system(format!("{}: no period is long enough", file.display())))?;
    let with_period = format!("period = \"{period}ns\"");
    let sent = format!("period_ns={period}");
    changes.extend([(PERIOD, &*with_period), (SENT, &sent)]);
    write(&changes)?;
    let case = Case::on(TABLE3, PLATFORM);
    let case = if quiet.is_some() { case.unjudged() } else { case };
    let run = exactly(&file, &case, environment)?;
    let found = run.report.flows.first();
    let found = found.ok_or_else(|| Failure::system(format!("{name}: the run has no flow")))?;
    Ok(described(path, period, quiet, found))
}

/// The bound of the system's one flow next to VMs that do nothing, if it is within its deadline.
fn quiet_bound(system: &System) -> Option<u64> {
    let deadline = system.flows.first()?.deadline?;
    let bound = quiet_bounds(system).into_iter().next()??;
    (bound <= deadline.0).then_some(bound)
}

/// The file's name for a flow of Table III by a data path.
fn name(flow: Table3Flow, path: &str) -> String {
    let (megabytes, kib) = flow.in_table();
    format!("{TABLE3}-{megabytes}-{kib}-{path}")
}

/// Describes the run of a flow. If it has a bound next to `quiet` VMs, that judges it, and else the
/// run's own finding does.
fn described(path: &str, period: u64, quiet: Option<u64>, run: &FlowRun) -> Table3Run {
    let verdict = match quiet {
        None => run.finding.as_ref().map(|finding| finding.verdict),
        Some(bound) if run.observed_max_ns <= bound && run.lost + run.late == 0 => {
            Some(Verdict::Holds)
        }
        Some(_) => Some(Verdict::DoesNotHold),
    };
    Table3Run {
        path: path.to_owned(),
        others: if quiet.is_some() { OtherVms::Quiet } else { OtherVms::Active },
        period_ns: period,
        packets: run.packets,
        lost: run.lost,
        late: run.late,
        observed_max_ns: run.observed_max_ns,
        bound_ns: quiet.or(run.bound_ns),
        verdict,
    }
}

/// Returns the shortest period, which is the deadline, too, with which a system of one flow holds
/// next to such `others`, in ns, and the flow's bound then if they are quiet. By halving: a longer
/// period is never worse.
fn shortest_period(mut system: System, others: OtherVms) -> Option<(u64, Option<u64>)> {
    let mut judged = |period: u64| {
        for flow in &mut system.flows {
            (flow.period, flow.deadline) = (Some(Nanos(period)), Some(Nanos(period)));
        }
        match others {
            OtherVms::Quiet => quiet_bound(&system).map(Some),
            OtherVms::Active => check(&system).is_ok().then_some(None),
        }
    };
    let (mut bad, mut good) = (0, 1 << 30);
    let mut quiet = judged(good)?;
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        match judged(middle) {
            Some(bound) => (good, quiet) = (middle, bound),
            None => bad = middle,
        }
    }
    Some((good, quiet))
}
