//! What a command that is issued means for the bank's requests and for what the bank wants next.

use crate::dram::{
    controller::DramChannel,
    queue::NONE,
    request::{Done, RowUse},
    schedule::{ACTIVATE, COLUMN, Candidate, First, PRECHARGE},
    timing::Command,
};

impl DramChannel {
    #[inline]
    pub(super) fn column<const WRITE: bool>(
        &mut self,
        at: u64,
        bank: usize,
        done: &mut impl FnMut(Done),
    ) {
        let command = if WRITE { Command::Write } else { Command::Read };
        let Candidate { slot, before } = self.schedule.candidate(bank);
        let slot = *if WRITE { &mut self.writes } else { &mut self.reads }.remove(slot, before);
        self.device.apply(command, bank, slot.row, at);
        self.fresh &= !(1 << bank);
        self.passed[bank % 64] += u32::from(before != NONE);
        self.row_owner[bank % 64] = slot.owner;
        self.stats.row_hits += u64::from(slot.row_use == RowUse::Hit);
        self.stats.row_conflicts += u64::from(slot.row_use == RowUse::Conflict);
        let timing = self.device.timing();
        let latency = if WRITE { timing.cwl } else { timing.cl } + timing.burst;
        *(if WRITE { &mut self.stats.writes } else { &mut self.stats.reads }) += 1;
        done(Done {
            id: slot.id,
            owner: slot.owner,
            write: WRITE,
            at: at + latency,
            arrived: slot.arrived,
            row: slot.row_use,
        });
        if self.turn_if_needed() {
            self.want_all();
        } else {
            self.want(bank);
        }
    }

    #[inline]
    pub(super) fn activate(&mut self, at: u64, bank: usize) {
        let candidate = self.schedule.candidate(bank);
        let slot = self.queue_mut().slot_mut(candidate.slot);
        if slot.row_use == RowUse::Hit {
            slot.row_use = RowUse::Empty;
        }
        let (row, owner) = (slot.row, slot.owner);
        self.passed[bank % 64] = 0;
        self.fresh |= 1 << bank;
        self.row_owner[bank % 64] = owner;
        self.first = First::UNKNOWN;
        self.device.apply(Command::Activate, bank, row, at);
        // The row was opened for the bank's oldest request, so that is the oldest that hits.
        self.schedule.goes_on::<ACTIVATE, COLUMN>(bank);
    }

    #[inline]
    pub(super) fn precharge(&mut self, at: u64, bank: usize) {
        self.fresh &= !(1 << bank);
        self.first = First::UNKNOWN;
        let candidate = self.schedule.candidate(bank);
        // A row that is closed for a refresh is not closed for a request.
        let for_request = candidate.slot != NONE;
        if for_request {
            let of = self.row_owner[bank % 64];
            let slot = self.queue_mut().slot_mut(candidate.slot);
            slot.row_use = RowUse::Conflict;
            let by = slot.owner;
            self.stats.closed.add(by, of);
        }
        self.device.apply(Command::Precharge, bank, 0, at);
        if for_request {
            self.schedule.goes_on::<PRECHARGE, ACTIVATE>(bank);
        } else {
            self.schedule.clear(bank);
        }
    }
}
