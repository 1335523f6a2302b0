//! The flows of a system: the analysis of rt-virtio, or that of weir's own data paths.

use super::{
    Options,
    cause::{Cause, why_none},
    flow_report::{FlowsReport, Part, assumptions},
    supply::{Absence, receivers_absence, supply},
};
use crate::{
    BytesPerSec, Nanos,
    flows::{
        Analyzer, Bandwidths, Effort, EndCores, InputError, InputRule, MAX_NANOS, MinBandwidth,
        Mover, Overheads, Path, Range, Reading, Schedulability, Spent, TransferPiece,
        TransformedTask, on_shared_core, responses, times, transform, waits,
    },
    verdict::Missing,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_model::{
    Code, Fault, System, Vm,
    timing::{Crossover, Entity, FilePlace, MeasuredOn, Movers, OverheadTable},
};

/// Bytes that the broker copies in one step of the switch: the longest frame with its header.
const FRAME: u64 = 1526;

/// The code of the fault that overheads are missing: the flows are not judged then.
pub const NO_OVERHEADS: Code = Code::NoOverheads;

/// The behavior of the VMs that have no part in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OtherVms {
    /// All that they may: their cores hold the locks of devices, and they send control packets and
    /// packets of other flows. Every verdict and every run is judged with this.
    Active,
    /// Nothing, so that a bound contains only what each packet takes: it shows how close the bound
    /// is to a run in which that is so.
    Quiet,
}

/// Returns the data path on which a file's flows are analyzed.
///
/// # Errors
///
/// Overheads that are needed and not given.
pub fn path(system: &System, reading: Reading) -> Result<Path, Vec<Fault>> {
    path_of(Mover::of(system), system, reading)
}

fn path_of(mover: Mover, system: &System, reading: Reading) -> Result<Path, Vec<Fault>> {
    // The steps of another hypervisor's engine are none of weir's.
    let is_its = |measured_on| mover != Mover::Engine || measured_on != MeasuredOn::Other;
    let steps = || system.overheads.iter().filter(|step| is_its(step.measured_on));
    let mut overheads = Overheads::default();
    let [mut wake, mut copy] = [Range::default(); 2];
    let [mut hold, mut tail] = [Nanos(0); 2];
    // The first value of a name has precedence, so it is set last.
    for overhead in steps().collect::<Vec<_>>().into_iter().rev() {
        let range = Range { min: overhead.min, max: overhead.max };
        match overhead.name {
            "wake" => wake = range,
            "copy" => copy = range,
            "hold" => hold = range.max,
            "tail" => tail = range.min,
            name => _ = overheads.set(name, range),
        }
    }
    let known = |name: &&str| steps().any(|step| step.name == *name);
    let missing: Vec<_> = mover.needed().iter().copied().filter(|name| !known(name)).collect();
    if !missing.is_empty() {
        let place = system.flows.first().map_or_else(FilePlace::default, |flow| flow.place.clone());
        let flow = system.flows.first().map_or("the broker".to_owned(), ToString::to_string);
        let message = format!(
            "{flow}: bounds need [overheads], of which these are not known: {}",
            missing.join(", ")
        );
        let elsewhere = if mover == Mover::RtVirtio {
            "name a platform that has them (platform = \"zcu102\"), or pass --overheads FILE"
        } else {
            "name a platform that has them (platform = \"qemu-virt\"), or measure them in a \
                 run: `weir report --overheads -o FILE`, then --overheads FILE"
        };
        let help = format!(
            "add [overheads] with {} = {{ min = .., max = .. }} in ns, or {elsewhere}",
            missing.join(", ")
        );
        return Err(vec![system.fault(NO_OVERHEADS, &place, message, help)]);
    }
    Ok(Path {
        overheads,
        wake,
        copy,
        mover,
        hold,
        tail,
        chunk: system.chunk(),
        // weir's broker has one queue for all flows, that of rt-virtio one for each sender.
        queues: system.dma.queues.or(mover.is_weirs_broker().then_some(1)),
        reading,
    })
}

/// Returns the task of each flow.
///
/// # Errors
///
/// As [`transform`].
fn tasks(
    system: &System,
    path: &Path,
    others: OtherVms,
) -> Result<Vec<TransformedTask>, InputError> {
    let tasks = transform(&system.flows, path)?;
    if others == OtherVms::Quiet || !path.mover.is_weirs_broker() {
        return Ok(tasks);
    }
    let cores = system.guests().iter().map(|vm| EndCores {
        vcpus: u32::try_from(vm.cpus.len()).unwrap_or(u32::MAX),
        switches: switches(system, vm),
    });
    let cores: Vec<_> = cores.collect();
    let [read, control, take] = [path.read(), path.control(), path.take()].map(Nanos);
    // Of the two, each task has the longer one.
    let poll = path.overheads.qa.max.min(path.wake.max);
    let spent = Spent { hold: path.hold, poll, read, control, take };
    let waits = waits(&system.flows, path.chunk, &cores, spent);
    let added = tasks.iter().zip(waits).enumerate().map(|(flow, (task, waits))| {
        let kind = InputRule::PacketOverheadTooLarge;
        waits.added_to(task).ok_or(InputError { flow: Some(flow), kind })
    });
    added.collect()
}

/// Returns the sum of the longest switches of those of the VM's cores that it shares.
fn switches(system: &System, vm: &Vm) -> Nanos {
    let shared = system.cores.iter().filter(|core| vm.is_on(core.id));
    let switch = shared.map(|core| system.sharing(core).unwrap_or_default().switch.0);
    Nanos(switch.fold(0, u64::saturating_add))
}

/// Returns the fault for an error of the analysis, at its place.
pub fn fault(system: &System, error: InputError) -> Fault {
    let flow = error.flow.and_then(|flow| system.flows.get(flow));
    let (place, object) = match flow {
        Some(flow) => {
            let place = match error.kind {
                InputRule::ZeroSize | InputRule::SizeTooLarge => &flow.places[0],
                InputRule::ZeroPeriod => &flow.places[1],
                InputRule::TimeTooLarge if flow.period.is_some_and(|p| p.0 > MAX_NANOS) => {
                    &flow.places[1]
                }
                InputRule::ZeroDeadline | InputRule::TimeTooLarge => &flow.places[2],
                _ => &flow.place,
            };
            (place, flow.to_string())
        }
        None => (&system.dma.place, "[dma]".to_owned()),
    };
    let message = format!("{object}: {}", error.kind);
    let help = "write a value within the limits of the analysis";
    system.fault(Code::AnalysisLimit, place, message, help)
}

/// Returns the bandwidth of the flows in bytes/s, if it is known: `[dma]` `bandwidth`, but at most
/// the bandwidth of a chunk.
pub fn bandwidth(system: &System) -> Option<u64> {
    paced(system, Mover::of(system), system.dma.bandwidth.map(|rate| rate.0))
}

/// Returns the bandwidth in bytes/s that is left of `asked` by the mover.
fn paced(system: &System, mover: Mover, asked: Option<u64>) -> Option<u64> {
    let most = mover.bandwidth(system).map(|(most, _)| most);
    [asked, most].into_iter().flatten().min()
}

/// Returns why a system that weir builds is not judged by its flows: the path "dma" was analyzed
/// with overheads of another hypervisor, or of none that the file names.
pub fn of_another_hypervisor(system: &System) -> Option<Missing> {
    let is_timed = system.flows.iter().any(|flow| !flow.best_effort);
    if !is_timed || system.engine().is_none() || Mover::of(system) != Mover::RtVirtio {
        return None;
    }
    let origin = |table: &OverheadTable| match &table.origin {
        Some(origin) => format!("{}: {}", table.file, origin.command),
        None => format!("{}: of unknown origin", table.file),
    };
    let origins: Vec<_> = system.tables.iter().map(origin).collect();
    Some(Missing {
        what: format!(
            "flows: the overheads were not measured on weir ({}), and its broker and DMA engine \
             take other times",
            origins.join("; ")
        ),
        supply: "measure them in a run on the board, `weir report --overheads -o FILE`, then \
                 --overheads FILE"
            .to_owned(),
    })
}

/// Analyzes the flows of a file, if it has some.
///
/// # Errors
///
/// The faults that prevent the analysis.
pub fn analyze(system: &System, options: &Options) -> Result<Option<FlowsReport>, Vec<Fault>> {
    if system.flows.is_empty() {
        return Ok(None);
    }
    let path = path(system, options.reading)?;
    let one = |error: InputError| vec![fault(system, error)];
    let bandwidth = bandwidth(system);
    let tasks = tasks(system, &path, OtherVms::Active).map_err(one)?;
    let mut part = divide(system, tasks)?;
    let mut judged = bandwidth;
    if bandwidth.is_none() {
        // Without a bandwidth, the report is at the least one.
        part.find_least(options.effort);
        judged = match part.least {
            MinBandwidth::Exactly(b) => Some(b.0),
            MinBandwidth::GaveUp { enough, .. } => enough.map(|b| b.0),
            MinBandwidth::Never(_) => None,
        };
        judged = judged.filter(|judged| *judged > 0);
    }
    if let Some(judged) = judged {
        part.judge(BytesPerSec(judged), options.effort).map_err(one)?;
    }
    let copies = system.overheads.iter().any(|overhead| overhead.name == "copy");
    let has_engine = system.platform.as_ref().is_none_or(|platform| platform.dma_engine.is_some());
    let both = system.dma.bandwidth.zip(system.dma.copy_bandwidth).filter(|_| copies);
    let engine = match (path.mover, both) {
        _ if !has_engine => Crossover::Unknown,
        (Mover::RtVirtio, Some((engine, copy))) => {
            let Overheads { pd, hc, ip, .. } = path.overheads;
            let steps = [pd, hc, ip].map(|step| step.max.0);
            let engine_set_up = Nanos(steps.into_iter().fold(0, u64::saturating_add));
            let copy_set_up = path.copy.max;
            Movers { engine_set_up, engine, copy_set_up, copy }.crossover()
        }
        (Mover::RtVirtio, None) => Crossover::Unknown,
        (Mover::Engine | Mover::Core, _) => system.crossover(),
    };
    let bounds = if path.mover.is_weirs_broker() {
        bounds(system, OtherVms::Active, options.effort)
    } else {
        Bounds::default()
    };
    let end_to_end = end_to_end(system, options.effort);
    let assumed = assumptions(system, options, bandwidth);
    let mut report = FlowsReport::new(system, &part, (judged, bandwidth.is_some()), assumed);
    report.bounds_gave_up = bounds.gave_up || end_to_end.gave_up;
    let at = |all: &[Option<u64>], position: usize| all.get(position).copied().flatten();
    for flow in &mut report.flows {
        flow.bound_ns = at(&bounds.of, flow.position);
        flow.absence_ns = at(&bounds.absence, flow.position);
        flow.end_to_end_ns = at(&end_to_end.of, flow.position);
    }
    if path.mover.is_weirs_broker() {
        report.judge_receivers(system).map_err(|fault| vec![fault])?;
    }
    report.set_engine(engine);
    Ok(Some(report))
}

/// Latency bounds.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The bound of each flow in ns.
    pub of: Vec<Option<u64>>,
    /// The part of it until a receiver on a shared core has the core, in ns; none if no receiver
    /// shares a core.
    pub absence: Vec<Option<u64>>,
    /// Whether the effort was spent before some were found.
    pub gave_up: bool,
}

impl Bounds {
    fn none(system: &System) -> Self {
        let none = vec![None; system.flows.len()];
        Self { of: none.clone(), absence: none, gave_up: false }
    }
}

/// Returns the latency bounds of flows that weir's broker moves, in ns: from the later of
/// notification and eligibility until the receiver's interrupt is pending and, if the receiver
/// shares a core, its VM has that core. Best effort has none, and no flow has one if overheads or
/// the bandwidth of the copy are not known, or if the receiver's absence has no bound.
#[must_use]
pub fn bounds(system: &System, others: OtherVms, effort: Effort) -> Bounds {
    found_bounds(system, others, effort).unwrap_or_else(|| Bounds::none(system))
}

/// Returns [`bounds`] next to VMs that do nothing, one for each receiver of each flow, as a run
/// reports them.
#[must_use]
pub fn quiet_bounds(system: &System) -> Vec<Option<u64>> {
    let bounds = bounds(system, OtherVms::Quiet, Effort::default()).of;
    let flows = system.flows.iter().zip(bounds);
    flows.flat_map(|(flow, bound)| flow.to.iter().map(move |_| bound)).collect()
}

/// Returns the latency bounds of flows that a DMA engine moves as in rt-virtio, in ns: from the
/// sender's notification, or from its eligibility, until the receiver has handled its interrupt.
/// Best effort has none, and no flow has one on other data paths or if overheads or `[dma]`
/// `bandwidth` are not known.
#[must_use]
pub fn end_to_end(system: &System, effort: Effort) -> Bounds {
    found_end_to_end(system, effort).unwrap_or_else(|| Bounds::none(system))
}

fn found_end_to_end(system: &System, effort: Effort) -> Option<Bounds> {
    let rate = system.dma.bandwidth.filter(|_| Mover::of(system) == Mover::RtVirtio)?;
    let at = Bandwidths { paced: rate, chunk: rate };
    let path = path(system, Reading::Printed).ok()?;
    let mut bounds = Bounds::none(system);
    let tasks = tasks(system, &path, OtherVms::Active).ok()?;
    let Part { flows, tasks, best_effort, .. } = divide(system, tasks).ok()?;
    let responses = responses(&tasks, &best_effort, at, effort);
    bounds.gave_up = responses.gave_up;
    for ((flow, task), response) in flows.into_iter().zip(&tasks).zip(responses.longest) {
        let whole = 2 * i64::try_from(times(system.flows.get(flow)?).0.0).ok()?;
        // D - D' is the time of sender and receiver.
        let ends = u64::try_from(whole - task.deadline.0).ok()?.div_ceil(2);
        *bounds.of.get_mut(flow)? = response.and_then(|response| response.0.checked_add(ends));
    }
    Some(bounds)
}

fn found_bounds(system: &System, others: OtherVms, effort: Effort) -> Option<Bounds> {
    let mover = Mover::built(system);
    let path = path_of(mover, system, Reading::Printed).ok()?;
    system.dma.copy_bandwidth?;
    let (chunk, _) = mover.bandwidth(system)?;
    let rate = paced(system, mover, system.dma.bandwidth.map(|rate| rate.0))?;
    let at = Bandwidths { paced: BytesPerSec(rate), chunk: BytesPerSec(chunk) };
    let tasks = tasks(system, &path, others).ok()?;
    // A packet has arrived before its last finalization ends. The table is of flows to one
    // receiver; more of them take longer in steps that it does not contain, for which this time is
    // left in.
    let several = system.flows.iter().any(|flow| flow.to.len() > 1);
    let tail = if several { 0 } else { path.tail.0 };
    let mut bounds = Bounds::none(system);
    let Part { flows, tasks, best_effort, .. } = divide(system, tasks).ok()?;
    let responses = responses(&tasks, &best_effort, at, effort);
    bounds.gave_up = responses.gave_up;
    for (flow, bound) in flows.into_iter().zip(responses.longest) {
        let pending = bound.map(|bound| bound.0.saturating_sub(tail));
        let (away, added) = match receivers_absence(system, flow).ok()? {
            Absence::None => (None, Some(0)),
            Absence::AtMost(most) => (Some(most.0), Some(most.0)),
            Absence::Unbounded => (None, None),
        };
        *bounds.of.get_mut(flow)? =
            pending.zip(added).and_then(|(pending, added)| pending.checked_add(added));
        *bounds.absence.get_mut(flow)? = away;
    }
    Some(bounds)
}

/// The effort was spent before there was an answer.
#[derive(Clone, Copy, Debug)]
pub struct GaveUp;

/// An answer, and the steps that were spent on it.
pub type BoundedAnswer<T> = (Result<T, GaveUp>, u64);

/// Returns the least bandwidth at which the flows hold, in bytes/s, or a sufficient one if the
/// search gave up; none if no bandwidth is enough or the flows cannot be analyzed.
pub fn least(system: &System, effort: Effort) -> BoundedAnswer<Option<u64>> {
    let asked = with_analyzer(system, |analyzer| analyzer.min_bandwidth(effort));
    let Some((least, spent)) = asked else { return (Ok(None), 0) };
    match least.unwrap_or(MinBandwidth::Exactly(BytesPerSec(0))) {
        MinBandwidth::Exactly(b) | MinBandwidth::GaveUp { enough: Some(b), .. } => {
            (Ok(least_in_time(system, b.0, effort)), spent)
        }
        MinBandwidth::GaveUp { enough: None, .. } => (Err(GaveUp), spent),
        MinBandwidth::Never(_) => (Ok(None), spent),
    }
}

/// Returns the least bandwidth from `least` on at which the flows to VMs on shared cores have
/// bounds within their deadlines; none if the fastest transfer is not enough.
fn least_in_time(system: &System, least: u64, effort: Effort) -> Option<u64> {
    if are_in_time(system, least, effort) {
        return Some(least);
    }
    let (mut late, mut enough) = (least, Mover::of(system).bandwidth(system)?.0.max(least));
    if !are_in_time(system, enough, effort) {
        return None;
    }
    while enough - late > 1 {
        let middle = late + (enough - late) / 2;
        if are_in_time(system, middle, effort) { enough = middle } else { late = middle }
    }
    Some(enough)
}

/// Returns whether, at a bandwidth in bytes/s, each flow to a VM on a shared core has a bound
/// within its deadline.
fn are_in_time(system: &System, bandwidth: u64, effort: Effort) -> bool {
    let waits = |flow| receivers_absence(system, flow).is_ok_and(|away| away != Absence::None);
    if !Mover::of(system).is_weirs_broker() || !(0..system.flows.len()).any(waits) {
        return true;
    }
    let mut system = system.clone();
    system.dma.bandwidth = Some(BytesPerSec(bandwidth));
    let bounds = bounds(&system, OtherVms::Active, effort);
    let both = system.flows.iter().zip(bounds.of.iter().zip(&bounds.absence));
    both.filter(|(_, (_, absence))| absence.is_some()).all(|(flow, (bound, _))| {
        bound.is_some_and(|bound| flow.deadline.is_none_or(|d| bound <= d.0))
    })
}

/// Returns whether the flows hold at a bandwidth.
pub fn hold(system: &System, bandwidth: BytesPerSec, effort: Effort) -> BoundedAnswer<bool> {
    let asked = with_analyzer(system, |analyzer| analyzer.verdict(bandwidth, effort));
    let Some((verdict, spent)) = asked else { return (Ok(false), 0) };
    let answer = match verdict {
        None | Some(Ok(Schedulability::Schedulable)) => {
            Ok(are_in_time(system, bandwidth.0, effort))
        }
        Some(Ok(Schedulability::GaveUp { .. })) if are_in_time(system, bandwidth.0, effort) => {
            Err(GaveUp)
        }
        Some(_) => Ok(false),
    };
    (answer, spent)
}

/// Returns the answer of `ask` on the real-time flows, and the steps that were spent; no answer if
/// there are no such flows, and none at all if the flows cannot be analyzed.
fn with_analyzer<T>(
    system: &System,
    ask: impl FnOnce(&mut Analyzer) -> T,
) -> Option<(Option<T>, u64)> {
    let path = path(system, Reading::Printed).ok()?;
    let tasks = tasks(system, &path, OtherVms::Active).ok()?;
    let Part { tasks, best_effort, .. } = divide(system, tasks).ok()?;
    if tasks.is_empty() {
        return Some((None, 0));
    }
    let mut analyzer = Analyzer::new(&tasks, &best_effort);
    let answer = ask(&mut analyzer);
    Some((Some(answer), analyzer.spent()))
}

/// Splits the tasks of flows into real-time and best effort, on the supply of the broker's core.
fn divide(system: &System, mut tasks: Vec<TransformedTask>) -> Result<Part, Vec<Fault>> {
    let switch = if system.has_switch { switch_step(&tasks) } else { None };
    let broker = Entity::Broker;
    if let Some((core, place, supply)) = supply(system, broker).map_err(|fault| vec![fault])? {
        let linear = supply.linear().ok_or_else(|| {
            let own_lines = || Cause {
                place,
                reason: "its interrupts take all of it".to_owned(),
                suggestion: "give each [[irq]] of it a `rate`, and a lower one".to_owned(),
            };
            let Cause { place, reason, suggestion } =
                why_none(system, broker).unwrap_or_else(own_lines);
            let message = format!(
                "{}: moves flows on {core}, where no time is guaranteed to it: {reason}",
                broker.title(system)
            );
            vec![system.fault(Code::NoSupply, &place, message, suggestion)]
        })?;
        tasks = on_shared_core(&tasks, linear).map_err(|error| vec![fault(system, error)])?;
    }
    let is_best_effort = |flow: usize| system.flows.get(flow).is_some_and(|flow| flow.best_effort);
    let both = tasks.into_iter().zip(0..);
    let (best_effort, timed): (Vec<_>, Vec<_>) = both.partition(|(_, flow)| is_best_effort(*flow));
    let flows = timed.iter().chain(&best_effort).map(|(_, flow)| *flow).collect();
    let [tasks, mut best_effort]: [Vec<TransformedTask>; 2] =
        [timed, best_effort].map(|all| all.into_iter().map(|(task, _)| task).collect());
    // Behind the flows, as it is none of them.
    best_effort.extend(switch);
    Ok(Part::new(flows, tasks, best_effort))
}

/// Returns a task that blocks like one step of the switch, which runs where no flow has anything to
/// do: a frame is taken or given to one VM. That is a chunk of a frame's bytes: it has the steps of
/// a chunk of a flow, and fewer at EL2.
fn switch_step(tasks: &[TransformedTask]) -> Option<TransformedTask> {
    let fixed = tasks.iter().map(|task| task.stretches[1].fixed).max()?;
    let step = TransferPiece { fixed, bytes: FRAME };
    tasks.first().map(|task| TransformedTask { wcet: step, stretches: [step; 2], ..*task })
}
