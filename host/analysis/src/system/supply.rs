//! The supply of cores: schedules, less the time of switches, interrupts and EL2's polls
//! of the counter page.

use crate::{
    Nanos,
    time::{
        Admission, InterruptLine, Linear, Supply, Switching, VmSchedule, left_of_budget, put_off,
        server_holds,
    },
};
use weir_model::{
    Code, Fault, Polling, System, Vm,
    timing::{Entity, FilePlace, Schedule, SharedCore, TimedLine},
};

/// Returns the supply of the core on which `entity` moves its flows, the name of the core and its
/// place in the file. Returns none if `entity` has its own core without interrupts.
///
/// # Errors
///
/// A schedule that cannot be kept.
pub fn supply(
    system: &System,
    entity: Entity,
) -> Result<Option<(String, FilePlace, Supply)>, Fault> {
    let core = match entity {
        Entity::Vm(vm) => system.guests().get(vm).and_then(Vm::first_core),
        Entity::Broker => system.broker_core,
    };
    if let Some(fault) = unshared(system, entity, core) {
        return Err(fault);
    }
    // A copy is no task, so it is not known how much of the budget is left.
    let polls = closest_polling(system, entity);
    if let Some(core) = core_of_flows(system, entity) {
        let supply = supply_on(system, core, entity, polls)?;
        return Ok(Some((format!("core {}", core.id), core.place.clone(), supply)));
    }
    match entity {
        Entity::Vm(position) => {
            let Some(vm) = system.guests().get(position) else { return Ok(None) };
            if polls.is_empty() && system.lines.iter().all(|line| line.vm != position) {
                return Ok(None);
            }
            let supply = dedicated(system, position, polls)?;
            Ok(Some(("its own core".to_owned(), vm.place.clone(), supply)))
        }
        Entity::Broker => Ok(None),
    }
}

/// Returns the shared core on which a VM or the broker moves flows.
pub(super) fn core_of_flows(system: &System, entity: Entity) -> Option<&SharedCore> {
    let own = match entity {
        Entity::Vm(vm) => system.guests().get(vm).and_then(Vm::first_core),
        Entity::Broker => None,
    };
    let is_its =
        |core: &&SharedCore| own.is_none_or(|own| own == core.id) && runs(&core.schedule, entity);
    system.cores.iter().find(is_its)
}

/// Returns whether EL2 can keep the schedule of a shared core: the budgets of all its servers.
pub(crate) fn is_kept(system: &System, core: &SharedCore) -> bool {
    let first = core.schedule.entities().first().copied();
    first.is_some_and(|entity| vm_schedule(system, core, entity).is_ok())
}

/// Returns the linear lower bound on the supply of `entity` on a shared core, less `polls`.
pub(crate) fn guaranteed(
    system: &System,
    core: &SharedCore,
    entity: Entity,
    polls: Vec<InterruptLine>,
) -> Option<Linear> {
    supply_on(system, core, entity, polls).ok()?.linear()
}

/// Returns how EL2 polls the counter page for the budget of VM `vm`, and the period of the budget.
pub(super) fn polled(system: &System, vm: usize) -> Option<(Polling, Nanos)> {
    let this = system.guests().get(vm)?;
    let (_, period) = this.memory_budget.as_ref().and_then(|asked| asked.budget)?;
    Some((system.polling(this, period)?, period))
}

/// Returns the time of EL2's polls of the counter page on a core of VM `vm` while `left` accesses
/// of its budget are left there: the polls within a period, and the one at its beginning, which
/// takes less than two others.
pub(super) fn polling(system: &System, vm: usize, left: u64) -> Vec<InterruptLine> {
    let Some((polls, period)) = polled(system, vm) else { return Vec::new() };
    let line = |interval: Nanos, cost| InterruptLine {
        admission: Some(Admission { burst: 1, interval }),
        cost: Nanos(cost),
        delay: Nanos(0),
    };
    let cost = polls.cost.0;
    vec![line(polls.apart(left, period), cost), line(period, cost.saturating_mul(2))]
}

/// Returns the same for the VM that has the core, with nothing left of its budget.
pub(super) fn closest_polling(system: &System, entity: Entity) -> Vec<InterruptLine> {
    match entity {
        Entity::Vm(vm) => polling(system, vm, 0),
        Entity::Broker => Vec::new(),
    }
}

/// Returns the supply of a dedicated core, less all interrupts of the VM, because the file does not
/// assign them to its cores, and less `polls`.
pub(super) fn dedicated(
    system: &System,
    vm: usize,
    polls: Vec<InterruptLine>,
) -> Result<Supply, Fault> {
    let own = system.lines.iter().filter(|line| line.vm == vm);
    let mut lines = own
        .map(|line| Ok(interrupt(line, cost_of(system, line, 0)?, 0, 0)))
        .collect::<Result<Vec<_>, _>>()?;
    lines.extend(polls);
    Supply::new(VmSchedule::Dedicated, lines).map_err(|error| {
        let place = system.guests().get(vm).map(|vm| vm.place.clone()).unwrap_or_default();
        let message = format!("{}: {error}", Entity::Vm(vm).title(system));
        system.fault(Code::AnalysisLimit, &place, message, "write times within the limits")
    })
}

pub(super) fn runs(schedule: &Schedule, entity: Entity) -> bool {
    schedule.entities().contains(&entity)
}

/// Returns whether the schedule switches at all. A single entity switches at the end of a slot or
/// of a budget.
pub(super) fn switches(schedule: &Schedule) -> bool {
    match schedule {
        Schedule::RoundRobin { entities, .. } => entities.len() > 1,
        Schedule::Table { .. } => true,
        Schedule::FixedPriority { servers } => {
            servers.len() > 1 || servers.iter().any(|(_, budget, period)| budget.0 < period.0)
        }
    }
}

/// Returns the schedule of a shared core as `entity` gets it, with the cost of switches.
///
/// # Errors
///
/// Budgets of servers that cannot all be supplied in time.
pub(super) fn vm_schedule(
    system: &System,
    core: &SharedCore,
    entity: Entity,
) -> Result<VmSchedule, Fault> {
    let sharing = system.sharing(core).unwrap_or_default();
    let switch = Nanos(if switches(&core.schedule) { sharing.switch.0 } else { 0 });
    Ok(match &core.schedule {
        Schedule::RoundRobin { quantum, entities } => {
            let others = entities.len().saturating_sub(1) as u64;
            VmSchedule::RoundRobin {
                quantum: *quantum,
                others: Nanos(quantum.0.saturating_mul(others)),
                switch,
                vms: u32::try_from(entities.len()).unwrap_or(u32::MAX),
            }
        }
        Schedule::Table { frame, slots } => VmSchedule::Table {
            frame: *frame,
            slots: slots
                .iter()
                .filter(|slot| slot.0 == entity)
                .map(|(_, start, length)| (*start, *length))
                .collect(),
            switch,
        },
        Schedule::FixedPriority { servers } => {
            let budgets: Vec<_> = servers.iter().map(|(_, q, p)| (*q, *p)).collect();
            let least_switch = sharing.least_switch;
            let switching = Switching { most: switch, least: least_switch, entry: sharing.entry };
            let extra = |(entity, _, period): &(Entity, _, Nanos)| {
                let lines = charged_to_others(system, core, *entity)?;
                let taken = lines.iter().map(|line| line.taken(*period).0);
                Ok(Nanos(taken.fold(0, u64::saturating_add)))
            };
            let extra = servers.iter().map(extra).collect::<Result<Vec<_>, Fault>>()?;
            let late = |place: &usize| !server_holds(&budgets, *place, &switching, &extra);
            if let Some(late) = (0..budgets.len()).find(late) {
                let (entity_of, budget, period) = servers[late];
                let message = format!(
                    "core {}: {} may not get its {budget} in each {period}",
                    core.id,
                    entity_of.title(system)
                );
                let help = format!(
                    "{}; until then neither flows nor tasks are judged",
                    shorter(&budgets, late, (&switching, &extra))
                );
                return Err(system.fault(Code::ServerLate, &core.place, message, help));
            }
            let own = servers.iter().position(|server| server.0 == entity);
            let period = own.and_then(|own| budgets.get(own)).map_or(Nanos(1), |own| own.1);
            let budget = own.map_or(Nanos(0), |own| left_of_budget(&budgets, own, &switching));
            VmSchedule::Server { budget, period, switch }
        }
    })
}

/// Returns the supply of `entity` on a shared core, less switches, interrupts, and EL2's `polls`
/// for its own budget.
pub(super) fn supply_on(
    system: &System,
    core: &SharedCore,
    entity: Entity,
    polls: Vec<InterruptLine>,
) -> Result<Supply, Fault> {
    let schedule = vm_schedule(system, core, entity)?;
    let entry = system.sharing(core).unwrap_or_default().entry;
    let mut lines = polls;
    // EL2 polls for a vCPU that is off the core or waits only at the beginning of its periods, and
    // takes the core for that.
    for other in (0..system.guests().len()).filter(|other| Entity::Vm(*other) != entity) {
        if system.guests()[other].is_on(core.id) {
            lines.extend(polling(system, other, 0).pop());
        }
    }
    for vm in here(system, core) {
        let mut its = lines_of(system, core, vm, entity)?;
        // The VM that is charged with it gives the time back.
        if Entity::Vm(vm) != entity && matches!(core.schedule, Schedule::FixedPriority { .. }) {
            for line in &mut its {
                line.cost.0 = line.cost.0.min(entry.0);
            }
        }
        lines.extend(its);
    }
    lines.extend(engine_line(system, core, entity).map(|line| {
        let is_given_back = matches!(core.schedule, Schedule::FixedPriority { .. });
        let cost = if is_given_back { line.cost.min(entry) } else { line.cost };
        InterruptLine { cost, ..line }
    }));
    Supply::new(schedule, lines).map_err(|error| {
        let message = format!("core {}: {error}", core.id);
        system.fault(Code::AnalysisLimit, &core.place, message, "write times within the limits")
    })
}

/// The time until a VM with a pending interrupt has a core that it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// It shares no core.
    None,
    /// A bound, the greatest one of its shared cores.
    AtMost(Nanos),
    /// Its schedules guarantee it no time, or its memory budget can suspend it.
    Unbounded,
}

/// Returns how long VM `vm` can be off a core that it shares while an interrupt is pending there.
///
/// # Errors
///
/// A schedule that cannot be kept.
fn absence(system: &System, vm: usize) -> Result<Absence, Fault> {
    let entity = Entity::Vm(vm);
    let mut longest = Absence::None;
    for core in system.cores.iter().filter(|core| runs(&core.schedule, entity)) {
        if system.guests().get(vm).is_some_and(|vm| vm.memory_budget.is_some()) {
            return Ok(Absence::Unbounded);
        }
        // The shortest window in which it has the core at all.
        let supply = supply_on(system, core, entity, Vec::new())?;
        longest = match (longest, supply.window_for(Nanos(1))) {
            (_, None) => return Ok(Absence::Unbounded),
            (Absence::AtMost(other), Some(window)) => Absence::AtMost(window.max(other)),
            (_, Some(window)) => Absence::AtMost(window),
        };
    }
    Ok(longest)
}

/// Returns the longest absence of a receiver of the flow at position `flow`.
///
/// # Errors
///
/// A schedule that cannot be kept.
pub(super) fn receivers_absence(system: &System, flow: usize) -> Result<Absence, Fault> {
    let receivers = system.flows.get(flow).map_or(&[][..], |flow| &flow.to);
    let mut longest = Absence::None;
    for &vm in receivers {
        longest = match (longest, absence(system, vm)?) {
            (Absence::Unbounded, _) | (_, Absence::Unbounded) => Absence::Unbounded,
            (Absence::AtMost(one), Absence::AtMost(other)) => Absence::AtMost(one.max(other)),
            (Absence::None, other) | (other, Absence::None) => other,
        };
    }
    Ok(longest)
}

/// Suggests a budget for server `late` with a budget that does not hold.
pub(super) fn shorter(
    budgets: &[(Nanos, Nanos)],
    late: usize,
    (switching, extra): (&Switching, &[Nanos]),
) -> String {
    let holds = |budget: u64| {
        let mut budgets = budgets.to_vec();
        budgets[late].0 = Nanos(budget);
        server_holds(&budgets, late, switching, extra)
    };
    let (mut fits, mut exceeds) = (0, budgets[late].0.0 / 1000);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        if holds(middle * 1000) { fits = middle } else { exceeds = middle }
    }
    if fits == 0 {
        return "shorten the budgets of the servers before it".to_owned();
    }
    format!("write a budget of {fits}us: servers before it and EL2 take the rest of its period")
}

/// Returns the VMs on a shared core.
pub(super) fn here<'a>(
    system: &'a System,
    core: &'a SharedCore,
) -> impl Iterator<Item = usize> + 'a {
    (0..system.guests().len())
        .filter(|vm| system.guests()[*vm].is_on(core.id) || runs(&core.schedule, Entity::Vm(*vm)))
}

/// Returns what EL2 does for other VMs, and charges to them, while `entity` has budget. It delays
/// `entity`.
pub(super) fn charged_to_others(
    system: &System,
    core: &SharedCore,
    entity: Entity,
) -> Result<Vec<InterruptLine>, Fault> {
    let mut lines = Vec::new();
    for vm in here(system, core).filter(|vm| Entity::Vm(*vm) != entity) {
        lines.extend(lines_of(system, core, vm, entity)?);
    }
    lines.extend(engine_line(system, core, entity));
    Ok(lines)
}

/// Returns what the interrupt of the DMA engine takes from `entity`, if the engine's broker is
/// another one on the core. The broker starts one transfer at a time, so the interrupt comes once
/// behind a slot of the broker, and waits for the next one.
fn engine_line(system: &System, core: &SharedCore, entity: Entity) -> Option<InterruptLine> {
    let is_there = entity != Entity::Broker && runs(&core.schedule, Entity::Broker);
    if !is_there || system.flows.is_empty() || system.engine_from().is_none() {
        return None;
    }
    let cost = system.sharing(core).unwrap_or_default().interrupt;
    let admission = waits(&core.schedule, Entity::Broker, entity, pays(system, entity, cost.0));
    let line = InterruptLine { admission: Some(admission), cost, delay: Nanos(0) };
    (cost.0 > 0).then_some(line)
}

/// Returns the time of its own slot that `entity` pays for the work of EL2, in ns.
fn pays(system: &System, entity: Entity, known: u64) -> u64 {
    match entity {
        Entity::Vm(vm) => {
            let own = system.lines.iter().filter(|line| line.vm == vm);
            let costs: Vec<_> = own.map(|line| line.wcet.0.max(known)).collect();
            charged(system, vm, &costs, known)
        }
        Entity::Broker => 0,
    }
}

/// Returns the events of VM `vm` between two of its slots, each by its time at EL2 in ns:
/// interrupts with a rule (`costs`), interrupts without a rule, and SGIs, writes to its distributor
/// and CPU_ON of its other vCPUs, each once in a slot. A VM of one vCPU has its timer instead, and
/// the interrupt of the devices that the broker serves; in a VM of several, that one comes with the
/// writes to its distributor.
pub(super) fn arrivals_between_slots(
    system: &System,
    vm: usize,
    costs: &[u64],
    known: u64,
) -> impl Iterator<Item = u64> {
    let is_served =
        system.guests()[vm].has_port || system.flows.iter().any(|flow| flow.ends_at(vm));
    let calls = if system.guests()[vm].cpus.len() > 1 { 3 } else { 1 + usize::from(is_served) };
    let others = system.unruled(vm).len() + calls;
    costs.iter().copied().chain(std::iter::repeat_n(known, others))
}

/// Returns the sum of these times.
pub(super) fn charged(system: &System, vm: usize, costs: &[u64], known: u64) -> u64 {
    arrivals_between_slots(system, vm, costs, known).fold(0, u64::saturating_add)
}

/// Returns what the interrupts of VM `vm` on a shared core take from `entity`.
pub(super) fn lines_of(
    system: &System,
    core: &SharedCore,
    vm: usize,
    entity: Entity,
) -> Result<Vec<InterruptLine>, Fault> {
    let owner = Entity::Vm(vm);
    let sharing = system.sharing(core).unwrap_or_default();
    let (switch, known) = (sharing.switch.0, sharing.interrupt.0);
    let rules: Vec<_> = system.lines.iter().filter(|line| line.vm == vm).collect();
    let waits = Some(waits(&core.schedule, owner, entity, pays(system, entity, known)));
    let waiting = |cost| InterruptLine { admission: waits, cost: Nanos(cost), delay: Nanos(0) };
    let mut costs = Vec::new();
    for line in &rules {
        costs.push(cost_of(system, line, known)?);
    }
    // An interrupt without credit or without a rule waits for the slot of its VM.
    let mut lines: Vec<_> =
        arrivals_between_slots(system, vm, &costs, known).map(waiting).collect();
    // In a table EL2 charges no VM: its work for a VM in the slots of others is a loss of these
    // alone.
    if owner == entity && matches!(core.schedule, Schedule::Table { .. }) {
        lines.clear();
    }
    // Everything that waits may come again after a slot that an interrupt brings its VM.
    let anew = charged(system, vm, &costs, known);
    let round = matches!(core.schedule, Schedule::RoundRobin { .. });
    for (line, cost) in rules.iter().zip(costs) {
        // In a table, the slot that an interrupt brings its VM is no loss to that VM. In a round,
        // the round continues after that slot.
        let admitted = if owner == entity && !(line.preempt && round) {
            Some((0, 0))
        } else if line.preempt {
            preempted(&core.schedule, entity, switch)
                .map(|(taken, delay)| (taken.saturating_add(anew), delay))
        } else {
            None
        };
        lines.extend(admitted.map(|(taken, delay)| interrupt(line, cost, taken, delay)));
    }
    lines.retain(|line| line.cost.0 > 0 || line.delay.0 > 0);
    Ok(lines)
}

/// Returns how often an interrupt of `owner` comes while `entity` has the core, if it waits for the
/// slot of its VM. `entity` pays `pays` ns of its own slot for the work of EL2.
pub(super) fn waits(schedule: &Schedule, owner: Entity, entity: Entity, pays: u64) -> Admission {
    match schedule {
        Schedule::RoundRobin { quantum, .. } => Admission::once_a_round(*quantum, Nanos(pays)),
        Schedule::Table { frame, slots } => {
            let count = slots.iter().filter(|slot| slot.0 == owner).count();
            Admission::once_a_slot(*frame, count as u64)
        }
        Schedule::FixedPriority { servers } => {
            let period = |of| {
                let own = servers.iter().find(|server| server.0 == of);
                Nanos(own.map_or(u64::MAX, |server| server.2.0))
            };
            Admission::once_a_period(period(owner), period(entity))
        }
    }
}

/// Returns the most that an interrupt with `preempt` takes from the supply of `entity`, and by how
/// much it delays the rest, in ns. Servers have priorities instead.
pub(super) fn preempted(schedule: &Schedule, entity: Entity, switch: u64) -> Option<(u64, u64)> {
    match schedule {
        Schedule::RoundRobin { quantum, entities } => {
            Some((0, slots_of_others(*quantum, entities, switch).0))
        }
        Schedule::Table { slots, .. } => {
            let own = slots.iter().filter(|slot| slot.0 == entity).map(|slot| slot.2.0);
            Some((own.max().unwrap_or(0), 0))
        }
        Schedule::FixedPriority { .. } => None,
    }
}

/// Returns the bound on the time until a suspended VM has the core again. In a round the others
/// have their slots first. Slots of a table and priorities of servers do not move.
pub(super) fn back(system: &System, core: &SharedCore) -> Nanos {
    let Schedule::RoundRobin { quantum, entities } = &core.schedule else { return Nanos(0) };
    let switch = system.sharing(core).unwrap_or_default().switch;
    slots_of_others(*quantum, entities, switch.0)
}

/// Returns the bound on the delay by the slots of the others in a round.
pub(super) fn slots_of_others(quantum: Nanos, entities: &[Entity], switch: u64) -> Nanos {
    put_off(quantum, Nanos(switch), u32::try_from(entities.len()).unwrap_or(u32::MAX))
}

/// Returns the time that one interrupt takes at EL2, in ns: the value of the file, or the one that
/// is `known` of the board.
pub(super) fn cost_of(system: &System, line: &TimedLine, known: u64) -> Result<u64, Fault> {
    let cost = if line.wcet.0 == 0 { known } else { line.wcet.0 };
    if cost == 0 {
        let message =
            format!("{}: the time that one takes at EL2 is not known", system.interrupt(line));
        let help = "add wcet = \"2us\", the most time that one takes";
        return Err(system.fault(Code::IrqNoWcet, &line.place, message, help));
    }
    Ok(cost)
}

/// Returns an interrupt that takes `cost` and `taken` ns and delays the rest by `delay` ns.
pub(super) fn interrupt(line: &TimedLine, cost: u64, taken: u64, delay: u64) -> InterruptLine {
    let cost = cost.saturating_add(taken);
    // The interval is rounded down, which allows interrupts a little closer than the rule does.
    let admission = line.admission.map(|(rate, burst)| Admission {
        burst,
        interval: Nanos((1_000_000_000 / rate.max(1)).max(1)),
    });
    InterruptLine { admission, cost: Nanos(cost), delay: Nanos(delay) }
}

/// Returns the fault that `entity` and another entity share a core without a schedule.
pub(super) fn unshared(system: &System, entity: Entity, core: Option<u64>) -> Option<Fault> {
    let core = core.filter(|core| system.cores.iter().all(|shared| shared.id != *core))?;
    let vms = system.guests().iter().enumerate().filter(|(_, vm)| vm.is_on(core));
    let vms = vms.map(|(vm, _)| Entity::Vm(vm));
    let mut here: Vec<_> =
        vms.chain((system.broker_core == Some(core)).then_some(Entity::Broker)).collect();
    here.retain(|other| *other != entity);
    let other = here.first()?;
    // The message is the same for both entities.
    let [first, second] = match (entity, other) {
        (Entity::Vm(one), Entity::Vm(other)) => {
            [Entity::Vm(one.min(*other)), Entity::Vm(one.max(*other))]
        }
        (Entity::Broker, other) => [*other, Entity::Broker],
        (vm, Entity::Broker) => [vm, Entity::Broker],
    };
    let place = match first {
        Entity::Vm(vm) => system.guests().get(vm).map(|vm| vm.place.clone()).unwrap_or_default(),
        Entity::Broker => FilePlace::default(),
    };
    let help = match second {
        Entity::Broker => {
            "add [[core]] with its `id` and a `schedule` that names both, or give [broker] `cpus` \
             another core"
        }
        Entity::Vm(_) => {
            "add [[core]] with its `id` and a `schedule` that names both, or let `weir plan` choose \
             it"
        }
    };
    let [first, second] = [first, second].map(|entity| entity.title(system));
    let message = format!("core {core}: {first} and {second} share it without a schedule");
    Some(system.fault(Code::NoSchedule, &place, message, help))
}

/// Returns why a core without a schedule is not dedicated to the VM.
pub(super) fn not_its_own(system: &System, position: usize, core: Option<u64>) -> Option<Fault> {
    let (vm, core) = (system.guests().get(position)?, core?);
    if !vm.cpus.is_empty() && !vm.is_on(core) {
        let message = format!("{vm}: has tasks on core {core}, which is not in its `cpus`");
        let help = "give them a `core` of the VM's `cpus`";
        return Some(system.fault(Code::TaskCore, &vm.place, message, help));
    }
    unshared(system, Entity::Vm(position), Some(core))
}

/// Returns the supply of VM `vm` on core `core`, or on the cores that it has. `shared` is the core
/// with a schedule that names it.
///
/// # Errors
///
/// A core that the VM shares without a schedule, or a schedule that leaves the VM out.
pub(super) fn supply_for(
    system: &System,
    (vm, core): (usize, Option<u64>),
    shared: Option<&SharedCore>,
    polls: Vec<InterruptLine>,
) -> Result<Supply, Fault> {
    let this = &system.guests()[vm];
    let elsewhere = core.and_then(|core| system.cores.iter().find(|shared| shared.id == core));
    if elsewhere.is_none()
        && let Some(fault) = not_its_own(system, vm, core)
    {
        return Err(fault);
    }
    match (shared, elsewhere) {
        (Some(shared), _) => supply_on(system, shared, Entity::Vm(vm), polls),
        (None, Some(shared)) => {
            let message = format!(
                "{this}: has tasks on core {}, but that core's schedule leaves it out",
                shared.id
            );
            let help = "name the VM in the schedule, or give its tasks another `core`";
            Err(system.fault(Code::TaskCore, &shared.place, message, help))
        }
        (None, None) => dedicated(system, vm, polls),
    }
}

pub(super) fn share(linear: Linear) -> f64 {
    part(linear.share, linear.whole)
}

#[expect(clippy::cast_precision_loss, reason = "for printing")]
pub(super) fn part(some: u64, whole: u64) -> f64 {
    some as f64 / whole as f64
}
