//! A token bucket over bytes.

const NS_PER_S: u64 = 1_000_000_000;

/// Admits `rate` bytes/s, and at most `burst` bytes more at once: in any time t at most `burst` +
/// `rate` t bytes begin. The state is the time at which the bucket is full again, rounded up, so
/// that the bucket never admits too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Bytes/s; 0 for no limit.
    rate: u64,
    /// Time in which an empty bucket fills, in ns.
    burst_ns: u64,
    /// Time at which the bucket is full again, in ns.
    full_at: u64,
}

impl Bucket {
    /// A bucket without a limit.
    pub(crate) const NONE: Self = Self { rate: 0, burst_ns: 0, full_at: 0 };

    /// Returns a full bucket. `rate` is in bytes/s, 0 for no limit; a piece of more than `burst`
    /// bytes never begins before the bucket is full.
    #[must_use]
    pub fn new(rate: u64, burst: u64) -> Self {
        // Rounded down, because `full_at` is rounded up; a burst of over 18 GB saturates.
        let burst_ns = burst.saturating_mul(NS_PER_S).checked_div(rate).unwrap_or(0);
        Self { rate, burst_ns, full_at: 0 }
    }

    /// Returns the time in ns that `bytes` take at the bucket's rate, rounded up. A piece of over
    /// 18 GB, which does not occur, takes forever; so a 64-bit division suffices.
    fn cost(&self, bytes: u64) -> u64 {
        bytes.checked_mul(NS_PER_S).map_or(u64::MAX, |ns| ns.div_ceil(self.rate.max(1)))
    }

    /// Returns the earliest time, in ns, at which `bytes` may begin.
    #[must_use]
    pub fn ready_at(&self, bytes: u64) -> u64 {
        if self.rate == 0 {
            return 0;
        }
        let empty_at = self.burst_ns.saturating_sub(self.cost(bytes));
        self.full_at.saturating_sub(empty_at)
    }

    /// Takes `bytes` that begin at `now`, in ns.
    pub fn take(&mut self, now: u64, bytes: u64) {
        if self.rate != 0 {
            self.full_at = self.full_at.max(now).saturating_add(self.cost(bytes));
        }
    }
}
