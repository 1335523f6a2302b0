//! Packets and receive buffers in chains of any length, in the ring or in tables: what arrives, and
//! whom a driver delays that cuts its packets into many buffers.

use crate::world::{PORT, World, flow, payload};
use proptest::prelude::*;
use weir_broker::broker::Broker;
use weir_exchange::flows::{BrokerFlow, BrokerSettings};
use weir_vsock::{
    device::{RX, TX},
    queue::{MAX_SIZE, RingOptions},
    vsock::{HEADER_LEN, Header, Operation, SEQPACKET, STREAM},
};

const OPTIONS: RingOptions = RingOptions { indirect: true, event_index: false };
/// In microseconds of the counter.
const PERIOD: u64 = 1_000_000;

/// VMs with the largest rings, and connections.
fn connected(flows: &[BrokerFlow], settings: BrokerSettings) -> (World<'static>, Broker<'static>) {
    let mut world = World::with_settings(flows, settings, OPTIONS);
    world.resize(MAX_SIZE);
    let mut broker = world.broker();
    world.connect(&mut broker);
    (world, broker)
}

/// The lengths of pieces that have `len` bytes together: those in `cuts`, and the rest.
fn lens(cuts: &[u32], len: usize) -> Vec<u32> {
    let mut left = len as u32;
    let mut lens: Vec<u32> = cuts
        .iter()
        .map(|cut| {
            let len = left.min(*cut);
            left -= len;
            len
        })
        .collect();
    lens.push(left);
    lens
}

/// The receive buffers of VM 1 in pieces of these lengths, as many as it has descriptors for. All
/// are like these: a driver that has fewer buffers than it had is one that is slow.
fn offer(world: &mut World<'_>, (cuts, rest, is_indirect): &(Vec<u32>, u32, bool)) {
    let lens: Vec<u32> = cuts.iter().copied().chain([*rest]).collect();
    while world.offer_in(1, &lens, *is_indirect).is_some() {}
    world.notify(1, RX, 0);
}

fn cuts(longest: u32) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..longest, 0..usize::from(MAX_SIZE))
}

proptest! {
    /// However drivers cut packets and buffers, what arrives is what was sent.
    #[test]
    fn cut_packets_arrive_as_they_were_sent(
        sent in prop::collection::vec((1usize..6000, cuts(200), any::<bool>()), 1..5),
        room in (cuts(40), 45u32..500, any::<bool>()),
        chunk in prop::sample::select(vec![100u32, 1000, 4096]),
        (is_timed, by_engine, is_record) in any::<(bool, bool, bool)>(),
    ) {
        let engine_from = if by_engine { 1 } else { u64::MAX };
        let settings = BrokerSettings { chunk, engine_from, ..BrokerSettings::default() };
        let deadline = if is_timed { PERIOD } else { 0 };
        let mut world = World::with_settings(&[flow(0, 1, deadline)], settings, OPTIONS);
        world.resize(MAX_SIZE);
        let mut broker = world.broker();
        let kind = if is_record { SEQPACKET } else { STREAM };
        let request = Header { kind, ..world.header(0, Operation::Request, true) };
        world.put(0, &request, &[], HEADER_LEN as u64);
        world.notify(0, TX, 0);
        offer(&mut world, &room);
        world.run(&mut broker, 0);
        prop_assert_eq!((world.received(1).len(), world.returned(0).len()), (1, 1));
        let mut now = 0;
        for (index, (len, cuts, is_indirect)) in sent.iter().enumerate() {
            let bytes = payload(*len, index as u8);
            let header = world.header(0, Operation::Data, true);
            let header = Header { len: *len as u32, kind, flags: 3, ..header };
            let lens = lens(cuts, HEADER_LEN + len);
            let head = world.put_in(0, (&header, &bytes), &lens, *is_indirect);
            world.notify(0, TX, now);
            let mut got = Vec::new();
            // Bounded: a buffer takes one byte at least.
            for _ in 0..6000 {
                offer(&mut world, &room);
                now += 100 * PERIOD;
                world.run(&mut broker, now);
                let received = world.received(1);
                for (header, bytes) in received {
                    prop_assert_eq!(header.op, Operation::Data as u16);
                    got.extend(bytes);
                    let ends = if is_record && got.len() < *len { 0 } else { 3 };
                    prop_assert_eq!(header.flags, ends);
                }
                if got.len() >= *len {
                    break;
                }
            }
            let first = got.iter().zip(&bytes).position(|(got, sent)| got != sent);
            prop_assert_eq!((got.len(), first), (*len, None));
            prop_assert_eq!(world.returned(0), vec![head.expect("descriptors")]);
        }
        prop_assert_eq!(world.counts(0).lost, 0);
    }

    /// A control packet arrives, however its buffers are cut.
    #[test]
    fn cut_control_packets_arrive_as_they_were_sent(
        (sent, rest, is_indirect) in (cuts(3), 45u32..100, any::<bool>()), room in cuts(3),
    ) {
        let (mut world, mut broker) = connected(&[flow(0, 1, 0)], BrokerSettings::default());
        while world.offer_in(1, &lens(&room, 200), is_indirect).is_some() {}
        let header = world.header(0, Operation::CreditUpdate, true);
        let header = Header { buf_alloc: 7, fwd_cnt: rest, ..header };
        for _ in 0..3 {
            world.put_in(0, (&header, &[]), &lens(&sent, HEADER_LEN), is_indirect);
            world.notify(0, TX, 0);
            world.run(&mut broker, 0);
            prop_assert_eq!(world.returned(0).len(), 1);
        }
        let mut got = world.received(1);
        while world.offer_in(1, &lens(&room, 200), is_indirect).is_some() {}
        world.notify(1, RX, 0);
        world.run(&mut broker, 0);
        got.extend(world.received(1));
        let header = Header { len: 0, ..header };
        prop_assert_eq!(got, vec![(header, vec![]); 3]);
    }
}

/// A driver that cuts its packet into many buffers has a later deadline for the rest of it.
#[test]
fn many_buffers_delay_no_flow_but_their_own() {
    let flows = [flow(0, 2, PERIOD), BrokerFlow { port: PORT + 1, ..flow(1, 2, PERIOD) }];
    let settings = BrokerSettings { chunk: 4096, ..BrokerSettings::default() };
    for cut in [100, 1] {
        let (mut world, mut broker) = connected(&flows, settings);
        world.supply(2, 2000);
        world.run(&mut broker, 0);
        let header = Header { len: 100, ..world.header(0, Operation::Data, true) };
        let lens = lens(&[HEADER_LEN as u32, cut, cut, cut, cut, cut, cut, cut, cut], 144);
        world.put_in(0, (&header, &payload(100, 1)), &lens, false).expect("room");
        world.notify(0, TX, 10);
        // Its deadline is later by less than a period.
        world.send(1, &payload(100, 2), 20);
        world.run(&mut broker, 20);
        let ports: Vec<u32> =
            world.received(2).into_iter().map(|(header, _)| header.dst_port).collect();
        let is_cut = cut == 1;
        assert_eq!(ports, if is_cut { [PORT + 1, PORT] } else { [PORT, PORT + 1] });
    }
}

/// A packet that ends too early, so that the device sees it before it is moved, ends its connection
/// and breaks no ring.
#[test]
fn a_short_packet_ends_its_connection() {
    let flows = [flow(0, 2, 0), BrokerFlow { port: PORT + 1, ..flow(1, 2, 0) }];
    let settings = BrokerSettings { chunk: 4096, ..BrokerSettings::default() };
    let (mut world, mut broker) = connected(&flows, settings);
    world.supply(2, 2000);
    world.run(&mut broker, 0);
    let header = Header { len: 200, ..world.header(0, Operation::Data, true) };
    world.put(0, &header, &payload(100, 1), HEADER_LEN as u64).expect("room");
    world.notify(0, TX, 10);
    world.send(1, &payload(1000, 2), 20);
    world.run(&mut broker, 20);
    let got: Vec<_> =
        world.received(2).into_iter().map(|(header, _)| (header.dst_port, header.op)).collect();
    assert_eq!(got.len(), 2);
    assert!(got.contains(&(PORT, Operation::Reset as u16)), "{got:?}");
    assert!(got.contains(&(PORT + 1, Operation::Data as u16)), "{got:?}");
    assert_eq!(world.exchange.port(0).device.broken(), None);
    world.supply(0, 200);
    world.run(&mut broker, 30);
    let ops: Vec<u16> = world.received(0).into_iter().map(|(header, _)| header.op).collect();
    assert_eq!(ops, [Operation::Reset as u16], "the sender learns it");
}

/// The receiver of a packet that can't be moved to its end gets a reset and no end, and others'
/// packets.
#[test]
fn faulty_chains_end_in_a_reset() {
    let flows = [flow(0, 2, 0), BrokerFlow { port: PORT + 1, ..flow(1, 2, 0) }];
    let settings = BrokerSettings { chunk: 400, ..BrokerSettings::default() };
    // The number of the descriptor that is changed, a byte of it, and its value.
    let outside = (15, 7, 0x70);
    let writable = (15, 12, 3);
    let number = (15, 14, 64);
    let circle = (15, 14, 3);
    let table = (15, 12, 4);
    for (descriptor, byte, value) in [outside, writable, number, circle, table] {
        let (mut world, mut broker) = connected(&flows, settings);
        world.supply(2, 2000);
        world.run(&mut broker, 0);
        let header = Header { len: 2000, ..world.header(0, Operation::Data, true) };
        let cuts: Vec<u32> = core::iter::once(44).chain([100; 19]).collect();
        world.put_in(0, (&header, &payload(2000, 1)), &lens(&cuts, 2044), false).expect("room");
        let chain = &world.vms[0].tx.chains[0].1;
        let at = world.vms[0].tx.layout.descriptors + 16 * u64::from(chain[descriptor]);
        world.windows.0.borrow_mut()[0].put(at + byte, &[value]);
        world.notify(0, TX, 10);
        world.send(1, &payload(1000, 2), 20);
        world.run(&mut broker, 20);
        let received = world.received(2);
        let of = |port: u32| received.iter().filter(move |(header, _)| header.dst_port == port);
        let ops: Vec<u16> = of(PORT).map(|(header, _)| header.op).collect();
        let (data, ends): (Vec<u16>, Vec<u16>) =
            ops.iter().partition(|op| **op == Operation::Data as u16);
        assert_eq!(ends, [Operation::Reset as u16], "{byte} {value}");
        assert_eq!(data.len(), 3, "{ops:?}");
        assert_eq!(ops.last(), Some(&(Operation::Reset as u16)), "behind what has arrived");
        let whole: Vec<u8> = of(PORT + 1).flat_map(|(_, bytes)| bytes.clone()).collect();
        assert_eq!(whole, payload(1000, 2));
        assert_eq!(world.counts(0).lost, 1);
        let is_broken = world.exchange.port(0).device.broken().is_some();
        assert_eq!(is_broken, byte != 12 || value != 3, "what is only short breaks no ring");
    }
}
