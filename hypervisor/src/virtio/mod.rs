//! The virtio devices of VMs: the socket devices of VMs in [`flows`], the network devices of VMs at
//! the [`switch`], the I/O [`service`] VM behind both, and the DMA [`engine`] that works for it.

pub mod calls;
pub mod engine;
pub mod flows;
mod ram;
pub mod service;
pub mod switch;

use crate::vm::Vm;

/// Sets up the broker and the devices that it serves. Called on the boot core, before it starts
/// another core. `address` is the virtual address of the memory that EL2 shares with the broker.
pub fn init(address: u64) {
    if let Some(service) = service::init(address) {
        flows::init(service);
        switch::init(service);
        engine::init();
    }
}

/// Result of a report of the broker's completions.
pub enum Completions {
    /// EL2 has handled all completions, in this time in ticks.
    Taken(u64),
    /// The completions of this set of devices are left: the broker repeats its call with the set,
    /// and before that its core takes interrupts.
    Left(u64),
    /// The caller is not the broker.
    Denied,
}

/// Result of an access to a device.
pub enum Answer {
    /// The access was carried out; a load reads this value.
    Done(u64),
    /// The broker still accesses the VM's memory for a device that was reset: the vCPU executes the
    /// access again, and before that its core takes interrupts.
    Again,
}

/// Resets the devices of a VM to their state after power-on. Called before each boot of the VM.
pub fn open(vm: &'static Vm) {
    switch::open(vm);
    flows::open(vm);
}

/// Closes the devices of a VM that has stopped and of which no vCPU runs. Returns whether no device
/// accesses the VM's memory any more. Does not wait: the caller calls again after its core has
/// taken interrupts.
pub fn close(vm: &'static Vm) -> bool {
    if vm.is_broker() {
        service::abandon();
        if !engine::close() {
            return false;
        }
    }
    switch::close(vm) && flows::close(vm)
}
