//! Schedules, tasks and interrupts: the supply of shared cores, response-time bounds with
//! interrupts and memory accesses of other VMs, and bounds on the wait of interrupts.

use super::{
    cause::{self, Cause},
    flows::Copying,
    messages,
    own_budget::{self as own, Own},
    regulation::{regulation, vcpus},
    supply::{
        back, closest_polling, cost_of, part, polled, polling, runs, share, supply_for, supply_on,
        switches,
    },
};
use crate::units::Events;
use crate::{
    Nanos,
    memory::{Budget, Interferer, Regulation},
    time::{Interference, Supply, VmTask, response_times_beside},
    verdict::{Judgement, Missing, Verdict},
};
use serde::Serialize;
use weir_model::{
    Code, Fault, Polling, Timing,
    timing::{Class, Entity, Flow, Line, MemoryBudget, Place, SharedCore, Task, TimedVm},
};

/// The bounds of schedules, tasks and interrupts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TimeReport {
    /// Whether all of them hold; none if an input is missing.
    pub holds: Option<bool>,
    /// The verdict on all of them.
    pub verdict: Verdict,
    /// What each shared core supplies.
    pub cores: Vec<CoreSupply>,
    /// The tasks.
    pub tasks: Vec<TaskBound>,
    /// The interrupts that have a deadline.
    pub interrupts: Vec<InterruptBound>,
    /// Whether the responses contain the delay by memory accesses of other VMs.
    pub memory_interference: bool,
    /// Why something does not hold, with a suggestion each.
    #[serde(rename = "reasons", serialize_with = "messages")]
    pub causes: Vec<Fault>,
    /// What the bounds contain, and what they take for granted.
    pub notes: Vec<String>,
    /// Inputs without which something is not judged.
    #[serde(skip)]
    pub missing: Vec<Missing>,
}

/// What the schedule of a shared core guarantees to each VM.
#[derive(Clone, Debug, Serialize)]
pub struct CoreSupply {
    /// The number of the core.
    pub id: u64,
    /// Its VMs, and the broker.
    pub vms: Vec<VmSupply>,
}

/// A linear lower bound on the supply of a VM: `share` of any window, less `delay_ns`.
#[derive(Clone, Debug, Serialize)]
pub struct VmSupply {
    /// The VM.
    pub name: String,
    /// The part of the core, 0 to 1; none if no time is guaranteed.
    pub share: Option<f64>,
    /// The delay in ns; none if no time is guaranteed.
    pub delay_ns: Option<u64>,
}

/// The response-time bound of a task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskBound {
    /// The VM of the task.
    pub vm: String,
    /// The task.
    pub name: String,
    /// The bound on its response time in ns; none if there is no bound.
    pub response_ns: Option<u64>,
    /// Its relative deadline in ns.
    pub deadline_ns: u64,
    /// Whether it meets its deadline; none if an input is missing.
    pub holds: Option<bool>,
    /// The verdict on its deadline.
    pub verdict: Verdict,
    /// Why it is late.
    #[serde(skip)]
    pub cause: Option<String>,
}

impl TaskBound {
    fn new(vm: &TimedVm, task: &Task, response: Option<Nanos>, is_open: bool) -> Self {
        let verdict = match response {
            Some(response) if response <= task.deadline && is_open => Verdict::NotJudged,
            response => Verdict::of(response.is_some_and(|response| response <= task.deadline)),
        };
        Self {
            vm: vm.name.clone(),
            name: task.name.clone(),
            response_ns: response.map(|response| response.0),
            deadline_ns: task.deadline.0,
            holds: verdict.truth(),
            verdict,
            cause: None,
        }
    }
}

/// The bound on the time that an interrupt waits for its VM.
#[derive(Clone, Debug, Serialize)]
pub struct InterruptBound {
    /// The VM that the interrupt belongs to.
    pub vm: String,
    /// The number or name of the interrupt.
    pub interrupt: String,
    /// The bound on the time until its VM has the core, in ns; none if there is no bound.
    pub wait_ns: Option<u64>,
    /// Its deadline in ns.
    pub deadline_ns: u64,
    /// Whether it meets its deadline; none if an input is missing.
    pub holds: Option<bool>,
    /// The verdict on its deadline.
    pub verdict: Verdict,
}

/// Why an interrupt may be late.
enum Late {
    /// The deadline does not hold: the reason and the suggestion.
    Refuted(String, String),
    /// The deadline is not judged.
    Open(Missing),
}

/// The suggestion for a late task that has no other one.
const MORE_TIME: &str = "give the VM a larger share of the core";

/// The suggestion if the closest polls of the counter page are in the responses.
const ADD: &str = "add `accesses` to each of its tasks: without them, the polls of the counter page count as if little were left of the budget";

/// The suggestion if a core copies flows in addition to its tasks.
const COPY: &str =
    "write [dma] path = \"broker\": the responses contain the flows that the VM's core copies";

/// The suggestion if a core copies a flow without a limit.
const PACE: &str =
    "write `period` and `deadline` for the flow instead of best_effort, and [dma] bandwidth";

/// Returns the missing cost of a switch on a shared core.
fn no_switch(timing: &Timing, core: &SharedCore) -> Option<Missing> {
    (timing.sharing(core).is_none() && switches(&core.schedule)).then(|| Missing {
        what: format!(
            "core {}: the cost of a switch is not known for {}, so that none is subtracted",
            core.id,
            platform_name(timing)
        ),
        supply: "add `switch` to the schedule: the maximum of `vcpu_switch` that `weir bench hypervisor` prints".to_owned(),
    })
}

/// Returns notes on what is subtracted from the supply of a shared core.
fn taken_off(timing: &Timing, core: &SharedCore) -> Vec<String> {
    let id = core.id;
    let here: Vec<_> = core.schedule.entities();
    let mut said = Vec::new();
    match timing.sharing(core) {
        Some(sharing) if switches(&core.schedule) => {
            let meanwhile = match sharing.interrupt.0 {
                0 => String::new(),
                _ => format!(", and {} once per slot of a VM for its events", sharing.interrupt),
            };
            let switch = sharing.switch;
            said.push(format!(
                "core {id}: the supply is less up to {switch} per switch{meanwhile}"
            ));
        }
        _ => {}
    }
    let known = timing.sharing(core).map_or(0, |sharing| sharing.interrupt.0);
    for entity in here {
        let Entity::Vm(vm) = entity else { continue };
        let small = |line: &&Line| line.vm == vm && (1..known).contains(&line.cost.0);
        for line in timing.lines.iter().filter(small) {
            let platform = timing.platform.as_ref().map_or("the platform", |known| &known.name);
            said.push(format!(
                "core {id}: interrupt {} of {} counts as {}, its `wcet` ({}), which is less than the {} of one on {platform}; leave `wcet` out",
                line.name,
                entity.name(timing),
                line.cost,
                timing.location(&line.place),
                Nanos(known),
            ));
        }
        let lines: Vec<_> = timing.unruled(vm).iter().map(ToString::to_string).collect();
        if !lines.is_empty() {
            said.push(format!(
                "core {id}: interrupt {} of {} has no [[irq]]: it counts once per slot, and its handler is part of the VM's tasks",
                lines.join(", "),
                entity.name(timing)
            ));
        }
    }
    said
}

/// Returns the interference of all others that use the memory with VM `vm`; none if the delay by an
/// access is not known.
fn interference(
    timing: &Timing,
    vm: usize,
    tried: Option<crate::BytesPerSec>,
) -> Option<Interference> {
    let (delay, per_access) = timing.delay()?;
    let mut interferers = Vec::new();
    if delay.0 == 0 {
        return Some(Interference { interferers, delay, per_access });
    }
    // Without a budget, any period is right.
    let of_table = timing.saturation.as_ref().map_or(Nanos(1_000_000), |known| known.period);
    // MemGuard's VMs lend to each other, so all of them count as one budget. It contains what this
    // VM lends, if it is one of them.
    let mut domain: Option<Interferer> = None;
    for (position, other) in timing.vms.iter().enumerate() {
        let regulation = regulation(&timing.vms, other, Some(&timing.vms[vm].name));
        let lends = matches!(regulation, Regulation::Memguard { .. });
        let own = position == vm && !lends;
        let siblings = u64::from(vcpus(other)) - 1;
        if own && siblings == 0 {
            continue;
        }
        let budget = other.memory_budget.as_ref().and_then(MemoryBudget::settable_refills);
        let budget = budget.map(|(_, most, period)| (most, period));
        // The vCPU on the task's core has a part to itself.
        let parts = other.memory_budget.as_ref().filter(|asked| own && asked.has_parts());
        let part = |whole| parts.map_or(0, |asked| asked.least_part(whole, vcpus(other) as usize));
        let budget = budget.map(|(whole, period)| (whole - part(whole), period));
        // Without a budget there is no limit.
        let (accesses, period) = budget.unwrap_or((u64::MAX, of_table));
        let vms = u64::from(position != vm || own);
        let cores = if own { siblings } else { u64::from(vcpus(other)) };
        let overshoot = timing.overshoot(other, period).unwrap_or_default();
        let interferer = Interferer {
            budget: Budget { accesses, period },
            regulation,
            overshoot: overshoot.saturating_mul(cores * vms),
            write_back: true,
            vms,
        };
        match &mut domain {
            _ if !lends => interferers.push(interferer),
            Some(domain) => domain.join(&interferer),
            None => domain = Some(interferer),
        }
    }
    interferers.extend(domain.filter(|domain| domain.vms > 0));
    if moves_for_vms(timing) {
        // Each line is read and written. Without a bandwidth there is no limit.
        let dma = timing.dma.bandwidth.or(tried).map_or(u64::MAX, |dma| dma.0);
        let bytes = u128::from(dma) * u128::from(of_table.0);
        let line = timing.line().map_or(1, |line| line.0.max(1));
        let accesses = bytes.div_ceil(u128::from(line) * 1_000_000_000);
        interferers.push(Interferer {
            budget: Budget {
                accesses: u64::try_from(accesses).unwrap_or(u64::MAX),
                period: of_table,
            },
            regulation: Regulation::Static,
            overshoot: Events(0),
            write_back: true,
            vms: 1,
        });
    }
    Some(Interference { interferers, delay, per_access })
}

/// Returns whether a DMA engine or the broker moves flows for the VMs.
fn moves_for_vms(timing: &Timing) -> bool {
    !timing.flows.is_empty() && !timing.dma.path.is_of_vms()
}

/// Returns whether anything else uses the memory while a task of VM `vm` runs.
fn is_exposed(timing: &Timing, vm: usize) -> bool {
    timing.vms.len() > 1
        || timing.vms.get(vm).is_some_and(|vm| vcpus(vm) > 1)
        || moves_for_vms(timing)
}

/// The platform as a message names it.
fn platform_name(timing: &Timing) -> &str {
    timing.platform.as_ref().map_or("the board (the file names no platform)", |known| &known.name)
}

/// Analyzes the schedules and tasks of a file, if it has some.
///
/// # Errors
///
/// What keeps them from being analyzed.
pub fn analyze(timing: &Timing) -> Result<Option<TimeReport>, Vec<Fault>> {
    let idle = timing.vms.iter().all(|vm| vm.tasks.is_empty());
    if timing.cores.is_empty() && idle && timing.lines.iter().all(|line| line.deadline.is_none()) {
        return Ok(None);
    }
    let mut faults = Vec::new();
    let mut time = TimeReport::default();
    let mut without = Vec::new();
    for core in &timing.cores {
        let mut vms = Vec::new();
        for entity in core.schedule.entities() {
            let polls = closest_polling(timing, entity);
            match supply_on(timing, core, entity, polls) {
                Ok(supply) => {
                    let guaranteed = supply.linear();
                    if guaranteed.is_none() && !has_task(timing, core, entity) {
                        without.push((core, entity));
                    }
                    vms.push(VmSupply {
                        name: entity.name(timing).to_owned(),
                        share: guaranteed.map(share),
                        delay_ns: guaranteed.map(|guaranteed| guaranteed.delay.0),
                    });
                }
                Err(fault) => {
                    faults.push(fault);
                    break;
                }
            }
        }
        time.cores.push(CoreSupply { id: core.id, vms });
        time.notes.extend(taken_off(timing, core));
        time.missing.extend(no_switch(timing, core));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    for vm in 0..timing.vms.len() {
        tasks_of(timing, vm, (None, true), &mut time).map_err(|fault| vec![fault])?;
    }
    // After the tasks, whose causes come in the order of the tasks.
    for (core, entity) in without {
        nothing_for(timing, core, entity, &mut time);
    }
    for line in &timing.lines {
        interrupt_of(timing, line, &mut time);
    }
    Ok(Some(time.judged()))
}

/// Judges the deadline of an interrupt: from its arrival until its VM has the core.
fn interrupt_of(timing: &Timing, line: &Line, time: &mut TimeReport) {
    let (Some(deadline), Some(vm)) = (line.deadline, timing.vms.get(line.vm)) else { return };
    let (wait, late) = match wait_for_core(timing, line, deadline) {
        Ok(wait) => (Some(wait), None),
        Err((wait, late)) => (wait, Some(late)),
    };
    let verdict = match late {
        None => {
            if line.admission.is_some() {
                time.notes.push(format!(
                    "{}: interrupt {} keeps its deadline while it comes no more often than its `rate`",
                    vm.name, line.name
                ));
            }
            Verdict::Holds
        }
        Some(Late::Open(missing)) => {
            time.missing.push(missing);
            Verdict::NotJudged
        }
        Some(Late::Refuted(reason, suggestion)) => {
            let reason = format!("{}: interrupt {} {reason}", vm.name, line.name);
            time.refute(timing, &line.place, reason, Some(suggestion));
            Verdict::DoesNotHold
        }
    };
    time.interrupts.push(InterruptBound {
        vm: vm.name.clone(),
        interrupt: line.name.clone(),
        wait_ns: wait,
        deadline_ns: deadline.0,
        holds: verdict.truth(),
        verdict,
    });
}

/// Returns the bound on the wait of an interrupt for a core of its VM, in ns. As the file does not
/// say to which core it comes, it is the greatest of all cores.
///
/// # Errors
///
/// Why the wait may exceed the deadline, with the bound if there is one.
fn wait_for_core(
    timing: &Timing,
    line: &Line,
    deadline: Nanos,
) -> Result<u64, (Option<u64>, Late)> {
    let (vm, entity) = (&timing.vms[line.vm], Entity::Vm(line.vm));
    let open = |reason: &str, supply: &str| {
        Late::Open(Missing {
            what: format!("{}: the deadline of interrupt {}, as {reason}", vm.name, line.name),
            supply: supply.to_owned(),
        })
    };
    let its = |core: &&SharedCore| runs(&core.schedule, entity);
    let mut cores: Vec<_> = vm.cpus.iter().copied().map(Some).collect();
    if cores.is_empty() {
        cores.extend(timing.cores.iter().filter(its).map(|core| Some(core.id)));
    }
    if cores.is_empty() {
        cores.push(None);
    }
    let mut longest = 0;
    for core in cores {
        let shared = timing.cores.iter().filter(its).find(|shared| Some(shared.id) == core);
        let sharing = shared.and_then(|shared| timing.sharing(shared)).unwrap_or_default();
        let cost = cost_of(timing, line, sharing.interrupt.0).unwrap_or(0);
        if cost > deadline.0 {
            let reason = format!("takes {} itself, its deadline is {deadline}", Nanos(cost));
            let suggestion = format!("write a `deadline` of more than {}", Nanos(cost));
            return Err((Some(cost), Late::Refuted(reason, suggestion)));
        }
        if line.class != Class::Dedicated {
            let reason = "only interrupts of devices of one VM alone are analyzed";
            return Err((None, open(reason, "take its `class` or the `deadline` out")));
        }
        if let Some(other) = cause::unlimited(timing, entity, shared) {
            let reason = format!("interrupt {} on its core has no `rate`", other.name);
            return Err((None, open(&reason, "add `rate` to that [[irq]]")));
        }
        let budget = vm.memory_budget.as_ref().is_some_and(|asked| asked.budget.is_some());
        if budget && own::unspent(timing, vm) == 0 {
            let reason = "the VM's own memory budget may suspend it";
            return Err((None, open(reason, "take the budget or the `deadline` out")));
        }
        let supply = supply_for(timing, (line.vm, core), shared, closest_polling(timing, entity))
            .map_err(|fault| {
            let supply = fault.help.as_deref().unwrap_or("correct the schedule");
            (None, open(&fault.message, supply))
        })?;
        // The wait is the response time of a task of 1 ns.
        let moment =
            VmTask { cost: Nanos(1), period: Nanos(1 << 50), jitter: Nanos(0), blocking: Nanos(0) };
        let wait = response_times_beside(&[moment], &supply, &[Some(0)], None, None);
        let Some(wait) = wait.first().copied().flatten() else {
            let cause = shared.and_then(|core| cause::nothing_guaranteed(timing, core, entity));
            let (reason, suggestion) = cause.map_or_else(
                || ("interrupts take its core".to_owned(), "write lower `rate`s".to_owned()),
                |cause| (cause.reason, cause.suggestion),
            );
            return Err((None, Late::Refuted(format!("has no bound: {reason}"), suggestion)));
        };
        longest = longest.max(wait.0);
        if wait > deadline {
            // An interrupt with `preempt` does not wait for the slot of its VM, so this is no
            // proof.
            let late = if line.preempt && shared.is_some() {
                let reason = format!(
                    "the slots of its VM bound its wait by {wait}, and how much `preempt` shortens that is not known"
                );
                open(&reason, &format!("write a `deadline` of {wait} or more"))
            } else {
                let reason = format!("may wait {wait} for the core, its deadline is {deadline}");
                let suggestion = "give its VM shorter slots that come more often";
                Late::Refuted(reason, suggestion.to_owned())
            };
            return Err((Some(wait.0), late));
        }
    }
    Ok(longest)
}

/// Returns whether `entity` has a task on a core. Its response then reports what is wrong there.
fn has_task(timing: &Timing, core: &SharedCore, entity: Entity) -> bool {
    let Entity::Vm(vm) = entity else { return false };
    let Some(vm) = timing.vms.get(vm) else { return false };
    vm.tasks.iter().any(|task| own::core_of(vm, task).is_none_or(|its| its == core.id))
}

/// Reports that no time of a core is guaranteed to `entity`. A flow of `entity` does not hold then;
/// without one, the file does not say what time `entity` needs, so it is not judged.
fn nothing_for(timing: &Timing, core: &SharedCore, entity: Entity, time: &mut TimeReport) {
    let Some(Cause { place, reason, suggestion }) = cause::nothing_guaranteed(timing, core, entity)
    else {
        return;
    };
    let name = entity.name(timing);
    let what = format!("core {}: no time is guaranteed to {name}: {reason}", core.id);
    let at = timing.location(&place);
    match flow_at(timing, core, entity) {
        Some(flow) => {
            let reason = format!("{what}: its flow {flow} needs it");
            time.refute(timing, &place, reason, Some(suggestion));
        }
        None => time.missing.push(Missing { what: format!("{what} ({at})"), supply: suggestion }),
    }
}

/// Returns a flow with a deadline that `entity` sends, receives or copies on a core.
fn flow_at<'a>(timing: &'a Timing, core: &SharedCore, entity: Entity) -> Option<&'a str> {
    let is_here = match entity {
        Entity::Vm(vm) => timing.vms.get(vm)?.cpus.first().is_none_or(|first| *first == core.id),
        Entity::Broker => true,
    };
    let is_its = |flow: &&Flow| match entity {
        Entity::Vm(vm) => flow.from == vm || flow.to.contains(&vm),
        Entity::Broker => true,
    };
    let mut timed = timing.flows.iter().filter(|flow| is_here && !flow.best_effort);
    timed.find(is_its).map(|flow| flow.name.as_str())
}

/// Returns the supply of each VM on shared cores; none if no core is shared.
#[must_use]
pub fn supplies(timing: &Timing) -> Option<TimeReport> {
    let mut timing = timing.clone();
    timing.vms.iter_mut().for_each(|vm| vm.tasks.clear());
    timing.lines.iter_mut().for_each(|line| line.deadline = None);
    analyze(&timing).ok().flatten()
}

/// Analyzes the tasks of one VM at DMA bandwidth `tried` if the file has none. With `explain` it
/// finds causes of missing bounds, which takes as long as many analyses.
///
/// # Errors
///
/// What keeps them from being analyzed.
pub fn tasks(
    timing: &Timing,
    vm: usize,
    tried: Option<crate::BytesPerSec>,
    explain: bool,
) -> Result<TimeReport, Fault> {
    let mut time = TimeReport::default();
    tasks_of(timing, vm, (tried, explain), &mut time)?;
    Ok(time.judged())
}

/// Returns the greatest share of a core that EL2's polls of the counter page take, for each VM
/// whose budget the counter page counts.
pub fn polling_shares(timing: &Timing) -> Vec<String> {
    let of = |(position, vm): (usize, &TimedVm)| {
        let (polls, period) = polled(timing, position)?;
        let Polling { cost, .. } = polls;
        let every = polls.apart(own::unspent(timing, vm), period);
        let percent = |polls: u128, interval: Nanos| {
            (u128::from(cost.0) * 100 * polls).div_ceil(interval.0.max(1).into())
        };
        let most = (percent(1, every) + percent(2, period)).min(100);
        // With a measured table, polls are no rarer than in the measurement.
        let suggestion = if timing.saturation.is_some() { "" } else { "`poll` or " };
        Some(format!(
            "{}: EL2's polls of the counter page take up to {most} % of each of its cores, {cost} every {every} if little is left of the budget; {suggestion}a larger budget makes them rarer",
            vm.name
        ))
    };
    timing.vms.iter().enumerate().filter_map(of).collect()
}

/// Returns the suggestion for late tasks with these `accesses` if the `closest` polls of the
/// counter page are in their responses because `accesses` are missing.
fn suggestion_for(vm: &TimedVm, accesses: &[Option<u64>], closest: bool) -> Option<&'static str> {
    let parted = vm.memory_budget.as_ref().is_none_or(MemoryBudget::has_parts);
    (closest && parted && accesses.contains(&None)).then_some(ADD)
}

/// Returns why a task is late.
fn late(row: &TaskBound, cause: Option<&Cause>) -> Option<String> {
    match row.response_ns {
        None => Some(cause.map_or("has no bound on its response".to_owned(), |cause| {
            format!("has no bound: {}", cause.reason)
        })),
        Some(response) if response > row.deadline_ns => {
            Some(format!("may take {response} ns, its deadline is {} ns", row.deadline_ns))
        }
        Some(_) => None,
    }
}

/// Returns why a task has no bound on a core with `supply`, if it and the tasks before it need the
/// share `asked`. `bounded` tells whether it has a bound in another file.
fn no_bound(
    timing: &Timing,
    (vm, shared): (usize, Option<&SharedCore>),
    (task, asked, supply): (&Task, f64, &Supply),
    suggestion: Option<&'static str>,
    bounded: impl Fn(&Timing) -> bool,
) -> Option<Cause> {
    let entity = Entity::Vm(vm);
    let nothing = || cause::nothing_guaranteed(timing, shared?, entity);
    let cause = cause::by_interrupt(timing, entity, shared, bounded).or_else(nothing);
    cause.or_else(|| {
        let guaranteed = supply.linear().map_or(0.0, share);
        (asked > guaranteed).then(|| Cause {
            place: task.place.clone(),
            reason: format!(
                "{:.1} % of its core are guaranteed, and the VM's tasks up to this one need {:.1} %",
                (guaranteed * 1000.0).floor() / 10.0,
                (asked * 1000.0).ceil() / 10.0,
            ),
            suggestion: suggestion.unwrap_or(MORE_TIME).to_owned(),
        })
    })
}

/// Returns why a task has no bound on a core with enough time: the VM's own memory budget, or
/// accesses of others. `unsuspended` and `alone` tell whether it has a bound without either.
fn delayed(
    timing: &Timing,
    vm: usize,
    task: &Task,
    unsuspended: impl FnOnce() -> bool,
    alone: impl FnOnce() -> bool,
) -> Option<Cause> {
    let this = timing.vms.get(vm)?;
    let (reason, suggestion) = if unsuspended() {
        let reason =
            "the VM's tasks spend its own memory budget, and the suspensions leave no bound";
        (reason.to_owned(), "write a larger budget".to_owned())
    } else {
        let free = |(position, other): &(usize, &TimedVm)| {
            other.memory_budget.as_ref().is_none_or(|asked| asked.refills().is_none())
                && (*position != vm || vcpus(other) > 1)
        };
        let free: Vec<_> = timing.vms.iter().enumerate().filter(free).collect();
        let who = if vcpus(this) > 1 { "others, also of its VM's other cores," } else { "others" };
        let mut reason = format!("the accesses of {who} delay its own without a bound");
        if !alone() {
            reason.push_str(", and its VM's own memory budget suspends it");
        }
        let names: Vec<_> = free.iter().map(|(_, other)| other.name.as_str()).collect();
        let suggestion = match names.as_slice() {
            [] => "lower the others' budgets, or the task's `accesses`".to_owned(),
            names => {
                format!("give {} a `memory_budget` with a budget of refills", names.join(", "))
            }
        };
        (reason, suggestion)
    };
    Some(Cause { place: task.place.clone(), reason, suggestion })
}

/// Returns the cause that the VM's cores copy the flow at position `flow` without a limit.
fn unpaced(timing: &Timing, flow: Option<usize>, task: &Task) -> Option<Cause> {
    let flow = &timing.flows.get(flow?)?.name;
    Some(Cause {
        place: task.place.clone(),
        reason: format!("its VM's cores copy the flow {flow}, whose rate has no limit"),
        suggestion: PACE.to_owned(),
    })
}

fn load_of(tasks: &[&Task]) -> Vec<VmTask> {
    let load = |task: &&Task| VmTask {
        cost: task.cost,
        period: task.period,
        jitter: task.jitter,
        blocking: task.blocking,
    };
    tasks.iter().map(load).collect()
}

/// Adds the tasks of a VM to a report.
fn tasks_of(
    timing: &Timing,
    vm: usize,
    (tried, explain): (Option<crate::BytesPerSec>, bool),
    time: &mut TimeReport,
) -> Result<(), Fault> {
    let this = &timing.vms[vm];
    let core_of = |task: &Task| own::core_of(this, task);
    let mut cores: Vec<_> = this.tasks.iter().map(core_of).collect();
    cores.sort_unstable();
    cores.dedup();
    let beside = interference(timing, vm, tried);
    // The file does not say which core copies, so each may.
    let copying = Copying::by(timing, vm, tried.map(|rate| rate.0));
    let copies = copying.tasks.len();
    let asked_by_copies: f64 =
        copying.tasks.iter().map(|copy| part(copy.cost.0, copy.period.0)).sum();
    time.memory_interference |= beside.as_ref().is_some_and(|beside| beside.delay.0 > 0);
    let mut missing = Vec::new();
    if beside.is_none() && !this.tasks.is_empty() && is_exposed(timing, vm) {
        missing.push(no_delay(timing, &this.name));
    }
    let (mut unknown, mut waits, mut looked) = (false, false, false);
    for core in cores {
        let tasks: Vec<_> = this.tasks.iter().filter(|task| core_of(task) == core).collect();
        let shared = timing.cores.iter().find(|shared| {
            core.is_none_or(|core| core == shared.id) && runs(&shared.schedule, Entity::Vm(vm))
        });
        let left = own::left(timing, this, core);
        let polls = polling(timing, vm, left);
        looked |= !polls.is_empty();
        let supply = supply_for(timing, (vm, core), shared, polls.clone())?;
        let load: Vec<VmTask> = copying.tasks.iter().copied().chain(load_of(&tasks)).collect();
        // The bandwidth of a copy contains the delay of its accesses.
        let own_accesses = tasks.iter().map(|task| task.accesses);
        let accesses: Vec<Option<u64>> =
            std::iter::repeat_n(Some(0), copies).chain(own_accesses).collect();
        let back = shared.map_or(Nanos(0), |core| back(timing, core));
        let own = match own::on_core(timing, this, core, back) {
            Own::Enough => None,
            Own::Unknown => {
                unknown = true;
                missing.push(no_accesses(this));
                None
            }
            Own::Waits(own) => {
                waits = true;
                Some(own)
            }
        };
        let times = |load: &[VmTask], supply: &Supply| {
            response_times_beside(load, supply, &accesses, beside.as_ref(), own.as_ref())
        };
        let mut asked = asked_by_copies;
        let responses = times(&load, &supply).into_iter().enumerate().skip(copies);
        for (task, (place, response)) in tasks.iter().zip(responses) {
            asked += part(task.cost.0, task.period.0);
            // Tasks of lower priority matter to a task that they can block.
            let those = if task.blocking.0 == 0 { &load[..=place] } else { &load[..] };
            let response = response.filter(|_| copying.unlimited.is_none());
            let mut row = TaskBound::new(this, task, response, !missing.is_empty());
            let bounded = |tried: &Timing| {
                let supply = supply_for(tried, (vm, core), shared, polls.clone());
                // If more is needed than guaranteed, the search for a bound would take long.
                supply.is_ok_and(|supply| {
                    supply.linear().is_some_and(|guaranteed| share(guaranteed) > asked)
                        && times(those, &supply).get(place).copied().flatten().is_some()
                })
            };
            let suggestion = suggestion_for(this, &accesses, looked && left == 0);
            let suggestion = suggestion.or((copies > 0).then_some(COPY));
            let without = |beside, own| {
                let times = response_times_beside(those, &supply, &accesses, beside, own);
                times.get(place).copied().flatten().is_some()
            };
            let unsuspended = || without(beside.as_ref(), None);
            let alone = || without(None, own.as_ref());
            let cause = unpaced(timing, copying.unlimited, task).or_else(|| {
                if response.is_some() || !explain {
                    return None;
                }
                no_bound(timing, (vm, shared), (task, asked, &supply), suggestion, bounded)
                    .or_else(|| delayed(timing, vm, task, unsuspended, alone))
            });
            row.cause = late(&row, cause.as_ref())
                .map(|reason| format!("{}: {} {reason}", row.vm, row.name));
            let (place, suggestion) = if let Some(cause) = cause {
                (cause.place, Some(cause.suggestion))
            } else {
                let longer = response.map(|time| format!("write a `deadline` of {time} or more"));
                (task.place.clone(), suggestion.map(str::to_owned).or(longer))
            };
            if let Some(cause) = row.cause.clone() {
                time.refute(timing, &place, cause, suggestion);
            }
            time.tasks.push(row);
        }
    }
    time.notes.extend(notes(&this.name, [copies > 0, unknown, looked, waits]));
    missing.dedup();
    time.missing.extend(missing);
    Ok(())
}

/// Returns the missing delay by accesses of other VMs.
fn no_delay(timing: &Timing, name: &str) -> Missing {
    Missing {
        what: format!(
            "{name}: the response times contain no memory accesses of other VMs, as the delay by one is not known for {}",
            platform_name(timing)
        ),
        supply: "add `delay` to [saturation], or name a platform whose file has [interference]"
            .to_owned(),
    }
}

/// Returns the missing number of accesses of tasks that spend the VM's budget.
fn no_accesses(vm: &TimedVm) -> Missing {
    let counts = vm.memory_budget.as_ref().is_some_and(|asked| asked.refills().is_some());
    let (what, supply) = if counts {
        ("the `accesses` of its tasks are not known", "add `accesses` to each of its [[vm.task]]")
    } else {
        ("its budget does not count refills", "write a budget of refills")
    };
    Missing {
        what: format!(
            "{}: whether its tasks wait for its own budget is not known, as {what}",
            vm.name
        ),
        supply: supply.to_owned(),
    }
}

/// Returns notes on the responses of the VM `name`: it copies flows, its budget is unknown, EL2
/// polls for it, its tasks wait.
fn notes(name: &str, hold: [bool; 4]) -> impl Iterator<Item = String> {
    let notes = [
        "the responses contain the flows that its cores copy, at a higher priority than its tasks",
        "its own budget counts as sufficient for its tasks, whose `accesses` are not known",
        "the responses contain EL2's polls of the counter page for its budget",
        "the responses contain the waits of its tasks for a replenishment of its own budget",
    ];
    let holding = notes.into_iter().zip(hold).filter(|(_, holds)| *holds);
    holding.map(move |(note, _)| format!("{name}: {note}"))
}

impl TimeReport {
    /// Sets the verdict, once all parts are known.
    fn judged(mut self) -> Self {
        self.verdict = self.judgement().verdict();
        self.holds = self.verdict.truth();
        self
    }

    /// Returns the verdict on all schedules, tasks and interrupts, with the missing inputs.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        let missing = self.missing.iter().cloned().map(Judgement::from);
        missing.fold(Judgement::of(self.causes.is_empty()), Judgement::and)
    }

    /// Returns the tasks that are late or have no bound.
    pub fn late(&self) -> impl Iterator<Item = &TaskBound> {
        self.tasks.iter().filter(|task| task.cause.is_some())
    }

    fn refute(
        &mut self,
        timing: &Timing,
        place: &Place,
        reason: String,
        suggestion: Option<String>,
    ) {
        let suggestion = suggestion.unwrap_or_else(|| MORE_TIME.to_owned());
        self.causes.push(timing.fault(Code::TaskDeadlineMissed, place, reason, suggestion));
    }
}
