//! The board: its fixed addresses, generated from its file in `boards/`, its UART, and how its
//! cores start.

pub mod start;
pub mod uart;

#[expect(clippy::unreadable_literal, reason = "generated")]
#[allow(dead_code, reason = "a build without an optional part uses fewer")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/board.rs"));
}

pub use generated::*;

use weir_units::IntId;

/// Interrupt of the board's UART.
pub const UART_LINE: IntId = IntId(UART_INTID as u32);
/// Interrupt of the DMA engine; 0 without one.
#[cfg(any(feature = "flows", feature = "switch"))]
pub const ENGINE_LINE: IntId = IntId(ENGINE_INTID as u32);
/// Interrupt of the SMMU's event queue; 0 without one.
pub const SMMU_LINE: IntId = IntId(SMMU_EVENT as u32);

/// Bytes of the redistributors that are searched: those of all cores, at the longest stride.
#[cfg(feature = "gicv3")]
pub const GICR_LEN: u64 = weir_vdev::gic::redistributor::LONGEST * CORES.len() as u64;

/// What EL2 drives itself: physical address and bytes.
#[cfg(feature = "gicv3")]
pub const EL2_DEVICES: &[(u64, u64)] = &[(UART, 0x1000), (GICD, 0x1_0000), (GICR, GICR_LEN)];

/// What EL2 drives itself: physical address and bytes.
#[cfg(feature = "gicv2")]
pub const EL2_DEVICES: &[(u64, u64)] =
    &[(UART, 0x1000), (GICD, 0x1000), (GICC, 0x2000), (GICH, 0x1000)];

/// What it drives only where the system uses the DMA engine.
pub const ENGINE_DEVICES: &[(u64, u64)] =
    &[(ENGINE, if ENGINE == 0 || !cfg!(feature = "engine") { 0 } else { 0x1000 })];

/// What it drives to start cores and to turn the board off: nothing, as the firmware does both.
#[cfg(start = "psci")]
pub const START_DEVICES: &[(u64, u64)] = &[];

/// What it drives to start cores and to turn the board off: the page of the spin table, and that of
/// the watchdog.
#[cfg(all(start = "spin-table", power = "bcm2711"))]
pub const START_DEVICES: &[(u64, u64)] = &[(SPIN_TABLE_PAGE, 0x1000), (WATCHDOG, 0x1000)];

/// What it drives to start cores: the page of the spin table.
#[cfg(all(start = "spin-table", not(power = "bcm2711")))]
pub const START_DEVICES: &[(u64, u64)] = &[(SPIN_TABLE_PAGE, 0x1000)];

/// The page of the spin table, which the waiting cores read with their MMU off.
#[cfg(start = "spin-table")]
pub const SPIN_TABLE_PAGE: u64 = SPIN_TABLE & !0xfff;

/// Bytes of bus 0 of the PCI configuration space: 32 devices of 8 functions.
const ECAM_BUS_LEN: u64 = 0x10_0000;

/// What it drives only where the system has PCI functions: the SMMU need not be there otherwise.
pub const PCI_DEVICES: &[(u64, u64)] = &[
    (SMMU, if SMMU == 0 { 0 } else { 0x2_0000 }),
    (ECAM, if ECAM == 0 { 0 } else { ECAM_BUS_LEN }),
];

/// Why a core could not be started.
#[cfg_attr(not(test), expect(dead_code, reason = "a start reports its own"))]
pub enum StartError {
    /// The core did not come from the spin table.
    Silent,
    /// The machine has no such core.
    Absent,
    /// The firmware does not know the call.
    NoPsci,
    /// The firmware refused, with this PSCI error code.
    Refused(i32),
}
