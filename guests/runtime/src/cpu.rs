//! This core and the others.

use core::arch::asm;

pub use crate::board::MAX_CORES;

/// The index of the running core in [`crate::Board::cores`].
#[inline]
#[must_use]
pub fn index() -> usize {
    let value;
    // SAFETY: reads the software thread register that `set_index` writes.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) value, options(nomem, nostack)) };
    value
}

pub(crate) fn set_index(core: usize) {
    // SAFETY: the register is for software's use.
    unsafe { asm!("msr tpidr_el1, {}", in(reg) core, options(nomem, nostack)) };
}

/// MPIDR_EL1 of the running core.
#[must_use]
pub fn mpidr() -> u64 {
    let value;
    // SAFETY: reads an identification register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) value, options(nomem, nostack)) };
    value
}

/// Unmasks IRQs on this core.
#[inline]
pub fn unmask_interrupts() {
    // SAFETY: the vectors are in place since `aarch64-rt`'s entry.
    unsafe { asm!("msr daifclr, #2", "isb", options(nostack)) };
}

/// Masks IRQs on this core.
#[inline]
pub fn mask_interrupts() {
    // SAFETY: only delays interrupts.
    unsafe { asm!("msr daifset, #2", options(nostack)) };
}

/// Whether IRQs are masked on this core.
#[must_use]
pub fn interrupts_are_masked() -> bool {
    let daif: u64;
    // SAFETY: reads the mask bits.
    unsafe { asm!("mrs {}, daif", out(reg) daif, options(nomem, nostack)) };
    daif & 1 << 7 != 0
}

/// Sleeps until an interrupt is pending, and has it handled; interrupts are masked before and
/// after. WFI wakes for a masked interrupt, too: none is lost between the caller's last poll and
/// the sleep.
#[inline]
pub fn sleep() {
    wait_for_interrupt();
    unmask_interrupts();
    mask_interrupts();
}

/// Sleeps until an interrupt is pending, masked or not.
#[inline]
pub fn wait_for_interrupt() {
    // SAFETY: a hint; the barrier makes earlier writes visible before the core sleeps.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
}

/// Bytes of a line of the data caches; the smallest, if they differ.
#[must_use]
pub fn data_line() -> u64 {
    let ctr: u64;
    // SAFETY: reads an identification register.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack)) };
    // DminLine: words, as a power of two.
    4 << (ctr >> 16 & 0xf)
}

/// Writes the lines of the data cache that overlap `len` bytes at `address`, which are mapped, back
/// to memory and drops them, and at most seven lines before and behind them in their pages; on
/// return a device that does not see the caches sees what was stored there.
#[inline]
pub fn clean_data(address: u64, len: u64) {
    let line = data_line();
    // Eight lines a turn, from a multiple of as many on: they are in one page.
    let (start, end) = (address & !(8 * line - 1), address.saturating_add(len));
    // SAFETY: maintenance by virtual address changes no contents; the barrier is between it and
    // what the caller has a device do.
    unsafe {
        asm!(
            "2: cmp {at}, {end}",
            "b.hs 3f",
            "dc civac, {at}", "add {at}, {at}, {line}",
            "dc civac, {at}", "add {at}, {at}, {line}",
            "dc civac, {at}", "add {at}, {at}, {line}",
            "dc civac, {at}", "add {at}, {at}, {line}",
            "dc civac, {at}", "add {at}, {at}, {line}",
            "dc civac, {at}", "add {at}, {at}, {line}",
            "dc civac, {at}", "add {at}, {at}, {line}",
            "dc civac, {at}", "add {at}, {at}, {line}",
            "b 2b",
            "3: dsb sy",
            at = inout(reg) start => _, end = in(reg) end, line = in(reg) line,
            options(nostack)
        );
    }
}

/// Returns whether an interrupt is pending that this core takes once it unmasks interrupts.
#[inline]
#[must_use]
pub fn has_interrupt() -> bool {
    let pending: u64;
    // SAFETY: reads ISR_EL1.
    unsafe { asm!("mrs {}, isr_el1", out(reg) pending, options(nomem, nostack, preserves_flags)) };
    pending & 1 << 7 != 0
}

/// One step of a spin loop, with the hint that the core only waits.
#[inline]
pub fn relax() {
    // SAFETY: a hint.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) };
}
