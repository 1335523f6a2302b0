//! The DMA engine: what it moves, and what becomes of others when it fails.

use crate::world::{PORT, World, flow, payload};
use weir_broker::broker::Broker;
use weir_exchange::flows::{BrokerFlow, BrokerSettings, PacketEvent, PacketRecord};
use weir_trace::record::BY_ENGINE;
use weir_vsock::vsock::Operation;

/// Chunks of this many bytes and more are the engine's, if they lie in one piece.
const FROM: u64 = 600;

/// Two senders to a receiver, in chunks of 1000 bytes.
fn connected(flows: &[BrokerFlow]) -> (World<'static>, Broker<'static>) {
    let settings = BrokerSettings { chunk: 1000, engine_from: FROM, ..BrokerSettings::default() };
    World::connected(flows, settings)
}

fn pair() -> [BrokerFlow; 2] {
    [flow(0, 2, 900), BrokerFlow { port: PORT + 1, ..flow(1, 2, 780) }]
}

/// The chunks that were reported to EL2: bytes, and whether the engine moved them.
fn chunks(world: &World<'_>) -> Vec<(u64, bool)> {
    let mut taken = 0;
    let records = std::iter::from_fn(|| world.exchange.next_record(&mut taken));
    let chunks = records.filter(|record| record.event == PacketEvent::Chunk);
    chunks.map(|PacketRecord { value, detail, .. }| (value, detail & BY_ENGINE != 0)).collect()
}

#[test]
fn the_engine_moves_long_chunks_the_core_the_others() {
    let (mut world, mut broker) = connected(&pair());
    let bytes = payload(2500, 7);
    world.send(0, &bytes, 0);
    world.run(&mut broker, 10);
    let got: Vec<u8> = world.received(2).into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(got, bytes);
    assert!(world.engine.transfers.iter().all(|len| *len >= FROM), "{:?}", world.engine.transfers);
    let chunks = chunks(&world);
    assert_eq!(chunks.iter().map(|(len, _)| len).sum::<u64>(), 2500);
    assert_eq!(chunks.last(), Some(&(500, false)), "the last is shorter than any of the engine's");
    let by_engine = chunks.iter().filter(|(_, by_engine)| *by_engine).count();
    assert_eq!(by_engine, world.engine.transfers.len());
    assert!(by_engine > 0);
}

#[test]
fn a_failing_engine_ends_the_connection_and_no_other() {
    let (mut world, mut broker) = connected(&pair());
    world.engine.fails_at = Some(1);
    world.send(0, &payload(5000, 1), 0);
    world.send(1, &payload(5000, 2), 0);
    world.run(&mut broker, 10);
    let failed = (0..2).find(|index| world.counts(*index).lost == 1).expect("one packet is lost");
    let other = 1 - failed;
    assert_eq!(world.counts(other).lost, 0);
    let port = |index: usize| world.flows[index].port;
    let (failed_port, other_port) = (port(failed), port(other));
    let received = world.received(2);
    let of = |port: u32| received.iter().filter(move |(header, _)| header.dst_port == port);
    let is_reset = |op: u16| op == Operation::Reset as u16;
    let resets = of(failed_port).filter(|(header, _)| is_reset(header.op)).count();
    assert_eq!(resets, 1, "the receiver learns it");
    let moved: usize = of(failed_port).map(|(_, bytes)| bytes.len()).sum();
    assert!(moved < 5000, "{moved}");
    let whole: Vec<u8> = of(other_port).flat_map(|(_, bytes)| bytes.clone()).collect();
    assert_eq!(whole, payload(5000, if other == 1 { 2 } else { 1 }), "the other flow goes on");
    // Both senders have their packet back, and the one learns that its connection has ended.
    assert_eq!([world.returned(0).len(), world.returned(1).len()], [1, 1]);
    world.supply(failed, 200);
    world.run(&mut broker, 20);
    let received = world.received(failed);
    assert!(received.iter().any(|(header, _)| is_reset(header.op)), "{received:?}");
    assert!(!world.received(other).iter().any(|(header, _)| is_reset(header.op)));
    // What it sends on that connection is refused; a new one is good.
    world.send(failed, &payload(100, 3), 2000);
    world.run(&mut broker, 2000);
    assert!(world.received(2).is_empty());
    assert!(world.received(failed).iter().any(|(header, _)| is_reset(header.op)));
    world.returned(failed);
    world.control(failed, Operation::Request, true, 3000);
    world.run(&mut broker, 3000);
    world.received(2);
    world.supply(2, 2000);
    world.send(failed, &payload(100, 4), 5000);
    world.run(&mut broker, 6000);
    let again = world.received(2);
    assert!(again.iter().any(|(_, bytes)| *bytes == payload(100, 4)), "{again:?}");
}

#[test]
fn without_an_engine_nothing_is_asked_of_it() {
    let mut world = World::new(&pair(), 1000, 0);
    let mut broker = world.broker();
    world.connect(&mut broker);
    world.supply(2, 2000);
    world.send(0, &payload(2500, 7), 0);
    world.run(&mut broker, 10);
    assert!(world.engine.transfers.is_empty());
    assert!(chunks(&world).iter().all(|(_, by_engine)| !by_engine));
}
