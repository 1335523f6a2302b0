//! What each bank wants next, and which of the wishes comes first.
//!
//! After each command one look goes over all banks, without a branch: first for the cycle in which something can be done,
//! then for the wish that has precedence in it.

use wide::CmpEq;

use crate::dram::lanes::{self, AllBanks, BANKS, CHUNKS, LANES, Lanes, each_chunk};

/// The request that a bank's wish is for, and the one before it in the bank's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub slot: u8,
    pub before: u8,
}

/// The kind of command that a bank wants. Column commands are all of one direction.
pub(super) type Kind = i16;
const NOTHING: Kind = 0;
pub(super) const ACTIVATE: Kind = 1;
pub(super) const PRECHARGE: Kind = 2;
pub(super) const COLUMN: Kind = 3;

/// Of wishes of the same cycle a column command comes before any other, then the lowest age.
const NO_COLUMN: i16 = 1 << 14;
/// Ages are lower than this.
pub(super) const AGES: u32 = (1 << 14) - 1;

/// Later than any cycle, and after any order.
const NEVER: i16 = i16::MAX;

/// Wishes of up to 64 banks, field by field.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    wishes: [Wish; BANKS],
    kinds: AllBanks,
    /// The cycle from which on each wish can be granted, counted from the device's epoch.
    ready: AllBanks,
    /// The age of each wish's request, below [`NO_COLUMN`].
    orders: AllBanks,
}

impl Schedule {
    pub fn new() -> Self {
        Self {
            wishes: [Wish { slot: 0, before: 0 }; BANKS],
            kinds: AllBanks::default(),
            ready: [Lanes::splat(NEVER); CHUNKS],
            orders: AllBanks::default(),
        }
    }

    #[inline]
    pub fn wish(&self, bank: usize) -> Wish {
        self.wishes[bank % BANKS]
    }

    /// The kind of command that a bank wants, if any.
    #[inline]
    pub fn wanted(&self, bank: usize) -> Option<Kind> {
        let kind = lanes::get(&self.kinds, bank);
        (kind != NOTHING).then_some(kind)
    }

    /// The bank wants nothing any more.
    #[inline]
    pub fn clear(&mut self, bank: usize) {
        lanes::set(&mut self.kinds, bank, NOTHING);
        lanes::set(&mut self.ready, bank, NEVER);
    }

    /// A bank got the command that it wanted, of kind `FROM`, and wants one of kind `TO` for the same request; `ready` is
    /// when the device allows such a command.
    #[inline]
    pub fn goes_on<const FROM: Kind, const TO: Kind>(&mut self, bank: usize, ready: &AllBanks) {
        lanes::flip(&mut self.kinds, bank, FROM ^ TO);
        lanes::copy(&mut self.ready, bank, ready);
        if (FROM == COLUMN) != (TO == COLUMN) {
            lanes::flip(&mut self.orders, bank, NO_COLUMN);
        }
    }

    /// Sets what a bank wants, for a request of this age; `ready` is when the device allows such a command.
    #[inline]
    pub fn set(&mut self, bank: usize, kind: Kind, ready: &AllBanks, age: u32, wish: Wish) {
        self.wishes[bank % BANKS] = wish;
        let class = if kind == COLUMN { 0 } else { NO_COLUMN };
        lanes::set(&mut self.kinds, bank, kind);
        lanes::copy(&mut self.ready, bank, ready);
        lanes::set(&mut self.orders, bank, class | age as i16);
    }

    /// The device allows commands of a kind later than it did, from then on.
    #[inline]
    pub fn hold_up(&mut self, kind: Kind, then: &AllBanks, chunks: usize) {
        each_chunk(chunks, |chunk| {
            let of_kind = self.kinds[chunk].cmp_eq(Lanes::splat(kind));
            self.ready[chunk] = self.ready[chunk].max(of_kind & then[chunk]);
        });
    }

    /// Cycles are counted from another epoch: so many have passed.
    pub fn begin_epoch(&mut self, passed: i16) {
        for (ready, kinds) in self.ready.iter_mut().zip(&self.kinds) {
            let later = (*ready - Lanes::splat(passed)).max(Lanes::ZERO);
            *ready = kinds.cmp_eq(Lanes::splat(NOTHING)).blend(Lanes::splat(NEVER), later);
        }
    }

    /// The first of all wishes that can be granted at `floor`, counted from the epoch, or later: when, and for which bank.
    #[inline]
    pub fn first(&self, floor: i16, chunks: usize) -> Option<(i16, usize)> {
        match chunks {
            2 => self.first_of_chunks::<2>(floor),
            _ => self.first_of_chunks::<CHUNKS>(floor),
        }
    }

    #[inline]
    fn first_of_chunks<const N: usize>(&self, floor: i16) -> Option<(i16, usize)> {
        let floor = Lanes::splat(floor);
        let ready: [Lanes; N] = core::array::from_fn(|chunk| self.ready[chunk].max(floor));
        let at = least(ready);
        if at == NEVER {
            return None;
        }
        let then = Lanes::splat(at);
        let orders: [Lanes; N] = core::array::from_fn(|chunk| {
            self.orders[chunk] | (!ready[chunk].cmp_eq(then) & Lanes::splat(NEVER))
        });
        let first = Lanes::splat(least(orders));
        let mut banks = 0_u64;
        for (chunk, order) in orders.into_iter().enumerate() {
            let found = order.cmp_eq(first).move_mask();
            banks |= u64::from(found.cast_unsigned()) << (chunk * LANES);
        }
        Some((at, banks.trailing_zeros() as usize))
    }
}

/// The least value of any lane.
#[inline]
fn least<const N: usize>(chunks: [Lanes; N]) -> i16 {
    chunks.into_iter().fold(Lanes::splat(NEVER), Lanes::min).reduce_min()
}
