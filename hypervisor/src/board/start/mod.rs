//! How the board starts its other cores and turns itself off. Each module has the same items.

#[cfg(any(test, start = "spin-table"))]
mod bcm2711;
#[cfg(start = "psci")]
mod psci;
#[cfg(any(test, start = "spin-table"))]
mod spin_table;

#[cfg(start = "psci")]
pub use psci::{DEVICES, arch_features, forward, power_off, start_core};
#[cfg(start = "spin-table")]
pub use spin_table::{DEVICES, arch_features, forward, power_off, start_core};

/// Why a core could not be started. A spin table reports nothing.
#[cfg_attr(start = "spin-table", expect(dead_code, reason = "firmware with PSCI reports them"))]
pub enum StartError {
    /// The machine has no such core.
    Absent,
    /// The firmware refused, with this PSCI error code.
    Refused(i32),
}
