//! The socket devices of VMs in flows. EL2 emulates their registers; the broker handles their rings
//! and the packets (`weir_broker::broker`).
//!
//! A notification is a timestamp and a count in memory shared with the broker. The broker reports
//! returned buffers, or an invalid ring; EL2 applies the report to the registers of that device and
//! sets the level of its interrupt. A reset begins a new epoch. Until the broker has ended its
//! current access, which lasts at most one chunk, a vCPU that accesses the device executes its
//! access again.
//!
//! While a core holds the lock of a [`Socket`], it takes no lock of another device. It may take the
//! lock of the VM's GIC, or the locks for stopping the broker or its DMA engine. Locks are granted
//! in the order of requests ([`Fair`](lock::Fair)).

use super::{
    Answer,
    ram::{Regions, pieces},
    service::{self, Service},
};
use crate::{
    arch::timer,
    vm::{
        self, VcpuRef, Vm,
        virtio::{
            lock::{self, Held},
            socket::Socket,
        },
        virtual_gic::{kick, settle},
    },
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use weir_abi::{Features, VIRTIO_LEN, VSOCK_BAR_LEN, VSOCK_SLOT};
use weir_exchange::{
    devices::DeviceSet,
    flows::{PORTS, PacketCounts, PacketEvent, PacketRecord, TAKEN},
};
use weir_trace::{
    phases::pack,
    record::{Origin, RecordKind},
    wire::{self, Denial},
};
use weir_units::IntId;
use weir_vdev::{esr::MmioAccess, gic::VcpuMask};
use weir_vsock::{
    device::{self, Effect, RX, TX},
    mmio::MmioRegisters,
    pci::{self, SPACE_LEN, VirtioFunction},
    transport::Transport,
};

const _: () = assert!(pci::LEN == VSOCK_BAR_LEN);

/// The shortest time from a receiver's interrupt to the end of the broker's hypercall since this
/// value was last reported, in ticks.
static SHORTEST_TAIL: AtomicU64 = AtomicU64::new(u64::MAX);
/// Number of records taken so far; only the broker's core takes records.
static TAKEN_RECORDS: AtomicU32 = AtomicU32::new(0);

/// The place of an address in a VM's socket device.
#[derive(Clone, Copy)]
pub enum Place {
    /// Offset in the device's registers.
    Registers(u64),
    /// Offset in the configuration space of the device's PCI function.
    Space(u64),
}

/// Writes the place of the RAM of VMs in flows to the exchange, for the broker.
pub fn init(service: &Service) {
    let system = crate::system::get();
    for vm in (0..system.vms()).filter_map(|index| system.vm(index)) {
        if vm.vm.vsock != 0 {
            // `weir check` refuses a system with more pieces; the broker could not reach pieces
            // that do not fit.
            let _ = service.exchange.ram.set(vm.index, pieces(&vm));
        }
    }
}

/// Returns the place of `ipa` in the VM's socket device, or none if it lies outside.
pub fn place(vm: &Vm, ipa: u64) -> Option<Place> {
    if !Features::BROKER.is_built() {
        return None;
    }
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

/// Carries out a store of `value` to the register by which the driver notifies the broker, on the
/// MMIO transport.
#[inline(always)]
pub fn notify_by(vcpu_ref: &'static VcpuRef, value: u32) {
    let mut socket = vcpu_ref.vm.socket.lock();
    let index = value as usize;
    // The event queue needs no notification, because the device sends no events.
    if matches!(index, RX | TX) && socket.transport.queue(index).is_some() {
        notify(vcpu_ref, socket, index);
    }
}

fn is_there(vm: &Vm) -> bool {
    Features::BROKER.is_built() && vm.view().vm.vsock != 0
}

/// Resets the device of a VM to its state after power-on. Called before each boot of the VM. There
/// is no need to wait for an access of the broker, because no queue was published since [`close`].
pub fn open(vm: &Vm) {
    if is_there(vm) {
        power_on(vm, &mut vm.socket.lock());
    }
}

/// Resets the registers and the rings.
fn power_on(vm: &Vm, socket: &mut Socket) {
    let (cid, view) = (vm.view().cid(), vm.view().vm);
    socket.transport = match view.vsock_ecam {
        0 => Transport::Mmio(MmioRegisters::new(device::DeviceKind::Socket(cid))),
        // `PackedSystem::parse` checked that the registers end below 4 GiB.
        _ => Transport::Pci(VirtioFunction::new(cid, view.vsock as u32)),
    };
    renew(vm, socket);
}

/// Resets the device of a VM that has stopped and of which no vCPU runs, so that the broker resets
/// its connections. Returns whether the broker has stopped accessing the VM's memory for it. If the
/// VM is the broker, every device goes into the state "needs reset", in which it serves no queue.
pub fn close(vm: &'static Vm) -> bool {
    if vm.is_broker() {
        vm::all().filter(|vm| is_there(vm)).for_each(|vm| break_down(vm, vm.socket.lock()));
    }
    if !is_there(vm) {
        return true;
    }
    let mut socket = vm.socket.lock();
    // If `reset` is set, the first call has already reset the device.
    if socket.reset.is_none() {
        power_on(vm, &mut socket);
    }
    has_let_go(vm, &mut socket)
}

/// Puts the device into the state "needs reset": it serves nothing until its driver resets it.
fn break_down(vm: &'static Vm, mut socket: Held<'_, Socket>) {
    socket.transport.break_down();
    let mask = line(vm, &socket);
    drop(socket);
    kick(vm, mask);
}

/// Begins a new epoch of the device after its registers were reset.
fn renew(vm: &Vm, socket: &mut Socket) {
    (socket.used, socket.raised) = (None, 0);
    let Some(service) = service::get() else { return };
    service.exchange.port(vm.index()).device.reset();
    // The broker informs the other ends of the connections.
    service.wake();
}

/// Returns whether the broker has stopped accessing memory for the device, which was reset.
fn has_let_go(vm: &Vm, socket: &mut Socket) -> bool {
    let Some(service) = service::get() else { return true };
    let is_busy = service.exchange.port(vm.index()).device.is_busy();
    service.has_let_go(&mut socket.reset, is_busy)
}

/// Carries out an access to the device. `value` is the value that a store writes; the result is the
/// value that a load reads.
// Not inlined, because it would make the frame of each device's path larger than a page.
#[inline(never)]
pub fn access(vcpu_ref: &'static VcpuRef, access: &MmioAccess, place: Place, value: u64) -> Answer {
    let vm = vcpu_ref.vm;
    let size = access.size.into();
    let mut socket = vm.socket.lock();
    if socket.reset.is_some() && !has_let_go(vm, &mut socket) {
        return Answer::Again;
    }
    let ram = Regions(vm.view());
    let (read, effect) = match (&mut socket.transport, place, access.write) {
        (Transport::Mmio(device), Place::Registers(at), false) => {
            (device.read(at, size), Effect::None)
        }
        (Transport::Mmio(device), Place::Registers(at), true) => {
            (0, device.write(at, size, value, &ram))
        }
        (Transport::Pci(device), Place::Registers(at), false) => device.read(at, size),
        (Transport::Pci(device), Place::Registers(at), true) => {
            (0, device.write(at, size, value, &ram))
        }
        (Transport::Pci(device), Place::Space(at), false) => device.read_space(at, size),
        (Transport::Pci(device), Place::Space(at), true) => {
            (0, device.write_space(at, size, value, &ram))
        }
        // The MMIO transport has no configuration space of a PCI function.
        (Transport::Mmio(_), Place::Space(_), _) => (0, Effect::None),
    };
    let mut answer = Answer::Done(read);
    match effect {
        Effect::Line => acknowledge(vcpu_ref, &mut socket),
        Effect::Reset => {
            renew(vm, &mut socket);
            // If the vCPU executes the store again, it resets a device that is already reset, with
            // the same effect.
            if !has_let_go(vm, &mut socket) {
                answer = Answer::Again;
            }
        }
        Effect::Queues => {
            publish(vm, socket);
            return answer;
        }
        Effect::Notified(index @ (RX | TX)) => {
            notify(vcpu_ref, socket, index);
            return answer;
        }
        // The event queue is not used.
        Effect::None | Effect::Notified(_) => return answer,
    }
    let mask = line(vm, &socket);
    drop(socket);
    settle(vm, vcpu_ref.vcpu, mask);
    answer
}

/// Records how long the interrupt took, after an access by which the driver may have acknowledged
/// it.
fn acknowledge(vcpu_ref: &VcpuRef, socket: &mut Socket) {
    let raised = core::mem::take(&mut socket.raised);
    if raised > 0 {
        let [held, waited] = lock::take_longest();
        let notified = timer::ticks().wrapping_sub(raised);
        let tail = match SHORTEST_TAIL.swap(u64::MAX, Ordering::Relaxed) {
            u64::MAX => 0,
            ticks => ticks,
        };
        vcpu_ref.record(RecordKind::PacketTaken, 0, pack([notified, held, waited, tail]), 0);
    }
}

/// Publishes the queues that are in use to the broker. Without a broker, the device needs a reset.
fn publish(vm: &'static Vm, mut socket: Held<'_, Socket>) {
    let Some(service) = service::get() else { return };
    if service.is_abandoned() {
        return break_down(vm, socket);
    }
    let device = &service.exchange.port(vm.index()).device;
    for index in [RX, TX] {
        if let Some(queue) = socket.transport.queue(index) {
            device.publish(index, queue);
        }
    }
    drop(socket);
    service.wake();
}

/// Notifies the broker that the driver has made packets, or receive buffers, available.
fn notify(vcpu_ref: &VcpuRef, socket: Held<'_, Socket>, index: usize) {
    let Some(service) = service::get() else { return };
    let ticks = timer::ticks();
    // The newest record in the ring is that of this exit.
    let transport = ticks.wrapping_sub(vcpu_ref.ring.latest());
    let device = &service.exchange.port(vcpu_ref.vm.index()).device;
    device.notify(index, ticks, transport);
    drop(socket);
    service.wake();
}

/// Sets the level of the interrupt as the registers require.
fn line(vm: &Vm, socket: &Socket) -> VcpuMask {
    vm.gic.lock().set_level(IntId(vm.view().vm.vsock_intid), socket.transport.line())
}

/// The VMs that one call of the broker has interrupted.
pub struct Raised {
    /// Set of their ports, one bit each.
    ports: u32,
    /// Time at which the last VM's interrupt was pending, in ticks.
    last: u64,
}

impl Raised {
    /// Returns the state of a call that has interrupted no VM yet.
    pub const fn new() -> Self {
        Self { ports: 0, last: 0 }
    }
}

/// Applies the broker's report about the VM's device, on the broker's core: returned buffers, or an
/// invalid ring. Returns whether the VM was interrupted.
pub fn complete(service: &Service, vm: &Vm, raised: &mut Raised) -> bool {
    if !is_there(vm) {
        return false;
    }
    let device = &service.exchange.port(vm.index()).device;
    let mut socket = vm.socket.lock();
    // The state is read under the lock, so it belongs to the device's present epoch.
    let used = device.used();
    let broken = device.broken().filter(|_| !socket.transport.is_broken());
    if used == socket.used && broken.is_none() {
        return false;
    }
    if used != socket.used {
        socket.used = used;
        socket.raised = timer::ticks();
        socket.transport.signal_used();
    }
    if let Some(reason) = broken {
        vm.deny_at(0, Denial::Virtio, reason.into(), 0);
        socket.transport.break_down();
    }
    let mask = line(vm, &socket);
    drop(socket);
    // The time is taken before the other core is notified, because that core may take the interrupt
    // at once.
    raised.last = timer::ticks();
    raised.ports |= 1 << (vm.index() % PORTS);
    device.raise(timer::ns_at(raised.last));
    kick(vm, mask);
    true
}

/// Copies at most [`TAKEN`] of the broker's records into the trace, once for each call of the
/// broker. `devices` are the devices that the call has left. The records are copied only after the
/// VMs have been interrupted.
pub fn record(service: &Service, vcpu_ref: &VcpuRef, devices: &mut DeviceSet, raised: &Raised) {
    if devices.is_recorded() {
        return;
    }
    devices.set_recorded();
    let exchange = service.exchange;
    let push = |record: &PacketRecord, kind, value| {
        let tag = Origin::new(record.port as u8, 0).tag(kind, record.detail);
        vcpu_ref.ring.push(timer::ticks(), tag, record.phases, value);
    };
    // Relaxed: only one core accesses the counter.
    let mut taken = TAKEN_RECORDS.load(Ordering::Relaxed);
    for _ in 0..TAKEN {
        let Some(record) = exchange.next_record(&mut taken) else { break };
        match record.event {
            PacketEvent::Sent => push(&record, RecordKind::PacketSent, record.value),
            PacketEvent::Chunk => push(&record, RecordKind::PacketChunk, record.value),
            PacketEvent::Arrived => {}
        }
    }
    TAKEN_RECORDS.store(taken, Ordering::Relaxed);
    if let Some(record) = exchange.arrival() {
        let device = &exchange.port(record.to).device;
        if raised.ports >> (record.to % PORTS) & 1 == 0 {
            // A driver that has disabled the interrupt can see the packet by now.
            device.raise(timer::now_ns());
        }
        let at = device.raised();
        push(&record, RecordKind::PacketArrived, at.saturating_sub(record.value));
    }
    if raised.ports != 0 {
        let tail = timer::ticks().wrapping_sub(raised.last);
        // Relaxed: a statistic on which nothing depends.
        SHORTEST_TAIL.fetch_min(tail, Ordering::Relaxed);
    }
}

/// Returns how many packets of the VM the broker counted as malformed or not allowed.
pub fn refused(vm: &Vm) -> u64 {
    let service = Some(vm).filter(|vm| is_there(vm)).and_then(|_| service::get());
    service.map_or(0, |service| service.exchange.port(vm.index()).refused())
}

/// Returns the counts of flow `index`; none if there is no such flow.
pub fn report(index: usize) -> Option<wire::FlowCounts> {
    let service = service::get()?;
    if index >= crate::system::get().flows().len() {
        return None;
    }
    let time_ns = timer::now_ns();
    let counts: PacketCounts = service.exchange.counts(index);
    Some(wire::FlowCounts {
        time_ns,
        flow: index as u32,
        dropped: counts.dropped as u32,
        packets: counts.packets,
        lost: counts.lost,
        observed_max_ns: counts.observed_max_ns,
        least_ns: counts.least_ns,
        late: counts.late,
        observed_max_packet: counts.observed_max_packet,
        observed_max_arrived_ns: counts.observed_max_arrived_ns,
    })
}
