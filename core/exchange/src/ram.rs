//! The addresses at which the service VM sees the RAM of the VMs that it serves.

pub use super::sizes::PIECES;
use super::{
    sizes::PORTS,
    sync::{AtomicU64, fence},
};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// A piece of a VM's RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Address at which the VM sees the piece.
    pub ipa: u64,
    /// Address at which the service VM sees the piece.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A [`Piece`] in the exchange.
#[derive(Debug)]
#[repr(C)]
struct PieceWords {
    ipa: AtomicU64,
    address: AtomicU64,
    len: AtomicU64,
}

/// The addresses at which the service VM sees RAM. Written by EL2 before the service VM starts.
#[derive(Debug)]
#[repr(C)]
pub struct Map {
    pieces: [PieceWords; PIECES],
    /// The pieces of each port: the index of the first in bits 31:0, and the end above.
    ranges: [AtomicU64; PORTS],
    /// Number of pieces so far.
    count: AtomicU64,
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl Map {
    /// Returns a map without RAM: all words are zero.
    #[must_use]
    pub fn new() -> Self {
        let piece = |_| PieceWords {
            ipa: AtomicU64::new(0),
            address: AtomicU64::new(0),
            len: AtomicU64::new(0),
        };
        Self {
            pieces: core::array::from_fn(piece),
            ranges: core::array::from_fn(|_| AtomicU64::new(0)),
            count: AtomicU64::new(0),
        }
    }

    /// Sets the pieces of the RAM of the VM at port `index`. Called by EL2 before the service VM
    /// starts. Pieces that are adjacent in both address spaces are merged. Returns false if there
    /// are too many pieces; the service VM then reaches those that fit.
    pub fn set(&self, index: usize, ram: impl IntoIterator<Item = Piece>) -> bool {
        let first = self.count.load(Relaxed);
        let mut end = first;
        let mut last = Piece::default();
        let mut fits = true;
        for piece in ram {
            let follows = |start: u64, next: u64| start.checked_add(last.len) == Some(next);
            if end > first && follows(last.ipa, piece.ipa) && follows(last.address, piece.address) {
                last.len = last.len.saturating_add(piece.len);
                end -= 1;
            } else {
                last = piece;
            }
            let Some(place) = self.pieces.get(end as usize) else {
                fits = false;
                break;
            };
            place.ipa.store(last.ipa, Relaxed);
            place.address.store(last.address, Relaxed);
            place.len.store(last.len, Relaxed);
            end += 1;
        }
        self.count.store(end, Relaxed);
        self.ranges[index % PORTS].store(first | end << 32, Relaxed);
        fence(Release);
        fits
    }

    /// Returns the first piece of the VM at port `index`; its length is 0 if the VM has none.
    #[must_use]
    pub fn first(&self, index: usize) -> Piece {
        let range = self.ranges[index % PORTS].load(Relaxed);
        let (first, end) = (range as u32 as usize, (range >> 32) as usize);
        let piece = self.pieces.get(first).filter(|_| first < end);
        piece.map_or_else(Piece::default, |piece| Piece {
            ipa: piece.ipa.load(Relaxed),
            address: piece.address.load(Relaxed),
            len: piece.len.load(Relaxed),
        })
    }

    /// Returns the address at which the service VM sees address `ipa` of the VM at port `index`,
    /// and the number of contiguous bytes of RAM from there on.
    #[must_use]
    pub fn find(&self, index: usize, ipa: u64) -> Option<(u64, u64)> {
        let range = self.ranges[index % PORTS].load(Relaxed);
        let (first, end) = (range as u32 as usize, (range >> 32) as usize);
        let pieces = self.pieces.get(first..end.min(PIECES))?;
        pieces.iter().find_map(|piece| {
            let offset = ipa.wrapping_sub(piece.ipa.load(Relaxed));
            let left = piece.len.load(Relaxed).checked_sub(offset).filter(|left| *left > 0)?;
            Some((piece.address.load(Relaxed).wrapping_add(offset), left))
        })
    }
}
