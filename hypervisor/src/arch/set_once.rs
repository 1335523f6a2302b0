//! Values that are set while EL2 starts, and then only read. `spin::Once` would link a
//! panic, for the use of a value after a panic in its initialization; EL2 has no panic.

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

// SAFETY: one caller of `set` writes the value, before `get` gives out references to it.
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

    /// Sets the value. The first one stays.
    pub fn set(&self, value: T) {
        // Relaxed: it only chooses the writer.
        if !self.taken.swap(true, Ordering::Relaxed) {
            // SAFETY: this is the only writer, and nothing refers to the value before the store
            // below.
            unsafe { (*self.value.get()).write(value) };
            // Release: the value comes before.
            self.is_set.store(true, Ordering::Release);
        }
    }

    /// Returns the value, if it is set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire: the value that `set` wrote.
        let is_set = self.is_set.load(Ordering::Acquire);
        // SAFETY: it is written, and is not written again.
        is_set.then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }
}
