//! How the board starts its other cores and turns itself off. Each module has the same items.

#[cfg(any(test, power = "bcm2711"))]
mod bcm2711;
#[cfg(any(test, power = "gem5"))]
mod gem5;
#[cfg(power = "nothing")]
mod nothing;
#[cfg(start = "psci")]
mod psci;
#[cfg(any(test, start = "spin-table"))]
mod spin_table;

#[cfg(any(power = "bcm2711", all(test, start = "psci")))]
use bcm2711 as power;
#[cfg(power = "gem5")]
use gem5 as power;
#[cfg(power = "nothing")]
use nothing as power;

#[cfg(start = "spin-table")]
pub use power::power_off;
#[cfg(all(start = "psci", feature = "engine"))]
pub use psci::sip;
#[cfg(start = "psci")]
pub use psci::{all_came, arch_features, came, forward, power_off, start_core};
#[cfg(all(start = "spin-table", feature = "engine"))]
pub use spin_table::sip;
#[cfg(starts_in_el3)]
pub use spin_table::{RESIDENT, RESIDENT_LEN};
#[cfg(start = "spin-table")]
pub use spin_table::{all_came, arch_features, came, forward, start_core};
