//! Regulators of the memory budgets of VMs, as the bounds need them.

use crate::memory::Regulation;
use weir_model::timing::{MemoryBudget, TimedVm};

/// Returns how VM `vm` of `vms` spends its budget, as the VM `seen_by` sees it.
pub fn regulation(vms: &[TimedVm], vm: &TimedVm, seen_by: Option<&str>) -> Regulation {
    let Some(bandwidth) = &vm.memory_budget else { return Regulation::Static };
    if bandwidth.is_memguard() {
        return Regulation::Memguard { spare: domain(vms).any(|(_, its)| its.spares()) };
    }
    if let Some(window) = bandwidth.window {
        let critical = seen_by.is_some() && bandwidth.critical() == seen_by;
        return Regulation::Compensation { window, critical };
    }
    if bandwidth.is_pool() {
        return Regulation::Pool { vcpus: vcpus(vm) };
    }
    Regulation::Static
}

/// Returns the VMs of the MemGuard domain.
pub fn domain(vms: &[TimedVm]) -> impl Iterator<Item = (&TimedVm, &MemoryBudget)> {
    let regulated = vms.iter().filter_map(|vm| Some((vm, vm.memory_budget.as_ref()?)));
    regulated.filter(|(_, bandwidth)| bandwidth.is_memguard())
}

/// Returns the number of vCPUs of a VM, as far as its file states.
pub fn vcpus(vm: &TimedVm) -> u32 {
    u32::try_from(vm.cpus.len().max(1)).unwrap_or(u32::MAX)
}

/// Returns why a VM of the MemGuard domain has no limit.
pub fn why_unlimited(name: &str) -> String {
    format!("{name} (`spare`: no limit for MemGuard's VMs once all have spent their budgets)")
}
