//! A flow that keeps the rules beside VMs that never sleep and break them, all at the same time,
//! each on a core of its own: the shipped broker, partition and stamps in virtual time, with what
//! each step takes close to what `boards/qemu-virt/board.toml` has. No packet takes longer than
//! `weir_analysis` says.
//!
//! An emulator that runs its cores in turn can't show that: a culprit that never sleeps takes its
//! turns from the broker.

use weir_analysis::{
    Bytes, BytesPerSec, Nanos,
    flows::{
        Bandwidths, ChunkMover as Moved, Copier, Effort, FlowDemand as Demand, FlowSetting,
        Overheads, Path, Range, Reading, SenderQueue, groups, responses,
    },
};
use weir_broker::transfer::Pace;
use weir_broker::{
    broker::{Broker, Mover, Step},
    shared::{BrokerFlow, ChainOutcome, Doorbell, Packet, Partition, Pieces, RING, Settings},
};
use weir_vsock::{
    queue::Segment,
    vsock::{HEADER_LEN, Header, Operation, STREAM},
};

/// Entry into EL2 and out of it, and what comes before the packets of a notification, ns.
const TRAP: u64 = 450;
const PARSE: u64 = 2770;
const LOCK: u64 = 73;
const INSERT: u64 = 821;
const FIND: u64 = 659;
const REMOVE: u64 = 256;
const PICK: u64 = 1168;
const FINALIZE: u64 = 3777;
const WAKE: u64 = 1286;
const COPY: u64 = 263;
const BANDWIDTH: u64 = 3_404_821_280;
const CHUNK: u32 = 4096;
/// How long a reset of a device takes a driver at least, ns.
const RESET: u64 = 900;
/// Two flows of the flooder's, one of whose receivers returns no buffers, one of the resetting
/// VM's, and last the one that is judged.
const FLOWS: [(u8, u8, u64, u64); 4] =
    [(1, 4, 60_000, 8000), (1, 5, 50_000, 4000), (2, 4, 40_000, 3000), (0, 3, 100_000, 4096)];
/// The one that is judged.
const GOOD: usize = 3;

/// What is wrong with weir in a run of this.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A flow that sends faster than its period is not delayed.
    Unpaced,
}

struct Counting {
    bytes: u64,
    chunks: u64,
}

impl Mover for Counting {
    fn copy(&mut self, _: u64, _: u64, len: u64) {
        self.bytes += len;
    }
    fn write(&mut self, _: u64, _: &[u8]) {
        self.chunks += 1;
    }
    fn ticks(&mut self) -> u64 {
        1
    }
}

/// What a sender's core does next.
struct Sender {
    port: usize,
    /// When.
    at: u64,
    /// The stamp of the notification that is dealt with, and how many packets it is still worth.
    notice: u64,
    left: usize,
    flows: Vec<usize>,
    free: Vec<u16>,
}

struct World {
    partition: &'static Partition,
    bell: Doorbell,
    paces: Vec<Pace>,
    /// Of each packet that the broker has, when it could go, by port and head.
    eligible: Vec<Vec<Option<u64>>>,
    random: fastrand::Rng,
    /// Packets submitted since the broker looked last.
    new: u64,
    rung: Option<u64>,
}

impl World {
    fn new(seed: u64, fault: Fault) -> Self {
        let partition: &Partition = Box::leak(Box::new(Partition::new()));
        let settings = Settings { flows: FLOWS.len() as u8, chunk: CHUNK, rate: 0, start: 0 };
        let flows = FLOWS.map(|(from, to, ..)| BrokerFlow { from, to, rate: 0, burst: 0 });
        partition.configure(&settings, flows);
        (0..6).for_each(|port| partition.reset(port));
        let pace = |(at, &(_, _, period, _)): (usize, &(u8, u8, u64, u64))| {
            let paced = fault != Fault::Unpaced || at == GOOD;
            Pace::new(if paced { period } else { 0 }, period)
        };
        let world = Self {
            partition,
            bell: Doorbell::new(),
            paces: FLOWS.iter().enumerate().map(pace).collect(),
            eligible: vec![vec![None; RING]; 6],
            random: fastrand::Rng::with_seed(seed),
            new: 0,
            rung: None,
        };
        for (port, buffers) in [(3, 8), (4, 16), (5, 1)] {
            (0..buffers).for_each(|head| world.offer(port, head));
        }
        world
    }

    fn offer(&self, port: usize, head: u16) {
        let address = (port as u64) << 36 | u64::from(head) << 16;
        self.partition.port(port).offer(head, &Pieces::new([Segment { address, len: 4140 }]));
    }

    fn submit(&mut self, sender: &mut Sender, flow: usize) {
        let Some(head) = sender.free.pop() else { return };
        let (_, to, _, size) = FLOWS[flow];
        let stamp = self.paces[flow].stamp(sender.notice);
        self.eligible[sender.port][usize::from(head)] = Some(stamp.eligible);
        let len = size as u32;
        let header = Header { len, kind: STREAM, op: Operation::Data as u16, ..Header::ZERO };
        let address = (sender.port as u64) << 36 | u64::from(head) << 16;
        let packet = Packet {
            flow: flow as u8,
            eligible: stamp.eligible,
            deadline: stamp.deadline,
            epoch: self.partition.port(to.into()).epoch(),
            header: header.to_bytes(),
            pieces: Pieces::new([Segment { address, len: len + HEADER_LEN as u32 }]),
        };
        self.partition.port(sender.port).submit(head, &packet);
        self.new += 1;
    }

    fn ring(&mut self, now: u64) {
        if self.bell.must_ring(self.partition) {
            self.rung = Some(self.rung.unwrap_or(now));
        }
    }

    /// A step of a sender's core; a packet is there when the time that it takes is over.
    fn send(&mut self, sender: &mut Sender) {
        let now = sender.at;
        if sender.left > 0 {
            let flow = sender.flows[self.random.usize(..sender.flows.len())];
            self.submit(sender, flow);
            sender.left -= 1;
        }
        while sender.left > 0 && sender.port == 1 && self.random.u8(..) < 80 {
            // Control packets, which are passed on here.
            sender.left -= 1;
            sender.at += PARSE + LOCK + FINALIZE;
        }
        if sender.left > 0 {
            sender.at += PARSE + LOCK + INSERT;
            return;
        }
        self.ring(now);
        if sender.port == 2 {
            // It resets its device between any two notifications, often many times.
            self.partition.reset(2);
            self.eligible[2].fill(None);
            sender.free = (0..RING as u16).collect();
            self.ring(now);
            if self.random.bool() {
                sender.at += RESET;
                return;
            }
        }
        sender.notice = if sender.port == 0 {
            now + FLOWS[GOOD].2 + self.random.u64(..30_000)
        } else {
            sender.at + TRAP
        };
        sender.left = sender.flows.len();
        sender.at = sender.notice + PARSE + LOCK + INSERT;
    }
}

/// The worst latency of the flow that is judged.
fn worst(seed: u64, fault: Fault) -> u64 {
    let mut world = World::new(seed, fault);
    let mut broker = Broker::new(world.partition);
    let mut senders = [0, 1, 2].map(|port| Sender {
        port,
        at: world.random.u64(1..50_000),
        notice: 0,
        left: 0,
        flows: (0..FLOWS.len()).filter(|flow| usize::from(FLOWS[*flow].0) == port).collect(),
        free: (0..RING as u16).collect(),
    });
    let (mut ready, mut asleep, mut taken, mut worst) = (0, false, 0, 0);
    while ready < 4_000_000 {
        // Everything that happens before the broker looks.
        while let Some(sender) = senders.iter_mut().min_by_key(|sender| sender.at)
            && sender.at <= ready
        {
            world.send(sender);
            if let Some(rung) = world.rung
                && asleep
            {
                (ready, asleep) = (ready.min(rung + WAKE), false);
                world.rung = None;
            }
        }
        asleep = false;
        let mut moved = Counting { bytes: 0, chunks: 0 };
        let taking = FIND * std::mem::take(&mut world.new);
        let step = broker.step(ready, &mut moved);
        let copying = (moved.bytes * 1_000_000_000).div_ceil(BANDWIDTH);
        // Without a chunk it has looked for nothing, or thrown packets of dead receivers away, of
        // which there are none here.
        let work = if moved.chunks > 0 { PICK + COPY + copying + REMOVE } else { PICK };
        ready += taking + work;
        match step {
            Step::Again => ready += if moved.chunks > 0 { FINALIZE } else { 0 },
            Step::Tell => ready += FINALIZE,
            Step::Wait(until) => {
                if world.rung.take().is_some() {
                    ready += WAKE;
                } else {
                    asleep = true;
                    ready = until.map_or(5_000_000, |until| until.max(ready) + WAKE);
                }
            }
        }
        while let Some(one) = world.partition.next_completion(&mut taken) {
            if one.epoch != world.partition.port(one.port).epoch() {
                continue;
            }
            if let ChainOutcome::Received(_) = one.outcome {
                // All but one receiver return their buffers at once.
                if one.port != 5 {
                    world.offer(one.port, one.head);
                }
                continue;
            }
            let eligible = world.eligible[one.port][usize::from(one.head)].take();
            senders[one.port].free.push(one.head);
            if let (0, Some(eligible)) = (one.port, eligible) {
                worst = worst.max(ready - eligible);
            }
        }
    }
    worst
}

/// What the analysis says of the same.
fn bound() -> u64 {
    let max = |ns| Range::new(0, ns);
    let overheads = Overheads {
        pp: max(PARSE),
        ql: max(LOCK),
        qi: max(INSERT),
        qa: max(FIND),
        qr: max(REMOVE),
        ps: max(PICK),
        ft: max(FINALIZE),
        ..Overheads::default()
    };
    let path = Path {
        overheads,
        wake: max(WAKE),
        copy: max(COPY),
        queue: SenderQueue::Heap,
        locked: false,
        mover: Moved::Cpu,
        copier: Copier::Broker,
        batch: None,
    };
    let flows = FLOWS.map(|(from, to, period, size)| Demand {
        size: Bytes(size),
        period: Nanos(period),
        deadline: Nanos(period),
        from: from.into(),
        to: to.into(),
    });
    let setting =
        FlowSetting { chunk: Bytes(CHUNK.into()), queues: Some(1), reading: Reading::Printed };
    let group = groups(&flows, &[1; 4], &setting, &path).expect("sound flows").remove(0);
    let at = BytesPerSec(BANDWIDTH);
    let at = Bandwidths { paced: at, chunk: at };
    responses(&group.tasks, &[], at, Effort::default()).longest[GOOD].expect("a bound").0
}

#[test]
fn attackers_leave_the_bounds_of_others_intact() {
    let worst = (0..3000).map(|seed| worst(seed, Fault::None)).max().expect("runs");
    let bound = bound();
    println!("worst {worst} ns of {bound} ns");
    assert!(worst <= bound, "{worst} > {bound}");
    assert!(2 * worst >= bound, "they did not meet: {worst} of {bound}");
}

#[test]
fn without_their_periods_they_do() {
    let worst = (0..20).map(|seed| worst(seed, Fault::Unpaced)).max().expect("runs");
    assert!(worst > bound(), "{worst}");
}
