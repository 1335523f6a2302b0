//! Sets of interrupts, ordered by priority and then by INTID.

use super::{Bits, any};
use weir_units::IntId;

/// Number of implemented priority bits, from bit 7 down.
const PLANES: usize = super::PRIORITY_MASK.count_ones() as usize;

/// A set of interrupts.
#[derive(Clone, Copy)]
pub struct Set {
    words: [u32; 8],
    /// The words that have members.
    pub used: u32,
}

impl Set {
    /// The empty set.
    pub const NONE: Self = Self { words: [0; 8], used: 0 };

    /// Returns the members of `words`.
    pub fn of(words: &[u32; 8]) -> Self {
        let mut set = Self::NONE;
        if any(words) {
            for (w, &word) in words.iter().enumerate() {
                set.add(w, word);
            }
        }
        set
    }

    /// Adds interrupts of word `w`, which has none in the set yet.
    #[inline]
    pub fn add(&mut self, w: usize, bits: u32) {
        self.words[w & 7] = bits;
        self.used |= u32::from(bits != 0) << (w & 7);
    }

    /// Removes an interrupt of word `w`.
    #[inline]
    pub fn remove(&mut self, w: usize, bit: u32) {
        self.words[w & 7] &= !bit;
        if self.words[w & 7] == 0 {
            self.used &= !(1 << (w & 7));
        }
    }

    /// Returns whether the set has more than `few` members.
    #[inline]
    pub fn has_more_than(&self, few: usize) -> bool {
        let mut left = few;
        for w in Bits(self.used) {
            let mut bits = self.words[w & 7];
            while bits != 0 {
                if left == 0 {
                    return true;
                }
                left -= 1;
                bits &= bits - 1;
            }
        }
        false
    }

    /// Returns the first member. `priorities` returns the priorities of a word.
    #[inline]
    pub fn first<'p>(&self, priorities: impl Fn(usize) -> &'p [u8; 32]) -> Option<IntId> {
        let mut first = None;
        let mut lowest = u32::MAX;
        for w in Bits(self.used) {
            let list = priorities(w);
            for n in Bits(self.words[w & 7]) {
                let priority = u32::from(list[n & 31]);
                if priority < lowest {
                    lowest = priority;
                    first = Some(IntId((w << 5 | n) as u32));
                }
            }
        }
        first
    }

    /// Returns the first `count` members. A guest determines how many members there are. Each
    /// member is visited only once, to build bit planes; with these, the first of 32 interrupts is
    /// found in five steps.
    #[cold]
    #[inline(never)]
    pub fn urgent<'p>(mut self, count: usize, priorities: impl Fn(usize) -> &'p [u8; 32]) -> Self {
        // Bit `n` of plane `i` of a word is bit `7 - i` of interrupt `n`'s priority.
        let mut planes = [[0; PLANES]; 8];
        for w in Bits(self.used) {
            let (list, planes) = (priorities(w), &mut planes[w & 7]);
            for n in Bits(self.words[w & 7]) {
                let priority = u32::from(list[n & 31]);
                for (i, plane) in planes.iter_mut().enumerate() {
                    *plane |= (priority >> (7 - i) & 1) << n;
                }
            }
        }
        let mut urgent = Self::NONE;
        for _ in 0..count {
            let (mut place, mut lowest) = (0, u32::MAX);
            let mut bit = 0;
            for w in Bits(self.used) {
                let (bits, priority) = lowest_in(self.words[w & 7], &planes[w & 7]);
                if priority < lowest {
                    (place, lowest, bit) = (w, priority, bits & bits.wrapping_neg());
                }
            }
            self.remove(place, bit);
            urgent.words[place & 7] |= bit;
            urgent.used |= u32::from(bit != 0) << (place & 7);
        }
        urgent
    }
}

/// Returns the members of `set` with the lowest priority value according to `planes`, and this
/// value.
#[inline]
fn lowest_in(set: u32, planes: &[u32; PLANES]) -> (u32, u32) {
    let (mut set, mut priority) = (set, 0);
    for plane in planes {
        let lower = set & !plane;
        priority = priority << 1 | u32::from(lower == 0);
        if lower != 0 {
            set = lower;
        }
    }
    (set, priority)
}

#[cfg(test)]
mod tests {
    use super::Set;
    use proptest::prelude::*;
    use std::vec::Vec;
    use weir_units::IntId;

    proptest! {
        #[test]
        fn taken_by_priority_then_by_intid(
            words in any::<[u32; 8]>(),
            mask in prop_oneof![any::<[u32; 8]>(), Just([0, 0x10, 0, 1, 0, 0, 3, 1 << 31])],
            list in prop::collection::vec((0_u8..32).prop_map(|level| level << 3), 256),
            count in 0_usize..20,
        ) {
            let lists: Vec<[u8; 32]> =
                list.chunks(32).filter_map(|list| list.try_into().ok()).collect();
            let mut set = Set::NONE;
            let mut expected = Vec::new();
            for (w, (word, mask)) in words.into_iter().zip(mask).enumerate() {
                let bits = word & mask;
                set.add(w, bits);
                let members = (0..32).filter(|n| bits >> n & 1 != 0);
                expected.extend(members.map(|n| (lists[w][n], w << 5 | n)));
            }
            expected.sort_unstable();
            prop_assert_eq!(set.has_more_than(count), expected.len() > count);
            let mut urgent = set.urgent(count, |w| &lists[w]);
            for (_, intid) in expected.into_iter().take(count) {
                for set in [&mut set, &mut urgent] {
                    prop_assert_eq!(set.first(|w| &lists[w]), Some(IntId(intid as u32)));
                    set.remove(intid >> 5, 1 << (intid & 31));
                }
            }
            prop_assert!(urgent.used == 0 && urgent.first(|w| &lists[w]).is_none());
        }
    }
}
