//! The virtio devices of VMs: the socket devices of VMs in [`flows`], and the network devices of
//! VMs at the [`switch`].

#[cfg_attr(not(feature = "flows"), path = "no_flows.rs")]
pub mod flows;
#[cfg(any(feature = "flows", feature = "switch"))]
mod memory;
#[cfg_attr(not(feature = "switch"), path = "no_switch.rs")]
pub mod switch;

use crate::vm::Vm;
use weir_units::CoreId;

/// The life of a VM begins: its devices are as after power-on.
pub fn open(vm: &'static Vm) {
    switch::reset(vm);
    flows::open(vm);
}

/// The life of a VM has ended, and none of its vCPUs runs: no device uses its memory any more.
pub fn close(vm: &'static Vm, core: CoreId) {
    switch::reset(vm);
    flows::close(vm, core);
}
