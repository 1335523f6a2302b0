//! Register accesses, each exactly one plain load or store.
//!
//! In assembly, because the compiler may turn a volatile access into one with writeback or a pair,
//! for which a data abort has no valid syndrome (ESR_EL2.ISV = 0) and no hypervisor can emulate it.

use core::arch::asm;

/// Touches what no VM has, which ends its boot.
pub fn crash() {
    // SAFETY: there is nothing at this address, so nothing is changed.
    unsafe { write32(0x0bad_0000, 0) }
}

/// Reads the 32-bit register at `address`.
///
/// # Safety
///
/// `address` must be that of a device register, and the read's side effects wanted.
#[inline(always)]
#[must_use]
pub unsafe fn read32(address: u64) -> u32 {
    let value;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldr {value:w}, [{address}]", value = out(reg) value, address = in(reg) address);
    };
    value
}

/// Writes the 32-bit register at `address`.
///
/// # Safety
///
/// `address` must be that of a device register, and the write must not break memory safety.
#[inline(always)]
pub unsafe fn write32(address: u64, value: u32) {
    // SAFETY: the caller's promise.
    unsafe { asm!("str {value:w}, [{address}]", value = in(reg) value, address = in(reg) address) };
}

/// Reads the 64-bit register at `address`.
///
/// # Safety
///
/// As for [`read32`].
#[inline(always)]
#[must_use]
pub unsafe fn read64(address: u64) -> u64 {
    let value;
    // SAFETY: the caller's promise.
    unsafe { asm!("ldr {value}, [{address}]", value = out(reg) value, address = in(reg) address) };
    value
}

/// Writes the 64-bit register at `address`.
///
/// # Safety
///
/// As for [`write32`].
#[inline(always)]
pub unsafe fn write64(address: u64, value: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("str {value}, [{address}]", value = in(reg) value, address = in(reg) address) };
}

/// Reads the 16-bit register at `address`.
///
/// # Safety
///
/// As for [`read32`].
#[inline(always)]
#[must_use]
pub unsafe fn read16(address: u64) -> u16 {
    let value: u32;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldrh {value:w}, [{address}]", value = out(reg) value, address = in(reg) address);
    };
    value as u16
}

/// Writes the 16-bit register at `address`.
///
/// # Safety
///
/// As for [`write32`].
#[inline(always)]
pub unsafe fn write16(address: u64, value: u16) {
    let value = u32::from(value);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("strh {value:w}, [{address}]", value = in(reg) value, address = in(reg) address);
    };
}

/// Reads the byte at `address`.
///
/// # Safety
///
/// As for [`read32`].
#[inline(always)]
#[must_use]
pub unsafe fn read8(address: u64) -> u8 {
    let value: u32;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldrb {value:w}, [{address}]", value = out(reg) value, address = in(reg) address);
    };
    value as u8
}

/// Writes the byte at `address`.
///
/// # Safety
///
/// As for [`write32`].
#[inline(always)]
pub unsafe fn write8(address: u64, value: u8) {
    let value = u32::from(value);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("strb {value:w}, [{address}]", value = in(reg) value, address = in(reg) address);
    };
}
