//! Base address registers (PCI 3.0, 6.2.5.1), which the hypervisor sizes and then fixes.

use super::{BARS, Config};

const PAGE: u64 = 4096;
/// Bit 0: an address of the I/O space, which no VM has.
const IO: u32 = 1;
/// Bits 2:1 of a memory register: the width of the address.
const WIDTH: u32 = 0b110;
const WIDE: u32 = 0b100;
/// Bits 3:0 of a memory register: its kind, not part of the address.
const KIND: u32 = 0xf;

/// One base address register; the upper half of a 64-bit address is a separate register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// The low bits, which encode the kind.
    kind: u32,
    /// Bits of the address that can be set; 0 for a register that does not exist.
    mask: u32,
    address: u32,
    /// Whether the guest wrote all ones, to read the mask.
    sizing: bool,
    /// Number of bytes at the address; 0 in an upper half.
    size: u64,
}

/// Error: the base addresses do not fit the available range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Number of bytes that they need.
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

/// Determines the size of every base address. Their old values are lost, and the function must not
/// respond at them. Returns `None` if a register is of a kind that PCI does not have.
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
            // An I/O register, or one that reads like it.
            kind if kind & IO != 0 => {
                index += 1;
                continue;
            }
            _ => return None,
        };
        // A wide address in the last register has no upper half.
        let high = if wide && index + 1 < bars.len() { sized(config, offset + 4) } else { 0 };
        let settable = u64::from(high) << 32 | u64::from(mask);
        // The lowest settable bit gives the number of bytes at the address.
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

/// Returns the value of a register after all ones were written to it; afterwards the register is 0.
fn sized(config: &mut impl Config, offset: u16) -> u32 {
    config.write(offset, u32::MAX);
    let value = config.read(offset);
    config.write(offset, 0);
    value
}

/// Returns the bytes that a base address occupies: whole pages, aligned to their own size.
fn slot(bar: &Bar) -> u64 {
    bar.size.max(PAGE)
}

/// Assigns addresses in `len` bytes from `base` on, the largest register first, so that the
/// alignment of each leaves no gaps.
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

/// Returns the address and the length of each register's pages.
pub fn regions(bars: &[Bar; 6]) -> impl Iterator<Item = (u64, u64)> + '_ {
    bars.iter().filter(|bar| bar.size > 0).map(|bar| (bar.address.into(), slot(bar)))
}
