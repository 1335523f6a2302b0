//! The registers, instructions and tables of Armv8-A. What is decided from them is decided in the
//! pure crates (`vboard`, `layout`, `config`); this module reads, writes and orders.

pub mod cache;
pub mod context;
#[cfg(feature = "pci")]
pub mod ecam;
pub mod gic;
pub mod lock;
pub mod memory;
mod mmio;
pub mod pmu;
pub mod psci;
pub mod serror;
#[cfg(feature = "pci")]
pub mod smmu;
pub mod sysreg;
pub mod timer;

use core::arch::asm;

/// The general registers of a guest, as the exception vectors store them.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Frame {
    /// x0 to x30.
    pub x: [u64; 31],
    padding: u64,
}

const _: () = assert!(size_of::<Frame>() == 256, "vectors.s reserves 256 bytes");

impl Frame {
    /// All zero but x0.
    #[must_use]
    pub const fn new(x0: u64) -> Self {
        let mut x = [0; 31];
        x[0] = x0;
        Self { x, padding: 0 }
    }

    /// Register `n` as an operand; 31 is the zero register.
    #[must_use]
    pub fn get(&self, n: u8) -> u64 {
        self.x.get(usize::from(n)).copied().unwrap_or(0)
    }

    /// Writes register `n`; 31 is the zero register.
    pub fn set(&mut self, n: u8, value: u64) {
        if let Some(x) = self.x.get_mut(usize::from(n)) {
            *x = value;
        }
    }
}

/// Waits until an interrupt is pending, masked or not.
pub fn wait_for_interrupt() {
    // SAFETY: WFI changes no state. The DSB completes earlier stores (to GIC registers above all)
    // before the core sleeps.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) }
}

/// Executes marker `N` (32 to 47), a hint that no core knows: a NOP (DDI0487, C6.2 HINT) by which
/// one who counts instructions from outside finds his place; the numbers are those of
/// `weir-qemu-plugin`'s `path`.
#[inline(always)]
pub fn mark<const N: u32>() {
    const { assert!(N >= 32 && N < 48, "guests have the other markers") };
    // SAFETY: an unallocated hint is a NOP. Not `nomem`: accesses stay on their side of it.
    unsafe { asm!("hint #{hint}", hint = const 64 + N, options(nostack, preserves_flags)) }
}

/// One turn of a loop that waits for another core: `yield`, as QEMU gives the other cores no time
/// without.
pub fn relax() {
    // SAFETY: a hint.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) }
}

/// Makes system register writes before it effective for what follows.
pub fn isb() {
    // SAFETY: a barrier.
    unsafe { asm!("isb", options(nostack, preserves_flags)) }
}

/// Orders memory accesses before it, to Normal memory and to devices, before the accesses and
/// system register writes behind it, for all observers of the inner shareable domain.
pub fn dsb_ishst() {
    // SAFETY: a barrier.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) }
}

/// Completes all memory accesses and maintenance before it.
pub fn dsb_sy() {
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) }
}
