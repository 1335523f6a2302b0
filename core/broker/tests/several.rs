//! Flows to several receivers: each packet comes to each receiver that it is for, in order and
//! once, or is said to be lost; whoever takes no buffers keeps nobody else waiting, and what it
//! waits for can be taken back.

use proptest::prelude::*;
use weir_broker::{
    broker::{Broker, Mover, Step},
    shared::{BrokerFlow, ChainOutcome, Packet, Partition, Pieces, Settings},
};
use weir_units::Cid;
use weir_vsock::{
    queue::Segment,
    vsock::{HEADER_LEN, Header, Operation, STREAM},
};

const BASE: u64 = 1 << 35;
/// Bytes of a place for a packet or a buffer.
const PLACE: u64 = 256;
const MEMBERS: usize = 3;

/// Memory of all, in places: packets by head, then buffers by receiver and head.
struct Ram(Vec<u8>);

impl Mover for Ram {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        let from = (from - BASE) as usize;
        self.0.copy_within(from..from + len as usize, (to - BASE) as usize);
    }

    fn write(&mut self, to: u64, bytes: &[u8]) {
        let to = (to - BASE) as usize;
        self.0[to..to + bytes.len()].copy_from_slice(bytes);
    }

    fn ticks(&mut self) -> u64 {
        0
    }
}

fn place(number: usize) -> u64 {
    BASE + number as u64 * PLACE
}

/// What became of a packet for a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waits,
    Sent,
    Lost,
}

struct World {
    partition: &'static Partition,
    broker: Broker<'static>,
    ram: Ram,
    taken: u32,
    /// Of each packet its head, and its fate for each receiver that it is for.
    packets: Vec<(u16, [Option<Fate>; MEMBERS])>,
    /// What each receiver got: the packets' numbers.
    got: [Vec<u32>; MEMBERS],
    offered: [u16; MEMBERS],
    apart: [bool; MEMBERS],
}

impl World {
    fn new() -> Self {
        let partition: &'static Partition = Box::leak(Box::new(Partition::new()));
        let settings = Settings { flows: MEMBERS as u8, chunk: 64, rate: 0, start: 0 };
        let flows = (1..=MEMBERS as u8).map(|to| BrokerFlow { from: 0, to, rate: 0, burst: 0 });
        partition.configure(&settings, flows);
        partition.group(0, MEMBERS);
        (0..=MEMBERS).for_each(|port| partition.reset(port));
        Self {
            partition,
            broker: Broker::new(partition),
            ram: Ram(vec![0; 512 * PLACE as usize]),
            taken: 0,
            packets: Vec::new(),
            got: [const { Vec::new() }; MEMBERS],
            offered: [0; MEMBERS],
            apart: [false; MEMBERS],
        }
    }

    fn waits(&self, member: usize) -> bool {
        self.packets.iter().any(|(_, fates)| fates[member] == Some(Fate::Waits))
    }

    /// Sends to all that are in, by the first head that nobody waits for.
    fn send(&mut self, deadline: u64) {
        let busy = |head: u16| {
            let mut of = self.packets.iter().filter(|packet| packet.0 == head);
            of.any(|(_, fates)| fates.contains(&Some(Fate::Waits)))
        };
        let Some(head) = (0..8).find(|&head| !busy(head)) else { return };
        let fates = self.apart.map(|apart| (!apart).then_some(Fate::Waits));
        let members = (0..MEMBERS).filter(|&member| fates[member].is_some());
        let mask = members.fold(0u8, |mask, member| mask | 1 << member);
        if mask == 0 {
            return;
        }
        let header = Header {
            dst_cid: Cid(256),
            len: 100,
            kind: STREAM,
            op: Operation::Data as u16,
            src_port: self.packets.len() as u32,
            ..Header::ZERO
        };
        let at = place(head.into());
        self.ram.write(at, &header.to_bytes());
        self.ram.write(at + HEADER_LEN as u64, &[self.packets.len() as u8; 100]);
        let packet = Packet {
            flow: 0,
            eligible: 0,
            deadline,
            epoch: 99,
            header: header.to_bytes(),
            pieces: Pieces::new([Segment { address: at, len: HEADER_LEN as u32 + 100 }]),
        };
        self.packets.push((head, fates));
        self.partition.port(0).submit_to(head, &packet, mask);
    }

    fn offer(&mut self, member: usize) {
        let head = self.offered[member] % 64;
        self.offered[member] += 1;
        let at = place(64 * (member + 1) + usize::from(head));
        self.partition
            .port(member + 1)
            .offer(head, &Pieces::new([Segment { address: at, len: 200 }]));
    }

    fn retire(&mut self, member: usize) {
        self.apart[member] = true;
        if self.waits(member) {
            self.partition.retire(member);
        }
    }

    /// The receiver dies, and its next boot offers buffers.
    fn restart(&mut self, member: usize) {
        self.retire(member);
        self.partition.reset(member + 1);
        self.offered[member] = 0;
    }

    fn join(&mut self, member: usize) {
        self.apart[member] &= self.waits(member);
    }

    /// Until there is nothing to do.
    fn run(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..10_000 {
            match self.broker.step(0, &mut self.ram) {
                Step::Wait(until) => {
                    prop_assert_eq!(until, None);
                    return Ok(());
                }
                Step::Again => continue,
                Step::Tell => {}
            }
            while let Some(one) = self.partition.next_completion(&mut self.taken) {
                if one.epoch != self.partition.port(one.port).epoch() {
                    continue;
                }
                let ChainOutcome::Received(written) = one.outcome else {
                    prop_assert_eq!(one.port, 0);
                    let sent = one.outcome == ChainOutcome::Sent;
                    let fate = if sent { Fate::Sent } else { Fate::Lost };
                    let waits = |(head, fates): &&mut (u16, [Option<Fate>; MEMBERS])| {
                        *head == one.head && fates[usize::from(one.flow)] == Some(Fate::Waits)
                    };
                    let packet = self.packets.iter_mut().find(waits);
                    let Some((_, fates)) = packet else {
                        return Err(TestCaseError::fail(format!("answered twice: {one:?}")));
                    };
                    fates[usize::from(one.flow)] = Some(fate);
                    continue;
                };
                let at = (place(64 * one.port + usize::from(one.head)) - BASE) as usize;
                let bytes = &self.ram.0[at..at + written as usize];
                let header = Header::from_bytes(bytes[..HEADER_LEN].try_into().unwrap());
                prop_assert_eq!(header.dst_cid, Cid::of_vm(one.port as u32), "its own");
                let number = header.src_port;
                prop_assert!(bytes[HEADER_LEN..].iter().all(|&byte| byte == number as u8));
                let got = &mut self.got[one.port - 1];
                if got.last() != Some(&number) {
                    got.push(number);
                }
            }
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }

    /// Each receiver got what it was sent, and of what was lost at most the beginning.
    fn check(&self) -> Result<(), TestCaseError> {
        for member in 0..MEMBERS {
            let fates =
                || (0..).zip(&self.packets).map(|(number, (_, fates))| (number, fates[member]));
            let is = |wanted: Fate| fates().filter(move |(_, fate)| *fate == Some(wanted));
            let sent: Vec<u32> = is(Fate::Sent).map(|(number, _)| number).collect();
            let all = self.got[member].iter().filter(|number| sent.contains(number));
            prop_assert_eq!(all.copied().collect::<Vec<_>>(), sent);
            prop_assert!(self.got[member].is_sorted());
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Send(u64),
    Offer(usize),
    Retire(usize),
    Restart(usize),
    Join(usize),
    Run,
}

fn act() -> impl Strategy<Value = Act> {
    let member = 0..MEMBERS;
    prop_oneof![
        4 => (1u64..100).prop_map(Act::Send),
        6 => member.clone().prop_map(Act::Offer),
        1 => member.clone().prop_map(Act::Retire),
        1 => member.clone().prop_map(Act::Restart),
        2 => member.prop_map(Act::Join),
        4 => Just(Act::Run),
    ]
}

proptest! {
    #[test]
    fn each_gets_what_is_for_it_in_order_and_once(acts in prop::collection::vec(act(), 0..150)) {
        let mut world = World::new();
        for act in acts {
            match act {
                Act::Send(deadline) => world.send(deadline),
                Act::Offer(member) => world.offer(member),
                Act::Retire(member) => world.retire(member),
                Act::Restart(member) => world.restart(member),
                Act::Join(member) => world.join(member),
                Act::Run => world.run()?,
            }
        }
        // Whoever is still in gets buffers, and the others' packets were given up.
        for _ in 0..40 {
            (0..MEMBERS).for_each(|member| world.offer(member));
            world.run()?;
        }
        prop_assert!((0..MEMBERS).all(|member| !world.waits(member)));
        world.check()?;
    }
}

/// One without buffers keeps the others from nothing, and the hypervisor is told when it has said
/// that it wants to be.
#[test]
fn a_receiver_without_buffers_delays_no_other_flow() {
    let mut world = World::new();
    for _ in 0..10 {
        for member in [0, 2] {
            world.offer(member);
        }
    }
    world.send(50);
    world.send(60);
    world.run().unwrap();
    assert_eq!(world.got, [vec![0, 1], vec![], vec![0, 1]]);
    world.partition.set_alarm(0, 70);
    // It says first that it is about to sleep.
    assert_eq!(world.broker.step(0, &mut world.ram), Step::Again);
    assert_eq!(world.broker.step(0, &mut world.ram), Step::Wait(Some(70)));
    assert_eq!(world.broker.step(70, &mut world.ram), Step::Tell);
    world.partition.set_alarm(0, u64::MAX);
    world.retire(1);
    world.run().unwrap();
    assert!(world.packets.iter().all(|(_, fates)| fates[1] == Some(Fate::Lost)));
    world.join(1);
    (0..2).for_each(|_| (0..MEMBERS).for_each(|member| world.offer(member)));
    world.send(80);
    world.run().unwrap();
    assert_eq!(world.got, [vec![0, 1, 2], vec![2], vec![0, 1, 2]]);
}
