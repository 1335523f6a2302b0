//! Attribution of waiting times to owners.
//!
//! Each place where lines wait (the lookup of a second level, a port of the interconnect, a DRAM
//! channel) keeps a list of the owners that it served and of the times. The time between two
//! services is charged to the owner of the first one if a line waits, so that the charges of a wait
//! add up to exactly its length. Time without another service (its own row is being opened) is
//! charged to the waiting owner.

use std::collections::VecDeque;

use crate::units::{Owner, Picos};

/// Services that a place remembers: more than lines can wait at it at once. What was longer ago
/// counts as the waiter's own.
const REMEMBERED: usize = 256;

/// The owners that a place served, with times.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// From a time on, in ascending order: the owner that was served then, if any.
    log: VecDeque<(Picos, Option<Owner>)>,
}

impl Served {
    /// Records that it serves this owner, or none, from `at` on.
    pub fn note(&mut self, at: Picos, owner: Option<Owner>) {
        while self.log.back().is_some_and(|(last, _)| *last >= at) {
            self.log.pop_back();
        }
        if self.log.len() == REMEMBERED {
            self.log.pop_front();
        }
        self.log.push_back((at, owner));
    }

    /// Charges a wait from `from` until `to` to the owners that were served in that time.
    pub fn charge(&self, charges: &mut Charges, from: Picos, to: Picos) {
        let mut end = to;
        for &(at, owner) in self.log.iter().rev() {
            if end <= from {
                return;
            }
            if at < end {
                let start = at.max(from);
                if let Some(owner) = owner {
                    charges.add(owner, start, end);
                }
                end = start;
            }
        }
    }
}

/// The waits of a line so far: owners, start and end.
#[derive(Clone, Debug, Default)]
pub(super) struct Charges(Vec<(Owner, Picos, Picos)>);

impl Charges {
    /// It waited for `culprit`.
    pub fn add(&mut self, culprit: Owner, from: Picos, to: Picos) {
        if from < to {
            self.0.push((culprit, from, to));
        }
    }

    /// It waits for the line of `other`, too, from `from` on.
    pub fn join(&mut self, other: &Self, from: Picos) {
        for &(culprit, start, end) in &other.0 {
            self.add(culprit, start.max(from), end);
        }
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Waiting time of each owner's lines, by the owner that they waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    owners: usize,
    picos: Box<[u64]>,
}

impl Waits {
    pub(super) fn new(owners: usize) -> Self {
        Self { owners, picos: vec![0; owners * owners].into_boxed_slice() }
    }

    /// A line of `victim` has come, `delay` later than one that never waits. A line can come sooner
    /// than the charges add up to (a waiting write has its data): then the charges beyond the delay
    /// lapse.
    pub(super) fn book(&mut self, victim: Owner, delay: Picos, charges: &Charges) {
        let mut left = delay.0;
        for &(culprit, from, to) in charges.0.iter().filter(|(culprit, ..)| *culprit != victim) {
            let part = to.since(from).0.min(left);
            self.picos[victim.index() * self.owners + culprit.index()] += part;
            left -= part;
        }
        self.picos[victim.index() * self.owners + victim.index()] += left;
    }

    /// How long `victim` waited for `culprit`. Its own share is the wait for its own lines and all
    /// time that no other owner caused.
    #[must_use]
    pub fn get(&self, victim: Owner, culprit: Owner) -> Picos {
        let inside = victim.index() < self.owners && culprit.index() < self.owners;
        Picos(if inside { self.picos[victim.index() * self.owners + culprit.index()] } else { 0 })
    }

    /// All waiting of `victim`: what its lines, as far as they were answered, took longer than
    /// lines that never wait.
    #[must_use]
    pub fn suffered(&self, victim: Owner) -> Picos {
        let row = self.picos.chunks(self.owners.max(1)).nth(victim.index());
        Picos(row.map_or(0, |row| row.iter().sum()))
    }

    /// The part added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.picos.iter().zip(&earlier.picos);
        Self { owners: self.owners, picos: pairs.map(|(now, then)| now - then).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(waits: &Waits, victim: u8) -> [u64; 3] {
        [0, 1, 2].map(|by| waits.get(Owner(victim), Owner(by)).0)
    }

    #[test]
    fn waits_are_charged_to_served_masters_and_add_up() {
        let mut served = Served::default();
        served.note(Picos(10), Some(Owner(1)));
        served.note(Picos(20), Some(Owner(2)));
        served.note(Picos(35), None);
        let mut charges = Charges::default();
        served.charge(&mut charges, Picos(5), Picos(50));
        let mut waits = Waits::new(3);
        waits.book(Owner(0), Picos(45), &charges);
        assert_eq!(row(&waits, 0), [5 + 15, 10, 15]);
        assert_eq!(waits.suffered(Owner(0)), Picos(45));
        // An access that joins a line later has not waited for earlier services.
        let mut joined = Charges::default();
        joined.join(&charges, Picos(15));
        waits.book(Owner(1), Picos(40), &joined);
        assert_eq!(row(&waits, 1), [0, 25, 15]);
        assert_eq!(waits.get(Owner(7), Owner(1)), Picos(0));
    }

    #[test]
    fn no_more_is_booked_than_the_line_was_late() {
        let mut charges = Charges::default();
        charges.add(Owner(1), Picos(0), Picos(10));
        charges.add(Owner(2), Picos(20), Picos(30));
        let mut waits = Waits::new(3);
        waits.book(Owner(0), Picos(12), &charges);
        assert_eq!(row(&waits, 0), [0, 10, 2]);
    }

    #[test]
    fn what_is_forgotten_is_the_waiters_own() {
        let mut served = Served::default();
        for at in 0..2 * REMEMBERED as u64 {
            served.note(Picos(at), Some(Owner(1)));
        }
        let mut charges = Charges::default();
        served.charge(&mut charges, Picos(0), Picos(2 * REMEMBERED as u64));
        let mut waits = Waits::new(3);
        waits.book(Owner(0), Picos(2 * REMEMBERED as u64), &charges);
        assert_eq!(row(&waits, 0), [REMEMBERED as u64, REMEMBERED as u64, 0]);
    }
}
