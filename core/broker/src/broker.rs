//! The broker's decisions: which packet is moved next, how much of it, and when there is nothing to
//! do.

use super::shared::{
    BrokerFlow, ChainOutcome, Completion, FLOWS, PORTS, Partition, Pieces, RING, retired_before,
};
use crate::transfer::{Bucket, Edf};
use weir_units::Cid;
use weir_vsock::vsock::{HEADER_LEN, Header, SEQPACKET};

/// Flags of a message's last packet: end of message, end of record (virtio 1.2, section 5.10.6.6).
const ENDS: u32 = 3;
/// No packet.
const NONE: u8 = u8::MAX;

/// What moves bytes in the broker's address space: the core, or a DMA engine.
pub trait Mover {
    /// Copies `len` bytes from one address to another.
    fn copy(&mut self, from: u64, to: u64, len: u64);
    /// Writes these bytes.
    fn write(&mut self, to: u64, bytes: &[u8]);
    /// The counter, in ticks: how long each phase takes is told with the completions.
    fn ticks(&mut self) -> u64;
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call [`Broker::step`] again.
    Again,
    /// Tell the hypervisor that there are completions, then call again.
    Tell,
    /// Nothing until an interrupt, or until this time in ns.
    Wait(Option<u64>),
}

impl Step {
    /// Without a sleep.
    const fn or_again(self) -> Self {
        match self {
            Self::Wait(_) => Self::Again,
            step => step,
        }
    }
}

/// What the broker remembers of a port.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    epoch: u32,
    /// Submissions taken.
    submitted: u32,
    /// Buffers used.
    used: u32,
    /// Buffers offered, when last looked at.
    offered: u32,
}

/// Where a flow's first packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// There is none.
    Idle,
    /// In the queue by the time at which it may go.
    Delayed,
    /// In the queue by deadline.
    Ready,
    /// It waits for a buffer of its receiver's.
    Blocked,
}

/// A flow's packets, in the order in which they came: a list through [`Broker::next`]. Flows to
/// several receivers have one list, in which each has its own place: whoever is behind is behind in
/// packets that are all for it too, so that no place is in one that has left.
#[derive(Clone, Copy, Debug)]
struct Line {
    flow: BrokerFlow,
    /// Flows from this one on that are one to several receivers; 1 of a flow to one.
    members: usize,
    /// Which of them this is.
    member: usize,
    /// [`Partition::retired`] when last looked at.
    retired: u64,
    /// Submissions of its sender's before this number were taken back; none when all that come are
    /// later.
    before: Option<u32>,
    bucket: Bucket,
    first: u8,
    last: u8,
    /// Bytes of the first packet's payload that have been moved.
    moved: u32,
    place: Where,
}

/// The broker.
#[derive(Debug)]
pub struct Broker<'a> {
    shared: &'a Partition,
    chunk: u32,
    engine: Bucket,
    known: [Known; PORTS],
    lines: [Line; FLOWS],
    flows: usize,
    /// Those from here on are no end of a flow.
    ports: usize,
    /// Some flow is to several receivers.
    several: bool,
    /// For each packet of each port the one behind it in its flow.
    next: [[u8; RING]; PORTS],
    delayed: Edf<u8, FLOWS>,
    ready: Edf<u8, FLOWS>,
    completed: u32,
    /// There are completions that the hypervisor has not been told of.
    untold: bool,
    /// There was nothing to do, the hypervisor knows that it must wake the broker from now on, and
    /// this is the last look before it sleeps.
    dozing: bool,
    phases: Phases,
}

/// How long the phases took that no chunk has told yet, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Phases {
    /// When the last phase ended; 0 when the broker has slept since.
    mark: u64,
    find_place: u64,
    /// Of each port's packets that came while the broker slept.
    wake: [u64; PORTS],
    round_trip: u64,
    finalize: u64,
    /// Chunks since the last hypercall.
    chunks: u64,
}

impl<'a> Broker<'a> {
    /// As configured in `shared`.
    // By itself: what runs once can be told from what moves packets.
    #[inline(never)]
    #[must_use]
    pub fn new(shared: &'a Partition) -> Self {
        let settings = shared.settings();
        let lines: [Line; FLOWS] = core::array::from_fn(|index| {
            let flow = shared.flow(index);
            let bucket = Bucket::new(flow.rate, flow.burst);
            let (members, member) = shared.members(index);
            let retired = shared.retired(index);
            Line {
                flow,
                members,
                member,
                retired,
                // Nothing is known of any port yet, as in its first epoch: what was taken back
                // before this broker began stays so.
                before: retired_before(retired, Known::default().epoch),
                bucket,
                first: NONE,
                last: NONE,
                moved: 0,
                place: Where::Idle,
            }
        });
        let flows = usize::from(settings.flows);
        let used = || lines.iter().take(flows);
        let ends = used().flat_map(|line| [line.flow.from, line.flow.to]);
        let ports = ends.map(|port| usize::from(port) + 1).max().unwrap_or(0).min(PORTS);
        let several = used().any(Line::is_one_of_several);
        Self {
            shared,
            ports,
            several,
            chunk: settings.chunk,
            engine: Bucket::new(settings.rate, settings.chunk.into()),
            known: [Known::default(); PORTS],
            lines,
            flows,
            next: [[NONE; RING]; PORTS],
            delayed: Edf::new(),
            ready: Edf::new(),
            completed: 0,
            untold: false,
            dozing: false,
            phases: Phases::default(),
        }
    }

    /// Takes in what is new, and moves at most one chunk. `now` is in ns of the counter.
    pub fn step(&mut self, now: u64, mover: &mut impl Mover) -> Step {
        self.step_before(now, mover, |_| None)
    }

    /// As [`Self::step`]; if no flow has anything to do now, takes one step of `background`, which
    /// returns none if it has nothing to do either.
    pub fn step_before<M: Mover>(
        &mut self,
        now: u64,
        mover: &mut M,
        background: impl FnOnce(&mut M) -> Option<Step>,
    ) -> Step {
        let slept = self.phases.mark == 0;
        if slept {
            self.phases.mark = mover.ticks();
        }
        let begun = self.phases.mark;
        let (mut settled, mut packets) = (true, 0);
        if self.several {
            for index in 0..self.flows {
                self.retire(index);
            }
        }
        for port in 0..self.ports {
            let (is_settled, new) = self.take_in(port);
            settled &= is_settled;
            packets += new;
            if slept && new > 0 {
                let waited = begun.saturating_sub(self.shared.port(port).rung());
                self.phases.wake[port] = self.phases.wake[port].max(waited);
            }
        }
        while let Some((time, flow)) = self.delayed.peek()
            && time <= now
        {
            self.delayed.pop();
            self.enqueue(flow.into(), now);
        }
        let mut mark = begun;
        if packets > 0 {
            mark = mover.ticks();
            self.phases.find_place = mark.wrapping_sub(begun) / u64::from(packets);
        }
        let step = self.choose(now, mark, mover);
        let idle = settled && matches!(step, Step::Wait(_));
        if !idle {
            self.dozing = false;
            return if settled { step } else { step.or_again() };
        }
        if let Some(step) = background(mover) {
            self.dozing = false;
            // Its time is no phase of a packet.
            self.phases.mark = mover.ticks();
            return step;
        }
        self.dozing = !self.dozing;
        if self.dozing {
            // Said first, and then looked once more: what comes behind that look has its interrupt.
            self.shared.doze();
            self.phases.mark = mover.ticks();
            return Step::Again;
        }
        self.phases.mark = 0;
        step
    }

    /// The hypercall of [`Step::Tell`] was made: when it was called and when it came back, and how
    /// long the hypervisor was busy inside, in ticks.
    pub fn told(&mut self, called: u64, back: u64, inside: u64) {
        let whole = back.wrapping_sub(called);
        let phases = &mut self.phases;
        phases.round_trip = whole.saturating_sub(inside);
        phases.finalize = whole / phases.chunks.max(1);
        phases.chunks = 0;
        phases.mark = back;
    }

    /// Moves at most one chunk of the packet with the earliest deadline. `mark` is when that began,
    /// in ticks.
    fn choose(&mut self, now: u64, mark: u64, mover: &mut impl Mover) -> Step {
        // Bounded: each turn takes a flow or a packet out of the queue, or ends.
        while let Some((deadline, flow)) = self.ready.peek() {
            let index = usize::from(flow);
            let Some(line) = self.lines.get(index).copied() else { break };
            let (sender, receiver) = (usize::from(line.flow.from), usize::from(line.flow.to));
            if line.first == NONE || self.shared.port(sender).times(line.first).1 != deadline {
                // Its sender was reset meanwhile; a packet that came since has a place of its own.
                self.ready.pop();
                self.lines[index].place = Where::Idle;
                self.enqueue(index, now);
                continue;
            }
            let known = self.known[receiver];
            let epoch = self.shared.port(receiver).epoch();
            if line.is_one_of_several() {
                // Behind the epoch: who was reset had its packets taken back before.
                if self.retire(index) {
                    continue;
                }
            } else if self.shared.port(sender).receivers_epoch(line.first) != epoch {
                // Meant for a boot of the receiver's that is over.
                self.finish(index, ChainOutcome::Lost, now);
                continue;
            }
            if known.epoch != epoch {
                // It was reset since it was looked at.
                return Step::Again;
            }
            if known.used == known.offered {
                self.ready.pop();
                self.lines[index].place = Where::Blocked;
                continue;
            }
            let (header, pieces) = self.shared.port(sender).packet(line.first);
            let header = Header::from_bytes(&header);
            let (head, buffer) = self.shared.port(receiver).buffer(known.used);
            let room = buffer.len().saturating_sub(HEADER_LEN as u64);
            let left = header.len.saturating_sub(line.moved);
            let bytes = u64::from(left.min(self.chunk)).min(room);
            let own = line.bucket.ready_at(bytes);
            if own > now {
                self.ready.pop();
                self.delay(index, own);
                continue;
            }
            let engine = self.engine.ready_at(bytes);
            if engine > now {
                return self.rest(engine, now);
            }
            let picked = mover.ticks();
            let epochs = [sender, receiver].map(|port| (port, self.known[port].epoch));
            if !self.shared.begin_copy(epochs[0], epochs[1]) {
                return Step::Again;
            }
            let piece = Header {
                len: bytes as u32,
                flags: if header.kind == SEQPACKET && bytes < left.into() {
                    header.flags & !ENDS
                } else {
                    header.flags
                },
                dst_cid: if line.is_one_of_several() {
                    Cid::of_vm(line.flow.to.into())
                } else {
                    header.dst_cid
                },
                ..header
            };
            scatter(mover, &buffer, &piece.to_bytes());
            let programmed = mover.ticks();
            transfer(mover, (&pieces, HEADER_LEN as u64 + u64::from(line.moved)), &buffer, bytes);
            let copied = mover.ticks();
            self.shared.end_copy();
            self.lines[index].bucket.take(now, bytes);
            self.engine.take(now, bytes);
            self.known[receiver].used = known.used.wrapping_add(1);
            let written = HEADER_LEN as u32 + bytes as u32;
            let chunk = self.completed;
            self.answer(receiver, head.into(), 0, ChainOutcome::Received(written));
            self.lines[index].moved += bytes as u32;
            let more = bytes < left.into() && bytes > 0;
            if !more {
                // A buffer with no room for payload, of which the device offers none, would never
                // move the packet.
                let outcome =
                    if bytes == u64::from(left) { ChainOutcome::Sent } else { ChainOutcome::Lost };
                self.finish(index, outcome, now);
            }
            let removed = mover.ticks();
            let phases =
                [(mark, picked), (picked, programmed), (programmed, copied), (copied, removed)]
                    .map(|(from, to)| to.wrapping_sub(from));
            self.shared.note(chunk, phases);
            self.phases.chunks += 1;
            self.phases.mark = removed;
            return if more { Step::Again } else { self.tell() };
        }
        self.rest(u64::MAX, now)
    }

    /// Nothing can be moved before `until`.
    fn rest(&mut self, until: u64, now: u64) -> Step {
        let alarm = self.shared.alarm();
        if self.untold || alarm <= now {
            return self.tell();
        }
        let delayed = self.delayed.peek().map_or(u64::MAX, |(time, _)| time);
        let wake = until.min(alarm).min(delayed);
        Step::Wait((wake != u64::MAX).then_some(wake))
    }

    fn tell(&mut self) -> Step {
        self.untold = false;
        Step::Tell
    }

    /// The first packet of a flow is done with.
    fn finish(&mut self, index: usize, outcome: ChainOutcome, now: u64) {
        let line = &mut self.lines[index];
        let sender = usize::from(line.flow.from);
        let head = line.first;
        line.first = self.next[sender][usize::from(head) % RING];
        line.moved = 0;
        line.place = Where::Idle;
        self.ready.pop();
        let Phases { find_place, round_trip, finalize, .. } = self.phases;
        // A sleep is told once.
        let wake = core::mem::take(&mut self.phases.wake[sender % PORTS]);
        self.shared.note(self.completed, [find_place, wake, round_trip, finalize]);
        self.answer(sender, head.into(), index as u8, outcome);
        self.enqueue(index, now);
    }

    /// Gives up the packets of a flow that the hypervisor has taken back since it was last looked
    /// at; whether it has.
    fn retire(&mut self, index: usize) -> bool {
        let retired = self.shared.retired(index);
        let line = &mut self.lines[index];
        if line.retired == retired {
            return false;
        }
        let sender = usize::from(line.flow.from);
        line.retired = retired;
        line.before = retired_before(retired, self.known[sender].epoch);
        let mut head = core::mem::replace(&mut line.first, NONE);
        line.moved = 0;
        if line.place == Where::Blocked {
            line.place = Where::Idle;
        }
        // Bounded: a list has each head once at most.
        for _ in 0..RING {
            if head == NONE {
                break;
            }
            self.answer(sender, head.into(), index as u8, ChainOutcome::Lost);
            head = self.next[sender][usize::from(head) % RING];
        }
        true
    }

    fn answer(&mut self, port: usize, head: u16, flow: u8, outcome: ChainOutcome) {
        let epoch = self.known[port].epoch;
        let completion = Completion { port, epoch, head, flow, outcome, phases: 0 };
        self.shared.complete(self.completed, completion);
        self.completed = self.completed.wrapping_add(1);
        self.untold = true;
    }

    /// Puts a flow whose first packet is in no queue into one.
    fn enqueue(&mut self, index: usize, now: u64) {
        let line = self.lines[index];
        if line.first == NONE {
            self.lines[index].place = Where::Idle;
            return;
        }
        let (eligible, deadline) = self.shared.port(usize::from(line.flow.from)).times(line.first);
        let ready_at = eligible.max(line.bucket.ready_at(1));
        if ready_at > now {
            self.delay(index, ready_at);
        } else if self.ready.push(deadline, index as u8).is_ok() {
            self.lines[index].place = Where::Ready;
        }
    }

    fn delay(&mut self, index: usize, until: u64) {
        // There are as many places as flows, and a flow has one.
        if self.delayed.push(until, index as u8).is_ok() {
            self.lines[index].place = Where::Delayed;
        }
    }

    /// Takes in what is new of a port; false if it was reset meanwhile, and there may be more. And
    /// how many packets are new.
    fn take_in(&mut self, index: usize) -> (bool, u32) {
        // Twice, as what is there after a reset must not be slept over; no more, as a driver that
        // resets its device all the time holds up nobody else.
        match self.look(index).or_else(|| self.look(index)) {
            Some(new) => (true, new),
            None => (false, 0),
        }
    }

    /// The packets that were new; none if the port was reset meanwhile.
    fn look(&mut self, index: usize) -> Option<u32> {
        let port = self.shared.port(index);
        let known = self.known[index];
        let (submitted, offered) = (port.submitted(known.epoch), port.offered(known.epoch));
        // Bounded by the ring; more can't be new.
        let new = submitted.wrapping_sub(known.submitted).min(RING as u32);
        for count in (0..new).map(|more| known.submitted.wrapping_add(more)) {
            let (head, flow) = port.submission(count);
            if !port.is_in(known.epoch) {
                break;
            }
            self.append(index, (count, head), flow.into());
        }
        if !port.is_in(known.epoch) {
            self.forget(index);
            return None;
        }
        self.known[index] = Known { submitted, offered, ..known };
        if offered != known.offered {
            self.unblock(index);
        }
        Some(new)
    }

    /// Flows that wait for a receiver's buffers are to be looked at again.
    fn unblock(&mut self, receiver: usize) {
        for flow in 0..self.flows {
            let Line { flow: its, place, .. } = self.lines[flow];
            if place == Where::Blocked && usize::from(its.to) == receiver {
                self.lines[flow].place = Where::Idle;
                self.enqueue(flow, u64::MAX);
            }
        }
    }

    /// Appends a packet, submission number `count` of its port, to its flow.
    fn append(&mut self, port: usize, (count, head): (u32, u8), flow: usize) {
        if flow >= self.flows || usize::from(self.lines[flow].flow.from) != port {
            return;
        }
        let group = flow..(flow + self.lines[flow].members).min(self.flows);
        if self.several {
            // Whoever is not behind in this packet is in none.
            for index in group.clone() {
                self.retire(index);
            }
        }
        self.next[port][usize::from(head)] = NONE;
        if self.lines[group.clone()].iter().any(|line| line.first != NONE) {
            self.next[port][usize::from(self.lines[flow].last) % RING] = head;
        }
        self.lines[flow].last = head;
        let members = self.shared.port(port).members(head);
        for (index, bit) in group.zip(0..8) {
            let line = &mut self.lines[index];
            let is_before = |until: u32| count.wrapping_sub(until).cast_signed() < 0;
            if line.before.is_some_and(is_before) {
                if members >> bit & 1 != 0 {
                    self.answer(port, head.into(), index as u8, ChainOutcome::Lost);
                }
                continue;
            }
            line.before = None;
            if line.first == NONE && members >> bit & 1 != 0 {
                (line.first, line.moved) = (head, 0);
                if line.place == Where::Idle {
                    self.enqueue(index, 0);
                }
            }
        }
    }

    /// The port was reset: its packets and its buffers are no more, and packets to it wait in vain.
    fn forget(&mut self, index: usize) {
        let epoch = self.shared.port(index).epoch();
        self.known[index] = Known { epoch, ..Known::default() };
        for line in &mut self.lines {
            if usize::from(line.flow.from) == index {
                (line.first, line.last, line.moved) = (NONE, NONE, 0);
                line.before = retired_before(line.retired, epoch);
                if line.place == Where::Blocked {
                    line.place = Where::Idle;
                }
            }
        }
        self.unblock(index);
    }
}

impl Line {
    /// Whether it is to one of several receivers.
    const fn is_one_of_several(&self) -> bool {
        self.members > 1 || self.member > 0
    }
}

/// Writes `bytes` at the start of a buffer.
fn scatter(mover: &mut impl Mover, buffer: &Pieces, bytes: &[u8]) {
    let mut done = 0;
    while let Some((to, len)) = buffer.at(done as u64)
        && let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty())
    {
        let len = rest.len().min(usize::try_from(len).unwrap_or(usize::MAX));
        mover.write(to, &rest[..len]);
        done += len;
    }
}

/// Moves `bytes` from byte `from.1` of a packet's buffers to behind the header of the receiver's.
fn transfer(mover: &mut impl Mover, from: (&Pieces, u64), buffer: &Pieces, bytes: u64) {
    let mut done = 0;
    while done < bytes
        && let Some((source, source_len)) = from.0.at(from.1 + done)
        && let Some((target, target_len)) = buffer.at(HEADER_LEN as u64 + done)
    {
        let len = source_len.min(target_len).min(bytes - done);
        mover.copy(source, target, len);
        done += len;
    }
}
