//! How fast the model is: what `weir bench simulator` prints.

use std::time::Instant;

use crate::{
    cache::{CacheConfig, Replacement},
    dram::{AddressFields, AddressMap, DEFAULT_POLICY, plain_bits, timing::DDR4_2400, trace},
    hierarchy::{Access, Hierarchy, HierarchyConfig, L2Config, L2Sharing},
    units::{Bytes, Owner, Pa},
};

/// Events per second of host time, on one core, in several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Of the quickest round: what the model can do, as other work on the machine only slows a
    /// round down.
    pub best: f64,
    /// Of the median round: what this machine gave it at the same time.
    pub median: f64,
}

/// How fast each part of the model is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// DRAM reads at random addresses.
    pub dram_random: Rate,
    /// DRAM reads of one line after the other.
    pub dram_stream: Rate,
    /// DRAM reads of one bank, another row each time.
    pub dram_rowmiss: Rate,
    /// Loads of one core that hit its L1 data cache, walking through half of it.
    pub cache_hits: Rate,
    /// Loads of four cores, each walking through 1 MiB over one shared L2 of 1 MiB, so that nearly
    /// all miss.
    pub cache_misses: Rate,
}

/// The address functions of the bare DDR4-2400: row:bank:group:column, bursts of 64 B, 128 columns,
/// one rank of 4 x 4 banks.
///
/// # Panics
/// Never: the masks are independent.
#[must_use]
pub fn ddr4_2400_map() -> AddressMap {
    AddressMap::new(AddressFields {
        group: plain_bits(13..=14),
        bank: plain_bits(15..=16),
        row: plain_bits(17..=32),
        ..Default::default()
    })
    .expect("plain bits are independent")
}

/// Reads at random addresses of 4 GiB, the same ones each time.
pub fn random_reads(count: u64) -> impl Iterator<Item = (Pa, bool)> {
    let mut state = 1_u64;
    (0..count).map(move |_| {
        // Knuth's MMIX generator; the upper bits are the random ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (Pa(state >> 38 << 6), false)
    })
}

/// Reads of one line after the other.
pub fn stream_reads(count: u64) -> impl Iterator<Item = (Pa, bool)> {
    (0..count).map(|i| (Pa((i << 6) & 0xffff_ffff), false))
}

/// Accesses of bank 0 with another row each time; `write` selects the ones that write.
pub fn row_misses(count: u64, write: impl Fn(u64) -> bool) -> impl Iterator<Item = (Pa, bool)> {
    (0..count).map(move |i| (Pa((i & 0x7fff) << 17), write(i)))
}

/// Measures, with so many DRAM requests of each kind and ten times as many cache hits a round, each
/// kind in `rounds` rounds (at least one).
///
/// # Panics
/// Never: the shapes fit.
#[must_use]
pub fn measure(requests: u64, rounds: usize) -> Speed {
    let map = ddr4_2400_map();
    let dram = |trace: &mut dyn Iterator<Item = (Pa, bool)>| {
        let result = trace::run(trace, &map, DDR4_2400, DEFAULT_POLICY);
        result.expect("the memory can be built").cycles
    };
    let mut caches = a53_quad();
    let accesses = requests * 10;
    let cache_hits = rate(accesses, rounds, || {
        (0..accesses)
            .map(|i| caches.access(0, Owner(0), Access::Read, Pa(i * 8 % 0x4000), 8) as u64)
            .sum()
    });
    let cache_misses = rate(requests, rounds, || {
        (0..requests)
            .map(|i| {
                let pa = Pa(((i % 4) << 20) + (i / 4 * 64) % (1 << 20));
                caches.access((i % 4) as usize, Owner(0), Access::Write, pa, 8) as u64
            })
            .sum()
    });
    Speed {
        dram_random: rate(requests, rounds, || dram(&mut random_reads(requests))),
        dram_stream: rate(requests, rounds, || dram(&mut stream_reads(requests))),
        dram_rowmiss: rate(requests, rounds, || dram(&mut row_misses(requests, |_| false))),
        cache_hits,
        cache_misses,
    }
}

/// Four cores with 32 KiB of L1 data cache (4 ways), over a shared L2 of 1 MiB (16 ways) and a
/// DDR4.
fn a53_quad() -> Hierarchy {
    let cache = |size, ways| CacheConfig {
        size: Bytes(size),
        ways,
        line: Bytes(64),
        replacement: Replacement::Random { seed: 1 },
    };
    Hierarchy::new(HierarchyConfig {
        cores: 4,
        owners: 4,
        l1d: cache(32 << 10, 4),
        l1i: None,
        l2: Some(L2Config {
            cache: cache(1 << 20, 16),
            sharing: L2Sharing::Shared,
            inclusive: false,
        }),
        dram: Some(ddr4_2400_map()),
    })
    .expect("the shapes fit")
}

#[expect(clippy::cast_precision_loss, reason = "a rate for printing")]
fn rate(events: u64, rounds: usize, mut work: impl FnMut() -> u64) -> Rate {
    let mut times: Vec<f64> = (0..rounds.max(1))
        .map(|_| {
            let start = Instant::now();
            // The sum is used, so that the work can't be left out.
            std::hint::black_box(work());
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let of = |round: usize| events as f64 / times[round];
    Rate { best: of(0), median: of(times.len() / 2) }
}
