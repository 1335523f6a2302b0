//! What each bank wants next, and which of the wishes comes first.
//!
//! After each command one look goes over all banks, without a branch. It compares one number of each bank: the cycle from
//! which on its wish can be granted, above the wish's rank among those of the same cycle.

use wide::{CmpEq, f32x4, f32x8, i32x8};

use crate::dram::lanes::{self, AllBanks, BANKS, CHUNKS, LANES, Lanes, each_chunk};

/// The request that a bank's wish is for, and the one before it in the bank's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub slot: u8,
    pub before: u8,
}

/// A wish that comes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    /// The cycle in which it can be granted.
    pub at: u64,
    /// The command that the bank wants.
    pub kind: Kind,
    pub bank: u16,
}

impl First {
    /// It has to be looked for: earlier than any cycle but 0.
    pub const UNKNOWN: Self = Self { at: 0, kind: NOTHING, bank: 0 };
}

/// The kind of command that a bank wants. Column commands are all of one direction.
pub(super) type Kind = i16;
const NOTHING: Kind = 0;
pub(super) const ACTIVATE: Kind = 1;
pub(super) const PRECHARGE: Kind = 2;
pub(super) const COLUMN: Kind = 3;

/// A wish's order among those of the same cycle: a column command comes before any other, then the lowest age. The lowest
/// bits are its kind.
const KIND_BITS: u32 = 2;
const AGE_BITS: u32 = 12;
const NO_COLUMN: i16 = 1 << (KIND_BITS + AGE_BITS);
const KIND: i16 = (1 << KIND_BITS) - 1;
/// Ages are lower than this.
pub(super) const AGES: u32 = 1 << AGE_BITS;

const fn class(kind: Kind) -> i16 {
    if kind == COLUMN { 0 } else { NO_COLUMN }
}

/// Later than any cycle. As the upper half of a float, it is still a number.
const NEVER: i16 = 0x7f7f;

/// Wishes of up to 64 banks, field by field.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    wishes: [Wish; BANKS],
    /// The cycle from which on each wish can be granted, counted from the device's epoch.
    ready: AllBanks,
    orders: AllBanks,
}

impl Schedule {
    pub fn new() -> Self {
        Self {
            wishes: [Wish { slot: 0, before: 0 }; BANKS],
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
        let kind = lanes::get(&self.orders, bank) & KIND;
        (kind != NOTHING).then_some(kind)
    }

    /// The bank wants nothing any more.
    #[inline]
    pub fn clear(&mut self, bank: usize) {
        lanes::set(&mut self.ready, bank, NEVER);
        lanes::set(&mut self.orders, bank, NOTHING);
    }

    /// A bank got the command that it wanted, of kind `FROM`, and wants one of kind `TO` for the same request; `ready` is
    /// when the device allows such a command.
    #[inline]
    pub fn goes_on<const FROM: Kind, const TO: Kind>(&mut self, bank: usize, ready: &AllBanks) {
        lanes::copy(&mut self.ready, bank, ready);
        lanes::flip(&mut self.orders, bank, FROM ^ TO ^ class(FROM) ^ class(TO));
    }

    /// Sets what a bank wants, for a request of this age; `ready` is when the device allows such a command.
    #[inline]
    pub fn set(&mut self, bank: usize, kind: Kind, ready: &AllBanks, age: u32, wish: Wish) {
        self.wishes[bank % BANKS] = wish;
        lanes::copy(&mut self.ready, bank, ready);
        lanes::set(&mut self.orders, bank, class(kind) | (age as i16) << KIND_BITS | kind);
    }

    /// The device allows commands of a kind later than it did: from `then` on.
    #[inline]
    pub fn hold_up(&mut self, kind: Kind, then: &AllBanks, chunks: usize) {
        each_chunk(chunks, |chunk| {
            let kinds = self.orders[chunk] & Lanes::splat(KIND);
            let then = kinds.cmp_eq(Lanes::splat(kind)) & then[chunk];
            self.ready[chunk] = self.ready[chunk].max(then);
        });
    }

    /// Cycles are counted from another epoch: so many have passed.
    pub fn begin_epoch(&mut self, passed: i16) {
        let never = Lanes::splat(NEVER);
        for ready in &mut self.ready {
            let later = (*ready - Lanes::splat(passed)).max(Lanes::ZERO);
            *ready = ready.cmp_eq(never).blend(never, later);
        }
    }

    /// The first of all wishes that can be granted at `floor`, counted from `epoch`, or later.
    #[inline]
    pub fn first(&self, epoch: u64, floor: i16, chunks: usize) -> First {
        match chunks {
            2 => self.first_of_chunks::<2>(epoch, floor),
            _ => self.first_of_many(epoch, floor),
        }
    }

    #[inline(never)]
    fn first_of_many(&self, epoch: u64, floor: i16) -> First {
        self.first_of_chunks::<CHUNKS>(epoch, floor)
    }

    #[inline]
    fn first_of_chunks<const N: usize>(&self, epoch: u64, floor: i16) -> First {
        let floor = Lanes::splat(floor);
        // Positive numbers are ordered alike as integers and as floats, and of floats every processor has a minimum.
        let keys: [f32x8; N] = core::array::from_fn(|chunk| {
            let ready = i32x8::from_i16x8(self.ready[chunk].max(floor));
            let order = i32x8::from_i16x8(self.orders[chunk]);
            bytemuck::must_cast(ready << 16 | order)
        });
        let [left, right]: [f32x4; 2] =
            bytemuck::must_cast(keys[1..].iter().fold(keys[0], |a, &b| a.fast_min(b)));
        let [a, b, c, d] = left.fast_min(right).to_array();
        let lower = |a: f32, b: f32| if a < b { a } else { b };
        let first = lower(lower(a, b), lower(c, d));
        let mut banks = 0_u64;
        for (chunk, keys) in keys.into_iter().enumerate() {
            let found = keys.cmp_eq(f32x8::splat(first)).move_mask();
            banks |= u64::from(found.cast_unsigned()) << (chunk * LANES);
        }
        let bits = first.to_bits();
        let at = bits >> 16;
        First {
            at: if at == NEVER as u32 { u64::MAX } else { epoch + u64::from(at) },
            kind: bits as i16 & KIND,
            bank: banks.trailing_zeros() as u16,
        }
    }
}
