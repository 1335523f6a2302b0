//! The way by which the virtio devices reach the memory of VMs that run.

use super::{PAGE, SCTLR, Window, forget_translations, publish, stage1};
use crate::arch::machine::copy_once;
use weir_units::{CoreId, Pa};

/// Pages that a [`Peephole`] shows at once.
const PEEPHOLE: usize = 16;

/// A few pages of VMs' RAM through which one core looks while it handles one trap: mapped as they
/// are needed, unmapped when it is dropped. The VMs run and may write what is read here, so all
/// accesses are single loads and stores that assume nothing.
pub struct Peephole {
    window: Window,
    pages: [u64; PEEPHOLE],
    used: usize,
}

impl Peephole {
    /// Through a window of core `core`.
    ///
    /// # Safety
    ///
    /// As [`Window::take`].
    #[must_use]
    pub unsafe fn open(core: CoreId) -> Self {
        // SAFETY: by the contract.
        let [window, _] = unsafe { Window::take(core) };
        Self { window, pages: [0; PEEPHOLE], used: 0 }
    }

    /// Where the page at `pa` is mapped.
    fn show(&mut self, pa: u64) -> u64 {
        let known = self.pages.iter().take(self.used).position(|&page| page == pa);
        let place = known.unwrap_or_else(|| {
            if self.used == PEEPHOLE {
                self.close();
            }
            let place = self.used;
            self.pages[place] = pa;
            self.used += 1;
            if let Some(entry) = self.window.tables[0].0.get_mut(place) {
                *entry = stage1::READ_WRITE.page(pa);
            }
            publish();
            place
        });
        self.window.va + place as u64 * PAGE
    }

    fn close(&mut self) {
        if self.used > 0 {
            self.window.tables[0].0.iter_mut().take(self.used).for_each(|entry| *entry = 0);
            self.used = 0;
            forget_translations();
        }
    }

    /// Copies bytes out of one page of RAM.
    ///
    /// # Safety
    ///
    /// The bytes at `pa` are RAM of a VM, in one page.
    pub unsafe fn read(&mut self, Pa(pa): Pa, to: &mut [u8]) {
        let from = self.show(pa / PAGE * PAGE) + pa % PAGE;
        // SAFETY: `show` mapped the page, in which the bytes lie by the contract; the target is the
        // caller's alone.
        unsafe { copy_once(from, to.as_mut_ptr() as u64, to.len() as u64) }
    }

    /// Copies bytes into one page of RAM.
    ///
    /// # Safety
    ///
    /// As [`Self::read`], and it is the VM's wish that these bytes are written.
    pub unsafe fn write(&mut self, Pa(pa): Pa, from: &[u8]) {
        let to = self.show(pa / PAGE * PAGE) + pa % PAGE;
        // SAFETY: as in `read`, the other way around.
        unsafe { copy_once(from.as_ptr() as u64, to, from.len() as u64) }
    }
}

impl Drop for Peephole {
    fn drop(&mut self) {
        self.close();
    }
}

const _: () = assert!(SCTLR & 1 << 1 == 0, "SCTLR_EL2.A: `copy_once` takes what is not aligned");
