//! What EL2 asks of the machine: system registers, device registers, instructions with an effect,
//! calls of the firmware. There are two backends with the same items. On a board each one is the
//! instruction itself; on the host, where the tests run, each one is recorded and answered from a
//! table.
//!
//! Nothing outside of the backend for boards is assembly but the vectors, the start of a core
//! (`entry`) and `copy.s`.

#[cfg(target_os = "none")]
mod aarch64;
#[cfg(not(target_os = "none"))]
mod recording;

#[cfg(target_os = "none")]
pub use aarch64::*;
#[cfg(not(target_os = "none"))]
pub use recording::*;

/// Widths of a device register.
pub trait Width: Copy + Into<u64> + TryFrom<u64> {
    /// Bytes.
    const BYTES: u64 = size_of::<Self>() as u64;
}

impl Width for u8 {}
impl Width for u32 {}
impl Width for u64 {}
