//! Reads flows, schedules, interrupts, tasks and budgets. What has the wrong type or is missing was
//! reported by the walk; here the rules between values are checked, and names become positions.

use super::facts::Timing;
use super::flow::{DataPath, Dma, Flow, PathSource};
use super::schedule::{Class, Entity, Line, Schedule, SharedCore};
use super::vm::{Task, TimedVm};
use crate::diagnostics::Code;
use crate::document::{At, Reader, Values, place, place_of, text};
use crate::fault::{Fault, Faults, File};
use crate::measured::{OverheadTable, Overheads, wakes};
use crate::raw;
use crate::shape::suggestion;
use std::{collections::HashMap, ops::Range, sync::Arc};
use toml::de::DeTable;
use weir_units::Nanos;

/// The content of a system file and of its platform.
pub(crate) fn system(
    table: &DeTable<'_>,
    raw: &raw::System,
    file: &File,
    faults: &mut Faults,
) -> Timing {
    let mut reader = SystemReader {
        reader: Reader { file, faults },
        vms: Vec::new(),
        by_name: HashMap::new(),
        open: false,
        broker: None,
    };
    reader.names(table, raw);
    let flows = reader.flows(table);
    if !flows.is_empty() {
        let cpus = raw.broker.as_ref();
        reader.broker = cpus.and_then(|cpus| Some(cpus.value.first()?.value));
    }
    let mut dma = reader.dma(table);
    let Overheads { steps: overheads, copy_bandwidth, origin, .. } = reader.reader.overheads(table);
    dma.copy_bandwidth = dma.copy_bandwidth.or(copy_bandwidth);
    let own = !overheads.is_empty() || copy_bandwidth.is_some();
    let tables = own.then(|| OverheadTable { file: file.name().to_owned(), origin });
    let wakes = wakes(table);
    let saturation = reader.reader.saturation(table);
    let (cores, unread) = reader.cores(table);
    let lines = reader.lines(table);
    let measured = table.inner("broker").and_then(|(table, _)| table.text("overheads"));
    let measured = measured.map(|At { value, span }| (value, place(&span)));
    let file = Arc::clone(file);
    let broker = reader.broker;
    let vms = reader.vms;
    let platform = None;
    Timing {
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
    }
}

struct SystemReader<'a> {
    reader: Reader<'a>,
    vms: Vec<TimedVm>,
    by_name: HashMap<String, usize>,
    /// Whether the file has no VMs, so that flows name them.
    open: bool,
    /// The broker's core, if there are flows and `[broker]` sets it.
    broker: Option<u64>,
}

impl SystemReader<'_> {
    fn names(&mut self, table: &DeTable<'_>, raw: &raw::System) {
        for ((vm, _), raw) in table.tables("vm").into_iter().zip(&raw.vms) {
            let vm = self.vm(vm, raw);
            self.by_name.entry(vm.name.clone()).or_insert(self.vms.len());
            self.vms.push(vm);
        }
        self.open = self.vms.is_empty();
    }

    fn vm(&mut self, table: &DeTable<'_>, raw: &raw::Vm) -> TimedVm {
        let name = raw.title();
        let cpus = raw.cpus.as_ref().map_or(&[][..], |cpus| &cpus.value);
        let bandwidth = table.inner("memory_budget");
        let workload = table.inner("workload");
        let devices = match raw.devices.as_ref().map(|devices| &devices.value) {
            Some(raw::Devices::Rest) => None,
            Some(raw::Devices::List(names)) => {
                Some(names.iter().map(|name| name.value.clone()).collect())
            }
            None => Some(Vec::new()),
        };
        TimedVm {
            memory_budget: bandwidth
                .map(|(table, span)| self.reader.bandwidth(table, &span, &name, cpus.len())),
            cpus: cpus.iter().map(|core| core.value).collect(),
            memory: raw.memory.as_ref().and_then(|memory| memory.value.total()),
            criticality: table.number("criticality").map_or(0, |number| number.value),
            working_set: table.size("working_set").map(|size| size.value),
            tasks: self.tasks(table, &name),
            workload: workload.and_then(|(table, span)| self.reader.workload(table, &span, &name)),
            devices,
            built: table.contains_key("image"),
            place: place(&raw.span),
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
                    let fault = Fault::new(Code::TaskTwice, self.reader.file, span, message);
                    let fault = fault.label("second").and(first.clone(), "first");
                    self.reader.faults.push(fault.help("give one of them another name"));
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
        let wcet = self.reader.time(table, "wcet", &owner);
        let period = self.reader.time(table, "period", &owner);
        let deadline = if table.contains_key("deadline") {
            self.reader.time(table, "deadline", &owner)
        } else {
            period.clone()
        };
        let free = |key: &str| table.duration(key).map_or(Nanos(0), |time| time.value);
        Some(Task {
            wcet: wcet?.value,
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
                memory_budget: None,
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
        self.reader.fault(
            Code::UnknownVm,
            &name.span,
            format!("there is no VM `{}`", name.value),
            help,
        );
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
                    self.reader.fault(
                        Code::NameEmpty,
                        span,
                        "a flow's name is empty".to_owned(),
                        help,
                    );
                } else if let Some(bad) = value.chars().find(|c| c.is_control()) {
                    let message = format!("a flow's name has {bad:?} in it");
                    self.reader.fault(Code::NameCharacters, span, message, help);
                }
                if let Some(first) = names.get(value) {
                    let message = format!("two flows are called `{value}`");
                    let fault =
                        Fault::new(Code::FlowTwice, self.reader.file, span.clone(), message);
                    let fault = fault.label("second").and(first.clone(), "first");
                    self.reader.faults.push(fault.help("give one of them another name"));
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
        let size = self.reader.size(table, "size", &owner);
        let best_effort = table.boolean("best_effort").unwrap_or(false);
        let period = self.reader.time(table, "period", &owner);
        let deadline = if table.contains_key("deadline") {
            self.reader.time(table, "deadline", &owner)
        } else {
            period.clone()
        };
        if best_effort && table.contains_key("deadline") {
            let span = deadline.as_ref().map_or(span, |deadline| &deadline.span);
            let message = format!("{owner} is best effort and has a deadline");
            self.reader.fault(Code::BestEffortDeadline, span, message, "leave one of the two out");
        }
        if !best_effort && !table.contains_key("period") {
            let help =
                "add the least time between two packets, period = \"10ms\", or best_effort = true";
            self.reader.fault(Code::MissingKey, span, format!("{owner} has no `period`"), help);
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
        let bandwidth = self.reader.rate(table, "bandwidth", &owner);
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
                self.reader.fault(Code::FlowBandwidth, &rate.span, message, help);
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
            self.reader.fault(Code::NoReceiver, &names.span, message, "name a VM");
            return None;
        }
        let mut to = Vec::new();
        let mut sound = true;
        for name in &names.value {
            if sender.is_some_and(|sender| sender.value == name.value) {
                let message = format!("{owner} goes from `{0}` to `{0}`", name.value);
                self.reader.fault(Code::SelfLoop, &name.span, message, "name another VM");
                sound = false;
                continue;
            }
            match self.find(name) {
                Some(vm) if to.contains(&vm) => {
                    let message = format!("{owner} goes to `{}` twice", name.value);
                    self.reader.fault(
                        Code::ReceiverTwice,
                        &name.span,
                        message,
                        "name each receiver once",
                    );
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
            bandwidth: self.reader.rate(table, "bandwidth", "[dma]").map(|rate| rate.value),
            chunk: self.reader.size(table, "chunk", "[dma]").map(|size| size.value),
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
            copy_bandwidth: self
                .reader
                .rate(table, "copy_bandwidth", "[dma]")
                .map(|rate| rate.value),
            engine: table.text("engine").map(|name| name.value),
            place: place(&span),
            given: true,
        }
    }

    fn entity(&mut self, name: &At<String>) -> Option<Entity> {
        if name.value == "broker" && !self.by_name.contains_key("broker") {
            return Some(Entity::Broker);
        }
        self.find(name).map(Entity::Vm)
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
                let fault =
                    Fault::new(Code::ScheduleTwice, self.reader.file, id.span.clone(), message);
                let fault = fault.label("second").and(first.clone(), "first");
                self.reader.faults.push(fault.help("keep one of them"));
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
                self.reader.fault(Code::ScheduleKind, &value.span(), message, "take the key out");
            }
        }
        for key in own {
            if !table.contains_key(*key) {
                let message = format!("{owner} is of kind {kind} and has no `{key}`");
                self.reader.fault(Code::MissingKey, span, message, format!("add `{key} = ...`"));
            }
        }
        match kind.as_str() {
            "round-robin" => self.round_robin(table, &owner, core),
            "table" => self.time_table(table, &owner),
            _ => self.servers(table, &owner),
        }
    }

    fn round_robin(&mut self, table: &DeTable<'_>, owner: &str, core: u64) -> Option<Schedule> {
        let quantum = self.reader.time(table, "quantum", owner)?.value;
        let entities = if let Some(names) = table.list("vms", text) {
            names.value.iter().map(|name| self.entity(name)).collect::<Option<Vec<_>>>()?
        } else {
            let on_core = |vm: &TimedVm| vm.cpus.contains(&core);
            let positions = self.vms.iter().enumerate().filter(|(_, vm)| on_core(vm));
            let vms = positions.map(|(vm, _)| Entity::Vm(vm));
            vms.chain((self.broker == Some(core)).then_some(Entity::Broker)).collect()
        };
        Some(Schedule::RoundRobin { quantum, entities })
    }

    fn time_table(&mut self, table: &DeTable<'_>, owner: &str) -> Option<Schedule> {
        let frame = self.reader.time(table, "major_frame", owner)?;
        let mut slots: Vec<(Entity, Nanos, Nanos)> = Vec::new();
        let mut sound = true;
        for (slot, span) in table.tables("slots") {
            let (Some(vm), Some(start)) = (slot.text("vm"), slot.duration("start")) else {
                return None;
            };
            let (Some(entity), Some(length)) = (
                self.entity(&vm),
                self.reader.time(slot, "length", &format!("a slot of {}", vm.value)),
            ) else {
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
                self.reader.fault(
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
                self.reader.fault(
                    Code::SlotOrder,
                    &span,
                    message,
                    "write the slots in order, one after the other",
                );
                sound = false;
                continue;
            }
            slots.push((entity, start, length));
        }
        sound.then_some(Schedule::Table { frame: frame.value, slots })
    }

    fn servers(&mut self, table: &DeTable<'_>, owner: &str) -> Option<Schedule> {
        let mut servers = Vec::new();
        for (server, span) in table.tables("servers") {
            let vm = server.text("vm")?;
            let entity = self.entity(&vm)?;
            let budget = self.reader.time(server, "budget", owner)?.value;
            let period = self.reader.time(server, "period", owner)?.value;
            if budget > period {
                let message = format!("{} gets {budget} in each {period}", vm.value);
                self.reader.fault(
                    Code::ServerBudget,
                    &span,
                    message,
                    "write a budget of at most the period",
                );
                return None;
            }
            servers.push((entity, budget, period));
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
                self.reader.fault(Code::IrqBurst, &burst.span, message, help);
            }
            let burst = burst.map_or(1, |burst| burst.value);
            let preempt = table.boolean("preempt").unwrap_or(false);
            let priority = table.number("priority");
            if let (false, Some(priority)) = (preempt, &priority) {
                let message =
                    format!("interrupt {name} has a `priority` and does not take the core");
                let help = "add preempt = true, or take the `priority` out";
                self.reader.fault(Code::IrqPriority, &priority.span, message, help);
            }
            let what = format!("`wcet` of interrupt {name}");
            let wcet =
                self.reader.positive(table.duration("wcet"), |wcet| wcet.0, &what, "\"10us\"");
            let what = format!("`deadline` of interrupt {name}");
            let deadline = table.duration("deadline");
            let deadline = self.reader.positive(deadline, |deadline| deadline.0, &what, "\"1ms\"");
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
                    wcet: wcet.map_or(Nanos(0), |wcet| wcet.value),
                    deadline: deadline.map(|deadline| deadline.value),
                    place: place(&span),
                });
            }
        }
        lines
    }
}
