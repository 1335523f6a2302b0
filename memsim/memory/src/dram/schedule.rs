//! The candidate command of each bank, and the selection of the first one.
//!
//! After each command one scan goes over all banks, without a branch. It compares one number per
//! bank: the upper half is the first cycle in which the candidate can issue, the lower half is its
//! rank among the candidates of that cycle; the lowest bits of the rank are the bank. The least
//! number is the next command.

use wide::{f32x4, i32x4, i32x8};

use crate::dram::{
    device::DramDevice,
    lanes::{self, AllBanks, BANKS, CHUNKS, Lanes},
    timing::Command,
};

/// The request of a bank's candidate, and the one before it in the bank's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub slot: u8,
    pub before: u8,
}

/// The first candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    /// The cycle in which it can be granted.
    pub at: u64,
    /// Its command.
    pub kind: Kind,
    pub bank: u16,
}

impl First {
    /// Not selected yet: earlier than any cycle but 0.
    pub const UNKNOWN: Self = Self { at: 0, kind: NOTHING, bank: 0 };
}

/// The kind of a bank's candidate command. Column commands are all of one direction.
pub(super) type Kind = u8;
const NOTHING: Kind = 0;
pub(super) const ACTIVATE: Kind = 1;
pub(super) const PRECHARGE: Kind = 2;
pub(super) const COLUMN: Kind = 3;

const KINDS: usize = 4;

/// A candidate's order among those of the same cycle, 16 bits: a column command comes before any
/// other, then the lowest age; the lowest bits are its bank.
const BANK_BITS: u32 = 6;
const AGE_BITS: u32 = 9;
const NO_COLUMN: i32 = 1 << (BANK_BITS + AGE_BITS);
/// Ages are lower than this.
pub(super) const AGES: u32 = 1 << AGE_BITS;

const fn class(kind: Kind) -> i32 {
    if kind == COLUMN { 0 } else { NO_COLUMN }
}

/// Later than any cycle. As the upper half of a float, it is still a number.
const NEVER: i16 = 0x7f7f;

/// Banks with their orders in a vector.
const QUAD: usize = 4;

/// Every bit of one of four orders.
static QUAD_LANES: [i32x4; QUAD] = {
    let mut lanes = [i32x4::new([0; QUAD]); QUAD];
    let mut lane = 0;
    while lane < QUAD {
        let mut bits = [0; QUAD];
        bits[lane] = -1;
        lanes[lane] = i32x4::new(bits);
        lane += 1;
    }
    lanes
};

/// Requests of up to 64 banks, field by field.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    candidates: [Candidate; BANKS],
    /// Of each kind, 0 for the banks that want such a command and [`NEVER`] for the others; of
    /// [`NOTHING`] it means nothing.
    earliest: [AllBanks; KINDS],
    /// Four banks in a vector.
    orders: [i32x4; BANKS / QUAD],
    kinds: [Kind; BANKS],
}

impl Schedule {
    pub fn new() -> Self {
        Self {
            candidates: [Candidate { slot: 0, before: 0 }; BANKS],
            earliest: [[Lanes::splat(NEVER); CHUNKS]; KINDS],
            orders: [i32x4::ZERO; BANKS / QUAD],
            kinds: [NOTHING; BANKS],
        }
    }

    #[inline]
    pub fn candidate(&self, bank: usize) -> Candidate {
        self.candidates[bank % BANKS]
    }

    #[inline]
    fn kind(&self, bank: usize) -> Kind {
        self.kinds[bank % BANKS]
    }

    /// The kind of command that a bank wants, if any.
    #[inline]
    pub fn wanted(&self, bank: usize) -> Option<Kind> {
        let kind = self.kind(bank);
        (kind != NOTHING).then_some(kind)
    }

    /// The bank wants nothing any more.
    #[inline]
    pub fn clear(&mut self, bank: usize) {
        self.turn(bank, self.kind(bank), NOTHING);
    }

    /// A bank got the command that it wanted, of kind `FROM`, and wants one of kind `TO` for the
    /// same request.
    #[inline]
    pub fn goes_on<const FROM: Kind, const TO: Kind>(&mut self, bank: usize) {
        self.turn(bank, FROM, TO);
        if const { class(FROM) != class(TO) } {
            let (orders, lane) = self.order_mut(bank);
            *orders ^= lane & i32x4::splat(NO_COLUMN);
        }
    }

    /// Sets what a bank wants, for a request of this age.
    #[inline]
    pub fn set(&mut self, bank: usize, kind: Kind, age: u32, candidate: Candidate) {
        self.candidates[bank % BANKS] = candidate;
        self.turn(bank, self.kind(bank), kind);
        let order = class(kind) | (age << BANK_BITS | (bank % BANKS) as u32).cast_signed();
        let (orders, lane) = self.order_mut(bank);
        *orders ^= (*orders ^ i32x4::splat(order)) & lane;
    }

    /// A bank's order among those of its neighbors, and every bit of it.
    #[inline]
    fn order_mut(&mut self, bank: usize) -> (&mut i32x4, i32x4) {
        (&mut self.orders[bank / QUAD % (BANKS / QUAD)], QUAD_LANES[bank % QUAD])
    }

    /// A bank that wanted `from` wants `to`.
    #[inline]
    fn turn(&mut self, bank: usize, from: Kind, to: Kind) {
        if from == to {
            return;
        }
        self.kinds[bank % BANKS] = to;
        lanes::flip(&mut self.earliest[usize::from(from) % KINDS], bank, NEVER);
        lanes::flip(&mut self.earliest[usize::from(to) % KINDS], bank, NEVER);
    }

    /// The first of all candidates that the device allows at `floor`, counted from its epoch, or
    /// later; `column` is the command of the requests for a column.
    #[inline]
    pub fn first(&self, device: &DramDevice, column: Command, floor: i16) -> First {
        // One number comes back, so that it stays in a register.
        let found = match device.chunks() {
            2 => self.first_of_chunks::<2>(device, column, floor),
            _ => self.first_of_many(device, column, floor),
        };
        let at = found >> 16;
        let bank = found & ((1 << BANK_BITS) - 1);
        First {
            at: if at == NEVER as u32 { u64::MAX } else { device.epoch() + u64::from(at) },
            kind: self.kind(bank as usize),
            bank: bank as u16,
        }
    }

    #[inline(never)]
    fn first_of_many(&self, device: &DramDevice, column: Command, floor: i16) -> u32 {
        self.first_of_chunks::<CHUNKS>(device, column, floor)
    }

    /// The candidate's cycle in the upper half, its order in the lower one.
    #[inline]
    fn first_of_chunks<const N: usize>(
        &self,
        device: &DramDevice,
        column: Command,
        floor: i16,
    ) -> u32 {
        let floor = Lanes::splat(floor);
        let keys: [[f32x4; 2]; N] = core::array::from_fn(|chunk| {
            let of = |kind: Kind, command| {
                device.ready(command)[chunk].max(self.earliest[usize::from(kind)][chunk])
            };
            let rows = of(ACTIVATE, Command::Activate).min(of(PRECHARGE, Command::Precharge));
            let all = rows.min(of(COLUMN, column));
            let ready = i32x8::from_i16x8(all.max(floor)) << 16;
            let orders: i32x8 =
                bytemuck::must_cast([self.orders[chunk * 2], self.orders[chunk * 2 + 1]]);
            // Positive numbers are ordered alike as integers and as floats, and of floats every
            // processor has a minimum.
            bytemuck::must_cast(ready | orders)
        });
        let [left, right] =
            keys[1..].iter().fold(keys[0], |a, b| [a[0].fast_min(b[0]), a[1].fast_min(b[1])]);
        let [a, b, c, d] = left.fast_min(right).to_array();
        let lower = |a: f32, b: f32| if a < b { a } else { b };
        lower(lower(a, b), lower(c, d)).to_bits()
    }
}
