//! A VM of a run under way.

use super::fault;
use std::collections::BTreeMap;
use weir_report::run::{FAULTS_LISTED, State, VmRun};
use weir_trace::wire::{Boots, FaultKind, WireEvent};

/// The findings of the wire on a VM so far.
#[derive(Clone, Debug, Default)]
pub(super) struct TalliedVm {
    /// The part of the report.
    pub run: VmRun,
    /// The last counts by the hypervisor.
    pub counted: Option<Boots>,
    /// The time of its last event.
    pub event_ns: u64,
}

impl TalliedVm {
    /// Counts a fault, and lists it if there is room.
    pub(super) fn fault(&mut self, event: &WireEvent) {
        let vm = &mut self.run;
        let fault = fault::fault(event, vm.boots.saturating_sub(1));
        *vm.fault_counts.entry(fault.kind.clone()).or_default() += 1;
        if vm.faults.len() >= FAULTS_LISTED {
            vm.faults_left_out += 1;
            return;
        }
        vm.faults.push(fault);
    }

    /// Corrects the counts by those of the hypervisor, because records of events can be lost.
    fn take_counts(&mut self) {
        let Some(counted) = self.counted else { return };
        let vm = &mut self.run;
        vm.records_lost = counted.lost.into();
        vm.restarts = vm.restarts.max(counted.restarts);
        vm.resets = vm.resets.max(counted.resets);
        if vm.state != State::NotStarted {
            vm.boots = vm.boots.max(counted.restarts.saturating_add(1));
        }
        for (kind, count) in FaultKind::ALL.iter().zip(counted.faults) {
            if count > 0 {
                let known = vm.fault_counts.entry(kind.name().into()).or_default();
                *known = (*known).max(count);
            }
        }
        let all: u64 = vm.fault_counts.values().sum();
        vm.faults_left_out = all.saturating_sub(vm.faults.len() as u64);
    }

    /// Computes the values that depend on all records.
    pub(super) fn finish(&mut self) {
        self.take_counts();
        let vm = &mut self.run;
        vm.restarts = vm.restarts.max(vm.boots.saturating_sub(1));
        let exits: Option<Vec<_>> = vm.vcpus.iter().map(|vcpu| vcpu.exits.as_ref()).collect();
        vm.exits = exits.map(|exits| {
            let mut sum = BTreeMap::new();
            for (cause, count) in exits.into_iter().flatten() {
                *sum.entry(cause.clone()).or_default() += count;
            }
            sum
        });
        vm.injected = vm.vcpus.iter().map(|vcpu| vcpu.injected).sum();
    }
}
