//! Hostile drivers against the broker, next to two VMs that keep the rules: rings, descriptors and
//! packets that make no sense and change while they are read, and devices that are reset at any
//! time. Nothing panics, the broker reaches the RAM of VMs alone, the accesses of each step are
//! bounded, and the packets from one of the two VMs to the other arrive. For the fuzz target
//! `broker`, and for its short form in the tests.

use crate::world::{LEN, PORT, Windows, World, flow, payload, support::RAM, window};
use std::{collections::BTreeSet, ops::Range};
use weir_broker::{
    broker::{Broker, EngineFailed, Mover, Step, Store},
    ram::Access,
};
use weir_exchange::{
    flows::{BrokerFlow, BrokerSettings, Exchange, PacketEvent},
    ram::Piece,
};
use weir_units::Cid;
use weir_vsock::{
    Ram,
    device::{RX, TX},
    queue::{Layout, MAX_SIZE, Queue, RingOptions, STRIDE},
    vsock::{HEADER_LEN, Header, MAX_PAYLOAD, Operation},
};

/// The VMs that keep the rules. The others, up to [`VMS`], are hostile.
const SENDER: usize = 0;
const RECEIVER: usize = 1;
const VMS: usize = 4;
/// The flow between them.
const GOOD: usize = 0;
/// From the sender to a hostile receiver, which need not take anything: so many packets at once.
const STUCK: usize = 1;
const MOST_STUCK: usize = 4;
/// Flows to one receiver; those behind them are one flow to two.
const SINGLE: usize = 5;
const GROUP: Cid = Cid(256);
const MEMBERS: usize = 2;
const CHUNK: u32 = 2048;
/// Most bytes of a packet of a flow with a period.
const SIZE: u32 = 4096;
/// The RAM of a hostile VM has two pieces, which the broker sees in the other order: no buffer is
/// in both.
const PIECE: usize = LEN / 2;
/// Bytes of the buffers of the VMs that keep the rules: a chunk has room.
const BUFFER: u64 = 3000;
/// Virtual time that a step takes, ns.
const STEP: u64 = 1000;
/// Most actions of the drivers.
const ACTIONS: usize = 200;

/// Most accesses of the operations of rings and sockets (`weir_vsock::queue`, `src/socket.rs`).
mod cost {
    use super::{MAX_SIZE, MEMBERS, STRIDE};

    /// The index and the head.
    const POP: usize = 2;
    /// Descriptors, and as many pieces; those to copy from may be as many as those to copy to.
    const WALK: usize = 2 * (STRIDE as usize + 1);
    /// An element and the index.
    const PUSH: usize = 2;
    /// A wish, and the index behind it.
    const ASK: usize = 2;
    /// The index, a question and the index again, a chain, and a header in pieces.
    pub const TAKE: usize = 1 + ASK + 1 + POP + WALK;
    /// A buffer for a chunk, at the second attempt.
    pub const BUFFER: usize = POP + 1 + ASK + POP;
    /// A control packet in pieces.
    const WRITE: usize = POP + WALK + PUSH;
    /// The same, at the third attempt; an attempt without a buffer reads the index.
    pub const PASS: usize = 1 + 1 + ASK + WRITE;
    /// A packet of no flow's lane: its chain goes back, it is passed, and what refuses it, too.
    pub const DISPATCH: usize = PUSH + 2 * PASS;
    /// What a flow to several receivers has to say at once (two packets for each end), three times,
    /// and all packets that it gives up.
    pub const GROUP: usize = 3 * 2 * (MEMBERS + 1) * PASS + MAX_SIZE as usize * PUSH;
    /// A chunk's header in pieces, its buffer, and its packet's chain. Its payload is moved. If it
    /// is not, as its packet is too short, both ends get a reset.
    pub const CHUNK: usize = WALK + PUSH + PUSH + 2 * PASS;
    /// Whether a driver wants an interrupt, for each ring.
    pub const SETTLE: usize = 2;
    /// The connections of a flow that end with a device.
    pub const END: usize = 16 * PASS;
}

/// What the fuzzer hands over; zeros behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[usize::from(self.byte()) % among.len()]
    }
}

const fn is_hostile(vm: usize) -> bool {
    vm != SENDER && vm != RECEIVER
}

/// Bytes of a piece of a VM's RAM.
const fn piece(vm: usize) -> usize {
    if is_hostile(vm) { PIECE } else { LEN }
}

/// From an offset in a VM's RAM to that in its window, and back.
const fn swap_pieces(vm: usize, offset: usize) -> usize {
    if is_hostile(vm) { offset ^ PIECE } else { offset }
}

/// The RAM of a VM as the broker sees it.
fn ram(vm: usize) -> Vec<Piece> {
    let len = piece(vm);
    let piece = |offset: usize| Piece {
        ipa: RAM + offset as u64,
        address: window(vm) + swap_pieces(vm, offset) as u64,
        len: len as u64,
    };
    (0..LEN).step_by(len).map(piece).collect()
}

/// The VM and the bytes of its RAM that the broker means.
///
/// # Panics
///
/// When it means anything else.
fn place(at: u64, len: usize) -> (usize, Range<usize>) {
    let found = (0..VMS).find_map(|vm| {
        let offset = usize::try_from(at.checked_sub(window(vm))?).ok()?;
        let left = piece(vm) - offset % piece(vm);
        let start = swap_pieces(vm, offset);
        (offset < LEN && len <= left).then_some((vm, start..start + len))
    });
    found.unwrap_or_else(|| panic!("{len} bytes at {at:#x} are no VM's"))
}

/// The RAM of a hostile VM as EL2 knows it.
struct Pieces;

impl Ram for Pieces {
    fn contains(&self, address: u64, len: u64) -> bool {
        let piece = |start: u64| address >= start && address - start < PIECE as u64;
        let left = |start: u64| start + PIECE as u64 - address;
        [RAM, RAM + PIECE as u64].into_iter().any(|start| piece(start) && len <= left(start))
    }
}

/// How the broker reaches memory.
struct Reach<'a> {
    windows: Windows,
    input: Input<'a>,
    exchange: &'a Exchange,
    /// Whether the memory of hostile VMs changes while it is read.
    moves: bool,
    /// A reset of a hostile VM's device after so many accesses.
    fuse: Option<(usize, usize)>,
    accesses: usize,
    resets: [usize; VMS],
    /// Devices that were reset in this step or have queues: the memory of the others is EL2's.
    granted: [bool; VMS],
}

impl Reach<'_> {
    /// Counts an access, and finds the bytes.
    fn find(&mut self, at: u64, len: usize) -> (usize, Range<usize>) {
        self.accesses += 1;
        if let Some((vm, left)) = self.fuse {
            self.fuse = left.checked_sub(1).map(|left| (vm, left));
            if left == 0 {
                let is_busy = self.exchange.port(vm).device.is_busy();
                self.reset(vm);
                self.granted[vm] = is_busy;
            }
        }
        let found = place(at, len);
        assert!(self.granted[found.0], "VM {}'s device has no queues", found.0);
        assert!(self.exchange.port(found.0).device.is_busy(), "VM {}: no access", found.0);
        found
    }

    fn reset(&mut self, vm: usize) {
        self.resets[vm] += 1;
        self.granted[vm] = false;
        self.exchange.port(vm).device.reset();
    }
}

impl Access for Reach<'_> {
    fn read(&mut self, from: u64, to: &mut [u8]) {
        let (vm, range) = self.find(from, to.len());
        let bytes = &mut self.windows.0.borrow_mut()[vm].bytes[range];
        if self.moves && is_hostile(vm) && !bytes.is_empty() && self.input.byte() & 7 == 1 {
            let at = usize::from(self.input.byte()) % bytes.len();
            bytes[at] = self.input.byte();
        }
        to.copy_from_slice(bytes);
    }

    fn write(&mut self, to: u64, from: &[u8]) {
        let (vm, range) = self.find(to, from.len());
        self.windows.0.borrow_mut()[vm].bytes[range].copy_from_slice(from);
    }
}

/// What moves payload.
struct Copier<'a> {
    windows: Windows,
    exchange: &'a Exchange,
    copies: usize,
    bytes: u64,
    /// The engine has failed in this step.
    has_failed: bool,
    now: u64,
}

impl Mover for Copier<'_> {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        assert!(len > 0);
        let len = len as usize;
        let (source, from) = place(from, len);
        let (target, to) = place(to, len);
        let is_busy = |vm: usize| self.exchange.port(vm).device.is_busy();
        assert!(is_busy(source) && is_busy(target), "no access");
        let mut memory = self.windows.0.borrow_mut();
        let bytes = memory[source].bytes[from].to_vec();
        memory[target].bytes[to].copy_from_slice(&bytes);
        self.copies += 1;
        self.bytes += len as u64;
    }

    /// It fails often where a hostile VM is at an end.
    fn move_by_engine(&mut self, from: u64, to: u64, len: u64) -> Result<(), EngineFailed> {
        self.copy(from, to, len);
        let is_hostile = [from, to].iter().any(|at| place(*at, 1).0 >= 2);
        self.has_failed = is_hostile && (from ^ self.now).is_multiple_of(3);
        if self.has_failed { Err(EngineFailed) } else { Ok(()) }
    }

    fn ticks(&mut self) -> u64 {
        self.now
    }
}

/// The most that was seen.
#[derive(Clone, Copy, Debug, Default)]
#[allow(dead_code, reason = "the fuzz target does not print it")]
pub struct Most {
    /// Accesses of a step, and what it was allowed then, if no reset may have been taken in.
    pub accesses: usize,
    pub limit: usize,
    /// Steps until the last packet arrived and the broker slept.
    pub steps: usize,
    /// Bytes between the VMs that keep the rules.
    pub bytes: usize,
}

impl Most {
    #[allow(dead_code, reason = "the fuzz target does not print it")]
    pub fn max(self, other: Self) -> Self {
        Self {
            accesses: self.accesses.max(other.accesses),
            limit: self.limit.max(other.limit),
            steps: self.steps.max(other.steps),
            bytes: self.bytes.max(other.bytes),
        }
    }
}

/// A connection of the flow [`GOOD`].
#[derive(Default)]
struct Connection {
    /// Payload that was sent, and how much of it has arrived.
    sent: Vec<u8>,
    arrived: usize,
    /// The receiver has restarted since it was asked for.
    may_end: bool,
}

/// The sender's port of its first connection.
const FIRST_PORT: u32 = 10_000;

struct Play<'a> {
    world: World<'a>,
    broker: Broker<'a>,
    reach: Reach<'a>,
    copier: Copier<'a>,
    now: u64,
    /// Resets that the broker may not have taken in.
    unseen: [bool; VMS],
    /// Records that were taken.
    taken: u32,
    /// The connections of the flow [`GOOD`] so far, each with a port of its own.
    connections: Vec<Connection>,
    /// Requests that the VMs that keep the rules got since they started: receiver, sender, ports,
    /// kind. Packets that wait can arrive behind a reset.
    asked: BTreeSet<(usize, u64, u32, u32, u16)>,
    /// Packets of [`STUCK`] that the sender has not got back, by their heads.
    stuck: Vec<u16>,
    most: Most,
}

fn flows(several: bool) -> Vec<BrokerFlow> {
    let timed = |from, to, period| BrokerFlow { size: SIZE, ..flow(from, to, period) };
    let mut flows = vec![
        timed(0, 1, 100_000),
        timed(0, 2, 50_000),
        timed(2, 1, 40_000),
        timed(3, 2, 60_000),
        // Of best effort.
        flow(3, 0, 0),
    ];
    for (index, flow) in flows.iter_mut().enumerate() {
        flow.port = PORT + index as u32;
    }
    let to = |to| BrokerFlow {
        first: SINGLE as u8,
        members: MEMBERS as u8,
        port: PORT + SINGLE as u32,
        destination: GROUP,
        ..timed(3, to, 70_000)
    };
    flows.extend([1, 2].map(to).into_iter().filter(|_| several));
    flows
}

impl<'a> Play<'a> {
    fn new(data: &'a [u8], exchange: &'a Exchange, store: &'a mut Store) -> Self {
        let mut input = Input(data);
        let first = input.byte();
        let options = RingOptions { indirect: first & 1 != 0, event_index: first & 2 != 0 };
        let flows = flows(first & 4 != 0);
        let rate = if first & 8 == 0 { 0 } else { 1 << 30 };
        let engine_from = if first & 16 == 0 { u64::MAX } else { 100 };
        let settings =
            BrokerSettings { chunk: CHUNK, rate, engine_from, ..BrokerSettings::default() };
        let world = World::on(exchange, &flows, settings, options, ram);
        let broker = Broker::new(exchange, store, 1_000_000_000);
        let windows = || world.windows.clone();
        let reach = Reach {
            windows: windows(),
            input,
            exchange,
            moves: false,
            fuse: None,
            accesses: 0,
            resets: [0; VMS],
            granted: [true; VMS],
        };
        let copier =
            Copier { windows: windows(), exchange, copies: 0, bytes: 0, has_failed: false, now: 0 };
        let mut play = Self {
            world,
            broker,
            reach,
            copier,
            now: 0,
            taken: 0,
            connections: Vec::new(),
            asked: BTreeSet::new(),
            unseen: [true; VMS],
            stuck: Vec::new(),
            most: Most::default(),
        };
        (0..VMS).for_each(|vm| play.world.supply(vm, BUFFER));
        play.connect();
        for index in (STUCK..flows.len()).filter(|index| *index <= SINGLE) {
            play.world.control(index, Operation::Request, true, 0);
        }
        // All keep the rules until they are connected.
        for _ in 0..8 {
            play.steps(100);
            for vm in [2, 3] {
                play.drain(vm);
            }
        }
        play
    }

    /// The sender asks the receiver for a connection, from a new port.
    fn connect(&mut self) {
        self.connections.push(Connection::default());
        let header = self.world.header(GOOD, Operation::Request, true);
        let header = Header { src_port: self.port(), ..header };
        let _ = self.world.put(SENDER, &header, &[], HEADER_LEN as u64);
        self.world.notify(SENDER, TX, self.now);
    }

    /// The sender's port of the last connection.
    fn port(&self) -> u32 {
        FIRST_PORT + self.connections.len() as u32 - 1
    }

    /// The last connection.
    fn last(&mut self) -> &mut Connection {
        self.connections.last_mut().expect("one")
    }

    /// Bytes of the last connection that have not arrived.
    fn missing(&mut self) -> usize {
        let last = self.last();
        last.sent.len() - last.arrived
    }

    /// A VM that keeps the rules restarts. The receiver's is known to the sender by a reset.
    fn restart(&mut self, vm: usize) {
        self.restart_device(vm);
        self.world.supply(vm, BUFFER);
        self.asked.retain(|(of, ..)| *of != vm);
        if vm == RECEIVER {
            self.connections.iter_mut().for_each(|one| one.may_end = true);
            return;
        }
        self.stuck.clear();
        // What it had sent must not arrive any more.
        self.connections.fill_with(Connection::default);
        self.connect();
    }

    fn restart_device(&mut self, vm: usize) {
        self.reach.reset(vm);
        self.world.reset(vm);
        self.reach.granted[vm] = true;
    }

    /// Most accesses of a step. What a step may do for each VM and each flow is in `src/broker.rs`
    /// and `src/intake.rs`.
    fn limit(&self) -> usize {
        let flows = &self.world.flows;
        let group = if flows.len() > SINGLE { cost::GROUP } else { 0 };
        // Receivers that keep a group waiting; a buffer for each flow that is ready, twice if its
        // sender was reset; a chunk, or a packet that is given up.
        let mut limit = VMS + 2 * group + 2 * flows.len() * cost::BUFFER + cost::CHUNK;
        for (vm, is_reset) in self.unseen.into_iter().enumerate() {
            let of = |end: fn(&BrokerFlow) -> u8| {
                flows.iter().filter(|flow| usize::from(end(flow)) == vm).count()
            };
            let (sends, receives) = (of(|flow| flow.from), of(|flow| flow.to));
            let share = sends.max(receives).max(1);
            let is_in_group = flows
                .iter()
                .skip(SINGLE)
                .any(|flow| [flow.from, flow.to].map(usize::from).contains(&vm));
            let group = if is_in_group { group } else { 0 };
            // Buffers for what waits; packets, and one that is held; one that is in no flow's lane
            // is the last of the VM in a step; one that waits for a buffer.
            limit += 2 * cost::BUFFER + (share + 1) * cost::TAKE;
            limit += cost::DISPATCH + share * group + cost::PASS + cost::SETTLE;
            if is_reset {
                limit += (sends + receives) * cost::END + group;
            }
        }
        limit
    }

    /// One step of the broker.
    fn step(&mut self) -> Step {
        self.now += STEP;
        self.copier.now = self.now;
        (self.reach.accesses, self.copier.copies, self.copier.bytes) = (0, 0, 0);
        self.copier.has_failed = false;
        for vm in 0..VMS {
            self.unseen[vm] |= core::mem::take(&mut self.reach.resets[vm]) > 0;
        }
        let step = self.broker.step(self.now, &mut self.copier, &mut self.reach);
        let (accesses, limit) = (self.reach.accesses, self.limit());
        assert!(accesses <= limit, "{accesses} accesses of {limit}");
        if self.unseen == [false; VMS] {
            self.most.accesses = self.most.accesses.max(accesses);
            self.most.limit = self.most.limit.max(limit);
        }
        let most = STRIDE as usize + 2;
        assert!(self.copier.copies <= most, "{} copies", self.copier.copies);
        assert!(self.copier.bytes <= CHUNK.into(), "{} bytes", self.copier.bytes);
        let is_busy = |vm: usize| self.world.exchange.port(vm).device.is_busy();
        assert!(!(0..VMS).any(is_busy), "an access goes on");
        for vm in (0..VMS).filter(|vm| self.reach.resets[*vm] > 0) {
            // What was under way when it was reset is over.
            self.reach.granted[vm] = false;
        }
        let mut chunks = 0;
        while let Some(record) = self.world.exchange.next_record(&mut self.taken) {
            chunks += if record.event == PacketEvent::Chunk { record.value } else { 0 };
        }
        let moved = if self.copier.has_failed { 0 } else { self.copier.bytes };
        assert_eq!(chunks, moved, "a chunk has other bytes than were moved");
        match step {
            Step::Report(devices) => self.world.report(&mut self.broker, devices, self.now),
            Step::Wait(until) => {
                assert!(until.is_none_or(|until| until > self.now), "no time passes");
                self.unseen = [false; VMS];
            }
            Step::Again => {}
        }
        for vm in [SENDER, RECEIVER] {
            self.drain(vm);
        }
        step
    }

    fn steps(&mut self, most: usize) {
        for _ in 0..most {
            if matches!(self.step(), Step::Wait(_)) {
                break;
            }
        }
    }

    /// A VM that keeps the rules takes what is there, checks it, answers, and offers new buffers.
    fn drain(&mut self, vm: usize) {
        let returned = self.world.returned(vm);
        if vm == SENDER {
            self.stuck.retain(|head| !returned.contains(head));
        }
        let received = self.world.received(vm);
        if received.is_empty() {
            return;
        }
        for (header, bytes) in received {
            if !is_hostile(vm) {
                self.check(vm, &header, &bytes);
            }
            self.answer(vm, &header);
        }
        self.world.supply(vm, BUFFER);
    }

    /// A VM accepts a connection, if it was asked for one.
    fn answer(&mut self, vm: usize, header: &Header) {
        if header.op == Operation::Request as u16 {
            let answer = Header {
                src_cid: header.dst_cid,
                dst_cid: header.src_cid,
                src_port: header.dst_port,
                dst_port: header.src_port,
                op: Operation::Response as u16,
                buf_alloc: 1 << 20,
                ..*header
            };
            let _ = self.world.put(vm, &answer, &[], HEADER_LEN as u64);
            self.world.notify(vm, TX, self.now);
        }
    }

    /// What a VM that keeps the rules got is of one of its flows, and what was sent.
    fn check(&mut self, vm: usize, header: &Header, bytes: &[u8]) {
        let own = Cid::of_vm(vm as u32);
        assert_eq!(header.dst_cid, own);
        let is_its = |flow: &BrokerFlow| {
            let (from, to) = (Cid::of_vm(flow.from.into()), Cid::of_vm(flow.to.into()));
            let forth = (from, to, flow.port) == (header.src_cid, own, header.dst_port);
            let back = (to, from, flow.port) == (header.src_cid, own, header.src_port);
            // Only the sender's end of a flow sends data, and asks for connections.
            let starts = [Operation::Request, Operation::Data].map(|one| one as u16);
            forth || back && !starts.contains(&header.op)
        };
        assert!(self.world.flows.iter().any(is_its), "{header:?}");
        let connection = (vm, header.src_cid.0, header.src_port, header.dst_port, header.kind);
        match header.operation() {
            Some(Operation::Request) => _ = self.asked.insert(connection),
            Some(Operation::Data) => assert!(self.asked.contains(&connection), "{header:?}"),
            _ => {}
        }
        let is_from = |vm: usize| header.src_cid == Cid::of_vm(vm as u32);
        if vm == RECEIVER && header.op == Operation::Data as u16 && is_from(SENDER) {
            let index = header.src_port.wrapping_sub(FIRST_PORT) as usize;
            let connection = self.connections.get_mut(index).expect("a connection");
            let range = connection.arrived..connection.arrived + bytes.len();
            assert_eq!(connection.sent.get(range), Some(bytes), "not what was sent");
            connection.arrived += bytes.len();
        }
        if vm == SENDER
            && header.op == Operation::Reset as u16
            && is_from(RECEIVER)
            && header.dst_port == self.port()
        {
            // If nothing has arrived, the receiver may not have been there when it was asked.
            let last = self.last();
            assert!(last.may_end || last.arrived == 0, "the connection ended");
            self.connect();
        }
    }

    /// The sender sends a packet to the receiver, if it has room for it.
    fn send(&mut self, len: usize) -> bool {
        let bytes = payload(len, (self.last().sent.len() as u32 ^ self.port()) as u8);
        let header = self.world.header(GOOD, Operation::Data, true);
        let header = Header { src_port: self.port(), len: len as u32, ..header };
        let is_sent = self.world.put(SENDER, &header, &bytes, HEADER_LEN as u64).is_some();
        self.world.notify(SENDER, TX, self.now);
        if is_sent {
            self.last().sent.extend(bytes);
        }
        is_sent
    }

    /// One action of a driver.
    fn act(&mut self) {
        let what = self.reach.input.byte();
        let vm = 2 + usize::from(what >> 7);
        let queue = usize::from(what >> 6 & 1);
        let is_broken = self.world.exchange.port(vm).device.broken().is_some();
        if is_broken && what & 32 != 0 {
            self.set_up(vm, true);
        }
        for header in self.world.reclaim(vm) {
            if what & 32 != 0 {
                self.answer(vm, &header);
            }
        }
        match what & 31 {
            0..=5 => self.put(vm),
            6..=10 => self.chain(vm, queue),
            11 | 12 => {
                let len = 2 + u64::from(self.reach.input.word() % 3070);
                for _ in 0..=self.reach.input.byte() & 15 {
                    let _ = self.world.offer(vm, len);
                }
                self.world.notify(vm, RX, self.now);
            }
            13 => self.scribble(vm, queue),
            14 => self.make_available(vm, queue),
            15 => self.reset(vm),
            16 => {
                let left = self.reach.input.word() % 300;
                self.reach.fuse = Some((vm, left.into()));
            }
            17 => self.reach.moves ^= true,
            18 => self.now += u64::from(self.reach.input.word()) * 100,
            19 => self.restart(queue),
            20..=22 => {
                let len = 1 + usize::from(self.reach.input.word()) % SIZE as usize;
                let _ = self.send(len);
            }
            23 if self.stuck.len() < MOST_STUCK => {
                let len = 1 + usize::from(self.reach.input.word()) % SIZE as usize;
                let head = self.world.send(STUCK, &payload(len, 0), self.now);
                self.stuck.extend(head);
            }
            24 => self.world.notify(vm, queue, self.now),
            _ => {
                let most = 1 + usize::from(self.reach.input.byte() & 31);
                self.steps(most);
            }
        }
    }

    /// A hostile VM sends a packet, mostly with a header of one of its flows.
    fn put(&mut self, vm: usize) {
        let input = &mut self.reach.input;
        let (kind, first) = (input.byte(), input.byte());
        let ends = |flow: &BrokerFlow| [flow.from, flow.to].map(usize::from).contains(&vm);
        let its: Vec<usize> =
            (0..self.world.flows.len()).filter(|flow| ends(&self.world.flows[*flow])).collect();
        let index = input.pick(&its);
        let flow = self.world.flows[index];
        let operation = input.pick(&[
            Operation::Data,
            Operation::Data,
            Operation::Request,
            Operation::Response,
            Operation::Reset,
            Operation::Shutdown,
            Operation::CreditUpdate,
            Operation::CreditRequest,
        ]);
        let has_payload = operation == Operation::Data;
        let len = if has_payload { usize::from(input.word()) % 5000 } else { 0 };
        let forth = usize::from(flow.from) == vm;
        let mut header = self.world.header(index, operation, forth);
        header.len = len as u32;
        header.buf_alloc = u32::from(input.byte()) << 12;
        if kind & 0x80 != 0 {
            match kind & 7 {
                0 => header.op = input.word(),
                1 => header.kind = input.word() & 3,
                2 => header.len = header.len.wrapping_add(u32::from(input.byte())),
                3 => header.dst_cid = Cid(input.pick(&[0, 3, 4, 5, 6, 7, 256, u64::MAX])),
                4 => header.src_cid = Cid(input.pick(&[0, 3, 4, 5, 6, 7, 256, u64::MAX])),
                5 => header.dst_port = PORT + u32::from(input.byte()),
                6 => header.src_port = header.src_port.wrapping_add(input.byte().into()),
                _ => header.flags = input.word().into(),
            }
        }
        let copies = if kind & 0x30 == 0x30 { first & 15 } else { 0 };
        for _ in 0..=copies {
            let _ = self.world.put(vm, &header, &payload(len, kind), 1 + u64::from(first));
        }
        if kind & 0x40 == 0 {
            self.world.notify(vm, TX, self.now);
        }
    }

    fn layout(&self, vm: usize, queue: usize) -> Layout {
        let vm = &self.world.vms[vm];
        if queue == RX { vm.rx.layout } else { vm.tx.layout }
    }

    /// Writes to the RAM of a hostile VM, as far as it is RAM.
    fn write(&mut self, vm: usize, address: u64, bytes: &[u8]) {
        let memory = &mut self.world.windows.0.borrow_mut()[vm];
        let start = address.wrapping_sub(RAM) as usize;
        for (byte, from) in memory.bytes.iter_mut().skip(start).zip(bytes) {
            *byte = *from;
        }
    }

    /// Changes some bytes of a ring.
    fn scribble(&mut self, vm: usize, queue: usize) {
        let layout = self.layout(vm, queue);
        let input = &mut self.reach.input;
        let area = input.pick(&[layout.descriptors, layout.available, layout.used]);
        let offset = u64::from(input.word() & 0x3ff);
        let bytes = input.word().to_le_bytes();
        self.write(vm, area + offset, &bytes);
    }

    /// An address that is interesting to a hostile driver, and a length.
    fn buffer(&mut self, vm: usize, layout: &Layout) -> (u64, u32) {
        let input = &mut self.reach.input;
        let end = RAM + LEN as u64;
        let middle = RAM + PIECE as u64;
        let address = match input.byte() & 31 {
            0 => 0,
            1 => RAM - 4,
            2 => end - 4,
            3 => end,
            4 => middle - 8,
            5 => u64::MAX - u64::from(input.byte()),
            6 => RAM + 0x3000,
            7 => layout.available,
            8 => window(vm),
            9 => window(RECEIVER),
            _ => RAM + 4 * u64::from(input.word()),
        };
        let len = match input.byte() & 31 {
            0 => 0,
            1 => u32::MAX,
            2 => input.word().into(),
            3..8 => 44,
            8 => 45,
            _ => input.byte().into(),
        };
        (address, len)
    }

    /// Makes a chain available, of buffers anywhere, which mostly follow each other; of packets to
    /// send the first mostly has a header.
    fn chain(&mut self, vm: usize, queue: usize) {
        let layout = self.layout(vm, queue);
        let (first, how) = (u16::from(self.reach.input.byte()), self.reach.input.byte());
        let head = if first < 8 { first * 37 } else { first % layout.size };
        // Through a table of its own, or in the ring.
        let indirect = how & 0x30 == 0x30;
        let table = if indirect { RAM + 0x3000 } else { layout.descriptors };
        let start = if indirect { 0 } else { head };
        let count = match how & 7 {
            7 => 6 + u16::from(self.reach.input.byte()) % 60,
            few => 1 + u16::from(few) % 6,
        };
        let (mut places, mut all) = (Vec::new(), 0u32);
        for place in 0..count {
            let (address, len) = self.buffer(vm, &layout);
            places.extend((place == 0).then_some(address));
            all = all.wrapping_add(len);
            let odd = self.reach.input.byte();
            let next = if odd & 0xe0 == 0xe0 { u16::from(odd & 31) * 3 } else { start + place + 1 };
            let flags = if odd & 0xe0 == 0x20 {
                u16::from(odd & 7)
            } else {
                u16::from(place + 1 < count) | u16::from(queue == RX) << 1
            };
            self.describe(vm, table, start + place, (address, len), (flags, next));
        }
        if indirect {
            let len = 16 * u32::from(count) + u32::from(how >> 6);
            self.describe(vm, layout.descriptors, head, (table, len), (4, 0));
        }
        if queue == TX && how & 8 == 0 {
            let header = self.own_header(vm, all.saturating_sub(HEADER_LEN as u32));
            self.write(vm, places[0], &header.to_bytes());
        }
        let index = self.world.windows.0.borrow()[vm].u16(layout.available + 2);
        let place = u64::from(index % layout.size);
        self.write(vm, layout.available + 4 + 2 * place, &head.to_le_bytes());
        self.write(vm, layout.available + 2, &index.wrapping_add(1).to_le_bytes());
        self.world.notify(vm, queue, self.now);
    }

    /// The header of a packet of data of a flow of the VM's.
    fn own_header(&mut self, vm: usize, len: u32) -> Header {
        let flows = 0..self.world.flows.len();
        let its: Vec<usize> =
            flows.filter(|flow| usize::from(self.world.flows[*flow].from) == vm).collect();
        let index = self.reach.input.pick(&its);
        Header { len, ..self.world.header(index, Operation::Data, true) }
    }

    fn describe(
        &mut self,
        vm: usize,
        table: u64,
        number: u16,
        (address, len): (u64, u32),
        (flags, next): (u16, u16),
    ) {
        let at = table + 16 * u64::from(number);
        self.write(vm, at, &address.to_le_bytes());
        self.write(vm, at + 8, &len.to_le_bytes());
        self.write(vm, at + 12, &flags.to_le_bytes());
        self.write(vm, at + 14, &next.to_le_bytes());
    }

    /// Makes heads available that the driver does not account for.
    fn make_available(&mut self, vm: usize, queue: usize) {
        let layout = self.layout(vm, queue);
        let input = &mut self.reach.input;
        let (heads, jump) = (input.byte() & 7, input.byte());
        let memory = self.world.windows.0.borrow()[vm].u16(layout.available + 2);
        for ahead in 0..u16::from(heads) {
            let head = u16::from(self.reach.input.byte() & 63);
            let place = u64::from(memory.wrapping_add(ahead) % layout.size);
            self.write(vm, layout.available + 4 + 2 * place, &head.to_le_bytes());
        }
        // Mostly as many as there are.
        let more = if jump & 0xf0 == 0xf0 { u16::from(jump & 15) * 33 } else { heads.into() };
        self.write(vm, layout.available + 2, &memory.wrapping_add(more).to_le_bytes());
        self.world.notify(vm, queue, self.now);
    }

    /// Resets the device of a hostile VM, and sets it up anew, partly, or not.
    fn reset(&mut self, vm: usize) {
        let input = &mut self.reach.input;
        let how = input.byte();
        if how & 1 == 0 {
            self.set_up(vm, how & 2 != 0);
            return;
        }
        self.reach.reset(vm);
        let input = &mut self.reach.input;
        let options = RingOptions { indirect: how & 2 != 0, event_index: how & 4 != 0 };
        for index in [RX, TX] {
            let layout = Layout {
                size: 1 << (input.byte() % 7),
                descriptors: RAM + 16 * u64::from(input.word() & 0x3fff),
                available: RAM + 16 * u64::from(input.word() & 0x3fff),
                used: RAM + 16 * u64::from(input.word() & 0x3fff),
            };
            // EL2 publishes no other.
            if !layout.is_sound(&Pieces) {
                continue;
            }
            let driver = &mut self.world.vms[vm];
            let driver = if index == RX { &mut driver.rx } else { &mut driver.tx };
            driver.layout = layout;
            driver.free = (0..layout.size).collect();
            driver.chains.clear();
            driver.available = self.world.windows.0.borrow()[vm].u16(layout.available + 2);
            let device = &self.world.exchange.port(vm).device;
            device.publish(index, &Queue::new(layout, options));
            self.reach.granted[vm] = true;
        }
    }

    /// A hostile VM restarts, and asks for its connections if it `connects`.
    fn set_up(&mut self, vm: usize, connects: bool) {
        self.restart_device(vm);
        let len = self.reach.input.pick(&[0, 46, 300, BUFFER]);
        if len > 0 {
            self.world.supply(vm, len);
        }
        for index in (STUCK..self.world.flows.len().min(SINGLE + 1)).filter(|_| connects) {
            if usize::from(self.world.flows[index].from) == vm {
                self.world.control(index, Operation::Request, true, self.now);
            }
        }
    }

    /// What is sent now arrives, without any more accesses of the hostile drivers.
    fn end(&mut self) {
        self.reach.moves = false;
        self.reach.fuse = None;
        // Room for it may come with what arrives; a connection that was refused begins anew.
        let mut port = None;
        let mut steps = 0;
        while port != Some(self.port()) || self.missing() > 0 {
            if port != Some(self.port()) && self.send(1000) {
                port = Some(self.port());
            }
            let missing = self.missing();
            self.go_on(&mut steps).unwrap_or_else(|| panic!("{missing} bytes do not arrive"));
        }
        // It comes to rest, too.
        while self.go_on(&mut steps).is_some() {}
        self.most.steps = steps;
        self.most.bytes = self.connections.iter().map(|one| one.arrived).sum();
    }

    /// A step, and if there is nothing to do, the time at which there is; none if there is none.
    fn go_on(&mut self, steps: &mut usize) -> Option<()> {
        if let Step::Wait(until) = self.step() {
            self.now = until?;
        }
        *steps += 1;
        assert!(*steps <= STEPS, "{} bytes have not arrived, or no rest", self.missing());
        Some(())
    }
}

/// Most steps until what was sent has arrived and the broker sleeps, if the hostile drivers do no
/// more.
///
/// A step that does not come to rest takes a packet out of a ring, fills a buffer, or is between
/// such a step and EL2. Each VM has up to 64 packets in its ring, 64 that were taken out, and 64
/// buffers. The VMs that keep the rules offer new ones: 64 KiB in chunks take 32 for each packet to
/// them. Each packet can be waited for, which takes two steps.
const STEPS: usize = {
    let ring = MAX_SIZE as usize;
    let chunks = (MAX_PAYLOAD / CHUNK) as usize;
    let (there, offered, waits) = (VMS * 3 * ring, 2 * 2 * ring * chunks, VMS * 2 * ring);
    2 * (there + offered + waits)
};

/// Plays what `data` says.
///
/// # Panics
///
/// When the broker does what it must not.
pub fn play(data: &[u8]) -> Most {
    let exchange = Exchange::new();
    let mut store = Box::new(Store::new());
    let mut play = Play::new(data, &exchange, &mut store);
    for _ in 0..ACTIONS {
        if play.reach.input.0.is_empty() {
            break;
        }
        play.act();
    }
    play.end();
    play.most
}
