//! The request of a handler to the run loop.

use crate::arch::opaque_zero;

/// The action for the current vCPU after an exception. The vectors test for zero, and pass any
/// other value to the run loop. If two actions are requested, the greater one is carried out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
#[repr(transparent)]
pub struct Exit(u64);

impl Exit {
    /// The vCPU continues.
    pub const RESUME: Self = Self(0);
    /// The run loop checks the vCPU: it continues unless its memory budget is spent or a pending
    /// event prevents it.
    pub const LOOK: Self = Self(1);
    /// The vCPU's memory budget is spent, on a core of its own: it rests until the budget is
    /// replenished.
    pub const REST: Self = Self(2);
    /// The vCPU waits for an interrupt (WFI, `CPU_SUSPEND`).
    pub const WAIT: Self = Self(3);
    /// The vCPU waits for an interrupt and then starts at the address in ELR_EL2, with the x0 of
    /// its frame; the rest of its state is lost, except for its timers and its GIC. An SError of
    /// this vCPU that is found then is reported with that address.
    pub const POWER_DOWN: Self = Self(4);
    /// The vCPU is turned off.
    pub const OFF: Self = Self(5);

    /// Requests the run loop if the vCPU `must_wait` for it; otherwise lets the vCPU continue.
    #[inline(always)]
    pub const fn unless(must_wait: bool) -> Self {
        if must_wait { Self::LOOK } else { Self::RESUME }
    }

    /// Returns [`Exit::RESUME`] without letting the compiler treat it as a constant. So a caller of
    /// a function that returns this value passes it on by a jump to that function, and needs no
    /// stack frame.
    #[inline(always)]
    pub fn resume() -> Self {
        Self(opaque_zero())
    }
}
