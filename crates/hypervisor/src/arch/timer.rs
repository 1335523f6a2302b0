//! The architected timers as EL2 uses them: time since start, and the deadline of its own timer (CNTHP).

use super::sysreg::{cntfrq_el0, cnthp_ctl_el2, cnthp_cval_el2, cntpct_el0};
use core::sync::atomic::{AtomicU64, Ordering};

/// The counter when the hypervisor started.
static START: AtomicU64 = AtomicU64::new(0);

/// Calls this moment zero.
pub fn start() {
    START.store(cntpct_el0::read(), Ordering::Relaxed);
}

/// Nanoseconds since [`start`].
#[must_use]
pub fn now_ns() -> u64 {
    let ticks = cntpct_el0::read().wrapping_sub(START.load(Ordering::Relaxed));
    let hz = cntfrq_el0::read().max(1);
    (ticks / hz) * 1_000_000_000 + (ticks % hz) * 1_000_000_000 / hz
}

/// Arms this core's EL2 timer to fire in `microseconds`.
pub fn fire_in(microseconds: u32) {
    let ticks = cntfrq_el0::read() * u64::from(microseconds) / 1_000_000;
    cnthp_cval_el2::write(cntpct_el0::read().wrapping_add(ticks));
    cnthp_ctl_el2::write(1);
}
