//! Conversion of counter values to times, without a division for each packet.

const NS_PER_S: u64 = 1_000_000_000;

/// The counter: its frequency, and its value at time 0.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: u64,
    hertz: u64,
    /// Nanoseconds per tick: the whole part, and the fraction times 2^64, rounded down.
    whole: u64,
    part: u64,
}

impl Clock {
    /// Returns a clock for a counter with `hertz` ticks per second that is at `start` at time 0.
    #[must_use]
    pub fn new(start: u64, hertz: u64) -> Self {
        let hertz = hertz.max(1);
        let (mut rest, mut part) = (NS_PER_S % hertz, 0);
        // A 128-bit division, which is done only once.
        for _ in 0..u64::BITS {
            let is_one = rest >= hertz.div_ceil(2);
            rest = if is_one { rest - (hertz - rest) } else { 2 * rest };
            part = part << 1 | u64::from(is_one);
        }
        Self { start, hertz, whole: NS_PER_S / hertz, part }
    }

    /// Returns the time at which the counter is at `ticks`, in ns, rounded down.
    #[inline]
    #[must_use]
    pub const fn ns(&self, ticks: u64) -> u64 {
        let ticks = ticks.wrapping_sub(self.start);
        let part = ((ticks as u128 * self.part as u128) >> 64) as u64;
        let ns = ticks.wrapping_mul(self.whole).wrapping_add(part);
        // `part` is rounded down, so the result so far is at most one too small.
        let rest = ticks.wrapping_mul(NS_PER_S).wrapping_sub(ns.wrapping_mul(self.hertz));
        ns.wrapping_add((rest >= self.hertz) as u64)
    }

    /// Returns the counter value at the time `ns`, rounded up.
    #[inline]
    #[must_use]
    pub const fn ticks(&self, ns: u64) -> u64 {
        let part = (ns % NS_PER_S * self.hertz).div_ceil(NS_PER_S);
        let ticks = (ns / NS_PER_S).wrapping_mul(self.hertz).wrapping_add(part);
        self.start.wrapping_add(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_are_exact_at_each_frequency(
            hertz in 1_000u64..=4_000_000_000, seconds in 0u64..10_000_000, part in any::<u64>(),
        ) {
            let clock = Clock::new(77, hertz);
            let ticks = seconds * hertz + part % hertz;
            let exact = u128::from(ticks) * u128::from(NS_PER_S) / u128::from(hertz);
            prop_assert_eq!(u128::from(clock.ns(77 + ticks)), exact);
            let ns = exact as u64;
            let least = (u128::from(ns) * u128::from(hertz)).div_ceil(u128::from(NS_PER_S));
            prop_assert_eq!(u128::from(clock.ticks(ns)), 77 + least);
        }
    }

    #[test]
    fn a_counter_in_ns_is_its_own_time() {
        let clock = Clock::new(0, NS_PER_S);
        assert_eq!([0, 1, u64::MAX].map(|ticks| clock.ns(ticks)), [0, 1, u64::MAX]);
        assert_eq!(Clock::new(0, 0).ns(3), 3 * NS_PER_S, "no frequency is taken as 1 Hz");
    }
}
