//! Values that are set while EL2 starts, and only read afterwards. `spin::Once` would link a panic,
//! for the use of a value whose initialization panicked; EL2 contains no panic.

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    sync::atomic::{AtomicBool, Ordering},
};

/// A value that is set once.
pub struct SetOnce<T> {
    taken: AtomicBool,
    is_set: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: one caller of `set` writes the value, before `get` returns references to it.
unsafe impl<T: Send + Sync> Sync for SetOnce<T> {}

impl<T> SetOnce<T> {
    /// Returns an empty cell.
    pub const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            is_set: AtomicBool::new(false),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Sets the value. Later calls have no effect.
    pub fn set(&self, value: T) {
        // Relaxed: the flag only selects the writer.
        if !self.taken.swap(true, Ordering::Relaxed) {
            // SAFETY: this is the only writer, and there is no reference to the value before the
            // store below.
            unsafe { (*self.value.get()).write(value) };
            // Release: the write to the value comes before the flag.
            self.is_set.store(true, Ordering::Release);
        }
    }

    /// Returns the value, if it is set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire: makes the value that `set` wrote visible.
        let is_set = self.is_set.load(Ordering::Acquire);
        // SAFETY: the value is written, and is not written again.
        is_set.then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }
}
