//! Who waited for whom.
//!
//! Each place where lines wait (the look-up of a second level, a port of the interconnect, a DRAM channel) keeps a list of whom it
//! served when. The time between two services is charged to the owner of the first one if somebody waits, so that the charges
//! of a wait add up to exactly its length. What passes while nobody else is being served (an own row being opened) is charged to
//! the one who waits.

use std::collections::VecDeque;

use crate::units::{Owner, Picos};

/// Services that a place remembers: more than lines can wait at it at once. What was longer ago counts as the waiter's own.
const REMEMBERED: usize = 256;

/// Whom a place served when.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// From a time on, in ascending order: the owner that was served then, or nobody.
    log: VecDeque<(Picos, Option<Owner>)>,
}

impl Served {
    /// From `at` on it serves this owner, or nobody.
    pub fn note(&mut self, at: Picos, owner: Option<Owner>) {
        while self.log.back().is_some_and(|(last, _)| *last >= at) {
            self.log.pop_back();
        }
        if self.log.len() == REMEMBERED {
            self.log.pop_front();
        }
        self.log.push_back((at, owner));
    }

    /// Charges a wait from `from` until `to`.
    pub fn charge(&self, waits: &mut Waits, victim: Owner, from: Picos, to: Picos) {
        let mut end = to;
        for &(at, owner) in self.log.iter().rev() {
            if end <= from {
                return;
            }
            if at < end {
                let start = at.max(from);
                waits.add(victim, owner.unwrap_or(victim), end.since(start));
                end = start;
            }
        }
        waits.add(victim, victim, end.since(from));
    }
}

/// For how long each owner's lines waited, by whom they waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    owners: usize,
    picos: Box<[u64]>,
}

impl Waits {
    pub(super) fn new(owners: usize) -> Self {
        Self { owners, picos: vec![0; owners * owners].into_boxed_slice() }
    }

    pub(super) fn add(&mut self, victim: Owner, culprit: Owner, time: Picos) {
        self.picos[victim.index() * self.owners + culprit.index()] += time.0;
    }

    /// How long `victim` waited for `culprit`; for itself: for its own other lines, and for what is nobody else's doing.
    #[must_use]
    pub fn get(&self, victim: Owner, culprit: Owner) -> Picos {
        let inside = victim.index() < self.owners && culprit.index() < self.owners;
        Picos(if inside { self.picos[victim.index() * self.owners + culprit.index()] } else { 0 })
    }

    /// All waiting of `victim`: what its lines took longer than lines that never wait.
    #[must_use]
    pub fn suffered(&self, victim: Owner) -> Picos {
        let row = self.picos.chunks(self.owners.max(1)).nth(victim.index());
        Picos(row.map_or(0, |row| row.iter().sum()))
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.picos.iter().zip(&earlier.picos);
        Self { owners: self.owners, picos: pairs.map(|(now, then)| now - then).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_charged_to_whom_was_served_meanwhile_and_adds_up() {
        let mut served = Served::default();
        served.note(Picos(10), Some(Owner(1)));
        served.note(Picos(20), Some(Owner(2)));
        served.note(Picos(35), None);
        let mut waits = Waits::new(3);
        served.charge(&mut waits, Owner(0), Picos(5), Picos(50));
        let row = [0, 1, 2].map(|by| waits.get(Owner(0), Owner(by)).0);
        assert_eq!(row, [5 + 15, 10, 15]);
        assert_eq!(waits.suffered(Owner(0)), Picos(45));
        served.charge(&mut waits, Owner(1), Picos(12), Picos(12));
        served.charge(&mut waits, Owner(1), Picos(12), Picos(14));
        assert_eq!(waits.get(Owner(1), Owner(1)), Picos(2));
        assert_eq!(waits.get(Owner(7), Owner(1)), Picos(0));
    }

    #[test]
    fn what_is_forgotten_is_the_waiters_own() {
        let mut served = Served::default();
        for at in 0..2 * REMEMBERED as u64 {
            served.note(Picos(at), Some(Owner(1)));
        }
        let mut waits = Waits::new(2);
        served.charge(&mut waits, Owner(0), Picos(0), Picos(2 * REMEMBERED as u64));
        assert_eq!(waits.get(Owner(0), Owner(1)), Picos(REMEMBERED as u64));
        assert_eq!(waits.suffered(Owner(0)), Picos(2 * REMEMBERED as u64));
    }
}
