//! Reading an address space back from its tables, as the table walker of the processor would.

use crate::table::{ADDRESS, Attributes, SPAN, Table};

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
    below::<false>((root, 1, 0), table, visit)
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
    below::<true>((root, 1, 0), table, visit)
}

/// The leaves below the table of a level, whose first entry stands for an input address. Levels end
/// at 3, and so does this. `RUNS` says whether leaves that follow each other are one.
fn below<'t, const RUNS: bool>(
    (address, level, input): (u64, usize, u64),
    table: &impl Fn(u64) -> Option<&'t Table>,
    visit: &mut impl FnMut(Leaf),
) -> Result<(), Stray> {
    let span = SPAN.get(level).copied().unwrap_or(SPAN[3]);
    let entries = &table(address).ok_or(Stray::Table(address))?.0;
    let mut slot = 0;
    while let Some(rest @ [entry, ..]) = entries.get(slot..) {
        // Most entries of most tables are empty, and the boot reads all tables back.
        if let [a, b, c, d, e, f, g, h, ..] = rest
            && a | b | c | d | e | f | g | h == 0
        {
            slot += 8;
            continue;
        }
        let input = input + slot as u64 * span;
        let output = entry & ADDRESS;
        let mut count = 1;
        match (entry & 0b11, level) {
            (0b00 | 0b10, _) => {}
            (0b11, 1 | 2) => below::<RUNS>((output, level + 1, input), table, visit)?,
            (0b01, 1 | 2) | (0b11, 3) => {
                if output & (span - 1) != 0 {
                    return Err(Stray::Descriptor(input));
                }
                let mut next = *entry;
                let follows = |other: &&u64| {
                    next = next.wrapping_add(span);
                    RUNS && **other == next
                };
                count += rest.iter().skip(1).take_while(follows).count();
                let len = count as u64 * span;
                visit(Leaf { input, output, len, attributes: Attributes::of(*entry) });
            }
            _ => return Err(Stray::Descriptor(input)),
        }
        slot += count;
    }
    Ok(())
}
