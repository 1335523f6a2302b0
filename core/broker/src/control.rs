//! Control packets: passed to the VMs that they are addressed to, and sent when a device was reset.
//! For flows to several receivers `weir_vsock::multicast` makes the decisions, and this module
//! carries them out.

use crate::{
    RING, bits,
    broker::{Broker, NONE, Where},
    flow::BEST_EFFORT,
    ram::Access,
    socket::Owner,
};
use core::ops::Range;
use weir_units::Cid;
use weir_vsock::{
    multicast::{FlowGroup, MEMBERS, Post, Rules},
    vsock::{Header, Operation},
};

/// Number of rounds of answers: the receivers of posted packets can answer a request by a refusal,
/// and then the sender can refuse.
const ROUNDS: usize = 3;

impl Broker<'_> {
    /// Sets up the connections of flows to several receivers.
    pub(crate) fn begin_groups(&mut self) {
        for index in 0..self.flows {
            let flow = self.lanes[index].flow;
            if flow.members <= 1 || usize::from(flow.first) != index {
                self.store.groups[index] = None;
                continue;
            }
            let rules = Rules {
                from: Cid::of_vm(flow.from.into()),
                group: flow.destination,
                port: flow.port,
                size: flow.size,
                patience: if flow.deadline == 0 { BEST_EFFORT } else { flow.deadline },
            };
            let members = self.lanes.iter().skip(index).take(flow.members.into());
            let cids = members.map(|lane| Cid::of_vm(lane.flow.to.into()));
            self.store.groups[index] = Some(FlowGroup::new(rules, cids));
        }
    }

    /// Passes a control packet of `owner` to the VM that it is addressed to. Returns the answer if
    /// that VM is absent.
    #[inline(never)]
    pub(crate) fn deliver(
        &mut self,
        header: &Header,
        owner: Owner,
        access: &mut impl Access,
    ) -> Option<Header> {
        let port = header.dst_cid.vm().and_then(|index| usize::try_from(index).ok());
        let Some(port) = port.filter(|port| *port < self.ports) else { return header.refusal() };
        if !self.store.sockets[port].receives() {
            return header.refusal();
        }
        match self.with(port, access, |socket, memory| socket.pass(memory, header, owner)) {
            Some(true) => None,
            Some(false) => {
                // The receiver's own driver returns no buffers, so the loss affects only that VM.
                self.exchange.port(port).refuse();
                None
            }
            None => header.refusal(),
        }
    }

    /// Passes on a control packet of a flow. Returns the answer if that is not possible. Packets
    /// beyond those that the flow admits are dropped.
    #[inline(never)]
    pub(crate) fn pass_on(
        &mut self,
        from: usize,
        (header, operation, index): (&Header, Operation, usize),
        now: u64,
        access: &mut impl Access,
    ) -> Option<Header> {
        let lane = &self.lanes[index];
        if !self.store.flows[index].admits_control(now) {
            self.exchange.port(from).refuse();
            return None;
        }
        if lane.is_one_of_several() {
            let first = usize::from(lane.flow.first);
            let member = self.member(first, header.src_cid);
            let mut post = Post::new();
            let _ = self.with_group(first, now, &mut post, access, |group, post| match member {
                Some(index) => group.from_member(index, header, operation, now, post),
                None => group.from_sender(header, operation, now, post),
            });
            self.carry_out(first, &mut post, now, access);
            return None;
        }
        let forth = header.src_cid == Cid::of_vm(lane.flow.from.into());
        if !self.store.flows[index].note(header, operation, forth) {
            return header.refusal();
        }
        let answer = self.deliver(header, Owner::controls(index), access)?;
        // The end that requested a connection is informed that there will be none.
        self.store.flows[index].note(&answer, Operation::Reset, !forth);
        Some(answer)
    }

    /// Ends the connections of port `index`, whose device was reset or broke a ring, and is now in
    /// `epoch`: its rings no longer exist, its packets are lost, and the other ends of its
    /// connections get a reset.
    #[inline(never)]
    pub(crate) fn disconnect(
        &mut self,
        index: usize,
        epoch: u32,
        now: u64,
        access: &mut impl Access,
    ) {
        self.end_groups(index, now, access);
        for head in 0..RING {
            let packet = &self.store.sockets[index].packets[head];
            let (first, members) = (usize::from(packet.flow), packet.members);
            let is_lost = |member: &usize| packet.is_data && members >> member & 1 != 0;
            let lost = (0..MEMBERS).filter(is_lost).fold(0u8, |lost, member| lost | 1 << member);
            (0..MEMBERS)
                .filter(|member| lost >> member & 1 != 0)
                .for_each(|member| self.lose(first + member));
        }
        for flow in 0..self.flows {
            let lane = &mut self.lanes[flow];
            if usize::from(lane.flow.from) == index {
                (lane.first, lane.last) = (NONE, NONE);
                lane.queued = 0;
                lane.waited = false;
                if lane.place == Where::Blocked {
                    self.put(flow, Where::Idle);
                }
                self.restart(flow);
            }
            if usize::from(self.lanes[flow].flow.to) == index {
                // A packet that was moved in part goes to rings that no longer exist.
                self.store.moves[flow].target = None;
            }
        }
        self.store.sockets[index].forget(epoch);
        for flow in 0..self.flows {
            let its = self.lanes[flow].flow;
            if [its.from, its.to].map(usize::from).contains(&index) {
                for header in self.store.flows[flow].end(&its, index) {
                    let _ = self.deliver(&header, Owner::controls(flow), access);
                }
            }
        }
        bits(self.store.sockets[index].blocked).for_each(|at| self.unblock(at, now));
    }

    /// Gives up the first packet of flow `index`, with the header `header`, because the DMA engine
    /// has failed: the receiver may have a part of the message. The packet is lost, and its
    /// connection is reset at both ends; all other flows continue.
    #[inline(never)]
    pub(crate) fn fail(
        &mut self,
        index: usize,
        header: &Header,
        now: u64,
        access: &mut impl Access,
    ) {
        self.finish(index, false, now, access);
        self.break_off(index..index + 1, header, now, access);
    }

    /// Resets, at both ends, the connection of a packet with the header `header` that does not
    /// arrive. `flows` are one flow to one receiver, or some of the flows to several receivers.
    #[inline(never)]
    pub(crate) fn break_off(
        &mut self,
        flows: Range<usize>,
        header: &Header,
        now: u64,
        access: &mut impl Access,
    ) {
        let index = flows.start;
        let lane = &self.lanes[index];
        let (flow, first) = (lane.flow, usize::from(lane.flow.first));
        if lane.is_one_of_several() {
            let mut post = Post::new();
            let _ = self.with_group(first, now, &mut post, access, |group, post| {
                flows.for_each(|member| group.fail_member(member - first, now, post));
            });
            self.carry_out(first, &mut post, now, access);
            return;
        }
        for header in self.store.flows[index].break_off(&flow, header) {
            // An absent receiver needs no reset.
            let _ = self.deliver(&header, Owner::controls(index), access);
        }
    }

    /// Calls `body` with the connections of the group that begins at flow `first`. Then gives up
    /// the packets to the members that `body` has removed.
    pub(crate) fn with_group<T>(
        &mut self,
        first: usize,
        now: u64,
        post: &mut Post,
        access: &mut impl Access,
        body: impl FnOnce(&mut FlowGroup, &mut Post) -> T,
    ) -> Option<T> {
        let group = self.store.groups.get_mut(first)?.as_mut()?;
        let given = body(group, post);
        let retired = core::mem::take(&mut post.retire);
        for member in (0..MEMBERS).filter(|member| retired >> member & 1 != 0) {
            self.retire(first + member, now, access);
        }
        self.count_dropped(first);
        self.refresh_due();
        Some(given)
    }

    /// Writes how often the members of a group were dropped, if that has changed.
    #[inline(never)]
    fn count_dropped(&mut self, first: usize) {
        for member in 0..self.lanes[first].members {
            let dropped =
                self.store.groups[first].as_ref().map_or(0, |group| group.dropped(member));
            let counts = &mut self.store.flows[first + member].counts;
            if counts.dropped != u64::from(dropped) {
                counts.dropped = dropped.into();
                self.publish(first + member);
            }
        }
    }

    /// Updates the time at which a group is due.
    #[inline(never)]
    pub(crate) fn refresh_due(&mut self) {
        let groups = self.store.groups.iter().take(self.flows).flatten();
        self.due = groups.map(FlowGroup::due).min().unwrap_or(u64::MAX);
    }

    /// Delivers the packets that the group that begins at flow `first` has posted, and takes in
    /// immediate answers.
    #[inline(never)]
    pub(crate) fn carry_out(
        &mut self,
        first: usize,
        post: &mut Post,
        now: u64,
        access: &mut impl Access,
    ) {
        for _ in 0..ROUNDS {
            if post.headers().is_empty() {
                break;
            }
            let mut next = Post::new();
            for header in post.headers() {
                let owner = self.member(first, header.dst_cid).map_or(first, |index| first + index);
                if let Some(answer) = self.deliver(header, Owner::controls(owner), access) {
                    self.refused(first, &answer, now, &mut next, access);
                }
            }
            *post = next;
        }
    }

    /// Handles a control packet that has no receiver: `answer` replaces the receiver's answer.
    #[inline(never)]
    fn refused(
        &mut self,
        first: usize,
        answer: &Header,
        now: u64,
        post: &mut Post,
        access: &mut impl Access,
    ) {
        let sender = Cid::of_vm(self.lanes[first].flow.from.into());
        let member = self.member(first, answer.src_cid);
        let _ = self.with_group(first, now, post, access, |group, post| match member {
            Some(index) => group.from_member(index, answer, Operation::Reset, now, post),
            None if answer.src_cid == sender => group.end_sender(post),
            None => {}
        });
    }

    /// Returns which receiver of the group that begins at flow `first` has this context identifier.
    fn member(&self, first: usize, cid: Cid) -> Option<usize> {
        let lanes = self.lanes.get(first..)?.iter().take(self.lanes[first].members);
        let mut cids = lanes.map(|lane| Cid::of_vm(lane.flow.to.into()));
        cids.position(|one| one == cid)
    }

    /// Ends the connections of port `index` in groups, because its device was reset.
    fn end_groups(&mut self, index: usize, now: u64, access: &mut impl Access) {
        for first in 0..self.flows {
            if self.store.groups[first].is_none() {
                continue;
            }
            let is_sender = usize::from(self.lanes[first].flow.from) == index;
            let member = self.member(first, Cid::of_vm(index as u32));
            let mut post = Post::new();
            let _ = self.with_group(first, now, &mut post, access, |group, post| match member {
                _ if is_sender => group.end_sender(post),
                Some(member) => group.end_member(member, now, post),
                None => {}
            });
            self.carry_out(first, &mut post, now, access);
        }
    }

    /// Drops the receivers that have delayed other receivers for too long.
    #[inline(never)]
    pub(crate) fn attend(&mut self, now: u64, access: &mut impl Access) {
        for first in 0..self.flows {
            if self.store.groups[first].as_ref().is_none_or(|group| group.due() > now) {
                continue;
            }
            let mut starving = [false; MEMBERS];
            for (member, starves) in starving.iter_mut().enumerate().take(self.lanes[first].members)
            {
                *starves = self.starves(first + member, access);
            }
            let mut post = Post::new();
            let _ = self.with_group(first, now, &mut post, access, |group, post| {
                group.expire(now, |member| starving.get(member) == Some(&true), post);
            });
            self.carry_out(first, &mut post, now, access);
        }
    }

    /// Returns whether the receiver of flow `index` has left no buffer for the flow's packets.
    fn starves(&mut self, index: usize, access: &mut impl Access) -> bool {
        let Some(lane) = self.lanes.get(index) else { return true };
        let (port, owner) = (usize::from(lane.flow.to), Owner::messages(index));
        let starves = self.with(port, access, |socket, memory| socket.starves(memory, owner));
        starves.unwrap_or(true)
    }
}
