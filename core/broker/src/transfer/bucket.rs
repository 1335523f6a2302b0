//! A token bucket over bytes.

const NS_PER_S: u128 = 1_000_000_000;

/// Lets `rate` bytes/s through and at most `burst` bytes more at once: in any time t no more than
/// `burst` + `rate` t bytes begin. Kept as the time at which the bucket is full again, rounded up,
/// so that it is never too generous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Bytes/s; 0 for no limit.
    rate: u64,
    /// Nanoseconds in which an empty bucket fills.
    burst_ns: u64,
    /// When it is full again, in ns.
    full_at: u64,
}

impl Bucket {
    /// Without a limit.
    pub(crate) const NONE: Self = Self { rate: 0, burst_ns: 0, full_at: 0 };

    /// A full bucket. `rate` is in bytes/s, 0 for no limit; a piece of more than `burst` bytes
    /// never begins before the bucket is full.
    #[must_use]
    pub fn new(rate: u64, burst: u64) -> Self {
        // Rounded down, as `full_at` is rounded up.
        let burst_ns = if rate == 0 { 0 } else { u128::from(burst) * NS_PER_S / u128::from(rate) };
        Self { rate, burst_ns: u64::try_from(burst_ns).unwrap_or(u64::MAX), full_at: 0 }
    }

    /// Nanoseconds that `bytes` take at the bucket's rate, rounded up.
    fn cost(&self, bytes: u64) -> u64 {
        let ns = (u128::from(bytes) * NS_PER_S).div_ceil(u128::from(self.rate.max(1)));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// The earliest time, in ns, at which `bytes` may begin.
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
