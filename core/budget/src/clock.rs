use crate::{Periods, Setting};
use weir_units::Nanos;

/// The position of a vCPU in its periods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    periods: Periods,
    /// The end of this period; 0 before the start.
    next: u64,
}

impl Clock {
    pub(super) const fn new(setting: &Setting) -> Self {
        Self { periods: setting.periods(), next: 0 }
    }

    pub(super) const fn has_started(&self) -> bool {
        self.next != 0
    }

    /// Returns how many period boundaries lie between the last step and `now`. The end of the
    /// present period becomes the first boundary after `now`. The start counts as a boundary.
    #[inline]
    pub(super) fn passed(&mut self, now: Nanos) -> u64 {
        if now.0 < self.next {
            return 0;
        }
        let after = self.next.saturating_add(self.periods.period().0);
        if now.0 < after && self.has_started() {
            self.next = after;
            return 1;
        }
        self.passed_several(now)
    }

    /// Begins the next period if `now` is in it. Returns the end of that period.
    #[inline]
    pub(super) const fn begin_next(&mut self, now: Nanos) -> Option<Nanos> {
        let after = self.next.saturating_add(self.periods.period().0);
        if !self.has_started() || now.0 < self.next || now.0 >= after {
            return None;
        }
        self.next = after;
        Some(Nanos(after))
    }

    #[cold]
    fn passed_several(&mut self, now: Nanos) -> u64 {
        if self.next == u64::MAX {
            return 0; // no boundary: the end of time
        }
        let passed = self.periods.index(now).saturating_sub(self.periods.index(Nanos(self.next)));
        self.next = self.periods.next(now).0;
        passed.saturating_add(1)
    }

    /// Returns the number of the period that contains `now`, from 1 on if the phase is 0.
    pub(super) const fn index(&self, now: Nanos) -> u64 {
        self.periods.index(now)
    }
}
