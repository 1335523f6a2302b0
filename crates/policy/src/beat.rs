//! The tick that ends a core's turn where the cores run one after the other: QEMU's instruction counting runs one until the next deadline of any
//! timer, then the next.

use crate::Nanos;

/// Moments an `interval` apart, those of a system's cores spread evenly over it.
///
/// Any core's tick ends the turn of the core that runs. Were two ticks close to each other, and were they to stay so, a turn between them would be
/// next to nothing, and always the same core's: it would starve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    interval: u64,
    next: u64,
}

impl Beat {
    /// No tick ever.
    pub const NEVER: Self = Self { interval: 0, next: u64::MAX };

    /// Core `core`'s ticks, of `cores`; the first comes after `now`. None if `interval` is 0.
    #[must_use]
    pub fn new(interval: Nanos, (core, cores): (usize, usize), now: Nanos) -> Self {
        if interval.0 == 0 {
            return Self::NEVER;
        }
        let offset = u128::from(interval.0) * core as u128 / cores.max(1) as u128;
        let mut beat = Self { interval: interval.0, next: offset as u64 % interval.0 };
        beat.tick(now);
        beat
    }

    /// When the next tick is due; `u64::MAX` for never.
    #[inline]
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// A tick was due and comes at `now`: the next one is the first after that.
    #[inline]
    pub fn tick(&mut self, now: Nanos) {
        if self.next <= now.0 {
            // How late it came changes nothing about when the next one comes.
            let late = (now.0 - self.next).checked_rem(self.interval).unwrap_or(0);
            self.next = (now.0 - late).saturating_add(self.interval);
        }
    }
}
