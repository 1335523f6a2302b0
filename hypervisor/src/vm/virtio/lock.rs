//! The lock of a socket device.

use crate::arch::{relax, timer};
use core::{
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU64, Ordering},
};
use spin::mutex::{TicketMutex, TicketMutexGuard};

/// The strategy by which a lock waits.
pub struct Yield;

impl spin::RelaxStrategy for Yield {
    fn relax() {
        relax();
    }
}

/// The longest time that any lock of this kind was held, and the longest time that a core waited
/// for one, since they were last reported, in ticks.
static LONGEST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// A lock that serves cores in order of arrival, so that a core waits for at most one critical
/// section of each other core. It also measures how long it is held and waited for.
pub struct Fair<T>(TicketMutex<T, Yield>);

/// The locked value; dropping it releases the lock.
pub struct Held<'a, T> {
    guard: TicketMutexGuard<'a, T, Yield>,
    since: u64,
}

impl<T> Fair<T> {
    /// Returns an open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(TicketMutex::new(value))
    }

    /// Waits until the lock is free and takes it.
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

// Relaxed, here and below: statistics on which nothing depends.
fn note(longest: &AtomicU64, ticks: u64) {
    if ticks > longest.load(Ordering::Relaxed) {
        longest.fetch_max(ticks, Ordering::Relaxed);
    }
}

/// Returns the longest time that a lock was held, and the longest wait for one, since the last
/// call, in ticks; 0 if there was none.
pub fn take_longest() -> [u64; 2] {
    [&LONGEST[0], &LONGEST[1]].map(|longest| longest.swap(0, Ordering::Relaxed))
}
