//! The architected timers as EL2 uses them: time since start, and the deadline of its own timer
//! (CNTHP).

use super::sysreg::{cntfrq_el0, cnthp_ctl_el2, cnthp_cval_el2, cntpct_el0};
use core::sync::atomic::{AtomicU64, Ordering};

/// The counter when the hypervisor started.
static START: AtomicU64 = AtomicU64::new(0);

/// Calls this moment zero.
pub fn start() {
    START.store(cntpct_el0::read(), Ordering::Relaxed);
}

/// Ticks of the counter a second, and its value at [`start`].
#[must_use]
pub fn base() -> (u64, u64) {
    (cntfrq_el0::read(), START.load(Ordering::Relaxed))
}

/// Nanoseconds since [`start`].
#[must_use]
pub fn now_ns() -> u64 {
    ns_at(ticks())
}

/// The counter.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    cntpct_el0::read()
}

/// Nanoseconds from [`start`] to when the counter was `ticks`.
#[must_use]
pub fn ns_at(ticks: u64) -> u64 {
    let ticks = ticks.wrapping_sub(START.load(Ordering::Relaxed));
    let hz = cntfrq_el0::read().max(1);
    (ticks / hz) * 1_000_000_000 + (ticks % hz) * 1_000_000_000 / hz
}

/// Nanoseconds from [`start`] to the moment when the counter is at `ticks`, rounded up; 0 if that
/// is before.
#[must_use]
pub fn due_ns(ticks: u64) -> u64 {
    let ticks = ticks.saturating_sub(START.load(Ordering::Relaxed));
    let hz = cntfrq_el0::read().max(1);
    (ticks / hz)
        .saturating_mul(1_000_000_000)
        .saturating_add((ticks % hz * 1_000_000_000).div_ceil(hz))
}

/// Arms this core's EL2 timer to fire `ns` nanoseconds after [`start`]; never if that is
/// `u64::MAX`.
#[inline(always)]
pub fn fire_at(ns: u64) {
    let hz = cntfrq_el0::read().max(1);
    let ticks =
        (ns / 1_000_000_000).saturating_mul(hz) + (ns % 1_000_000_000 * hz).div_ceil(1_000_000_000);
    cnthp_cval_el2::write(START.load(Ordering::Relaxed).saturating_add(ticks));
    cnthp_ctl_el2::write(u64::from(ns != u64::MAX));
}
