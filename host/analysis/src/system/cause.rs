//! Causes of missing time: an interrupt that takes a core, or switches that take whole slots. Each
//! has one suggestion, which was tried on the file.

use super::supply::{closest_polling, core_of_flows, cost_of, guaranteed, runs, vm_schedule};
use crate::Nanos;
use crate::time::Supply;
use std::cmp::Reverse;
use weir_model::Timing;
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

/// The largest factor that is tried for longer slots or for lower rates.
const LONGER: u64 = 1 << 16;

/// The suggestion if no longer slot is enough.
const NONE_LONGER: &str = "give it longer ones, and each [[irq]] on the core a `rate`";

/// Returns an interrupt without a `rate` that takes time of `entity` on its core, which is `shared`
/// or dedicated: an interrupt of `entity`, or one that preempts it.
pub fn unlimited<'a>(
    timing: &'a Timing,
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
    timing.lines.iter().find(|line| line.admission.is_none() && takes(line))
}

/// Returns the interrupt that keeps the file from being `good`: a single one if its lower `rate` is
/// enough, else one without a `rate`, else all of them together. Of several, the one that takes
/// most comes first. `shared` is the core in question, or none if it is dedicated to `entity`.
pub fn by_interrupt(
    timing: &Timing,
    entity: Entity,
    shared: Option<&SharedCore>,
    good: impl Fn(&Timing) -> bool,
) -> Option<Cause> {
    let known = shared.and_then(|core| timing.sharing(core)).map_or(0, |its| its.interrupt.0);
    let cost = |line: &TimedLine| cost_of(timing, line, known).unwrap_or(0);
    let taken = |place: &usize| {
        let line = &timing.lines[*place];
        let rate = line.admission.map_or(UNLIMITED, |(rate, _)| rate);
        Reverse(u128::from(rate) * u128::from(cost(line)))
    };
    let mut order: Vec<usize> = (0..timing.lines.len()).collect();
    order.sort_by_key(taken);
    let mut tried = timing.clone();
    for place in order {
        let line = &timing.lines[place];
        let (rate, burst) = line.admission.unwrap_or((UNLIMITED, 1));
        let mut holds = |rate: u64| {
            tried.lines[place].admission = Some((rate, burst));
            good(&tried)
        };
        let most = holds(1).then(|| most((1, rate), holds));
        tried.lines[place].admission = line.admission;
        if most.is_some() {
            return Some(blamed(timing, line, Nanos(cost(line)), most));
        }
    }
    if let Some(line) = unlimited(timing, entity, shared) {
        return Some(blamed(timing, line, Nanos(cost(line)), None));
    }
    let is_here = |line: &&TimedLine| {
        let owner = Entity::Vm(line.vm);
        shared.map_or(owner == entity, |core| runs(&core.schedule, owner))
    };
    let rated: Vec<_> = timing.lines.iter().filter(is_here).collect();
    together(timing, &rated, good)
}

/// Returns the cause that interrupts with a `rate` take too much together.
fn together(
    timing: &Timing,
    lines: &[&TimedLine],
    good: impl Fn(&Timing) -> bool,
) -> Option<Cause> {
    let rarer = |times: u64| {
        let mut tried = timing.clone();
        for (rate, _) in tried.lines.iter_mut().filter_map(|line| line.admission.as_mut()) {
            *rate = (*rate / times).max(1);
        }
        good(&tried)
    };
    let times = least_times(rarer)?;
    let names: Vec<_> = lines.iter().map(|line| timing.interrupt(line).to_string()).collect();
    Some(Cause {
        place: lines.first()?.place.clone(),
        reason: format!("{}, on its core, come too often together", names.join(", ")),
        suggestion: format!("write a `rate` for each that is {times} times lower"),
    })
}

/// Returns the least factor from 2 that is good.
fn least_times(is_good: impl Fn(u64) -> bool) -> Option<u64> {
    let good = (1..=LONGER.ilog2()).map(|power| 1 << power).find(|times| is_good(*times))?;
    Some(1 + most((good / 2, good), |times| !is_good(times)))
}

/// Returns the greatest number that `holds`, if the first of the range does and the last does not.
fn most((mut good, mut bad): (u64, u64), mut holds: impl FnMut(u64) -> bool) -> u64 {
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}

/// Returns why an interrupt takes too much, with the greatest rate that does not.
fn blamed(timing: &Timing, line: &TimedLine, cost: Nanos, most: Option<u64>) -> Cause {
    let name = format!("{}, on its core,", timing.interrupt(line));
    let slot_text = if line.preempt { ", and with `preempt` the slot of its VM" } else { "" };
    let (reason, suggestion) = match line.admission {
        None => {
            let most = most.map_or(String::new(), |most| format!(": {most} or less"));
            (
                format!("{name} has no `rate`"),
                format!(
                    "add `rate` to this [[irq]], the greatest number of interrupts per second{most}"
                ),
            )
        }
        Some((rate, _)) => (
            format!(
                "{name} may come {rate} times per second and takes {cost} each time{slot_text}"
            ),
            most.map_or("write a lower `rate`".to_owned(), |most| {
                format!("write rate = {most} or less for this [[irq]]")
            }),
        ),
    };
    Cause { place: line.place.clone(), reason, suggestion }
}

/// Returns why no time is guaranteed to `entity` on a shared core; none if some is.
pub fn nothing_guaranteed(timing: &Timing, core: &SharedCore, entity: Entity) -> Option<Cause> {
    let holds = |timing: &Timing, core: &SharedCore| {
        guaranteed(timing, core, entity, closest_polling(timing, entity)).is_some()
    };
    if holds(timing, core) {
        return None;
    }
    let short = switches_take_all(timing, core, entity);
    let line = || by_interrupt(timing, entity, Some(core), |tried| holds(tried, core));
    let by_line = if short { None } else { line() };
    by_line.or_else(|| Some(too_short(timing, core, entity, holds)))
}

/// Returns whether switches alone take all slots of `entity`.
fn switches_take_all(timing: &Timing, core: &SharedCore, entity: Entity) -> bool {
    let alone = vm_schedule(timing, core, entity).ok();
    let alone = alone.and_then(|schedule| Supply::new(schedule, Vec::new()).ok());
    alone.is_some_and(|supply| supply.linear().is_none())
}

/// Returns the cause that switches, and the work of EL2 in a slot, take all slots of `entity`.
fn too_short(
    timing: &Timing,
    core: &SharedCore,
    entity: Entity,
    holds: impl Fn(&Timing, &SharedCore) -> bool,
) -> Cause {
    let sharing = timing.sharing(core).unwrap_or_default();
    let slots = core.schedule.slots().into_iter().filter(|slot_text| slot_text.0 == entity);
    let longest = slots.map(|slot_text| slot_text.1).max().unwrap_or(Nanos(0));
    let (what, count) = match core.schedule {
        Schedule::RoundRobin { .. } => ("time slices", 1),
        Schedule::Table { .. } => ("slots", 2),
        Schedule::FixedPriority { .. } => ("budgets", 2),
    };
    let taken = Nanos(sharing.switch.0.saturating_mul(count));
    let events = if switches_take_all(timing, core, entity) {
        // What is left of a budget already contains the interrupts of servers with higher priority.
        let rest = if longest > taken {
            ", and interrupts of servers with higher priority the rest"
        } else {
            ""
        };
        rest.to_owned()
    } else {
        let polls = closest_polling(timing, entity);
        let polls = if polls.is_empty() { "" } else { "polls of the counter page and " };
        format!(
            ", and {polls}events of VMs that are off the core, up to {} each, the rest",
            sharing.interrupt
        )
    };
    let reason = format!(
        "the {what} of {longest} of {} are too short: switches take up to {taken} of each{events}",
        entity.title(timing)
    );
    let longer =
        |times: u64| SharedCore { schedule: longer(&core.schedule, times), ..core.clone() };
    let is_enough = |times: u64| holds(timing, &longer(times));
    let suggestion = match (least_times(is_enough), &core.schedule) {
        (None, _) => NONE_LONGER.to_owned(),
        (Some(enough), Schedule::RoundRobin { quantum, .. }) => {
            format!("write quantum = \"{}\"", Nanos(quantum.0.saturating_mul(enough)))
        }
        (Some(enough), Schedule::Table { .. }) => {
            format!("make the slots and the major frame {enough} times as long")
        }
        (Some(enough), Schedule::FixedPriority { .. }) => {
            format!("make all budgets and periods {enough} times as long")
        }
    };
    Cause { place: core.place.clone(), reason, suggestion }
}

/// Returns the schedule with all times multiplied by `times`.
fn longer(schedule: &Schedule, times: u64) -> Schedule {
    let long = |time: Nanos| Nanos(time.0.saturating_mul(times));
    let both = |list: &[(Entity, Nanos, Nanos)]| {
        list.iter().map(|(entity, one, two)| (*entity, long(*one), long(*two))).collect()
    };
    match schedule {
        Schedule::RoundRobin { quantum, entities } => {
            Schedule::RoundRobin { quantum: long(*quantum), entities: entities.clone() }
        }
        Schedule::Table { frame, slots } => {
            Schedule::Table { frame: long(*frame), slots: both(slots) }
        }
        Schedule::FixedPriority { servers } => Schedule::FixedPriority { servers: both(servers) },
    }
}

/// Returns why no time is guaranteed to a VM or the broker where it moves flows; none if some is,
/// or the core is dedicated.
pub fn why_none(timing: &Timing, entity: Entity) -> Option<Cause> {
    nothing_guaranteed(timing, core_of_flows(timing, entity)?, entity)
}
