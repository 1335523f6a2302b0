//! Device interrupts that are masked because they have no credit.

use core::sync::atomic::{AtomicU32, Ordering};
use weir_abi::{Features, INTID_LIMIT};
use weir_units::IntId;

/// The interrupts that are masked because they have no credit: see `admission`.
static MASKED: [AtomicU32; INTID_LIMIT as usize / 32] =
    [const { AtomicU32::new(0) }; INTID_LIMIT as usize / 32];

/// Returns whether interrupt `intid` is masked because it has no credit.
pub fn is_masked(IntId(intid): IntId) -> bool {
    if !Features::SHARED_CORES.is_built() {
        return false;
    }
    let word = MASKED.get(intid as usize / 32);
    // Relaxed: written and read under the lock of the VM's GIC.
    word.is_some_and(|word| word.load(Ordering::Relaxed) >> (intid % 32) & 1 != 0)
}

/// Marks interrupt `intid` as masked or not masked. Called under the lock of its VM's GIC.
pub fn set_masked(IntId(intid): IntId, masked: bool) {
    let Some(word) = MASKED.get(intid as usize / 32) else { return };
    let bit = 1 << (intid % 32);
    if masked {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}
