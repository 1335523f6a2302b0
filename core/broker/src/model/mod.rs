//! The shipped partition and broker under `loom`, which tries every order of their accesses that
//! the memory model allows, up to two preemptions: no packet or alarm is slept over, none is
//! completed twice or torn, nobody's memory is touched once his port has been reset, and what is
//! taken back takes nothing with it that comes later; and that it finds the loss of an ordering.

mod device;
mod several;
mod shipped;
mod unfenced;
mod unordered_submission;

use loom::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use weir_vsock::{
    queue::Segment,
    vsock::{HEADER_LEN, Header, Operation, STREAM},
};

/// Where packet `head` of the sender is, and buffer `head` of the receiver.
fn place(head: u16) -> [u64; 2] {
    [0x1000 * (u64::from(head) + 1), 0x10_0000 * (u64::from(head) + 1)]
}

fn header() -> [u8; HEADER_LEN] {
    Header { len: 8, kind: STREAM, op: Operation::Data as u16, ..Header::ZERO }.to_bytes()
}

/// A build: a world with a flow from port 0 to port 1, packets by number, and two buffers.
macro_rules! world {
    ($build:ident) => {{
        use $build::shared::{BrokerFlow, Packet, Pieces, Settings};
        let partition = $build::partition();
        let settings = Settings { flows: 1, chunk: 4096, rate: 0, start: 0 };
        partition.configure(&settings, [BrokerFlow { from: 0, to: 1, rate: 0, burst: 0 }]);
        for head in 0..2 {
            let [_, address] = place(head);
            partition.port(1).offer(head, &Pieces::new([Segment { address, len: 64 }]));
        }
        let submit = |partition: &$build::shared::Partition, head: u16| {
            let [address, _] = place(head);
            let pieces = Pieces::new([Segment { address, len: HEADER_LEN as u32 + 8 }]);
            let deadline = 10 + u64::from(head);
            let (flow, eligible, epoch) = (0, 0, partition.port(1).epoch());
            let packet = Packet { flow, eligible, deadline, epoch, header: header(), pieces };
            partition.port(0).submit(head, &packet);
        };
        (partition, submit)
    }};
}

fn check(body: impl Fn() + Sync + Send + 'static) {
    check_to(2, body);
}

/// The same up to so many preemptions.
fn check_to(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    let body = std::sync::Arc::new(body);
    model.check(move || {
        let body = std::sync::Arc::clone(&body);
        spawn(move || body()).join().unwrap();
    });
}

/// A thread with a stack that a world has room on.
fn spawn(body: impl FnOnce() + Send + 'static) -> loom::thread::JoinHandle<()> {
    let words = 1 << 17;
    loom::thread::Builder::new().stack_size(words).spawn(body).unwrap()
}

/// The broker's interrupt, which orders no memory.
#[derive(Default)]
struct Sgi {
    sent: AtomicU32,
    /// There will be no other.
    last: AtomicBool,
}

impl Sgi {
    fn send(&self) {
        self.sent.store(self.sent.load(Relaxed) + 1, Relaxed);
    }

    /// Until there is one more than were `seen`.
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

/// Two packets, each with its SGI if the broker needs one, while the broker sleeps whenever it may:
/// if one is slept over nobody ever wakes it.
macro_rules! each_packet_is_moved_once {
    ($build:ident) => {
        check(|| {
            use $build::{
                broker::{Broker, Mover, Step},
                shared::{ChainOutcome, Doorbell},
            };
            /// What is copied is one of the packets, whole, to the next buffer.
            struct Checking(u16);
            impl Mover for Checking {
                fn copy(&mut self, from: u64, to: u64, len: u64) {
                    let ([source, _], [_, target]) = (place(self.0), place(self.0));
                    let header = HEADER_LEN as u64;
                    assert_eq!((from, to, len), (source + header, target + header, 8), "torn");
                    self.0 += 1;
                }
                fn write(&mut self, _: u64, _: &[u8]) {}
                fn ticks(&mut self) -> u64 {
                    0
                }
            }
            let (partition, submit) = world!($build);
            let shared = (partition, Sgi::default(), Doorbell::new());
            let shared = loom::sync::Arc::new(shared);
            let broker = spawn({
                let shared = loom::sync::Arc::clone(&shared);
                move || {
                    let (partition, sgi, _) = &*shared;
                    let (mut broker, mut mover) = (Broker::new(partition), Checking(0));
                    let (mut taken, mut seen, mut sent) = (0, 0, Vec::new());
                    while sent.len() < 2 {
                        match broker.step(100, &mut mover) {
                            Step::Again => {}
                            Step::Wait(_) => sgi.sleep(&mut seen),
                            Step::Tell => {
                                while let Some(one) = partition.next_completion(&mut taken) {
                                    if one.outcome == ChainOutcome::Sent {
                                        sent.push(one.head);
                                    } else {
                                        assert_eq!(one.outcome, ChainOutcome::Received(52), "torn");
                                    }
                                }
                            }
                        }
                    }
                    let step = (0..2).map(|_| broker.step(100, &mut mover)).last();
                    assert_eq!(step, Some(Step::Wait(None)), "nothing twice");
                    assert_eq!((sent, taken), (vec![0, 1], 4), "each once, in order");
                }
            });
            for head in 0..2 {
                submit(&shared.0, head);
                if shared.2.must_ring(&shared.0) {
                    shared.1.send();
                }
            }
            shared.1.last.store(true, Release);
            broker.join().unwrap();
        });
    };
}

/// An end's port is reset while the broker may copy from or to its memory, which then gets a new
/// owner.
macro_rules! nothing_is_copied_behind_a_reset {
    ($build:ident, $port:literal) => {
        check(|| {
            use $build::broker::{Broker, Mover, Step};
            /// Whether the memory has a new owner.
            type Given = loom::sync::Arc<AtomicBool>;
            struct Copying(Given);
            impl Mover for Copying {
                fn copy(&mut self, _: u64, _: u64, _: u64) {
                    assert!(!self.0.load(Relaxed), "somebody else's memory");
                }
                fn write(&mut self, _: u64, _: &[u8]) {}
                fn ticks(&mut self) -> u64 {
                    0
                }
            }
            let (partition, submit) = world!($build);
            submit(&partition, 0);
            let partition = loom::sync::Arc::new(partition);
            let given = Given::new(AtomicBool::new(false));
            let broker = spawn({
                let (partition, mut mover) =
                    (loom::sync::Arc::clone(&partition), Copying(Given::clone(&given)));
                move || {
                    let mut broker = Broker::new(&partition);
                    // Bounded: it settles by itself.
                    let _ = (0..5).any(|_| matches!(broker.step(100, &mut mover), Step::Wait(_)));
                }
            });
            partition.reset($port);
            while partition.is_copying($port) {
                loom::thread::yield_now();
            }
            given.store(true, Relaxed);
            broker.join().unwrap();
        });
    };
}

#[test]
fn no_packet_is_slept_over_torn_or_completed_twice() {
    each_packet_is_moved_once!(shipped);
}

#[test]
#[should_panic(expected = "torn")]
fn missing_packet_count_order_tears_a_packet() {
    each_packet_is_moved_once!(unordered_submission);
}

/// A broker that looks before it is known to be about to sleep: a packet that is announced in
/// between is slept over.
#[test]
#[should_panic(expected = "slept over")]
fn missing_doze_order_loses_a_wakeup() {
    each_packet_is_moved_once!(unfenced);
}

#[test]
fn no_memory_is_copied_behind_its_reset() {
    nothing_is_copied_behind_a_reset!(shipped, 0);
    nothing_is_copied_behind_a_reset!(shipped, 1);
}

#[test]
#[should_panic(expected = "somebody else's memory")]
fn missing_reset_fence_copies_to_a_new_owner() {
    nothing_is_copied_behind_a_reset!(unfenced, 0);
}
