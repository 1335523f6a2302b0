//! The two kinds of ends of a flow to several receivers: its sender and its members.

use weir_units::Cid;

/// The state of the connection with a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not connected; the next request is sent at this time or later.
    Apart(u64),
    /// A request was sent, which the receiver must answer before this time.
    Asked(u64),
    /// Connected.
    Joined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub cid: Cid,
    /// The sender's port and the kind of socket of the member's current or last connection.
    pub peer: (u32, u16),
    pub standing: Standing,
    /// Size of the member's receive space, and the bytes that the member has taken out of it, as
    /// the member says.
    pub room: u32,
    pub taken: u32,
    /// Bytes that were sent to the member since it joined.
    pub sent: u32,
    /// Packets that are on their way to the member.
    pub pending: u32,
    /// Time by which the oldest of these packets should have arrived; `u64::MAX` without one.
    pub late_at: u64,
    /// Time from which the member has been without room for too long; `u64::MAX` while it has room.
    pub dry_at: u64,
    pub dropped: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub port: u32,
    pub kind: u16,
    /// Whether the sender's request has been answered.
    pub open: bool,
    /// Whether the sender has said that it sends no more.
    pub ends: bool,
    /// Size of the receive space that the sender was told.
    pub room: u32,
    /// Bytes taken out of that space, as the sender was told.
    pub taken: u32,
    pub sent: u32,
}

impl Sender {
    /// Returns the number of bytes that the sender may send according to what it was told.
    pub const fn credit(&self) -> u32 {
        self.room.saturating_sub(self.sent.wrapping_sub(self.taken))
    }
}

impl Member {
    /// The place of no receiver.
    pub const NONE: Self = Self {
        cid: Cid(0),
        peer: (0, 0),
        standing: Standing::Apart(0),
        room: 0,
        taken: 0,
        sent: 0,
        pending: 0,
        late_at: u64::MAX,
        dry_at: u64::MAX,
        dropped: 0,
    };

    /// Returns the number of bytes that the member has room for.
    pub fn credit(&self) -> u32 {
        self.room.saturating_sub(self.sent.wrapping_sub(self.taken))
    }
}
