//! The exchange under `loom`, which tries every order of both sides' accesses that the memory model
//! allows, with up to two preemptions. The broker sleeps through no notification, each notification
//! has its own stamp, a record is seen as a whole and only once, and no memory is accessed once its
//! device has been reset. Further tests show that the model fails if an ordering is missing.

mod device;
mod shipped;
mod unfenced;
mod unordered_submission;

use loom::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use weir_vsock::device::TX;

fn check(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    let body = std::sync::Arc::new(body);
    model.check(move || {
        let body = std::sync::Arc::clone(&body);
        spawn(move || body()).join().unwrap();
    });
}

/// Spawns a thread with a stack that is large enough for an exchange.
fn spawn(body: impl FnOnce() + Send + 'static) -> loom::thread::JoinHandle<()> {
    let words = 1 << 17;
    loom::thread::Builder::new().stack_size(words).spawn(body).unwrap()
}

/// The broker's interrupt, which orders no memory.
#[derive(Default)]
struct Sgi {
    sent: AtomicU32,
    /// Whether no further interrupt will be sent.
    last: AtomicBool,
}

impl Sgi {
    fn send(&self) {
        self.sent.store(self.sent.load(Relaxed) + 1, Relaxed);
    }

    /// Waits until more interrupts have been sent than were `seen`.
    fn sleep(&self, seen: &mut u32) {
        while self.sent.load(Relaxed) == *seen {
            if self.last.load(Acquire) {
                assert_ne!(self.sent.load(Relaxed), *seen, "slept over");
            }
            loom::thread::yield_now();
        }
        *seen = self.sent.load(Relaxed);
    }
}

/// Sends two notifications, each with its SGI if the broker needs one, while the broker sleeps
/// whenever it has checked twice. If it sleeps through one, nothing wakes it. Each notification has
/// its own stamp.
macro_rules! each_notification_is_seen {
    ($build:ident) => {
        check(|| {
            use $build::flows::{Doorbell, Exchange, PORTS};
            let shared = Arc::new((Exchange::new(), Sgi::default(), Doorbell::new()));
            let broker = spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let (exchange, sgi, _) = &*shared;
                    let device = &exchange.port(0).device;
                    let (mut seen, mut known, mut dozes) = (0, 0, false);
                    let mut changes = [0; PORTS];
                    while known < 2 {
                        let is_new = exchange.changed(&mut changes, 1) == 1;
                        if is_new {
                            let notified = device.notified(TX);
                            for count in known..notified {
                                let stamp = u64::from(count) + 1;
                                assert_eq!(device.stamp(TX, count).0, stamp, "stamp");
                            }
                            known = notified;
                        }
                        match (is_new, dozes) {
                            (true, _) => dozes = false,
                            (false, false) => {
                                exchange.doze();
                                dozes = true;
                            }
                            (false, true) => {
                                sgi.sleep(&mut seen);
                                dozes = false;
                            }
                        }
                    }
                }
            });
            let (exchange, sgi, bell) = &*shared;
            for count in 0..2 {
                exchange.port(0).device.notify(TX, count + 1, 0);
                if bell.must_ring(exchange) {
                    sgi.send();
                }
            }
            sgi.last.store(true, Release);
            broker.join().unwrap();
        });
    };
}

/// Two VMs notify, each with its SGI if the broker needs one, while the broker reads which ports
/// have changed, and sleeps whenever it has found none twice. If one VM's notification hides the
/// other's, nothing wakes the broker.
macro_rules! the_port_of_each_notification_is_seen {
    ($build:ident) => {
        check(|| {
            use $build::flows::{Doorbell, Exchange, PORTS};
            let shared = Arc::new((Exchange::new(), Sgi::default(), Doorbell::new()));
            let ring = |port: usize, shared: &(Exchange, Sgi, Doorbell)| {
                let (exchange, sgi, bell) = shared;
                exchange.port(port).device.notify(TX, 1, 0);
                if bell.must_ring(exchange) {
                    sgi.sent.fetch_add(1, Relaxed);
                }
            };
            let other = spawn({
                let shared = Arc::clone(&shared);
                move || ring(1, &shared)
            });
            let broker = spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let (exchange, sgi, _) = &*shared;
                    let (mut changes, mut seen, mut dozes) = ([0; PORTS], 0, false);
                    let mut left = 0b11;
                    while left != 0 {
                        let changed = exchange.changed(&mut changes, 2);
                        for port in (0..2).filter(|port| changed >> port & 1 != 0) {
                            assert_eq!(exchange.port(port).device.notified(TX), 1, "torn");
                        }
                        left &= !changed;
                        match (changed != 0, dozes) {
                            (true, _) => dozes = false,
                            (false, false) => {
                                exchange.doze();
                                dozes = true;
                            }
                            (false, true) => {
                                sgi.sleep(&mut seen);
                                dozes = false;
                            }
                        }
                    }
                }
            });
            ring(0, &shared);
            other.join().unwrap();
            shared.1.last.store(true, Release);
            broker.join().unwrap();
        });
    };
}

/// The broker writes two records while EL2 takes them.
macro_rules! each_record_is_taken_whole {
    ($build:ident) => {
        check(|| {
            use $build::flows::{Exchange, PacketEvent, PacketRecord};
            let shared = Arc::new(Exchange::new());
            let record = |number: u64| PacketRecord {
                event: PacketEvent::Chunk,
                port: 1,
                to: 1,
                detail: number as u32,
                phases: number,
                value: number,
            };
            let broker = spawn({
                let shared = Arc::clone(&shared);
                move || (0..2).for_each(|count| shared.record(count, record(count.into())))
            });
            let mut taken = 0;
            while taken < 2 {
                let number = taken.into();
                match shared.next_record(&mut taken) {
                    Some(found) => assert_eq!(found, record(number), "torn"),
                    None => loom::thread::yield_now(),
                }
            }
            broker.join().unwrap();
        });
    };
}

/// The device of one end is reset while the broker may copy from or to its memory, which then gets
/// a new owner.
macro_rules! nothing_is_copied_behind_a_reset {
    ($build:ident, $port:literal) => {
        check(|| {
            use $build::{device::DeviceWords, flows::Exchange};
            let shared = Arc::new((Exchange::new(), AtomicBool::new(false)));
            let broker = spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let (exchange, given) = &*shared;
                    let [from, to] = [0, 1].map(|port| &exchange.port(port).device);
                    let epochs = [from.epoch(), to.epoch()];
                    if DeviceWords::begin_both([from, to], epochs) {
                        let is_old = epochs == [0, 0];
                        assert!(!is_old || !given.load(Relaxed), "memory of another owner");
                    }
                    from.end();
                    to.end();
                }
            });
            let (exchange, given) = &*shared;
            let device = &exchange.port($port).device;
            device.reset();
            while device.is_busy() {
                loom::thread::yield_now();
            }
            given.store(true, Relaxed);
            broker.join().unwrap();
        });
    };
}

#[test]
fn no_notification_is_slept_over() {
    each_notification_is_seen!(shipped);
}

/// A broker that checks before it has announced its sleep sleeps through a notification that
/// arrives in between.
#[test]
#[should_panic(expected = "slept over")]
fn missing_doze_order_loses_a_wakeup() {
    each_notification_is_seen!(unfenced);
}

#[test]
#[should_panic(expected = "slept over")]
fn missing_notification_order_loses_one() {
    each_notification_is_seen!(unordered_submission);
}

#[test]
fn the_ports_of_two_notifications_are_seen() {
    the_port_of_each_notification_is_seen!(shipped);
}

#[test]
#[should_panic(expected = "slept over")]
fn missing_doze_order_loses_a_port() {
    the_port_of_each_notification_is_seen!(unfenced);
}

#[test]
#[should_panic(expected = "torn")]
fn missing_notification_order_loses_a_count() {
    the_port_of_each_notification_is_seen!(unordered_submission);
}

#[test]
fn no_record_is_torn_or_taken_twice() {
    each_record_is_taken_whole!(shipped);
}

#[test]
#[should_panic(expected = "torn")]
fn missing_record_order_tears_a_record() {
    each_record_is_taken_whole!(unordered_submission);
}

#[test]
fn no_memory_is_copied_behind_its_reset() {
    nothing_is_copied_behind_a_reset!(shipped, 0);
    nothing_is_copied_behind_a_reset!(shipped, 1);
}

#[test]
#[should_panic(expected = "memory of another owner")]
fn missing_reset_fence_copies_to_a_new_owner() {
    nothing_is_copied_behind_a_reset!(unfenced, 0);
}
