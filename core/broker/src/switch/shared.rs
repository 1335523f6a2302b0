//! What EL2 and the service VM share of the switch: its ports, and where the service VM sees the
//! RAM of the VMs at them.

use crate::{
    device::Device,
    sizes::PORTS,
    sync::{AtomicU64, fence},
};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Where the service VM sees it: behind the partition of the flows, in the same memory.
pub const ADDRESS: u64 = crate::shared::ADDRESS + OFFSET;
/// How far behind the start of that memory.
pub const OFFSET: u64 = 0x1_c000;
/// Most pieces of RAM of all ports.
pub const PIECES: usize = 256;

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

#[derive(Debug)]
#[repr(C)]
struct SharedPiece {
    ipa: AtomicU64,
    address: AtomicU64,
    len: AtomicU64,
}

/// What a system says of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The station's address, the first byte in the lowest eight bits; 0 where there is no port.
    pub mac: u64,
    /// Frames per second that the VM may send; 0 for no limit.
    pub rate: u64,
    /// Frames that may go at once.
    pub burst: u64,
    /// Bytes per second that the VM may send; 0 for no limit.
    pub bandwidth: u64,
    /// Whether stations that are at no port are behind this one.
    pub uplink: bool,
}

/// Counts of a port's frames since the system started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames of its VM that were passed on.
    pub sent: u64,
    /// Frames that its VM got.
    pub received: u64,
    /// Frames of its VM that were dropped for their rate.
    pub over_rate: u64,
    /// Frames of its VM that are malformed or from a foreign address.
    pub refused: u64,
    /// Frames to its VM that it had no buffer for.
    pub missed: u64,
}

/// A port of the switch.
#[derive(Debug)]
#[repr(C)]
pub struct Port {
    /// Written by EL2 before the service VM starts: MAC address, rate, burst, bandwidth, uplink;
    /// first piece and end of the pieces of RAM.
    settings: [AtomicU64; 7],
    /// The device.
    pub device: Device,
    /// Written by the service VM.
    counts: [AtomicU64; 5],
}

impl Port {
    fn new() -> Self {
        Self { settings: longs(), device: Device::new(), counts: longs() }
    }

    /// Returns what the system says of it.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let [mac, rate, burst, bandwidth, uplink, ..] = self.words();
        Settings { mac, rate, burst, bandwidth, uplink: uplink != 0 }
    }

    fn words(&self) -> [u64; 7] {
        self.settings.each_ref().map(|word| word.load(Relaxed))
    }

    /// Returns what became of its frames. The service VM counts, so they are its claims.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let [sent, received, over_rate, refused, missed] =
            self.counts.each_ref().map(|word| word.load(Relaxed));
        Counts { sent, received, over_rate, refused, missed }
    }

    /// Writes what became of its frames.
    pub(super) fn set_counts(&self, counts: Counts) {
        let Counts { sent, received, over_rate, refused, missed } = counts;
        let words = [sent, received, over_rate, refused, missed];
        self.counts.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
    }
}

/// All that EL2 and the service VM share of the switch: zeros until EL2 says what the ports are.
#[derive(Debug)]
#[repr(C)]
pub struct Shared {
    ports: [Port; PORTS],
    pieces: [SharedPiece; PIECES],
    /// Pieces so far.
    count: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    /// All zeros: without ports.
    #[must_use]
    pub fn new() -> Self {
        let piece = |_| SharedPiece {
            ipa: AtomicU64::new(0),
            address: AtomicU64::new(0),
            len: AtomicU64::new(0),
        };
        Self {
            ports: core::array::from_fn(|_| Port::new()),
            pieces: core::array::from_fn(piece),
            count: AtomicU64::new(0),
        }
    }

    /// Returns port `index`, a number below [`PORTS`].
    #[must_use]
    pub fn port(&self, index: usize) -> &Port {
        &self.ports[index % PORTS]
    }

    /// EL2 says what port `index` is and where RAM of its VM is, before the service VM starts.
    /// Pieces that follow each other at both places become one. Returns false if there are too many
    /// pieces; the service VM then reaches those that fit.
    pub fn configure(
        &self,
        index: usize,
        settings: &Settings,
        ram: impl IntoIterator<Item = Piece>,
    ) -> bool {
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
        let Settings { mac, rate, burst, bandwidth, uplink } = *settings;
        let words = [mac, rate, burst, bandwidth, uplink.into(), first, end];
        let place = &self.port(index).settings;
        place.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
        fence(Release);
        fits
    }

    /// Returns where the service VM sees address `ipa` of the VM at port `index`, and how many
    /// bytes of RAM follow it there.
    pub(super) fn find(&self, index: usize, ipa: u64) -> Option<(u64, u64)> {
        let [.., first, end] = self.port(index).words();
        let pieces = self.pieces.get(first as usize..(end as usize).min(PIECES))?;
        pieces.iter().find_map(|piece| {
            let offset = ipa.wrapping_sub(piece.ipa.load(Relaxed));
            let left = piece.len.load(Relaxed).checked_sub(offset).filter(|left| *left > 0)?;
            Some((piece.address.load(Relaxed).wrapping_add(offset), left))
        })
    }
}

fn longs<const N: usize>() -> [AtomicU64; N] {
    core::array::from_fn(|_| AtomicU64::new(0))
}
