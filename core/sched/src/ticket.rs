//! The queue of a lock that serves its contenders in the order in which they came, so that a core
//! waits for at most one critical section of each other core.
//!
//! The order of [`TicketQueue::take`] is the order of service. Only the holder stores to `serving`,
//! so leaving needs no atomic read-modify-write.

#[cfg(not(test))]
use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(test)]
use loom::sync::atomic::{AtomicU32, Ordering};

/// The queue of one lock. Fewer than 2^32 contenders wait at any time.
#[derive(Debug)]
#[repr(C)]
pub struct TicketQueue {
    /// The first field, because two of the three accesses of an open lock are to it, and the first
    /// field needs no offset.
    serving: AtomicU32,
    next: AtomicU32,
}

impl TicketQueue {
    /// Returns a queue in which ticket 0 is served first.
    #[cfg(not(test))]
    #[must_use]
    pub const fn new() -> Self {
        Self { serving: AtomicU32::new(0), next: AtomicU32::new(0) }
    }

    /// Returns a queue in which ticket 0 is served first.
    #[cfg(test)]
    #[must_use]
    pub fn new() -> Self {
        Self { serving: AtomicU32::new(0), next: AtomicU32::new(0) }
    }

    /// Takes a place in the queue and returns its ticket.
    #[inline]
    #[must_use]
    pub fn take(&self) -> u32 {
        // Relaxed: `is_served` acquires what the previous holder wrote.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether `ticket` is served now. Its owner then holds the lock until it calls
    /// [`TicketQueue::leave`].
    #[inline]
    #[must_use]
    pub fn is_served(&self, ticket: u32) -> bool {
        // Acquire: the accesses of the following critical section come after those of the previous
        // one, which ended with the store in `leave`.
        self.serving(Ordering::Acquire) == ticket
    }

    /// Serves the ticket after `ticket`, which belongs to the caller and is served now.
    #[inline]
    pub fn leave(&self, ticket: u32) {
        // Release: the accesses of this critical section come before the load in the next holder's
        // `is_served`.
        self.serve(ticket.wrapping_add(1), Ordering::Release);
    }

    #[inline]
    fn serving(&self, order: Ordering) -> u32 {
        self.serving.load(order)
    }

    #[inline]
    fn serve(&self, ticket: u32, order: Ordering) {
        self.serving.store(ticket, order);
    }
}

impl Default for TicketQueue {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::TicketQueue;
    use loom::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        thread,
    };
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const CORES: u32 = 2;

    /// The data that the lock protects: words without any ordering of their own.
    struct Protected {
        queue: TicketQueue,
        entered: AtomicU32,
        inside: AtomicU32,
    }

    /// Locks once on each of two cores. The ticket of each core must be the number of cores that
    /// were served before it, and the two cores must not be inside at the same time.
    fn model(acquire: Ordering, release: Ordering) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.max_branches = 20_000;
        builder.check(move || {
            let shared = Arc::new(Protected {
                queue: TicketQueue::new(),
                entered: AtomicU32::new(0),
                inside: AtomicU32::new(0),
            });
            let enter = move |shared: &Protected| {
                let ticket = shared.queue.take();
                while shared.queue.serving(acquire) != ticket {
                    thread::yield_now();
                }
                let before = shared.entered.load(Ordering::Relaxed);
                assert_eq!(
                    before, ticket,
                    "served out of order, or not ordered after the holder before"
                );
                assert_eq!(shared.inside.load(Ordering::Relaxed), 0, "two holders");
                shared.inside.store(1, Ordering::Relaxed);
                shared.entered.store(before + 1, Ordering::Relaxed);
                shared.inside.store(0, Ordering::Relaxed);
                shared.queue.serve(ticket + 1, release);
            };
            let others: Vec<_> = (1..CORES)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || enter(&shared))
                })
                .collect();
            enter(&shared);
            for other in others {
                other.join().unwrap();
            }
            assert_eq!(shared.entered.load(Ordering::Relaxed), CORES);
        });
    }

    #[test]
    fn contenders_are_served_in_order_and_one_at_a_time() {
        model(Ordering::Acquire, Ordering::Release);
    }

    #[test]
    fn the_model_finds_the_loss_of_either_ordering() {
        for (acquire, release) in
            [(Ordering::Relaxed, Ordering::Release), (Ordering::Acquire, Ordering::Relaxed)]
        {
            let found = catch_unwind(AssertUnwindSafe(|| model(acquire, release)));
            let message = found.expect_err("the loss is not found");
            let message = message.downcast_ref::<String>().map(String::as_str).unwrap_or_default();
            assert!(message.contains("served out of order"), "{acquire:?}, {release:?}: {message}");
        }
    }

    #[test]
    fn a_ticket_is_served_after_the_last_number_too() {
        loom::model(|| {
            let queue = TicketQueue::new();
            queue.serve(u32::MAX, Ordering::Relaxed);
            assert!(queue.is_served(u32::MAX) && !queue.is_served(0));
            queue.leave(u32::MAX);
            assert!(queue.is_served(0));
        });
    }
}
