//! The end of a boot of a VM: the core that requested it, the cause, and which vCPUs are off.
//!
//! The core of a VM's first vCPU is the leader. The core that stops a VM (because of a call or a
//! fault) records the reason here, and each core of the VM turns its vCPU off. When all vCPUs are
//! off, the leader decides what follows (`lifecycle::lead`). No other VM is changed, and no lock of
//! another VM is taken.

use super::{Ending, Start, VcpuRef, Vm};
use crate::{console, mail};
use core::sync::atomic::Ordering;
use weir_trace::wire::{FaultKind, What, WireEvent};
use weir_units::CoreId;
use weir_vdev::gic::VcpuMask;

/// Requests that the core of vCPU `vcpu` turn it on at `entry` with `x0`.
pub fn turn_on(vm: &Vm, vcpu: usize, entry: u64, x0: u64) {
    let boot = vm.restarts.load(Ordering::Relaxed);
    *vm.vcpu(vcpu).start.lock() = Start { entry, x0, boot, asked: true };
    mail::send(vm.core_of(vcpu), mail::START);
}

/// Records that the VM of `vcpu_ref`, which runs on the calling core, stops, and notifies the cores
/// of its other vCPUs. `detail` is the event for the host. The first request to stop a VM
/// determines the reason.
pub fn end(vcpu_ref: &VcpuRef, ending: Ending, detail: WireEvent) {
    let vm = vcpu_ref.vm;
    let mut on = VcpuMask::NONE;
    let first = {
        let mut place = vm.ending.lock();
        let first = place.is_none();
        place.get_or_insert(ending);
        // A vCPU that is off stays off, because `claim_start` takes this lock. So its core has
        // nothing to stop.
        for vcpu in (0..vm.vcpu_count()).filter(|vcpu| *vcpu != vcpu_ref.vcpu) {
            if !vm.vcpu(vcpu).parked.load(Ordering::Relaxed) {
                on = on | VcpuMask::only(vcpu);
            }
        }
        first
    };
    if first {
        vm.count_ending(ending, detail.detail);
        console::event(detail);
        for vcpu in on.iter() {
            mail::send(vm.core_of(vcpu), mail::STOP);
        }
    }
}

/// Stops a VM because of a fault. Called on any core, which does not wait for the stop.
pub fn stop(vm: &'static Vm, kind: FaultKind) {
    {
        let mut place = vm.ending.lock();
        if place.is_some() {
            return;
        }
        *place = Some(Ending::Fault);
    }
    vm.count_ending(Ending::Fault, kind as u32);
    console::event(WireEvent { detail: kind as u32, ..vm.event(What::VmFault, 0) });
    for &core in vm.cores() {
        mail::send(CoreId(core), mail::STOP);
    }
}

/// Records that a vCPU is off and notifies the leader. Called on the vCPU's core `core`.
pub fn parked(vcpu_ref: &VcpuRef, core: CoreId) {
    let vm = vcpu_ref.vm;
    // Release: all accesses of this vCPU come before the leader's next step, which acquires.
    vm.vcpu(vcpu_ref.vcpu).parked.store(true, Ordering::Release);
    let leader = vm.core_of(0);
    // While the VM is not stopping, the leader need not be notified: a core that stops the VM sees
    // under the lock that this vCPU is off.
    if leader != core && vm.ending.lock().is_some() {
        mail::send(leader, mail::ENDED);
    }
}

/// Returns whether `vm` is stopping and has not stopped for good.
pub fn is_ending(vm: &Vm) -> bool {
    vm.ending.lock().is_some() && !vm.halted.load(Ordering::Relaxed)
}

/// Returns whether the VM of `vcpu_ref` is stopping and this vCPU is not off yet.
pub fn must_stop(vcpu_ref: &VcpuRef) -> bool {
    let ended = vcpu_ref.vm.ending.lock().is_some();
    ended && !vcpu_ref.vm.vcpu(vcpu_ref.vcpu).parked.load(Ordering::Relaxed)
}

/// Returns the entry address and x0 of a vCPU that was turned on; `None` if the VM has stopped or
/// restarted since then. This takes the lock under which the leader decides, so either the leader
/// sees the vCPU running or this call sees that the VM is stopping.
pub fn claim_start(vcpu_ref: &'static VcpuRef) -> Option<(u64, u64)> {
    let vcpu = vcpu_ref.vm.vcpu(vcpu_ref.vcpu);
    let ending = vcpu_ref.vm.ending.lock();
    let Start { entry, x0, boot, asked } = {
        let mut start = vcpu.start.lock();
        let found = *start;
        start.asked = false;
        found
    };
    if !asked || ending.is_some() || boot != vcpu_ref.vm.restarts.load(Ordering::Relaxed) {
        return None;
    }
    vcpu.parked.store(false, Ordering::Relaxed);
    Some((entry, x0))
}
