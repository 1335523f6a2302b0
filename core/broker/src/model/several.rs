//! What flows to several receivers add: packets that are taken back, and the time at which the
//! hypervisor wants to be told.

use super::{Sgi, check, check_to, header, place, shipped, spawn, unfenced, unordered_submission};
use loom::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use weir_vsock::{queue::Segment, vsock::HEADER_LEN};

/// A packet is taken back, while the broker may be moving it; when it is answered, the next one is
/// sent. Up to one preemption.
macro_rules! each_is_answered_once_and_the_next_arrives {
    ($build:ident) => {
        check_to(1, || {
            use $build::{
                broker::{Broker, Mover},
                shared::{BrokerFlow, ChainOutcome, Packet, Partition, Pieces, Settings},
            };
            struct Still;
            impl Mover for Still {
                fn copy(&mut self, _: u64, _: u64, _: u64) {}
                fn write(&mut self, _: u64, _: &[u8]) {}
                fn ticks(&mut self) -> u64 {
                    0
                }
            }
            let partition = $build::partition();
            let settings = Settings { flows: 2, chunk: 4096, rate: 0, start: 0 };
            partition.configure(&settings, [BrokerFlow { from: 0, to: 1, rate: 0, burst: 0 }; 2]);
            partition.group(0, 2);
            let submit = |partition: &Partition, head: u16| {
                let [address, _] = place(head);
                let pieces = Pieces::new([Segment { address, len: HEADER_LEN as u32 + 8 }]);
                let (flow, eligible, deadline, epoch) = (0, 0, 10, 0);
                let packet = Packet { flow, eligible, deadline, epoch, header: header(), pieces };
                partition.port(0).submit_to(head, &packet, 1);
            };
            for head in 0..2 {
                let [_, address] = place(head);
                partition.port(1).offer(head, &Pieces::new([Segment { address, len: 64 }]));
            }
            submit(&partition, 0);
            let shared = loom::sync::Arc::new((partition, AtomicBool::new(false)));
            let broker = spawn({
                let shared = loom::sync::Arc::clone(&shared);
                move || {
                    let (partition, answered) = &*shared;
                    let (mut broker, mut taken, mut answers) = (Broker::new(partition), 0, vec![]);
                    while answers.len() < 2 {
                        broker.step(100, &mut Still);
                        while let Some(one) = partition.next_completion(&mut taken) {
                            if !matches!(one.outcome, ChainOutcome::Received(_)) {
                                answers.push((one.head, one.outcome));
                            }
                        }
                        if answers.len() == 1 {
                            answered.store(true, Release);
                            loom::thread::yield_now();
                        }
                    }
                    assert_eq!(answers[0].0, 0);
                    assert_eq!(
                        answers[1],
                        (1, ChainOutcome::Sent),
                        "sent behind it, and taken back"
                    );
                }
            });
            let (partition, answered) = &*shared;
            partition.retire(0);
            while !answered.load(Acquire) {
                loom::thread::yield_now();
            }
            submit(partition, 1);
            broker.join().unwrap();
        });
    };
}

/// The hypervisor wants to be told earlier than it said before, while the broker is about to sleep
/// until then.
macro_rules! an_earlier_alarm_is_kept {
    ($build:ident) => {
        check(|| {
            use $build::{
                broker::{Broker, Mover, Step},
                shared::{Doorbell, Settings},
            };
            struct Still;
            impl Mover for Still {
                fn copy(&mut self, _: u64, _: u64, _: u64) {}
                fn write(&mut self, _: u64, _: &[u8]) {}
                fn ticks(&mut self) -> u64 {
                    0
                }
            }
            let partition = $build::partition();
            partition.configure(&Settings { chunk: 4096, ..Settings::default() }, []);
            // Each of two flows has its own; the earliest counts.
            (0..2).for_each(|flow| partition.group(flow, 1));
            partition.set_alarm(0, 1000);
            partition.set_alarm(1, 2000);
            let shared = (partition, Sgi::default(), Doorbell::new());
            let shared = loom::sync::Arc::new(shared);
            let broker = spawn({
                let shared = loom::sync::Arc::clone(&shared);
                move || {
                    let (partition, sgi, _) = &*shared;
                    let (mut broker, mut seen) = (Broker::new(partition), 0);
                    loop {
                        match broker.step(100, &mut Still) {
                            Step::Again => {}
                            // Not before time 1000, which does not come.
                            Step::Wait(until) => {
                                assert_eq!(until, Some(1000));
                                sgi.sleep(&mut seen);
                            }
                            Step::Tell => break,
                        }
                    }
                }
            });
            shared.0.set_alarm(1, 50);
            if shared.2.must_ring(&shared.0) {
                shared.1.send();
            }
            shared.1.last.store(true, Release);
            broker.join().unwrap();
        });
    };
}

#[test]
fn a_withdrawn_packet_is_answered_once() {
    each_is_answered_once_and_the_next_arrives!(shipped);
}

/// A packet that is announced in no order with the taking back of those before it.
#[test]
#[should_panic(expected = "sent behind it, and taken back")]
fn missing_withdrawal_order_withdraws_a_new_packet() {
    each_is_answered_once_and_the_next_arrives!(unordered_submission);
}

#[test]
fn an_earlier_alarm_is_not_slept_over() {
    an_earlier_alarm_is_kept!(shipped);
}

#[test]
#[should_panic(expected = "slept over")]
fn missing_doze_order_loses_an_alarm() {
    an_earlier_alarm_is_kept!(unfenced);
}
