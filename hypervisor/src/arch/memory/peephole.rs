//! The way by which the virtio devices reach the memory of VMs that run.

use super::{PAGE, SCTLR, Window, forget_translations, publish, stage1};
use core::arch::asm;

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
    pub unsafe fn open(core: usize) -> Self {
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
    pub unsafe fn read(&mut self, pa: u64, to: &mut [u8]) {
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
    pub unsafe fn write(&mut self, pa: u64, from: &[u8]) {
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

/// Copies `len` bytes from address `from` to address `to`, one of which a VM may be writing or
/// reading: in assembly, as the compiler must neither load a byte twice nor assume what it holds.
/// From the start 16 bytes at a time, by two accesses of 8, then 8, 4, 2 and 1: so what is as long
/// as one of these, and aligned, as the fields of a virtqueue are, is one access and changes as a
/// whole (Arm ARM, B2.2.1). The rest need not be aligned.
///
/// # Safety
///
/// Both are mapped as Normal memory, the target for writing; they do not overlap, and nothing of
/// EL2's refers to the VM's side.
unsafe fn copy_once(from: u64, to: u64, len: u64) {
    // SAFETY: by the contract: `len` bytes are read and as many written, each once. Accesses to
    // Normal memory that are not aligned don't fault, as alignment is not checked (below).
    unsafe {
        asm!(
            "subs {len}, {len}, #16", "b.lo 3f",
            "2: ldp {a}, {b}, [{from}], #16", "stp {a}, {b}, [{to}], #16",
            "subs {len}, {len}, #16", "b.hs 2b",
            // What is left, less 16: the lowest four bits are the same.
            "3: tbz {len}, #3, 4f", "ldr {a}, [{from}], #8", "str {a}, [{to}], #8",
            "4: tbz {len}, #2, 5f", "ldr {a:w}, [{from}], #4", "str {a:w}, [{to}], #4",
            "5: tbz {len}, #1, 6f", "ldrh {a:w}, [{from}], #2", "strh {a:w}, [{to}], #2",
            "6: tbz {len}, #0, 7f", "ldrb {a:w}, [{from}]", "strb {a:w}, [{to}]",
            "7:",
            from = inout(reg) from => _, to = inout(reg) to => _, len = inout(reg) len => _,
            a = out(reg) _, b = out(reg) _, options(nostack)
        );
    }
}

const _: () = assert!(SCTLR & 1 << 1 == 0, "SCTLR_EL2.A: `copy_once` takes what is not aligned");

/// Orders memory accesses before it before those behind it, for all cores.
pub fn dmb_ish() {
    // SAFETY: a barrier.
    unsafe { asm!("dmb ish", options(nostack, preserves_flags)) }
}
