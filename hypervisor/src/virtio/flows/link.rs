//! What the hypervisor keeps of the broker, and the signals to drivers.

use super::{flow, memory::Memory, socket::Socket};
use crate::{
    arch::{lock::Lock, memory::peephole::Peephole, timer},
    system,
    virtio::service::Service,
    vm::{VcpuRef, Vm, interrupts::kick},
};
use spin::Once;
use weir_abi::VSOCK_BAR_LEN;
use weir_broker::shared::{PORTS, Pieces};
use weir_trace::wire::Denial;
use weir_units::IntId;
use weir_vdev::gic::VcpuMask;
use weir_vsock::{
    device::{RX, TX},
    pci,
    queue::{Broken, Segment},
};

/// What the hypervisor keeps of the flows' broker.
pub(super) struct Link {
    pub(super) service: &'static Service,
    /// Packets that a notification of each VM is worth: as many as it sends flows, and one at the
    /// least.
    pub(super) sends: [u8; PORTS],
    /// Completions taken so far.
    pub(super) taken: Lock<u32>,
}

pub(super) static LINK: Once<Link> = Once::new();

const _: () = assert!(pci::LEN == VSOCK_BAR_LEN);

/// Takes the flows of a system in; on the boot core, before another starts.
pub fn init(service: &'static Service) {
    let system = system::get();
    flow::init();
    // A flow to several receivers is one flow of its sender.
    let is_first = |(index, flow): &(usize, &weir_abi::PackedFlow)| {
        flow.members <= 1 || flow.first as usize == *index
    };
    let sends = |vm| {
        let flows = system.flows().iter().enumerate().filter(is_first);
        flows.filter(|(_, flow)| flow.from as usize == vm).count().max(1)
    };
    for (index, flow) in system.flows().iter().enumerate() {
        if flow.members > 1 && flow.first as usize == index {
            service.partition.group(index, flow.members as usize);
        }
    }
    LINK.call_once(|| Link {
        service,
        sends: core::array::from_fn(|vm| sends(vm) as u8),
        taken: Lock::new(0),
    });
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
