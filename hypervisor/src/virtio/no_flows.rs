//! Replaces `flows` in a hypervisor without this part: no VM has a socket device.

use super::service::Service;
use crate::vm::{VcpuRef, Vm};
use weir_units::CoreId;
use weir_vdev::esr::MmioAccess;

/// Stands for the data of the socket devices.
pub mod socket {
    pub struct FlowDevice;

    pub const fn new_device() -> FlowDevice {
        FlowDevice
    }
}

/// A place in a socket device.
#[derive(Clone, Copy)]
pub enum Place {}

/// Takes no flows in.
pub fn init(_service: &'static Service) {}

/// Resets nothing.
pub fn open(vm: &'static Vm) {
    let socket::FlowDevice = vm.socket;
}

/// Disconnects nothing.
pub fn close(_vm: &'static Vm, _core: CoreId) {}

/// Finds no device at `ipa`.
pub fn place(_vm: &Vm, _ipa: u64) -> Option<Place> {
    None
}

/// Is not called: there is no [`Place`].
pub fn access(_: &'static VcpuRef, _: CoreId, _: &MmioAccess, place: Place, _: u64) -> u64 {
    match place {}
}

/// Returns nothing to a driver.
pub fn complete(_core: CoreId, _vcpu_ref: &VcpuRef) {}

/// Reports nothing.
pub fn report() {}
