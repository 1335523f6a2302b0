//! Replaces `switch` in a hypervisor without this part: no VM has a network device.

use super::{Answer, service::Service};
use crate::vm::{VcpuRef, Vm};
#[cfg(feature = "flows")]
use weir_abi::VmView;
#[cfg(feature = "flows")]
use weir_units::Ipa;
use weir_vdev::esr::MmioAccess;

/// Stands for the data of the network devices.
pub mod port {
    pub struct SwitchDevice;

    pub const fn new_device() -> SwitchDevice {
        SwitchDevice
    }
}

/// Tells the broker of no port.
pub fn init(_service: &Service) {}

/// Finds no device at `ipa`.
pub fn offset(_vm: &Vm, _ipa: u64) -> Option<u64> {
    None
}

/// Resets nothing.
pub fn open(vm: &Vm) {
    let port::SwitchDevice = vm.net;
}

/// Returns that nothing is left to reset.
pub const fn close(_vm: &Vm) -> bool {
    true
}

/// Returns that a VM has no such register.
#[cfg(feature = "flows")]
pub fn notify_register(_view: &VmView<'_>) -> Option<Ipa> {
    None
}

/// Notifies nothing.
#[cfg(feature = "flows")]
pub fn notify_by(_: &Vm, _: u32) {}

/// Is not called: there is no offset.
pub fn access(_: &'static VcpuRef, _: &MmioAccess, _at: u64, _value: u64) -> Answer {
    Answer::Done(0)
}

/// Interrupts no VM.
#[cfg(feature = "flows")]
pub fn complete(_service: &Service, _vm: &Vm) -> bool {
    false
}

/// Counts nothing.
pub fn refused(_vm: &Vm) -> u64 {
    0
}

/// Reports nothing.
pub fn report(_vm: &Vm) {}
