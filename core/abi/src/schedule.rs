//! The schedule of a shared core in the packed form.

mod shared;

pub use shared::ReadySchedule;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The shortest time slice, slot or budget, in ns. A shorter one would leave no time for the
/// guests.
pub const LEAST_SLOT_NS: u64 = 10_000;
/// The longest time slice, slot, budget, frame or period, in ns: about half an hour.
pub const MOST_SLOT_NS: u64 = 1 << 41;
/// The most entries of a schedule: the slots of a time table.
pub const MAX_SLOTS: usize = 32;

/// The most interrupts with a rule on a shared core.
pub const MAX_RULES: usize = 16;

/// The schedule of a core. A core without one runs at most one vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PackedSchedule {
    /// The core.
    pub core: u32,
    /// One of [`ROUND_ROBIN`], [`TIME_TABLE`], [`FIXED_PRIORITY`].
    pub kind: u32,
    /// Time in ns after which a time table repeats; 0 for the other kinds.
    pub frame_ns: u64,
    /// First entry in the table of entries.
    pub first_slot: u32,
    /// Number of entries.
    pub slots: u32,
}

/// An entry of a schedule: a time slice, a slot, or a server; servers by falling priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slot {
    /// The VM, by its place in the system.
    pub vm: u32,
    /// Zero.
    pub reserved: u32,
    /// The length in ns: the quantum, the slot or the budget.
    pub length_ns: u64,
    /// The slot's start in the frame, or the budget's period, in ns; 0 for round robin.
    pub at_ns: u64,
}

/// [`PackedSchedule::kind`]: round robin.
pub const ROUND_ROBIN: u32 = 0;
/// [`PackedSchedule::kind`]: a time table.
pub const TIME_TABLE: u32 = 1;
/// [`PackedSchedule::kind`]: budgets by falling priority.
pub const FIXED_PRIORITY: u32 = 2;

/// [`crate::PackedVm::ticks`]: a timer that fell due while its vCPU was off the core counts as due
/// from the time at which it fell due.
pub const KEEP_TICKS: u8 = 0;
/// [`crate::PackedVm::ticks`]: such a timer counts as due from when its vCPU gets the core.
pub const LOSE_TICKS: u8 = 1;
