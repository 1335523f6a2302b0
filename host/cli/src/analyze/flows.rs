//! The flows of a system: rt-virtio's analysis, or that of weir's own data paths.

use super::{
    lack::Lack,
    time::{supply, why_none},
};
use crate::run::show::table;
use serde_json::{Value, json};
use std::fmt;
use weir_analysis::{
    Bytes, BytesPerSec, HalfNanos, Nanos,
    flows::{
        Analyzer, Bandwidths, Cause, Copier, Effort, Ends, Failure, Flow, FlowError, FlowErrorKind,
        Group, MinBandwidth, Mover, Overheads, Path, Queue, Range, Reading, Report, Setting, Task,
        TaskReport, Verdict, dma_from, groups, on_shared_core, report_beside, responses, waits,
    },
    time::VmTask,
    verdict::Judgement,
};
use weir_model::{
    Code, Fault, Timing,
    timing::{DataPath, OverheadTable, PathSource, Place, Runner},
};

/// Bytes moved between two decisions where the file does not say (rt-virtio V).
pub const CHUNK: u64 = 4096;
/// The longest time that the analysis takes: what has no period or deadline has this one.
const LONGEST: u64 = 1 << 52;
/// Spent on slacks, which are for a person to see.
const SLACK: u64 = 1 << 22;

/// The code of the fault that the flows have no overheads: they are not judged.
pub const NO_OVERHEADS: Code = Code::NoOverheads;

/// What the analysis says of the flows.
#[derive(Debug)]
pub struct Flows {
    /// Bandwidth that was judged, bytes/s; none where neither given nor found.
    bandwidth: Option<u64>,
    /// Whether it is from the file or the command line.
    given: bool,
    /// How it went for each processor of chunks.
    parts: Vec<Part>,
    names: Vec<String>,
    /// Latency bound of each flow in ns, where weir's broker moves it: on concurrent cores, and on
    /// serialized ones.
    bounds: Vec<[Option<u64>; 2]>,
    /// What the verdict assumes.
    assumed: Assumed,
    /// The same where a DMA engine moves it, with what sender and receiver take.
    end_to_end: Vec<Option<u64>>,
    /// Whether some of these were not found in the effort.
    no_bounds_in_time: bool,
    engine: Engine,
}

/// What a verdict on flows assumes.
#[derive(Debug)]
struct Assumed {
    path: DataPath,
    /// Why it is this path.
    reason: String,
    /// Where the bandwidth comes from.
    bandwidth: &'static str,
    /// The bandwidth of the copy, bytes/s, if a core copies.
    copy_bandwidth: Option<u64>,
    chunk: u64,
    tables: Vec<OverheadTable>,
    /// The build of the hypervisor in the checkout, if there is one.
    build: Option<String>,
}

/// When a DMA engine moves a chunk faster than a core copies it.
#[derive(Clone, Copy, Debug)]
enum Engine {
    /// Nobody says what one of them needs.
    Unknown,
    /// For chunks of so many bytes and more.
    From(Bytes),
    /// For no chunk.
    Never,
}

/// What is known of the smallest bandwidth that is enough for all flows, bytes/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Least {
    /// This is it.
    Exactly(u64),
    /// No bandwidth is enough.
    Never,
    /// The search was given up: no less than the one, and the other, if any was found, is enough.
    GaveUp { at_least: u64, enough: Option<u64> },
}

impl Least {
    /// Its name for programs: why `min_bandwidth` is a number or null.
    const fn name(self) -> &'static str {
        match self {
            Self::Exactly(_) => "exact",
            Self::Never => "none",
            Self::GaveUp { .. } => "given-up",
        }
    }
}

#[derive(Debug)]
struct Part {
    /// The VM whose core it is; none for the broker's.
    vm: Option<String>,
    /// Positions of the flows of the tasks, and behind them those of best effort.
    flows: Vec<usize>,
    report: Option<Report>,
    least: MinBandwidth,
}

/// The settings of a file as the library takes them.
#[derive(Clone, Debug)]
pub struct Input {
    /// One a flow, in the order of the file; those of best effort with the longest period and deadline.
    pub flows: Vec<Flow>,
    /// Receivers of each.
    pub receivers: Vec<u32>,
    /// Everything but the overheads.
    pub setting: Setting,
    /// The data path with its overheads.
    pub path: Path,
    /// The longest time that a core holds a device's lock.
    hold: Nanos,
    /// The shortest time that finalizing a transfer takes after the receiver's interrupt.
    tail: Nanos,
}

/// How the cores of a system run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// Concurrently, as on a board: a core may wait for a lock that another core holds. Every
    /// verdict assumes this.
    Concurrent,
    /// One at a time, as in QEMU with instruction counting: no core finds a lock taken. Only for
    /// comparison with such a run.
    Serialized,
}

impl Input {
    /// Takes the flows of a file.
    ///
    /// # Errors
    ///
    /// Overheads that are needed and nowhere given.
    pub fn of(timing: &Timing, reading: Reading) -> Result<Self, Vec<Fault>> {
        let mut overheads = Overheads::default();
        let [mut wake, mut copy] = [Range::default(); 2];
        let [mut hold, mut tail] = [Nanos(0); 2];
        // The first of a name wins, so the last is set first.
        for overhead in timing.overheads.iter().rev() {
            let range = Range { min: overhead.min, max: overhead.max };
            match overhead.name {
                "wake" => wake = range,
                "copy" => copy = range,
                "hold" => hold = range.max,
                "tail" => tail = range.min,
                name => _ = overheads.set(name, range),
            }
        }
        let needed: &[&str] = match timing.dma.path {
            DataPath::Dma => {
                &["hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "br"]
            }
            DataPath::Sender => &["pp", "qi", "qa", "qr", "ps", "ft", "copy"],
            DataPath::Receiver => &["pp", "qi", "qa", "qr", "ps", "ft", "wake", "copy"],
            DataPath::Broker => {
                &["hc", "pp", "ql", "qi", "qa", "qr", "ps", "ft", "wake", "copy", "hold"]
            }
        };
        let known = |name: &&str| timing.overheads.iter().any(|overhead| overhead.name == *name);
        let missing: Vec<_> = needed.iter().copied().filter(|name| !known(name)).collect();
        if !missing.is_empty() {
            let place = timing.flows.first().map_or_else(Place::default, |flow| flow.place.clone());
            let message = format!("flows need overheads, and nobody says {}", missing.join(", "));
            let elsewhere = if timing.dma.path == DataPath::Dma {
                "name a platform that has them (platform = \"zcu102\"), or pass --overheads FILE"
            } else {
                "name a platform that has them (platform = \"qemu-virt\"), or measure them in a run: `weir report --overheads -o FILE`, then --overheads FILE"
            };
            let help = format!(
                "add [overheads] with {} = {{ min = .., max = .. }} in ns, or {elsewhere}",
                missing.join(", ")
            );
            return Err(vec![timing.fault(NO_OVERHEADS, &place, message, help)]);
        }
        let local = timing.dma.path != DataPath::Dma;
        let path = Path {
            wake,
            copy,
            queue: if local { Queue::Heap } else { Queue::List },
            locked: !local,
            mover: if local { Mover::Cpu } else { Mover::Dma },
            copier: match timing.dma.path {
                DataPath::Dma | DataPath::Broker => Copier::Broker,
                DataPath::Sender => Copier::Sender,
                DataPath::Receiver => Copier::Receiver,
            },
            ..Path::paper(overheads)
        };
        let position = |vm: usize| u32::try_from(vm).unwrap_or(u32::MAX);
        let flows = timing.flows.iter().map(|flow| Flow {
            size: flow.size,
            period: Nanos(flow.period.map_or(LONGEST, |time| time.0)),
            deadline: Nanos(flow.deadline.map_or(LONGEST, |time| time.0)),
            from: position(flow.from),
            to: position(flow.to.first().copied().unwrap_or(flow.from)),
        });
        Ok(Self {
            flows: flows.collect(),
            receivers: timing.flows.iter().map(|flow| position(flow.to.len())).collect(),
            setting: Setting {
                chunk: Bytes(timing.dma.chunk.map_or(CHUNK, |chunk| chunk.0)),
                // weir's broker picks from one queue of all flows, the paper's from one for each sender.
                queues: timing.dma.queues.or((timing.dma.path == DataPath::Broker).then_some(1)),
                reading,
            },
            path,
            hold,
            tail,
        })
    }

    /// The tasks of each processor of chunks.
    ///
    /// # Errors
    ///
    /// As [`groups`].
    fn groups(&self, timing: &Timing, cores: Cores) -> Result<Vec<Group>, FlowError> {
        let mut groups = groups(&self.flows, &self.receivers, &self.setting, &self.path)?;
        if cores == Cores::Serialized || timing.dma.path != DataPath::Broker {
            return Ok(groups);
        }
        let position = |vm: usize| u32::try_from(vm).unwrap_or(u32::MAX);
        let ends = timing.flows.iter().map(|flow| Ends {
            from: position(flow.from),
            to: flow.to.iter().map(|vm| position(*vm)).collect(),
        });
        let ends: Vec<_> = ends.collect();
        let chunk = self.setting.chunk.0.max(1);
        let chunks: Vec<_> = self.flows.iter().map(|flow| flow.size.0.div_ceil(chunk)).collect();
        let vcpus: Vec<_> = timing.vms.iter().map(|vm| position(vm.cpus.len())).collect();
        let waits = waits(&ends, &chunks, &vcpus, self.hold);
        for group in &mut groups {
            for (task, &flow) in group.tasks.iter_mut().zip(&group.flows) {
                let from = ends.get(flow).map_or(0, |ends| ends.from);
                let batch = ends.iter().filter(|ends| ends.from == from).count();
                let added = waits.get(flow).and_then(|waits| waits.added_to(task, position(batch)));
                let kind = FlowErrorKind::PacketOverheadTooLarge;
                *task = added.ok_or(FlowError { flow: Some(flow), kind })?;
            }
        }
        Ok(groups)
    }
}

/// The fault that an error of the library is, at its place.
pub fn fault(timing: &Timing, error: FlowError) -> Fault {
    let flow = error.flow.and_then(|flow| timing.flows.get(flow));
    let (place, who) = match flow {
        Some(flow) => {
            let place = match error.kind {
                FlowErrorKind::ZeroSize | FlowErrorKind::SizeTooLarge => &flow.places[0],
                FlowErrorKind::ZeroPeriod => &flow.places[1],
                FlowErrorKind::TimeTooLarge if flow.period.is_some_and(|p| p.0 > LONGEST) => {
                    &flow.places[1]
                }
                FlowErrorKind::ZeroDeadline | FlowErrorKind::TimeTooLarge => &flow.places[2],
                _ => &flow.place,
            };
            (place, format!("the flow {}: ", flow.name))
        }
        None => (&timing.dma.place, String::new()),
    };
    let message = format!("{who}{}", error.kind);
    let help = match error.kind {
        FlowErrorKind::MulticastByReceiver => {
            "write [dma] path = \"broker\" or \"sender\", or a flow to each receiver"
        }
        _ => "write a value within the limits of the analysis",
    };
    timing.fault(Code::FlowLimit, place, message, help)
}

/// What the flows are moved at, bytes/s, if that is known: `[dma]` `bandwidth`, but no more than a core copies where cores copy.
pub fn bandwidth(timing: &Timing) -> Option<u64> {
    paced(timing, timing.dma.bandwidth.map(|rate| rate.0))
}

/// What comes of a bandwidth that is asked for, bytes/s, where the core that copies may do less.
fn paced(timing: &Timing, asked: Option<u64>) -> Option<u64> {
    [asked, most_copied(timing)].into_iter().flatten().min()
}

/// What the core that copies can do at most, bytes/s, if one does and that is known.
pub fn most_copied(timing: &Timing) -> Option<u64> {
    let copy = timing.dma.copy_bandwidth.filter(|_| timing.dma.path != DataPath::Dma);
    copy.map(|rate| rate.0)
}

/// Analyzes the flows of a file, if it has some.
///
/// # Errors
///
/// What keeps them from being analyzed.
pub fn analyze(timing: &Timing, question: &super::Question) -> Result<Option<Flows>, Vec<Fault>> {
    if timing.flows.is_empty() {
        return Ok(None);
    }
    let input = Input::of(timing, question.reading)?;
    let one = |error: FlowError| vec![fault(timing, error)];
    let bandwidth = bandwidth(timing);
    let groups = input.groups(timing, Cores::Concurrent).map_err(one)?;
    let mut split = Vec::new();
    for group in groups {
        split.push(divide(timing, group)?);
    }
    let mut parts = Vec::new();
    for (vm, flows, tasks, best_effort) in split {
        let (mut report, mut least) = (None, MinBandwidth::Exactly(BytesPerSec(0)));
        if let (Some(bandwidth), false) = (bandwidth, tasks.is_empty()) {
            let found = judge(&tasks, &best_effort, bandwidth, question).map_err(one)?;
            (least, report) = (found.min_bandwidth, Some(found));
        } else if !tasks.is_empty() {
            let mut analyzer = Analyzer::new();
            analyzer.load_beside(&tasks, &best_effort);
            least = analyzer.min_bandwidth(question.effort);
        }
        parts.push((Part { vm, flows, report, least }, tasks, best_effort));
    }
    let mut judged = bandwidth;
    if bandwidth.is_none() {
        // Without a bandwidth to judge, what would be seen at the least one.
        let found = parts.iter().map(|(part, ..)| match part.least {
            MinBandwidth::Exactly(b) => Some(b.0),
            MinBandwidth::GaveUp { enough, .. } => enough.map(|b| b.0),
            MinBandwidth::Never(_) => None,
        });
        judged = found.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
        judged = judged.filter(|judged| *judged > 0);
        if let Some(judged) = judged {
            for (part, tasks, best_effort) in &mut parts {
                if !tasks.is_empty() {
                    part.report = Some(judge(tasks, best_effort, judged, question).map_err(one)?);
                }
            }
        }
    }
    let copies = timing.overheads.iter().any(|overhead| overhead.name == "copy");
    let has_engine = timing.platform.as_ref().is_none_or(|platform| platform.dma_engine.is_some());
    let both = timing.dma.bandwidth.zip(timing.dma.copy_bandwidth);
    let both = both.filter(|_| copies && has_engine);
    let engine = both.map_or(Engine::Unknown, |(dma, copy)| {
        let from = dma_from(&input.path, dma, copy);
        from.map_or(Engine::Never, Engine::From)
    });
    let broker = |cores| {
        let moved = timing.dma.path == DataPath::Broker;
        if moved { bounds(timing, cores, question.effort) } else { Bounds::default() }
    };
    let (concurrent, serialized) = (broker(Cores::Concurrent), broker(Cores::Serialized));
    let end_to_end = end_to_end(timing, question.effort);
    Ok(Some(Flows {
        bandwidth: judged,
        given: bandwidth.is_some(),
        parts: parts.into_iter().map(|(part, ..)| part).collect(),
        names: timing.flows.iter().map(|flow| flow.name.clone()).collect(),
        bounds: concurrent.of.into_iter().zip(serialized.of).map(Into::into).collect(),
        assumed: Assumed::of(timing, question),
        end_to_end: end_to_end.of,
        no_bounds_in_time: concurrent.gave_up || serialized.gave_up || end_to_end.gave_up,
        engine,
    }))
}

/// How long packets take at most.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Of each flow, ns.
    pub of: Vec<Option<u64>>,
    /// Some were not found in the effort.
    pub gave_up: bool,
}

impl Bounds {
    fn none(timing: &Timing) -> Self {
        Self { of: vec![None; timing.flows.len()], gave_up: false }
    }
}

/// Latency bounds where weir's broker moves packets by a core's copy: for each flow the longest
/// time in ns from the later of notification and eligibility to the receiver's interrupt. None for
/// best effort, and where overheads or the copy's bandwidth are not known.
pub fn bounds(timing: &Timing, cores: Cores, effort: Effort) -> Bounds {
    let mut timing = timing.clone();
    timing.dma.path = DataPath::Broker;
    found_bounds(&timing, cores, effort).unwrap_or_else(|| Bounds::none(&timing))
}

/// How long packets take at most where a DMA engine moves them as in rt-virtio, in ns, for each flow: from the sender's notification (or from
/// when it may send, by its period) until the receiver has handled its interrupt. None for best effort, on other paths, and where overheads or
/// `[dma]` `bandwidth` are not known.
pub fn end_to_end(timing: &Timing, effort: Effort) -> Bounds {
    found_end_to_end(timing, effort).unwrap_or_else(|| Bounds::none(timing))
}

fn found_end_to_end(timing: &Timing, effort: Effort) -> Option<Bounds> {
    let rate = timing.dma.bandwidth.filter(|_| timing.dma.path == DataPath::Dma)?;
    let at = Bandwidths { paced: rate, chunk: rate };
    let input = Input::of(timing, Reading::Printed).ok()?;
    let mut bounds = Bounds::none(timing);
    for group in input.groups(timing, Cores::Concurrent).ok()? {
        let (_, flows, tasks, best_effort) = divide(timing, group).ok()?;
        let responses = responses(&tasks, &best_effort, at, effort);
        bounds.gave_up |= responses.gave_up;
        for ((flow, task), response) in flows.into_iter().zip(&tasks).zip(responses.longest) {
            let whole = 2 * i64::try_from(input.flows.get(flow)?.deadline.0).ok()?;
            // D - D' is what sender and receiver take.
            let ends = u64::try_from(whole - task.deadline.0).ok()?.div_ceil(2);
            *bounds.of.get_mut(flow)? = response.and_then(|response| response.0.checked_add(ends));
        }
    }
    Some(bounds)
}

fn found_bounds(timing: &Timing, cores: Cores, effort: Effort) -> Option<Bounds> {
    let input = Input::of(timing, Reading::Printed).ok()?;
    let copy = timing.dma.copy_bandwidth?.0;
    let at = Bandwidths { paced: BytesPerSec(bandwidth(timing)?), chunk: BytesPerSec(copy) };
    let groups = input.groups(timing, cores).ok()?;
    // A packet has arrived before its last finalization ends. The table is of flows to one
    // receiver; more of them take longer in steps that it does not tell, for which this time is
    // left in.
    let several = timing.flows.iter().any(|flow| flow.to.len() > 1);
    let tail = if several { 0 } else { input.tail.0 };
    let mut bounds = Bounds::none(timing);
    for mut group in groups {
        // A serialized core that has notified the broker keeps it waiting until it sleeps: that
        // depends on the sender.
        let senders = if cores == Cores::Serialized { &timing.wakes[..] } else { &[] };
        for (task, flow) in group.tasks.iter_mut().zip(&group.flows) {
            let sender = timing.vms.get(timing.flows.get(*flow)?.from)?;
            if let Some((_, wake)) = senders.iter().find(|(name, _)| *name == sender.name) {
                let more =
                    i64::try_from(wake.0).ok()? - i64::try_from(input.path.wake.max.0).ok()?;
                task.jitter.0 = task.jitter.0.checked_add(more.checked_mul(2)?)?;
            }
        }
        let (_, flows, tasks, best_effort) = divide(timing, group).ok()?;
        let responses = responses(&tasks, &best_effort, at, effort);
        bounds.gave_up |= responses.gave_up;
        for (flow, bound) in flows.into_iter().zip(responses.longest) {
            *bounds.of.get_mut(flow)? = bound.map(|bound| bound.0.saturating_sub(tail));
        }
    }
    Some(bounds)
}

fn judge(
    tasks: &[Task],
    best_effort: &[Task],
    bandwidth: u64,
    question: &super::Question,
) -> Result<Report, FlowError> {
    let bandwidth = BytesPerSec(bandwidth);
    report_beside(tasks, best_effort, bandwidth, question.effort, Effort(SLACK))
}

/// What copying flows takes of the cores of a VM that has tasks, where `[dma]` `path` lets its sender or its receiver copy.
#[derive(Debug, Default)]
pub struct Copying {
    /// C' in each P' at J', as tasks that are more urgent than all of the VM's.
    pub tasks: Vec<VmTask>,
    /// A flow that it copies as often as it is sent, or at no known bandwidth; its position.
    pub unlimited: Option<usize>,
}

impl Copying {
    /// That of VM `vm`, at `[dma]` `bandwidth` or, where the file says none, `tried`.
    pub fn by(timing: &Timing, vm: usize, tried: Option<u64>) -> Self {
        let mut found = Self::default();
        let moves = timing.dma.bandwidth.is_some() || tried != Some(0);
        let has_tasks = timing.vms.get(vm).is_some_and(|vm| !vm.tasks.is_empty());
        if !timing.dma.path.is_of_vms() || !moves || !has_tasks {
            return found;
        }
        // What keeps flows from being analyzed is said of the flows.
        let groups = Input::of(timing, Reading::Printed)
            .ok()
            .and_then(|input| input.groups(timing, Cores::Concurrent).ok());
        let asked = timing.dma.bandwidth.map(|rate| rate.0).or(tried);
        let rate = paced(timing, asked).filter(|rate| *rate > 0);
        let own = |group: &Group| group.vm.is_some_and(|its| its as usize == vm);
        for group in groups.unwrap_or_default().into_iter().filter(own) {
            for (task, flow) in group.tasks.iter().zip(group.flows) {
                let best_effort = timing.flows.get(flow).is_none_or(|flow| flow.best_effort);
                match rate.and_then(|rate| copied(task, rate)).filter(|_| !best_effort) {
                    Some(task) => found.tasks.push(task),
                    None => found.unlimited = Some(flow),
                }
            }
        }
        found
    }
}

/// A flow's task as one of whole nanoseconds, rounded to the safe side; none where it is left no period.
fn copied(task: &Task, rate: u64) -> Option<VmTask> {
    let bytes = u128::from(task.cost.bytes) * 2_000_000_000;
    let halves = u128::from(task.cost.fixed) + bytes.div_ceil(u128::from(rate));
    let period = u64::try_from(task.period.0).ok()? / 2;
    Some(VmTask {
        cost: Nanos(u64::try_from(halves.div_ceil(2)).ok()?),
        period: Nanos((period > 0).then_some(period)?),
        jitter: Nanos(u64::try_from(task.jitter.0).unwrap_or(0).div_ceil(2)),
        blocking: Nanos(0),
    })
}

/// The effort was spent before there was an answer.
#[derive(Clone, Copy, Debug)]
pub struct GaveUp;

/// An answer, and the steps that it took.
pub type Answer<T> = (Result<T, GaveUp>, u64);

/// The least bandwidth at which the flows of a file hold, bytes/s; a proven one if the exact one is out of reach, none if
/// no bandwidth is enough.
pub fn least(timing: &Timing, effort: Effort) -> Answer<Option<u64>> {
    let mut most = Some(0);
    let mut unsure = false;
    let spent = each_part(timing, |analyzer| match analyzer.min_bandwidth(effort) {
        MinBandwidth::Exactly(b) | MinBandwidth::GaveUp { enough: Some(b), .. } => {
            most = most.map(|most| most.max(b.0));
        }
        MinBandwidth::GaveUp { enough: None, .. } => unsure = true,
        MinBandwidth::Never(_) => most = None,
    });
    match spent {
        None => (Ok(None), 0),
        Some(spent) if unsure && most.is_some() => (Err(GaveUp), spent),
        Some(spent) => (Ok(most), spent),
    }
}

/// Whether the flows of a file hold at a bandwidth, bytes/s, or at what the core that copies can do of it.
pub fn hold(timing: &Timing, bandwidth: u64, effort: Effort) -> Answer<bool> {
    let bandwidth = paced(timing, Some(bandwidth)).unwrap_or(bandwidth);
    let (mut all, mut unsure) = (true, false);
    let spent =
        each_part(timing, |analyzer| match analyzer.verdict(BytesPerSec(bandwidth), effort) {
            Ok(Verdict::Schedulable) => {}
            Ok(Verdict::GaveUp { .. }) => unsure = true,
            Ok(Verdict::Unschedulable(_)) | Err(_) => all = false,
        });
    match spent {
        None => (Ok(false), 0),
        Some(spent) if unsure && all => (Err(GaveUp), spent),
        Some(spent) => (Ok(all), spent),
    }
}

/// Asks about each processor of chunks that has real-time flows; gives the steps that it took, or none where the flows
/// can't be analyzed.
fn each_part(timing: &Timing, mut ask: impl FnMut(&mut Analyzer)) -> Option<u64> {
    let input = Input::of(timing, Reading::Printed).ok()?;
    let groups = input.groups(timing, Cores::Concurrent).ok()?;
    let mut spent = 0u64;
    for group in groups {
        let (_, _, tasks, best_effort) = divide(timing, group).ok()?;
        if tasks.is_empty() {
            continue;
        }
        let mut analyzer = Analyzer::new();
        analyzer.load_beside(&tasks, &best_effort);
        ask(&mut analyzer);
        spent = spent.saturating_add(analyzer.spent());
    }
    Some(spent)
}

type Divided = (Option<String>, Vec<usize>, Vec<Task>, Vec<Task>);

/// Tells real-time tasks from those of best effort, on the supply of the core that serves them.
fn divide(timing: &Timing, group: Group) -> Result<Divided, Vec<Fault>> {
    let runner = group.vm.map_or(Runner::Broker, |vm| Runner::Vm(vm as usize));
    let mut tasks = group.tasks;
    if let Some((core, place, supply)) = supply(timing, runner).map_err(|fault| vec![fault])? {
        let linear = supply.linear().ok_or_else(|| {
            let own_lines = || Lack {
                place,
                why: "its interrupts take all of it".to_owned(),
                way: "give each [[irq]] of it a `rate`, and a lower one".to_owned(),
            };
            let Lack { place, why, way } = why_none(timing, runner).unwrap_or_else(own_lines);
            let name = runner.name(timing);
            let message =
                format!("{name} moves flows on {core}, where it is sure of no time: {why}");
            vec![timing.fault(Code::NoSupply, &place, message, way)]
        })?;
        tasks = on_shared_core(&tasks, linear).map_err(|error| {
            let flow = error.flow.and_then(|task| group.flows.get(task).copied());
            vec![fault(timing, FlowError { flow, ..error })]
        })?;
    }
    let vm = group.vm.and_then(|vm| timing.vms.get(vm as usize)).map(|vm| vm.name.clone());
    let is_best_effort = |flow: usize| timing.flows.get(flow).is_some_and(|flow| flow.best_effort);
    let mut flows: Vec<usize> =
        group.flows.iter().copied().filter(|flow| !is_best_effort(*flow)).collect();
    let (mut timed, mut best_effort) = (Vec::new(), Vec::new());
    for (task, flow) in tasks.into_iter().zip(&group.flows) {
        if is_best_effort(*flow) {
            best_effort.push(task);
        } else {
            timed.push(task);
        }
    }
    flows.extend(group.flows.iter().copied().filter(|flow| is_best_effort(*flow)));
    Ok((vm, flows, timed, best_effort))
}

impl Part {
    fn name<'a>(&self, names: &'a [String], task: usize) -> &'a str {
        self.flows.get(task).and_then(|flow| names.get(*flow)).map_or("?", String::as_str)
    }

    fn failure(&self, names: &[String], failure: &Failure) -> String {
        let demand = HalfNanos(i64::try_from(failure.demand).unwrap_or(i64::MAX));
        let blocker =
            failure.blocker.map(|task| format!(", with blocking by {}", self.name(names, task)));
        format!("{demand} of work in {}{}", failure.at, blocker.unwrap_or_default())
    }

    /// Why it can't be scheduled, with the flows' names.
    fn cause(&self, names: &[String], cause: &Cause) -> String {
        match cause {
            Cause::NoTime { task, window } => {
                format!("{}: the overheads leave D' - J' = {window}", self.name(names, *task))
            }
            Cause::NoPeriod { task, period } => {
                format!(
                    "{}: the spread of the send overhead leaves P' = {period}",
                    self.name(names, *task)
                )
            }
            Cause::Demand(failure) => {
                format!("demand exceeds the time: {}", self.failure(names, failure))
            }
            Cause::OverheadDemand(failure) => format!(
                "the overheads alone take more than the time, no bandwidth helps: {}",
                self.failure(names, failure)
            ),
            other => other.to_string(),
        }
    }
}

impl Flows {
    /// The bandwidth that was judged, bytes/s; none where neither given nor found.
    pub const fn bandwidth(&self) -> Option<u64> {
        self.bandwidth
    }

    /// Whether every deadline is met at the bandwidth judged.
    pub fn holds(&self) -> bool {
        self.parts.iter().all(|part| match (&part.report, &part.least) {
            (Some(report), _) => report.verdict == Verdict::Schedulable,
            // No real-time flow at all.
            (None, least) => *least == MinBandwidth::Exactly(BytesPerSec(0)),
        })
    }

    /// The smallest sufficient bandwidth, bytes/s, if it was found and there is one.
    pub fn min_bandwidth(&self) -> Option<u64> {
        match self.least() {
            Least::Exactly(b) => Some(b),
            Least::Never | Least::GaveUp { .. } => None,
        }
    }

    /// What is known of the smallest sufficient bandwidth.
    fn least(&self) -> Least {
        let mut least = Least::Exactly(0);
        for part in &self.parts {
            least = match (least, &part.least) {
                (Least::Never, _) | (_, MinBandwidth::Never(_)) => Least::Never,
                (Least::Exactly(a), MinBandwidth::Exactly(b)) => Least::Exactly(a.max(b.0)),
                (Least::GaveUp { at_least, enough }, MinBandwidth::Exactly(b)) => Least::GaveUp {
                    at_least: at_least.max(b.0),
                    enough: enough.map(|enough| enough.max(b.0)),
                },
                (before, MinBandwidth::GaveUp { at_least, enough }) => {
                    let (low, high) = match before {
                        Least::GaveUp { at_least, enough } => (at_least, enough),
                        Least::Exactly(b) => (b, Some(b)),
                        Least::Never => (0, None),
                    };
                    let high = high.zip(*enough).map(|(high, enough)| high.max(enough.0));
                    Least::GaveUp { at_least: low.max(at_least.0), enough: high }
                }
            };
        }
        least
    }

    /// Why the flows don't hold, or what was not shown in time; one line each.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for part in &self.parts {
            let on = part.vm.as_ref().map_or(String::new(), |vm| format!("on {vm}'s core: "));
            match part.report.as_ref().map(|report| &report.verdict) {
                Some(Verdict::Unschedulable(cause)) => {
                    reasons.push(format!("{on}{}", part.cause(&self.names, cause)));
                }
                Some(Verdict::GaveUp { checked }) => {
                    let upto = if checked.0 > 0 {
                        format!("no failure up to {checked}, but not all instants")
                    } else {
                        "not all of the first instants".to_owned()
                    };
                    reasons.push(format!(
                        "{on}given up: {upto} could be tested in time; --max-steps grants more"
                    ));
                }
                Some(Verdict::Schedulable) => {}
                None => {
                    if let MinBandwidth::Never(cause) = &part.least {
                        reasons.push(format!("{on}{}", part.cause(&self.names, cause)));
                    }
                }
            }
        }
        reasons
    }

    /// Why not, as faults of the file.
    pub fn faults(&self, timing: &Timing) -> Vec<Fault> {
        let most = most_copied(timing).unwrap_or(u64::MAX);
        let help = match self.min_bandwidth() {
            Some(least) if least > most => format!(
                "ask less of the flows: they need {least} B/s, and the core that copies does {most} B/s (`copy_bandwidth`)"
            ),
            Some(least) => format!(
                "the least bandwidth for all flows is {least} B/s; or ask less of the flows"
            ),
            None => "ask less of the flows: `weir analyze` tells more".to_owned(),
        };
        let places = self.parts.iter().map(|part| {
            let task = match part.report.as_ref().map(|report| report.verdict) {
                Some(Verdict::Unschedulable(
                    Cause::NoTime { task, .. } | Cause::NoPeriod { task, .. },
                )) => task,
                _ => 0,
            };
            part.flows
                .get(task)
                .and_then(|flow| timing.flows.get(*flow))
                .map(|flow| flow.place.clone())
        });
        let place = places.flatten().next().unwrap_or_default();
        let reasons = self.reasons();
        reasons
            .iter()
            .map(|reason| timing.fault(Code::FlowDeadlineMissed, &place, reason, &help))
            .collect()
    }

    fn rows(&self) -> Vec<(usize, &TaskReport)> {
        let mut rows: Vec<_> = self
            .parts
            .iter()
            .filter_map(|part| Some((part, part.report.as_ref()?)))
            .flat_map(|(part, report)| part.flows.iter().copied().zip(&report.tasks))
            .collect();
        rows.sort_by_key(|(flow, _)| *flow);
        rows
    }

    /// The greatest U' of a part; none where nothing was judged or a flow is left no period.
    fn utilization(&self) -> Option<f64> {
        let reports = self.parts.iter().filter_map(|part| part.report.as_ref());
        let all: Option<Vec<f64>> = reports.map(|report| report.utilization).collect();
        all?.into_iter().reduce(f64::max)
    }

    fn first_failure(&self) -> Option<(&Part, Failure)> {
        let failed =
            self.parts.iter().filter_map(|part| Some((part, part.report.as_ref()?.first_failure?)));
        failed.min_by_key(|(_, failure)| failure.at)
    }

    /// Whether some flow was shown not to hold; if not, and they don't hold, it was not decided in time.
    pub fn refuted(&self) -> bool {
        self.parts.iter().any(|part| match &part.report {
            Some(report) => matches!(report.verdict, Verdict::Unschedulable(_)),
            None => matches!(part.least, MinBandwidth::Never(_)),
        })
    }

    /// Returns the verdict on all flows.
    pub fn judgement(&self) -> Judgement {
        if self.holds() || self.refuted() {
            return Judgement::of(self.holds());
        }
        Judgement::not_judged(
            "flows: no answer was found within the effort",
            "allow more with --max-steps, or ask less of the flows",
        )
    }

    fn gave_up(&self) -> bool {
        self.parts.iter().any(|part| {
            matches!(part.least, MinBandwidth::GaveUp { .. })
                || part
                    .report
                    .as_ref()
                    .is_some_and(|report| matches!(report.verdict, Verdict::GaveUp { .. }))
        })
    }

    /// The least bandwidth, or why there is none, for a person.
    fn tell_least(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least() {
            Least::Exactly(b) => writeln!(f, "least bandwidth: {b} B/s")?,
            Least::Never => {
                for part in &self.parts {
                    if let MinBandwidth::Never(cause) = &part.least {
                        writeln!(f, "no bandwidth is enough: {}", part.cause(&self.names, cause))?;
                    }
                }
            }
            Least::GaveUp { at_least, enough } => {
                write!(f, "least bandwidth: given up in time; at least {at_least} B/s")?;
                match enough {
                    Some(b) => writeln!(f, ", and {b} B/s is enough")?,
                    None => writeln!(f)?,
                }
            }
        }
        Ok(())
    }

    /// As `weir analyze --json` prints it.
    pub fn to_json(&self) -> Value {
        let tasks = self.rows().into_iter().map(|(flow, task)| {
            json!({
                "name": self.names.get(flow),
                "c_ns": task.c_ns,
                "d_ns": task.d_ns,
                "p_ns": task.p_ns,
                "j_ns": task.j_ns,
                "q_ns": task.q_ns,
                "slack_ns": task.slack_ns,
                "bound_ns": self.bounds.get(flow).and_then(|[bound, _]| *bound),
                "end_to_end_ns": self.end_to_end.get(flow).copied().flatten(),
                "serialized_bound_ns": self.bounds.get(flow).and_then(|[_, bound]| *bound),
            })
        });
        let verdict = self.judgement().verdict();
        let mut json = json!({
            "schedulable": self.holds(),
            "verdict": verdict.key(),
            "utilization": self.utilization(),
            "bandwidth": self.bandwidth,
            "min_bandwidth": self.min_bandwidth(),
            "min_bandwidth_is": self.least().name(),
            "first_failure_ns": self.first_failure().map(|(_, failure)| failure.at.as_nanos_f64()),
            "first_failure": self.first_failure().map(|(part, failure)| part.failure(&self.names, &failure)),
            "reasons": self.reasons(),
            "gave_up": self.gave_up(),
            "bounds_gave_up": self.no_bounds_in_time,
            "assumed": self.assumed.to_json(),
            "tasks": tasks.collect::<Vec<_>>(),
        });
        if let Least::GaveUp { at_least, enough } = self.least() {
            json["min_bandwidth_at_least"] = at_least.into();
            json["min_bandwidth_enough"] = enough.into();
        }
        match self.engine {
            Engine::Unknown => {}
            Engine::From(size) => json["dma_better_from_bytes"] = size.0.into(),
            Engine::Never => json["dma_better_from_bytes"] = Value::Null,
        }
        json
    }
}

impl Assumed {
    fn of(timing: &Timing, question: &super::Question) -> Self {
        let path = timing.dma.path;
        let named = || timing.platform.as_ref().map_or("?", |platform| platform.name.as_str());
        let engine = timing.platform.as_ref().and_then(|platform| platform.dma_engine.as_deref());
        let reason = match (timing.dma.path_source, engine) {
            (PathSource::File, _) => "[dma] path".to_owned(),
            (PathSource::Platform, Some(engine)) => {
                format!("platform {} has the DMA engine {engine}", named())
            }
            (PathSource::Platform, None) => format!("platform {} has no DMA engine", named()),
            (PathSource::Default, _) => "the default without a platform".to_owned(),
        };
        let asked = timing.dma.bandwidth.map(|rate| rate.0);
        let bandwidth = match (bandwidth(timing), asked, question.bandwidth) {
            (None, ..) => "the least that is enough",
            (found, asked, _) if found != asked => "copy_bandwidth",
            (.., Some(_)) => "--bandwidth",
            (.., None) => "[dma] bandwidth",
        };
        Self {
            path,
            reason,
            bandwidth,
            copy_bandwidth: most_copied(timing),
            chunk: timing.dma.chunk.map_or(CHUNK, |chunk| chunk.0),
            tables: timing.tables.clone(),
            build: crate::build_id::of_checkout().map(str::to_owned),
        }
    }

    const fn moves(&self) -> &'static str {
        match self.path {
            DataPath::Dma => "a DMA engine moves the bytes",
            DataPath::Broker => "the broker's core copies",
            DataPath::Sender => "the sender's core copies",
            DataPath::Receiver => "the receiver's core copies",
        }
    }

    const fn path_name(&self) -> &'static str {
        match self.path {
            DataPath::Dma => "dma",
            DataPath::Broker => "broker",
            DataPath::Sender => "sender",
            DataPath::Receiver => "receiver",
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "data_path": self.path_name(),
            "data_path_from": self.reason,
            "cores": "concurrent",
            "bandwidth_from": self.bandwidth,
            "copy_bandwidth": self.copy_bandwidth,
            "chunk": self.chunk,
            "overheads_are": "measured",
            "overheads": overheads_json(&self.tables, self.build.as_deref()),
            "build": self.build,
        })
    }
}

impl fmt::Display for Assumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "data path: {} in chunks of {} B ({})", self.moves(), self.chunk, self.reason)?;
        writeln!(f, "cores: concurrent, waits for locks included; bandwidth: {}", self.bandwidth)?;
        write!(f, "{}", overhead_lines(&self.tables, self.build.as_deref()))
    }
}

/// The origin of overheads as data: one entry for each table, and whether it is of this build of
/// the hypervisor.
pub fn overheads_json(tables: &[OverheadTable], now: Option<&str>) -> Value {
    let entry = |table: &OverheadTable| {
        let origin = table.origin.as_ref();
        let build = origin.and_then(|origin| origin.build.as_deref());
        json!({
            "file": table.file,
            "command": origin.map(|origin| &origin.command),
            "build": build,
            "date": origin.and_then(|origin| origin.date.as_ref()),
            "same_build": build.zip(now).map(|(one, other)| one == other),
        })
    };
    tables.iter().map(entry).collect()
}

/// Says where overheads come from, one line for each table, and warns if another build of the
/// hypervisor was measured than that of the checkout.
pub fn overhead_lines(tables: &[OverheadTable], build: Option<&str>) -> String {
    use fmt::Write as _;
    // Writing to a string does not fail.
    let mut text = String::new();
    for OverheadTable { file, origin } in tables {
        let Some(origin) = origin else {
            let _ = writeln!(text, "overheads: {file}: of unknown origin");
            continue;
        };
        let date = origin.date.as_ref().map_or(String::new(), |date| format!(", {date}"));
        let of = origin.build.as_ref();
        let measured = of.map_or(String::new(), |build| format!(", hypervisor build {build}"));
        let command = &origin.command;
        let _ =
            writeln!(text, "overheads: {file}: measured, not proven ({command}{date}{measured})");
        if let Some((of, now)) = of.zip(build).filter(|(of, now)| of != now) {
            let _ = writeln!(
                text,
                "warning: these overheads are of hypervisor build {of}, and this is build {now}: measure them again (docs/flows.md, The bound)"
            );
        }
    }
    text
}

impl fmt::Display for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "flow",
            "C' ns",
            "D' ns",
            "P' ns",
            "J' ns",
            "q' ns",
            "slack ns",
            "bound ns",
            "serialized ns",
        ];
        let shown = if self.bounds.is_empty() { &header[..7] } else { &header };
        let mut rows = table(shown.to_vec());
        for (flow, task) in self.rows() {
            let ns = |time: f64| format!("{time:.1}");
            let mut row = vec![
                self.names.get(flow).cloned().unwrap_or_default(),
                ns(task.c_ns),
                ns(task.d_ns),
                ns(task.p_ns),
                ns(task.j_ns),
                ns(task.q_ns),
                task.slack_ns.map_or("-".to_owned(), ns),
            ];
            for bound in self.bounds.get(flow).into_iter().flatten() {
                row.push(bound.map_or("-".to_owned(), |bound| bound.to_string()));
            }
            rows.add_row(row);
        }
        if !rows.is_empty() {
            writeln!(f, "{rows}")?;
        }
        write!(f, "{}", self.assumed)?;
        if self.no_bounds_in_time {
            writeln!(f, "how long packets take: given up for some flows; --max-steps grants more")?;
        }
        let refuted = self.refuted();
        let verdict = match (self.holds(), refuted) {
            (true, _) => "schedulable",
            (false, true) => "not schedulable",
            (false, false) => "not judged within the effort",
        };
        match self.bandwidth {
            Some(b) if self.given => writeln!(f, "flows: {verdict} at {b} B/s")?,
            Some(b) => {
                let which = match self.least() {
                    Least::Exactly(_) => "the least",
                    Least::Never | Least::GaveUp { .. } => "which is proven to be enough",
                };
                writeln!(f, "flows: {verdict} at {b} B/s, {which} (no bandwidth is given)")?;
            }
            None => writeln!(f, "flows: {verdict}")?,
        }
        for reason in self.reasons() {
            writeln!(f, "  {reason}")?;
        }
        match self.first_failure() {
            Some((part, failure)) => {
                let what = part.failure(&self.names, &failure);
                writeln!(f, "first failing instant: {}: {what}", failure.at)?;
            }
            None if self.parts.iter().any(|part| {
                let verdict = part.report.as_ref().map(|report| report.verdict);
                verdict == Some(Verdict::Unschedulable(Cause::Overload))
            }) =>
            {
                writeln!(f, "first failing instant: not found in time")?;
            }
            None => {}
        }
        self.tell_least(f)?;
        match self.utilization() {
            Some(utilization) => writeln!(f, "utilization U': {utilization:.6}")?,
            None if rows.is_empty() => {}
            None => writeln!(f, "utilization U': none, as a flow is left no period")?,
        }
        match self.engine {
            Engine::Unknown => Ok(()),
            Engine::From(size) => {
                writeln!(f, "chunks of {} B and more go faster by DMA than by copy", size.0)
            }
            Engine::Never => writeln!(f, "no chunk goes faster by DMA than by copy"),
        }
    }
}
