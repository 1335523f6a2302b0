//! What the broker is done with goes back to the drivers.

use super::{
    flow,
    link::{LINK, Link, raise},
    lock::Held,
    memory::Memory,
    multicast,
    receive::offer,
    socket::{Sent, Socket},
};
use crate::{
    arch::{memory::peephole::Peephole, timer},
    trace::Ring,
    vm::{self, VcpuRef, Vm},
};
use core::sync::atomic::{AtomicU64, Ordering};
use weir_broker::shared::{ChainOutcome, Completion, Partition, RING};
use weir_trace::record::{RecordKind, Who, packet};
use weir_units::CoreId;
use weir_vsock::{
    device::{RX, TX},
    multicast::{FlowGroup, Post},
    vsock::HEADER_LEN,
};

/// The shortest time from a receiver's interrupt to the end of the broker's hypercall since this
/// was last reported, in ticks.
static SHORTEST_TAIL: AtomicU64 = AtomicU64::new(u64::MAX);

/// Returns that time, in ticks, and starts anew; 0 if there was none.
pub fn take_tail() -> u64 {
    match SHORTEST_TAIL.swap(u64::MAX, Ordering::Relaxed) {
        u64::MAX => 0,
        ticks => ticks,
    }
}

/// Completions, or new buffers for the broker, in one turn of a device's lock.
const TURN: u32 = 4;

/// The broker has completions; on its core.
pub fn complete(core: CoreId, vcpu_ref: &VcpuRef) {
    let Some(link) = LINK.get() else { return };
    // SAFETY: on this core, in a trap of its guest.
    let mut peephole = unsafe { Peephole::open(core) };
    let mut taken = link.taken.lock();
    // The receiver's interrupt is pending before the packet counts as arrived: the receiver's
    // completions come first.
    let (mut device, mut raised): (Option<Device>, _) = (None, timer::now_ns());
    let mut delivered = None;
    for _ in 0..Partition::most_completions() {
        let Some(completion) = link.service.partition.next_completion(&mut taken) else { break };
        if device.as_ref().is_none_or(|device| device.vm.index() != completion.port) {
            if let Some(device) = device.take()
                && let Some(receiver) = device.end(link, &mut peephole)
            {
                raised = receiver.raised;
                delivered = Some(receiver.told);
            }
            device = vm::all().nth(completion.port).map(Device::begin);
        }
        if let Some(device) = &mut device {
            device.complete(link, vcpu_ref.ring, (&completion, raised), &mut peephole);
        }
    }
    if let Some(device) = device {
        let _ = device.end(link, &mut peephole);
    }
    let ended = timer::ticks();
    if let Some(delivered) = delivered {
        // Relaxed, here and below: a figure, on which nothing depends.
        SHORTEST_TAIL.fetch_min(ended.wrapping_sub(delivered), Ordering::Relaxed);
    }
    multicast::attend(&mut peephole);
}

/// The device whose completions come next.
struct Device {
    vm: &'static Vm,
    /// Locked, but between two turns.
    socket: Option<Held<'static, Socket>>,
    turns: u32,
    /// Its driver got something back.
    returned: bool,
    /// And the broker has fewer of its buffers.
    filled: bool,
}

impl Device {
    fn begin(vm: &'static Vm) -> Self {
        Self { vm, socket: Some(vm.socket.lock()), turns: 0, returned: false, filled: false }
    }

    fn complete(
        &mut self,
        link: &Link,
        ring: &'static Ring,
        (completion, raised): (&Completion, u64),
        peephole: &mut Peephole,
    ) {
        if self.turns == TURN {
            // Given up first: whoever waits for it is next.
            self.socket = None;
            self.turns = 0;
        }
        let socket = self.socket.get_or_insert_with(|| self.vm.socket.lock());
        // Of several receivers, one waits for the lock of their connections inside: once in a turn.
        let several = !matches!(completion.outcome, ChainOutcome::Received(_))
            && flow::get(completion.flow.into()).is_some_and(|(flow, _)| flow.members > 1);
        self.turns = if several { TURN } else { self.turns + 1 };
        if completion.epoch == link.service.partition.port(completion.port).epoch()
            && finish((self.vm, ring), socket, (completion, raised), peephole)
        {
            self.returned = true;
            self.filled |= completion.outcome != ChainOutcome::Sent;
        }
    }

    /// Raises the interrupt if the driver got something back.
    fn end(mut self, link: &Link, peephole: &mut Peephole) -> Option<Raised> {
        let socket = self.socket.as_mut().filter(|_| self.returned)?;
        socket.raised = timer::ticks();
        let raised = raise(self.vm, socket, peephole);
        let told = timer::ticks();
        self.socket = None;
        let some = || offer(self.vm, &mut self.vm.socket.lock(), link, TURN) == TURN;
        // Bounded: the broker has no more buffers than are in a ring.
        let _ = self.filled && (0..RING as u32 / TURN).all(|_| some());
        Some(Raised { raised, told })
    }
}

/// An interrupt that was raised.
struct Raised {
    /// When it was pending, in ns.
    raised: u64,
    /// When its core had been told of it, in ticks.
    told: u64,
}

/// Returns one chain to its driver; false for one that the broker does not have. `raised` is when
/// the last receiver's interrupt was pending.
fn finish(
    (vm, ring): (&'static Vm, &'static Ring),
    socket: &mut Socket,
    (completion, raised): (&Completion, u64),
    peephole: &mut Peephole,
) -> bool {
    let head = completion.head;
    let mut memory = Memory::new(vm.view(), peephole);
    let (index, written) = match completion.outcome {
        ChainOutcome::Received(written) => {
            let bit = 1u64.checked_shl(head.into()).unwrap_or(0);
            if socket.offered & bit == 0 {
                return false;
            }
            socket.offered &= !bit;
            let bytes = u64::from(written).saturating_sub(HEADER_LEN as u64);
            let tag = Who::new(vm.index() as u8, 0).tag(RecordKind::PacketChunk, head.into());
            ring.push(timer::ticks(), tag, completion.phases, bytes);
            (RX, written)
        }
        outcome => {
            let Some(place) = socket.sent.get_mut(usize::from(head)) else { return false };
            let Some(sent) = *place else { return false };
            let member = completion.flow.wrapping_sub(sent.flow);
            // Of several receivers each answers once.
            let left = match sent.members {
                0 if member == 0 => 0,
                members if members.checked_shr(member.into()).unwrap_or(0) & 1 != 0 => {
                    let answered = |group: &mut FlowGroup, _: &mut Post| {
                        group.answered(member.into(), timer::now_ns());
                    };
                    // The broker looks at the alarm when this is over: nobody need wake it for
                    // that.
                    let _ = multicast::with(sent.flow.into(), answered, &mut Post::new());
                    members & !(1 << member)
                }
                _ => return false,
            };
            *place = (left != 0).then_some(Sent { members: left, ..sent });
            if let (Some((entry, flow)), true) = (flow::get(completion.flow.into()), sent.data) {
                if outcome == ChainOutcome::Sent {
                    let latency = raised.saturating_sub(sent.eligible);
                    flow.arrived(latency, entry.deadline, raised);
                    let tag = Who::new(vm.index() as u8, 0)
                        .tag(RecordKind::PacketArrived, packet(completion.flow, head));
                    ring.push(timer::ticks(), tag, completion.phases, latency);
                } else {
                    flow.lose(1);
                }
            }
            if left != 0 {
                return false;
            }
            (TX, 0)
        }
    };
    let queue = socket.transport.queue(index);
    queue.is_some_and(|queue| queue.push(&mut memory, head, written).is_ok())
}
