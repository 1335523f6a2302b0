//! Admission of interrupts: limits how many interrupts of a line take a core's time.

use weir_units::Nanos;

/// A token bucket: `burst` at once, and one more every `interval`. In any window of length t at
/// most `burst` + floor(t / `interval`) are admitted, as `weir_analysis::time::Admission` takes
/// them to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    interval: u64,
    /// Time that all tokens but one take to be earned.
    depth: u64,
    /// When the bucket is full again.
    full: u64,
}

impl TokenBucket {
    /// A full bucket. An interval of 0 is taken for 1 ns, a burst of 0 for 1.
    #[must_use]
    pub const fn new(burst: u64, interval: Nanos) -> Self {
        let interval = if interval.0 == 0 { 1 } else { interval.0 };
        Self { interval, depth: burst.saturating_sub(1).saturating_mul(interval), full: 0 }
    }

    /// Takes a token at `now`, or says when there will be one.
    ///
    /// # Errors
    ///
    /// The first moment at which there is a token, if none is taken before.
    pub const fn admit(&mut self, now: Nanos) -> Result<(), Nanos> {
        if self.full.saturating_sub(now.0) > self.depth {
            return Err(Nanos(self.full - self.depth));
        }
        let from = if self.full > now.0 { self.full } else { now.0 };
        self.full = from.saturating_add(self.interval);
        Ok(())
    }

    /// The first moment at which there is a token, if none is taken before; perhaps past.
    #[must_use]
    pub const fn credit(&self) -> Nanos {
        Nanos(self.full.saturating_sub(self.depth))
    }
}
