//! Banks with open rows, without time: which accesses hit the open row, and closed rows per pair of
//! owners.

use crate::{
    dram::address::AddressMap,
    matrix::Matrix,
    units::{Owner, Pa},
};

/// The result of an access in its bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    /// Its row is open.
    Hit,
    /// No row is open: there was no access to this bank yet.
    Empty,
    /// Another row was open, last used by this owner, and is closed now.
    Conflict(Owner),
}

/// The counts of the banks, by owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankStats {
    /// Lines read or written.
    pub accesses: Box<[u64]>,
    /// Those to an open row.
    pub row_hits: Box<[u64]>,
    /// Closed rows per pair of owners. A row belongs to the owner that used it last.
    pub closed: Matrix,
}

#[derive(Clone, Copy, Debug)]
struct OpenRow {
    row: u32,
    open: bool,
    owner: Owner,
}

/// All banks of all channels under an open-page policy: a row stays open until another one of its
/// bank is needed.
#[derive(Clone, Debug)]
pub struct Banks {
    map: AddressMap,
    rows: Box<[OpenRow]>,
    stats: BankStats,
}

impl Banks {
    /// All rows closed; counts for owners 0 to `owners` - 1.
    #[must_use]
    pub fn new(map: AddressMap, owners: usize) -> Self {
        let closed = OpenRow { row: 0, open: false, owner: Owner(0) };
        let zero = vec![0; owners].into_boxed_slice();
        Self {
            rows: vec![closed; map.banks() as usize].into_boxed_slice(),
            map,
            stats: BankStats {
                accesses: zero.clone(),
                row_hits: zero,
                closed: Matrix::new(owners),
            },
        }
    }

    /// The address functions.
    #[must_use]
    pub fn map(&self) -> &AddressMap {
        &self.map
    }

    /// Reads or writes the line at an address.
    ///
    /// # Panics
    /// If the owner is not among those of [`Banks::new`].
    pub fn access(&mut self, pa: Pa, owner: Owner) -> RowOutcome {
        let at = self.map.locate(pa);
        let before = core::mem::replace(
            &mut self.rows[at.bank as usize],
            OpenRow { row: at.row, open: true, owner },
        );
        self.stats.accesses[owner.index()] += 1;
        if !before.open {
            RowOutcome::Empty
        } else if before.row == at.row {
            self.stats.row_hits[owner.index()] += 1;
            RowOutcome::Hit
        } else {
            self.stats.closed.add(owner, before.owner);
            RowOutcome::Conflict(before.owner)
        }
    }

    /// The counts.
    #[must_use]
    pub fn stats(&self) -> &BankStats {
        &self.stats
    }

    /// Forgets the counts; open rows stay open.
    pub fn clear_stats(&mut self) {
        self.stats.accesses.fill(0);
        self.stats.row_hits.fill(0);
        self.stats.closed.clear();
    }
}
