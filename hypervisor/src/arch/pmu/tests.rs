//! Tests the PMU interrupts of boards that the tests are not built for.

use super::*;
use crate::arch::{gic::PhysicalLine, machine::recorded};
#[cfg(feature = "gicv3")]
use crate::board::CORES;

/// Cortex-A53 on ZCU102: one shared interrupt per core.
const ZCU102: [u32; 4] = [175, 176, 177, 178];

/// Returns the write that routes shared interrupt `intid` to core `core`.
#[cfg(feature = "gicv2")]
fn routed(intid: u32, core: u8) -> String {
    format!("gicd+{:#x} = {:#x} (8 bits)", 0x800 + intid, 1 << core)
}

/// Returns the write that routes shared interrupt `intid` to core `core`.
#[cfg(feature = "gicv3")]
fn routed(intid: u32, core: u8) -> String {
    format!("gicd+{:#x} = {:#x} (64 bits)", 0x6000 + 8 * intid, CORES[usize::from(core)])
}

#[test]
fn each_pmus_shared_interrupt_goes_to_its_core() {
    for (core, intid) in (0..).zip(ZCU102) {
        let core = CoreId(core);
        assert_eq!(intid_of(&ZCU102, core), IntId(intid));
        PhysicalLine::new(intid_of(&ZCU102, core), core).claim(core);
        let enable =
            format!("gicd+{:#x} acts {:#x}", 0x100 + 4 * (intid / 32), 1u32 << (intid % 32));
        let priority = format!("gicd+{:#x} = 0x40 (8 bits)", 0x400 + intid);
        // The interrupt is enabled last, so that a pending overflow goes to its core.
        assert_eq!(recorded(), [priority, routed(intid, core.0), enable]);
    }
}

#[test]
fn a_private_pmu_interrupt_is_not_routed() {
    for core in [0, 3].map(CoreId) {
        assert_eq!(intid_of(&[23], core), IntId(23));
        PhysicalLine::new(IntId(23), core).claim(core);
        let lines = recorded();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].ends_with("acts 0x800000"), "{lines:?}");
    }
}

#[test]
fn a_board_without_pmu_interrupts_has_none() {
    assert_eq!(intid_of(&[], CoreId(0)), gic::SPECIAL);
}
