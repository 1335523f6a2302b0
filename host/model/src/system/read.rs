//! Makes flows, schedules, interrupts, tasks and budgets out of the tables of a file. What has the
//! wrong type or is missing was reported by the walk; here the rules between values are checked,
//! and names become positions.

use super::{Hypervisor, System};
use crate::coloring::division::Division;
use crate::diagnostics::Code;
use crate::document::Reader;
use crate::fault::{Faults, File, FilePlace};
use crate::keys::system as raw;
use crate::keys::system::Devices;
use crate::keys::timing as keys;
use crate::keys::timing::ScheduleKind;
use crate::measured::{OverheadTable, OverheadValues, Saturation};
use crate::object::Object;
use crate::shape::suggestion;
use crate::table::At;
use crate::timing::flow::{DataPath, Dma, Flow, PathSource};
use crate::timing::memory_budget::MemoryBudget;
use crate::timing::schedule::{Entity, Schedule, SharedCore, TimedLine};
use crate::timing::task::Task;
use crate::vm::{BROKER, DEFAULT_RAM, RamPiece, Vm};
use std::{collections::HashMap, ops::Range, path::PathBuf, sync::Arc};
use weir_paging::classes::Geometry;
use weir_units::{CoreId, Ipa, Nanos};

/// The values of time and bandwidth of a system file.
pub(crate) fn system(raw: &raw::System, file: &File, faults: &mut Faults) -> System {
    let mut reader = SystemReader {
        reader: Reader { file, faults },
        vms: Vec::new(),
        by_name: HashMap::new(),
        open: raw.vms().is_empty(),
        broker: None,
    };
    for vm in raw.vms() {
        let vm = reader.vm(vm);
        reader.by_name.entry(vm.name.clone()).or_insert(reader.vms.len());
        reader.vms.push(vm);
    }
    let flows = reader.flows(&raw.flow);
    if !flows.is_empty() {
        let cpus = raw.broker.cpus.as_ref();
        reader.broker = cpus.and_then(|cpus| Some(cpus.value.first()?.value));
    }
    let OverheadValues { steps: overheads, copy_bandwidth, engine_bandwidth, origin, .. } =
        OverheadValues::of(&raw.overheads, &mut reader.reader);
    let mut dma = raw.dma.as_ref().map_or_else(Dma::default, dma);
    dma.copy_bandwidth = dma.copy_bandwidth.or(copy_bandwidth);
    dma.engine_bandwidth = engine_bandwidth;
    let rates = copy_bandwidth.or(engine_bandwidth);
    let own = !overheads.is_empty() || rates.is_some();
    let tables = own.then(|| OverheadTable { file: file.name().to_owned(), origin });
    let saturation = Saturation::of(raw.saturation.as_ref(), &mut reader.reader);
    let (cores, unread) = reader.cores(&raw.core);
    let lines = reader.lines(&raw.irq);
    let measured = raw.broker.overheads.as_ref();
    System {
        path: PathBuf::from(file.name()),
        platform: None,
        hypervisor: Hypervisor { console_core: CoreId(0), heartbeat: None, observed: false },
        guests: reader.vms.len(),
        vms: reader.vms,
        division: Division::none(Geometry::NONE, None, 0),
        regulations: Vec::new(),
        flows,
        dma,
        overheads,
        tables: tables.into_iter().collect(),
        saturation,
        cores,
        unread,
        lines,
        broker_core: reader.broker,
        has_switch: raw.vms().iter().any(|vm| vm.net.is_some()),
        measured: measured.map(|name| (name.value.clone(), FilePlace(name.span.clone()))),
        is_complete: false,
        file: Arc::clone(file),
        platform_span: raw.platform.as_ref().map_or(0..0, |name| name.span.clone()),
    }
}

struct SystemReader<'a> {
    reader: Reader<'a>,
    vms: Vec<Vm>,
    by_name: HashMap<String, usize>,
    /// Whether the file has no VMs, so that flows name them.
    open: bool,
    /// The broker's core, if there are flows and `[broker]` sets it.
    broker: Option<u64>,
}

impl SystemReader<'_> {
    fn vm(&mut self, raw: &At<raw::Vm>) -> Vm {
        let (title, name) = (raw.to_string(), raw.name.as_ref());
        let name = name.map_or("?".to_owned(), |name| name.value.clone());
        let cpus = raw.cpus.iter().flat_map(|cpus| &cpus.value);
        // The walk has refused other numbers.
        let cpus: Vec<_> =
            cpus.map(|core| CoreId(u8::try_from(core.value).unwrap_or(u8::MAX))).collect();
        let budget = raw.memory_budget.as_ref();
        let workload = raw.workload.as_ref();
        Vm {
            memory_budget: budget
                .map(|budget| MemoryBudget::read(budget, &title, cpus.len(), &mut self.reader)),
            cpus,
            memory: raw.memory.as_ref().map_or_else(Vec::new, pieces),
            criticality: raw.criticality,
            working_set: raw.working_set,
            tasks: self.tasks(&raw.task, &name),
            workload: workload.map(|workload| self.reader.workload(workload, &title)),
            listed: match raw.devices.as_ref().map(|devices| &devices.value) {
                Some(Devices::Rest) => None,
                Some(Devices::List(names)) => {
                    Some(names.iter().map(|name| name.value.clone()).collect())
                }
                None => Some(Vec::new()),
            },
            built: raw.image.is_some(),
            has_port: raw.net.is_some(),
            ..Vm::named(&name, FilePlace(raw.span.clone()))
        }
    }

    /// The tasks of a VM. A run finds a task by its name in the lines of its VM, so each name is
    /// one task's.
    fn tasks(&mut self, tasks: &[At<keys::Task>], vm: &str) -> Vec<Task> {
        let mut names: HashMap<&str, &Range<usize>> = HashMap::new();
        for At { value: name, span } in tasks.iter().map(|task| &task.name) {
            let first = *names.entry(name).or_insert(span);
            if first != span {
                let message = format!("{}: two tasks have this name", Object::task(name, vm));
                let help = "write another `name` for one";
                self.reader.twice(Code::Twice, span, first, message, help);
            }
        }
        let task = |task: &At<keys::Task>| Task {
            name: task.name.value.clone(),
            wcet: task.wcet,
            period: task.period,
            deadline: task.deadline.unwrap_or(task.period),
            jitter: task.jitter,
            blocking: task.blocking,
            core: task.core,
            accesses: task.accesses,
            place: FilePlace(task.span.clone()),
        };
        tasks.iter().map(task).collect()
    }

    /// The position of the VM that a key names; `key` has the object with it.
    fn find(&mut self, key: &str, name: &At<String>) -> Option<usize> {
        if let Some(vm) = self.by_name.get(&name.value) {
            return Some(*vm);
        }
        if self.open && !name.is_empty() {
            self.by_name.insert(name.value.clone(), self.vms.len());
            self.vms.push(Vm::named(name, FilePlace(name.span.clone())));
            return Some(self.vms.len() - 1);
        }
        let help = suggestion(name, self.vms.iter().map(|vm| vm.name.as_str()));
        let message = format!("{key} names {}, which is not in the file", Object::vm(name));
        self.reader.fault(Code::UnknownVm, &name.span, message, help);
        None
    }

    fn flows(&mut self, flows: &[At<keys::Flow>]) -> Vec<Flow> {
        let mut names: HashMap<&str, &Range<usize>> = HashMap::new();
        for At { value: name, span } in flows.iter().filter_map(|flow| flow.name.as_ref()) {
            let help = "write a name of letters, digits, `-` and the like, name = \"orders\"";
            if name.is_empty() {
                let message = format!("{}: `name` is empty", Object::flow(name));
                self.reader.fault(Code::NameInvalid, span, message, help);
            } else if let Some(bad) = name.chars().find(|c| c.is_control()) {
                let message = format!("{}: `name` has {bad:?} in it", Object::flow(name));
                self.reader.fault(Code::NameInvalid, span, message, help);
            }
            let first = *names.entry(name).or_insert(span);
            if first != span {
                let message = format!("{}: two flows have this name", Object::flow(name));
                let help = "write another `name` for one";
                self.reader.twice(Code::Twice, span, first, message, help);
            }
        }
        flows.iter().filter_map(|flow| self.flow(flow)).collect()
    }

    fn flow(&mut self, At { value: flow, span }: &At<keys::Flow>) -> Option<Flow> {
        let keys::Flow { size, period, best_effort, bandwidth, .. } = flow;
        let name = flow.name.as_ref().map_or("?", |name| &name.value);
        let owner = Object::flow(name).to_string();
        let from = flow.from.as_ref();
        let from = from.and_then(|from| self.find(&format!("{owner}: `from`"), from));
        let to = flow.to.as_ref().and_then(|to| self.receivers(to, flow.from.as_ref(), &owner));
        if let (true, Some(deadline)) = (best_effort, &flow.deadline) {
            let message = format!("{owner}: `deadline` together with `best_effort`");
            let help = "leave one of the two out";
            self.reader.fault(Code::KeyConflict, &deadline.span, message, help);
        }
        if !best_effort && period.is_none() {
            let help =
                "add the least time between two packets, period = \"10ms\", or best_effort = true";
            let message = format!("{owner}: the key `period` is missing");
            self.reader.fault(Code::MissingKey, span, message, help);
            return None;
        }
        let deadline = flow.deadline.as_ref().or(period.as_ref());
        if let (Some(rate), Some(size), Some(period), false) =
            (bandwidth, size, period, best_effort)
        {
            let needed = u128::from(size.value.0) * 1_000_000_000;
            let needed = needed.div_ceil(period.value.0.max(1).into());
            if u128::from(rate.value.0) < needed {
                let message = format!(
                    "{owner}: `bandwidth` is {} B/s, and its packets of {} each {} are {needed} \
                     B/s",
                    rate.value.0, size.value, period.value
                );
                let help = format!(
                    "write bandwidth = \"{needed}B/s\" or more, or leave it out: its period limits \
                     it"
                );
                self.reader.fault(Code::FlowBandwidth, &rate.span, message, help);
            }
        }
        let size = size.as_ref()?;
        let place =
            |time: Option<&At<Nanos>>| FilePlace(time.map_or(span, |time| &time.span).clone());
        let timed = |time: Option<&At<Nanos>>| Some(time.filter(|_| !best_effort)?.value);
        Some(Flow {
            name: name.to_owned(),
            from: from?,
            to: to?,
            port: flow.port,
            size: size.value,
            period: timed(period.as_ref()),
            jitter: flow.jitter,
            deadline: timed(deadline),
            best_effort: *best_effort,
            bandwidth: bandwidth.as_ref().map(|rate| rate.value),
            place: FilePlace(span.clone()),
            places: [FilePlace(size.span.clone()), place(period.as_ref()), place(deadline)],
        })
    }

    fn receivers(
        &mut self,
        names: &At<Vec<At<String>>>,
        sender: Option<&At<String>>,
        owner: &str,
    ) -> Option<Vec<usize>> {
        if names.is_empty() {
            let message = format!("{owner}: `to` is empty");
            self.reader.fault(Code::Empty, &names.span, message, "write the receiving VM");
            return None;
        }
        let mut to = Vec::new();
        for name in &names.value {
            if sender.is_some_and(|sender| sender.value == name.value) {
                let message = format!("{owner}: `from` and `to` are {}", Object::vm(name));
                self.reader.fault(Code::SelfLoop, &name.span, message, "write another VM in `to`");
                continue;
            }
            let vm = self.find(&format!("{owner}: `to`"), name);
            if vm.is_some_and(|vm| to.contains(&vm)) {
                let message = format!("{owner}: `to` has {} twice", Object::vm(name));
                let help = "write each receiver once";
                self.reader.fault(Code::Twice, &name.span, message, help);
            }
            to.extend(vm);
        }
        (to.len() == names.len()).then_some(to)
    }

    fn entity(&mut self, core: u64, name: &At<String>) -> Option<Entity> {
        if name.value == BROKER && !self.by_name.contains_key(BROKER) {
            return Some(Entity::Broker);
        }
        self.find(&format!("{}: the schedule", Object::core(core)), name).map(Entity::Vm)
    }

    /// The shared cores, and those with faults in their schedules, which were reported.
    fn cores(&mut self, cores: &[keys::Core]) -> (Vec<SharedCore>, Vec<Option<u64>>) {
        let mut seen: HashMap<u64, &Range<usize>> = HashMap::new();
        let (mut shared, mut unread) = (Vec::new(), Vec::new());
        for keys::Core { id, schedule } in cores {
            let (Some(id), Some(schedule)) = (id, schedule) else {
                unread.push(id.as_ref().map(|id| id.value));
                continue;
            };
            if let Some(first) = seen.get(&id.value) {
                let message = format!("{}: has two schedules", Object::core(id.value));
                let help = "remove one of the two [[core]] tables";
                self.reader.twice(Code::Twice, &id.span, first, message, help);
                continue;
            }
            seen.insert(id.value, &id.span);
            let (switch, place) = (schedule.switch, FilePlace(schedule.span.clone()));
            match self.schedule(schedule, id.value) {
                Some(schedule) => {
                    shared.push(SharedCore { id: id.value, schedule, switch, place });
                }
                None => unread.push(Some(id.value)),
            }
        }
        (shared, unread)
    }

    fn schedule(
        &mut self,
        At { value: raw, span }: &At<keys::Schedule>,
        core: u64,
    ) -> Option<Schedule> {
        let (kind, round_robin) = (raw.kind.name(), ScheduleKind::RoundRobin);
        let (table, fixed_priority) = (ScheduleKind::Table, ScheduleKind::FixedPriority);
        let keys = [
            ("quantum", raw.quantum.as_ref().map(|key| &key.span), round_robin, true),
            ("vms", raw.vms.as_ref().map(|key| &key.span), round_robin, false),
            ("major_frame", raw.major_frame.as_ref().map(|key| &key.span), table, true),
            ("slots", raw.slots.as_ref().map(|key| &key.span), table, true),
            ("servers", raw.servers.as_ref().map(|key| &key.span), fixed_priority, true),
        ];
        for (key, place, of, needed) in keys {
            if let Some(place) = place.filter(|_| of != raw.kind) {
                let message = format!("core {core}: a schedule of kind \"{kind}\" has no `{key}`");
                let help = format!("take `{key}` out, or write kind = \"{}\"", of.name());
                self.reader.fault(Code::KeyConflict, place, message, help);
            } else if of == raw.kind && needed && place.is_none() {
                let message =
                    format!("core {core}: a schedule of kind \"{kind}\" needs the key `{key}`");
                self.reader.fault(Code::MissingKey, span, message, format!("add `{key} = ...`"));
            }
        }
        match raw.kind {
            ScheduleKind::RoundRobin => {
                let quantum = raw.quantum.as_ref()?.value;
                let entities = if let Some(names) = &raw.vms {
                    names.iter().map(|name| self.entity(core, name)).collect::<Option<Vec<_>>>()?
                } else {
                    let vms = self.vms.iter().enumerate();
                    let vms = vms.filter(|(_, vm)| vm.is_on(core));
                    let broker = (self.broker == Some(core)).then_some(Entity::Broker);
                    vms.map(|(vm, _)| Entity::Vm(vm)).chain(broker).collect()
                };
                Some(Schedule::RoundRobin { quantum, entities })
            }
            ScheduleKind::Table => {
                self.time_table(core, raw.major_frame.as_ref()?.value, raw.slots.as_ref()?)
            }
            ScheduleKind::FixedPriority => self.servers(core, raw.servers.as_ref()?),
        }
    }

    fn time_table(
        &mut self,
        core: u64,
        frame: Nanos,
        given: &[At<keys::Slot>],
    ) -> Option<Schedule> {
        let mut slots: Vec<(Entity, Nanos, Nanos)> = Vec::new();
        for At { value: keys::Slot { vm, start, length }, span } in given {
            let (start, length) = (*start, *length);
            let Some(entity) = self.entity(core, vm) else { continue };
            let before = slots.last().map_or(0, |(_, start, length)| start.0 + length.0);
            let wrong = if start.0.checked_add(length.0).is_none_or(|end| end > frame.0) {
                let message = format!(
                    "core {core}: the slot of {} at {start} for {length} ends after the major \
                     frame ({frame})",
                    Object::vm(vm)
                );
                Some((message, "shorten it, or lengthen `major_frame`"))
            } else if start.0 < before {
                let message = format!(
                    "core {core}: the slot of {} starts at {start}, before the one ahead of it \
                     ends at {}",
                    Object::vm(vm),
                    Nanos(before)
                );
                Some((message, "write the slots in order, one after the other"))
            } else {
                slots.push((entity, start, length));
                None
            };
            if let Some((message, help)) = wrong {
                self.reader.fault(Code::SlotOrder, span, message, help);
            }
        }
        (slots.len() == given.len()).then_some(Schedule::Table { frame, slots })
    }

    fn servers(&mut self, core: u64, given: &[At<keys::Server>]) -> Option<Schedule> {
        let mut servers = Vec::new();
        for At { value: keys::Server { vm, budget, period }, span } in given {
            let entity = self.entity(core, vm)?;
            if budget > period {
                let message = format!(
                    "core {core}: the server of {} has a budget of {budget} in a period of \
                     {period}",
                    Object::vm(vm)
                );
                let help = format!("write a `budget` of at most {period}, the period");
                self.reader.fault(Code::SlotLength, span, message, help);
                return None;
            }
            servers.push((entity, *budget, *period));
        }
        Some(Schedule::FixedPriority { servers })
    }

    fn lines(&mut self, irqs: &[At<keys::Irq>]) -> Vec<TimedLine> {
        let mut lines = Vec::new();
        for At { value: irq, span } in irqs {
            let name = &irq.line.0;
            if let (None, Some(burst)) = (irq.rate, &irq.burst) {
                let message =
                    format!("{}: `burst` without `rate`", Object::interrupt(name, &irq.vm));
                let help = "add the interrupts a second that are let through, rate = 1000";
                self.reader.fault(Code::KeyConflict, &burst.span, message, help);
            }
            if let (false, Some(priority)) = (irq.preempt, &irq.priority) {
                let message =
                    format!("{}: `priority` without `preempt`", Object::interrupt(name, &irq.vm));
                let help = "add preempt = true, or take the `priority` out";
                self.reader.fault(Code::KeyConflict, &priority.span, message, help);
            }
            let burst = irq.burst.as_ref().map_or(1, |burst| burst.value);
            let key = format!("interrupt {name}: `vm`");
            let Some(vm) = self.find(&key, &irq.vm) else { continue };
            lines.push(TimedLine {
                name: name.clone(),
                vm,
                class: irq.class,
                preempt: irq.preempt,
                priority: irq
                    .priority
                    .as_ref()
                    .map_or(TimedLine::PRIORITY, |priority| priority.value),
                admission: irq.rate.map(|rate| (rate, burst)),
                wcet: irq.wcet.unwrap_or(Nanos(0)),
                deadline: irq.deadline,
                place: FilePlace(span.clone()),
            });
        }
        lines
    }
}

/// The pieces of a VM's RAM, of which no rule is checked; one without an address is at the usual one.
fn pieces(memory: &At<raw::Memory>) -> Vec<RamPiece> {
    match &memory.value {
        raw::Memory::Size(size) => vec![RamPiece { base: Ipa(DEFAULT_RAM), size: *size }],
        raw::Memory::Pieces(pieces) => {
            let piece = |At { value: raw::Piece { base, size }, .. }: &At<raw::Piece>| RamPiece {
                base: Ipa(base.value),
                size: size.value,
            };
            pieces.iter().map(piece).collect()
        }
    }
}

fn dma(At { value: raw, span }: &At<keys::Dma>) -> Dma {
    Dma {
        bandwidth: raw.bandwidth,
        chunk: raw.chunk.as_ref().map(|chunk| chunk.value),
        chunk_place: FilePlace(raw.chunk.as_ref().map_or(0..0, |chunk| chunk.span.clone())),
        engine_from: raw.engine_from,
        qos_level: raw.qos_level.as_ref().map(|level| level.value),
        qos_place: FilePlace(raw.qos_level.as_ref().map_or(0..0, |level| level.span.clone())),
        queues: raw.queues,
        path_source: if raw.path.is_some() { PathSource::File } else { PathSource::Default },
        path: raw.path.unwrap_or(DataPath::Dma),
        copy_bandwidth: raw.copy_bandwidth,
        engine_bandwidth: None,
        engine: raw.engine.clone(),
        place: FilePlace(span.clone()),
        given: true,
    }
}
