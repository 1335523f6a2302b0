//! The board: its fixed addresses and properties, generated from its file in `boards/`.

#[expect(clippy::unreadable_literal, reason = "generated")]
mod generated {
    use super::Power;
    include!(concat!(env!("OUT_DIR"), "/board.rs"));
}

pub use generated::*;

use weir_abi::Features;
use weir_units::IntId;

/// Interrupt of the board's UART.
pub const UART_LINE: IntId = IntId(UART_INTID as u32);
/// Interrupt of the DMA engine; 0 without one.
pub const ENGINE_LINE: IntId = IntId(ENGINE_INTID as u32);
/// Interrupt of the SMMU's event queue; 0 without one.
pub const SMMU_LINE: IntId = IntId(SMMU_EVENT as u32);

/// Bytes of the redistributors that are searched: those of all cores, at the longest stride.
pub const GICR_LEN: u64 = weir_vdev::gic::redistributor::LONGEST * CORES.len() as u64;

/// The devices that EL2 always drives: physical address and bytes, 0 bytes for a device that the
/// board lacks.
pub const EL2_DEVICES: &[(u64, u64)] = &[
    (UART, 0x1000),
    (GICD, if GICR == 0 { 0x1000 } else { 0x1_0000 }),
    (GICR, if GICR == 0 { 0 } else { GICR_LEN }),
    (GICC, if GICC == 0 { 0 } else { 0x2000 }),
    (GICH, if GICH == 0 { 0 } else { 0x1000 }),
];

/// The board has a DMA engine, and this build a broker that can use it.
pub const HAS_ENGINE: bool = ENGINE != 0 && Features::BROKER.is_built();

/// The devices that EL2 drives only where the system uses the DMA engine.
pub const ENGINE_DEVICES: &[(u64, u64)] = &[(ENGINE, if HAS_ENGINE { 0x1000 } else { 0 })];

/// The other cores wait at a spin table.
pub const HAS_SPIN_TABLE: bool = SPIN_TABLE != 0;

/// The page of the spin table, which the waiting cores read with their MMU off.
pub const SPIN_TABLE_PAGE: u64 = SPIN_TABLE & !0xfff;

/// The devices that EL2 drives to start cores and to turn the board off, if the firmware does not:
/// the page of the spin table, and that of the watchdog.
pub const START_DEVICES: &[(u64, u64)] = &[
    (SPIN_TABLE_PAGE, if HAS_SPIN_TABLE { 0x1000 } else { 0 }),
    (WATCHDOG, if WATCHDOG == 0 { 0 } else { 0x1000 }),
];

/// Bytes of bus 0 of the PCI configuration space: 32 devices of 8 functions.
const ECAM_BUS_LEN: u64 = 0x10_0000;

/// What it drives only where the system has PCI functions: the SMMU need not be there otherwise.
pub const PCI_DEVICES: &[(u64, u64)] = &[
    (SMMU, if SMMU == 0 { 0 } else { 0x2_0000 }),
    (ECAM, if ECAM == 0 { 0 } else { ECAM_BUS_LEN }),
];

/// The means to turn the board off.
#[allow(dead_code, reason = "a board has one of them")]
pub enum Power {
    /// PSCI.
    Firmware,
    /// The watchdog of a BCM2711.
    Bcm2711,
    /// gem5, which ends the simulation.
    Gem5,
    /// Nothing: the caller's core waits for ever.
    Nothing,
}

/// Why a core could not be started.
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
