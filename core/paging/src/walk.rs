//! Reading an address space back from its tables, as the table walker of the processor would.

use crate::{
    PAGE,
    table::{ADDRESS, Attributes, SPAN, Table},
};

/// A block or page that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its first input address.
    pub input: u64,
    /// Where that is.
    pub output: u64,
    /// Bytes.
    pub len: u64,
    /// Its attributes.
    pub attributes: Attributes,
}

/// A descriptor that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// It points to a table at this address, where there is none.
    Table(u64),
    /// It is of the reserved kind, or its block is not aligned; it stands for this input address.
    Descriptor(u64),
}

/// Returns where `address` is in physical memory if PAR_EL1 holds its translation as `par`, and it
/// was translated to Normal memory (DDI0487, D23.2.134).
#[must_use]
pub const fn normal_memory(par: u64, address: u64) -> Option<u64> {
    const HAS_FAILED: u64 = 1;
    // The upper half of the attributes, in the encoding of MAIR_EL1, is zero for Device memory.
    const IS_NORMAL: u64 = 0xf << 60;
    let page = par & ADDRESS;
    if par & HAS_FAILED != 0 || par & IS_NORMAL == 0 {
        return None;
    }
    Some(page | address & (PAGE - 1))
}

/// Shows `visit` every leaf below the table of level 1 at physical address `root`, by ascending
/// input address. `table` finds a table by its physical address.
///
/// # Errors
///
/// The first [`Stray`] descriptor.
pub fn leaves<'t>(
    root: u64,
    table: &impl Fn(u64) -> Option<&'t Table>,
    visit: &mut impl FnMut(Leaf),
) -> Result<(), Stray> {
    Walk { tables: table, visitor: visit, joins: false }.below(root, 1, 0)
}

/// As [`leaves`], but entries of a table that follow each other, with outputs that do so too and
/// the same attributes, are shown as one leaf.
///
/// # Errors
///
/// The first [`Stray`] descriptor.
pub fn runs<'t>(
    root: u64,
    table: &impl Fn(u64) -> Option<&'t Table>,
    visit: &mut impl FnMut(Leaf),
) -> Result<(), Stray> {
    Walk { tables: table, visitor: visit, joins: true }.below(root, 1, 0)
}

/// Finds tables. Apart from `Fn`, whose `dyn` has the code of a closure three times.
trait Find<'t> {
    fn table(&self, address: u64) -> Option<&'t Table>;
}

impl<'t, F: Fn(u64) -> Option<&'t Table>> Find<'t> for F {
    fn table(&self, address: u64) -> Option<&'t Table> {
        self(address)
    }
}

/// Takes leaves. Apart from `FnMut` for the same reason.
trait Visit {
    fn leaf(&mut self, leaf: Leaf);
}

impl<F: FnMut(Leaf)> Visit for F {
    fn leaf(&mut self, leaf: Leaf) {
        self(leaf);
    }
}

/// So many entries are looked at together, so that two come by one instruction.
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

/// A walk through tables. By `dyn`, so that EL2 has its code once, not once for each kind of visit.
struct Walk<'w, 't> {
    tables: &'w dyn Find<'t>,
    visitor: &'w mut dyn Visit,
    /// Whether leaves that follow each other are shown as one.
    joins: bool,
}

impl Walk<'_, '_> {
    /// Shows the leaves below the table at `address` of `level`, whose first entry stands for
    /// `input`. Levels end at 3, and so does this.
    fn below(&mut self, address: u64, level: usize, input: u64) -> Result<(), Stray> {
        let span = SPAN.get(level).copied().unwrap_or(SPAN[3]);
        let entries = &self.tables.table(address).ok_or(Stray::Table(address))?.0;
        let mut slot = 0;
        while let Some(rest @ [entry, ..]) = entries.get(slot..) {
            if *entry == 0 {
                // Most entries of most tables are empty, and the boot reads all tables back.
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
        // F, with a fault of stage 2.
        assert_eq!(normal_memory(0xff << 56 | 0x80_1234_5000 | 0x20f, 0xabc), None);
    }
}
