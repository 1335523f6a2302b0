//! The virtio devices of VMs: the socket devices of VMs in [`flows`], the network devices of VMs at
//! the [`switch`], and the I/O [`service`] VM behind both.

#[cfg_attr(not(feature = "flows"), path = "no_flows.rs")]
pub mod flows;
#[cfg(feature = "flows")]
mod memory;
#[cfg_attr(not(any(feature = "flows", feature = "switch")), path = "no_service.rs")]
pub mod service;
#[cfg_attr(not(feature = "switch"), path = "no_switch.rs")]
pub mod switch;

use crate::vm::Vm;
use weir_units::CoreId;

/// The life of a VM begins: its devices are as after power-on.
pub fn open(vm: &'static Vm) {
    switch::open(vm);
    flows::open(vm);
}

/// The life of a VM has ended, and none of its vCPUs runs: no device uses its memory any more.
pub fn close(vm: &'static Vm, core: CoreId) {
    if vm.is_broker() {
        // Before connections are looked at: a request is refused, or reset below.
        service::abandon();
    }
    switch::close(vm);
    flows::close(vm, core);
}
