//! Replaces `switch` in a hypervisor without this part: no VM has a network device.

use crate::vm::{VcpuRef, Vm};
use weir_units::CoreId;
use weir_vdev::esr::MmioAccess;

/// Stands for the network device.
pub struct Device;

/// Returns the device of no VM.
pub const fn new_device() -> Device {
    Device
}

/// Finds no device at `ipa`.
pub fn offset(_vm: &Vm, _ipa: u64) -> Option<u64> {
    None
}

/// Resets nothing.
pub fn reset(vm: &Vm) {
    let Device = vm.net;
}

/// Is not called: there is no offset.
pub fn access(_: &'static VcpuRef, _: CoreId, _: &MmioAccess, _at: u64, _value: u64) -> u64 {
    0
}

/// Reports nothing.
pub fn report() {}
