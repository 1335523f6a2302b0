//! Counts by pairs of owners: the cause and the victim.

use crate::units::Owner;

/// A square matrix of event counts: `by` did something to what belonged to `of`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    owners: usize,
    counts: Box<[u64]>,
}

impl Matrix {
    /// All zero, for owners 0 to `owners` - 1.
    #[must_use]
    pub fn new(owners: usize) -> Self {
        Self { owners, counts: vec![0; owners * owners].into_boxed_slice() }
    }

    /// How many owners it has.
    #[must_use]
    pub fn owners(&self) -> usize {
        self.owners
    }

    /// Counts one event.
    ///
    /// # Panics
    /// If an owner is not below [`Matrix::owners`].
    #[inline]
    pub fn add(&mut self, by: Owner, of: Owner) {
        assert!(of.index() < self.owners, "owner {} of {}", of.0, self.owners);
        self.counts[by.index() * self.owners + of.index()] += 1;
    }

    /// What `by` did to `of`; 0 for owners that it does not have.
    #[must_use]
    pub fn get(&self, by: Owner, of: Owner) -> u64 {
        if of.index() >= self.owners {
            return 0;
        }
        self.counts.get(by.index() * self.owners + of.index()).copied().unwrap_or(0)
    }

    /// One row for each owner that did something; within it, one count for each that it was done
    /// to.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks(self.owners.max(1))
    }

    /// All events that `of` suffered, those by itself included.
    #[must_use]
    pub fn suffered(&self, of: Owner) -> u64 {
        self.rows().filter_map(|row| row.get(of.index())).sum()
    }

    /// All events.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The events in which one owner did something to another.
    #[must_use]
    pub fn between_owners(&self) -> u64 {
        let own: u64 = self.counts.iter().step_by(self.owners + 1).sum();
        self.total() - own
    }

    /// Adds the counts of a matrix with the same owners.
    ///
    /// # Panics
    /// If the numbers of owners differ.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.owners, other.owners, "matrices over different owners");
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_row_by_column_and_off_the_diagonal() {
        let mut m = Matrix::new(3);
        for (by, of, n) in [(0, 0, 5), (0, 2, 1), (1, 0, 2), (2, 2, 7)] {
            for _ in 0..n {
                m.add(Owner(by), Owner(of));
            }
        }
        assert_eq!(m.get(Owner(1), Owner(0)), 2);
        assert_eq!(m.suffered(Owner(0)), 7);
        assert_eq!((m.total(), m.between_owners()), (15, 3));
        assert_eq!((m.get(Owner(0), Owner(3)), m.get(Owner(3), Owner(0))), (0, 0));
        let mut twice = m.clone();
        twice.merge(&m);
        assert_eq!(twice.total(), 30);
        twice.clear();
        assert_eq!(twice, Matrix::new(3));
    }

    #[test]
    #[should_panic(expected = "owner 2 of 2")]
    fn an_owner_too_many_is_no_other_owners_count() {
        Matrix::new(2).add(Owner(0), Owner(2));
    }
}
