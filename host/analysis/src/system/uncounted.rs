//! Accesses that the event of a memory budget does not count.

use weir_model::{System, Vm, counters::CounterEvent};

/// Returns a note for each counted event that leaves accesses out, with the VMs that have budgets
/// that count it.
pub fn notes(system: &System) -> impl Iterator<Item = String> {
    CounterEvent::ALL.iter().filter_map(|&event| {
        let counts = |vm: &&Vm| {
            let asked = vm.memory_budget.as_ref();
            asked.is_some_and(|asked| asked.event().unwrap_or(CounterEvent::L2dRefill) == event)
        };
        let vms: Vec<&str> =
            system.guests().iter().filter(counts).map(|vm| vm.name.as_str()).collect();
        let left_out = event.not_counted().filter(|_| !vms.is_empty())?;
        Some(format!("the budget of {} counts {}: not {left_out}", vms.join(", "), event.name()))
    })
}
