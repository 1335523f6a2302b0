//! Answers that wait for a place in the ring to send: a driver returns receive buffers whether it
//! can send or not, since a peer could else stop it by packets that want an answer.

use weir_units::Cid;
use weir_vsock::vsock::{Header, Operation};

/// Peers of a VM at most, and the answers to one of them that wait: as many as a flow has
/// connections.
const PEERS: usize = 7;
const FOR_A_PEER: usize = 16;
const MOST: usize = PEERS * FOR_A_PEER;

/// The answers, the oldest first: one for each connection, and so many for each peer that none uses
/// up the places of another.
pub struct Answers {
    waiting: [Header; MOST],
    len: usize,
}

impl Answers {
    /// None.
    pub const fn new() -> Self {
        Self { waiting: [Header::ZERO; MOST], len: 0 }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes one in. It takes the place of the last one of its connection. Without a place, a reset
    /// is dropped: its peer gets another one for its next packet. Any other answer drops the peer's
    /// oldest reset.
    pub fn push(&mut self, answer: &Header) {
        let is = |header: &Header, operation: Operation| header.op == operation as u16;
        let waiting = &mut self.waiting[..self.len];
        if let Some(last) = waiting.iter_mut().find(|last| is_of_one_connection(last, answer)) {
            match is(answer, Operation::CreditUpdate) {
                true if is(last, Operation::Reset) => {}
                // It says the same, and that it accepts.
                true => (last.buf_alloc, last.fwd_cnt) = (answer.buf_alloc, answer.fwd_cnt),
                false => *last = *answer,
            }
            return;
        }
        let its = |header: &Header| header.dst_cid == answer.dst_cid;
        if waiting.iter().filter(|header| its(header)).count() >= FOR_A_PEER {
            let is_reset = |header: &Header| its(header) && is(header, Operation::Reset);
            let oldest = waiting.iter().position(is_reset);
            let Some(oldest) = oldest.filter(|_| !is(answer, Operation::Reset)) else { return };
            self.remove(oldest);
        }
        if let Some(place) = self.waiting.get_mut(self.len) {
            *place = *answer;
            self.len += 1;
        }
    }

    /// Takes out the one that waits longest.
    pub fn pop(&mut self) -> Option<Header> {
        (self.len > 0).then(|| self.remove(0))
    }

    fn remove(&mut self, place: usize) -> Header {
        let header = self.waiting[place];
        self.waiting.copy_within(place + 1..self.len, place);
        self.len -= 1;
        header
    }
}

fn is_of_one_connection(one: &Header, other: &Header) -> bool {
    let ends = |header: &Header| -> (Cid, u32, u32, u16) {
        (header.dst_cid, header.dst_port, header.src_port, header.kind)
    };
    ends(one) == ends(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(peer: u64, port: u32, operation: Operation) -> Header {
        let dst_cid = Cid(peer);
        Header { dst_cid, dst_port: port, op: operation as u16, ..Header::ZERO }
    }

    #[test]
    fn a_connection_has_one_answer() {
        let mut answers = Answers::new();
        answers.push(&answer(3, 1, Operation::Response));
        let update = answer(3, 1, Operation::CreditUpdate);
        answers.push(&Header { buf_alloc: 9, fwd_cnt: 7, ..update });
        answers.push(&answer(3, 2, Operation::CreditUpdate));
        answers.push(&answer(3, 2, Operation::Reset));
        answers.push(&answer(3, 2, Operation::CreditUpdate));
        let accepted = answer(3, 1, Operation::Response);
        assert_eq!(answers.pop(), Some(Header { buf_alloc: 9, fwd_cnt: 7, ..accepted }));
        assert_eq!(answers.pop(), Some(answer(3, 2, Operation::Reset)));
        assert_eq!(answers.pop(), None);
        assert!(answers.is_empty());
    }

    /// Whatever one peer makes a VM answer, the answers to the others are kept.
    #[test]
    fn a_peer_uses_up_its_own_places_alone() {
        let mut answers = Answers::new();
        for operation in [Operation::Reset, Operation::Response] {
            (0..1000).for_each(|port| answers.push(&answer(9, port, operation)));
        }
        for peer in 3..9 {
            for port in 0..16 {
                answers.push(&answer(peer, port, Operation::CreditUpdate));
            }
        }
        let mut got = std::collections::BTreeMap::new();
        while let Some(header) = answers.pop() {
            *got.entry((header.dst_cid.0, header.op)).or_insert(0) += 1;
        }
        let mut wanted: Vec<_> =
            (3..9).map(|peer| ((peer, Operation::CreditUpdate as u16), 16)).collect();
        wanted.push(((9, Operation::Response as u16), 16));
        assert_eq!(got.into_iter().collect::<Vec<_>>(), wanted);
    }
}
