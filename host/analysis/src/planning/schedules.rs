//! Chooses the schedules of cores that several VMs share and that have none: a server of fixed
//! priority for each VM, and for the broker if it runs there, or else a time table.
//!
//! VMs with demands come first, by their shortest deadline. Each of them gets the server that takes
//! the least part of the core with which its tasks hold below the servers before it. A VM in a flow
//! also gets a floor, and a period that divides the flow's deadline: the search raises the floor
//! and shortens the period until the flows hold. VMs without a demand divide the rest.
//!
//! A server can be late by the time that those before it take, so that a VM can wait for two of its
//! gaps. Slots of a time table do not move, so where servers do not fit, a table with one slot of
//! each VM can.

use super::{PlanError, PlanOptions, refusal::Conflict};
use crate::{
    Nanos,
    flows::Effort,
    system::{self, GaveUp},
    time::Linear,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use weir_model::{
    Object, System,
    timing::{Entity, FilePlace, MemoryBudget, Schedule, SharedCore, Task},
};

/// The schedule that was chosen for a core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CoreChoice {
    /// The number of the core.
    pub id: u64,
    /// Its schedule.
    pub schedule: ScheduleChoice,
}

/// A schedule that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ScheduleChoice {
    /// Servers of fixed priority.
    FixedPriority {
        /// The servers by falling priority.
        servers: Vec<ServerChoice>,
    },
    /// A time table.
    Table {
        /// The time after which it repeats, in ns.
        major_frame_ns: u64,
        /// The slots in order.
        slots: Vec<SlotChoice>,
    },
}

/// A server of fixed priority that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerChoice {
    /// The VM, or "broker".
    pub vm: String,
    /// The time in each period, in ns.
    pub budget_ns: u64,
    /// The period in ns.
    pub period_ns: u64,
}

/// A slot of a time table that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SlotChoice {
    /// The VM, or "broker".
    pub vm: String,
    /// The start in the major frame, in ns.
    pub start_ns: u64,
    /// The length in ns.
    pub length_ns: u64,
}

/// The period of the server of a VM without a demand.
const REST: Nanos = Nanos(10_000_000);
/// The shortest period of a server that is tried.
const SHORTEST: Nanos = Nanos(10_000);
/// Budgets are multiples of this.
const STEP: u64 = 1_000;
/// The parts of a deadline that are tried as the period of a server.
const PARTS: [u64; 7] = [1, 2, 3, 4, 6, 10, 20];
/// The floors of the servers of VMs in flows that are tried, in percent of the core.
const FLOORS: [u64; 9] = [2, 5, 10, 20, 30, 40, 50, 60, 70];
/// The parts of a flow's deadline that are tried as the period of a server of the flow.
const FLOW_PARTS: [u64; 4] = [2, 4, 8, 16];
/// The number of servers that are tried on a core with one floor.
const TRIES: u32 = 64;
/// The price of a question on tasks, in steps of the search.
const TASKS: u64 = 1 << 13;
/// The price of a question on flows.
const FLOWS: u64 = 1 << 17;

/// The unit of utilizations.
const WHOLE: u64 = 1 << 32;

/// The time of an entity in each period. In a time table all periods are the frame.
type Server = (Entity, Nanos, Nanos);

/// The kinds of schedules that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    FixedPriority,
    Table,
}

impl Kind {
    /// Returns a core with these times.
    fn of(self, id: u64, servers: &[Server]) -> SharedCore {
        let schedule = match self {
            Self::FixedPriority => Schedule::FixedPriority { servers: servers.to_vec() },
            Self::Table => {
                let mut end = 0;
                let mut slot = |(entity, length, _): &Server| {
                    let start = Nanos(end);
                    end += length.0;
                    (*entity, start, *length)
                };
                let frame = servers.first().map_or(Nanos(1), |server| server.2);
                Schedule::Table { frame, slots: servers.iter().map(&mut slot).collect() }
            }
        };
        SharedCore { id, schedule, switch: None, place: FilePlace::default() }
    }
}

/// The demands of a VM or of the broker on a core.
#[derive(Clone, Copy, Debug)]
struct Claim {
    entity: Entity,
    /// The shortest deadline of its tasks there.
    of_tasks: Option<Nanos>,
    /// The shortest deadline of its flows.
    of_flows: Option<Nanos>,
    /// The part of the core that its tasks use, as a fraction of [`WHOLE`], rounded down.
    used: u64,
}

impl Claim {
    fn deadline(&self) -> Option<Nanos> {
        [self.of_tasks, self.of_flows].into_iter().flatten().min()
    }

    /// Returns the periods to try, the longest first.
    fn periods(&self, flow_part: u64) -> Vec<Nanos> {
        let of_flows = self.of_flows.map(|deadline| rounded(Nanos(deadline.0 / flow_part.max(1))));
        let Some(tasks) = self.of_tasks else { return of_flows.into_iter().collect() };
        let most = of_flows.unwrap_or(Nanos(u64::MAX));
        let mut periods: Vec<_> =
            PARTS.iter().map(|part| rounded(Nanos(tasks.0 / part)).min(most)).collect();
        periods.dedup();
        periods.retain(|period| *period >= SHORTEST);
        periods
    }
}

/// Rounds a period down to two digits.
fn rounded(period: Nanos) -> Nanos {
    let mut unit = 1;
    while period.0 / unit >= 100 {
        unit *= 10;
    }
    Nanos(period.0 / unit * unit)
}

/// Why the search ended without schedules.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// There are none.
    None,
    /// The effort was spent.
    Spent,
}

/// Returns the schedules of the cores that need one and have none, in the order of their numbers;
/// none are needed if the list is empty. With `slack`, in percent, the schedules are for tasks that
/// take longer by this factor.
///
/// Memory budgets that are open count as their least, because they are chosen next to the schedule.
///
/// # Errors
///
/// A set of tasks and flows that have no schedule together, of which each one is needed.
pub(super) fn choose(
    system: &System,
    slack: u64,
    options: &PlanOptions,
) -> Result<Vec<SharedCore>, PlanError> {
    let open = system.open_cores();
    if open.is_empty() {
        return Ok(Vec::new());
    }
    let search = Search { open, left: Cell::new(options.max_steps), asked: Cell::new(0), options };
    let system = assumed(system, slack);
    match search.schedules(&system) {
        Ok(cores) => Ok(cores),
        Err(Stop::Spent) => Err(PlanError::GaveUp),
        Err(Stop::None) => Err(PlanError::Conflict(search.conflict(system))),
    }
}

/// Returns the file with the assumptions of the search.
fn assumed(system: &System, slack: u64) -> System {
    let mut system = system.clone();
    for task in system.vms.iter_mut().flat_map(|vm| &mut vm.tasks) {
        task.wcet = Nanos(task.wcet.0.saturating_mul(slack) / 100);
    }
    let Some(known) = &system.saturation else { return system };
    let (least, period) = (known.min_accesses.max(1), known.period);
    for vm in system.vms.iter_mut().filter(|vm| vm.tasks.is_empty()) {
        let asked = vm.memory_budget.as_ref();
        if asked.is_none_or(|asked| asked.budget.is_none()) {
            let vcpus = vm.cpus.len().max(1);
            let budget = (least.saturating_mul(vcpus as u64), period);
            vm.memory_budget = Some(MemoryBudget::with_budget(asked, vcpus, budget));
        }
    }
    system
}

struct Search<'a> {
    /// The cores that need a schedule.
    open: Vec<u64>,
    left: Cell<u64>,
    asked: Cell<u64>,
    options: &'a PlanOptions<'a>,
}

impl Search<'_> {
    fn pay(&self, price: u64) -> Result<(), Stop> {
        let (asked, left) = (self.asked.get() + 1, self.left.get().saturating_sub(price));
        self.asked.set(asked);
        self.left.set(left);
        if let (Some(progress), true) = (self.options.progress, asked.is_multiple_of(64)) {
            progress(asked, left);
        }
        if left == 0 { Err(Stop::Spent) } else { Ok(()) }
    }

    /// Returns schedules of all open cores with which all tasks there and all flows hold.
    fn schedules(&self, system: &System) -> Result<Vec<SharedCore>, Stop> {
        let has_flows = system.flows.iter().any(|flow| !flow.best_effort);
        let grid: Vec<(u64, u64)> = if has_flows {
            FLOORS.iter().flat_map(|floor| FLOW_PARTS.map(|part| (*floor, part))).collect()
        } else {
            vec![(0, 1)]
        };
        for (floor, part) in grid {
            let mut tried = system.clone();
            let mut found = true;
            for core in &self.open {
                match self.schedule(&tried, *core, (floor, part)) {
                    Ok(core) => tried.cores.push(core),
                    Err(Stop::None) => found = false,
                    Err(spent) => return Err(spent),
                }
            }
            if found && self.flows_hold(&tried)? {
                return Ok(tried.cores.split_off(system.cores.len()));
            }
        }
        Err(Stop::None)
    }

    /// Returns the claims on a core, the most urgent first, and those without a demand last.
    fn claims(system: &System, core: u64) -> Vec<Claim> {
        let vms = (0..system.guests().len()).filter(|vm| system.guests()[*vm].is_on(core));
        let broker = (system.broker_core == Some(core)).then_some(Entity::Broker);
        let mut claims: Vec<_> = vms
            .map(Entity::Vm)
            .chain(broker)
            .map(|entity| {
                let flows = system.flows.iter().filter(|flow| !flow.best_effort);
                let flows = flows.filter(|flow| match entity {
                    Entity::Vm(vm) => flow.ends_at(vm),
                    Entity::Broker => true,
                });
                let tasks = match entity {
                    Entity::Vm(vm) => tasks_on(system, vm, core),
                    Entity::Broker => Vec::new(),
                };
                Claim {
                    entity,
                    of_tasks: tasks.iter().map(|task| task.deadline.min(task.period)).min(),
                    of_flows: flows.filter_map(|flow| flow.deadline).min(),
                    used: tasks.iter().map(|task| utilization(task)).fold(0, u64::saturating_add),
                }
            })
            .collect();
        claims.sort_by_key(|claim| claim.deadline().unwrap_or(Nanos(u64::MAX)));
        claims
    }

    /// Returns a schedule of one core with which the tasks there hold.
    fn schedule(
        &self,
        system: &System,
        core: u64,
        (floor, part): (u64, u64),
    ) -> Result<SharedCore, Stop> {
        let claims = Self::claims(system, core);
        if claims.iter().map(|claim| claim.used).fold(0, u64::saturating_add) >= WHOLE {
            return Err(Stop::None);
        }
        let least = least_budget(system, core);
        let with = |period: &dyn Fn(&Claim) -> Nanos| -> Vec<Server> {
            claims.iter().map(|claim| (claim.entity, least, period(claim))).collect()
        };
        let on = |kind| {
            let system = RefCell::new(with_core(system, core));
            OnCore { search: self, system, claims: &claims, kind, floor, part }
        };
        let first = |claim: &Claim| claim.periods(part).first().copied().unwrap_or(REST);
        match on(Kind::FixedPriority).place(with(&first), 0, &mut TRIES.clone()) {
            Err(Stop::None) => {}
            servers => return servers.map(|servers| Kind::FixedPriority.of(core, &servers)),
        }
        let mut frames: Vec<_> = claims.iter().flat_map(|claim| claim.periods(part)).collect();
        let shortest = claims.iter().filter_map(Claim::deadline).min();
        frames.retain(|frame| shortest.is_none_or(|shortest| *frame <= shortest));
        frames.sort_unstable_by_key(|frame| u64::MAX - frame.0);
        frames.dedup();
        for frame in frames {
            match on(Kind::Table).place(with(&|_| frame), 0, &mut TRIES.clone()) {
                Err(Stop::None) => {}
                slots => return slots.map(|slots| Kind::Table.of(core, &slots)),
            }
        }
        Err(Stop::None)
    }

    /// Returns whether the flows hold at the bandwidth of the file, or at some bandwidth.
    fn flows_hold(&self, system: &System) -> Result<bool, Stop> {
        if system.flows.iter().all(|flow| flow.best_effort) {
            return Ok(true);
        }
        self.pay(FLOWS)?;
        let effort = Effort(super::EFFORT.0.min(self.left.get()));
        let (answer, spent) = if let Some(bandwidth) = system.dma.bandwidth {
            system::hold(system, bandwidth, effort)
        } else {
            let (least, spent) = system::least(system, effort);
            (least.map(|least| least.is_some()), spent)
        };
        self.left.set(self.left.get().saturating_sub(spent));
        answer.map_err(|GaveUp| Stop::Spent)
    }

    /// Returns a set of demands without a schedule, of which each one is needed for that.
    fn conflict(&self, system: System) -> Conflict {
        self.left.set(self.options.max_steps);
        let mut kept = system;
        let (mut demands, mut minimal) = (Vec::new(), true);
        // Bounded: each step removes or keeps one task or flow.
        for demand in all_demands(&kept) {
            let without = demand.removed(&kept);
            match self.schedules(&without) {
                Err(Stop::None) => kept = without,
                Ok(_) => demands.push(demand),
                Err(Stop::Spent) => {
                    minimal = false;
                    demands.push(demand);
                }
            }
        }
        let names = demands.iter().map(|demand| demand.name.clone()).collect();
        let mut shares = Vec::new();
        for core in &self.open {
            shares.extend(self.least_shares(&kept, *core));
        }
        Conflict { demands: names, minimal, shortages: shares }
    }

    /// Returns what the demands on a core need of it, each alone, if there are some.
    fn least_shares(&self, system: &System, core: u64) -> Option<super::Shortage> {
        let claims = Self::claims(system, core);
        let (mut sum, mut parts) = (Some(0), Vec::new());
        let least = least_budget(system, core);
        for claim in claims.iter().filter(|claim| claim.of_tasks.is_some()) {
            let tried = RefCell::new(with_core(system, core));
            let claims = &[*claim];
            let kind = Kind::FixedPriority;
            let alone = OnCore { search: self, system: tried, claims, kind, floor: 0, part: 2 };
            let server = (claim.entity, least, REST);
            let needed = match alone.place(vec![server], 0, &mut 1) {
                Ok(servers) => servers.first().map(per_milli),
                Err(_) => None,
            };
            let name = claim.entity.name(system);
            match needed {
                Some(needed) => parts.push(format!("{name} needs {} of each ms", Nanos(needed))),
                None => parts.push(format!("no server is enough for {name}")),
            }
            sum = sum.zip(needed).map(|(sum, needed)| sum + needed);
        }
        if parts.is_empty() {
            return None;
        }
        Some(super::Shortage::of_core(core, sum, &parts.join(", ")))
    }
}

/// Returns the time of each ms that a server takes, in ns, rounded up.
fn per_milli((_, budget, period): &Server) -> u64 {
    budget.0.saturating_mul(1_000_000).div_ceil(period.0.max(1))
}

/// The search for the servers of one core.
struct OnCore<'a> {
    search: &'a Search<'a>,
    /// The file with the servers that are tried; its last core is the one of the search.
    system: RefCell<System>,
    claims: &'a [Claim],
    kind: Kind,
    /// The least part of the core of a server for flows, in percent.
    floor: u64,
    /// The part of a flow's deadline that is the period of its server.
    part: u64,
}

impl OnCore<'_> {
    /// Returns `servers` with the server of claim `at` and of those behind it chosen.
    fn place(
        &self,
        servers: Vec<Server>,
        at: usize,
        attempts: &mut u32,
    ) -> Result<Vec<Server>, Stop> {
        let Some(claim) = self.claims.get(at) else { return Ok(servers) };
        if claim.deadline().is_none() {
            return self.divide(servers, at);
        }
        let mut candidates: Vec<Server> = Vec::new();
        let periods = match self.kind {
            Kind::FixedPriority => claim.periods(self.part),
            Kind::Table => vec![servers[at].2],
        };
        for period in periods {
            // Only a period with a smaller part of the core than those before is worth a search.
            let most = candidates.last().map_or(period.0, |(_, budget, of)| {
                let budget = u128::from(budget.0) * u128::from(period.0) / u128::from(of.0);
                u64::try_from(budget).unwrap_or(u64::MAX).saturating_sub(STEP)
            });
            let mut tried = servers.clone();
            if let Some(budget) = self.least(&mut tried, at, (period, most / STEP))? {
                candidates.push((claim.entity, budget, period));
            }
        }
        // The smallest part is the last one.
        for server in candidates.into_iter().rev() {
            let Some(left) = attempts.checked_sub(1) else { break };
            *attempts = left;
            let mut tried = servers.clone();
            tried[at] = server;
            match self.place(tried, at + 1, attempts) {
                Err(Stop::None) => {}
                answer => return answer,
            }
        }
        Err(Stop::None)
    }

    /// Returns the least budget in `period`, of `most` steps at most, with which the tasks of claim
    /// `at` hold below the servers before it; none if the greatest budget that EL2 can keep is not
    /// enough.
    fn least(
        &self,
        servers: &mut [Server],
        at: usize,
        (period, most): (Nanos, u64),
    ) -> Result<Option<Nanos>, Stop> {
        let has_floor = self.claims[at].of_flows.is_some();
        let floor = if has_floor { period.0 / 100 * self.floor } else { 0 };
        // Less than its tasks use is never enough.
        let used = u128::from(period.0) * u128::from(self.claims[at].used) / u128::from(WHOLE);
        let used = u64::try_from(used).unwrap_or(u64::MAX);
        let least = self.least_budget().0.max(floor).max(used).div_ceil(STEP);
        let mut with = |steps: u64| {
            (servers[at].1, servers[at].2) = (Nanos(steps * STEP), period);
            self.set(servers);
        };
        let kept = greatest(least..=most, |steps| {
            with(steps);
            self.is_kept()
        })?;
        let Some(most) = kept else { return Ok(None) };
        with(most);
        if !self.holds(at)? {
            return Ok(None);
        }
        // A greater budget never harms the VM whose budget it is.
        let late = greatest(least..=most, |steps| {
            with(steps);
            Ok(!self.holds(at)?)
        })?;
        Ok(Some(Nanos(late.map_or(least, |late| late + 1) * STEP)))
    }

    /// Gives the servers from `at` on, which have no demand, equal budgets: the greatest ones with
    /// which all servers can be kept.
    fn divide(&self, mut servers: Vec<Server>, at: usize) -> Result<Vec<Server>, Stop> {
        let longest = servers[at].2.0 / STEP;
        let mut with = |steps: u64| {
            for server in &mut servers[at..] {
                server.1 = Nanos(steps * STEP);
            }
            self.set(&servers);
        };
        let most = greatest(self.least_budget().0.div_ceil(STEP)..=longest, |steps| {
            with(steps);
            self.is_kept()
        })?;
        with(most.ok_or(Stop::None)?);
        for (place, server) in servers.iter().enumerate() {
            if self.guaranteed(server.0).is_none() || !self.holds(place)? {
                return Err(Stop::None);
            }
        }
        Ok(servers)
    }

    fn least_budget(&self) -> Nanos {
        let system = self.system.borrow();
        system.cores.last().map_or(Nanos(STEP), |core| least_budget(&system, core.id))
    }

    /// Puts servers on the core.
    fn set(&self, servers: &[Server]) {
        if let Some(core) = self.system.borrow_mut().cores.last_mut() {
            core.schedule = self.kind.of(core.id, servers).schedule;
        }
    }

    /// Returns whether EL2 can keep the core's schedule: all servers, or slots within the frame.
    fn is_kept(&self) -> Result<bool, Stop> {
        self.search.pay(TASKS)?;
        let system = self.system.borrow();
        Ok(system.cores.last().is_some_and(|core| match &core.schedule {
            Schedule::Table { frame, slots } => {
                slots.iter().map(|(.., length)| length.0).sum::<u64>() <= frame.0
            }
            _ => system::is_kept(&system, core),
        }))
    }

    /// Returns the long-term guarantee of the core's schedule for `entity`.
    fn guaranteed(&self, entity: Entity) -> Option<Linear> {
        let system = self.system.borrow();
        system::guaranteed(&system, system.cores.last()?, entity, Vec::new())
    }

    /// Returns whether the tasks of claim `at` hold.
    fn holds(&self, at: usize) -> Result<bool, Stop> {
        self.search.pay(TASKS)?;
        let Claim { entity, used, .. } = self.claims[at];
        let Entity::Vm(vm) = entity else { return Ok(true) };
        // With more work than time, the search for a bound takes long.
        let is_overload = self.guaranteed(entity).is_none_or(|Linear { share, whole, .. }| {
            u128::from(used) * u128::from(whole) > u128::from(share) * u128::from(WHOLE)
        });
        if is_overload {
            return Ok(false);
        }
        let system = self.system.borrow();
        let time = system::tasks(&system, vm, system.dma.bandwidth, false);
        Ok(time.is_ok_and(|time| time.causes.is_empty()))
    }
}

/// Returns the greatest number of a range for which `holds`, if it holds for the least one. From
/// some number on it holds for none.
fn greatest(
    range: std::ops::RangeInclusive<u64>,
    mut holds: impl FnMut(u64) -> Result<bool, Stop>,
) -> Result<Option<u64>, Stop> {
    let (mut low, mut high) = (*range.start(), *range.end());
    if low > high || !holds(low)? {
        return Ok(None);
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle)? { low = middle } else { high = middle - 1 }
    }
    Ok(Some(low))
}

/// Returns the chosen schedules as a plan shows them.
pub(super) fn choices(system: &System, cores: &[SharedCore]) -> Vec<CoreChoice> {
    let schedule = |core: &SharedCore| match &core.schedule {
        Schedule::Table { frame, slots } => Some(ScheduleChoice::Table {
            major_frame_ns: frame.0,
            slots: slots
                .iter()
                .map(|(entity, start, length)| SlotChoice {
                    vm: entity.name(system).to_owned(),
                    start_ns: start.0,
                    length_ns: length.0,
                })
                .collect(),
        }),
        Schedule::FixedPriority { servers } => Some(ScheduleChoice::FixedPriority {
            servers: servers
                .iter()
                .map(|(entity, budget, period)| ServerChoice {
                    vm: entity.name(system).to_owned(),
                    budget_ns: budget.0,
                    period_ns: period.0,
                })
                .collect(),
        }),
        Schedule::RoundRobin { .. } => None,
    };
    let choice = |core: &SharedCore| Some(CoreChoice { id: core.id, schedule: schedule(core)? });
    cores.iter().filter_map(choice).collect()
}

/// Returns the file with one more core, which has no servers yet.
fn with_core(system: &System, core: u64) -> System {
    let mut system = system.clone();
    system.cores.push(Kind::FixedPriority.of(core, &[]));
    system
}

/// Returns a budget of which something is left after the switches that it pays for.
fn least_budget(system: &System, core: u64) -> Nanos {
    let sharing = system.sharing(&Kind::FixedPriority.of(core, &[])).unwrap_or_default();
    let spent = sharing.switch.0 * 2 + sharing.interrupt.0;
    Nanos((spent + STEP).next_multiple_of(STEP))
}

/// Returns the tasks of VM `vm` on a core.
fn tasks_on(system: &System, vm: usize, core: u64) -> Vec<&Task> {
    let Some(vm) = system.guests().get(vm) else { return Vec::new() };
    let own = |task: &&Task| task.core.or_else(|| vm.first_core()) == Some(core);
    vm.tasks.iter().filter(own).collect()
}

/// Returns the part of a core that a task uses, as a fraction of [`WHOLE`], rounded down.
fn utilization(task: &Task) -> u64 {
    let used = u128::from(task.wcet.0) * u128::from(WHOLE) / u128::from(task.period.0.max(1));
    u64::try_from(used).unwrap_or(u64::MAX)
}

/// A demand that a conflict can name.
struct Demand {
    name: String,
    /// Its VM and task, or its flow, by name.
    vm: Option<String>,
    of: String,
}

impl Demand {
    /// Returns the file without this demand.
    fn removed(&self, system: &System) -> System {
        let mut system = system.clone();
        match &self.vm {
            Some(name) => {
                for vm in system.vms.iter_mut().filter(|vm| vm.name == *name) {
                    vm.tasks.retain(|task| task.name != self.of);
                }
            }
            None => system.flows.retain(|flow| flow.name != self.of),
        }
        system
    }
}

/// Returns all tasks and flows with deadlines.
fn all_demands(system: &System) -> Vec<Demand> {
    let tasks = system.guests().iter().flat_map(|vm| {
        vm.tasks.iter().map(|task| Demand {
            name: Object::task(&task.name, &vm.name).to_string(),
            vm: Some(vm.name.clone()),
            of: task.name.clone(),
        })
    });
    let flows = system.flows.iter().filter(|flow| !flow.best_effort).map(|flow| Demand {
        name: Object::flow(&flow.name).to_string(),
        vm: None,
        of: flow.name.clone(),
    });
    tasks.chain(flows).collect()
}
