//! The budget of a group of vCPUs; their cores access it without a lock.

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

/// The budget of a group of vCPUs: those of one VM, or those of MemGuard's domain. Their cores
/// access it without a lock; it can be a `static`.
///
/// No word in it is ever reset: a value that belongs to a period includes the period's number.
#[derive(Debug)]
pub struct GroupBudget(pub(super) GroupWords<AtomicU64>);

impl GroupBudget {
    /// Returns the state at the start of the machine.
    #[must_use]
    pub const fn new() -> Self {
        Self(GroupWords {
            reads: Reserve::new(),
            writes: Reserve::new(),
            spent: Spent::new(),
            usage: Usage::new(),
            waiting: Waiting::new(),
            throttled: Waiting::new(),
        })
    }
}

impl Default for GroupBudget {
    fn default() -> Self {
        Self::new()
    }
}

/// The words of a [`GroupBudget`], of any kind.
#[derive(Debug)]
pub(super) struct GroupWords<W> {
    /// The reads that are left of the budget, or that were donated.
    reads: Reserve<W>,
    /// The writes that are left of the budget, or that were donated.
    writes: Reserve<W>,
    /// The members of MemGuard's domain that have spent their budgets.
    pub(super) spent: Spent<W>,
    /// The accesses that the vCPUs of a critical VM used.
    pub(super) usage: Usage<W>,
    /// The vCPUs to wake when budget is returned.
    pub(super) waiting: Waiting<W>,
    /// The suspended vCPUs; used if the domain has spare budget.
    pub(super) throttled: Waiting<W>,
}

impl<W: Word> GroupWords<W> {
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

    /// Takes up to `want` of the budget of `period`, which begins with `refill`. Returns the amount
    /// that was taken.
    pub(super) fn draw(&self, period: u64, refill: Counts, want: Counts) -> Counts {
        Counts {
            reads: self.reads.draw(period, refill.reads, want.reads),
            writes: self.writes.draw(period, refill.writes, want.writes),
        }
    }

    /// Adds to the budget of `period`. Returns the amount that could be added.
    pub(super) fn give(&self, period: u64, amount: Counts) -> Counts {
        Counts {
            reads: self.reads.give(period, amount.reads),
            writes: self.writes.give(period, amount.writes),
        }
    }
}
