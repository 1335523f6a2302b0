//! The broker's state of a VM's socket device: its rings, and the packets and flows that wait for
//! them.

use crate::{
    RING, bits,
    ram::{Access, Memory, Window},
    taken::Taken,
};
use weir_exchange::{
    device::{DeviceWords, STAMPS},
    flows::{Exchange, FLOWS, PORTS},
    ram::Piece,
};
use weir_vsock::{
    GuestMemory,
    device::{RX, TX},
    memory::Aligned,
    queue::{Broken, Chain, Direction, Found, Queue, STRIDE},
    vsock::{HEADER_LEN, Header, MAX_PAYLOAD},
};

/// Number of control packets that can wait for a buffer, in equal parts for the flows; further
/// packets are dropped.
const WAITING: usize = 32;
/// The part of a receiver's ring (1 / `ALONE`) that is reserved for control packets if the VM has
/// only one flow.
const ALONE: u16 = 8;
/// The share of a flow: the number of receive buffers for its control packets, and the number of
/// its longest messages for which it has buffers.
const CONTROLS: u16 = 2;
const MESSAGES: usize = 4;
/// Payload bytes of the smallest receive buffer that a known driver uses: Linux allocates 4 KiB, of
/// which it keeps 320 bytes for itself, and the header needs 44.
const BUFFER: u32 = 4096 - 320 - HEADER_LEN as u32;

/// The user of receive buffers: the messages of a flow, its control packets, or answers to packets
/// that belong to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u8);

/// Number of owners that have a share.
const OWNERS: usize = 2 * FLOWS;

impl Owner {
    /// The owner of an answer to a packet that belongs to no flow. It has no share of the buffers.
    pub(crate) const NONE: Self = Self(u8::MAX);
    /// The owner of a buffer that is not filled.
    const EMPTY: Self = Self(u8::MAX - 1);

    /// Returns the owner of the messages of flow `index`.
    pub(crate) const fn messages(index: usize) -> Self {
        Self(2 * index as u8)
    }

    /// Returns the owner of the control packets of flow `index`.
    pub(crate) const fn controls(index: usize) -> Self {
        Self(2 * index as u8 + 1)
    }
}

/// The receive buffers of a VM that are filled and not returned yet, by owner.
///
/// Each owner at the VM has a share of the buffers. It may take a buffer if enough buffers remain
/// for the unused shares of the other owners. So no owner finds the ring empty because of another
/// owner's packets, however slowly the driver returns buffers. If a driver has fewer buffers than
/// the shares need, each owner is served up to its share.
///
/// A driver may return no buffer before it has got more filled ones: Linux returns all of them when
/// fewer than half of the ring are left. So the shares are enough for at least one message of each
/// flow, and together are at most half of the ring: a message that arrives when exactly half are
/// left finds the buffers that it needs.
#[derive(Debug)]
struct Filled {
    /// The owner of each chain, indexed by the chain's head.
    owners: [Owner; RING],
    counts: [u8; OWNERS],
    shares: [u8; OWNERS],
    /// The sum of the shares, and the part of it that is not used.
    reserve: u16,
    unused: u16,
    /// Number of filled buffers, of all owners, that the driver has not returned.
    outstanding: u16,
    /// Position up to which available chains were examined: see [`Self::take_back`].
    seen: u16,
}

impl Filled {
    const NONE: Self = Self {
        owners: [Owner::EMPTY; RING],
        counts: [0; OWNERS],
        shares: [0; OWNERS],
        reserve: 0,
        unused: 0,
        outstanding: 0,
        seen: 0,
    };

    /// Returns the shares of a ring with `size` entries. The flows in `ends` end at the VM, and
    /// those in `to` bring messages, one bit each; `messages` are the numbers of buffers for the
    /// longest message of each flow.
    fn new(size: u16, (ends, to): (u64, u64), messages: &[u8; FLOWS]) -> Self {
        let mut filled = Self::NONE;
        if ends.count_ones() < 2 {
            filled.set(Owner::controls(ends.trailing_zeros() as usize), size / ALONE);
            return filled;
        }
        for flow in bits(ends) {
            filled.set(Owner::controls(flow), CONTROLS);
        }
        let room = (size / 2).saturating_sub(1 + filled.unused);
        let receives = || bits(to).zip(bits(to).map(|flow| u16::from(messages[flow % FLOWS])));
        let needed: u16 = receives().map(|(_, one)| one).sum();
        for (flow, one) in receives() {
            // If they do not all fit, each share is reduced by the same factor.
            let part = u32::from(one) * u32::from(room) / u32::from(needed).max(1);
            filled.set(Owner::messages(flow), one.min(part as u16).max(1));
        }
        let mut spare = room.saturating_sub(needed);
        for _ in 1..MESSAGES {
            for (flow, one) in receives() {
                if one <= spare {
                    let owner = Owner::messages(flow);
                    filled.set(owner, filled.share(owner) + one);
                    spare -= one;
                }
            }
        }
        filled
    }

    /// Gives a share to `owner`, which has not filled a buffer.
    fn set(&mut self, owner: Owner, share: u16) {
        let share = share.min(RING as u16);
        if let Some(place) = self.shares.get_mut(usize::from(owner.0)) {
            self.reserve = self.reserve + share - u16::from(*place);
            self.unused = self.reserve;
            *place = share as u8;
        }
    }

    /// Returns how many buffers are reserved for `owner`.
    fn share(&self, owner: Owner) -> u16 {
        self.shares.get(usize::from(owner.0)).map_or(0, |share| u16::from(*share))
    }

    /// Returns how many buffers of its share `owner` has not filled.
    fn unused_of(&self, owner: Owner) -> u16 {
        let count = self.counts.get(usize::from(owner.0)).map_or(0, |count| u16::from(*count));
        self.share(owner).saturating_sub(count)
    }

    /// Counts that `owner` has filled one more buffer, or that the driver has returned one.
    fn count(&mut self, owner: Owner, is_filled: bool) {
        let before = self.unused_of(owner);
        let Some(count) = self.counts.get_mut(usize::from(owner.0)) else { return };
        *count = if is_filled { *count + 1 } else { count.saturating_sub(1) };
        self.unused = self.unused - before + self.unused_of(owner);
    }

    /// Notes that the driver has returned the chain at `head`.
    fn release(&mut self, head: u16) {
        let Some(owner) = self.owners.get_mut(usize::from(head)) else { return };
        let owner = core::mem::replace(owner, Owner::EMPTY);
        if owner != Owner::EMPTY {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        self.count(owner, false);
    }

    /// Notes that the device has taken the chain at `head`, as number `taken`.
    fn take(&mut self, head: u16, taken: u16) {
        self.release(head);
        if self.seen.wrapping_sub(taken).cast_signed() < 0 {
            self.seen = taken;
        }
    }

    /// Notes that a chain that the device has taken consists of these descriptors, one bit each:
    /// the driver has returned the chains that began with them.
    #[inline]
    fn reuse(&mut self, descriptors: &mut u64) {
        bits(core::mem::take(descriptors)).for_each(|head| self.release(head as u16));
    }

    /// Notes that the chain at `head` was filled by `owner`.
    fn note(&mut self, head: u16, owner: Owner) {
        self.release(head);
        let Some(place) = self.owners.get_mut(usize::from(head)) else { return };
        *place = owner;
        self.outstanding += 1;
        self.count(owner, true);
    }

    /// Releases the chains that the driver has returned and the device has not taken: at most
    /// `ready` chains, each of which is examined only once.
    fn take_back(
        &mut self,
        queue: &Queue,
        ready: u16,
        memory: &mut impl GuestMemory,
    ) -> Result<(), Broken> {
        for place in self.seen.wrapping_sub(queue.taken())..ready {
            let head = queue.peek(memory, place)?;
            self.release(head);
        }
        self.seen = queue.taken().wrapping_add(ready);
        Ok(())
    }

    /// Returns whether `owner` may take one of `available` buffers and the `taken` ones.
    #[inline(never)]
    fn admits(
        &mut self,
        owner: Owner,
        (queue, available, taken): (&Queue, u16, u16),
        memory: &mut impl GuestMemory,
    ) -> Result<bool, Broken> {
        let ready = available + taken;
        if ready > self.reserve || ready > 0 && self.unused_of(owner) > 0 {
            return Ok(true);
        }
        if ready == 0 {
            return Ok(false);
        }
        self.take_back(queue, available, memory)?;
        // A ring may have more entries than the driver has buffers.
        Ok(ready > self.unused || self.unused_of(owner) > 0 || ready >= self.outstanding)
    }
}

/// A receive buffer, and how far it is filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) chain: Chain,
    /// Number of bytes of the buffer that were found, and whether these are all.
    room: u32,
    is_measured: bool,
    /// Descriptors of the buffer, one bit each, if there are several.
    descriptors: u64,
    /// Number of bytes that are written, beginning with the header.
    pub(crate) done: u32,
    /// Number of payload bytes of the chunk; none before the chunk has begun.
    pub(crate) bytes: Option<u32>,
}

impl Buffer {
    const NONE: Self = Self::new(Chain::EMPTY);

    const fn new(chain: Chain) -> Self {
        Self { chain, room: 0, is_measured: false, descriptors: 0, done: 0, bytes: None }
    }

    /// Returns the number of bytes in the buffer besides the header, or none if it has more
    /// descriptors than may be read now.
    #[inline]
    fn measure(
        &mut self,
        queue: &Queue,
        memory: &mut impl GuestMemory,
        steps: &mut u32,
    ) -> Result<Option<u32>, Broken> {
        if !self.is_measured {
            if let Found::Bytes(only) =
                queue.walk(memory, &mut self.chain, Direction::Write, steps)?
                && self.room == 0
                && !self.chain.goes_on()
            {
                // Most buffers consist of one piece.
                (self.room, self.is_measured) = (only.len, true);
            } else if !self.measure_pieces(queue, memory, steps)? {
                return Ok(None);
            }
        }
        let room = self.room.checked_sub(HEADER_LEN as u32).filter(|room| *room > 0);
        room.ok_or(Broken::TooShort).map(Some)
    }

    /// Measures a buffer that consists of several pieces, for [`Self::measure`]. Returns false if
    /// there are more pieces than may be read now.
    #[inline(never)]
    fn measure_pieces(
        &mut self,
        queue: &Queue,
        memory: &mut impl GuestMemory,
        steps: &mut u32,
    ) -> Result<bool, Broken> {
        loop {
            match queue.walk(memory, &mut self.chain, Direction::Write, steps)? {
                Found::Bytes(segment) => {
                    self.room = self.room.saturating_add(segment.len);
                    self.chain.pass(segment.len);
                }
                Found::End => {
                    (self.descriptors, self.is_measured) = (self.chain.descriptors(), true);
                    self.chain = queue.again(&self.chain);
                    return Ok(true);
                }
                Found::Later => return Ok(false),
            }
        }
    }

    /// Writes the rest of a header. Returns false if there are more descriptors than may be read
    /// now.
    #[inline]
    pub(crate) fn put_header(
        &mut self,
        queue: &Queue,
        memory: &mut impl GuestMemory,
        header: &Header,
        steps: &mut u32,
    ) -> Result<bool, Broken> {
        let bytes = Aligned(header.to_bytes());
        if self.done == 0 {
            let Found::Bytes(first) =
                queue.walk(memory, &mut self.chain, Direction::Write, steps)?
            else {
                return self.put_rest(queue, memory, &bytes.0, steps);
            };
            if first.len as usize >= HEADER_LEN {
                memory.write(first.address, &bytes.0)?;
                self.chain.pass(HEADER_LEN as u32);
                self.done = HEADER_LEN as u32;
                return Ok(true);
            }
        }
        self.put_rest(queue, memory, &bytes.0, steps)
    }

    /// Writes a header into several pieces, for [`Self::put_header`].
    #[inline(never)]
    fn put_rest(
        &mut self,
        queue: &Queue,
        memory: &mut impl GuestMemory,
        header: &[u8; HEADER_LEN],
        steps: &mut u32,
    ) -> Result<bool, Broken> {
        while let Some(rest) = header.get(self.done as usize..).filter(|rest| !rest.is_empty()) {
            match queue.walk(memory, &mut self.chain, Direction::Write, steps)? {
                Found::Bytes(segment) => {
                    let len = rest.len().min(segment.len as usize);
                    memory.write(segment.address, &rest[..len])?;
                    self.chain.pass(len as u32);
                    self.done += len as u32;
                }
                Found::End => return Err(Broken::TooShort),
                Found::Later => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Discards what was written to the buffer, which is then filled again from its start.
    fn restart(&mut self, queue: &Queue) {
        (self.chain, self.done, self.bytes) = (queue.again(&self.chain), 0, None);
    }
}

/// A control packet that is partly written.
#[derive(Clone, Copy, Debug)]
struct Writing {
    buffer: Buffer,
    header: Header,
    owner: Owner,
}

/// The number of bytes of a packet behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// The packet ends within its header.
    NoHeader,
    /// At most this number.
    UpTo(u32),
    /// Unknown, because not all of its buffers have been read.
    Unknown,
}

/// Progress of moving a flow's first packet: its source and its target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    /// The part of the payload that was not moved yet.
    pub(crate) source: Chain,
    /// The receive buffer that contains a part of a chunk, or is kept for the next chunk.
    pub(crate) target: Option<Buffer>,
}

impl Move {
    /// The state of a flow without a packet that is being moved.
    pub(crate) const NONE: Self = Self { source: Chain::EMPTY, target: None };

    /// Returns the payload bytes of the chunk that has begun.
    #[inline]
    pub(crate) fn begun(&self) -> Option<u32> {
        self.target.as_ref().and_then(|target| target.bytes)
    }
}

/// The room that a receiver has for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is no buffer that the flow may take.
    None,
    /// The receive buffer has more descriptors than one step reads.
    Later,
    /// Room for this number of payload bytes.
    Bytes(u32),
}

/// A packet that waits, or is being moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// The packet's chain, positioned at the payload.
    pub(crate) chain: Chain,
    pub(crate) header: Header,
    /// Earliest time at which the packet is moved, in ns of the counter.
    pub(crate) eligible: u64,
    /// Absolute deadline in ns of the counter; `u64::MAX` if there is none.
    pub(crate) deadline: u64,
    /// The epoch of the receiver's device in which the packet was sent; in a later epoch it is
    /// given up.
    pub(crate) epoch: u32,
    /// The packet's flow, or the first flow of its group.
    pub(crate) flow: u8,
    /// The flows from `flow` on to which the packet goes and that have not completed it, one bit
    /// each.
    pub(crate) members: u8,
    /// Whether the packet is data; otherwise it only must not overtake data.
    pub(crate) is_data: bool,
    /// The next packet of the same flow.
    pub(crate) next: u8,
}

impl Packet {
    const NONE: Self = Self {
        chain: Chain::EMPTY,
        header: Header::ZERO,
        eligible: 0,
        deadline: 0,
        epoch: 0,
        flow: 0,
        members: 0,
        is_data: false,
        next: 0,
    };
}

/// Times at which packets were found without a notification by the driver.
#[derive(Clone, Copy, Debug)]
struct Polled {
    /// Number of packets made available, and the time at which it was last read, in ticks.
    end: u16,
    at: u64,
    /// Position of the first packet that the last change of this number added, and the time of the
    /// reading before it.
    from: u16,
    before: u64,
}

impl Polled {
    const NEVER: Self = Self { end: 0, at: 0, from: 0, before: 0 };

    const fn poll(&mut self, end: u16, now: u64) {
        if end != self.end {
            (self.from, self.before, self.end) = (self.end, self.at, end);
        }
        self.at = now;
    }

    /// Returns a time after which packet number `count` was made available.
    const fn since(&self, count: u16) -> u64 {
        if count.wrapping_sub(self.from).cast_signed() < 0 { 0 } else { self.before }
    }
}

/// The broker's state of a VM's socket device. Fields that each packet needs come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Socket {
    pub(crate) epoch: u32,
    /// Number of notifications seen, for each queue.
    notified: [u32; 2],
    /// Number of notifications of packets that were taken.
    stamped: u32,
    /// Time at which the packet that was taken last was seen, in ticks of the counter.
    seen: u64,
    polled: Polled,
    /// The first piece of the VM's RAM, which is most of it.
    pub(crate) ram: Piece,
    pub(crate) queues: [Option<Queue>; 2],
    /// The packet that was taken last, and whether it is held because nothing may be done for it
    /// yet.
    pub(crate) taken: Taken,
    pub(crate) holds: bool,
    /// Number of bytes of its header that were read, while the header is incomplete.
    pub(crate) gathered: Option<u8>,
    /// Whether there may be packets in the transmit ring.
    pub(crate) more: bool,
    /// Number of packets outside of their flow's lane (or too early in it) and of resets that were
    /// taken in since a packet with a deadline has been ready to be moved.
    pub(crate) spent: u8,
    /// Whether the packet that was taken last was the last that was available.
    is_last: bool,
    /// Whether the driver got buffers back.
    returned: bool,
    /// Whether the driver sends notifications of receive buffers.
    notifies: bool,
    /// Whether a ring was invalid in this epoch.
    pub(crate) is_broken: bool,
    /// Whether a ring was invalid, and the other ends of the connections have not been informed
    /// yet.
    pub(crate) ends: bool,
    /// Whether there may be receive buffers for the packets and flows that wait for them.
    pub(crate) supplied: bool,
    /// Whether there is a receive buffer for the next chunk, and whether any flow may take it.
    has_buffer: bool,
    is_spare: bool,
    buffer: Buffer,
    /// Flows that wait for a receive buffer, one bit each.
    pub(crate) blocked: u64,
    /// Flows that the VM sends, and flows that it receives, one bit each.
    pub(crate) flows_from: u64,
    pub(crate) flows_to: u64,
    /// The flows that have a share of the receive buffers, one bit each.
    flow_ends: u64,
    /// The number of receive buffers for the longest message of each flow to this VM.
    messages: [u8; FLOWS],
    waits: usize,
    filled: Filled,
    waiting: [(Header, Owner); WAITING],
    writing: Option<Writing>,
    /// The packets, indexed by the heads of their chains.
    pub(crate) packets: [Packet; RING],
}

impl Socket {
    /// The initial state, before a VM is set up.
    pub(crate) const NEW: Self = Self {
        epoch: 0,
        queues: [None; 2],
        is_broken: false,
        notified: [0; 2],
        stamped: 0,
        seen: 0,
        polled: Polled::NEVER,
        more: false,
        spent: 0,
        taken: Taken::NONE,
        holds: false,
        gathered: None,
        is_last: false,
        returned: false,
        notifies: true,
        has_buffer: false,
        is_spare: false,
        buffer: Buffer::NONE,
        filled: Filled::NONE,
        flow_ends: 0,
        messages: [0; FLOWS],
        ends: false,
        waiting: [(Header::ZERO, Owner::NONE); WAITING],
        waits: 0,
        writing: None,
        supplied: false,
        blocked: 0,
        flows_from: 0,
        flows_to: 0,
        ram: Piece { ipa: 0, address: 0, len: 0 },
        packets: [Packet::NONE; RING],
    };

    /// Takes in which queues have been put into use since the last reset.
    pub(crate) fn refresh(&mut self, device: &DeviceWords) {
        let had = self.queues[RX].is_some();
        for index in [RX, TX] {
            if self.queues[index].is_none() && !self.is_broken {
                self.queues[index] = device.queue(index, self.epoch);
            }
        }
        if let Some(queue) = self.queues[RX].as_ref().filter(|_| !had) {
            let ends = (self.flow_ends, self.flows_to);
            self.filled = Filled::new(queue.size(), ends, &self.messages);
            self.supplied = true;
        }
    }

    /// Records flow `index`, which the VM sends. Of the flows to several receivers, only the first
    /// has a share of the receive buffers.
    pub(crate) const fn sends(&mut self, index: usize, has_share: bool) {
        self.flows_from |= 1 << index;
        self.flow_ends |= (has_share as u64) << index;
    }

    /// Records flow `index`, which the VM receives, with messages of up to `size` bytes.
    pub(crate) fn receives_up_to(&mut self, index: usize, size: u32) {
        self.flows_to |= 1 << index;
        self.flow_ends |= 1 << index;
        self.messages[index % FLOWS] = size.min(MAX_PAYLOAD).div_ceil(BUFFER).max(1) as u8;
    }

    /// Removes all flows; `ram` is the first piece of the VM's RAM.
    pub(crate) const fn begin(&mut self, ram: Piece) {
        (self.blocked, self.flows_from, self.flows_to, self.flow_ends) = (0, 0, 0, 0);
        self.ram = ram;
    }

    /// Resets the state, because the device is in `epoch`. If a ring was invalid, no queue is
    /// served before the next epoch.
    pub(crate) fn forget(&mut self, epoch: u32) {
        self.is_broken &= self.epoch == epoch;
        (self.epoch, self.queues, self.ends) = (epoch, [None; 2], false);
        (self.holds, self.gathered, self.writing) = (false, None, None);
        (self.polled, self.waits, self.has_buffer) = (Polled::NEVER, 0, false);
        (self.returned, self.notifies, self.supplied) = (false, true, false);
        self.packets.iter_mut().for_each(|packet| packet.members = 0);
        // Set so that packets are found whether or not the driver notified before.
        self.more = true;
    }

    /// Takes in the notifications.
    pub(crate) fn poll(&mut self, device: &DeviceWords) {
        let notified = [RX, TX].map(|index| device.notified(index));
        self.more |= notified[TX] != self.notified[TX];
        self.supplied |= notified[RX] != self.notified[RX];
        self.notified = notified;
    }

    /// Returns whether all queues that this epoch can have are known.
    #[inline]
    pub(crate) const fn has_queues(&self) -> bool {
        self.is_broken || self.queues[RX].is_some() && self.queues[TX].is_some()
    }

    /// Returns whether the device has a receive ring.
    pub(crate) const fn receives(&self) -> bool {
        self.queues[RX].is_some()
    }

    /// Returns whether the driver got buffers back since [`Self::interrupts`] was last called.
    pub(crate) const fn has_returned(&self) -> bool {
        self.returned
    }

    /// Takes the next packet's chain into [`Self::packets`] and returns its head; none if there is
    /// no packet. `now` is in ticks. The header must then be [gathered](Self::gather).
    pub(crate) fn take(
        &mut self,
        memory: &mut impl GuestMemory,
        now: u64,
    ) -> Result<Option<u16>, Broken> {
        let Some(queue) = &mut self.queues[TX] else {
            self.settle();
            return Ok(None);
        };
        let mut ready = queue.available(memory)?;
        if ready == 0 && queue.ask_notification(memory)? {
            ready = queue.available(memory)?;
        }
        let first = queue.taken();
        self.polled.poll(first.wrapping_add(ready), now);
        self.seen = self.seen.max(self.polled.since(first));
        self.is_last = ready == 1;
        if ready == 0 {
            self.settle();
            return Ok(None);
        }
        let chain = queue.pop_announced(memory)?;
        self.packets[usize::from(chain.head()) % RING].chain = chain;
        self.gathered = Some(0);
        Ok(Some(chain.head()))
    }

    /// Reads the header of the packet that was taken last, up to its payload. Returns the number of
    /// payload bytes; none if the header is in more buffers than one walk covers. In that case this
    /// function must be called again.
    #[inline]
    pub(crate) fn gather(
        &mut self,
        memory: &mut impl GuestMemory,
    ) -> Result<Option<Payload>, Broken> {
        let Some(queue) = &self.queues[TX] else { return Ok(None) };
        let packet = &mut self.packets[usize::from(self.taken.head) % RING];
        let chain = &mut packet.chain;
        let (mut steps, mut done) = (STRIDE, usize::from(self.gathered.unwrap_or(0)));
        let mut bytes = Aligned([0; HEADER_LEN]);
        if done > 0 {
            bytes.0 = packet.header.to_bytes();
        }
        while let Some(rest) = bytes.0.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let found = queue.walk(memory, chain, Direction::Read, &mut steps)?;
            let Found::Bytes(segment) = found else {
                packet.header = Header::from_bytes(&bytes.0);
                let is_later = found == Found::Later;
                self.gathered = is_later.then_some(done as u8);
                return Ok((!is_later).then_some(Payload::NoHeader));
            };
            let len = rest.len().min(segment.len as usize);
            memory.read(segment.address, &mut rest[..len])?;
            chain.pass(len as u32);
            done += len;
        }
        packet.header = Header::from_bytes(&bytes.0);
        self.gathered = None;
        if packet.header.len > 0 {
            // The payload is often in one buffer, which is checked before the packet waits.
            queue.walk(memory, chain, Direction::Read, &mut steps)?;
        }
        let is_all = !chain.goes_on();
        Ok(Some(if is_all { Payload::UpTo(chain.len_here()) } else { Payload::Unknown }))
    }

    /// If the packet that was taken last was the last available one, asks for a notification of the
    /// next, so that no later step finds the ring empty. Called after [`Self::stamp`].
    #[inline]
    pub(crate) fn ask_for_next(&mut self, memory: &mut impl GuestMemory) -> Result<(), Broken> {
        if let Some(queue) = self.queues[TX].as_mut().filter(|_| self.is_last)
            && !queue.ask_notification(memory)?
        {
            self.settle();
        }
        Ok(())
    }

    /// Returns the time at which the packet that was taken last was seen, in ticks, and the time
    /// that EL2 needed before that; 0 if the packet came with the notification of another one.
    pub(crate) fn stamp(&mut self, device: &DeviceWords) -> (u64, u64) {
        let behind = self.notified[TX].wrapping_sub(self.stamped);
        if behind == 0 {
            return (self.seen, 0);
        }
        if behind > STAMPS as u32 {
            self.stamped = self.notified[TX].wrapping_sub(STAMPS as u32);
        }
        let (stamp, transport) = device.stamp(TX, self.stamped);
        self.stamped = self.stamped.wrapping_add(1);
        self.seen = self.seen.max(stamp);
        (self.seen, transport)
    }

    /// Notes that the transmit ring is empty: the notifications so far belong to packets that were
    /// taken.
    const fn settle(&mut self) {
        self.stamped = self.notified[TX];
        self.more = false;
    }

    /// Returns a packet's chain to its driver.
    pub(crate) fn give_back(
        &mut self,
        memory: &mut impl GuestMemory,
        head: u16,
    ) -> Result<(), Broken> {
        if let Some(queue) = &mut self.queues[TX] {
            queue.push(memory, head, 0)?;
            self.returned = true;
        }
        Ok(())
    }

    /// Provides a receive buffer for the next chunk of `owner`. Returns false if there is none that
    /// the owner may take; the driver then notifies when there may be one.
    pub(crate) fn has_buffer(
        &mut self,
        memory: &mut impl GuestMemory,
        owner: Owner,
    ) -> Result<bool, Broken> {
        if (self.waits > 0 || self.writing.is_some()) && self.is_behind(owner) {
            return Ok(false);
        }
        if self.has_buffer && self.is_spare {
            return Ok(true);
        }
        if !self.has_buffer {
            self.has_buffer = self.pop_buffer(memory, self.filled.reserve)?;
            self.is_spare = self.has_buffer;
        }
        Ok(self.is_spare || self.has_own(memory, owner)?)
    }

    /// Returns the room for a chunk: in `held`, or in the buffer that [`Self::has_buffer`]
    /// provided.
    #[inline]
    pub(crate) fn measure(
        &mut self,
        memory: &mut impl GuestMemory,
        held: Option<&mut Buffer>,
        steps: &mut u32,
    ) -> Result<Room, Broken> {
        let Some(queue) = &self.queues[RX] else { return Ok(Room::None) };
        let buffer = held.unwrap_or(&mut self.buffer);
        let room = buffer.measure(queue, memory, steps)?;
        self.filled.reuse(&mut buffer.descriptors);
        Ok(room.map_or(Room::Later, Room::Bytes))
    }

    /// Takes the buffer for the next chunk.
    #[inline]
    pub(crate) const fn take_buffer(&mut self) -> Buffer {
        self.has_buffer = false;
        self.buffer
    }

    /// Notes that a chunk of `owner` was only partly moved, to the buffer at `head`.
    pub(crate) fn hold(&mut self, head: u16, owner: Owner) {
        self.filled.note(head, owner);
    }

    /// Discards what was written to `held`, a buffer that a flow has. Returns the buffer if the
    /// flow must keep it for its next packet.
    pub(crate) fn put_back(&mut self, mut held: Buffer) -> Option<Buffer> {
        let queue = self.queues[RX].as_ref()?;
        held.restart(queue);
        if self.has_buffer {
            return Some(held);
        }
        self.filled.release(held.chain.head());
        (self.buffer, self.has_buffer, self.is_spare) = (held, true, false);
        None
    }

    /// Returns whether a control packet or a flow waits for a receive buffer.
    #[inline]
    pub(crate) const fn is_waited_for(&self) -> bool {
        self.waits > 0 || self.blocked != 0 || self.writing.is_some()
    }

    /// Returns whether the driver notifies of each receive buffer although no control packet waits
    /// for one.
    pub(crate) fn notifies_in_vain(&self) -> bool {
        let by_flag = |queue: &Queue| !queue.options().event_index;
        self.notifies && self.waits == 0 && self.queues[RX].as_ref().is_some_and(by_flag)
    }

    /// Tells the driver that it need not notify of receive buffers, because nothing waits for them.
    #[inline(never)]
    pub(crate) fn refuse_notifications(
        &mut self,
        memory: &mut impl GuestMemory,
    ) -> Result<(), Broken> {
        self.notifies = false;
        if let Some(queue) = &self.queues[RX] {
            queue.refuse_notifications(memory)?;
        }
        Ok(())
    }

    /// Asks the driver to notify when there are more receive buffers than `ready`.
    fn ask(&mut self, memory: &mut impl GuestMemory, ready: u16) -> Result<(), Broken> {
        self.notifies = true;
        if let Some(queue) = &mut self.queues[RX] {
            // Buffers that arrived in the meantime cause no notification.
            self.supplied |= queue.ask_for_more(memory, ready)?;
        }
        Ok(())
    }

    /// Returns whether control packets of the flow with these messages wait: a message must not
    /// overtake them.
    #[inline(never)]
    fn is_behind(&self, messages: Owner) -> bool {
        let waiting = self.waiting.iter().take(self.waits).map(|(_, owner)| *owner);
        let begun = self.writing.iter().map(|writing| writing.owner);
        waiting.chain(begun).any(|owner| owner.0 == messages.0 | 1)
    }

    /// Does what [`Self::has_buffer`] does, with a buffer from the reserve.
    #[inline(never)]
    fn has_own(&mut self, memory: &mut impl GuestMemory, owner: Owner) -> Result<bool, Broken> {
        let Some(queue) = self.queues[RX] else { return Ok(false) };
        let (ready, kept) = (queue.available(memory)?, u16::from(self.has_buffer));
        if !self.filled.admits(owner, (&queue, ready, kept), memory)? {
            self.ask(memory, ready)?;
            return Ok(false);
        }
        if !self.has_buffer {
            self.has_buffer = self.pop_buffer(memory, 0)?;
        }
        Ok(self.has_buffer)
    }

    /// Returns the flows in `blocked`, one bit each, that may take a buffer now. If there are
    /// others, the driver notifies when there may be another buffer.
    pub(crate) fn unblocked(
        &mut self,
        memory: &mut impl GuestMemory,
        blocked: u64,
    ) -> Result<u64, Broken> {
        let Some(queue) = self.queues[RX] else { return Ok(0) };
        let (ready, kept) = (queue.available(memory)?, u16::from(self.has_buffer));
        let mut found = 0;
        for flow in bits(blocked) {
            let owner = Owner::messages(flow);
            if !self.is_behind(owner) && self.filled.admits(owner, (&queue, ready, kept), memory)? {
                found |= 1 << flow;
            }
        }
        if found != blocked {
            self.ask(memory, ready)?;
        }
        Ok(found)
    }

    /// Returns whether the driver has left no buffer for `owner`.
    pub(crate) fn starves(
        &mut self,
        memory: &mut impl GuestMemory,
        owner: Owner,
    ) -> Result<bool, Broken> {
        let Some(queue) = &self.queues[RX] else { return Ok(true) };
        let (ready, kept) = (queue.available(memory)?, self.has_buffer.into());
        Ok(!self.filled.admits(owner, (queue, ready, kept), memory)?)
    }

    /// Returns the filled buffer at `head` to the driver.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        memory: &mut impl GuestMemory,
        (head, written): (u16, u32),
        owner: Owner,
    ) -> Result<(), Broken> {
        if let Some(queue) = &mut self.queues[RX] {
            queue.push(memory, head, written)?;
            self.filled.note(head, owner);
            self.returned = true;
        }
        Ok(())
    }

    /// Passes a control packet of `owner` to the driver, or keeps it until there is a buffer.
    /// Returns false if the packet is dropped.
    pub(crate) fn pass(
        &mut self,
        memory: &mut impl GuestMemory,
        header: &Header,
        owner: Owner,
    ) -> Result<bool, Broken> {
        let waiting = self.waiting.iter().take(self.waits);
        let waits = waiting.filter(|(_, other)| *other == owner).count();
        if waits == 0 && self.writing.is_none() && self.write(memory, header, owner)? {
            return Ok(true);
        }
        let flows = self.flow_ends.count_ones() as usize;
        if waits >= WAITING / flows.max(1) {
            return Ok(false);
        }
        let Some(place) = self.waiting.get_mut(self.waits) else { return Ok(false) };
        *place = (*header, owner);
        self.waits += 1;
        self.pass_oldest(memory)?;
        Ok(true)
    }

    /// Passes a waiting control packet, because there may be receive buffers. Returns false if no
    /// packet can be passed.
    pub(crate) fn pass_waiting(&mut self, memory: &mut impl GuestMemory) -> Result<bool, Broken> {
        self.supplied = false;
        if self.writing.is_some() {
            self.write_on(memory)?;
            // Other packets may wait behind it.
            self.supplied = true;
            return Ok(true);
        }
        Ok(self.waits > 0 && self.pass_oldest(memory)?)
    }

    /// Passes the control packet that has waited longest among those whose owner may take a buffer.
    /// Returns false if there is none; the driver then notifies when there is another buffer.
    fn pass_oldest(&mut self, memory: &mut impl GuestMemory) -> Result<bool, Broken> {
        if self.writing.is_some() {
            return Ok(false);
        }
        let mut tried = 0u128;
        for place in 0..self.waits {
            let (header, owner) = self.waiting[place];
            // A packet must not overtake an earlier packet of its owner, which was tried before.
            let bit = 1 << (owner.0 & 127);
            if tried & bit != 0 {
                continue;
            }
            tried |= bit;
            if self.write(memory, &header, owner)? {
                self.waiting.copy_within(place + 1..self.waits, place);
                self.waits -= 1;
                // The next packet, and the messages of its flow, may be able to continue.
                self.supplied = true;
                return Ok(true);
            }
        }
        let Some(queue) = &self.queues[RX] else { return Ok(false) };
        let ready = queue.available(memory)?;
        self.ask(memory, ready)?;
        Ok(false)
    }

    /// Writes a control packet of `owner`, or its first part, into the next buffer. Returns false
    /// if there is no buffer that the owner may take.
    fn write(
        &mut self,
        memory: &mut impl GuestMemory,
        header: &Header,
        owner: Owner,
    ) -> Result<bool, Broken> {
        let mut taken = self.pop_chain(memory, self.filled.reserve)?;
        if taken.is_none()
            && let Some(queue) = &self.queues[RX]
        {
            let ready = queue.available(memory)?;
            if self.filled.admits(owner, (queue, ready, 0), memory)? {
                taken = self.pop_chain(memory, 0)?;
            }
        }
        let Some(chain) = taken else { return Ok(false) };
        self.writing = Some(Writing { buffer: Buffer::new(chain), header: *header, owner });
        self.write_on(memory)?;
        Ok(true)
    }

    /// Continues writing the control packet that is partly written.
    fn write_on(&mut self, memory: &mut impl GuestMemory) -> Result<(), Broken> {
        let (Some(writing), Some(queue)) = (&mut self.writing, &self.queues[RX]) else {
            return Ok(());
        };
        let Writing { buffer, header, owner } = writing;
        let (owner, mut steps) = (*owner, STRIDE);
        let head = buffer.chain.head();
        let is_measured = buffer.measure(queue, memory, &mut steps)?.is_some();
        self.filled.reuse(&mut buffer.descriptors);
        if !is_measured || !buffer.put_header(queue, memory, header, &mut steps)? {
            self.supplied = true;
            return Ok(());
        }
        self.writing = None;
        self.fill(memory, (head, HEADER_LEN as u32), owner)
    }

    /// Takes the next receive buffer for a chunk, if there are more than `kept`. Returns whether it
    /// did.
    #[inline]
    fn pop_buffer(&mut self, memory: &mut impl GuestMemory, kept: u16) -> Result<bool, Broken> {
        let taken = self.pop_chain(memory, kept)?;
        if let Some(chain) = taken {
            self.buffer = Buffer::new(chain);
        }
        Ok(taken.is_some())
    }

    /// Takes the next receive buffer, if there are more than `kept`.
    #[inline(never)]
    fn pop_chain(
        &mut self,
        memory: &mut impl GuestMemory,
        kept: u16,
    ) -> Result<Option<Chain>, Broken> {
        let Some(queue) = &mut self.queues[RX] else { return Ok(None) };
        let taken = queue.pop_beyond(memory, kept)?;
        if let Some(chain) = &taken {
            self.filled.take(chain.head(), queue.taken());
        }
        Ok(taken)
    }

    /// Returns whether the driver wants an interrupt for the buffers that it got back.
    pub(crate) fn interrupts(&mut self, memory: &mut impl GuestMemory) -> bool {
        self.returned = false;
        let mut wanted = false;
        for queue in self.queues.iter_mut().flatten().filter(|queue| queue.has_returned()) {
            wanted |= queue.wants_interrupt(memory) == Ok(true);
        }
        wanted
    }

    /// Stops serving the device because a ring was invalid: no queue is served until the driver
    /// resets the device, and its connections end with the next step.
    pub(crate) fn break_down(&mut self, device: &DeviceWords, broken: Broken) {
        (self.queues, self.is_broken, self.has_buffer) = ([None; 2], true, false);
        self.ends = true;
        (self.more, self.supplied, self.holds) = (false, false, false);
        (self.gathered, self.writing) = (None, None);
        device.break_down(self.epoch, broken);
    }
}

/// Calls `body` with the memory of the VM at `port`, if the device is still in the epoch in
/// `socket`. Returns none if it is not, or if a ring was invalid.
pub(crate) fn with<A: Access, T>(
    exchange: &Exchange,
    (port, socket): (usize, &mut Socket),
    access: &mut A,
    body: impl FnOnce(&mut Socket, &mut Memory<'_, A>) -> Result<T, Broken>,
) -> Option<T> {
    let device = &exchange.port(port % PORTS).device;
    if !device.begin(socket.epoch) {
        return None;
    }
    let window = Window::new(&exchange.ram, port, socket.ram);
    let done = body(socket, &mut Memory::new(window, access));
    device.end();
    match done {
        Ok(value) => Some(value),
        Err(broken) => {
            socket.break_down(device, broken);
            None
        }
    }
}
