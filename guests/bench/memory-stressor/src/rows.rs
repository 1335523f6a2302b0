//! Lines of one DRAM bank, each in another row than the one before.

use super::{Part, Range};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_guest::Args;

/// The most rows that are gone through.
const MOST: usize = 2048;
/// Bits of a bank's number.
const BITS: usize = 8;

/// Address of the first byte of each row, in the order of their addresses: more than a stack should
/// hold.
static STARTS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// The rows in [`STARTS`].
pub struct Rows {
    count: u64,
    /// Bytes of a row.
    row: u64,
}

impl Rows {
    /// The rows in `range` that are in the bank of its first byte, by the arguments `banks=`,
    /// `row=` and `physical=`. RAM begins at `ram`.
    ///
    /// # Panics
    ///
    /// With arguments that do not fit: a memory stressor that hits rows would mislead.
    pub fn find(args: &Args<'_>, ram: u64, range: Range) -> Self {
        let row = args.number("row", 8192);
        let (masks, bits) = masks(args);
        assert!(
            row.is_power_of_two() && row >= range.stride,
            "row={row}: a power of two, from stride= on"
        );
        assert!(
            row.is_multiple_of(range.stride),
            "row={row}: a multiple of stride={}",
            range.stride
        );
        let masks = &masks[..bits];
        assert!(masks.iter().all(|mask| mask & (row - 1) == 0), "banks=: a bit is below row={row}");
        let physical = args.number("physical", ram);
        let bank = |at: u64| {
            let pa = at.wrapping_sub(ram).wrapping_add(physical);
            let bit =
                |number: u64, mask: &u64| number << 1 | u64::from((pa & mask).count_ones() & 1);
            masks.iter().fold(0, bit)
        };
        let first = range.start.next_multiple_of(row);
        let end = range.start + range.count * range.stride;
        let mut rows = Self { count: 0, row };
        let mut at = first;
        for start in &STARTS {
            while at + row <= end && bank(at) != bank(first) {
                at += row;
            }
            if at + row > end {
                break;
            }
            start.store(at, Relaxed);
            rows.count += 1;
            at += row;
        }
        assert!(
            rows.count >= 2,
            "size=: has {} rows of {row} bytes in one bank, give more",
            rows.count
        );
        rows
    }

    /// Lines of all rows together, `stride` bytes apart.
    pub fn lines(&self, stride: u64) -> u64 {
        self.count * (self.row / stride)
    }

    /// Writes `part` of the lines: the first of each row, then the second of each.
    pub fn write(&self, stride: u64, part: Part) {
        let (mut line, mut row) = (part.start / self.count, (part.start % self.count) as usize);
        for _ in 0..part.count {
            let at = STARTS[row].load(Relaxed) + line * stride;
            // SAFETY: `find` took only rows that lie in the range, which `main` checked to be in
            // RAM behind the image and aligned to 8 bytes; nothing else uses it.
            unsafe { (at as *mut u64).write_volatile(at) };
            row += 1;
            if row as u64 == self.count {
                (line, row) = (line + 1, 0);
            }
        }
    }
}

/// The masks of `banks=`, and how many there are.
fn masks(args: &Args<'_>) -> ([u64; BITS], usize) {
    let text = args.get("banks").unwrap_or_else(|| panic!("mode=rowmiss needs banks=MASK,MASK,.."));
    let (mut masks, mut bits) = ([0; BITS], 0);
    for word in text.split(',') {
        let digits = word.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
        let mask = digits.unwrap_or_else(|| word.parse());
        let Ok(mask) = mask else { panic!("banks={text}: {word} is not a number") };
        assert!(bits < BITS, "banks={text}: more than {BITS} masks");
        masks[bits] = mask;
        bits += 1;
    }
    (masks, bits)
}
