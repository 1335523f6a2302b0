//! Requests that wait, of one direction.

use crate::{
    dram::request::{Request, RowUse},
    units::{Owner, Pa},
};

/// No slot.
pub(super) const NONE: u8 = u8::MAX;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub id: u64,
    pub pa: Pa,
    pub arrived: u64,
    pub row: u32,
    /// Its place in the order of arrival: lower is older.
    pub age: u32,
    pub bank: u8,
    pub owner: Owner,
    pub row_use: RowUse,
    /// The next one of its bank.
    next: u8,
}

impl Slot {
    pub fn new(request: &Request, bank: u8, row: u32, age: u32, arrived: u64) -> Self {
        let &Request { id, pa, owner, .. } = request;
        Self { id, pa, arrived, row, age, bank, owner, row_use: RowUse::Hit, next: NONE }
    }
}

/// Slots, and for each bank a list of its requests in the order of their arrival.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    slots: Box<[Slot]>,
    /// One bit a slot.
    free: u64,
    len: usize,
    heads: [u8; 64],
    tails: [u8; 64],
    /// For each bank, how many of its requests are for rows of each number modulo [`ROW_CLASSES`]: most questions for a row
    /// without a request are answered without going through the list.
    wanted: Box<[[u8; ROW_CLASSES]; 64]>,
}

const ROW_CLASSES: usize = 64;

const fn row_class(row: u32) -> usize {
    row as usize % ROW_CLASSES
}

impl Queue {
    /// Room for `len` requests, 1 to 64.
    pub fn new(len: usize) -> Self {
        let request = Request { id: 0, pa: Pa(0), owner: Owner(0), write: false };
        Self {
            slots: vec![Slot::new(&request, 0, 0, 0, 0); len].into_boxed_slice(),
            free: u64::MAX >> (64 - len),
            len: 0,
            heads: [NONE; 64],
            tails: [NONE; 64],
            wanted: Box::new([[0; ROW_CLASSES]; 64]),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.free == 0
    }

    /// All requests.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        let free = self.free;
        let slots = self.slots.iter_mut().enumerate();
        slots.filter(move |(at, _)| free >> at & 1 == 0).map(|(_, slot)| slot)
    }

    /// The oldest request of a bank, or [`NONE`].
    #[inline]
    pub fn head(&self, bank: usize) -> u8 {
        self.heads[bank & 63]
    }

    #[inline]
    pub fn slot(&self, at: u8) -> &Slot {
        &self.slots[usize::from(at)]
    }

    #[inline]
    pub fn slot_mut(&mut self, at: u8) -> &mut Slot {
        &mut self.slots[usize::from(at)]
    }

    /// Adds a request; false if the queue is full.
    #[inline]
    pub fn push(&mut self, slot: Slot) -> bool {
        if self.free == 0 {
            return false;
        }
        let at = self.free.trailing_zeros() as u8;
        self.free &= self.free - 1;
        self.len += 1;
        let bank = usize::from(slot.bank & 63);
        self.wanted[bank][row_class(slot.row)] += 1;
        self.slots[usize::from(at)] = slot;
        if self.heads[bank] == NONE {
            self.heads[bank] = at;
        } else {
            self.slots[usize::from(self.tails[bank])].next = at;
        }
        self.tails[bank] = at;
        true
    }

    /// Takes `at` out, which follows `before` in its bank's list.
    #[inline]
    pub fn remove(&mut self, at: u8, before: u8) -> &mut Slot {
        let Slot { next, bank, row, .. } = self.slots[usize::from(at)];
        let bank = usize::from(bank & 63);
        self.wanted[bank][row_class(row)] -= 1;
        if before == NONE {
            self.heads[bank] = next;
        } else {
            self.slots[usize::from(before)].next = next;
        }
        if next == NONE {
            self.tails[bank] = before;
        }
        self.free |= 1 << at;
        self.len -= 1;
        &mut self.slots[usize::from(at)]
    }

    /// The oldest request of a bank for a row, and the one before it in the list.
    #[inline]
    pub fn oldest_hit(&self, bank: usize, row: u32) -> Option<(u8, u8)> {
        if self.wanted[bank & 63][row_class(row)] == 0 {
            return None;
        }
        let (mut before, mut at) = (NONE, self.head(bank));
        while at != NONE {
            let slot = self.slot(at);
            if slot.row == row {
                return Some((at, before));
            }
            (before, at) = (at, slot.next);
        }
        None
    }

    /// Whether a request for this very address waits in a bank.
    pub fn holds(&self, bank: usize, pa: Pa) -> bool {
        let mut at = self.head(bank);
        while at != NONE {
            let slot = self.slot(at);
            if slot.pa == pa {
                return true;
            }
            at = slot.next;
        }
        false
    }
}
