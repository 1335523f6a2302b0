//! The ring to which a core writes its trace. It is always on, overwrites old records and has no
//! index of the reader, so reading does not influence the run.
//!
//! In memory it is a header of 64 bytes ([`RingHeader`]), then `N` slots of 32 bytes. Record `n` of
//! a core, counted from 0, is in slot `n` modulo `N`; `head` is the number of records with complete
//! slots. One barrier in each push, between a record's words and the new `head`, gives two orders:
//! a reader of that `head` sees these words, and a reader of one of the *next* record's words sees
//! at least the `head` before this one. So a reader that finds `head = h` after it has copied slots
//! knows that only records `h` and `h + 1` can have been in progress meanwhile, and that records `h
//! + 2 - N` to `h - 1` were complete.

use super::{
    record::{Record, Tag, join},
    sync::{AtomicU64, Ordering, fence},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of a ring whose core has begun to write.
pub const MAGIC: [u8; 8] = *b"weirring";
/// Version of the layout; changes with each change of it.
pub const VERSION: u16 = 1;
/// Bytes of a slot.
pub const SLOT: usize = 32;
/// Bytes of the header.
pub const HEADER: usize = 64;

/// Number of slots that the writer may be changing: that of the record in progress and, because a
/// push has only one barrier, that of the next record.
pub(crate) const UNDER_WAY: u64 = 2;

/// Header of a ring, little endian.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RingHeader {
    /// [`MAGIC`]; anything else before the core has begun.
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u16,
    /// [`SLOT`].
    pub slot: u16,
    /// Number of slots, a power of two.
    pub capacity: u32,
    /// The core that writes the ring.
    pub core: u64,
    /// The counter's frequency in ticks per second.
    pub frequency: u64,
    /// The counter's value at time zero, which is the hypervisor's start.
    pub zero: u64,
    /// Number of records pushed so far.
    pub head: u64,
    /// Zeros.
    pub reserved: [u64; 2],
}

/// Indices of the header's words.
const MAGIC_WORD: usize = 0;
const LAYOUT_WORD: usize = 1;
const CORE_WORD: usize = 2;
const FREQUENCY_WORD: usize = 3;
const ZERO_WORD: usize = 4;
const HEAD_WORD: usize = 5;
/// Numbers of words of the header and of a slot.
pub(crate) const HEADER_WORDS: usize = HEADER / 8;
pub(crate) const SLOT_WORDS: usize = SLOT / 8;

/// A ring of `N` records (a power of two) of one core.
///
/// Only that core pushes, with its interrupts masked: two writers at once would mix records, though
/// they could not break memory safety. The memory can have any contents until [`TraceRing::clear`].
#[repr(C, align(64))]
pub struct TraceRing<const N: usize> {
    pub(super) header: [AtomicU64; HEADER_WORDS],
    pub(super) slots: [[AtomicU64; SLOT_WORDS]; N],
}

impl<const N: usize> TraceRing<N> {
    /// Mask that turns a record's number into the number of its slot.
    pub(super) const MASK: u64 = {
        assert!(N.is_power_of_two() && N >= 4 && N <= 1 << 16);
        N as u64 - 1
    };

    /// Empties the ring before its core pushes the first record. Slots keep their contents, except
    /// the one from which [`TraceRing::latest`] reads the time before the first record.
    pub fn clear(&self) {
        let newest = &self.slots[Self::MASK as usize];
        for word in self.header.iter().chain(newest) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Announces to readers that core `core` writes the ring from now on. `frequency` is CNTFRQ_EL0
    /// in Hz, `zero` the counter's value at time zero.
    pub fn begin(&self, core: usize, frequency: u64, zero: u64) {
        let layout = u64::from(VERSION) | (SLOT as u64) << 16 | (N as u64) << 32;
        self.header[LAYOUT_WORD].store(layout, Ordering::Relaxed);
        self.header[CORE_WORD].store(core as u64, Ordering::Relaxed);
        self.header[FREQUENCY_WORD].store(frequency, Ordering::Relaxed);
        self.header[ZERO_WORD].store(zero, Ordering::Relaxed);
        // Release: the stores above come before this one.
        self.header[MAGIC_WORD].store(u64::from_le_bytes(MAGIC), Ordering::Release);
    }

    /// Records an event at `time`, in ticks of the counter. The low 48 bits of `other` are kept.
    #[inline]
    pub fn push(&self, time: u64, tag: Tag, count: u64, other: u64) {
        let head = self.header[HEAD_WORD].load(Ordering::Relaxed);
        let slot = &self.slots[(head & Self::MASK) as usize];
        slot[0].store(time, Ordering::Relaxed);
        slot[1].store(tag.0, Ordering::Relaxed);
        slot[2].store(count, Ordering::Relaxed);
        slot[3].store(join(other, head), Ordering::Relaxed);
        // Release: the stores above come before that of `head` below, and the store of `head` by
        // the previous push comes before the stores of the next push.
        fence(Ordering::Release);
        self.header[HEAD_WORD].store(head.wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the newest record's time, for the core that writes; 0 before the first record.
    #[inline]
    #[must_use]
    pub fn latest(&self) -> u64 {
        let head = self.header[HEAD_WORD].load(Ordering::Relaxed);
        self.slots[(head.wrapping_sub(1) & Self::MASK) as usize][0].load(Ordering::Relaxed)
    }

    /// Returns the number of records with complete slots, once the core has begun. Slots copied
    /// afterwards are at least as new.
    pub(crate) fn head(&self) -> Option<u64> {
        let begun = self.header[MAGIC_WORD].load(Ordering::Acquire) == u64::from_le_bytes(MAGIC);
        let head = self.header[HEAD_WORD].load(Ordering::Relaxed);
        // Acquire: the load of `head` comes before those of the slots.
        fence(Ordering::Acquire);
        begun.then_some(head)
    }

    /// Returns the ticks per second and the counter's value at time zero.
    pub(crate) fn clock(&self) -> (u64, u64) {
        let frequency = self.header[FREQUENCY_WORD].load(Ordering::Relaxed);
        (frequency, self.header[ZERO_WORD].load(Ordering::Relaxed))
    }

    /// Copies the slot of record `number`, which the ring's core may overwrite during the copy.
    pub(crate) fn slot(&self, number: u64) -> Record {
        let slot = &self.slots[(number & Self::MASK) as usize];
        zerocopy::transmute!(slot.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Returns word `index` of header and slots; 0 after the last slot.
    #[cfg(any(feature = "decode", test))]
    pub(crate) fn word(&self, index: usize) -> u64 {
        let word = match index.checked_sub(HEADER_WORDS) {
            None => self.header.get(index),
            Some(index) => {
                self.slots.get(index / SLOT_WORDS).and_then(|slot| slot.get(index % SLOT_WORDS))
            }
        };
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }
}
