//! A replacement of page classes for a build without them, with the same names: all pages are in
//! one page class, so the pages of an owner are contiguous. A system with divided memory has been
//! refused before.
#![allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "functions have the forms of those that they replace"
)]

use crate::PAGE;
use core::{marker::PhantomData, ops::Range};

/// Largest number of functions that select a bank.
pub const MAX_BANK_BITS: usize = 8;

/// Physical addresses have 40 bits.
const LIMIT: u64 = 1 << 40;

/// A board's address functions, which have no effect here.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Bits that select a color.
    pub colors: u64,
    /// Masks of the bits whose XOR selects a bank.
    pub banks: [u64; MAX_BANK_BITS],
}

/// An invalid geometry, which does not occur here.
#[derive(Clone, Copy, Debug)]
pub struct BadGeometry;

/// The only page class.
#[derive(Clone, Copy, Debug)]
pub struct PageClasses;

impl PageClasses {
    /// Returns the only page class, whatever the board's functions are.
    ///
    /// # Errors
    ///
    /// Returns none.
    pub const fn new(_: &Geometry) -> Result<Self, BadGeometry> {
        Ok(Self)
    }

    /// Returns the set of the one page class.
    #[must_use]
    pub const fn all(&self) -> ClassSet {
        ClassSet
    }

    /// Returns the same set, whatever the bitmap is: an owner has all page classes.
    #[must_use]
    pub const fn set(&self, _: [u64; 4]) -> Option<ClassSet> {
        Some(ClassSet)
    }

    /// Returns the one page class.
    #[must_use]
    pub const fn class_of(&self, _: u64) -> PageClass {
        PageClass
    }

    /// Returns 0: no color bit separates owners.
    #[must_use]
    pub const fn color_bits_of(&self, _: &ClassSet) -> u64 {
        0
    }

    /// Returns the address of page number `index` of the pages at or above `start`.
    #[must_use]
    pub fn nth_page(&self, _: &ClassSet, start: u64, index: u64) -> Option<u64> {
        let page = start.div_ceil(PAGE).checked_add(index)?;
        (page < LIMIT / PAGE).then(|| page * PAGE)
    }

    /// Returns the address of the page after the page at `address`.
    #[must_use]
    pub fn page_after(&self, _: &ClassSet, address: u64) -> Option<u64> {
        let page = (address / PAGE + 1).checked_mul(PAGE)?;
        (page < LIMIT).then_some(page)
    }

    /// Returns the range of `len` bytes from `start`, in whole pages.
    #[must_use]
    pub fn extent(&self, _: &ClassSet, start: u64, len: u64) -> Option<Range<u64>> {
        let is_whole = (start | len).is_multiple_of(PAGE) && len != 0;
        let end = start.checked_add(len).filter(|_| is_whole)?;
        (end <= LIMIT).then_some(start..end)
    }
}

/// The number of the only page class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageClass;

/// The set of the only page class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSet;

impl ClassSet {
    /// Returns true.
    #[must_use]
    pub const fn contains(&self, _: PageClass) -> bool {
        true
    }

    /// Returns false: all owners have the one page class.
    #[must_use]
    pub const fn is_apart_from(&self, _: &Self) -> bool {
        false
    }
}

/// Contiguous pages.
#[derive(Clone, Debug)]
pub struct Pages<'a> {
    /// The address of the next page.
    next: u64,
    left: u64,
    classes: PhantomData<&'a PageClasses>,
}

impl<'a> Pages<'a> {
    /// Returns pages of `len` bytes from the first page at or above `start` on.
    #[must_use]
    pub fn from_page(_: &'a PageClasses, _: ClassSet, start: u64, len: u64) -> Self {
        let next = start.checked_next_multiple_of(PAGE).unwrap_or(LIMIT).min(LIMIT);
        let left = (len / PAGE).min((LIMIT - next) / PAGE);
        Self { next, left, classes: PhantomData }
    }

    /// Returns the address of the page with this index.
    #[must_use]
    pub fn nth_page(&self, index: u64) -> Option<u64> {
        (index < self.left).then(|| self.next + index * PAGE)
    }

    /// Returns the index of the page that contains `address`.
    #[must_use]
    pub fn index_of(&self, address: u64) -> Option<u64> {
        let index = (address / PAGE).checked_sub(self.next / PAGE)?;
        (index < self.left).then_some(index)
    }

    /// Returns the address of the page after the page at `address`.
    #[must_use]
    pub fn after(&self, address: u64) -> Option<u64> {
        let page = (address / PAGE + 1).checked_mul(PAGE)?;
        (page < LIMIT).then_some(page)
    }

    /// Returns how many pages there are.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.left
    }

    /// Returns how many pages have not been taken.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Writes pages into `entries` with these attributes, up to the first entry that is not zero.
    /// Returns how many entries were written.
    pub fn fill(&mut self, entries: &mut [u64], attributes: u64) -> usize {
        let free = entries.iter_mut().take_while(|entry| **entry == 0);
        let mut filled = 0;
        for entry in free.take(usize::try_from(self.left).unwrap_or(usize::MAX)) {
            *entry = self.next | attributes;
            self.next += PAGE;
            self.left -= 1;
            filled += 1;
        }
        filled
    }
}

impl Iterator for Pages<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let page = self.next;
        self.next += PAGE;
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes;

    /// The build without page classes finds the same pages as the other build finds with one page
    /// class.
    #[test]
    fn pages_are_those_of_one_page_class() {
        let geometry = Geometry { colors: 0x1000, banks: [0; MAX_BANK_BITS] };
        let classes = PageClasses::new(&geometry).expect("any functions");
        let one = classes::PageClasses::ONE;
        assert_eq!(classes.set([2, 0, 0, 0]), Some(classes.all()));
        assert!(!classes.all().is_apart_from(&ClassSet));
        assert!(classes.all().contains(classes.class_of(PAGE)));
        assert_eq!(classes.color_bits_of(&ClassSet), one.color_bits_of(&one.all()));
        let places =
            [0, 1, PAGE - 1, PAGE, 7 * PAGE, LIMIT - 2 * PAGE, LIMIT - PAGE + 1, LIMIT, u64::MAX];
        for start in places {
            for len in [0, 1, PAGE, 3 * PAGE, LIMIT, u64::MAX] {
                let case = format!("{start:#x} {len:#x}");
                let extent = one.extent(&one.all(), start, len);
                assert_eq!(classes.extent(&ClassSet, start, len), extent, "{case}");
                let mut pages = Pages::from_page(&classes, ClassSet, start, len);
                let mut expected = classes::Pages::from_page(&one, one.all(), start, len);
                assert_eq!(pages.total(), expected.total(), "{case}");
                for index in [0, 1, 2, 3, u64::MAX] {
                    assert_eq!(pages.nth_page(index), expected.nth_page(index), "{case}");
                }
                assert_eq!(pages.after(start), expected.after(start), "{case}");
                for index in [0, 1, u64::MAX] {
                    let page = one.nth_page(&one.all(), start, index);
                    assert_eq!(classes.nth_page(&ClassSet, start, index), page, "{case}");
                }
                let after = one.page_after(&one.all(), start);
                assert_eq!(classes.page_after(&ClassSet, start), after, "{case}");
                for address in places {
                    assert_eq!(pages.index_of(address), expected.index_of(address), "{case}");
                }
                for _ in 0..2 {
                    assert_eq!(pages.next(), expected.next(), "{case}");
                }
                for mut entries in [[0; 4], [0, 0, 1, 0], [0; 4]] {
                    let mut others = entries;
                    let filled = pages.fill(&mut entries, 0x703);
                    assert_eq!(filled, expected.fill(&mut others, 0x703), "{case}");
                    assert_eq!(entries, others, "{case}");
                    assert_eq!(pages.left(), expected.left(), "{case}");
                }
            }
        }
    }
}
