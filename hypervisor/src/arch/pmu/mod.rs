//! The PMU (PMUv3, DDI0487 D11). Event counters 0 and 1 of each core are EL2's own: they count what
//! its guest does, and nothing of EL2's. From 2 on they are the guest's, if its VM was granted
//! some, and the cycle counter with them. All accesses of guests trap (MDCR_EL2.TPM and TPMCR);
//! what becomes of them is decided in `weir_vdev::pmu`.

pub mod granted;
pub mod kept;

use super::{
    gic,
    sysreg::{id_register, pmcr_el0},
};
use crate::board::PMU_INTIDS;
use weir_units::{CoreId, IntId};

/// PMCR_EL0.E: those counters count that are enabled.
const ENABLE: u64 = 1;

/// How many event counters this core has; 0 without a PMU.
#[must_use]
pub fn counters() -> u64 {
    // ID_AA64DFR0_EL1.PMUVer: 0 without a PMU, 15 with one of another architecture.
    match id_register(5, 0) >> 8 & 0xf {
        0 | 15 => 0,
        _ => pmcr_el0::read() >> 11 & 0x1f,
    }
}

/// The interrupt of core `core`'s PMU.
#[must_use]
pub fn pmu_intid(core: CoreId) -> IntId {
    intid_of(&PMU_INTIDS, core)
}

/// The interrupt of core `core`'s PMU on a board with these interrupts.
fn intid_of(intids: &[u32], core: CoreId) -> IntId {
    intids.get(core.index()).or(intids.last()).map_or(gic::SPECIAL, |&intid| IntId(intid))
}

/// Whether this is the interrupt of a PMU.
#[inline(always)]
#[must_use]
pub fn is_pmu(intid: IntId) -> bool {
    PMU_INTIDS.contains(&intid.0)
}

#[cfg(test)]
mod tests;
