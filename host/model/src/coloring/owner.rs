//! The owners of page classes, and their keys.

use crate::classes::part::Part;
use std::{collections::BTreeSet, ops::Range};
use weir_units::Bytes;

/// The colors or the banks of an owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Owned {
    /// Its numbers, if it requested some.
    pub numbers: Option<BTreeSet<u16>>,
    /// By the name of this group.
    pub group: Option<String>,
    /// The key is "auto".
    pub auto: bool,
    pub span: Range<usize>,
}

/// An owner of page classes: the hypervisor, which comes first, or a VM.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub name: String,
    pub criticality: u64,
    /// With its tables and its pristine image.
    pub memory: u64,
    /// Its RAM alone.
    pub ram: Bytes,
    pub working_set: Option<Bytes>,
    pub span: Range<usize>,
    pub colors: Owned,
    pub banks: Owned,
}

impl Owner {
    /// Whether the file sets the numbers of a part, or names a group that does.
    pub const fn names(&self, part: Part) -> bool {
        let owned = self.part(part);
        owned.numbers.is_some() && !owned.auto
    }

    pub const fn part(&self, part: Part) -> &Owned {
        match part {
            Part::Colors => &self.colors,
            Part::Banks => &self.banks,
        }
    }

    pub const fn part_mut(&mut self, part: Part) -> &mut Owned {
        match part {
            Part::Colors => &mut self.colors,
            Part::Banks => &mut self.banks,
        }
    }
}

/// About what a VM with so much RAM takes: the tables that map it page by page are a 512th. Its
/// pristine image comes on top.
pub(super) const fn with_tables(memory: u64) -> u64 {
    memory + memory / 64 + (2 << 20)
}
