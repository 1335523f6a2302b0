//! What a side of a transfer consists of.

use core::fmt;
use weir_units::Pa;

/// Most parts of one side of a transfer: 64 KiB in pages of 4 KiB that lie anywhere, the first of
/// which starts inside of a page.
pub const PARTS: usize = 17;

/// Adjacent bytes in physical memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Where the first byte is.
    pub address: Pa,
    /// How many bytes.
    pub len: u32,
}

/// A side has more than [`PARTS`] parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DMA transfer: a side has more than {PARTS} parts; split the transfer")
    }
}

impl core::error::Error for TooMany {}
