/// Numbers of accesses: the counters of a core for the running vCPU since the machine started, or a
/// budget or limit. If there is a single budget, it is in `reads`, and `writes` is 0 in counts and
/// `u64::MAX` in budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Refills, or the event that the single budget counts.
    pub reads: u64,
    /// Write-backs.
    pub writes: u64,
}

impl Counts {
    /// No accesses.
    pub const ZERO: Self = Self { reads: 0, writes: 0 };
    /// As a limit: never reached by a counter in practice. As a budget: unlimited.
    pub const NEVER: Self = Self { reads: u64::MAX, writes: u64::MAX };

    /// Returns a single budget for all accesses.
    #[must_use]
    pub const fn one(budget: u64) -> Self {
        Self { reads: budget, writes: u64::MAX }
    }

    /// Returns whether one of the two counts has reached its limit.
    #[inline]
    #[must_use]
    pub const fn reached(self, limit: Self) -> bool {
        self.reads >= limit.reads || self.writes >= limit.writes
    }

    /// Returns whether one of the two is 0: with such a budget no vCPU runs.
    pub(super) const fn is_nothing(self) -> bool {
        self.reads == 0 || self.writes == 0
    }

    /// Returns the sums, at most `u64::MAX`.
    #[inline]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads.saturating_add(other.reads),
            writes: self.writes.saturating_add(other.writes),
        }
    }

    /// Returns the differences, at least 0.
    #[inline]
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(other.reads),
            writes: self.writes.saturating_sub(other.writes),
        }
    }

    /// Returns the differences modulo 2^64.
    #[inline]
    #[must_use]
    pub const fn wrapping_minus(self, other: Self) -> Self {
        Self {
            reads: self.reads.wrapping_sub(other.reads),
            writes: self.writes.wrapping_sub(other.writes),
        }
    }

    /// Returns the products, at most `u64::MAX`.
    #[inline]
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self {
            reads: self.reads.saturating_mul(factor),
            writes: self.writes.saturating_mul(factor),
        }
    }

    /// Returns the smaller value of each.
    #[inline]
    #[must_use]
    pub const fn least(self, other: Self) -> Self {
        Self {
            reads: if self.reads < other.reads { self.reads } else { other.reads },
            writes: if self.writes < other.writes { self.writes } else { other.writes },
        }
    }

    /// Returns the larger value of each.
    pub(super) const fn most(self, other: Self) -> Self {
        Self {
            reads: if self.reads > other.reads { self.reads } else { other.reads },
            writes: if self.writes > other.writes { self.writes } else { other.writes },
        }
    }

    /// Returns `percent` percent of each, rounded down.
    pub(super) const fn percent(self, percent: u8) -> Self {
        let percent = percent as u64;
        Self {
            reads: (self.reads / 100).saturating_mul(percent) + self.reads % 100 * percent / 100,
            writes: (self.writes / 100).saturating_mul(percent) + self.writes % 100 * percent / 100,
        }
    }

    /// Returns how much is missing for a count that has reached its limit: the excess, plus `more`;
    /// 0 for the other count.
    pub(super) const fn missing(self, limit: Self, more: Self) -> Self {
        self.minus(limit).plus(more).where_reached(self, limit)
    }

    /// Returns the values for which the count has reached its limit, and 0 for the other.
    pub(super) const fn where_reached(self, counts: Self, limit: Self) -> Self {
        Self {
            reads: if counts.reads >= limit.reads { self.reads } else { 0 },
            writes: if counts.writes >= limit.writes { self.writes } else { 0 },
        }
    }

    /// Returns the values, with 0 where the budget is unlimited.
    pub(super) const fn nothing_where_free(self, budget: Self) -> Self {
        Self {
            reads: if budget.reads == u64::MAX { 0 } else { self.reads },
            writes: if budget.writes == u64::MAX { 0 } else { self.writes },
        }
    }

    /// Returns the values, with `u64::MAX` where the budget is unlimited.
    pub(super) const fn never_where_free(self, budget: Self) -> Self {
        Self {
            reads: if budget.reads == u64::MAX { u64::MAX } else { self.reads },
            writes: if budget.writes == u64::MAX { u64::MAX } else { self.writes },
        }
    }
}
