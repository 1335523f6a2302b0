//! Reads the keys of `keys`. What has the wrong type or is missing was reported by the walk; here the rules between
//! values are checked, and names become positions.

use super::{
    Class, DataPath, Dma, Flow, Interference, Larger, Line, Origin, Overhead, OverheadTable,
    Overheads, PathSource, Place, Runner, Saturation, Schedule, SharedCore, Sharing, Task, TimedVm,
    Timing, keys,
};
use crate::diagnostics::Code;
use crate::fault::Fault;
use crate::fault::Faults;
use crate::fault::File;
use crate::raw::At;
use crate::raw::Values;
use crate::raw::number;
use crate::raw::text;
use crate::shape::suggestion;
use std::{collections::HashMap, fmt::Display, ops::Range, sync::Arc};
use toml::de::DeTable;
use weir_units::Bytes;
use weir_units::BytesPerSec;
use weir_units::Nanos;

/// The content of a system file and of its platform. With `alone`, no other check reads the names
/// of the VMs.
pub(crate) fn system(
    table: &DeTable<'_>,
    file: &File,
    alone: bool,
    faults: &mut Faults,
) -> (Timing, Option<At<String>>) {
    let mut reader = Reader::new(file, faults);
    reader.names(table, alone);
    let flows = reader.flows(table);
    if !flows.is_empty() {
        let cpus = table.inner("broker").and_then(|(table, _)| table.list("cpus", number));
        reader.broker = cpus.and_then(|cpus| Some(cpus.value.first()?.value));
    }
    let mut dma = reader.dma(table);
    let Overheads { steps: overheads, copy_bandwidth, origin, .. } = reader.overheads(table);
    dma.copy_bandwidth = dma.copy_bandwidth.or(copy_bandwidth);
    let own = !overheads.is_empty() || copy_bandwidth.is_some();
    let tables = own.then(|| OverheadTable { file: file.name().to_owned(), origin });
    let wakes = wakes(table);
    let saturation = reader.saturation(table);
    let (cores, unread) = reader.cores(table);
    let lines = reader.lines(table);
    let measured = table.inner("broker").and_then(|(table, _)| table.text("overheads"));
    let measured = measured.map(|At { value, span }| (value, place(&span)));
    let file = Arc::clone(file);
    let broker = reader.broker;
    let vms = reader.vms;
    let platform = None;
    let timing = Timing {
        platform,
        vms,
        flows,
        dma,
        overheads,
        tables: tables.into_iter().collect(),
        wakes,
        saturation,
        cores,
        unread,
        lines,
        broker,
        measured,
        file,
    };
    (timing, table.text("platform"))
}

/// What a platform file says.
pub(crate) fn platform(
    table: &DeTable<'_>,
    file: &File,
    faults: &mut Faults,
) -> (Overheads, Option<Saturation>, Option<Sharing>) {
    let mut reader = Reader::new(file, faults);
    (reader.overheads(table), reader.saturation(table), reader.sharing(table))
}

/// What a platform file says about other VMs' memory accesses.
pub(crate) fn interference(
    table: &DeTable<'_>,
    file: &File,
    faults: &mut Faults,
) -> Option<Interference> {
    let (table, _) = table.inner("interference")?;
    let mut reader = Reader::new(file, faults);
    let source = reader.source(table);
    let free = |key: &str| table.number(key).map(|number| number.value);
    Some(Interference {
        delay: table.duration("delay")?.value,
        per_access: free("per_access"),
        overshoot: free("overshoot"),
        source: source?,
    })
}

/// The words that a value's source may begin with.
const SOURCES: [&str; 7] = ["manual", "paper", "measured", "fitted", "derived", "model", "assumed"];

pub(super) struct Reader<'a> {
    file: &'a File,
    faults: &'a mut Faults,
    vms: Vec<TimedVm>,
    by_name: HashMap<String, usize>,
    /// Whether the file has no VMs, so that flows name them.
    open: bool,
    /// The broker's core, if there are flows and `[broker]` says.
    broker: Option<u64>,
}

pub(super) fn place(span: &Range<usize>) -> Place {
    Place(span.clone())
}

pub(super) fn place_of<T>(value: Option<&At<T>>, otherwise: &Range<usize>) -> Place {
    place(value.map_or(otherwise, |value| &value.span))
}

/// A span of time that may be an integer of nanoseconds.
fn nanos(table: &DeTable<'_>, key: &str) -> Option<At<Nanos>> {
    table.duration(key).or_else(|| {
        let At { value, span } = table.number(key)?;
        Some(At { value: Nanos(value), span })
    })
}

/// The wake-ups behind some senders' notifications: the sender's name, and the greatest.
fn wakes(table: &DeTable<'_>) -> Vec<(String, Nanos)> {
    let Some((table, _)) = table.inner("overheads") else { return Vec::new() };
    let one = |(sender, _): (&DeTable<'_>, Range<usize>)| {
        Some((sender.text("vm")?.value, nanos(sender, "wake")?.value))
    };
    table.tables("senders").into_iter().filter_map(one).collect()
}

pub(crate) fn rate(table: &DeTable<'_>, key: &str) -> Option<At<BytesPerSec>> {
    let At { value, span } = table.text(key)?;
    Some(At { value: BytesPerSec::parse(&value).ok()?, span })
}

pub(crate) fn boolean(table: &DeTable<'_>, key: &str) -> Option<bool> {
    table.value(key)?.get_ref().as_bool()
}

impl<'a> Reader<'a> {
    fn new(file: &'a File, faults: &'a mut Faults) -> Self {
        let (vms, by_name) = (Vec::new(), HashMap::new());
        Self { file, faults, vms, by_name, open: false, broker: None }
    }
}

impl Reader<'_> {
    pub(super) fn fault(
        &mut self,
        code: Code,
        span: &Range<usize>,
        message: impl Display,
        help: impl Into<String>,
    ) {
        let fault = Fault::new(code, self.file, span.clone(), message.to_string());
        self.faults.push(fault.label("this").help(help));
    }

    /// A quantity that must not be 0.
    fn positive<T: Copy>(
        &mut self,
        value: Option<At<T>>,
        get: impl Fn(T) -> u64,
        what: &str,
        example: &str,
    ) -> Option<At<T>> {
        let value = value?;
        if get(value.value) == 0 {
            let help = format!("write more than 0, like {example}");
            self.fault(Code::Zero, &value.span, format!("{what} is 0"), help);
            return None;
        }
        Some(value)
    }

    pub(super) fn time(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        owner: &str,
    ) -> Option<At<Nanos>> {
        let what = format!("`{key}` of {owner}");
        self.positive(table.duration(key), |time| time.0, &what, "\"10ms\"")
    }

    fn size(&mut self, table: &DeTable<'_>, key: &str, owner: &str) -> Option<At<Bytes>> {
        let what = format!("`{key}` of {owner}");
        self.positive(table.size(key), |size| size.0, &what, "\"4KiB\"")
    }

    pub(super) fn rate(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        owner: &str,
    ) -> Option<At<BytesPerSec>> {
        let what = format!("`{key}` of {owner}");
        self.positive(rate(table, key), |rate| rate.0, &what, "\"485MB/s\"")
    }

    fn names(&mut self, table: &DeTable<'_>, alone: bool) {
        for (vm, span) in table.tables("vm") {
            let name = vm.text("name");
            let known = name.as_ref().and_then(|name| self.by_name.get(&name.value));
            if let (Some(name), Some(_), true) = (&name, known, alone) {
                let message = format!("two VMs are called `{}`", name.value);
                self.fault(Code::NameTwice, &name.span, message, "give one of them another name");
            }
            let title = name.map_or("a VM".to_owned(), |name| name.value);
            self.by_name.entry(title.clone()).or_insert(self.vms.len());
            let vm = self.vm(vm, &span, title);
            self.vms.push(vm);
        }
        self.open = self.vms.is_empty();
    }

    fn vm(&mut self, table: &DeTable<'_>, span: &Range<usize>, name: String) -> TimedVm {
        let memory = table.size("memory").map(|size| size.value).or_else(|| {
            let pieces = table.tables("memory");
            let sizes = pieces.iter().map(|(piece, _)| Some(piece.size("size")?.value.0));
            let total = sizes.sum::<Option<u64>>()?;
            (!pieces.is_empty()).then_some(Bytes(total))
        });
        let cpus = table.list("cpus", number).map_or(Vec::new(), |cpus| cpus.value);
        let bandwidth = table.inner("memory_budget");
        let workload = table.inner("workload");
        let rest = table.value("devices").is_some_and(|value| value.get_ref().is_str());
        let devices = (!rest).then(|| {
            let names = table.list("devices", text).map_or(Vec::new(), |names| names.value);
            names.into_iter().map(|name| name.value).collect()
        });
        TimedVm {
            bandwidth: bandwidth
                .map(|(table, span)| self.bandwidth(table, &span, &name, cpus.len())),
            cpus: cpus.into_iter().map(|core| core.value).collect(),
            memory,
            criticality: table.number("criticality").map_or(0, |number| number.value),
            working_set: table.size("working_set").map(|size| size.value),
            tasks: self.tasks(table, &name),
            workload: workload.and_then(|(table, span)| self.workload(table, &span, &name)),
            devices,
            built: table.contains_key("image"),
            place: place(span),
            name,
        }
    }

    /// Reads the tasks of a VM. A run finds a task by its name in the lines of its VM, so each name
    /// is one task's.
    fn tasks(&mut self, table: &DeTable<'_>, vm: &str) -> Vec<Task> {
        let mut names: HashMap<String, Range<usize>> = HashMap::new();
        let mut tasks = Vec::new();
        for (table, span) in table.tables("task") {
            if let Some(At { value, span }) = table.text("name") {
                if let Some(first) = names.get(&value) {
                    let message = format!("two tasks of {vm} are called `{value}`");
                    let fault = Fault::new(Code::TaskTwice, self.file, span, message);
                    let fault = fault.label("second").and(first.clone(), "first");
                    self.faults.push(fault.help("give one of them another name"));
                } else {
                    names.insert(value, span);
                }
            }
            tasks.extend(self.task(table, &span, vm));
        }
        tasks
    }

    fn task(&mut self, table: &DeTable<'_>, span: &Range<usize>, vm: &str) -> Option<Task> {
        let name = table.text("name")?.value;
        let owner = format!("{vm}'s task {name}");
        let cost = self.time(table, "wcet", &owner);
        let period = self.time(table, "period", &owner);
        let deadline = if table.contains_key("deadline") {
            self.time(table, "deadline", &owner)
        } else {
            period.clone()
        };
        let free = |key: &str| table.duration(key).map_or(Nanos(0), |time| time.value);
        Some(Task {
            cost: cost?.value,
            period: period?.value,
            deadline: deadline?.value,
            jitter: free("jitter"),
            blocking: free("blocking"),
            core: table.number("core").map(|core| core.value),
            accesses: table.number("accesses").map(|number| number.value),
            place: place(span),
            name,
        })
    }

    /// The position of a VM.
    fn find(&mut self, name: &At<String>) -> Option<usize> {
        if let Some(vm) = self.by_name.get(&name.value) {
            return Some(*vm);
        }
        if self.open && !name.value.is_empty() {
            let vm = TimedVm {
                name: name.value.clone(),
                cpus: Vec::new(),
                memory: None,
                criticality: 0,
                working_set: None,
                bandwidth: None,
                tasks: Vec::new(),
                workload: None,
                devices: Some(Vec::new()),
                built: false,
                place: place(&name.span),
            };
            self.by_name.insert(name.value.clone(), self.vms.len());
            self.vms.push(vm);
            return Some(self.vms.len() - 1);
        }
        let help = suggestion(&name.value, self.vms.iter().map(|vm| vm.name.as_str()));
        self.fault(Code::UnknownVm, &name.span, format!("there is no VM `{}`", name.value), help);
        None
    }

    fn flows(&mut self, table: &DeTable<'_>) -> Vec<Flow> {
        let mut names: HashMap<String, Range<usize>> = HashMap::new();
        let mut flows = Vec::new();
        for (table, span) in table.tables("flow") {
            let name = table.text("name");
            if let Some(At { value, span }) = &name {
                let help = "write a name of letters, digits, `-` and the like, name = \"orders\"";
                if value.is_empty() {
                    self.fault(Code::NameEmpty, span, "a flow's name is empty".to_owned(), help);
                } else if let Some(bad) = value.chars().find(|c| c.is_control()) {
                    let message = format!("a flow's name has {bad:?} in it");
                    self.fault(Code::NameCharacters, span, message, help);
                }
                if let Some(first) = names.get(value) {
                    let message = format!("two flows are called `{value}`");
                    let fault = Fault::new(Code::FlowTwice, self.file, span.clone(), message);
                    let fault = fault.label("second").and(first.clone(), "first");
                    self.faults.push(fault.help("give one of them another name"));
                } else {
                    names.insert(value.clone(), span.clone());
                }
            }
            let title = name.map_or("?".to_owned(), |name| name.value);
            flows.extend(self.flow(table, &span, title));
        }
        flows
    }

    fn flow(&mut self, table: &DeTable<'_>, span: &Range<usize>, name: String) -> Option<Flow> {
        let owner = format!("the flow {name}");
        let sender = table.text("from");
        let from = sender.as_ref().and_then(|name| self.find(name));
        let to = self.receivers(table, &owner, sender.as_ref());
        let size = self.size(table, "size", &owner);
        let best_effort = boolean(table, "best_effort").unwrap_or(false);
        let period = self.time(table, "period", &owner);
        let deadline = if table.contains_key("deadline") {
            self.time(table, "deadline", &owner)
        } else {
            period.clone()
        };
        if best_effort && table.contains_key("deadline") {
            let span = deadline.as_ref().map_or(span, |deadline| &deadline.span);
            let message = format!("{owner} is best effort and has a deadline");
            self.fault(Code::BestEffortDeadline, span, message, "leave one of the two out");
        }
        if !best_effort && !table.contains_key("period") {
            let help =
                "add the least time between two packets, period = \"10ms\", or best_effort = true";
            self.fault(Code::MissingKey, span, format!("{owner} has no `period`"), help);
            return None;
        }
        let places = [
            place_of(size.as_ref(), span),
            place_of(period.as_ref(), span),
            place_of(deadline.as_ref(), span),
        ];
        if !best_effort && (period.is_none() || deadline.is_none()) {
            return None;
        }
        let jitter = table.duration("jitter");
        let bandwidth = self.rate(table, "bandwidth", &owner);
        if let (Some(rate), Some(size), Some(period), false) =
            (&bandwidth, &size, &period, best_effort)
        {
            let needed = u128::from(size.value.0) * 1_000_000_000;
            let needed = needed.div_ceil(period.value.0.max(1).into());
            if u128::from(rate.value.0) < needed {
                let message = format!(
                    "{owner} is limited to {} B/s, and its packets of {} each {} are {needed} B/s",
                    rate.value.0, size.value, period.value
                );
                let help = format!(
                    "write bandwidth = \"{needed}B/s\" or more, or leave it out: its period limits it already"
                );
                self.fault(Code::FlowBandwidth, &rate.span, message, help);
            }
        }
        let timed = |time: Option<At<Nanos>>| time.filter(|_| !best_effort).map(|time| time.value);
        Some(Flow {
            name,
            from: from?,
            to: to?,
            port: table.number("port").map(|port| port.value as u32),
            size: size?.value,
            period: timed(period),
            jitter: jitter.map_or(Nanos(0), |jitter| jitter.value),
            deadline: timed(deadline),
            best_effort,
            bandwidth: bandwidth.map(|rate| rate.value),
            place: place(span),
            places,
        })
    }

    fn receivers(
        &mut self,
        table: &DeTable<'_>,
        owner: &str,
        sender: Option<&At<String>>,
    ) -> Option<Vec<usize>> {
        let names = if let Some(list) = table.list("to", text) {
            list
        } else {
            let name = table.text("to")?;
            At { span: name.span.clone(), value: vec![name] }
        };
        if names.value.is_empty() {
            let message = format!("{owner} has no receiver");
            self.fault(Code::NoReceiver, &names.span, message, "name a VM");
            return None;
        }
        let mut to = Vec::new();
        let mut sound = true;
        for name in &names.value {
            if sender.is_some_and(|sender| sender.value == name.value) {
                let message = format!("{owner} goes from `{0}` to `{0}`", name.value);
                self.fault(Code::SelfLoop, &name.span, message, "name another VM");
                sound = false;
                continue;
            }
            match self.find(name) {
                Some(vm) if to.contains(&vm) => {
                    let message = format!("{owner} goes to `{}` twice", name.value);
                    self.fault(Code::ReceiverTwice, &name.span, message, "name each receiver once");
                    sound = false;
                }
                Some(vm) => to.push(vm),
                None => sound = false,
            }
        }
        sound.then_some(to)
    }

    fn dma(&mut self, table: &DeTable<'_>) -> Dma {
        let Some((table, span)) = table.inner("dma") else {
            return Dma::default();
        };
        let path = table.text("path");
        Dma {
            bandwidth: self.rate(table, "bandwidth", "[dma]").map(|rate| rate.value),
            chunk: self.size(table, "chunk", "[dma]").map(|size| size.value),
            queues: table.number("queues").map(|number| number.value as u32),
            path_source: match path {
                Some(_) => PathSource::File,
                None => PathSource::Default,
            },
            path: match path.as_ref().map(|path| path.value.as_str()) {
                Some("broker") => DataPath::Broker,
                Some("sender") => DataPath::Sender,
                Some("receiver") => DataPath::Receiver,
                _ => DataPath::Dma,
            },
            copy_bandwidth: self.rate(table, "copy_bandwidth", "[dma]").map(|rate| rate.value),
            engine: table.text("engine").map(|name| name.value),
            place: place(&span),
            given: true,
        }
    }

    fn overheads(&mut self, table: &DeTable<'_>) -> Overheads {
        let Some((table, _)) = table.inner("overheads") else {
            return Overheads::default();
        };
        let mut steps = Vec::new();
        for name in keys::OVERHEADS {
            let Some((range, span)) = table.inner(name) else {
                continue;
            };
            let (Some(min), Some(max)) = (nanos(range, "min"), nanos(range, "max")) else {
                continue;
            };
            if min.value > max.value {
                let message = format!(
                    "the overhead {name} is at least {} and at most {}",
                    min.value, max.value
                );
                self.fault(Code::RangeReversed, &span, message, "write the smaller one as `min`");
                continue;
            }
            steps.push(Overhead { name, min: min.value, max: max.value });
        }
        let origin = table.inner("origin").and_then(|(origin, _)| {
            let text = |key| origin.text(key).map(|text| text.value);
            Some(Origin { command: text("command")?, build: text("build"), date: text("date") })
        });
        let copy_bandwidth = self.rate(table, "copy_bandwidth", "[overheads]");
        let size =
            |table: &DeTable<'_>| Some([table.number("flows")?.value, table.number("vms")?.value]);
        let larger = table.inner("larger").and_then(|(larger, _)| {
            let most = keys::GROWING.into_iter();
            let most = most.filter_map(|name| Some((name, nanos(larger, name)?.value)));
            Some(Larger { size: size(larger)?, most: most.collect() })
        });
        Overheads {
            steps,
            copy_bandwidth: copy_bandwidth.map(|rate| rate.value),
            origin,
            size: size(table),
            larger,
        }
    }

    fn saturation(&mut self, table: &DeTable<'_>) -> Option<Saturation> {
        let (table, _) = table.inner("saturation")?;
        let period = self.time(table, "period", "[saturation]");
        let line = self.size(table, "line", "[saturation]");
        let points: Vec<_> = table
            .tables("points")
            .into_iter()
            .filter_map(|(point, _)| {
                Some((point.number("accesses")?.value, rate(point, "dma")?.value))
            })
            .collect();
        if let (true, Some(points)) = (points.is_empty(), table.value("points")) {
            let help = "add a measured pair: { accesses = 180, dma = \"485MB/s\" }";
            self.fault(Code::SaturationPoints, &points.span(), "[saturation] has no points", help);
            return None;
        }
        let source = self.source(table);
        let mut chunks = Vec::new();
        for (chunk, _) in table.tables("chunks") {
            let size = self.size(chunk, "size", "a chunk");
            let reach = self.rate(chunk, "dma", "a chunk");
            chunks.extend(size.zip(reach).map(|(size, reach)| (size.value, reach.value)));
        }
        let free = |key: &str| table.number(key).map(|number| number.value);
        Some(Saturation {
            period: period?.value,
            line: line?.value,
            points,
            min_accesses: free("min_accesses").unwrap_or(0),
            min_period: table.duration("min_period").map_or(Nanos(0), |least| least.value),
            overshoot: free("overshoot"),
            delay: table.duration("delay").map(|delay| delay.value),
            per_access: free("per_access"),
            qos: table.size("qos_block").map(|size| size.value).zip(free("qos_clock")),
            chunks,
            source,
        })
    }

    /// Where the values of a table come from.
    fn source(&mut self, table: &DeTable<'_>) -> Option<String> {
        let At { value, span } = table.text("source")?;
        let kind = value.split_once(": ").map_or("", |(kind, _)| kind);
        if !SOURCES.contains(&kind) {
            let message = format!("`source` begins with none of: {}", SOURCES.join(", "));
            self.fault(
                Code::ValueSource,
                &span,
                message,
                "write a source like \"assumed: one line each 100 ns\"",
            );
            return None;
        }
        Some(value)
    }

    fn sharing(&mut self, table: &DeTable<'_>) -> Option<Sharing> {
        let (table, _) = table.inner("sharing")?;
        let (switch, switch_span) = table.inner("switch")?;
        let (least, most) = (nanos(switch, "min")?.value, nanos(switch, "max")?.value);
        if least > most || least.0 == 0 {
            let message = format!("a switch takes at least {least} and at most {most}");
            let help = "write the smaller one, which is more than 0, as `min`";
            self.fault(Code::RangeReversed, &switch_span, message, help);
            return None;
        }
        Some(Sharing {
            switch: most,
            least_switch: least,
            interrupt: self.time(table, "interrupt", "[sharing]")?.value,
            entry: self.time(table, "entry", "[sharing]")?.value,
        })
    }

    fn runner(&mut self, name: &At<String>) -> Option<Runner> {
        if name.value == "broker" && !self.by_name.contains_key("broker") {
            return Some(Runner::Broker);
        }
        self.find(name).map(Runner::Vm)
    }

    /// The shared cores, and those whose schedules have faults, which were reported.
    fn cores(&mut self, table: &DeTable<'_>) -> (Vec<SharedCore>, Vec<Option<u64>>) {
        let mut seen: HashMap<u64, Range<usize>> = HashMap::new();
        let (mut cores, mut unread) = (Vec::new(), Vec::new());
        for (table, _) in table.tables("core") {
            let (Some(id), Some((schedule, span))) = (table.number("id"), table.inner("schedule"))
            else {
                unread.push(table.number("id").map(|id| id.value));
                continue;
            };
            let switch = schedule.duration("switch").map(|time| time.value);
            if let Some(first) = seen.get(&id.value) {
                let message = format!("core {} has two schedules", id.value);
                let fault = Fault::new(Code::ScheduleTwice, self.file, id.span.clone(), message);
                let fault = fault.label("second").and(first.clone(), "first");
                self.faults.push(fault.help("keep one of them"));
                continue;
            }
            seen.insert(id.value, id.span);
            if let Some(schedule) = self.schedule(schedule, &span, id.value) {
                cores.push(SharedCore { id: id.value, schedule, switch, place: place(&span) });
            } else {
                unread.push(Some(id.value));
            }
        }
        (cores, unread)
    }

    fn schedule(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
        core: u64,
    ) -> Option<Schedule> {
        let kind = table.text("kind")?.value;
        let owner = format!("core {core}'s schedule");
        let (own, others): (&[&str], &[&str]) = match kind.as_str() {
            "round-robin" => (&["quantum"], &["major_frame", "slots", "servers"]),
            "table" => (&["major_frame", "slots"], &["quantum", "vms", "servers"]),
            _ => (&["servers"], &["quantum", "vms", "major_frame", "slots"]),
        };
        for key in others {
            if let Some(value) = table.value(key) {
                let message = format!("{owner} is of kind {kind}, which has no `{key}`");
                self.fault(Code::ScheduleKind, &value.span(), message, "take the key out");
            }
        }
        for key in own {
            if !table.contains_key(*key) {
                let message = format!("{owner} is of kind {kind} and has no `{key}`");
                self.fault(Code::MissingKey, span, message, format!("add `{key} = ...`"));
            }
        }
        match kind.as_str() {
            "round-robin" => self.round_robin(table, &owner, core),
            "table" => self.time_table(table, &owner),
            _ => self.servers(table, &owner),
        }
    }

    fn round_robin(&mut self, table: &DeTable<'_>, owner: &str, core: u64) -> Option<Schedule> {
        let quantum = self.time(table, "quantum", owner)?.value;
        let runners = if let Some(names) = table.list("vms", text) {
            names.value.iter().map(|name| self.runner(name)).collect::<Option<Vec<_>>>()?
        } else {
            let on_core = |vm: &TimedVm| vm.cpus.contains(&core);
            let positions = self.vms.iter().enumerate().filter(|(_, vm)| on_core(vm));
            let vms = positions.map(|(vm, _)| Runner::Vm(vm));
            vms.chain((self.broker == Some(core)).then_some(Runner::Broker)).collect()
        };
        Some(Schedule::RoundRobin { quantum, runners })
    }

    fn time_table(&mut self, table: &DeTable<'_>, owner: &str) -> Option<Schedule> {
        let frame = self.time(table, "major_frame", owner)?;
        let mut slots: Vec<(Runner, Nanos, Nanos)> = Vec::new();
        let mut sound = true;
        for (slot, span) in table.tables("slots") {
            let (Some(vm), Some(start)) = (slot.text("vm"), slot.duration("start")) else {
                return None;
            };
            let (Some(runner), Some(length)) =
                (self.runner(&vm), self.time(slot, "length", &format!("a slot of {}", vm.value)))
            else {
                sound = false;
                continue;
            };
            let (start, length) = (start.value, length.value);
            let end = start.0.checked_add(length.0).filter(|end| *end <= frame.value.0);
            if end.is_none() {
                let message = format!(
                    "the slot of {} at {start} for {length} ends after the major frame ({})",
                    vm.value, frame.value
                );
                self.fault(
                    Code::SlotOrder,
                    &span,
                    message,
                    "shorten it, or lengthen `major_frame`",
                );
                sound = false;
                continue;
            }
            let before = slots.last().map_or(0, |(_, start, length)| start.0 + length.0);
            if start.0 < before {
                let message = format!(
                    "the slot of {} starts at {start}, before the one ahead of it ends at {}",
                    vm.value,
                    Nanos(before)
                );
                self.fault(
                    Code::SlotOrder,
                    &span,
                    message,
                    "write the slots in order, one after the other",
                );
                sound = false;
                continue;
            }
            slots.push((runner, start, length));
        }
        sound.then_some(Schedule::Table { frame: frame.value, slots })
    }

    fn servers(&mut self, table: &DeTable<'_>, owner: &str) -> Option<Schedule> {
        let mut servers = Vec::new();
        for (server, span) in table.tables("servers") {
            let vm = server.text("vm")?;
            let runner = self.runner(&vm)?;
            let budget = self.time(server, "budget", owner)?.value;
            let period = self.time(server, "period", owner)?.value;
            if budget > period {
                let message = format!("{} gets {budget} in each {period}", vm.value);
                self.fault(
                    Code::ServerBudget,
                    &span,
                    message,
                    "write a budget of at most the period",
                );
                return None;
            }
            servers.push((runner, budget, period));
        }
        Some(Schedule::FixedPriority { servers })
    }

    fn lines(&mut self, table: &DeTable<'_>) -> Vec<Line> {
        let mut lines = Vec::new();
        for (table, span) in table.tables("irq") {
            let line = table.text("line").map(|line| line.value);
            let line = line.or_else(|| table.number("line").map(|line| line.value.to_string()));
            let (Some(name), Some(vm)) = (line, table.text("vm")) else {
                continue;
            };
            let (rate, burst) = (table.number("rate"), table.number("burst"));
            if let (None, Some(burst)) = (&rate, &burst) {
                let message = format!("interrupt {name} has a `burst` and no `rate`");
                let help = "add the interrupts a second that are let through, rate = 1000";
                self.fault(Code::IrqBurst, &burst.span, message, help);
            }
            let burst = burst.map_or(1, |burst| burst.value);
            let preempt = boolean(table, "preempt").unwrap_or(false);
            let priority = table.number("priority");
            if let (false, Some(priority)) = (preempt, &priority) {
                let message =
                    format!("interrupt {name} has a `priority` and does not take the core");
                let help = "add preempt = true, or take the `priority` out";
                self.fault(Code::IrqPriority, &priority.span, message, help);
            }
            let what = format!("`wcet` of interrupt {name}");
            let cost = self.positive(table.duration("wcet"), |cost| cost.0, &what, "\"10us\"");
            let what = format!("`deadline` of interrupt {name}");
            let deadline = table.duration("deadline");
            let deadline = self.positive(deadline, |deadline| deadline.0, &what, "\"1ms\"");
            if let Some(vm) = self.find(&vm) {
                lines.push(Line {
                    name,
                    vm,
                    class: match table.text("class").as_ref().map(|class| class.value.as_str()) {
                        Some("active") => Class::Active,
                        Some("running") => Class::Running,
                        Some("dynamic") => Class::Dynamic,
                        _ => Class::Dedicated,
                    },
                    preempt,
                    priority: priority.map_or(Line::PRIORITY, |priority| priority.value as u8),
                    admission: rate.map(|rate| (rate.value, burst)),
                    cost: cost.map_or(Nanos(0), |cost| cost.value),
                    deadline: deadline.map(|deadline| deadline.value),
                    place: place(&span),
                });
            }
        }
        lines
    }
}
