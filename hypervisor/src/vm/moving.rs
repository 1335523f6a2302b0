//! Interrupts of active devices; their end can let the devices move to another VM.

use super::Vm;
use crate::mail;
use core::sync::atomic::{AtomicBool, Ordering};
use weir_abi::{Features, Irq};
use weir_units::IntId;

/// A VM has the active devices: their lines may have to move when they end.
static MOVABLE: AtomicBool = AtomicBool::new(false);

/// Says that a VM has the active devices.
pub fn set_movable() {
    MOVABLE.store(true, Ordering::Relaxed);
}

/// Interrupt `intid` of VM `vm` was deactivated: devices that wait for that can be handed over.
#[inline(never)]
pub fn ended(vm: &Vm, intid: IntId) {
    if !Features::SHARED_CORES.is_built() {
        return;
    }
    let is_active = |irq: &Irq| irq.active != 0 && irq.intid == intid.0;
    if MOVABLE.load(Ordering::Relaxed) && vm.view().irqs.iter().any(is_active) {
        // Not here: the caller holds the VM's lock.
        mail::send(vm.core_of(0), mail::HAND_OVER);
    }
}
