//! What each bank wants next, and which of the wishes comes first.
//!
//! Of each kind of command the first wish is remembered. A command changes what group and rank say of its own kind
//! only, and what one bank wants: so one kind is looked through again after each command, and a new wish of another
//! kind is compared with that kind's first. Looking through goes over all banks without a branch, several at a time:
//! which of them want something is as good as random, and a wrongly predicted branch costs more than a few banks.

use crate::dram::{
    device::{BANKS, Device},
    timing::Command,
};

/// The request that a bank's wish is for, and the one before it in the bank's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub slot: u8,
    pub before: u8,
}

/// Bits of a wish's order: the age above the bank.
const BANK_BITS: u32 = 6;
const ORDER_BITS: u32 = 18;
/// Ages are lower than this.
pub(super) const AGES: u32 = 1 << (ORDER_BITS - BANK_BITS);
/// What is left of 31 bits for the cycles until a wish can be granted.
pub(super) const LONGEST_GAP: u64 = (1 << (31 - ORDER_BITS)) - 1;
/// The order of a bank that wants nothing: lower than no key.
const ABSENT: i32 = i32::MAX;

/// When the first wish of a kind can be granted, and which it is, so that one comparison decides: the cycle above the class (0
/// for a column command) above its order above its kind.
type Packed = u64;
const KIND_BITS: u32 = 2;
const CLASS_SHIFT: u32 = KIND_BITS + ORDER_BITS;
const AT_SHIFT: u32 = CLASS_SHIFT + 1;
const ORDER: i32 = (1 << ORDER_BITS) - 1;
const NEVER: Packed = Packed::MAX;
/// Lower than any cycle: it has to be looked for.
const UNKNOWN: Packed = 0;

/// Kinds of commands that have rules among themselves: activates, precharges, column commands.
const KINDS: usize = 3;
pub(super) const ACTIVATE: usize = 0;
pub(super) const PRECHARGE: usize = 1;
pub(super) const COLUMN: usize = 2;

#[inline]
const fn kind(command: Command) -> usize {
    match command {
        Command::Activate => ACTIVATE,
        Command::Precharge => PRECHARGE,
        Command::Read | Command::Write | Command::Refresh => COLUMN,
    }
}

#[inline]
const fn pack<const KIND: usize>(at: i32, order: i32) -> Packed {
    let class = ((KIND != COLUMN) as u64) << CLASS_SHIFT;
    // One more than the cycle, so that 0 is none.
    (at.cast_unsigned() as u64 + 1) << AT_SHIFT
        | class
        | (order.cast_unsigned() as u64) << KIND_BITS
        | KIND as u64
}

/// Wishes of up to 64 banks, field by field.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    wishes: [Wish; BANKS],
    commands: [Command; BANKS],
    /// Banks that want something.
    wanting: u64,
    /// Of each kind, the order of each bank's wish.
    orders: [[i32; BANKS]; KINDS],
    /// The first wish of each kind. Out of date if its cycle has passed.
    first: [Packed; KINDS],
}

impl Schedule {
    pub fn new() -> Self {
        Self {
            wishes: [Wish { slot: 0, before: 0 }; BANKS],
            commands: [Command::Activate; BANKS],
            wanting: 0,
            orders: [[ABSENT; BANKS]; KINDS],
            first: [NEVER; KINDS],
        }
    }

    #[inline]
    pub fn wish(&self, bank: usize) -> Wish {
        self.wishes[bank % BANKS]
    }

    /// The command that a bank wants, if any.
    #[inline]
    pub fn wanted(&self, bank: usize) -> Option<Command> {
        (self.wanting >> (bank % BANKS) & 1 == 1).then(|| self.commands[bank % BANKS])
    }

    /// The bank wants nothing any more.
    #[inline]
    pub fn clear(&mut self, bank: usize) {
        if self.wanting >> (bank % BANKS) & 1 == 1 {
            let kind = kind(self.commands[bank % BANKS]);
            self.first[kind] = UNKNOWN;
            self.orders[kind][bank % BANKS] = ABSENT;
            self.wanting &= !(1 << (bank % BANKS));
        }
    }

    /// A bank got the command that it wanted, of kind `KIND`, and wants nothing any more.
    #[inline]
    pub fn granted<const KIND: usize>(&mut self, bank: usize) {
        self.first[KIND] = UNKNOWN;
        self.orders[KIND][bank % BANKS] = ABSENT;
        self.wanting &= !(1 << (bank % BANKS));
    }

    /// A bank got the command that it wanted, of kind `KIND`, and wants another one for the same request, of kind `NEXT`.
    #[inline]
    pub fn goes_on<const KIND: usize, const NEXT: usize>(
        &mut self,
        device: &Device,
        floor: i32,
        bank: usize,
        command: Command,
    ) {
        let bank = bank % BANKS;
        let order = self.orders[KIND][bank];
        self.first[KIND] = UNKNOWN;
        self.orders[KIND][bank] = ABSENT;
        self.commands[bank] = command;
        self.orders[NEXT][bank] = order;
        let at = device.ready(command, bank).max(floor);
        self.first[NEXT] = self.first[NEXT].min(pack::<NEXT>(at, order));
    }

    /// Cycles are counted from another one.
    pub fn forget(&mut self) {
        self.first = [UNKNOWN; KINDS];
    }

    /// Sets the wish of a bank that wants nothing.
    #[inline]
    pub fn set<const KIND: usize>(
        &mut self,
        device: &Device,
        floor: i32,
        bank: usize,
        command: Command,
        age: u32,
        wish: Wish,
    ) {
        let bank = bank % BANKS;
        self.wishes[bank] = wish;
        self.commands[bank] = command;
        self.wanting |= 1 << bank;
        let order = (age << BANK_BITS | bank as u32).cast_signed();
        self.orders[KIND][bank] = order;
        let at = device.ready(command, bank).max(floor);
        self.first[KIND] = self.first[KIND].min(pack::<KIND>(at, order));
    }

    /// The first of all wishes that can be granted at `floor` or later: when (`u64::MAX` if there is none), of which kind,
    /// for which bank. `column` is what column commands are.
    #[inline]
    pub fn choose(&mut self, device: &Device, floor: i32, column: Command) -> (u64, usize, usize) {
        let known = pack::<0>(floor, 0) >> AT_SHIFT << AT_SHIFT;
        let mut first = self.first();
        if first < known {
            self.look_if_unknown::<ACTIVATE>(device, floor, known, Command::Activate);
            self.look_if_unknown::<PRECHARGE>(device, floor, known, Command::Precharge);
            self.look_if_unknown::<COLUMN>(device, floor, known, column);
            first = self.first();
        }
        let bank = (first >> KIND_BITS) as usize % BANKS;
        let at = if first == NEVER { u64::MAX } else { (first >> AT_SHIFT) - 1 };
        (at, first as usize % (1 << KIND_BITS), bank)
    }

    #[inline]
    fn first(&self) -> Packed {
        let [activate, precharge, column] = self.first;
        activate.min(precharge).min(column)
    }

    /// Looks for the first wish of a kind that has just been granted one, at `floor` or later.
    #[inline]
    pub fn look<const KIND: usize>(&mut self, device: &Device, floor: i32, command: Command) {
        self.first[KIND] = self.look_through::<KIND>(device, floor, command);
    }

    #[inline]
    fn look_if_unknown<const KIND: usize>(
        &mut self,
        device: &Device,
        floor: i32,
        known: Packed,
        command: Command,
    ) {
        if self.first[KIND] < known {
            self.look::<KIND>(device, floor, command);
        }
    }

    #[inline]
    fn look_through<const KIND: usize>(
        &self,
        device: &Device,
        floor: i32,
        command: Command,
    ) -> Packed {
        let (ready, orders) = (device.banks_ready(command), &self.orders[KIND]);
        let shape = device.shape();
        let banks = shape.banks_per_rank();
        if shape.rank_bits == 0 {
            let floor = device.rank_ready(command, 0).max(floor);
            // Behind the last bank nobody wants anything.
            let chunks = banks.div_ceil(LANES);
            return first::<KIND>(least(ready, orders, chunks, floor), floor);
        }
        (0..shape.ranks()).fold(NEVER, |least, rank| {
            let floor = device.rank_ready(command, rank).max(floor);
            let here = rank * banks..(rank + 1) * banks;
            let keys = here.map(|bank| key(ready[bank % BANKS], orders[bank % BANKS], floor));
            least.min(first::<KIND>(keys.min().unwrap_or(ABSENT), floor))
        })
    }
}

/// Banks that are looked at together.
const LANES: usize = 8;

/// The cycles from `floor` to when a bank is ready, above the order of its wish.
#[inline]
fn key(ready: i32, order: i32, floor: i32) -> i32 {
    (ready - floor).max(0) << ORDER_BITS | order
}

/// The wish with the least key.
#[inline]
fn first<const KIND: usize>(key: i32, floor: i32) -> Packed {
    let found = pack::<KIND>(floor + (key >> ORDER_BITS), key & ORDER);
    if key == ABSENT { NEVER } else { found }
}

/// The least key of the banks in so many chunks.
#[inline]
fn least(ready: &[i32; BANKS], orders: &[i32; BANKS], chunks_of_banks: usize, floor: i32) -> i32 {
    let mut least = [ABSENT; LANES];
    let chunks = ready.as_chunks::<LANES>().0.iter().zip(orders.as_chunks::<LANES>().0);
    for (ready, orders) in chunks.take(chunks_of_banks) {
        for ((least, &ready), &order) in least.iter_mut().zip(ready).zip(orders) {
            *least = key(ready, order, floor).min(*least);
        }
    }
    least.into_iter().min().unwrap_or(ABSENT)
}
