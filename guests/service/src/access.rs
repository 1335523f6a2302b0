//! Accesses to the memory of VMs, which may write what is read here and read what is written.

use core::arch::{asm, global_asm};
use weir_broker::ram::Access;

// Moves of what the broker itself has; compiler_builtins' move unaligned bytes one by one.
global_asm!(include_str!("../../../hypervisor/src/arch/copy.s"));

/// The core's own loads and stores.
pub struct CoreAccess;

impl Access for CoreAccess {
    #[inline]
    fn read(&mut self, from: u64, to: &mut [u8]) {
        // SAFETY: `to` is as long, and this core's alone; `from` is in a VM's RAM by the table that
        // the hypervisor wrote, and stage 2 lets nothing else be reached.
        unsafe { copy_once(from, to.as_mut_ptr() as u64, to.len() as u64) }
    }

    #[inline]
    fn write(&mut self, to: u64, from: &[u8]) {
        // SAFETY: as in `read`, the other way around.
        unsafe { copy_once(from.as_ptr() as u64, to, from.len() as u64) }
    }
}

/// Copies `len` bytes, each once: 16 at a time by two accesses of 8, then 8, 4, 2 and 1. So a field
/// of a virtqueue, which is aligned and as long as one of these, is one access and changes as a
/// whole (Arm ARM, B2.2.1).
///
/// # Safety
///
/// Both are Normal memory, and no reference is to the VM's side.
#[inline]
unsafe fn copy_once(from: u64, to: u64, len: u64) {
    macro_rules! one {
        ($load:literal, $store:literal) => {
            // SAFETY: by the contract: `len` bytes are read and as many written.
            unsafe {
                asm!($load, $store, from = in(reg) from, to = in(reg) to, a = out(reg) _,
                    b = out(reg) _, options(nostack, preserves_flags));
            }
        };
    }
    // Fields of a ring have a length that is known here, which leaves one of these.
    match len {
        2 => one!("ldrh {a:w}, [{from}] // {b}", "strh {a:w}, [{to}]"),
        8 => one!("ldr {a}, [{from}] // {b}", "str {a}, [{to}]"),
        16 => one!("ldp {a}, {b}, [{from}]", "stp {a}, {b}, [{to}]"),
        // A packet's header.
        44 => {
            one!("ldp {a}, {b}, [{from}]", "stp {a}, {b}, [{to}]");
            one!("ldp {a}, {b}, [{from}, #16]", "stp {a}, {b}, [{to}, #16]");
            one!("ldr {a}, [{from}, #32] // {b}", "str {a}, [{to}, #32]");
            one!("ldr {a:w}, [{from}, #40] // {b}", "str {a:w}, [{to}, #40]");
        }
        // SAFETY: by the contract.
        _ => unsafe { copy_each_once(from, to, len) },
    }
}

/// As [`copy_once`], of any length.
///
/// # Safety
///
/// As that.
unsafe fn copy_each_once(from: u64, to: u64, len: u64) {
    // SAFETY: by the contract: `len` bytes are read and as many written.
    unsafe {
        asm!(
            "2: subs {len}, {len}, #16",
            "b.lo 3f",
            "ldp {a}, {b}, [{from}], #16",
            "stp {a}, {b}, [{to}], #16",
            "b 2b",
            "3: tbz {len}, #3, 4f",
            "ldr {a}, [{from}], #8",
            "str {a}, [{to}], #8",
            "4: tbz {len}, #2, 5f",
            "ldr {a:w}, [{from}], #4",
            "str {a:w}, [{to}], #4",
            "5: tbz {len}, #1, 6f",
            "ldrh {a:w}, [{from}], #2",
            "strh {a:w}, [{to}], #2",
            "6: tbz {len}, #0, 7f",
            "ldrb {a:w}, [{from}]",
            "strb {a:w}, [{to}]",
            "7:",
            from = inout(reg) from => _, to = inout(reg) to => _, len = inout(reg) len => _,
            a = out(reg) _, b = out(reg) _,
            options(nostack),
        );
    }
}
