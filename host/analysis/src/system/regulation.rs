//! Regulators of the memory budgets of VMs, as the bounds need them.

use crate::memory::RegulatorModel;
use weir_model::{Vm, timing::MemoryBudget};

/// Returns how VM `vm` of `vms` spends its budget, as the VM `seen_by` sees it.
pub fn regulation(vms: &[Vm], vm: &Vm, seen_by: Option<&str>) -> RegulatorModel {
    let Some(bandwidth) = &vm.memory_budget else { return RegulatorModel::Static };
    if bandwidth.is_memguard() {
        return RegulatorModel::Memguard { spare: domain(vms).any(|(_, its)| its.spares()) };
    }
    if let Some(window) = bandwidth.window {
        let critical = seen_by.is_some() && bandwidth.critical() == seen_by;
        return RegulatorModel::Compensation { window, critical };
    }
    if bandwidth.is_pool() {
        return RegulatorModel::Pool { vcpus: vcpus(vm) };
    }
    RegulatorModel::Static
}

/// Returns the VMs of the MemGuard domain.
pub fn domain(vms: &[Vm]) -> impl Iterator<Item = (&Vm, &MemoryBudget)> {
    let regulated = vms.iter().filter_map(|vm| Some((vm, vm.memory_budget.as_ref()?)));
    regulated.filter(|(_, bandwidth)| bandwidth.is_memguard())
}

/// Returns the number of vCPUs of a VM, as far as its file states.
pub fn vcpus(vm: &Vm) -> u32 {
    u32::try_from(vm.cpus.len().max(1)).unwrap_or(u32::MAX)
}

/// Returns why a VM of the MemGuard domain has no limit.
pub fn why_unlimited(name: &str) -> String {
    format!("{name} (`spare`: no limit for MemGuard's VMs once all have spent their budgets)")
}
