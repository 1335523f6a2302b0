//! A VM's socket device as the broker serves it: its rings, and what waits for them.

use crate::{
    RING,
    ram::{Access, Memory},
    taken::Taken,
};
use weir_partition::{
    device::{STAMPS, SharedDevice},
    flows::{PORTS, Partition},
};
use weir_vsock::{
    GuestMemory,
    device::{RX, TX},
    queue::{Broken, Chain, Queue},
    vsock::{HEADER_LEN, Header},
};

/// Control packets that wait for a buffer; more are dropped.
const WAITING: usize = 32;
/// The part of a receiver's ring that is kept for control packets.
const RESERVE: u16 = 8;

/// A packet that waits, or is being moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) chain: Chain,
    pub(crate) header: Header,
    /// Not moved before this time, in ns of the counter.
    pub(crate) eligible: u64,
    /// Absolute deadline in ns of the counter; `u64::MAX` without one.
    pub(crate) deadline: u64,
    /// The epoch of its receiver's device in which it was sent; in another one it is given up.
    pub(crate) epoch: u32,
    /// Its flow, or the first of those to several receivers.
    pub(crate) flow: u8,
    /// The flows from its own on that it is for and that have not answered, one bit each.
    pub(crate) members: u8,
    /// Data, and not a packet that only must not overtake them.
    pub(crate) is_data: bool,
    /// The one behind it in its flow.
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

/// When packets came without the driver's notification.
#[derive(Clone, Copy, Debug)]
struct Polled {
    /// Packets made available, and when that was read last, in ticks.
    end: u16,
    at: u64,
    /// Of these, where those begin that the last reading found, and when the reading before was.
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

    /// After which time packet number `count` came.
    const fn since(&self, count: u16) -> u64 {
        if count.wrapping_sub(self.from).cast_signed() < 0 { 0 } else { self.before }
    }
}

/// What is known of a VM's socket device.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) epoch: u32,
    /// Changes of the device that were taken in.
    changes: u32,
    changed: bool,
    queues: [Option<Queue>; 2],
    /// A ring made no sense in this epoch.
    is_broken: bool,
    /// Notifications seen, of each queue.
    notified: [u32; 2],
    /// Notifications of packets that were taken.
    stamped: u32,
    /// When the packet that was taken last was seen, in ticks of the counter.
    seen: u64,
    polled: Polled,
    /// There may be packets in the ring to send.
    pub(crate) more: bool,
    /// Since a packet with a deadline is ready to be moved: packets that were taken and are in no
    /// flow's line, or too early in it, and resets that were taken in.
    pub(crate) spent: u8,
    /// The packet that was taken last was the last that was available.
    pub(crate) is_last: bool,
    /// A packet that was taken and may have nothing done for it yet.
    pub(crate) held: Option<Taken>,
    /// The driver got something back.
    returned: bool,
    /// The driver notifies of receive buffers.
    notifies: bool,
    /// A receive buffer for the next chunk.
    pub(crate) buffer: Option<Chain>,
    waiting: [Header; WAITING],
    waits: usize,
    /// There may be receive buffers for those that wait.
    pub(crate) supplied: bool,
    /// By the heads of their chains.
    pub(crate) packets: [Packet; RING],
}

impl Socket {
    /// Of no VM.
    pub(crate) const NEW: Self = Self {
        epoch: 0,
        queues: [None; 2],
        is_broken: false,
        notified: [0; 2],
        changes: 0,
        changed: false,
        stamped: 0,
        seen: 0,
        polled: Polled::NEVER,
        more: false,
        spent: 0,
        held: None,
        is_last: false,
        returned: false,
        notifies: true,
        buffer: None,
        waiting: [Header::ZERO; WAITING],
        waits: 0,
        supplied: false,
        packets: [Packet::NONE; RING],
    };

    /// Takes in which queues are in use since the last reset. Returns whether the ring to receive
    /// is one of them and was none before.
    pub(crate) fn refresh(&mut self, device: &SharedDevice) -> bool {
        let had = self.queues[RX].is_some();
        for index in [RX, TX] {
            if self.queues[index].is_none() && !self.is_broken {
                self.queues[index] = device.queue(index, self.epoch);
            }
        }
        !had && self.queues[RX].is_some()
    }

    /// Forgets everything: the device is in `epoch`.
    pub(crate) fn forget(&mut self, epoch: u32) {
        (self.epoch, self.queues, self.is_broken) = (epoch, [None; 2], false);
        self.held = None;
        (self.polled, self.waits, self.buffer) = (Polled::NEVER, 0, None);
        (self.returned, self.notifies, self.supplied) = (false, true, false);
        self.packets.iter_mut().for_each(|packet| packet.members = 0);
        // What the driver does from now on is seen whether it notified before or not.
        self.more = true;
    }

    /// Whether its device has changed since this was last called.
    pub(crate) fn has_changed(&mut self, device: &SharedDevice) -> bool {
        let changes = device.changes();
        self.changed = core::mem::replace(&mut self.changes, changes) != changes;
        self.changed
    }

    /// Whether its rings are to be polled in this step.
    pub(crate) const fn has_news(&self) -> bool {
        self.changed || self.more || self.supplied
    }

    /// The changes that were last taken in are to be taken in again.
    pub(crate) const fn poll_again(&mut self) {
        self.changes = self.changes.wrapping_sub(1);
    }

    /// Takes in the notifications. Returns whether the driver may have made receive buffers
    /// available.
    pub(crate) fn poll(&mut self, device: &SharedDevice) -> bool {
        let notified = [RX, TX].map(|index| device.notified(index));
        self.more |= notified[TX] != self.notified[TX];
        let supplied = notified[RX] != self.notified[RX];
        self.notified = notified;
        supplied
    }

    /// It took time that is in no flow's: see [`Self::spent`].
    pub(crate) const fn spend(&mut self) {
        self.spent = self.spent.saturating_add(1);
    }

    /// Whether the device has a ring to receive.
    pub(crate) const fn receives(&self) -> bool {
        self.queues[RX].is_some()
    }

    /// Whether the driver got something back since [`Self::interrupts`] was last called.
    pub(crate) const fn has_returned(&self) -> bool {
        self.returned
    }

    /// Takes the next packet's chain; none if there is none. `now` is in ticks.
    pub(crate) fn take(
        &mut self,
        memory: &mut impl GuestMemory,
        now: u64,
    ) -> Result<Option<Chain>, Broken> {
        let Some(queue) = &mut self.queues[TX] else { return Ok(None) };
        let mut ready = queue.available(memory)?;
        if ready == 0 && queue.ask_notification(memory)? {
            ready = queue.available(memory)?;
        }
        let first = queue.taken();
        self.polled.poll(first.wrapping_add(ready), now);
        self.seen = self.seen.max(self.polled.since(first));
        self.is_last = ready == 1;
        queue.pop(memory)
    }

    /// Returns when the packet that was taken last was seen, in ticks, and how long EL2 took until
    /// then; 0 if it came with another one's notification.
    pub(crate) fn stamp(&mut self, device: &SharedDevice) -> (u64, u64) {
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

    /// The ring to send is empty: the notifications so far were of what was taken.
    pub(crate) const fn settle(&mut self) {
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

    /// Has a receive buffer ready for the next chunk; false if there is none, and then the driver
    /// notifies when there may be.
    pub(crate) fn has_buffer(&mut self, memory: &mut impl GuestMemory) -> Result<bool, Broken> {
        if self.buffer.is_some() {
            return Ok(true);
        }
        let Some(queue) = &mut self.queues[RX] else { return Ok(false) };
        let kept = queue.size() / RESERVE;
        self.buffer = pop_buffer(queue, memory, kept)?;
        if self.buffer.is_none() {
            self.notifies = true;
            let seen = queue.available(memory)?;
            if queue.ask_for_more(memory, seen)? {
                self.buffer = pop_buffer(queue, memory, kept)?;
            }
        } else if self.notifies && !queue.options().event_index {
            queue.refuse_notifications(memory)?;
            self.notifies = false;
        }
        Ok(self.buffer.is_some())
    }

    /// Whether the driver has left no buffers for data.
    pub(crate) fn starves(&self, memory: &mut impl GuestMemory) -> bool {
        let Some(queue) = &self.queues[RX] else { return true };
        let kept = queue.size() / RESERVE;
        self.buffer.is_none() && queue.available(memory).is_ok_and(|seen| seen <= kept)
    }

    /// The buffer was filled.
    pub(crate) fn fill(
        &mut self,
        memory: &mut impl GuestMemory,
        head: u16,
        written: u32,
    ) -> Result<(), Broken> {
        if let Some(queue) = &mut self.queues[RX] {
            queue.push(memory, head, written)?;
            self.returned = true;
        }
        Ok(())
    }

    /// Passes a control packet to the driver, or keeps it until there is a buffer; false if it is
    /// dropped.
    pub(crate) fn pass(
        &mut self,
        memory: &mut impl GuestMemory,
        header: &Header,
    ) -> Result<bool, Broken> {
        if self.waits == 0 && self.write(memory, header)? {
            return Ok(true);
        }
        let Some(place) = self.waiting.get_mut(self.waits) else { return Ok(false) };
        *place = *header;
        self.waits += 1;
        self.pass_waiting(memory)?;
        Ok(true)
    }

    /// Passes the control packet that waits longest; false if there is none, or no buffer, and then
    /// the driver notifies when there is one.
    pub(crate) fn pass_waiting(&mut self, memory: &mut impl GuestMemory) -> Result<bool, Broken> {
        self.supplied = false;
        if self.waits == 0 {
            return Ok(false);
        }
        let header = self.waiting[0];
        if !self.write(memory, &header)? {
            let Some(queue) = &mut self.queues[RX] else { return Ok(false) };
            self.notifies = true;
            // What is there by now is used at once; what comes later is notified.
            if !queue.ask_for_more(memory, 0)? || !self.write(memory, &header)? {
                return Ok(false);
            }
        }
        self.waiting.copy_within(1..self.waits, 0);
        self.waits -= 1;
        self.supplied = self.waits > 0;
        Ok(true)
    }

    /// Writes a control packet into the next buffer; false if there is none.
    fn write(&mut self, memory: &mut impl GuestMemory, header: &Header) -> Result<bool, Broken> {
        let Some(queue) = &mut self.queues[RX] else { return Ok(false) };
        let Some(chain) = pop_buffer(queue, memory, 0)? else { return Ok(false) };
        let bytes = header.to_bytes();
        let mut rest = bytes.as_slice();
        for segment in chain.writable() {
            let len = rest.len().min(segment.len as usize);
            let (now, later) = rest.split_at(len);
            memory.write(segment.address, now)?;
            rest = later;
        }
        self.fill(memory, chain.head, HEADER_LEN as u32)?;
        Ok(true)
    }

    /// Whether the driver wants an interrupt for what it got back.
    pub(crate) fn interrupts(&mut self, memory: &mut impl GuestMemory) -> bool {
        self.returned = false;
        let mut wanted = false;
        for queue in self.queues.iter_mut().flatten() {
            wanted |= queue.wants_interrupt(memory) == Ok(true);
        }
        wanted
    }

    /// A ring made no sense: no queue is served until the driver resets the device.
    pub(crate) fn break_down(&mut self, device: &SharedDevice, broken: Broken) {
        (self.queues, self.is_broken, self.buffer) = ([None; 2], true, None);
        (self.more, self.supplied, self.held) = (false, false, None);
        device.break_down(self.epoch, broken);
    }
}

/// Takes the next receive buffer, if there are more than `kept`.
#[inline]
fn pop_buffer(
    queue: &mut Queue,
    memory: &mut impl GuestMemory,
    kept: u16,
) -> Result<Option<Chain>, Broken> {
    let Some(chain) = queue.pop_beyond(memory, kept)? else { return Ok(None) };
    let room: u64 = chain.writable().iter().map(|segment| u64::from(segment.len)).sum();
    if room <= HEADER_LEN as u64 { Err(Broken::TooShort) } else { Ok(Some(chain)) }
}

/// Calls `body` with the memory of the VM at `port`, if its device is still in the epoch that
/// `socket` knows; none if not, or if a ring made no sense.
pub(crate) fn with<A: Access, T>(
    shared: &Partition,
    (port, socket): (usize, &mut Socket),
    access: &mut A,
    body: impl FnOnce(&mut Socket, &mut Memory<'_, A>) -> Result<T, Broken>,
) -> Option<T> {
    let device = &shared.port(port % PORTS).device;
    if !device.begin(socket.epoch) {
        return None;
    }
    let done = body(socket, &mut Memory::new(&shared.ram, port, access));
    device.end();
    match done {
        Ok(value) => Some(value),
        Err(broken) => {
            socket.break_down(device, broken);
            None
        }
    }
}
