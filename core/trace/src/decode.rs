//! The host's end of the wire.

use crate::wire::{Counters, DLE, Denials, Event, Flow, Lives, Mark, Port};
use zerocopy::FromBytes;

/// What the wire says, one piece at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A console byte of the VM named by the last [`Mark`].
    Byte(u8),
    /// A mark.
    Mark(Mark),
    /// An event.
    Event(Event),
    /// Counters of a vCPU.
    Counters(Counters),
    /// Denials of a VM.
    Denials(Denials),
    /// Counts of a flow.
    Flow(Flow),
    /// Counts of a network device.
    Port(Port),
    /// What became of a VM.
    Lives(Lives),
    /// A frame of an unknown kind, with a wrong sum or a wrong length: bytes were lost.
    Damaged,
}

/// Takes the wire apart.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    kind: u8,
    length: u8,
    got: u8,
    payload: [u8; 255],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    Escape,
    Length,
    Payload,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { state: State::Text, kind: 0, length: 0, got: 0, payload: [0; 255] }
    }
}

impl Decoder {
    /// Takes the next byte; gives a piece when one is complete.
    pub fn push(&mut self, byte: u8) -> Option<Piece> {
        match self.state {
            State::Text if byte == DLE => self.state = State::Escape,
            State::Text => return Some(Piece::Byte(byte)),
            State::Escape if byte == DLE => {
                self.state = State::Text;
                return Some(Piece::Byte(DLE));
            }
            State::Escape => {
                self.kind = byte;
                self.state = State::Length;
            }
            State::Length => {
                self.length = byte;
                self.got = 0;
                self.state = State::Payload;
            }
            State::Payload if self.got < self.length => {
                self.payload[usize::from(self.got)] = byte;
                self.got += 1;
            }
            State::Payload => {
                self.state = State::Text;
                return Some(self.piece(byte).unwrap_or(Piece::Damaged));
            }
        }
        None
    }

    fn piece(&self, sum: u8) -> Option<Piece> {
        let payload = &self.payload[..usize::from(self.length)];
        let expected = payload
            .iter()
            .fold(self.kind.wrapping_add(self.length), |sum, byte| sum.wrapping_add(*byte));
        if sum != expected {
            return None;
        }
        match self.kind {
            1 => Mark::read_from_bytes(payload).ok().map(Piece::Mark),
            2 => Event::read_from_bytes(payload).ok().map(Piece::Event),
            3 => Counters::read_from_bytes(payload).ok().map(Piece::Counters),
            4 => Denials::read_from_bytes(payload).ok().map(Piece::Denials),
            5 => Flow::read_from_bytes(payload).ok().map(Piece::Flow),
            6 => Port::read_from_bytes(payload).ok().map(Piece::Port),
            7 => Lives::read_from_bytes(payload).ok().map(Piece::Lives),
            _ => None,
        }
    }
}
