//! The receive buffers of a VM that two flows come to, or that are both ends of: what an attacker
//! sends leaves buffers to the other flow, also while the driver returns none, and an attacker that
//! breaks its own rings ends its own connections.

use crate::world::{OPTIONS, World, flow, payload};
use proptest::{collection::vec, prelude::*};
use weir_broker::broker::{Broker, Step};
use weir_exchange::flows::BrokerFlow;
use weir_trace::record::WAITED;
use weir_vsock::{
    device::{RX, TX},
    queue::RingOptions,
    vsock::{Header, Operation},
};

/// The attacker's flow and the one that keeps the rules, from 0 and 1 to 2, with a period of 1 ms.
const ATTACK: usize = 0;
const GOOD: usize = 1;
const PERIOD: u64 = 1_000_000;

fn flows() -> [BrokerFlow; 2] {
    [flow(0, 2, PERIOD), BrokerFlow { port: 5001, ..flow(1, 2, PERIOD) }]
}

/// Both are connected, and the receiver has as many buffers as its ring has places.
fn connected(options: RingOptions) -> (World<'static>, Broker<'static>) {
    let mut world = World::with_options(&flows(), 2048, 0, options);
    let mut broker = world.broker();
    world.connect(&mut broker);
    (0..3).for_each(|vm| world.supply(vm, 2200));
    world.run(&mut broker, 0);
    (world, broker)
}

/// All kinds of packets that the attacker can send, of a connection that there is and of one that
/// there is not.
fn attacks(world: &World<'_>) -> Vec<(Header, usize)> {
    let operations = [
        Operation::Request,
        Operation::Response,
        Operation::Reset,
        Operation::Shutdown,
        Operation::Data,
        Operation::CreditUpdate,
        Operation::CreditRequest,
    ];
    let of = |operation: Operation| {
        let len = if operation == Operation::Data { 64 } else { 0 };
        let known = Header { len, ..world.header(ATTACK, operation, true) };
        [(known, len as usize), (Header { src_port: 7, ..known }, len as usize)]
    };
    operations.into_iter().flat_map(of).collect()
}

/// Sends `count` of these, as fast as the broker takes them.
fn attack(
    world: &mut World<'_>,
    broker: &mut Broker<'_>,
    (header, len): (&Header, usize),
    (count, now): (u32, u64),
) {
    for _ in 0..count {
        // Messages of its flow stay in the ring until their receiver has buffers.
        if world.put(0, header, &payload(len, 0), 44).is_none() {
            break;
        }
        world.notify(0, TX, now);
        for _ in 0..20 {
            world.step(broker, now);
        }
        world.returned(0);
        world.received(0);
        world.supply(0, 2200);
    }
}

#[test]
fn no_attack_takes_the_buffers_of_another_flow() {
    for options in [OPTIONS, RingOptions { event_index: true, ..OPTIONS }] {
        let (world, _) = connected(options);
        for (header, len) in attacks(&world) {
            let (mut world, mut broker) = connected(options);
            // Bursts as large as the flow's part of control packets, and packets of its periods.
            for burst in 0..30 {
                attack(&mut world, &mut broker, (&header, len), (64, PERIOD * burst));
            }
            let now = 40 * PERIOD;
            world.send(GOOD, &payload(1000, 1), now).expect("room");
            world.run(&mut broker, now);
            assert_eq!(world.counts(GOOD).packets, 1, "next to {header:?}");
            // What belongs to its connection arrives, too.
            world.control(GOOD, Operation::CreditUpdate, true, now);
            world.run(&mut broker, now);
            let got = world.received(2);
            let of_good = got.iter().filter(|(header, _)| header.dst_port == 5001);
            let ops: Vec<u16> = of_good.map(|(header, _)| header.op).collect();
            let wanted = [Operation::Data, Operation::CreditUpdate].map(|op| op as u16);
            assert_eq!(ops, wanted, "next to {header:?}");
        }
    }
}

/// The attacker's packets that wait for buffers leave room for those of the other flow.
#[test]
fn waiting_packets_leave_room_for_another_flow() {
    let (mut world, mut broker) = connected(OPTIONS);
    let credit = world.header(ATTACK, Operation::CreditUpdate, true);
    for burst in 0..30 {
        attack(&mut world, &mut broker, (&credit, 0), (64, PERIOD * burst));
    }
    let now = 40 * PERIOD;
    for _ in 0..12 {
        world.control(GOOD, Operation::CreditUpdate, true, now);
        world.run(&mut broker, now);
        world.returned(1);
    }
    let mut of_good = 0;
    for _ in 0..20 {
        let got = world.received(2);
        of_good += got.iter().filter(|(header, _)| header.dst_port == 5001).count();
        world.supply(2, 2200);
        world.run(&mut broker, now);
    }
    assert_eq!(of_good, 12);
}

/// A driver that returns its buffers when half of them are used, as Linux does, gets every packet.
#[test]
fn a_driver_that_returns_buffers_late_gets_all() {
    for operation in [Operation::CreditUpdate, Operation::Data] {
        let (mut world, mut broker) = connected(OPTIONS);
        let (mut got, mut now) = (0, 0);
        for number in 0..200 {
            now += PERIOD;
            if operation == Operation::Data {
                world.send(GOOD, &payload(64, 0), now).expect("room");
            } else {
                world.control(GOOD, operation, true, now);
            }
            world.run(&mut broker, now);
            world.returned(1);
            if number % 8 == 7 {
                got += world.received(2).len();
                world.supply(2, 2200);
                world.run(&mut broker, now);
            }
        }
        assert_eq!(got, 200, "{operation:?}");
    }
}

/// A driver that returns all buffers as soon as fewer than half are left lets no message wait, also
/// one that takes more of them than an equal part: here six of 32.
#[test]
fn a_long_message_finds_half_of_the_ring() {
    const BUFFERS: u32 = 6;
    let long = BrokerFlow { size: BUFFERS * 3732, ..flow(0, 2, PERIOD) };
    let short = BrokerFlow { size: 64, port: 5001, ..flow(1, 2, PERIOD) };
    let mut world = World::with_options(&[long, short], 2048, 0, OPTIONS);
    let mut broker = world.broker();
    world.fill_ring(2);
    for index in 0..2 {
        world.control(index, Operation::Request, true, 0);
        world.run(&mut broker, 0);
        world.returned(index);
    }
    let mut used = world.received(2).len();
    for number in 1..=200 {
        let now = PERIOD * number;
        // Small buffers: each has room for 20 bytes behind its header.
        world.send(0, &payload(20 * BUFFERS as usize, 0), now).expect("room");
        if number % 2 == 0 {
            world.send(1, &payload(20, 1), now).expect("room");
        }
        world.run(&mut broker, now);
        let counts = [0, 1].map(|index| world.counts(index).packets);
        assert_eq!(counts, [number, number / 2]);
        (0..2).for_each(|vm| drop(world.returned(vm)));
        used += world.received(2).len();
        if used > 16 {
            world.fill_ring(2);
            used = 0;
        }
    }
}

/// A Linux that has slept takes each packet at once, and may return no buffer before most of its 64
/// are used: its count of them is off. Here 20 of 32 are. It sends a flow, too, and has no
/// connection yet.
#[test]
fn a_driver_that_returns_buffers_at_last_gets_all() {
    let flow = |from, to| BrokerFlow { size: 4096, ..flow(from, to, PERIOD) };
    let mut world = World::with_options(&[flow(0, 2), flow(2, 1)], 2048, 0, OPTIONS);
    let mut broker = world.broker();
    world.fill_ring(2);
    let (mut got, mut used) = (0, 0);
    for number in 1..=100 {
        world.control(0, Operation::CreditUpdate, true, PERIOD * number);
        world.run(&mut broker, PERIOD * number);
        world.returned(0);
        let taken = world.received(2).len();
        (got, used) = (got + taken, used + taken);
        if used >= 20 {
            world.fill_ring(2);
            used = 0;
            world.run(&mut broker, PERIOD * number);
        }
    }
    assert_eq!(got, 100);
}

proptest! {
    /// A driver notifies of buffers only when it is asked to, and returns few at a time: each
    /// packet comes in the end, whichever flow waits for a buffer.
    #[test]
    fn no_wake_up_is_lost(event_index in any::<bool>(), acts in vec((0..5u8, 0..4usize), 1..200)) {
        let (mut world, mut broker) = connected(RingOptions { event_index, ..OPTIONS });
        let (mut now, mut messages, mut controls, mut got) = (0, [0; 2], [0; 2], [0; 2]);
        let take = |world: &mut World<'_>, got: &mut [u64; 2]| {
            for (header, _) in world.received(2) {
                if header.op == Operation::CreditUpdate as u16 {
                    got[usize::from(header.dst_port == 5001)] += 1;
                }
            }
        };
        for (act, count) in acts {
            now += PERIOD;
            let index = count % 2;
            match act {
                0 | 1 => {
                    let sent = world.send(index, &payload(900, 1), now);
                    messages[index] += u64::from(sent.is_some());
                }
                // More than have a place to wait are dropped.
                2 if controls[index] - got[index] < 12 => {
                    let header = world.header(index, Operation::CreditUpdate, true);
                    controls[index] += u64::from(world.put(index, &header, &[], 44).is_some());
                    world.notify(index, TX, now);
                }
                3 => take(&mut world, &mut got),
                _ => world.supply_as_asked(2, 2200, count),
            }
            world.run(&mut broker, now);
            (0..2).for_each(|vm| drop(world.returned(vm)));
        }
        for _ in 0..200 {
            now += PERIOD;
            take(&mut world, &mut got);
            world.supply_as_asked(2, 2200, 3);
            world.run(&mut broker, now);
        }
        prop_assert_eq!([0, 1].map(|index| world.counts(index).packets), messages);
        prop_assert_eq!(got, controls);
    }
}

/// Before the driver resets its device: nothing else tells the other end, which would wait for ever
/// or take what it has for all that there is.
#[test]
fn a_broken_ring_resets_the_connections_at_once() {
    for (queue, broken) in [(TX, 0), (RX, 2)] {
        let (mut world, mut broker) = connected(OPTIONS);
        world.send(ATTACK, &payload(100, 0), 0).expect("room");
        world.run(&mut broker, 0);
        (0..3).for_each(|vm| drop(world.received(vm)));
        (0..3).for_each(|vm| world.supply(vm, 2200));
        world.run(&mut broker, 0);
        let vm = &world.vms[broken];
        let driver = if queue == TX { &vm.tx } else { &vm.rx };
        let available = driver.layout.available + 2;
        world.windows.0.borrow_mut()[broken].put(available, &5000u16.to_le_bytes());
        world.notify(broken, queue, PERIOD);
        if queue == RX {
            // Its buffers are looked at for a packet.
            world.send(ATTACK, &payload(100, 0), PERIOD).expect("room");
            world.send(ATTACK, &payload(100, 0), PERIOD).expect("room");
        }
        world.run(&mut broker, 2 * PERIOD);
        assert!(world.exchange.port(broken).device.broken().is_some());
        let peer = if queue == TX { 2 } else { 0 };
        let ops: Vec<u16> = world.received(peer).iter().map(|(header, _)| header.op).collect();
        // The second message behind the break has an answer of its own.
        let resets = if queue == TX { 1 } else { 2 };
        assert_eq!(ops, vec![Operation::Reset as u16; resets], "queue {queue}");
        if queue == RX {
            // The request, and three messages.
            assert_eq!(world.returned(0).len(), 3, "and the sender gets its packets back");
        }
        // It begins anew, and the other flow goes on meanwhile.
        if queue == TX {
            world.send(GOOD, &payload(100, 0), 3 * PERIOD).expect("room");
            world.run(&mut broker, 3 * PERIOD);
            assert_eq!(world.counts(GOOD).packets, 1);
        }
        world.reset(broken);
        world.supply(broken, 2200);
        world.supply(2, 2200);
        world.control(ATTACK, Operation::Request, true, 4 * PERIOD);
        world.run(&mut broker, 4 * PERIOD);
        assert!(world.exchange.port(broken).device.broken().is_none());
        let got = world.received(2);
        assert_eq!(got.len(), if queue == TX { 2 } else { 1 });
        assert!(got.iter().any(|(header, _)| header.op == Operation::Request as u16));
    }
}

/// A packet that finds no buffer is marked; the next one is not.
#[test]
fn a_packet_that_waited_for_buffers_is_marked() {
    let mut world = World::with_options(&flows(), 2048, 0, OPTIONS);
    let mut broker = world.broker();
    world.connect(&mut broker);
    world.supply(2, 2200);
    world.run(&mut broker, 0);
    // Whether each packet that arrives had to wait.
    let mut arrived = |world: &mut World<'_>, now| {
        let mut marks = Vec::new();
        for _ in 0..1000 {
            world.engine.ticks = now;
            match broker.step(now, &mut world.engine, &mut world.windows) {
                Step::Wait(_) => return marks,
                Step::Report(devices) => {
                    let record = world.exchange.arrival();
                    marks.extend(record.map(|record| record.detail & WAITED != 0));
                    world.report(&mut broker, devices, now);
                }
                Step::Again => {}
            }
        }
        panic!("the broker does not come to rest");
    };
    // Without a driver that returns any, the flow's packets use up the buffers.
    let (mut now, mut sent, mut came) = (PERIOD, 0, Vec::new());
    while came.len() == sent && sent < 300 {
        world.send(GOOD, &payload(1000, 1), now).expect("room");
        (sent, now) = (sent + 1, now + PERIOD);
        came.extend(arrived(&mut world, now));
        world.returned(1);
    }
    assert!(came.len() < sent && !came.contains(&true), "{came:?}");
    world.received(2);
    world.supply(2, 2200);
    world.notify(2, RX, now);
    assert_eq!(arrived(&mut world, now), [true]);
    world.send(GOOD, &payload(1000, 1), now + PERIOD).expect("room");
    assert_eq!(arrived(&mut world, now + PERIOD), [false]);
}
