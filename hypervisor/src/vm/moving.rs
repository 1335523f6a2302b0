//! Interrupts of active devices. When such an interrupt ends, the devices may be able to move to
//! another VM.

use super::Vm;
use crate::mail;
use core::sync::atomic::{AtomicBool, Ordering};
use weir_abi::{Features, Irq};
use weir_units::IntId;

/// Whether a VM has active devices, which may have to move when their interrupts end.
static MOVABLE: AtomicBool = AtomicBool::new(false);

/// Records that a VM has active devices.
pub fn set_movable() {
    MOVABLE.store(true, Ordering::Relaxed);
}

/// Handles the deactivation of interrupt `intid` of VM `vm`: active devices that waited for it can
/// be handed over.
#[inline(never)]
pub fn ended(vm: &Vm, intid: IntId) {
    if !Features::SHARED_CORES.is_built() {
        return;
    }
    let is_active = |irq: &Irq| irq.active != 0 && irq.intid == intid.0;
    if MOVABLE.load(Ordering::Relaxed) && vm.view().irqs.iter().any(is_active) {
        // The devices are not handed over here, because the caller holds the lock of the VM's GIC.
        mail::send(vm.core_of(0), mail::HAND_OVER);
    }
}
