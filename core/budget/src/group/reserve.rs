use crate::word::{AtomicU64, Word, update};

const AMOUNT_BITS: u32 = 40;
/// Largest amount in a reserve: at 64 bytes per access and a period of 30 us, 2 EB/s.
pub(in super::super) const MOST: u64 = (1 << AMOUNT_BITS) - 1;

/// A number of accesses that several cores take from and add to, in one word with the number
/// (modulo 2^24) of its period. The first vCPU in a period begins the period, in the same exchange
/// in which it takes from the reserve. So no vCPU can take from the previous period or begin a
/// period twice. No ordering is needed, because the word contains the whole state.
///
/// A period counts as later than the word's period if it is later by less than 2^23, which is four
/// minutes at 30 us; reserves whose sharers are stepped in each period never come near this limit.
#[derive(Debug)]
pub(in super::super) struct Reserve<W>(W);

impl Reserve<AtomicU64> {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// Returns the amount of the word for `period`: `first` if this begins the period; none if the
/// period is over.
#[inline]
fn amount(word: u64, period: u64, first: u64) -> Option<u64> {
    match (period << AMOUNT_BITS).wrapping_sub(word & !MOST) >> AMOUNT_BITS {
        0 => Some(word & MOST),
        ahead if ahead < 1 << (63 - AMOUNT_BITS) => Some(if first < MOST { first } else { MOST }),
        _ => None,
    }
}

impl<W: Word> Reserve<W> {
    #[cfg(test)]
    pub(super) const fn on(word: W) -> Self {
        Self(word)
    }

    /// Takes up to `want` and returns the amount taken. The first call in a period finds `refill`.
    /// Nothing is left for a period that is over.
    #[inline]
    pub(super) fn draw(&self, period: u64, refill: u64, want: u64) -> u64 {
        if want == 0 {
            return 0;
        }
        update(&self.0, |word| {
            let there = amount(word, period, refill)?;
            let got = there.min(want);
            Some((period << AMOUNT_BITS | (there - got), got))
        })
        .unwrap_or(0)
    }

    /// Adds `gift` and returns how much of it was added. Nothing is added to a period that is over.
    #[inline]
    pub(super) fn give(&self, period: u64, gift: u64) -> u64 {
        if gift == 0 {
            return 0;
        }
        update(&self.0, |word| {
            let there = amount(word, period, 0)?;
            let given = gift.min(MOST - there);
            Some((period << AMOUNT_BITS | (there + given), given))
        })
        .unwrap_or(0)
    }
}
