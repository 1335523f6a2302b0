//! Packets of a socket device (virtio 1.2, section 5.10).

use weir_units::Cid;

/// Length of a [`Header`] in bytes.
pub const HEADER_LEN: usize = 44;
/// Maximum length of a packet's payload in bytes: the most that Linux sends.
pub const MAX_PAYLOAD: u32 = 64 << 10;

/// The kind of a stream socket's packets.
pub const STREAM: u16 = 1;
/// The kind of the packets of a socket that preserves message boundaries.
pub const SEQPACKET: u16 = 2;

/// The operation of a packet (section 5.10.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Operation {
    /// Asks for a connection.
    Request = 1,
    /// Accepts a connection.
    Response = 2,
    /// Refuses or ends a connection.
    Reset = 3,
    /// Announces that the end will send or receive no more.
    Shutdown = 4,
    /// Carries a payload.
    Data = 5,
    /// Announces the room for data.
    CreditUpdate = 6,
    /// Asks for the room for data.
    CreditRequest = 7,
}

impl Operation {
    /// All operations by number, from 1 on.
    const ALL: [Self; 7] = [
        Self::Request,
        Self::Response,
        Self::Reset,
        Self::Shutdown,
        Self::Data,
        Self::CreditUpdate,
        Self::CreditRequest,
    ];
}

/// The header of a packet. Its bytes are little-endian and without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sending VM's context identifier.
    pub src_cid: Cid,
    /// The receiving VM's context identifier.
    pub dst_cid: Cid,
    /// The sending socket's port.
    pub src_port: u32,
    /// The receiving socket's port.
    pub dst_port: u32,
    /// Length of the payload in bytes.
    pub len: u32,
    /// [`STREAM`] or [`SEQPACKET`].
    pub kind: u16,
    /// An [`Operation`].
    pub op: u16,
    /// Flags, whose meaning depends on the operation.
    pub flags: u32,
    /// Size of the packet sender's receive space in bytes.
    pub buf_alloc: u32,
    /// Number of bytes that the packet's sender has taken out of that space so far.
    pub fwd_cnt: u32,
}

/// Reason why a packet of a driver is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The operation is unknown.
    Unknown,
    /// The packet is not from this device's context identifier.
    Source,
    /// The kind of socket is unknown: the packet is answered with a reset (section 5.10.6.5).
    Kind,
    /// The payload is longer than the buffers or than [`MAX_PAYLOAD`], or there is a payload where
    /// the operation allows none, or none where it requires one.
    Length,
}

impl Header {
    /// A header of zeros.
    pub const ZERO: Self = Self {
        src_cid: Cid(0),
        dst_cid: Cid(0),
        src_port: 0,
        dst_port: 0,
        len: 0,
        kind: 0,
        op: 0,
        flags: 0,
        buf_alloc: 0,
        fwd_cnt: 0,
    };

    /// Returns the header from its bytes in a buffer.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let long = |at: usize| {
            let mut long = [0; 8];
            long.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(long)
        };
        Self {
            src_cid: Cid(long(0)),
            dst_cid: Cid(long(8)),
            src_port: word(16),
            dst_port: word(20),
            len: word(24),
            kind: word(28) as u16,
            op: (word(28) >> 16) as u16,
            flags: word(32),
            buf_alloc: word(36),
            fwd_cnt: word(40),
        }
    }

    /// Returns the header as bytes for a buffer.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.src_cid.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.dst_cid.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.src_port.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.dst_port.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.kind.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.op.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.flags.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.buf_alloc.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.fwd_cnt.to_le_bytes());
        bytes
    }

    /// Returns the packet's operation, or `None` if it is unknown.
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        Operation::ALL.get(usize::from(self.op).checked_sub(1)?).copied()
    }

    /// Checks that the packet is well formed, comes from context identifier `cid` and fits into the
    /// `room` bytes of the buffers after the header. Returns its operation.
    ///
    /// # Errors
    ///
    /// The reason why it is [`Malformed`].
    pub fn check(&self, cid: Cid, room: u64) -> Result<Operation, Malformed> {
        let operation = self.operation().ok_or(Malformed::Unknown)?;
        // This is checked before the other errors because an answer goes to the packet's stated
        // source.
        if self.src_cid != cid {
            return Err(Malformed::Source);
        }
        if self.kind != STREAM && self.kind != SEQPACKET {
            return Err(Malformed::Kind);
        }
        let has_payload = operation == Operation::Data;
        if self.len > MAX_PAYLOAD || u64::from(self.len) > room || (self.len != 0) != has_payload {
            return Err(Malformed::Length);
        }
        Ok(operation)
    }

    /// Returns the reset that answers this packet; none if the packet is a reset itself.
    #[must_use]
    pub fn refusal(&self) -> Option<Self> {
        (self.op != Operation::Reset as u16).then_some(Self {
            src_cid: self.dst_cid,
            dst_cid: self.src_cid,
            src_port: self.dst_port,
            dst_port: self.src_port,
            kind: self.kind,
            op: Operation::Reset as u16,
            ..Self::default()
        })
    }
}
