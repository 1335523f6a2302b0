//! Builds the report of a run from the steps of the wire.

use super::{
    fault::{self, denial_name},
    vm::TalliedVm,
};
use crate::{
    demux::{ConsoleSource, WireStep},
    expect::Expectations,
    findings::{Activations, Clock, Latency, TaskLine},
};
use std::collections::BTreeMap;
use weir_report::run::{
    ConsoleCounts, End, Expected, FAULTS_LISTED, FlowRun, FrameCounts, RunReport, State, Totals,
    VmRun,
};
use weir_trace::wire::{
    self, Denial, Denials, ExitCause, VcpuCounters, VcpuState, VmState, What, WireEvent,
};

/// Collects the steps of the wire.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    vms: Vec<TalliedVm>,
    started: bool,
    stopped: bool,
    damaged: u64,
    records_lost: u64,
    hypervisor: Vec<String>,
    /// The last counts of each flow, by its position in the file.
    flows: BTreeMap<u32, wire::FlowCounts>,
    /// The counts that VMs report for their tasks, by the positions of VM and task.
    activations: BTreeMap<(usize, usize), Activations>,
    /// What the firmware made of the request to limit the DMA engine.
    regulator: Option<WireEvent>,
    /// Boots of the board before this one.
    resets: u64,
}

/// Limit on the lines of the hypervisor in the report. The log has all.
const HYPERVISOR_LINES: usize = 100;

impl Tally {
    /// Builds an empty tally for these VMs.
    pub fn new(vms: &[VmRun]) -> Self {
        let vms =
            vms.iter().map(|run| TalliedVm { run: run.clone(), ..TalliedVm::default() }).collect();
        Self {
            vms,
            started: false,
            stopped: false,
            damaged: 0,
            records_lost: 0,
            hypervisor: Vec::new(),
            flows: BTreeMap::new(),
            activations: BTreeMap::new(),
            regulator: None,
            resets: 0,
        }
    }

    /// Sets the number of resets of the board.
    pub fn after_reset(self, resets: u64) -> Self {
        Self { resets, ..self }
    }

    /// Returns the number of resets of the board.
    pub const fn resets(&self) -> u64 {
        self.resets
    }

    /// Takes the next step of the wire.
    pub fn step(&mut self, step: &WireStep) {
        match step {
            WireStep::Byte(ConsoleSource::Vm(vm), _) => {
                self.console(*vm, |console| console.bytes += 1);
            }
            WireStep::Line { source: ConsoleSource::Vm(vm), text, .. } => {
                self.console(*vm, |console| console.lines += 1);
                self.task(*vm, text);
                if let (Some(vm), Some(address)) = (self.vms.get_mut(*vm), connected(text)) {
                    vm.run.connected = Some(address.to_owned());
                }
            }
            WireStep::Line { source: ConsoleSource::Hypervisor, text, .. } => {
                if self.hypervisor.len() < HYPERVISOR_LINES {
                    self.hypervisor.push(text.clone());
                }
            }
            WireStep::Dropped { source: ConsoleSource::Vm(vm), bytes, .. } => {
                self.console(*vm, |console| console.dropped += u64::from(*bytes));
            }
            WireStep::Event(event) => self.event(event),
            WireStep::Counters(counters) => self.counters(counters),
            WireStep::Denials(denials) => self.denials(denials),
            WireStep::Boots(boots) => self.boots(boots),
            WireStep::Port(port) => self.frames(port),
            WireStep::Flow(flow) => _ = self.flows.insert(flow.flow, *flow),
            WireStep::Damaged => self.damaged += 1,
            WireStep::Dropped { source: ConsoleSource::Hypervisor, bytes, .. } => {
                self.records_lost += u64::from(*bytes);
            }
            WireStep::Byte(ConsoleSource::Hypervisor, _)
            | WireStep::Unfinished { .. }
            | WireStep::Trace(_)
            | WireStep::Reset => {}
        }
    }

    fn console(&mut self, vm: usize, change: impl FnOnce(&mut ConsoleCounts)) {
        if let Some(vm) = self.vms.get_mut(vm) {
            change(&mut vm.run.console);
        }
    }

    /// Takes a line of a VM that can report the counts of its tasks.
    fn task(&mut self, vm: usize, line: &str) {
        let Some(line) = TaskLine::parse(line) else { return };
        let tasks = self.vms.get_mut(vm).into_iter().flat_map(|vm| &mut vm.run.tasks).enumerate();
        for (place, task) in tasks.filter(|(_, task)| task.name == line.name) {
            let counts = self.activations.entry((vm, place)).or_default();
            counts.take(&line);
            let (activations, misses) = counts.sum();
            (task.activations, task.misses) = (Some(activations), Some(misses));
            task.observed_max_ns = task.observed_max_ns.max(line.max_ns);
        }
    }

    fn event(&mut self, event: &WireEvent) {
        let what = What::from_number(event.what);
        match what {
            // A board that is connected later has reported its start before.
            Some(What::SystemStart | What::SystemRuns) => self.started = true,
            Some(What::SystemStop) => self.stopped = true,
            Some(What::Regulator) => self.regulator = Some(*event),
            _ => {}
        }
        let Some(tallied) = self.vms.get_mut(usize::from(event.vm)) else {
            return;
        };
        tallied.event_ns = tallied.event_ns.max(event.time_ns);
        let vm = &mut tallied.run;
        match what {
            Some(What::VmStart) => {
                vm.state = State::Running;
                // A start also counts if the wire lost its record.
                vm.boots = vm.boots.max(event.detail.saturating_add(1));
            }
            Some(What::VmOff) => vm.state = State::Off,
            Some(What::VmReset) => vm.resets += 1,
            Some(What::VmHalted) => vm.state = State::Halted,
            Some(What::VmFault) => tallied.fault(event),
            Some(What::BrokerLate) => vm.started_without_broker = true,
            Some(What::Denied) => {
                let boot = vm.boots.saturating_sub(1);
                let count = vm.denials.entry(denial_name(event.detail).into()).or_default();
                // Before the counts arrive, the event shows that it happened at least once.
                *count = (*count).max(1);
                if event.detail == Denial::Dma as u32 && vm.dma.len() < FAULTS_LISTED {
                    vm.dma.push(fault::dma(event, boot));
                    // Each of these accesses has an event.
                    *count = (*count).max(vm.dma.len() as u64);
                } else if vm.denied.len() < FAULTS_LISTED {
                    vm.denied.push(fault::denied(event, boot));
                }
            }
            // An unknown number of a newer hypervisor has a line in the log.
            Some(What::SystemStart | What::SystemRuns | What::SystemStop | What::Regulator)
            | None => {}
        }
    }

    fn counters(&mut self, counters: &VcpuCounters) {
        // A board that is connected later has reported its start before.
        self.started = true;
        let Some(TalliedVm { run: vm, .. }) = self.vms.get_mut(usize::from(counters.vm)) else {
            return;
        };
        vm.restarts = vm.restarts.max(counters.restarts);
        let Some(vcpu) = vm.vcpus.get_mut(usize::from(counters.vcpu)) else {
            self.damaged += 1;
            return;
        };
        vcpu.counted_ns = Some(counters.time_ns);
        vcpu.state =
            VcpuState::ALL.get(usize::from(counters.state)).map(|state| state.name().into());
        vcpu.injected = Some(counters.injected);
        let exits = ExitCause::ALL.iter().map(|cause| cause.name().to_owned()).zip(counters.exits);
        vcpu.exits = Some(exits.collect());
    }

    fn denials(&mut self, denials: &Denials) {
        let Some(TalliedVm { run: vm, .. }) = self.vms.get_mut(denials.vm as usize) else {
            return;
        };
        for (denial, count) in Denial::ALL.iter().zip(denials.counts) {
            if count > 0 {
                let known = vm.denials.entry(denial.name().into()).or_default();
                *known = (*known).max(count);
            }
        }
    }

    fn boots(&mut self, boots: &wire::Boots) {
        let Some(vm) = self.vms.get_mut(usize::from(boots.vm)) else {
            return;
        };
        // A later event can arrive before the counts.
        if boots.time_ns > vm.event_ns {
            vm.run.state = match VmState::ALL.get(usize::from(boots.state)) {
                Some(VmState::NotStarted) => State::NotStarted,
                Some(VmState::Running) => State::Running,
                Some(VmState::Off) => State::Off,
                Some(VmState::Halted) => State::Halted,
                None => vm.run.state,
            };
        }
        vm.counted = Some(*boots);
    }

    fn frames(&mut self, port: &wire::PortCounts) {
        if let Some(vm) = self.vms.get_mut(port.vm as usize) {
            let wire::PortCounts { sent, received, over_rate, refused, missed, .. } = *port;
            vm.run.frames = Some(FrameCounts { sent, received, over_rate, refused, missed });
        }
    }

    /// Returns these flows with their counts.
    pub fn flows(&self, flows: &[FlowRun]) -> Vec<FlowRun> {
        let counted = |(place, flow): (u32, &FlowRun)| {
            let Some(counts) = self.flows.get(&place) else { return flow.clone() };
            FlowRun {
                packets: counts.packets,
                lost: counts.lost,
                observed_max_ns: counts.observed_max_ns,
                late: counts.late,
                latency_ns: (counts.packets > 0).then_some(Latency {
                    min: counts.least_ns,
                    p50: None,
                    p99: None,
                    max: counts.observed_max_ns,
                    max_packet: counts.observed_max_packet,
                    max_arrived_ns: counts.observed_max_arrived_ns,
                }),
                counted_ns: Some(counts.time_ns),
                dropped: flow.dropped.map(|_| counts.dropped),
                ..flow.clone()
            }
        };
        (0..).zip(flows).map(counted).collect()
    }

    /// Returns what the firmware made of the request to limit the DMA engine.
    pub const fn regulator(&self) -> Option<&WireEvent> {
        self.regulator.as_ref()
    }

    /// Returns whether the system reported its stop.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the report up to now, without flows and verdicts.
    pub fn report(
        &self,
        system: &str,
        platform: &str,
        expected: &Expectations,
        ended_by: End,
        time_ns: u64,
    ) -> RunReport {
        let mut tallied = self.vms.clone();
        tallied.iter_mut().for_each(TalliedVm::finish);
        let mut vms: Vec<_> = tallied.into_iter().map(|vm| vm.run).collect();
        let mut totals = Totals { damaged_frames: self.damaged, ..Totals::default() };
        for (place, vm) in vms.iter_mut().enumerate() {
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
            memory: None,
            verdict: None,
            verdict_of: Vec::new(),
            vms,
            flows: Vec::new(),
            cores: Vec::new(),
            engine: None,
            totals,
            board_resets: self.resets,
            hypervisor: self.hypervisor.clone(),
        }
    }
}

/// Returns the address in a console line `connected to CID:PORT`, as weir's guests print it.
fn connected(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("connected to ")?;
    let address = rest.split([' ', ',', '\r']).next()?;
    let (cid, port) = address.split_once(':')?;
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    (is_number(cid) && is_number(port)).then_some(address)
}
