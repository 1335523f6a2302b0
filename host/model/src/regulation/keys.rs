//! The checks of the keys of a budget that name vCPUs or other VMs.

use super::checker::{Checker, LEAVE_COMPENSATION};
use crate::diagnostics::Code;
use crate::fault::FilePlace;
use crate::keys::memory_budget::{Regulator, Split};
use crate::object::Object;
use crate::timing::memory_budget::MemoryBudget;
use crate::vm::Vm;
use weir_abi::MAX_CORES;
use weir_abi::regulation::NO_VM;

impl Checker<'_> {
    /// Returns the weight of each vCPU.
    pub(super) fn weights(&mut self, vm: &Vm, bandwidth: &MemoryBudget) -> [u16; MAX_CORES] {
        let mut weights = [0; MAX_CORES];
        let vcpus = vm.cpus.len().min(MAX_CORES);
        weights[..vcpus].fill(1);
        if let Split::Weights(allowed) = bandwidth.keys.split() {
            // A file without cores does not define vCPUs.
            if allowed.len() == vcpus || vm.cpus.is_empty() {
                for (weight, requested) in weights.iter_mut().zip(allowed) {
                    *weight = *requested;
                }
            } else {
                let message =
                    format!("{vm}: `split` has {} weights for {vcpus} vCPUs", allowed.len());
                let help = format!("write {vcpus} weights, one for each of `cpus`");
                self.fault(
                    Code::BudgetSplit,
                    &bandwidth.place_of(bandwidth.keys.split.as_ref()),
                    message,
                    help,
                );
            }
        }
        weights
    }

    /// Returns the position of the critical VM of a VM under compensation.
    pub(super) fn critical(&mut self, index: usize, vm: &Vm, bandwidth: &MemoryBudget) -> u8 {
        if bandwidth.keys.regulator != Regulator::Compensation {
            return NO_VM;
        }
        let Some(critical) = &bandwidth.keys.critical else {
            let message = format!("{vm}: regulator \"compensation\" requires the key `critical`");
            let help = "add critical = \"...\", the VM that leaves a part of its budget".to_owned();
            self.fault(Code::CompensationCritical, &bandwidth.place, message, help);
            return NO_VM;
        };
        let place = FilePlace(critical.span.clone());
        let key = format!("{vm}: `critical`");
        let Some(found) = self.find(&key, critical, &place, Some(index)) else { return NO_VM };
        let its = self.system.guests().get(found).and_then(|vm| vm.memory_budget.as_ref());
        // `weir plan` chooses the same period for both.
        let open = its.is_some_and(|its| its.budget.is_none()) && bandwidth.budget.is_none();
        let its = its.and_then(|its| its.budget);
        let own = bandwidth.budget;
        if found == index {
            let message = format!("{vm}: `critical` names the VM itself");
            let help = LEAVE_COMPENSATION;
            self.fault(Code::CompensationCritical, &place, message, help);
        } else if !open
            && (its.is_none()
                || own.is_some() && its.map(|(_, period)| period) != own.map(|(_, period)| period))
        {
            let message = format!(
                "{}: is the critical VM of {vm} and needs a memory budget of the same period",
                Object::vm(critical)
            );
            let period =
                own.map_or(String::new(), |(_, period)| format!(", period = \"{period}\""));
            let help = format!(
                "write memory_budget = {{ accesses = ...{period} }} for {}",
                Object::vm(critical)
            );
            self.fault(Code::CompensationCritical, &place, message, help);
        }
        found as u8
    }

    /// Returns the position of the VM that may set the budget, and the range that it may set.
    pub(super) fn setter(&mut self, vm: &Vm, bandwidth: &MemoryBudget) -> (u8, u64, u64) {
        let Some(adjust) = &bandwidth.keys.adjust else { return (NO_VM, 0, 0) };
        let place = FilePlace(adjust.by.span.clone());
        let by = self.find(&format!("{vm}: `by`"), &adjust.by, &place, None);
        let rules = &bandwidth.keys;
        for budget in [rules.amount(), rules.writes.as_ref()].into_iter().flatten() {
            // Invalid limits have been refused where they are read.
            let refused = adjust.min > adjust.max || adjust.min == 0;
            if refused || (adjust.min..=adjust.max).contains(&budget.value) {
                continue;
            }
            let (budget, place) = (budget.value, FilePlace(budget.span.clone()));
            let message = format!(
                "{vm}: the budget {budget} is outside the range that {} may set ({} to {})",
                Object::vm(&adjust.by),
                adjust.min,
                adjust.max
            );
            let help = "widen `min` and `max` so that the range contains the budget";
            self.fault(Code::BudgetAdjust, &place, message, help);
        }
        (by.map_or(NO_VM, |by| by as u8), adjust.min, adjust.max)
    }
}
