//! What EL2 asks of the machine: system registers, device registers, instructions with an effect,
//! calls of the firmware. There are two backends with the same items. On a board each one is the
//! instruction itself; on the host, where the tests run, each one is recorded and answered from a
//! table.
//!
//! Nothing outside of the backend for boards is assembly but the vectors, the start of a core
//! (`entry`) and `copy.s`.

#[cfg_attr(target_os = "none", path = "aarch64.rs")]
#[cfg_attr(not(target_os = "none"), path = "recording.rs")]
mod backend;

pub use backend::*;

/// Widths of a device register.
pub trait Width: Copy {
    /// Bytes.
    const BYTES: u64 = size_of::<Self>() as u64;
    /// Returns the value with zeros above.
    fn widen(self) -> u64;
    /// Returns the low bits of `value`.
    fn narrow(value: u64) -> Self;
}

macro_rules! widths {
    ($($width:ty)*) => {$(
        impl Width for $width {
            #[inline(always)]
            fn widen(self) -> u64 {
                self.into()
            }

            #[inline(always)]
            fn narrow(value: u64) -> Self {
                value as Self
            }
        }
    )*};
}

widths!(u8 u32 u64);
