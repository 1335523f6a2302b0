//! Cycles of banks, in vectors of eight, so that all banks are tested without a branch: which of
//! them is first is as good as random, and a wrongly predicted branch costs more than a few banks.
//! A bank's lane is always written together with its seven neighbors, as they are read: a processor
//! hands a store to a wider load only after it has left for the cache.

use wide::i16x8;

/// Banks in a vector.
pub(super) const LANES: usize = 8;

/// A channel has so many banks at most.
pub(super) const BANKS: usize = 64;

/// Chunks of so many banks.
pub(super) const CHUNKS: usize = BANKS / LANES;

/// A value of each of eight banks.
pub(super) type Lanes = i16x8;

/// A value of each bank.
pub(super) type AllBanks = [Lanes; CHUNKS];

/// Every bit of one lane.
static ONE: [Lanes; LANES] = {
    let mut one = [Lanes::new([0; LANES]); LANES];
    let mut lane = 0;
    while lane < LANES {
        let mut bits = [0; LANES];
        bits[lane] = -1;
        one[lane] = Lanes::new(bits);
        lane += 1;
    }
    one
};

/// The lane of a bank among those of its chunk.
#[inline]
pub(super) fn lane_of(bank: usize) -> Lanes {
    ONE[bank % LANES]
}

/// The chunk of a bank.
#[inline]
pub(super) const fn chunk_of(bank: usize) -> usize {
    bank / LANES % CHUNKS
}

/// A bank's value.
#[inline]
pub(super) fn get(all: &AllBanks, bank: usize) -> i16 {
    all[chunk_of(bank)].as_array_ref()[bank % LANES]
}

/// Raises a bank's value, which is not negative, to at least this.
#[inline]
pub(super) fn raise(all: &mut AllBanks, bank: usize, to: i16) {
    let chunk = &mut all[chunk_of(bank)];
    *chunk = chunk.max(lane_of(bank) & Lanes::splat(to));
}

/// Sets a bank's value.
#[inline]
pub(super) fn set(all: &mut AllBanks, bank: usize, to: i16) {
    let chunk = &mut all[chunk_of(bank)];
    *chunk ^= (*chunk ^ Lanes::splat(to)) & lane_of(bank);
}

/// Flips bits of a bank's value.
#[inline]
pub(super) fn flip(all: &mut AllBanks, bank: usize, bits: i16) {
    all[chunk_of(bank)] ^= lane_of(bank) & Lanes::splat(bits);
}

/// Does something for each chunk in use. There are always two: most channels have 16 banks, and no
/// loop then.
#[inline(always)]
#[expect(clippy::inline_always, reason = "two copies of a few instructions")]
pub(super) fn each_chunk(chunks: usize, mut what: impl FnMut(usize)) {
    what(0);
    what(1);
    for chunk in 2..chunks.min(CHUNKS) {
        what(chunk);
    }
}
