//! A reader of the rings of [`recorder`](super::recorder) from outside, while they are written.

use super::{
    record::Record,
    recorder::{HEADER, MAGIC, RingHeader, SLOT, TraceRing, UNDER_WAY, VERSION},
    sync::{Ordering, fence},
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Records that are copied before `head` is read again.
const CHUNK: usize = 64;
/// How many times to read the header, until two consecutive reads are equal.
const PATIENCE: usize = 16;

/// Access to the bytes of one ring.
pub trait RingMemory {
    /// Fills `into` with the bytes from `offset` on, read in no certain order. Returns false if
    /// they can't be read; the contents of `into` are then meaningless.
    fn read(&mut self, offset: usize, into: &mut [u8]) -> bool;
}

/// Memory that is no longer written.
impl RingMemory for &[u8] {
    fn read(&mut self, offset: usize, into: &mut [u8]) -> bool {
        let bytes = self.get(offset..).and_then(|bytes| bytes.get(..into.len()));
        bytes.is_some_and(|bytes| {
            into.copy_from_slice(bytes);
            true
        })
    }
}

/// A ring in this program's own memory, which is read in whole words.
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

/// A record that was read, or the number of those that could not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEntry {
    /// A complete record.
    Record(Record),
    /// Number of records at this place that were overwritten before they were read, or are damaged.
    Lost(u64),
}

/// Constant properties of a ring, from its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFacts {
    /// The core that writes the ring.
    pub core: u8,
    /// Number of slots.
    pub capacity: u32,
    /// The counter's frequency in ticks per second, not 0.
    pub frequency: u64,
    /// The counter's value at time zero.
    pub zero: u64,
}

/// Reads one ring, each record once.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Size of the ring in bytes.
    bytes: usize,
    facts: Option<RingFacts>,
    /// The number of the next record.
    next: u64,
}

impl Reader {
    /// Returns a reader of a ring of `bytes` bytes that begins with the ring's first record.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self { bytes, facts: None, next: 0 }
    }

    /// Returns the ring's properties, once its core has begun to write.
    #[must_use]
    pub const fn facts(&self) -> Option<RingFacts> {
        self.facts
    }

    /// Passes the records pushed since the last call to `sink`, in order, and returns their number,
    /// lost ones included. Returns 0 if the ring has not begun, can't be read or is not valid.
    pub fn take(&mut self, memory: &mut impl RingMemory, mut sink: impl FnMut(RingEntry)) -> u64 {
        let Some(head) = self.head(memory) else { return 0 };
        let Some(capacity) = self.facts.map(|facts| u64::from(facts.capacity)) else { return 0 };
        let first = self.next;
        if head < first {
            // A ring's `head` only grows, so this ring was started again by another writer.
            return 0;
        }
        let mut lost = 0;
        let mut bytes = [0; CHUNK * SLOT];
        while self.next < head {
            // A record that is certainly overwritten is not read.
            let oldest = head.saturating_sub(capacity).max(self.next);
            lost += oldest - self.next;
            self.next = oldest;
            let slot = oldest & (capacity - 1);
            let count = (head - oldest).min(capacity - slot).min(CHUNK as u64);
            let bytes = &mut bytes[..count as usize * SLOT];
            if !memory.read(HEADER + slot as usize * SLOT, bytes) {
                break;
            }
            // Acquire: the loads of the slots come before that of `head`.
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

    /// Returns the number of records with complete slots, once the ring has begun; slots copied
    /// afterwards are at least as new. `None` if the header keeps changing while it is read, or if
    /// this is no ring.
    fn head(&mut self, memory: &mut impl RingMemory) -> Option<u64> {
        let mut read = || {
            let mut header = RingHeader::new_zeroed();
            memory.read(0, header.as_mut_bytes()).then_some(header)
        };
        let mut last = read()?;
        // A copy of eight bytes is not guaranteed to be a single access, but a header that reads
        // the same twice did not change in between.
        let head = (0..PATIENCE).find_map(|_| {
            let header = read()?;
            let same = header == last;
            last = header;
            same.then_some(header)
        })?;
        // Acquire: the load of `head` comes before those of the slots.
        fence(Ordering::Acquire);
        let facts = facts(&head, self.bytes)?;
        (*self.facts.get_or_insert(facts) == facts).then_some(head.head)
    }
}

/// Returns the properties in a header, if it is valid and the ring fits into `bytes` bytes.
fn facts(header: &RingHeader, bytes: usize) -> Option<RingFacts> {
    let known =
        header.magic == MAGIC && header.version == VERSION && usize::from(header.slot) == SLOT;
    let room = bytes.saturating_sub(HEADER) / SLOT;
    let capacity = header.capacity.is_power_of_two() && header.capacity as usize <= room;
    // No machine reaches greater numbers; with these limits the computations fit into 64 bits.
    let sane = header.frequency > 0 && header.capacity >= 4 && header.head < 1 << 63;
    (known && capacity && sane).then_some(RingFacts {
        core: u8::try_from(header.core).ok()?,
        capacity: header.capacity,
        frequency: header.frequency,
        zero: header.zero,
    })
}
