//! What a handler asks of the run loop.

use crate::{arch::opaque_zero, vm::Ending};
use weir_trace::wire::WireEvent;

/// How an exception ends. The vectors test for zero.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
#[repr(transparent)]
pub struct Exit(u64);

impl Exit {
    /// The vCPU goes on.
    pub const RESUME: Self = Self(0);
    /// The run loop is called, which carries out the core's [`Action`], if it has one.
    pub const ACT: Self = Self(1);

    /// The vCPU goes on unless it `must_wait` for the run loop.
    #[inline(always)]
    pub const fn unless(must_wait: bool) -> Self {
        if must_wait { Self::ACT } else { Self::RESUME }
    }

    /// [`Exit::RESUME`], which the compiler does not take for a constant. A function that returns
    /// one is called by its callers, which then return it themselves; the end of this one is a
    /// jump, so that the callers need no frame.
    #[inline(always)]
    pub fn resume() -> Self {
        Self(opaque_zero())
    }
}

/// What becomes of the current vCPU.
pub enum Action {
    /// It waits for an interrupt (WFI, `CPU_SUSPEND`).
    Wait,
    /// It waits for an interrupt and then starts at `entry` with `x0`; all its state but that of
    /// its timers and of its GIC is lost.
    PowerDown {
        /// Its first instruction.
        entry: u64,
        /// The value of x0.
        x0: u64,
    },
    /// It goes off.
    Off,
    /// Its VM stops; the event tells the host why.
    Stop(Ending, WireEvent),
}
