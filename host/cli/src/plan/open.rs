//! Budgets that are not written in the file and that the search can't choose.

use weir_model::{Code, Fault, Timing, counters::Event, timing::Bandwidth};

/// Whether each budget that is to be chosen is one of lines brought into the cache, the same in each period, of which the search
/// knows what it takes and gives.
///
/// # Errors
///
/// A fault for each that is not, with what to write.
pub fn check(timing: &Timing) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    for vm in &timing.vms {
        let Some(bandwidth) = &vm.bandwidth else { continue };
        let open = bandwidth.budget.is_none();
        let Some((what, instead)) = obstacle(bandwidth, open) else { continue };
        let message = format!("no budget can be planned for {}: {what}", vm.name);
        faults.push(timing.fault(Code::PlanBudget, &bandwidth.place, message, instead));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// What is in the way, and what to write.
fn obstacle(bandwidth: &Bandwidth, open: bool) -> Option<(String, &'static str)> {
    if bandwidth.spares() {
        let what = "with `spare` MemGuard's VMs run without a limit once all have spent their budgets, so that no budgets keep the memory from saturation";
        return Some((what.to_owned(), "leave `spare` out"));
    }
    let event = bandwidth.event().filter(|event| *event != Event::L2dRefill);
    if let Some(event) = event.filter(|_| open) {
        let what =
            format!("[saturation] knows refills, and `{}` says nothing of them", event.name());
        return Some((what, "leave `event` out, or write `accesses` and `period`"));
    }
    if let Some(setter) = bandwidth.setter().filter(|_| open) {
        let what = format!("{setter} may set it, and the limits were chosen without it");
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
