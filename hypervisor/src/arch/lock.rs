//! Locks between cores.

use super::relax;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};
use weir_sched::ticket::TicketQueue;

/// A lock that serves cores in the order in which they came: a core waits for at most one critical
/// section of each other core. A core that holds a lock never waits for an answer from another
/// core.
#[repr(C)]
pub struct Lock<T> {
    queue: TicketQueue,
    value: UnsafeCell<T>,
}

// SAFETY: a reference to `value` exists on one core at a time, see `Lock::lock`. `T` moves between
// cores with the lock.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Access to the value of a lock; dropping the guard releases the lock.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    ticket: u32,
    /// Keeps the guard on its core: it is neither `Send` nor `Sync`.
    local: PhantomData<*const T>,
}

impl<T> Lock<T> {
    /// Returns an open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { queue: TicketQueue::new(), value: UnsafeCell::new(value) }
    }

    /// Waits until this core's ticket is served. Interrupts are masked at EL2, so a critical
    /// section is not preempted.
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
        // SAFETY: tickets differ, and only this guard's ticket is served until the guard is dropped
        // (`weir_sched::ticket`); the reference does not outlive the guard.
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
