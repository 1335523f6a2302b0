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
    /// How long EL2 took until then, in ticks; how long the locking and the parsing took.
    pub(crate) transport: u64,
    pub(crate) locking: u64,
    pub(crate) parsing: u64,
    pub(crate) fate: Fate,
}

impl Taken {
    pub(crate) const NONE: Self =
        Self { head: 0, seen: 0, stamp: 0, transport: 0, locking: 0, parsing: 0, fate: Fate::None };
}

/// What becomes of a packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It makes no sense.
    None,
    /// It is moved by its flow's deadline.
    Transfer(Operation, usize),
    /// It is passed on.
    Pass(Operation, usize),
    /// It is answered, as it is not allowed.
    Refused,
}
