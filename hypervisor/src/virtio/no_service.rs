//! Replaces `service` in a hypervisor without flows and switch: there is no broker.

use super::Completions;
use crate::vm::{VcpuRef, Vm};
use weir_abi::VmView;
use weir_units::Ipa;

/// Stands for the memory that EL2 shares with the broker.
pub enum Service {}

/// Stands for the registers by which drivers notify.
pub struct NotifyRegisters;

/// A device with such a register.
#[derive(Clone, Copy)]
pub enum Notified {}

impl NotifyRegisters {
    /// Returns what stands for them.
    pub const fn new() -> Self {
        Self
    }

    /// Notes nothing.
    pub fn set(&self, _view: &VmView<'_>) {
        let Self = self;
    }

    /// Finds no register.
    pub fn find(&self, _ipa: Ipa, _size: u8) -> Option<Notified> {
        let Self = self;
        None
    }
}

/// Is not called: there is no device.
pub fn notify(_: &'static VcpuRef, device: Notified, _: u32) {
    match device {}
}

/// Takes nothing in.
pub fn init(_address: u64) -> Option<&'static Service> {
    None
}

/// Notes nothing.
pub fn abandon() {}

/// Denies it: no VM is the broker.
pub fn complete(_vcpu_ref: &VcpuRef, _devices: u64) -> Completions {
    Completions::Denied
}

/// Returns that `vm` has nothing to wait for.
pub fn wait_for_broker(_vm: &Vm) -> Option<u64> {
    None
}
