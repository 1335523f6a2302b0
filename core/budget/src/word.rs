//! The atomic operations that a group's budget is made of: the shipped code runs on core's, the
//! models in the tests on loom's and on ones that are weaker than asked for.

pub(crate) use core::sync::atomic::{AtomicU64, Ordering};

/// 64 bits that several cores load and store.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    /// Stores `new` if the value is `old`; otherwise the value. Orders nothing else.
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

/// How often an exchange is tried. Each failure is another core's success, of which there is one an
/// interrupt: eight cores don't come near. A vCPU that fails as often gets nothing, which is safe.
const ATTEMPTS: u32 = 64;

/// Replaces a word's value by what `change` makes of it, and returns the result in addition; none
/// if `change` declines or others were always faster.
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
