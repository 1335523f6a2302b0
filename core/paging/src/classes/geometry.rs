//! A board's address functions, and the page classes that follow from them.

use super::{ClassSet, MAX_CLASSES, PAGE_BITS, PAGE_SHIFT, PageClass};
use crate::PAGE;

/// Largest number of bits that select a page class.
const MAX_RANK: usize = MAX_CLASSES.ilog2() as usize;
/// Largest number of functions that select a bank.
pub const MAX_BANK_BITS: usize = 8;

/// The bits of a physical address that select the place of a line in the last-level cache and in
/// DRAM. A geometry without any, [`Geometry::NONE`], describes memory in which all places are
/// equivalent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The bits of the last-level cache's set index above the page: the page's color.
    pub colors: u64,
    /// For each bank bit, the mask of the address bits whose XOR it is; the first zero ends the
    /// list.
    pub banks: [u64; MAX_BANK_BITS],
}

/// Reason why a geometry is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadGeometry {
    /// The page size is not the 4 KiB that weir maps.
    Page(u64),
    /// The size of a way of the cache is not a power of two, or less than a page.
    Cache,
    /// A color bit is inside the page or above 40 bits.
    Color(u32),
    /// Bank function number .0 has no address bit, or one above 40 bits.
    Bank(usize),
    /// Bank function number .0 is the XOR of earlier ones, so it distinguishes no banks.
    Dependent(usize),
    /// This number of bits distinguishes page classes, which is more than the eight for
    /// [`MAX_CLASSES`].
    TooMany(usize),
}

impl Geometry {
    /// A geometry without address functions: one page class.
    pub const NONE: Self = Self { colors: 0, banks: [0; MAX_BANK_BITS] };

    /// Returns the address bits that form the color of a page of `page` bytes in a cache of `size`
    /// bytes with `ways` ways: those that index a set and lie above the page.
    ///
    /// # Errors
    ///
    /// Returns [`BadGeometry::Page`] or [`BadGeometry::Cache`].
    pub const fn color_bits(size: u64, ways: u64, page: u64) -> Result<u64, BadGeometry> {
        if page != PAGE {
            return Err(BadGeometry::Page(page));
        }
        if ways == 0 || !size.is_multiple_of(ways) {
            return Err(BadGeometry::Cache);
        }
        let way = size / ways;
        if !way.is_power_of_two() || way < page {
            return Err(BadGeometry::Cache);
        }
        Ok((way - 1) & !(page - 1))
    }
}

/// The page classes of a board: the finest division of memory by whole pages. Two pages of one page
/// class have the same cache color and lie in the same banks.
///
/// All address functions are linear over GF(2), so a page class is a vector: the values of the
/// independent functions of the page number. These functions are kept in reduced form: each has a
/// *pivot*, which is its lowest bit of the page number and occurs in no other function. So within a
/// block of pages that is aligned to its own size the high bits of the page class are the same,
/// which makes counting and finding pages cheap. Page classes are numbered in the order in which
/// they first occur in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageClasses {
    rank: u8,
    /// The value that each bit of the page number contributes (XOR) to the page class's number.
    pub(super) columns: [u8; PAGE_BITS as usize],
    /// The bits of the page number that contribute to it.
    pub(super) involved: u64,
    pub(super) pivots: [u8; MAX_RANK],
    colors: Functions,
    banks: Functions,
    /// Number of bank bits that no choice of pages determines.
    split: u8,
}

/// Functions of the page class's number: bit `n` of the value is the parity of the bits in
/// `masks[n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Functions {
    len: u8,
    masks: [u8; MAX_RANK],
}

impl Functions {
    const fn count(&self) -> u16 {
        1 << self.len
    }

    fn of(&self, class: PageClass) -> u8 {
        let masks = self.masks.iter().take(usize::from(self.len)).enumerate();
        masks.fold(0, |value, (bit, mask)| {
            value | (((mask & class.0).count_ones() & 1) as u8) << bit
        })
    }
}

impl PageClasses {
    /// The single page class of a board without geometry.
    pub const ONE: Self = Self {
        rank: 0,
        columns: [0; PAGE_BITS as usize],
        involved: 0,
        pivots: [0; MAX_RANK],
        colors: Functions { len: 0, masks: [0; MAX_RANK] },
        banks: Functions { len: 0, masks: [0; MAX_RANK] },
        split: 0,
    };

    /// Returns the page classes of `geometry`.
    ///
    /// A bank function with address bits inside the page takes both values in every page. The
    /// selectable functions are those sums of bank functions in which these bits cancel.
    ///
    /// # Errors
    ///
    /// Returns a [`BadGeometry`] if the geometry is invalid.
    pub fn new(geometry: &Geometry) -> Result<Self, BadGeometry> {
        let inside = geometry.colors & (PAGE - 1);
        let above = geometry.colors >> (PAGE_SHIFT + PAGE_BITS);
        if inside != 0 {
            return Err(BadGeometry::Color(inside.trailing_zeros()));
        }
        if above != 0 {
            return Err(BadGeometry::Color(geometry.colors.ilog2()));
        }
        let (banks, count, split) = selectable(geometry)?;
        let colors = geometry.colors >> PAGE_SHIFT;
        let mut rows = Rows::default();
        for bit in (0..PAGE_BITS).filter(|bit| colors >> bit & 1 != 0) {
            rows.add(1 << bit);
        }
        for bank in banks.iter().take(count) {
            rows.add(*bank);
        }
        if rows.len > MAX_RANK {
            return Err(BadGeometry::TooMany(rows.len));
        }
        let mut classes = Self { rank: rows.len as u8, split, ..Self::ONE };
        for (bit, row) in rows.masks.iter().take(rows.len).enumerate() {
            classes.involved |= row;
            if let Some(pivot) = classes.pivots.get_mut(bit) {
                *pivot = row.trailing_zeros() as u8;
            }
            for (position, column) in classes.columns.iter_mut().enumerate() {
                *column |= ((row >> position & 1) as u8) << bit;
            }
        }
        // Expresses a function by the rows: it is the sum of the rows whose pivots it contains.
        let express = |function: u64| {
            let pivots = classes.pivots.iter().take(rows.len).enumerate();
            pivots.fold(0, |mask, (bit, pivot)| mask | ((function >> pivot & 1) as u8) << bit)
        };
        let mut color_functions = Self::ONE.colors;
        for bit in (0..PAGE_BITS).filter(|bit| colors >> bit & 1 != 0) {
            color_functions.push(express(1 << bit));
        }
        let mut bank_functions = Self::ONE.banks;
        for bank in banks.iter().take(count) {
            bank_functions.push(express(*bank));
        }
        Ok(Self { colors: color_functions, banks: bank_functions, ..classes })
    }

    /// Returns the number of page classes, 1 to [`MAX_CLASSES`].
    #[must_use]
    pub const fn count(&self) -> usize {
        1 << self.rank
    }

    /// Returns the logarithm of [`PageClasses::count`].
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank as u32
    }

    /// Returns the number of cache colors.
    #[must_use]
    pub const fn colors(&self) -> u16 {
        self.colors.count()
    }

    /// Returns the number of bank groups from which pages can be selected; each group consists of
    /// [`PageClasses::banks_in_group`] banks.
    #[must_use]
    pub const fn bank_groups(&self) -> u16 {
        self.banks.count()
    }

    /// Returns the number of banks in which each page lies, because the address bits inside the
    /// page select among them.
    #[must_use]
    pub const fn banks_in_group(&self) -> u16 {
        1 << self.split
    }

    /// Returns the page class of the page that contains a physical address.
    #[must_use]
    pub fn class_of(&self, address: u64) -> PageClass {
        PageClass(self.class_of_page(address >> PAGE_SHIFT))
    }

    /// Returns the number of the page class of a page.
    pub(super) fn class_of_page(&self, page: u64) -> u8 {
        let mut bits = page & self.involved;
        let mut class = 0;
        while bits != 0 {
            class ^= self.column(bits.trailing_zeros());
            bits &= bits - 1;
        }
        class
    }

    pub(super) fn column(&self, position: u32) -> u8 {
        self.columns.get(position as usize).copied().unwrap_or(0)
    }

    /// Returns the cache color of a page class, below [`PageClasses::colors`].
    #[must_use]
    pub fn color(&self, class: PageClass) -> u8 {
        self.colors.of(class)
    }

    /// Returns the bank group of a page class, below [`PageClasses::bank_groups`].
    #[must_use]
    pub fn bank(&self, class: PageClass) -> u8 {
        self.banks.of(class)
    }

    /// Returns the color bits that restrict `set`, by their index among the geometry's color bits:
    /// those for which the set's colors do not have both values in every combination. Whether sets
    /// are disjoint by color depends on these bits alone.
    #[must_use]
    pub fn color_bits_of(&self, set: &ClassSet) -> u64 {
        let colors = ClassSet::of(set.iter().map(|class| PageClass(self.color(class))));
        let matters = |bit: &u8| colors.is_some_and(|colors| colors.moved(1 << bit) != colors);
        (0..self.colors.len).filter(matters).fold(0, |bits, bit| bits | 1 << bit)
    }

    /// Returns whether pages of these page classes can evict each other's lines.
    #[must_use]
    pub fn share_color(&self, a: PageClass, b: PageClass) -> bool {
        self.color(a) == self.color(b)
    }

    /// Returns whether pages of these page classes can close each other's rows.
    #[must_use]
    pub fn share_bank(&self, a: PageClass, b: PageClass) -> bool {
        self.bank(a) == self.bank(b)
    }

    /// Returns an iterator over all page classes.
    pub fn iter(&self) -> impl Iterator<Item = PageClass> + use<> {
        (0..self.count()).map(|class| PageClass(class as u8))
    }

    /// Returns the page classes for which `wanted` is true, or `None` if there are none.
    pub fn select(&self, wanted: impl Fn(PageClass) -> bool) -> Option<ClassSet> {
        ClassSet::of(self.iter().filter(|&class| wanted(class)))
    }

    /// Returns the set of all page classes.
    #[must_use]
    pub fn all(&self) -> ClassSet {
        ClassSet::first(self.count())
    }

    /// Returns a set from its bitmap; `None` if it contains no page class, or one that this board
    /// does not have.
    #[must_use]
    pub fn set(&self, words: [u64; 4]) -> Option<ClassSet> {
        ClassSet::new(words).filter(|set| set.is_within(&self.all()))
    }
}

impl Functions {
    fn push(&mut self, mask: u8) {
        if let Some(slot) = self.masks.get_mut(usize::from(self.len)) {
            *slot = mask;
            self.len += 1;
        }
    }
}

/// Returns the sums of bank functions that are constant over a page, as functions of the page
/// number; their number; and the number of functions that cannot be selected because of bits inside
/// the page. A function without bits inside the page is returned unchanged.
fn selectable(geometry: &Geometry) -> Result<([u64; MAX_BANK_BITS], usize, u8), BadGeometry> {
    let mut all = Rows::default();
    let mut within = [0; MAX_BANK_BITS];
    let mut lost = 0;
    let mut banks = [0; MAX_BANK_BITS];
    let mut count = 0;
    let used = geometry.banks.iter().rposition(|&mask| mask != 0).map_or(0, |last| last + 1);
    for (index, &mask) in geometry.banks.iter().take(used).enumerate() {
        if mask == 0 || mask >> (PAGE_SHIFT + PAGE_BITS) != 0 {
            return Err(BadGeometry::Bank(index));
        }
        if !all.add(mask) {
            return Err(BadGeometry::Dependent(index));
        }
        let mut rest = mask;
        for pivot in within.iter().take(lost) {
            let low = pivot & (PAGE - 1);
            if low != 0 && rest >> low.trailing_zeros() & 1 != 0 {
                rest ^= pivot;
            }
        }
        let (places, len, function) = if rest & (PAGE - 1) == 0 {
            (&mut banks, &mut count, rest >> PAGE_SHIFT)
        } else {
            (&mut within, &mut lost, rest)
        };
        if let Some(place) = places.get_mut(*len) {
            *place = function;
            *len += 1;
        }
    }
    Ok((banks, count, lost as u8))
}

/// Largest number of functions of any kind: a color bit for each bit of the page number, and the
/// banks.
const MAX_ROWS: usize = PAGE_BITS as usize + MAX_BANK_BITS;

/// Independent functions in reduced form, sorted by pivot: each has a pivot, its lowest bit, which
/// no other function contains.
struct Rows {
    masks: [u64; MAX_ROWS],
    len: usize,
}

impl Default for Rows {
    fn default() -> Self {
        Self { masks: [0; MAX_ROWS], len: 0 }
    }
}

impl Rows {
    /// Adds a function. Returns false if it is a sum of the present ones.
    fn add(&mut self, mask: u64) -> bool {
        let mut rest = mask;
        for row in self.masks.iter().take(self.len) {
            if rest >> row.trailing_zeros() & 1 != 0 {
                rest ^= row;
            }
        }
        if rest == 0 || self.len >= MAX_ROWS {
            return false;
        }
        for row in self.masks.iter_mut().take(self.len) {
            if *row >> rest.trailing_zeros() & 1 != 0 {
                *row ^= rest;
            }
        }
        // Removing a pivot's bit from a row cannot change the lowest bit of that row: the new pivot
        // is above it; otherwise the row would have had the lower one. So the rows are still
        // sorted.
        // Behind them is a zero, which has no lowest bit and therefore sorts last.
        self.len += 1;
        for row in self.masks.iter_mut().take(self.len) {
            if rest.trailing_zeros() < row.trailing_zeros() {
                core::mem::swap(row, &mut rest);
            }
        }
        true
    }
}
