//! The broker against a model: every packet arrives whole, in its flow's order, once, by the
//! earliest deadline first, whatever the receivers' buffers are and whoever is reset.

use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_broker::{
    broker::{Broker, Mover, Step},
    shared::{BrokerFlow, ChainOutcome, Completion, Doorbell, Packet, Partition, Pieces, Settings},
};
use weir_vsock::{
    queue::Segment,
    vsock::{HEADER_LEN, Header, Operation, STREAM},
};

/// Where memory begins.
const BASE: u64 = 1 << 35;

/// Memory of all VMs, and how much was moved in it.
#[derive(Default)]
struct Ram {
    bytes: Vec<u8>,
    moved: u64,
    ticks: u64,
}

impl Ram {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let start = (at - BASE) as usize;
        let end = start + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[start..end].copy_from_slice(bytes);
    }

    fn get(&self, pieces: &Pieces, len: usize) -> Vec<u8> {
        let piece =
            |piece: &Segment| &self.bytes[(piece.address - BASE) as usize..][..piece.len as usize];
        pieces.segments().iter().flat_map(piece).take(len).copied().collect()
    }
}

impl Mover for Ram {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        let bytes = self.bytes[(from - BASE) as usize..][..len as usize].to_vec();
        self.put(to, &bytes);
        self.moved += len;
    }

    fn write(&mut self, to: u64, bytes: &[u8]) {
        self.put(to, bytes);
    }

    fn ticks(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}

/// Cuts `len` bytes from `at` on into pieces, the first of `first` bytes.
fn cut(at: u64, len: u64, first: u64) -> Pieces {
    let first = first.clamp(1, len) as u32;
    let rest = len as u32 - first;
    // A gap between them, so that they are two.
    let pieces = [(at, first), (at + u64::from(first) + 64, rest)];
    Pieces::new(
        pieces
            .into_iter()
            .filter(|(_, len)| *len > 0)
            .map(|(address, len)| Segment { address, len }),
    )
}

struct World {
    flows: Vec<BrokerFlow>,
    partition: &'static Partition,
    ram: Ram,
    next: u64,
}

impl World {
    fn new(flows: &[BrokerFlow], chunk: u32, rate: u64) -> Self {
        let partition: &Partition = Box::leak(Box::new(Partition::new()));
        let settings = Settings { flows: flows.len() as u8, chunk, rate, start: 0 };
        partition.configure(&settings, flows.iter().copied());
        (0..4).for_each(|port| partition.reset(port));
        Self { flows: flows.to_vec(), partition, ram: Ram::default(), next: BASE }
    }

    fn place(&mut self, len: u64) -> u64 {
        let at = self.next;
        self.next += len + 256;
        at
    }

    fn send(
        &mut self,
        flow: u8,
        from: usize,
        head: u16,
        len: usize,
        times: (u64, u64),
        first: u64,
    ) -> Vec<u8> {
        let payload: Vec<u8> =
            (0..len).map(|at| (at as u8).wrapping_mul(31) ^ head as u8 ^ flow << 5).collect();
        let op = if len == 0 { Operation::Shutdown } else { Operation::Data };
        let header = Header {
            len: len as u32,
            kind: STREAM,
            op: op as u16,
            src_port: flow.into(),
            dst_port: head.into(),
            ..Header::ZERO
        };
        let whole: Vec<u8> = header.to_bytes().into_iter().chain(payload.iter().copied()).collect();
        let at = self.place(whole.len() as u64);
        let pieces = cut(at, whole.len() as u64, first);
        let mut rest = whole.as_slice();
        for piece in pieces.segments() {
            let (now, later) = rest.split_at(piece.len as usize);
            self.ram.put(piece.address, now);
            rest = later;
        }
        let (eligible, deadline) = times;
        let to = self.flows[usize::from(flow)].to;
        let epoch = self.partition.port(to.into()).epoch();
        let packet = Packet { flow, eligible, deadline, epoch, header: header.to_bytes(), pieces };
        self.partition.port(from).submit(head, &packet);
        payload
    }

    fn offer(&mut self, port: usize, head: u16, len: u64, first: u64) -> Pieces {
        let at = self.place(len);
        let pieces = cut(at, len, first);
        self.ram.put(at + len + 64, &[]);
        self.partition.port(port).offer(head, &pieces);
        pieces
    }

    fn completions(&self, taken: &mut u32) -> Vec<Completion> {
        std::iter::from_fn(|| self.partition.next_completion(taken)).collect()
    }
}

fn flow(from: u8, to: u8) -> BrokerFlow {
    BrokerFlow { from, to, rate: 0, burst: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Three flows of two senders to one receiver, whose buffers come in small portions.
    #[test]
    fn packets_arrive_whole_in_order_and_once(
        sends in prop::collection::vec((0u8..3, 0usize..5000, 0u64..400, 1u64..2000, 1u64..100), 1..40),
        buffers in prop::collection::vec((46u64..2000, 1u64..100), 1..8),
        chunk in 1u32..4096,
        portion in 1usize..9,
    ) {
        let flows = [flow(0, 3), flow(1, 3), flow(1, 3)];
        let mut world = World::new(&flows, chunk, 0);
        let mut broker = Broker::new(world.partition);
        let mut wanted: Vec<Vec<(u16, Vec<u8>)>> = vec![Vec::new(); 3];
        let mut heads = [0u16; 4];
        let mut eligible = [0u64; 3];
        for (index, len, gap, relative, first) in sends {
            let its = flows[usize::from(index)];
            let from = usize::from(its.from);
            if heads[from] == 64 { continue; }
            let head = heads[from];
            heads[from] += 1;
            let time = &mut eligible[usize::from(index)];
            *time += gap;
            let payload = world.send(index, from, head, len, (*time, *time + relative), first);
            wanted[usize::from(index)].push((head, payload));
        }
        let total: usize = wanted.iter().map(Vec::len).sum();
        let (mut taken, mut now, mut sent) = (0, 0, Vec::new());
        let mut offered: BTreeMap<u16, Pieces> = BTreeMap::new();
        let mut next_head = 0u16;
        let mut got: Vec<Vec<(u16, Vec<u8>)>> = vec![Vec::new(); 3];
        let mut turn = 0;
        while sent.len() < total {
            turn += 1;
            prop_assert!(turn < 2_000_000, "it stalls: {} of {total}", sent.len());
            match broker.step(now, &mut world.ram) {
                Step::Again => {}
                Step::Tell => for completion in world.completions(&mut taken) {
                    match completion.outcome {
                        ChainOutcome::Received(written) => {
                            let pieces = offered.remove(&completion.head).expect("an offered buffer");
                            let bytes = world.ram.get(&pieces, written as usize);
                            let header = Header::from_bytes(bytes[..HEADER_LEN].try_into().unwrap());
                            prop_assert_eq!(header.len as usize, bytes.len() - HEADER_LEN);
                            prop_assert!(header.len <= chunk);
                            let line = &mut got[header.src_port as usize];
                            let head = header.dst_port as u16;
                            if line.last().is_none_or(|(last, _)| *last != head) {
                                line.push((head, Vec::new()));
                            }
                            line.last_mut().unwrap().1.extend_from_slice(&bytes[HEADER_LEN..]);
                        }
                        ChainOutcome::Sent => sent.push((completion.port, completion.head)),
                        ChainOutcome::Lost => prop_assert!(false, "lost"),
                    }
                },
                Step::Wait(until) => {
                    now = until.unwrap_or(now).max(now);
                    for number in 0..portion {
                        let (len, first) = buffers[(turn + number) % buffers.len()];
                        if offered.contains_key(&next_head) { break; }
                        let pieces = world.offer(3, next_head, len, first);
                        offered.insert(next_head, pieces);
                        next_head = (next_head + 1) % 64;
                    }
                }
            }
        }
        prop_assert_eq!(got, wanted);
        sent.sort_unstable();
        sent.dedup();
        prop_assert_eq!(sent.len(), total, "each once");
    }
}

/// Runs until there is nothing to do; gives what was completed, in order.
fn run(world: &mut World, broker: &mut Broker<'_>, taken: &mut u32, now: u64) -> Vec<Completion> {
    let mut all = Vec::new();
    loop {
        match broker.step(now, &mut world.ram) {
            Step::Again => {}
            Step::Tell => all.extend(world.completions(taken)),
            Step::Wait(_) => return all,
        }
    }
}

fn sent(completions: &[Completion]) -> Vec<(usize, u16)> {
    let sent = completions.iter().filter(|one| one.outcome == ChainOutcome::Sent);
    sent.map(|one| (one.port, one.head)).collect()
}

#[test]
fn the_earliest_deadline_preempts_between_chunks() {
    let mut world = World::new(&[flow(0, 3), flow(1, 3)], 1000, 0);
    for head in 0..20 {
        world.offer(3, head, 4000, 44);
    }
    let (mut broker, mut taken) = (Broker::new(world.partition), 0);
    world.send(0, 0, 0, 5000, (0, 900), 44);
    for _ in 0..2 {
        assert_eq!(broker.step(10, &mut world.ram), Step::Again);
    }
    assert_eq!(world.ram.moved, 2000, "two chunks of the first");
    world.send(1, 1, 0, 500, (0, 800), 44);
    assert_eq!(broker.step(20, &mut world.ram), Step::Tell);
    assert_eq!(world.ram.moved, 2500, "then the more urgent one");
    assert_eq!(sent(&world.completions(&mut taken)), [(1, 0)]);
    world.send(1, 1, 1, 500, (0, 1000), 44);
    assert_eq!(sent(&run(&mut world, &mut broker, &mut taken, 30)), [(0, 0), (1, 1)]);
}

#[test]
fn best_effort_waits_until_no_packet_is_eligible() {
    let mut world = World::new(&[flow(0, 3), flow(1, 3)], 4096, 0);
    (0..8).for_each(|head| _ = world.offer(3, head, 4000, 44));
    let (mut broker, mut taken) = (Broker::new(world.partition), 0);
    world.send(0, 0, 0, 10, (500, 600), 44);
    world.send(0, 0, 1, 10, (700, 800), 44);
    world.send(1, 1, 0, 10, (0, u64::MAX), 44);
    assert_eq!(sent(&run(&mut world, &mut broker, &mut taken, 100)), [(1, 0)]);
    assert_eq!(rest(&mut broker, 100, &mut world), Step::Wait(Some(500)));
    world.send(1, 1, 1, 10, (0, u64::MAX), 44);
    assert_eq!(sent(&run(&mut world, &mut broker, &mut taken, 500)), [(0, 0), (1, 1)]);
    assert_eq!(rest(&mut broker, 500, &mut world), Step::Wait(Some(700)));
    assert_eq!(sent(&run(&mut world, &mut broker, &mut taken, 700)), [(0, 1)]);
}

#[test]
fn a_receiver_without_buffers_blocks_only_its_flows() {
    let mut world = World::new(&[flow(0, 2), flow(0, 3)], 4096, 0);
    world.offer(2, 0, 544, 44);
    world.offer(3, 0, 4000, 44);
    let (mut broker, mut taken) = (Broker::new(world.partition), 0);
    world.send(0, 0, 0, 800, (0, 10), 44);
    world.send(1, 0, 1, 100, (0, 90), 44);
    let completions = run(&mut world, &mut broker, &mut taken, 5);
    assert_eq!(sent(&completions), [(0, 1)]);
    assert_eq!(completions[0].outcome, ChainOutcome::Received(544), "the first part is told of");
    world.offer(2, 1, 544, 44);
    assert_eq!(sent(&run(&mut world, &mut broker, &mut taken, 6)), [(0, 0)]);
}

#[test]
fn a_reset_port_loses_old_packets_and_takes_new_ones() {
    let mut world = World::new(&[flow(0, 3), flow(1, 3)], 1000, 0);
    world.offer(3, 0, 4000, 44);
    let (mut broker, mut taken) = (Broker::new(world.partition), 0);
    world.send(0, 0, 0, 3000, (0, 50), 44);
    world.send(0, 0, 1, 3000, (100, 150), 44);
    world.send(1, 1, 0, 100, (0, 60), 44);
    assert_eq!(broker.step(0, &mut world.ram), Step::Again);
    // The sender dies in the midst of a packet, and its next boot sends by the same heads.
    world.partition.reset(0);
    world.send(0, 0, 1, 200, (200, 250), 44);
    (1..4).for_each(|head| _ = world.offer(3, head, 4000, 44));
    assert_eq!(sent(&run(&mut world, &mut broker, &mut taken, 10)), [(1, 0)]);
    let completions = run(&mut world, &mut broker, &mut taken, 200);
    assert_eq!(sent(&completions), [(0, 1)]);
    assert_eq!(completions.last().unwrap().epoch, world.partition.port(0).epoch());
    // The receiver dies: its buffers are not used any more, and what was sent to it is given up.
    world.offer(3, 4, 4000, 44);
    world.send(0, 0, 2, 200, (300, 350), 44);
    world.partition.reset(3);
    world.send(1, 1, 1, 100, (0, 60), 44);
    let moved = world.ram.moved;
    let lost = run(&mut world, &mut broker, &mut taken, 300);
    let [Completion { port: 0, head: 2, outcome: ChainOutcome::Lost, .. }] = lost.as_slice() else {
        panic!("{lost:?}");
    };
    assert_eq!(world.ram.moved, moved);
    world.offer(3, 9, 4000, 44);
    assert_eq!(sent(&run(&mut world, &mut broker, &mut taken, 300)), [(1, 1)]);
}

/// Two looks: the second one behind the broker's word that it is about to sleep.
fn rest(broker: &mut Broker<'_>, now: u64, world: &mut World) -> Step {
    assert_eq!(broker.step(now, &mut world.ram), Step::Again);
    broker.step(now, &mut world.ram)
}

/// However often guests notify or reset their devices, a broker at work gets no interrupt, and one
/// that is about to sleep gets one.
#[test]
fn the_broker_is_notified_once_per_doze() {
    let mut world = World::new(&[flow(0, 3), flow(1, 3)], 1000, 0);
    (0..8).for_each(|head| _ = world.offer(3, head, 4000, 44));
    let (mut broker, bell) = (Broker::new(world.partition), Doorbell::new());
    let storm = |world: &World| {
        let rings = (0..100).filter(|_| {
            world.partition.reset(1);
            bell.must_ring(world.partition)
        });
        rings.count()
    };
    world.send(0, 0, 0, 3000, (0, 50), 44);
    for wanted in [Step::Again, Step::Again, Step::Tell] {
        assert_eq!(storm(&world), 0, "it has not slept yet");
        assert_eq!(broker.step(0, &mut world.ram), wanted);
    }
    assert_eq!(broker.step(0, &mut world.ram), Step::Again, "it says that it is about to sleep");
    assert_eq!(storm(&world), 1);
    assert_eq!(broker.step(0, &mut world.ram), Step::Wait(None));
    assert_eq!(storm(&world), 0, "its interrupt is pending");
    world.send(0, 0, 1, 100, (0, 50), 44);
    assert!(!bell.must_ring(world.partition));
    assert_eq!(broker.step(0, &mut world.ram), Step::Tell);
    assert_eq!(storm(&world), 0);
}

#[test]
fn the_engine_keeps_its_rate() {
    // 1 byte/ns: each chunk of 1000 bytes takes a microsecond.
    let mut world = World::new(&[flow(0, 3)], 1000, 1_000_000_000);
    (0..8).for_each(|head| _ = world.offer(3, head, 4000, 44));
    let mut broker = Broker::new(world.partition);
    world.send(0, 0, 0, 3000, (0, 50), 44);
    assert_eq!(broker.step(0, &mut world.ram), Step::Again);
    assert_eq!(broker.step(10, &mut world.ram), Step::Tell);
    assert_eq!(rest(&mut broker, 10, &mut world), Step::Wait(Some(1000)));
    assert_eq!(broker.step(1000, &mut world.ram), Step::Again);
    assert_eq!(world.ram.moved, 2000);
}

#[test]
fn a_copy_is_seen_until_it_ends() {
    struct Looking(&'static Partition, u32);
    impl Mover for Looking {
        fn copy(&mut self, _: u64, _: u64, _: u64) {
            let seen = [0, 1, 2, 3].map(|port| self.0.is_copying(port));
            assert_eq!(seen, [true, false, false, true]);
            self.1 += 1;
        }
        fn ticks(&mut self) -> u64 {
            0
        }

        fn write(&mut self, _: u64, _: &[u8]) {}
    }
    let mut world = World::new(&[flow(0, 3)], 4096, 0);
    world.offer(3, 0, 4000, 44);
    world.send(0, 0, 0, 100, (0, 50), 44);
    let mut looking = Looking(world.partition, 0);
    Broker::new(world.partition).step(0, &mut looking);
    assert_eq!(looking.1, 1);
    assert!((0..8).all(|port| !world.partition.is_copying(port)));
}

/// A mover at whose copy number `at` a port is reset, as when its VM restarts in the midst of a
/// chunk: the hypervisor waits until `is_copying` says no, and then the memory has a new owner.
struct Dying<'a> {
    ram: &'a mut Ram,
    partition: &'static Partition,
    port: usize,
    at: usize,
    copies: usize,
    /// The chunk in whose midst it was has ended.
    over: bool,
}

impl Mover for Dying<'_> {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        assert!(!self.over || !self.partition.is_copying(self.port), "memory of a new owner");
        let half = len / 2;
        self.ram.copy(from, to, half);
        if self.copies == self.at {
            self.partition.reset(self.port);
            assert!(self.partition.is_copying(self.port), "the hypervisor must wait");
        }
        self.copies += 1;
        self.ram.copy(from + half, to + half, len - half);
    }

    fn write(&mut self, to: u64, bytes: &[u8]) {
        assert!(!self.over || !self.partition.is_copying(self.port), "memory of a new owner");
        self.ram.write(to, bytes);
    }

    fn ticks(&mut self) -> u64 {
        self.ram.ticks()
    }
}

/// Whichever chunk of a packet it is, and whichever end restarts: the chunk ends, nothing of that
/// boot is touched any more, nobody else loses anything, and the next boot's packets arrive.
#[test]
fn an_endpoint_restart_in_a_chunk_stops_its_packet() {
    for (port, at) in [0, 3].into_iter().flat_map(|port| (0..3).map(move |at| (port, at))) {
        let mut world = World::new(&[flow(0, 3), flow(1, 2)], 1000, 0);
        (0..4).for_each(|head| _ = world.offer(3, head, 4000, 4000));
        world.offer(2, 0, 4000, 4000);
        let (mut broker, mut taken) = (Broker::new(world.partition), 0);
        world.send(0, 0, 0, 3000, (0, 50), 3044);
        world.send(1, 1, 0, 500, (0, 60), 544);
        let (mut ram, partition) = (std::mem::take(&mut world.ram), world.partition);
        let mut dying = Dying { ram: &mut ram, partition, port, at, copies: 0, over: false };
        let mut steps = 0;
        while !matches!(broker.step(0, &mut dying), Step::Wait(_)) {
            dying.over = dying.copies > at;
            assert!((0..8).all(|port| !partition.is_copying(port)), "between two steps");
            steps += 1;
            assert!(steps < 100, "the broker does not come to rest");
        }
        assert!(dying.over, "port {port}, copy {at}: it came so far");
        world.ram = ram;
        let completions = world.completions(&mut taken);
        assert!(sent(&completions).contains(&(1, 0)), "the other flow's packet has arrived");
        let epoch = partition.port(port).epoch();
        let mut of_now = completions.iter().filter(|one| one.port == port && one.epoch == epoch);
        assert_eq!(of_now.next(), None, "the new boot has sent and offered nothing");
        // Whose receiver is gone gets the buffers back, unless this was the packet's last chunk.
        let lost = completions.iter().any(|one| one.port == 0 && one.outcome == ChainOutcome::Lost);
        assert_eq!(lost, port == 3 && at < 2, "port {port}, copy {at}: {completions:?}");
        (10..14).for_each(|head| _ = world.offer(3, head, 4000, 4000));
        let payload = world.send(0, 0, 5, 2000, (0, 70), 2044);
        let completions = run(&mut world, &mut broker, &mut taken, 0);
        assert!(sent(&completions).contains(&(0, 5)), "port {port}, copy {at}: {completions:?}");
        let bytes = completions.iter().filter(|one| one.port == 3).map(|one| match one.outcome {
            ChainOutcome::Received(bytes) => bytes as usize - HEADER_LEN,
            _ => 0,
        });
        assert_eq!(bytes.sum::<usize>(), payload.len());
    }
}
