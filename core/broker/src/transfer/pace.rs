//! Deadlines of a flow's packets.

/// When a packet may go and when it must have arrived, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Not moved before.
    pub eligible: u64,
    /// Absolute; `u64::MAX` without one.
    pub deadline: u64,
}

/// A flow's period and deadline, and its last packet. A packet that comes before a period has
/// passed since the last one's time is taken as if it came then: a sender that sends faster waits
/// for himself, and the flow as seen by all others is sporadic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Least time between two packets, in ns; 0 for none.
    period: u64,
    /// Relative deadline in ns; 0 for none.
    deadline: u64,
    next: u64,
}

impl Pace {
    /// With a period and a relative deadline in ns; 0 means that there is none.
    #[must_use]
    pub const fn new(period: u64, deadline: u64) -> Self {
        Self { period, deadline, next: 0 }
    }

    /// Stamps the packet that was seen at `now`.
    pub fn stamp(&mut self, now: u64) -> Stamp {
        let eligible = now.max(self.next);
        self.next = eligible.saturating_add(self.period);
        let deadline =
            if self.deadline == 0 { u64::MAX } else { eligible.saturating_add(self.deadline) };
        Stamp { eligible, deadline }
    }
}
