//! What a handler asks of the run loop.

use crate::arch::opaque_zero;

/// The fate of the current vCPU after an exception. The vectors test for zero, and hand any other
/// value to the run loop. Of two, the greater one holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
#[repr(transparent)]
pub struct Exit(u64);

impl Exit {
    /// It goes on.
    pub const RESUME: Self = Self(0);
    /// It goes on unless its memory budget is spent, or what is pending is against it: the run
    /// loop looks.
    pub const LOOK: Self = Self(1);
    /// Its memory budget is spent, on a core of its own: it rests until there is another.
    pub const REST: Self = Self(2);
    /// It waits for an interrupt (WFI, `CPU_SUSPEND`).
    pub const WAIT: Self = Self(3);
    /// It waits for an interrupt and then starts where ELR_EL2 says, with x0 of its frame; all
    /// else but its timers and its GIC is lost. An SError of its that is found then is reported
    /// with that address.
    pub const POWER_DOWN: Self = Self(4);
    /// It goes off.
    pub const OFF: Self = Self(5);

    /// The vCPU goes on unless it `must_wait` for the run loop.
    #[inline(always)]
    pub const fn unless(must_wait: bool) -> Self {
        if must_wait { Self::LOOK } else { Self::RESUME }
    }

    /// [`Exit::RESUME`], which the compiler does not take for a constant. A function that returns
    /// one is called by its callers, which then return it themselves; the end of this one is a
    /// jump, so that the callers need no frame.
    #[inline(always)]
    pub fn resume() -> Self {
        Self(opaque_zero())
    }
}
