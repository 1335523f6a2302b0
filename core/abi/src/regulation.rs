//! The regulation of a VM's memory bandwidth in the packed form.

mod budgets;

pub use budgets::{least_time, most_events, setting};

use crate::MAX_CORES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Stands for "no VM" in a field for a VM's number.
pub const NO_VM: u8 = u8::MAX;
/// The shortest period, in ns. A shorter one would leave no time for the guests.
pub const LEAST_PERIOD_NS: u64 = 1_000;
/// The shortest time between two polls of a counter page, in ns: about the time of a poll.
pub const LEAST_POLL_NS: u64 = 100;
/// The longest period, in ns: about half an hour.
pub const MOST_PERIOD_NS: u64 = 1 << 41;

/// How a VM's memory bandwidth is regulated; all zero if it is not.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Regulation {
    /// Nanoseconds; 0 for no regulation at all.
    pub period_ns: u64,
    /// Accesses of any kind, or reads, in each period; `u64::MAX` for no limit.
    pub reads: u64,
    /// Writes in each period; `u64::MAX` for no limit.
    pub writes: u64,
    /// Nanoseconds between two polls of a counter page.
    pub poll_ns: u64,
    /// Shortest time that an instruction takes on a core, in nanoseconds.
    pub access_ns: u64,
    /// The least budget that [`Self::setter`] may set.
    pub least: u64,
    /// The greatest budget that the setter may set.
    pub most: u64,
    /// Periods between two resets of a compensation.
    pub window: u32,
    /// Numbers of the PMU's events for reads and writes.
    pub events: [u16; 2],
    /// Each vCPU's share of the VM's budget.
    pub weights: [u16; MAX_CORES],
    /// One of [`STATIC`], [`POOL`], [`MEMGUARD`], [`COMPENSATION`].
    pub kind: u8,
    /// [`PMU`] or [`COUNTER_PAGE`].
    pub source: u8,
    /// 1 if each vCPU has the whole budget for itself.
    pub each: u8,
    /// 1 if the cores' periods begin one after the other.
    pub staggered: u8,
    /// 1 if accesses counted beyond a budget are subtracted from the next budget.
    pub debt: u8,
    /// The VM that leaves its unused budget to this one, or [`NO_VM`].
    pub critical: u8,
    /// The VM that may change the budget, or [`NO_VM`].
    pub setter: u8,
    /// MemGuard: 1 if all vCPUs run without a limit once all of them have spent their budgets.
    pub spare: u8,
}

/// [`Regulation::kind`]: the same budget in each period.
pub const STATIC: u8 = 0;
/// [`Regulation::kind`]: budgets are drawn from a pool of the VM.
pub const POOL: u8 = 1;
/// [`Regulation::kind`]: MemGuard.
pub const MEMGUARD: u8 = 2;
/// [`Regulation::kind`]: the unused budget of a critical VM is added.
pub const COMPENSATION: u8 = 3;

/// [`Regulation::source`]: the cores' PMUs.
pub const PMU: u8 = 0;
/// [`Regulation::source`]: the platform's counter page.
pub const COUNTER_PAGE: u8 = 1;

impl Regulation {
    /// Whether the VM's bandwidth is regulated.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.period_ns != 0
    }
}
