//! What a side of a transfer consists of.

use core::fmt;
use weir_units::Pa;

/// Most parts of one side of a transfer: 64 KiB in pages of 4 KiB that lie anywhere, the first of
/// which starts inside of a page.
pub const PARTS: usize = 17;

/// Bytes of the smallest page that a translation can be of.
const PAGE: u32 = 4096;

/// Adjacent bytes in physical memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Where the first byte is.
    pub address: Pa,
    /// How many bytes.
    pub len: u32,
}

impl Part {
    /// Adds `next` if it starts where this part ends. Returns whether it does.
    fn absorb(&mut self, next: Self) -> bool {
        let is_next = self.address.0.checked_add(self.len.into()) == Some(next.address.0);
        match self.len.checked_add(next.len) {
            Some(len) if is_next => {
                self.len = len;
                true
            }
            _ => false,
        }
    }
}

/// The parts of one side, in order. None is empty, and none starts where the one before it ends.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    slots: [Part; PARTS],
    count: usize,
    len: u32,
}

impl Parts {
    /// Returns a side without parts.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: [Part { address: Pa(0), len: 0 }; PARTS], count: 0, len: 0 }
    }

    /// Returns the side of `len` bytes at `address` of an address space in pages of 4 KiB;
    /// `translate` says where the byte at an address is. It is called once for each page. Returns
    /// none if one can't be reached, or if these are too many pages.
    #[must_use]
    pub fn translated(
        address: u64,
        len: u32,
        mut translate: impl FnMut(u64) -> Option<Pa>,
    ) -> Option<Self> {
        let mut side = Self::new();
        let (mut at, mut left) = (address, len);
        // Bounded: each turn but the first and the last takes a page, and a side has few parts.
        while left > 0 {
            let in_page = PAGE - at as u32 % PAGE;
            let len = in_page.min(left);
            side.push(Part { address: translate(at)?, len }).ok()?;
            at = at.checked_add(len.into())?;
            left -= len;
        }
        Some(side)
    }

    /// Adds `part` after the others. A part that starts where the last one ends is merged with it.
    /// A part without bytes changes nothing.
    ///
    /// # Errors
    ///
    /// [`TooMany`] if there are [`PARTS`] parts already, and this one can't be merged. The side is
    /// as before.
    pub fn push(&mut self, part: Part) -> Result<(), TooMany> {
        if part.len == 0 {
            return Ok(());
        }
        let last = self.slots.get_mut(..self.count).and_then(<[_]>::last_mut);
        let merged = last.is_some_and(|last| last.absorb(part));
        if !merged {
            *self.slots.get_mut(self.count).ok_or(TooMany)? = part;
            self.count += 1;
        }
        // What is too long for the type is too long for a transfer.
        self.len = self.len.saturating_add(part.len);
        Ok(())
    }

    /// Returns the number of bytes, at most `u32::MAX`.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the parts after merging, in order: what the caches are maintained for.
    #[must_use]
    pub fn as_slice(&self) -> &[Part] {
        self.slots.get(..self.count).unwrap_or(&[])
    }
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
