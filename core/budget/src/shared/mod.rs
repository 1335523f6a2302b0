//! What cores share, without a lock.

mod reserve;
mod spent;
mod usage;
mod waiting;

#[cfg(test)]
mod model;

pub(super) use reserve::{MOST, Reserve};
pub(super) use spent::{MAX_MEMBERS, Mark, Spent};
pub(super) use usage::Usage;
pub(super) use waiting::{Waiter, Waiting};

use crate::Counts;
use crate::word::{AtomicU64, Word};

/// What the cores share of one VM's budget, or of MemGuard's: lock-free, for a `static`.
///
/// Nothing in it is ever reset: what belongs to a period carries the period's number.
#[derive(Debug)]
pub struct Shared(pub(super) Parts<AtomicU64>);

impl Shared {
    /// As it is when the machine starts.
    #[must_use]
    pub const fn new() -> Self {
        Self(Parts {
            reads: Reserve::new(),
            writes: Reserve::new(),
            spent: Spent::new(),
            usage: Usage::new(),
            waiting: Waiting::new(),
            throttled: Waiting::new(),
        })
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

/// [`Shared`] on any kind of word.
#[derive(Debug)]
pub(super) struct Parts<W> {
    /// What is left of the budget of reads, or was donated of them.
    reads: Reserve<W>,
    /// The same of writes.
    writes: Reserve<W>,
    /// The members of MemGuard's domain that have spent their budgets.
    pub(super) spent: Spent<W>,
    /// What a critical VM's vCPUs used.
    pub(super) usage: Usage<W>,
    /// The vCPUs to wake when budget is returned.
    pub(super) waiting: Waiting<W>,
    /// The suspended vCPUs, where the domain has spare budget.
    pub(super) throttled: Waiting<W>,
}

impl<W: Word> Parts<W> {
    #[cfg(test)]
    fn on(word: impl Fn() -> W) -> Self {
        Self {
            reads: Reserve::on(word()),
            writes: Reserve::on(word()),
            spent: Spent::on(word()),
            usage: Usage::on(&word),
            waiting: Waiting::on(word()),
            throttled: Waiting::on(word()),
        }
    }

    /// Takes up to `want` of what there is in `period`, at first `refill`.
    pub(super) fn draw(&self, period: u64, refill: Counts, want: Counts) -> Counts {
        Counts {
            reads: self.reads.draw(period, refill.reads, want.reads),
            writes: self.writes.draw(period, refill.writes, want.writes),
        }
    }

    /// Adds to what there is in `period`; what could be added.
    pub(super) fn give(&self, period: u64, amount: Counts) -> Counts {
        Counts {
            reads: self.reads.give(period, amount.reads),
            writes: self.writes.give(period, amount.writes),
        }
    }
}
