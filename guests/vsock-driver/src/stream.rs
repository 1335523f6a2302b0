//! One end of a stream connection (virtio 1.2, section 5.10.6).

use weir_units::Cid;
use weir_vsock::vsock::{Header, Operation, STREAM};

/// Room for data that are received and not yet taken, in bytes.
pub const ROOM: u32 = 192 << 10;

/// What a packet meant for the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// Nothing that the owner must know.
    None,
    /// The other end has accepted.
    Connected,
    /// So many bytes have come.
    Data(u32),
    /// The other end has refused, or will send no more.
    Closed,
    /// The connection broke: what has come is not all that the other end sent.
    Reset,
}

/// One end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    local: (Cid, u32),
    peer: (Cid, u32),
    peer_room: u32,
    peer_taken: u32,
    sent: u32,
    taken: u32,
    /// What the other end knows of [`Self::taken`].
    told: u32,
    open: bool,
}

impl Stream {
    const fn new(local: (Cid, u32), peer: (Cid, u32)) -> Self {
        Self { local, peer, peer_room: 0, peer_taken: 0, sent: 0, taken: 0, told: 0, open: false }
    }

    /// Asks for a connection from one context identifier and port to another: the packet to send.
    #[must_use]
    pub fn connect(local: (Cid, u32), peer: (Cid, u32)) -> (Self, Header) {
        let mut stream = Self::new(local, peer);
        let header = stream.header(Operation::Request, 0);
        (stream, header)
    }

    /// Accepts the connection that `request` asks for: the packet to send.
    #[must_use]
    pub fn accept(request: &Header) -> (Self, Header) {
        let local = (request.dst_cid, request.dst_port);
        let mut stream = Self::new(local, (request.src_cid, request.src_port));
        stream.open = true;
        stream.learn(request);
        let header = stream.header(Operation::Response, 0);
        (stream, header)
    }

    /// Whether data can be sent.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Bytes that the other end has room for.
    #[must_use]
    pub const fn credit(&self) -> u32 {
        let under_way = self.sent.wrapping_sub(self.peer_taken);
        self.peer_room.saturating_sub(under_way)
    }

    /// The header of a packet with `len` bytes, for which there is credit.
    #[must_use]
    pub fn data(&mut self, len: u32) -> Header {
        self.sent = self.sent.wrapping_add(len);
        self.header(Operation::Data, len)
    }

    /// The packet that ends the connection.
    #[must_use]
    pub fn shut_down(&mut self) -> Header {
        self.open = false;
        Header { flags: 3, ..self.header(Operation::Shutdown, 0) }
    }

    /// Takes in a packet; gives what it meant, and the packet to answer with.
    pub fn receive(&mut self, header: &Header) -> (StreamEvent, Option<Header>) {
        let (from, to) = ((header.src_cid, header.src_port), (header.dst_cid, header.dst_port));
        let Some(operation) = header.operation().filter(|_| (from, to) == (self.peer, self.local))
        else {
            return (StreamEvent::None, header.refusal());
        };
        self.learn(header);
        match operation {
            Operation::Response => {
                self.open = true;
                (StreamEvent::Connected, None)
            }
            Operation::Data => {
                self.taken = self.taken.wrapping_add(header.len);
                let old = self.taken.wrapping_sub(self.told) >= ROOM / 4;
                (
                    StreamEvent::Data(header.len),
                    old.then(|| self.header(Operation::CreditUpdate, 0)),
                )
            }
            Operation::CreditRequest => {
                (StreamEvent::None, Some(self.header(Operation::CreditUpdate, 0)))
            }
            Operation::Shutdown => {
                self.open = false;
                (StreamEvent::Closed, header.refusal())
            }
            Operation::Reset => {
                let was_open = core::mem::take(&mut self.open);
                (if was_open { StreamEvent::Reset } else { StreamEvent::Closed }, None)
            }
            Operation::Request => (StreamEvent::None, header.refusal()),
            Operation::CreditUpdate => (StreamEvent::None, None),
        }
    }

    fn learn(&mut self, header: &Header) {
        (self.peer_room, self.peer_taken) = (header.buf_alloc, header.fwd_cnt);
    }

    fn header(&mut self, operation: Operation, len: u32) -> Header {
        self.told = self.taken;
        Header {
            src_cid: self.local.0,
            dst_cid: self.peer.0,
            src_port: self.local.1,
            dst_port: self.peer.1,
            len,
            kind: STREAM,
            op: operation as u16,
            flags: 0,
            buf_alloc: ROOM,
            fwd_cnt: self.taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ends_agree_on_credit() {
        let (mut a, request) = Stream::connect((Cid(3), 9), (Cid(4), 5000));
        let (mut b, response) = Stream::accept(&request);
        assert_eq!(a.receive(&response), (StreamEvent::Connected, None));
        assert!(a.is_open() && b.is_open());
        let mut updates = 0;
        for _ in 0..100 {
            let before = a.credit();
            let header = a.data(4096);
            assert_eq!(a.credit(), before - 4096);
            let (event, answer) = b.receive(&header);
            assert_eq!(event, StreamEvent::Data(4096));
            if let Some(answer) = answer {
                updates += 1;
                assert_eq!(a.receive(&answer), (StreamEvent::None, None));
                assert_eq!(a.credit(), ROOM);
            }
        }
        assert_eq!(updates, 100 * 4096 / (ROOM / 4));
        let (event, answer) = b.receive(&a.shut_down());
        assert_eq!(event, StreamEvent::Closed);
        assert_eq!(a.receive(&answer.unwrap()), (StreamEvent::Closed, None));
        assert!(!a.is_open() && !b.is_open());
    }

    /// A connection that broke is none that the other end has closed.
    #[test]
    fn a_reset_is_not_the_end_of_the_stream() {
        let (mut a, request) = Stream::connect((Cid(3), 9), (Cid(4), 5000));
        let (mut b, response) = Stream::accept(&request);
        let reset = |header: &Header| Header { op: Operation::Reset as u16, len: 0, ..*header };
        let mut refused = a;
        assert_eq!(refused.receive(&reset(&response)), (StreamEvent::Closed, None));
        a.receive(&response);
        assert_eq!(a.receive(&reset(&response)), (StreamEvent::Reset, None));
        assert_eq!(b.receive(&reset(&request)), (StreamEvent::Reset, None));
        assert!(!a.is_open() && !b.is_open());
    }

    #[test]
    fn strangers_are_reset() {
        let (mut a, request) = Stream::connect((Cid(3), 9), (Cid(4), 5000));
        let stranger = Header { src_port: 1, ..request };
        let (event, answer) = a.receive(&stranger);
        assert_eq!((event, answer), (StreamEvent::None, stranger.refusal()));
    }
}
