//! The operations that EL2 performs on the machine: accesses to system registers and device
//! registers, instructions with an effect, calls of the firmware. There are two backends with the
//! same items. On a board each operation is the instruction itself; on the host, where the tests
//! run, each one is recorded and answered from a table.
//!
//! Outside of the backend for boards, only the vectors, the start of a core (`entry`) and `copy.s`
//! are assembly.

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
    /// Width in bytes.
    const BYTES: u64 = size_of::<Self>() as u64;
}

impl Width for u8 {}
impl Width for u32 {}
impl Width for u64 {}
