//! The intake of packets from drivers: packets are taken out of their rings, judged, stamped and
//! put into their flows, or passed on.

use crate::{
    RING, bits,
    broker::{Broker, Lane, Mover, NONE, Where},
    ram::{Access, Memory},
    socket::{Owner, Payload},
    taken::{Fate, Taken},
};
use weir_exchange::flows::{BrokerFlow, FLOWS, PacketEvent, PacketRecord};
use weir_trace::{phases::pack, record::packet};
use weir_units::Cid;
use weir_vsock::{
    flows::{FlowRule, PacketVerdict, admit},
    multicast::Post,
    queue::Broken,
    vsock::{Header, Malformed, Operation},
};

impl Broker<'_> {
    /// Takes in whether the device of port `index` was reset or broke a ring, and which queues are
    /// in use. Returns false if it was reset or broke a ring: there may be further changes.
    pub(crate) fn refresh(&mut self, index: usize, now: u64, access: &mut impl Access) -> bool {
        let device = self.device(index);
        let epoch = device.epoch();
        let socket = &self.store.sockets[index];
        let is_same = socket.epoch == epoch && !socket.ends;
        if is_same && socket.has_queues() {
            // Only a count of notifications has changed.
            return true;
        }
        if !is_same {
            if !self.may_spend(index) {
                // Until then no memory of the device is accessed.
                self.again |= 1 << index;
                return false;
            }
            self.spend(index);
            self.disconnect(index, epoch, now, access);
        }
        self.store.sockets[index].refresh(device);
        self.mark(index);
        is_same
    }

    /// Returns whether the device of port `index` may now use time that is charged to no flow.
    fn may_spend(&mut self, index: usize) -> bool {
        if !self.is_ready() {
            self.store.sockets[index].spent = 0;
            self.spenders &= !(1 << index);
        }
        self.store.sockets[index].spent < self.share[index]
    }

    /// Records that the device of port `index` has used time that is charged to no flow.
    fn spend(&mut self, index: usize) {
        let spent = &mut self.store.sockets[index].spent;
        *spent = spent.saturating_add(1);
        self.spenders |= 1 << index;
    }

    /// Takes packets from a port, at most as many as its share. Returns the time at which the first
    /// packet that will be moved was seen, in ticks.
    pub(crate) fn take_in(
        &mut self,
        index: usize,
        now: u64,
        mover: &mut impl Mover,
        access: &mut impl Access,
    ) -> Option<u64> {
        self.store.sockets[index].poll(self.device(index));
        // Evaluated first, so that the time that the port used before does not exceed what it may
        // use now.
        let may_spend = self.may_spend(index);
        let socket = &mut self.store.sockets[index];
        if socket.supplied && socket.is_waited_for() {
            self.supply(index, may_spend, now, access);
        } else {
            socket.supplied = false;
        }
        let first = self.take_packets(index, now, mover, access);
        self.mark(index);
        first
    }

    /// Handles receive buffers that port `index` may have made available: passes a control packet
    /// that waits for one, if its device `may_spend` time that is charged to no flow, and continues
    /// the flows that wait for one.
    #[inline(never)]
    fn supply(&mut self, index: usize, may_spend: bool, now: u64, access: &mut impl Access) {
        if may_spend {
            let passed = self.with(index, access, |socket, memory| socket.pass_waiting(memory));
            if passed == Some(true) {
                self.spend(index);
            }
        }
        let blocked = self.store.sockets[index].blocked;
        if blocked != 0 {
            let found =
                self.with(index, access, |socket, memory| socket.unblocked(memory, blocked));
            let found = found.unwrap_or(0);
            (0..self.flows).filter(|at| found >> at & 1 != 0).for_each(|at| self.unblock(at, now));
        }
    }

    fn take_packets(
        &mut self,
        index: usize,
        now: u64,
        mover: &mut impl Mover,
        access: &mut impl Access,
    ) -> Option<u64> {
        let mut first = None;
        for _ in 0..self.share[index] {
            let begun = mover.ticks();
            let holds = core::mem::take(&mut self.store.sockets[index].holds);
            if !holds && !self.take_next(index, begun, mover, access) {
                break;
            }
            let taken = self.store.sockets[index].taken;
            let is_known = self.is_known(index, &taken);
            let is_in_lane = is_known && self.is_in_lane(&taken);
            if !is_in_lane && !self.may_spend(index) {
                // The packet is held until its device may use such time again; everything behind it
                // in the ring waits, too.
                self.store.sockets[index].holds = true;
                self.phases.taking += mover.ticks().wrapping_sub(begun);
                break;
            }
            let parsed = mover.ticks();
            let is_moved = self.place(index, (&taken, is_known), (parsed, now), mover, access);
            if is_moved.is_some() {
                first = first.or(Some(taken.stamp));
            }
            let Some(inserted) = is_moved.filter(|_| is_in_lane) else {
                self.phases.taking += mover.ticks().wrapping_sub(begun);
                self.spend(index);
                break;
            };
            self.phases.packets += 1;
            self.phases.taking += inserted.wrapping_sub(begun);
        }
        first
    }

    /// Returns the header of the packet at `head` that the VM of port `index` sends.
    #[inline]
    fn header(&self, index: usize, head: u16) -> &Header {
        &self.store.sockets[index].packets[usize::from(head) % RING].header
    }

    /// Returns whether a packet is data to be moved, of a connection that both ends still have.
    fn is_known(&self, index: usize, taken: &Taken) -> bool {
        let (Fate::Transfer(_, flow) | Fate::Cut(flow)) = taken.fate else { return false };
        let (flow, header) = (usize::from(flow) % FLOWS, self.header(index, taken.head));
        match &self.store.groups[flow] {
            Some(group) => group.takes(header),
            None => self.store.flows[flow].is_known(header),
        }
    }

    /// Returns whether a packet is to be moved and its flow has room for it among the packets that
    /// may wait at once.
    fn is_in_lane(&self, taken: &Taken) -> bool {
        let Fate::Transfer(_, flow) = taken.fate else { return false };
        let lane = &self.lanes[usize::from(flow) % FLOWS];
        lane.queued < lane.most
    }

    /// Carries out the decision about a packet. Returns the time at which it was inserted into its
    /// flow, in ticks; none if it is in no flow.
    fn place(
        &mut self,
        index: usize,
        (taken, is_known): (&Taken, bool),
        (parsed, now): (u64, u64),
        mover: &mut impl Mover,
        access: &mut impl Access,
    ) -> Option<u64> {
        let Fate::Transfer(operation, flow) = taken.fate else {
            self.dispatch(index, taken, now, access);
            return None;
        };
        let flow = usize::from(flow) % FLOWS;
        let how = (operation, flow, is_known);
        let Some(inserted) = self.submit(index, taken, how, mover, access) else {
            // The packet belongs to a connection that no longer exists, which the driver may not
            // know yet.
            self.give_back(index, taken.head, access);
            if let Some(answer) = self.header(index, taken.head).refusal() {
                let _ = self.deliver(&answer, Owner::NONE, access);
            }
            return None;
        };
        self.record(PacketRecord {
            event: PacketEvent::Sent,
            port: index,
            to: index,
            detail: packet(flow as u8, taken.head),
            phases: taken.phases | pack([0, 0, 0, inserted.wrapping_sub(parsed)]),
            value: taken.seen,
        });
        Some(inserted)
    }

    /// Takes the next packet out of the ring of a device, into its socket's `taken`. Returns false
    /// if there is none, or if the device was reset.
    fn take_next(
        &mut self,
        index: usize,
        begun: u64,
        mover: &mut impl Mover,
        access: &mut impl Access,
    ) -> bool {
        let device = self.device(index);
        let goes_on = self.store.sockets[index].gathered.is_some();
        if !self.store.sockets[index].more
            || goes_on && !self.may_spend(index)
            || !device.begin(self.store.sockets[index].epoch)
        {
            return false;
        }
        let locked = mover.ticks();
        let is_taken = self.take(index, locked, access);
        device.end();
        let is_taken = is_taken.unwrap_or_else(|broken| {
            self.store.sockets[index].break_down(device, broken);
            self.unreported = true;
            false
        });
        if self.store.sockets[index].gathered.is_some() {
            // The driver has split the header into many buffers.
            self.spend(index);
        }
        if is_taken {
            // For a header that took several steps, only the time of the last step is recorded.
            let parsing = mover.ticks().wrapping_sub(locked);
            let taken = &mut self.store.sockets[index].taken;
            taken.phases |= pack([0, parsing, locked.wrapping_sub(begun), 0]);
        }
        is_taken
    }

    /// Takes the next packet out of the ring of a device, during an access to its memory. Returns
    /// false if there is none, or if only a part of its header was read. `now` is in ticks.
    #[inline(never)]
    fn take(&mut self, index: usize, now: u64, access: &mut impl Access) -> Result<bool, Broken> {
        let mut memory = Memory::new(self.window(index), access);
        let clock = self.clock();
        let socket = &mut self.store.sockets[index];
        if socket.gathered.is_none() {
            let Some(head) = socket.take(&mut memory, now)? else { return Ok(false) };
            let (stamp, transport) = socket.stamp(&self.exchange.port(index).device);
            let (seen, phases) = (clock.ns(stamp), pack([transport, 0, 0, 0]));
            socket.taken = Taken { head, seen, stamp, phases, ..Taken::NONE };
        }
        let Some(payload) = socket.gather(&mut memory)? else { return Ok(false) };
        socket.ask_for_next(&mut memory)?;
        let header = self.header(index, self.store.sockets[index].taken.head);
        let room = match payload {
            Payload::NoHeader => None,
            Payload::UpTo(room) => Some(room.into()),
            // The length is checked while the packet is moved.
            Payload::Unknown => Some(u64::MAX),
        };
        let checked = room.map(|room| header.check(Cid::of_vm(index as u32), room));
        let fate = match checked {
            None | Some(Err(Malformed::Unknown | Malformed::Source)) => Fate::None,
            Some(Err(Malformed::Length)) => match self.judge(index, header, Operation::Data) {
                PacketVerdict::Transfer(flow) if header.operation() == Some(Operation::Data) => {
                    Fate::Cut(flow as u8)
                }
                _ => Fate::None,
            },
            Some(Err(Malformed::Kind)) => Fate::Refused,
            Some(Ok(operation)) => match self.judge(index, header, operation) {
                // A packet longer than the flow's packets would take time from other flows. A
                // best-effort packet is moved one chunk at a time, so it cannot.
                PacketVerdict::Transfer(flow)
                    if self.lanes[flow].flow.period > 0
                        && header.len > self.lanes[flow].flow.size =>
                {
                    Fate::Refused
                }
                PacketVerdict::Transfer(flow) => Fate::Transfer(operation, flow as u8),
                PacketVerdict::Pass(flow) => Fate::Pass(operation, flow as u8),
                PacketVerdict::Refuse => Fate::Refused,
            },
        };
        self.store.sockets[index].taken.fate = fate;
        Ok(true)
    }

    /// Handles a packet that is in no flow's lane.
    #[inline(never)]
    fn dispatch(&mut self, index: usize, taken: &Taken, now: u64, access: &mut impl Access) {
        let header = *self.header(index, taken.head);
        self.give_back(index, taken.head, access);
        let answer = match taken.fate {
            Fate::Pass(operation, flow) => {
                self.pass_on(index, (&header, operation, usize::from(flow) % FLOWS), now, access)
            }
            Fate::Refused => {
                self.exchange.port(index).refuse();
                header.refusal()
            }
            Fate::Cut(flow) if self.is_known(index, taken) => {
                self.exchange.port(index).refuse();
                // The stream has a gap without the packet.
                let flow = usize::from(flow) % FLOWS;
                let members = self.lanes[flow].members;
                self.break_off(flow..flow + members, &header, now, access);
                None
            }
            Fate::None | Fate::Transfer(..) | Fate::Cut(_) => {
                self.exchange.port(index).refuse();
                None
            }
        };
        if let Some(answer) = answer {
            let _ = self.deliver(&answer, Owner::NONE, access);
        }
    }

    /// Returns a packet's chain to its driver.
    pub(crate) fn give_back(&mut self, index: usize, head: u16, access: &mut impl Access) {
        let _ = self.with(index, access, |socket, memory| socket.give_back(memory, head));
    }

    /// Decides about a packet from port `index`: the first matching flow between the two VMs
    /// determines the verdict.
    fn judge(&self, index: usize, header: &Header, operation: Operation) -> PacketVerdict {
        let to =
            header.dst_cid.vm().and_then(|vm| self.store.sockets.get(usize::try_from(vm).ok()?));
        let Some(to) = to else { return self.judge_for_group(header, operation) };
        let from = &self.store.sockets[index];
        for index in bits(from.flows_from & to.flows_to | from.flows_to & to.flows_from) {
            let flow = &self.lanes[index % FLOWS].flow;
            let (from, to) = (Cid::of_vm(flow.from.into()), Cid::of_vm(flow.to.into()));
            return match admit([FlowRule { from, to, port: flow.port }], header, operation) {
                PacketVerdict::Refuse => continue,
                // The sender addresses the receivers of a group by one address only.
                _ if flow.members > 1 && from == header.src_cid => PacketVerdict::Refuse,
                PacketVerdict::Transfer(_) => PacketVerdict::Transfer(index),
                PacketVerdict::Pass(_) => PacketVerdict::Pass(index),
            };
        }
        PacketVerdict::Refuse
    }

    /// Does what [`Self::judge`] does, for a packet that is not addressed to a VM.
    #[inline(never)]
    fn judge_for_group(&self, header: &Header, operation: Operation) -> PacketVerdict {
        let mut flows = self.lanes.iter().take(self.flows).map(|lane| &lane.flow);
        let is_group = |flow: &BrokerFlow| flow.members > 1 && flow.destination == header.dst_cid;
        let Some(first) = flows.position(is_group) else { return PacketVerdict::Refuse };
        let flow = &self.lanes[first].flow;
        let (from, to) = (Cid::of_vm(flow.from.into()), flow.destination);
        match admit([FlowRule { from, to, port: flow.port }], header, operation) {
            PacketVerdict::Transfer(_) => PacketVerdict::Transfer(first),
            PacketVerdict::Pass(_) => PacketVerdict::Pass(first),
            PacketVerdict::Refuse => PacketVerdict::Refuse,
        }
    }

    /// Stamps a packet and puts it into its flow. Returns the time at which it was stamped, in
    /// ticks; none if it belongs to no connection.
    fn submit(
        &mut self,
        index: usize,
        taken: &Taken,
        (operation, flow, is_known): (Operation, usize, bool),
        mover: &mut impl Mover,
        access: &mut impl Access,
    ) -> Option<u64> {
        let now = taken.seen;
        let lane = &self.lanes[flow];
        let (is_for_group, receiver) = (lane.is_one_of_several(), usize::from(lane.flow.to));
        if !is_for_group && !is_known {
            return None;
        }
        let kept = &mut self.store.flows[flow];
        // A packet that ends a connection also keeps the flow's period, because it is moved like a
        // packet and would otherwise take time from other flows.
        let stamp = kept.pace.stamp(now);
        let mut members = 1;
        if is_for_group {
            let due = if stamp.deadline == u64::MAX { now } else { stamp.deadline };
            let header = *self.header(index, taken.head);
            members = self.send_to_group(flow, (&header, operation), (now, due), access)?;
        } else if operation == Operation::Reset {
            let header = &self.store.sockets[index].packets[usize::from(taken.head) % RING].header;
            kept.note(header, operation, true);
        }
        let epoch = self.store.sockets[receiver].epoch;
        let packet = &mut self.store.sockets[index].packets[usize::from(taken.head) % RING];
        (packet.eligible, packet.deadline, packet.epoch) = (stamp.eligible, stamp.deadline, epoch);
        (packet.flow, packet.members, packet.next) = (flow as u8, members, NONE);
        packet.is_data = operation == Operation::Data;
        let inserted = mover.ticks();
        self.append(index, taken.head as u8, (flow, members), now);
        Some(inserted)
    }

    /// Returns which receivers of the group that begins at flow `first` get a packet, one bit each;
    /// none if it belongs to no connection.
    #[inline(never)]
    fn send_to_group(
        &mut self,
        first: usize,
        (header, operation): (&Header, Operation),
        times: (u64, u64),
        access: &mut impl Access,
    ) -> Option<u8> {
        let mut post = Post::new();
        let sent = self.with_group(first, times.0, &mut post, access, |group, post| {
            group.send(header, operation, times, post)
        });
        self.carry_out(first, &mut post, times.0, access);
        sent.flatten()
    }

    /// Appends a packet to its flow.
    fn append(&mut self, port: usize, head: u8, (flow, members): (usize, u8), now: u64) {
        let lane = &mut self.lanes[flow];
        if lane.members > 1 {
            return self.append_to_group(port, head, (flow, members), now);
        }
        lane.queued = lane.queued.saturating_add(1);
        let last = core::mem::replace(&mut lane.last, head);
        if lane.first != NONE {
            self.store.sockets[port].packets[usize::from(last) % RING].next = head;
            return;
        }
        lane.first = head;
        self.restart(flow);
        if self.lanes[flow].place == Where::Idle {
            self.enqueue(flow, now);
        }
    }

    /// Does what [`Self::append`] does, for a flow to several receivers.
    #[inline(never)]
    fn append_to_group(&mut self, port: usize, head: u8, (flow, members): (usize, u8), now: u64) {
        let group = flow..(flow + self.lanes[flow].members).min(self.flows);
        let is_busy = |lane: &Lane| lane.first != NONE;
        if self.lanes[group.clone()].iter().any(is_busy) {
            let last = usize::from(self.lanes[flow].last) % RING;
            self.store.sockets[port].packets[last].next = head;
        }
        self.lanes[flow].last = head;
        self.lanes[flow].queued = self.lanes[flow].queued.saturating_add(1);
        for (index, bit) in group.zip(0..8) {
            let lane = &mut self.lanes[index];
            if lane.first == NONE && members >> bit & 1 != 0 {
                lane.first = head;
                self.restart(index);
                if self.lanes[index].place == Where::Idle {
                    self.enqueue(index, now);
                }
            }
        }
    }

    /// Ends the packet at `head` for flow `index`: it was moved, or is given up.
    #[inline(never)]
    pub(crate) fn answer(
        &mut self,
        port: usize,
        head: u8,
        (index, is_sent): (usize, bool),
        now: u64,
        access: &mut impl Access,
    ) {
        let Some(packet) = self.store.sockets[port].packets.get_mut(usize::from(head)) else {
            return;
        };
        let first = usize::from(packet.flow);
        let member = index.wrapping_sub(first);
        if packet.members.checked_shr(member as u32).unwrap_or(0) & 1 == 0 {
            return;
        }
        packet.members &= !(1 << member);
        let (left, is_data) = (packet.members, packet.is_data);
        if let Some(group) = &mut self.store.groups[first] {
            group.answered(member, now);
            self.refresh_due();
        }
        if is_data && !is_sent {
            self.lose(index);
        }
        if left == 0 {
            self.lanes[first].queued = self.lanes[first].queued.saturating_sub(1);
            self.give_back(port, head.into(), access);
        }
    }

    /// Counts a packet of flow `index` as lost.
    pub(crate) fn lose(&mut self, index: usize) {
        self.store.flows[index].counts.lost += 1;
        self.publish(index);
    }

    /// Gives up the packets of flow `index`, one of a group of flows to several receivers.
    #[inline(never)]
    pub(crate) fn retire(&mut self, index: usize, now: u64, access: &mut impl Access) {
        let lane = &mut self.lanes[index];
        let port = usize::from(lane.flow.from);
        let mut head = core::mem::replace(&mut lane.first, NONE);
        lane.waited = false;
        if lane.place == Where::Blocked {
            self.put(index, Where::Idle);
        }
        self.restart(index);
        // Bounded: a list contains each head at most once.
        for _ in 0..RING {
            let Some(packet) = self.store.sockets[port].packets.get(usize::from(head)) else {
                break;
            };
            let next = packet.next;
            self.answer(port, head, (index, false), now, access);
            head = next;
        }
    }
}
