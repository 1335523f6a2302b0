//! Regulators, DMA engines and the SMMU's TLB by themselves.

use proptest::prelude::*;
use weir_memory::{
    Bytes, Owner, Pa, Picos, Replacement,
    dma::{DmaConfig, DmaError, DmaPiece, Engine, Progress, Transfer},
    qos::{QosRate, QosRegulator, TooEarly},
    smmu::{StreamId, Tbu, TlbConfig, Translation, WalkTables},
};

proptest! {
    #[test]
    fn no_window_lets_more_pass_than_the_rate(
        average in 1_u16..4096,
        pauses in prop::collection::vec(prop_oneof![6 => 0_u64..4, 1 => 0_u64..3000], 1..150),
    ) {
        let mut regulator = QosRegulator::new(QosRate { average, hold: 0 });
        let mut now = 0;
        let mut passed: Vec<u64> = vec![];
        for pause in pauses {
            now += pause;
            let ready = regulator.probe(true, now);
            if ready > now {
                prop_assert_eq!(regulator.issue(true, ready - 1), Err(TooEarly { ready }));
            }
            now = ready;
            prop_assert_eq!(regulator.issue(true, now), Ok(()));
            passed.push(now);
            // Reads have their own credit.
            prop_assert_eq!(regulator.probe(false, now), now);
        }
        for (i, first) in passed.iter().enumerate() {
            for (count, last) in (1..).zip(&passed[i..]) {
                let clocks = last - first + 1;
                let most = 1 + (u64::from(average) * clocks).div_ceil(4096);
                prop_assert!(count <= most, "{count} in {clocks} clocks");
            }
        }
    }

    #[test]
    fn a_master_that_always_wants_gets_exactly_the_rate(
        average in 1_u16..4096,
        start in 0_u64..10_000,
    ) {
        let mut regulator = QosRegulator::new(QosRate { average, hold: 0 });
        let mut now = start;
        for _ in 0..=4096 {
            now = regulator.probe(false, now);
            regulator.issue(false, now).unwrap();
        }
        // After the first, 4096 transactions take 4096 times 4096 / average clocks.
        let exact = (4096_u64 * 4096).div_ceil(u64::from(average));
        prop_assert!((exact - 1..=exact + 1).contains(&(now - start)), "{} {exact}", now - start);
    }

    #[test]
    fn an_engine_moves_every_byte_once_within_limits(
        pieces in prop::collection::vec((1_u64..1000, 0..3), 1..6),
        linked in any::<bool>(),
        reads in 1_usize..4,
        writes in 1_usize..4,
        own in (1_usize..4, 1_usize..4),
        order in prop::collection::vec(any::<prop::sample::Index>(), 2000),
    ) {
        let config = DmaConfig {
            channels: 2,
            burst: Bytes(64),
            reads,
            writes,
            channel_reads: own.0,
            channel_writes: own.1,
            buffer: Bytes(192),
            setup: Picos(100),
            next_piece: Picos(40),
            descriptor: Bytes(64),
        };
        let mut engine = Engine::new(config).unwrap();
        let pieces: Vec<DmaPiece> = pieces
            .into_iter()
            .enumerate()
            .take(if linked { 6 } else { 1 })
            .map(|(i, (bytes, mode))| DmaPiece {
                from: (mode != 1).then_some(Pa(0x1_0000 * (i as u64 + 1))),
                to: (mode != 2).then_some(Pa(0x1_0000 * (i as u64 + 1) + 0x8000)),
                bytes: Bytes(bytes),
            })
            .collect();
        let transfer = if linked {
            let descriptors = (0..).step_by(64).map(Pa);
            Transfer::Linked(descriptors.zip(pieces.clone()).collect())
        } else {
            Transfer::Simple(pieces[0])
        };
        engine.start(1, Owner(5), transfer, Picos(1000)).unwrap();
        prop_assert_eq!(engine.issue(Picos(1099)), None);
        prop_assert_eq!(engine.probe(Picos(0)), Some(Picos(1100)));
        let mut now = Picos(1100);
        let (mut flying, mut seen) = (vec![], vec![]);
        let mut ended = false;
        let mut order = order.into_iter();
        while !ended {
            while let Some(transaction) = engine.issue(now) {
                prop_assert_eq!(transaction.owner, Owner(5));
                prop_assert!(transaction.bytes <= config.burst);
                flying.push(transaction);
                seen.push(transaction);
            }
            let count = |write| flying.iter().filter(|t| t.write == write).count();
            prop_assert!(count(false) <= reads.min(own.0) && count(true) <= writes.min(own.1));
            // A channel holds no more than its buffer.
            let bytes = |write| {
                seen.iter()
                    .filter(|t| t.write == write && t.pa.0 >= 0x1_0000)
                    .map(|t| t.bytes.0)
                    .sum::<u64>()
            };
            if pieces.iter().all(|p| p.from.is_some() && p.to.is_some()) {
                prop_assert!(bytes(false) - bytes(true) <= 192);
            }
            if flying.is_empty() {
                now = engine.probe(now).expect("the engine is not stuck");
                continue;
            }
            let at = order.next().map_or(0, |index| index.index(flying.len()));
            let transaction = flying.swap_remove(at);
            now += Picos(10);
            ended = engine.answer(transaction, now) == Progress::Done;
        }
        prop_assert!(flying.is_empty() && !engine.is_busy(1));
        // Each piece's bytes, in order.
        for (write, place) in [(false, 0_u64), (true, 0x8000)] {
            for (i, piece) in pieces.iter().enumerate() {
                let base = 0x1_0000 * (i as u64 + 1) + place;
                let mut next = base;
                for t in seen.iter().filter(|t| t.write == write && t.pa.0 & !0x7fff == base) {
                    prop_assert_eq!(t.pa.0, next);
                    next += t.bytes.0;
                }
                let there = if write { piece.to } else { piece.from }.is_some();
                prop_assert_eq!(next - base, if there { piece.bytes.0 } else { 0 });
            }
        }
        let descriptors = seen.iter().filter(|t| t.pa.0 < 0x1_0000).count();
        // Of the source and of the destination.
        prop_assert_eq!(descriptors, if linked { 2 * pieces.len() } else { 0 });
    }
}

#[test]
fn a_channel_takes_one_transfer_at_a_time() {
    let config = DmaConfig {
        channels: 1,
        burst: Bytes(64),
        reads: 1,
        writes: 1,
        channel_reads: 1,
        channel_writes: 1,
        buffer: Bytes(64),
        setup: Picos(0),
        next_piece: Picos(0),
        descriptor: Bytes(32),
    };
    let mut engine = Engine::new(config).unwrap();
    let piece = DmaPiece { from: Some(Pa(0)), to: None, bytes: Bytes(10) };
    let mut start =
        |channel, piece| engine.start(channel, Owner(0), Transfer::Simple(piece), Picos(0));
    assert_eq!(start(0, DmaPiece { bytes: Bytes(0), ..piece }), Err(DmaError::Empty));
    assert_eq!(start(0, DmaPiece { from: None, ..piece }), Err(DmaError::Empty));
    assert_eq!(start(1, piece), Err(DmaError::NoChannel(1)));
    assert_eq!(start(0, piece), Ok(()));
    assert_eq!(start(0, piece), Err(DmaError::Busy(0)));
    let small = DmaConfig { buffer: Bytes(63), ..config };
    assert_eq!(Engine::new(small).unwrap_err(), DmaError::Config(small));
}

fn tbu() -> Tbu {
    let config = TlbConfig {
        entries: 64,
        ways: 4,
        page: Bytes(4096),
        replacement: Replacement::Random { seed: 1 },
    };
    Tbu::new(config, 2).unwrap()
}

const TABLES: WalkTables = WalkTables { base: Pa(0x8000_0000), levels: 3 };

#[test]
fn a_translation_belongs_to_one_stream() {
    let mut tbu = tbu();
    let mut hits = |stream: u16, iova: u64| {
        tbu.translate(StreamId(stream), Owner(0), iova, TABLES) == Translation::Hit
    };
    assert!(!hits(1, 0x5000));
    assert!(hits(1, 0x5fff));
    assert!(!hits(2, 0x5000));
    assert!(hits(1, 0x5000) && hits(2, 0x5000));
}

#[test]
fn a_walk_reads_one_descriptor_per_level() {
    let mut tbu = tbu();
    let mut walk = |iova: u64| match tbu.translate(StreamId(1), Owner(0), iova, TABLES) {
        Translation::Walk(walk) => walk.reads().to_vec(),
        Translation::Hit => panic!("{iova:#x} was there already"),
    };
    let level = |level: u64, index: u64| Pa(0x8000_0000 + (level << 23) + index * 8);
    // 3 GiB + 5 * 2 MiB + 7 * 4 KiB.
    let iova = (3 << 30) + (5 << 21) + (7 << 12);
    assert_eq!(walk(iova), [level(0, 3), level(1, 3 * 512 + 5), level(2, (3 * 512 + 5) * 512 + 7)]);
    let next = walk(iova + 4096);
    assert_eq!(next[..2], [level(0, 3), level(1, 3 * 512 + 5)]);
    assert_eq!(next[2], level(2, (3 * 512 + 5) * 512 + 8));
}

#[test]
fn pages_of_different_tlb_sets_never_evict_each_other() {
    let run = |colored: bool| {
        let mut tbu = tbu();
        for round in 0..4 {
            for page in 0..64_u64 {
                // 16 sets: owner 0 in the lower eight and owner 1 in the upper eight, or both in
                // all.
                for owner in 0..2_u64 {
                    let page = if colored {
                        page / 8 * 16 + owner * 8 + page % 8
                    } else {
                        page * (1 + 2 * owner) + owner * 100
                    };
                    tbu.translate(StreamId(owner as u16), Owner(owner as u8), page << 12, TABLES);
                }
            }
            assert!(tbu.stats().misses[0] > round * 64);
        }
        tbu.stats().evictions.between_owners()
    };
    assert_eq!(run(true), 0);
    assert!(run(false) > 100);
}

#[test]
fn a_hold_comes_on_top_of_each_transactions_share() {
    for hold in [0, 16, 100] {
        let mut regulator = QosRegulator::new(QosRate { average: 64, hold });
        let mut now = 0;
        for number in 0..100 {
            now = regulator.probe(false, now);
            assert_eq!(now, number * (64 + hold));
            if number > 0 {
                assert_eq!(regulator.issue(false, now - 1), Err(TooEarly { ready: now }));
            }
            regulator.issue(false, now).unwrap();
        }
    }
}
