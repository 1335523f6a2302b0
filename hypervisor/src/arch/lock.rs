//! Locks between cores.

use super::relax;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};
use weir_sched::ticket::TicketQueue;

/// A lock that serves cores in the order in which they came: a core waits for at most one critical
/// section of each other core. No core waits for another core's answer while it holds one.
#[repr(C)]
pub struct Lock<T> {
    queue: TicketQueue,
    value: UnsafeCell<T>,
}

// SAFETY: a reference to `value` exists on one core at a time, see `Lock::lock`. `T` moves between
// cores with it.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to the value of a lock, until it is dropped.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    ticket: u32,
    /// Stays on its core.
    local: PhantomData<*const T>,
}

impl<T> Lock<T> {
    /// Returns an open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { queue: TicketQueue::new(), value: UnsafeCell::new(value) }
    }

    /// Waits until it is this core's turn. Interrupts are masked at EL2, so a critical section is
    /// not preempted.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T> {
        let ticket = self.queue.take();
        if !self.queue.is_served(ticket) {
            self.wait(ticket);
        }
        Guard { lock: self, ticket, local: PhantomData }
    }

    #[cold]
    #[inline(always)]
    fn wait(&self, ticket: u32) {
        while !self.queue.is_served(ticket) {
            relax();
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: tickets differ, only this guard's is served until it is dropped
        // (`weir_sched::ticket`), and the reference lives no longer than the guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` excludes another reference through this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.queue.leave(self.ticket);
    }
}
