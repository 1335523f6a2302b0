//! The PMU (PMUv3, DDI0487 D11). Event counters 0 and 1 of each core belong to EL2: they count the
//! accesses of the guest and none of EL2. The event counters from 2 on and the cycle counter belong
//! to the guest, if its VM was granted some. All accesses of guests to the PMU trap (MDCR_EL2.TPM
//! and TPMCR); `weir_vdev::pmu` decides what they do.

pub mod granted;
pub mod kept;

use super::{
    gic,
    sysreg::{id_register, pmcr_el0},
};
use crate::board::PMU_INTIDS;
use weir_units::{CoreId, IntId};

/// PMCR_EL0.E: lets the enabled counters count.
const ENABLE: u64 = 1;

/// Returns how many event counters this core has; 0 if it has no PMU.
#[must_use]
pub fn counters() -> u64 {
    // ID_AA64DFR0_EL1.PMUVer: 0 without a PMU, 15 with one of another architecture.
    match id_register(5, 0) >> 8 & 0xf {
        0 | 15 => 0,
        _ => pmcr_el0::read() >> 11 & 0x1f,
    }
}

/// Returns the interrupt of core `core`'s PMU.
#[must_use]
pub fn pmu_intid(core: CoreId) -> IntId {
    intid_of(&PMU_INTIDS, core)
}

/// Returns the interrupt of core `core`'s PMU on a board whose PMUs have the interrupts `intids`.
fn intid_of(intids: &[u32], core: CoreId) -> IntId {
    intids.get(core.index()).or(intids.last()).map_or(gic::SPECIAL, |&intid| IntId(intid))
}

/// Returns whether `intid` is the interrupt of a PMU.
#[inline(always)]
#[must_use]
pub fn is_pmu(intid: IntId) -> bool {
    PMU_INTIDS.contains(&intid.0)
}

#[cfg(test)]
mod tests;
