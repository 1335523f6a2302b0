//! Pseudo-random numbers, the same in each run.

use core::sync::atomic::{AtomicU64, Ordering};

/// A sequence of numbers (Knuth's MMIX generator; its upper bits). One core at a time draws from
/// it.
#[derive(Debug)]
pub struct Random(AtomicU64);

impl Random {
    /// The sequence that `seed` stands for.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Begins the sequence of `seed`.
    pub fn seed(&self, seed: u64) {
        self.0.store(seed, Ordering::Relaxed);
    }

    /// The next, of 40 bits.
    pub fn next(&self) -> u64 {
        let state = self.0.load(Ordering::Relaxed);
        let next =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.store(next, Ordering::Relaxed);
        next >> 24
    }

    /// The next, below `limit`.
    ///
    /// # Panics
    ///
    /// When `limit` is 0.
    pub fn below(&self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// `length`, a quarter more or less.
    pub fn about(&self, length: u64) -> u64 {
        length - length / 4 + self.below(length / 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_a_quarter_off_at_the_most() {
        let random = Random::new(1);
        let (mut least, mut most) = (u64::MAX, 0);
        for _ in 0..10_000 {
            let length = random.about(1000);
            (least, most) = (least.min(length), most.max(length));
        }
        assert_eq!((least, most), (750, 1250));
        assert_eq!(random.about(0), 0);
        assert!((0..100).all(|_| random.next() >> 40 == 0));
    }

    #[test]
    fn a_seed_stands_for_its_sequence() {
        let (one, other) = (Random::new(7), Random::new(1));
        let first: [u64; 4] = core::array::from_fn(|_| one.next());
        other.seed(7);
        assert_eq!(core::array::from_fn(|_| other.next()), first);
    }
}
