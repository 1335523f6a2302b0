//! The machine's caches, by its ID registers.

use super::{
    isb,
    sysreg::{ccsidr_el1, clidr_el1, csselr_el1, id_register},
};
use weir_paging::cache::{CacheGeometry, last_level};

/// The last-level cache; none if the core tells of none that holds data. On a core that runs no
/// guest yet: CSSELR_EL1 is a guest's.
#[must_use]
pub fn last() -> Option<CacheGeometry> {
    const CCIDX_SHIFT: u32 = 20;
    let level = last_level(clidr_el1::read())?;
    csselr_el1::write(level << 1);
    isb();
    // ID_AA64MMFR2_EL1 says in which form.
    let ccidx = id_register(7, 2) >> CCIDX_SHIFT & 0xf != 0;
    Some(CacheGeometry::from_ccsidr(ccsidr_el1::read(), ccidx))
}
