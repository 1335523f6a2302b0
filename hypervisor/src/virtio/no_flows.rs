//! Replaces `flows` in a hypervisor without this part: no VM has a socket device.

use super::{Answer, service::Service};
use crate::vm::{VcpuRef, Vm};
#[cfg(feature = "switch")]
use weir_abi::VmView;
#[cfg(feature = "switch")]
use weir_partition::devices::DeviceSet;
#[cfg(feature = "switch")]
use weir_units::Ipa;
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

/// Returns that nothing is left to disconnect.
pub const fn close(_vm: &Vm) -> bool {
    true
}

/// Finds no device at `ipa`.
pub fn place(_vm: &Vm, _ipa: u64) -> Option<Place> {
    None
}

/// Returns that a VM has no such register.
#[cfg(feature = "switch")]
pub fn notify_register(_view: &VmView<'_>) -> Option<Ipa> {
    None
}

/// Notifies nothing.
#[cfg(feature = "switch")]
pub fn notify_by(_: &'static VcpuRef, _: u32) {}

/// Is not called: there is no [`Place`].
pub fn access(_: &'static VcpuRef, _: &MmioAccess, place: Place, _: u64) -> Answer {
    match place {}
}

/// Stands for the times of interrupts.
#[cfg(feature = "switch")]
pub struct Raised;

#[cfg(feature = "switch")]
impl Raised {
    /// Returns what stands for them.
    pub const fn new() -> Self {
        Self
    }
}

/// Interrupts no VM.
#[cfg(feature = "switch")]
pub fn complete(_service: &Service, _vm: &Vm, Raised: &mut Raised) -> bool {
    false
}

/// Takes no records.
#[cfg(feature = "switch")]
pub fn record(_: &Service, _: &VcpuRef, _: &mut DeviceSet, Raised: &Raised) {}

/// Counts nothing.
pub fn refused(_vm: &Vm) -> u64 {
    0
}

/// Returns that there is no flow.
pub fn report(_index: usize) -> bool {
    false
}
