//! What the broker is done with goes back to the drivers.

use super::{LINK, Socket, flows, memory::Memory, multicast, raise, receive::offer, socket::Sent};
use crate::{
    arch::{memory::Peephole, timer},
    cpu::{Core, Seat},
    trace::Ring,
    vm::{self, Vm},
};
use weir_broker::shared::{Completion, Outcome, Partition};
use weir_trace::record::{Kind, Who, packet};
use weir_virtio::{
    device::{RX, TX},
    multicast::{Group, Post},
    vsock::HEADER_LEN,
};

/// The broker has completions; on its core. Gives how long that took, in ticks; nothing for a VM that is not the broker.
pub fn complete(core: &Core, seat: &Seat) -> Option<u64> {
    let begun = timer::ticks();
    let link = LINK.get().filter(|link| link.broker == seat.vm.index())?;
    // SAFETY: on this core, in a trap of its guest.
    let mut peephole = unsafe { Peephole::open(core.index) };
    let mut taken = link.taken.lock();
    let (mut returned, mut filled, mut raised) = (0u32, 0u32, timer::now_ns());
    for _ in 0..Partition::most_completions() {
        let Some(completion) = link.partition.next_completion(&mut taken) else { break };
        let Some(vm) = vm::all().nth(completion.port) else { continue };
        if completion.outcome == Outcome::Sent {
            // The receiver's interrupt is pending before the packet counts as arrived.
            raised = raise_all(&mut returned, &mut peephole).unwrap_or(raised);
        }
        let mut socket = vm.socket.lock();
        if completion.epoch == link.partition.port(completion.port).epoch()
            && finish((vm, seat.ring), &mut socket, (&completion, raised), &mut peephole)
        {
            returned |= 1 << completion.port;
            filled |= u32::from(completion.outcome != Outcome::Sent) << completion.port;
        }
    }
    let _ = raise_all(&mut returned, &mut peephole);
    for vm in vm::all().filter(|vm| filled >> vm.index() & 1 != 0) {
        offer(vm, &mut vm.socket.lock(), link);
    }
    multicast::attend(link, &mut peephole);
    Some(timer::ticks().wrapping_sub(begun))
}

/// Raises the interrupts of those VMs, one bit each, that got buffers back, if there are any; gives the time at which the last was
/// pending.
fn raise_all(returned: &mut u32, peephole: &mut Peephole) -> Option<u64> {
    let mut last = None;
    for vm in vm::all() {
        if *returned >> vm.index() & 1 != 0 {
            let mut socket = vm.socket.lock();
            socket.raised = timer::ticks();
            last = Some(raise(vm, &mut socket, peephole));
        }
    }
    *returned = 0;
    last
}

/// Returns one chain to its driver; false for one that the broker does not have. `raised` is when the last receiver's interrupt was
/// pending.
fn finish(
    (vm, ring): (&'static Vm, &'static Ring),
    socket: &mut Socket,
    (completion, raised): (&Completion, u64),
    peephole: &mut Peephole,
) -> bool {
    let head = completion.head;
    let mut memory = Memory::new(vm.view(), peephole);
    let (index, written) = match completion.outcome {
        Outcome::Received(written) => {
            let bit = 1u64.checked_shl(head.into()).unwrap_or(0);
            if socket.offered & bit == 0 {
                return false;
            }
            socket.offered &= !bit;
            let bytes = u64::from(written).saturating_sub(HEADER_LEN as u64);
            let tag = Who::new(vm.index() as u8, 0).tag(Kind::PacketChunk, head.into());
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
                    let answered = |group: &mut Group, _: &mut Post| {
                        group.answered(member.into(), timer::now_ns());
                    };
                    let _ = multicast::with(sent.flow.into(), answered, &mut Post::new());
                    members & !(1 << member)
                }
                _ => return false,
            };
            *place = (left != 0).then_some(Sent { members: left, ..sent });
            if let (Some((_, flow)), true) = (flows::get(completion.flow.into()), sent.data) {
                if outcome == Outcome::Sent {
                    let latency = raised.saturating_sub(sent.eligible);
                    flow.arrived(latency);
                    let tag = Who::new(vm.index() as u8, 0)
                        .tag(Kind::PacketArrived, packet(completion.flow, head));
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
