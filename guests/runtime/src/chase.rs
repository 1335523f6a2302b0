//! Pointers that lead through memory in a random order, for what measures how long a load takes:
//! each load needs the one before.

/// Places of 8 bytes in memory, the same distance apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChasedPlaces {
    start: u64,
    count: u64,
    stride: u64,
}

impl ChasedPlaces {
    /// `count` places from address `start` on, `stride` bytes apart.
    ///
    /// # Safety
    ///
    /// They are memory that nothing else uses, and aligned to 8 bytes.
    #[must_use]
    pub const unsafe fn new(start: u64, count: u64, stride: u64) -> Self {
        Self { start, count, stride }
    }

    fn at(self, index: u64) -> *mut u64 {
        (self.start + index * self.stride) as *mut u64
    }

    /// Makes of all places one cycle in random order, always the same (Sattolo's algorithm), each
    /// with the address of the next, and gives the first place's address.
    #[must_use]
    pub fn shuffle(self) -> u64 {
        for index in 0..self.count {
            // SAFETY: one of the places, which are this caller's (`new`).
            unsafe { self.at(index).write_volatile(self.at(index) as u64) };
        }
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for index in (1..self.count).rev() {
            // xorshift64 (G. Marsaglia: Xorshift RNGs, 2003).
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (one, other) = (self.at(index), self.at(random % index));
            // SAFETY: as above; both are.
            let values = unsafe { (one.read_volatile(), other.read_volatile()) };
            // SAFETY: as above.
            unsafe { one.write_volatile(values.1) };
            // SAFETY: as above.
            unsafe { other.write_volatile(values.0) };
        }
        self.start
    }

    /// Follows the pointers from the place at `at` for `loads` loads, and gives the address of the
    /// last place. After [`Self::shuffle`] as many loads as there are places lead back to where
    /// they began.
    ///
    /// # Safety
    ///
    /// `shuffle` has been called and nothing else was stored there since; `at` is what it or an
    /// earlier walk gave.
    #[must_use]
    pub unsafe fn walk(self, mut at: u64, loads: u64) -> u64 {
        for _ in 0..loads {
            // SAFETY: by the contract `at` is a place, and each place holds the address of one.
            at = unsafe { (at as *const u64).read_volatile() };
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_walk_visits_every_place_once_and_closes(
            count in 1_u64..300, stride in 1_u64..8,
        ) {
            let mut memory = vec![0_u64; (count * stride) as usize];
            // SAFETY: the vector's own memory, of as many words.
            let places = unsafe { ChasedPlaces::new(memory.as_mut_ptr() as u64, count, 8 * stride) };
            let start = places.shuffle();
            let mut at = start;
            for load in 1..=count {
                // SAFETY: shuffled above.
                at = unsafe { places.walk(at, 1) };
                prop_assert_eq!(at == start, load == count);
            }
        }
    }
}
