//! One sender and several receivers: a receiver that is slow, refuses or stops keeps no other
//! waiting.

use proptest::prelude::*;
use weir_units::Cid;
use weir_vsock::{
    multicast::{FlowGroup, Post, RETRY, Rules},
    vsock::{Header, Operation, STREAM},
};

const FROM: u64 = 3;
const GROUP: u64 = 256;
const PORT: u32 = 5000;
const SIZE: u32 = 4096;
const PATIENCE: u64 = 1_000_000;
const RULES: Rules =
    Rules { from: Cid(FROM), group: Cid(GROUP), port: PORT, size: SIZE, patience: PATIENCE };

/// What was posted: the receiver, the operation, and the credit in it.
fn shown(post: &Post) -> Vec<(u64, Operation, u32)> {
    let seen = |header: &Header| {
        let operation = header.operation().expect("an operation");
        (header.dst_cid.0, operation, header.buf_alloc.wrapping_add(header.fwd_cnt))
    };
    post.headers().iter().map(seen).collect()
}

struct World {
    group: FlowGroup,
    now: u64,
}

impl World {
    fn new(members: u64) -> Self {
        Self { group: FlowGroup::new(RULES, (FROM + 1..=FROM + members).map(Cid)), now: 0 }
    }

    fn sender(&mut self, operation: Operation) -> Vec<(u64, Operation, u32)> {
        let header = of_sender(operation, 0);
        let mut post = Post::new();
        self.group.from_sender(&header, operation, self.now, &mut post);
        shown(&post)
    }

    fn member(
        &mut self,
        index: usize,
        operation: Operation,
        (room, taken): (u32, u32),
    ) -> (Vec<(u64, Operation, u32)>, u8) {
        let header = Header {
            src_cid: Cid(FROM + 1 + index as u64),
            dst_cid: Cid(FROM),
            src_port: PORT,
            dst_port: 1024,
            kind: STREAM,
            op: operation as u16,
            buf_alloc: room,
            fwd_cnt: taken,
            ..Header::ZERO
        };
        let mut post = Post::new();
        self.group.from_member(index, &header, operation, self.now, &mut post);
        (shown(&post), post.retire)
    }

    fn send(&mut self, operation: Operation, len: u32) -> (Option<u8>, Post) {
        let header = of_sender(operation, len);
        let mut post = Post::new();
        let times = (self.now, self.now + PATIENCE);
        (self.group.send(&header, operation, times, &mut post), post)
    }

    fn data(&mut self, len: u32) -> Option<u8> {
        self.send(Operation::Data, len).0
    }

    fn expire(&mut self, starving: u8) -> (Vec<(u64, Operation, u32)>, u8) {
        let mut post = Post::new();
        self.group.expire(self.now, |index| starving >> index & 1 != 0, &mut post);
        (shown(&post), post.retire)
    }

    /// Connected to all.
    fn open(rooms: &[u32]) -> Self {
        let mut world = Self::new(rooms.len() as u64);
        assert_eq!(world.sender(Operation::Request).len(), rooms.len());
        for (index, room) in rooms.iter().enumerate() {
            let (posted, _) = world.member(index, Operation::Response, (*room, 0));
            let least = rooms.iter().min().copied().expect("rooms");
            let is_last = index + 1 == rooms.len();
            let answer = is_last.then_some((FROM, Operation::Response, least));
            assert_eq!(posted, Vec::from_iter(answer), "the sender's answer comes with the last");
        }
        world
    }
}

fn of_sender(operation: Operation, len: u32) -> Header {
    Header {
        src_cid: Cid(FROM),
        dst_cid: Cid(GROUP),
        src_port: 1024,
        dst_port: PORT,
        len,
        kind: STREAM,
        op: operation as u16,
        ..Header::ZERO
    }
}

#[test]
fn the_sender_has_the_least_credit() {
    let mut world = World::open(&[10_000, 8_000, 20_000]);
    assert_eq!(world.data(4000), Some(0b111));
    assert_eq!(world.member(0, Operation::CreditUpdate, (10_000, 4000)).0, []);
    let (posted, _) = world.member(1, Operation::CreditUpdate, (8_000, 3000));
    assert_eq!(posted, [(FROM, Operation::CreditUpdate, 8_000 + 3000)]);
    assert_eq!(world.sender(Operation::CreditRequest), posted);
    assert_eq!(world.data(7000), Some(0b111));
    assert_eq!(world.sender(Operation::CreditUpdate), []);
    // It has none left: a sender that sends all the same loses its connection, and the members
    // learn it.
    let (sent, post) = world.send(Operation::Data, 1);
    assert_eq!(sent, None);
    let resets: Vec<_> = (1..=3).map(|member| (FROM + member, Operation::Reset, 0)).collect();
    assert_eq!((shown(&post), post.retire), (resets, 0b111));
    assert_eq!(world.data(1), None);
}

#[test]
fn who_refuses_or_does_not_answer_is_left_out() {
    let mut world = World::new(3);
    assert_eq!(world.data(1), None, "before there is a connection");
    assert_eq!(world.sender(Operation::Request).len(), 3);
    assert_eq!(world.data(1), None, "before it is accepted");
    assert_eq!(world.member(0, Operation::Response, (SIZE, 0)).0, []);
    assert_eq!(world.member(1, Operation::Reset, (0, 0)).0, []);
    assert_eq!(world.group.due(), RETRY);
    world.now = RETRY;
    let (posted, _) = world.expire(0);
    let late = (FROM + 3, Operation::Reset, 0);
    assert_eq!(posted, [late, (FROM, Operation::Response, SIZE)]);
    assert_eq!(world.data(10), Some(1));
    assert_eq!(world.group.dropped(2), 0, "it was in nothing that it could be dropped from");
}

#[test]
fn when_nobody_accepts_the_sender_is_refused() {
    let mut world = World::new(2);
    world.sender(Operation::Request);
    world.member(0, Operation::Reset, (0, 0));
    assert_eq!(world.member(1, Operation::Reset, (0, 0)).0, [(FROM, Operation::Reset, 0)]);
    assert_eq!(world.sender(Operation::Request).len(), 2, "and can ask again");
    assert_eq!(world.sender(Operation::Request), [(FROM, Operation::Reset, 0)], "once at a time");
}

#[test]
fn a_full_receiver_is_dropped_and_asked_again() {
    let mut world = World::open(&[SIZE, SIZE]);
    assert_eq!(world.data(SIZE), Some(0b11));
    assert_eq!(world.group.due(), PATIENCE);
    (0..2).for_each(|member| world.group.answered(member, 10));
    assert_eq!(world.member(0, Operation::CreditUpdate, (SIZE, SIZE)), (Vec::new(), 0));
    world.now = PATIENCE;
    let (posted, retire) = world.expire(0);
    let credit = (FROM, Operation::CreditUpdate, 2 * SIZE);
    assert_eq!(posted, [(FROM + 2, Operation::Reset, 0), credit]);
    assert_eq!((retire, world.group.dropped(0), world.group.dropped(1)), (0, 0, 1));
    assert_eq!(world.data(100), Some(1));
    world.now += RETRY;
    let (sent, post) = world.send(Operation::Data, 100);
    assert_eq!((sent, shown(&post)), (Some(1), vec![(FROM + 2, Operation::Request, 0)]));
    world.member(1, Operation::Response, (SIZE, 0));
    assert_eq!(world.data(100), Some(0b11), "from the next packet on");
}

#[test]
fn who_joins_has_room_for_what_the_sender_may_send() {
    let mut world = World::open(&[SIZE, 2 * SIZE]);
    world.member(0, Operation::Reset, (0, 0));
    world.now = RETRY;
    world.data(1);
    let (posted, _) = world.member(0, Operation::Response, (SIZE - 2, 0));
    assert_eq!(posted, [(FROM + 1, Operation::Reset, 0)]);
    world.now *= 2;
    world.data(1);
    world.member(0, Operation::Response, (SIZE, 0));
    assert_eq!(world.data(1), Some(0b11));
}

#[test]
fn only_a_receiver_that_keeps_packets_is_dropped() {
    for starving in [0, 2] {
        let mut world = World::open(&[10 * SIZE, 10 * SIZE]);
        world.data(10);
        world.data(10);
        (0..2).for_each(|_| world.group.answered(0, 10));
        world.now = PATIENCE;
        assert_eq!(world.expire(starving), (Vec::new(), 0), "not before its deadline is over");
        world.now += 1;
        let (posted, retire) = world.expire(starving);
        assert_eq!(retire, starving);
        assert_eq!(posted.len(), usize::from(starving != 0));
        assert_eq!(world.group.dropped(1), u32::from(starving != 0));
        world.now += RETRY;
        let (_, post) = world.send(Operation::Data, 10);
        assert_eq!(shown(&post), [], "not asked with packets on their way");
        world.expire(0);
        assert!(world.group.due() > world.now);
    }
}

#[test]
fn an_end_comes_behind_the_data() {
    let mut world = World::open(&[SIZE, SIZE]);
    world.data(10);
    assert_eq!(world.send(Operation::Shutdown, 0).0, Some(0b11));
    assert_eq!(world.member(0, Operation::Reset, (0, 0)).0, []);
    assert_eq!(
        world.member(1, Operation::Reset, (0, 0)).0.last().map(|end| end.1),
        Some(Operation::Reset)
    );
    let mut world = World::open(&[SIZE, SIZE]);
    world.data(10);
    assert_eq!(world.send(Operation::Reset, 0).0, Some(0b11));
    assert_eq!(world.member(0, Operation::CreditUpdate, (SIZE, 0)).0, [], "it learns in order");
    world.group.answered(1, 0);
    // What a member leaves in its ring is given up, though there is no sender any more.
    world.now = PATIENCE + 1;
    assert_eq!(
        world.expire(0b11),
        (vec![(FROM + 1, Operation::Reset, 0), (FROM + 2, Operation::Reset, 0)], 0b11)
    );
}

#[test]
fn devices_are_reset_at_any_moment() {
    let mut world = World::open(&[SIZE, SIZE]);
    world.data(10);
    let mut post = Post::new();
    world.group.end_member(0, 0, &mut post);
    assert_eq!((shown(&post), post.retire), (Vec::new(), 1));
    let mut post = Post::new();
    world.group.end_member(1, 0, &mut post);
    assert_eq!((shown(&post), post.retire), (vec![(FROM, Operation::Reset, SIZE)], 2));
    let mut world = World::open(&[SIZE, SIZE]);
    world.data(10);
    let mut post = Post::new();
    world.group.end_sender(&mut post);
    let resets = vec![(FROM + 1, Operation::Reset, 0), (FROM + 2, Operation::Reset, 0)];
    assert_eq!((shown(&post), post.retire), (resets.clone(), 0), "the port's reset does it");
    assert_eq!(world.sender(Operation::Request).len(), 2);
    let mut world = World::open(&[SIZE, SIZE]);
    let mut post = Post::new();
    world.group.abandon(&mut post);
    let all = [vec![(FROM, Operation::Reset, SIZE)], resets].concat();
    assert_eq!(shown(&post), all);
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Sender(u16),
    Send(u16, u32),
    Member(usize, u16, u32, u32),
    Answered(usize),
    Expire(u8),
    EndSender,
    EndMember(usize),
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let room = prop_oneof![Just(SIZE * 4), 0..SIZE * 8, any::<u32>()];
    prop_oneof![
        2 => (1u16..9).prop_map(Act::Sender),
        5 => (3u16..7, 0..SIZE).prop_map(|(op, len)| Act::Send(op, len)),
        8 => (0usize..4, 1u16..9, room, 0..SIZE * 8)
            .prop_map(|(member, op, room, taken)| Act::Member(member, op, room, taken)),
        4 => (0usize..4).prop_map(Act::Answered),
        3 => any::<u8>().prop_map(Act::Expire),
        1 => Just(Act::EndSender),
        1 => (0usize..4).prop_map(Act::EndMember),
        4 => (0..RETRY * 2).prop_map(Act::Wait),
    ]
}

proptest! {
    /// Nothing that the ends do panics, and once the time is over no member lacks room:
    /// the sender has credit for a packet, or the missing member has not yet reached its deadline.
    #[test]
    fn nobody_waits_for_longer_than_a_deadline(acts in prop::collection::vec(act(), 0..200)) {
        let mut world = World::new(3);
        for act in acts {
            match act {
                Act::Sender(op) => {
                    let header = Header { op, ..of_sender(Operation::Request, 0) };
                    let Some(operation) = header.operation() else { continue };
                    world.sender(operation);
                }
                Act::Send(op, len) => {
                    let operation = Header { op, ..Header::ZERO }.operation().expect("one");
                    let len = if operation == Operation::Data { len.max(1) } else { 0 };
                    let (members, post) = world.send(operation, len);
                    prop_assert!(members.is_none_or(|members| members != 0 && members < 8));
                    prop_assert!(post.retire < 8);
                }
                Act::Member(member, op, room, taken) => {
                    let Some(operation) = (Header { op, ..Header::ZERO }).operation() else {
                        continue;
                    };
                    world.member(member, operation, (room, taken));
                }
                Act::Answered(member) => world.group.answered(member, world.now),
                Act::Expire(starving) => {
                    world.expire(starving);
                    prop_assert!(world.group.due() > world.now);
                }
                Act::EndSender => world.group.end_sender(&mut Post::new()),
                Act::EndMember(member) => {
                    world.group.end_member(member, world.now, &mut Post::new());
                }
                Act::Wait(time) => world.now += time,
            }
        }
        world.now += 2 * (PATIENCE + RETRY);
        world.expire(0xff);
        prop_assert_eq!(world.group.due(), u64::MAX, "a member that keeps others waiting is out");
    }
}
