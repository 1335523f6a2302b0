//! The pages of a set of page classes.

use super::{ClassSet, PAGE_BITS, PAGE_SHIFT, PageClass, PageClasses};
use crate::PAGE;
use core::ops::Range;

/// Number of entries of the list; the first entries are found one by one, the others are copied
/// from them.
const LIST: usize = 1024;
/// Number of pages that a window should have, so that the cost of a window is small for each of
/// them.
const AIM: u64 = 512;
/// Bits of the largest window, in pages: the 16 bits of a list entry.
const MAX_WINDOW: u32 = 16;
/// Number of pages outside of the set that are skipped one by one.
const NEAR: u32 = 16;

/// The pages of a set of page classes in a range of physical addresses, in ascending order. The
/// iterator returns the address of each page.
///
/// A *window* is an aligned block of pages. The positions of the set's pages in it are kept in a
/// list, which is the same for all windows of the same page class. So the usual step is one entry
/// of the list, see [`Pages::fill`].
#[derive(Clone, Debug)]
pub struct Pages<'a> {
    classes: &'a PageClasses,
    set: ClassSet,
    /// Number of pages of the set below the range, below the next page, and below the end of the
    /// range.
    first: u64,
    next: u64,
    end: u64,
    /// Bits of the window, in pages; none before there is a list.
    bits: Option<u32>,
    /// Page number of the start of the range.
    start: u64,
    /// Bits of a page number that determine whether the set contains the page, once there is a
    /// list. Other bits of [`PageClasses::involved`] only lead from page classes of the set to page
    /// classes of the set: for example the bank bits, if the set is selected by colors.
    matters: u64,
    /// The first page of the window that the list describes, and the page class of this page, which
    /// is added to that of each page in the window.
    window: u64,
    coset: u8,
    list: [u16; LIST],
    len: usize,
    at: usize,
}

impl<'a> Pages<'a> {
    /// Returns the whole pages of `set` in `range`; addresses above 40 bits are left out.
    #[must_use]
    pub fn new(classes: &'a PageClasses, set: ClassSet, range: Range<u64>) -> Self {
        let limit = 1 << PAGE_BITS;
        let start = range.start.div_ceil(PAGE).min(limit);
        let end = (range.end / PAGE).clamp(start, limit);
        let (first, end) = (below(classes, &set, start), below(classes, &set, end));
        Self {
            classes,
            set,
            first,
            next: first,
            end,
            bits: None,
            start,
            matters: 0,
            window: 0,
            coset: 0,
            list: [0; LIST],
            len: 0,
            at: 0,
        }
    }

    /// Returns the pages of `set` from the page at `start` on, as many as make up `len` bytes.
    #[must_use]
    pub fn from_page(classes: &'a PageClasses, set: ClassSet, start: u64, len: u64) -> Self {
        let mut pages = Self::new(classes, set, start..u64::MAX);
        pages.end = pages.end.min(pages.first.saturating_add(len / PAGE));
        pages
    }

    /// Returns the address of page number `index` of the range, from 0 on, however many pages were
    /// taken already.
    #[must_use]
    pub fn nth_page(&self, index: u64) -> Option<u64> {
        let rank = self.first.checked_add(index).filter(|&rank| rank < self.end)?;
        if index == 0 {
            return Some(successor(self.classes, &self.set, self.start)? << PAGE_SHIFT);
        }
        Some(nth(self.classes, &self.set, rank) << PAGE_SHIFT)
    }

    /// Returns the index in the range of the page that contains `address`, if it is one of them:
    /// the inverse of [`Pages::nth_page`].
    #[must_use]
    pub fn index_of(&self, address: u64) -> Option<u64> {
        let page = address >> PAGE_SHIFT;
        if page >> PAGE_BITS != 0 || !self.set.contains(self.classes.class_of(address)) {
            return None;
        }
        let rank = below(self.classes, &self.set, page);
        (self.first..self.end).contains(&rank).then(|| rank - self.first)
    }

    /// Returns the address of the first page of the set above the page at `address`, inside or
    /// outside of the range.
    #[must_use]
    pub fn after(&self, address: u64) -> Option<u64> {
        self.classes.page_after(&self.set, address)
    }

    /// Returns how many pages the range has, however many were taken already.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.end - self.first
    }

    /// Returns how many pages have not been taken.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Returns the address behind the last byte of the last page; `None` if there is no page.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        Some(self.nth_page(self.total().checked_sub(1)?)? + PAGE)
    }

    /// Returns the next pages that are contiguous, as many as there are.
    pub fn next_run(&mut self) -> Option<Range<u64>> {
        let start = self.next()?;
        let mut end = start + PAGE;
        while self.peek() == Some(end) {
            self.advance();
            end += PAGE;
        }
        Some(start..end)
    }

    /// Writes the address of the next page, XORed with `attributes`, into each entry, as long as
    /// there are pages and the entries are 0. Returns how many entries were written. `attributes`
    /// are the bits of every descriptor in addition to the address.
    pub fn fill(&mut self, entries: &mut [u64], attributes: u64) -> usize {
        let mut filled = 0;
        while let Some(entries) = entries.get_mut(filled..).filter(|entries| !entries.is_empty()) {
            if self.peek().is_none() {
                break;
            }
            let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
            let room = entries.len().min(left).min(self.len - self.at);
            let (Some(entries), Some(list)) =
                (entries.get_mut(..room), self.list.get(self.at..self.at + room))
            else {
                break;
            };
            let key = self.window << PAGE_SHIFT ^ attributes;
            let mut written = 0;
            // The work for each page of a VM: a load, a test, a load, an XOR, a store.
            for (entry, &place) in entries.iter_mut().zip(list) {
                if *entry != 0 {
                    break;
                }
                *entry = u64::from(place) << PAGE_SHIFT ^ key;
                written += 1;
            }
            self.at += written;
            self.next += written as u64;
            filled += written;
            if written < room {
                break;
            }
        }
        filled
    }

    /// Returns the address that [`Iterator::next`] will return.
    fn peek(&mut self) -> Option<u64> {
        if self.next >= self.end {
            return None;
        }
        let bits = match self.bits {
            Some(bits) => bits,
            // The list is made only when a page is needed: a caller that only asks for positions
            // needs no list.
            None => self.seek()?,
        };
        while self.at >= self.len {
            self.next_window(bits)?;
        }
        let place = u64::from(*self.list.get(self.at)?);
        Some((self.window | place) << PAGE_SHIFT)
    }

    fn advance(&mut self) {
        self.at += 1;
        self.next += 1;
    }

    /// Advances to the next window that has a page of the set.
    fn next_window(&mut self, bits: u32) -> Option<()> {
        let next = self.window + (1 << bits);
        self.at = 0;
        let changes = self.matters >> bits != 0;
        if changes && self.classes.class_of_page(next) != self.coset {
            let page = successor(self.classes, &self.set, next)?;
            self.list(page >> bits << bits, bits);
        } else {
            self.window = next;
        }
        Some(())
    }

    /// Makes the first list. Returns the bits of its window.
    fn seek(&mut self) -> Option<u32> {
        let page = successor(self.classes, &self.set, self.start)?;
        self.matters = matters(self.classes, &self.set);
        let bits = window_bits(self.classes, &self.set, self.matters, self.left());
        self.list(page >> bits << bits, bits);
        let place = (page - self.window) as u16;
        self.at =
            self.list.get(..self.len).map_or(0, |list| list.partition_point(|&at| at < place));
        self.bits = Some(bits);
        Some(bits)
    }

    /// Lists the pages of the window of 2^`bits` pages that begins with page `window`.
    fn list(&mut self, window: u64, bits: u32) {
        self.window = window;
        self.coset = self.classes.class_of_page(window);
        self.len = 0;
        // The list repeats above the bits that determine membership.
        let own = (u64::BITS - self.matters.leading_zeros()).min(bits);
        let end = window + (1 << own);
        let (mut page, mut class, mut misses) = (window, self.coset, 0);
        while page < end {
            if self.set.contains(PageClass(class)) {
                let Some(slot) = self.list.get_mut(self.len) else { return };
                *slot = (page - window) as u16;
                self.len += 1;
                misses = 0;
            } else if misses < NEAR {
                misses += 1;
            } else {
                // If pages of the set are far apart, searching for the next one is faster.
                let Some(next) = successor(self.classes, &self.set, page) else { return };
                (page, class, misses) = (next, self.classes.class_of_page(next), 0);
                continue;
            }
            // Counting up changes the low bits that are 1, and the next higher bit.
            (0..=page.trailing_ones()).for_each(|bit| class ^= self.classes.column(bit));
            page += 1;
        }
        for bit in own..bits {
            let Some((known, rest)) = self.list.split_at_mut_checked(self.len) else { return };
            for (slot, place) in rest.iter_mut().zip(known.iter()) {
                *slot = place | 1 << bit;
            }
            self.len = (2 * self.len).min(LIST);
        }
    }
}

impl PageClasses {
    /// Returns the address of page number `index`, from 0 on, of the pages of `set` at or above
    /// `start`: [`Pages::nth_page`] without [`Pages`].
    #[must_use]
    pub fn nth_page(&self, set: &ClassSet, start: u64, index: u64) -> Option<u64> {
        let first = start.div_ceil(PAGE).min(1 << PAGE_BITS);
        let rank = below(self, set, first).checked_add(index)?;
        let exists = rank < below(self, set, 1 << PAGE_BITS);
        exists.then(|| nth(self, set, rank) << PAGE_SHIFT)
    }

    /// Returns the address of the first page of `set` above the page at `address`.
    #[must_use]
    pub fn page_after(&self, set: &ClassSet, address: u64) -> Option<u64> {
        Some(successor(self, set, (address >> PAGE_SHIFT) + 1)? << PAGE_SHIFT)
    }

    /// Returns the range from the first byte to the address behind the last byte of the pages of
    /// `set` from the page at `start` on, as many as make up `len` bytes. Returns `None` unless
    /// `start` is such a page, `len` consists of whole pages, and there are enough pages below 40
    /// bits.
    #[must_use]
    pub fn extent(&self, set: &ClassSet, start: u64, len: u64) -> Option<Range<u64>> {
        let first = start >> PAGE_SHIFT;
        if !(start | len).is_multiple_of(PAGE) || first >> PAGE_BITS != 0 || len == 0 {
            return None;
        }
        if *set == self.all() {
            let end = start.checked_add(len)?;
            return (end <= 1 << (PAGE_SHIFT + PAGE_BITS)).then_some(start..end);
        }
        if !set.contains(self.class_of(start)) {
            return None;
        }
        let last = below(self, set, first).checked_add(len / PAGE - 1)?;
        let last = (last < below(self, set, 1 << PAGE_BITS)).then(|| nth(self, set, last))?;
        Some(start..(last + 1) << PAGE_SHIFT)
    }
}

impl Iterator for Pages<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let page = self.peek()?;
        self.advance();
        Some(page)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left()).ok();
        (left.unwrap_or(usize::MAX), left)
    }
}

/// Returns the bits of the window for about `wanted` pages of `set`: the largest window that has at
/// most [`AIM`] pages, or a window of all the bits that determine membership if its pages fit the
/// list, so that one list suffices for all windows.
fn window_bits(classes: &PageClasses, set: &ClassSet, matters: u64, wanted: u64) -> u32 {
    let densest = |bits: u32| {
        let below = pivots_below(classes, bits);
        let cosets = (0..classes.count() >> below).map(|high| set.count_under(below, high as u8));
        cosets.max().unwrap_or(0) << (bits - below)
    };
    let aim = wanted.clamp(1, AIM);
    let fitting = (0..=MAX_WINDOW).rev().find(|&bits| densest(bits) <= aim).unwrap_or(0);
    let whole = u64::BITS - matters.leading_zeros();
    if whole > fitting && whole <= MAX_WINDOW && densest(whole) <= LIST as u64 {
        whole
    } else {
        fitting
    }
}

/// Returns the bits of a page number that determine whether `set` contains the page.
fn matters(classes: &PageClasses, set: &ClassSet) -> u64 {
    let bits = (0..PAGE_BITS).filter(|&bit| {
        let column = classes.column(bit);
        column != 0 && set.moved(column) != *set
    });
    bits.fold(0, |matters, bit| matters | 1 << bit)
}

/// Returns how many pivots are below bit `position` of the page number.
fn pivots_below(classes: &PageClasses, position: u32) -> u32 {
    let pivots = classes.pivots.iter().take(classes.rank() as usize);
    pivots.filter(|&&pivot| u32::from(pivot) < position).count() as u32
}

/// Returns a page class's number above its low `bits` bits, 0 to 8.
fn high(class: u8, bits: u32) -> u8 {
    (u16::from(class) >> bits) as u8
}

/// Returns the bits of the smallest block that has a page of each page class. Each block of this
/// size has the same number of pages of the set.
fn whole_bits(classes: &PageClasses) -> u32 {
    let highest = classes.rank().checked_sub(1).and_then(|at| classes.pivots.get(at as usize));
    highest.map_or(0, |&pivot| u32::from(pivot) + 1)
}

/// Returns the bits of a page number below `bits` (above which there is no pivot), from the highest
/// on, each with the number of pivots below it.
fn bits_down(classes: &PageClasses, bits: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut pivots = classes.rank();
    (0..bits).rev().map(move |bit| {
        let highest = pivots.checked_sub(1).and_then(|at| classes.pivots.get(at as usize));
        if highest.is_some_and(|&pivot| u32::from(pivot) == bit) {
            pivots -= 1;
        }
        (bit, pivots)
    })
}

/// Returns how many pages of the block of 2^`bit` pages, whose first page is in page class `class`,
/// are in the set. Each page class that occurs in the block has the same number of pages there.
/// `pivots` is the number of pivots below the bit.
fn in_block(set: &ClassSet, (bit, pivots): (u32, u32), class: u8) -> u64 {
    set.count_under(pivots, high(class, pivots)) << (bit - pivots)
}

/// Returns how many pages of the set have a number below `page`, which is at most 2^28.
fn below(classes: &PageClasses, set: &ClassSet, page: u64) -> u64 {
    let bits = whole_bits(classes);
    let blocks = page >> bits;
    let mut count = blocks * in_block(set, (bits, classes.rank()), 0);
    let mut class = classes.class_of_page(blocks << bits);
    for block in bits_down(classes, bits).filter(|(bit, _)| page >> bit & 1 != 0) {
        count += in_block(set, block, class);
        class ^= classes.column(block.0);
    }
    count
}

/// Returns the page number of page `rank` of the set; `rank` must be less than the number of pages.
fn nth(classes: &PageClasses, set: &ClassSet, rank: u64) -> u64 {
    let bits = whole_bits(classes);
    let each = in_block(set, (bits, classes.rank()), 0);
    let blocks = rank.checked_div(each).unwrap_or(0);
    let (mut page, mut rank) = (blocks << bits, rank - blocks * each);
    let mut class = classes.class_of_page(page);
    for block in bits_down(classes, bits) {
        let here = in_block(set, block, class);
        if rank >= here {
            rank -= here;
            page |= 1 << block.0;
            class ^= classes.column(block.0);
        }
    }
    page
}

/// Returns the first page of the set at or above `from`.
fn successor(classes: &PageClasses, set: &ClassSet, from: u64) -> Option<u64> {
    if from >> PAGE_BITS != 0 {
        return None;
    }
    let mut class = classes.class_of_page(from);
    if set.contains(PageClass(class)) {
        return Some(from);
    }
    // Finds the smallest aligned block above `from` that has a page of the set, beginning with the
    // smallest size.
    let (mut page, mut below) = (from, 0);
    let pivot = |index: u32| classes.pivots.get(index as usize).map(|&pivot| u32::from(pivot));
    for bits in 0..PAGE_BITS {
        let column = classes.column(bits);
        let was_set = page >> bits & 1 != 0;
        class ^= column;
        page ^= 1 << bits;
        if !was_set && set.any_under(below, high(class, below)) {
            break;
        }
        if !was_set {
            class ^= column;
            page ^= 1 << bits;
        }
        if bits + 1 == PAGE_BITS {
            return None;
        }
        if below < classes.rank() && pivot(below) == Some(bits) {
            below += 1;
        }
    }
    // Finds the first page of the set in the block: each pivot, from the highest on, stays 0 if the
    // set then still has a page.
    for index in (0..below).rev() {
        if !set.any_under(index, high(class, index)) {
            class ^= 1 << index;
            page |= 1 << pivot(index)?;
        }
    }
    Some(page)
}
