//! The virtio devices of VMs: the socket devices of VMs in [`flows`], the network devices of VMs at
//! the [`switch`], the I/O [`service`] VM behind both, and the DMA [`engine`] that works for it.

pub mod calls;
pub mod engine;
pub mod flows;
mod ram;
pub mod service;
pub mod switch;

use crate::vm::Vm;

/// Takes in the broker and what it serves; on the boot core, before another starts. `address` is
/// where the memory that EL2 shares with it is mapped.
pub fn init(address: u64) {
    if let Some(service) = service::init(address) {
        flows::init(service);
        switch::init(service);
        engine::init();
    }
}

/// What became of the broker's completions.
pub enum Completions {
    /// EL2 was so long busy with them, in ticks.
    Taken(u64),
    /// Those of this set of devices wait: the broker makes its call again with it, before which its
    /// core takes interrupts.
    Left(u64),
    /// The VM is not the broker.
    Denied,
}

/// What became of an access to a device.
pub enum Answer {
    /// It was carried out; a load reads this.
    Done(u64),
    /// The broker still accesses the VM's memory for a device that was reset: the vCPU makes the
    /// access again, before which its core takes interrupts.
    Again,
}

/// Resets the devices of a VM to their state after power-on; called before each boot of the VM.
pub fn open(vm: &'static Vm) {
    switch::open(vm);
    flows::open(vm);
}

/// Closes the devices of a VM that has stopped and of which no vCPU runs. Returns whether no device
/// accesses its memory any more. Does not wait: the caller calls again after its core has taken
/// interrupts.
pub fn close(vm: &'static Vm) -> bool {
    if vm.is_broker() {
        service::abandon();
        if !engine::close() {
            return false;
        }
    }
    switch::close(vm) && flows::close(vm)
}
