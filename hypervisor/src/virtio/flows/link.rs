//! What the hypervisor shares with the broker, and the signals to it and to drivers.

use super::{flow, memory::Memory, socket::Socket};
use crate::{
    arch::{lock::Lock, memory::peephole::Peephole, timer},
    system,
    vm::{self, VcpuRef, Vm, interrupts::kick},
};
use core::sync::atomic::{AtomicBool, Ordering};
use spin::Once;
use weir_abi::{PARTITION_IPA, PARTITION_LEN, VSOCK_BAR_LEN, WINDOWS};
use weir_broker::shared::{self, Doorbell, PORTS, Partition, Pieces, Settings};
use weir_trace::wire::Denial;
use weir_units::{IntId, Nanos};
use weir_vdev::gic::{Sgi, VcpuMask};
use weir_vsock::{
    device::{RX, TX},
    pci,
    queue::{Broken, Segment},
};

/// How much of its core's time a broker may need for a copy that was begun; one that needs more is
/// stopped.
const LONGEST_COPY: Nanos = Nanos(20_000_000);

/// How much of its core's time the broker has to become ready, before the VMs in flows start
/// without it.
const LONGEST_START: Nanos = Nanos(100_000_000);

/// What the hypervisor shares with the broker.
pub(super) struct Link {
    pub(super) partition: &'static Partition,
    /// The broker's place in the system.
    pub(super) broker: usize,
    /// In how many ns it has had [`LONGEST_COPY`], at the latest.
    pub(super) longest_copy: u64,
    /// In how many ns it has had [`LONGEST_START`], at the latest.
    pub(super) longest_start: u64,
    pub(super) doorbell: Doorbell,
    /// Packets that a notification of each VM is worth: as many as it sends flows, and one at the
    /// least.
    pub(super) sends: [u8; PORTS],
    /// Completions taken so far.
    pub(super) taken: Lock<u32>,
    /// The broker's life has ended: nobody moves packets any more.
    pub(super) abandoned: AtomicBool,
}

pub(super) static LINK: Once<Link> = Once::new();

const _: () = assert!(size_of::<Partition>() as u64 <= PARTITION_LEN);
const _: () = assert!(shared::ADDRESS == PARTITION_IPA && pci::LEN == VSOCK_BAR_LEN);
const _: () = assert!(shared::WINDOWS.start == WINDOWS.start && shared::WINDOWS.end == WINDOWS.end);

/// Takes the flows of a system in; on the boot core, before another starts. `address` is where the
/// partition is mapped.
pub fn init(address: u64) {
    let system = system::get();
    // SAFETY: `memory::shared` gave PARTITION_LEN bytes there for good, which the assertion above
    // says is enough, page-aligned, all zeros; the type is atomics only, of which each bit pattern
    // is one, and both sides use it through atomics alone.
    let partition: &'static Partition = unsafe { &*(address as *const Partition) };
    flow::init();
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
    let is_first = |(index, flow): &(usize, &weir_abi::Flow)| {
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

/// How long, in ns, the first start of `vm` waits for the broker at most; none if the VM is in no
/// flow, if the broker is ready, or if it has ended.
pub fn wait_for_broker(vm: &Vm) -> Option<u64> {
    let link = LINK.get().filter(|_| vm.view().vm.vsock != 0)?;
    let waits = !link.partition.is_ready() && !link.abandoned.load(Ordering::Relaxed);
    waits.then_some(link.longest_start)
}

/// Gives the interrupt the level that the registers say.
pub(super) fn line(vm: &Vm, socket: &Socket) -> VcpuMask {
    vm.gic.lock().set_level(IntId(vm.view().vm.vsock_intid), socket.transport.line())
}

/// Asks the driver whether it wants an interrupt for what it got back, and raises it. Gives the
/// time at which it was pending.
pub(super) fn raise(vm: &'static Vm, socket: &mut Socket, peephole: &mut Peephole) -> u64 {
    raise_own(socket, &mut Memory::new(vm.view(), peephole));
    let mask = line(vm, socket);
    // Before the other core is told: an emulator that runs its cores in turn may run that one
    // first.
    let now = timer::now_ns();
    kick(vm, mask);
    now
}

/// The driver's ring made no sense.
pub(super) fn break_down(vcpu_ref: &VcpuRef, socket: &mut Socket, broken: Broken) {
    vcpu_ref.vm.deny(vcpu_ref.vcpu, Denial::Virtio, broken as u64);
    socket.transport.break_down();
}

/// Makes the broker look at the partition, if it is about to sleep: a broker at work is interrupted
/// by nobody, whatever guests do.
pub(super) fn wake_broker(link: &Link) {
    if !link.doorbell.must_ring(link.partition) {
        return;
    }
    if let Some(broker) = vm::all().nth(link.broker) {
        let sgi = Sgi { intid: shared::SGI, group1: true, targets: VcpuMask::only(0) };
        kick(broker, broker.mail.post(0, sgi));
    }
}

/// As [`raise`], for a caller that sets the line itself.
pub(super) fn raise_own(socket: &mut Socket, memory: &mut Memory<'_>) {
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
pub(super) fn broker_pieces(vm: &Vm, segments: &[Segment]) -> Option<Pieces> {
    let mut seen = [Segment::default(); weir_vsock::queue::MAX_SEGMENTS];
    for (place, segment) in seen.iter_mut().zip(segments) {
        let address = vm.view().broker_address(segment.address, segment.len.into())?;
        *place = Segment { address, len: segment.len };
    }
    Some(Pieces::new(seen.into_iter().take(segments.len())))
}
