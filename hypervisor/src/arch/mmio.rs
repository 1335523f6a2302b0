//! Registers in memory.

use core::ptr;

/// Reads 32 bits at virtual address `address`.
///
/// # Safety
///
/// The address is a register of a device that [`super::memory`] mapped, and reading it does no
/// harm.
#[inline(always)]
pub unsafe fn read32(address: u64) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { ptr::read_volatile(address as *const u32) }
}

/// Writes 32 bits at virtual address `address`.
///
/// # Safety
///
/// The address is a register of a device that [`super::memory`] mapped, and writing it breaks
/// nothing that EL2 relies on.
#[inline(always)]
pub unsafe fn write32(address: u64, value: u32) {
    // SAFETY: the caller's contract.
    unsafe { ptr::write_volatile(address as *mut u32, value) }
}

/// Writes 8 bits at virtual address `address`.
///
/// # Safety
///
/// As [`write32`].
#[inline(always)]
pub unsafe fn write8(address: u64, value: u8) {
    // SAFETY: the caller's contract.
    unsafe { ptr::write_volatile(address as *mut u8, value) }
}

/// Writes 64 bits at virtual address `address`.
///
/// # Safety
///
/// As [`write32`].
#[cfg(feature = "gicv3")]
#[inline(always)]
pub unsafe fn write64(address: u64, value: u64) {
    // SAFETY: the caller's contract.
    unsafe { ptr::write_volatile(address as *mut u64, value) }
}
