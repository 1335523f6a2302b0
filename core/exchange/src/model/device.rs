//! A device's words under `loom`: no memory is accessed once its device has been reset, and a queue
//! is seen either as it was published or not at all.

use super::{check, spawn};
use loom::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use weir_vsock::queue::{Layout, Queue, RingOptions};

fn queue(at: u64) -> Queue {
    let layout = Layout { size: 8, descriptors: at, available: at, used: at };
    Queue::new(layout, RingOptions::default())
}

macro_rules! nothing_is_accessed_behind_a_reset {
    ($build:ident) => {
        check(|| {
            use super::$build::device::DeviceWords;
            let shared = Arc::new((DeviceWords::new(), AtomicBool::new(false)));
            let service = spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let (device, given) = &*shared;
                    let epoch = device.epoch();
                    if device.begin(epoch) {
                        assert!(epoch == 1 || !given.load(Relaxed), "memory of another owner");
                        device.end();
                    }
                }
            });
            let (device, given) = &*shared;
            device.reset();
            while device.is_busy() {
                loom::thread::yield_now();
            }
            given.store(true, Relaxed);
            service.join().unwrap();
        });
    };
}

#[test]
fn no_memory_is_accessed_behind_its_reset() {
    nothing_is_accessed_behind_a_reset!(shipped);
}

#[test]
#[should_panic(expected = "memory of another owner")]
fn missing_reset_fence_reaches_a_new_owner() {
    nothing_is_accessed_behind_a_reset!(unfenced);
}

/// A queue of one epoch, a reset, and a queue of the next epoch: each is seen as a whole.
macro_rules! a_queue_is_seen_as_published {
    ($build:ident) => {
        check(|| {
            use super::$build::device::DeviceWords;
            let device = Arc::new(DeviceWords::new());
            let service = spawn({
                let device = Arc::clone(&device);
                move || {
                    let epoch = device.epoch();
                    if let Some(seen) = device.queue(0, epoch) {
                        let at = 0x1000 << epoch;
                        assert_eq!(*seen.layout(), *queue(at).layout(), "torn");
                    }
                }
            });
            device.publish(0, &queue(0x1000));
            device.reset();
            device.publish(0, &queue(0x2000));
            service.join().unwrap();
        });
    };
}

#[test]
fn a_queue_is_seen_as_it_was_published() {
    a_queue_is_seen_as_published!(shipped);
}

#[test]
#[should_panic(expected = "torn")]
fn missing_queue_order_tears_a_queue() {
    a_queue_is_seen_as_published!(unordered_submission);
}
