//! Replaces `flows` in a hypervisor without this part: no VM has a socket device.

use super::service::Service;
use crate::vm::{VcpuRef, Vm};
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

/// Tells the broker of no VM.
pub fn init(_service: &Service) {}

/// Resets nothing.
pub fn open(vm: &Vm) {
    let socket::FlowDevice = vm.socket;
}

/// Disconnects nothing.
pub fn close(_vm: &Vm) {}

/// Finds no device at `ipa`.
pub fn place(_vm: &Vm, _ipa: u64) -> Option<Place> {
    None
}

/// Is not called: there is no [`Place`].
pub fn access(_: &'static VcpuRef, _: &MmioAccess, place: Place, _: u64) -> u64 {
    match place {}
}

/// Returns nothing to a driver.
pub fn complete(_service: &Service, _vcpu_ref: &VcpuRef, _left: &mut usize) -> bool {
    true
}

/// Counts nothing.
pub fn refused(_vm: &Vm) -> u64 {
    0
}

/// Reports nothing.
pub fn report() {}
