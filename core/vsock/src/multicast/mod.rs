//! Flows of one sender to several receivers. A vsock connection has two ends, so the device
//! terminates the sender's connection and keeps one of its own with each receiver's listening port
//! (a *member*).
//!
//! The sender has as much credit as the member with the least. A member that has no room for a
//! packet of the flow for as long as the flow's deadline, or that leaves its packets in its ring
//! for that long, is dropped: its connection is reset, and the others go on. A dropped member is
//! sent a new request with a later packet, as is one that refused or restarted. It takes part again
//! from the first packet after its acceptance.

mod ends;
mod post;

use crate::vsock::{Header, Operation};
use ends::{Member, Sender, Standing};
pub use post::Post;
use weir_units::Cid;

/// Maximum number of receivers.
pub const MEMBERS: usize = 8;
/// The least time between two requests to a receiver, and the time within which a receiver must
/// accept, in ns.
pub const RETRY: u64 = 10_000_000;

/// The configuration of a flow to several receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The sender's context identifier.
    pub from: Cid,
    /// The context identifier by which the sender addresses all receivers.
    pub group: Cid,
    /// The receivers' port.
    pub port: u32,
    /// Maximum length of a packet in bytes.
    pub size: u32,
    /// How long a member may be without room, in ns.
    pub patience: u64,
}

/// The connections of a flow to several receivers. Only one socket of the sender uses it at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowGroup {
    rules: Rules,
    sender: Option<Sender>,
    members: [Member; MEMBERS],
    count: usize,
}

impl FlowGroup {
    /// Returns a group without a connection; `cids` are the context identifiers of the receivers,
    /// at most [`MEMBERS`].
    pub fn new(rules: Rules, cids: impl IntoIterator<Item = Cid>) -> Self {
        let (mut members, mut count) = ([Member::NONE; MEMBERS], 0);
        for (place, cid) in members.iter_mut().zip(cids) {
            place.cid = cid;
            count += 1;
        }
        Self { rules, sender: None, members, count }
    }

    /// How often receiver `index` was dropped.
    #[must_use]
    pub fn dropped(&self, index: usize) -> u32 {
        self.members.get(index).map_or(0, |member| member.dropped)
    }

    /// Returns the time at which [`Self::expire`] is to be called; `u64::MAX` for never.
    #[must_use]
    #[inline(never)]
    pub fn due(&self) -> u64 {
        let due = |member: &Member| {
            let asked = match member.standing {
                Standing::Asked(until) => until,
                Standing::Apart(_) | Standing::Joined => u64::MAX,
            };
            asked.min(member.late_at).min(member.dry_at)
        };
        self.members().iter().map(due).min().unwrap_or(u64::MAX)
    }

    fn members(&self) -> &[Member] {
        self.members.get(..self.count).unwrap_or(&[])
    }

    fn members_mut(&mut self) -> &mut [Member] {
        self.members.get_mut(..self.count).unwrap_or(&mut [])
    }

    /// Returns a control packet to the sender.
    fn for_sender(&self, sender: &Sender, operation: Operation) -> Header {
        Header {
            src_cid: self.rules.group,
            dst_cid: self.rules.from,
            src_port: self.rules.port,
            dst_port: sender.port,
            kind: sender.kind,
            op: operation as u16,
            buf_alloc: sender.room,
            fwd_cnt: sender.taken,
            ..Header::ZERO
        }
    }

    /// Returns a control packet to a receiver.
    fn for_member(&self, member: &Member, operation: Operation) -> Header {
        let (port, kind) = member.peer;
        Header {
            src_cid: self.rules.from,
            dst_cid: member.cid,
            src_port: port,
            dst_port: self.rules.port,
            kind,
            op: operation as u16,
            ..Header::ZERO
        }
    }

    /// Returns the sender's connection if a packet with this port and kind belongs to it.
    fn connection(&self, port: u32, kind: u16) -> Option<Sender> {
        self.sender.filter(|sender| (sender.port, sender.kind) == (port, kind))
    }

    /// Handles a control packet of the sender: a request, or one about credit.
    pub fn from_sender(
        &mut self,
        header: &Header,
        operation: Operation,
        now: u64,
        post: &mut Post,
    ) {
        let known = self.connection(header.src_port, header.kind);
        // The packets of all members are in one list: a member that still waits for packets of the
        // last connection would also get those of the new one.
        let is_over = self.sender.is_none() && self.members().iter().all(|one| one.pending == 0);
        match (operation, known) {
            (Operation::Request, None) if is_over => {
                let sender = Sender {
                    port: header.src_port,
                    kind: header.kind,
                    open: false,
                    ends: false,
                    room: 0,
                    taken: 0,
                    sent: 0,
                };
                self.sender = Some(sender);
                self.members_mut()
                    .iter_mut()
                    .for_each(|member| member.standing = Standing::Apart(0));
                self.ask(now, post);
                self.settle(post);
            }
            (Operation::CreditRequest, Some(sender)) if sender.open => {
                post.push(self.for_sender(&sender, Operation::CreditUpdate));
            }
            (Operation::CreditUpdate | Operation::CreditRequest, Some(_)) => {}
            _ => header.refusal().into_iter().for_each(|refusal| post.push(refusal)),
        }
    }

    /// Sends a request to each receiver that is apart, has no packets on their way to it and is
    /// due.
    fn ask(&mut self, now: u64, post: &mut Post) {
        let Some(sender) = self.sender.filter(|sender| !sender.ends) else { return };
        for index in 0..self.count {
            let Some(member) = self.members.get_mut(index) else { break };
            if member.pending == 0
                && let Standing::Apart(since) = member.standing
                && since <= now
            {
                member.standing = Standing::Asked(now.saturating_add(RETRY));
                member.peer = (sender.port, sender.kind);
                let member = *member;
                post.push(self.for_member(&member, Operation::Request));
            }
        }
    }

    /// Handles a control packet of receiver `index`.
    pub fn from_member(
        &mut self,
        index: usize,
        header: &Header,
        operation: Operation,
        now: u64,
        post: &mut Post,
    ) {
        let refuse = |post: &mut Post| header.refusal().into_iter().for_each(|one| post.push(one));
        let sender = self.connection(header.dst_port, header.kind);
        let Some(member) = self.members.get_mut(index) else { return };
        let Some(sender) = sender else {
            // A member with pending packets will still get the end of its connection.
            if member.pending == 0 {
                refuse(post);
            }
            return;
        };
        match (operation, member.standing) {
            (Operation::Reset, Standing::Apart(_)) => return,
            (_, Standing::Apart(_)) if member.pending > 0 => return,
            (_, Standing::Apart(_)) => return refuse(post),
            (Operation::Reset, _) => self.set_apart(index, now, post),
            (Operation::Shutdown, _) => {
                refuse(post);
                self.set_apart(index, now, post);
            }
            (Operation::Response, Standing::Asked(_)) => {
                // The member must have room for all the bytes that the sender may already send.
                if header.buf_alloc == 0 || header.buf_alloc < sender.credit() {
                    refuse(post);
                    self.set_apart(index, now, post);
                } else {
                    (member.room, member.taken) = (header.buf_alloc, header.fwd_cnt);
                    (member.sent, member.standing) = (header.fwd_cnt, Standing::Joined);
                }
            }
            (_, Standing::Asked(_)) => return,
            (operation, Standing::Joined) => {
                (member.room, member.taken) = (header.buf_alloc, header.fwd_cnt);
                if member.credit() >= self.rules.size.min(member.room) && member.room > 0 {
                    member.dry_at = u64::MAX;
                }
                let member = *member;
                if operation == Operation::CreditRequest {
                    post.push(self.for_member(&member, Operation::CreditUpdate));
                }
            }
        }
        self.settle(post);
    }

    /// Notes that receiver `index` no longer takes part in the connection.
    fn set_apart(&mut self, index: usize, now: u64, post: &mut Post) {
        let Some(member) = self.members.get_mut(index) else { return };
        member.standing = Standing::Apart(now.saturating_add(RETRY));
        (member.late_at, member.dry_at) = (u64::MAX, u64::MAX);
        if member.pending > 0 {
            post.retire |= 1 << index;
        }
    }

    /// Drops receiver `index` and resets its connection.
    fn drop_out(&mut self, index: usize, now: u64, post: &mut Post) {
        if let Some(member) = self.members.get_mut(index) {
            member.dropped = member.dropped.saturating_add(1);
            let member = *member;
            post.push(self.for_member(&member, Operation::Reset));
        }
        self.set_apart(index, now, post);
    }

    /// Answers the sender's request once all receivers have answered theirs, informs the sender of
    /// its credit, and ends its connection if no receiver is left.
    fn settle(&mut self, post: &mut Post) {
        let Some(mut sender) = self.sender else { return };
        let joined = || self.members().iter().filter(|one| one.standing == Standing::Joined);
        let asked = self.members().iter().any(|one| matches!(one.standing, Standing::Asked(_)));
        if !sender.open && asked {
            return;
        }
        let Some(least) = joined().map(Member::credit).min() else {
            return self.close(post);
        };
        if sender.open {
            // The sender sees one receiver with the room that it was told, in which all but the
            // least credit is used.
            let taken = sender.sent.wrapping_sub(sender.room - least.min(sender.room));
            if taken.wrapping_sub(sender.taken).cast_signed() > 0 {
                sender.taken = taken;
                post.push(self.for_sender(&sender, Operation::CreditUpdate));
            }
        } else {
            (sender.open, sender.room) = (true, least);
            post.push(self.for_sender(&sender, Operation::Response));
        }
        self.sender = Some(sender);
    }

    /// Resets the sender's connection and those of all receivers, answered or not.
    fn close(&mut self, post: &mut Post) {
        let Some(sender) = self.sender.take() else { return };
        post.push(self.for_sender(&sender, Operation::Reset));
        self.leave(post);
    }

    /// Resets the connections to all receivers.
    fn leave(&mut self, post: &mut Post) {
        for index in 0..self.count {
            let Some(member) = self.members.get(index).copied() else { break };
            if !matches!(member.standing, Standing::Apart(_)) {
                post.push(self.for_member(&member, Operation::Reset));
                self.set_apart(index, 0, post);
            }
        }
    }

    /// Whether [`Self::send`] would give a packet with this header to any member.
    #[must_use]
    pub fn takes(&self, header: &Header) -> bool {
        let is_sent = self.connection(header.src_port, header.kind).is_some_and(|sender| {
            sender.open && header.len <= sender.credit() && !(sender.ends && header.len > 0)
        });
        let gets =
            |member: &Member| member.standing == Standing::Joined && member.credit() >= header.len;
        is_sent && self.members.iter().take(self.count).any(gets)
    }

    /// Handles a packet of the sender that goes to the members in order: data, or the end of the
    /// connection. `deadline` is absolute. Returns the members that get it, one bit each; none if
    /// it belongs to no connection, or exceeds the sender's credit, which ends the connection.
    pub fn send(
        &mut self,
        header: &Header,
        operation: Operation,
        (now, deadline): (u64, u64),
        post: &mut Post,
    ) -> Option<u8> {
        let mut sender = self.connection(header.src_port, header.kind).filter(|one| one.open)?;
        if header.len > sender.credit() || sender.ends && header.len > 0 {
            self.sender = None;
            self.leave(post);
            return None;
        }
        let mut members = 0;
        for index in 0..self.count {
            let Some(member) = self.members.get_mut(index) else { break };
            if member.standing != Standing::Joined {
                continue;
            }
            // The member has less room than it once announced.
            if member.credit() < header.len {
                self.drop_out(index, now, post);
                continue;
            }
            members |= 1 << index;
            member.sent = member.sent.wrapping_add(header.len);
            member.pending += 1;
            if member.pending == 1 {
                member.late_at = deadline.max(now).saturating_add(1);
            }
            if member.credit() < self.rules.size.min(member.room) && member.dry_at == u64::MAX {
                member.dry_at = now.saturating_add(self.rules.patience);
            }
        }
        sender.sent = sender.sent.wrapping_add(header.len);
        sender.ends |= operation != Operation::Data;
        self.sender = Some(sender);
        if operation == Operation::Reset {
            // The reset is on its way to the members, and they need not answer it.
            self.sender = None;
            for member in self.members_mut() {
                member.standing = Standing::Apart(0);
                member.dry_at = u64::MAX;
            }
        } else {
            self.ask(now, post);
            self.settle(post);
        }
        (members != 0).then_some(members)
    }

    /// Notes that a packet to receiver `index` has arrived or was given up.
    pub fn answered(&mut self, index: usize, now: u64) {
        let patience = self.rules.patience;
        if let Some(member) = self.members.get_mut(index) {
            member.pending = member.pending.saturating_sub(1);
            // The member makes progress, so it gets more time for its remaining packets.
            let waits = member.pending > 0 && member.late_at != u64::MAX;
            member.late_at = if waits { now.saturating_add(patience) } else { u64::MAX };
        }
    }

    /// Drops receivers that have kept the others waiting. `starves` returns whether a receiver has
    /// provided no buffers to receive into.
    pub fn expire(&mut self, now: u64, starves: impl Fn(usize) -> bool, post: &mut Post) {
        for index in 0..self.count {
            let Some(member) = self.members.get_mut(index) else { break };
            if matches!(member.standing, Standing::Asked(until) if until <= now) {
                let member = *member;
                post.push(self.for_member(&member, Operation::Reset));
                self.set_apart(index, now, post);
            } else if member.dry_at <= now || member.late_at <= now && starves(index) {
                self.drop_out(index, now, post);
            } else if member.late_at <= now {
                // The member has buffers, so the delay is not its fault.
                member.late_at = now.saturating_add(self.rules.patience.max(1));
            }
        }
        self.settle(post);
    }

    /// Handles a reset of the sender's device. The packets' mover forgets the sender's packets,
    /// too.
    pub fn end_sender(&mut self, post: &mut Post) {
        self.sender = None;
        for index in 0..self.count {
            let Some(member) = self.members.get(index).copied() else { break };
            // A member that has not received the end of its connection receives nothing further of
            // it.
            if member.pending > 0 || !matches!(member.standing, Standing::Apart(_)) {
                post.push(self.for_member(&member, Operation::Reset));
                self.set_apart(index, 0, post);
            }
        }
        post.retire = 0;
        self.members_mut().iter_mut().for_each(|member| member.pending = 0);
    }

    /// Handles a reset of the device of receiver `index`.
    pub fn end_member(&mut self, index: usize, now: u64, post: &mut Post) {
        self.set_apart(index, now, post);
        self.settle(post);
    }

    /// Drops receiver `index` because a packet to it was lost, which leaves a gap in its stream.
    pub fn fail_member(&mut self, index: usize, now: u64, post: &mut Post) {
        self.drop_out(index, now, post);
        self.settle(post);
    }

    /// Handles that packets are no longer moved.
    pub fn abandon(&mut self, post: &mut Post) {
        self.close(post);
        self.end_sender(post);
    }
}
