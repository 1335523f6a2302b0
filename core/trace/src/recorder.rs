//! The ring that a core writes its trace to: always on, overwriting, without an index of the
//! reader's, so that reading does not change the run.
//!
//! In memory it is a header of 64 bytes ([`RingHeader`]), then `N` slots of 32 bytes. Record `n` of
//! a core, counted from 0, is in slot `n` modulo `N`; `head` is the number of records with
//! complete slots. One barrier in each push, between a record's words and the new `head`, orders
//! both: a reader of that `head` sees these words, and a reader of one of the *next* record's words
//! sees this `head`'s predecessor or a later one. So a reader that finds `head = h` after it has
//! copied slots knows that only records `h` and `h + 1` can have been under way meanwhile, and that
//! records `h + 2 - N` up to `h - 1` were whole.

use super::{
    record::{Record, Tag, join},
    sync::{AtomicU64, Ordering, fence},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of a ring in use.
pub const MAGIC: [u8; 8] = *b"weirring";
/// Changes with each change of the layout.
pub const VERSION: u16 = 1;
/// Bytes of a slot.
pub const SLOT: usize = 32;
/// Bytes of the header.
pub const HEADER: usize = 64;

/// Slots in which the writer may be busy: that of the record under way, and by its one barrier that
/// of the next.
pub(crate) const UNDER_WAY: u64 = 2;

/// What a ring begins with, little endian.
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
    /// Slots, a power of two.
    pub capacity: u32,
    /// The core that writes.
    pub core: u64,
    /// Ticks of the counter a second.
    pub frequency: u64,
    /// The counter at time zero: the hypervisor's start.
    pub zero: u64,
    /// Records pushed so far.
    pub head: u64,
    /// Zeros.
    pub reserved: [u64; 2],
}

/// Words of the header.
const MAGIC_WORD: usize = 0;
const LAYOUT_WORD: usize = 1;
const CORE_WORD: usize = 2;
const FREQUENCY_WORD: usize = 3;
const ZERO_WORD: usize = 4;
const HEAD_WORD: usize = 5;
/// Words of header and slot.
pub(crate) const HEADER_WORDS: usize = HEADER / 8;
pub(crate) const SLOT_WORDS: usize = SLOT / 8;

/// A ring of `N` records (a power of two), of one core.
///
/// Only that core pushes, with its interrupts masked: two writers at once would mix records, though
/// they could not break memory safety. Its memory has any contents until [`TraceRing::clear`].
#[repr(C, align(64))]
pub struct TraceRing<const N: usize> {
    pub(super) header: [AtomicU64; HEADER_WORDS],
    pub(super) slots: [[AtomicU64; SLOT_WORDS]; N],
}

impl<const N: usize> TraceRing<N> {
    /// What a record's number and this are that record's slot.
    pub(super) const MASK: u64 = {
        assert!(N.is_power_of_two() && N >= 4 && N <= 1 << 16);
        N as u64 - 1
    };

    /// Empties it, before its core pushes anything. Slots keep what they have but for the one of
    /// which [`TraceRing::latest`] reads the time before the first record.
    pub fn clear(&self) {
        let newest = &self.slots[Self::MASK as usize];
        for word in self.header.iter().chain(newest) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Lets readers know that core `core` writes from now on. `frequency` is CNTFRQ_EL0 in Hz,
    /// `zero` the counter at the moment that is called zero.
    pub fn begin(&self, core: usize, frequency: u64, zero: u64) {
        let layout = u64::from(VERSION) | (SLOT as u64) << 16 | (N as u64) << 32;
        self.header[LAYOUT_WORD].store(layout, Ordering::Relaxed);
        self.header[CORE_WORD].store(core as u64, Ordering::Relaxed);
        self.header[FREQUENCY_WORD].store(frequency, Ordering::Relaxed);
        self.header[ZERO_WORD].store(zero, Ordering::Relaxed);
        // Release: the stores above come before this one.
        self.header[MAGIC_WORD].store(u64::from_le_bytes(MAGIC), Ordering::Release);
    }

    /// Records something that happens at `time`, in ticks of the counter. `other` keeps its low 48
    /// bits.
    #[inline]
    pub fn push(&self, time: u64, tag: Tag, count: u64, other: u64) {
        let head = self.header[HEAD_WORD].load(Ordering::Relaxed);
        let slot = &self.slots[(head & Self::MASK) as usize];
        slot[0].store(time, Ordering::Relaxed);
        slot[1].store(tag.0, Ordering::Relaxed);
        slot[2].store(count, Ordering::Relaxed);
        slot[3].store(join(other, head), Ordering::Relaxed);
        // The stores above come before that of `head` below; and the last push's store of `head`
        // before those of the next push.
        fence(Ordering::Release);
        self.header[HEAD_WORD].store(head.wrapping_add(1), Ordering::Relaxed);
    }

    /// The time of the newest record, for the core that writes; 0 before the first.
    #[inline]
    #[must_use]
    pub fn latest(&self) -> u64 {
        let head = self.header[HEAD_WORD].load(Ordering::Relaxed);
        self.slots[(head.wrapping_sub(1) & Self::MASK) as usize][0].load(Ordering::Relaxed)
    }

    /// The number of records with complete slots, once the core has begun. What is copied
    /// after it is as new as that.
    pub(crate) fn head(&self) -> Option<u64> {
        let begun = self.header[MAGIC_WORD].load(Ordering::Acquire) == u64::from_le_bytes(MAGIC);
        let head = self.header[HEAD_WORD].load(Ordering::Relaxed);
        // The load of `head` comes before those of the slots.
        fence(Ordering::Acquire);
        begun.then_some(head)
    }

    /// Ticks a second, and the counter at time zero.
    pub(crate) fn clock(&self) -> (u64, u64) {
        let frequency = self.header[FREQUENCY_WORD].load(Ordering::Relaxed);
        (frequency, self.header[ZERO_WORD].load(Ordering::Relaxed))
    }

    /// Copies the slot of record `number`, which its core can overwrite at the same time.
    pub(crate) fn slot(&self, number: u64) -> Record {
        let slot = &self.slots[(number & Self::MASK) as usize];
        zerocopy::transmute!(slot.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Word `index` of header and slots; 0 behind them.
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
