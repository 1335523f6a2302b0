//! Reads the rings of [`recorder`](super::recorder) from outside, while they are written.

use super::{
    record::Record,
    recorder::{HEADER, MAGIC, RingHeader, SLOT, TraceRing, UNDER_WAY, VERSION},
    sync::{Ordering, fence},
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Records that are copied before `head` is read again.
const CHUNK: usize = 64;
/// How often to look for a `head` that reads the same twice.
const PATIENCE: usize = 16;

/// The bytes of one ring, as far as they can be reached.
pub trait RingMemory {
    /// Fills `into` with the bytes from `offset` on, in no certain order; false, and nothing of use
    /// in `into`, when they can't be read.
    fn read(&mut self, offset: usize, into: &mut [u8]) -> bool;
}

/// Memory that is not written any more.
impl RingMemory for &[u8] {
    fn read(&mut self, offset: usize, into: &mut [u8]) -> bool {
        let bytes = self.get(offset..).and_then(|bytes| bytes.get(..into.len()));
        bytes.is_some_and(|bytes| {
            into.copy_from_slice(bytes);
            true
        })
    }
}

/// A ring of this program's own, whole words at a time.
impl<const N: usize> RingMemory for &TraceRing<N> {
    fn read(&mut self, offset: usize, into: &mut [u8]) -> bool {
        if !offset.is_multiple_of(8) || offset.saturating_add(into.len()) > HEADER + N * SLOT {
            return false;
        }
        for (place, word) in into.chunks_mut(8).enumerate() {
            let bytes = self.word(offset / 8 + place).to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
        true
    }
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEntry {
    /// A record, whole.
    Record(Record),
    /// So many records, here, were overwritten before they were read, or are damaged.
    Lost(u64),
}

/// What a ring says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFacts {
    /// The core that writes.
    pub core: u8,
    /// Slots.
    pub capacity: u32,
    /// Ticks of the counter a second, not 0.
    pub frequency: u64,
    /// The counter at time zero.
    pub zero: u64,
}

/// Reads one ring, each record once.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Bytes of the ring.
    bytes: usize,
    facts: Option<RingFacts>,
    /// The number of the next record.
    next: u64,
}

impl Reader {
    /// A reader of a ring of `bytes` bytes, from its first record on.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self { bytes, facts: None, next: 0 }
    }

    /// What the ring says of itself, once its core has begun.
    #[must_use]
    pub const fn facts(&self) -> Option<RingFacts> {
        self.facts
    }

    /// Gives `sink` what was pushed since the last time, in order, and returns the number of
    /// records, lost ones included. Nothing while the ring has not begun, can't be read or is not
    /// one.
    pub fn take(&mut self, memory: &mut impl RingMemory, mut sink: impl FnMut(RingEntry)) -> u64 {
        let Some(head) = self.head(memory) else { return 0 };
        let Some(capacity) = self.facts.map(|facts| u64::from(facts.capacity)) else { return 0 };
        let first = self.next;
        if head < first {
            // A ring only grows; this one has another writer.
            return 0;
        }
        let mut lost = 0;
        let mut bytes = [0; CHUNK * SLOT];
        while self.next < head {
            // A record that can't be there any more is not read.
            let oldest = head.saturating_sub(capacity).max(self.next);
            lost += oldest - self.next;
            self.next = oldest;
            let slot = oldest & (capacity - 1);
            let count = (head - oldest).min(capacity - slot).min(CHUNK as u64);
            let bytes = &mut bytes[..count as usize * SLOT];
            if !memory.read(HEADER + slot as usize * SLOT, bytes) {
                break;
            }
            // The loads of the slots come before that of `head`.
            fence(Ordering::Acquire);
            let Some(now) = self.head(memory) else { break };
            let whole = (now + UNDER_WAY).saturating_sub(capacity);
            for (number, slot) in (oldest..).zip(bytes.chunks_exact(SLOT)) {
                match Record::read_from_bytes(slot) {
                    Ok(record) if number >= whole && record.sequence() == number as u16 => {
                        if lost > 0 {
                            sink(RingEntry::Lost(core::mem::take(&mut lost)));
                        }
                        sink(RingEntry::Record(record));
                    }
                    _ => lost += 1,
                }
            }
            self.next = oldest + count;
        }
        if lost > 0 {
            sink(RingEntry::Lost(lost));
        }
        self.next - first
    }

    /// The number of records with complete slots, once the ring has begun; what is copied
    /// after it is as new as that. `None` when the writer is too busy to get it whole, or when this
    /// is no ring.
    fn head(&mut self, memory: &mut impl RingMemory) -> Option<u64> {
        let mut read = || {
            let mut header = RingHeader::new_zeroed();
            memory.read(0, header.as_mut_bytes()).then_some(header)
        };
        let mut last = read()?;
        // A copy of eight bytes is not promised to be one access: what reads the same twice has not
        // changed meanwhile.
        let head = (0..PATIENCE).find_map(|_| {
            let header = read()?;
            let same = header == last;
            last = header;
            same.then_some(header)
        })?;
        // The load of `head` comes before those of the slots.
        fence(Ordering::Acquire);
        let facts = facts(&head, self.bytes)?;
        (*self.facts.get_or_insert(facts) == facts).then_some(head.head)
    }
}

/// What a header says, if it is one and the ring has its place in `bytes` bytes.
fn facts(header: &RingHeader, bytes: usize) -> Option<RingFacts> {
    let known =
        header.magic == MAGIC && header.version == VERSION && usize::from(header.slot) == SLOT;
    let room = bytes.saturating_sub(HEADER) / SLOT;
    let capacity = header.capacity.is_power_of_two() && header.capacity as usize <= room;
    // Numbers that no machine reaches: what is computed with them stays in 64 bits.
    let sane = header.frequency > 0 && header.capacity >= 4 && header.head < 1 << 63;
    (known && capacity && sane).then_some(RingFacts {
        core: u8::try_from(header.core).ok()?,
        capacity: header.capacity,
        frequency: header.frequency,
        zero: header.zero,
    })
}
