//! Causes of missing time: an interrupt that takes a core, or switches that take whole slots.

use super::supply::{closest_polling, core_of_flows, cost_of, guaranteed, runs, vm_schedule};
use crate::Nanos;
use crate::time::Supply;
use weir_model::System;
use weir_model::timing::Entity;
use weir_model::timing::FilePlace;
use weir_model::timing::Schedule;
use weir_model::timing::SharedCore;
use weir_model::timing::TimedLine;

/// Why no time is guaranteed, or a bound does not exist.
#[derive(Debug)]
pub struct Cause {
    /// The place of what must change.
    pub place: FilePlace,
    /// The reason, in words that follow a colon.
    pub reason: String,
    /// The suggested change.
    pub suggestion: String,
}

/// Interrupts per second of an interrupt without a `rate`: more than a device can raise.
const UNLIMITED: u64 = 1_000_000_000;

/// Returns an interrupt without a `rate` that takes time of `entity` on its core, which is `shared`
/// or dedicated: an interrupt of `entity`, or one that preempts it.
pub fn unlimited<'a>(
    system: &'a System,
    entity: Entity,
    shared: Option<&SharedCore>,
) -> Option<&'a TimedLine> {
    let takes = |line: &TimedLine| {
        Entity::Vm(line.vm) == entity
            || shared.is_some_and(|core| {
                line.preempt
                    && runs(&core.schedule, Entity::Vm(line.vm))
                    && !matches!(core.schedule, Schedule::FixedPriority { .. })
            })
    };
    system.lines.iter().find(|line| line.admission.is_none() && takes(line))
}

/// Returns the interrupt that keeps the file from being `good`: one without a `rate` that takes time
/// of `entity`, else the one that takes most, if the file is good with all of them rare. `shared` is
/// the core in question, or none if it is dedicated to `entity`.
pub fn by_interrupt(
    system: &System,
    entity: Entity,
    shared: Option<&SharedCore>,
    good: impl Fn(&System) -> bool,
) -> Option<Cause> {
    let known = shared.and_then(|core| system.sharing(core)).map_or(0, |its| its.interrupt.0);
    let cost = |line: &TimedLine| cost_of(system, line, known).unwrap_or(0);
    let mut seldom = system.clone();
    for line in &mut seldom.lines {
        line.admission = Some((1, 1));
    }
    if !good(&seldom) {
        return None;
    }
    let taken = |line: &&TimedLine| {
        let rate = line.admission.map_or(UNLIMITED, |(rate, _)| rate);
        u128::from(rate) * u128::from(cost(line))
    };
    let line =
        unlimited(system, entity, shared).or_else(|| system.lines.iter().max_by_key(taken))?;
    let name = format!("{}, on its core,", system.interrupt(line));
    let (reason, suggestion) = match line.admission {
        None => (
            format!("{name} has no `rate`"),
            "add `rate` to this [[irq]], the greatest number of interrupts per second",
        ),
        Some((rate, _)) => {
            let slot = if line.preempt { ", and with `preempt` the slot of its VM" } else { "" };
            let cost = Nanos(cost(line));
            let reason =
                format!("{name} may come {rate} times per second and takes {cost} each time{slot}");
            (reason, "write a lower `rate`")
        }
    };
    Some(Cause { place: line.place.clone(), reason, suggestion: suggestion.to_owned() })
}

/// Returns why no time is guaranteed to `entity` on a shared core; none if some is.
pub fn nothing_guaranteed(system: &System, core: &SharedCore, entity: Entity) -> Option<Cause> {
    let holds = |system: &System| {
        guaranteed(system, core, entity, closest_polling(system, entity)).is_some()
    };
    if holds(system) {
        return None;
    }
    let short = switches_take_all(system, core, entity);
    let line = || by_interrupt(system, entity, Some(core), holds);
    let by_line = if short { None } else { line() };
    by_line.or_else(|| Some(too_short(system, core, entity)))
}

/// Returns whether switches alone take all slots of `entity`.
fn switches_take_all(system: &System, core: &SharedCore, entity: Entity) -> bool {
    let alone = vm_schedule(system, core, entity).ok();
    let alone = alone.and_then(|schedule| Supply::new(schedule, Vec::new()).ok());
    alone.is_some_and(|supply| supply.linear().is_none())
}

/// Returns the cause that switches, and the work of EL2 in a slot, take all slots of `entity`.
fn too_short(system: &System, core: &SharedCore, entity: Entity) -> Cause {
    let sharing = system.sharing(core).unwrap_or_default();
    let slots = core.schedule.slots().into_iter().filter(|slot_text| slot_text.0 == entity);
    let longest = slots.map(|slot_text| slot_text.1).max().unwrap_or(Nanos(0));
    let (what, count, suggestion) = match core.schedule {
        Schedule::RoundRobin { .. } => ("time slices", 1, "write a longer `quantum`"),
        Schedule::Table { .. } => ("slots", 2, "write longer slots and a longer `major_frame`"),
        Schedule::FixedPriority { .. } => ("budgets", 2, "write longer budgets and periods"),
    };
    let taken = Nanos(sharing.switch.0.saturating_mul(count));
    let events = if switches_take_all(system, core, entity) {
        // What is left of a budget already contains the interrupts of servers with higher priority.
        let rest = if longest > taken {
            ", and interrupts of servers with higher priority the rest"
        } else {
            ""
        };
        rest.to_owned()
    } else {
        let polls = closest_polling(system, entity);
        let polls = if polls.is_empty() { "" } else { "polls of the counter page and " };
        format!(
            ", and {polls}events of VMs that are off the core, up to {} each, the rest",
            sharing.interrupt
        )
    };
    let reason = format!(
        "the {what} of {longest} of {} are too short: switches take up to {taken} of each{events}",
        entity.title(system)
    );
    Cause { place: core.place.clone(), reason, suggestion: suggestion.to_owned() }
}

/// Returns why no time is guaranteed to a VM or the broker where it moves flows; none if some is,
/// or the core is dedicated.
pub fn why_none(system: &System, entity: Entity) -> Option<Cause> {
    nothing_guaranteed(system, core_of_flows(system, entity)?, entity)
}
