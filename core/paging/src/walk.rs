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
    below(root, 1, 0, table, visit)
}

/// Entries that are looked at together.
const GROUP: usize = 8;

/// The leaves below one table of `level`, whose first entry stands for `input`. Levels end at 3,
/// and so does this.
fn below<'t>(
    address: u64,
    level: usize,
    input: u64,
    table: &impl Fn(u64) -> Option<&'t Table>,
    visit: &mut impl FnMut(Leaf),
) -> Result<(), Stray> {
    let span = SPAN.get(level).copied().unwrap_or(SPAN[3]);
    let entries = &table(address).ok_or(Stray::Table(address))?.0;
    let inputs = (0..).map(|slot| input + slot * span);
    // Most of most tables is empty, and a boot that reads all of them back should not take long for
    // that.
    let groups = entries.chunks(GROUP).zip(inputs.step_by(GROUP));
    let groups = groups.filter(|(group, _)| group.iter().fold(0, |any, entry| any | entry) != 0);
    let placed = groups
        .flat_map(|(group, input)| group.iter().zip((0..).map(move |slot| input + slot * span)));
    for (&entry, input) in placed {
        match (entry & 0b11, level) {
            (0b00 | 0b10, _) => {}
            (0b11, 1 | 2) => below(entry & ADDRESS, level + 1, input, table, visit)?,
            (0b01, 1 | 2) | (0b11, 3) => {
                let output = entry & ADDRESS;
                if !output.is_multiple_of(span) {
                    return Err(Stray::Descriptor(input));
                }
                visit(Leaf { input, output, len: span, attributes: Attributes::of(entry) });
            }
            _ => return Err(Stray::Descriptor(input)),
        }
    }
    Ok(())
}
