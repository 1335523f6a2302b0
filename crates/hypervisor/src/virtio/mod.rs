//! The socket devices of VMs in flows: rings and control packets here, payloads by the broker.
//!
//! A device's rings are looked at on the core of the VM that notifies, and on the broker's when it has completions, each time
//! through a [`Peephole`]. Data go to the broker by the partition that both share; control packets are passed at once, into a stock of
//! buffers that is kept for them, so that a receiver that returns none holds up its own flows only.
//!
//! Locks: a device's own ([`Socket`]) is taken alone or with a flow's and the VM's GIC inside, never with another device's.

mod flows;
mod memory;

use crate::{
    arch::{Lock, memory::Peephole, relax, sysreg, timer},
    boot,
    cpu::{Core, Seat},
    trace::Ring,
    vm::{
        self, Vm,
        interrupts::{kick, settle},
        life,
    },
};
use core::sync::atomic::{AtomicBool, Ordering};
pub use flows::report;
use memory::Memory;
use spin::Once;
use weir_broker::shared::{
    self, Completion, Doorbell, Outcome, PORTS, Packet, Partition, Pieces, RING, Settings,
};
use weir_config::packed::{
    FIRST_CID, MAX_FLOWS, PARTITION_IPA, PARTITION_LEN, VIRTIO_LEN, WINDOWS,
};
use weir_trace::{
    phases::pack,
    record::{Kind, Who, packet},
    wire::{Denial, FaultKind},
};
use weir_vboard::{
    esr::MmioAccess,
    gic::{Sgi, VcpuMask},
};
use weir_virtio::{
    GuestMemory,
    flows::{Verdict, admit},
    mmio::{Effect, RX, Registers, TX},
    queue::{Broken, Chain, Segment},
    vsock::{HEADER_LEN, Header, Malformed, Operation},
};

/// The part of a receiver's ring that is kept for control packets.
const RESERVE: u16 = 8;
/// The part that the broker has at most. What is kept and what the broker has are together less than half of the ring: Linux makes no
/// buffers available before more than half of them have come back.
const OFFERED: u16 = 4;
/// Control packets that wait for a buffer; more are dropped.
const WAITING: usize = 32;
/// How long a copy that was begun may take, in ns; a broker that needs longer is stopped.
const LONGEST_COPY: u64 = 20_000_000;

/// What the hypervisor shares with the broker.
struct Link {
    partition: &'static Partition,
    /// The broker's place in the system.
    broker: usize,
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
const _: () = assert!(shared::ADDRESS == PARTITION_IPA);
const _: () = assert!(shared::WINDOWS.start == WINDOWS.start && shared::WINDOWS.end == WINDOWS.end);

/// A packet that the broker has.
#[derive(Clone, Copy)]
struct Sent {
    flow: u8,
    /// Data, and not a packet that only must not overtake them.
    data: bool,
    eligible: u64,
}

/// The socket device of a VM.
pub struct Socket {
    registers: Registers,
    /// Receive buffers that neither a packet nor the broker has.
    stock: [Chain; RING],
    stocked: usize,
    waiting: [Header; WAITING],
    waits: usize,
    /// Receive buffers that the broker has, one bit a head.
    offered: u64,
    sent: [Option<Sent>; RING],
    /// When the interrupt was raised for what had arrived, in ticks; 0 once the driver has acknowledged it.
    raised: u64,
}

impl Socket {
    /// Of no VM.
    pub const fn new() -> Self {
        Self {
            registers: Registers::new(0),
            stock: [const { Chain::EMPTY }; RING],
            stocked: 0,
            waiting: [Header::ZERO; WAITING],
            waits: 0,
            offered: 0,
            sent: [None; RING],
            raised: 0,
        }
    }

    /// Forgets everything but its registers.
    fn forget(&mut self) {
        for sent in self.sent.iter_mut().filter_map(Option::take).filter(|sent| sent.data) {
            if let Some((_, flow)) = flows::get(sent.flow.into()) {
                flow.lose(1);
            }
        }
        (self.stocked, self.waits, self.offered, self.raised) = (0, 0, 0, 0);
    }
}

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
    let sends = |vm| system.flows().iter().filter(|flow| flow.from as usize == vm).count().max(1);
    LINK.call_once(|| Link {
        sends: core::array::from_fn(|vm| sends(vm) as u8),
        partition,
        broker: system.header.broker as usize,
        doorbell: Doorbell::new(),
        taken: Lock::new(0),
        abandoned: AtomicBool::new(false),
    });
}

/// Whether `ipa` is in the VM's socket device, and where.
pub fn offset(vm: &Vm, ipa: u64) -> Option<u64> {
    let base = vm.view().vm.vsock;
    let offset = ipa.wrapping_sub(base);
    (base != 0 && offset < VIRTIO_LEN).then_some(offset)
}

/// The life of a VM begins: its device is as after power-on.
pub fn open(vm: &'static Vm) {
    if vm.view().vm.vsock != 0 {
        let mut socket = vm.socket.lock();
        socket.registers = Registers::new(vm.view().cid());
        reset(vm, &mut socket);
    }
}

/// The life of a VM has ended, and none of its vCPUs runs: nobody uses its memory any more, and whoever was connected to it learns
/// that it is gone.
pub fn close(vm: &'static Vm, core: usize) {
    if vm.view().vm.vsock == 0 && !vm.is_broker() {
        return;
    }
    // First of all: a packet that is taken by a connection that goes on is one of the life that ends: see `submit`.
    flows::of(vm).for_each(|(_, flow)| flow.end());
    open(vm);
    // SAFETY: on core `core`, whose VM's life has ended, so that it handles no other trap; the next load opens its windows later.
    let mut peephole = unsafe { Peephole::open(core) };
    if vm.is_broker() {
        abandon(&mut peephole);
        return;
    }
    for (entry, flow) in flows::of(vm) {
        for header in flow.ended(entry, vm.index() as u32) {
            let _ = deliver(&header, &mut peephole);
        }
    }
}

/// The broker is gone: both ends of every connection learn that nothing will come any more.
fn abandon(peephole: &mut Peephole) {
    let Some(link) = LINK.get() else { return };
    // Before the connections are looked at: whoever asks for one is refused, or reset below. Ordered by their lock.
    link.abandoned.store(true, Ordering::Relaxed);
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

/// Carries out an access to the registers.
pub fn access(seat: &'static Seat, core: usize, access: &MmioAccess, at: u64, value: u64) -> u64 {
    let vm = seat.vm;
    let size = access.size.into();
    // SAFETY: on core `core`, in a trap of its guest: nothing else uses its windows until this returns.
    let mut peephole = unsafe { Peephole::open(core) };
    let mut socket = vm.socket.lock();
    if !access.write {
        return socket.registers.read(at, size);
    }
    let memory = Memory::new(vm.view(), &mut peephole);
    let effect = socket.registers.write(at, size, value, &memory);
    match effect {
        Effect::Line => {
            let raised = core::mem::take(&mut socket.raised);
            if raised > 0 {
                let notified = pack([timer::ticks().wrapping_sub(raised), 0, 0, 0]);
                seat.record(Kind::PacketTaken, 0, notified, 0);
            }
        }
        Effect::Reset => reset(vm, &mut socket),
        Effect::Notified(RX) => {
            if let Err(broken) = supply(vm, &mut socket, &mut peephole) {
                break_down(seat, &mut socket, broken);
            }
        }
        Effect::Notified(TX) => {
            drop(socket);
            drain(seat, &mut peephole);
            socket = vm.socket.lock();
        }
        // The queue of events: there are none.
        Effect::None | Effect::Notified(_) => return 0,
    }
    let mask = line(vm, &socket);
    drop(socket);
    settle(vm, seat.vcpu, mask);
    0
}

/// Gives the interrupt the level that the registers say.
fn line(vm: &Vm, socket: &Socket) -> VcpuMask {
    vm.gic.lock().set_level(vm.view().vm.vsock_intid, socket.registers.line())
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
    socket.registers.break_down();
}

/// The device is reset: its rings and what the broker has of them are no more.
fn reset(vm: &'static Vm, socket: &mut Socket) {
    socket.forget();
    let Some(link) = LINK.get() else { return };
    link.partition.reset(vm.index());
    let begun = timer::now_ns();
    // Bounded by LONGEST_COPY, and then by the time in which the broker's core takes an interrupt.
    while link.partition.is_copying(vm.index()) {
        let Some(broker) = vm::all().nth(link.broker).filter(|broker| !broker.is_parked()) else {
            break;
        };
        if timer::now_ns().saturating_sub(begun) > LONGEST_COPY {
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

/// Takes new receive buffers in: for control packets that wait, for the stock, and for the broker.
fn supply(vm: &Vm, socket: &mut Socket, peephole: &mut Peephole) -> Result<(), Broken> {
    let Some(link) = LINK.get() else { return Ok(()) };
    let mut memory = Memory::new(vm.view(), peephole);
    let size = socket.registers.queue(RX).map_or(0, |queue| queue.size());
    // Bounded: the ring has no more than `size` chains that the device does not have already.
    for _ in 0..=size {
        let Some(queue) = socket.registers.queue(RX) else { break };
        let Some(chain) = queue.pop(&mut memory)? else {
            if queue.ask_notification(&mut memory)? {
                continue;
            }
            break;
        };
        let room: u64 = chain.writable().iter().map(|segment| u64::from(segment.len)).sum();
        if room <= HEADER_LEN as u64 {
            return Err(Broken::TooShort);
        }
        if socket.waits > 0 {
            let header = socket.waiting[0];
            socket.waiting.copy_within(1..socket.waits, 0);
            socket.waits -= 1;
            give(socket, &chain, &header, &mut memory)?;
        } else if let Some(place) = socket.stock.get_mut(socket.stocked) {
            *place = chain;
            socket.stocked += 1;
        }
    }
    // A broker without buffers of this receiver's may wait for one.
    let had_none = socket.offered == 0;
    if offer(vm, socket, link) && had_none {
        wake_broker(link);
    }
    raise_own(socket, &mut memory);
    Ok(())
}

/// Lends receive buffers to the broker until it has its part; whether it got any.
fn offer(vm: &Vm, socket: &mut Socket, link: &Link) -> bool {
    let size = socket.registers.queue(RX).map_or(0, |queue| queue.size());
    let (kept, most) = (usize::from(size / RESERVE), u32::from((size / OFFERED).max(1)));
    let before = socket.offered;
    // Bounded: each turn takes one out of the stock.
    while socket.stocked > kept && socket.offered.count_ones() < most {
        socket.stocked -= 1;
        let chain = socket.stock[socket.stocked];
        // It was in the VM's RAM when it was taken in, and RAM stays RAM.
        let Some(pieces) = broker_pieces(vm, chain.writable()) else { continue };
        socket.offered |= 1u64.checked_shl(chain.head.into()).unwrap_or(0);
        link.partition.port(vm.index()).offer(chain.head, &pieces);
    }
    socket.offered != before
}

/// As [`raise`], for a caller that sets the line itself.
fn raise_own(socket: &mut Socket, memory: &mut Memory<'_>) {
    for index in [RX, TX] {
        let wanted = socket
            .registers
            .queue(index)
            .is_some_and(|queue| queue.wants_interrupt(memory) == Ok(true));
        if wanted {
            socket.registers.signal_used();
        }
    }
}

/// Where the broker sees a VM's buffers.
fn broker_pieces(vm: &Vm, segments: &[Segment]) -> Option<Pieces> {
    let mut seen = [Segment::default(); weir_virtio::queue::MAX_SEGMENTS];
    for (place, segment) in seen.iter_mut().zip(segments) {
        let address = vm.view().broker_address(segment.address, segment.len.into())?;
        *place = Segment { address, len: segment.len };
    }
    Some(Pieces::new(seen.into_iter().take(segments.len())))
}

/// Writes a control packet into a buffer and returns it to the driver.
fn give(
    socket: &mut Socket,
    chain: &Chain,
    header: &Header,
    memory: &mut Memory<'_>,
) -> Result<(), Broken> {
    let bytes = header.to_bytes();
    let mut rest = bytes.as_slice();
    for segment in chain.writable() {
        let len = rest.len().min(segment.len as usize);
        let (now, later) = rest.split_at(len);
        memory.write(segment.address, now)?;
        rest = later;
    }
    if let Some(queue) = socket.registers.queue(RX) {
        queue.push(memory, chain.head, HEADER_LEN as u32)?;
    }
    Ok(())
}

/// Passes a control packet to the VM that it is for. Gives the answer if there is nobody.
fn deliver(header: &Header, peephole: &mut Peephole) -> Option<Header> {
    let index = header.dst_cid.checked_sub(FIRST_CID).and_then(|index| usize::try_from(index).ok());
    let Some(vm) = index.and_then(|index| vm::all().nth(index)) else { return header.refusal() };
    let mut socket = vm.socket.lock();
    if socket.registers.queue(RX).is_none() {
        return header.refusal();
    }
    if let Some(last) = socket.stocked.checked_sub(1) {
        let chain = socket.stock[last];
        socket.stocked = last;
        let mut memory = Memory::new(vm.view(), peephole);
        if give(&mut socket, &chain, header, &mut memory).is_err() {
            socket.registers.break_down();
        }
        let _ = raise(vm, &mut socket, peephole);
    } else if socket.waits < WAITING {
        let place = socket.waits;
        socket.waiting[place] = *header;
        socket.waits += 1;
    } else {
        // Its own driver returns no buffers: what is lost is lost to it.
        vm.count_denial(Denial::Virtio);
    }
    None
}

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
    /// Of a connection that there is no more: to be answered, but nothing to be refused for, as the driver may not know yet.
    Late(Header),
}

/// Takes what the driver sends, as many packets as the VM sends flows; if there is more, the notification traps again, and these are of
/// that one. So the first of them is not later at the broker for all that a driver can put into its ring.
fn drain(seat: &'static Seat, peephole: &mut Peephole) {
    let vm = seat.vm;
    let Some(link) = LINK.get() else { return };
    let ticks = timer::ticks();
    let now = timer::ns_at(ticks);
    // The exit's record is the newest.
    let transport = ticks.wrapping_sub(seat.ring.latest());
    let mut notice = Notice { now, mark: ticks, transport, submitted: false };
    let most = link.sends.get(vm.index()).copied().unwrap_or(1);
    let mut again = true;
    for _ in 0..most {
        let fate = {
            let mut socket = vm.socket.lock();
            match take(seat, &mut socket, link, &mut notice, peephole) {
                Ok(fate) => fate,
                Err(broken) => {
                    break_down(seat, &mut socket, broken);
                    Fate::Empty
                }
            }
        };
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
        wake_broker(link);
    }
    let mut socket = vm.socket.lock();
    let mut memory = Memory::new(vm.view(), peephole);
    if again {
        let queue = socket.registers.queue(TX);
        again = queue.is_some_and(|queue| queue.ask_notification(&mut memory) == Ok(true));
    }
    raise_own(&mut socket, &mut memory);
    if again {
        // The caller steps over the store; so it is carried out once more, behind whatever interrupts came.
        sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_sub(4));
    }
}

/// Passes a control packet of a flow; gives the answer if it can't be. More than the flow admits are dropped: whoever sends them takes
/// the time of the one who gets them.
fn pass(
    vm: &Vm,
    header: &Header,
    operation: Operation,
    (flow, now): (usize, u64),
    peephole: &mut Peephole,
) -> Option<Header> {
    let (entry, kept) = flows::get(flow)?;
    if !kept.admits_control(now) {
        vm.count_denial(Denial::Virtio);
        return None;
    }
    let forth = header.src_cid == FIRST_CID + u64::from(entry.from);
    let noted = kept.note(header, operation, forth);
    // Looked at behind the note: see `abandon`.
    let in_vain = LINK.get().is_none_or(|link| link.abandoned.load(Ordering::Relaxed));
    if !noted || in_vain && operation == Operation::Request {
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
}

/// Takes the next packet out of the ring of a device.
fn take(
    seat: &'static Seat,
    socket: &mut Socket,
    link: &Link,
    notice: &mut Notice,
    peephole: &mut Peephole,
) -> Result<Fate, Broken> {
    let vm = seat.vm;
    let locked = timer::ticks();
    let mut memory = Memory::new(vm.view(), peephole);
    let Some(queue) = socket.registers.queue(TX) else { return Ok(Fate::Empty) };
    let mut popped = queue.pop(&mut memory)?;
    if popped.is_none() && queue.ask_notification(&mut memory)? {
        popped = queue.pop(&mut memory)?;
    }
    let Some(chain) = popped else { return Ok(Fate::Empty) };
    let mut bytes = [0; HEADER_LEN];
    let len = gather(&mut memory, chain.readable(), &mut bytes)?;
    let header = Header::from_bytes(&bytes);
    let room = len.checked_sub(HEADER_LEN as u64);
    let judged = |operation| (operation, admit(flows::rules(), &header, operation));
    let checked = room.map(|room| header.check(vm.view().cid(), room).map(judged));
    let fate = match checked {
        Some(Err(Malformed::Kind)) => Fate::Refused(header),
        None | Some(Err(_)) => {
            vm.count_denial(Denial::Virtio);
            Fate::Done
        }
        // What is longer than the flow's packets would take the others' time; of best effort only ever a chunk does.
        Some(Ok((Operation::Data, Verdict::Transfer(flow))))
            if flows::get(flow)
                .is_some_and(|(entry, _)| entry.period > 0 && header.len > entry.size) =>
        {
            Fate::Refused(header)
        }
        Some(Ok((operation, Verdict::Transfer(flow)))) => {
            let parsed = timer::ticks();
            if submit(vm, socket, link, &chain, (&header, operation, flow), notice.now) {
                let inserted = timer::ticks();
                let phases = [
                    core::mem::take(&mut notice.transport),
                    parsed.wrapping_sub(locked),
                    locked.wrapping_sub(notice.mark),
                    inserted.wrapping_sub(parsed),
                ];
                let tag = seat.who.tag(Kind::PacketSent, packet(flow as u8, chain.head));
                seat.ring.push(inserted, tag, pack(phases), header.len.into());
                link.partition.port(vm.index()).ring(inserted);
                notice.mark = inserted;
                notice.submitted = true;
                return Ok(Fate::Done);
            }
            Fate::Late(header)
        }
        Some(Ok((operation, Verdict::Pass(flow)))) => Fate::Control(header, operation, flow),
        Some(Ok((_, Verdict::Refuse))) => Fate::Refused(header),
    };
    if let Some(queue) = socket.registers.queue(TX) {
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

/// Hands a packet of a flow to the broker; false if it can't, or if the packet belongs to no connection.
fn submit(
    vm: &Vm,
    socket: &mut Socket,
    link: &Link,
    chain: &Chain,
    (header, operation, flow): (&Header, Operation, usize),
    now: u64,
) -> bool {
    let Some((entry, kept)) = flows::get(flow) else { return false };
    if link.abandoned.load(Ordering::Relaxed) {
        return false;
    }
    let Some(pieces) = broker_pieces(vm, chain.readable()) else { return false };
    let data = operation == Operation::Data;
    // Before the connection is looked at: if that goes on, the receiver's life in which it was made does in this epoch. What was sent
    // by it before its sender learned of its end must not come into a new one of the same ports.
    let epoch = link.partition.port(entry.to as usize).epoch();
    if !kept.is_known(header) {
        return false;
    }
    kept.note(header, operation, true);
    // What ends a connection keeps the period like a packet, or it would take others' time: the broker moves it like one.
    let stamp = kept.stamp(now);
    if let Some(place) = socket.sent.get_mut(usize::from(chain.head)) {
        *place = Some(Sent { flow: flow as u8, data, eligible: stamp.eligible });
    }
    let packet = Packet {
        flow: flow as u8,
        eligible: stamp.eligible,
        deadline: stamp.deadline,
        epoch,
        header: header.to_bytes(),
        pieces,
    };
    link.partition.port(vm.index()).submit(chain.head, &packet);
    true
}

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
            let sent = socket.sent.get_mut(usize::from(head)).and_then(Option::take);
            let Some(sent) = sent else { return false };
            if let (Some((_, flow)), true) = (flows::get(sent.flow.into()), sent.data) {
                if outcome == Outcome::Sent {
                    let latency = raised.saturating_sub(sent.eligible);
                    flow.arrived(latency);
                    let tag = Who::new(vm.index() as u8, 0)
                        .tag(Kind::PacketArrived, packet(sent.flow, head));
                    ring.push(timer::ticks(), tag, completion.phases, latency);
                } else {
                    flow.lose(1);
                }
            }
            (TX, 0)
        }
    };
    let queue = socket.registers.queue(index);
    queue.is_some_and(|queue| queue.push(&mut memory, head, written).is_ok())
}
