//! Translation tables of the VMSAv8-64 format with a 4 KiB granule, for stage 1 at EL2 and for
//! stage 2 (Arm ARM, DDI0487, chapter D8).
//!
//! A [`Builder`] writes descriptors into tables that its caller owns and whose physical addresses
//! the caller knows. It starts at level 1 with one table, for input addresses of 39 bits. No
//! function here accesses a register: the caller does break-before-make and TLB maintenance, and
//! for that reason [`Builder::map`] refuses to change a valid descriptor.

use crate::{PAGE, classes::Pages};

/// Bytes that an entry covers, by level.
pub(crate) const SPAN: [u64; 4] = [1 << 39, 1 << 30, 1 << 21, PAGE];
/// Bits 47:12 of a descriptor: the output address or the next table.
pub(crate) const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// A table at levels 0 to 2, a page at level 3 (D8.3.1).
const TABLE_OR_PAGE: u64 = 0b11;
/// A block at levels 1 and 2.
const BLOCK: u64 = 0b01;
/// Marks one of sixteen aligned entries that a TLB may hold as a single entry (D8.6.1).
const CONTIGUOUS: u64 = 1 << 52;
const SIXTEEN: u64 = 16;

/// One table.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4096))]
pub struct Table(pub [u64; 512]);

impl Table {
    /// A table without a valid entry.
    pub const EMPTY: Self = Self([0; 512]);
}

/// Lower and upper attributes of a leaf descriptor: all bits except its type and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(u64);

/// Access flag: without it the first access would fault.
const ACCESS_FLAG: u64 = 1 << 10;
const INNER_SHAREABLE: u64 = 3 << 8;

/// Leaf attributes of stage 1 at EL2 (D8.3.2, D8.6). The memory attribute index selects a field of
/// MAIR_EL2 as the hypervisor sets it: 0 is Device-nGnRnE, 1 is Normal write-back.
pub mod stage1 {
    use super::{ACCESS_FLAG, Attributes, INNER_SHAREABLE};

    /// AP[1] is RES1 at EL2, AP[2] is read-only.
    const AP_RES1: u64 = 1 << 6;
    const READ_ONLY: u64 = 1 << 7;
    const EXECUTE_NEVER: u64 = 1 << 54;
    const NORMAL: u64 = 1 << 2 | INNER_SHAREABLE | ACCESS_FLAG | AP_RES1;

    /// Code.
    pub const CODE: Attributes = Attributes(NORMAL | READ_ONLY);
    /// Read-only data.
    pub const READ: Attributes = Attributes(NORMAL | READ_ONLY | EXECUTE_NEVER);
    /// Data.
    pub const READ_WRITE: Attributes = Attributes(NORMAL | EXECUTE_NEVER);
    /// Device registers.
    pub const DEVICE: Attributes = Attributes(ACCESS_FLAG | AP_RES1 | EXECUTE_NEVER);
    /// Memory of a VM for its devices, in an SMMU's stage 1 tables of EL1: unprivileged (by the bit
    /// that is RES1 at EL2), and tagged with an ASID (nG).
    pub const DMA: Attributes = Attributes(NORMAL | EXECUTE_NEVER | 1 << 11);
}

/// Leaf attributes of stage 2 (D8.3.2, D8.5): MemAttr in bits 5:2, S2AP in bits 7:6.
pub mod stage2 {
    use super::{ACCESS_FLAG, Attributes, INNER_SHAREABLE};

    const READ_WRITE: u64 = 3 << 6;
    const NORMAL_WRITE_BACK: u64 = 0b1111 << 2;
    const DEVICE_NGNRE: u64 = 0b0001 << 2;
    const EXECUTE_NEVER: u64 = 1 << 54;

    const READ: u64 = 1 << 6;

    /// RAM of another VM, as the broker sees it.
    pub const WINDOW: Attributes = Attributes(RAM.0 | EXECUTE_NEVER);
    /// RAM that a VM reads and that another component writes.
    pub const READ_ONLY_WINDOW: Attributes =
        Attributes(NORMAL_WRITE_BACK | READ | INNER_SHAREABLE | ACCESS_FLAG | EXECUTE_NEVER);
    /// RAM of a VM.
    pub const RAM: Attributes =
        Attributes(NORMAL_WRITE_BACK | READ_WRITE | INNER_SHAREABLE | ACCESS_FLAG);
    /// Registers of a device that was passed through.
    pub const DEVICE: Attributes =
        Attributes(DEVICE_NGNRE | READ_WRITE | ACCESS_FLAG | EXECUTE_NEVER);
}

impl Attributes {
    /// Returns the attributes of a leaf descriptor, without the contiguous hint.
    #[must_use]
    pub const fn of(descriptor: u64) -> Self {
        Self(descriptor & !ADDRESS & !TABLE_OR_PAGE & !CONTIGUOUS)
    }

    /// Returns a page descriptor at level 3 that maps `output`, which must be page-aligned.
    #[must_use]
    pub const fn page(self, output: u64) -> u64 {
        (output & ADDRESS) | self.0 | TABLE_OR_PAGE
    }
}

/// Reason why a mapping cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// An address or the length is not a multiple of the page.
    Unaligned,
    /// The input range exceeds what the root covers, or the output range exceeds 48 bits.
    OutOfRange,
    /// A part of the range is already mapped.
    Mapped,
    /// No table is left.
    NoTables,
}

/// Builds one address space in given tables.
#[derive(Debug)]
pub struct Builder<'a> {
    tables: &'a mut [Table],
    used: usize,
    /// Whether the unused tables are [`Table::EMPTY`].
    empty: bool,
    place: Place<'a>,
    /// The last table of level 2 that was used, with the GiB that it covers.
    last: Option<(u64, usize)>,
}

/// The physical addresses of the tables.
#[derive(Debug)]
enum Place<'a> {
    /// Adjacent, from this physical address on.
    From(u64),
    /// In pages of an owner's page classes; the newest table is in the page at this address.
    In(&'a Pages<'a>, u64),
}

impl<'a> Builder<'a> {
    /// Returns a builder of an empty address space with the first table as its root. `base` is the
    /// physical address of `tables[0]`. A table may have any contents until it is used.
    ///
    /// # Errors
    ///
    /// Returns [`MapError::NoTables`] if there is no table, [`MapError::Unaligned`] if `base` is
    /// not page-aligned.
    pub fn new(tables: &'a mut [Table], base: u64) -> Result<Self, MapError> {
        if tables.is_empty() {
            return Err(MapError::NoTables);
        }
        if !base.is_multiple_of(PAGE) {
            return Err(MapError::Unaligned);
        }
        let mut builder = Self { empty: false, ..Self::resume(tables, 1, base) };
        builder.clear(0);
        Ok(builder)
    }

    /// Returns a builder of an empty address space whose tables are in `pages`, `tables[n]` in page
    /// n. A table may have any contents until it is used.
    ///
    /// # Errors
    ///
    /// Returns [`MapError::NoTables`] if there are no tables, or fewer pages than tables.
    pub fn in_pages(tables: &'a mut [Table], pages: &'a Pages<'a>) -> Result<Self, MapError> {
        let root = pages.nth_page(0).filter(|_| pages.total() >= tables.len() as u64);
        match root {
            Some(root) if !tables.is_empty() => {
                let place = Place::In(pages, root);
                let mut builder = Self { tables, used: 1, empty: false, place, last: None };
                builder.clear(0);
                Ok(builder)
            }
            _ => Err(MapError::NoTables),
        }
    }

    /// Returns a builder that continues an address space whose first `used` tables are filled in;
    /// the others are [`Table::EMPTY`].
    #[must_use]
    pub fn resume(tables: &'a mut [Table], used: usize, base: u64) -> Self {
        Self { tables, used, empty: true, place: Place::From(base), last: None }
    }

    /// Returns how many tables are in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Maps `len` bytes from `input` to `output` in the largest blocks that fit, with the
    /// contiguous hint where sixteen fit.
    ///
    /// # Errors
    ///
    /// Returns a [`MapError`]; mappings that were made before the error stay.
    pub fn map(
        &mut self,
        input: u64,
        output: u64,
        len: u64,
        attributes: Attributes,
    ) -> Result<(), MapError> {
        if !(input | output | len).is_multiple_of(PAGE) {
            return Err(MapError::Unaligned);
        }
        let end = input.checked_add(len).ok_or(MapError::OutOfRange)?;
        if end > SPAN[0] || output.checked_add(len).is_none_or(|end| end > 1 << 48) {
            return Err(MapError::OutOfRange);
        }
        let mut at = input;
        while at < end {
            let to = output + (at - input);
            let fits = |span: u64| (at | to) & (span - 1) == 0 && end - at >= span;
            let level = if fits(SPAN[1]) { 1 } else { 3 - usize::from(fits(SPAN[2])) };
            // Written as a power of two for the compiler, which then neither divides nor checks for
            // zero.
            let span = 1 << (39 - 9 * level);
            let kind = if level == 3 { TABLE_OR_PAGE } else { BLOCK };
            let sixteen = SIXTEEN * span;
            // The number of entries of this kind in one table: up to the address at which a larger
            // entry, or sixteen, might fit.
            let (kind, left, larger) = if fits(sixteen) {
                (kind | CONTIGUOUS, (end - at) / sixteen * SIXTEEN, span << 9)
            } else {
                (kind, (end - at) / span, sixteen)
            };
            let count = left.min((larger - at % larger) / span) as usize;
            let table = self.table(at, level)?;
            let first = index(at, level);
            let entries = self.tables.get_mut(table).and_then(|table| {
                let (_, entries) = table.0.split_at_mut_checked(first)?;
                entries.get_mut(..count)
            });
            let mut next = to | attributes.0 | kind;
            for entry in entries.ok_or(MapError::OutOfRange)? {
                if *entry != 0 {
                    return Err(MapError::Mapped);
                }
                *entry = next;
                next += span;
            }
            at += count as u64 * span;
        }
        Ok(())
    }

    /// Maps `len` bytes from `input` to the next of `pages`, page by page.
    ///
    /// # Errors
    ///
    /// Returns a [`MapError`], which is [`MapError::OutOfRange`] also if there are too few pages.
    /// Mappings that were made before the error stay.
    pub fn map_pages(
        &mut self,
        input: u64,
        pages: &mut Pages<'_>,
        len: u64,
        attributes: Attributes,
    ) -> Result<(), MapError> {
        if !(input | len).is_multiple_of(PAGE) {
            return Err(MapError::Unaligned);
        }
        let end = input.checked_add(len).ok_or(MapError::OutOfRange)?;
        if end > SPAN[0] || pages.left() < len / PAGE {
            return Err(MapError::OutOfRange);
        }
        let mut at = input;
        while at < end {
            let table = self.table(at, 3)?;
            let first = index(at, 3);
            let count = ((end - at) / PAGE).min(512 - first as u64);
            let entries = self.tables.get_mut(table).and_then(|table| {
                let (_, entries) = table.0.split_at_mut_checked(first)?;
                entries.get_mut(..count as usize)
            });
            let entries = entries.ok_or(MapError::OutOfRange)?;
            if pages.fill(entries, attributes.page(0)) as u64 != count {
                return Err(MapError::Mapped);
            }
            at += count * PAGE;
        }
        Ok(())
    }

    /// Unmaps the pages of `len` bytes from `input`; blocks stay. The caller does the TLB
    /// maintenance.
    pub fn unmap_pages(&mut self, input: u64, len: u64) {
        let end = input.saturating_add(len);
        let mut at = input;
        while at < end {
            let next = (at / SPAN[2] + 1) * SPAN[2];
            let pages = ((next.min(end) - at) / PAGE) as usize;
            // `table` would create a missing table.
            let table = self.find(at).and_then(|table| self.tables.get_mut(table));
            let entries = table.and_then(|table| table.0.get_mut(index(at, 3)..)?.get_mut(..pages));
            if let Some(entries) = entries {
                entries.fill(0);
            }
            at = next;
        }
    }

    /// Makes the level 3 table that covers `input`, and returns its index among the tables. Used
    /// for mappings that change page by page while the hypervisor runs.
    ///
    /// # Errors
    ///
    /// Returns a [`MapError`] if the table cannot be made.
    pub fn last_level(&mut self, input: u64) -> Result<usize, MapError> {
        self.table(input, 3)
    }

    /// Returns the index of the table of `level` that covers `input`. The table and those above it
    /// are created if they are missing.
    fn table(&mut self, input: u64, level: usize) -> Result<usize, MapError> {
        let mut table = 0;
        for upper in 1..level {
            if let Some((covered, known)) = self.last
                && upper == 1
                && covered == input / SPAN[1]
            {
                table = known;
                continue;
            }
            let slot = index(input, upper);
            let entry = self.tables.get(table).ok_or(MapError::OutOfRange)?.0[slot];
            let next =
                if entry == 0 { self.add()? } else { self.next(entry).ok_or(MapError::Mapped)? };
            if entry == 0 {
                let descriptor = next.1 | TABLE_OR_PAGE;
                self.tables.get_mut(table).ok_or(MapError::OutOfRange)?.0[slot] = descriptor;
            }
            table = next.0;
            if upper == 1 {
                self.last = Some((input / SPAN[1], table));
            }
        }
        Ok(table)
    }

    /// Returns the index of the level 3 table that covers `input`, if it exists.
    fn find(&self, input: u64) -> Option<usize> {
        (1..3).try_fold(0, |table: usize, upper| {
            self.next(self.tables.get(table)?.0[index(input, upper)]).map(|next| next.0)
        })
    }

    /// Takes the next free table. Returns its index among the tables and its address.
    fn add(&mut self) -> Result<(usize, u64), MapError> {
        let new = self.used;
        if new >= self.tables.len() {
            return Err(MapError::NoTables);
        }
        let address = match &mut self.place {
            Place::From(base) => *base + new as u64 * PAGE,
            Place::In(pages, newest) => {
                *newest = pages.after(*newest).ok_or(MapError::NoTables)?;
                *newest
            }
        };
        self.used += 1;
        self.clear(new);
        Ok((new, address))
    }

    /// Empties the table at `place`, because it is about to be used.
    fn clear(&mut self, place: usize) {
        if !self.empty
            && let Some(table) = self.tables.get_mut(place)
        {
            *table = Table::EMPTY;
        }
    }

    /// Returns the index and the address of the table to which a descriptor of levels 1 and 2
    /// points, if it is one of the builder's tables.
    fn next(&self, entry: u64) -> Option<(usize, u64)> {
        if entry & TABLE_OR_PAGE != TABLE_OR_PAGE {
            return None;
        }
        let address = entry & ADDRESS;
        let place = match &self.place {
            Place::From(base) => address.checked_sub(*base)? / PAGE,
            Place::In(pages, _) => pages.index_of(address)?,
        };
        (place < self.used as u64).then_some((place as usize, address))
    }
}

fn index(input: u64, level: usize) -> usize {
    (input / SPAN[level]) as usize % 512
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        classes::{ClassSet, Geometry, PageClass, PageClasses},
        walk,
    };
    use proptest::prelude::*;

    const BASE: u64 = 0x8_0000_0000;

    /// Walks the tables as the architecture does. Returns the output address and the leaf
    /// attributes.
    fn translate(tables: &[Table], input: u64) -> Option<(u64, u64)> {
        let mut table = 0;
        for level in 1..=3 {
            let entry = tables[table].0[(input >> (39 - 9 * level)) as usize & 511];
            let span = 1u64 << (39 - 9 * level);
            match (entry & 3, level) {
                (3, 3) | (1, 1 | 2) => {
                    let output = entry & ADDRESS;
                    assert_eq!(output % span, 0, "a block at level {level} must be aligned");
                    return Some((output + input % span, Attributes::of(entry).0));
                }
                (3, _) => table = ((entry & ADDRESS) - BASE) as usize / 4096,
                _ => return None,
            }
        }
        None
    }

    #[test]
    fn picks_the_largest_blocks() {
        let mut tables = vec![Table::EMPTY; 4];
        let mut builder = Builder::new(&mut tables, BASE).unwrap();
        builder.map(0x4000_0000, 0x8000_0000, 1 << 30, stage2::RAM).unwrap();
        assert_eq!(builder.used(), 1);
        builder.map(0x8000_0000, 0x4020_0000, 4 << 20, stage2::RAM).unwrap();
        assert_eq!(builder.used(), 2);
        assert_eq!(tables[0].0[1] & 3, BLOCK);
        assert_eq!(tables[1].0[1] & !ADDRESS, stage2::RAM.0 | BLOCK);
    }

    #[test]
    fn tables_may_hold_anything_at_first() {
        let mut tables = vec![Table([!0; 512]); 4];
        let mut builder = Builder::new(&mut tables, BASE).unwrap();
        builder.map(0x3000, 0x8000, 0x1000, stage1::READ).unwrap();
        let used = builder.used();
        let mapped = tables[..used].iter().flat_map(|table| table.0).filter(|&entry| entry != 0);
        assert_eq!((used, mapped.count()), (3, 3), "a descriptor of each level");
        assert_eq!(tables[used].0, [!0; 512], "not in use");
    }

    #[test]
    fn refuses_what_it_cannot_map() {
        let mut tables = vec![Table::EMPTY; 3];
        assert_eq!(Builder::new(&mut tables, BASE + 8).unwrap_err(), MapError::Unaligned);
        assert_eq!(Builder::new(&mut [], BASE).unwrap_err(), MapError::NoTables);
        let mut builder = Builder::new(&mut tables, BASE).unwrap();
        let mut map = |input, output, len| builder.map(input, output, len, stage1::READ);
        assert_eq!(map(1, 0, 4096), Err(MapError::Unaligned));
        assert_eq!(map(0, 0, 1), Err(MapError::Unaligned));
        assert_eq!(map((1 << 39) - 4096, 0, 8192), Err(MapError::OutOfRange));
        assert_eq!(map(u64::MAX - 4095, 0, 4096), Err(MapError::OutOfRange));
        assert_eq!(map(0, (1 << 48) - 4096, 8192), Err(MapError::OutOfRange));
        assert_eq!(map(0, 0, 4096), Ok(()));
        assert_eq!(map(0, 0, 4096), Err(MapError::Mapped));
        assert_eq!(map(0, 0, 2 << 20), Err(MapError::Mapped));
        assert_eq!(map(1 << 21, 0, 4096), Err(MapError::NoTables));
    }

    #[test]
    fn a_page_cannot_be_put_under_a_block() {
        let mut tables = vec![Table::EMPTY; 4];
        let mut builder = Builder::new(&mut tables, BASE).unwrap();
        builder.map(0, 0, 2 << 20, stage1::READ).unwrap();
        assert_eq!(builder.map(4096, 0, 4096, stage1::READ), Err(MapError::Mapped));
        assert_eq!(builder.last_level(4096), Err(MapError::Mapped));
    }

    #[test]
    fn pages_can_be_taken_out_and_mapped_again() {
        let mut tables = vec![Table::EMPTY; 4];
        let mut builder = Builder::new(&mut tables, BASE).unwrap();
        builder.map(0x3000, 0x8000, 0x4000, stage1::READ).unwrap();
        builder.unmap_pages(0x4000, 0x2000);
        builder.map(0x4000, 0, 0x1000, stage1::READ).unwrap();
        let seen: Vec<_> =
            (3..7).map(|page| translate(&tables, page * PAGE).map(|found| found.0)).collect();
        assert_eq!(seen, [Some(0x8000), Some(0), None, Some(0xb000)]);
    }

    #[test]
    fn sixteen_aligned_entries_carry_the_hint() {
        let mut tables = vec![Table::EMPTY; 5];
        let mut builder = Builder::new(&mut tables, BASE).unwrap();
        // 4 pages up to a boundary of 16, then 32 pages, then 3 more; then 16 blocks of 2 MiB and
        // one more.
        builder.map(0xc000, 0x8_0000_c000, 39 * PAGE, stage1::READ).unwrap();
        builder.map(0x4000_0000, 0x8000_0000, 17 << 21, stage1::READ).unwrap();
        let hinted = |table: &Table| -> Vec<usize> {
            let entries = table.0.iter().enumerate();
            entries.filter(|(_, entry)| *entry & CONTIGUOUS != 0).map(|(n, _)| n).collect()
        };
        assert_eq!(hinted(&tables[2]), (16..48).collect::<Vec<_>>());
        assert_eq!(hinted(&tables[3]), (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn taking_out_makes_no_table() {
        let mut tables = vec![Table::EMPTY; 3];
        let mut builder = Builder::new(&mut tables, BASE).unwrap();
        builder.unmap_pages(0, 1 << 30);
        assert_eq!(builder.used(), 1);
    }

    #[test]
    fn a_last_level_table_covers_its_address() {
        let mut tables = vec![Table::EMPTY; 5];
        let mut builder = Builder::new(&mut tables, BASE).unwrap();
        let place = builder.last_level(0x40_0020_0000).unwrap();
        tables[place].0[3] = stage1::READ_WRITE.page(0x1234_5000);
        assert_eq!(translate(&tables, 0x40_0020_3010).map(|found| found.0), Some(0x1234_5010));
    }

    /// A VM with its own page classes, whose tables are in them, too.
    #[test]
    fn maps_the_pages_of_a_set() {
        let mut geometry = Geometry { colors: 0xf000, ..Geometry::NONE };
        geometry.banks[0] = 1 << 16 | 1 << 20;
        let classes = PageClasses::new(&geometry).unwrap();
        let set = ClassSet::of([PageClass(3), PageClass(17), PageClass(18)]).unwrap();
        let own = Pages::new(&classes, set, 0x4000_0000..0x4080_0000);
        let ram = Pages::new(&classes, set, 0x4080_0000..0x8000_0000);
        let mut tables = vec![Table::EMPTY; 12];
        let mut builder = Builder::in_pages(&mut tables, &own).unwrap();
        // Two pieces that meet within one level 3 table, and one piece in another GiB.
        let pieces = [(0x4000_0000, 0x30_1000), (0x4030_1000, 0x50_0000), (0x8000_0000, 0x1000)];
        let mut left = ram.clone();
        for (input, len) in pieces {
            builder.map_pages(input, &mut left, len, stage2::RAM).unwrap();
        }
        let used = builder.used();
        assert_eq!(used, 1 + 2 + 5 + 1);
        let mut again = ram.clone();
        assert_eq!(
            builder.map_pages(0x4000_0000, &mut again, PAGE, stage2::RAM),
            Err(MapError::Mapped)
        );
        let lookup =
            |address: u64| own.index_of(address).and_then(|place| tables.get(place as usize));
        let root = own.nth_page(0).unwrap();
        let mut expected = ram;
        let mut seen = 0;
        walk::leaves(root, &lookup, &mut |leaf| {
            assert_eq!((leaf.len, leaf.attributes), (PAGE, stage2::RAM));
            let piece = pieces.iter().find(|(input, len)| leaf.input.wrapping_sub(*input) < *len);
            assert!(piece.is_some());
            assert_eq!(Some(leaf.output), expected.next());
            assert!(set.contains(classes.class_of(leaf.output)));
            seen += 1;
        })
        .unwrap();
        assert_eq!(seen, 0x301 + 0x500 + 1);
        assert!(own.clone().take(used).all(|table| set.contains(classes.class_of(table))));
    }

    #[test]
    fn refuses_pages_that_are_not_there() {
        let ram = |pages| Pages::new(&PageClasses::ONE, ClassSet::ONE, 0..pages * PAGE);
        let mut tables = vec![Table::EMPTY; 4];
        assert_eq!(Builder::in_pages(&mut tables, &ram(3)).unwrap_err(), MapError::NoTables);
        assert_eq!(Builder::in_pages(&mut [], &ram(3)).unwrap_err(), MapError::NoTables);
        let own = ram(4);
        let mut builder = Builder::in_pages(&mut tables, &own).unwrap();
        let mut map =
            |input, pages, len| builder.map_pages(input, &mut ram(pages), len, stage2::RAM);
        assert_eq!(map(8, 1, PAGE), Err(MapError::Unaligned));
        assert_eq!(map(0, 1, 2 * PAGE), Err(MapError::OutOfRange));
        assert_eq!(map(1 << 39, 1, PAGE), Err(MapError::OutOfRange));
        assert_eq!(map(u64::MAX - 0xfff, 9, 2 * PAGE), Err(MapError::OutOfRange));
        assert_eq!(map(0, 700, 700 * PAGE), Ok(()));
        assert_eq!(map(1 << 30, 1, PAGE), Err(MapError::NoTables));
    }

    proptest! {
        #[test]
        fn every_page_of_a_mapping_and_no_other_is_translated(
            pages in prop::collection::vec((0u64..0x40_0000, 0u64..0x40_0000, 1u64..3000), 1..6),
            probes in prop::collection::vec(0u64..0x40_0000, 50),
        ) {
            let mut tables = vec![Table::EMPTY; 64];
            let mut builder = Builder::new(&mut tables, BASE).unwrap();
            let mut mapped: Vec<(u64, u64, u64)> = Vec::new();
            for (input, output, len) in pages {
                let free =
                    mapped.iter().all(|&(other, _, n)| input + len <= other || other + n <= input);
                let result = builder.map(input * PAGE, output * PAGE, len * PAGE, stage2::RAM);
                if free {
                    prop_assert_eq!(result, Ok(()));
                    mapped.push((input, output, len));
                } else {
                    prop_assert_eq!(result, Err(MapError::Mapped));
                    return Ok(());
                }
            }
            let edges =
                mapped.iter().flat_map(|&(input, _, len)| [input, input + len - 1, input + len]);
            for page in probes.into_iter().chain(edges) {
                let expected = mapped
                    .iter()
                    .find(|&&(input, _, len)| page.wrapping_sub(input) < len)
                    .map(|&(input, output, _)| ((output + page - input) * PAGE, stage2::RAM.0));
                prop_assert_eq!(translate(&tables, page * PAGE), expected);
            }
            // Read back one by one or in runs, the pages are the same.
            let lookup = |address: u64| tables.get((address.checked_sub(BASE)? / PAGE) as usize);
            let (mut leaves, mut runs) = (Vec::new(), Vec::new());
            prop_assert_eq!(walk::leaves(BASE, &lookup, &mut |leaf| leaves.push(leaf)), Ok(()));
            prop_assert_eq!(walk::runs(BASE, &lookup, &mut |leaf| runs.push(leaf)), Ok(()));
            let pages = |found: &[walk::Leaf]| -> Vec<(u64, u64)> {
                let pages = |leaf: &walk::Leaf| (0..leaf.len).step_by(PAGE as usize);
                let of = |leaf: &walk::Leaf| {
                    let &walk::Leaf { input, output, .. } = leaf;
                    pages(leaf).map(move |at| (input + at, output + at)).collect::<Vec<_>>()
                };
                found.iter().flat_map(of).collect()
            };
            prop_assert_eq!(pages(&runs), pages(&leaves));
            prop_assert!(runs.len() <= leaves.len());
        }
    }
}
