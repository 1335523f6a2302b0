//! The socket device of a VM: its registers, and its resets.

use super::{
    completion, flow,
    link::{LINK, line},
    lock,
    memory::Memory,
    multicast,
    receive::{deliver, supply},
    send::drain,
    socket::Socket,
};
use crate::{
    arch::{memory::peephole::Peephole, timer},
    vm::{VcpuRef, Vm, interrupts::settle},
};
use weir_abi::{MAX_FLOWS, VIRTIO_LEN, VSOCK_BAR_LEN, VSOCK_SLOT};
use weir_trace::{phases::pack, record::RecordKind};
use weir_units::CoreId;
use weir_vdev::esr::MmioAccess;
use weir_vsock::{
    device::{self, Effect, RX, TX},
    mmio::Registers,
    pci::{SPACE_LEN, VirtioFunction},
    transport::Transport,
    vsock::Header,
};

/// Where in a VM's socket device an address is.
#[derive(Clone, Copy)]
pub enum Place {
    /// At this offset of its registers.
    Registers(u64),
    /// At this offset of the configuration space of its PCI function.
    Space(u64),
}

/// Whether `ipa` is in the VM's socket device, and where.
pub fn place(vm: &Vm, ipa: u64) -> Option<Place> {
    let vm = vm.view().vm;
    let (len, pci) = match vm.vsock_ecam {
        0 => (VIRTIO_LEN, false),
        _ => (VSOCK_BAR_LEN, true),
    };
    let offset = ipa.wrapping_sub(vm.vsock);
    if vm.vsock != 0 && offset < len {
        return Some(Place::Registers(offset));
    }
    let function = vm.vsock_ecam.wrapping_add(SPACE_LEN * 8 * u64::from(VSOCK_SLOT));
    let offset = ipa.wrapping_sub(function);
    (pci && offset < SPACE_LEN).then_some(Place::Space(offset))
}

/// The device as after power-on.
fn fresh(vm: &Vm) -> Transport {
    let (cid, vm) = (vm.view().cid(), vm.view().vm);
    match vm.vsock_ecam {
        0 => Transport::Mmio(Registers::new(device::DeviceKind::Socket(cid))),
        // The packed system was checked: it ends below 4 GiB.
        _ => Transport::Pci(VirtioFunction::new(cid, vm.vsock as u32)),
    }
}

/// The boot of a VM begins: its device is as after power-on.
pub fn open(vm: &'static Vm) {
    if vm.view().vm.vsock != 0 {
        reset(vm, |socket| socket.transport = fresh(vm));
    }
}

/// Closes the device of a VM that has stopped and of which no vCPU runs: its memory is not accessed
/// afterwards, and its peers get a reset.
pub fn close(vm: &'static Vm, core: CoreId) {
    if vm.view().vm.vsock == 0 && !vm.is_broker() {
        return;
    }
    // SAFETY: on core `core`, whose VM has stopped, so that it handles no other trap; the next load
    // opens its windows later.
    let mut peephole = unsafe { Peephole::open(core) };
    if vm.is_broker() {
        abandon(&mut peephole);
        return;
    }
    disconnect(vm, &mut peephole, open);
}

/// Resets a VM's device by `reset`, and sends a reset to the peers of its connections.
fn disconnect(vm: &'static Vm, peephole: &mut Peephole, reset: impl FnOnce(&'static Vm)) {
    // First of all: a packet that is taken by a connection that goes on is one of the time before:
    // see `submit`.
    flow::of(vm.index()).for_each(|(_, flow)| flow.end());
    multicast::end(vm, peephole);
    reset(vm);
    for (entry, flow) in flow::of(vm.index()) {
        for header in flow.ended(entry, vm.index() as u32) {
            let _ = deliver(&header, peephole);
        }
    }
}

/// Resets every connection, at both ends, because the broker has stopped.
fn abandon(peephole: &mut Peephole) {
    multicast::abandon(peephole);
    for (entry, flow) in (0..MAX_FLOWS).map_while(flow::get) {
        flow.end();
        for forth in flow.ended(entry, entry.from) {
            let back = Header {
                src_cid: forth.dst_cid,
                dst_cid: forth.src_cid,
                src_port: forth.dst_port,
                dst_port: forth.src_port,
                ..forth
            };
            for header in [forth, back] {
                let _ = deliver(&header, peephole);
            }
        }
    }
}

/// Carries out an access to the device: `value` is what a store writes, the result what a load
/// reads.
// By itself: inlined, it makes the frame of each device's path larger than a page.
#[inline(never)]
pub fn access(
    vcpu_ref: &'static VcpuRef,
    core: CoreId,
    access: &MmioAccess,
    place: Place,
    value: u64,
) -> u64 {
    let vm = vcpu_ref.vm;
    let size = access.size.into();
    // SAFETY: on core `core`, in a trap of its guest: nothing else uses its windows until this
    // returns.
    let mut peephole = unsafe { Peephole::open(core) };
    let mut socket = vm.socket.lock();
    let memory = Memory::new(vm.view(), &mut peephole);
    let (read, effect) = match (&mut socket.transport, place, access.write) {
        (Transport::Mmio(device), Place::Registers(at), false) => {
            (device.read(at, size), Effect::None)
        }
        (Transport::Mmio(device), Place::Registers(at), true) => {
            (0, device.write(at, size, value, &memory))
        }
        (Transport::Pci(device), Place::Registers(at), false) => device.read(at, size),
        (Transport::Pci(device), Place::Registers(at), true) => {
            (0, device.write(at, size, value, &memory))
        }
        (Transport::Pci(device), Place::Space(at), false) => device.read_space(at, size),
        (Transport::Pci(device), Place::Space(at), true) => {
            (0, device.write_space(at, size, value, &memory))
        }
        // It has no such place.
        (Transport::Mmio(_), Place::Space(_), _) => (0, Effect::None),
    };
    match effect {
        Effect::Line => {
            let raised = core::mem::take(&mut socket.raised);
            if raised > 0 {
                let [held, waited] = lock::take_longest();
                let notified = timer::ticks().wrapping_sub(raised);
                vcpu_ref.record(
                    RecordKind::PacketTaken,
                    0,
                    pack([notified, held, waited, completion::take_tail()]),
                    0,
                );
            }
        }
        Effect::Reset => {
            drop(socket);
            disconnect(vm, &mut peephole, |vm| reset(vm, |_| ()));
            socket = vm.socket.lock();
        }
        Effect::Notified(RX) => {
            drop(socket);
            supply(vcpu_ref, &mut peephole);
            socket = vm.socket.lock();
        }
        Effect::Notified(TX) => {
            drop(socket);
            drain(vcpu_ref, &mut peephole);
            socket = vm.socket.lock();
        }
        // The queue of events: there are none.
        Effect::None | Effect::Queues | Effect::Notified(_) => return read,
    }
    let mask = line(vm, &socket);
    drop(socket);
    settle(vm, vcpu_ref.vcpu, mask);
    read
}

/// The device is reset, when `renew` has made it so for its driver: its rings and what the broker
/// has of them are no more.
fn reset(vm: &'static Vm, renew: impl FnOnce(&mut Socket)) {
    let mut socket = vm.socket.lock();
    renew(&mut socket);
    socket.forget();
    let Some(link) = LINK.get() else { return };
    link.service.partition.reset(vm.index());
    // Whoever wants it meanwhile finds a device without rings.
    drop(socket);
    link.service.wait_while(|| link.service.partition.is_copying(vm.index()));
    link.service.wake();
}
