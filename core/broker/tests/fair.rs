//! The lock of socket devices as the hypervisor has it: the first core to ask gets it first.

#[path = "../../../hypervisor/src/vm/virtio/lock.rs"]
mod lock;

/// What the lock has of the hypervisor.
mod arch {
    pub fn relax() {
        std::thread::yield_now();
    }

    pub mod timer {
        use std::sync::atomic::{AtomicU64, Ordering};

        /// One more each time.
        pub fn ticks() -> u64 {
            static TICKS: AtomicU64 = AtomicU64::new(0);
            TICKS.fetch_add(1, Ordering::Relaxed)
        }
    }
}

use lock::Fair;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// A core that releases it and wants it at once is behind all that wait, once each.
#[test]
fn who_wants_it_again_comes_behind_who_waits() {
    const WAITING: usize = 3;
    const TURNS: usize = 200;
    let (order, came) = (Fair::new(Vec::new()), AtomicUsize::new(0));
    let held = order.lock();
    assert_eq!(lock::take_longest(), [0, 0]);
    thread::scope(|scope| {
        for one in 1..=WAITING {
            let (order, came) = (&order, &came);
            scope.spawn(move || {
                for _ in 0..TURNS {
                    came.fetch_add(1, Ordering::Relaxed);
                    order.lock().push(one);
                }
            });
        }
        while came.load(Ordering::Relaxed) < WAITING {
            thread::yield_now();
        }
        // What is left of their way to the lock.
        thread::sleep(Duration::from_millis(200));
        drop(held);
        order.lock().push(0);
    });
    let order = order.lock();
    assert_eq!(order.len(), 1 + WAITING * TURNS);
    let again = order.iter().position(|one| *one == 0).expect("its turn");
    // Each of those that waited has had a turn before.
    let before = &order[..again];
    assert!((1..=WAITING).all(|one| before.contains(&one)), "{before:?}");
    let [held, waited] = lock::take_longest();
    assert!(held > 0 && waited > 0, "turns and waits are reported: {held}, {waited}");
}
