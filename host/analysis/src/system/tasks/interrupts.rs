//! Bounds on the wait of interrupts for their VM.

use super::report::{InterruptBound, TimeReport};
use crate::system::{
    cause, own_budget as own,
    supply::{closest_polling, cost_of, runs, supply_for},
};
use crate::{
    Nanos,
    time::{Task, response_times},
    verdict::{Missing, Verdict},
};
use weir_model::{
    System,
    timing::{Class, Entity, SharedCore, TimedLine},
};

/// Why an interrupt may be late.
enum Late {
    /// The deadline does not hold: the reason and the suggestion.
    Refuted(String, String),
    /// The deadline is not judged.
    Open(Missing),
}

/// Judges the deadline of an interrupt: from its arrival until its VM has the core.
pub(super) fn interrupt_of(system: &System, line: &TimedLine, time: &mut TimeReport) {
    let (Some(deadline), Some(vm)) = (line.deadline, system.guests().get(line.vm)) else { return };
    let (wait, late) = match wait_for_core(system, line, deadline) {
        Ok(wait) => (Some(wait), None),
        Err((wait, late)) => (wait, Some(late)),
    };
    let verdict = match late {
        None => {
            if line.admission.is_some() {
                time.notes.push(format!(
                    "{}: keeps its deadline while it comes no more often than its `rate`",
                    system.interrupt(line)
                ));
            }
            Verdict::Holds
        }
        Some(Late::Open(missing)) => {
            time.missing.push(missing);
            Verdict::NotJudged
        }
        Some(Late::Refuted(reason, suggestion)) => {
            let reason = format!("{}: {reason}", system.interrupt(line));
            time.refute(system, &line.place, reason, Some(suggestion));
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

/// Returns the bound on the wait of an interrupt for a core of its VM, in ns. Because the file does
/// not state its core, it is the greatest of all cores.
///
/// # Errors
///
/// Why the wait may exceed the deadline, with the bound if there is one.
fn wait_for_core(
    system: &System,
    line: &TimedLine,
    deadline: Nanos,
) -> Result<u64, (Option<u64>, Late)> {
    let (vm, entity) = (&system.guests()[line.vm], Entity::Vm(line.vm));
    let open = |reason: &str, supply: &str| {
        Late::Open(Missing {
            what: format!("{}: its deadline, as {reason}", system.interrupt(line)),
            supply: supply.to_owned(),
        })
    };
    let its = |core: &&SharedCore| runs(&core.schedule, entity);
    let mut cores: Vec<_> = vm.cpus.iter().map(|core| Some(u64::from(core.0))).collect();
    if cores.is_empty() {
        cores.extend(system.cores.iter().filter(its).map(|core| Some(core.id)));
    }
    if cores.is_empty() {
        cores.push(None);
    }
    let mut longest = 0;
    for core in cores {
        let shared = system.cores.iter().filter(its).find(|shared| Some(shared.id) == core);
        let sharing = shared.and_then(|shared| system.sharing(shared)).unwrap_or_default();
        let cost = cost_of(system, line, sharing.interrupt.0).unwrap_or(0);
        if cost > deadline.0 {
            let reason = format!("takes {} itself, its deadline is {deadline}", Nanos(cost));
            let suggestion = format!("write a `deadline` of more than {}", Nanos(cost));
            return Err((Some(cost), Late::Refuted(reason, suggestion)));
        }
        if line.class != Class::Dedicated {
            let reason = "only interrupts of devices of one VM alone are analyzed";
            return Err((None, open(reason, "take its `class` or the `deadline` out")));
        }
        if let Some(other) = cause::unlimited(system, entity, shared) {
            let reason = format!("interrupt {} on its core has no `rate`", other.name);
            return Err((None, open(&reason, "add `rate` to that [[irq]]")));
        }
        let budget = vm.memory_budget.as_ref().is_some_and(|asked| asked.budget.is_some());
        if budget && own::unspent(system, vm) == 0 {
            let reason = "the VM's own memory budget may suspend it";
            return Err((None, open(reason, "take the budget or the `deadline` out")));
        }
        let supply = supply_for(system, (line.vm, core), shared, closest_polling(system, entity))
            .map_err(|fault| {
            let supply = fault.help.as_deref().unwrap_or("correct the schedule");
            (None, open(&fault.message, supply))
        })?;
        // The wait is the response time of a task of 1 ns.
        let (wcet, period) = (Nanos(1), Nanos(1 << 50));
        let moment = Task { wcet, period, accesses: Some(0), ..Task::default() };
        let wait = response_times(&[moment], &supply, None, None);
        let Some(wait) = wait.first().copied().flatten() else {
            let cause = shared.and_then(|core| cause::nothing_guaranteed(system, core, entity));
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
                    "the slots of its VM bound its wait by {wait}, and how much `preempt` shortens \
                     that is not known"
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
