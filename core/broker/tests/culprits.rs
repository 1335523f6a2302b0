//! A flow that keeps the rules next to VMs that never sleep and break them, all at the same time,
//! each on a core of its own: the shipped broker and rings in virtual time, with what each step
//! takes close to what `boards/qemu-virt/board.toml` has. No packet takes longer than
//! `weir_analysis` says.

use crate::world::{World, flow, payload};
use weir_analysis::{
    Bytes, BytesPerSec, Nanos,
    flows::{
        Bandwidths, Effort, EndCores, Flow, Mover as Moved, Overheads, Path, Range, Spent,
        responses, transform, waits,
    },
};
use weir_broker::broker::Step;
use weir_exchange::flows::{BrokerFlow, PacketEvent};
use weir_vsock::{
    device::TX,
    vsock::{Header, Operation},
};

/// Entry into EL2 and out of it, ns.
const TRAP: u64 = 450;
const PARSE: u64 = 1999;
const LOCK: u64 = 14;
const INSERT: u64 = 122;
const FIND: u64 = 642;
const REMOVE: u64 = 524;
const PICK: u64 = 1819;
const FINALIZE: u64 = 1429;
const WAKE: u64 = 482;
const COPY: u64 = 197;
const BANDWIDTH: u64 = 3_439_126_784;
const CHUNK: u32 = 2048;
/// How long a reset of a device takes a driver at least, ns.
const RESET: u64 = 900;
/// Two flows of the flooder's, one of them with a receiver that returns no buffers, one of the
/// resetting VM's, and last the one that is judged: ends, period, size.
const FLOWS: [(u8, u8, u64, u64); 4] =
    [(1, 4, 60_000, 6000), (1, 5, 50_000, 4000), (2, 4, 40_000, 3000), (0, 3, 100_000, 4096)];
/// The one that is judged.
const GOOD: usize = 3;

/// What is wrong with weir in a run of this.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A flow that sends faster than its period is not delayed.
    Unpaced,
}

/// A sender's core: what it does next, and when.
struct Sender {
    vm: usize,
    at: u64,
    flows: Vec<usize>,
}

struct Run {
    world: World<'static>,
    random: fastrand::Rng,
    rung: Option<u64>,
    /// Packets to the receiver that returns no buffers.
    stuck: u32,
    /// When the packets of the flow that is judged were sent.
    sent: Vec<u64>,
}

impl Run {
    fn ring(&mut self, now: u64) {
        if self.world.bell.must_ring(self.world.exchange) {
            self.rung = Some(self.rung.unwrap_or(now));
        }
    }

    /// A step of a sender's core.
    fn send(&mut self, sender: &mut Sender) {
        let (vm, now) = (sender.vm, sender.at);
        self.world.returned(vm);
        if vm == 0 {
            let (.., size) = FLOWS[GOOD];
            if self.world.send(GOOD, &payload(size as usize, 0), now).is_some() {
                self.sent.push(now);
            }
            self.ring(now);
            sender.at = now + FLOWS[GOOD].2 + self.random.u64(..30_000);
            return;
        }
        for _ in 0..self.random.usize(1..5) {
            let mut flow = self.random.choice(&sender.flows).copied();
            if flow == Some(1) {
                // What its receiver does not take fills a part of the ring, and not all of it.
                self.stuck += 1;
                flow = Some(usize::from(self.stuck <= 4));
            }
            if let Some(flow) = flow.filter(|_| self.random.u8(..) > 80) {
                let (.., size) = FLOWS[flow];
                let header = self.world.header(flow, Operation::Data, true);
                let header = Header { len: size as u32, ..header };
                let _ = self.world.put(vm, &header, &payload(size as usize, 0), 44);
            } else {
                // It makes no sense.
                let header = Header { op: 99, ..self.world.header(0, Operation::Data, true) };
                let _ = self.world.put(vm, &header, &payload(4, 0), 44);
            }
        }
        self.world.notify(vm, TX, now);
        self.ring(now);
        sender.at = now + TRAP;
        if vm == 2 && self.random.bool() {
            // It resets its device between any two notifications, often many times, and connects
            // anew.
            self.world.reset(2);
            self.world.supply(2, 100);
            self.world.control(2, Operation::Request, true, now);
            self.ring(now);
            sender.at += RESET;
        }
    }
}

/// The largest observed latency of the flow that is judged.
fn observed_max(seed: u64, fault: Fault) -> u64 {
    let number = |(index, &(from, to, period, size)): (usize, &(u8, u8, u64, u64))| {
        let paced = fault != Fault::Unpaced || index == GOOD;
        BrokerFlow {
            period: if paced { period } else { 1 },
            size: size as u32,
            port: 5000 + index as u32,
            ..flow(from, to, period)
        }
    };
    let flows: Vec<BrokerFlow> = FLOWS.iter().enumerate().map(number).collect();
    let world = World::new(&flows, CHUNK, 0);
    let mut broker = world.broker();
    let mut run = Run {
        world,
        random: fastrand::Rng::with_seed(seed),
        rung: None,
        stuck: 0,
        sent: Vec::new(),
    };
    run.world.connect(&mut broker);
    (0..6).for_each(|vm| run.world.supply(vm, 2200));
    let mut senders = [0, 1, 2, 3, 4, 5].map(|vm| Sender {
        vm,
        at: run.random.u64(1_000..50_000),
        flows: (0..FLOWS.len()).filter(|flow| usize::from(FLOWS[*flow].0) == vm).collect(),
    });
    let (mut ready, mut taken, mut asleep) = (1_000, 0, false);
    let refused = |world: &World| (0..6).map(|vm| world.exchange.port(vm).refused()).sum::<u64>();
    loop {
        // Everything that happens before the broker looks.
        while let Some(sender) = senders.iter_mut().min_by_key(|sender| sender.at)
            && sender.at <= ready
        {
            run.send(sender);
            if let Some(rung) = run.rung.filter(|_| asleep) {
                (ready, asleep, run.rung) = (ready.min(rung + WAKE), false, None);
            }
        }
        asleep = false;
        if ready > 1_000_000 {
            break;
        }
        let world = &mut run.world;
        let (moved, before) = (world.moved(), refused(world));
        world.engine.ticks = ready;
        let step = broker.step(ready, &mut world.engine, &mut world.windows);
        let passed = refused(world) - before;
        let copying = ((world.moved() - moved) * 1_000_000_000).div_ceil(BANDWIDTH);
        ready += copying + passed * (LOCK + PARSE + PICK + COPY + FINALIZE);
        while let Some(record) = world.exchange.next_record(&mut taken) {
            ready += match record.event {
                PacketEvent::Sent => LOCK + PARSE + INSERT + FIND,
                PacketEvent::Chunk => PICK + COPY + REMOVE,
                PacketEvent::Arrived => 0,
            };
        }
        match step {
            Step::Again => ready += 100,
            Step::Report(devices) => {
                ready += FINALIZE;
                world.report(&mut broker, devices, ready);
            }
            Step::Wait(until) => {
                if run.rung.take().is_some() {
                    ready += WAKE;
                } else {
                    asleep = true;
                    ready = until.map_or(5_000_000, |until| until.max(ready) + WAKE);
                }
            }
        }
        for vm in [2, 3, 4] {
            let got = !run.world.received(vm).is_empty();
            run.world.supply(vm, 2200);
            if got {
                run.ring(ready);
            }
        }
    }
    // One that waits still counts, too.
    let counts = run.world.counts(GOOD);
    let waits = run.sent.get(counts.packets as usize).map_or(0, |sent| ready - sent.min(&ready));
    counts.observed_max_ns.max(waits)
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
        wake: max(WAKE),
        copy: max(COPY),
        mover: Moved::Core,
        chunk: Bytes(CHUNK.into()),
        queues: Some(1),
        ..Path::paper(overheads)
    };
    let flows = FLOWS.map(|(from, to, period, size)| Flow {
        size: Bytes(size),
        period: Some(Nanos(period)),
        deadline: Some(Nanos(period)),
        from: from.into(),
        to: vec![to.into()],
        ..Flow::default()
    });
    let tasks = transform(&flows, &path).expect("sound flows");
    let [read, control, take] = [path.read(), path.control(), path.take()].map(Nanos);
    let poll = Nanos(FIND.min(WAKE));
    let spent = Spent { hold: Nanos(0), poll, read, control, take };
    let waits = waits(&flows, path.chunk, &[EndCores::default(); 6], spent);
    let added = tasks.iter().zip(&waits).map(|(task, waits)| waits.added_to(task));
    let tasks: Vec<_> = added.map(|task| task.expect("small numbers")).collect();
    let at = BytesPerSec(BANDWIDTH);
    let at = Bandwidths { paced: at, chunk: at };
    responses(&tasks, &[], at, Effort::default()).longest[GOOD].expect("a bound").0
}

#[test]
fn attackers_leave_the_bounds_of_others_intact() {
    let max = (0..16).map(|seed| observed_max(seed, Fault::None)).max().expect("runs");
    let bound = bound();
    println!("at most {max} ns of {bound} ns");
    assert!(max <= bound, "{max} > {bound}");
    assert!(2 * max >= bound, "they did not meet: {max} of {bound}");
}

#[test]
fn without_their_periods_they_do() {
    let max = (0..4).map(|seed| observed_max(seed, Fault::Unpaced)).max().expect("runs");
    assert!(max > bound(), "{max}");
}
