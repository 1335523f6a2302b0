//! Caches, banks and the hierarchy against slow models that are obviously right.
#![allow(clippy::cast_precision_loss, reason = "tests: ratios of small counts")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weir_memory::{
    Access, AddressFields, AddressMap, Banks, Bytes, Cache, CacheConfig, Hierarchy,
    HierarchyConfig, L2Config, L2Sharing, Owner, Pa, Replacement, Served,
    cache::{CacheError, LineState},
    dram::{AddressMapError, RowOutcome, plain_bits},
    hierarchy::HierarchyError,
};

const LINE: u64 = 64;
const OWNERS: usize = 3;

fn config(sets: u64, ways: u32, replacement: Replacement) -> CacheConfig {
    CacheConfig { size: Bytes(sets * u64::from(ways) * LINE), ways, line: Bytes(LINE), replacement }
}

/// A line with its last user, the time of that use, and the way it lies in.
#[derive(Clone, Copy)]
struct Slow {
    owner: Owner,
    dirty: bool,
    used: u64,
    way: u32,
}

/// Under tree-PLRU, the way that makes room is found by asking at each node which half was used
/// later.
fn plru_victim(touches: &[u32], ways: std::ops::Range<u32>) -> u32 {
    if ways.len() == 1 {
        return ways.start;
    }
    let middle = u32::midpoint(ways.start, ways.end);
    let last = touches.iter().rev().find(|way| ways.contains(way));
    match last {
        Some(&way) if way < middle => plru_victim(touches, middle..ways.end),
        _ => plru_victim(touches, ways.start..middle),
    }
}

fn accesses() -> impl Strategy<Value = Vec<(u64, u8, bool)>> {
    prop::collection::vec((0_u64..48, 0..OWNERS as u8, any::<bool>()), 1..400)
}

proptest! {
    #[test]
    fn lru_and_tree_plru_agree_with_a_full_history(
        trace in accesses(),
        sets_log in 0_u32..4,
        ways_log in 0_u32..5,
        plru in any::<bool>(),
        odd in any::<bool>(),
    ) {
        let sets = 1_u64 << sets_log;
        let ways = if odd && !plru { (1 << ways_log) + 1 } else { 1 << ways_log };
        let replacement = if plru { Replacement::TreePlru } else { Replacement::Lru };
        let mut cache = Cache::new(config(sets, ways, replacement), OWNERS).unwrap();
        let mut model: Vec<BTreeMap<u64, Slow>> = vec![BTreeMap::new(); sets as usize];
        let mut touches: Vec<Vec<u32>> = vec![Vec::new(); sets as usize];
        let mut evictions = BTreeMap::<(u8, u8), u64>::new();
        let mut write_backs = BTreeMap::<(u8, u8), u64>::new();
        let mut misses = [0; OWNERS];
        let mut count = [0; OWNERS];
        for (now, (line, owner, write)) in (1_u64..).zip(trace) {
            let owner = Owner(owner);
            let set = (line % sets) as usize;
            let lines = &mut model[set];
            let outcome = cache.access(Pa(line * LINE + now % LINE), owner, write);
            count[usize::from(owner.0)] += 1;
            prop_assert_eq!(outcome.hit, lines.contains_key(&line));
            let mut expected = None;
            let (way, dirty) = if let Some(found) = lines.get(&line) {
                (found.way, found.dirty)
            } else {
                misses[usize::from(owner.0)] += 1;
                let free = (0..ways).find(|way| lines.values().all(|line| line.way != *way));
                let way = free.unwrap_or_else(|| {
                    let (&out, slow) = if plru {
                        let way = plru_victim(&touches[set], 0..ways);
                        lines.iter().find(|(_, line)| line.way == way).unwrap()
                    } else {
                        lines.iter().min_by_key(|(_, line)| line.used).unwrap()
                    };
                    let slow = *slow;
                    lines.remove(&out);
                    *evictions.entry((owner.0, slow.owner.0)).or_default() += 1;
                    if slow.dirty {
                        *write_backs.entry((owner.0, slow.owner.0)).or_default() += 1;
                    }
                    expected = Some((out, slow.owner, slow.dirty));
                    slow.way
                });
                (way, false)
            };
            lines.insert(line, Slow { owner, dirty: dirty || write, used: now, way });
            touches[set].push(way);
            prop_assert_eq!(outcome.victim.map(|v| (v.line, v.owner, v.dirty)), expected);
        }
        let held: BTreeSet<_> = cache.lines().map(|v| (v.line, v.owner, v.dirty)).collect();
        let all = model.iter().flatten();
        let modelled: BTreeSet<_> = all.map(|(&l, s)| (l, s.owner, s.dirty)).collect();
        prop_assert_eq!(held, modelled);
        let stats = cache.stats();
        prop_assert_eq!(&*stats.accesses, &count);
        prop_assert_eq!(&*stats.misses, &misses);
        for by in 0..OWNERS as u8 {
            for of in 0..OWNERS as u8 {
                let of_model =
                    |counts: &BTreeMap<_, u64>| counts.get(&(by, of)).copied().unwrap_or(0);
                prop_assert_eq!(stats.evictions.get(Owner(by), Owner(of)), of_model(&evictions));
                prop_assert_eq!(
                    stats.write_backs.get(Owner(by), Owner(of)),
                    of_model(&write_backs)
                );
            }
        }
    }

    #[test]
    fn random_replacement_repeats_by_seed(
        trace in accesses(),
        seed in any::<u64>(),
        ways in 1_u32..9,
    ) {
        let sets = 4;
        let shape = config(sets, ways, Replacement::Random { seed });
        let mut cache = Cache::new(shape, OWNERS).unwrap();
        let mut again = Cache::new(shape, OWNERS).unwrap();
        let mut held = vec![BTreeSet::new(); sets as usize];
        for (line, owner, write) in trace {
            let set: &mut BTreeSet<u64> = &mut held[(line % sets) as usize];
            let outcome = cache.access(Pa(line * LINE), Owner(owner), write);
            prop_assert_eq!(outcome, again.access(Pa(line * LINE), Owner(owner), write));
            prop_assert_eq!(outcome.hit, !set.insert(line));
            if let Some(victim) = outcome.victim {
                prop_assert!(set.remove(&victim.line));
                prop_assert_ne!(victim.line, line);
                prop_assert_eq!(set.len(), ways as usize);
            }
            prop_assert!(set.len() <= ways as usize);
        }
    }

    #[test]
    fn an_invalidated_way_is_reused_first(
        trace in accesses(),
        out in 0_u64..48,
        policy in 0_usize..3,
    ) {
        let replacement =
            [Replacement::Lru, Replacement::TreePlru, Replacement::Random { seed: 7 }][policy];
        let mut cache = Cache::new(config(2, 4, replacement), OWNERS).unwrap();
        for (line, owner, write) in trace {
            cache.access(Pa(line * LINE), Owner(owner), write);
        }
        let before: BTreeSet<_> = cache.lines().map(|v| (v.line, v.dirty)).collect();
        let state = cache.peek(out);
        let gone = cache.invalidate(out);
        prop_assert_eq!(state.map(|s| s.dirty), gone.map(|v| v.dirty));
        prop_assert!(!cache.contains(out));
        if let Some(victim) = gone {
            let fill =
                cache.fill(out, victim.owner, LineState { dirty: victim.dirty, shared: false });
            prop_assert_eq!(fill, None);
        }
        let after: BTreeSet<_> = cache.lines().map(|v| (v.line, v.dirty)).collect();
        prop_assert_eq!(before, after);
    }

    #[test]
    fn banks_agree_with_parity_bit_by_bit(
        addresses in prop::collection::vec((any::<u64>(), 0..OWNERS as u8), 1..200),
        swizzle in prop::collection::vec(any::<u64>(), 5),
    ) {
        // Bits 13 to 17 are each in one bank mask only, so no choice of the other bits makes them
        // dependent.
        let clean = swizzle.iter().map(|mask| mask & !(0x1f << 13) & !(0xf << 20)).enumerate();
        let masks: Vec<u64> = clean.map(|(i, mask)| mask | 1 << (13 + i)).collect();
        let row = plain_bits(20..=23);
        let fields = AddressFields {
            channel: masks[..1].to_vec(),
            group: masks[1..3].to_vec(),
            bank: masks[3..].to_vec(),
            row: row.clone(),
            rank: vec![],
        };
        let map = AddressMap::new(fields).unwrap();
        prop_assert_eq!(map.banks(), 32);
        let mut banks = Banks::new(map, OWNERS);
        let mut open = BTreeMap::new();
        let mut closed = BTreeMap::<_, u64>::new();
        let (mut hits, mut conflicts) = (0, 0);
        for (address, owner) in addresses {
            let parity = |mask: &u64| (address & mask).count_ones() % 2 == 1;
            let order = masks[3..].iter().chain(&masks[1..3]).chain(&masks[..1]);
            let bank: Vec<bool> = order.map(parity).collect();
            let rows: Vec<bool> = row.iter().map(parity).collect();
            let number = bank.iter().rev().fold(0, |n, &bit| 2 * n + u32::from(bit));
            prop_assert_eq!(banks.map().locate(Pa(address)).bank, number);
            let expected = match open.insert(bank, (rows.clone(), owner)) {
                None => RowOutcome::Empty,
                Some((row, _)) if row == rows => {
                    hits += 1;
                    RowOutcome::Hit
                }
                Some((_, of)) => {
                    conflicts += 1;
                    *closed.entry((owner, of)).or_default() += 1;
                    RowOutcome::Conflict(Owner(of))
                }
            };
            prop_assert_eq!(banks.access(Pa(address), Owner(owner)), expected);
        }
        prop_assert_eq!(banks.stats().row_hits.iter().sum::<u64>(), hits);
        prop_assert_eq!(banks.stats().closed.total(), conflicts);
        for ((by, of), count) in closed {
            prop_assert_eq!(banks.stats().closed.get(Owner(by), Owner(of)), count);
        }
    }

    #[test]
    fn the_hierarchy_agrees_with_a_naive_one(
        trace in prop::collection::vec(
            (0_usize..3, 0..OWNERS as u8, 0_u64..40, prop_oneof![
                4 => Just(Access::Read), 3 => Just(Access::Write), 1 => Just(Access::Fetch)
            ]),
            1..600,
        ),
        shape in 0..5,
    ) {
        let l2 = |sharing, inclusive| {
            Some(L2Config { cache: config(4, 4, Replacement::Lru), sharing, inclusive })
        };
        let l2 = match shape {
            0 => None,
            1 => l2(L2Sharing::Shared, false),
            2 => l2(L2Sharing::Shared, true),
            3 => l2(L2Sharing::Private, false),
            _ => l2(L2Sharing::Private, true),
        };
        let mut fast = Hierarchy::new(HierarchyConfig {
            cores: 3,
            owners: OWNERS,
            l1d: config(2, 2, Replacement::Lru),
            l1i: Some(config(2, 2, Replacement::Lru)),
            l2,
            dram: Some(map()),
        }).unwrap();
        let mut slow = SlowHierarchy::new(l2);
        for (core, owner, line, access) in trace {
            let served = fast.access(core, Owner(owner), access, Pa(line * LINE), 8);
            prop_assert_eq!(served, slow.access(core, owner, access, line));
        }
        let stats: Vec<_> = (0..3).map(|core| fast.l1d(core)).collect();
        for (fast, slow) in stats.into_iter().chain(fast.l2()).zip(&slow.caches) {
            prop_assert_eq!(fast.evictions.total(), slow.evictions);
            prop_assert_eq!(fast.write_backs.total(), slow.write_backs);
        }
        let traffic: Vec<_> = fast.traffic().iter().map(|t| (t.refills, t.write_backs)).collect();
        prop_assert_eq!(traffic, slow.traffic.to_vec());
        prop_assert_eq!(fast.banks().unwrap().accesses.iter().sum::<u64>(), slow.dram_accesses);
    }
}

fn map() -> AddressMap {
    let fields =
        AddressFields { bank: plain_bits(8..=9), row: plain_bits(10..=20), ..Default::default() };
    AddressMap::new(fields).unwrap()
}

/// A copy of a line, with the number of the store that it holds.
#[derive(Clone, Copy)]
struct Copy {
    line: u64,
    dirty: bool,
    store: u64,
}

/// One cache: the copies in the order of their use, the latest last, over all sets.
#[derive(Default)]
struct SlowCache {
    sets: u64,
    ways: usize,
    copies: Vec<Copy>,
    evictions: u64,
    write_backs: u64,
}

impl SlowCache {
    fn new(sets: u64, ways: usize) -> Self {
        Self { sets, ways, ..Self::default() }
    }

    fn take(&mut self, line: u64) -> Option<Copy> {
        let at = self.copies.iter().position(|copy| copy.line == line)?;
        Some(self.copies.remove(at))
    }

    /// Uses a line.
    fn find(&mut self, line: u64) -> Option<Copy> {
        let copy = self.take(line)?;
        self.copies.push(copy);
        Some(copy)
    }

    fn put(&mut self, copy: Copy) -> Option<Copy> {
        let set = |line| line % self.sets;
        let peers = self.copies.iter().filter(|other| set(other.line) == set(copy.line));
        let oldest = peers.clone().next().map(|other| other.line);
        let out =
            if peers.count() == self.ways { oldest.and_then(|line| self.take(line)) } else { None };
        self.copies.push(copy);
        self.evictions += u64::from(out.is_some());
        self.write_backs += u64::from(out.is_some_and(|out| out.dirty));
        out
    }
}

/// Every store goes to all other caches, and every load checks that it gets what was stored last.
struct SlowHierarchy {
    /// Three L1D, then the L2s.
    caches: Vec<SlowCache>,
    l1i: Vec<SlowCache>,
    l2: Option<L2Config>,
    memory: BTreeMap<u64, u64>,
    last_store: BTreeMap<u64, u64>,
    stores: u64,
    traffic: [(u64, u64); 3],
    dram_accesses: u64,
}

impl SlowHierarchy {
    fn new(l2: Option<L2Config>) -> Self {
        let l2_count = match l2.map(|l2| l2.sharing) {
            None => 0,
            Some(L2Sharing::Shared) => 1,
            Some(L2Sharing::Private) => 3,
        };
        let mut caches: Vec<_> = (0..3).map(|_| SlowCache::new(2, 2)).collect();
        caches.extend((0..l2_count).map(|_| SlowCache::new(4, 4)));
        Self {
            caches,
            l1i: (0..3).map(|_| SlowCache::new(2, 2)).collect(),
            l2,
            memory: BTreeMap::new(),
            last_store: BTreeMap::new(),
            stores: 0,
            traffic: [(0, 0); 3],
            dram_accesses: 0,
        }
    }

    fn private(&self) -> bool {
        self.l2.is_some_and(|l2| l2.sharing == L2Sharing::Private)
    }

    fn l2_of(&self, core: usize) -> Option<usize> {
        self.l2.map(|_| if self.private() { 3 + core } else { 3 })
    }

    fn private_caches(&self, core: usize) -> Vec<usize> {
        if self.private() { vec![core, 3 + core] } else { vec![core] }
    }

    fn access(&mut self, core: usize, _owner: u8, access: Access, line: u64) -> Served {
        if access == Access::Fetch {
            if self.l1i[core].find(line).is_some() {
                return Served::L1;
            }
        } else if self.caches[core].find(line).is_some() {
            self.finish(core, access, line);
            return Served::L1;
        }
        let own_l2 = if self.private() { self.l2_of(core) } else { None };
        let in_l2 = own_l2.and_then(|at| self.caches[at].find(line));
        let (served, store) = if let Some(copy) = in_l2 {
            (Served::L2, copy.store)
        } else if access == Access::Fetch
            && let Some(copy) = self.caches[core].copies.iter().find(|c| c.line == line)
        {
            (Served::L1, copy.store)
        } else {
            let peers: Vec<usize> = (0..3)
                .filter(|&peer| peer != core)
                .flat_map(|peer| self.private_caches(peer))
                .collect();
            let copies = peers.iter().flat_map(|&at| &self.caches[at].copies);
            let newest = copies.filter(|c| c.line == line).map(|c| c.store).max();
            let (served, store) =
                newest.map_or_else(|| self.shared(core, line), |store| (Served::Peer, store));
            if let Some(at) = own_l2
                && !(access == Access::Fetch && served == Served::Peer)
            {
                let out = self.caches[at].put(Copy { line, dirty: false, store });
                self.leave_l2(core, out);
            }
            (served, store)
        };
        let copy = Copy { line, dirty: false, store };
        if access == Access::Fetch {
            self.l1i[core].put(copy);
        } else {
            // A store's victim is judged after the line is dirty, which changes nothing for the
            // victim.
            let out = self.caches[core].put(copy);
            // The store takes the line from the others before the victim goes down, as the snoop
            // comes first.
            self.finish(core, access, line);
            if let Some(out) = out.filter(|out| out.dirty) {
                self.leave_l1(core, out);
            }
        }
        served
    }

    /// The store itself, or the check of what a load got.
    fn finish(&mut self, core: usize, access: Access, line: u64) {
        if access == Access::Write {
            for peer in (0..3).filter(|&peer| peer != core) {
                for at in self.private_caches(peer) {
                    self.caches[at].take(line);
                }
            }
            self.stores += 1;
            let copy = self.caches[core].copies.iter_mut().find(|copy| copy.line == line).unwrap();
            copy.dirty = true;
            copy.store = self.stores;
            self.last_store.insert(line, self.stores);
        } else {
            let copy = self.caches[core].copies.iter().find(|copy| copy.line == line).unwrap();
            assert_eq!(
                copy.store,
                self.last_store.get(&line).copied().unwrap_or(0),
                "a stale load"
            );
        }
    }

    fn shared(&mut self, core: usize, line: u64) -> (Served, u64) {
        let l2 = if self.private() { None } else { self.l2_of(core) };
        if let Some(copy) = l2.and_then(|at| self.caches[at].find(line)) {
            return (Served::L2, copy.store);
        }
        self.traffic[core].0 += 1;
        self.dram_accesses += 1;
        let store = self.memory.get(&line).copied().unwrap_or(0);
        if let Some(at) = l2 {
            let out = self.caches[at].put(Copy { line, dirty: false, store });
            self.leave_l2(core, out);
        }
        (Served::Memory, store)
    }

    fn leave_l1(&mut self, core: usize, out: Copy) {
        let Some(at) = self.l2_of(core) else {
            self.traffic[core].1 += 1;
            return self.write_memory(out);
        };
        if self.caches[at].take(out.line).is_some() {
            self.caches[at].copies.push(out);
        } else {
            let next = self.caches[at].put(out);
            self.leave_l2(core, next);
        }
    }

    fn leave_l2(&mut self, core: usize, out: Option<Copy>) {
        let Some(mut out) = out else { return };
        if self.l2.is_some_and(|l2| l2.inclusive) {
            let above = if self.private() { core..core + 1 } else { 0..3 };
            for at in above {
                if let Some(copy) = self.caches[at].take(out.line) {
                    out.dirty |= copy.dirty;
                    out.store = out.store.max(copy.store);
                }
            }
        }
        if out.dirty {
            self.traffic[core].1 += 1;
            self.write_memory(out);
        }
    }

    fn write_memory(&mut self, out: Copy) {
        self.dram_accesses += 1;
        self.memory.insert(out.line, out.store);
    }
}

#[test]
fn owners_of_different_colors_never_evict_each_other() {
    let run = |colored: bool| {
        let mut caches = Hierarchy::new(HierarchyConfig {
            cores: 2,
            owners: 2,
            l1d: config(128, 4, Replacement::Random { seed: 1 }),
            l1i: None,
            l2: Some(L2Config {
                cache: config(1024, 16, Replacement::Random { seed: 2 }),
                sharing: L2Sharing::Shared,
                inclusive: false,
            }),
            dram: Some(map()),
        })
        .unwrap();
        // 4 MiB each, in 4 KiB pages; a colored owner takes every second group of eight pages.
        for _ in 0..2 {
            for offset in (0..4 << 20_u64).step_by(64) {
                for vm in 0..2 {
                    let (page, within) = (offset >> 12, offset & 0xfff);
                    let page = if colored {
                        page / 8 * 16 + u64::from(vm) * 8 + page % 8
                    } else {
                        page + u64::from(vm) * 1024
                    };
                    let pa = Pa(page << 12 | within);
                    caches.access(usize::from(vm), Owner(vm), Access::Write, pa, 8);
                }
            }
        }
        let l2 = caches.l2().next().unwrap();
        (l2.evictions.between_owners(), l2.evictions.total())
    };
    let (between, all) = run(true);
    assert_eq!(between, 0);
    assert!(all > 100_000);
    assert!(run(false).0 > 10_000);
}

#[test]
fn an_access_over_a_line_border_touches_both_lines() {
    let mut caches = Hierarchy::new(HierarchyConfig {
        cores: 1,
        owners: 1,
        l1d: config(2, 2, Replacement::Lru),
        l1i: None,
        l2: None,
        dram: None,
    })
    .unwrap();
    assert_eq!(caches.access(0, Owner(0), Access::Read, Pa(0), 8), Served::L1.max(Served::Memory));
    assert_eq!(caches.access(0, Owner(0), Access::Read, Pa(60), 8), Served::Memory);
    assert_eq!(caches.l1d(0).accesses[0], 3);
    assert_eq!(caches.access(0, Owner(0), Access::Read, Pa(60), 8), Served::L1);
    caches.clear_stats();
    assert_eq!(caches.l1d(0).accesses[0], 0);
    assert_eq!(caches.access(0, Owner(0), Access::Read, Pa(60), 8), Served::L1);
}

#[test]
fn impossible_cache_shapes_are_refused_with_help() {
    let base = config(4, 4, Replacement::Lru);
    let cases = [
        (CacheConfig { ways: 0, ..base }, CacheError::Ways(0), "give 1 to 64"),
        (
            CacheConfig { ways: 3, size: Bytes(768), replacement: Replacement::TreePlru, ..base },
            CacheError::TreeWays(3),
            "or LRU",
        ),
        (CacheConfig { line: Bytes(48), ..base }, CacheError::Line(Bytes(48)), "power of two"),
        (
            CacheConfig { size: Bytes(768), ..base },
            CacheError::Sets { size: Bytes(768), set: Bytes(256) },
            "power of two times 256B",
        ),
    ];
    for (shape, error, text) in cases {
        assert_eq!(Cache::new(shape, 1).unwrap_err(), error);
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(Cache::new(base, 0).unwrap_err(), CacheError::Owners(0));
    let hierarchy = HierarchyConfig {
        cores: 2,
        owners: 1,
        l1d: base,
        l1i: None,
        l2: Some(L2Config {
            cache: CacheConfig { line: Bytes(128), ways: 2, ..base },
            sharing: L2Sharing::Shared,
            inclusive: false,
        }),
        dram: None,
    };
    let error = Hierarchy::new(hierarchy.clone()).unwrap_err();
    assert_eq!(error, HierarchyError::LineSizes { level: "l2", line: 128, l1d: 64 });
    let none = Hierarchy::new(HierarchyConfig { cores: 0, ..hierarchy }).unwrap_err();
    assert_eq!(none, HierarchyError::Cores(0));
}

#[test]
fn ambiguous_bank_functions_are_refused() {
    let fields = AddressFields {
        group: vec![1 << 13 | 1 << 14],
        bank: vec![1 << 13, 1 << 14],
        ..Default::default()
    };
    let error = AddressMap::new(fields).unwrap_err();
    assert_eq!(error, AddressMapError::Dependent { field: "bank", bit: 1 });
    let rows = AddressFields { row: plain_bits(20..=52), ..Default::default() };
    assert_eq!(
        AddressMap::new(rows).unwrap_err(),
        AddressMapError::TooMany { field: "row", bits: 33, most: 32 }
    );
}

proptest! {
    #[test]
    fn rows_and_banks_distinguish_all_addresses(
        masks in prop::collection::vec(0_u64..1 << 10, 1..4),
        column_bits in 2_u32..5,
    ) {
        let fields = AddressFields::from_banks(masks.clone(), column_bits, 10);
        let Ok(map) = AddressMap::new(fields) else {
            // Only if the bank functions are dependent, maybe through column bits.
            let above = masks.iter().map(|mask| mask >> column_bits).collect::<Vec<_>>();
            let combinations = (1_u32..1 << above.len()).map(|set| {
                (0..above.len()).filter(|i| set >> i & 1 == 1).fold(0, |x, i| x ^ above[i])
            });
            prop_assert!(combinations.into_iter().any(|x| x == 0));
            return Ok(());
        };
        let mut places = BTreeSet::new();
        for address in 0..1 << 10 {
            let at = map.locate(Pa(address));
            let column = address & ((1 << column_bits) - 1);
            places.insert((at.bank, at.row, column));
        }
        // A bank function that needs column bits may split a row over banks, but never joins two
        // places.
        prop_assert_eq!(places.len(), 1 << 10);
    }
}

#[test]
fn random_replacement_draws_every_way_alike() {
    let ways = 8;
    let mut cache = Cache::new(config(1, ways, Replacement::Random { seed: 3 }), 1).unwrap();
    let misses = 80_000_u64;
    let mut evicted_at = vec![];
    for line in 0..misses {
        if let Some(victim) = cache.access(Pa(line * LINE), Owner(0), false).victim {
            evicted_at.push(line - victim.line);
        }
    }
    // A line survives each miss with 7/8: it leaves after n misses with (7/8)^(n-1) / 8.
    let total = evicted_at.len() as f64;
    for n in 1..=10 {
        let share = evicted_at.iter().filter(|&&age| age == n).count() as f64 / total;
        let expected = (7.0_f64 / 8.0).powi(n as i32 - 1) / 8.0;
        assert!((share / expected - 1.0).abs() < 0.1, "{n}: {share} {expected}");
    }
}
