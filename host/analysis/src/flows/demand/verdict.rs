//! What the demand test answers, and the effort that an answer may take.

use crate::units::{BytesPerSec, HalfNanos};

/// How much may be spent on one question, in evaluations of one task's demand at one instant (about
/// 1 ns each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort(pub u64);

impl Default for Effort {
    fn default() -> Self {
        Self(1 << 31)
    }
}

/// Why a set can't be scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnschedulableCause {
    /// D' - J' <= 0: the overheads leave this task no time at all.
    NoTime {
        /// Position of the task.
        task: usize,
        /// D' - J'.
        window: HalfNanos,
    },
    /// P' <= 0: the spread of the send overhead exceeds the period.
    NoPeriod {
        /// Position of the task.
        task: usize,
        /// P'.
        period: HalfNanos,
    },
    /// U' > 1 at the bandwidth asked.
    Overload,
    /// The overheads alone load the broker fully: no bandwidth helps (Eq. 16).
    OverheadOverload,
    /// Eq. 10 fails at the bandwidth asked.
    Demand(FailingInstant),
    /// Eq. 10 fails at any bandwidth: the overheads alone exceed the interval (Eq. 17).
    OverheadDemand(FailingInstant),
    /// Only a bandwidth over 1 PiB/s would do.
    BeyondLimit,
}

/// An instant at which Eq. 10 fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailingInstant {
    /// t, a point of D.
    pub at: HalfNanos,
    /// Demand and blocking at `at` in half ns, rounded up; of the overheads alone for
    /// [`UnschedulableCause::OverheadDemand`].
    pub demand: u64,
    /// The task with the non-preemptive stretch that blocks, if one does.
    pub blocker: Option<usize>,
}

/// Whether a set is schedulable at a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedulability {
    /// Every deadline is met.
    Schedulable,
    /// The condition of Theorem 1 does not hold.
    Unschedulable(UnschedulableCause),
    /// The effort was spent before the last instant to test.
    GaveUp {
        /// No failure at or before this instant.
        checked: HalfNanos,
    },
}

/// The smallest bandwidth at which a set is schedulable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinBandwidth {
    /// The smallest integer number of bytes/s that is schedulable.
    Exactly(BytesPerSec),
    /// No bandwidth is enough.
    Never(UnschedulableCause),
    /// The effort was spent: at least this much is needed, and the second, if found, is enough.
    GaveUp {
        /// One byte/s less is unschedulable.
        at_least: BytesPerSec,
        /// Proven to be schedulable.
        enough: Option<BytesPerSec>,
    },
}
