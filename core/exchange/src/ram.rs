//! Where the service VM sees the RAM of the VMs that it serves.

pub use super::sizes::PIECES;
use super::{
    sizes::PORTS,
    sync::{AtomicU64, fence},
};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// A piece of a VM's RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Where the VM sees it.
    pub ipa: u64,
    /// Where the service VM sees it.
    pub address: u64,
    /// Bytes.
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

/// Where the service VM sees RAM. Written by EL2 before the service VM starts.
#[derive(Debug)]
#[repr(C)]
pub struct Map {
    pieces: [PieceWords; PIECES],
    /// Of each port the first piece, in bits 31:0, and the end of its pieces.
    ranges: [AtomicU64; PORTS],
    /// Pieces so far.
    count: AtomicU64,
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl Map {
    /// All zeros: without RAM.
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

    /// EL2 says where RAM of the VM at port `index` is, before the service VM starts. Pieces that
    /// follow each other at both places become one. Returns false if there are too many pieces; the
    /// service VM then reaches those that fit.
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

    /// Returns the first piece of the VM at port `index`; without bytes if it has none.
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

    /// Returns where the service VM sees address `ipa` of the VM at port `index`, and how many
    /// bytes of RAM follow it there.
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
