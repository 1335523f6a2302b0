//! The report on the flows of a system.

use super::{
    Options, messages,
    overheads::{OverheadSource, overhead_sources},
    supply::{Absence, receivers_absence},
};
use crate::{
    BytesPerSec, HalfNanos, Nanos,
    flows::{
        Analyzer, Effort, FailingInstant, InputError, MinBandwidth, Mover, Schedulability,
        TransformedTask, UnschedulableCause,
    },
    verdict::{Judgement, Missing, Verdict},
};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use weir_model::{
    Code, Fault, System,
    timing::{Crossover, DataPath, PathSource},
};

/// The bounds of the flows.
///
/// Primed values are those of the task that moves a flow's bytes: C' its execution time, D' its
/// deadline, P' its period, J' its release jitter, q' its longest section without preemption
/// (rt-virtio, Section V; `docs/theory/analysis.md`, Symbols).
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct FlowsReport {
    /// Whether each flow is shown to meet its deadline at the bandwidth judged: each `slack_ns` is
    /// at least 0.
    pub schedulable: bool,
    /// The verdict on all flows.
    pub verdict: Verdict,
    /// The greatest U' of a core that moves flows; none if nothing was judged, or a flow is left no
    /// period.
    pub utilization: Option<f64>,
    /// The bandwidth that was judged, in bytes/s; none if none is given and none was found.
    pub bandwidth: Option<u64>,
    /// The least sufficient bandwidth in bytes/s, if it was found and there is one.
    pub min_bandwidth: Option<u64>,
    /// What `min_bandwidth` is.
    pub min_bandwidth_is: MinBandwidthIs,
    /// The first instant at which demand exceeds time, in ns.
    pub first_failure_ns: Option<f64>,
    /// The demand at this instant, in words.
    pub first_failure: Option<String>,
    /// Why the flows do not hold, or what was not shown within the effort.
    #[serde(rename = "reasons", serialize_with = "messages")]
    #[schemars(with = "Vec<String>")]
    pub causes: Vec<Fault>,
    /// Whether the effort was spent before everything was shown.
    pub gave_up: bool,
    /// Whether it was spent before some latency bound was found.
    pub bounds_gave_up: bool,
    /// The assumptions of the verdict.
    pub assumed: FlowAssumptions,
    /// The flows that have a deadline, in the order of the file.
    #[serde(rename = "tasks")]
    pub flows: Vec<FlowBound>,
    /// If the search for the least bandwidth gave up: no less is enough, in bytes/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_bandwidth_at_least: Option<u64>,
    /// If it gave up: this is enough, in bytes/s; the inner value is none if nothing was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_bandwidth_enough: Option<Option<u64>>,
    /// The chunk size in bytes from which a DMA engine is faster than a copy by a core; the inner
    /// value is none if it never is, the outer one if an input is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dma_better_from_bytes: Option<Option<u64>>,
    /// Why `verdict` is not that on the system: the overheads are not those of the data path that
    /// weir builds.
    #[serde(skip)]
    pub of_another_hypervisor: Option<Missing>,
    /// Whether the file or the caller gives the bandwidth.
    #[serde(skip)]
    pub is_bandwidth_given: bool,
    /// Whether the demand is shown to exceed the time and the first instant was not found.
    #[serde(skip)]
    pub is_failure_unknown: bool,
    /// Why no bandwidth is enough.
    #[serde(skip)]
    pub no_bandwidth: Option<String>,
}

/// The knowledge of the least sufficient bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MinBandwidthIs {
    /// The exact one.
    Exact,
    /// No bandwidth is enough.
    None,
    /// The search gave up.
    GivenUp,
}

/// A flow after its transformation (rt-virtio Eq. 3, 4 and 19 to 27), and its bounds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowBound {
    /// The flow.
    pub name: String,
    /// C' at the bandwidth judged, in ns.
    pub c_ns: f64,
    /// D' in ns.
    pub d_ns: f64,
    /// P' in ns.
    pub p_ns: f64,
    /// J' in ns.
    pub j_ns: f64,
    /// q' at the bandwidth judged, in ns.
    pub q_ns: f64,
    /// The relative deadline of the file, or its default, in ns; none for best effort.
    pub deadline_ns: Option<u64>,
    /// The least slack over the deadlines of the flow, in ns; the flow holds if it is not negative.
    /// None if it was not found. `bound_ns` plus slack is not the deadline: the test is stricter.
    pub slack_ns: Option<f64>,
    /// The latency bound in ns, if the broker moves the flow: from the later of notification and
    /// eligibility to the interrupt of the receiver, on concurrent cores, and until a receiver on a
    /// shared core has that core. The verdict is by `slack_ns`, a sufficient test that is stricter:
    /// a flow may not hold although this bound is below its deadline. A flow with `absence_ns` must
    /// have this bound within its deadline, too. None if no bound exists or an input is missing.
    pub bound_ns: Option<u64>,
    /// The part of `bound_ns` from the interrupt until a receiver on a shared core has that core:
    /// its longest absence by the schedule, with EL2's work for other VMs. None if no receiver
    /// shares a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absence_ns: Option<u64>,
    /// The bound in ns if the DMA engine of rt-virtio moves the flow: from the notification until
    /// the receiver has handled its interrupt.
    pub end_to_end_ns: Option<u64>,
    /// The position of the flow in the file.
    #[serde(skip)]
    pub position: usize,
}

/// The assumptions of a verdict on flows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowAssumptions {
    /// The mover of the bytes.
    #[serde(serialize_with = "path_key")]
    #[schemars(with = "String")]
    pub data_path: DataPath,
    /// Why it is this path.
    pub data_path_from: String,
    /// How the cores run: always `concurrent`.
    pub cores: &'static str,
    /// Where the bandwidth comes from.
    pub bandwidth_from: &'static str,
    /// The bandwidth of the copy in bytes/s, if a core copies.
    pub copy_bandwidth: Option<u64>,
    /// Bytes between two decisions.
    pub chunk: u64,
    /// The least bytes of a chunk that the engine of weir's broker moves, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_from: Option<u64>,
    /// The kind of the overheads: always `measured`.
    pub overheads_are: &'static str,
    /// Where the overheads come from.
    pub overheads: Vec<OverheadSource>,
    /// The build of the hypervisor that the overheads are compared with.
    pub build: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn path_key<S: Serializer>(path: &DataPath, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(path.name())
}

/// The effort of slacks, which are for information only.
const SLACK: u64 = 1 << 25;

/// The flows as tasks of the core that moves them.
#[derive(Debug)]
pub(super) struct Part {
    /// Positions of the flows of the tasks, and behind them those of best effort.
    pub flows: Vec<usize>,
    pub tasks: Vec<TransformedTask>,
    pub best_effort: Vec<TransformedTask>,
    /// The answers at the bandwidth judged.
    judged: Option<Judged>,
    /// The least bandwidth.
    pub least: MinBandwidth,
}

/// The answers on tasks at a bandwidth.
#[derive(Debug)]
struct Judged {
    bandwidth: BytesPerSec,
    verdict: Schedulability,
    /// The earliest instant at which the tasks fail, if they do.
    first_failure: Option<FailingInstant>,
    /// U'; none where a flow is left no period.
    utilization: Option<f64>,
    /// The least t - Q - DBF over each task's own deadlines, in ns; none if U' > 1 or it was not
    /// found in time.
    slack: Vec<Option<f64>>,
}

impl Part {
    pub fn new(
        flows: Vec<usize>,
        tasks: Vec<TransformedTask>,
        best_effort: Vec<TransformedTask>,
    ) -> Self {
        let least = MinBandwidth::Exactly(BytesPerSec(0));
        Self { flows, tasks, best_effort, judged: None, least }
    }

    /// Finds the least bandwidth.
    pub fn find_least(&mut self, effort: Effort) {
        if !self.tasks.is_empty() {
            self.least = Analyzer::new(&self.tasks, &self.best_effort).min_bandwidth(effort);
        }
    }

    /// Judges the flows at a bandwidth.
    pub fn judge(&mut self, bandwidth: BytesPerSec, effort: Effort) -> Result<(), InputError> {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let mut analyzer = Analyzer::new(&self.tasks, &self.best_effort);
        let verdict = analyzer.verdict(bandwidth, effort)?;
        let first_failure = match verdict {
            Schedulability::Unschedulable(_) => analyzer.first_failure(bandwidth, effort)?,
            _ => None,
        };
        let mut slack = analyzer.slack(bandwidth, Effort(SLACK))?;
        if verdict == Schedulability::Schedulable {
            // A lower bound of what the verdict has shown not to be negative.
            slack.iter_mut().flatten().for_each(|slack| *slack = slack.max(0.0));
        }
        self.least = analyzer.min_bandwidth(effort);
        let utilization = analyzer.utilization(bandwidth);
        self.judged = Some(Judged { bandwidth, verdict, first_failure, utilization, slack });
        Ok(())
    }

    fn title(&self, system: &System, task: usize) -> String {
        let flow = self.flows.get(task).and_then(|flow| system.flows.get(*flow));
        flow.map_or("the switch".to_owned(), ToString::to_string)
    }

    fn failure(&self, system: &System, failure: &FailingInstant) -> String {
        let demand = HalfNanos(i64::try_from(failure.demand).unwrap_or(i64::MAX));
        let blocker =
            failure.blocker.map(|task| format!(", with blocking by {}", self.title(system, task)));
        format!("{demand} of work in {}{}", failure.at, blocker.unwrap_or_default())
    }

    /// Returns why it is not schedulable, with the names of the flows.
    fn cause(&self, system: &System, cause: &UnschedulableCause) -> String {
        match cause {
            UnschedulableCause::NoTime { window, .. } => {
                format!("the overheads leave D' - J' = {window}")
            }
            UnschedulableCause::NoPeriod { period, .. } => {
                format!("the spread of the send overhead leaves P' = {period}")
            }
            UnschedulableCause::Demand(failure) => {
                format!("demand exceeds the time: {}", self.failure(system, failure))
            }
            UnschedulableCause::OverheadDemand(failure) => format!(
                "the overheads alone take more than the time, no bandwidth helps: {}",
                self.failure(system, failure)
            ),
            UnschedulableCause::Overload => {
                "U' > 1: the sum of C'/P' over all flows is over 1 at this bandwidth".to_owned()
            }
            UnschedulableCause::OverheadOverload => {
                "the sum of overhead/P' over all flows is 1 or more: no bandwidth helps".to_owned()
            }
            UnschedulableCause::BeyondLimit => "only a bandwidth over 1 PiB/s would do".to_owned(),
        }
    }

    /// Returns the key of a flow that must be raised if no bandwidth is enough.
    const fn too_short(&self) -> &'static str {
        match self.least {
            MinBandwidth::Never(
                UnschedulableCause::NoTime { .. } | UnschedulableCause::OverheadDemand(_),
            ) => "`deadline`",
            MinBandwidth::Never(
                UnschedulableCause::NoPeriod { .. } | UnschedulableCause::OverheadOverload,
            ) => "`period`",
            _ => "`period` or `deadline`",
        }
    }

    fn verdict(&self) -> Option<Schedulability> {
        self.judged.as_ref().map(|judged| judged.verdict)
    }

    fn holds(&self) -> bool {
        match self.verdict() {
            Some(verdict) => verdict == Schedulability::Schedulable,
            // It has best effort only.
            None => self.least == MinBandwidth::Exactly(BytesPerSec(0)),
        }
    }

    fn is_refuted(&self) -> bool {
        match self.verdict() {
            Some(verdict) => matches!(verdict, Schedulability::Unschedulable(_)),
            None => matches!(self.least, MinBandwidth::Never(_)),
        }
    }

    /// Returns why its flows do not hold, or what was not shown within the effort.
    fn reason(&self, system: &System) -> Option<String> {
        Some(match (self.verdict(), &self.least) {
            (Some(Schedulability::Unschedulable(cause)), _) => self.cause(system, &cause),
            (None, MinBandwidth::Never(cause)) => self.cause(system, cause),
            (Some(Schedulability::GaveUp { checked }), _) => {
                let upto = if checked.0 > 0 {
                    format!("no failure up to {checked}, but not all instants")
                } else {
                    "not all of the first instants".to_owned()
                };
                format!(
                    "given up: {upto} could be tested within the effort; --max-steps allows more"
                )
            }
            (Some(Schedulability::Schedulable) | None, _) => return None,
        })
    }

    /// Returns the position of the flow that its cause is about, if it is about one.
    fn blamed(&self) -> Option<usize> {
        let cause = match (self.verdict(), &self.least) {
            (Some(Schedulability::Unschedulable(cause)), _) => cause,
            (None, MinBandwidth::Never(cause)) => *cause,
            _ => return None,
        };
        match cause {
            UnschedulableCause::NoTime { task, .. } | UnschedulableCause::NoPeriod { task, .. } => {
                self.flows.get(task).copied()
            }
            _ => None,
        }
    }

    /// Returns what messages call the flow that its cause is about, or all of its flows.
    fn object(&self, system: &System) -> String {
        let all = self.blamed().map_or_else(|| self.flows.clone(), |flow| vec![flow]);
        let titles = all.iter().filter_map(|flow| system.flows.get(*flow));
        let titles: Vec<_> = titles.map(ToString::to_string).collect();
        if titles.is_empty() { "the switch".to_owned() } else { titles.join(", ") }
    }
}

impl FlowsReport {
    /// Reports on flows that were judged at a bandwidth, which is given or was found.
    pub(super) fn new(
        system: &System,
        part: &Part,
        (bandwidth, is_bandwidth_given): (Option<u64>, bool),
        assumed: FlowAssumptions,
    ) -> Self {
        let schedulable = part.holds();
        let verdict = if schedulable || part.is_refuted() {
            Verdict::of(schedulable)
        } else {
            Verdict::NotJudged
        };
        let (min_bandwidth, min_bandwidth_is) = match part.least {
            MinBandwidth::Exactly(least) => (Some(least.0), MinBandwidthIs::Exact),
            MinBandwidth::Never(_) => (None, MinBandwidthIs::None),
            MinBandwidth::GaveUp { .. } => (None, MinBandwidthIs::GivenUp),
        };
        let (min_bandwidth_at_least, min_bandwidth_enough) = match part.least {
            MinBandwidth::GaveUp { at_least, enough } => {
                (Some(at_least.0), Some(enough.map(|enough| enough.0)))
            }
            _ => (None, None),
        };
        let judged = part.judged.as_ref();
        let first_failure = judged.and_then(|judged| judged.first_failure);
        let gave_up = matches!(part.least, MinBandwidth::GaveUp { .. })
            || matches!(part.verdict(), Some(Schedulability::GaveUp { .. }));
        let overload = Some(Schedulability::Unschedulable(UnschedulableCause::Overload));
        let never = match &part.least {
            MinBandwidth::Never(cause) => {
                Some(format!("{}: {}", part.object(system), part.cause(system, cause)))
            }
            _ => None,
        };
        Self {
            schedulable,
            verdict,
            utilization: judged.and_then(|judged| judged.utilization),
            bandwidth,
            min_bandwidth,
            min_bandwidth_is,
            first_failure_ns: first_failure.map(|failure| failure.at.as_nanos_f64()),
            first_failure: first_failure.map(|failure| part.failure(system, &failure)),
            causes: cause(system, part, min_bandwidth).into_iter().collect(),
            gave_up,
            bounds_gave_up: false,
            assumed,
            flows: rows(system, part),
            min_bandwidth_at_least,
            min_bandwidth_enough,
            dma_better_from_bytes: None,
            of_another_hypervisor: None,
            is_bandwidth_given,
            is_failure_unknown: first_failure.is_none() && part.verdict() == overload,
            no_bandwidth: never,
        }
    }

    /// Judges the flows with a receiver on a shared core by their bounds, which contain the time
    /// until that VM has its core. The other test contains no such time.
    ///
    /// # Errors
    ///
    /// A schedule that cannot be kept.
    pub(super) fn judge_receivers(&mut self, system: &System) -> Result<(), Fault> {
        let mut causes = Vec::new();
        for row in &self.flows {
            let Some(flow) = system.flows.get(row.position) else { continue };
            let names: Vec<_> = flow.to.iter().filter_map(|vm| system.guests().get(*vm)).collect();
            let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let (message, help) = match (receivers_absence(system, row.position)?, row.bound_ns) {
                (Absence::Unbounded, _) => (
                    format!("{flow}: nothing bounds the time until {names} has its shared core"),
                    "give it a core of its own, or remove its `memory_budget` and each [[irq]] \
                     without a `rate`",
                ),
                // Without a bound the analysis has given up, or lacks an input, and reports that.
                (Absence::None, _) | (Absence::AtMost(_), None) => continue,
                (Absence::AtMost(away), Some(bound)) => {
                    if row.deadline_ns.is_none_or(|deadline| bound <= deadline) {
                        continue;
                    }
                    (
                        format!(
                            "{flow}: the latency bound is {}, of which {names} can be off its \
                             core for {away}, and the deadline is {}",
                            Nanos(bound),
                            Nanos(row.deadline_ns.unwrap_or(0))
                        ),
                        "raise the flow's `deadline`, or let the receiver's VM run more often: a \
                         shorter `period`, `quantum` or `major_frame`",
                    )
                }
            };
            causes.push(system.fault(Code::FlowDeadlineMissed, &flow.place, message, help));
        }
        if !causes.is_empty() {
            (self.schedulable, self.verdict) = (false, Verdict::DoesNotHold);
            self.causes.extend(causes);
        }
        // The bound of each is known, or its flow is not judged.
        let lacks = |row: &FlowBound| row.absence_ns.is_some() && row.bound_ns.is_none();
        if self.verdict.holds() && self.flows.iter().any(lacks) {
            (self.schedulable, self.verdict) = (false, Verdict::NotJudged);
        }
        Ok(())
    }

    pub(super) const fn set_engine(&mut self, crossover: Crossover) {
        self.dma_better_from_bytes = match crossover {
            Crossover::Unknown => None,
            Crossover::From(size) => Some(Some(size.0)),
            Crossover::Never => Some(None),
        };
    }

    /// Returns the verdict on all flows, with what is missing for it.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        if let Some(missing) = &self.of_another_hypervisor {
            return Judgement::from(missing.clone());
        }
        match self.verdict {
            Verdict::NotJudged => Judgement::not_judged(
                "flows: no answer was found within the effort",
                "allow more with --max-steps",
            ),
            verdict => Judgement::of(verdict.holds()),
        }
    }
}

/// Returns why not all flows hold, as a fault of the file.
fn cause(system: &System, part: &Part, min_bandwidth: Option<u64>) -> Option<Fault> {
    let reason = part.reason(system)?;
    let mover = Mover::of(system);
    let (most, key) = mover.bandwidth(system).unwrap_or((u64::MAX, ""));
    let what =
        if mover == Mover::Engine { "a chunk moves at" } else { "the core that copies does" };
    let help = match min_bandwidth {
        Some(least) if least > most => format!(
            "lower the demand of the flows: they need {least} B/s, and {what} {most} B/s (`{key}`)"
        ),
        Some(least) => {
            format!("write [dma] bandwidth = \"{least}B/s\" or more")
        }
        None => format!("raise the flow's {}: no bandwidth is enough for it", part.too_short()),
    };
    let flow = part.blamed().or(part.flows.first().copied());
    let flow = flow.and_then(|flow| system.flows.get(flow));
    let place = flow.map(|flow| flow.place.clone()).unwrap_or_default();
    let message = format!("{}: {reason}", part.object(system));
    Some(system.fault(Code::FlowDeadlineMissed, &place, message, help))
}

fn rows(system: &System, part: &Part) -> Vec<FlowBound> {
    let Some(Judged { bandwidth, slack, .. }) = &part.judged else { return Vec::new() };
    let tasks = part.flows.iter().copied().zip(&part.tasks).zip(slack);
    let row = |((position, task), slack_ns): ((usize, &TransformedTask), &Option<f64>)| {
        let flow = system.flows.get(position);
        FlowBound {
            name: flow.map(|flow| flow.name.clone()).unwrap_or_default(),
            deadline_ns: flow.and_then(|flow| flow.deadline).map(|it| it.0),
            c_ns: task.wcet.nanos(*bandwidth),
            d_ns: task.deadline.as_nanos_f64(),
            p_ns: task.period.as_nanos_f64(),
            j_ns: task.jitter.as_nanos_f64(),
            q_ns: task.blocking_nanos(*bandwidth),
            slack_ns: *slack_ns,
            bound_ns: None,
            absence_ns: None,
            end_to_end_ns: None,
            position,
        }
    };
    tasks.map(row).collect()
}

/// The assumptions of a verdict at `judged` bytes/s.
pub(super) fn assumptions(
    system: &System,
    options: &Options,
    judged: Option<u64>,
) -> FlowAssumptions {
    let named = || system.platform.as_ref().map_or("?", |platform| platform.name.as_str());
    let engine = system.platform.as_ref().and_then(|platform| platform.dma_engine.as_ref());
    let reason = match (system.dma.path_source, engine) {
        (PathSource::File, _) => "[dma] path".to_owned(),
        (PathSource::Platform, Some(engine)) => {
            format!("platform {} has the DMA engine {}", named(), engine.name)
        }
        (PathSource::Platform, None) => format!("platform {} has no DMA engine", named()),
        (PathSource::Default, _) => "the default without a platform".to_owned(),
    };
    let asked = system.dma.bandwidth.map(|rate| rate.0);
    let mover = Mover::of(system);
    let limit = mover.bandwidth(system);
    let engine_from = system.engine_from().filter(|_| mover == Mover::Engine);
    let bandwidth_from = match (judged, asked, options.bandwidth) {
        (None, ..) => "the least that is enough",
        (found, asked, _) if found != asked => limit.map_or("copy_bandwidth", |(_, key)| key),
        (.., Some(_)) => "--bandwidth",
        (.., None) => "[dma] bandwidth",
    };
    FlowAssumptions {
        data_path: system.dma.path,
        data_path_from: reason,
        cores: "concurrent",
        bandwidth_from,
        copy_bandwidth: limit.and(system.dma.copy_bandwidth).map(|rate| rate.0),
        chunk: system.chunk().0,
        engine_from: engine_from.map(|from| from.0),
        overheads_are: "measured",
        overheads: overhead_sources(&system.tables, options.build.as_deref()),
        build: options.build.clone(),
    }
}
