//! Schedules, tasks and interrupts: the supply of shared cores, response-time bounds with
//! interrupts and memory accesses of other VMs, and bounds on the wait of interrupts.

mod interference;
mod interrupts;
mod report;

use super::{
    cause::{self, Cause},
    own_budget::{self as own, Own},
    regulation::vcpus,
    supply::{
        back, closest_polling, part, polled, polling, runs, share, supply_for, supply_on, switches,
        unshared,
    },
};
use crate::{
    Nanos,
    time::{Supply, response_times},
    verdict::Missing,
};
use interference::{interference, is_exposed};
use interrupts::interrupt_of;
use report::{LESS_WORK, MORE_TIME};
use weir_model::{
    Fault, Object, Polling, System, Vm,
    timing::{Entity, Flow, MemoryBudget, SharedCore, Task, TimedLine},
};

pub use report::{CoreSupply, InterruptBound, TaskBound, TimeReport, VmSupply};

/// The suggestion if the closest polls of the counter page are in the responses.
const ADD: &str = "add `accesses` to each of its tasks: without them, the polls of the counter \
                   page count as if little were left of the budget";

/// Returns the missing cost of a switch on a shared core.
fn no_switch(system: &System, core: &SharedCore) -> Option<Missing> {
    (system.sharing(core).is_none() && switches(&core.schedule)).then(|| Missing {
        what: format!(
            "core {}: the cost of a switch is not known for {}, so that none is subtracted",
            core.id,
            platform_name(system)
        ),
        supply: "add `switch` to the schedule: the maximum of `vcpu_switch` that `weir bench \
                 hypervisor` prints"
            .to_owned(),
    })
}

/// Returns notes on what is subtracted from the supply of a shared core.
fn taken_off(system: &System, core: &SharedCore) -> Vec<String> {
    let id = core.id;
    let here: Vec<_> = core.schedule.entities();
    let mut notes = Vec::new();
    match system.sharing(core) {
        Some(sharing) if switches(&core.schedule) => {
            let events = match sharing.interrupt.0 {
                0 => String::new(),
                _ => format!(", and {} once per slot of a VM for its events", sharing.interrupt),
            };
            let switch = sharing.switch;
            notes.push(format!("core {id}: the supply is less up to {switch} per switch{events}"));
        }
        _ => {}
    }
    let known = system.sharing(core).map_or(0, |sharing| sharing.interrupt.0);
    for entity in here {
        let Entity::Vm(vm) = entity else { continue };
        let small = |line: &&TimedLine| line.vm == vm && (1..known).contains(&line.wcet.0);
        for line in system.lines.iter().filter(small) {
            let platform = system.platform.as_ref().map_or("the platform", |known| &known.name);
            notes.push(format!(
                "core {id}: interrupt {} of {} counts as {}, its `wcet` ({}), which is less than \
                 the {} of one on {platform}; leave `wcet` out",
                line.name,
                entity.title(system),
                line.wcet,
                system.location(&line.place),
                Nanos(known),
            ));
        }
        let lines: Vec<_> = system.unruled(vm).iter().map(ToString::to_string).collect();
        if !lines.is_empty() {
            notes.push(format!(
                "core {id}: interrupt {} of {} has no [[irq]]: it counts once per slot, and its \
                 handler is part of the VM's tasks",
                lines.join(", "),
                entity.title(system)
            ));
        }
    }
    notes
}

/// The platform as a message names it.
fn platform_name(system: &System) -> &str {
    system.platform.as_ref().map_or("the board (the file names no platform)", |known| &known.name)
}

/// Analyzes the schedules and tasks of a file, if it has some.
///
/// # Errors
///
/// The faults that prevent the analysis.
pub fn analyze(system: &System) -> Result<Option<TimeReport>, Vec<Fault>> {
    let unshared = |core: u64| {
        let vm = system.guests().iter().position(|vm| vm.is_on(core))?;
        unshared(system, Entity::Vm(vm), Some(core))
    };
    let open: Vec<Fault> = system.open_cores().into_iter().filter_map(unshared).collect();
    if !open.is_empty() {
        return Err(open);
    }
    let idle = system.guests().iter().all(|vm| vm.tasks.is_empty());
    if system.cores.is_empty() && idle && system.lines.iter().all(|line| line.deadline.is_none()) {
        return Ok(None);
    }
    let mut faults = Vec::new();
    let mut time = TimeReport::default();
    let mut without = Vec::new();
    for core in &system.cores {
        let mut vms = Vec::new();
        for entity in core.schedule.entities() {
            let polls = closest_polling(system, entity);
            match supply_on(system, core, entity, polls) {
                Ok(supply) => {
                    let guaranteed = supply.linear();
                    if guaranteed.is_none() && !has_task(system, core, entity) {
                        without.push((core, entity));
                    }
                    vms.push(VmSupply {
                        name: entity.name(system).to_owned(),
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
        time.notes.extend(taken_off(system, core));
        time.missing.extend(no_switch(system, core));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    for vm in 0..system.guests().len() {
        tasks_of(system, vm, (None, true), &mut time).map_err(|fault| vec![fault])?;
    }
    // After the tasks: their causes come in the order of the tasks.
    for (core, entity) in without {
        nothing_for(system, core, entity, &mut time);
    }
    for line in &system.lines {
        interrupt_of(system, line, &mut time);
    }
    Ok(Some(time.judged()))
}

/// Returns whether `entity` has a task on a core. Its response then reports what is wrong there.
fn has_task(system: &System, core: &SharedCore, entity: Entity) -> bool {
    let Entity::Vm(vm) = entity else { return false };
    let Some(vm) = system.guests().get(vm) else { return false };
    vm.tasks.iter().any(|task| own::core_of(vm, task).is_none_or(|its| its == core.id))
}

/// Reports that no time of a core is guaranteed to `entity`. A flow of `entity` does not hold then;
/// without a flow, the file does not state the time that `entity` needs, so it is not judged.
fn nothing_for(system: &System, core: &SharedCore, entity: Entity, time: &mut TimeReport) {
    let Some(Cause { place, reason, suggestion }) = cause::nothing_guaranteed(system, core, entity)
    else {
        return;
    };
    let name = entity.title(system);
    let what = format!("core {}: no time is guaranteed to {name}: {reason}", core.id);
    let at = system.location(&place);
    match flow_at(system, core, entity) {
        Some(flow) => {
            let reason = format!("{what}: its {} needs it", Object::flow(flow));
            time.refute(system, &place, reason, Some(suggestion));
        }
        None => time.missing.push(Missing { what: format!("{what} ({at})"), supply: suggestion }),
    }
}

/// Returns a flow with a deadline that `entity` sends, receives or copies on a core.
fn flow_at<'a>(system: &'a System, core: &SharedCore, entity: Entity) -> Option<&'a str> {
    let is_here = match entity {
        Entity::Vm(vm) => {
            system.guests().get(vm)?.first_core().is_none_or(|first| first == core.id)
        }
        Entity::Broker => true,
    };
    let is_its = |flow: &&Flow| match entity {
        Entity::Vm(vm) => flow.ends_at(vm),
        Entity::Broker => true,
    };
    let mut timed = system.flows.iter().filter(|flow| is_here && !flow.best_effort);
    timed.find(is_its).map(|flow| flow.name.as_str())
}

/// Returns the supply of each VM on shared cores; none if no core is shared.
#[must_use]
pub fn supplies(system: &System) -> Option<TimeReport> {
    let mut system = system.clone();
    system.vms.iter_mut().for_each(|vm| vm.tasks.clear());
    system.lines.iter_mut().for_each(|line| line.deadline = None);
    times(&system)
}

/// Returns the bounds on tasks and interrupts; none if there are none, or a fault prevents the
/// analysis.
#[must_use]
pub fn times(system: &System) -> Option<TimeReport> {
    analyze(system).ok().flatten()
}

/// Analyzes the tasks of one VM at DMA bandwidth `tried` if the file has none. With `explain` it
/// finds causes of missing bounds, which takes as long as many analyses.
///
/// # Errors
///
/// The faults that prevent the analysis.
pub fn tasks(
    system: &System,
    vm: usize,
    tried: Option<crate::BytesPerSec>,
    explain: bool,
) -> Result<TimeReport, Fault> {
    let mut time = TimeReport::default();
    tasks_of(system, vm, (tried, explain), &mut time)?;
    Ok(time.judged())
}

/// Returns the greatest share of a core that EL2's polls of the counter page take, for each VM
/// with a budget that the counter page counts.
pub fn polling_shares(system: &System) -> Vec<String> {
    let of = |(position, vm): (usize, &Vm)| {
        let (polls, period) = polled(system, position)?;
        let Polling { cost, .. } = polls;
        let every = polls.apart(own::unspent(system, vm), period);
        let percent = |polls: u128, interval: Nanos| {
            (u128::from(cost.0) * 100 * polls).div_ceil(interval.0.max(1).into())
        };
        let most = (percent(1, every) + percent(2, period)).min(100);
        // With a measured table, polls are no rarer than in the measurement.
        let suggestion = if system.saturation.is_some() { "" } else { "`poll` or " };
        Some(format!(
            "{vm}: EL2's polls of the counter page take up to {most} % of each of its cores, \
             {cost} every {every} if little is left of the budget; {suggestion}a larger budget \
             makes them rarer"
        ))
    };
    system.guests().iter().enumerate().filter_map(of).collect()
}

/// Returns the suggestion for late tasks with these `accesses` if the `closest` polls of the
/// counter page are in their responses because `accesses` are missing.
fn suggestion_for(vm: &Vm, tasks: &[Task], closest: bool) -> Option<&'static str> {
    let parted = vm.memory_budget.as_ref().is_none_or(MemoryBudget::has_parts);
    (closest && parted && tasks.iter().any(|task| task.accesses.is_none())).then_some(ADD)
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
/// share `asked`. `bounded` returns whether it has a bound in another file.
fn no_bound(
    system: &System,
    (vm, shared): (usize, Option<&SharedCore>),
    (task, asked, supply): (&Task, f64, &Supply),
    suggestion: Option<&'static str>,
    bounded: impl Fn(&System) -> bool,
) -> Option<Cause> {
    let entity = Entity::Vm(vm);
    let nothing = || cause::nothing_guaranteed(system, shared?, entity);
    let cause = cause::by_interrupt(system, entity, shared, bounded).or_else(nothing);
    cause.or_else(|| {
        let guaranteed = supply.linear().map_or(0.0, share);
        (asked > guaranteed).then(|| Cause {
            place: task.place.clone(),
            reason: format!(
                "{:.1} % of its core are guaranteed, and the VM's tasks up to this one need {:.1} \
                 %",
                (guaranteed * 1000.0).floor() / 10.0,
                (asked * 1000.0).ceil() / 10.0,
            ),
            suggestion: if asked > 1.0 { LESS_WORK } else { suggestion.unwrap_or(MORE_TIME) }
                .to_owned(),
        })
    })
}

/// Returns why a task has no bound on a core with enough time: the VM's own memory budget, or
/// accesses of others. `unsuspended` and `alone` return whether it has a bound without either.
fn delayed(
    system: &System,
    vm: usize,
    task: &Task,
    unsuspended: impl FnOnce() -> bool,
    alone: impl FnOnce() -> bool,
) -> Option<Cause> {
    let this = system.guests().get(vm)?;
    let (reason, suggestion) = if unsuspended() {
        let reason =
            "the VM's tasks spend its own memory budget, and the suspensions leave no bound";
        (reason.to_owned(), "write a larger budget".to_owned())
    } else {
        let free = |(position, other): &(usize, &Vm)| {
            other.memory_budget.as_ref().is_none_or(|asked| asked.refills().is_none())
                && (*position != vm || vcpus(other) > 1)
        };
        let free: Vec<_> = system.guests().iter().enumerate().filter(free).collect();
        let others =
            if vcpus(this) > 1 { "others, also of its VM's other cores," } else { "others" };
        let mut reason = format!("the accesses of {others} delay its own without a bound");
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

/// Adds the tasks of a VM to a report.
fn tasks_of(
    system: &System,
    vm: usize,
    (tried, explain): (Option<crate::BytesPerSec>, bool),
    time: &mut TimeReport,
) -> Result<(), Fault> {
    let this = &system.guests()[vm];
    let core_of = |task: &Task| own::core_of(this, task);
    let mut cores: Vec<_> = this.tasks.iter().map(core_of).collect();
    cores.sort_unstable();
    cores.dedup();
    let delays = interference(system, vm, tried);
    time.memory_interference |= delays.as_ref().is_some_and(|delays| delays.delay.0 > 0);
    let mut missing = Vec::new();
    if delays.is_none() && !this.tasks.is_empty() && is_exposed(system, vm) {
        missing.push(no_delay(system, this));
    }
    let (mut unknown, mut waits, mut polled) = (false, false, false);
    for core in cores {
        let tasks = this.tasks.iter().filter(|task| core_of(task) == core);
        let tasks: Vec<_> = tasks.cloned().collect();
        let shared = system.cores.iter().find(|shared| {
            core.is_none_or(|core| core == shared.id) && runs(&shared.schedule, Entity::Vm(vm))
        });
        let left = own::left(system, this, core);
        let polls = polling(system, vm, left);
        polled |= !polls.is_empty();
        let supply = supply_for(system, (vm, core), shared, polls.clone())?;
        let back = shared.map_or(Nanos(0), |core| back(system, core));
        let own = match own::on_core(system, this, core, back) {
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
        let times = |tasks: &[Task], supply: &Supply| {
            response_times(tasks, supply, delays.as_ref(), own.as_ref())
        };
        let mut asked = 0.0;
        let responses = times(&tasks, &supply).into_iter().enumerate();
        for (task, (place, response)) in tasks.iter().zip(responses) {
            asked += part(task.wcet.0, task.period.0);
            // Tasks of lower priority matter to a task that they can block.
            let those = if task.blocking.0 == 0 { &tasks[..=place] } else { &tasks[..] };
            let mut row = TaskBound::new(this, task, response, !missing.is_empty());
            let bounded = |tried: &System| {
                let supply = supply_for(tried, (vm, core), shared, polls.clone());
                // If more is needed than guaranteed, the search for a bound would take long.
                supply.is_ok_and(|supply| {
                    supply.linear().is_some_and(|guaranteed| share(guaranteed) > asked)
                        && times(those, &supply).get(place).copied().flatten().is_some()
                })
            };
            let suggestion = suggestion_for(this, &tasks, polled && left == 0);
            let without = |delays, own| {
                let times = response_times(those, &supply, delays, own);
                times.get(place).copied().flatten().is_some()
            };
            let unsuspended = || without(delays.as_ref(), None);
            let alone = || without(None, own.as_ref());
            let cause = if response.is_some() || !explain {
                None
            } else {
                no_bound(system, (vm, shared), (task, asked, &supply), suggestion, bounded)
                    .or_else(|| delayed(system, vm, task, unsuspended, alone))
            };
            row.cause = late(&row, cause.as_ref())
                .map(|reason| format!("{}: {reason}", Object::task(&row.name, &row.vm)));
            let (place, suggestion) = if let Some(cause) = cause {
                (cause.place, Some(cause.suggestion))
            } else {
                let longer = response.map(|time| format!("write a `deadline` of {time} or more"));
                (task.place.clone(), suggestion.map(str::to_owned).or(longer))
            };
            if let Some(cause) = row.cause.clone() {
                time.refute(system, &place, cause, suggestion);
            }
            time.tasks.push(row);
        }
    }
    time.notes.extend(notes(this, [unknown, polled, waits]));
    missing.dedup();
    time.missing.extend(missing);
    Ok(())
}

/// Returns the missing delay by accesses of other VMs.
fn no_delay(system: &System, vm: &Vm) -> Missing {
    Missing {
        what: format!(
            "{vm}: the response times contain no memory accesses of other VMs, as the delay by one \
             is not known for {}",
            platform_name(system)
        ),
        supply:
            "add `delay` to [saturation], or name a platform with a file that has [interference]"
                .to_owned(),
    }
}

/// Returns the missing number of accesses of tasks that spend the VM's budget.
fn no_accesses(vm: &Vm) -> Missing {
    let counts = vm.memory_budget.as_ref().is_some_and(|asked| asked.refills().is_some());
    let (what, supply) = if counts {
        ("the `accesses` of its tasks are not known", "add `accesses` to each of its [[vm.task]]")
    } else {
        ("its budget does not count refills", "write a budget of refills")
    };
    Missing {
        what: format!("{vm}: whether its tasks wait for its own budget is not known, as {what}"),
        supply: supply.to_owned(),
    }
}

/// Returns notes on the responses of a VM: its budget is unknown, EL2 polls for it, its tasks
/// wait.
fn notes(vm: &Vm, hold: [bool; 3]) -> impl Iterator<Item = String> {
    let notes = [
        "its own budget counts as sufficient for its tasks, but their `accesses` are not known",
        "the responses contain EL2's polls of the counter page for its budget",
        "the responses contain the waits of its tasks for a replenishment of its own budget",
    ];
    let holding = notes.into_iter().zip(hold).filter(|(_, holds)| *holds);
    holding.map(move |(note, _)| format!("{vm}: {note}"))
}
