//! Virtual time: from one event to the next.

mod broker;
mod record;
mod released;

use crate::{
    LatencyHistogram, Outcome, SimulatedBoard, SimulationError, WorkMark,
    budget::Budget,
    core::{Core, Passes},
    jobs::Jobs,
    master::{Master, Place},
    program::Program,
};
use broker::{Deed, Moving};
use record::Counts;
use weir_budget::Event as Step;
use weir_budget::GroupBudget;
use weir_memory::{
    MemorySystem, Owner, Picos,
    dma::DmaError,
    events::Events,
    hierarchy::Served,
    system::{Answer, DevicePages, Issue},
};
use weir_model::timing::Workload;
use weir_units::Nanos;

/// How long to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Warm-up time before the measurement interval, in which the caches fill.
    pub warm_up: Nanos,
    /// The measurement interval, at least 1 ns.
    pub length: Nanos,
    /// Of the walks' orders and of random replacement.
    pub seed: u64,
}

/// Slices of the span in which bandwidth is counted.
const SLICES: u64 = 50;
/// Arrivals of each VM that are kept.
const ARRIVALS: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A core may make its next access.
    Go(usize),
    /// An interrupt of a core: its counter has reached the limit.
    Overflow(usize),
    /// An interrupt of a core: its period is over.
    Period(usize),
    /// Discards what was counted so far.
    Begin,
    /// A slice is over.
    Slice,
    /// A DMA channel may start its next transfer.
    Transfer(usize),
    /// A core's next pass is released.
    Release(usize),
    /// The window of a network's connection has room for one more packet.
    Credit(usize),
    /// Something happens to a flow's packet.
    Flow(Deed),
}

/// The unit in which a VM's work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Access,
    Transfer,
    Job,
}

struct Run<'a> {
    board: &'a SimulatedBoard,
    memory: MemorySystem,
    cores: Vec<Core>,
    masters: Vec<Master>,
    moving: Option<Moving<'a>>,
    groups: Vec<GroupBudget>,
    events: Events<Event>,
    latencies: Vec<LatencyHistogram>,
    delays: Vec<u64>,
    /// How far each VM has come, and what it does that counts.
    work: Vec<(Unit, WorkMark)>,
    /// The VM with the wanted marks, and how many units it must have completed for each.
    wanted: (usize, Vec<(u64, Option<WorkMark>)>),
    arrivals: Vec<Vec<u64>>,
    slices: Vec<Vec<u64>>,
    /// The counts when the span began.
    begun: Option<Counts>,
    /// Lines of each VM at the end of the last slice.
    lines: Vec<u64>,
    begin: Picos,
    /// True if the run ends when all wanted marks are reached.
    ends_early: bool,
}

/// Simulates a board.
///
/// # Errors
/// [`SimulationError`] if its memory can't be built for so many cores.
pub fn run(board: &SimulatedBoard, span: Span) -> Result<Outcome, SimulationError> {
    run_to(board, span, 0, &[]).map(|(outcome, _)| outcome)
}

/// Simulates a board, and returns when a VM had completed each of these numbers of units; `None`
/// for those that it had not by the end.
///
/// # Errors
/// [`SimulationError`] if its memory can't be built for so many cores.
pub fn run_to(
    board: &SimulatedBoard,
    span: Span,
    vm: usize,
    units: &[u64],
) -> Result<(Outcome, Vec<Option<WorkMark>>), SimulationError> {
    let mut run = Run::new(board, span)?;
    let mark = |&units: &u64| (units, (units == 0).then(WorkMark::default));
    run.wanted = (vm, units.iter().map(mark).collect());
    let begin = Picos::from_nanos(span.warm_up.0);
    let slice = (span.length.0 / SLICES).max(1);
    let end = begin + Picos::from_nanos(span.length.0);
    run.begin = begin;
    run.add(begin, Event::Begin);
    for number in 1..=span.length.0 / slice {
        run.add(begin + Picos::from_nanos(slice * number), Event::Slice);
    }
    run.start();
    run.go_on(end);
    let marks = run.wanted.1.iter().map(|(_, mark)| *mark).collect();
    Ok((run.finish(span, slice), marks))
}

/// Simulates a board until a VM has completed so many units, and returns when that was; `None` if
/// it had not by the end of the span.
///
/// # Errors
/// [`SimulationError`] if its memory can't be built for so many cores.
pub fn run_until(
    board: &SimulatedBoard,
    span: Span,
    vm: usize,
    units: u64,
) -> Result<Option<WorkMark>, SimulationError> {
    Ok(run_until_each(board, span, vm, &[units])?.pop().flatten())
}

/// Simulates a board until a VM has completed each of these numbers of units, and returns when that
/// was; `None` for those that it had not by the end of the span.
///
/// # Errors
/// [`SimulationError`] if its memory can't be built for so many cores.
pub fn run_until_each(
    board: &SimulatedBoard,
    span: Span,
    vm: usize,
    units: &[u64],
) -> Result<Vec<Option<WorkMark>>, SimulationError> {
    let mut run = Run::new(board, span)?;
    run.wanted = (vm, units.iter().map(|&units| (units, None)).collect());
    run.ends_early = true;
    run.start();
    run.go_on(Picos::from_nanos(span.warm_up.0 + span.length.0));
    Ok(run.wanted.1.into_iter().map(|(_, mark)| mark).collect())
}

/// The DMA channels that work for the VMs.
fn masters(board: &SimulatedBoard) -> Vec<Master> {
    let mut masters = Vec::new();
    for (owner, vm) in (0..).zip(&board.vms) {
        let Some(workload) = &vm.workload else { continue };
        let (Some(transfers), Some((engine, first, descriptor))) = (&workload.transfers, vm.engine)
        else {
            continue;
        };
        let pages = DevicePages {
            physical: vm.pages.as_slice().into(),
            device: vm.addresses.as_slice().into(),
        };
        for index in 0..transfers.channels {
            let place =
                Place { engine, channel: first + index, owner: Owner(owner), pages: pages.clone() };
            let gap = Picos::from_nanos(workload.gap.0);
            let size = workload.size.0;
            let master = Master::new(transfers, place, index as u64, size, gap, descriptor);
            masters.push(match &workload.network {
                Some(network) => master.of_network(network),
                None => master,
            });
        }
    }
    masters
}

/// The jobs of a vCPU, if what it does is released.
fn jobs(workload: &Workload) -> Option<Jobs> {
    let time = |time: Nanos| Picos::from_nanos(time.0);
    let is_released = workload.period.is_some() || workload.network.is_some();
    is_released.then(|| Jobs::new(workload.period.map(time), workload.deadline.map(time)))
}

impl<'a> Run<'a> {
    fn new(board: &'a SimulatedBoard, span: Span) -> Result<Self, SimulationError> {
        let owners = board.vms.len();
        let mut memory = board
            .memory
            .build(&board.chip, board.map.clone(), board.cores, owners, span.seed, board.tables)
            .map_err(SimulationError)?;
        let mut cores = Vec::new();
        for (owner, vm) in (0..).zip(&board.vms) {
            for (index, vcpu) in vm.vcpus.iter().enumerate() {
                // A network's packets are all handled by the first.
                let is_its_work = |workload: &&Workload| match workload.network {
                    Some(_) => index == 0,
                    None => workload.transfers.is_none(),
                };
                let vcpus_work = vm.workload.as_ref().filter(is_its_work);
                let program = vcpus_work.map(|workload| {
                    let seed = span.seed ^ ((cores.len() as u64 + 1) << 32);
                    let trace = vm.traces.get(index).map_or(&[][..], |trace| trace);
                    Program::new(workload, trace, &vm.pages, index, &board.map, seed)
                });
                // A vCPU of which a recording has nothing does nothing.
                let program = program.filter(|program| !program.is_empty());
                let workload = vm.workload.as_ref();
                // A network's `gap` is between its packets.
                let own = workload.filter(|workload| workload.network.is_none());
                let gap = Picos::from_nanos(own.map_or(0, |workload| workload.gap.0));
                let clock = board.chip.cores.clock_ps;
                let cycles = program.as_ref().map_or(0, |program| program.cycles).max(1);
                let most = board.chip.cores.outstanding;
                let wanted = workload.and_then(|w| w.outstanding).unwrap_or(most).min(most);
                let dependent = program.as_ref().is_some_and(|program| program.dependent);
                cores.push(Core {
                    jobs: program.as_ref().and(workload).and_then(jobs),
                    number: vcpu.core,
                    owner: Owner(owner),
                    gap: if gap.0 == 0 { Picos(clock) * cycles } else { gap.max(Picos(clock)) },
                    most_waiting: if dependent { 1 } else { wanted },
                    budget: vcpu
                        .regulation
                        .as_ref()
                        .map(|(setting, counters, group)| Budget::new(setting, *counters, *group)),
                    program,
                    next: None,
                    waiting: Vec::new(),
                    outstanding: 0,
                    blocked: false,
                    armed: false,
                    busy_until: Picos(0),
                    gap_until: Picos(0),
                    accesses: 0,
                    passes: Passes::default(),
                });
            }
        }
        let mut work = Vec::new();
        for (owner, vm) in (0..).zip(&board.vms) {
            let has_jobs = |core: &Core| core.owner == Owner(owner) && core.jobs.is_some();
            let unit = match &vm.workload {
                _ if cores.iter().any(has_jobs) => Unit::Job,
                Some(workload) if workload.transfers.is_some() => Unit::Transfer,
                _ => Unit::Access,
            };
            work.push((unit, WorkMark::default()));
        }
        let masters = masters(board);
        for master in &masters {
            let Master { engine, channel, pages, pace, .. } = master;
            let refused = |error: DmaError| SimulationError(error.to_string());
            memory.map_channel(*engine, *channel, pages.clone()).map_err(refused)?;
            memory.pace(*engine, *channel, *pace).map_err(refused)?;
        }
        let mut moving = None;
        if let Some(broker) = &board.broker {
            let (physical, places) = broker.pages(&board.vms);
            // It uses physical addresses: each page lies at its own.
            let pages = DevicePages { device: physical.clone(), physical };
            let refused = |error: DmaError| SimulationError(error.to_string());
            memory.map_channel(broker.engine, broker.channel, pages).map_err(refused)?;
            memory.pace(broker.engine, broker.channel, broker.pace).map_err(refused)?;
            moving = Some(Moving::new(broker, places, owners, span.seed));
        }
        Ok(Self {
            memory,
            cores,
            masters,
            moving,
            groups: (0..=owners).map(|_| GroupBudget::new()).collect(),
            events: Events::default(),
            latencies: vec![LatencyHistogram::default(); owners],
            delays: vec![0; owners],
            work,
            wanted: (0, Vec::new()),
            arrivals: vec![Vec::new(); owners],
            slices: vec![Vec::new(); owners],
            begun: None,
            lines: Vec::new(),
            begin: Picos(0),
            ends_early: false,
            board,
        })
    }

    fn add(&mut self, at: Picos, event: Event) {
        self.events.add(at.max(self.memory.now()), event);
    }

    fn start(&mut self) {
        for core in 0..self.cores.len() {
            if self.cores[core].budget.is_some() {
                self.step(core, Picos(0), Step::Start);
            }
            if self.cores[core].jobs.as_ref().is_some_and(|jobs| jobs.period.is_some()) {
                self.add(Picos(0), Event::Release(core));
            }
            self.arm(core, Picos(0));
        }
        for master in 0..self.masters.len() {
            self.add(Picos(0), Event::Transfer(master));
        }
        self.start_flows();
    }

    /// Goes from event to event. Those of the memory come first where the time is the same, then
    /// these in the order in which they were added.
    fn go_on(&mut self, end: Picos) {
        let mut answers = Vec::new();
        loop {
            let next = self.events.next().into_iter().chain(self.memory.next_event()).min();
            let Some(now) = next.filter(|now| *now <= end) else {
                break;
            };
            if self.ends_early && self.wanted.1.iter().all(|(_, mark)| mark.is_some()) {
                break;
            }
            self.memory.advance(now, &mut |answer| answers.push(answer));
            for answer in answers.drain(..) {
                self.answer(answer);
            }
            while let Some((now, event)) = self.events.take(now) {
                self.handle(now, event);
            }
        }
    }

    fn handle(&mut self, now: Picos, event: Event) {
        match event {
            Event::Go(core) => self.access(core, now),
            Event::Overflow(core) => self.step(core, now, Step::Count),
            Event::Period(core) => self.step(core, now, Step::Period),
            Event::Begin => self.begin(now),
            Event::Slice => self.slice(),
            Event::Transfer(master) => self.transfer(master, now),
            Event::Release(core) => self.release(core, now),
            Event::Credit(master) => self.credit(master, now),
            Event::Flow(deed) => self.deed(deed, now),
        }
    }

    /// Plans a core's next access, if it is to make one.
    fn arm(&mut self, core: usize, at: Picos) {
        let c = &mut self.cores[core];
        if !c.armed && !c.blocked && c.may_run() {
            c.armed = true;
            let at = at.max(c.busy_until).max(c.gap_until);
            self.add(at, Event::Go(core));
        }
    }

    fn access(&mut self, core: usize, now: Picos) {
        let c = &mut self.cores[core];
        c.armed = false;
        if !c.may_run() {
            return;
        }
        if c.busy_until > now {
            return self.arm(core, now);
        }
        let Some(program) = &mut c.program else { return };
        let dependent = program.dependent;
        let next = if let Some(next) = c.next.take() {
            next
        } else {
            if let Some(jobs) = c.jobs.as_mut().filter(|_| program.is_between_jobs())
                && (jobs.has_begun() || !jobs.begin())
            {
                // The last lines of a job are on their way, or the next one was not released.
                return;
            }
            if program.begins() {
                if program.starts_cold {
                    self.memory.discard(c.owner);
                }
                if self.begun.is_some() {
                    c.passes.begin(now);
                }
            }
            program.next()
        };
        let clock = Picos(self.board.chip.cores.clock_ps);
        if let Some(gap) = program.gap(clock) {
            c.gap = gap.max(clock);
        }
        let token = c.wait(now);
        let (access, pa) = next;
        let before = self.memory.hierarchy().traffic()[c.number].refills;
        let issued = self.memory.issue(c.number, c.owner, access, pa, token as u64, now);
        match issued {
            Issue::Hit(at) => {
                c.gap_until = now + c.gap;
                c.answered(token);
                c.accesses += 1;
                let (owner, gap) = (c.owner, c.gap);
                self.note(owner, Served::L1, now, at);
                self.completed(owner, Unit::Access, at, Picos(0));
                self.end_job(core, at);
                self.arm(core, if dependent { at.max(now + gap) } else { now + gap });
            }
            Issue::Pending => {
                c.gap_until = now + c.gap;
                c.accesses += 1;
                c.blocked = c.outstanding >= c.most_waiting;
                let gap = c.gap;
                self.refilled(core, before, now);
                self.arm(core, now + gap);
            }
            Issue::Refused => {
                c.answered(token);
                c.next = Some(next);
                c.blocked = true;
            }
        }
        self.count(core, now);
    }

    /// Notes a line that a core had brought into the second level, if it had more than `before`.
    fn refilled(&mut self, core: usize, before: u64, now: Picos) {
        let Core { number, owner, .. } = self.cores[core];
        let arrivals = &mut self.arrivals[usize::from(owner.0)];
        if self.memory.hierarchy().traffic()[number].refills > before
            && self.begun.is_some()
            && arrivals.len() < ARRIVALS
        {
            arrivals.push(now.since(self.begin).0 / 1000);
        }
    }

    /// Has the counters of a core compared with their limits.
    fn count(&mut self, core: usize, now: Picos) {
        let latency = Picos::from_nanos(self.board.chip.hypervisor.interrupt_ns);
        let c = &mut self.cores[core];
        let traffic = self.memory.hierarchy().traffic()[c.number];
        let accesses = c.accesses;
        if let Some(budget) = &mut c.budget
            && budget.calls(budget.counts(accesses, traffic))
        {
            self.add(now + latency, Event::Overflow(core));
        }
    }

    /// Asks a core's regulator, which takes time on the core.
    fn step(&mut self, core: usize, now: Picos, event: Step) {
        let hypervisor = self.board.chip.hypervisor;
        let c = &mut self.cores[core];
        let traffic = self.memory.hierarchy().traffic()[c.number];
        let Some(budget) = &mut c.budget else { return };
        let counts = budget.counts(c.accesses, traffic);
        let ns = Nanos(now.0 / 1000);
        let group = budget.group;
        let wake = budget.step(&self.groups[group], ns, counts, event);
        if matches!(event, Step::Start | Step::Period) {
            let next = Picos::from_nanos(budget.periods.next(ns).0);
            self.add(next + Picos::from_nanos(hypervisor.interrupt_ns), Event::Period(core));
        }
        if event != Step::Start {
            self.cores[core].busy_until = now + Picos::from_nanos(hypervisor.cost_ns);
        }
        self.arm(core, now);
        if wake != 0 {
            for other in (0..self.cores.len()).filter(|other| *other != core) {
                let budget = self.cores[other].budget.as_ref();
                if budget.is_some_and(|budget| {
                    budget.group == group && budget.member & wake != 0 && !budget.runs
                }) {
                    let latency = Picos::from_nanos(hypervisor.interrupt_ns);
                    self.add(now + latency, Event::Overflow(other));
                }
            }
        }
    }

    fn answer(&mut self, answer: Answer) {
        let (number, token, at, served) = match answer {
            Answer::Core { core, token, at, served } => (core, token, at, served),
            Answer::Transfer { engine, channel, at } => {
                return self.transferred(engine, channel, at);
            }
        };
        let Some(core) = self.cores.iter().position(|core| core.number == number) else { return };
        let c = &mut self.cores[core];
        let Some(since) = c.answered(token as usize) else { return };
        let (owner, gap) = (c.owner, c.gap);
        c.blocked = false;
        self.note(owner, served, since, at);
        self.completed(owner, Unit::Access, at, Picos(0));
        self.end_job(core, at);
        self.arm(core, at.max(since + gap));
    }

    fn note(&mut self, owner: Owner, served: Served, since: Picos, at: Picos) {
        if self.begun.is_none() {
            return;
        }
        let latency = at.since(since);
        self.latencies[usize::from(owner.0)].add(latency);
        self.delayed(owner, served, latency);
    }

    /// A VM has completed something.
    fn completed(&mut self, owner: Owner, what: Unit, at: Picos, response: Picos) {
        let vm = usize::from(owner.0);
        let (unit, mark) = &mut self.work[vm];
        if *unit != what {
            return;
        }
        mark.units += 1;
        mark.at = mark.at.max(at);
        mark.responses += response;
        let (watched, wanted) = &mut self.wanted;
        if *watched == vm {
            let reached = wanted.iter_mut().filter(|(units, _)| *units == mark.units);
            reached.for_each(|(_, reached)| *reached = Some(*mark));
        }
    }

    /// Counts how much longer a line took than one that never waits.
    fn delayed(&mut self, owner: Owner, served: Served, latency: Picos) {
        if self.begun.is_some() && served != Served::L1 {
            let delay = latency.since(self.memory.unloaded(served));
            self.delays[usize::from(owner.0)] += delay.0;
        }
    }
}
