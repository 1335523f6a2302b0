//! Budgets that the search cannot choose.

use weir_model::{Code, Fault, Object, System, Vm, counters::CounterEvent, timing::MemoryBudget};

/// Checks that the search knows what each budget that it must choose takes and guarantees: a static
/// budget of refills.
///
/// # Errors
///
/// A fault for each other budget, with what to write.
pub fn check(system: &System) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    for vm in system.guests() {
        faults.extend(unknown_accesses(system, vm));
        let Some(bandwidth) = &vm.memory_budget else { continue };
        let open = bandwidth.budget.is_none();
        let Some((what, instead)) = obstacle(bandwidth, open) else { continue };
        let message = format!("{vm}: no budget can be planned: {what}");
        faults.push(system.fault(Code::PlanBudget, &bandwidth.place, message, instead));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Returns the fault of a task without `accesses` of a VM with a budget to be chosen: how long
/// the task waits for a replenishment is not known then, so that any budget would do.
fn unknown_accesses(system: &System, vm: &Vm) -> Option<Fault> {
    let is_chosen = vm.memory_budget.as_ref().is_none_or(|asked| asked.budget.is_none());
    if system.saturation.is_none() || !is_chosen {
        return None;
    }
    let task = vm.tasks.iter().find(|task| task.accesses.is_none())?;
    let message = format!(
        "{}: its `accesses` are not known, which a planned budget must suffice for",
        Object::task(&task.name, &vm.name)
    );
    let help = "add `accesses`, the most memory accesses of one activation, to this [[vm.task]]";
    Some(system.fault(Code::PlanBudget, &task.place, message, help))
}

/// Returns why a budget cannot be chosen, and what to write.
fn obstacle(bandwidth: &MemoryBudget, open: bool) -> Option<(String, &'static str)> {
    if bandwidth.spares() {
        let what = "with `spare`, MemGuard's VMs run without a limit after all have spent their \
                    budgets, so that no budget keeps the memory below saturation";
        return Some((what.to_owned(), "leave `spare` out"));
    }
    let event = bandwidth.event().filter(|event| *event != CounterEvent::L2dRefill);
    if let Some(event) = event.filter(|_| open) {
        let what =
            format!("[saturation] is of refills, and `{}` does not count them", event.name());
        return Some((what, "leave `event` out, or write `accesses` and `period`"));
    }
    if let Some(setter) = bandwidth.setter().filter(|_| open) {
        let setter = Object::vm(setter);
        let what = format!("{setter} may change it within limits that were chosen without it");
        return Some((
            what,
            "write `accesses` and `period` between `min` and `max`, or leave `adjust` out",
        ));
    }
    if bandwidth.window.is_some() && open {
        let what = "what a compensation adds depends on the critical VM".to_owned();
        return Some((what, "write `accesses` and `period`, the critical VM's"));
    }
    None
}
