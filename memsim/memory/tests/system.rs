//! The memory system in time: formulas for what is alone, conservation for what is not, and which
//! owner can delay which.
#![allow(clippy::cast_precision_loss, reason = "tests: ratios of small counts")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use weir_memory::{
    Access, AddressFields, AddressMap, Bytes, CacheConfig, HierarchyConfig, L2Config, L2Sharing,
    Owner, Pa, Picos, Replacement, Served,
    dma::{DmaConfig, DmaError, DmaPiece, Transfer},
    dram::{DEFAULT_POLICY, Policy, plain_bits, timing::DDR4_2400},
    qos::QosRate,
    smmu::{StreamId, TlbConfig, WalkTables},
    stalls::{Requested, Stalls, Woken},
    system::{
        Answer, CacheTiming, DmaPort, InterconnectTiming, Issue, MemorySystem, SystemConfig,
        SystemError,
    },
};

fn ns(n: u64) -> Picos {
    Picos::from_nanos(n)
}

fn cache(size: u64, ways: u32) -> CacheConfig {
    CacheConfig { size: Bytes(size), ways, line: Bytes(64), replacement: Replacement::Lru }
}

const ENGINE: DmaConfig = DmaConfig {
    channels: 8,
    burst: Bytes(128),
    reads: 8,
    writes: 8,
    channel_reads: 8,
    channel_writes: 8,
    buffer: Bytes(2048),
    setup: Picos(200_000),
    next_piece: Picos(200_000),
    descriptor: Bytes(64),
};

fn port() -> DmaPort {
    DmaPort {
        engine: ENGINE,
        coherent: false,
        allocates: false,
        line: ns(4),
        qos: None,
        smmu: None,
    }
}

fn config() -> SystemConfig {
    let map = AddressFields {
        group: plain_bits(13..=14),
        bank: plain_bits(15..=16),
        row: plain_bits(17..=31),
        ..Default::default()
    };
    SystemConfig {
        hierarchy: HierarchyConfig {
            cores: 4,
            owners: 4,
            l1d: cache(32 << 10, 4),
            l1i: None,
            l2: Some(L2Config {
                cache: cache(1 << 20, 16),
                sharing: L2Sharing::Shared,
                inclusive: false,
            }),
            dram: Some(AddressMap::new(map).unwrap()),
        },
        caches: CacheTiming {
            l1_hit: ns(2),
            l2_cycle: ns(1),
            l2_hit: ns(10),
            peer_hit: ns(15),
            l2_miss: ns(3),
            fill: ns(4),
            core_misses: 6,
            l2_misses: 16,
            l2_write_buffers: 16,
        },
        interconnect: InterconnectTiming {
            clock: ns(2),
            line: ns(4),
            to_memory: ns(20),
            from_memory: ns(20),
            cpu_line: ns(4),
        },
        dram: DDR4_2400,
        policy: DEFAULT_POLICY,
        dma: vec![port()],
        tbus: vec![],
    }
}

/// Issues one access on an idle system and returns how long it took.
fn latency(
    system: &mut MemorySystem,
    core: usize,
    access: Access,
    address: u64,
) -> (Picos, Served) {
    let now = system.now() + ns(1000);
    system.advance(now, &mut |_| {});
    match system.issue(core, Owner(core as u8), access, Pa(address), 7, now) {
        Issue::Hit(at) => (at - now, Served::L1),
        Issue::Refused => panic!("an idle core was refused"),
        Issue::Pending => {
            let mut result = None;
            system.advance(now + ns(1000), &mut |answer| {
                if let Answer::Core { token: 7, at, served, .. } = answer {
                    result = Some((at - now, served));
                }
            });
            result.expect("an answer")
        }
    }
}

#[test]
fn what_is_alone_takes_the_sum_of_its_way() {
    let mut system = MemorySystem::new(config()).unwrap();
    let t = DDR4_2400;
    let dram = |cycles: u64| ns(2 + 3 + 20 + 20 + 4) + Picos(cycles * t.clock_ps);
    // A request waits for the DRAM's next clock edge.
    let close = |(took, served): (Picos, Served), cycles: u64| {
        assert_eq!(served, Served::Memory);
        let expected = dram(cycles);
        assert!(took >= expected && took.0 < expected.0 + 2 * t.clock_ps, "{took:?} {expected:?}");
    };
    close(latency(&mut system, 0, Access::Read, 0), t.rcd + t.cl + t.burst);
    assert_eq!(latency(&mut system, 0, Access::Read, 8), (ns(2), Served::L1));
    close(latency(&mut system, 0, Access::Read, 64), t.cl + t.burst);
    close(latency(&mut system, 0, Access::Read, 1 << 17), t.rp + t.rcd + t.cl + t.burst);
    // Another core gets the line from the first one's L1, then it is in both.
    assert_eq!(latency(&mut system, 1, Access::Read, 0), (ns(2 + 15), Served::Peer));
    assert_eq!(latency(&mut system, 1, Access::Read, 0), (ns(2), Served::L1));
    // Five lines of one set of the L1: the first is in the L2 only.
    for way in 1..=4 {
        latency(&mut system, 2, Access::Read, (1 << 20) + (way << 13));
    }
    latency(&mut system, 2, Access::Read, (1 << 20) + (5 << 13));
    assert_eq!(
        latency(&mut system, 2, Access::Read, (1 << 20) + (1 << 13)),
        (ns(2 + 10), Served::L2)
    );
}

#[test]
#[should_panic(expected = "does not lie in")]
fn an_access_in_the_past_is_refused() {
    let mut memory = MemorySystem::new(config()).unwrap();
    memory.advance(ns(100), &mut |_| {});
    let _ = memory.issue(0, Owner(0), Access::Read, Pa(0), 0, ns(99));
}

#[test]
#[should_panic(expected = "does not lie in")]
fn an_access_behind_a_future_event_is_refused() {
    let mut memory = MemorySystem::new(config()).unwrap();
    assert_eq!(memory.issue(0, Owner(0), Access::Read, Pa(0), 0, ns(0)), Issue::Pending);
    let next = memory.next_event().unwrap();
    let _ = memory.issue(1, Owner(0), Access::Read, Pa(64), 0, next + Picos(1));
}

#[test]
fn two_accesses_to_an_inflight_line_are_one_read() {
    let mut system = MemorySystem::new(config()).unwrap();
    let now = Picos(0);
    assert_eq!(system.issue(0, Owner(0), Access::Read, Pa(0), 1, now), Issue::Pending);
    assert_eq!(system.issue(0, Owner(0), Access::Write, Pa(8), 2, now), Issue::Pending);
    assert_eq!(system.issue(1, Owner(1), Access::Read, Pa(16), 3, now), Issue::Pending);
    let mut at = BTreeMap::new();
    system.advance(ns(500), &mut |answer| {
        if let Answer::Core { token, at: when, .. } = answer {
            at.insert(token, when);
        }
    });
    assert_eq!(at.len(), 3);
    assert_eq!(at[&1], at[&2]);
    assert!(at[&3] >= at[&1]);
    assert_eq!(system.channels().map(|c| c.reads).sum::<u64>(), 1);
}

/// A core that walks through memory line by line, with up to `ahead` accesses at once.
struct Walker {
    core: usize,
    lines: u64,
    /// The place of a line.
    place: fn(core: u64, line: u64) -> u64,
    access: Access,
    ahead: usize,
    next: u64,
    waiting: usize,
    done: u64,
}

impl Walker {
    fn new(
        core: usize,
        lines: u64,
        place: fn(u64, u64) -> u64,
        access: Access,
        ahead: usize,
    ) -> Self {
        Self { core, lines, place, access, ahead, next: 0, waiting: 0, done: 0 }
    }

    fn go(&mut self, system: &mut MemorySystem, now: Picos) {
        while self.waiting < self.ahead {
            let pa = Pa((self.place)(self.core as u64, self.next % self.lines));
            match system.issue(self.core, Owner(self.core as u8), self.access, pa, 0, now) {
                Issue::Hit(_) => {
                    self.next += 1;
                    self.done += 1;
                }
                Issue::Pending => {
                    self.next += 1;
                    self.waiting += 1;
                }
                Issue::Refused => break,
            }
        }
    }
}

/// Runs walkers for a while after a time in which the caches warm up; the accesses that each got
/// done.
fn run(config: SystemConfig, walkers: &mut [Walker]) -> (Vec<u64>, MemorySystem) {
    let mut system = MemorySystem::new(config).unwrap();
    let (warm, end) = (ns(100_000), ns(250_000));
    let mut start = vec![0; walkers.len()];
    for walker in walkers.iter_mut() {
        walker.go(&mut system, Picos(0));
    }
    while let Some(now) = system.next_event().filter(|&next| next < end) {
        let mut answered = vec![];
        system.advance(now, &mut |answer| {
            if let Answer::Core { core, .. } = answer {
                answered.push(core);
            }
        });
        for walker in walkers.iter_mut() {
            let mine = answered.iter().filter(|&&core| core == walker.core).count();
            walker.waiting -= mine;
            walker.done += mine as u64;
            if mine > 0 {
                walker.go(&mut system, now);
            }
        }
        if now < warm {
            start = walkers.iter().map(|walker| walker.done).collect();
        }
    }
    (walkers.iter().zip(start).map(|(walker, start)| walker.done - start).collect(), system)
}

fn plain(core: u64, line: u64) -> u64 {
    core << 28 | line << 6
}

/// As `plain`, but core 0 has the pages with bit 15 clear (half of the L2's 16 colors) and the
/// others those with bit 15 set.
fn colored(core: u64, line: u64) -> u64 {
    let half = u64::from(core != 0) << 15;
    let offset = line << 6;
    core << 28 | offset >> 15 << 16 | half | offset & 0x7fff
}

/// How much longer a walk over 64 KiB, which fits the L2 but not the L1, takes with three cores
/// that write 16 MiB each; and the walker's lines that others evicted.
fn slowdown(
    registers: usize,
    buffers: usize,
    place: fn(u64, u64) -> u64,
    ahead: usize,
) -> (f64, u64) {
    let mut config = config();
    config.caches.l2_misses = registers;
    config.caches.l2_write_buffers = buffers;
    let victim = || Walker::new(0, 1024, place, Access::Read, 1);
    let alone = run(config.clone(), &mut [victim()]).0[0];
    let writer = |core| Walker::new(core, 1 << 18, place, Access::Write, ahead);
    let mut walkers = vec![victim(), writer(1), writer(2), writer(3)];
    let (done, system) = run(config, &mut walkers);
    let evictions = &system.hierarchy().l2().next().unwrap().evictions;
    let by_others = evictions.suffered(Owner(0)) - evictions.get(Owner(0), Owner(0));
    (alone as f64 / done[0] as f64, by_others)
}

#[test]
fn few_miss_registers_delay_hits_despite_colors() {
    let (open, _) = slowdown(64, 64, plain, 6);
    let (few, _) = slowdown(4, 4, plain, 6);
    let (few_colored, by_others) = slowdown(4, 4, colored, 6);
    assert_eq!(by_others, 0);
    assert!(open < 1.2, "{open}");
    assert!(few > 6.0, "{few}");
    assert!((0.8..1.25).contains(&(few_colored / few)), "{few_colored} {few}");
    // Writers that leave a register free delay no other owner.
    let (held_back, _) = slowdown(4, 4, colored, 1);
    assert!(held_back < 1.5, "{held_back}");
}

#[test]
fn few_write_back_buffers_alone_hold_up_hits_too() {
    let (few, _) = slowdown(64, 2, colored, 6);
    assert!(few > 2.0, "{few}");
}

#[test]
fn a_refill_waits_for_the_victim_buffer() {
    let lines = |buffers| {
        let mut config = config();
        config.caches.l2_write_buffers = buffers;
        config.hierarchy.l2.as_mut().unwrap().cache = cache(64 << 10, 16);
        run(config, &mut [Walker::new(1, 1 << 18, plain, Access::Write, 6)]).0[0]
    };
    // A write-back holds the buffer for 20 ns to the controller and 20 ns back: in 150 us at most
    // 3750 of them.
    let (one, many) = (lines(1), lines(16));
    assert!((2500..=3760).contains(&one), "{one}");
    assert!(many > 2 * one, "{many} {one}");
}

fn copy(from: u64, to: u64, bytes: u64) -> DmaPiece {
    DmaPiece { from: Some(Pa(from)), to: Some(Pa(to)), bytes: Bytes(bytes) }
}

/// Bytes per second of copying 1 MiB.
fn dma_bandwidth(port: DmaPort) -> f64 {
    let mut system = MemorySystem::new(SystemConfig { dma: vec![port], ..config() }).unwrap();
    let bytes = 1 << 20;
    let transfer = Transfer::Simple(copy(0, 1 << 28, bytes));
    system.start_transfer(0, 0, Owner(1), transfer, Picos(0)).unwrap();
    let mut end = None;
    system.advance(ns(100_000_000), &mut |answer| {
        if let Answer::Transfer { at, .. } = answer {
            end = Some(at);
        }
    });
    let moved: u64 = system.channels().map(|c| c.reads + c.writes).sum();
    assert_eq!(moved * 64, 2 * bytes);
    bytes as f64 * 1e12 / end.expect("the end of the transfer").0 as f64
}

#[test]
fn a_regulated_dma_has_the_bandwidth_of_rt_virtio() {
    let free = dma_bandwidth(port());
    assert!(free > 2e9, "{free}");
    for (level, expected) in [(3, 46.875e6), (10, 156.25e6), (40, 625e6), (60, 937.5e6)] {
        let qos = Some(QosRate { average: level, hold: 0 });
        let measured = dma_bandwidth(DmaPort { qos, ..port() });
        assert!((measured / expected - 1.0).abs() < 0.005, "level {level}: {measured}");
    }
}

#[test]
fn port_width_and_setup_time_set_chunk_bandwidth() {
    // A 64-bit port at 500 MHz passes 4 GB/s. Chunks, one after the other: S / (O + S / B), as
    // rt-virtio II-A has it.
    let narrow = DmaPort { line: ns(16), ..port() };
    let per_chunk = |chunk: u64| {
        let mut system = MemorySystem::new(SystemConfig { dma: vec![narrow], ..config() }).unwrap();
        let mut now = Picos(0);
        for i in 0..16 {
            let transfer = Transfer::Simple(copy(i * chunk, (1 << 28) + i * chunk, chunk));
            system.start_transfer(0, 0, Owner(1), transfer, now).unwrap();
            while system.next_event().is_some() {
                now = system.next_event().unwrap();
                system.advance(now, &mut |_| {});
            }
        }
        now.0 as f64 / 16.0
    };
    // The two unknowns from 4 and 64 KiB, checked on those between.
    let (small, large) = (per_chunk(4 << 10), per_chunk(64 << 10));
    let rate = f64::from(60 << 10) / (large - small);
    let overhead = small - f64::from(4 << 10) / rate;
    assert!((rate * 1e12 / 4e9 - 1.0).abs() < 0.06, "{rate}");
    assert!(overhead > 200_000.0, "{overhead}");
    for chunk in [8 << 10, 16 << 10, 32 << 10] {
        let expected = overhead + chunk as f64 / rate;
        assert!((per_chunk(chunk) / expected - 1.0).abs() < 0.03);
    }
}

#[test]
fn a_paced_channel_leaves_the_others_alone() {
    let ends = |pace: u64| {
        let mut system = MemorySystem::new(config()).unwrap();
        system.pace(0, 0, ns(pace)).unwrap();
        for channel in 0..2 {
            let transfer = Transfer::Simple(copy(channel << 24, (channel + 8) << 24, 1 << 16));
            system.start_transfer(0, channel as usize, Owner(0), transfer, Picos(0)).unwrap();
        }
        let mut ends = [Picos(0); 2];
        system.advance(ns(10_000_000), &mut |answer| {
            if let Answer::Transfer { channel, at, .. } = answer {
                ends[channel] = at;
            }
        });
        ends
    };
    let (free, paced) = (ends(0), ends(1000));
    // 512 bursts, one a microsecond.
    assert!(paced[0] >= ns(511_000), "{paced:?}");
    assert!(paced[1] <= free[1], "{paced:?} {free:?}");
}

#[test]
fn coherent_transfers_read_and_invalidate_lines() {
    let run = |coherent| {
        let mut system = MemorySystem::new(SystemConfig {
            dma: vec![DmaPort { coherent, ..port() }],
            ..config()
        })
        .unwrap();
        latency(&mut system, 0, Access::Write, 0);
        latency(&mut system, 0, Access::Read, 1 << 28);
        let before: u64 = system.channels().map(|c| c.reads).sum();
        let now = system.now();
        let transfer = Transfer::Simple(copy(0, 1 << 28, 64));
        system.start_transfer(0, 0, Owner(1), transfer, now).unwrap();
        system.advance(now + ns(10_000), &mut |_| {});
        let reads: u64 = system.channels().map(|c| c.reads).sum();
        (reads - before, latency(&mut system, 0, Access::Read, 1 << 28).1)
    };
    assert_eq!(run(true), (0, Served::Memory));
    assert_eq!(run(false), (1, Served::L1));
}

/// Moves so many bytes by an engine that allocates its lines, or does not, and returns the system.
fn moved_by_coherent(allocates: bool, bytes: u64) -> MemorySystem {
    let port = DmaPort { coherent: true, allocates, ..port() };
    let mut system = MemorySystem::new(SystemConfig { dma: vec![port], ..config() }).unwrap();
    latency(&mut system, 0, Access::Write, 0);
    latency(&mut system, 0, Access::Read, 1 << 27);
    let now = system.now();
    let transfer = Transfer::Simple(copy(0, 1 << 28, bytes));
    system.start_transfer(0, 0, Owner(1), transfer, now).unwrap();
    let mut done = 0;
    system.advance(now + ns(1_000_000), &mut |answer| {
        done += usize::from(matches!(answer, Answer::Transfer { .. }));
    });
    assert_eq!(done, 1);
    system
}

#[test]
fn allocated_lines_stay_in_the_shared_cache() {
    use Served::{L2, Memory, Peer};
    let served = |allocates| {
        let mut system = moved_by_coherent(allocates, 4096);
        let places = [0, 64, 1 << 28, (1 << 28) + 64];
        let served = places.map(|pa| latency(&mut system, 1, Access::Read, pa).1);
        let writes: u64 = system.channels().map(|channel| channel.writes).sum();
        (served, writes)
    };
    assert_eq!(served(false), ([Peer, Memory, Memory, Memory], 64));
    assert_eq!(served(true), ([Peer, L2, L2, L2], 0));
}

#[test]
fn a_stream_of_allocated_lines_evicts_the_others() {
    let left = |allocates| {
        let system = moved_by_coherent(allocates, 2 << 20);
        let l2 = system.hierarchy().l2().next().unwrap().evictions.clone();
        let writes: u64 = system.channels().map(|channel| channel.writes).sum();
        (l2.get(Owner(1), Owner(0)), l2.get(Owner(1), Owner(1)) > 40_000, writes * 64)
    };
    // One of the core's two lines; the engine has read the other one, so that it is its own.
    assert_eq!(left(false), (0, false, 2 << 20));
    let (of_core, many, written) = left(true);
    assert_eq!((of_core, many), (1, true));
    // All but what the cache still holds.
    assert!((1 << 20..2 << 20).contains(&written), "{written}");
}

#[test]
fn a_regulator_counts_lines_that_caches_serve() {
    let time = |average: u16| {
        let qos = Some(QosRate { average, hold: 0 });
        let port = DmaPort { coherent: true, allocates: true, qos, ..port() };
        let mut system = MemorySystem::new(SystemConfig { dma: vec![port], ..config() }).unwrap();
        let mut ends = Vec::new();
        for _ in 0..2 {
            let now = system.now();
            let transfer = Transfer::Simple(copy(0, 1 << 28, 64 << 10));
            system.start_transfer(0, 0, Owner(1), transfer, now).unwrap();
            while let Some(next) = system.next_event() {
                system.advance(next, &mut |_| {});
            }
            ends.push(system.now().since(now).0 as f64 / 1e3);
        }
        ends[1]
    };
    // 512 transactions of a direction, one in 4096 / 16 clocks of 2 ns, all in the cache.
    assert!((time(16) / (512.0 * 512.0) - 1.0).abs() < 0.02, "{}", time(16));
    assert!(time(0) < 64_000.0, "{}", time(0));
}

#[test]
fn only_coherent_engines_allocate_in_a_shared_l2() {
    let refused = |coherent, sharing| {
        let mut config = config();
        config.hierarchy.l2 = config.hierarchy.l2.map(|l2| L2Config { sharing, ..l2 });
        config.dma = vec![DmaPort { coherent, allocates: true, ..port() }];
        matches!(MemorySystem::new(config), Err(SystemError::NoAllocation { engine: 0 }))
    };
    assert!(refused(false, L2Sharing::Shared) && refused(true, L2Sharing::Private));
    assert!(!refused(true, L2Sharing::Shared));
}

/// A piece of a list with the address of its descriptors.
fn listed((piece, descriptor): (DmaPiece, u64)) -> (Pa, DmaPiece) {
    (Pa(descriptor), piece)
}

#[test]
fn a_dma_over_many_pages_evicts_translations() {
    let tbu = TlbConfig { entries: 512, ways: 4, page: Bytes(4096), replacement: Replacement::Lru };
    let behind = |stream| {
        let tables = WalkTables { base: Pa(3 << 28), levels: 3 };
        DmaPort { smmu: Some((0, StreamId(stream), tables)), ..port() }
    };
    let misses = |attack: bool| {
        let dma = vec![behind(1), behind(2)];
        let config = SystemConfig { dma, tbus: vec![tbu], ..config() };
        let mut system = MemorySystem::new(config).unwrap();
        let mut now = Picos(0);
        for _ in 0..4 {
            // A network device that goes round in 64 pages, one of them for each packet.
            for page in 0..64_u64 {
                let transfer = Transfer::Simple(copy(page << 12, 1 << 20, 256));
                system.start_transfer(0, 0, Owner(0), transfer, now).unwrap();
                now += ns(2000);
                system.advance(now, &mut |_| {});
            }
            if attack {
                // 16 B of each of 2048 pages.
                let pieces = (0..2048).map(|page| copy((1 << 26) + (page << 12), 1 << 27, 16));
                let transfer =
                    Transfer::Linked(pieces.zip((1 << 25..).step_by(64)).map(listed).collect());
                system.start_transfer(1, 0, Owner(1), transfer, now).unwrap();
                now += ns(4_000_000);
                system.advance(now, &mut |_| {});
            }
        }
        let stats = system.tbu(0).unwrap().stats();
        (stats.misses[0], stats.evictions.get(Owner(1), Owner(0)))
    };
    // 64 pages and the one that is written to, once.
    assert_eq!(misses(false), (65, 0));
    let (under_attack, evictions) = misses(true);
    assert_eq!(under_attack, 4 * 65);
    // After the last round there is no request for them.
    assert_eq!(evictions, 4 * 65);
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let build = |change: &dyn Fn(&mut SystemConfig)| {
        let mut config = config();
        change(&mut config);
        MemorySystem::new(config).unwrap_err()
    };
    assert_eq!(build(&|c| c.hierarchy.dram = None), SystemError::NoDram);
    let error = build(&|c| c.caches.l2_misses = 0);
    assert!(error.to_string().contains("miss-status registers"), "{error}");
    let engine = DmaConfig { buffer: Bytes(64), ..ENGINE };
    let error = build(&|c| c.dma[0].engine = engine);
    assert_eq!(error, SystemError::Dma { engine: 0, error: DmaError::Config(engine) });
    let tables = WalkTables { base: Pa(0), levels: 3 };
    let error = build(&|c| c.dma[0].smmu = Some((1, StreamId(0), tables)));
    assert_eq!(error, SystemError::NoTbu { engine: 0, tbu: 1 });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn accesses_and_transfers_are_answered_in_order(
        accesses in prop::collection::vec(
            (0_usize..4, 0_u64..400, any::<bool>(), prop_oneof![4 => 0_u64..3, 1 => 0_u64..400]),
            1..400,
        ),
        transfers in prop::collection::vec((0_u64..64, 1_u64..5000, any::<bool>()), 0..4),
        registers in 1_usize..4,
        buffers in 1_usize..3,
        private in any::<bool>(),
        (coherent, allocates) in any::<(bool, bool)>(),
        two_channels in any::<bool>(),
        translated in any::<bool>(),
    ) {
        let mut config = config();
        if two_channels {
            let fields = AddressFields {
                channel: vec![1 << 6],
                bank: plain_bits(13..=14),
                row: plain_bits(15..=28),
                ..Default::default()
            };
            config.hierarchy.dram = Some(AddressMap::new(fields).unwrap());
            config.policy = Policy {
                read_queue: 1,
                write_queue: 1,
                drain_from: 1,
                drain_to: 0,
                ..DEFAULT_POLICY
            };
        }
        config.hierarchy.l1d = cache(512, 2);
        config.hierarchy.l1i = Some(cache(512, 2));
        let sharing = if private { L2Sharing::Private } else { L2Sharing::Shared };
        config.hierarchy.l2 = Some(L2Config { cache: cache(2048, 2), sharing, inclusive: private });
        config.caches.l2_misses = registers;
        config.caches.l2_write_buffers = buffers;
        config.caches.core_misses = 3;
        let qos = Some(QosRate { average: 1000, hold: 0 });
        let smmu =
            translated.then_some((0, StreamId(1), WalkTables { base: Pa(1 << 24), levels: 3 }));
        let allocates = allocates && coherent && !private;
        config.dma = vec![DmaPort { coherent, allocates, qos, smmu, ..port() }];
        let replacement = Replacement::Lru;
        config.tbus = vec![TlbConfig { entries: 2, ways: 2, page: Bytes(4096), replacement }];
        let mut system = MemorySystem::new(config.clone()).unwrap();
        let mut again = MemorySystem::new(config).unwrap();
        for (channel, &(page, bytes, linked)) in transfers.iter().enumerate() {
            let piece = copy(page << 6, (page + 100) << 6, bytes);
            let transfer = if linked {
                Transfer::Linked(vec![(Pa(1 << 20), piece), (Pa(1 << 21), copy(0, 64, 10))])
            } else {
                Transfer::Simple(piece)
            };
            for system in [&mut system, &mut again] {
                system.start_transfer(0, channel, Owner(3), transfer.clone(), Picos(0)).unwrap();
            }
        }
        let mut now = Picos(0);
        let (mut answers, mut answers_again) = (vec![], vec![]);
        let mut expected = 0;
        for (token, (core, line, write, gap)) in (0..).zip(accesses) {
            now += ns(gap);
            let access = match (write, line % 7) {
                (false, 0) => Access::Fetch,
                (false, _) => Access::Read,
                (true, _) => Access::Write,
            };
            loop {
                system.advance(now, &mut |answer| answers.push(answer));
                again.advance(now, &mut |answer| answers_again.push(answer));
                let pa = Pa(line << 6);
                let issue = system.issue(core, Owner(core as u8), access, pa, token, now);
                prop_assert_eq!(
                    issue,
                    again.issue(core, Owner(core as u8), access, pa, token, now)
                );
                match issue {
                    Issue::Hit(_) => break,
                    Issue::Pending => {
                        expected += 1;
                        break;
                    }
                    Issue::Refused => now = system.next_event().expect("something is on its way"),
                }
            }
        }
        system.advance(now + ns(10_000_000), &mut |answer| answers.push(answer));
        again.advance(now + ns(10_000_000), &mut |answer| answers_again.push(answer));
        prop_assert_eq!(system.next_event(), None);
        let mut tokens = BTreeMap::<u64, u64>::new();
        let mut ended = 0;
        let mut last = Picos(0);
        for answer in &answers {
            let at = match *answer {
                Answer::Core { token, at, .. } => {
                    *tokens.entry(token).or_default() += 1;
                    at
                }
                Answer::Transfer { at, .. } => {
                    ended += 1;
                    at
                }
            };
            prop_assert!(at >= last);
            last = at;
        }
        prop_assert_eq!(tokens.len(), expected);
        prop_assert!(tokens.values().all(|&times| times == 1));
        prop_assert_eq!(ended, transfers.len());
        prop_assert_eq!(answers, answers_again);
        // The accesses that the caches sent to DRAM arrived, and those that no cache had.
        let traffic: u64 = system.hierarchy().traffic().iter().map(|t| t.refills).sum();
        let reads: u64 = system.channels().map(|c| c.reads).sum();
        if transfers.is_empty() {
            prop_assert_eq!(traffic, reads);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// At any time, of what was answered by then: cores that read and write, and DMA channels of
    /// which each reads one line a transfer.
    #[test]
    fn what_lines_waited_for_adds_up_to_their_delay(
        accesses in
            prop::collection::vec((0_usize..4, 0_u64..1 << 9, any::<bool>(), 0_u64..60), 1..300),
        registers in 1_usize..6, buffers in 1_usize..4,
        masters in prop::collection::vec((0_u8..4, 0_u64..1 << 9), 0..8),
        (coherent, allocates, regulated) in any::<(bool, bool, bool)>(),
    ) {
        let mut config = config();
        config.caches.l2_misses = registers;
        config.caches.l2_write_buffers = buffers;
        let qos = regulated.then_some(QosRate { average: 300, hold: 0 });
        let engine = DmaConfig { burst: Bytes(64), ..ENGINE };
        config.dma = vec![DmaPort { engine, coherent, allocates: allocates && coherent, qos, ..port() }];
        let from_memory =
            ns(20 + 20) + Picos(DDR4_2400.clock_ps * (DDR4_2400.cl + DDR4_2400.burst));
        let mut system = MemorySystem::new(config).unwrap();
        let mut asked = BTreeMap::new();
        let (mut delays, mut dma_delays) = ([0_u64; 4], [0_u64; 4]);
        let mut now = ns(0);
        let mut step = |system: &mut MemorySystem, now, asked: &BTreeMap<u64, Picos>| {
            let mut answers = vec![];
            system.advance(now, &mut |answer| answers.push(answer));
            for answer in answers {
                match answer {
                    Answer::Core { served: Served::L1, .. } => {}
                    Answer::Core { core, token, at, served } => {
                        delays[core] += at.since(asked[&token]).since(system.unloaded(served)).0;
                    }
                    Answer::Transfer { channel, at, .. } => {
                        // Started at 0.
                        let took = at.since(ENGINE.setup);
                        dma_delays[usize::from(masters[channel].0)] += took.since(from_memory).0;
                    }
                }
            }
            for owner in 0..4 {
                let waits = system.waits();
                let delay = delays[owner as usize] + system.dma_delay(Owner(owner)).0;
                assert_eq!(waits.suffered(Owner(owner)).0, delay, "{owner}");
                let row: u64 = (0..4).map(|by| waits.get(Owner(owner), Owner(by)).0).sum();
                assert_eq!(row, delay);
                // What a cache has takes less.
                if !coherent {
                    assert_eq!(system.dma_delay(Owner(owner)).0, dma_delays[owner as usize]);
                }
            }
        };
        for (channel, &(owner, place)) in masters.iter().enumerate() {
            let from = Some(Pa(5 << 28 | place << 13));
            let transfer = Transfer::Simple(DmaPiece { from, to: None, bytes: Bytes(64) });
            system.start_transfer(0, channel, Owner(owner), transfer, now).unwrap();
        }
        for (token, (core, place, write, gap)) in (0..).zip(accesses) {
            now += ns(gap);
            // Each core has its own lines, some of them in the same banks.
            let pa = Pa((core as u64) << 28 | place << 13);
            step(&mut system, now, &asked);
            let access = if write { Access::Write } else { Access::Read };
            if system.issue(core, Owner(core as u8), access, pa, token, now) == Issue::Pending {
                asked.insert(token, now);
            }
        }
        step(&mut system, now + ns(1_000_000), &asked);
    }
}

#[test]
fn waits_behind_a_masters_lines_are_charged_to_it() {
    let mut system = MemorySystem::new(config()).unwrap();
    // Six reads of core 1 in another row each of bank 0, then one of core 0 there.
    for line in 0..6 {
        system.issue(1, Owner(1), Access::Read, Pa((line + 1) << 17), line, ns(0));
    }
    system.advance(ns(40), &mut |_| {});
    system.issue(0, Owner(0), Access::Read, Pa(0), 9, ns(40));
    system.advance(ns(10_000), &mut |_| {});
    let waits = system.waits();
    let (other, own) = (waits.get(Owner(0), Owner(1)), waits.get(Owner(0), Owner(0)));
    assert!(other > ns(150) && own < ns(60), "{other:?} {own:?}");
    assert!(waits.get(Owner(1), Owner(0)) < ns(10));
}

/// Lets a core load or store at `now`; returns when it may continue, if nothing else happens.
fn charged(stalls: &mut Stalls, core: usize, write: bool, pa: u64, mut now: u64) -> u64 {
    let mut woken = Vec::new();
    loop {
        assert!(!stalls.advance(now, &mut woken), "no core waits: {woken:?}");
        if stalls.hit(core, write, Pa(pa)) {
            return now;
        }
        let requested = stalls.request(core, write, Pa(pa), now);
        if requested == Requested::Continue {
            return now;
        }
        assert!(stalls.next().is_some_and(|next| next >= now));
        assert!(stalls.advance(u64::MAX / 2000, &mut woken));
        now = woken.pop().filter(|woken| woken.core == core).expect("its answer").at;
        if requested == Requested::Wait {
            return now;
        }
    }
}

#[test]
fn loads_stall_and_stores_fill_the_store_buffer() {
    let mut stalls = Stalls::new(MemorySystem::new(config()).unwrap(), 4);
    let miss = charged(&mut stalls, 0, false, 0, 1000) - 1000;
    assert!((60..120).contains(&miss), "{miss} ns from DRAM");
    assert_eq!(charged(&mut stalls, 0, false, 8, 2000), 2000, "a hit costs nothing");
    assert_eq!(charged(&mut stalls, 1, false, 8, 3000), 3017, "from another core's cache");
    // The core can have six lines on their way: the seventh store waits for the first of them.
    for line in 1..=6 {
        assert_eq!(charged(&mut stalls, 0, true, line << 6, 4000), 4000, "store {line}");
    }
    let stalled = charged(&mut stalls, 0, true, 7 << 6, 4000) - 4000;
    assert!((40..120).contains(&stalled), "{stalled} ns for a full store buffer");
}

#[test]
fn an_access_across_lines_touches_each() {
    let lines = |pa, bytes| Stalls::lines(pa, bytes).map(|pa| pa.0).collect::<Vec<_>>();
    assert_eq!(lines(60, 8), [0, 64]);
    assert_eq!(lines(64, 64), [64]);
    assert_eq!(lines(127, 0), [64]);
    assert_eq!(lines(u64::MAX, 16).len(), 1);
}

/// Cores that make these accesses, each after the one before, in the order of their clocks. Returns
/// each core's clock after each access.
fn execute(accesses: &[(usize, u64, bool)], cores: usize) -> Vec<(usize, u64)> {
    let mut stalls = Stalls::new(MemorySystem::new(config()).unwrap(), 4);
    let mut clocks = vec![0; cores];
    // What each core does next: the access that was refused, or that it waits for.
    let mut retries: Vec<Option<(u64, bool)>> = vec![None; cores];
    let mut waits = vec![false; cores];
    let mut queues = vec![VecDeque::new(); cores];
    for &(core, place, write) in accesses {
        queues[core % cores].push_back((place << 6, write));
    }
    let (mut done, mut woken) = (Vec::new(), Vec::new());
    loop {
        let ready =
            |&core: &usize| !waits[core] && (retries[core].is_some() || !queues[core].is_empty());
        let first = (0..cores).filter(ready).min_by_key(|core| clocks[*core]);
        let until = first.map_or(u64::MAX / 2000, |core| clocks[core]);
        if stalls.advance(until, &mut woken) {
            for Woken { core, at } in woken.drain(..) {
                assert!(waits[core] && at >= clocks[core], "core {core} at {at}");
                (waits[core], clocks[core]) = (false, at);
                if retries[core].is_none() {
                    done.push((core, at));
                    clocks[core] += 1;
                }
            }
            continue;
        }
        let Some(core) = first else { return done };
        let retry = retries[core].take();
        let (pa, write) = retry.or_else(|| queues[core].pop_front()).expect("an access");
        let now = clocks[core];
        let requested = if stalls.hit(core, write, Pa(pa)) {
            Requested::Continue
        } else {
            stalls.request(core, write, Pa(pa), now)
        };
        match requested {
            Requested::Continue => {
                done.push((core, now));
                clocks[core] += 1;
            }
            Requested::Wait => waits[core] = true,
            Requested::Retry => {
                waits[core] = true;
                retries[core] = Some((pa, write));
            }
        }
    }
}

proptest! {
    #[test]
    fn every_access_ends_and_no_core_is_faster_than_alone(
        accesses in prop::collection::vec((0_usize..3, 0_u64..64, any::<bool>()), 1..300),
    ) {
        let done = execute(&accesses, 3);
        prop_assert_eq!(done.len(), accesses.len());
        prop_assert_eq!(&done, &execute(&accesses, 3), "the same accesses take the same time");
        for core in 0..3 {
            let own = accesses.iter().filter(|access| access.0 == core).count() as u64;
            let last = done.iter().filter(|of| of.0 == core).map(|of| of.1).max();
            prop_assert!(last.map_or(0, |last| last + 1) >= own, "an instruction takes 1 ns");
        }
        // Each line comes from DRAM once: its port passes one line in 4 ns.
        let lines: BTreeSet<_> = accesses.iter().map(|of| of.1).collect();
        let end = done.iter().map(|of| of.1).max().unwrap_or(0);
        let stores = 6 * 3;
        prop_assert!(end >= (lines.len() as u64).saturating_sub(stores) * 4, "{end} ns");
    }
}
