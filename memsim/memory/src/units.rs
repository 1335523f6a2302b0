//! Quantities with their unit in the type, and the name of an owner.

use core::ops::{Add, AddAssign, Mul, Sub};

pub use weir_units::{Bytes, Pa};

/// The originator of an access: a VM's number, or the number that the caller gave the hypervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u8);

impl Owner {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A point in simulated time, or a span of it, in picoseconds: fine enough for every clock of a
/// board, and 213 days long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Picos {
    /// So many nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns * 1000)
    }

    /// The span from `earlier` to here; 0 if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Picos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Picos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<u64> for Picos {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}
