//! The atomic operations of a group's budget. The shipped code runs on core's atomics; the models
//! in the tests run on loom's atomics and on weaker ones.

pub(crate) use core::sync::atomic::{AtomicU64, Ordering};

/// 64 bits that several cores load and store.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    /// Stores `new` if the value is `old`; otherwise returns the value. Orders no other access.
    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    #[inline]
    fn exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
    }
}

/// Number of attempts of an exchange. Each failure is the success of another core, and a core has
/// at most one per interrupt, so eight cores never come near this limit. A vCPU whose attempts all
/// fail gets nothing, which is safe.
const ATTEMPTS: u32 = 64;

/// Replaces a word's value by the one that `change` computes from it, and returns the result of
/// `change`. Returns none if `change` declines or other cores were always faster.
#[inline]
pub(crate) fn update<T>(
    word: &impl Word,
    mut change: impl FnMut(u64) -> Option<(u64, T)>,
) -> Option<T> {
    let mut old = word.load(Ordering::Relaxed);
    for _ in 0..ATTEMPTS {
        let (new, result) = change(old)?;
        match word.exchange(old, new) {
            Ok(_) => return Some(result),
            Err(now) => old = now,
        }
    }
    None
}
