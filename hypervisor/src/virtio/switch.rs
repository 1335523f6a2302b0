//! The switch: network devices of VMs. Their registers are here; their rings, and the frames, are
//! the broker's (`weir_broker::switch`).
//!
//! A notification is a stamp and a count in memory shared with the broker. The broker reports
//! returned buffers, or a ring that makes no sense; EL2 applies the report to the registers of that
//! device and sets its interrupt's level. A reset begins a new epoch. Until the broker has ended
//! its current access, at most one frame's, a vCPU that accesses the device makes its access again.
//!
//! A [`NetDevice`] is locked alone, with the VM's GIC inside, or with what stops the broker
//! or its DMA engine inside, never with another port's.

use super::{
    Answer,
    ram::{Regions, pieces},
    service::{self, Service},
};
use crate::{
    arch::{lock::Guard, timer},
    console,
    vm::{
        self, VcpuRef, Vm,
        virtio::network::NetDevice,
        virtual_gic::{kick, settle},
    },
};
use weir_abi::{PackedNet, VIRTIO_LEN};
use weir_exchange::switch::{PortSettings, SwitchCounts};
use weir_trace::wire::{self, Denial};
use weir_units::IntId;
use weir_vdev::{esr::MmioAccess, gic::VcpuMask};
use weir_vsock::mmio::{DeviceKind, Effect, MmioRegisters, RX, TX};

/// Marker for QEMU's plug-in: the broker was notified.
const MARK_NOTIFY: u32 = 38;

/// Writes the settings of the ports for the broker.
pub fn init(service: &Service) {
    let system = crate::system::get();
    for vm in (0..system.vms()).filter_map(|index| system.vm(index)) {
        let Some(net) = vm.net() else { continue };
        let settings = PortSettings {
            mac: net.mac,
            rate: net.rate,
            burst: net.burst,
            bandwidth: net.bandwidth,
            uplink: net.uplink != 0,
        };
        // `weir check` refuses a system of more pieces; what does not fit is out of reach.
        let _ = service.ports.configure(vm.index, &settings, pieces(&vm));
    }
}

fn port_of(vm: &Vm) -> Option<&'static PackedNet> {
    vm.view().net()
}

/// The offset of `ipa` in the registers of the VM's network device, if it is there.
pub fn offset(vm: &Vm, ipa: u64) -> Option<u64> {
    let offset = ipa.wrapping_sub(port_of(vm)?.registers);
    (offset < VIRTIO_LEN).then_some(offset)
}

/// Carries out a store of `value` to the register by which the driver notifies. Receive buffers
/// need no notification: they are taken as frames come.
#[inline(always)]
pub fn notify_by(vm: &Vm, value: u32) {
    let mut port = vm.net.lock();
    if value as usize == TX && port.registers.queue(TX).is_some() {
        notify(vm, port);
    }
}

/// Resets the device of a VM to its state after power-on; called before each boot of the VM. No
/// access of the broker is waited for: no queue was published since [`close`].
pub fn open(vm: &Vm) {
    if let Some(net) = port_of(vm) {
        power_on(vm, net, &mut vm.net.lock());
    }
}

/// Resets registers and rings.
fn power_on(vm: &Vm, net: &PackedNet, port: &mut NetDevice) {
    port.registers = MmioRegisters::new(DeviceKind::Network(net.mac));
    renew(vm, port);
}

/// Resets the device of a VM that has stopped and of which no vCPU runs. Returns whether the broker
/// accesses none of its memory any more. If the VM is the broker, every device needs a reset, after
/// which it serves no queue.
pub fn close(vm: &'static Vm) -> bool {
    if vm.is_broker() {
        for vm in vm::all().filter(|vm| port_of(vm).is_some()) {
            let mut port = vm.net.lock();
            port.registers.break_down();
            let mask = line(vm, &port);
            drop(port);
            kick(vm, mask);
        }
    }
    let Some(net) = port_of(vm) else { return true };
    let mut port = vm.net.lock();
    // Else it was reset when this was called first.
    if port.reset.is_none() {
        power_on(vm, net, &mut port);
    }
    has_let_go(vm, &mut port)
}

/// Begins a new epoch of the device after its registers were reset.
fn renew(vm: &Vm, port: &mut NetDevice) {
    port.used = None;
    if let Some(service) = service::get() {
        service.ports.port(vm.index()).device.reset();
    }
}

/// Returns whether the broker accesses no memory any more for the device, which was reset.
fn has_let_go(vm: &Vm, port: &mut NetDevice) -> bool {
    let Some(service) = service::get() else { return true };
    let is_busy = service.ports.port(vm.index()).device.is_busy();
    service.has_let_go(&mut port.reset, is_busy)
}

/// Carries out an access to the device: `value` is what a store writes, the result what a load
/// reads.
// By itself: inlined, it makes the frame of each device's path larger than a page.
#[inline(never)]
pub fn access(vcpu_ref: &'static VcpuRef, access: &MmioAccess, at: u64, value: u64) -> Answer {
    let vm = vcpu_ref.vm;
    let mut port = vm.net.lock();
    if port.reset.is_some() && !has_let_go(vm, &mut port) {
        return Answer::Again;
    }
    let size = access.size.into();
    if !access.write {
        return Answer::Done(port.registers.read(at, size));
    }
    let mut answer = Answer::Done(0);
    match port.registers.write(at, size, value, &Regions(vm.view())) {
        Effect::Line => {}
        Effect::Reset => {
            renew(vm, &mut port);
            // Made again, a store finds the device as it leaves it now: the same again.
            if !has_let_go(vm, &mut port) {
                answer = Answer::Again;
            }
        }
        // Nothing serves the queues any more: the driver must not wait for frames.
        Effect::Queues if service::get().is_some_and(Service::is_abandoned) => {
            port.registers.break_down();
        }
        Effect::Queues => {
            for index in [RX, TX] {
                let queue = port.registers.queue(index);
                if let (Some(queue), Some(service)) = (queue, service::get()) {
                    service.ports.port(vm.index()).device.publish(index, queue);
                }
            }
            return answer;
        }
        // Each notification comes by `notify_by`.
        Effect::None | Effect::Notified(_) => return answer,
    }
    let mask = line(vm, &port);
    drop(port);
    settle(vm, vcpu_ref.vcpu, mask);
    answer
}

/// The driver has made frames available.
fn notify(vm: &Vm, port: Guard<'_, NetDevice>) {
    let Some(service) = service::get() else { return };
    service.ports.port(vm.index()).device.notify(TX, timer::ticks(), 0);
    drop(port);
    service.wake();
    crate::arch::mark::<MARK_NOTIFY>();
}

/// Sets the level of the interrupt by the registers.
fn line(vm: &Vm, port: &NetDevice) -> VcpuMask {
    let intid = port_of(vm).map_or(0, |net| net.intid);
    vm.gic.lock().set_level(IntId(intid), port.registers.line())
}

/// Applies what the broker says of the VM's port, on the broker's core: returned buffers, or a
/// broken ring. Returns whether the VM was interrupted.
pub fn complete(service: &Service, vm: &Vm) -> bool {
    if port_of(vm).is_none() {
        return false;
    }
    let device = &service.ports.port(vm.index()).device;
    let mut port = vm.net.lock();
    // Under the lock, so in the device's epoch.
    let used = device.used();
    let broken = device.broken().filter(|_| !port.registers.is_broken());
    if used == port.used && broken.is_none() {
        return false;
    }
    if used != port.used {
        port.used = used;
        port.registers.signal_used();
    }
    if let Some(reason) = broken {
        vm.deny_at(0, Denial::Virtio, reason.into(), 0);
        port.registers.break_down();
    }
    let mask = line(vm, &port);
    drop(port);
    kick(vm, mask);
    true
}

/// Returns the frames of the VM that were malformed or from a foreign address, by the broker's
/// count.
pub fn refused(vm: &Vm) -> u64 {
    let service = port_of(vm).and_then(|_| service::get());
    service.map_or(0, |service| service.ports.port(vm.index()).counts().refused)
}

/// Sends the counts of the VM's port, if it has one.
pub fn report(vm: &Vm) {
    let Some(service) = port_of(vm).and_then(|_| service::get()) else { return };
    let SwitchCounts { sent, received, over_rate, refused, missed } =
        service.ports.port(vm.index()).counts();
    let counts = wire::PortCounts {
        time_ns: timer::now_ns(),
        vm: vm.index() as u32,
        reserved: 0,
        sent,
        received,
        over_rate,
        refused,
        missed,
    };
    console::record(wire::FrameKind::Port, &counts);
}
