//! The broker's decisions: which packet is taken and moved next, how much of it is moved, and when
//! there is nothing to do.
//!
//! A step takes in the changes of each device (see `intake`), then moves at most one chunk. In a
//! step each device has a share of packets: the number of flows that its VM sends, or the number
//! that it receives if that is larger. The last packet of its device in a step is a control packet,
//! a packet that is refused, or a packet that arrives while the packets of its flow that may wait
//! at once are still there. While a packet with a deadline is ready to be moved, the broker takes
//! at most one share of these packets from each device, and each reset of the device counts as one
//! of them. This bounds how much a driver that floods its ring, or resets its device again and
//! again, delays the packets of other drivers. Packets beyond the share are held, and so is
//! everything behind them in the ring.
//!
//! A step reads a bounded number of descriptors of each chain that it uses ([`STRIDE`]). A chunk
//! that needs more descriptors is continued in a later step, as if it belonged to the flow's next
//! packet: its deadline is one period later. So a driver that splits its packets into many buffers
//! delays its own flow.
//!
//! Each flow has a share of the receive buffers of both its ends (see `socket`): the packets that a
//! VM sends by one flow leave buffers for the other flows.
//!
//! The step is one state machine in one file: each of its parts must keep each flow's `Where`
//! consistent with the queues `delayed` and `ready`, and end the phase that the next part measures.

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
/// Marker for "no packet" in lists of packets.
pub(crate) const NONE: u8 = u8::MAX;

/// Error: the DMA engine did not move all bytes of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFailed;

/// The means of moving bytes in the broker's address space: the core, and a DMA engine.
pub trait Mover {
    /// Copies `len` bytes from address `from` to address `to`, by the core.
    fn copy(&mut self, from: u64, to: u64, len: u64);
    /// Has the DMA engine move `len` bytes, and returns when the engine has finished.
    ///
    /// # Errors
    ///
    /// Returns `EngineFailed` if the engine failed, took too long, or does not exist; it no longer
    /// writes to the target.
    fn move_by_engine(&mut self, _from: u64, _to: u64, _len: u64) -> Result<(), EngineFailed> {
        Err(EngineFailed)
    }
    /// Returns the counter in ticks, which is used to record how long each phase takes.
    fn ticks(&mut self) -> u64;
}

/// The next action of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call [`Broker::step`] again.
    Again,
    /// Report to EL2 that buffers of these devices were returned, then call [`Broker::reported`],
    /// then [`Broker::step`] again.
    Report(DeviceSet),
    /// Wait for an interrupt, or until this time in ns.
    Wait(Option<u64>),
}

impl Step {
    /// Returns the action without a wait.
    const fn or_again(self) -> Self {
        match self {
            Self::Wait(_) => Self::Again,
            step => step,
        }
    }
}

/// The place of a flow's first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// There is no packet.
    Idle,
    /// The packet is in the queue ordered by the time at which packets become eligible.
    Delayed,
    /// The packet is in the queue ordered by deadline.
    Ready,
    /// The packet waits for a buffer of its receiver.
    Blocked,
}

/// A flow's packets in the order in which they arrived: a list linked by `Packet::next`. Flows to
/// several receivers share one list, in which each receiver has its own position. A receiver that
/// is behind still has to get all packets after its position, so no position is in a packet that
/// has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) flow: BrokerFlow,
    /// Number of flows from this one on that share the list; 1 for a flow to one receiver.
    pub(crate) members: usize,
    bucket: Bucket,
    pub(crate) first: u8,
    pub(crate) last: u8,
    /// Number of packets that wait, and the most that wait if the sender keeps its period.
    pub(crate) queued: u8,
    pub(crate) most: u8,
    /// Bytes of the first packet's payload that have been moved.
    pub(crate) moved: u32,
    pub(crate) place: Where,
    /// Whether the first packet has waited for buffers of its receiver.
    pub(crate) waited: bool,
    /// Lower bound on the deadline of the first packet, in ns, after it has waited for buffers.
    /// Packets that accumulated during the wait then affect other flows only as if they had arrived
    /// one period apart.
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

    /// Returns whether the flow is one of several to a group of receivers.
    pub(crate) const fn is_one_of_several(&self) -> bool {
        self.flow.members > 1
    }
}

/// The broker's state of devices and flows, which is too large for a stack.
#[derive(Debug)]
pub struct Store {
    pub(crate) sockets: [Socket; PORTS],
    pub(crate) flows: [Flow; FLOWS],
    pub(crate) moves: [Move; FLOWS],
    /// The connections of flows to several receivers, stored at the first flow of each group.
    pub(crate) groups: [Option<FlowGroup>; FLOWS],
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// Returns the state of a broker that has not started.
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

/// A packet that counts as arrived when EL2 has made the receiver's interrupt pending.
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
    /// Change counts of the ports' devices that were taken in.
    changes: [u32; PORTS],
    /// Sets of ports, one bit each. `again`: the device must be checked again as if it had changed.
    /// `active`: the rings may have packets or receive buffers that were not taken in. `returned`:
    /// the driver got buffers back and was not asked yet whether it wants an interrupt for them.
    /// See [`Self::mark`].
    pub(crate) again: u32,
    active: u32,
    returned: u32,
    /// Ports that received a chunk since the last report.
    receivers: u32,
    /// Devices for the next report.
    named: DeviceSet,
    /// Ports that have used time that is charged to no flow. A step in which no packet with a
    /// deadline is ready clears this set.
    pub(crate) spenders: u32,
    chunk: u32,
    /// Smallest chunk in bytes that the DMA engine moves, if the chunk is contiguous.
    engine_from: u64,
    engine: Bucket,
    pub(crate) lanes: [Lane; FLOWS],
    pub(crate) flows: usize,
    /// Number of ports up to the last end of a flow.
    pub(crate) ports: usize,
    /// Packets that a step takes from each device: the number of flows that its VM sends, or that
    /// it receives if that is larger, and at least one.
    pub(crate) share: [u8; PORTS],
    /// Whether some flow is to several receivers.
    pub(crate) several: bool,
    /// Time at which a flow to several receivers is due; `u64::MAX` if there is none.
    pub(crate) due: u64,
    delayed: Edf<u8, FLOWS>,
    ready: Edf<u8, FLOWS>,
    /// Whether some flow has a [`Lane::least`].
    postponed: bool,
    /// Whether buffers that drivers got back are not reported to EL2 yet.
    pub(crate) unreported: bool,
    /// The last packet that has arrived and is not reported to EL2 yet.
    arrival: Option<Arrival>,
    /// Number of records so far, and number of those that are reported to EL2.
    recorded: u32,
    reported: u32,
    /// Whether the broker is polling for the last time before it sleeps: there was nothing to do,
    /// and EL2 knows that it must wake the broker from now on.
    dozing: bool,
    pub(crate) phases: Phases,
}

/// Durations of phases that no record includes yet, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phases {
    /// Time at which the last phase ended; 0 if the broker has slept since then.
    mark: u64,
    find_place: u64,
    /// Number of packets that this step has taken for flows, and the time for parsing and inserting
    /// all packets, including those that it has passed or refused.
    pub(crate) packets: u64,
    pub(crate) taking: u64,
    /// Longest wait of each port's packets that arrived while the broker slept.
    wake: [u64; PORTS],
    round_trip: u64,
    finalize: u64,
    /// Number of chunks and control packets since the last hypercall, at least.
    chunks: u64,
}

impl<'a> Broker<'a> {
    /// Returns a broker as configured in `exchange`; the counter has the frequency `hertz`.
    // Not inlined, so that a profile separates the code that runs once from the code that moves
    // packets.
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

    /// Returns the clock.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn device(&self, port: usize) -> &'a DeviceWords {
        &self.exchange.port(port).device
    }

    /// Takes in changes, and moves at most one chunk. `now` is in ns of the counter.
    pub fn step(&mut self, now: u64, mover: &mut impl Mover, access: &mut impl Access) -> Step {
        self.step_before(now, mover, access, |_| None)
    }

    /// Does what [`Self::step`] does. If no flow has anything to do now, takes one step of
    /// `background`, which returns none if it has nothing to do either.
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
        // Only changes cost time here: a port without changes costs one comparison.
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
        // Each step checks which devices have changes. This time counts towards the packets that
        // the step takes or, if it takes none, towards choosing the packet to move.
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
        // Buffers may have arrived without a notification.
        settled &= self.active | self.again == 0;
        let idle = settled && matches!(step, Step::Wait(_));
        if !idle {
            self.dozing = false;
            return if settled { step } else { step.or_again() };
        }
        if let Some(step) = background(access) {
            self.dozing = false;
            // The time of the background step belongs to no phase of a packet.
            self.phases.mark = mover.ticks();
            return step;
        }
        self.dozing = !self.dozing;
        if self.dozing {
            // The broker announces its sleep first and then polls once more: a notification that
            // arrives after that poll causes an interrupt.
            self.exchange.doze();
            self.phases.mark = mover.ticks();
            return Step::Again;
        }
        self.phases.mark = 0;
        step
    }

    /// Asks the drivers that got buffers back whether they want an interrupt for them. Returns the
    /// devices of those that do, and the devices with a broken ring.
    fn settle_returns(&mut self, access: &mut impl Access) -> DeviceSet {
        let receivers = core::mem::take(&mut self.receivers);
        let mut interrupted = 0_u64;
        for port in bits(self.returned.into()) {
            let (device, window) = (self.device(port), self.window(port));
            let socket = &mut self.store.sockets[port];
            if !device.begin(socket.epoch) {
                // The device was reset, which has not been taken in yet.
                continue;
            }
            let wanted = socket.interrupts(&mut Memory::new(window, access));
            device.end();
            if wanted {
                device.signal(socket.epoch);
                let is_receiver = receivers >> port & 1 != 0;
                let kind = if is_receiver { DeviceKind::Receiver } else { DeviceKind::Sender };
                self.named.insert(kind, port);
                interrupted += 1;
            }
            self.returned &= !(1 << port);
        }
        let waiting = self.recorded.wrapping_sub(self.reported);
        self.reported = self.reported.wrapping_add(waiting.min(TAKEN));
        self.unreported = false;
        // A packet returns buffers to two devices at most. A report that names more is about
        // further packets, such as those that open connections.
        self.phases.chunks = self.phases.chunks.max(interrupted.div_ceil(2));
        core::mem::take(&mut self.named)
    }

    /// Notes that the hypercall of [`Step::Report`] was made: the times at which it was called and
    /// at which it returned, and the time that EL2 spent in it, in ticks.
    pub fn reported(&mut self, called: u64, back: u64, inside: u64) {
        let whole = back.wrapping_sub(called);
        let phases = &mut self.phases;
        phases.round_trip = whole.saturating_sub(inside);
        // Measured from the end of the last chunk, so it includes asking the drivers before the
        // hypercall.
        phases.finalize = back.wrapping_sub(phases.mark) / phases.chunks.max(1);
        phases.chunks = 0;
        phases.mark = back;
        let Some(Arrival { flow, eligible }) = self.arrival.take() else { return };
        self.exchange.arrive(None);
        let Some(lane) = self.lanes.get(flow) else { return };
        // EL2 stored this time during the call.
        let at = self.device(lane.flow.to.into()).raised();
        let kept = &mut self.store.flows[flow];
        kept.arrived(at.saturating_sub(eligible), lane.flow.deadline, at);
        self.publish(flow);
    }

    /// Writes the counts of a flow to the exchange, for EL2.
    pub(crate) fn publish(&self, index: usize) {
        self.exchange.set_counts(index, self.store.flows[index].counts);
    }

    /// Passes a record to EL2 for its trace.
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

    /// Updates the broker's state of the socket at `port`. Called after each use of the socket that
    /// may change it.
    #[inline]
    pub(crate) fn mark(&mut self, port: usize) {
        let port = port % PORTS;
        let (socket, bit) = (&self.store.sockets[port], 1 << port);
        // Written without branches, because this runs for each packet.
        let is_active = socket.more | socket.holds | socket.supplied;
        self.active = self.active & !bit | u32::from(is_active) << port;
        self.returned = self.returned & !bit | u32::from(socket.has_returned()) << port;
        if socket.ends {
            self.again |= bit;
            // EL2 is informed of a broken ring with the next report.
            self.named.insert(DeviceKind::Sender, port);
        }
    }

    /// Returns the window to the RAM of the VM at `port`.
    #[inline]
    pub(crate) fn window(&self, port: usize) -> Window<'a> {
        Window::new(&self.exchange.ram, port, self.store.sockets[port].ram)
    }

    /// Moves at most one chunk of the packet with the earliest deadline. `mark` is the time at
    /// which choosing the packet began, in ticks.
    #[inline(never)]
    fn choose<A: Access>(
        &mut self,
        now: u64,
        mark: u64,
        mover: &mut impl Mover,
        access: &mut A,
    ) -> Step {
        // Bounded: each iteration removes a flow or a packet from the queue, or ends the loop.
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
                // The sender was reset in the meantime; a packet that arrived since then has its
                // own place in the queue.
                self.unqueue(index, Where::Idle);
                self.enqueue(index, now);
                continue;
            };
            if !self.takes(receiver, packet.epoch, is_one_of_several) {
                // The packet was sent to an earlier boot of the receiver, or to rings that no
                // longer exist.
                self.finish(index, false, now, access);
                // There may be many such packets, and a more urgent packet by now.
                return Step::Again;
            }
            if !self.begin(sender, receiver) {
                // One of the devices was reset; the flow is blocked until that is taken in.
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

    /// Returns the first packet of flow `index`, which `sender` sends.
    #[inline]
    fn first(&self, index: usize, sender: usize) -> &Packet {
        &self.store.sockets[sender].packets[usize::from(self.lanes[index].first) % RING]
    }

    /// Begins a chunk of `bytes` bytes of the first packet of flow `index`.
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

    /// Moves a chunk of the first packet of flow `index`, or a part of the chunk, and ends the
    /// access to the memory of both ends. `left` bytes of the packet have not been moved before.
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
                // If there were a buffer without room for payload (there is none), the packet would
                // never be moved completely.
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

    /// Returns the header of the chunk of flow `index` that is being moved.
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

    /// Returns the head of the buffer that receives a chunk of flow `index`, and the number of
    /// bytes written to it.
    #[inline]
    fn target(&self, index: usize) -> (u16, u32) {
        let target = self.store.moves[index].target.as_ref();
        target.map_or((0, 0), |target| (target.chain.head(), target.done))
    }

    /// Writes the header of a chunk of flow `index`. Returns false if a part of it is left.
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

    /// Moves the rest of a chunk's payload from the sender's buffers to the receiver's, as far as
    /// `steps` allows. The DMA engine moves chunks of at least `engine_from` bytes that are
    /// contiguous on both sides. The core moves chunks in several pieces, because drivers choose
    /// the pieces and each would be a separate transfer.
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
        // Bounded: each iteration except the last ends a buffer, and `steps` limits how many
        // buffers are read.
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
                // The addresses were in RAM when they were checked, and RAM stays RAM.
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

    /// Handles a chunk of the first packet of flow `index` that cannot be moved.
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
                // The packet's buffers hold fewer bytes than its header states.
                self.exchange.port(sender).refuse();
                return self.fail(index, header, now, access);
            }
            Fault::NoRings => return self.unqueue(index, Where::Blocked),
            Fault::Sender(broken) => (sender, broken),
            Fault::Receiver(broken) => (receiver, broken),
        };
        // The connections of this device end with the next step, and so does the packet.
        self.unqueue(index, Where::Blocked);
        self.store.sockets[port].break_down(&self.exchange.port(port).device, broken);
        self.unreported = true;
        self.mark(port);
    }

    /// Postpones the first packet of flow `index`, which is the first in the queue, because it has
    /// used more of a step than a chunk may: it continues as if it were the next packet.
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

    /// Restarts the transfer for flow `index`, because its first packet has changed or is moved
    /// again from its start.
    pub(crate) fn restart(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        lane.moved = 0;
        let receiver = usize::from(lane.flow.to);
        let target = &mut self.store.moves[index].target;
        if let Some(held) = target.take() {
            *target = self.store.sockets[receiver].put_back(held);
        }
    }

    /// Returns the buffer at `head` to `receiver`, filled with the next `bytes` of the first packet
    /// of flow `index`. Called during an access to the receiver's memory.
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

    /// Completes the first packet of flow `index`, a flow to one receiver, which was moved: returns
    /// its chain, and ends the access to the memory of both ends.
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

    /// Returns whether a receiver may take a packet of this epoch: its rings are not broken, and
    /// they are the rings of that epoch.
    fn takes(&self, receiver: usize, epoch: u32, is_one_of_several: bool) -> bool {
        let socket = &self.store.sockets[receiver];
        !socket.is_broken && (is_one_of_several || epoch == socket.epoch)
    }

    /// Removes the first flow from the queue of ready packets and notes `place` for it.
    fn unqueue(&mut self, index: usize, place: Where) {
        self.ready.pop();
        self.put(index, place);
    }

    /// Notes the place of the first packet of flow `index`.
    #[inline]
    pub(crate) fn put(&mut self, index: usize, place: Where) {
        let lane = &mut self.lanes[index];
        lane.place = place;
        let blocked = &mut self.store.sockets[usize::from(lane.flow.to)].blocked;
        *blocked = *blocked & !(1 << index) | u64::from(place == Where::Blocked) << index;
    }

    /// Returns the room that a receiver has for the next chunk of flow `index`. Called during an
    /// access to the receiver's memory.
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
            // The socket may have requested further buffers.
            self.mark(receiver);
        }
        room
    }

    /// Clears the lower bounds on deadlines, because no packet with a deadline is ready: the
    /// earlier load of flows must not delay packets that arrive now.
    fn begin_anew(&mut self) {
        if core::mem::take(&mut self.postponed) {
            self.lanes.iter_mut().for_each(|lane| lane.least = 0);
        }
    }

    /// Begins an access to the memory of both ends. Returns false if one was reset since its last
    /// check.
    fn begin(&self, sender: usize, receiver: usize) -> bool {
        let ports = [sender, receiver];
        let epochs = ports.map(|port| self.store.sockets[port].epoch);
        DeviceWords::begin_both(ports.map(|port| self.device(port)), epochs)
    }

    /// Ends an access to the memory of both ends.
    fn end(&self, sender: usize, receiver: usize) {
        self.device(sender).end();
        self.device(receiver).end();
    }

    /// Returns the next action if nothing can be moved before `until`.
    fn rest(&mut self, until: u64, now: u64) -> Step {
        if self.unreported || self.recorded.wrapping_sub(self.reported) >= TAKEN {
            return Step::Report(DeviceSet::EMPTY);
        }
        let delayed = self.delayed.peek().map_or(u64::MAX, |(time, _)| time);
        let wake = until.min(self.due).min(delayed);
        if wake <= now { Step::Again } else { Step::Wait((wake != u64::MAX).then_some(wake)) }
    }

    /// Removes the first packet of flow `index` from the flow, because it was sent or is lost.
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

    /// Removes the first packet of flow `index`, which is the first in the queue, from the flow and
    /// from the queue. Returns its port and head, and whether it has waited for buffers of its
    /// receiver.
    #[inline]
    fn leave(&mut self, index: usize, is_sent: bool) -> (usize, u8, bool) {
        let lane = &mut self.lanes[index];
        let (sender, head) = (usize::from(lane.flow.from), lane.first);
        let packet = &self.store.sockets[sender].packets[usize::from(head) % RING];
        lane.first = packet.next;
        // A packet that is given up used less time than a packet of the flow may.
        if is_sent && lane.least > 0 {
            lane.least = packet.deadline.max(lane.least).saturating_add(lane.flow.period);
        }
        lane.place = Where::Idle;
        let waited = core::mem::take(&mut lane.waited);
        self.ready.pop();
        self.restart(index);
        (sender, head, waited)
    }

    /// Notes that a packet of flow `index` arrives with the next hypercall.
    fn arrive(&mut self, index: usize, sender: usize, (head, waited): (u8, bool)) {
        let sent = &self.store.sockets[sender].packets[usize::from(head) % RING];
        if !sent.is_data {
            return;
        }
        let eligible = sent.eligible;
        self.arrival = Some(Arrival { flow: index, eligible });
        let Phases { find_place, round_trip, finalize, .. } = self.phases;
        // A sleep is reported only once.
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

    /// Puts a flow into a queue according to its first packet.
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

    /// Returns whether a packet with a deadline can be moved now.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.peek().is_some_and(|(deadline, _)| deadline != u64::MAX)
    }

    fn delay(&mut self, index: usize, until: u64) {
        // The queue cannot be full: it has as many places as there are flows, and a flow uses one
        // place.
        if self.delayed.push(until, index as u8).is_ok() {
            self.lanes[index].place = Where::Delayed;
        }
    }

    /// Checks flow `index` again, which has waited for buffers of its receiver.
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
    /// The chunk, or the rest of it, was moved.
    All { is_by_engine: bool },
    /// A part of the chunk was moved: it has more descriptors than one step may read.
    Later,
}

/// Reason for which a chunk was not moved.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Engine,
    /// The packet's buffers end before its payload does.
    Short,
    Sender(Broken),
    Receiver(Broken),
    /// An end has no rings any more, which has not been taken in yet.
    NoRings,
}
