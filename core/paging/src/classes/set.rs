//! Sets of page classes.

use core::fmt;

/// The number of a page class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageClass(pub u8);

/// Words of a bitmap with one bit for each page class.
const WORDS: usize = 4;

/// A set of page classes, at least one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassSet([u64; WORDS]);

impl ClassSet {
    /// The only page class of a board without geometry, as a set.
    pub const ONE: Self = Self([1, 0, 0, 0]);

    /// Returns a set from its bitmap, with page class 0 in bit 0 of the first word; `None` if it is
    /// empty.
    #[must_use]
    pub const fn new(words: [u64; WORDS]) -> Option<Self> {
        if words[0] | words[1] | words[2] | words[3] == 0 { None } else { Some(Self(words)) }
    }

    /// Returns the set of these page classes; `None` if there are none.
    pub fn of(classes: impl IntoIterator<Item = PageClass>) -> Option<Self> {
        let mut words = [0; WORDS];
        for class in classes {
            if let Some(word) = words.get_mut(usize::from(class.0 >> 6)) {
                *word |= 1 << (class.0 & 63);
            }
        }
        Self::new(words)
    }

    /// Returns page classes 0 to `count` - 1, at least one.
    pub(super) const fn first(count: usize) -> Self {
        let mut words = [0; WORDS];
        let mut word = 0;
        while word < WORDS {
            let here = count.saturating_sub(64 * word);
            words[word] = if here >= 64 { u64::MAX } else { (1 << here) - 1 };
            word += 1;
        }
        words[0] |= 1;
        Self(words)
    }

    /// Returns the bitmap.
    #[must_use]
    pub const fn words(&self) -> [u64; WORDS] {
        self.0
    }

    /// Returns whether the set contains `class`.
    #[must_use]
    pub fn contains(&self, class: PageClass) -> bool {
        self.0.get(usize::from(class.0 >> 6)).is_some_and(|word| word >> (class.0 & 63) & 1 != 0)
    }

    /// Returns the set of the page classes whose numbers are XORed with `by`.
    pub(super) fn moved(&self, by: u8) -> Self {
        // The numbers below 64 in which bit 0, 1, .. is 0.
        const EVEN: [u64; 6] = [
            0x5555_5555_5555_5555,
            0x3333_3333_3333_3333,
            0x0f0f_0f0f_0f0f_0f0f,
            0x00ff_00ff_00ff_00ff,
            0x0000_ffff_0000_ffff,
            0x0000_0000_ffff_ffff,
        ];
        let mut words = self.0;
        for (bit, even) in EVEN.iter().enumerate().filter(|(bit, _)| by >> bit & 1 != 0) {
            for word in &mut words {
                *word = (*word & even) << (1 << bit) | *word >> (1 << bit) & even;
            }
        }
        let high = usize::from(by >> 6);
        Self(core::array::from_fn(|index| words.get(index ^ high).copied().unwrap_or(0)))
    }

    /// Returns the number of page classes in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns false: a set contains at least one page class by construction.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Returns the page classes in order.
    pub fn iter(&self) -> impl Iterator<Item = PageClass> + use<> {
        let set = *self;
        (0..=u8::MAX).map(PageClass).filter(move |&class| set.contains(class))
    }

    /// Returns the page classes in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        self.zip(other, |mine, theirs| mine & theirs)
    }

    /// Returns the page classes that are only in this set.
    #[must_use]
    pub fn without(&self, other: &Self) -> Option<Self> {
        self.zip(other, |mine, theirs| mine & !theirs)
    }

    /// Returns the page classes in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |mine, theirs| mine | theirs).unwrap_or(*self)
    }

    fn zip(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Option<Self> {
        let mut words = self.0;
        for (mine, theirs) in words.iter_mut().zip(other.0) {
            *mine = combine(*mine, theirs);
        }
        Self::new(words)
    }

    /// Returns whether all page classes are also in `other`.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.without(other).is_none()
    }

    /// Returns whether no page class is also in `other`.
    #[must_use]
    pub fn is_apart_from(&self, other: &Self) -> bool {
        self.intersection(other).is_none()
    }

    /// Returns how many of the page classes have the number `high` above their low `bits` bits, 0
    /// to 8.
    pub(super) fn count_under(&self, bits: u32, high: u8) -> u64 {
        let first = usize::from(high) << bits;
        let word = |index: usize| self.0.get(index).copied().unwrap_or(0);
        if bits < 6 {
            let mask = (1u64 << (1 << bits)) - 1;
            return u64::from((word(first >> 6) >> (first & 63) & mask).count_ones());
        }
        let words = first >> 6..(first >> 6) + (1 << (bits - 6).min(2));
        words.map(|index| u64::from(word(index).count_ones())).sum()
    }

    /// Returns whether the set contains such a page class.
    pub(super) fn any_under(&self, bits: u32, high: u8) -> bool {
        let first = usize::from(high) << bits;
        let word = |index: usize| self.0.get(index).copied().unwrap_or(0);
        if bits < 6 {
            let mask = (1u64 << (1 << bits)) - 1;
            return word(first >> 6) >> (first & 63) & mask != 0;
        }
        let mut words = first >> 6..(first >> 6) + (1 << (bits - 6).min(2));
        words.any(|index| word(index) != 0)
    }
}

/// Formats the set as ranges: `0-3,8`.
impl fmt::Display for ClassSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut classes = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = classes.next() {
            let mut last = first;
            while let Some(next) = classes.next_if(|next| next.0 == last.0.wrapping_add(1)) {
                last = next;
            }
            write!(f, "{separator}{}", first.0)?;
            if last != first {
                write!(f, "-{}", last.0)?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for ClassSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClassSet({self})")
    }
}
