//! A packet between its sender's ring and its flow.

use weir_vsock::vsock::Operation;

/// A packet that was taken out of a ring, and what is to become of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The head of its chain, by which it is in `Socket::packets`, with its header.
    pub(crate) head: u16,
    /// When it was seen, in ns of the counter and in ticks.
    pub(crate) seen: u64,
    pub(crate) stamp: u64,
    /// Durations of EL2's transport, of the parsing and of the locking, packed as in a record.
    pub(crate) phases: u64,
    pub(crate) fate: Fate,
}

impl Taken {
    pub(crate) const NONE: Self = Self { head: 0, seen: 0, stamp: 0, phases: 0, fate: Fate::None };
}

/// What becomes of a packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It makes no sense.
    None,
    /// It is moved by the deadline of the flow at this place.
    Transfer(Operation, u8),
    /// It is passed on for this flow.
    Pass(Operation, u8),
    /// It is answered, as it is not allowed.
    Refused,
    /// The payload is shorter than the header says: the connections of the flow end.
    Cut(u8),
}
