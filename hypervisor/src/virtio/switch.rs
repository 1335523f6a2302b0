//! The switch: network devices of VMs. EL2 emulates their registers; the broker handles their rings
//! and the frames (`weir_broker::switch`).
//!
//! A notification is a timestamp and a count in memory shared with the broker. The broker reports
//! returned buffers, or an invalid ring; EL2 applies the report to the registers of that device and
//! sets the level of its interrupt. A reset begins a new epoch. Until the broker has ended its
//! current access, which lasts at most one frame, a vCPU that accesses the device executes its
//! access again.
//!
//! While a core holds the lock of a [`NetDevice`], it takes no lock of another port. It may take
//! the lock of the VM's GIC, or the locks for stopping the broker or its DMA engine.

use super::{
    Answer,
    ram::{Regions, pieces},
    service::{self, Service},
};
use crate::{
    arch::{lock::Guard, timer},
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
        // `weir check` refuses a system with more pieces; the broker could not reach pieces that do
        // not fit.
        let _ = service.ports.configure(vm.index, &settings, pieces(&vm));
    }
}

fn port_of(vm: &Vm) -> Option<&'static PackedNet> {
    vm.view().net()
}

/// Returns the offset of `ipa` in the registers of the VM's network device, or none if it lies
/// outside.
pub fn offset(vm: &Vm, ipa: u64) -> Option<u64> {
    let offset = ipa.wrapping_sub(port_of(vm)?.registers);
    (offset < VIRTIO_LEN).then_some(offset)
}

/// Carries out a store of `value` to the register by which the driver notifies the broker. Receive
/// buffers need no notification, because the broker takes them when frames arrive.
#[inline(always)]
pub fn notify_by(vm: &Vm, value: u32) {
    let mut port = vm.net.lock();
    if value as usize == TX && port.registers.queue(TX).is_some() {
        notify(vm, port);
    }
}

/// Resets the device of a VM to its state after power-on. Called before each boot of the VM. There
/// is no need to wait for an access of the broker, because no queue was published since [`close`].
pub fn open(vm: &Vm) {
    if let Some(net) = port_of(vm) {
        power_on(vm, net, &mut vm.net.lock());
    }
}

/// Resets the registers and the rings.
fn power_on(vm: &Vm, net: &PackedNet, port: &mut NetDevice) {
    port.registers = MmioRegisters::new(DeviceKind::Network(net.mac));
    renew(vm, port);
}

/// Resets the device of a VM that has stopped and of which no vCPU runs. Returns whether the broker
/// has stopped accessing the VM's memory for it. If the VM is the broker, every device goes into
/// the state "needs reset", in which it serves no queue.
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
    // If `reset` is set, the first call has already reset the device.
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

/// Returns whether the broker has stopped accessing memory for the device, which was reset.
fn has_let_go(vm: &Vm, port: &mut NetDevice) -> bool {
    let Some(service) = service::get() else { return true };
    let is_busy = service.ports.port(vm.index()).device.is_busy();
    service.has_let_go(&mut port.reset, is_busy)
}

/// Carries out an access to the device. `value` is the value that a store writes; the result is the
/// value that a load reads.
// Not inlined, because it would make the frame of each device's path larger than a page.
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
            // If the vCPU executes the store again, it resets a device that is already reset, with
            // the same effect.
            if !has_let_go(vm, &mut port) {
                answer = Answer::Again;
            }
        }
        // No broker serves the queues any more, so the device needs a reset and the driver does not
        // wait for frames.
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
        // All notifications are handled by `notify_by`.
        Effect::None | Effect::Notified(_) => return answer,
    }
    let mask = line(vm, &port);
    drop(port);
    settle(vm, vcpu_ref.vcpu, mask);
    answer
}

/// Notifies the broker that the driver has made frames available.
fn notify(vm: &Vm, port: Guard<'_, NetDevice>) {
    let Some(service) = service::get() else { return };
    service.ports.port(vm.index()).device.notify(TX, timer::ticks(), 0);
    drop(port);
    service.wake();
    crate::arch::mark::<MARK_NOTIFY>();
}

/// Sets the level of the interrupt as the registers require.
fn line(vm: &Vm, port: &NetDevice) -> VcpuMask {
    let intid = port_of(vm).map_or(0, |net| net.intid);
    vm.gic.lock().set_level(IntId(intid), port.registers.line())
}

/// Applies the broker's report about the VM's port, on the broker's core: returned buffers, or an
/// invalid ring. Returns whether the VM was interrupted.
pub fn complete(service: &Service, vm: &Vm) -> bool {
    if port_of(vm).is_none() {
        return false;
    }
    let device = &service.ports.port(vm.index()).device;
    let mut port = vm.net.lock();
    // The state is read under the lock, so it belongs to the device's present epoch.
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

/// Returns how many frames of the VM the broker counted as malformed or as sent from a foreign
/// address.
pub fn refused(vm: &Vm) -> u64 {
    let service = port_of(vm).and_then(|_| service::get());
    service.map_or(0, |service| service.ports.port(vm.index()).counts().refused)
}

/// Returns the counts of the VM's port, if the VM has one.
pub fn report(vm: &Vm) -> Option<wire::PortCounts> {
    let service = port_of(vm).and_then(|_| service::get())?;
    let SwitchCounts { sent, received, over_rate, refused, missed } =
        service.ports.port(vm.index()).counts();
    Some(wire::PortCounts {
        time_ns: timer::now_ns(),
        vm: vm.index() as u32,
        reserved: 0,
        sent,
        received,
        over_rate,
        refused,
        missed,
    })
}
