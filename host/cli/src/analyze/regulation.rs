//! How the VMs' budgets are spent, from the keys of `memory_budget`, as the bounds of the analysis have it.

use weir_analysis::memory::Regulation;
use weir_model::timing::{Bandwidth, TimedVm};

/// How VM `vm` of `vms` spends its budget, as `seen_by` meets it.
pub fn regulation(vms: &[TimedVm], vm: &TimedVm, seen_by: Option<&str>) -> Regulation {
    let Some(bandwidth) = &vm.bandwidth else { return Regulation::Static };
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

/// The VMs of MemGuard's domain.
pub fn domain(vms: &[TimedVm]) -> impl Iterator<Item = (&TimedVm, &Bandwidth)> {
    let regulated = vms.iter().filter_map(|vm| Some((vm, vm.bandwidth.as_ref()?)));
    regulated.filter(|(_, bandwidth)| bandwidth.is_memguard())
}

/// How many vCPUs a VM has, as far as its file says.
pub fn vcpus(vm: &TimedVm) -> u32 {
    u32::try_from(vm.cpus.len().max(1)).unwrap_or(u32::MAX)
}

/// Why a regulation that sets no limit does not.
pub fn why_unlimited(name: &str) -> String {
    format!("{name} (`spare`: no limit for MemGuard's VMs once all have spent their budgets)")
}
