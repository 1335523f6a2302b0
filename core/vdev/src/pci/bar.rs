//! Base address registers (PCI 3.0, 6.2.5.1): sized by the hypervisor, then fixed.

use super::{BARS, Config};

const PAGE: u64 = 4096;
/// Bit 0: an address of the I/O space, which no VM has.
const IO: u32 = 1;
/// Bits 2:1 of a memory register: how wide the address is.
const WIDTH: u32 = 0b110;
const WIDE: u32 = 0b100;
/// Bits 3:0 of a memory register: kind, not address.
const KIND: u32 = 0xf;

/// One register; the upper half of a 64-bit address is a register of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// The low bits that say what kind it is.
    kind: u32,
    /// Bits of the address that can be set; 0 for a register that isn't there.
    mask: u32,
    address: u32,
    /// The guest wrote all ones, to learn the mask.
    sizing: bool,
    /// Bytes behind the address; 0 in an upper half.
    size: u64,
}

/// The base addresses don't fit the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Bytes that they need.
    pub needed: u64,
}

impl Bar {
    pub fn address(&self) -> u32 {
        self.address
    }

    pub fn read(&self) -> u32 {
        self.kind | if self.sizing { self.mask } else { self.address }
    }

    pub fn write(&mut self, value: u32) {
        self.sizing = self.mask != 0 && value & self.mask == self.mask;
    }

    pub fn end_sizing(&mut self) {
        self.sizing = false;
    }
}

/// Finds out the size of every base address. Their old values are lost; the function must not
/// answer at them. `None` when one is of a kind that PCI doesn't have.
pub fn size_all(config: &mut impl Config) -> Option<[Bar; 6]> {
    let mut bars = [Bar::default(); 6];
    let mut index = 0;
    while index < bars.len() {
        let offset = BARS + 4 * index as u16;
        let low = sized(config, offset);
        let (kind, mask) = (low & KIND, low & !KIND);
        let wide = match kind & (IO | WIDTH) {
            0 => false,
            WIDE => true,
            // I/O, and what reads like it.
            kind if kind & IO != 0 => {
                index += 1;
                continue;
            }
            _ => return None,
        };
        // In the last register there is no upper half to a wide address.
        let high = if wide && index + 1 < bars.len() { sized(config, offset + 4) } else { 0 };
        let settable = u64::from(high) << 32 | u64::from(mask);
        // Its lowest settable bit says how many bytes are behind it.
        let size = settable & settable.wrapping_neg();
        if size > 0 {
            *bars.get_mut(index)? = Bar { kind, mask, size, ..Bar::default() };
        }
        if wide {
            *bars.get_mut(index + 1)? = Bar { mask: high, ..Bar::default() };
        }
        index += if wide { 2 } else { 1 };
    }
    Some(bars)
}

/// What a register reads after all ones were written; it is 0 then.
fn sized(config: &mut impl Config, offset: u16) -> u32 {
    config.write(offset, u32::MAX);
    let value = config.read(offset);
    config.write(offset, 0);
    value
}

/// Bytes that a base address takes: whole pages, aligned to themselves.
fn slot(bar: &Bar) -> u64 {
    bar.size.max(PAGE)
}

/// Places them in `len` bytes from `base` on, the largest first, so that the alignment of each
/// leaves no gaps.
pub fn place(bars: &mut [Bar; 6], base: u64, len: u64) -> Result<(), NoRoom> {
    let mut needed = 0_u64;
    let mut at = base;
    let mut fits = true;
    let mut order: [usize; 6] = core::array::from_fn(|index| index);
    order.sort_unstable_by_key(|&index| {
        core::cmp::Reverse(bars.get(index).map_or(0, |bar| bar.size))
    });
    for index in order {
        let Some(bar) = bars.get_mut(index).filter(|bar| bar.size > 0) else { continue };
        let slot = slot(bar);
        needed = needed.saturating_add(slot);
        let start = at.checked_next_multiple_of(slot);
        let end = start.and_then(|start| start.checked_add(slot));
        match start.zip(end) {
            Some((start, end)) if end - base <= len && end <= 1 << 32 => {
                bar.address = start as u32;
                at = end;
            }
            _ => fits = false,
        }
    }
    if fits { Ok(()) } else { Err(NoRoom { needed }) }
}

/// The pages of each.
pub fn regions(bars: &[Bar; 6]) -> impl Iterator<Item = (u64, u64)> + '_ {
    bars.iter().filter(|bar| bar.size > 0).map(|bar| (bar.address.into(), slot(bar)))
}
