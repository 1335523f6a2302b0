//! Mapping of device pages that move from one VM to another.

use super::{PAGE, STAGE2, STAGE2_TABLES, Stage1Control, in_bss, vttbr};
use crate::arch::{dsb_ish, dsb_ishst, isb, sysreg, tlbi_vm_everywhere};
use core::sync::atomic::{AtomicU64, Ordering};
use weir_units::{Ipa, Pa, VmId};

/// Makes the device pages of `len` bytes from `ipa` visible or invisible to VM `vm`, whose stage 2
/// is at `root` in the image's tables. On return no core uses an earlier translation. Pages that
/// were never mapped stay unmapped.
///
/// # Safety
///
/// Called on one core at a time; `root` belongs to a VM of a system that is not divided.
pub unsafe fn show(root: Pa, vm: VmId, Ipa(ipa): Ipa, len: u64, visible: bool) {
    let (tables, base) = (STAGE2.0.get().cast::<AtomicU64>(), in_bss(STAGE2.0.get() as u64));
    let entry = |table: u64, ipa: u64, level: u32| {
        let number = table.checked_sub(base)? / PAGE;
        let index = ipa >> (12 + 9 * (3 - level)) & 511;
        let place = (number * 512 + index) as usize;
        // SAFETY: the place is within the tables. Once the cores run, only this function changes
        // these words, and by the contract one core at a time.
        (number < STAGE2_TABLES as u64).then(|| unsafe { &*tables.add(place) })
    };
    for page in (ipa..ipa + len).step_by(PAGE as usize) {
        let below = |table: u64, level| {
            let found = entry(table, page, level)?.load(Ordering::Relaxed);
            (found & 3 == 3).then_some(found & 0xffff_ffff_f000)
        };
        let last = below(root.0, 1).and_then(|table| below(table, 2));
        if let Some(leaf) = last.and_then(|table| entry(table, page, 3)) {
            let found = leaf.load(Ordering::Relaxed);
            // Only the lowest bit marks an entry as valid; the rest stays for when the page becomes
            // visible again.
            let with = if visible && found != 0 { found | 1 } else { found & !1 };
            leaf.store(with, Ordering::Relaxed);
        }
    }
    let stage1 = Stage1Control::of_core();
    stage1.close();
    let own = sysreg::vttbr_el2::read();
    sysreg::vttbr_el2::write(vttbr(root, vm));
    // The stores above complete before the invalidation on all cores, and that completes before the
    // code that follows.
    dsb_ishst();
    isb();
    tlbi_vm_everywhere();
    dsb_ish();
    isb();
    sysreg::vttbr_el2::write(own);
    stage1.open();
}
