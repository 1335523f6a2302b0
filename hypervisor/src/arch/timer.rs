//! The architected timers as EL2 uses them: the time since the start, and the deadline of EL2's own
//! timer (CNTHP).

use super::{
    isb,
    sysreg::{cntfrq_el0, cnthp_ctl_el2, cnthp_cval_el2, cntpct_el0},
};
use core::sync::atomic::{AtomicU64, Ordering};

/// Conversion factors between counter ticks and time. They are in one struct so that one base
/// address reaches all of them.
struct Clock {
    /// Value of the counter when the hypervisor started.
    start: AtomicU64,
    /// Nanoseconds per tick, rounded down.
    tick: Factor,
    /// Ticks per nanosecond, rounded up.
    nanosecond: Factor,
    /// 0 if a nanosecond is a whole number of ticks, else 1.
    round: AtomicU64,
}

static CLOCK: Clock = Clock {
    start: AtomicU64::new(0),
    tick: Factor::new(),
    nanosecond: Factor::new(),
    round: AtomicU64::new(0),
};

/// A fixed-point factor with 64 fractional bits, so that a change of units needs no division.
struct Factor {
    whole: AtomicU64,
    part: AtomicU64,
}

impl Factor {
    const fn new() -> Self {
        Self { whole: AtomicU64::new(0), part: AtomicU64::new(0) }
    }

    /// Sets the factor to `dividend / divisor`, numbers below 2^63, rounded down; returns the
    /// remainder of the division to 64 fractional bits.
    #[inline(never)]
    fn set(&self, dividend: u64, divisor: u64) -> u64 {
        let (mut rest, mut part) = (dividend % divisor, 0);
        for _ in 0..64 {
            rest <<= 1;
            part <<= 1;
            if rest >= divisor {
                rest -= divisor;
                part |= 1;
            }
        }
        self.whole.store(dividend / divisor, Ordering::Relaxed);
        self.part.store(part, Ordering::Relaxed);
        rest
    }

    /// Returns `n` times the factor, rounded down: within 1 of the exact product. `n` is below 2^60
    /// divided by the factor.
    #[inline(always)]
    fn times(&self, n: u64) -> u64 {
        let part = u128::from(n) * u128::from(self.part.load(Ordering::Relaxed));
        n.wrapping_mul(self.whole.load(Ordering::Relaxed)).wrapping_add((part >> 64) as u64)
    }
}

/// Sets the origin of the hypervisor's time to now.
#[inline(never)]
pub fn start() {
    let hz = cntfrq_el0::read().clamp(1, u64::from(u32::MAX));
    CLOCK.tick.set(1_000_000_000, hz);
    let rest = CLOCK.nanosecond.set(hz, 1_000_000_000);
    let part = CLOCK.nanosecond.part.load(Ordering::Relaxed) + u64::from(rest != 0);
    CLOCK.nanosecond.part.store(part, Ordering::Relaxed);
    CLOCK.round.store(u64::from(part != 0), Ordering::Relaxed);
    CLOCK.start.store(cntpct_el0::read(), Ordering::Relaxed);
}

/// Returns the ticks of the counter per second, and its value at [`start`].
#[must_use]
pub fn base() -> (u64, u64) {
    (cntfrq_el0::read(), CLOCK.start.load(Ordering::Relaxed))
}

/// Returns the nanoseconds since [`start`]. Frequent paths inline [`ns_at`] instead.
#[inline(never)]
#[must_use]
pub fn now_ns() -> u64 {
    ns_at(ticks())
}

/// Returns the value of the physical counter.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    cntpct_el0::read()
}

/// Returns the nanoseconds from [`start`] until the counter was `ticks`, rounded down.
#[inline(always)]
#[must_use]
pub fn ns_at(ticks: u64) -> u64 {
    CLOCK.tick.times(ticks.wrapping_sub(CLOCK.start.load(Ordering::Relaxed)))
}

/// Returns the nanoseconds from [`start`] until the counter is at `ticks`, rounded up; 0 if that is
/// before [`start`].
#[must_use]
pub fn due_ns(ticks: u64) -> u64 {
    let ticks = ticks.saturating_sub(CLOCK.start.load(Ordering::Relaxed));
    let hz = cntfrq_el0::read().max(1);
    (ticks / hz)
        .saturating_mul(1_000_000_000)
        .saturating_add((ticks % hz * 1_000_000_000).div_ceil(hz))
}

/// Arms this core's EL2 timer to fire `ns` nanoseconds after [`start`], never earlier and at most
/// two ticks later; if `ns` is `u64::MAX`, it never fires.
#[inline(always)]
pub fn fire_at(ns: u64) {
    /// More than nine years.
    const FAR: u64 = 1 << 58;
    fire_next_at(ns.min(FAR));
    cnthp_ctl_el2::write(u64::from(ns != u64::MAX));
}

/// Arms this core's EL2 timer, which must be running, for `ns` nanoseconds after [`start`], a time
/// that is near.
#[inline(always)]
pub fn fire_next_at(ns: u64) {
    let ticks = CLOCK.nanosecond.times(ns) + CLOCK.round.load(Ordering::Relaxed);
    cnthp_cval_el2::write(CLOCK.start.load(Ordering::Relaxed).wrapping_add(ticks));
}

/// Stops this core's EL2 timer until [`fire_at`]. Its interrupt is no longer pending.
pub fn stop() {
    cnthp_ctl_el2::write(0);
    isb();
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::arch::machine::{set, value};
    use std::sync::Mutex;

    /// A lock that a test holds if it calls [`start`], because all threads share the clock.
    pub static CLOCK_USER: Mutex<()> = Mutex::new(());

    /// Frequencies of the counter in Hz: those of boards, of QEMU, and odd ones.
    const FREQUENCIES: [u64; 7] =
        [1_000_000, 19_200_000, 24_000_000, 54_000_000, 62_500_000, 99_999_001, 1_000_000_000];

    #[test]
    fn time_needs_no_division_and_is_never_early() {
        let _user = CLOCK_USER.lock();
        for hz in FREQUENCIES {
            set("cntfrq_el0", hz);
            set("cntpct_el0", 500);
            start();
            for ticks in [0, 1, 2, 3, 999, hz - 1, hz, hz + 1, 7 * hz + 3, 1_000_000 * hz + 5] {
                let exact = (u128::from(ticks) * 1_000_000_000 / u128::from(hz)) as u64;
                let ns = ns_at(ticks + 500);
                assert!(ns <= exact && exact - ns <= 1, "{ticks} at {hz} Hz: {ns}, not {exact}");
            }
            for ns in [0, 1, 2, 15, 16, 17, 1_000, 999_999, 1_000_000_000, 86_400_000_000_123] {
                fire_at(ns);
                let fires = value("cnthp_cval_el2");
                assert!(ns_at(fires) >= ns, "{ns} ns at {hz} Hz");
                let exact = (u128::from(ns) * u128::from(hz)).div_ceil(1_000_000_000) as u64;
                assert!(fires - 500 <= exact + 1, "{ns} ns at {hz} Hz: {fires}");
                assert_eq!(value("cnthp_ctl_el2"), 1);
            }
        }
        fire_at(u64::MAX);
        assert_eq!(value("cnthp_ctl_el2"), 0);
    }
}
