//! A packet that has left its sender's ring and has not been put into its flow yet.

use weir_vsock::vsock::Operation;

/// A packet that was taken out of a ring, and the decision about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The head of its chain, which is its index in `Socket::packets`, where its header is.
    pub(crate) head: u16,
    /// Time at which the packet was seen, in ns of the counter (`seen`) and in ticks (`stamp`).
    pub(crate) seen: u64,
    pub(crate) stamp: u64,
    /// Durations of EL2's transport, the parsing and the locking, packed as in a record.
    pub(crate) phases: u64,
    pub(crate) fate: Fate,
}

impl Taken {
    pub(crate) const NONE: Self = Self { head: 0, seen: 0, stamp: 0, phases: 0, fate: Fate::None };
}

/// The decision about a packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// The packet is malformed and is dropped.
    None,
    /// The packet is moved, with the deadline of the flow with this index.
    Transfer(Operation, u8),
    /// The packet is a control packet and is passed on for this flow.
    Pass(Operation, u8),
    /// The packet is not allowed and is answered by a refusal.
    Refused,
    /// The payload is shorter than the header states: the connections of the flow end.
    Cut(u8),
}
