//! DRAM commands against the rules one by one, the controller against one that ticks, and both
//! against closed forms.
#![allow(clippy::cast_precision_loss, reason = "tests: ratios of small counts")]

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{DDR2_800, LPDDR4_3200};
use proptest::prelude::*;
use weir_memory::{
    AddressFields, AddressMap, Owner, Pa,
    dram::{
        ChannelError, Command, DEFAULT_POLICY, Done, DramChannel, DramDevice, DramTiming, Illegal,
        Policy, RULES, Request, RowUse, Shape, plain_bits,
        timing::{DDR4_2400, RuleScope},
        trace,
    },
};

/// row:bank:group:column, 64 B bursts: address bits 6-12 column, 13-14 group, 15-16 bank, 17 up
/// row.
fn ddr4_map() -> AddressMap {
    AddressMap::new(AddressFields {
        group: plain_bits(13..=14),
        bank: plain_bits(15..=16),
        row: plain_bits(17..=31),
        ..Default::default()
    })
    .unwrap()
}

/// Everything that was issued, and what the rules make of it.
struct History {
    shape: Shape,
    timing: DramTiming,
    issued: Vec<(Command, usize, u64)>,
}

impl History {
    fn earliest(&self, then: Command, bank: usize) -> u64 {
        let group = |b: usize| b >> self.shape.bank_bits;
        let rank = |b: usize| b >> (self.shape.bank_bits + self.shape.group_bits);
        let mut earliest = 0;
        for &(first, other, at) in &self.issued {
            for rule in RULES.iter().filter(|rule| rule.first == first && rule.then == then) {
                let holds = match rule.scope {
                    RuleScope::Bank => bank == other,
                    RuleScope::Group => group(bank) == group(other),
                    RuleScope::Rank => rank(bank) == rank(other),
                    RuleScope::OtherRank => rank(bank) != rank(other),
                };
                if holds {
                    earliest = earliest.max(at + (rule.gap)(&self.timing));
                }
            }
            earliest = earliest.max(at + first.slots(&self.timing));
        }
        let activates = self.issued.iter().rev();
        let mut activates =
            activates.filter(|(c, b, _)| *c == Command::Activate && rank(*b) == rank(bank));
        if then == Command::Activate
            && let Some((_, _, at)) = activates.nth(3)
        {
            earliest = earliest.max(at + self.timing.faw);
        }
        earliest
    }
}

proptest! {
    #[test]
    fn commands_become_legal_at_the_exact_cycle(
        commands in prop::collection::vec((0_usize..5, 0_usize..16, 0_u64..30), 1..120),
        part in 0_usize..3,
        ranks in 0_u32..2,
    ) {
        let timing = [DDR2_800, DDR4_2400, LPDDR4_3200][part];
        let shape = Shape { rank_bits: ranks, group_bits: 2 - ranks, bank_bits: 2 };
        let mut device = DramDevice::new(shape, timing).unwrap();
        let mut history = History { shape, timing, issued: vec![] };
        let mut open = BTreeMap::new();
        for (command, bank, wait) in commands {
            let command = Command::ALL[command];
            let rank = |bank: usize| bank / shape.banks_per_rank();
            let legal_state = match command {
                Command::Activate => !open.contains_key(&bank),
                Command::Precharge => true,
                Command::Read | Command::Write => open.contains_key(&bank),
                Command::Refresh => open.keys().all(|&b: &usize| rank(b) != rank(bank)),
            };
            let row = open.get(&bank).copied().unwrap_or(bank as u32);
            if !legal_state {
                prop_assert!(device.probe(command, bank, row).is_err());
                continue;
            }
            let ready = history.earliest(command, bank);
            prop_assert_eq!(device.probe(command, bank, row), Ok(ready));
            if ready > 0 {
                let early = device.issue(command, bank, row, ready - 1);
                prop_assert_eq!(early, Err(Illegal::Early { ready }));
            }
            if command == Command::Read {
                prop_assert_eq!(device.probe(command, bank, row + 1), Err(Illegal::RowNotOpen));
            }
            // Half of the commands come at once, the others after a while.
            let at = ready + if wait > 15 { wait } else { 0 };
            prop_assert_eq!(device.issue(command, bank, row, at), Ok(()));
            history.issued.push((command, bank, at));
            match command {
                Command::Activate => { open.insert(bank, row); }
                Command::Precharge => { open.remove(&bank); }
                _ => {}
            }
            prop_assert_eq!(device.open_row(bank), open.get(&bank).copied());
        }
    }
}

#[test]
fn the_rules_of_ddr4_2400_in_cycles() {
    use Command::{Activate, Precharge, Read, Refresh, Write};
    use RuleScope::{Bank, Group, OtherRank, Rank};
    let expected = [
        (Bank, Activate, Read, 17),
        (Bank, Activate, Write, 17),
        (Bank, Activate, Precharge, 39),
        (Bank, Activate, Activate, 56),
        (Bank, Precharge, Activate, 17),
        (Bank, Read, Precharge, 9),
        (Bank, Write, Precharge, 34),
        (Group, Activate, Activate, 6),
        (Group, Read, Read, 6),
        (Group, Write, Write, 6),
        (Group, Write, Read, 25),
        (Rank, Activate, Activate, 4),
        (Rank, Read, Read, 4),
        (Rank, Write, Write, 4),
        (Rank, Read, Write, 11),
        (Rank, Write, Read, 19),
        (Rank, Precharge, Precharge, 0),
        (Rank, Precharge, Refresh, 17),
        (Rank, Activate, Refresh, 56),
        (Rank, Refresh, Activate, 433),
        (Rank, Refresh, Refresh, 433),
        (OtherRank, Read, Read, 6),
        (OtherRank, Write, Write, 6),
        (OtherRank, Read, Write, 11),
        (OtherRank, Write, Read, 1),
    ];
    let rules: Vec<_> =
        RULES.iter().map(|r| (r.scope, r.first, r.then, (r.gap)(&DDR4_2400))).collect();
    assert_eq!(rules, expected);
}

/// A controller that scans every request in every cycle.
struct Ticking {
    device: DramDevice,
    policy: Policy,
    map: AddressMap,
    queues: [Vec<Waiting>; 2],
    draining: bool,
    seq: u64,
    passed: BTreeMap<usize, u32>,
    fresh: BTreeSet<usize>,
    due: Vec<u64>,
    refreshing: BTreeSet<usize>,
    log: Vec<(u64, Command, usize)>,
    done: Vec<Done>,
}

#[derive(Clone, Copy)]
struct Waiting {
    request: Request,
    bank: usize,
    row: u32,
    seq: u64,
    arrived: u64,
    row_use: RowUse,
}

impl Ticking {
    fn turn(&mut self) {
        let [reads, writes] = &self.queues;
        let turn = if self.draining {
            !reads.is_empty() && writes.len() <= self.policy.drain_to
        } else {
            !writes.is_empty() && (reads.is_empty() || writes.len() >= self.policy.drain_from)
        };
        self.draining ^= turn;
    }

    fn push(&mut self, request: Request, now: u64) -> bool {
        let limit = [self.policy.read_queue, self.policy.write_queue];
        let at = self.map.locate(request.pa);
        if !request.write && self.queues[1].iter().any(|w| w.request.pa == request.pa) {
            let Request { id, owner, .. } = request;
            let row = RowUse::Forwarded;
            self.done.push(Done { id, owner, write: false, at: now + 1, arrived: now, row });
            return true;
        }
        let queue = &mut self.queues[usize::from(request.write)];
        if queue.len() == limit[usize::from(request.write)] {
            return false;
        }
        queue.push(Waiting {
            request,
            bank: at.bank as usize,
            row: at.row,
            seq: self.seq,
            arrived: now,
            row_use: RowUse::Hit,
        });
        self.seq += 1;
        self.turn();
        true
    }

    fn tick(&mut self, now: u64) {
        let banks = self.device.shape().banks_per_rank();
        for rank in 0..self.due.len() {
            if self.due[rank] <= now {
                self.refreshing.insert(rank);
            }
        }
        // (class, age, command, bank, index in the queue)
        let mut ready: Vec<(u8, u64, Command, usize, Option<usize>)> = Vec::new();
        let queue = &self.queues[usize::from(self.draining)];
        for bank in 0..self.device.shape().banks() {
            let refreshing = self.refreshing.contains(&(bank / banks));
            let mine = || queue.iter().enumerate().filter(|(_, w)| w.bank == bank);
            let head = mine().next();
            let Some(row) = self.device.open_row(bank) else {
                if let (Some((i, w)), false) = (head, refreshing) {
                    ready.push((3, w.seq, Command::Activate, bank, Some(i)));
                }
                continue;
            };
            let passed = self.passed.get(&bank).copied().unwrap_or(0);
            let hit = mine()
                .find(|(_, w)| w.row == row)
                .filter(|(i, _)| Some(*i) == head.map(|h| h.0) || passed < self.policy.cap)
                .filter(|_| !refreshing || self.fresh.contains(&bank));
            if let Some((i, w)) = hit {
                let command = if self.draining { Command::Write } else { Command::Read };
                ready.push((2, w.seq, command, bank, Some(i)));
            } else if refreshing {
                ready.push((3, 0, Command::Precharge, bank, None));
            } else if let Some((i, w)) = head {
                ready.push((3, w.seq, Command::Precharge, bank, Some(i)));
            }
        }
        for &rank in &self.refreshing {
            ready.push((1, 0, Command::Refresh, rank * banks, None));
        }
        ready.retain(|&(_, _, command, bank, i)| {
            let row = i.map_or(0, |i| queue[i].row);
            self.device.probe(command, bank, row).is_ok_and(|at| at <= now)
        });
        let Some(&(_, _, command, bank, i)) =
            ready.iter().min_by_key(|(class, seq, ..)| (*class, *seq))
        else {
            return;
        };
        let queue = &mut self.queues[usize::from(self.draining)];
        self.device.issue(command, bank, i.map_or(0, |i| queue[i].row), now).unwrap();
        self.log.push((now, command, bank));
        match command {
            Command::Activate => {
                let w = &mut queue[i.unwrap()];
                if w.row_use == RowUse::Hit {
                    w.row_use = RowUse::Empty;
                }
                self.passed.insert(bank, 0);
                self.fresh.insert(bank);
            }
            Command::Precharge => {
                if let Some(i) = i {
                    queue[i].row_use = RowUse::Conflict;
                }
                self.fresh.remove(&bank);
            }
            Command::Refresh => {
                let rank = bank / banks;
                self.refreshing.remove(&rank);
                self.due[rank] += self.device.timing().refi;
            }
            Command::Read | Command::Write => {
                let i = i.unwrap();
                if queue[..i].iter().any(|w| w.bank == bank) {
                    *self.passed.entry(bank).or_default() += 1;
                }
                self.fresh.remove(&bank);
                let w = queue.remove(i);
                let t = self.device.timing();
                let latency = if command == Command::Write { t.cwl } else { t.cl } + t.burst;
                let Request { id, owner, write, .. } = w.request;
                let (at, arrived, row) = (now + latency, w.arrived, w.row_use);
                self.done.push(Done { id, owner, write, at, arrived, row });
                self.turn();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn the_controller_issues_what_one_that_ticks_issues(
        arrivals in prop::collection::vec(
            (
                prop_oneof![6 => 0_u64..3, 3 => 3_u64..60, 1 => 60_u64..3000],
                0_u64..1 << 9,
                any::<bool>(),
            ),
            1..250,
        ),
        reads in prop_oneof![1_usize..9, 30_usize..65],
        writes in prop_oneof![2_usize..9, 30_usize..65], cap in 0_u32..4, ranks in 0_u32..2,
        groups in 0_u32..3, part in 0_usize..3,
    ) {
        // Refreshes often enough to be met.
        let part = [DDR2_800, DDR4_2400, LPDDR4_3200][part];
        let timing = DramTiming { rfc: 60, refi: 400, ..part };
        // Few rows and banks, so that everything collides.
        let mut bits = 8..;
        let mut take = |n: u32| (0..n).map(|_| 1 << bits.next().unwrap()).collect::<Vec<u64>>();
        let (bank, group, rank) = (take(1), take(groups), take(ranks));
        let row = take(2);
        let fields = AddressFields { bank, group, rank, row, channel: vec![] };
        let map = AddressMap::new(fields).unwrap();
        let policy = Policy {
            read_queue: reads,
            write_queue: writes,
            cap,
            drain_from: writes.div_ceil(2).max(1),
            drain_to: 0,
        };
        let mut channel = DramChannel::new(map.clone(), timing, policy, 1).unwrap();
        let rank_count = 1_u64 << ranks;
        let mut ticking = Ticking {
            device: channel.device().clone(),
            policy,
            map,
            queues: [vec![], vec![]],
            draining: false,
            // A refresh's precharge counts as older than any request.
            seq: 1,
            passed: BTreeMap::new(),
            fresh: BTreeSet::new(),
            due: (1..=rank_count).map(|r| timing.refi * r / rank_count).collect(),
            refreshing: BTreeSet::new(),
            log: vec![],
            done: vec![],
        };
        let (mut log, mut done) = (vec![], vec![]);
        let mut arrivals = arrivals.into_iter().enumerate().peekable();
        let mut gap = arrivals.peek().map_or(0, |(_, a)| a.0);
        let mut now = 0;
        while arrivals.peek().is_some() || ticking.queues.iter().any(|q| !q.is_empty()) {
            if gap > 0 {
                gap -= 1;
            } else if let Some(&(id, (_, place, write))) = arrivals.peek() {
                let request =
                    Request { id: id as u64, pa: Pa(place << 6), owner: Owner(0), write };
                let taken = ticking.push(request, now);
                prop_assert_eq!(channel.push(request, now, &mut |d| done.push(d)).is_ok(), taken);
                if taken {
                    arrivals.next();
                    gap = arrivals.peek().map_or(0, |(_, a)| a.0);
                }
            }
            ticking.tick(now);
            // Sometimes the channel is asked only later: then it must catch up.
            if now % 3 == 0 || gap == 0 {
                if channel.waiting() == 0 {
                    channel.advance(now, &mut |d| done.push(d));
                }
                while let Some(step) = channel.step(now, &mut |d| done.push(d)) {
                    log.push(step);
                }
                channel.advance(now, &mut |d| done.push(d));
            }
            now += 1;
        }
        while channel.waiting() > 0 {
            log.extend(channel.step(u64::MAX, &mut |d| done.push(d)));
        }
        // A refresh of an idle channel is gone through only if a later request can notice it.
        let noticed = |log: &[(u64, Command, usize)]| -> Vec<_> {
            let columns = |c: &Command| matches!(c, Command::Read | Command::Write);
            log.iter().filter(|(_, c, _)| columns(c)).copied().collect()
        };
        prop_assert_eq!(noticed(&log), noticed(&ticking.log));
        done.sort_by_key(|d| d.id);
        ticking.done.sort_by_key(|d| d.id);
        prop_assert_eq!(done, ticking.done);
    }

    #[test]
    fn every_request_is_answered_once_and_not_early(
        requests in prop::collection::vec((0_u64..20, any::<u32>(), any::<bool>()), 1..300),
        few_rows in any::<bool>(),
    ) {
        let mut channel = DramChannel::new(ddr4_map(), DDR4_2400, DEFAULT_POLICY, 1).unwrap();
        let mut now = 0;
        let mut answered = BTreeMap::new();
        let mut double = false;
        let mut note = |d: Done| double |= answered.insert(d.id, d).is_some();
        let total = requests.len();
        for (id, (gap, address, write)) in (0..).zip(requests) {
            now += gap;
            let address = if few_rows { address & 0x7_ffff } else { address };
            let pa = Pa(u64::from(address) & !63);
            while !channel.has_room(write) {
                let (at, ..) = channel.step(u64::MAX, &mut note).unwrap();
                now = now.max(at + 1);
            }
            channel.push(Request { id, pa, owner: Owner(0), write }, now, &mut note).unwrap();
        }
        while channel.waiting() > 0 {
            channel.step(u64::MAX, &mut note);
        }
        prop_assert!(!double);
        prop_assert_eq!(answered.len(), total);
        for d in answered.values() {
            let t = DDR4_2400;
            let least = match d.row {
                RowUse::Forwarded => 1,
                RowUse::Hit => t.burst,
                RowUse::Empty => t.rcd + t.burst,
                RowUse::Conflict => t.rp + t.rcd + t.burst,
            };
            let column = if d.row == RowUse::Forwarded {
                0
            } else if d.write {
                t.cwl
            } else {
                t.cl
            };
            prop_assert!(d.at >= d.arrived + least + column, "{:?}", d);
        }
        let stats = channel.stats();
        prop_assert_eq!((stats.reads + stats.writes) as usize, total);
        // A row may be closed for a request, and another one opened by a change of direction before
        // it is served.
        prop_assert!(stats.closed.total() >= stats.row_conflicts);
    }
}

/// A tenth of the trace shows the same within the tolerances, but for unoptimized code it is long
/// enough.
const REQUESTS: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

/// Share of time that refreshes leave, as a factor on cycles.
fn refresh_factor() -> f64 {
    1.0 / (1.0 - DDR4_2400.rfc as f64 / DDR4_2400.refi as f64)
}

fn cycles_per_request(trace: impl Iterator<Item = (Pa, bool)>) -> f64 {
    let result = trace::run(trace, &ddr4_map(), DDR4_2400, DEFAULT_POLICY).unwrap();
    assert_eq!(result.requests, REQUESTS);
    result.cycles as f64 / REQUESTS as f64
}

fn within(value: f64, expected: f64, percent: f64) {
    let error = (value / expected - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{value} is {error:+.3} % off {expected}");
}

/// Bank 0, another row each time.
fn same_bank_row_miss(write: impl Fn(u64) -> bool) -> impl Iterator<Item = (Pa, bool)> {
    (0..REQUESTS).map(move |i| (Pa((i % (1 << 15)) << 17), write(i)))
}

#[test]
fn row_miss_reads_of_one_bank_take_trc() {
    let cycles = cycles_per_request(same_bank_row_miss(|_| false));
    within(cycles, 56.0 * refresh_factor(), 0.3);
}

#[test]
fn row_miss_writes_of_one_bank_take_their_whole_chain() {
    let cycles = cycles_per_request(same_bank_row_miss(|_| true));
    within(cycles, f64::from(17 + 12 + 4 + 18 + 17) * refresh_factor(), 0.3);
}

#[test]
fn alternating_row_misses_take_the_mean_of_both() {
    let cycles = cycles_per_request(same_bank_row_miss(|i| i % 2 == 1));
    within(cycles, f64::midpoint(56.0, 68.0) * refresh_factor(), 0.5);
}

#[test]
fn a_stream_in_one_bank_takes_tccd_l_and_row_changes() {
    let in_bank = |i: u64| (i / 128) << 17 | (i % 128) << 6;
    let cycles = cycles_per_request((0..REQUESTS).map(|i| (Pa(in_bank(i)), false)));
    let row = f64::from(127 * 6 + 9 + 17 + 17) / 128.0;
    within(cycles, row * refresh_factor(), 1.0);
}

#[test]
fn random_reads_take_a_quarter_of_tfaw() {
    let mut state = 1_u64;
    let random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33 << 6 & 0xffff_ffff
    };
    let cycles = cycles_per_request(
        std::iter::repeat_with(random).map(|a| (Pa(a), false)).take(REQUESTS as usize),
    );
    within(cycles, 26.0 / 4.0 * refresh_factor(), 2.0);
}

#[test]
fn a_stream_over_banks_is_between_tccd_s_and_tccd_l() {
    let cycles = cycles_per_request((0..REQUESTS).map(|i| (Pa(i << 6), false)));
    assert!((4.0..6.0).contains(&cycles), "{cycles}");
}

#[test]
fn an_unloaded_read_takes_the_sum_of_its_commands() {
    let mut channel = DramChannel::new(ddr4_map(), DDR4_2400, DEFAULT_POLICY, 1).unwrap();
    let mut read = |address: u64, now: u64| {
        let mut latency = (0, RowUse::Hit);
        let request = Request { id: 0, pa: Pa(address), owner: Owner(0), write: false };
        let mut note = |d: Done| latency = (d.at - d.arrived, d.row);
        channel.push(request, now, &mut note).unwrap();
        channel.advance(now + 200, &mut note);
        latency
    };
    let t = DDR4_2400;
    assert_eq!(read(0, 0), (t.rcd + t.cl + t.burst, RowUse::Empty));
    assert_eq!(read(64, 1000), (t.cl + t.burst, RowUse::Hit));
    assert_eq!(read(1 << 17, 2000), (t.rp + t.rcd + t.cl + t.burst, RowUse::Conflict));
    // Long after: the refreshes have closed the row.
    assert_eq!(read(1 << 17, 1_000_000), (t.rcd + t.cl + t.burst, RowUse::Empty));
}

#[test]
fn the_time_of_the_day_does_not_matter() {
    // Cycle 2^30 lies between two refreshes.
    let timing = DramTiming { refi: 9400, ..DDR4_2400 };
    let run = |start: u64| {
        let mut channel = DramChannel::new(ddr4_map(), timing, DEFAULT_POLICY, 1).unwrap();
        let mut done = vec![];
        let mut note =
            |d: Done| done.push(Done { at: d.at - start, arrived: d.arrived - start, ..d });
        channel.advance(start, &mut note);
        let mut now = start + 1000;
        let mut state = 1_u64;
        // More requests than ages are distinguished without renumbering.
        for id in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (pa, write) = (Pa(state >> 40 << 6), state >> 33 & 3 == 0);
            while !channel.has_room(write) {
                now = now.max(channel.step(u64::MAX, &mut note).unwrap().0 + 1);
            }
            now += state >> 34 & 7;
            channel.push(Request { id, pa, owner: Owner(0), write }, now, &mut note).unwrap();
        }
        while channel.waiting() > 0 {
            channel.step(u64::MAX, &mut note);
        }
        done
    };
    let early = run(0);
    assert_eq!(early.len(), 20_000);
    // Cycles are counted in 32 bits from one that is moved every 2^30.
    for moved in [1_u64 << 30, 1 << 31, 1 << 32, 1 << 50] {
        let refreshes = (moved - 50_000) / timing.refi;
        assert_eq!(run(refreshes * timing.refi), early);
    }
}

#[test]
fn a_request_from_the_past_comes_in_the_present() {
    let mut channel = DramChannel::new(ddr4_map(), DDR4_2400, DEFAULT_POLICY, 1).unwrap();
    let mut done = Vec::new();
    channel.advance(1000, &mut |d| done.push(d));
    let request = Request { id: 1, pa: Pa(0), owner: Owner(0), write: false };
    channel.push(request, 10, &mut |d| done.push(d)).unwrap();
    channel.advance(2000, &mut |d| done.push(d));
    let [Done { arrived, at, .. }] = done[..] else { panic!("{done:?}") };
    assert_eq!((arrived, at), (1000, 1000 + 17 + 17 + 4));
}

#[test]
fn idle_years_are_free_and_their_refreshes_counted() {
    let mut channel = DramChannel::new(ddr4_map(), DDR4_2400, DEFAULT_POLICY, 1).unwrap();
    let years = 100_000_000_000_000_000;
    channel.advance(years, &mut |_| {});
    assert_eq!(channel.stats().refreshes, years / DDR4_2400.refi);
}

#[test]
fn row_hits_pass_an_older_request_only_up_to_the_cap() {
    let waited = |cap| {
        let policy = Policy { cap, ..DEFAULT_POLICY };
        let mut channel = DramChannel::new(ddr4_map(), DDR4_2400, policy, 1).unwrap();
        let mut victim = 0;
        let mut note = |d: Done| {
            if d.id == 5 {
                victim = d.at - d.arrived;
            }
        };
        let mut now = 0;
        for id in 0..500 {
            while !channel.has_room(false) {
                now = now.max(channel.step(u64::MAX, &mut note).unwrap().0 + 1);
            }
            // All in one row, but for number 5.
            let pa = if id == 5 { Pa(1 << 17) } else { Pa((id % 128) << 6) };
            channel
                .push(Request { id, pa, owner: Owner(0), write: false }, now, &mut note)
                .unwrap();
        }
        while channel.waiting() > 0 {
            channel.step(u64::MAX, &mut note);
        }
        victim
    };
    let (none, some, many) = (waited(0), waited(16), waited(1000));
    // Each that passes costs tCCD_L.
    assert_eq!(some - none, 16 * 6);
    assert!(many > 400 * 6, "{many}");
}

#[test]
fn memory_that_cannot_be_is_refused() {
    let new = |timing, policy| DramChannel::new(ddr4_map(), timing, policy, 1).unwrap_err();
    let policy = Policy { drain_from: 40, ..DEFAULT_POLICY };
    assert_eq!(new(DDR4_2400, policy), ChannelError::Policy(policy));
    let timing = DramTiming { refi: 400, ..DDR4_2400 };
    let error = new(timing, DEFAULT_POLICY);
    assert_eq!(error, ChannelError::Refresh { rfc: 433, refi: 400 });
    assert!(error.to_string().contains("tREFI"));
    let timing = DramTiming { rcd: 10_000, refi: 100_000, ..DDR4_2400 };
    assert_eq!(new(timing, DEFAULT_POLICY), ChannelError::Gap(10_000));
    let fields = AddressFields { bank: plain_bits(10..=16), ..Default::default() };
    let map = AddressMap::new(fields).unwrap();
    let error = DramChannel::new(map, DDR4_2400, DEFAULT_POLICY, 1).unwrap_err();
    assert_eq!(error, ChannelError::Banks(7));
}

#[test]
fn channels_share_a_trace() {
    let run = |channel: Vec<u64>| {
        let fields = AddressFields { channel, ..ddr4_map().fields().clone() };
        let map = AddressMap::new(fields).unwrap();
        let stream = (0..20_000).map(|i| (Pa(i << 6), false));
        trace::run(stream, &map, DDR4_2400, DEFAULT_POLICY).unwrap()
    };
    let (one, two) = (run(vec![]), run(vec![1 << 6]));
    assert_eq!((one.requests, two.requests), (20_000, 20_000));
    // Half the time or less: each channel changes its bank group twice as often, and between two
    // groups only tCCD_S counts.
    let (least, most) = (one.cycles * 4 / 6 / 2, one.cycles / 2);
    assert!((least..=most).contains(&two.cycles), "{} for {}", two.cycles, one.cycles);
    within(one.mb_per_s(64, DDR4_2400.clock_ps), 64e6 * 20_000.0 / (one.cycles * 833) as f64, 1e-9);
}

#[test]
fn lines_of_a_trace_file() {
    let good = [
        ("R 0x1000", Some((Pa(0x1000), false))),
        ("  W 0xfFfF00\t\r\n", Some((Pa(0xff_ff00), true))),
        ("", None),
        ("# a comment", None),
    ];
    for (line, expected) in good {
        assert_eq!(trace::parse_line(line), Ok(expected));
    }
    let bad = [
        "R",
        "R 4096",
        "R 0x",
        "R 0x+1",
        "X 0x10",
        "r 0x10",
        "R 0x10 1",
        "R0x10",
        "W 0x10000000000000",
    ];
    for line in bad {
        let error = trace::parse_line(line).unwrap_err();
        assert!(error.to_string().contains("R 0xADDRESS"), "{line}: {error}");
    }
    assert_eq!(trace::parse_line(&"x".repeat(1000)).unwrap_err().text.len(), 40);
}

proptest! {
    #[test]
    fn no_line_of_a_trace_file_panics(line in ".{0,60}") {
        let _ = trace::parse_line(&line);
    }
}
