//! The extents of memory that make up a side of a transfer.

use core::fmt;
use weir_units::Pa;

/// Maximum number of extents of one side of a transfer: 64 KiB in pages of 4 KiB at any addresses,
/// if the first byte lies inside a page.
pub const MAX_EXTENTS: usize = 17;

/// Adjacent bytes in physical memory; a side of a transfer can have several extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Address of the first byte.
    pub address: Pa,
    /// Number of bytes.
    pub len: u32,
}

/// A side has more than [`MAX_EXTENTS`] extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyExtents;

impl fmt::Display for TooManyExtents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DMA transfer: a side has more than {MAX_EXTENTS} extents; split the transfer")
    }
}

impl core::error::Error for TooManyExtents {}
