//! The rules between commands, compiled for one channel: which bank has to wait how long after a
//! command to another.

use crate::dram::{
    lanes::{AllBanks, BANKS, LANES, Lanes, chunk_of, set},
    shape::Shape,
    timing::{DramTiming, RULES, RuleScope},
};

/// A channel's longest gap between two commands. Cycles are counted in 15 bits from an epoch: one
/// that is chosen lies at most a gap after the end of the epoch, and what it holds up another gap
/// after it.
pub(super) const LONGEST_GAP: u64 = (1 << 13) - 1;

/// Cycles until another epoch begins.
pub(super) const EPOCH: u64 = 1 << 13;

/// A bank that a command does not hold up: added to any cycle, this is less than 0.
const NOT_HELD_UP: i16 = i16::MIN;

/// Whether there is a rule between two commands at all.
pub(super) const fn is_ruled(first: usize, then: usize) -> bool {
    let mut i = 0;
    while i < RULES.len() {
        if RULES[i].first as usize == first && RULES[i].then as usize == then {
            return true;
        }
        i += 1;
    }
    false
}

/// Whether there is one that holds up more than the same bank.
pub(super) const fn is_wide(first: usize, then: usize) -> bool {
    let mut i = 0;
    while i < RULES.len() {
        let rule = &RULES[i];
        let beyond = !matches!(rule.scope, RuleScope::Bank);
        if beyond && rule.first as usize == first && rule.then as usize == then {
            return true;
        }
        i += 1;
    }
    false
}

/// Pairs of commands with such a rule; refreshes, which are held up by rank, are not among the
/// second ones.
const WIDE_PAIRS: usize = {
    let mut pairs = 0;
    let mut pair = 0;
    while pair < 20 {
        pairs += is_wide(pair / 4, pair % 4) as usize;
        pair += 1;
    }
    pairs
};

/// The number of such a pair.
pub(super) const fn wide_pair(first: usize, then: usize) -> usize {
    let mut number = 0;
    let mut pair = 0;
    while pair < first * 4 + then {
        number += is_wide(pair / 4, pair % 4) as usize;
        pair += 1;
    }
    number
}

/// The rules of one channel.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    chunks: usize,
    rank_shift: u32,
    /// Between commands to the same bank, by the two commands; 0 where there is none.
    same: [[i16; 5]; 5],
    /// For each pair of commands and each bank of the first one, the gap of every bank. Empty where
    /// all are 0.
    wide: [Box<[AllBanks]>; WIDE_PAIRS],
    /// The banks of each rank.
    ranks: Box<[AllBanks]>,
}

impl Rules {
    /// The timing's gaps are at most [`LONGEST_GAP`], the banks at most [`BANKS`].
    pub fn new(shape: Shape, timing: &DramTiming) -> Self {
        let banks = shape.banks();
        let mut same = [[0; 5]; 5];
        for (first, then) in (0..5).flat_map(|first| (0..5).map(move |then| (first, then))) {
            same[first][then] = longest(shape, timing, (first, 0), (then, 0)).unwrap_or(0);
        }
        let mut wide = core::array::from_fn(|_| Box::default());
        let pairs = (0..5).flat_map(|first| (0..4).map(move |then| (first, then)));
        for (first, then) in pairs.filter(|&(first, then)| is_wide(first, then)) {
            let gap = |of, to| longest(shape, timing, (first, of), (then, to));
            let all = (0..banks).map(|of| {
                let mut gaps = [Lanes::splat(NOT_HELD_UP); BANKS / LANES];
                for to in 0..banks {
                    set(&mut gaps, to, gap(of, to).unwrap_or(NOT_HELD_UP));
                }
                gaps
            });
            if (0..banks).any(|to| gap(0, to).is_some_and(|gap| gap > 0)) {
                wide[wide_pair(first, then)] = all.collect();
            }
        }
        let ranks = (0..shape.ranks()).map(|rank| {
            let mut members = AllBanks::default();
            for bank in (0..banks).filter(|&bank| shape.rank_of(bank) == rank) {
                set(&mut members, bank, -1);
            }
            members
        });
        let chunks = (chunk_of(banks - 1) + 1).max(2);
        let rank_shift = shape.group_bits + shape.bank_bits;
        Self { chunks, rank_shift, same, wide, ranks: ranks.collect() }
    }

    /// Chunks of banks in use.
    #[inline]
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// A bank's number shifted right by this is its rank's.
    #[inline]
    pub fn rank_shift(&self) -> u32 {
        self.rank_shift
    }

    /// Every bit of the banks of a rank.
    #[inline]
    pub fn rank(&self, rank: usize) -> &AllBanks {
        &self.ranks[rank]
    }

    /// The gap between two commands to the same bank.
    #[inline]
    pub fn gap(&self, first: usize, then: usize) -> i16 {
        self.same[first][then]
    }

    /// The gaps from a command to `bank` to one of every bank, of a [`wide_pair`]; `None` where all
    /// are 0.
    #[inline]
    pub fn gaps(&self, pair: usize, bank: usize) -> Option<&AllBanks> {
        self.wide[pair].get(bank)
    }
}

/// The longest gap that a rule asks for between two commands, each with its bank, if any does.
fn longest(
    shape: Shape,
    timing: &DramTiming,
    (first, of): (usize, usize),
    (then, to): (usize, usize),
) -> Option<i16> {
    let holds = |scope| match scope {
        RuleScope::Bank => of == to,
        RuleScope::Group => shape.group_of(of) == shape.group_of(to),
        RuleScope::Rank => shape.rank_of(of) == shape.rank_of(to),
        RuleScope::OtherRank => shape.rank_of(of) != shape.rank_of(to),
    };
    let rules =
        RULES.iter().filter(|rule| (rule.first as usize, rule.then as usize) == (first, then));
    rules.filter(|rule| holds(rule.scope)).map(|rule| (rule.gap)(timing) as i16).max()
}
