//! What a system file says about time and bandwidth: flows, budgets, schedules, tasks. `weir analyze` and `weir plan`
//! read this part alone, so a file without images or cores is good enough for them.

mod bandwidth;
mod keys;
mod read;
mod workload;

use crate::board::BoardDevice;
use crate::board::Irq;
use crate::diagnostics::Code;
use crate::fault;
use crate::fault::Fault;
use crate::fault::Faults;
use crate::fault::File;
use crate::fault::Location;
use crate::fault::locate;
use crate::packed::schedule::MAX_RULES;
use crate::pci;
use crate::platform::Platform;
use crate::raw;
use std::{ops::Range, path::Path};
use weir_units::Bytes;
use weir_units::BytesPerSec;
use weir_units::Nanos;

pub use bandwidth::Bandwidth;
pub(crate) use bandwidth::MEMORY_BUDGET_KEY;
pub(crate) use bandwidth::{Regulator, Rules, Source, Split};
pub(crate) use keys::{
    CORE_KEY, CRITICALITY_KEY, DMA_KEY, FLOW_KEY, INTERFERENCE_KEY, IRQ_KEY, OVERHEADS_KEY,
    SATURATION_KEY, SHARING_KEY, TASK_KEY, WORKING_SET_KEY,
};
pub(crate) use read::{boolean, interference, platform, rate, system};
pub(crate) use workload::WORKLOAD_KEY;
pub use workload::{KERNELS, Kind, Mode, Network, Phase, Transfers, Workload};

/// The port of a flow that names none.
pub const DEFAULT_PORT: u32 = 5000;

/// A place in the file, for faults that are found later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(pub(crate) Range<usize>);

/// What a file says about time and bandwidth.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The board, if the file names one.
    pub platform: Option<Platform>,
    /// The VMs in the order of the file; without any, those that flows name.
    pub vms: Vec<TimedVm>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// How their bytes are moved.
    pub dma: Dma,
    /// Overheads: the file's own before the platform's.
    pub overheads: Vec<Overhead>,
    /// The tables that `overheads` and the copy's bandwidth come from, the preferred one first.
    pub tables: Vec<OverheadTable>,
    /// The greatest wake-up behind the notifications of some senders, by their names: the others' is in `overheads`.
    pub wakes: Vec<(String, Nanos)>,
    /// The saturation of the memory: the file's own or the platform's.
    pub saturation: Option<Saturation>,
    /// Cores that VMs share.
    pub cores: Vec<SharedCore>,
    /// Cores whose schedules have faults; one without a number could be any.
    pub(crate) unread: Vec<Option<u64>>,
    /// Interrupts that take time on a shared core.
    pub lines: Vec<Line>,
    /// The broker's core, if there are flows and `[broker]` says.
    pub broker: Option<u64>,
    /// The file that `[broker] overheads` names.
    measured: Option<(String, Place)>,
    file: File,
}

/// A VM's demands.
#[derive(Clone, Debug)]
pub struct TimedVm {
    /// Its name.
    pub name: String,
    /// The cores of its vCPUs, as far as the file says.
    pub cpus: Vec<u64>,
    /// Its RAM, if the file says.
    pub memory: Option<Bytes>,
    /// 0 is best effort.
    pub criticality: u64,
    /// What should stay in its part of the cache.
    pub working_set: Option<Bytes>,
    /// Its memory bandwidth.
    pub bandwidth: Option<Bandwidth>,
    /// Its tasks by falling priority.
    pub tasks: Vec<Task>,
    /// What it does to memory in a simulation.
    pub workload: Option<Workload>,
    /// The names of the board's devices that it has; none for the rest of them.
    pub(crate) devices: Option<Vec<String>>,
    /// Whether the file says what it runs: then it has no devices but these.
    pub(crate) built: bool,
    /// Its header.
    pub place: Place,
}

/// A task of a VM.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// Longest execution time without interference.
    pub cost: Nanos,
    /// Least time between two activations.
    pub period: Nanos,
    /// Relative deadline.
    pub deadline: Nanos,
    /// Release jitter.
    pub jitter: Nanos,
    /// Blocking by lower priorities.
    pub blocking: Nanos,
    /// Its core; without it the VM's first.
    pub core: Option<u64>,
    /// Its own accesses in an activation.
    pub accesses: Option<u64>,
    /// Its header.
    pub place: Place,
}

/// A flow.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// The VM that sends, a position in [`Timing::vms`].
    pub from: usize,
    /// The VMs that receive, at least one.
    pub to: Vec<usize>,
    /// The receivers' vsock port, if the file says.
    pub port: Option<u32>,
    /// Bytes of a packet, at least 1.
    pub size: Bytes,
    /// Least time between two packets, at least 1 ns; none if the flow is best effort.
    pub period: Option<Nanos>,
    /// How late a packet is released at most, in a simulation.
    pub jitter: Nanos,
    /// Relative deadline, at least 1 ns: the period if the file gives none; none if the flow is best
    /// effort.
    pub deadline: Option<Nanos>,
    /// No deadline, served when nothing else is.
    pub best_effort: bool,
    /// What the broker moves of it at most; at least `size` in each period.
    pub bandwidth: Option<BytesPerSec>,
    /// Its header.
    pub place: Place,
    /// Of `size`, `period` and `deadline`, or else the header.
    pub places: [Place; 3],
}

/// Where measured values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The command that measured them, or a publication.
    pub command: String,
    /// The build of the hypervisor that was measured, if there was one.
    pub build: Option<String>,
    /// The date of the measurement.
    pub date: Option<String>,
}

/// A table of overheads: the file it is in, and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverheadTable {
    /// The file, or `platform NAME`.
    pub file: String,
    /// Its origin, if the file has one.
    pub origin: Option<Origin>,
}

/// What a platform's or a system's `[overheads]` contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overheads {
    /// The steps, in the order of the keys.
    pub steps: Vec<Overhead>,
    /// The bandwidth at which a core copies.
    pub copy_bandwidth: Option<BytesPerSec>,
    /// Where the values come from.
    pub origin: Option<Origin>,
    /// Flows and VMs of the system that was measured.
    pub size: Option<[u64; 2]>,
    /// A larger system.
    pub larger: Option<Larger>,
}

/// The greatest values of a larger system than the one that a table is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Larger {
    /// Its flows and VMs.
    pub size: [u64; 2],
    /// Names of steps, and the greatest value of each.
    pub most: Vec<(&'static str, Nanos)>,
}

impl Overheads {
    /// Returns the steps for a system of so many flows and VMs. If it has more than the system that
    /// was measured, the larger system's values hold; if it has still more, the growth between the
    /// two goes on. The broker looks at each VM to pick and to find a place (`ps`, `qa`); the other
    /// steps search flows.
    #[must_use]
    pub fn for_system(&self, [flows, vms]: [u64; 2]) -> Vec<Overhead> {
        let (Some([few_flows, few_vms]), Some(larger)) = (self.size, &self.larger) else {
            return self.steps.clone();
        };
        let [many_flows, many_vms] = larger.size;
        let grown = |step: &Overhead| {
            let (here, few, many) = match step.name {
                "ps" | "qa" => (vms, few_vms, many_vms),
                _ => (flows, few_flows, many_flows),
            };
            let (_, at_many) = larger.most.iter().find(|(name, _)| *name == step.name)?;
            let growth = at_many.0.checked_sub(step.max.0).filter(|_| here > few)?;
            let beyond = here.saturating_sub(many).saturating_mul(growth);
            let max = at_many.0.saturating_add(beyond.div_ceil(many.saturating_sub(few).max(1)));
            Some(Overhead { max: Nanos(max), ..*step })
        };
        self.steps.iter().map(|step| grown(step).unwrap_or(*step)).collect()
    }
}

/// Where the data path of a system comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathSource {
    /// Nothing names one: the default without a platform.
    #[default]
    Default,
    /// `[dma] path`.
    File,
    /// The platform has a DMA engine, or none.
    Platform,
}

/// What moves bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPath {
    /// A DMA engine behind a broker with locked lists (rt-virtio).
    #[default]
    Dma,
    /// The broker's core.
    Broker,
    /// The sender's core.
    Sender,
    /// The receiver's core.
    Receiver,
}

impl DataPath {
    /// Whether VMs' cores move the bytes, so that their budgets count what is moved.
    #[must_use]
    pub const fn is_of_vms(self) -> bool {
        matches!(self, Self::Sender | Self::Receiver)
    }
}

/// `[dma]`.
#[derive(Clone, Debug, Default)]
pub struct Dma {
    /// At least 1 byte/s.
    pub bandwidth: Option<BytesPerSec>,
    /// At least 1 byte.
    pub chunk: Option<Bytes>,
    /// At least 1.
    pub queues: Option<u32>,
    /// What moves the bytes.
    pub path: DataPath,
    /// Where `path` comes from.
    pub path_source: PathSource,
    /// At least 1 byte/s.
    pub copy_bandwidth: Option<BytesPerSec>,
    /// The engine's name in the memory file, for a simulation.
    pub engine: Option<String>,
    /// The table; empty if there is none.
    pub place: Place,
    /// Whether the file has the table.
    pub given: bool,
}

/// What a step of a transfer costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Its name in Table II of rt-virtio, in lower case, or `wake`, `copy`, `hold` or `tail`.
    pub name: &'static str,
    /// Least.
    pub min: Nanos,
    /// Greatest, at least `min`.
    pub max: Nanos,
}

/// Saturation of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saturation {
    /// The period of all budgets in here, at least 1 ns.
    pub period: Nanos,
    /// Bytes of a counted access, at least 1.
    pub line: Bytes,
    /// Total budget and DMA bandwidth that are harmless together, at least one pair.
    pub points: Vec<(u64, BytesPerSec)>,
    /// The least budget that is enforced well.
    pub min_accesses: u64,
    /// The shortest period whose budgets are enforced well; 0 if it was not measured.
    pub min_period: Nanos,
    /// Accesses between a budget's end and the stop, if known.
    pub overshoot: Option<u64>,
    /// Delay by one access of another VM.
    pub delay: Option<Nanos>,
    /// Accesses of each other VM that can delay one access.
    pub per_access: Option<u64>,
    /// Bytes and clock, in Hz, of the DMA engine's QoS regulator (rt-virtio, Eq. 1).
    pub qos: Option<(Bytes, u64)>,
    /// Chunk sizes and what the DMA engine reaches with them.
    pub chunks: Vec<(Bytes, BytesPerSec)>,
    /// Where the values come from, if the file says it.
    pub source: Option<String>,
}

/// What memory accesses of other VMs do to a core on a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interference {
    /// Delay by one access of another VM; 0 where the platform's memory has no timing.
    pub delay: Nanos,
    /// Accesses of each other VM that can delay one access.
    pub per_access: Option<u64>,
    /// Accesses between a budget's end and the stop by the PMU's interrupt.
    pub overshoot: Option<u64>,
    /// Where the values come from: a kind such as `paper` or `assumed`, a colon and a text.
    pub source: String,
}

/// What EL2 takes of a core that VMs share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// The most that a switch takes, from the one guest to the other.
    pub switch: Nanos,
    /// The least.
    pub least_switch: Nanos,
    /// Upper bound on the time that one interrupt for a VM that is off the core, or another request
    /// to it, takes.
    pub interrupt: Nanos,
    /// What of it stays with who was interrupted, where the VM is charged with the rest.
    pub entry: Nanos,
}

/// Who runs on a shared core: a VM by its position, or the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A position in [`Timing::vms`].
    Vm(usize),
    /// The broker.
    Broker,
}

/// A shared core.
#[derive(Clone, Debug)]
pub struct SharedCore {
    /// Its number.
    pub id: u64,
    /// Who runs when.
    pub schedule: Schedule,
    /// The most that a switch takes, if the file says it.
    pub switch: Option<Nanos>,
    /// Of the schedule.
    pub place: Place,
}

/// A partition schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Round robin.
    RoundRobin {
        /// The time slice.
        quantum: Nanos,
        /// The scheduled entities.
        runners: Vec<Runner>,
    },
    /// A time table.
    Table {
        /// After this it repeats.
        frame: Nanos,
        /// Who, start and length; in order and apart.
        slots: Vec<(Runner, Nanos, Nanos)>,
    },
    /// Budgets by falling priority.
    FixedPriority {
        /// Who, budget and period.
        servers: Vec<(Runner, Nanos, Nanos)>,
    },
}

/// Whose a device is when several VMs are on its core (mobivmm).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// One VM's.
    #[default]
    Dedicated,
    /// Handed from VM to VM by an explicit act.
    Active,
    /// Of the running VM.
    Running,
    /// Shared by all.
    Dynamic,
}

/// An interrupt line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its number or name.
    pub name: String,
    /// The VM that it belongs to.
    pub vm: usize,
    /// Of which class its device is.
    pub class: Class,
    /// Whether it takes the core for its VM at once.
    pub preempt: bool,
    /// How urgent that is: 0 the most, as a GIC counts. A line does not preempt a time slice that a
    /// more urgent one started.
    pub priority: u8,
    /// Interrupts a second and burst that are let through; none: all.
    pub admission: Option<(u64, u64)>,
    /// The WCET of one interrupt at EL2.
    pub cost: Nanos,
    /// The most time from its arrival until its VM has the core, as a run is judged by.
    pub deadline: Option<Nanos>,
    /// Its header.
    pub place: Place,
}

impl Line {
    /// Of a line that the file gives none.
    pub const PRIORITY: u8 = 128;

    /// Its number, if it goes by that.
    #[must_use]
    pub fn intid(&self) -> Option<u32> {
        self.name.parse().ok()
    }
}

impl Schedule {
    /// The entity of each time slice, slot or server, and its length.
    #[must_use]
    pub fn turns(&self) -> Vec<(Runner, Nanos)> {
        match self {
            Self::RoundRobin { quantum, runners, .. } => {
                runners.iter().map(|runner| (*runner, *quantum)).collect()
            }
            Self::Table { slots, .. } => slots.iter().map(|slot| (slot.0, slot.2)).collect(),
            Self::FixedPriority { servers } => {
                servers.iter().map(|server| (server.0, server.1)).collect()
            }
        }
    }

    /// All scheduled entities, each once.
    #[must_use]
    pub fn runners(&self) -> Vec<Runner> {
        let mut runners = Vec::new();
        for (runner, _) in self.turns() {
            if !runners.contains(&runner) {
                runners.push(runner);
            }
        }
        runners
    }

    /// The longest after which it repeats: its frame or its longest period.
    pub(crate) fn repeats(&self) -> Nanos {
        match self {
            Self::RoundRobin { .. } => Nanos(0),
            Self::Table { frame, .. } => *frame,
            Self::FixedPriority { servers } => {
                servers.iter().map(|server| server.2).max().unwrap_or(Nanos(0))
            }
        }
    }
}

impl Runner {
    /// What to call it.
    #[must_use]
    pub fn name(self, timing: &Timing) -> &str {
        match self {
            Self::Vm(vm) => timing.vms.get(vm).map_or("?", |vm| &vm.name),
            Self::Broker => "broker",
        }
    }
}

impl Timing {
    /// Reads what a file says about time and bandwidth; other missing keys are no error.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with this part, and keys that are not keys.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        Self::parse(path, &fault::read(path)?, true)
    }

    /// The same of a text; `path` is its name in messages.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub fn from_text(path: &Path, text: &str) -> Result<Self, Faults> {
        Self::parse(path, &fault::file(path, text), true)
    }

    /// With `follow` the overheads of the file that `[broker] overheads` names are taken, too.
    pub(crate) fn parse(path: &Path, file: &File, follow: bool) -> Result<Self, Faults> {
        let (mut faults, mut found) = (Faults::default(), Faults::default());
        let read = raw::parse_part(file, &raw::SYSTEM, raw::ABSENT, &mut faults, |table| {
            system(table, file, true, &mut found)
        });
        faults.0.append(&mut found.0);
        let Some((mut timing, name)) = read else {
            return Err(faults.into_result(()).err().unwrap_or_default());
        };
        let directory = path.parent().unwrap_or(Path::new(""));
        if follow {
            timing.measure(directory, &mut faults);
        }
        if let Some(name) = name {
            let platform = crate::check::find_platform(file, directory, &name, &mut faults);
            timing.stand_on(platform);
        }
        faults.0.extend(timing.wrong_rules(|vm| timing.known_lines(vm)));
        faults.into_result(timing)
    }

    /// Takes the overheads that `[broker] overheads` names, and the copy's bandwidth with them, where the file has none.
    pub(crate) fn measure(&mut self, directory: &Path, faults: &mut Faults) {
        let Some((name, place)) = &self.measured else { return };
        let path = directory.join(name);
        let read = fault::read(&path).and_then(|file| Self::parse(&path, &file, false));
        let why = match read {
            Ok(measured) if measured.overheads.is_empty() => "has no [overheads]".to_owned(),
            Ok(measured) => {
                self.adopt(&measured);
                return;
            }
            Err(why) => {
                let first = why.0.first().map(|fault| fault.message.clone());
                format!("can't be used: {}", first.unwrap_or_default())
            }
        };
        let message = format!("`{name}`, the broker's overheads, {why}");
        let help = "run a system with flows with --deterministic, and let `weir report --overheads -o FILE` write it; or take the key out";
        faults.push(self.fault(Code::BrokerOverheads, place, message, help));
    }

    /// Takes another file's overheads, and the bandwidth of its copy, where this one has none.
    pub fn adopt(&mut self, measured: &Self) {
        for overhead in &measured.overheads {
            if self.overheads.iter().all(|own| own.name != overhead.name) {
                self.overheads.push(*overhead);
            }
        }
        for (sender, wake) in &measured.wakes {
            if self.wakes.iter().all(|(own, _)| own != sender) {
                self.wakes.push((sender.clone(), *wake));
            }
        }
        self.dma.copy_bandwidth = self.dma.copy_bandwidth.or(measured.dma.copy_bandwidth);
        self.tables.extend(measured.tables.iter().cloned());
    }

    /// Takes another file's overheads, and the bandwidth of its copy, before those that this one has.
    pub fn prefer(&mut self, measured: &Self) {
        let is_given = |name: &str| measured.overheads.iter().any(|given| given.name == name);
        self.overheads.retain(|own| !is_given(own.name));
        if is_given("wake") {
            // Those of senders belong to the run in which `wake` was measured.
            self.wakes.clear();
        }
        self.wakes.retain(|(own, _)| measured.wakes.iter().all(|(given, _)| given != own));
        self.dma.copy_bandwidth = measured.dma.copy_bandwidth.or(self.dma.copy_bandwidth);
        if self.overheads.is_empty() {
            self.tables.clear();
        }
        let mut tables = measured.tables.clone();
        tables.append(&mut self.tables);
        self.adopt(measured);
        self.tables = tables;
    }

    /// Takes the platform's overheads and saturation where the file has none, and the data path
    /// that follows from the platform.
    pub(crate) fn stand_on(&mut self, platform: Option<Platform>) {
        if let Some(platform) = &platform {
            let before = (self.overheads.len(), self.dma.copy_bandwidth);
            let flows: usize = self.flows.iter().map(|flow| flow.to.len()).sum();
            let ends = self.flows.iter().flat_map(|flow| flow.to.iter().chain([&flow.from]));
            // The broker looks at VMs up to the last one in a flow.
            let vms = ends.max().map_or(0, |vm| vm + 1);
            for overhead in platform.overheads.for_system([flows as u64, vms as u64]) {
                if self.overheads.iter().all(|own| own.name != overhead.name) {
                    self.overheads.push(overhead);
                }
            }
            self.dma.copy_bandwidth = self.dma.copy_bandwidth.or(platform.overheads.copy_bandwidth);
            if before != (self.overheads.len(), self.dma.copy_bandwidth) {
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
        if own == platform.saturation.as_ref()
            && let Some(source) = own.and_then(|known| known.source.as_ref())
        {
            sources.push(format!("{name} [saturation]: {source}"));
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

    /// What EL2 takes of a shared core, as the file says of that core, else the platform; none where neither does.
    #[must_use]
    pub fn sharing(&self, core: &SharedCore) -> Option<Sharing> {
        let known = self.platform.as_ref().and_then(|platform| platform.sharing);
        match core.switch {
            None => known,
            Some(switch) => {
                let known = known.unwrap_or_default();
                let least_switch = known.least_switch.min(switch);
                Some(Sharing { switch, least_switch, ..known })
            }
        }
    }

    /// The interrupts of VM `vm`'s devices that no `[[irq]]` is about, as far as the platform knows the devices.
    #[must_use]
    pub fn unruled(&self, vm: usize) -> Vec<u32> {
        let ruled =
            |line: &u32| self.lines.iter().any(|rule| rule.vm == vm && rule.intid() == Some(*line));
        let mut unruled = self.lines_of(vm);
        unruled.retain(|line| !ruled(line));
        unruled
    }

    /// The interrupts of VM `vm`'s devices, as far as the platform knows the devices.
    fn lines_of(&self, vm: usize) -> Vec<u32> {
        let (Some(platform), Some(this)) = (&self.platform, self.vms.get(vm)) else {
            return Vec::new();
        };
        let listed = |vm: &TimedVm| {
            let names = vm.devices.iter().flatten();
            names.map(|name| platform.device_path(name).to_owned()).collect::<Vec<_>>()
        };
        let own = listed(this);
        let others: Vec<_> = self.vms.iter().flat_map(listed).collect();
        let passable = |device: &BoardDevice| {
            platform.allow.iter().any(|name| device.compatible.contains(name))
        };
        let is_own = |device: &&BoardDevice| {
            if this.devices.is_some() {
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

    /// The same if the file says which devices it has, and all of them are known. One of which it says neither a device nor an image may have any.
    fn known_lines(&self, vm: usize) -> Option<Vec<u32>> {
        let (platform, this) = (self.platform.as_ref()?, self.vms.get(vm)?);
        let is_known = |name: &String| {
            let Some(address) = name.strip_prefix(pci::PREFIX) else {
                let path = platform.device_path(name);
                return platform.board.devices.iter().any(|device| device.path == path);
            };
            platform.pci.is_some() && pci::Address::parse(address).is_some()
        };
        let said = this.built || this.devices.as_ref().is_none_or(|names| !names.is_empty());
        let known = said && this.devices.iter().flatten().all(is_known);
        known.then(|| self.lines_of(vm))
    }

    /// What is wrong with rules of interrupts: there are too many, or two for one, or the interrupt is none of its VM's, where `own` knows which are.
    pub(crate) fn wrong_rules(&self, own: impl Fn(usize) -> Option<Vec<u32>>) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut wrong = |code, place: &Place, label, message: String, help: String| {
            let fault = Fault::new(code, &self.file, place.0.clone(), message);
            faults.push(fault.label(label).help(help));
        };
        for core in &self.cores {
            let here =
                |line: &&Line| self.vms.get(line.vm).is_some_and(|vm| vm.cpus.contains(&core.id));
            if let Some(line) = self.lines.iter().filter(here).nth(MAX_RULES) {
                let message =
                    format!("more than {MAX_RULES} interrupts have rules on core {}", core.id);
                let help = "keep those that come often".to_owned();
                wrong(Code::TooManyIrqs, &line.place, "one too many", message, help);
            }
        }
        for (place, line) in self.lines.iter().enumerate() {
            let (Some(intid), Some(vm)) = (line.intid(), self.vms.get(line.vm)) else { continue };
            let runner = Runner::Vm(line.vm);
            let has_turns = self.cores.iter().any(|core| core.schedule.runners().contains(&runner));
            let is_shared = has_turns || self.is_shared(line.vm);
            if !is_shared && !matches!(line.class, Class::Active | Class::Dynamic) {
                continue;
            }
            let same = |other: &Line| other.intid() == Some(intid) && other.vm == line.vm;
            if let Some(own) = own(line.vm).filter(|own| !own.contains(&intid)) {
                let own: Vec<_> = own.iter().map(u32::to_string).collect();
                let help = if own.is_empty() {
                    format!("{} has none: give it a device", vm.name)
                } else {
                    format!("its own are {}", own.join(", "))
                };
                let message = format!("{} has no device with interrupt {intid}", vm.name);
                wrong(Code::IrqUnknown, &line.place, "this rule", message, help);
            } else if self.lines.iter().take(place).any(same) {
                let message = format!("interrupt {intid} of {} has two rules", vm.name);
                let help = "keep one of them".to_owned();
                wrong(Code::IrqTwice, &line.place, "this rule", message, help);
            }
        }
        faults
    }

    /// Whether core `core` has a schedule, be it one with faults.
    pub(crate) fn is_shared_core(&self, core: u64) -> bool {
        let unread = || self.unread.iter().any(|unread| unread.is_none_or(|its| its == core));
        self.cores.iter().any(|shared| shared.id == core) || unread()
    }

    /// Whether a VM is on a core that has a schedule.
    pub(crate) fn is_shared(&self, vm: usize) -> bool {
        let cpus = self.vms.get(vm).map_or(&[][..], |vm| &vm.cpus);
        cpus.iter().any(|core| self.is_shared_core(*core))
    }

    /// Whether a device of these interrupts is one of VM `vm`'s *active* ones: it has some, and the file says so of each.
    pub(crate) fn is_active(&self, vm: usize, irqs: &[Irq]) -> bool {
        let is = |irq: &Irq| {
            let its = |line: &&Line| line.vm == vm && line.intid() == Some(irq.intid);
            self.lines.iter().find(its).is_some_and(|line| line.class == Class::Active)
        };
        !irqs.is_empty() && irqs.iter().all(is)
    }

    /// The schedules that name the broker.
    pub(crate) fn brokers(&self) -> impl Iterator<Item = &SharedCore> {
        self.cores.iter().filter(|core| core.schedule.runners().contains(&Runner::Broker))
    }

    /// Where a place is, for a person.
    #[must_use]
    pub fn location(&self, place: &Place) -> Location {
        locate(&self.file, place.0.start)
    }

    /// A fault of this file.
    #[must_use]
    pub fn fault(
        &self,
        code: Code,
        place: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Fault {
        Fault::new(code, &self.file, place.0.clone(), message).label("this").help(help)
    }

    /// What the hypervisor of this version would have to do and does not.
    ///
    /// # Errors
    ///
    /// A fault for each key that asks for it, if there is one.
    pub fn carried_out(&self) -> Result<(), Faults> {
        let mut faults = Faults::default();
        let help = "take the key out to build the system; `weir analyze` and `weir plan` use it";
        let mut refuse = |place: &Place, what: String| {
            let message =
                format!("this version of weir analyzes {what}, but does not enforce it yet");
            faults.push(self.fault(Code::NotEnforced, place, message, help));
        };
        if (self.dma.given || !self.flows.is_empty()) && self.dma.path != DataPath::Broker {
            let header = self.flows.first().map_or(&self.dma.place, |flow| &flow.place);
            let place = if self.dma.given { &self.dma.place } else { header };
            refuse(place, "a [dma] whose path is not \"broker\"".to_owned());
        }
        for line in &self.lines {
            let name = &line.name;
            if line.class == Class::Active && line.intid().is_some() {
                if line.preempt || line.admission.is_some() {
                    refuse(&line.place, format!("the rule of interrupt {name}, which is active"));
                }
            } else if !matches!(line.class, Class::Dedicated | Class::Dynamic) {
                refuse(&line.place, format!("the class of interrupt {name}"));
            } else if line.intid().is_none() {
                refuse(
                    &line.place,
                    format!("the admission of {name}, an interrupt without a number"),
                );
            } else if !self.is_shared(line.vm)
                && (line.class == Class::Dedicated || line.preempt || line.admission.is_some())
            {
                refuse(
                    &line.place,
                    format!("the admission of interrupt {name} on a core of its VM's own"),
                );
            }
        }
        faults.into_result(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_system_gets_the_larger_tables_values() {
        let step = |name, max| Overhead { name, min: Nanos(0), max: Nanos(max) };
        let table = Overheads {
            steps: vec![step("pp", 1000), step("ps", 500), step("wake", 70), step("qr", 300)],
            size: Some([2, 3]),
            larger: Some(Larger {
                size: [12, 4],
                most: vec![("pp", Nanos(1205)), ("ps", Nanos(600)), ("qr", Nanos(200))],
            }),
            ..Overheads::default()
        };
        let most = |size| table.for_system(size).iter().map(|step| step.max.0).collect::<Vec<_>>();
        assert_eq!(most([1, 2]), [1000, 500, 70, 300]);
        assert_eq!(most([2, 3]), [1000, 500, 70, 300]);
        assert_eq!(most([3, 3]), [1205, 500, 70, 300]);
        assert_eq!(most([12, 4]), [1205, 600, 70, 300]);
        // Ten more flows and two more VMs: the growth goes on, rounded up.
        assert_eq!(most([22, 6]), [1410, 800, 70, 300]);
        assert_eq!(most([13, 3]), [1226, 500, 70, 300]);
    }

    #[test]
    fn an_own_table_goes_before_the_platforms() {
        let flow =
            "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1KiB\"\nperiod = \"1ms\"\n";
        let timing = |more: &str| {
            let text = format!("platform = \"qemu-virt\"\n{flow}{more}");
            Timing::from_text("x.toml".as_ref(), &text).expect("a system")
        };
        let board = timing("");
        assert_eq!(
            (board.dma.path, board.dma.path_source),
            (DataPath::Broker, PathSource::Platform)
        );
        let origin = board.tables[0].origin.as_ref().expect("an origin");
        assert_eq!(board.tables[0].file, "platform qemu-virt");
        assert!(origin.command.contains("weir report --overheads"), "{origin:?}");
        let own = timing("[overheads]\nhold = { min = 1, max = 2 }\n");
        let hold = |timing: &Timing| {
            let hold = timing.overheads.iter().find(|step| step.name == "hold");
            hold.expect("the board has it").max
        };
        assert_eq!(hold(&own), Nanos(2));
        assert!(hold(&board) > Nanos(2) && own.overheads.len() == board.overheads.len());
        let files: Vec<_> = own.tables.iter().map(|table| table.file.as_str()).collect();
        assert_eq!(files, ["x.toml", "platform qemu-virt"]);
    }
}
