//! The broker: packets from their senders' notifications to their receivers' interrupts (rt-virtio,
//! section III).

use super::{Event, Run};
use crate::{
    FlowOutcome,
    flows::{Broker, Buffers, Step},
    program::Random,
};
use std::collections::{HashMap, VecDeque};
use weir_broker::transfer::{Bucket, Edf, Pace};
use weir_memory::{
    Bytes, Owner, Pa, Picos,
    dma::{DmaPiece, Transfer},
};
use weir_model::timing::Flow;

/// Packets in a queue; further ones are lost.
const MOST_QUEUED: usize = 256;
/// Packets that wait for their time, of all flows; further ones are lost.
const MOST_DELAYED: usize = 1024;

/// The next step of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    /// A flow's next packet is released.
    Release(usize),
    /// The hypervisor has a VM's notification, and parses the packet that is next.
    Parse(usize),
    /// It puts that into the VM's queue: waits for the lock.
    Insert(usize),
    /// It has done so.
    Inserted(usize),
    /// The VM has its core again.
    Returned(usize),
    /// A packet may have become eligible.
    Poll,
    /// The engine is programmed.
    Start,
    /// The engine's interrupt was handled.
    Moved,
    /// All ends were notified of the chunk.
    Notified,
}

/// A packet.
#[derive(Clone, Copy, Debug)]
struct Packet {
    flow: usize,
    /// When its latency begins.
    from: Picos,
    /// No chunk before, in ns.
    eligible: u64,
    /// Absolute, in ns.
    deadline: u64,
    /// Bytes of it that the receiver numbered `receiver` has.
    moved: u64,
    receiver: usize,
}

/// A queue and when its lock is free.
#[derive(Default)]
struct Queue {
    packets: Edf<u32, MOST_QUEUED>,
    unlocked: Picos,
}

/// A VM that sends.
#[derive(Default)]
struct Sender {
    /// Packets that it wants to send, and has not notified of: flows.
    released: VecDeque<usize>,
    /// Packets that the hypervisor was notified of and has not put into the queue.
    notified: VecDeque<Packet>,
    /// Whether the hypervisor has its core.
    is_away: bool,
}

/// All that moves packets.
pub(super) struct Moving<'a> {
    broker: &'a Broker,
    places: Vec<Buffers>,
    paces: Vec<Pace>,
    buckets: Vec<Bucket>,
    /// Releases of each flow.
    releases: Vec<u64>,
    senders: Vec<Sender>,
    queues: Vec<Queue>,
    delayed: Edf<u32, MOST_DELAYED>,
    packets: HashMap<u32, Packet>,
    number: u32,
    /// The packet of which a chunk is moved.
    busy: Option<(u32, u64)>,
    random: Random,
    counts: bool,
    outcomes: Vec<FlowOutcome>,
}

impl<'a> Moving<'a> {
    pub fn new(broker: &'a Broker, places: Vec<Buffers>, vms: usize, seed: u64) -> Self {
        // The sender's and the receiver's parts of a deadline are no time of the broker's: D'
        // (rt-virtio, IV).
        let ends = broker.steps.pt.max + broker.steps.br.max;
        let pace = |flow: &Flow| {
            let deadline =
                flow.deadline.map_or(0, |deadline| deadline.0.saturating_sub(ends).max(1));
            Pace::new(flow.period.map_or(0, |period| period.0), deadline)
        };
        let bucket =
            |flow: &Flow| Bucket::new(flow.bandwidth.map_or(0, |rate| rate.0), flow.size.0);
        let queues = usize::try_from(broker.queues).unwrap_or(vms).clamp(1, vms.max(1));
        let outcome = |flow: &Flow| FlowOutcome {
            name: flow.name.clone(),
            deadline_ns: flow.deadline.map(|deadline| deadline.0),
            ..FlowOutcome::default()
        };
        Self {
            places,
            paces: broker.flows.iter().map(pace).collect(),
            buckets: broker.flows.iter().map(bucket).collect(),
            releases: vec![0; broker.flows.len()],
            senders: (0..vms).map(|_| Sender::default()).collect(),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            delayed: Edf::new(),
            packets: HashMap::new(),
            number: 0,
            busy: None,
            random: Random(seed ^ 3),
            counts: false,
            outcomes: broker.flows.iter().map(outcome).collect(),
            broker,
        }
    }

    /// How long a step takes this time.
    fn draw(&mut self, step: Step) -> Picos {
        let more = self.random.below(step.max.saturating_sub(step.min) + 1);
        Picos::from_nanos(step.min + more)
    }

    /// From now on it is counted.
    pub const fn count(&mut self) {
        self.counts = true;
    }

    /// The counts until `now`.
    pub fn finish(mut self, now: Picos) -> Vec<FlowOutcome> {
        let notified = self.senders.iter().flat_map(|sender| &sender.notified);
        for packet in self.packets.values().chain(notified) {
            let outcome = &mut self.outcomes[packet.flow];
            outcome.missed += u64::from(outcome.is_late(now.since(packet.from)));
        }
        self.outcomes
    }

    /// The queue of a VM.
    const fn queue(&self, vm: usize) -> usize {
        vm % self.queues.len()
    }

    /// Bytes of a packet's next chunk.
    fn next_chunk(&self, packet: &Packet) -> u64 {
        (self.broker.flows[packet.flow].size.0 - packet.moved).min(self.broker.chunk)
    }

    /// Puts packets that are due into their queues.
    fn wake(&mut self, now_ns: u64) {
        while let Some((time, number)) = self.delayed.peek()
            && time <= now_ns
        {
            self.delayed.pop();
            self.enqueue(number);
        }
    }

    fn enqueue(&mut self, number: u32) {
        let Some(packet) = self.packets.get(&number) else { return };
        let (flow, deadline) = (packet.flow, packet.deadline);
        let queue = self.queue(self.broker.flows[flow].from);
        if self.queues[queue].packets.push(deadline, number).is_err() {
            self.lose(number);
        }
    }

    fn delay(&mut self, number: u32, until: u64) {
        if self.delayed.push(until, number).is_err() {
            self.lose(number);
        }
    }

    fn lose(&mut self, number: u32) {
        let Some(packet) = self.packets.remove(&number) else { return };
        self.outcomes[packet.flow].lost += u64::from(self.counts);
    }

    /// The packet that is moved next: of all queues the one with the earliest deadline. Else when
    /// there may be one, in ns.
    fn choose(&mut self, now_ns: u64) -> Result<u32, Option<u64>> {
        loop {
            self.wake(now_ns);
            for queue in &mut self.queues {
                // Those that are done with stay in the queue until they are the first.
                while let Some((_, number)) = queue.packets.peek()
                    && !self.packets.contains_key(&number)
                {
                    queue.packets.pop();
                }
            }
            let first = |(index, queue): (usize, &Queue)| {
                queue.packets.peek().map(|(deadline, number)| (deadline, index, number))
            };
            let Some((_, index, number)) = self.queues.iter().enumerate().filter_map(first).min()
            else {
                return Err(self.delayed.peek().map(|(time, _)| time));
            };
            let packet = self.packets[&number];
            let ready = self.buckets[packet.flow].ready_at(self.next_chunk(&packet));
            if ready <= now_ns {
                return Ok(number);
            }
            self.queues[index].packets.pop();
            self.delay(number, ready);
        }
    }

    /// A packet has arrived at all its receivers.
    fn arrive(&mut self, number: u32, at: Picos) -> Option<usize> {
        let packet = self.packets.remove(&number)?;
        let outcome = &mut self.outcomes[packet.flow];
        if self.counts {
            let latency = at.since(packet.from);
            let is_late = outcome.is_late(latency);
            outcome.arrived += 1;
            outcome.met += u64::from(!is_late);
            outcome.missed += u64::from(is_late);
            outcome.latency.add(latency);
            outcome.max_latency = outcome.max_latency.max(latency);
        }
        Some(packet.flow)
    }
}

impl Run<'_> {
    /// Releases each flow's first packet.
    pub(super) fn start_flows(&mut self) {
        let Some(moving) = &self.moving else { return };
        for flow in 0..moving.broker.flows.len() {
            self.plan_release(flow, Picos(0));
        }
    }

    /// Plans a flow's next release: each period, late by its jitter; of best effort, now.
    fn plan_release(&mut self, flow: usize, now: Picos) {
        let Some(moving) = &mut self.moving else { return };
        let Flow { period, jitter, .. } = moving.broker.flows[flow];
        let [period, jitter] =
            [period, Some(jitter)].map(|time| Some(Picos::from_nanos(time?.0).0));
        let late = moving.random.below(jitter.unwrap_or(0) + 1);
        let at = period.map_or(now, |period| Picos(period * moving.releases[flow] + late));
        moving.releases[flow] += 1;
        self.add(at, Event::Flow(Deed::Release(flow)));
    }

    pub(super) fn deed(&mut self, deed: Deed, now: Picos) {
        match deed {
            Deed::Release(flow) => {
                let Some(moving) = &mut self.moving else { return };
                let Flow { from, period, .. } = moving.broker.flows[flow];
                moving.senders[from].released.push_back(flow);
                if period.is_some() {
                    self.plan_release(flow, now);
                }
                self.notify(from, now);
            }
            Deed::Parse(vm) => self.parse(vm, now),
            Deed::Insert(vm) => self.insert(vm, now),
            Deed::Inserted(vm) => self.inserted(vm, now),
            Deed::Returned(vm) => {
                if let Some(moving) = &mut self.moving {
                    moving.senders[vm].is_away = false;
                }
                self.notify(vm, now);
            }
            Deed::Poll => self.poll(now),
            Deed::Start => self.start_chunk(now),
            Deed::Moved => self.chunk_moved(now),
            Deed::Notified => self.chunk_notified(now),
        }
    }

    /// Keeps the first core of a VM until `until`.
    fn keep(&mut self, vm: usize, until: Picos) {
        let its = self.cores.iter_mut().find(|core| usize::from(core.owner.0) == vm);
        if let Some(core) = its {
            core.busy_until = core.busy_until.max(until);
        }
    }

    /// A VM notifies of all packets that it wants to send, once it has its core: into the
    /// hypervisor and through the transport.
    fn notify(&mut self, vm: usize, now: Picos) {
        let Some(moving) = &mut self.moving else { return };
        if moving.senders[vm].is_away || moving.senders[vm].released.is_empty() {
            return;
        }
        moving.senders[vm].is_away = true;
        while let Some(flow) = moving.senders[vm].released.pop_front() {
            let stamp = moving.paces[flow].stamp(now.0 / 1000);
            moving.outcomes[flow].sent += u64::from(moving.counts);
            moving.senders[vm].notified.push_back(Packet {
                flow,
                from: now.max(Picos::from_nanos(stamp.eligible)),
                eligible: stamp.eligible,
                deadline: stamp.deadline,
                moved: 0,
                receiver: 0,
            });
        }
        let into = Picos(moving.draw(moving.broker.steps.hc).0 / 2);
        let at = now + into + moving.draw(moving.broker.steps.pt);
        self.keep(vm, at);
        self.add(at, Event::Flow(Deed::Parse(vm)));
    }

    fn parse(&mut self, vm: usize, now: Picos) {
        let Some(moving) = &mut self.moving else { return };
        let steps = moving.broker.steps;
        let (at, next) = if moving.senders[vm].notified.is_empty() {
            (now + Picos(moving.draw(steps.hc).0 / 2), Deed::Returned(vm))
        } else {
            (now + moving.draw(steps.pp), Deed::Insert(vm))
        };
        self.keep(vm, at);
        self.add(at, Event::Flow(next));
    }

    fn insert(&mut self, vm: usize, now: Picos) {
        let Some(moving) = &mut self.moving else { return };
        let steps = moving.broker.steps;
        let queue = moving.queue(vm);
        let mut at = now.max(moving.queues[queue].unlocked) + moving.draw(steps.ql);
        for _ in 0..moving.queues[queue].packets.len() {
            at += moving.draw(steps.qa);
        }
        at += moving.draw(steps.qi);
        moving.queues[queue].unlocked = at;
        self.keep(vm, at);
        self.add(at, Event::Flow(Deed::Inserted(vm)));
    }

    fn inserted(&mut self, vm: usize, now: Picos) {
        let Some(moving) = &mut self.moving else { return };
        if let Some(packet) = moving.senders[vm].notified.pop_front() {
            let number = moving.number;
            moving.number += 1;
            moving.packets.insert(number, packet);
            if packet.eligible > now.0 / 1000 {
                moving.delay(number, packet.eligible);
            } else {
                moving.enqueue(number);
            }
        }
        self.poll(now);
        self.parse(vm, now);
    }

    /// The broker chooses what is moved next, unless it is at something, and programs the engine.
    fn poll(&mut self, now: Picos) {
        let Some(moving) = &mut self.moving else { return };
        if moving.busy.is_some() {
            return;
        }
        match moving.choose(now.0 / 1000) {
            Ok(number) => {
                let bytes = moving.next_chunk(&moving.packets[&number]);
                moving.busy = Some((number, bytes));
                let steps = moving.broker.steps;
                let mut at = now;
                for _ in 0..moving.broker.queues {
                    at += moving.draw(steps.ps);
                }
                at = at + moving.draw(steps.pd) + moving.draw(steps.hc);
                self.add(at, Event::Flow(Deed::Start));
            }
            Err(Some(time)) => self.add(Picos::from_nanos(time), Event::Flow(Deed::Poll)),
            Err(None) => {}
        }
    }

    fn start_chunk(&mut self, now: Picos) {
        let Some(moving) = &mut self.moving else { return };
        let Some((number, bytes)) = moving.busy else { return };
        let packet = moving.packets[&number];
        let Buffers { source, to } = &moving.places[packet.flow];
        let transfer = Transfer::Simple(DmaPiece {
            from: Some(Pa(source + packet.moved)),
            to: to.get(packet.receiver).map(|to| Pa(to + packet.moved)),
            bytes: Bytes(bytes),
        });
        moving.buckets[packet.flow].take(now.0 / 1000, bytes);
        let Broker { engine, channel, .. } = *moving.broker;
        let from = moving.broker.flows[packet.flow].from;
        let owner = u8::try_from(from).map_or(Owner::default(), Owner);
        let started = self.memory.start_transfer(engine, channel, owner, transfer, now);
        debug_assert!(started.is_ok(), "the broker's channel is there and has nothing to do");
    }

    /// The broker's chunk was moved, if it was the broker's engine and channel; whether it was.
    pub(super) fn is_brokers(&mut self, engine: usize, channel: usize, at: Picos) -> bool {
        let Some(moving) = &mut self.moving else { return false };
        if (moving.broker.engine, moving.broker.channel) != (engine, channel) {
            return false;
        }
        let at = at + moving.draw(moving.broker.steps.ip);
        self.add(at, Event::Flow(Deed::Moved));
        true
    }

    fn chunk_moved(&mut self, now: Picos) {
        let Some(moving) = &mut self.moving else { return };
        let Some((number, bytes)) = moving.busy else { return };
        let steps = moving.broker.steps;
        let Some(packet) = moving.packets.get_mut(&number) else { return };
        let flow = &moving.broker.flows[packet.flow];
        packet.moved += bytes;
        if packet.moved == flow.size.0 && packet.receiver + 1 < flow.to.len() {
            (packet.moved, packet.receiver) = (0, packet.receiver + 1);
        }
        let mut at = now;
        if packet.moved == flow.size.0 {
            let queue = moving.queue(flow.from);
            at = now.max(moving.queues[queue].unlocked) + moving.draw(steps.ql);
            at += moving.draw(steps.qr);
            moving.queues[queue].unlocked = at;
        }
        at += moving.draw(steps.ft);
        self.add(at, Event::Flow(Deed::Notified));
    }

    fn chunk_notified(&mut self, now: Picos) {
        let Some(moving) = &mut self.moving else { return };
        let Some((number, _)) = moving.busy.take() else { return };
        let steps = moving.broker.steps;
        let packet = moving.packets[&number];
        let flow = &moving.broker.flows[packet.flow];
        if packet.moved == flow.size.0 {
            // The entry into the hypervisor continues at the same time as the interrupt (O_r of
            // rt-virtio, Eq. 22).
            let way = moving.draw(steps.br).since(Picos(moving.draw(steps.hc).0 / 2));
            moving.arrive(number, now + way);
            for vm in &flow.to {
                self.keep(*vm, now + way);
            }
            if flow.period.is_none() {
                self.plan_release(packet.flow, now + way);
            }
        }
        self.poll(now);
    }
}
