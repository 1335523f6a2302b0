//! The machine's caches, as described by the ID registers.

use super::{
    isb,
    sysreg::{ccsidr_el1, clidr_el1, csselr_el1, id_register},
};
use weir_paging::cache::{CacheGeometry, last_level};

/// Returns the geometry of the last-level cache, or none if the core reports no cache that holds
/// data. Called on a core that runs no guest yet, because it overwrites CSSELR_EL1, a register of
/// the guest.
#[must_use]
pub fn last() -> Option<CacheGeometry> {
    const CCIDX_SHIFT: u32 = 20;
    let level = last_level(clidr_el1::read())?;
    csselr_el1::write(level << 1);
    isb();
    // ID_AA64MMFR2_EL1.CCIDX gives the format of CCSIDR_EL1.
    let ccidx = id_register(7, 2) >> CCIDX_SHIFT & 0xf != 0;
    Some(CacheGeometry::from_ccsidr(ccsidr_el1::read(), ccidx))
}
