//! A board's address functions, and the page classes that follow from them.

use super::{ClassSet, MAX_CLASSES, PAGE_BITS, PAGE_SHIFT, PageClass};
use crate::PAGE;

/// Most bits that choose a page class.
const MAX_RANK: usize = MAX_CLASSES.ilog2() as usize;
/// Most functions that choose a bank.
pub const MAX_BANK_BITS: usize = 8;

/// Which bits of a physical address choose where a line lies in the last-level cache and in DRAM. A
/// geometry without any, [`Geometry::NONE`], is that of memory in which every place is like every
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The bits of the last-level cache's set index above the page: the page's color.
    pub colors: u64,
    /// For each bank bit the mask of the address bits that it is the XOR of; the first zero ends
    /// the list.
    pub banks: [u64; MAX_BANK_BITS],
}

/// What makes a geometry no geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadGeometry {
    /// A page size that is not the 4 KiB that weir maps.
    Page(u64),
    /// A way of the cache is not a power of two of bytes, a page or more.
    Cache,
    /// A color bit inside the page or above 40 bits.
    Color(u32),
    /// Bank function number .0 has no address bit, or one above 40 bits.
    Bank(usize),
    /// Bank function number .0 is the XOR of some before it: it distinguishes no banks.
    Dependent(usize),
    /// So many bits distinguish page classes, more than the eight for [`MAX_CLASSES`].
    TooMany(usize),
}

impl Geometry {
    /// Nothing to choose: one page class.
    pub const NONE: Self = Self { colors: 0, banks: [0; MAX_BANK_BITS] };

    /// The address bits that make the color of a page of `page` bytes in a cache of `size` bytes
    /// with `ways` ways: those that index a set and lie above the page.
    ///
    /// # Errors
    ///
    /// [`BadGeometry::Page`] and [`BadGeometry::Cache`].
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

/// The page classes of a board: the classes of pages that no choice of whole pages can split. Two
/// pages of one page class have the same cache color and lie in the same banks.
///
/// All address functions are linear over GF(2), so a page class is a vector: the values of as many
/// independent functions of the page's number as there are. These are kept in the reduced form in
/// which each has a *pivot*, a bit of the page number that occurs in no other function, and no bit
/// below it. So within a block of pages aligned to its own size the high bits of the page class are
/// the same, which makes counting and finding pages cheap, and page classes are numbered in the
/// order in which memory meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageClasses {
    rank: u8,
    /// What each bit of the page number adds (XOR) to the page class's number.
    pub(super) columns: [u8; PAGE_BITS as usize],
    /// The bits of the page number that add anything.
    pub(super) involved: u64,
    pub(super) pivots: [u8; MAX_RANK],
    colors: Functions,
    banks: Functions,
    /// Bank bits that no choice of pages fixes.
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
    /// The one page class of a board without geometry.
    pub const ONE: Self = Self {
        rank: 0,
        columns: [0; PAGE_BITS as usize],
        involved: 0,
        pivots: [0; MAX_RANK],
        colors: Functions { len: 0, masks: [0; MAX_RANK] },
        banks: Functions { len: 0, masks: [0; MAX_RANK] },
        split: 0,
    };

    /// The page classes of `geometry`.
    ///
    /// A bank function with address bits inside the page has both values in every page. What is
    /// left to choose are those sums of bank functions in which these bits cancel.
    ///
    /// # Errors
    ///
    /// See [`BadGeometry`].
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
        // A function in terms of the rows: it has the rows of its pivots.
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

    /// How many there are, 1 to [`MAX_CLASSES`].
    #[must_use]
    pub const fn count(&self) -> usize {
        1 << self.rank
    }

    /// The logarithm of [`PageClasses::count`].
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank as u32
    }

    /// How many cache colors there are.
    #[must_use]
    pub const fn colors(&self) -> u16 {
        self.colors.count()
    }

    /// How many bank groups there are that pages can be chosen from; each is
    /// [`PageClasses::banks_in_group`] banks.
    #[must_use]
    pub const fn bank_groups(&self) -> u16 {
        self.banks.count()
    }

    /// In how many banks each page lies, since the address bits inside the page choose among them.
    #[must_use]
    pub const fn banks_in_group(&self) -> u16 {
        1 << self.split
    }

    /// The page class of the page at, or around, a physical address.
    #[must_use]
    pub fn class_of(&self, address: u64) -> PageClass {
        PageClass(self.class_of_page(address >> PAGE_SHIFT))
    }

    /// The number of the page class of a page.
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

    /// The cache color of a page class, below [`PageClasses::colors`].
    #[must_use]
    pub fn color(&self, class: PageClass) -> u8 {
        self.colors.of(class)
    }

    /// The bank group of a page class, below [`PageClasses::bank_groups`].
    #[must_use]
    pub fn bank(&self, class: PageClass) -> u8 {
        self.banks.of(class)
    }

    /// The color bits that matter to `set`, by their place among the geometry's: those of which a
    /// page of the set's colors can't have either value. Sets that are apart by color are so by
    /// these bits alone.
    #[must_use]
    pub fn color_bits_of(&self, set: &ClassSet) -> u64 {
        let colors = ClassSet::of(set.iter().map(|class| PageClass(self.color(class))));
        let matters = |bit: &u8| colors.is_some_and(|colors| colors.moved(1 << bit) != colors);
        (0..self.colors.len).filter(matters).fold(0, |bits, bit| bits | 1 << bit)
    }

    /// Whether pages of these page classes can evict each other's lines.
    #[must_use]
    pub fn share_color(&self, a: PageClass, b: PageClass) -> bool {
        self.color(a) == self.color(b)
    }

    /// Whether pages of these page classes can close each other's rows.
    #[must_use]
    pub fn share_bank(&self, a: PageClass, b: PageClass) -> bool {
        self.bank(a) == self.bank(b)
    }

    /// Every page class.
    pub fn iter(&self) -> impl Iterator<Item = PageClass> + use<> {
        (0..self.count()).map(|class| PageClass(class as u8))
    }

    /// The page classes that `wanted` holds of, or `None` if it holds of none.
    pub fn select(&self, wanted: impl Fn(PageClass) -> bool) -> Option<ClassSet> {
        ClassSet::of(self.iter().filter(|&class| wanted(class)))
    }

    /// All page classes.
    #[must_use]
    pub fn all(&self) -> ClassSet {
        ClassSet::first(self.count())
    }

    /// A set from its bitmap; `None` when it has no page class, or one that this board doesn't
    /// have.
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

/// The sums of bank functions that are the same all over a page, as functions of the page's number;
/// how many; and how many functions are lost to the inside of the page. A function without bits
/// inside the page stays as it is.
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

/// Most functions of any kind: a color bit for each bit of the page number, and the banks.
const MAX_ROWS: usize = PAGE_BITS as usize + MAX_BANK_BITS;

/// Independent functions in reduced form: each has a pivot, its lowest bit, which no other has;
/// sorted by pivot.
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
    /// Adds a function; false when it is a sum of those there are.
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
        // Removing a pivot's bit from a row can't change that row's own lowest bit: the new pivot
        // is above it, or the row would have had the lower one. So they are still sorted.
        // Behind them is a zero, which has no lowest bit and so is above each.
        self.len += 1;
        for row in self.masks.iter_mut().take(self.len) {
            if rest.trailing_zeros() < row.trailing_zeros() {
                core::mem::swap(row, &mut rest);
            }
        }
        true
    }
}
