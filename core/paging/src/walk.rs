//! Reads an address space back from its tables, as the processor's table walker would.

use crate::{
    PAGE,
    table::{ADDRESS, Attributes, SPAN, Table},
};

/// A block or page that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// First input address.
    pub input: u64,
    /// First output address.
    pub output: u64,
    /// Length in bytes.
    pub len: u64,
    /// Attributes.
    pub attributes: Attributes,
}

/// An invalid descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// It points to this address, where there is no table.
    Table(u64),
    /// It has the reserved type, or its block is not aligned; the value is its input address.
    Descriptor(u64),
}

/// Returns the physical address of `address`, if `par` is the value of PAR_EL1 after its
/// translation and it was translated to Normal memory (DDI0487, D23.2.134).
#[must_use]
pub const fn normal_memory(par: u64, address: u64) -> Option<u64> {
    const HAS_FAILED: u64 = 1;
    // The upper half of the attributes, encoded as in MAIR_EL1, is zero for Device memory.
    const IS_NORMAL: u64 = 0xf << 60;
    let page = par & ADDRESS;
    if par & HAS_FAILED != 0 || par & IS_NORMAL == 0 {
        return None;
    }
    Some(page | address & (PAGE - 1))
}

/// Calls `visit` for every leaf below the level 1 table at physical address `root`, in order of
/// ascending input address. `table` returns a table by its physical address.
///
/// # Errors
///
/// Returns the first [`Stray`] descriptor.
pub fn leaves<'t>(
    root: u64,
    table: &impl Fn(u64) -> Option<&'t Table>,
    visit: &mut impl FnMut(Leaf),
) -> Result<(), Stray> {
    Walk { tables: table, visitor: visit, joins: false }.below(root, 1, 0)
}

/// Does what [`leaves`] does, but combines consecutive entries of a table into one leaf if their
/// outputs are contiguous and their attributes are equal.
///
/// # Errors
///
/// Returns the first [`Stray`] descriptor.
pub fn runs<'t>(
    root: u64,
    table: &impl Fn(u64) -> Option<&'t Table>,
    visit: &mut impl FnMut(Leaf),
) -> Result<(), Stray> {
    Walk { tables: table, visitor: visit, joins: true }.below(root, 1, 0)
}

/// Finds tables. A separate trait, because a `dyn Fn` contains the code of a closure three times.
trait Find<'t> {
    fn table(&self, address: u64) -> Option<&'t Table>;
}

impl<'t, F: Fn(u64) -> Option<&'t Table>> Find<'t> for F {
    fn table(&self, address: u64) -> Option<&'t Table> {
        self(address)
    }
}

/// Visits leaves. A separate trait instead of `FnMut`, for the same reason.
trait Visit {
    fn leaf(&mut self, leaf: Leaf);
}

impl<F: FnMut(Leaf)> Visit for F {
    fn leaf(&mut self, leaf: Leaf) {
        self(leaf);
    }
}

/// Number of entries that are tested together, so that one instruction loads two of them.
const SEVERAL: usize = 16;

/// Counts the empty entries at the beginning of `entries`, up to a multiple of [`SEVERAL`].
#[inline(never)]
#[expect(clippy::many_single_char_names, reason = "a loop would not be unrolled for size")]
fn empty(entries: &[u64]) -> usize {
    let is_empty = |chunk: &&[u64; SEVERAL]| {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = chunk;
        a | b | c | d | e | f | g | h | i | j | k | l | m | n | o | p == 0
    };
    entries.as_chunks().0.iter().take_while(is_empty).count() * SEVERAL
}

/// A walk through tables. It uses `dyn`, so that EL2 contains its code once and not once for each
/// kind of visit.
struct Walk<'w, 't> {
    tables: &'w dyn Find<'t>,
    visitor: &'w mut dyn Visit,
    /// Whether contiguous leaves are combined.
    joins: bool,
}

impl Walk<'_, '_> {
    /// Visits the leaves below the table at `address` of `level`, whose first entry maps `input`.
    /// The recursion is bounded because levels end at 3.
    fn below(&mut self, address: u64, level: usize, input: u64) -> Result<(), Stray> {
        let span = SPAN.get(level).copied().unwrap_or(SPAN[3]);
        let entries = &self.tables.table(address).ok_or(Stray::Table(address))?.0;
        let mut slot = 0;
        while let Some(rest @ [entry, ..]) = entries.get(slot..) {
            if *entry == 0 {
                // Most entries of most tables are empty, and the boot reads back all tables, so
                // empty entries are skipped quickly.
                slot += if slot.is_multiple_of(SEVERAL) { empty(rest).max(1) } else { 1 };
                continue;
            }
            let input = input + slot as u64 * span;
            let output = entry & ADDRESS;
            let mut count = 1;
            match (entry & 0b11, level) {
                (0b00 | 0b10, _) => {}
                (0b11, 1 | 2) => self.below(output, level + 1, input)?,
                (0b01, 1 | 2) | (0b11, 3) => {
                    if output & (span - 1) != 0 {
                        return Err(Stray::Descriptor(input));
                    }
                    let mut next = *entry;
                    let follows = |other: &&u64| {
                        next = next.wrapping_add(span);
                        self.joins && **other == next
                    };
                    count += rest.iter().skip(1).take_while(follows).count();
                    let len = count as u64 * span;
                    let attributes = Attributes::of(*entry);
                    self.visitor.leaf(Leaf { input, output, len, attributes });
                }
                _ => return Err(Stray::Descriptor(input)),
            }
            slot += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::normal_memory;

    #[test]
    fn only_normal_memory_that_was_translated_has_a_place() {
        // Write-back; non-cacheable; Device-nGnRnE and Device-GRE.
        for (attributes, is_normal) in [(0xff, true), (0x44, true), (0, false), (0x0c, false)] {
            let par = attributes << 56 | 0x80_1234_5000 | 0xb80;
            let found = normal_memory(par, 0x40_0000_0abc);
            assert_eq!(found, is_normal.then_some(0x80_1234_5abc), "{attributes:#x}");
        }
        // F is set, with a stage 2 fault.
        assert_eq!(normal_memory(0xff << 56 | 0x80_1234_5000 | 0x20f, 0xabc), None);
    }
}
