//! The broker's decisions: which packet is taken and moved next, how much of it, and when there is
//! nothing to do.
//!
//! A step takes in what is new of each device (see `intake`), then moves at most one chunk. Each
//! device has a share of packets in a step: as many as its VM sends flows, or receives if these are
//! more. A control packet, one that is refused, and one that comes before those of its flow which
//! may wait at once have left is the last of its device in a step. While a packet with a deadline
//! is ready to be moved, a device gives no more of these than its share, and each reset that is
//! taken in is one: so much a driver that floods its ring, or resets its device again and again,
//! delays another's. What is beyond is held, with what is behind it in the ring.
//!
//! A step reads a bounded number of descriptors of each chain that it uses ([`STRIDE`]). A chunk
//! that needs more goes on in a later step, as if it were of the flow's next packet: its deadline is
//! a period later. So a driver that cuts its packets into many buffers delays its own flow.
//!
//! Each flow has a share of its ends' receive buffers (see `socket`): what a VM sends by one flow
//! leaves buffers to the others.
//!
//! The step is one state machine in one file: each of its parts must keep each flow's `Where` in
//! agreement with the queues `delayed` and `ready`, and end the phase that the next part measures.

use crate::{
    RING, bits,
    clock::Clock,
    flow::Flow,
    ram::{Access, Memory, Window},
    socket::{Move, Owner, Packet, Room, Socket, with},
    transfer::{Bucket, Edf},
};
use core::iter::zip;
use weir_exchange::{
    device::DeviceWords,
    devices::{DeviceKind, DeviceSet},
    flows::{BrokerFlow, Exchange, FLOWS, PORTS, PacketEvent, PacketRecord, TAKEN},
};
use weir_trace::{
    phases::pack,
    record::{BY_ENGINE, WAITED, packet},
};
use weir_units::Cid;
use weir_vsock::{
    device::{RX, TX},
    multicast::FlowGroup,
    queue::{Broken, Direction, Found, STRIDE},
    vsock::{HEADER_LEN, Header, SEQPACKET},
};

/// Flags of a message's last packet: end of message, end of record (virtio 1.2, section 5.10.6.6).
const ENDS: u32 = 3;
/// No packet.
pub(crate) const NONE: u8 = u8::MAX;

/// The DMA engine did not move what it was to move, all or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFailed;

/// What moves bytes in the broker's address space: the core, and a DMA engine.
pub trait Mover {
    /// Copies `len` bytes from one address to another, by the core.
    fn copy(&mut self, from: u64, to: u64, len: u64);
    /// Has the DMA engine move `len` bytes, and returns when it has ended.
    ///
    /// # Errors
    ///
    /// The engine failed or took too long, or there is none; it does not write there any more.
    fn move_by_engine(&mut self, _from: u64, _to: u64, _len: u64) -> Result<(), EngineFailed> {
        Err(EngineFailed)
    }
    /// The counter, in ticks: how long each phase takes is recorded.
    fn ticks(&mut self) -> u64;
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call [`Broker::step`] again.
    Again,
    /// Report to EL2 that buffers of these devices were returned, then call [`Broker::reported`],
    /// then [`Broker::step`] again.
    Report(DeviceSet),
    /// Nothing until an interrupt, or until this time in ns.
    Wait(Option<u64>),
}

impl Step {
    /// Without a sleep.
    const fn or_again(self) -> Self {
        match self {
            Self::Wait(_) => Self::Again,
            step => step,
        }
    }
}

/// Where a flow's first packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// There is none.
    Idle,
    /// In the queue by the time at which it may go.
    Delayed,
    /// In the queue by deadline.
    Ready,
    /// It waits for a buffer of its receiver's.
    Blocked,
}

/// A flow's packets, in the order in which they came: a list through `Packet::next`. Flows to
/// several receivers have one list, in which each has its own place: a receiver that is behind is
/// behind in packets that are all for it too, so that no place is in one that has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) flow: BrokerFlow,
    /// Flows from this one on that are one to several receivers; 1 of a flow to one.
    pub(crate) members: usize,
    bucket: Bucket,
    pub(crate) first: u8,
    pub(crate) last: u8,
    /// Packets that wait, and how many do at most if the sender keeps its period.
    pub(crate) queued: u8,
    pub(crate) most: u8,
    /// Bytes of the first packet's payload that have been moved.
    pub(crate) moved: u32,
    pub(crate) place: Where,
    /// Whether the first packet has waited for buffers of its receiver.
    pub(crate) waited: bool,
    /// The least deadline of the first packet, in ns, after it has waited for buffers: packets that
    /// have come together meanwhile are as far apart for other flows as if they came then.
    least: u64,
}

impl Lane {
    const NONE: Self = Self {
        flow: BrokerFlow::NONE,
        members: 1,
        bucket: Bucket::NONE,
        first: NONE,
        last: NONE,
        queued: 0,
        most: 1,
        moved: 0,
        place: Where::Idle,
        waited: false,
        least: 0,
    };

    /// Whether it is to one of several receivers.
    pub(crate) const fn is_one_of_several(&self) -> bool {
        self.flow.members > 1
    }
}

/// What the broker keeps of devices and flows: too large for a stack.
#[derive(Debug)]
pub struct Store {
    pub(crate) sockets: [Socket; PORTS],
    pub(crate) flows: [Flow; FLOWS],
    pub(crate) moves: [Move; FLOWS],
    /// The connections of flows to several receivers, at the first of them.
    pub(crate) groups: [Option<FlowGroup>; FLOWS],
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// Of a broker that has not begun.
    #[expect(clippy::large_stack_arrays, reason = "a constant, or in a test's heap")]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sockets: [Socket::NEW; PORTS],
            flows: [const { Flow::NONE }; FLOWS],
            moves: [Move::NONE; FLOWS],
            groups: [const { None }; FLOWS],
        }
    }
}

/// A packet that arrives when EL2 has the receiver's interrupt pending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    flow: usize,
    eligible: u64,
}

/// The broker.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug)]
pub struct Broker<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) store: &'a mut Store,
    clock: Clock,
    /// Changes of the ports' devices that were taken in.
    changes: [u32; PORTS],
    /// Ports, one bit each: whose device is to be looked at again as if it had changed; whose rings
    /// may have packets or receive buffers that were not taken in; whose driver got something back
    /// and was not asked whether it wants an interrupt for it. See [`Self::mark`].
    pub(crate) again: u32,
    active: u32,
    returned: u32,
    /// Ports to which a chunk came since the last report.
    receivers: u32,
    /// Devices for the next report.
    named: DeviceSet,
    /// Ports that have taken time that is in no flow's; a step in which no packet with a deadline
    /// is ready forgets it.
    pub(crate) spenders: u32,
    chunk: u32,
    /// Least bytes of a chunk that the DMA engine moves, if it is one piece.
    engine_from: u64,
    engine: Bucket,
    pub(crate) lanes: [Lane; FLOWS],
    pub(crate) flows: usize,
    /// Those from here on are no end of a flow.
    pub(crate) ports: usize,
    /// Packets that a step takes of each device: as many as its VM sends flows, or receives if
    /// these are more, and one at the least.
    pub(crate) share: [u8; PORTS],
    /// Some flow is to several receivers.
    pub(crate) several: bool,
    /// When a flow to several receivers is due; `u64::MAX` without one.
    pub(crate) due: u64,
    delayed: Edf<u8, FLOWS>,
    ready: Edf<u8, FLOWS>,
    /// Some flow has a [`Lane::least`].
    postponed: bool,
    /// Buffers that drivers got back are not reported to EL2 yet.
    pub(crate) unreported: bool,
    /// The last packet that has arrived and is not reported to EL2 yet.
    arrival: Option<Arrival>,
    /// Records so far, and those that are reported to EL2.
    recorded: u32,
    reported: u32,
    /// There was nothing to do, EL2 knows that it must wake the broker from now on, and this is the
    /// last poll before it sleeps.
    dozing: bool,
    pub(crate) phases: Phases,
}

/// How long the phases took that no record has yet, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phases {
    /// When the last phase ended; 0 when the broker has slept since.
    mark: u64,
    find_place: u64,
    /// Packets that this step has taken for flows, and what parsing and insertion of all took, with
    /// those that it has passed or refused.
    pub(crate) packets: u64,
    pub(crate) taking: u64,
    /// Of each port's packets that came while the broker slept.
    wake: [u64; PORTS],
    round_trip: u64,
    finalize: u64,
    /// Chunks since the last hypercall.
    chunks: u64,
}

impl<'a> Broker<'a> {
    /// As configured in `exchange`; the counter has `hertz`.
    // In a function of its own: a profile separates what runs once from what moves packets.
    #[inline(never)]
    #[must_use]
    pub fn new(exchange: &'a Exchange, store: &'a mut Store, hertz: u64) -> Self {
        let settings = exchange.settings();
        let mut broker = Self {
            exchange,
            store,
            clock: Clock::new(settings.start, hertz),
            changes: [0; PORTS],
            again: 0,
            active: 0,
            returned: 0,
            receivers: 0,
            named: DeviceSet::EMPTY,
            spenders: 0,
            chunk: settings.chunk,
            engine_from: settings.engine_from,
            engine: Bucket::new(settings.rate, settings.chunk.into()),
            lanes: [Lane::NONE; FLOWS],
            flows: usize::from(settings.flows),
            ports: 0,
            share: [1; PORTS],
            several: false,
            due: u64::MAX,
            delayed: Edf::new(),
            ready: Edf::new(),
            postponed: false,
            unreported: false,
            arrival: None,
            recorded: 0,
            reported: 0,
            dozing: false,
            phases: Phases::default(),
        };
        for (index, socket) in broker.store.sockets.iter_mut().enumerate() {
            socket.begin(exchange.ram.first(index));
        }
        let (mut sends, mut receives) = ([0; PORTS], [0; PORTS]);
        for index in 0..broker.flows {
            let flow = exchange.flow(index);
            broker.store.flows[index] = Flow::new(&flow, exchange.counts(index));
            let lane = &mut broker.lanes[index];
            (lane.flow, lane.bucket) = (flow, Bucket::new(flow.rate, flow.burst));
            if flow.period > 0 {
                let most = flow.deadline.div_ceil(flow.period);
                lane.most = u8::try_from(most).unwrap_or(u8::MAX);
            }
            broker.several |= flow.members > 1;
            let is_first = usize::from(flow.first) == index;
            if flow.members > 1 && is_first {
                lane.members = usize::from(flow.members);
            }
            let has_share = flow.members <= 1 || is_first;
            sends[usize::from(flow.from)] += u8::from(has_share);
            broker.store.sockets[usize::from(flow.from)].sends(index, has_share);
            broker.store.sockets[usize::from(flow.to)].receives_up_to(index, flow.size);
            receives[usize::from(flow.to)] += 1;
            let end = usize::from(flow.from.max(flow.to)) + 1;
            broker.ports = broker.ports.max(end).min(PORTS);
        }
        for (share, (sends, receives)) in broker.share.iter_mut().zip(zip(sends, receives)) {
            *share = sends.max(receives).max(1);
        }
        broker.begin_groups();
        broker
    }

    /// The counter.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn device(&self, port: usize) -> &'a DeviceWords {
        &self.exchange.port(port).device
    }

    /// Takes in what is new, and moves at most one chunk. `now` is in ns of the counter.
    pub fn step(&mut self, now: u64, mover: &mut impl Mover, access: &mut impl Access) -> Step {
        self.step_before(now, mover, access, |_| None)
    }

    /// As [`Self::step`]; if no flow has anything to do now, takes one step of `background`, which
    /// returns none if it has nothing to do either.
    pub fn step_before<A: Access>(
        &mut self,
        now: u64,
        mover: &mut impl Mover,
        access: &mut A,
        background: impl FnOnce(&mut A) -> Option<Step>,
    ) -> Step {
        let slept = self.phases.mark == 0;
        if slept {
            self.phases.mark = mover.ticks();
        }
        let begun = self.phases.mark;
        (self.phases.taking, self.phases.packets) = (0, 0);
        // What is new costs time, and not what exists: a port without news is one comparison.
        let again = core::mem::take(&mut self.again);
        let changed = again | self.exchange.changed(&mut self.changes, self.ports);
        let mut settled = true;
        for port in bits(changed.into()) {
            settled &= self.refresh(port, now, access);
        }
        let mut ahead = u32::MAX;
        while let Some(port) = bits(((changed | self.active | self.spenders) & ahead).into()).next()
        {
            ahead = u32::MAX << 1 << port;
            let stamp = self.take_in(port, now, mover, access);
            if let Some(stamp) = stamp.filter(|_| slept) {
                let waited = begun.saturating_sub(stamp);
                self.phases.wake[port] = self.phases.wake[port].max(waited);
            }
        }
        if self.due <= now {
            self.attend(now, access);
        }
        while let Some((time, flow)) = self.delayed.peek()
            && time <= now
        {
            self.delayed.pop();
            self.enqueue(flow.into(), now);
        }
        let mark = mover.ticks();
        // Each step asks which devices have news: for the packets that it takes, or to pick what it
        // moves.
        let polling = mark.wrapping_sub(begun).saturating_sub(self.phases.taking);
        let picking = match polling.checked_div(self.phases.packets) {
            Some(find_place) => {
                self.phases.find_place = find_place;
                mark
            }
            None => mark.wrapping_sub(polling),
        };
        self.phases.mark = mark;
        let mut step = self.choose(now, picking, mover, access);
        if let Step::Report(devices) = &mut step {
            *devices = self.settle_returns(access);
        }
        // Buffers may have come that no notification tells of.
        settled &= self.active | self.again == 0;
        let idle = settled && matches!(step, Step::Wait(_));
        if !idle {
            self.dozing = false;
            return if settled { step } else { step.or_again() };
        }
        if let Some(step) = background(access) {
            self.dozing = false;
            // Its time is no phase of a packet.
            self.phases.mark = mover.ticks();
            return step;
        }
        self.dozing = !self.dozing;
        if self.dozing {
            // Stated first, then polled once more: what comes after that poll has its interrupt.
            self.exchange.doze();
            self.phases.mark = mover.ticks();
            return Step::Again;
        }
        self.phases.mark = 0;
        step
    }

    /// Asks the drivers that got something back whether they want an interrupt for it. Returns the
    /// devices of those that do, and of those with a broken ring.
    fn settle_returns(&mut self, access: &mut impl Access) -> DeviceSet {
        let receivers = core::mem::take(&mut self.receivers);
        for port in bits(self.returned.into()) {
            let (device, window) = (self.device(port), self.window(port));
            let socket = &mut self.store.sockets[port];
            if !device.begin(socket.epoch) {
                // It was reset, which is not taken in yet.
                continue;
            }
            let wanted = socket.interrupts(&mut Memory::new(window, access));
            device.end();
            if wanted {
                device.signal(socket.epoch);
                let is_receiver = receivers >> port & 1 != 0;
                let kind = if is_receiver { DeviceKind::Receiver } else { DeviceKind::Sender };
                self.named.insert(kind, port);
            }
            self.returned &= !(1 << port);
        }
        let waiting = self.recorded.wrapping_sub(self.reported);
        self.reported = self.reported.wrapping_add(waiting.min(TAKEN));
        self.unreported = false;
        core::mem::take(&mut self.named)
    }

    /// The hypercall of [`Step::Report`] was made: when it was called and when it came back, and
    /// how long EL2 was busy inside, in ticks.
    pub fn reported(&mut self, called: u64, back: u64, inside: u64) {
        let whole = back.wrapping_sub(called);
        let phases = &mut self.phases;
        phases.round_trip = whole.saturating_sub(inside);
        // From the end of the last chunk, so with what was asked of the drivers before.
        phases.finalize = back.wrapping_sub(phases.mark) / phases.chunks.max(1);
        phases.chunks = 0;
        phases.mark = back;
        let Some(Arrival { flow, eligible }) = self.arrival.take() else { return };
        self.exchange.arrive(None);
        let Some(lane) = self.lanes.get(flow) else { return };
        // EL2 said so in the call.
        let at = self.device(lane.flow.to.into()).raised();
        let kept = &mut self.store.flows[flow];
        kept.arrived(at.saturating_sub(eligible), lane.flow.deadline, at);
        self.publish(flow);
    }

    /// Writes a flow's counts for EL2.
    pub(crate) fn publish(&self, index: usize) {
        self.exchange.set_counts(index, self.store.flows[index].counts);
    }

    /// Hands EL2 a record for its trace.
    #[inline(never)]
    pub(crate) fn record(&mut self, record: PacketRecord) {
        self.exchange.record(self.recorded, record);
        self.recorded = self.recorded.wrapping_add(1);
    }

    /// Records a chunk for the receiver at `port`.
    fn record_chunk(&mut self, port: usize, detail: u32, phases: u64, bytes: u64) {
        self.record(PacketRecord {
            event: PacketEvent::Chunk,
            port,
            to: port,
            detail,
            phases,
            value: bytes,
        });
        self.phases.chunks += 1;
    }

    /// Calls `body` with the memory of the VM at `port`; see [`with`].
    pub(crate) fn with<A: Access, T>(
        &mut self,
        port: usize,
        access: &mut A,
        body: impl FnOnce(&mut Socket, &mut Memory<'_, A>) -> Result<T, Broken>,
    ) -> Option<T> {
        let socket = &mut self.store.sockets[port % PORTS];
        let done = with(self.exchange, (port, socket), access, body);
        self.unreported |= socket.has_returned() || done.is_none();
        self.mark(port);
        done
    }

    /// Takes in what has become of the socket at `port`, after each use of it that may change that.
    #[inline]
    pub(crate) fn mark(&mut self, port: usize) {
        let port = port % PORTS;
        let (socket, bit) = (&self.store.sockets[port], 1 << port);
        // Without branches: this comes with each packet.
        let is_active = socket.more | socket.holds | socket.supplied;
        self.active = self.active & !bit | u32::from(is_active) << port;
        self.returned = self.returned & !bit | u32::from(socket.has_returned()) << port;
        if socket.ends {
            self.again |= bit;
            // EL2 learns of a broken ring with the next report.
            self.named.insert(DeviceKind::Sender, port);
        }
    }

    /// Where the RAM of the VM at `port` is.
    #[inline]
    pub(crate) fn window(&self, port: usize) -> Window<'a> {
        Window::new(&self.exchange.ram, port, self.store.sockets[port].ram)
    }

    /// Moves at most one chunk of the packet with the earliest deadline. `mark` is when that began,
    /// in ticks.
    #[inline(never)]
    fn choose<A: Access>(
        &mut self,
        now: u64,
        mark: u64,
        mover: &mut impl Mover,
        access: &mut A,
    ) -> Step {
        // Bounded: each turn takes a flow or a packet out of the queue, or ends.
        while let Some((deadline, flow)) = self.ready.peek() {
            let index = usize::from(flow);
            if deadline == u64::MAX {
                self.begin_anew();
            }
            let Some(lane) = self.lanes.get(index) else { break };
            let (sender, receiver) = (usize::from(lane.flow.from), usize::from(lane.flow.to));
            let (is_one_of_several, done) = (lane.is_one_of_several(), lane.moved);
            let first = self.store.sockets[sender].packets.get(usize::from(lane.first));
            let Some(packet) = first.filter(|packet| packet.deadline.max(lane.least) == deadline)
            else {
                // Its sender was reset meanwhile; a packet that came since has a place of its own.
                self.unqueue(index, Where::Idle);
                self.enqueue(index, now);
                continue;
            };
            if !self.takes(receiver, packet.epoch, is_one_of_several) {
                // Meant for a boot of the receiver's that is over, or for rings that are.
                self.finish(index, false, now, access);
                // There may be many, and a more urgent packet by now.
                return Step::Again;
            }
            if !self.begin(sender, receiver) {
                // One was reset, which is not taken in yet, and no receiver waits for it.
                self.unqueue(index, Where::Blocked);
                continue;
            }
            let mut steps = STRIDE;
            let room = match self.find_room(receiver, index, &mut steps, access) {
                Room::Bytes(room) => room,
                Room::None => {
                    self.end(sender, receiver);
                    self.lanes[index].waited = true;
                    self.unqueue(index, Where::Blocked);
                    continue;
                }
                Room::Later => {
                    self.end(sender, receiver);
                    self.postpone(index, deadline, now);
                    return Step::Again;
                }
            };
            let packet = self.first(index, sender);
            let left = packet.header.len.saturating_sub(done);
            let begun = self.store.moves[index].begun();
            let bytes = begun.unwrap_or(left.min(self.chunk).min(room));
            if begun.is_none() {
                let own = self.lanes[index].bucket.ready_at(bytes.into());
                let engine = self.engine.ready_at(bytes.into());
                if own > now || engine > now {
                    self.end(sender, receiver);
                    if own <= now {
                        return self.rest(engine, now);
                    }
                    self.ready.pop();
                    self.delay(index, own);
                    continue;
                }
                self.begin_chunk(index, (sender, receiver), bytes, now);
            }
            let picked = mover.ticks();
            let phases = ((mark, picked), deadline);
            return self.move_on(
                index,
                (sender, receiver),
                (left, &mut steps),
                phases,
                now,
                (mover, access),
            );
        }
        self.begin_anew();
        self.rest(u64::MAX, now)
    }

    /// The first packet of flow `index`, which `sender` sends.
    #[inline]
    fn first(&self, index: usize, sender: usize) -> &Packet {
        &self.store.sockets[sender].packets[usize::from(self.lanes[index].first) % RING]
    }

    /// A chunk of `bytes` of the first packet of flow `index` begins.
    #[inline]
    fn begin_chunk(&mut self, index: usize, ends: (usize, usize), bytes: u32, now: u64) {
        let lane = &mut self.lanes[index];
        lane.bucket.take(now, bytes.into());
        self.engine.take(now, bytes.into());
        let kept = &mut self.store.moves[index];
        if lane.moved == 0 {
            let (sender, first) = (ends.0, usize::from(lane.first) % RING);
            kept.source = self.store.sockets[sender].packets[first].chain;
        }
        let socket = &mut self.store.sockets[ends.1];
        let target = kept.target.get_or_insert_with(|| socket.take_buffer());
        target.bytes = Some(bytes);
    }

    /// Moves a chunk of the first packet of flow `index`, of which `left` bytes have not been moved
    /// before, or a part of it, and ends the access to the memory of both ends.
    #[inline]
    fn move_on<A: Access>(
        &mut self,
        index: usize,
        (sender, receiver): (usize, usize),
        (left, steps): (u32, &mut u32),
        ((mark, picked), deadline): ((u64, u64), u64),
        now: u64,
        (mover, access): (&mut impl Mover, &mut A),
    ) -> Step {
        let bytes = self.store.moves[index].begun().unwrap_or(0);
        let header = self.chunk_header(index, (sender, receiver), bytes < left);
        let ends = (sender, receiver);
        let (head, before) = self.target(index);
        let has_header = self.put_header(index, receiver, &header, steps, access);
        let programmed = mover.ticks();
        let copied = match has_header {
            Ok(true) => self.copy(index, ends, steps, (mover, access)),
            Ok(false) => Ok(Copied::Later),
            Err(broken) => Err(Fault::Receiver(broken)),
        };
        let ended = mover.ticks();
        let after = self.target(index).1;
        let payload = after.saturating_sub(before.max(HEADER_LEN as u32));
        let mut more = true;
        let mut by_engine = false;
        match copied {
            Ok(Copied::Later) => {
                self.end(sender, receiver);
                self.store.sockets[receiver].hold(head, Owner::messages(index));
                self.postpone(index, deadline, now);
            }
            Ok(Copied::All { is_by_engine }) => {
                by_engine = is_by_engine;
                // A buffer with no room for payload, of which there are none, would never move the
                // packet.
                more = bytes < left && bytes > 0;
                self.store.moves[index].target = None;
                self.fill(index, receiver, (head, bytes), access);
                self.lanes[index].moved += bytes;
                if bytes == left && !self.lanes[index].is_one_of_several() {
                    self.complete(index, now, access);
                } else {
                    self.end(sender, receiver);
                    if !more {
                        self.finish(index, bytes == left, now, access);
                    }
                }
            }
            Err(fault) => {
                self.end(sender, receiver);
                self.give_up(index, ends, (&header, fault), now, access);
                if payload == 0 {
                    self.phases.mark = mover.ticks();
                    return Step::Again;
                }
            }
        }
        let removed = mover.ticks();
        let phases = [(mark, picked), (picked, programmed), (programmed, ended), (ended, removed)]
            .map(|(from, to)| to.wrapping_sub(from));
        let detail = u32::from(head) | if by_engine { BY_ENGINE } else { 0 };
        self.record_chunk(receiver, detail, pack(phases), payload.into());
        self.phases.mark = removed;
        let many = self.recorded.wrapping_sub(self.reported) >= TAKEN;
        if more && !many { Step::Again } else { Step::Report(DeviceSet::EMPTY) }
    }

    /// Returns the header of the chunk that is being moved of flow `index`.
    #[inline]
    fn chunk_header(&self, index: usize, ends: (usize, usize), is_part: bool) -> Header {
        let len = self.store.moves[index].begun().unwrap_or(0);
        let mut header = Header { len, ..self.first(index, ends.0).header };
        if header.kind == SEQPACKET && is_part {
            header.flags &= !ENDS;
        }
        if self.lanes[index].is_one_of_several() {
            header.dst_cid = Cid::of_vm(ends.1 as u32);
        }
        header
    }

    /// The head of the buffer that a chunk of flow `index` goes to, and the bytes that it has.
    #[inline]
    fn target(&self, index: usize) -> (u16, u32) {
        let target = self.store.moves[index].target.as_ref();
        target.map_or((0, 0), |target| (target.chain.head(), target.done))
    }

    /// Writes the header of a chunk of flow `index`; false if a part of it is left.
    #[inline]
    fn put_header(
        &mut self,
        index: usize,
        receiver: usize,
        header: &Header,
        steps: &mut u32,
        access: &mut impl Access,
    ) -> Result<bool, Broken> {
        let mut memory = Memory::new(self.window(receiver), access);
        let queue = self.store.sockets[receiver].queues[RX].as_ref();
        let (Some(queue), Some(target)) = (queue, &mut self.store.moves[index].target) else {
            return Ok(false);
        };
        target.put_header(queue, &mut memory, header, steps)
    }

    /// Moves what is left of a chunk's payload from the sender's buffers to the receiver's, as far
    /// as `steps` go. The DMA engine moves at least `engine_from` bytes that are one piece on both
    /// sides. More pieces are the core's, as drivers choose them and each would be a transfer.
    fn copy(
        &mut self,
        index: usize,
        (sender, receiver): (usize, usize),
        steps: &mut u32,
        (mover, access): (&mut impl Mover, &mut impl Access),
    ) -> Result<Copied, Fault> {
        let windows = [sender, receiver].map(|port| self.window(port));
        let Store { sockets, moves, .. } = &mut *self.store;
        let (Some(from), Some(to)) = (&sockets[sender].queues[TX], &sockets[receiver].queues[RX])
        else {
            return Err(Fault::NoRings);
        };
        let Move { source, target: Some(target) } = &mut moves[index] else {
            return Err(Fault::NoRings);
        };
        let bytes = target.bytes.unwrap_or(0);
        // Bounded: each turn but the last ends a buffer, of which `steps` are read.
        loop {
            let left = (HEADER_LEN as u32 + bytes).saturating_sub(target.done);
            if left == 0 {
                return Ok(Copied::All { is_by_engine: false });
            }
            let mut memory = Memory::new(windows[0], access);
            let found = from.walk(&mut memory, source, Direction::Read, steps);
            let read = match found.map_err(Fault::Sender)? {
                Found::Bytes(read) => read,
                Found::End => return Err(Fault::Short),
                Found::Later => return Ok(Copied::Later),
            };
            let mut memory = Memory::new(windows[1], access);
            let found = to.walk(&mut memory, &mut target.chain, Direction::Write, steps);
            let written = match found.map_err(Fault::Receiver)? {
                Found::Bytes(written) => written,
                Found::End => return Err(Fault::Receiver(Broken::TooShort)),
                Found::Later => return Ok(Copied::Later),
            };
            let len = read.len.min(written.len).min(left);
            let places = (
                windows[0].place(read.address, len.into()),
                windows[1].place(written.address, len.into()),
            );
            let (Some(source_at), Some(target_at)) = places else {
                // They were RAM when they were checked, and RAM stays RAM.
                return Err(Fault::NoRings);
            };
            let is_by_engine = len == bytes && u64::from(len) >= self.engine_from;
            if is_by_engine {
                let done = mover.move_by_engine(source_at, target_at, len.into());
                done.map_err(|EngineFailed| Fault::Engine)?;
            } else {
                mover.copy(source_at, target_at, len.into());
            }
            source.pass(len);
            target.chain.pass(len);
            target.done += len;
            if len == left {
                return Ok(Copied::All { is_by_engine });
            }
        }
    }

    /// A chunk of the first packet of flow `index` can't be moved.
    #[inline(never)]
    fn give_up(
        &mut self,
        index: usize,
        (sender, receiver): (usize, usize),
        (header, fault): (&Header, Fault),
        now: u64,
        access: &mut impl Access,
    ) {
        let (port, broken) = match fault {
            Fault::Engine => return self.fail(index, header, now, access),
            Fault::Short => {
                // Its buffers hold less than its header says.
                self.exchange.port(sender).refuse();
                return self.fail(index, header, now, access);
            }
            Fault::NoRings => return self.unqueue(index, Where::Blocked),
            Fault::Sender(broken) => (sender, broken),
            Fault::Receiver(broken) => (receiver, broken),
        };
        // Its connections end with the next step, and the packet with them.
        self.unqueue(index, Where::Blocked);
        self.store.sockets[port].break_down(&self.exchange.port(port).device, broken);
        self.unreported = true;
        self.mark(port);
    }

    /// The first packet of flow `index`, which is the first in the queue, has taken a step more than
    /// a chunk may: it goes on as if it were the next packet.
    #[inline(never)]
    fn postpone(&mut self, index: usize, deadline: u64, now: u64) {
        let lane = &mut self.lanes[index];
        if lane.flow.deadline > 0 {
            let earliest = now.saturating_add(lane.flow.deadline);
            lane.least = deadline.saturating_add(lane.flow.period).max(earliest);
            self.postponed = true;
        }
        self.unqueue(index, Where::Idle);
        self.enqueue(index, now);
    }

    /// The first packet of flow `index` is another one, or it is moved from its start.
    pub(crate) fn restart(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        lane.moved = 0;
        let receiver = usize::from(lane.flow.to);
        let target = &mut self.store.moves[index].target;
        if let Some(held) = target.take() {
            *target = self.store.sockets[receiver].put_back(held);
        }
    }

    /// The buffer at `head` of `receiver` has the next `bytes` of the first packet of flow `index`,
    /// in an access to its memory.
    #[inline]
    fn fill(
        &mut self,
        index: usize,
        receiver: usize,
        (head, bytes): (u16, u32),
        access: &mut impl Access,
    ) {
        let window = self.window(receiver);
        let socket = &mut self.store.sockets[receiver];
        let written = HEADER_LEN as u32 + bytes;
        let owner = Owner::messages(index);
        let filled = socket.fill(&mut Memory::new(window, access), (head, written), owner);
        if let Err(broken) = filled {
            socket.break_down(&self.exchange.port(receiver).device, broken);
            self.mark(receiver);
        }
        self.returned |= 1 << receiver;
        self.receivers |= 1 << receiver;
        self.unreported = true;
    }

    /// The first packet of flow `index`, a flow to one receiver, was moved: returns its chain, and
    /// ends the access to the memory of both.
    #[inline]
    fn complete(&mut self, index: usize, now: u64, access: &mut impl Access) {
        let (sender, head, waited) = self.leave(index, true);
        let window = self.window(sender);
        let socket = &mut self.store.sockets[sender];
        socket.packets[usize::from(head) % RING].members = 0;
        let returned = socket.give_back(&mut Memory::new(window, access), head.into());
        if let Err(broken) = returned {
            socket.break_down(&self.exchange.port(sender).device, broken);
            self.mark(sender);
        }
        self.returned |= 1 << sender;
        self.end(sender, self.lanes[index].flow.to.into());
        let lane = &mut self.lanes[index];
        lane.queued = lane.queued.saturating_sub(1);
        self.arrive(index, sender, (head, waited));
        self.enqueue(index, now);
    }

    /// Whether a receiver may take a packet of this epoch: its rings are whole, and the same.
    fn takes(&self, receiver: usize, epoch: u32, is_one_of_several: bool) -> bool {
        let socket = &self.store.sockets[receiver];
        !socket.is_broken && (is_one_of_several || epoch == socket.epoch)
    }

    /// The first flow in the queue leaves it.
    fn unqueue(&mut self, index: usize, place: Where) {
        self.ready.pop();
        self.put(index, place);
    }

    /// Notes where the first packet of flow `index` is.
    #[inline]
    pub(crate) fn put(&mut self, index: usize, place: Where) {
        let lane = &mut self.lanes[index];
        lane.place = place;
        let blocked = &mut self.store.sockets[usize::from(lane.flow.to)].blocked;
        *blocked = *blocked & !(1 << index) | u64::from(place == Where::Blocked) << index;
    }

    /// The room that a receiver has for the next chunk of flow `index`, in an access to its memory.
    fn find_room(
        &mut self,
        receiver: usize,
        index: usize,
        steps: &mut u32,
        access: &mut impl Access,
    ) -> Room {
        let window = self.window(receiver);
        let held = self.store.moves[index].target.as_mut();
        let socket = &mut self.store.sockets[receiver];
        let is_in_vain = socket.notifies_in_vain() && socket.blocked == 0;
        let mut memory = Memory::new(window, access);
        let find = || {
            if held.is_none() && !socket.has_buffer(&mut memory, Owner::messages(index))? {
                return Ok(Room::None);
            }
            if is_in_vain {
                socket.refuse_notifications(&mut memory)?;
            }
            socket.measure(&mut memory, held, steps)
        };
        let room = find().unwrap_or_else(|broken| {
            socket.break_down(&self.exchange.port(receiver).device, broken);
            self.unreported = true;
            Room::None
        });
        if room == Room::None {
            // It may have asked for more.
            self.mark(receiver);
        }
        room
    }

    /// No packet with a deadline is ready: what flows had before delays none that comes now.
    fn begin_anew(&mut self) {
        if core::mem::take(&mut self.postponed) {
            self.lanes.iter_mut().for_each(|lane| lane.least = 0);
        }
    }

    /// Begins an access to the memory of both; false if one was reset since its last check.
    fn begin(&self, sender: usize, receiver: usize) -> bool {
        let ports = [sender, receiver];
        let epochs = ports.map(|port| self.store.sockets[port].epoch);
        DeviceWords::begin_both(ports.map(|port| self.device(port)), epochs)
    }

    /// Ends an access to the memory of both.
    fn end(&self, sender: usize, receiver: usize) {
        self.device(sender).end();
        self.device(receiver).end();
    }

    /// Nothing can be moved before `until`.
    fn rest(&mut self, until: u64, now: u64) -> Step {
        if self.unreported || self.recorded.wrapping_sub(self.reported) >= TAKEN {
            return Step::Report(DeviceSet::EMPTY);
        }
        let delayed = self.delayed.peek().map_or(u64::MAX, |(time, _)| time);
        let wake = until.min(self.due).min(delayed);
        if wake <= now { Step::Again } else { Step::Wait((wake != u64::MAX).then_some(wake)) }
    }

    /// The first packet of a flow is done with: it was sent, or lost.
    pub(crate) fn finish(
        &mut self,
        index: usize,
        is_sent: bool,
        now: u64,
        access: &mut impl Access,
    ) {
        let (sender, head, waited) = self.leave(index, is_sent);
        if is_sent {
            self.arrive(index, sender, (head, waited));
        }
        self.answer(sender, head, (index, is_sent), now, access);
        self.enqueue(index, now);
    }

    /// The first packet of flow `index`, which is the first in the queue, leaves both. Returns its
    /// port and head, and whether it has waited for buffers of its receiver.
    #[inline]
    fn leave(&mut self, index: usize, is_sent: bool) -> (usize, u8, bool) {
        let lane = &mut self.lanes[index];
        let (sender, head) = (usize::from(lane.flow.from), lane.first);
        let packet = &self.store.sockets[sender].packets[usize::from(head) % RING];
        lane.first = packet.next;
        // A packet that is given up takes less than one of the flow's may.
        if is_sent && lane.least > 0 {
            lane.least = packet.deadline.max(lane.least).saturating_add(lane.flow.period);
        }
        lane.place = Where::Idle;
        let waited = core::mem::take(&mut lane.waited);
        self.ready.pop();
        self.restart(index);
        (sender, head, waited)
    }

    /// A packet of flow `index` arrives with the next hypercall.
    fn arrive(&mut self, index: usize, sender: usize, (head, waited): (u8, bool)) {
        let sent = &self.store.sockets[sender].packets[usize::from(head) % RING];
        if !sent.is_data {
            return;
        }
        let eligible = sent.eligible;
        self.arrival = Some(Arrival { flow: index, eligible });
        let Phases { find_place, round_trip, finalize, .. } = self.phases;
        // A sleep is reported once.
        let wake = core::mem::take(&mut self.phases.wake[sender]);
        self.exchange.arrive(Some(PacketRecord {
            event: PacketEvent::Arrived,
            port: sender,
            to: self.lanes[index].flow.to.into(),
            detail: packet(index as u8, head.into()) | if waited { WAITED } else { 0 },
            phases: pack([find_place, wake, round_trip, finalize]),
            value: eligible,
        }));
    }

    /// Puts a flow into a queue if its first packet is in none.
    #[inline(never)]
    pub(crate) fn enqueue(&mut self, index: usize, now: u64) {
        let lane = &self.lanes[index];
        let sender = usize::from(lane.flow.from);
        let first = self.store.sockets[sender].packets.get(usize::from(lane.first));
        let Some((eligible, deadline)) =
            first.map(|packet| (packet.eligible, packet.deadline.max(lane.least)))
        else {
            self.lanes[index].place = Where::Idle;
            return;
        };
        let ready_at = eligible.max(lane.bucket.ready_at(1));
        if ready_at > now {
            self.delay(index, ready_at);
        } else if self.ready.push(deadline, index as u8).is_ok() {
            self.lanes[index].place = Where::Ready;
        }
    }

    /// Whether a packet with a deadline can be moved now.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.peek().is_some_and(|(deadline, _)| deadline != u64::MAX)
    }

    fn delay(&mut self, index: usize, until: u64) {
        // There are as many places as flows, and a flow has one.
        if self.delayed.push(until, index as u8).is_ok() {
            self.lanes[index].place = Where::Delayed;
        }
    }

    /// Flow `index`, which waits for its receiver's buffers, is to be checked again.
    pub(crate) fn unblock(&mut self, index: usize, now: u64) {
        self.put(index, Where::Idle);
        let lane = &mut self.lanes[index];
        if lane.flow.deadline > 0 {
            lane.least = lane.least.max(now.saturating_add(lane.flow.deadline));
            self.postponed = true;
        }
        self.enqueue(index, now);
    }
}

/// Result of moving a chunk.
#[derive(Clone, Copy, Debug)]
enum Copied {
    /// It was moved, or what was left of it.
    All { is_by_engine: bool },
    /// A part was: there are more descriptors than are read at once.
    Later,
}

/// Reason for which a chunk was not moved.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Engine,
    /// The packet ends before its payload does.
    Short,
    Sender(Broken),
    Receiver(Broken),
    /// An end has no ring any more, which is not taken in yet.
    NoRings,
}
