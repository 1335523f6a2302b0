//! The lock of a socket device.

use crate::arch::{relax, timer};
use core::{
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU64, Ordering},
};
use spin::mutex::{TicketMutex, TicketMutexGuard};

/// How a lock waits.
pub struct Yield;

impl spin::RelaxStrategy for Yield {
    fn relax() {
        relax();
    }
}

/// The longest that such a lock was held, and waited for, since that was last told, in ticks.
static LONGEST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// A lock that serves cores in order of arrival, so that a core waits for one turn of each other
/// core and no more, and that knows how long a turn is.
pub struct Fair<T>(TicketMutex<T, Yield>);

/// What is locked.
pub struct Held<'a, T> {
    guard: TicketMutexGuard<'a, T, Yield>,
    since: u64,
}

impl<T> Fair<T> {
    /// Of this.
    pub const fn new(value: T) -> Self {
        Self(TicketMutex::new(value))
    }

    /// Locks it.
    pub fn lock(&self) -> Held<'_, T> {
        if let Some(guard) = self.0.try_lock() {
            return Held { guard, since: timer::ticks() };
        }
        let begun = timer::ticks();
        let guard = self.0.lock();
        let since = timer::ticks();
        note(&LONGEST[1], since.wrapping_sub(begun).max(1));
        Held { guard, since }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        note(&LONGEST[0], timer::ticks().wrapping_sub(self.since));
    }
}

// Relaxed, here and below: figures, on which nothing depends.
fn note(longest: &AtomicU64, ticks: u64) {
    if ticks > longest.load(Ordering::Relaxed) {
        longest.fetch_max(ticks, Ordering::Relaxed);
    }
}

/// The longest turn and the longest wait for one since this was last called, in ticks; 0 where
/// there was none.
pub fn take_longest() -> [u64; 2] {
    [&LONGEST[0], &LONGEST[1]].map(|longest| longest.swap(0, Ordering::Relaxed))
}
