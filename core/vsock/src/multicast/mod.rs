//! One sender and several receivers: vsock knows two ends, so the device ends the sender's
//! connection, and keeps one of its own with each receiver's listening port (a *member*).
//!
//! The sender has as much credit as the member with the least. A member that has no room for a
//! packet of the flow for as long as the flow's deadline, or that has left what is meant for it in
//! its ring for so long, is dropped: its connection is reset, and the others go on. It is asked
//! again with a later packet, as one that refused or restarted is, and takes part from the packet
//! on that comes when it has accepted.

mod ends;
mod post;

use crate::vsock::{Header, Operation};
use ends::{Member, Sender, Standing};
pub use post::Post;
use weir_units::Cid;

/// Most receivers.
pub const MEMBERS: usize = 8;
/// The least time between two attempts to connect to a receiver, and how long one has to accept, in
/// ns.
pub const RETRY: u64 = 10_000_000;

/// What is known of such a flow beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The sender's context identifier.
    pub from: Cid,
    /// That by which it knows them all.
    pub group: Cid,
    /// The receivers' port.
    pub port: u32,
    /// Most bytes of a packet.
    pub size: u32,
    /// How long a member may be without room, in ns.
    pub patience: u64,
}

/// The connections of a flow to several receivers: of one socket of the sender's at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowGroup {
    rules: Rules,
    sender: Option<Sender>,
    members: [Member; MEMBERS],
    count: usize,
}

impl FlowGroup {
    /// Without a connection; `cids` are the receivers' context identifiers, at most [`MEMBERS`].
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

    /// When [`Self::expire`] is to be called; `u64::MAX` for never.
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

    /// A control packet to the sender.
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

    /// A control packet to a receiver.
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

    /// The sender's connection, if this packet of its is of it.
    fn connection(&self, port: u32, kind: u16) -> Option<Sender> {
        self.sender.filter(|sender| (sender.port, sender.kind) == (port, kind))
    }

    /// A control packet of the sender's: a request, or about credit.
    pub fn from_sender(
        &mut self,
        header: &Header,
        operation: Operation,
        now: u64,
        post: &mut Post,
    ) {
        let known = self.connection(header.src_port, header.kind);
        // The members have their packets in one list: a member that still gets some of the last
        // connection would get what follows them, too.
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

    /// Asks those that are apart, that nothing is on its way to, and that are due.
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

    /// A control packet of receiver `index`.
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
            // Its end is on its way to it.
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
                // What the sender may send already must fit.
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

    /// Receiver `index` is in the connection no more.
    fn set_apart(&mut self, index: usize, now: u64, post: &mut Post) {
        let Some(member) = self.members.get_mut(index) else { return };
        member.standing = Standing::Apart(now.saturating_add(RETRY));
        (member.late_at, member.dry_at) = (u64::MAX, u64::MAX);
        if member.pending > 0 {
            post.retire |= 1 << index;
        }
    }

    /// Takes receiver `index` out, and says so to it.
    fn drop_out(&mut self, index: usize, now: u64, post: &mut Post) {
        if let Some(member) = self.members.get_mut(index) {
            member.dropped = member.dropped.saturating_add(1);
            let member = *member;
            post.push(self.for_member(&member, Operation::Reset));
        }
        self.set_apart(index, now, post);
    }

    /// Answers the sender's request when all have answered theirs, tells it what credit there is,
    /// and ends its connection when no receiver is left.
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
            // As if it had one receiver with that room, of which all but the least credit is taken
            // up.
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

    /// Without receivers, resets the sender's connection; a member that was asked need not answer.
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

    /// Whether [`Self::send`] gives a packet with this header to a member.
    #[must_use]
    pub fn takes(&self, header: &Header) -> bool {
        let is_sent = self.connection(header.src_port, header.kind).is_some_and(|sender| {
            sender.open && header.len <= sender.credit() && !(sender.ends && header.len > 0)
        });
        let gets =
            |member: &Member| member.standing == Standing::Joined && member.credit() >= header.len;
        is_sent && self.members.iter().take(self.count).any(gets)
    }

    /// A packet of the sender's that goes to the members in order: data, or its end. `deadline` is
    /// its absolute one. Gives those that get it, one bit each; none if it belongs to no
    /// connection, or takes more than its credit, which ends that.
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
            // It has less room than it once said.
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
            // It is on its way to them, and they need not answer.
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

    /// A packet to receiver `index` has arrived, or was given up.
    pub fn answered(&mut self, index: usize, now: u64) {
        let patience = self.rules.patience;
        if let Some(member) = self.members.get_mut(index) {
            member.pending = member.pending.saturating_sub(1);
            // It gets on.
            let waits = member.pending > 0 && member.late_at != u64::MAX;
            member.late_at = if waits { now.saturating_add(patience) } else { u64::MAX };
        }
    }

    /// Drops those that have kept the others waiting. `starves` says of a receiver whether it has
    /// left no buffers to receive into.
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
                // It is not its fault.
                member.late_at = now.saturating_add(self.rules.patience.max(1));
            }
        }
        self.settle(post);
    }

    /// The sender's device was reset: what it had sent is forgotten by its mover, too.
    pub fn end_sender(&mut self, post: &mut Post) {
        self.sender = None;
        for index in 0..self.count {
            let Some(member) = self.members.get(index).copied() else { break };
            // A member that has not received the end of its connection receives no more of it.
            if member.pending > 0 || !matches!(member.standing, Standing::Apart(_)) {
                post.push(self.for_member(&member, Operation::Reset));
                self.set_apart(index, 0, post);
            }
        }
        post.retire = 0;
        self.members_mut().iter_mut().for_each(|member| member.pending = 0);
    }

    /// The device of receiver `index` was reset.
    pub fn end_member(&mut self, index: usize, now: u64, post: &mut Post) {
        self.set_apart(index, now, post);
        self.settle(post);
    }

    /// A packet to receiver `index` was lost on the way: it is dropped, as the stream has a gap.
    pub fn fail_member(&mut self, index: usize, now: u64, post: &mut Post) {
        self.drop_out(index, now, post);
        self.settle(post);
    }

    /// Handles that no packets are moved any more.
    pub fn abandon(&mut self, post: &mut Post) {
        self.close(post);
        self.end_sender(post);
    }
}
