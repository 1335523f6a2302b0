//! What each bank wants next, and which direction is served.

use crate::dram::{
    controller::DramChannel,
    queue::{NONE, Queue},
    schedule::{ACTIVATE, COLUMN, Candidate, First, Kind, PRECHARGE},
    timing::Command,
};

impl DramChannel {
    pub(super) fn queue_mut(&mut self) -> &mut Queue {
        if self.draining { &mut self.writes } else { &mut self.reads }
    }

    /// Changes the direction if it is time; whether it did.
    #[inline]
    pub(super) fn turn_if_needed(&mut self) -> bool {
        if !self.draining && self.writes.is_empty() {
            return false;
        }
        let reads = !self.reads.is_empty();
        let turn = if self.draining {
            reads && self.writes.len() <= self.policy.drain_to
        } else {
            !reads || self.writes.len() >= self.policy.drain_from
        };
        self.draining ^= turn;
        turn
    }

    pub(super) fn want_all(&mut self) {
        for bank in 0..self.device.shape().banks() {
            self.want(bank);
        }
    }

    /// Gives all requests new ages, from 1 on: 0 is for requests to close a bank for its refresh.
    #[cold]
    pub(super) fn renumber(&mut self) {
        let mut waiting: Vec<_> = self.reads.iter_mut().chain(self.writes.iter_mut()).collect();
        waiting.sort_by_key(|slot| slot.age);
        self.age = 1;
        for slot in waiting {
            slot.age = self.age;
            self.age += 1;
        }
        self.want_all();
    }

    /// Works out what a bank wants.
    #[inline]
    pub(super) fn want(&mut self, bank: usize) {
        self.first = First::UNKNOWN;
        if self.refreshing != 0 && self.refreshing >> self.device.rank_of(bank) & 1 == 1 {
            self.want_before_refresh(bank);
            return;
        }
        let queue = if self.draining { &self.writes } else { &self.reads };
        let head = queue.head(bank);
        if head == NONE {
            self.schedule.clear(bank);
            return;
        }
        let Some(row) = self.device.open_row(bank) else {
            self.candidate(bank, ACTIVATE, head, NONE);
            return;
        };
        match self.hit(bank, row) {
            Some((slot, before)) => self.candidate(bank, COLUMN, slot, before),
            None => self.candidate(bank, PRECHARGE, head, NONE),
        }
    }

    /// The same while the bank's rank is being emptied for a refresh: a row that was opened and not
    /// used yet is used once, then it is closed.
    #[inline(never)]
    fn want_before_refresh(&mut self, bank: usize) {
        let Some(row) = self.device.open_row(bank) else {
            self.schedule.clear(bank);
            return;
        };
        let fresh = self.fresh >> bank & 1 == 1;
        match self.hit(bank, row).filter(|_| fresh) {
            Some((slot, before)) => self.candidate(bank, COLUMN, slot, before),
            None => self.candidate(bank, PRECHARGE, NONE, NONE),
        }
    }

    /// The oldest request for a bank's open row, unless too many have passed an older one.
    #[inline]
    fn hit(&self, bank: usize, row: u32) -> Option<(u8, u8)> {
        let queue = if self.draining { &self.writes } else { &self.reads };
        let may_pass = self.passed[bank % 64] < self.policy.cap;
        queue.oldest_hit(bank, row).filter(|&(_, before)| before == NONE || may_pass)
    }

    #[inline]
    pub(super) fn column_command(&self) -> Command {
        if self.draining { Command::Write } else { Command::Read }
    }

    #[inline]
    fn candidate(&mut self, bank: usize, kind: Kind, slot: u8, before: u8) {
        let queue = if self.draining { &self.writes } else { &self.reads };
        let age = if slot == NONE { 0 } else { queue.slot(slot).age };
        self.schedule.set(bank, kind, age, Candidate { slot, before });
    }

    /// A request for `row` was added to the end of a bank's list. What the bank wants changes only
    /// if it wanted nothing, or was about to close the row that the newcomer hits.
    #[inline]
    pub(super) fn want_after_push(&mut self, bank: usize, row: u32) {
        match self.schedule.wanted(bank) {
            None => {}
            Some(PRECHARGE) if self.device.open_row(bank) == Some(row) => {}
            Some(_) => return,
        }
        self.want(bank);
    }
}
