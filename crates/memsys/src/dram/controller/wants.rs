//! What each bank wants next, and which direction is served.

use crate::dram::{
    controller::Channel,
    queue::{NONE, Queue},
    schedule::{ACTIVATE, COLUMN, First, Kind, PRECHARGE, Wish},
    timing::Command,
};

impl Channel {
    pub(super) fn queue_mut(&mut self) -> &mut Queue {
        if self.draining { &mut self.writes } else { &mut self.reads }
    }

    /// Changes the direction if it is time; whether it did.
    #[inline]
    pub(super) fn turn_if_needed(&mut self) -> bool {
        let reads = !self.reads.is_empty();
        let turn = if self.draining {
            reads && self.writes.len() <= self.policy.drain_to
        } else {
            !self.writes.is_empty() && (!reads || self.writes.len() >= self.policy.drain_from)
        };
        self.draining ^= turn;
        turn
    }

    pub(super) fn want_all(&mut self) {
        for bank in 0..self.device.shape().banks() {
            self.want(bank);
        }
    }

    /// Gives all requests new ages, from 1 on: 0 is for those who want a bank closed for its refresh.
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
        let queue = if self.draining { &self.writes } else { &self.reads };
        let head = queue.head(bank);
        let refreshing =
            self.refreshing != 0 && self.refreshing >> self.device.rank_of(bank) & 1 == 1;
        if head == NONE && !refreshing {
            self.schedule.clear(bank);
            return;
        }
        let Some(row) = self.device.open_row(bank) else {
            if refreshing {
                self.schedule.clear(bank);
            } else {
                self.wish(bank, ACTIVATE, head, NONE);
            }
            return;
        };
        let hit = if refreshing && self.fresh >> bank & 1 == 0 {
            None
        } else {
            queue.oldest_hit(bank, row)
        };
        let hit = hit.filter(|&(at, _)| at == head || self.passed[bank % 64] < self.policy.cap);
        if let Some((slot, before)) = hit {
            self.wish(bank, COLUMN, slot, before);
        } else if refreshing {
            self.wish(bank, PRECHARGE, NONE, NONE);
        } else {
            self.wish(bank, PRECHARGE, head, NONE);
        }
    }

    #[inline]
    pub(super) fn column_command(&self) -> Command {
        if self.draining { Command::Write } else { Command::Read }
    }

    #[inline]
    fn wish(&mut self, bank: usize, kind: Kind, slot: u8, before: u8) {
        let queue = if self.draining { &self.writes } else { &self.reads };
        let age = if slot == NONE { 0 } else { queue.slot(slot).age };
        let command = match kind {
            ACTIVATE => Command::Activate,
            PRECHARGE => Command::Precharge,
            _ => self.column_command(),
        };
        let ready = self.device.ready(command);
        self.schedule.set(bank, kind, ready, age, Wish { slot, before });
    }

    /// A request for `row` was added to the end of a bank's list. What the bank wants changes only if it wanted
    /// nothing, or was about to close the row that the newcomer hits.
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
