//! Flows to several receivers: each packet comes to each receiver that it is for, in order and
//! once, or is lost; a receiver that returns no buffers keeps the others from nothing and is
//! dropped in the end, and one that restarts takes part again.

use crate::world::{PORT, World, payload};
use proptest::prelude::*;
use weir_broker::broker::Broker;
use weir_exchange::flows::BrokerFlow;
use weir_units::Cid;
use weir_vsock::vsock::{Header, Operation};

const MEMBERS: usize = 3;
/// A period of the flow, and its deadline.
const PERIOD: u64 = 1000;
/// The room that each receiver has reported.
const ROOM: u32 = 1 << 20;

/// From VM 0 to VMs 1 to 3.
fn flows() -> Vec<BrokerFlow> {
    let flow = |to| BrokerFlow {
        from: 0,
        to,
        first: 0,
        members: MEMBERS as u8,
        port: PORT,
        destination: Cid(256),
        size: 100,
        period: PERIOD,
        deadline: PERIOD,
        ..BrokerFlow::default()
    };
    (1..=MEMBERS as u8).map(flow).collect()
}

struct Group {
    world: World<'static>,
    broker: Broker<'static>,
    now: u64,
    /// What each receiver has got: the first bytes of its packets.
    got: [Vec<u8>; MEMBERS],
    sent: u8,
    /// Bytes that each receiver has got since it joined.
    taken: [u32; MEMBERS],
    /// Receivers that leave what they get in their rings.
    hoards: [bool; MEMBERS],
    is_open: bool,
}

impl Group {
    fn new() -> Self {
        Self::of(&flows())
    }

    fn of(flows: &[BrokerFlow]) -> Self {
        let world = World::new(flows, 64, 0);
        let broker = world.broker();
        let mut group = Self {
            world,
            broker,
            now: PERIOD,
            got: [const { Vec::new() }; MEMBERS],
            sent: 0,
            taken: [0; MEMBERS],
            hoards: [false; MEMBERS],
            is_open: false,
        };
        (0..=MEMBERS).for_each(|vm| group.world.supply(vm, 200));
        group.ask();
        group
    }

    fn ask(&mut self) {
        self.world.control(0, Operation::Request, true, self.now);
        self.run();
    }

    /// A control packet of receiver `member` to the sender.
    fn answer(&mut self, member: usize, operation: Operation) {
        let header = self.world.header(member, operation, false);
        // The device asks by the sender's own port.
        let (buf_alloc, fwd_cnt) = (ROOM, self.taken[member]);
        let header = Header { dst_port: 1000, buf_alloc, fwd_cnt, ..header };
        let _ = self.world.put(member + 1, &header, &[], 44);
        self.world.notify(member + 1, 1, self.now);
    }

    /// Until there is nothing to do, with the answers of the ends.
    fn run(&mut self) {
        for _ in 0..20 {
            self.world.run(&mut self.broker, self.now);
            let mut any = false;
            for member in 0..MEMBERS {
                self.world.returned(member + 1);
                if self.hoards[member] {
                    continue;
                }
                for (header, bytes) in self.world.received(member + 1) {
                    any = true;
                    assert_eq!(header.dst_cid, Cid::of_vm(member as u32 + 1), "its own");
                    if header.op == Operation::Request as u16 {
                        self.taken[member] = 0;
                        self.answer(member, Operation::Response);
                    } else if header.op == Operation::Data as u16 {
                        self.taken[member] += header.len;
                        self.got[member].push(bytes[0]);
                    }
                }
                self.world.supply(member + 1, 200);
            }
            for (header, _) in self.world.received(0) {
                any = true;
                match header.op {
                    op if op == Operation::Response as u16 => self.is_open = true,
                    op if op == Operation::Reset as u16 => self.is_open = false,
                    _ => {}
                }
            }
            self.world.supply(0, 200);
            self.world.returned(0);
            if !any {
                break;
            }
        }
    }

    fn send(&mut self) {
        let header = Header { len: 100, ..self.world.header(0, Operation::Data, true) };
        let header = Header { src_port: 1000, ..header };
        if self.is_open && self.world.put(0, &header, &payload(100, self.sent), 44).is_some() {
            self.sent = self.sent.wrapping_add(1);
        }
        self.world.notify(0, 1, self.now);
        self.now += PERIOD;
        self.run();
    }

    fn lost(&self, member: usize) -> u64 {
        self.world.counts(member).lost
    }
}

/// The marks of which each chunk of 64 bytes of a packet has one: the first chunks.
fn firsts(got: &[u8], sent: u8) -> Vec<u8> {
    let second = payload(100, 0)[64];
    let mut marks = Vec::new();
    for pair in got.chunks(2) {
        assert!(pair.len() == 1 || pair[1] == pair[0] ^ second, "whole packets: {got:?}");
        marks.push(pair[0]);
    }
    assert!(marks.iter().all(|mark| *mark < sent));
    marks
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Send,
    Hoard(usize),
    Restart(usize),
    Wait,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Send),
        1 => (0..MEMBERS).prop_map(Act::Hoard),
        1 => (0..MEMBERS).prop_map(Act::Restart),
        1 => Just(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_gets_what_is_for_it_in_order_and_once(acts in prop::collection::vec(act(), 0..60)) {
        let mut group = Group::new();
        prop_assert!(group.is_open);
        for act in acts {
            match act {
                Act::Send => group.send(),
                Act::Hoard(member) => group.hoards[member] = true,
                Act::Restart(member) => {
                    group.hoards[member] = false;
                    group.world.reset(member + 1);
                    group.world.supply(member + 1, 200);
                    // What came in part is not gone on with.
                    if group.got[member].len() % 2 == 1 {
                        group.got[member].pop();
                    }
                    group.run();
                }
                Act::Wait => {
                    group.now += 20_000_000;
                    group.run();
                }
            }
            for member in 0..MEMBERS {
                if !group.hoards[member] {
                    let marks = firsts(&group.got[member], group.sent);
                    prop_assert!(marks.is_sorted_by(|one, next| one < next), "{marks:?}");
                }
            }
        }
        // A packet is back with its sender when each receiver has it or has lost it.
        group.now += 50_000_000;
        group.run();
        group.now += 50_000_000;
        group.run();
        prop_assert!(group.world.vms[0].tx.chains.is_empty());
        for member in 0..MEMBERS {
            let counts = group.world.counts(member);
            prop_assert!(counts.packets + counts.lost <= u64::from(group.sent));
        }
    }
}

/// One without buffers keeps the others from nothing, and is dropped when it has had the flow's
/// deadline; with buffers again, it is in from a later packet on.
#[test]
fn a_receiver_without_buffers_delays_no_other_flow() {
    let mut group = Group::new();
    group.hoards[1] = true;
    for _ in 0..40 {
        group.send();
    }
    assert_eq!(firsts(&group.got[0], group.sent), (0..40).collect::<Vec<_>>());
    assert_eq!(firsts(&group.got[2], group.sent), (0..40).collect::<Vec<_>>());
    let counts = group.world.counts(1);
    assert!(counts.dropped == 1 && counts.packets < 20, "{counts:?}");
    assert_eq!([group.lost(0), group.lost(2)], [0, 0]);
    group.hoards[1] = false;
    group.now += 20_000_000;
    group.run();
    for _ in 0..20 {
        group.send();
    }
    let last = *firsts(&group.got[1], group.sent).last().expect("it is in again");
    assert_eq!(last + 1, group.sent);
    assert_eq!(firsts(&group.got[0], group.sent).len(), 60);
}

/// The sender ends its connection while one receiver has not got all of it, and connects anew: that
/// one gets nothing of the new connection, which it has no part in, out of buffers that are the
/// sender's again.
#[test]
fn a_new_connection_is_not_for_who_is_in_the_last() {
    let patient = |flow| BrokerFlow { deadline: 50 * PERIOD, ..flow };
    let mut group = Group::of(&flows().into_iter().map(patient).collect::<Vec<_>>());
    group.hoards[0] = true;
    for _ in 0..10 {
        group.send();
    }
    assert!(group.world.counts(0).packets < 10, "it waits for buffers");
    group.world.control(0, Operation::Reset, true, group.now);
    group.is_open = false;
    group.run();
    group.now += PERIOD;
    group.run();
    group.ask();
    (0..3).for_each(|_| group.send());
    group.hoards[0] = false;
    group.run();
    group.now += 60 * PERIOD;
    group.run();
    let marks = firsts(&group.got[0], 10);
    assert!(marks.is_sorted_by(|one, next| one < next), "{marks:?}");
    // When that is over, all are in a new one.
    group.ask();
    let first = group.sent;
    (0..3).for_each(|_| group.send());
    for member in 0..MEMBERS {
        let marks = firsts(&group.got[member], group.sent);
        assert_eq!(marks[marks.len() - 3..], [first, first + 1, first + 2]);
    }
}
