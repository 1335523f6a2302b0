//! The socket devices of VMs in flows: rings and control packets here, payloads by the broker; and, in [`net`], the network devices.
//!
//! A device's rings are looked at on the core of the VM that notifies, and on the broker's when it has completions, each time
//! through a [`Peephole`]. Data go to the broker by the partition that both share; control packets are passed at once, into a stock of
//! buffers that is kept for them, so that a receiver that returns none holds up its own flows only.
//!
//! Locks: a device's own ([`Socket`]) is taken alone or with a flow's and the VM's GIC inside, never with another device's. It is held for one
//! packet, one buffer, or a few completions, and given to who came first ([`Fair`]), so that nobody waits for all that a driver can put into its rings.

mod completion;
mod flows;
mod lock;
mod memory;
mod multicast;
pub mod net;
mod receive;
mod send;
mod socket;

use crate::{
    arch::{lock::Lock, memory::Peephole, relax, timer},
    boot,
    cpu::Seat,
    vm::{
        self, Vm,
        interrupts::{kick, settle},
        life,
    },
};
pub use completion::complete;
use core::sync::atomic::{AtomicBool, Ordering};
pub use flows::report;
pub use lock::Fair;
use memory::Memory;
use receive::{deliver, supply};
use send::drain;
pub use socket::Socket;
use spin::Once;
use weir_broker::shared::{self, Doorbell, PORTS, Partition, Pieces, Settings};
use weir_model::packed::{
    MAX_FLOWS, PARTITION_IPA, PARTITION_LEN, VIRTIO_LEN, VSOCK_BAR_LEN, VSOCK_SLOT, WINDOWS,
};
use weir_trace::{
    phases::pack,
    record::Kind,
    wire::{Denial, FaultKind},
};
use weir_units::Nanos;
use weir_vdev::{
    esr::MmioAccess,
    gic::{Sgi, VcpuMask},
};
use weir_vsock::{
    device::{self, Effect, RX, TX},
    mmio::Registers,
    pci::{self, Function, SPACE_LEN},
    queue::{Broken, Segment},
    transport::Transport,
    vsock::Header,
};

/// How much of its core's time a broker may need for a copy that was begun; one that needs more is stopped.
const LONGEST_COPY: Nanos = Nanos(20_000_000);

/// How much of its core's time the broker has to become ready, before the VMs in flows start
/// without it.
const LONGEST_START: Nanos = Nanos(100_000_000);

/// What the hypervisor shares with the broker.
struct Link {
    partition: &'static Partition,
    /// The broker's place in the system.
    broker: usize,
    /// In how many ns it has had [`LONGEST_COPY`], at the latest.
    longest_copy: u64,
    /// In how many ns it has had [`LONGEST_START`], at the latest.
    longest_start: u64,
    doorbell: Doorbell,
    /// Packets that a notification of each VM is worth: as many as it sends flows, and one at the least.
    sends: [u8; PORTS],
    /// Completions taken so far.
    taken: Lock<u32>,
    /// The broker's life has ended: nobody moves packets any more.
    abandoned: AtomicBool,
}

static LINK: Once<Link> = Once::new();

const _: () = assert!(size_of::<Partition>() as u64 <= PARTITION_LEN);
const _: () = assert!(shared::ADDRESS == PARTITION_IPA && pci::LEN == VSOCK_BAR_LEN);
const _: () = assert!(shared::WINDOWS.start == WINDOWS.start && shared::WINDOWS.end == WINDOWS.end);

/// Takes the flows of a system in; on the boot core, before another starts. `address` is where the partition is mapped.
pub fn init(address: u64) {
    let system = boot::system();
    // SAFETY: `memory::shared` gave PARTITION_LEN bytes there for good, which the assertion above says is enough, page-aligned, all
    // zeros; the type is atomics only, of which each bit pattern is one, and both sides use it through atomics alone.
    let partition: &'static Partition = unsafe { &*(address as *const Partition) };
    flows::init();
    let settings = Settings {
        flows: system.flows().len() as u8,
        chunk: u32::try_from(system.header.chunk).unwrap_or(u32::MAX),
        rate: system.header.rate,
        start: timer::base().1,
    };
    let flows = system.flows().iter().map(|flow| shared::Flow {
        from: flow.from as u8,
        to: flow.to as u8,
        rate: flow.rate,
        burst: flow.burst(),
    });
    partition.configure(&settings, flows);
    // A flow to several receivers is one flow of its sender.
    let is_first = |(index, flow): &(usize, &weir_model::packed::Flow)| {
        flow.members <= 1 || flow.first as usize == *index
    };
    let sends = |vm| {
        let flows = system.flows().iter().enumerate().filter(is_first);
        flows.filter(|(_, flow)| flow.from as usize == vm).count().max(1)
    };
    for (index, flow) in system.flows().iter().enumerate() {
        if flow.members > 1 && flow.first as usize == index {
            partition.group(index, flow.members as usize);
        }
    }
    LINK.call_once(|| Link {
        sends: core::array::from_fn(|vm| sends(vm) as u8),
        partition,
        broker: system.header.broker as usize,
        longest_copy: system.served(system.header.broker as usize, LONGEST_COPY).0,
        longest_start: system.served(system.header.broker as usize, LONGEST_START).0,
        doorbell: Doorbell::new(),
        taken: Lock::new(0),
        abandoned: AtomicBool::new(false),
    });
}

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
        0 => Transport::Mmio(Registers::new(device::Kind::Socket(cid))),
        // The packed system was checked: it ends below 4 GiB.
        _ => Transport::Pci(Function::new(cid, vm.vsock as u32)),
    }
}

/// How long, in ns, the first start of `vm` waits for the broker at most; none if the VM is in no
/// flow, if the broker is ready, or if it has ended.
pub fn wait_for_broker(vm: &Vm) -> Option<u64> {
    let link = LINK.get().filter(|_| vm.view().vm.vsock != 0)?;
    let waits = !link.partition.is_ready() && !link.abandoned.load(Ordering::Relaxed);
    waits.then_some(link.longest_start)
}

/// The life of a VM begins: its device is as after power-on.
pub fn open(vm: &'static Vm) {
    net::reset(vm);
    if vm.view().vm.vsock != 0 {
        reset(vm, |socket| socket.transport = fresh(vm));
    }
}

/// The life of a VM has ended, and none of its vCPUs runs: nobody uses its memory any more, and whoever was connected to it learns
/// that it is gone.
pub fn close(vm: &'static Vm, core: usize) {
    net::reset(vm);
    if vm.view().vm.vsock == 0 && !vm.is_broker() {
        return;
    }
    // SAFETY: on core `core`, whose VM's life has ended, so that it handles no other trap; the next load opens its windows later.
    let mut peephole = unsafe { Peephole::open(core) };
    if vm.is_broker() {
        abandon(&mut peephole);
        return;
    }
    disconnect(vm, &mut peephole, open);
}

/// A VM's device is reset, by `reset`: whoever was connected to it learns that this end knows of no connection any more.
fn disconnect(vm: &'static Vm, peephole: &mut Peephole, reset: impl FnOnce(&'static Vm)) {
    // First of all: a packet that is taken by a connection that goes on is one of the time before: see `submit`.
    flows::of(vm).for_each(|(_, flow)| flow.end());
    multicast::end(vm, peephole);
    reset(vm);
    for (entry, flow) in flows::of(vm) {
        for header in flow.ended(entry, vm.index() as u32) {
            let _ = deliver(&header, peephole);
        }
    }
}

/// The broker is gone: both ends of every connection learn that nothing will come any more.
fn abandon(peephole: &mut Peephole) {
    let Some(link) = LINK.get() else { return };
    // Before the connections are looked at: whoever asks for one is refused, or reset below. Ordered by their lock.
    link.abandoned.store(true, Ordering::Relaxed);
    multicast::abandon(peephole);
    for (entry, flow) in (0..MAX_FLOWS).map_while(flows::get) {
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

/// Carries out an access to the device: `value` is what a store writes, the result what a load reads.
// By itself: inlined, it makes the frame of each device's path larger than a page.
#[inline(never)]
pub fn access(
    seat: &'static Seat,
    core: usize,
    access: &MmioAccess,
    place: Place,
    value: u64,
) -> u64 {
    let vm = seat.vm;
    let size = access.size.into();
    // SAFETY: on core `core`, in a trap of its guest: nothing else uses its windows until this returns.
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
                seat.record(
                    Kind::PacketTaken,
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
            supply(seat, &mut peephole);
            socket = vm.socket.lock();
        }
        Effect::Notified(TX) => {
            drop(socket);
            drain(seat, &mut peephole);
            socket = vm.socket.lock();
        }
        // The queue of events: there are none.
        Effect::None | Effect::Notified(_) => return read,
    }
    let mask = line(vm, &socket);
    drop(socket);
    settle(vm, seat.vcpu, mask);
    read
}

/// Gives the interrupt the level that the registers say.
fn line(vm: &Vm, socket: &Socket) -> VcpuMask {
    vm.gic.lock().set_level(vm.view().vm.vsock_intid, socket.transport.line())
}

/// Asks the driver whether it wants an interrupt for what it got back, and raises it. Gives the time at which it was pending.
fn raise(vm: &'static Vm, socket: &mut Socket, peephole: &mut Peephole) -> u64 {
    raise_own(socket, &mut Memory::new(vm.view(), peephole));
    let mask = line(vm, socket);
    // Before the other core is told: an emulator that runs its cores in turn may run that one first.
    let now = timer::now_ns();
    kick(vm, mask);
    now
}

/// The driver's ring made no sense.
fn break_down(seat: &Seat, socket: &mut Socket, broken: Broken) {
    seat.vm.deny(seat.vcpu, Denial::Virtio, broken as u64);
    socket.transport.break_down();
}

/// The device is reset, when `renew` has made it so for its driver: its rings and what the broker has of them are no more.
fn reset(vm: &'static Vm, renew: impl FnOnce(&mut Socket)) {
    let mut socket = vm.socket.lock();
    renew(&mut socket);
    socket.forget();
    let Some(link) = LINK.get() else { return };
    link.partition.reset(vm.index());
    // Whoever wants it meanwhile finds a device without rings.
    drop(socket);
    let begun = timer::now_ns();
    // Bounded by the longest copy, and then by the time in which the broker's core takes an interrupt.
    while link.partition.is_copying(vm.index()) {
        let Some(broker) = vm::all().nth(link.broker).filter(|broker| !broker.is_parked()) else {
            break;
        };
        if timer::now_ns().saturating_sub(begun) > link.longest_copy {
            life::stop(broker, FaultKind::Stuck);
        }
        relax();
    }
    wake_broker(link);
}

/// Makes the broker look at the partition, if it is about to sleep: a broker at work is interrupted by nobody, whatever guests do.
fn wake_broker(link: &Link) {
    if !link.doorbell.must_ring(link.partition) {
        return;
    }
    if let Some(broker) = vm::all().nth(link.broker) {
        let sgi = Sgi { intid: shared::SGI, group1: true, targets: VcpuMask::only(0) };
        kick(broker, broker.mail.post(0, sgi));
    }
}

/// As [`raise`], for a caller that sets the line itself.
fn raise_own(socket: &mut Socket, memory: &mut Memory<'_>) {
    for index in [RX, TX] {
        let wanted = socket
            .transport
            .queue(index)
            .is_some_and(|queue| queue.wants_interrupt(memory) == Ok(true));
        if wanted {
            socket.transport.signal_used();
        }
    }
}

/// Where the broker sees a VM's buffers.
fn broker_pieces(vm: &Vm, segments: &[Segment]) -> Option<Pieces> {
    let mut seen = [Segment::default(); weir_vsock::queue::MAX_SEGMENTS];
    for (place, segment) in seen.iter_mut().zip(segments) {
        let address = vm.view().broker_address(segment.address, segment.len.into())?;
        *place = Segment { address, len: segment.len };
    }
    Some(Pieces::new(seen.into_iter().take(segments.len())))
}
