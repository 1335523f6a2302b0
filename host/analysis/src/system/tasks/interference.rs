//! The other users of the memory while a task runs.

use crate::units::Events;
use crate::{
    Nanos,
    memory::{Budget, Interferer, RegulatorModel},
    system::regulation::{regulation, vcpus},
    time::CoreInterference,
};
use weir_model::{System, timing::MemoryBudget};

/// Returns the interference of all others that use the memory with VM `vm`; none if the delay by an
/// access is not known.
pub(super) fn interference(
    system: &System,
    vm: usize,
    tried: Option<crate::BytesPerSec>,
) -> Option<CoreInterference> {
    let (delay, per_access) = system.delay()?;
    let mut interferers = Vec::new();
    if delay.0 == 0 {
        return Some(CoreInterference { interferers, delay, per_access });
    }
    // Without a budget, any period is right.
    let of_table = system.saturation.as_ref().map_or(Nanos(1_000_000), |known| known.period);
    // MemGuard's VMs lend to each other, so all of them count as one budget. It contains what this
    // VM lends, if it is one of them.
    let mut domain: Option<Interferer> = None;
    for (position, other) in system.guests().iter().enumerate() {
        let regulation = regulation(system.guests(), other, Some(&system.guests()[vm].name));
        let lends = matches!(regulation, RegulatorModel::Memguard { .. });
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
        let overshoot = system.overshoot(other, period).unwrap_or_default();
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
    if moves_for_vms(system) {
        // Each line is read and written. Without a bandwidth there is no limit.
        let dma = system.dma.bandwidth.or(tried).map_or(u64::MAX, |dma| dma.0);
        let bytes = u128::from(dma) * u128::from(of_table.0);
        let line = system.line().map_or(1, |line| line.0.max(1));
        let accesses = bytes.div_ceil(u128::from(line) * 1_000_000_000);
        interferers.push(Interferer {
            budget: Budget {
                accesses: u64::try_from(accesses).unwrap_or(u64::MAX),
                period: of_table,
            },
            regulation: RegulatorModel::Static,
            overshoot: Events(0),
            write_back: true,
            vms: 1,
        });
    }
    Some(CoreInterference { interferers, delay, per_access })
}

/// Returns whether a DMA engine or the broker moves flows for the VMs.
fn moves_for_vms(system: &System) -> bool {
    !system.flows.is_empty()
}

/// Returns whether anything else uses the memory while a task of VM `vm` runs.
pub(super) fn is_exposed(system: &System, vm: usize) -> bool {
    system.guests().len() > 1
        || system.guests().get(vm).is_some_and(|vm| vcpus(vm) > 1)
        || moves_for_vms(system)
}
