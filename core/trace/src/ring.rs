//! A byte ring with one writer and one reader, in safe code.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// A ring of `N` bytes (a power of two) between one writer and one reader at a time.
///
/// Callers ensure that there is one of each at any moment: the hypervisor writes under the lock of
/// the VM's PL011, and only one core reads. Two writers at once would mix bytes; they could not
/// break memory safety.
pub struct ByteRing<const N: usize> {
    bytes: [AtomicU8; N],
    /// Number of bytes ever written, modulo 2^32; only the writer stores it.
    head: AtomicU32,
    /// Number of bytes ever read, modulo 2^32; only the reader stores it.
    tail: AtomicU32,
}

impl<const N: usize> ByteRing<N> {
    const MASK: u32 = {
        assert!(N.is_power_of_two() && N <= 1 << 30);
        N as u32 - 1
    };

    /// Returns an empty ring.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [const { AtomicU8::new(0) }; N],
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
        }
    }

    /// Appends a byte; returns false and writes nothing if the ring is full.
    pub fn push(&self, byte: u8) -> bool {
        self.push_all(&[byte])
    }

    /// Appends all of `bytes`, or none if they do not all fit; the reader sees them all at once.
    pub fn push_all(&self, bytes: &[u8]) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        // Acquire: the reader's loads of these slots come before our stores to them.
        let tail = self.tail.load(Ordering::Acquire);
        let used = head.wrapping_sub(tail) as usize;
        if bytes.len() > N.saturating_sub(used) {
            return false;
        }
        // Up to the end of the array, then from its start.
        let (start, behind) = self.bytes.split_at((head & Self::MASK) as usize);
        let (first, rest) = bytes.split_at(bytes.len().min(behind.len()));
        for (slots, bytes) in [(behind, first), (start, rest)] {
            for (slot, &byte) in slots.iter().zip(bytes) {
                slot.store(byte, Ordering::Relaxed);
            }
        }
        // Release: our stores to the slots come before the reader's loads of them.
        self.head.store(head.wrapping_add(bytes.len() as u32), Ordering::Release);
        true
    }

    /// Returns the numbers of bytes ever written and ever read, modulo 2^32.
    #[must_use]
    pub fn positions(&self) -> (u32, u32) {
        // The reader's position is loaded first: it never passes the writer's.
        let read = self.tail.load(Ordering::Acquire);
        (self.head.load(Ordering::Acquire), read)
    }

    /// Returns the number of bytes that can be appended.
    #[must_use]
    pub fn room(&self) -> usize {
        N.saturating_sub(self.len())
    }

    /// Takes the oldest byte.
    pub fn pop(&self) -> Option<u8> {
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire: the writer's store to this slot comes before our load of it.
        if self.head.load(Ordering::Acquire) == tail {
            return None;
        }
        let byte = self.bytes[(tail & Self::MASK) as usize].load(Ordering::Relaxed);
        // Release: our load of the slot comes before the writer's next store to it.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Some(byte)
    }

    /// Returns the number of bytes that wait, at most `N`.
    #[must_use]
    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        head.wrapping_sub(self.tail.load(Ordering::Acquire)) as usize & (2 * N - 1)
    }

    /// Whether no bytes wait.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<const N: usize> Default for ByteRing<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::ByteRing;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn equals_a_bounded_queue(
            steps in prop::collection::vec(prop::option::of(any::<u8>()), 0..400),
        ) {
            let (ring, mut queue) = (ByteRing::<16>::new(), VecDeque::new());
            for step in steps {
                if let Some(byte) = step {
                    let room = queue.len() < 16;
                    if room { queue.push_back(byte); }
                    prop_assert_eq!(ring.push(byte), room);
                } else {
                    prop_assert_eq!(ring.pop(), queue.pop_front());
                }
                prop_assert_eq!(ring.len(), queue.len());
                prop_assert_eq!(ring.room(), 16 - queue.len());
            }
        }
    }

    #[test]
    fn many_bytes_go_in_together_or_not_at_all() {
        let ring = ByteRing::<8>::new();
        assert!(ring.push_all(b"abcde"));
        assert!(!ring.push_all(b"wxyz"));
        assert_eq!(ring.room(), 3);
        assert!(ring.push_all(b"fgh"));
        assert!(ring.room() == 0 && !ring.push_all(b"i") && ring.push_all(b""));
        assert_eq!(std::iter::from_fn(|| ring.pop()).collect::<Vec<_>>(), b"abcdefgh");
    }

    #[test]
    fn a_concurrent_reader_gets_every_byte_in_order() {
        let ring = ByteRing::<8>::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for byte in (0..=255u8).cycle().take(100_000) {
                    while !ring.push(byte) {
                        std::thread::yield_now();
                    }
                }
            });
            for byte in (0..=255u8).cycle().take(100_000) {
                loop {
                    if let Some(read) = ring.pop() {
                        assert_eq!(read, byte);
                        break;
                    }
                    std::thread::yield_now();
                }
            }
        });
    }
}
