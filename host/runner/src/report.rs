//! The report of a run: what became of each VM, as JSON and as a table.
//!
//! Nothing in here depends on the host: the same bytes on the wire give the same report.

use super::{
    demux::{Source, Step},
    expect::Expectations,
    findings::{
        self, Activations, BudgetFinding, Clock, Finding, InterruptFinding, Latency, TaskFinding,
    },
    syndrome,
};
use serde::Serialize;
use serde_json::json;
use std::{collections::BTreeMap, fmt::Write as _};
use weir_paging::smmu;
use weir_report::Json;
use weir_trace::wire::{
    self, Counters, Denial, Denials, Event, ExitCause, FaultKind, HYPERVISOR, VcpuState, VmState,
    What,
};

/// Most faults of a VM that are listed one by one; all are counted.
pub const FAULTS_LISTED: usize = 1000;

/// Until when the flows of a run are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// As long as it counts.
    ToTheEnd,
    /// Until then, in nanoseconds since the hypervisor started, and the run went on.
    Until(u64),
    /// One of them never was.
    Never,
}

/// What is told at once may be followed by as much that is told about the same moment.
const TELLING_NS: u64 = 1_000_000;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Every expected line was seen.
    AllMet,
    /// The time given with `--for` is over.
    TimeOver,
    /// The system ended itself: every VM is off, or one had `on_fault = "stop-system"`.
    SystemStop,
    /// A person pressed Ctrl-C, or a signal came.
    Interrupted,
    /// The machine was gone before the system said that it ends.
    MachineGone,
    /// Nothing was heard of the machine for so long that it was given up.
    Silent,
}

/// What became of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Never started.
    #[default]
    NotStarted,
    /// It was running when the run ended.
    Running,
    /// It powered itself off.
    Off,
    /// It was stopped for good after a fault.
    Halted,
}

impl State {
    /// As in the JSON form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotStarted => "not started",
            Self::Running => "running",
            Self::Off => "off",
            Self::Halted => "halted",
        }
    }
}

/// A life ended by force.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The life it ended, counted from 0.
    pub life: u32,
    /// The vCPU that did it.
    pub vcpu: u8,
    /// A [`FaultKind`] by name.
    pub kind: String,
    /// The intermediate physical address.
    pub address: String,
    /// The guest's program counter.
    pub pc: String,
    /// `ESR_EL2`.
    pub syndrome: String,
    /// `ESR_EL2` in words.
    pub meaning: String,
    /// `ESR_EL1`: what the guest itself was busy with.
    pub guest_syndrome: String,
    /// `ESR_EL1` in words; none while it is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_meaning: Option<String>,
    /// `ELR_EL1`.
    pub guest_elr: String,
}

/// An access that a VM's device tried and the SMMU refused: the first of each stream in a life.
#[derive(Clone, Debug, Serialize)]
pub struct Dma {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The life in which it was, counted from 0.
    pub life: u32,
    /// The device's number at the SMMU.
    pub stream: u32,
    /// `read` or `write`.
    pub access: &'static str,
    /// The SMMU's name for what was wrong.
    pub kind: &'static str,
    /// The address that the device used.
    pub address: String,
}

impl Dma {
    /// What an event of [`Denial::Dma`] tells.
    fn new(event: &Event, life: u32) -> Self {
        Self {
            time_ns: event.time_ns,
            life,
            stream: (event.syndrome >> 32) as u32,
            access: if event.syndrome >> 8 & 1 == 1 { "write" } else { "read" },
            kind: smmu::fault_name(event.syndrome as u8),
            address: hex(event.address),
        }
    }
}

/// What a VM's console said, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Console {
    /// Bytes that came through.
    pub bytes: u64,
    /// Lines among them.
    pub lines: u64,
    /// Bytes that the hypervisor had to throw away.
    pub dropped: u64,
}

/// What a vCPU did, as of its last counters.
#[derive(Clone, Debug, Serialize)]
pub struct Vcpu {
    /// Its number within the VM.
    #[serde(rename = "vcpu")]
    pub number: u8,
    /// The core of the platform that it runs on.
    pub core: u8,
    /// When it was counted; none if no counters came.
    pub counted_ns: Option<u64>,
    /// `off`, `on` or `halted`.
    pub state: Option<&'static str>,
    /// Exits to EL2 by cause; none if no counters came.
    pub exits: Option<BTreeMap<&'static str, u64>>,
    /// Virtual interrupts put into list registers; none if no counters came.
    pub injected: Option<u64>,
}

/// An expected line.
#[derive(Clone, Debug, Serialize)]
pub struct Expected {
    /// What the line must contain.
    pub text: String,
    /// Whether it came.
    pub met: bool,
    /// When, in nanoseconds since the hypervisor started.
    pub time_ns: Option<u64>,
}

/// A VM's part of the report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VmRun {
    /// Its name.
    pub name: String,
    /// What became of it.
    pub state: State,
    /// Lives begun.
    pub lives: u32,
    /// Lives that another one followed.
    pub restarts: u32,
    /// Lives ended by PSCI SYSTEM_RESET.
    pub resets: u32,
    /// Its console.
    pub console: Console,
    /// Exits to EL2 by cause, all vCPUs together; none if the counters of one did not come.
    pub exits: Option<BTreeMap<&'static str, u64>>,
    /// Virtual interrupts put into list registers, all vCPUs together; none if the counters of one
    /// did not come.
    pub injected: Option<u64>,
    /// Its vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// What it was refused and lived on, by name.
    pub denials: BTreeMap<&'static str, u64>,
    /// What its devices tried and were refused, up to [`FAULTS_LISTED`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dma: Vec<Dma>,
    /// It started although the broker of its flows was not ready.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub started_without_broker: bool,
    /// What became of the frames of its network device, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<Frames>,
    /// Lives ended by force, by kind.
    pub fault_counts: BTreeMap<String, u64>,
    /// The first [`FAULTS_LISTED`] of them, one by one.
    pub faults: Vec<Fault>,
    /// How many more there were.
    pub faults_left_out: u64,
    /// Records of its events that the hypervisor had to throw away. Counts and states do not depend
    /// on them.
    pub records_lost: u64,
    /// The hypervisor's last own counts of all this.
    #[serde(skip)]
    counted: Option<wire::Lives>,
    /// When its last event was.
    #[serde(skip)]
    event_ns: u64,
    /// Its expected lines.
    pub expect: Vec<Expected>,
    /// How its vCPUs used their memory budgets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetFinding>,
    /// How soon it had the core for its interrupts, where these have deadlines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<InterruptFinding>,
    /// Its tasks, as far as the system file names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskFinding>,
}

/// The frames of a VM's network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Frames {
    /// Frames that it sent, and that were passed on.
    pub sent: u64,
    /// Frames that it received.
    pub received: u64,
    /// Frames that it sent and that were dropped, as they were more than it may send.
    pub over_rate: u64,
    /// Frames that it sent and that were none, or said to be another's.
    pub refused: u64,
    /// Frames for it that were dropped, as it had no buffer for them, or did not run.
    pub missed: u64,
}

/// A flow's part of the report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowRun {
    /// Its name.
    pub name: String,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that were given up, as one of the flow's ends was reset.
    pub lost: u64,
    /// The longest time in ns from the later of a packet's notification and its eligibility to its
    /// receiver's interrupt.
    pub worst_ns: u64,
    /// The flow's deadline; none for best effort.
    pub deadline_ns: Option<u64>,
    /// The least time between two packets; none if the flow has none.
    #[serde(skip)]
    pub period_ns: Option<u64>,
    /// Packets that missed the deadline.
    pub late: u64,
    /// The latencies of its packets; none without a packet.
    pub latency_ns: Option<Latency>,
    /// The latency bound that the analysis computes for emulated cores that run one at a time, if
    /// it can.
    pub bound_ns: Option<u64>,
    /// The verdict on deadline and bound; none if there is neither.
    #[serde(flatten)]
    pub finding: Option<Finding>,
    /// When it was counted, in nanoseconds since the hypervisor started: packets of later are in
    /// none of these. None if no counts came.
    pub counted_ns: Option<u64>,
    /// How often this receiver was dropped, where there are several, as it kept the others waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u32>,
}

/// A flow as the system file has it.
#[derive(Clone, Debug, Default)]
pub struct FlowFacts {
    /// Its name, and its receiver's behind a slash where there are several.
    pub name: String,
    /// See [`FlowRun::bound_ns`].
    pub bound_ns: Option<u64>,
    /// See [`FlowRun::deadline_ns`].
    pub deadline_ns: Option<u64>,
    /// See [`FlowRun::period_ns`].
    pub period_ns: Option<u64>,
    /// Whether there are several receivers.
    pub shared: bool,
}

/// All VMs together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Expected lines.
    pub expected: usize,
    /// Expected lines that came.
    pub met: usize,
    /// Lives that another one followed.
    pub restarts: u64,
    /// Lives ended by force.
    pub faults: u64,
    /// Things refused.
    pub denials: u64,
    /// Exits to EL2, of the VMs whose counters came.
    pub exits: u64,
    /// Virtual interrupts put into list registers, of the VMs whose counters came.
    pub injected: u64,
    /// Console bytes thrown away by the hypervisor.
    pub dropped: u64,
    /// Records of events and counters thrown away by the hypervisor.
    pub records_lost: u64,
    /// Frames that did not survive the wire, or name a VM that does not exist.
    pub damaged_frames: u64,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The system file's name without its ending.
    pub system: String,
    /// The platform that it ran on.
    pub platform: String,
    /// Whether the hypervisor said that it runs on all cores.
    pub started: bool,
    /// Why the run ended.
    pub ended_by: End,
    /// The last time told, in nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// What the latencies are measured in.
    pub clock: Clock,
    /// The worst verdict on flows, budgets and tasks: `holds`, `not-judged` or `does-not-hold`;
    /// none if there is none of these.
    pub verdict: Option<&'static str>,
    /// Which of them have this verdict.
    pub verdict_of: Vec<String>,
    /// The VMs in the order of the file.
    pub vms: Vec<VmRun>,
    /// The flows in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowRun>,
    /// All of them together.
    pub totals: Totals,
    /// What the hypervisor printed itself.
    pub hypervisor: Vec<String>,
}

/// A VM as the system file has it.
#[derive(Clone, Debug, Default)]
pub struct VmFacts {
    /// Its name.
    pub name: String,
    /// The core of each vCPU.
    pub cores: Vec<u8>,
    /// Its tasks: name and deadline.
    pub tasks: Vec<(String, u64)>,
}

/// Adds up what the wire says.
#[derive(Clone, Debug)]
pub struct Tally {
    vms: Vec<VmRun>,
    started: bool,
    stopped: bool,
    damaged: u64,
    records_lost: u64,
    hypervisor: Vec<String>,
    /// The last counts of each flow, by its place in the file.
    flows: BTreeMap<u32, wire::Flow>,
    /// What VMs reported of their tasks, by the places of both.
    activations: BTreeMap<(usize, usize), Activations>,
}

/// Most lines of the hypervisor's own that go into the report; its log has all.
const HYPERVISOR_LINES: usize = 100;

impl Tally {
    /// For these VMs, before anything has happened.
    #[must_use]
    pub fn new(vms: &[VmFacts]) -> Self {
        let vcpu = |(number, &core): (usize, &u8)| Vcpu {
            number: number as u8,
            core,
            counted_ns: None,
            state: None,
            exits: None,
            injected: None,
        };
        let task = |(name, deadline_ns): &(String, u64)| TaskFinding {
            name: name.clone(),
            deadline_ns: *deadline_ns,
            activations: None,
            misses: None,
            finding: findings::open(),
        };
        let vms = vms
            .iter()
            .map(|facts| VmRun {
                name: facts.name.clone(),
                vcpus: facts.cores.iter().enumerate().map(vcpu).collect(),
                tasks: facts.tasks.iter().map(task).collect(),
                ..VmRun::default()
            })
            .collect();
        Self {
            vms,
            started: false,
            stopped: false,
            damaged: 0,
            records_lost: 0,
            hypervisor: Vec::new(),
            flows: BTreeMap::new(),
            activations: BTreeMap::new(),
        }
    }

    /// Takes the next thing that the wire said.
    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Byte(Source::Vm(vm), _) => self.console(*vm, |console| console.bytes += 1),
            Step::Line { source: Source::Vm(vm), text, .. } => {
                self.console(*vm, |console| console.lines += 1);
                self.task(*vm, text);
            }
            Step::Line { source: Source::Hypervisor, text, .. } => {
                if self.hypervisor.len() < HYPERVISOR_LINES {
                    self.hypervisor.push(text.clone());
                }
            }
            Step::Dropped { source: Source::Vm(vm), bytes, .. } => {
                self.console(*vm, |console| console.dropped += u64::from(*bytes));
            }
            Step::Event(event) => self.event(event),
            Step::Counters(counters) => self.counters(counters),
            Step::Denials(denials) => self.denials(denials),
            Step::Lives(lives) => self.lives(lives),
            Step::Port(port) => self.frames(port),
            Step::Flow(flow) => _ = self.flows.insert(flow.flow, *flow),
            Step::Damaged => self.damaged += 1,
            Step::Dropped { source: Source::Hypervisor, bytes, .. } => {
                self.records_lost += u64::from(*bytes);
            }
            Step::Byte(Source::Hypervisor, _) | Step::Unfinished { .. } => {}
        }
    }

    fn console(&mut self, vm: usize, change: impl FnOnce(&mut Console)) {
        if let Some(vm) = self.vms.get_mut(vm) {
            change(&mut vm.console);
        }
    }

    /// Takes a line that reports of a task of the VM that printed it.
    fn task(&mut self, vm: usize, line: &str) {
        let Some((name, activations, misses)) = findings::activations(line) else { return };
        let tasks = self.vms.get_mut(vm).into_iter().flat_map(|vm| &mut vm.tasks).enumerate();
        for (place, task) in tasks.filter(|(_, task)| task.name == name) {
            let counts = self.activations.entry((vm, place)).or_default();
            counts.take(activations, misses);
            let (activations, misses) = counts.sum();
            (task.activations, task.misses) = (Some(activations), Some(misses));
        }
    }

    fn event(&mut self, event: &Event) {
        let what = What::from_number(event.what);
        match what {
            Some(What::SystemStart) => self.started = true,
            Some(What::SystemStop) => self.stopped = true,
            _ => {}
        }
        let Some(vm) = self.vms.get_mut(usize::from(event.vm)) else {
            return;
        };
        vm.event_ns = vm.event_ns.max(event.time_ns);
        match what {
            Some(What::VmStart) => {
                vm.state = State::Running;
                // A start that was lost on the wire still counts.
                vm.lives = vm.lives.max(event.detail.saturating_add(1));
            }
            Some(What::VmOff) => vm.state = State::Off,
            Some(What::VmReset) => vm.resets += 1,
            Some(What::VmHalted) => vm.state = State::Halted,
            Some(What::VmFault) => vm.fault(event),
            Some(What::BrokerLate) => vm.started_without_broker = true,
            Some(What::Denied) => {
                let count = vm.denials.entry(denial_name(event.detail)).or_default();
                // Until counts come there is only this: at least once.
                *count = (*count).max(1);
                if event.detail == Denial::Dma as u32 && vm.dma.len() < FAULTS_LISTED {
                    vm.dma.push(Dma::new(event, vm.lives.saturating_sub(1)));
                    // Each of these is told of.
                    *count = (*count).max(vm.dma.len() as u64);
                }
            }
            // A number of a newer hypervisor has its line in the log.
            Some(What::SystemStart | What::SystemStop) | None => {}
        }
    }

    fn counters(&mut self, counters: &Counters) {
        let Some(vm) = self.vms.get_mut(usize::from(counters.vm)) else {
            return;
        };
        vm.restarts = vm.restarts.max(counters.restarts);
        let Some(vcpu) = vm.vcpus.get_mut(usize::from(counters.vcpu)) else {
            self.damaged += 1;
            return;
        };
        vcpu.counted_ns = Some(counters.time_ns);
        vcpu.state = VcpuState::ALL.get(usize::from(counters.state)).map(|state| state.name());
        vcpu.injected = Some(counters.injected);
        let exits = ExitCause::ALL.iter().map(|cause| cause.name()).zip(counters.exits);
        vcpu.exits = Some(exits.collect());
    }

    fn denials(&mut self, denials: &Denials) {
        let Some(vm) = self.vms.get_mut(denials.vm as usize) else {
            return;
        };
        for (denial, count) in Denial::ALL.iter().zip(denials.counts) {
            if count > 0 {
                let known = vm.denials.entry(denial.name()).or_default();
                *known = (*known).max(count);
            }
        }
    }

    fn lives(&mut self, lives: &wire::Lives) {
        let Some(vm) = self.vms.get_mut(usize::from(lives.vm)) else {
            return;
        };
        // An event of later may have overtaken it.
        if lives.time_ns > vm.event_ns {
            vm.state = match VmState::ALL.get(usize::from(lives.state)) {
                Some(VmState::NotStarted) => State::NotStarted,
                Some(VmState::Running) => State::Running,
                Some(VmState::Off) => State::Off,
                Some(VmState::Halted) => State::Halted,
                None => vm.state,
            };
        }
        vm.counted = Some(*lives);
    }

    fn frames(&mut self, port: &wire::Port) {
        if let Some(vm) = self.vms.get_mut(port.vm as usize) {
            let wire::Port { sent, received, over_rate, refused, missed, .. } = *port;
            vm.frames = Some(Frames { sent, received, over_rate, refused, missed });
        }
    }

    /// What became of these flows.
    #[must_use]
    pub fn flows(&self, facts: &[FlowFacts]) -> Vec<FlowRun> {
        let flow = |(place, facts): (u32, &FlowFacts)| {
            let counts = self.flows.get(&place);
            FlowRun {
                name: facts.name.clone(),
                packets: counts.map_or(0, |counts| counts.packets),
                lost: counts.map_or(0, |counts| counts.lost),
                worst_ns: counts.map_or(0, |counts| counts.worst_ns),
                deadline_ns: facts.deadline_ns,
                period_ns: facts.period_ns,
                late: counts.map_or(0, |counts| counts.late),
                latency_ns: counts.filter(|counts| counts.packets > 0).map(|counts| Latency {
                    min: counts.least_ns,
                    p50: None,
                    p99: None,
                    max: counts.worst_ns,
                    max_packet: counts.worst_packet,
                    max_arrived_ns: counts.worst_arrived_ns,
                }),
                bound_ns: facts.bound_ns,
                finding: None,
                counted_ns: counts.map(|counts| counts.time_ns),
                dropped: facts.shared.then(|| counts.map_or(0, |counts| counts.dropped)),
            }
        };
        (0..).zip(facts).map(flow).collect()
    }

    /// Whether the system said that it ends.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// The report, as far as it goes.
    #[must_use]
    pub fn report(
        &self,
        system: &str,
        platform: &str,
        expected: &Expectations,
        ended_by: End,
        time_ns: u64,
    ) -> RunReport {
        let mut vms = self.vms.clone();
        let mut totals = Totals { damaged_frames: self.damaged, ..Totals::default() };
        for (place, vm) in vms.iter_mut().enumerate() {
            vm.finish();
            let own = expected.all().iter().filter(|expectation| expectation.vm == place);
            vm.expect = own
                .map(|expectation| Expected {
                    text: expectation.text.clone(),
                    met: expectation.met_ns.is_some(),
                    time_ns: expectation.met_ns,
                })
                .collect();
            totals.expected += vm.expect.len();
            totals.met += vm.expect.iter().filter(|expected| expected.met).count();
            totals.restarts += u64::from(vm.restarts);
            totals.faults += vm.fault_counts.values().sum::<u64>();
            totals.denials += vm.denials.values().sum::<u64>();
            totals.exits += vm.exit_count().unwrap_or_default();
            totals.injected += vm.injected.unwrap_or_default();
            totals.dropped += vm.console.dropped;
            totals.records_lost += vm.records_lost;
        }
        totals.records_lost = totals.records_lost.max(self.records_lost);
        RunReport {
            system: system.into(),
            platform: platform.into(),
            started: self.started,
            ended_by,
            time_ns,
            clock: Clock::default(),
            verdict: None,
            verdict_of: Vec::new(),
            vms,
            flows: Vec::new(),
            totals,
            hypervisor: self.hypervisor.clone(),
        }
    }
}

impl RunReport {
    /// Returns the report as JSON, as `weir run --json` and `report.json` have it.
    #[must_use]
    pub fn json(&self) -> Json {
        weir_report::versioned(json!(self))
    }

    /// Until when the flows were counted.
    #[must_use]
    pub fn flows_counted(&self) -> Counted {
        let Some(counted) = self.flows.iter().map(|flow| flow.counted_ns).min() else {
            return Counted::ToTheEnd;
        };
        let Some(counted) = counted else { return Counted::Never };
        let met = self.vms.iter().flat_map(|vm| &vm.expect).filter_map(|line| line.time_ns);
        let late = match self.ended_by {
            End::AllMet => met.max().is_some_and(|met| counted < met),
            // They are told with the end.
            End::SystemStop => false,
            End::TimeOver | End::Interrupted | End::MachineGone | End::Silent => {
                counted.saturating_add(TELLING_NS) < self.time_ns
            }
        };
        if late { Counted::Until(counted) } else { Counted::ToTheEnd }
    }
}

impl VmRun {
    fn fault(&mut self, event: &Event) {
        let kind = fault_name(event.detail);
        *self.fault_counts.entry(kind.clone()).or_default() += 1;
        if self.faults.len() >= FAULTS_LISTED {
            self.faults_left_out += 1;
            return;
        }
        self.faults.push(Fault {
            time_ns: event.time_ns,
            life: self.lives.saturating_sub(1),
            vcpu: event.vcpu,
            kind,
            address: hex(event.address),
            pc: hex(event.pc),
            syndrome: hex(event.syndrome),
            meaning: syndrome::words(event.syndrome),
            guest_syndrome: hex(event.guest_syndrome),
            guest_meaning: (event.guest_syndrome != 0)
                .then(|| syndrome::words(event.guest_syndrome)),
            guest_elr: hex(event.guest_elr),
        });
    }

    /// Takes the hypervisor's own counts where records of events were lost.
    fn take_counts(&mut self) {
        let Some(counted) = self.counted else { return };
        self.records_lost = counted.lost.into();
        self.restarts = self.restarts.max(counted.restarts);
        self.resets = self.resets.max(counted.resets);
        if self.state != State::NotStarted {
            self.lives = self.lives.max(counted.restarts.saturating_add(1));
        }
        for (kind, count) in FaultKind::ALL.iter().zip(counted.faults) {
            if count > 0 {
                let known = self.fault_counts.entry(kind.name().into()).or_default();
                *known = (*known).max(count);
            }
        }
        let all: u64 = self.fault_counts.values().sum();
        self.faults_left_out = all.saturating_sub(self.faults.len() as u64);
    }

    fn finish(&mut self) {
        self.take_counts();
        self.restarts = self.restarts.max(self.lives.saturating_sub(1));
        let told: Option<Vec<_>> = self.vcpus.iter().map(|vcpu| vcpu.exits.as_ref()).collect();
        self.exits = told.map(|told| {
            let mut sum = BTreeMap::new();
            for (&cause, count) in told.into_iter().flatten() {
                *sum.entry(cause).or_default() += count;
            }
            sum
        });
        self.injected = self.vcpus.iter().map(|vcpu| vcpu.injected).sum();
    }

    /// Its exits of all causes; none if the counters of one of its vCPUs did not come.
    #[must_use]
    pub fn exit_count(&self) -> Option<u64> {
        self.exits.as_ref().map(|exits| exits.values().sum())
    }
}

/// A [`FaultKind`] by its number.
#[must_use]
pub fn fault_name(number: u32) -> String {
    FaultKind::ALL
        .get(number as usize)
        .map_or_else(|| format!("fault of unknown kind {number}"), |kind| kind.name().into())
}

/// A [`Denial`] by its number.
#[must_use]
pub fn denial_name(number: u32) -> &'static str {
    Denial::ALL.get(number as usize).map_or("unknown denial", |denial| denial.name())
}

/// As a person reads addresses.
#[must_use]
pub fn hex(value: u64) -> String {
    format!("{value:#x}")
}

/// What is said of a VM whose [`What::BrokerLate`] came.
pub const WITHOUT_BROKER: &str =
    "started without the broker, which was not ready; no bound contains the wait for it";

/// An event as a line of the hypervisor's log, without its time. `name` gives a VM's name.
pub fn in_words(event: &Event, name: impl Fn(u8) -> String) -> String {
    let vm = if event.vm == HYPERVISOR { "weir".to_owned() } else { name(event.vm) };
    let vcpu = event.vcpu;
    let place = |event: &Event| format!("at pc {:#x}", event.pc);
    match What::from_number(event.what) {
        Some(What::SystemStart) => "weir: running on all cores".into(),
        Some(What::SystemStop) => "weir: the system ends".into(),
        Some(What::VmStart) => format!("{vm}: started, life {}", event.detail),
        Some(What::VmOff) => format!("{vm}: powered off"),
        Some(What::VmReset) => format!("{vm}: asked for a reset"),
        Some(What::VmHalted) => format!("{vm}: halted for good"),
        Some(What::BrokerLate) => format!("{vm}: {WITHOUT_BROKER}"),
        Some(What::VmFault) => {
            let mut words = format!(
                "{vm}: fault on vCPU {vcpu}: {}, address {:#x}, {}; {} (ESR_EL2 {:#x})",
                fault_name(event.detail),
                event.address,
                place(event),
                syndrome::words(event.syndrome),
                event.syndrome,
            );
            if event.guest_syndrome != 0 {
                let _ = write!(
                    words,
                    "; the guest's own last exception: {} (ESR_EL1 {:#x}) from {:#x}",
                    syndrome::words(event.guest_syndrome),
                    event.guest_syndrome,
                    event.guest_elr
                );
            }
            words
        }
        Some(What::Denied) if event.detail == Denial::Dma as u32 => {
            let Dma { stream, access, kind, address, .. } = Dma::new(event, 0);
            format!("{vm}: {} (stream {stream}): {access} at {address}, {kind}", Denial::Dma.name())
        }
        Some(What::Denied) => format!(
            "{vm}: refused on vCPU {vcpu}: {} {:#x}, {}",
            denial_name(event.detail),
            event.syndrome,
            place(event)
        ),
        None => {
            format!("{vm}: event {} of a newer hypervisor, detail {}", event.what, event.detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        demux::Demux,
        observed::{Observed, Packet, Turns},
        show,
        synthetic::Wire,
    };
    use weir_trace::wire::dma_syndrome;

    fn tally(wire: &Wire) -> Tally {
        let facts = [
            VmFacts { name: "one".into(), cores: vec![0], ..VmFacts::default() },
            VmFacts { name: "two".into(), cores: vec![2, 3], ..VmFacts::default() },
        ];
        let (mut demux, mut steps) = (Demux::new(2), Vec::new());
        for &byte in wire.bytes() {
            demux.push(byte, &mut steps);
        }
        demux.finish(&mut steps);
        let mut tally = Tally::new(&facts);
        for step in &steps {
            tally.step(step);
        }
        tally
    }

    fn report(wire: &Wire) -> RunReport {
        tally(wire).report("s", "p", &Expectations::default(), End::TimeOver, 9)
    }

    #[test]
    fn lives_faults_and_denials_are_counted_by_name() {
        let wire = Wire::default()
            .event(1, What::SystemStart, HYPERVISOR, 0)
            .event(2, What::VmStart, 1, 0)
            .event(3, What::Denied, 1, Denial::SetWay as u32)
            .fault(4, 1, FaultKind::Write, 0x9200_0046)
            .event(5, What::VmStart, 1, 1)
            .fault(6, 1, FaultKind::Write, 0x9200_0046)
            .event(7, What::VmHalted, 1, 0);
        let report = report(&wire);
        assert!(report.started);
        assert_eq!(report.vms[0].state, State::NotStarted);
        let two = &report.vms[1];
        assert_eq!((two.state, two.lives, two.restarts), (State::Halted, 2, 1));
        assert_eq!(two.fault_counts["write outside its memory"], 2);
        assert_eq!(two.denials["set/way cache maintenance"], 1);
        assert_eq!(two.faults[1].life, 1);
        assert_eq!(two.faults[1].meaning, "data abort: store, translation fault at level 2");
        assert_eq!(report.totals.faults, 2);
        let shown = show::summary(&report);
        let fault = "fault of two/0 at 0.000000 s: write outside its memory: address 0xdead0000, pc 0x40001234: data abort: store, translation fault at level 2\n";
        assert_eq!(shown.matches(fault).count(), 2, "{shown}");
    }

    #[test]
    fn lost_records_change_no_count_and_no_state() {
        // Of 20 faults three were told of, and the end was not.
        let wire = Wire::default()
            .event(2, What::VmStart, 1, 0)
            .fault(4, 1, FaultKind::Read, 0x9200_0046)
            .fault(6, 1, FaultKind::Read, 0x9200_0046)
            .mark_dropped(7, HYPERVISOR.into(), 39)
            .fault(8, 1, FaultKind::Read, 0x9200_0046)
            .lives(9, (1, VmState::Off), [20, 20, 39]);
        let report = report(&wire);
        let two = &report.vms[1];
        assert_eq!((two.state, two.lives, two.restarts), (State::Off, 21, 20));
        assert_eq!(two.fault_counts["read outside its memory"], 20);
        assert_eq!((two.faults.len(), two.faults_left_out, two.records_lost), (3, 17, 39));
        assert_eq!((report.totals.faults, report.totals.records_lost), (20, 39));
        assert_eq!((report.vms[0].records_lost, report.vms[0].state), (0, State::NotStarted));
        assert!(show::summary(&report).contains("39 of the hypervisor's records were lost"));
    }

    #[test]
    fn an_event_that_overtook_the_counts_says_the_state() {
        let wire = Wire::default().event(2, What::VmStart, 0, 0).event(9, What::VmOff, 0, 0).lives(
            8,
            (0, VmState::Running),
            [0; 3],
        );
        assert_eq!(report(&wire).vms[0].state, State::Off);
        let wire = wire.lives(10, (0, VmState::Running), [0, 1, 0]);
        assert_eq!(report(&wire).vms[0].state, State::Running);
    }

    #[test]
    fn the_last_counters_count() {
        let wire = Wire::default()
            .counters(1, 1, 0, 5)
            .counters(2, 1, 0, 7)
            .counters(2, 1, 1, 1)
            .denials(2, 1, 3);
        let two = report(&wire).vms.remove(1);
        assert_eq!(two.exits.as_ref().expect("told")["timer interrupt"], 8);
        assert_eq!(two.injected, Some(8));
        assert_eq!(two.vcpus[0].exits.as_ref().expect("told")["fault"], 7);
        assert_eq!((two.vcpus[1].core, two.vcpus[1].counted_ns), (3, Some(2)));
        assert_eq!(two.denials["PMU register"], 3);
        assert_eq!(two.denials.len(), Denial::ALL.len());
    }

    #[test]
    fn flows_above_their_bounds_and_old_counts_are_told() {
        let wire = Wire::default().flow(4_000, 0, [3, 0, 109_984]).flow(5_000, 1, [3, 0, 500]);
        let facts = ["late", "good"].map(|name| FlowFacts {
            name: name.into(),
            bound_ns: Some(70_340),
            ..FlowFacts::default()
        });
        let report = |ended_by, time_ns| {
            let tally = tally(&wire);
            let report = tally.report("s", "p", &Expectations::default(), ended_by, time_ns);
            let mut report = RunReport { flows: tally.flows(&facts), ..report };
            let counted =
                crate::judge::Conditions { clock: Clock::Counted, accept_host_time: false };
            let packet = Packet { latency_ns: 109_984, arrived_ns: 200_000 };
            let mut observed = Observed::of_packets(vec![packet], 0);
            observed.add_turns(0, Turns::default());
            crate::judge::judge(&mut report, Some(&observed), (&[], &[]), counted);
            report
        };
        let told = |report: &RunReport| show::summary(report);
        let shown = told(&report(End::TimeOver, 2_000_000));
        let reason =
            "flow late: does not hold: the longest took 109984 ns, 39644 ns more than the bound\n";
        assert!(shown.contains(reason), "{shown}");
        assert!(shown.contains("flow late: the longest was packet 1 of 3, which arrived at"));
        assert!(!shown.contains("flow good: does not hold"), "{shown}");
        assert!(shown.contains("\nverdict: does not hold (flow late)\n"), "{shown}");
        assert!(shown.contains("counts are as of 0.000004 s, the last that came"), "{shown}");
        let mut met = report(End::AllMet, 2_000_000);
        let line = |time_ns| Expected { text: String::new(), met: true, time_ns: Some(time_ns) };
        met.vms[0].expect = vec![line(3_000)];
        assert_eq!(met.flows_counted(), Counted::ToTheEnd, "counted behind the last line");
        met.vms[1].expect = vec![line(4_500)];
        assert_eq!(met.flows_counted(), Counted::Until(4_000));
        assert_eq!(report(End::SystemStop, 2_000_000).flows_counted(), Counted::ToTheEnd);
        met.flows[1].counted_ns = None;
        assert_eq!(met.flows_counted(), Counted::Never);
        assert!(told(&met).contains("no counts of some flows came"), "{}", told(&met));
        assert_eq!(RunReport { flows: Vec::new(), ..met }.flows_counted(), Counted::ToTheEnd);
    }

    #[test]
    fn counters_that_did_not_come_are_not_zero() {
        let report = report(&Wire::default().counters(1, 1, 0, 5));
        let two = &report.vms[1];
        assert_eq!((two.exit_count(), two.injected), (None, None));
        assert_eq!((two.vcpus[0].injected, two.vcpus[1].injected), (Some(5), None));
        let shown = show::summary(&report);
        let row = shown.lines().find(|line| line.contains("two")).expect("a row");
        assert_eq!(row.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["-"; 2], "{shown}");
        let json = serde_json::to_value(two).expect("JSON");
        assert!(json["exits"].is_null() && json["injected"].is_null(), "{json}");
        assert!(json["vcpus"][1]["exits"].is_null(), "{json}");
    }

    #[test]
    fn the_last_counts_of_a_flow_count() {
        let wire = Wire::default().flow(1, 1, [5, 0, 70]).flow(2, 1, [9, 1, 80]).flow(2, 7, [1; 3]);
        let facts = |name: &str, bound_ns| FlowFacts {
            name: name.into(),
            bound_ns,
            shared: name == "b",
            ..FlowFacts::default()
        };
        let flows = tally(&wire).flows(&[facts("a", None), facts("b", Some(90))]);
        let numbers = |flow: &FlowRun| (flow.packets, flow.lost, flow.worst_ns, flow.bound_ns);
        assert_eq!([flows[0].dropped, flows[1].dropped], [None, Some(0)]);
        assert_eq!(
            flows.iter().map(numbers).collect::<Vec<_>>(),
            [(0, 0, 0, None), (9, 1, 80, Some(90))]
        );
    }

    #[test]
    fn counters_of_a_vcpu_that_does_not_exist_are_damage() {
        let wire = Wire::default().counters(1, 0, 5, 5).garbage(&[0x10, 1, 1, 1, 1]);
        assert_eq!(report(&wire).totals.damaged_frames, 2);
    }

    #[test]
    fn refused_accesses_of_a_device_name_its_stream() {
        let mut tally = tally(&Wire::default().event(1, What::VmStart, 1, 4));
        for (time_ns, write) in [(2, true), (3, false)] {
            tally.event(&Event {
                time_ns,
                what: What::Denied as u16,
                vm: 1,
                detail: Denial::Dma as u32,
                syndrome: dma_syndrome(16, write, 0x10),
                address: 0x4100_0000,
                ..Event::default()
            });
        }
        let report = tally.report("s", "p", &Expectations::default(), End::TimeOver, 9);
        let two = &report.vms[1];
        assert_eq!(two.denials["DMA outside its memory"], 2);
        let [first, second] = two.dma.as_slice() else { panic!("{:?}", two.dma) };
        assert_eq!((first.life, first.stream, first.access), (4, 16, "write"));
        assert_eq!((first.kind, first.address.as_str()), ("translation fault", "0x41000000"));
        assert_eq!((second.time_ns, second.access), (3, "read"));
        let event = Event {
            what: What::Denied as u16,
            detail: Denial::Dma as u32,
            syndrome: dma_syndrome(16, true, 0x13),
            address: 0x1000,
            ..Event::default()
        };
        let words = "vm: DMA outside its memory (stream 16): write at 0x1000, permission fault";
        assert_eq!(in_words(&event, |_| "vm".into()), words);
    }

    #[test]
    fn faults_beyond_the_list_are_still_counted() {
        let mut wire = Wire::default();
        for time in 0..FAULTS_LISTED as u64 + 5 {
            wire = wire.fault(time, 0, FaultKind::Read, 0);
        }
        let one = report(&wire).vms.remove(0);
        assert_eq!(one.faults.len(), FAULTS_LISTED);
        assert_eq!(one.faults_left_out, 5);
        assert_eq!(one.fault_counts["read outside its memory"], FAULTS_LISTED as u64 + 5);
    }

    #[test]
    fn an_event_of_a_newer_hypervisor_is_named() {
        let mut event = Event {
            time_ns: 0,
            what: 77,
            vm: 0,
            vcpu: 0,
            detail: 5,
            syndrome: 0,
            address: 0,
            pc: 0,
            guest_syndrome: 0,
            guest_elr: 0,
        };
        let name = |_| "one".to_owned();
        assert_eq!(in_words(&event, name), "one: event 77 of a newer hypervisor, detail 5");
        event.what = What::VmFault as u16;
        event.detail = 99;
        assert!(in_words(&event, name).contains("fault of unknown kind 99"));
    }
}
