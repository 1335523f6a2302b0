//! Refreshes: one rank after the other, each as soon as its rows are closed.

use crate::dram::{controller::DramChannel, schedule::First, timing::Command};

impl DramChannel {
    /// The refresh that can be issued first: when, and its rank's first bank.
    #[inline]
    pub(super) fn first_refresh(&self) -> (u64, usize) {
        let floor = self.floor();
        let per_rank = self.device.shape().banks_per_rank();
        let mut first = (u64::MAX, 0);
        for rank in 0..self.refresh_due.len() {
            let empty = self.device.open_mask() & self.device.rank_mask(rank) == 0;
            if self.refreshing >> rank & 1 == 1 && empty {
                let at = self.device.earliest(Command::Refresh, rank * per_rank).max(floor);
                if at < first.0 {
                    first = (at, rank * per_rank);
                }
            }
        }
        first
    }

    /// The rank of a bank is to be refreshed: its rows are closed first.
    pub(super) fn start_refresh(&mut self, bank: usize) {
        self.refreshing |= 1 << self.device.rank_of(bank);
        self.find_next_due();
        self.first = First::UNKNOWN;
        for bank in bank..bank + self.device.shape().banks_per_rank() {
            self.want(bank);
        }
    }

    /// Finds the rank with the next refresh.
    fn find_next_due(&mut self) {
        let per_rank = self.device.shape().banks_per_rank();
        self.next_due = (u64::MAX, 0);
        for (rank, &due) in self.refresh_due.iter().enumerate() {
            if self.refreshing >> rank & 1 == 0 && due < self.next_due.0 {
                self.next_due = (due, rank * per_rank);
            }
        }
    }
    pub(super) fn refresh(&mut self, at: u64, bank: usize) {
        let rank = self.device.rank_of(bank);
        self.device.apply(Command::Refresh, bank, 0, at);
        self.stats.refreshes += 1;
        self.refresh_due[rank] += self.device.timing().refi;
        self.refreshing &= !(1 << rank);
        self.find_next_due();
        self.first = First::UNKNOWN;
        for bank in bank..bank + self.device.shape().banks_per_rank() {
            self.want(bank);
        }
    }

    /// An idle channel does nothing but refresh: of the refreshes up to `until` only the last of
    /// each rank is gone through, since it is all that a later request can notice.
    pub(super) fn skip_refreshes(&mut self, until: u64) {
        let refi = self.device.timing().refi;
        for rank in 0..self.refresh_due.len() {
            let due = self.refresh_due[rank];
            let skipped = until.saturating_sub(due) / refi;
            if skipped > 1 {
                self.refresh_due[rank] = due + skipped * refi;
                self.stats.refreshes += skipped;
                self.refreshing &= !(1 << rank);
                self.device.close_rank(rank);
                self.fresh &= !self.device.rank_mask(rank);
                self.find_next_due();
                self.want_all();
            }
        }
    }
}
