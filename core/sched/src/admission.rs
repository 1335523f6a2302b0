//! Admission of interrupts: limits how many interrupts of a device take a core's time.

use weir_units::Nanos;

/// A token bucket: `burst` interrupts at once, and one more every `interval`. In any window of
/// length t it admits at most `burst` + floor(t / `interval`), as `weir_analysis::time::Admission`
/// assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    interval: u64,
    /// The time in which all tokens but one are earned.
    depth: u64,
    /// Time at which the bucket is full again.
    full: u64,
}

impl TokenBucket {
    /// Returns a full bucket. An interval of 0 is treated as 1 ns, a burst of 0 as 1.
    #[must_use]
    pub const fn new(burst: u64, interval: Nanos) -> Self {
        let interval = if interval.0 == 0 { 1 } else { interval.0 };
        Self { interval, depth: burst.saturating_sub(1).saturating_mul(interval), full: 0 }
    }

    /// Takes a token at `now`, or returns when there will be one.
    ///
    /// # Errors
    ///
    /// Returns the earliest time at which there is a token, if none is taken before.
    pub const fn admit(&mut self, now: Nanos) -> Result<(), Nanos> {
        if self.full.saturating_sub(now.0) > self.depth {
            return Err(Nanos(self.full - self.depth));
        }
        let from = if self.full > now.0 { self.full } else { now.0 };
        self.full = from.saturating_add(self.interval);
        Ok(())
    }

    /// Returns the earliest time at which there is a token, if none is taken before; it may be in
    /// the past.
    #[must_use]
    pub const fn credit(&self) -> Nanos {
        Nanos(self.full.saturating_sub(self.depth))
    }
}
