//! The architected timers, in ticks of CNTFRQ_EL0 (Arm ARM DDI 0487, D12).

const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds of `ticks` at `frequency` Hz, rounded down; saturates after 584 years.
///
/// # Panics
///
/// If `frequency` is 0.
#[must_use]
pub const fn ticks_to_ns(ticks: u64, frequency: u64) -> u64 {
    let ns = ticks as u128 * NS_PER_S as u128 / frequency as u128;
    if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
}

/// Ticks in `ns` nanoseconds at `frequency` Hz, rounded up, so that a wait is never too short;
/// saturates.
#[must_use]
pub const fn ns_to_ticks(ns: u64, frequency: u64) -> u64 {
    let ticks = (ns as u128 * frequency as u128).div_ceil(NS_PER_S as u128);
    if ticks > u64::MAX as u128 { u64::MAX } else { ticks as u64 }
}

#[cfg(target_os = "none")]
pub use hardware::*;

#[cfg(target_os = "none")]
mod hardware {
    use core::arch::asm;

    /// The counter's frequency in Hz.
    #[must_use]
    pub fn frequency() -> u64 {
        let value;
        // SAFETY: reads a register that EL1 may always read.
        unsafe { asm!("mrs {}, cntfrq_el0", out(reg) value, options(nomem, nostack)) };
        value
    }

    /// The virtual counter in ticks.
    #[inline]
    #[must_use]
    pub fn now() -> u64 {
        let value;
        // SAFETY: reads a counter; the barrier keeps the read where it stands.
        unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) value, options(nostack)) };
        value
    }

    /// The virtual counter in nanoseconds.
    #[must_use]
    pub fn now_ns() -> u64 {
        super::ticks_to_ns(now(), frequency())
    }

    /// Sets the virtual timer to signal when the counter reaches `deadline` (ticks), and turns it
    /// on.
    #[inline]
    pub fn arm(deadline: u64) {
        // SAFETY: programs the timer of this core, which has no effect on memory.
        unsafe {
            asm!(
                "msr cntv_cval_el0, {deadline}",
                "msr cntv_ctl_el0, {on}",
                "isb",
                deadline = in(reg) deadline,
                on = in(reg) 1_u64,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Turns the virtual timer off; its interrupt line falls.
    #[inline]
    pub fn disarm() {
        // SAFETY: as in `arm`.
        unsafe {
            asm!("msr cntv_ctl_el0, xzr", "isb", options(nostack, preserves_flags));
        };
    }

    /// Waits without sleeping, yielding.
    pub fn spin_for_ns(ns: u64) {
        let end = now().wrapping_add(super::ns_to_ticks(ns, frequency()));
        while now() < end {
            crate::cpu::relax();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exact_at_the_usual_frequency() {
        assert_eq!(ticks_to_ns(62_500, 62_500_000), 1_000_000);
        assert_eq!(ns_to_ticks(1_000_000, 62_500_000), 62_500);
        assert_eq!(ns_to_ticks(1, 62_500_000), 1);
        assert_eq!(ticks_to_ns(u64::MAX, 1), u64::MAX);
        assert_eq!(ns_to_ticks(u64::MAX, u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn a_wait_is_never_too_short(ns in 0_u64..1 << 60, frequency in 1_000_u64..=1_000_000_000) {
            let ticks = ns_to_ticks(ns, frequency);
            prop_assert!(ticks_to_ns(ticks, frequency) >= ns);
            prop_assert!(ticks == 0 || ticks_to_ns(ticks - 1, frequency) < ns);
        }
    }
}
