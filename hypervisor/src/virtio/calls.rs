//! Requests that concern virtio devices of any kind: the broker reports completions, and drivers of
//! VMs notify the broker.

use super::{Completions, flows, service, switch};
use crate::{
    arch::timer,
    vm::{self, VcpuRef, virtio::notify::Notified},
};
use weir_exchange::devices::{DeviceKind, DeviceSet};

/// The largest number of devices that one call interrupts; each takes some 340 instructions.
const INTERRUPTED: u32 = 3;

/// Carries out the broker's report of completions for `devices`, on the broker's core. Each device
/// is read once and interrupted at most once, independently of the broker's claims. The receivers
/// of packets are interrupted first.
pub fn complete(vcpu_ref: &VcpuRef, devices: u64) -> Completions {
    let begun = timer::ticks();
    let Some(service) = service::of(vcpu_ref.vm) else { return Completions::Denied };
    let (mut devices, mut left) = (DeviceSet::from_word(devices), INTERRUPTED);
    let mut raised = flows::Raised::new();
    while let Some((kind, port)) = devices.first() {
        if left == 0 {
            if !devices.has_receivers() {
                flows::record(service, vcpu_ref, &mut devices, &raised);
            }
            return Completions::Left(devices.to_word());
        }
        devices.remove_first();
        let Some(vm) = vm::at(port) else { continue };
        let is_interrupted = match kind {
            DeviceKind::Receiver | DeviceKind::Sender => flows::complete(service, vm, &mut raised),
            DeviceKind::Network => switch::complete(service, vm),
        };
        left -= u32::from(is_interrupted);
    }
    flows::record(service, vcpu_ref, &mut devices, &raised);
    Completions::Taken(timer::ticks().wrapping_sub(begun))
}

/// Carries out a store of `value` to the register by which the driver of `device` notifies the
/// broker.
#[inline(always)]
pub fn notify(vcpu_ref: &'static VcpuRef, device: Notified, value: u32) {
    match device {
        Notified::Socket => flows::notify_by(vcpu_ref, value),
        Notified::Network => switch::notify_by(vcpu_ref.vm, value),
    }
}
