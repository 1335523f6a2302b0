//! The shipped partition and broker under `loom`, which tries every order of their accesses that the memory model allows, up to two
//! preemptions: no packet is slept over, none is completed twice or torn, and nobody's memory is touched once his port has been reset; and that
//! it finds the loss of an ordering.

mod shipped;
mod unfenced_reset;
mod unordered_submission;

use weir_virtio::{
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
        use $build::shared::{Flow, Packet, Pieces, Settings};
        let partition = $build::partition();
        let settings = Settings { flows: 1, chunk: 4096, rate: 0, start: 0 };
        partition.configure(&settings, [Flow { from: 0, to: 1, rate: 0, burst: 0 }]);
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
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
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

/// Two packets, each with its SGI, while the broker sleeps whenever it may: if one is slept over nobody ever wakes it, which loom calls a
/// deadlock.
macro_rules! each_packet_is_moved_once {
    ($build:ident) => {
        check(|| {
            use $build::{
                broker::{Broker, Mover, Step},
                shared::Outcome,
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
            let shared = loom::sync::Arc::new((partition, loom::sync::Notify::new()));
            let broker = spawn({
                let shared = loom::sync::Arc::clone(&shared);
                move || {
                    let (partition, sgi) = &*shared;
                    let (mut broker, mut mover) = (Broker::new(partition), Checking(0));
                    let (mut taken, mut sent) = (0, Vec::new());
                    while sent.len() < 2 {
                        match broker.step(100, &mut mover) {
                            Step::Again => {}
                            Step::Wait(_) => sgi.wait(),
                            Step::Tell => {
                                while let Some(one) = partition.next_completion(&mut taken) {
                                    if one.outcome == Outcome::Sent {
                                        sent.push(one.head);
                                    } else {
                                        assert_eq!(one.outcome, Outcome::Received(52), "torn");
                                    }
                                }
                            }
                        }
                    }
                    assert_eq!(broker.step(100, &mut mover), Step::Wait(None), "nothing twice");
                    assert_eq!((sent, taken), (vec![0, 1], 4), "each once, in order");
                }
            });
            for head in 0..2 {
                submit(&shared.0, head);
                shared.1.notify();
            }
            broker.join().unwrap();
        });
    };
}

/// The sender's port is reset while the broker may copy from its memory, which then gets a new owner.
macro_rules! nothing_is_copied_behind_a_reset {
    ($build:ident) => {
        check(|| {
            use loom::sync::atomic::{AtomicBool, Ordering};
            use $build::broker::{Broker, Mover, Step};
            /// Whether the memory has a new owner.
            type Given = loom::sync::Arc<AtomicBool>;
            struct Copying(Given);
            impl Mover for Copying {
                fn copy(&mut self, _: u64, _: u64, _: u64) {
                    assert!(!self.0.load(Ordering::Relaxed), "somebody else's memory");
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
                    let _ = (0..4).any(|_| matches!(broker.step(100, &mut mover), Step::Wait(_)));
                }
            });
            partition.reset(0);
            while partition.is_copying(0) {
                loom::thread::yield_now();
            }
            given.store(true, Ordering::Relaxed);
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
fn without_the_order_of_packet_and_count_a_torn_packet_is_found() {
    each_packet_is_moved_once!(unordered_submission);
}

#[test]
fn no_memory_is_copied_behind_its_reset() {
    nothing_is_copied_behind_a_reset!(shipped);
}

#[test]
#[should_panic(expected = "somebody else's memory")]
fn without_the_fence_between_reset_and_copy_one_is_found() {
    nothing_is_copied_behind_a_reset!(unfenced_reset);
}
