//! The host's decoder of the wire.

use crate::wire::{
    Boots, ConsoleMark, DLE, Denials, FlowCounts, FrameKind, PortCounts, TraceRecords,
    VcpuCounters, WireEvent,
};
use zerocopy::FromBytes;

/// A decoded piece of the wire's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WirePiece {
    /// A console byte of the VM named by the last [`ConsoleMark`].
    Byte(u8),
    /// A console mark.
    Mark(ConsoleMark),
    /// An event.
    Event(WireEvent),
    /// Counters of a vCPU.
    Counters(VcpuCounters),
    /// Denials of a VM.
    Denials(Denials),
    /// Counts of a flow.
    Flow(FlowCounts),
    /// Counts of a network device.
    Port(PortCounts),
    /// The boots of a VM.
    Boots(Boots),
    /// Records of a core's trace.
    Trace(TraceRecords),
    /// A frame of an unknown kind, with a wrong sum or a wrong length: bytes were lost or changed.
    /// The frame's bytes follow as console bytes, whose owner is unknown until the next mark.
    Damaged,
}

/// Bytes of a frame in addition to its payload: `DLE`, kind, length and sum.
const AROUND: usize = 4;

/// Decodes the wire's stream.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// The bytes that are not decoded yet.
    window: [u8; 255 + AROUND],
    len: usize,
    /// Whether the last frame was damaged.
    lost: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { window: [0; 255 + AROUND], len: 0, lost: false }
    }
}

impl Decoder {
    /// Takes the next byte. [`Self::next_piece`] must have returned all pieces before.
    pub fn push(&mut self, byte: u8) {
        self.window[self.len] = byte;
        self.len += 1;
    }

    /// Returns the next complete piece. One byte can complete several: after a lost byte, a frame
    /// seems to last into the next one.
    pub fn next_piece(&mut self) -> Option<WirePiece> {
        loop {
            let (used, piece) = self.first()?;
            self.window.copy_within(used..self.len, 0);
            self.len -= used;
            let damaged = piece == WirePiece::Damaged;
            // Bytes of a damaged frame can look like further frames; these are not reported again.
            let known = damaged && self.lost;
            self.lost = damaged || self.lost && matches!(piece, WirePiece::Byte(_));
            if !known {
                return Some(piece);
            }
        }
    }

    /// Returns the first piece of the window and its number of bytes, or `None` if it is
    /// incomplete.
    fn first(&self) -> Option<(usize, WirePiece)> {
        match self.window[..self.len] {
            [] | [DLE] => None,
            [DLE, DLE, ..] => Some((2, WirePiece::Byte(DLE))),
            [DLE, kind, ref rest @ ..] => {
                let Some(expected) = payload_len(kind) else {
                    return Some((1, WirePiece::Damaged));
                };
                let (&length, rest) = rest.split_first()?;
                if usize::from(length) != expected {
                    return Some((1, WirePiece::Damaged));
                }
                let (payload, &sum) = (rest.get(..expected)?, rest.get(expected)?);
                match piece(kind, payload).filter(|_| sum == sum_of(kind, payload)) {
                    Some(piece) => Some((expected + AROUND, piece)),
                    None => Some((1, WirePiece::Damaged)),
                }
            }
            [byte, ..] => Some((1, WirePiece::Byte(byte))),
        }
    }
}

/// Returns the sum at the end of a frame.
fn sum_of(kind: u8, payload: &[u8]) -> u8 {
    let start = kind.wrapping_add(payload.len() as u8);
    payload.iter().fold(start, |sum, byte| sum.wrapping_add(*byte))
}

macro_rules! kinds {
    ($($kind:ident($payload:ident),)*) => {
        /// Returns the length of the payload of a kind of frame.
        const fn payload_len(kind: u8) -> Option<usize> {
            $(if kind == FrameKind::$kind as u8 {
                return Some(size_of::<$payload>());
            })*
            None
        }

        fn piece(kind: u8, payload: &[u8]) -> Option<WirePiece> {
            $(if kind == FrameKind::$kind as u8 {
                return $payload::read_from_bytes(payload).ok().map(WirePiece::$kind);
            })*
            None
        }
    };
}

kinds! {
    Mark(ConsoleMark),
    Event(WireEvent),
    Counters(VcpuCounters),
    Denials(Denials),
    Flow(FlowCounts),
    Port(PortCounts),
    Boots(Boots),
    Trace(TraceRecords),
}
