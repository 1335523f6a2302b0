//! The lists that the engine reads in scatter-gather mode (UG1085, "Buffer Descriptor Format").

use crate::{PARTS, Part, Parts};
use weir_units::Pa;

/// Words of a linked descriptor: address (2), size, control, address of the next (2), and two that
/// are not used. A descriptor must be aligned to its size (UG1085, "Buffer Descriptor Summary").
const WORDS: usize = 8;

// Control, word 3.

/// Accesses to the data are coherent.
const COHERENT: u32 = 1;
/// The descriptor has 256 bits and a link.
const LINKED: u32 = 1 << 1;
/// CMD: the channel stops after this descriptor. The field is the source's alone; the vendor's
/// drivers differ on whether the destination's list has it too, and the manual reserves it there.
const STOP: u32 = 2 << 3;

/// The descriptors of both sides of a transfer, in memory that the engine reads: first [`PARTS`]
/// for the source, then [`PARTS`] for the destination. Words are little-endian, as on the cores.
///
/// [`start`](crate::start) writes them if a side has several parts.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Descriptors {
    words: [[[u32; WORDS]; PARTS]; 2],
}

/// Where the engine sees the first descriptor of each side.
pub(crate) struct Lists {
    pub(crate) from: Pa,
    pub(crate) to: Pa,
}

impl Default for Descriptors {
    fn default() -> Self {
        Self::new()
    }
}

impl Descriptors {
    /// Returns descriptors without bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [[[0; WORDS]; PARTS]; 2] }
    }

    /// Returns the words in the order of memory.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        self.words.as_flattened().as_flattened()
    }

    /// Writes both lists. The engine sees this table at `at`, a multiple of the table's alignment.
    pub(crate) fn describe(&mut self, from: &Parts, to: &Parts, at: Pa, coherent: bool) -> Lists {
        let [source, destination] = &mut self.words;
        let lists = Lists { from: at, to: Pa(at.0 + size_of_val(source) as u64) };
        list(source, from, lists.from, coherent);
        list(destination, to, lists.to, coherent);
        let used = source.get_mut(..from.as_slice().len());
        if let Some(last) = used.and_then(<[_]>::last_mut) {
            last[3] |= STOP;
        }
        lists
    }
}

/// Writes one list, with the first descriptor seen at `at`. The last descriptor has no link.
fn list(table: &mut [[u32; WORDS]; PARTS], parts: &Parts, at: Pa, coherent: bool) {
    let parts = parts.as_slice();
    let mut end = at.0;
    for (place, (descriptor, part)) in table.iter_mut().zip(parts).enumerate() {
        end += size_of_val(descriptor) as u64;
        // A link always leads to the next place of the table, so that the list ends.
        let next = if place + 1 < parts.len() { end } else { 0 };
        let [address, above, size, control] = simple(*part, coherent);
        let [link, link_above] = halves(next);
        *descriptor = [address, above, size, control | LINKED, link, link_above, 0, 0];
    }
}

/// Returns the words of a descriptor without a link. In simple mode they are in registers.
pub(crate) fn simple(part: Part, coherent: bool) -> [u32; 4] {
    let [address, above] = halves(part.address.0);
    [address, above, part.len, if coherent { COHERENT } else { 0 }]
}

/// Returns the lower and the upper 32 bits.
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}
