//! The part of a ring that one of several sources may fill, so that a source that floods the ring
//! loses only its own records.

/// The use of a [`ByteRing`](crate::ring::ByteRing) by one of the sources that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of records since the reader last had read all of them; at least those that wait.
    used: u32,
    /// The ring's position after the source's last record.
    end: u32,
    /// Records that did not fit.
    lost: u32,
}

impl Quota {
    /// Returns a quota of which nothing is used.
    #[must_use]
    pub const fn new() -> Self {
        Self { used: 0, end: 0, lost: 0 }
    }

    /// Returns whether `len` more bytes fit into the source's `most` bytes, in a ring with writer
    /// and reader at these positions. The source may fill `most` bytes again when the reader has
    /// passed the source's last record.
    #[must_use]
    pub fn fits(&mut self, len: usize, most: usize, (written, read): (u32, u32)) -> bool {
        let ahead = self.end.wrapping_sub(read);
        // A position outside of the bytes that wait was read long ago.
        if ahead == 0 || ahead > written.wrapping_sub(read) {
            self.used = 0;
        }
        self.used as usize + len <= most
    }

    /// Notes a record of `len` bytes that ends at the ring's position `end`.
    pub fn put(&mut self, len: usize, end: u32) {
        self.used = self.used.saturating_add(len as u32);
        self.end = end;
    }

    /// Notes a record that is lost.
    pub fn lose(&mut self) {
        self.lost = self.lost.saturating_add(1);
    }

    /// Returns how many records were lost.
    #[must_use]
    pub const fn lost(&self) -> u32 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::Quota;
    use crate::ring::ByteRing;
    use proptest::prelude::*;

    const RING: usize = 256;
    const MOST: usize = 64;

    /// Puts a record of `len` bytes of source `source` into the ring; returns whether it fitted.
    fn put(ring: &ByteRing<RING>, quotas: &mut [Quota], source: usize, len: usize) -> bool {
        let fits = quotas[source].fits(len, MOST, ring.positions())
            && ring.push_all(&vec![source as u8; len]);
        if fits {
            quotas[source].put(len, ring.positions().0);
        } else {
            quotas[source].lose();
        }
        fits
    }

    #[test]
    fn a_flood_leaves_room_for_the_others() {
        let (ring, mut quotas) = (ByteRing::<RING>::new(), [Quota::new(); 3]);
        let kept = (0..1000).filter(|_| put(&ring, &mut quotas, 0, 20)).count();
        assert_eq!((kept, quotas[0].lost()), (3, 997));
        for source in [1, 2] {
            assert!(put(&ring, &mut quotas, source, MOST), "source {source} has its part");
            assert_eq!(quotas[source].lost(), 0);
        }
        // The source may fill its part again only after its last record was read.
        (0..59).for_each(|_| _ = ring.pop());
        assert!(!put(&ring, &mut quotas, 0, 20));
        ring.pop();
        assert!(put(&ring, &mut quotas, 0, 20));
    }

    #[test]
    fn positions_wrap() {
        let mut quota = Quota { used: 60, end: u32::MAX, lost: 0 };
        assert!(!quota.fits(20, MOST, (5, u32::MAX - 9)), "ten bytes wait, behind the wrap too");
        assert!(quota.fits(20, MOST, (5, 0)), "all were read");
        let mut quota = Quota { used: 60, end: 7, lost: 0 };
        assert!(quota.fits(20, MOST, (0x8000_0010, 0x8000_0000)), "read 2 GiB ago");
    }

    proptest! {
        #[test]
        fn no_source_has_more_than_its_part_in_the_ring(
            steps in prop::collection::vec((0_usize..3, 1_usize..40, 0_usize..40), 0..200)
        ) {
            let (ring, mut quotas) = (ByteRing::<RING>::new(), [Quota::new(); 3]);
            let mut waiting = std::collections::VecDeque::new();
            for (source, len, read) in steps {
                if put(&ring, &mut quotas, source, len) {
                    waiting.extend(std::iter::repeat_n(source, len));
                }
                prop_assert!(waiting.iter().filter(|it| **it == source).count() <= MOST);
                for _ in 0..read.min(waiting.len()) {
                    prop_assert_eq!(ring.pop().map(usize::from), waiting.pop_front());
                }
            }
        }
    }
}
