//! The broker against a model: every packet arrives whole, in its flow's order, once, by the
//! earliest deadline first, with any buffers of the receivers and any reset; and what
//! drivers see of packets that are passed, refused, or in vain.

use crate::world::{Engine, Windows, World, flow, payload};
use proptest::prelude::*;
use std::{cell::Cell, rc::Rc};
use weir_broker::{
    broker::{Broker, Mover, Step},
    ram::Access,
};
use weir_exchange::{
    devices::DeviceKind,
    flows::{BrokerFlow, BrokerSettings, Exchange, PacketEvent},
};
use weir_trace::phases::unpack;
use weir_vsock::{
    device::{RX, TX},
    queue::RingOptions,
    vsock::{HEADER_LEN, Header, Operation, STREAM},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Three flows of two senders to one receiver with buffers in small portions, with any
    /// way of suppressing notifications.
    #[test]
    fn packets_arrive_whole_in_order_and_once(
        sends in prop::collection::vec((0usize..3, 1usize..5000, 0u64..400), 1..40),
        sizes in prop::collection::vec(46u64..2000, 1..8),
        chunk in 1u32..4096,
        portion in 1usize..9,
        event_index in any::<bool>(),
    ) {
        let flows = [flow(0, 2, 100), flow(1, 2, 300), flow(1, 2, 200)]
            .into_iter()
            .zip(5000u32..)
            .map(|(flow, port)| BrokerFlow { port, ..flow })
            .collect::<Vec<_>>();
        let options = RingOptions { indirect: false, event_index };
        let mut world = World::with_options(&flows, chunk, 0, options);
        let mut broker = world.broker();
        world.connect(&mut broker);
        let (mut now, mut turn) = (0, 0);
        let mut sends: Vec<_> = sends.into_iter().rev().collect();
        let mut wanted: Vec<Vec<u8>> = vec![Vec::new(); 3];
        let mut got = wanted.clone();
        let mut count = 0;
        while !sends.is_empty() || got != wanted {
            turn += 1;
            prop_assert!(turn < 20_000, "it stalls");
            if let Some((index, len, gap)) = sends.last().copied() {
                let bytes = payload(len, count);
                if world.send(index, &bytes, now).is_some() {
                    sends.pop();
                    count = count.wrapping_add(1);
                    wanted[index].extend(bytes);
                    now += gap;
                }
            }
            if let Some(until) = world.run(&mut broker, now) {
                now = now.max(until);
            }
            (0..2).for_each(|vm| _ = world.returned(vm));
            for (header, bytes) in world.received(2) {
                prop_assert_eq!(header.op, Operation::Data as u16);
                prop_assert!(header.len <= chunk);
                got[(header.dst_port - 5000) as usize].extend(bytes);
            }
            for number in 0..portion + 4 {
                world.offer(2, sizes[(turn + number) % sizes.len()]);
            }
            world.notify(2, RX, now);
        }
        for (index, flow) in wanted.iter().enumerate() {
            prop_assert_eq!(world.counts(index).lost, 0, "{:?}", flow.len());
        }
        prop_assert!((0..2).all(|vm| world.vms[vm].tx.chains.is_empty()), "each is back once");
    }
}

fn connected(flows: &[BrokerFlow], chunk: u32, rate: u64) -> (World<'static>, Broker<'static>) {
    World::connected(flows, BrokerSettings { chunk, rate, ..BrokerSettings::default() })
}

/// The mark of each packet that a VM has got, which is its first byte.
fn marks(world: &mut World, vm: usize) -> Vec<u8> {
    world.received(vm).into_iter().map(|(_, bytes)| bytes[0]).collect()
}

/// Whether a step has not come to rest.
fn moves(step: Step) -> bool {
    !matches!(step, Step::Wait(_))
}

/// Returns whether a step asks for a report to EL2.
fn reports(step: Step) -> bool {
    matches!(step, Step::Report(_))
}

/// EL2 interrupts the receiver first, though its place is behind the sender's.
#[test]
fn a_report_names_the_receiver_first() {
    let (mut world, mut broker) = connected(&[flow(0, 2, 900)], 1000, 0);
    world.send(0, &payload(500, 0), 0);
    let mut devices = loop {
        match broker.step(0, &mut world.engine, &mut world.windows) {
            Step::Report(devices) => break devices,
            step => assert!(moves(step), "nothing was moved"),
        }
    };
    for named in [Some((DeviceKind::Receiver, 2)), Some((DeviceKind::Sender, 0)), None] {
        assert_eq!(devices.first(), named);
        devices.remove_first();
    }
}

#[test]
fn the_earliest_deadline_preempts_between_chunks() {
    let (mut world, mut broker) = connected(&[flow(0, 2, 900), flow(1, 2, 780)], 1000, 0);
    let before = world.moved();
    world.send(0, &payload(5000, 0), 0);
    for _ in 0..2 {
        assert!(moves(world.step(&mut broker, 10)));
    }
    assert_eq!(world.moved() - before, 2000, "two chunks of the first");
    world.send(1, &payload(500, 1), 20);
    assert!(reports(world.step(&mut broker, 20)));
    assert_eq!(world.moved() - before, 2500, "then the more urgent one");
    assert_eq!([world.returned(0).len(), world.returned(1).len()], [0, 1]);
    world.send(1, &payload(500, 2), 600);
    world.run(&mut broker, 800);
    let rest = [2000, 3000, 4000].map(|at| payload(5000, 0)[at]);
    assert_eq!(marks(&mut world, 2)[2..], [1, rest[0], rest[1], rest[2], 2]);
}

#[test]
fn best_effort_waits_until_no_packet_is_eligible() {
    let timed = BrokerFlow { deadline: 100, period: 200, ..flow(0, 2, 200) };
    let (mut world, mut broker) = connected(&[timed, flow(1, 2, 0)], 4096, 0);
    world.send(0, &payload(10, 0), 300);
    world.send(0, &payload(10, 1), 300);
    world.run(&mut broker, 300);
    world.send(1, &payload(10, 2), 400);
    assert_eq!(world.run(&mut broker, 400), Some(500));
    assert_eq!(marks(&mut world, 2), [0, 2]);
    world.send(1, &payload(10, 3), 450);
    world.send(1, &payload(10, 4), 450);
    world.send(0, &payload(10, 5), 450);
    assert_eq!(world.run(&mut broker, 500), Some(700));
    let got = marks(&mut world, 2);
    assert_eq!(got, [1, 3, 4]);
    world.run(&mut broker, 700);
    assert_eq!(marks(&mut world, 2), [5]);
}

#[test]
fn a_receiver_without_buffers_blocks_only_its_flows() {
    let mut world = World::new(&[flow(0, 1, 10), flow(0, 2, 90)], 4096, 0);
    let mut broker = world.broker();
    world.connect(&mut broker);
    world.supply(2, 2000);
    while world.received(1).is_empty() {
        // Only those that are kept for control packets are left.
        world.send(0, &payload(100, 0), 0);
        world.run(&mut broker, 0);
        world.returned(0);
    }
    let (lost, blocked) = (world.counts(0).lost, world.counts(0).packets);
    (0..20).for_each(|time| {
        world.send(0, &payload(1000, 1), 100 * time);
        world.run(&mut broker, 100 * time);
        world.returned(0);
    });
    world.received(1);
    assert!(world.counts(0).packets > blocked);
    world.send(1, &payload(100, 2), 3000);
    world.run(&mut broker, 3000);
    assert_eq!(marks(&mut world, 2), [2]);
    let before = world.counts(0).packets;
    world.supply(1, 2000);
    world.run(&mut broker, 4000);
    assert!(world.counts(0).packets > before && world.counts(0).lost == lost);
}

#[test]
fn a_reset_port_loses_old_packets_and_takes_new_ones() {
    let flows = [flow(0, 2, 50), BrokerFlow { port: 5001, ..flow(1, 2, 60) }];
    let (mut world, mut broker) = connected(&flows, 1000, 0);
    world.send(0, &payload(3000, 0), 0);
    world.send(0, &payload(3000, 1), 0);
    world.send(1, &payload(100, 2), 0);
    assert!(moves(world.step(&mut broker, 0)));
    // The sender dies in the midst of a packet; its next boot connects anew.
    world.reset(0);
    world.run(&mut broker, 10);
    // The other packet was still in its ring.
    assert_eq!(world.counts(0).lost, 1);
    let got = world.received(2);
    let ops: Vec<u16> = got.iter().map(|(header, _)| header.op).collect();
    assert!(ops.contains(&(Operation::Reset as u16)), "its end is reported: {ops:?}");
    assert_eq!(got.iter().filter(|(header, _)| header.dst_port == 5001).count(), 1);
    world.supply(2, 2000);
    world.control(0, Operation::Request, true, 200);
    world.send(0, &payload(200, 3), 200);
    world.run(&mut broker, 200);
    assert_eq!(world.received(2).len(), 2);
    assert_eq!(world.counts(0).packets, 1);
    // The receiver dies: its buffers are not used any more, and what was sent to it is given up.
    world.send(0, &payload(200, 4), 210);
    world.run(&mut broker, 220);
    world.reset(2);
    let moved = world.moved();
    world.run(&mut broker, 300);
    assert_eq!((world.moved(), world.counts(0).lost), (moved, 2));
    // What is sent before the sender knows of it is answered by a reset.
    world.supply(0, 1000);
    world.send(0, &payload(200, 5), 310);
    world.run(&mut broker, 310);
    let answers = world.received(0);
    assert!(answers.iter().all(|(header, _)| header.op == Operation::Reset as u16));
    assert_eq!((answers.len(), world.exchange.port(0).refused()), (2, 0));
    world.supply(2, 2000);
    world.control(1, Operation::Request, true, 320);
    world.send(1, &payload(100, 6), 320);
    world.run(&mut broker, 400);
    assert_eq!(world.received(2).len(), 2);
}

/// However often guests notify or reset their devices, a broker at work gets no interrupt, and one
/// that is about to sleep gets one.
#[test]
fn the_broker_is_notified_once_per_doze() {
    let mut world = World::new(&[flow(0, 2, 50), flow(1, 2, 50)], 1000, 0);
    let mut broker = world.broker();
    world.connect(&mut broker);
    world.supply(2, 2000);
    assert!(world.bell.must_ring(world.exchange));
    world.run(&mut broker, 0);
    let storm = |world: &World| {
        let rings = (0..100).filter(|_| {
            world.exchange.port(1).device.reset();
            world.bell.must_ring(world.exchange)
        });
        rings.count()
    };
    assert_eq!(storm(&world), 1);
    world.send(0, &payload(3000, 0), 0);
    for _ in 0..2 {
        assert!(moves(world.step(&mut broker, 0)));
        assert_eq!(storm(&world), 0, "it has not slept since");
    }
    while !reports(world.step(&mut broker, 0)) {}
    // The resets are seen, and then it says that it is about to sleep.
    while !world.bell.must_ring(world.exchange) {
        assert_eq!(world.step(&mut broker, 0), Step::Again);
    }
    assert_eq!(storm(&world), 0, "its interrupt is pending");
}

#[test]
fn the_engine_keeps_its_rate() {
    // 1 byte/ns: each chunk of 1000 bytes takes a microsecond.
    let (mut world, mut broker) = connected(&[flow(0, 2, 50)], 1000, 1_000_000_000);
    let before = world.moved();
    world.send(0, &payload(3000, 0), 0);
    assert!(moves(world.step(&mut broker, 0)));
    assert_eq!(world.run(&mut broker, 10), Some(1000));
    assert_eq!(world.moved() - before, 1000);
    assert!(moves(world.step(&mut broker, 1000)));
    assert_eq!(world.moved() - before, 2000);
}

/// An engine that runs a check during a copy.
struct Looking<F>(Engine, F);

impl<F: FnMut()> Mover for Looking<F> {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        let half = len / 2;
        self.0.copy(from, to, half);
        (self.1)();
        self.0.copy(from + half, to + half, len - half);
    }

    fn ticks(&mut self) -> u64 {
        self.0.ticks()
    }
}

fn looking<F: FnMut()>(windows: &Windows, look: F) -> Looking<F> {
    Looking(Engine::new(windows.clone()), look)
}

fn busy(exchange: &Exchange) -> Vec<usize> {
    (0..8).filter(|port| exchange.port(*port).device.is_busy()).collect()
}

#[test]
fn a_copy_is_seen_until_it_ends() {
    let (mut world, mut broker) = connected(&[flow(0, 3, 50)], 4096, 0);
    world.send(0, &payload(100, 0), 0);
    let (exchange, mut seen) = (world.exchange, 0);
    let mut looking = looking(&world.windows, || {
        assert_eq!(busy(exchange), [0, 3]);
        seen += 1;
    });
    while broker.step(0, &mut looking, &mut world.windows) == Step::Again {}
    assert_eq!(seen, 1);
    assert!(busy(exchange).is_empty());
}

/// Whichever chunk of a packet it is, and whichever end restarts: EL2 waits until the chunk ends,
/// nothing of that boot is touched any more, no other VM loses anything, and the next boot's
/// packets arrive.
#[test]
fn an_endpoint_restart_in_a_chunk_stops_its_packet() {
    for (port, at) in [0, 3].into_iter().flat_map(|port| (0..3).map(move |at| (port, at))) {
        let flows = [flow(0, 3, 50), BrokerFlow { port: 5001, ..flow(1, 2, 60) }];
        let (mut world, mut broker) = connected(&flows, 1000, 0);
        world.send(0, &payload(3000, 0), 0);
        world.send(1, &payload(500, 1), 0);
        let (exchange, mut copies) = (world.exchange, 0);
        let device = &exchange.port(port).device;
        let mut dying = looking(&world.windows, || {
            if copies == at {
                device.reset();
                assert!(device.is_busy(), "EL2 must wait");
            }
            copies += 1;
        });
        for steps in 0.. {
            let step = broker.step(0, &mut dying, &mut world.windows);
            assert!(busy(exchange).is_empty(), "between two steps");
            match step {
                Step::Again => {}
                Step::Report(devices) => world.report(&mut broker, devices, 0),
                Step::Wait(_) => break,
            }
            assert!(steps < 200, "the broker does not come to rest");
        }
        assert!(copies > at, "port {port}, copy {at}: it came so far");
        assert_eq!(world.counts(1).packets, 1, "the other flow's packet has arrived");
        // The chunk under way was its last, or the packet is lost.
        let counts = world.counts(0);
        let expected = if port == 3 && at == 2 { (1, 0) } else { (0, 1) };
        if !(port == 0 && at == 2) {
            assert_eq!((counts.packets, counts.lost), expected, "port {port}, copy {at}");
        }
        world.reset(port);
        world.run(&mut broker, 0);
        world.received(3);
        world.supply(3, 2000);
        world.returned(0);
        world.control(0, Operation::Request, true, 100);
        let bytes = payload(2000, 7);
        world.send(0, &bytes, 100);
        world.run(&mut broker, 200);
        let got: Vec<u8> = world.received(3).into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert_eq!(got, bytes, "port {port}, copy {at}");
    }
}

/// The deadline of a packet is that of its notification, however late the broker takes it; of one
/// that came without, it is that of the time at which the ring was last seen without it.
#[test]
fn a_packet_is_stamped_by_its_notification() {
    let free = BrokerFlow { period: 1, ..flow(0, 2, 1000) };
    let (mut world, mut broker) = connected(&[free], 4096, 0);
    let mut taken = 0;
    while world.exchange.next_record(&mut taken).is_some() {}
    let mut seen = |world: &World| {
        let records = std::iter::from_fn(|| world.exchange.next_record(&mut taken));
        let sent = records.filter(|record| record.event == PacketEvent::Sent);
        sent.map(|record| record.value).collect::<Vec<_>>()
    };
    for ticks in [1_000_000, 1_001_000] {
        world.send(0, &payload(10, 0), ticks);
    }
    world.run(&mut broker, 1_005_000);
    assert_eq!(seen(&world), [1_000_000, 1_001_000], "each its own");
    let header = Header { len: 10, ..world.header(0, Operation::Data, true) };
    world.put(0, &header, &payload(10, 1), 44);
    world.send(0, &payload(10, 1), 1_010_000);
    world.run(&mut broker, 1_012_000);
    assert_eq!(seen(&world), [1_010_000; 2], "one notification for two");
    let counts = world.counts(0);
    assert_eq!((counts.packets, counts.observed_max_ns, counts.observed_max_packet), (4, 5000, 1));
}

/// A clock that goes on with each access to memory, and its time when it was last read.
#[derive(Default)]
struct Clock {
    now: Cell<u64>,
    read: Cell<u64>,
}

struct Slow(Windows, Rc<Clock>);

impl Access for Slow {
    fn read(&mut self, from: u64, to: &mut [u8]) {
        self.1.now.update(|ticks| ticks + 1);
        self.0.read(from, to);
    }

    fn write(&mut self, to: u64, from: &[u8]) {
        self.1.now.update(|ticks| ticks + 1);
        self.0.write(to, from);
    }
}

impl Mover for Slow {
    fn copy(&mut self, _: u64, _: u64, _: u64) {
        self.1.now.update(|ticks| ticks + 10);
    }

    fn ticks(&mut self) -> u64 {
        self.1.read.set(self.1.now.get());
        self.1.now.get()
    }
}

/// The phases of a packet of several chunks are all of the broker's time, also what it takes to
/// check the device of a VM that notifies in vain before each chunk.
#[test]
fn phases_have_all_of_the_brokers_time() {
    let flows = [flow(0, 2, 1_000_000), flow(1, 2, 1_000_000)];
    let (mut world, mut broker) = connected(&flows, 1000, 0);
    let mut taken = 0;
    while world.exchange.next_record(&mut taken).is_some() {}
    let clock = Rc::new(Clock::default());
    clock.now.set(1000);
    let [mut mover, mut access] = [(); 2].map(|()| Slow(world.windows.clone(), clock.clone()));
    world.send(0, &payload(5000, 0), 1000);
    let (mut found, mut finalized) = (0, 0);
    while world.counts(0).packets == 0 {
        world.notify(1, TX, clock.now.get());
        let step = broker.step(clock.now.get(), &mut mover, &mut access);
        while let Some(record) = world.exchange.next_record(&mut taken) {
            found += unpack(record.phases).iter().sum::<u64>();
        }
        if reports(step) {
            let [find_place, ..] = unpack(world.exchange.arrival().map_or(0, |one| one.phases));
            found += find_place;
            finalized += clock.now.get() - clock.read.get();
            broker.reported(clock.now.get(), clock.now.get(), 0);
        }
    }
    assert_eq!(found + finalized, clock.now.get() - 1000);
}

/// A report that interrupts the devices of three VMs is about two packets at least, so that its time
/// counts half for each.
#[test]
fn a_report_is_shared_by_its_packets() {
    let flows = [flow(0, 3, 1_000_000), flow(1, 3, 1_000_000), flow(2, 3, 1_000_000)];
    let (mut world, mut broker) = connected(&flows, 1000, 0);
    for sender in 0..3 {
        let unknown = world.header(sender, Operation::Data, true);
        world.put(sender, &Header { dst_port: 7, ..unknown }, &[], 44);
        world.notify(sender, TX, 0);
    }
    let mut finalized = |world: &mut World<'static>, time| {
        while !reports(broker.step(0, &mut world.engine, &mut world.windows)) {}
        let [.., finalize] = unpack(world.exchange.arrival().map_or(0, |one| one.phases));
        broker.reported(0, time, 0);
        finalize
    };
    finalized(&mut world, 900);
    world.send(0, &payload(500, 0), 0);
    assert_eq!(finalized(&mut world, 0), 450);
}

/// A packet that is not allowed is answered by a reset and counted; one that makes no sense is
/// counted; one of a connection that has ended is answered; one whose payload is not all there is
/// counted and ends its connection. Each buffer comes back.
#[test]
fn refused_packets_are_counted_and_answered() {
    let (mut world, mut broker) = connected(&[BrokerFlow { size: 100, ..flow(0, 1, 50) }], 4096, 0);
    world.supply(0, 100);
    let good = world.header(0, Operation::Data, true);
    let cases: [(Header, usize, bool, u64); 6] = [
        (Header { len: 8, dst_port: 7, ..good }, 8, true, 1),
        (Header { len: 101, ..good }, 101, true, 2),
        (Header { len: 8, kind: 9, ..good }, 8, true, 3),
        (Header { len: 8, op: 99, ..good }, 8, false, 4),
        (Header { len: 8, ..good }, 4, true, 5),
        // This connection does not exist.
        (Header { len: 8, src_port: 3, ..good }, 8, true, 5),
    ];
    for (header, len, is_answered, refused) in cases {
        world.put(0, &header, &payload(len, 0), 44);
        world.notify(0, TX, 0);
        world.run(&mut broker, 0);
        assert_eq!(world.returned(0).len(), 1, "{header:?}");
        let answers = world.received(0);
        assert_eq!(answers.len(), usize::from(is_answered), "{header:?}");
        assert!(answers.iter().all(|(answer, _)| answer.op == Operation::Reset as u16));
        assert_eq!(world.exchange.port(0).refused(), refused, "{header:?}");
    }
    let ops: Vec<u16> = world.received(1).into_iter().map(|(header, _)| header.op).collect();
    assert_eq!(ops, [Operation::Reset as u16], "the short packet leaves a gap");
}

/// Control packets that a receiver has no buffer for wait, in order; beyond 32 they are dropped,
/// which counts as its own.
#[test]
fn control_packets_wait_for_buffers() {
    let mut world = World::new(&[flow(0, 1, 1_000_000)], 4096, 0);
    let mut broker = world.broker();
    for port in 0..40u32 {
        let header = Header { src_port: port, ..world.header(0, Operation::Request, true) };
        let _ = world.put(0, &header, &[], 44);
        world.notify(0, TX, 0);
        world.run(&mut broker, 0);
        world.returned(0);
    }
    // A flow has 16 connections at most: the others were refused.
    let refused = world.exchange.port(1).refused();
    assert_eq!(refused, 0);
    world.supply(1, 100);
    world.run(&mut broker, 0);
    let ports: Vec<u32> = world.received(1).iter().map(|(header, _)| header.src_port).collect();
    assert_eq!(ports, (0..16).collect::<Vec<_>>());
}

/// Buffers for many control packets that wait take no more of another flow's time than a control
/// packet that is sent.
#[test]
fn one_that_waits_is_passed_in_a_step() {
    let flows = [flow(1, 2, 1_000_000), flow(0, 2, 1_000_000)];
    let (mut world, mut broker) = connected(&flows, 4096, 0);
    world.supply(2, 2000);
    world.reset(1);
    // Its own packets are refused, and it has no buffers for the answers.
    for _ in 0..32 {
        let header = Header { len: 8, dst_port: 7, ..world.header(0, Operation::Data, true) };
        world.put(1, &header, &payload(8, 0), 44).expect("room");
        world.notify(1, TX, 1000);
        world.run(&mut broker, 1000);
        world.returned(1);
    }
    world.supply(1, 100);
    world.send(1, &payload(5000, 0), 2000);
    while world.counts(1).packets == 0 {
        world.step(&mut broker, 2000);
    }
    assert_eq!(world.received(1).len(), 1);
    world.run(&mut broker, 2000);
    assert_eq!(world.received(1).len(), 11, "of 16 buffers, 4 are its flow's");
    let mut passed = 12;
    while passed < 32 {
        world.supply(1, 100);
        world.run(&mut broker, 2000);
        let now = world.received(1).len();
        assert!(now > 0, "no more than {passed}");
        passed += now;
    }
}

/// A ring without meaning stops its device and no other.
#[test]
fn a_broken_ring_stops_its_device_alone() {
    let (mut world, mut broker) = connected(&[flow(0, 2, 50), flow(1, 2, 60)], 4096, 0);
    let available = world.vms[0].tx.layout.available + 2;
    world.windows.0.borrow_mut()[0].put(available, &5000u16.to_le_bytes());
    world.notify(0, TX, 0);
    world.send(1, &payload(10, 1), 0);
    world.run(&mut broker, 0);
    assert!(world.exchange.port(0).device.broken().is_some());
    assert!(world.exchange.port(1).device.broken().is_none());
    assert_eq!(world.counts(1).packets, 1);
    world.reset(0);
    world.run(&mut broker, 0);
    assert!(world.exchange.port(0).device.broken().is_none());
}

/// The rings of both ends hold anything, and change at each read.
#[test]
fn hostile_rings_end_no_step_late() {
    for seed in 0..200u64 {
        let (mut world, mut broker) = connected(&[flow(0, 2, 50), flow(1, 2, 60)], 4096, 0);
        for vm in [0, 2] {
            world.windows.0.borrow_mut()[vm].hostile = Some(seed.wrapping_mul(0x9e37_79b9));
        }
        for time in 0..50 {
            world.notify(0, TX, time);
            world.notify(2, RX, time);
            for _ in 0..4 {
                world.step(&mut broker, time);
            }
        }
        assert!(busy(world.exchange).is_empty());
    }
}

/// Where the broker reaches memory: of a VM alone, and in one access for each field of a ring.
#[test]
fn accesses_go_to_windows_alone() {
    let (mut world, mut broker) = connected(&[flow(0, 1, 50)], 4096, 0);
    let mut bytes = [0; 4];
    world.windows.read(1 << 35, &mut bytes);
    world.send(0, &payload(10, 0), 0);
    world.run(&mut broker, 0);
    let header = world.received(1)[0].0;
    assert_eq!((header.kind, header.len as usize + HEADER_LEN), (STREAM, 54));
}

/// Packets that have waited for their receiver's buffers come before those of other flows as often
/// as their period allows, and else in the time that is left.
#[test]
fn a_receiver_that_was_blocked_delays_no_other_flow() {
    let (mut world, mut broker) = connected(&[flow(0, 1, 100), flow(2, 3, 350)], 4096, 0);
    for time in 1..13 {
        world.send(0, &payload(100, 0), 100 * time);
        world.run(&mut broker, 100 * time);
        world.returned(0);
    }
    for time in 20..32 {
        world.send(0, &payload(100, 1), 100 * time);
        world.run(&mut broker, 100 * time);
    }
    assert_eq!(world.counts(0).packets, 12, "it has no buffers");
    world.received(1);
    world.supply(1, 2000);
    world.send(1, &payload(100, 2), 5000);
    for _ in 0..1000 {
        if world.counts(1).packets == 0 {
            world.step(&mut broker, 5000);
        }
    }
    assert!((14..=15).contains(&world.counts(0).packets), "{}", world.counts(0).packets);
    world.run(&mut broker, 5000);
    assert_eq!(world.counts(0).packets, 24, "the rest has the time that is left");
}

/// A VM that also receives a flow tells of its room there, and its own packets are not behind that
/// while another's is moved.
#[test]
fn a_credit_update_holds_up_no_packet_behind_it() {
    let on = |port, one| BrokerFlow { port, ..one };
    let flows = [flow(0, 2, 9000), on(5001, flow(2, 3, 900)), on(5002, flow(1, 3, 9000))];
    let (mut world, mut broker) = connected(&flows, 200, 0);
    world.supply(0, 100);
    world.send(2, &payload(1900, 0), 10);
    world.step(&mut broker, 10);
    world.control(0, Operation::CreditUpdate, false, 10);
    world.send(1, &payload(100, 0), 10);
    for _ in 0..4 {
        world.step(&mut broker, 10);
    }
    assert_eq!((world.counts(1).packets, world.counts(2).packets), (1, 0));
    world.received(3);
    world.supply(3, 2000);
    world.run(&mut broker, 10);
    assert_eq!((world.counts(2).packets, world.received(0).len()), (1, 1));
}

/// A driver that resets its device all the time takes no more of another's packet than one that
/// sends control packets.
#[test]
fn resets_take_no_time_of_a_packet_that_is_moved() {
    let flows = [flow(0, 3, 5000), BrokerFlow { port: 5001, ..flow(1, 2, 9000) }];
    let (mut world, mut broker) = connected(&flows, 200, 0);
    world.send(0, &payload(1900, 0), 10);
    world.step(&mut broker, 10);
    let mut ends = 0;
    for _ in 0..20 {
        if world.counts(0).packets > 0 {
            break;
        }
        world.reset(1);
        world.control(1, Operation::Request, true, 10);
        (0..3).for_each(|_| _ = world.step(&mut broker, 10));
        world.received(2).iter().for_each(|(got, _)| ends += u16::from(got.op == 3));
        world.supply(2, 2000);
    }
    assert_eq!(ends, 1, "resets that were carried out");
    world.run(&mut broker, 10);
    let ops: Vec<_> = world.received(2).iter().map(|(got, _)| got.op).collect();
    assert_eq!(ops, [1], "the last boot is connected");
}

/// A driver that notifies of receive buffers that are not there has the broker check once, and not
/// for each flow that waits for them.
#[test]
fn a_false_notification_of_buffers_costs_one_poll() {
    let port = |index: u8| BrokerFlow { port: 5000 + u32::from(index), ..flow(index % 4, 4, 90) };
    let flows: Vec<_> = (0..12).map(port).collect();
    let (mut world, mut broker) = connected(&flows, 4096, 0);
    for time in 1..20 {
        (0..12).for_each(|index| _ = world.send(index, &payload(100, 0), 100 * time));
        world.run(&mut broker, 100 * time);
        (0..4).for_each(|vm| _ = world.returned(vm));
    }
    world.run(&mut broker, 5000);
    let reads = |world: &World| world.windows.0.borrow()[4].reads;
    let before = reads(&world);
    world.notify(4, RX, 5000);
    world.run(&mut broker, 5000);
    let looked = reads(&world) - before;
    assert!((1..=4).contains(&looked), "{looked}");
    world.received(4);
    world.supply(4, 2000);
    let moved = world.moved();
    world.run(&mut broker, 5000);
    assert!(world.moved() >= moved + 1200, "all buffers are used");
}
