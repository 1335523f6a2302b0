/// Numbers of accesses: what a core's counters say for the running vCPU since the machine started,
/// or a budget or limit of such. Where there is one budget it is on `reads`, and `writes` is 0 in
/// counts and `u64::MAX` in budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Refills, or the event that the single budget counts.
    pub reads: u64,
    /// Write-backs.
    pub writes: u64,
}

impl Counts {
    /// Nothing.
    pub const ZERO: Self = Self { reads: 0, writes: 0 };
    /// As a limit: not reached by any counter in practice. As a budget: no budget.
    pub const NEVER: Self = Self { reads: u64::MAX, writes: u64::MAX };

    /// One budget for all accesses.
    #[must_use]
    pub const fn one(budget: u64) -> Self {
        Self { reads: budget, writes: u64::MAX }
    }

    /// Whether one of the two has come to its limit.
    #[inline]
    #[must_use]
    pub const fn reached(self, limit: Self) -> bool {
        self.reads >= limit.reads || self.writes >= limit.writes
    }

    /// Whether one of the two is 0: a budget with which no vCPU runs.
    pub(super) const fn is_nothing(self) -> bool {
        self.reads == 0 || self.writes == 0
    }

    /// The sums, at most `u64::MAX`.
    #[inline]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads.saturating_add(other.reads),
            writes: self.writes.saturating_add(other.writes),
        }
    }

    /// The differences, at least 0.
    #[inline]
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(other.reads),
            writes: self.writes.saturating_sub(other.writes),
        }
    }

    /// The differences modulo 2^64.
    #[inline]
    #[must_use]
    pub const fn wrapping_minus(self, other: Self) -> Self {
        Self {
            reads: self.reads.wrapping_sub(other.reads),
            writes: self.writes.wrapping_sub(other.writes),
        }
    }

    /// The products, at most `u64::MAX`.
    #[inline]
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self {
            reads: self.reads.saturating_mul(factor),
            writes: self.writes.saturating_mul(factor),
        }
    }

    /// The smaller of each.
    #[inline]
    #[must_use]
    pub const fn least(self, other: Self) -> Self {
        Self {
            reads: if self.reads < other.reads { self.reads } else { other.reads },
            writes: if self.writes < other.writes { self.writes } else { other.writes },
        }
    }

    /// The larger of each.
    pub(super) const fn most(self, other: Self) -> Self {
        Self {
            reads: if self.reads > other.reads { self.reads } else { other.reads },
            writes: if self.writes > other.writes { self.writes } else { other.writes },
        }
    }

    /// So many percent of each, rounded down.
    pub(super) const fn percent(self, percent: u8) -> Self {
        let percent = percent as u64;
        Self {
            reads: (self.reads / 100).saturating_mul(percent) + self.reads % 100 * percent / 100,
            writes: (self.writes / 100).saturating_mul(percent) + self.writes % 100 * percent / 100,
        }
    }

    /// What is missing of the one that has reached its limit: the excess, and `more`.
    pub(super) const fn missing(self, limit: Self, more: Self) -> Self {
        self.minus(limit).plus(more).where_reached(self, limit)
    }

    /// 0 but where a count has reached its limit.
    pub(super) const fn where_reached(self, counts: Self, limit: Self) -> Self {
        Self {
            reads: if counts.reads >= limit.reads { self.reads } else { 0 },
            writes: if counts.writes >= limit.writes { self.writes } else { 0 },
        }
    }

    /// 0 where there is no budget.
    pub(super) const fn nothing_where_free(self, budget: Self) -> Self {
        Self {
            reads: if budget.reads == u64::MAX { 0 } else { self.reads },
            writes: if budget.writes == u64::MAX { 0 } else { self.writes },
        }
    }

    /// `u64::MAX` where there is no budget.
    pub(super) const fn never_where_free(self, budget: Self) -> Self {
        Self {
            reads: if budget.reads == u64::MAX { u64::MAX } else { self.reads },
            writes: if budget.writes == u64::MAX { u64::MAX } else { self.writes },
        }
    }
}
