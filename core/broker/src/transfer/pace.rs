//! The deadlines of a flow's packets.

/// The time at which a packet becomes eligible, and its deadline, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Earliest time at which the packet is moved.
    pub eligible: u64,
    /// Absolute deadline; `u64::MAX` if there is none.
    pub deadline: u64,
}

/// A flow's period and deadline, and the state of its last packet. A packet that arrives less than
/// a period after the time of the last one is treated as if it arrived a period after it. So a
/// sender that sends faster delays only its own packets, and for all other flows the flow is
/// sporadic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Shortest time between two packets, in ns; 0 for none.
    period: u64,
    /// Relative deadline in ns; 0 for none.
    deadline: u64,
    next: u64,
}

impl Pace {
    /// Returns the pace with a period and a relative deadline in ns; 0 means that there is none.
    #[must_use]
    pub const fn new(period: u64, deadline: u64) -> Self {
        Self { period, deadline, next: 0 }
    }

    /// Returns the stamp of the packet that was seen at `now`.
    pub fn stamp(&mut self, now: u64) -> Stamp {
        let eligible = now.max(self.next);
        self.next = eligible.saturating_add(self.period);
        let deadline =
            if self.deadline == 0 { u64::MAX } else { eligible.saturating_add(self.deadline) };
        Stamp { eligible, deadline }
    }
}
