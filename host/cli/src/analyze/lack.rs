//! Why nothing is left: whose interrupt takes a core, or what switches take of turns, and what to write instead. What is told to be
//! enough was tried on the file.

use super::time::{closest_looks, cost_of, partition, runs, sure};
use std::cmp::Reverse;
use weir_analysis::time::Supply;
use weir_model::Timing;
use weir_model::timing::Line;
use weir_model::timing::Place;
use weir_model::timing::Runner;
use weir_model::timing::Schedule;
use weir_model::timing::SharedCore;
use weir_units::Nanos;

/// Why there is no time, or no bound.
#[derive(Debug)]
pub struct Lack {
    /// What is to be changed.
    pub place: Place,
    /// Why, to follow a colon.
    pub why: String,
    /// What to write instead.
    pub way: String,
}

/// Interrupts a second of a line that has no `rate`: more than any can have.
const UNLIMITED: u64 = 1_000_000_000;

/// How many times as long turns are tried at the most, and how many times rarer interrupts.
const LONGER: u64 = 1 << 16;

/// What is left to do where no longer turns are enough.
const NONE_LONGER: &str = "give it longer ones, every [[irq]] on the core a `rate`, and a memory budget that the counter page counts more accesses";

/// A line that comes as often as its device raises it while `runner` has its core, which is `shared` or its own: one of its own, or one that takes
/// the core.
pub fn unlimited<'a>(
    timing: &'a Timing,
    runner: Runner,
    shared: Option<&SharedCore>,
) -> Option<&'a Line> {
    let takes = |line: &Line| {
        Runner::Vm(line.vm) == runner
            || shared.is_some_and(|core| {
                line.preempt
                    && runs(&core.schedule, Runner::Vm(line.vm))
                    && !matches!(core.schedule, Schedule::FixedPriority { .. })
            })
    };
    timing.lines.iter().find(|line| line.admission.is_none() && takes(line))
}

/// The line because of which a file is not `good`, if it is one alone or has no `rate`; of several the one that takes most. `shared` is the core in question,
/// or none if it is `runner`'s own.
pub fn by_line(
    timing: &Timing,
    runner: Runner,
    shared: Option<&SharedCore>,
    good: impl Fn(&Timing) -> bool,
) -> Option<Lack> {
    let known = shared.and_then(|core| timing.sharing(core)).map_or(0, |its| its.interrupt.0);
    let cost = |line: &Line| cost_of(timing, line, known).unwrap_or(0);
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
        let Some(most) = most else { continue };
        tried.lines[place].preempt = false;
        let waits = line.preempt && good(&tried);
        tried.lines[place].preempt = line.preempt;
        return Some(blamed(timing, line, Nanos(cost(line)), Some(most), waits));
    }
    if let Some(line) = unlimited(timing, runner, shared) {
        return Some(blamed(timing, line, Nanos(cost(line)), None, line.preempt));
    }
    let is_here = |line: &&Line| {
        let owner = Runner::Vm(line.vm);
        shared.map_or(owner == runner, |core| runs(&core.schedule, owner))
    };
    let rated: Vec<_> = timing.lines.iter().filter(is_here).collect();
    together(timing, &rated, good)
}

/// That these lines, all of which have a `rate`, are too much together.
fn together(timing: &Timing, lines: &[&Line], good: impl Fn(&Timing) -> bool) -> Option<Lack> {
    let rarer = |times: u64| {
        let mut tried = timing.clone();
        for (rate, _) in tried.lines.iter_mut().filter_map(|line| line.admission.as_mut()) {
            *rate = (*rate / times).max(1);
        }
        good(&tried)
    };
    let times = least_times(rarer)?;
    let name = |line: &&Line| {
        let vm = timing.vms.get(line.vm).map_or("?", |vm| &vm.name);
        format!("{} of {vm}", line.name)
    };
    let names: Vec<_> = lines.iter().map(name).collect();
    Some(Lack {
        place: lines.first()?.place.clone(),
        why: format!("interrupts {}, on its core, come too often together", names.join(", ")),
        way: format!("write a `rate` for each that is {times} times lower"),
    })
}

/// The least whole number of times, 2 and more, that is good.
fn least_times(is_good: impl Fn(u64) -> bool) -> Option<u64> {
    let good = (1..=LONGER.ilog2()).map(|power| 1 << power).find(|times| is_good(*times))?;
    Some(1 + most((good / 2, good), |times| !is_good(times)))
}

/// The greatest number that `holds`, where the first of a range does and the last does not.
fn most((mut good, mut bad): (u64, u64), mut holds: impl FnMut(u64) -> bool) -> u64 {
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}

/// What is said of a line; `most` a second, or that it `waits` for its VM's turn, would do.
fn blamed(timing: &Timing, line: &Line, cost: Nanos, most: Option<u64>, waits: bool) -> Lack {
    let vm = timing.vms.get(line.vm).map_or("?", |vm| &vm.name);
    let name = format!("interrupt {} of {vm}, on its core,", line.name);
    let turn = if line.preempt { ", and with `preempt` its VM's turn" } else { "" };
    let (why, way) = match (line.admission, most) {
        (None, most) => {
            let most = most.map_or(String::new(), |most| format!(": {most} at the most"));
            (
                format!("{name} is let through without a `rate`"),
                format!(
                    "add `rate` to this [[irq]], the most interrupts a second that are let through{most}"
                ),
            )
        }
        (Some((rate, _)), most) => (
            format!("{name} may come {rate} times a second and takes {cost} each time{turn}"),
            most.map_or("write a lower `rate`".to_owned(), |most| {
                format!("write rate = {most} or less for this [[irq]]")
            }),
        ),
    };
    let waits = if waits { "; or take `preempt` out: then it waits for its VM's turn" } else { "" };
    Lack { place: line.place.clone(), why, way: format!("{way}{waits}") }
}

/// Why `runner` is sure of no time on a shared core; none if it is sure of some.
pub fn nothing_sure(timing: &Timing, core: &SharedCore, runner: Runner) -> Option<Lack> {
    let holds = |timing: &Timing, core: &SharedCore| {
        sure(timing, core, runner, closest_looks(timing, runner)).is_some()
    };
    if holds(timing, core) {
        return None;
    }
    let short = switches_take_all(timing, core, runner);
    let line = || by_line(timing, runner, Some(core), |tried| holds(tried, core));
    let by_line = if short { None } else { line() };
    by_line.or_else(|| Some(too_short(timing, core, runner, holds)))
}

/// Whether nothing is left of `runner`'s turns even if nothing comes meanwhile.
fn switches_take_all(timing: &Timing, core: &SharedCore, runner: Runner) -> bool {
    let alone = partition(timing, core, runner).ok();
    let alone = alone.and_then(|partition| Supply::new(partition, Vec::new()).ok());
    alone.is_some_and(|supply| supply.linear().is_none())
}

/// That switches, and what EL2 does meanwhile, take all of `runner`'s turns.
fn too_short(
    timing: &Timing,
    core: &SharedCore,
    runner: Runner,
    holds: impl Fn(&Timing, &SharedCore) -> bool,
) -> Lack {
    let sharing = timing.sharing(core).unwrap_or_default();
    let turns = core.schedule.turns().into_iter().filter(|turn| turn.0 == runner);
    let longest = turns.map(|turn| turn.1).max().unwrap_or(Nanos(0));
    let (what, count) = match core.schedule {
        Schedule::RoundRobin { .. } => ("turns", 1),
        Schedule::Table { .. } => ("slots", 2),
        Schedule::FixedPriority { .. } => ("budgets", 2),
    };
    let taken = Nanos(sharing.switch.0.saturating_mul(count));
    let meanwhile = if switches_take_all(timing, core, runner) {
        // Of budgets what comes to those that go first is in what is left of them.
        let rest =
            if longest > taken { ", and interrupts of those that go first the rest" } else { "" };
        rest.to_owned()
    } else {
        let looks = closest_looks(timing, runner);
        let looks = if looks.is_empty() { "" } else { "polls of the counter page and " };
        format!(
            ", and {looks}what EL2 does for VMs that are off, up to {} each, the rest",
            sharing.interrupt
        )
    };
    let why = format!(
        "{}'s {what} of {longest} are too short: switches take up to {taken} of each{meanwhile}",
        runner.name(timing)
    );
    let longer =
        |times: u64| SharedCore { schedule: longer(&core.schedule, times), ..core.clone() };
    let is_enough = |times: u64| holds(timing, &longer(times));
    let way = match (least_times(is_enough), &core.schedule) {
        (None, _) => NONE_LONGER.to_owned(),
        (Some(enough), Schedule::RoundRobin { quantum, .. }) => {
            format!(
                "write quantum = \"{}\", which leaves it some",
                Nanos(quantum.0.saturating_mul(enough))
            )
        }
        (Some(enough), Schedule::Table { .. }) => {
            format!("slots that are {enough} times as long, in a frame that is, leave it some")
        }
        (Some(enough), Schedule::FixedPriority { .. }) => {
            format!("budgets and periods that are {enough} times as long leave it some")
        }
    };
    Lack { place: core.place.clone(), why, way }
}

/// A schedule all of whose times are so many `times` as long.
fn longer(schedule: &Schedule, times: u64) -> Schedule {
    let long = |time: Nanos| Nanos(time.0.saturating_mul(times));
    let both = |list: &[(Runner, Nanos, Nanos)]| {
        list.iter().map(|(runner, one, two)| (*runner, long(*one), long(*two))).collect()
    };
    match schedule {
        Schedule::RoundRobin { quantum, runners } => {
            Schedule::RoundRobin { quantum: long(*quantum), runners: runners.clone() }
        }
        Schedule::Table { frame, slots } => {
            Schedule::Table { frame: long(*frame), slots: both(slots) }
        }
        Schedule::FixedPriority { servers } => Schedule::FixedPriority { servers: both(servers) },
    }
}
