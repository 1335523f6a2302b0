//! The board: its addresses and properties, generated from its file in `boards/`.

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
/// Interrupt of the DMA engine; 0 if the board has none.
pub const ENGINE_LINE: IntId = IntId(ENGINE_INTID as u32);
/// Interrupt of the SMMU's event queue; 0 if the board has none.
pub const SMMU_LINE: IntId = IntId(SMMU_EVENT as u32);

/// Bytes in which redistributors are searched: those of all cores, at the longest stride.
pub const GICR_LEN: u64 = weir_vdev::gic::redistributor::LONGEST * CORES.len() as u64;

/// The devices that EL2 drives in every system: physical address and length in bytes, which is 0
/// for a device that the board lacks.
pub const EL2_DEVICES: &[(u64, u64)] = &[
    (UART, 0x1000),
    (GICD, if GICR == 0 { 0x1000 } else { 0x1_0000 }),
    (GICR, if GICR == 0 { 0 } else { GICR_LEN }),
    (GICC, if GICC == 0 { 0 } else { 0x2000 }),
    (GICH, if GICH == 0 { 0 } else { 0x1000 }),
];

/// Whether the board has a DMA engine, and this build has a broker that can use it.
pub const HAS_ENGINE: bool = ENGINE != 0 && Features::BROKER.is_built();

/// The devices that EL2 drives only if the system uses the DMA engine.
pub const ENGINE_DEVICES: &[(u64, u64)] = &[(ENGINE, if HAS_ENGINE { 0x1000 } else { 0 })];

/// Whether the other cores wait at a spin table.
pub const HAS_SPIN_TABLE: bool = SPIN_TABLE != 0;

/// The page of the spin table, which the waiting cores read with their MMU off.
pub const SPIN_TABLE_PAGE: u64 = SPIN_TABLE & !0xfff;

/// The devices that EL2 drives to start cores and to turn the board off if the firmware does
/// neither: the page of the spin table and the page of the watchdog.
pub const START_DEVICES: &[(u64, u64)] = &[
    (SPIN_TABLE_PAGE, if HAS_SPIN_TABLE { 0x1000 } else { 0 }),
    (WATCHDOG, if WATCHDOG == 0 { 0 } else { 0x1000 }),
];

/// Bytes of bus 0 of the PCI configuration space: 32 devices of 8 functions.
const ECAM_BUS_LEN: u64 = 0x10_0000;

/// The devices that EL2 drives only if the system has PCI functions; a machine without PCI
/// functions need not have an SMMU.
pub const PCI_DEVICES: &[(u64, u64)] = &[
    (SMMU, if SMMU == 0 { 0 } else { 0x2_0000 }),
    (ECAM, if ECAM == 0 { 0 } else { ECAM_BUS_LEN }),
];

/// The means of turning the board off.
#[allow(dead_code, reason = "a board has one of them")]
pub enum Power {
    /// PSCI calls of the firmware.
    Firmware,
    /// The watchdog of a BCM2711.
    Bcm2711,
    /// The instruction that ends a simulation of gem5.
    Gem5,
    /// None: the caller's core waits forever.
    Nothing,
}

/// Reason why a core could not be started.
pub enum StartError {
    /// The core did not arrive from the spin table in time.
    Silent,
    /// The machine has no such core.
    Absent,
    /// The firmware does not support the call.
    NoPsci,
    /// The firmware refused, with this PSCI error code.
    Refused(i32),
}
