//! Questions about the values of time and bandwidth of a system.

use super::System;
use crate::board::{BoardDevice, BoardIrq};
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, FilePlace, Location, locate};
use crate::measured::{OverheadTable, Sharing};
use crate::object::Object;
use crate::pci;
use crate::platform::{DmaEngine, Platform};
use crate::timing::flow::{DataPath, Dma, PathSource};
use crate::timing::schedule::{Class, Entity, SharedCore, TimedLine};
use crate::vm::Vm;
use weir_abi::schedule::MAX_RULES;
use weir_units::{Bytes, BytesPerSec, IntId, Nanos};

impl Entity {
    /// What to call it.
    #[must_use]
    pub fn name(self, system: &System) -> &str {
        match self {
            Self::Vm(vm) => system.guests().get(vm).map_or("?", |vm| &vm.name),
            Self::Broker => "broker",
        }
    }

    /// What a message calls it.
    #[must_use]
    pub fn title(self, system: &System) -> String {
        match self {
            Self::Vm(_) => Object::vm(self.name(system)).to_string(),
            Self::Broker => "the broker".to_owned(),
        }
    }
}

impl System {
    /// Takes another file's overheads, and the bandwidths measured with them, where this one has
    /// none.
    pub fn adopt(&mut self, measured: &Self) {
        self.adopt_engine_bandwidth(measured.dma.engine_bandwidth);
        for overhead in &measured.overheads {
            if self.overheads.iter().all(|own| own.name != overhead.name) {
                self.overheads.push(*overhead);
            }
        }
        self.dma.copy_bandwidth = self.dma.copy_bandwidth.or(measured.dma.copy_bandwidth);
        self.tables.extend(measured.tables.iter().cloned());
    }

    /// Takes another file's overheads, and the bandwidths measured with them, before those that
    /// this one has.
    pub fn prefer(&mut self, measured: &Self) {
        let is_given = |name: &str| measured.overheads.iter().any(|given| given.name == name);
        self.overheads.retain(|own| !is_given(own.name));
        self.dma.copy_bandwidth = measured.dma.copy_bandwidth.or(self.dma.copy_bandwidth);
        if is_given("ip") {
            self.dma.engine_bandwidth = None;
        }
        if self.overheads.is_empty() {
            self.tables.clear();
        }
        let mut tables = measured.tables.clone();
        tables.append(&mut self.tables);
        self.adopt(measured);
        self.tables = tables;
    }

    /// Takes another file's bandwidth of the DMA engine, unless this one has its own `ip`: without
    /// a bandwidth of its own, that contains the transfer.
    fn adopt_engine_bandwidth(&mut self, bandwidth: Option<BytesPerSec>) {
        if self.overheads.iter().all(|own| own.name != "ip") {
            self.dma.engine_bandwidth = self.dma.engine_bandwidth.or(bandwidth);
        }
    }

    /// Takes the platform's overheads and saturation where the file has none, and the data path
    /// that follows from the platform.
    pub(crate) fn stand_on(&mut self, platform: Option<Platform>) {
        if let Some(platform) = &platform {
            let rates = |dma: &Dma| (dma.copy_bandwidth, dma.engine_bandwidth);
            let before = (self.overheads.len(), rates(&self.dma));
            self.adopt_engine_bandwidth(platform.overheads.engine_bandwidth);
            let flows: usize = self.flows.iter().map(|flow| flow.to.len()).sum();
            let ends = self.flows.iter().flat_map(|flow| flow.to.iter().chain([&flow.from]));
            // The broker visits VMs up to the last one in a flow.
            let vms = ends.max().map_or(0, |vm| vm + 1);
            for overhead in platform.overheads.for_system([flows as u64, vms as u64]) {
                if self.overheads.iter().all(|own| own.name != overhead.name) {
                    self.overheads.push(overhead);
                }
            }
            self.dma.copy_bandwidth = self.dma.copy_bandwidth.or(platform.overheads.copy_bandwidth);
            if before != (self.overheads.len(), rates(&self.dma)) {
                self.tables.push(OverheadTable {
                    file: format!("platform {}", platform.name),
                    origin: platform.overheads.origin.clone(),
                });
            }
            if self.dma.path_source != PathSource::File {
                self.dma.path_source = PathSource::Platform;
                self.dma.path = match platform.dma_engine {
                    Some(_) => DataPath::Dma,
                    None => DataPath::Broker,
                };
            }
            if self.saturation.is_none() {
                self.saturation.clone_from(&platform.saturation);
            }
        }
        self.platform = platform;
    }

    /// Returns the delay by one access of another VM, and how many accesses of each other VM can
    /// delay one access: the file's `[saturation]` before the platform's `[interference]`.
    #[must_use]
    pub fn delay(&self) -> Option<(Nanos, Option<u64>)> {
        let own = self.saturation.as_ref();
        let own = own.and_then(|known| Some((known.delay?, known.per_access)));
        own.or_else(|| {
            let known = self.platform.as_ref()?.interference.as_ref()?;
            Some((known.delay, known.per_access))
        })
    }

    /// Returns the bytes of a counted access: those of `[saturation]`, or the platform's cache
    /// line.
    #[must_use]
    pub fn line(&self) -> Option<Bytes> {
        let cache = || Some(Bytes(self.platform.as_ref()?.places.cache?.line.0));
        self.saturation.as_ref().map(|known| known.line).or_else(cache)
    }

    /// Returns whether no access delays another one, so that no budgets saturate the memory: the
    /// platform's memory has no timing, and the file has no `[saturation]` for another one.
    #[must_use]
    pub fn is_free_of_contention(&self) -> bool {
        self.saturation.is_none() && self.delay().is_some_and(|(delay, _)| delay.0 == 0)
    }

    /// Returns the values of the platform that verdicts on memory rest on, each with its source.
    #[must_use]
    pub fn memory_sources(&self) -> Vec<String> {
        let Some(platform) = &self.platform else { return Vec::new() };
        let name = &platform.name;
        let mut sources = Vec::new();
        let own = self.saturation.as_ref();
        if let Some(known) = own.filter(|own| platform.saturation.as_ref() == Some(own)) {
            let given = [("", &known.source), (" chunks", &known.chunks_source)];
            sources.extend(given.into_iter().filter_map(|(key, source)| {
                Some(format!("{name} [saturation]{key}: {}", source.as_ref()?))
            }));
        }
        if own.is_none_or(|known| known.delay.is_none())
            && let Some(known) = &platform.interference
        {
            let overshoot = known.overshoot.map(|most| format!(", overshoot {most}"));
            sources.push(format!(
                "{name} [interference] delay {}{}: {}",
                known.delay,
                overshoot.unwrap_or_default(),
                known.source
            ));
        }
        sources
    }

    /// The time that EL2 takes of a shared core, from the file's core, else from the platform; none
    /// if neither states it.
    #[must_use]
    pub fn sharing(&self, core: &SharedCore) -> Option<Sharing> {
        let known = self.platform.as_ref().and_then(|platform| platform.sharing.clone());
        match core.switch {
            None => known,
            Some(switch) => {
                let known = known.unwrap_or_default();
                let least_switch = known.least_switch.min(switch);
                Some(Sharing { switch, least_switch, ..known })
            }
        }
    }

    /// The interrupts of VM `vm`'s devices that no `[[irq]]` is about, as far as the platform knows
    /// the devices.
    #[must_use]
    pub fn unruled(&self, vm: usize) -> Vec<IntId> {
        let ruled = |line: &IntId| {
            self.lines.iter().any(|rule| rule.vm == vm && rule.intid() == Some(*line))
        };
        let mut unruled = self.lines_of(vm);
        unruled.retain(|line| !ruled(line));
        unruled
    }

    /// The interrupts of VM `vm`'s devices, as far as the platform knows the devices.
    fn lines_of(&self, vm: usize) -> Vec<IntId> {
        let (Some(platform), Some(this)) = (&self.platform, self.guests().get(vm)) else {
            return Vec::new();
        };
        let listed = |vm: &Vm| {
            let names = vm.listed.iter().flatten();
            names.map(|name| platform.device_path(name).to_owned()).collect::<Vec<_>>()
        };
        let own = listed(this);
        let others: Vec<_> = self.guests().iter().flat_map(listed).collect();
        let passable = |device: &BoardDevice| {
            platform.allow.iter().any(|name| device.compatible.contains(name))
        };
        let is_own = |device: &&BoardDevice| {
            if this.listed.is_some() {
                own.contains(&device.path)
            } else {
                passable(device) && !others.contains(&device.path)
            }
        };
        let devices = platform.board.devices.iter().filter(is_own);
        let lines = devices.flat_map(|device| device.irqs.iter().map(|irq| irq.intid));
        let functions = own.iter().filter_map(|name| {
            let address = pci::Address::parse(name.strip_prefix(pci::PREFIX)?)?;
            Some(platform.pci.as_ref()?.intid(address))
        });
        let mut lines: Vec<_> = lines.chain(functions).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// The same if the file lists its devices, and all of them are known. A VM without a device
    /// list and without an image may have any.
    pub(crate) fn known_lines(&self, vm: usize) -> Option<Vec<IntId>> {
        let (platform, this) = (self.platform.as_ref()?, self.guests().get(vm)?);
        let is_known = |name: &String| {
            let Some(address) = name.strip_prefix(pci::PREFIX) else {
                let path = platform.device_path(name);
                return platform.board.devices.iter().any(|device| device.path == path);
            };
            platform.pci.is_some() && pci::Address::parse(address).is_some()
        };
        let is_listed = this.built || this.listed.as_ref().is_none_or(|names| !names.is_empty());
        let known = is_listed && this.listed.iter().flatten().all(is_known);
        known.then(|| self.lines_of(vm))
    }

    /// What is wrong with rules of interrupts: there are too many, or two for one, or the interrupt
    /// is none of its VM's, where `own` knows which are, or it is that of the broker's `engine`.
    pub(crate) fn wrong_rules(
        &self,
        engine: Option<&DmaEngine>,
        own: impl Fn(usize) -> Option<Vec<IntId>>,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut wrong = |code, place: &FilePlace, label, message: String, help: String| {
            let fault = Fault::new(code, &self.file, place.0.clone(), message);
            faults.push(fault.label(label).help(help));
        };
        for core in &self.cores {
            let here =
                |line: &&TimedLine| self.guests().get(line.vm).is_some_and(|vm| vm.is_on(core.id));
            if let Some(line) = self.lines.iter().filter(here).nth(MAX_RULES) {
                let message = format!(
                    "{}: more than {MAX_RULES} interrupts have rules (limit of EL2)",
                    Object::core(core.id)
                );
                let help = "remove [[irq]] tables; keep those that come often".to_owned();
                wrong(Code::TooMany, &line.place, "one too many", message, help);
            }
        }
        for (place, line) in self.lines.iter().enumerate() {
            let (Some(intid), Some(vm)) = (line.intid(), self.guests().get(line.vm)) else {
                continue;
            };
            if let Some(engine) = engine.filter(|engine| engine.intid == intid) {
                let message =
                    format!("{}: is that of the DMA engine {}", self.interrupt(line), engine.name);
                let help = "take the rule out: the engine is the broker's".to_owned();
                wrong(Code::IrqUnknown, &line.place, "this rule", message, help);
                continue;
            }
            let entity = Entity::Vm(line.vm);
            let has_slots =
                self.cores.iter().any(|core| core.schedule.entities().contains(&entity));
            let is_shared = has_slots || self.is_shared(line.vm);
            if !is_shared && !matches!(line.class, Class::Active | Class::Dynamic) {
                continue;
            }
            let same = |other: &TimedLine| other.intid() == Some(intid) && other.vm == line.vm;
            if let Some(own) = own(line.vm).filter(|own| !own.contains(&intid)) {
                let own: Vec<_> = own.iter().map(ToString::to_string).collect();
                let help = if own.is_empty() {
                    format!("take the rule out, or give {vm} the device")
                } else {
                    format!("write one of its own: {}", own.join(", "))
                };
                let message = format!("{}: the VM has no such device", self.interrupt(line));
                wrong(Code::IrqUnknown, &line.place, "this rule", message, help);
            } else if self.lines.iter().take(place).any(same) {
                let message = format!("{}: has two rules", self.interrupt(line));
                let help = "keep one of them".to_owned();
                wrong(Code::Twice, &line.place, "this rule", message, help);
            }
        }
        faults
    }

    /// Whether core `core` has a schedule, be it one with faults.
    pub(crate) fn is_shared_core(&self, core: u64) -> bool {
        let unread = || self.unread.iter().any(|unread| unread.is_none_or(|its| its == core));
        self.cores.iter().any(|shared| shared.id == core) || unread()
    }

    /// The cores that several VMs, or a VM and the broker, share without a schedule.
    #[must_use]
    pub fn open_cores(&self) -> Vec<u64> {
        let cpus = self.guests().iter().flat_map(|vm| &vm.cpus);
        let mut cores: Vec<u64> = cpus.map(|core| core.0.into()).collect();
        cores.extend(self.broker_core);
        cores.sort_unstable();
        let shared = cores.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        let mut open: Vec<_> = shared.filter(|core| !self.is_shared_core(*core)).collect();
        open.dedup();
        open
    }

    /// Whether a VM is on a core that has a schedule.
    pub(crate) fn is_shared(&self, vm: usize) -> bool {
        let cpus = self.guests().get(vm).map_or(&[][..], |vm| &vm.cpus);
        cpus.iter().any(|core| self.is_shared_core(core.0.into()))
    }

    /// Whether a device of these interrupts is one of VM `vm`'s *active* ones: it has some, and the
    /// file marks each.
    pub(crate) fn is_active(&self, vm: usize, irqs: &[BoardIrq]) -> bool {
        let is = |irq: &BoardIrq| {
            let its = |line: &&TimedLine| line.vm == vm && line.intid() == Some(irq.intid);
            self.lines.iter().find(its).is_some_and(|line| line.class == Class::Active)
        };
        !irqs.is_empty() && irqs.iter().all(is)
    }

    /// The schedules that name the broker.
    pub(crate) fn brokers(&self) -> impl Iterator<Item = &SharedCore> {
        self.cores.iter().filter(|core| core.schedule.entities().contains(&Entity::Broker))
    }

    /// What a message calls an interrupt.
    #[must_use]
    pub fn interrupt<'a>(&'a self, line: &'a TimedLine) -> Object<'a> {
        Object::interrupt(&line.name, Entity::Vm(line.vm).name(self))
    }

    /// Where a place is, for a person.
    #[must_use]
    pub fn location(&self, place: &FilePlace) -> Location {
        locate(&self.file, place.0.start)
    }

    /// A fault of this file.
    #[must_use]
    pub fn fault(
        &self,
        code: Code,
        place: &FilePlace,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Fault {
        Fault::new(code, &self.file, place.0.clone(), message).label("this").help(help)
    }

    /// Returns why this version of weir does not move flows as the file asks, by a DMA engine that
    /// the platform lacks.
    fn unbuilt_path(&self) -> Option<Fault> {
        if !self.dma.given && self.flows.is_empty() {
            return None;
        }
        let lacks = match self.dma.path {
            DataPath::Broker => return None,
            DataPath::Dma if self.engine().is_some() => return None,
            DataPath::Dma => match &self.platform {
                Some(platform) => {
                    format!("{platform} has no DMA engine that weir drives")
                }
                None => "the file names no platform with a DMA engine".to_owned(),
            },
        };
        let header = self.flows.first().map_or(&self.dma.place, |flow| &flow.place);
        let place = if self.dma.given { &self.dma.place } else { header };
        let message = format!(
            "[dma]: this version of weir analyzes path = \"{}\", but does not enforce it: {lacks}",
            self.dma.path.name()
        );
        let help = "write path = \"broker\" to build the system; `weir analyze` and `weir plan` \
                    take the other path";
        Some(self.fault(Code::NotEnforced, place, message, help))
    }

    /// Returns what the analysis relies on and this version of weir does not enforce: a fault for
    /// each key, in the order of the file.
    #[must_use]
    pub fn unenforced_rules(&self) -> Vec<Fault> {
        let mut faults = Faults::default();
        let help = "take the key out to build the system; `weir analyze` and `weir plan` use it";
        if let Some(fault) = self.unbuilt_path() {
            faults.push(fault);
        }
        for line in &self.lines {
            let rule = line.preempt || line.admission.is_some();
            let what = if line.class == Class::Active && line.intid().is_some() {
                rule.then_some("a rule of an active interrupt")
            } else if !matches!(line.class, Class::Dedicated | Class::Dynamic) {
                Some("this class")
            } else if line.intid().is_none() {
                Some("the admission of an interrupt without a number")
            } else {
                let is_refused = line.class == Class::Dedicated || rule;
                (!self.is_shared(line.vm) && is_refused)
                    .then_some("the admission on a core of the VM's own")
            };
            if let Some(what) = what {
                let message = format!(
                    "{}: this version of weir analyzes {what}, but does not enforce it yet",
                    self.interrupt(line)
                );
                faults.push(self.fault(Code::NotEnforced, &line.place, message, help));
            }
        }
        faults.sorted()
    }
}
