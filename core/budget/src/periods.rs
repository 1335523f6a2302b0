use core::num::NonZeroU64;
use weir_units::Nanos;

/// The times at which budgets are replenished: `phase` and every `period` after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Periods {
    period: NonZeroU64,
    phase: u64,
}

impl Periods {
    /// Returns boundaries at multiples of `period`, the same on all cores. A period of 0 is treated
    /// as 1 ns.
    #[must_use]
    pub const fn aligned(period: Nanos) -> Self {
        Self::with_phase(period, Nanos(0))
    }

    /// Returns the boundaries of `core` among `cores` cores, evenly spread over the period, so that
    /// the cores' budgets are not replenished at the same time. If `cores` is 0, they are aligned.
    #[must_use]
    pub const fn staggered(period: Nanos, core: u8, cores: u8) -> Self {
        if cores == 0 {
            return Self::aligned(period);
        }
        let (share, rest) = (period.0 / cores as u64, period.0 % cores as u64);
        let place = (core % cores) as u64;
        Self::with_phase(period, Nanos(share * place + rest * place / cores as u64))
    }

    /// Returns boundaries at `phase` modulo `period`.
    #[must_use]
    pub const fn with_phase(period: Nanos, phase: Nanos) -> Self {
        let period = match NonZeroU64::new(period.0) {
            Some(period) => period,
            None => NonZeroU64::MIN,
        };
        Self { period, phase: phase.0 % period.get() }
    }

    /// Returns the time between two boundaries.
    #[must_use]
    pub const fn period(&self) -> Nanos {
        Nanos(self.period.get())
    }

    /// Returns the first boundary, which is less than a period after the machine's start.
    #[must_use]
    pub const fn phase(&self) -> Nanos {
        Nanos(self.phase)
    }

    /// Returns how many boundaries lie at or before `now`. The start of the machine counts only if
    /// it is a boundary.
    #[must_use]
    pub const fn index(&self, now: Nanos) -> u64 {
        match now.0.checked_sub(self.phase) {
            Some(since) => (since / self.period.get()).saturating_add(1),
            None => 0,
        }
    }

    /// Returns the first boundary after `now`; `u64::MAX` if that is past the end of time.
    #[must_use]
    pub const fn next(&self, now: Nanos) -> Nanos {
        match now.0.checked_sub(self.phase) {
            Some(since) => {
                Nanos((now.0 - since % self.period.get()).saturating_add(self.period.get()))
            }
            None => Nanos(self.phase),
        }
    }
}
