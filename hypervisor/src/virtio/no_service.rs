//! Replaces `service` in a hypervisor without flows and switch: there is no broker.

use crate::vm::{VcpuRef, Vm};
use weir_units::CoreId;

/// Takes nothing in.
pub fn init(_address: u64) {}

/// Notes nothing.
pub fn abandon() {}

/// Refuses the broker's call: no VM is the broker.
pub fn complete(_core: CoreId, _vcpu_ref: &VcpuRef) -> Option<u64> {
    None
}

/// Returns that `vm` has nothing to wait for.
pub fn wait_for_broker(_vm: &Vm) -> Option<u64> {
    None
}
