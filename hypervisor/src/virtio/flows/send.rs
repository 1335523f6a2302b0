//! The ring by which a driver sends: packets are taken, judged, and handed to the broker or passed
//! on.

use super::{
    flow,
    link::{LINK, Link, break_down, broker_pieces, raise_own},
    memory::Memory,
    multicast,
    receive::deliver,
    socket::{Sent, Socket},
};
use crate::{
    arch::{memory::peephole::Peephole, sysreg, timer},
    vm::{VcpuRef, Vm},
};
use weir_broker::shared::Packet;
use weir_trace::{
    phases::pack,
    record::{RecordKind, packet},
    wire::Denial,
};
use weir_units::Cid;
use weir_vsock::{
    GuestMemory,
    device::TX,
    flows::PacketVerdict,
    multicast::{FlowGroup, Post},
    queue::{Broken, Chain, Segment},
    vsock::{HEADER_LEN, Header, Malformed, Operation},
};

/// What becomes of a packet that was sent.
enum Fate {
    /// The ring is empty.
    Empty,
    /// The broker has it, or it makes no sense.
    Done,
    /// To be passed on.
    Control(Header, Operation, usize),
    /// To be answered.
    Refused(Header),
    /// Of a connection that there is no more: to be answered, but nothing to be refused for, as the
    /// driver may not know yet.
    Late(Header),
}

/// Takes what the driver sends, as many packets as the VM sends flows; if there is more, the
/// notification traps again, and these are of that one. So the first of them is not later at the
/// broker for all that a driver can put into its ring.
pub(super) fn drain(vcpu_ref: &'static VcpuRef, peephole: &mut Peephole) {
    let vm = vcpu_ref.vm;
    let Some(link) = LINK.get() else { return };
    let ticks = timer::ticks();
    let now = timer::ns_at(ticks);
    // The exit's record is the newest.
    let transport = ticks.wrapping_sub(vcpu_ref.ring.latest());
    let mut notice = Notice { now, mark: ticks, transport, submitted: false, post: None };
    let most = link.sends.get(vm.index()).copied().unwrap_or(1);
    let mut again = true;
    for _ in 0..most {
        let fate = {
            let mut socket = vm.socket.lock();
            match take(vcpu_ref, &mut socket, link, &mut notice, peephole) {
                Ok(fate) => fate,
                Err(broken) => {
                    break_down(vcpu_ref, &mut socket, broken);
                    Fate::Empty
                }
            }
        };
        // Asked first: taking copies it, which is long.
        if notice.post.is_some()
            && let Some((first, post)) = notice.post.take()
        {
            multicast::carry_out(first, post, peephole);
        }
        let answer = match fate {
            Fate::Empty => {
                again = false;
                break;
            }
            Fate::Done => None,
            Fate::Control(header, operation, flow) => {
                pass(vm, &header, operation, (flow, now), peephole)
            }
            Fate::Refused(header) => {
                vm.count_denial(Denial::Virtio);
                header.refusal()
            }
            Fate::Late(header) => header.refusal(),
        };
        if let Some(answer) = answer {
            let _ = deliver(&answer, peephole);
        }
    }
    if notice.submitted {
        link.service.wake();
    }
    let mut socket = vm.socket.lock();
    let mut memory = Memory::new(vm.view(), peephole);
    if again {
        let queue = socket.transport.queue(TX);
        again = queue.is_some_and(|queue| queue.ask_notification(&mut memory) == Ok(true));
    }
    raise_own(&mut socket, &mut memory);
    if again {
        // The caller steps over the store; so it is carried out once more, behind whatever
        // interrupts came.
        sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_sub(4));
    }
}

/// Passes a control packet of a flow; gives the answer if it can't be. More than the flow admits
/// are dropped: whoever sends them takes the time of the one who gets them.
fn pass(
    vm: &Vm,
    header: &Header,
    operation: Operation,
    (flow, now): (usize, u64),
    peephole: &mut Peephole,
) -> Option<Header> {
    let (entry, kept) = flow::get(flow)?;
    if !kept.admits_control(now) {
        vm.count_denial(Denial::Virtio);
        return None;
    }
    let is_in_vain = || LINK.get().is_none_or(|link| link.service.is_abandoned());
    if entry.members > 1 {
        if operation == Operation::Request && is_in_vain() {
            return header.refusal();
        }
        multicast::control(entry, header, operation, now, peephole);
        return None;
    }
    let forth = header.src_cid == Cid::of_vm(entry.from);
    let noted = kept.note(header, operation, forth);
    // Looked at behind the note: see `abandon`.
    if !noted || is_in_vain() && operation == Operation::Request {
        return header.refusal();
    }
    let answer = deliver(header, peephole)?;
    // Who asked for a connection learns that there will be none.
    kept.note(&answer, Operation::Reset, !forth);
    Some(answer)
}

/// A driver's notification that it sends, while it is dealt with.
struct Notice {
    /// The time of all its packets, in ns.
    now: u64,
    /// When the last phase ended, in ticks.
    mark: u64,
    /// Ticks from the exit until then; of the first packet only.
    transport: u64,
    /// The broker has got packets.
    submitted: bool,
    /// What flows to several receivers have to say, once no device is locked.
    post: Option<(usize, Post)>,
}

/// Takes the next packet out of the ring of a device.
fn take(
    vcpu_ref: &'static VcpuRef,
    socket: &mut Socket,
    link: &Link,
    notice: &mut Notice,
    peephole: &mut Peephole,
) -> Result<Fate, Broken> {
    let vm = vcpu_ref.vm;
    let locked = timer::ticks();
    let mut memory = Memory::new(vm.view(), peephole);
    let Some(queue) = socket.transport.queue(TX) else { return Ok(Fate::Empty) };
    let mut popped = queue.pop(&mut memory)?;
    if popped.is_none() && queue.ask_notification(&mut memory)? {
        popped = queue.pop(&mut memory)?;
    }
    let Some(chain) = popped else { return Ok(Fate::Empty) };
    let mut bytes = [0; HEADER_LEN];
    let len = gather(&mut memory, chain.readable(), &mut bytes)?;
    let header = Header::from_bytes(&bytes);
    let room = len.checked_sub(HEADER_LEN as u64);
    let judged = |operation| (operation, flow::judge(&header, operation));
    let checked = room.map(|room| header.check(vm.view().cid(), room).map(judged));
    let fate = match checked {
        None | Some(Err(Malformed::Unknown | Malformed::Source | Malformed::Length)) => {
            vm.count_denial(Denial::Virtio);
            Fate::Done
        }
        // What is longer than the flow's packets would take the others' time; of best effort only
        // ever a chunk does.
        Some(Ok((Operation::Data, PacketVerdict::Transfer(flow))))
            if flow::get(flow)
                .is_some_and(|(entry, _)| entry.period > 0 && header.len > entry.size) =>
        {
            Fate::Refused(header)
        }
        Some(Ok((operation, PacketVerdict::Transfer(flow)))) => {
            let parsed = timer::ticks();
            if submit(vm, socket, link, &chain, (&header, operation, flow), notice) {
                let inserted = timer::ticks();
                let phases = [
                    core::mem::take(&mut notice.transport),
                    parsed.wrapping_sub(locked),
                    locked.wrapping_sub(notice.mark),
                    inserted.wrapping_sub(parsed),
                ];
                let tag = vcpu_ref.who.tag(RecordKind::PacketSent, packet(flow as u8, chain.head));
                vcpu_ref.ring.push(inserted, tag, pack(phases), header.len.into());
                link.service.partition.port(vm.index()).ring(inserted);
                notice.mark = inserted;
                notice.submitted = true;
                return Ok(Fate::Done);
            }
            Fate::Late(header)
        }
        Some(Ok((operation, PacketVerdict::Pass(flow)))) => Fate::Control(header, operation, flow),
        Some(Err(Malformed::Kind) | Ok((_, PacketVerdict::Refuse))) => Fate::Refused(header),
    };
    if let Some(queue) = socket.transport.queue(TX) {
        queue.push(&mut memory, chain.head, 0)?;
    }
    Ok(fate)
}

/// Copies the first bytes of buffers; gives the bytes of all.
fn gather(memory: &mut Memory<'_>, segments: &[Segment], to: &mut [u8]) -> Result<u64, Broken> {
    let mut rest = to;
    for segment in segments {
        let len = rest.len().min(segment.len as usize);
        let (now, later) = rest.split_at_mut(len);
        memory.read(segment.address, now)?;
        rest = later;
    }
    Ok(segments.iter().map(|segment| u64::from(segment.len)).sum())
}

/// Hands a packet of a flow to the broker; false if it can't, or if the packet belongs to no
/// connection.
fn submit(
    vm: &Vm,
    socket: &mut Socket,
    link: &Link,
    chain: &Chain,
    (header, operation, flow): (&Header, Operation, usize),
    notice: &mut Notice,
) -> bool {
    let now = notice.now;
    let Some((entry, kept)) = flow::get(flow) else { return false };
    if link.service.is_abandoned() {
        return false;
    }
    let Some(pieces) = broker_pieces(vm, chain.readable()) else { return false };
    let data = operation == Operation::Data;
    // Before the connection is looked at: if that goes on, the receiver's boot in which it was made
    // does in this epoch. What was sent by it before its sender learned of its end must not come
    // into a new one of the same ports.
    let epoch = link.service.partition.port(entry.to as usize).epoch();
    let shared = entry.members > 1;
    if !shared && !kept.is_known(header) {
        return false;
    }
    // What ends a connection keeps the period like a packet, or it would take others' time: the
    // broker moves it like one.
    let stamp = kept.stamp(now);
    let packet = Packet {
        flow: flow as u8,
        eligible: stamp.eligible,
        deadline: stamp.deadline,
        epoch,
        header: header.to_bytes(),
        pieces,
    };
    let rings = link.service.partition.port(vm.index());
    let mut members = 0;
    if shared {
        let due = match stamp.deadline {
            u64::MAX => now,
            deadline => deadline,
        };
        let mut post = Post::new();
        // Under the group's lock: what is on its way to a receiver is not taken back beside it.
        let submit = |group: &mut FlowGroup, post: &mut Post| {
            let receivers = group.send(header, operation, (now, due), post)?;
            rings.submit_to(chain.head, &packet, receivers);
            Some(receivers)
        };
        let receivers = multicast::with(flow, submit, &mut post).flatten();
        notice.post = Some((flow, post));
        let Some(receivers) = receivers else { return false };
        members = receivers;
    } else {
        kept.note(header, operation, true);
        rings.submit(chain.head, &packet);
    }
    // The device is locked: it is not completed before.
    if let Some(place) = socket.sent.get_mut(usize::from(chain.head)) {
        *place = Some(Sent { flow: flow as u8, members, data, eligible: stamp.eligible });
    }
    true
}
