//! The two kinds of ends of a flow to several receivers, as the device knows them.

use weir_units::Cid;

/// How the device stands with a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not connected; not asked again before this time.
    Apart(u64),
    /// It was asked, and has until this time to answer.
    Asked(u64),
    /// Connected.
    Joined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub cid: Cid,
    /// The sender's port and the kind of socket by which it is connected, or was last.
    pub peer: (u32, u16),
    pub standing: Standing,
    /// Bytes that it has room for, and those that it has taken out of that room, by its own
    /// account.
    pub room: u32,
    pub taken: u32,
    /// Bytes that were sent to it since it joined.
    pub sent: u32,
    /// Packets that are on their way to it.
    pub pending: u32,
    /// When the oldest of them should have arrived; `u64::MAX` without one.
    pub late_at: u64,
    /// When it has been without room for too long; `u64::MAX` while it has.
    pub dry_at: u64,
    pub dropped: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub port: u32,
    pub kind: u16,
    /// It has its answer.
    pub open: bool,
    /// It will send no more.
    pub ends: bool,
    /// The room that it was told of.
    pub room: u32,
    /// The bytes taken out of it that it was told of.
    pub taken: u32,
    pub sent: u32,
}

impl Sender {
    /// Bytes that it may send by what it was told.
    pub const fn credit(&self) -> u32 {
        self.room.saturating_sub(self.sent.wrapping_sub(self.taken))
    }
}

impl Member {
    /// Of no receiver.
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

    /// Bytes that it has room for.
    pub fn credit(&self) -> u32 {
        self.room.saturating_sub(self.sent.wrapping_sub(self.taken))
    }
}
