//! Takes records out of the cores' rings for the wire, a frame at a time, without delaying a
//! writer.

use super::{
    recorder::{TraceRing, UNDER_WAY},
    sync::{Ordering, fence},
    wire::TraceRecords,
};

/// The position of the wire in the rings of `C` cores.
#[derive(Clone, Copy, Debug)]
pub struct TraceSender<const C: usize> {
    /// The number of each core's next record.
    next: [u64; C],
    /// The core whose ring is tried first.
    core: usize,
}

impl<const C: usize> TraceSender<C> {
    /// Returns a sender that has sent nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: [0; C], core: 0 }
    }

    /// Returns the next records of a core that has at least `least` new ones, by round robin over
    /// the cores. Records that were overwritten before they were sent are missing, as their numbers
    /// show.
    pub fn take<const N: usize>(
        &mut self,
        rings: &[TraceRing<N>; C],
        least: u64,
    ) -> Option<TraceRecords> {
        for step in 0..C {
            let core = (self.core + step) % C;
            let (Some(ring), Some(next)) = (rings.get(core), self.next.get_mut(core)) else {
                continue;
            };
            if let Some(records) = ring.records_from(*next, least) {
                *next = records.first + u64::from(records.count);
                self.core = core + 1;
                return Some(TraceRecords { core: core as u8, ..records });
            }
        }
        None
    }
}

impl<const C: usize> Default for TraceSender<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> TraceRing<N> {
    /// Copies records from number `next` on, or from the oldest one that still exists, if there are
    /// at least `least`. The core of the result is not set.
    fn records_from(&self, next: u64, least: u64) -> Option<TraceRecords> {
        let head = self.head()?;
        let first = next.max((head + UNDER_WAY).saturating_sub(N as u64));
        let there = head.saturating_sub(first);
        if there < least.max(1) {
            return None;
        }
        let (frequency, zero) = self.clock();
        let mut records = TraceRecords { first, frequency, zero, ..TraceRecords::default() };
        for (number, record) in (first..head).zip(&mut records.records) {
            *record = self.slot(number);
            records.count += 1;
        }
        // Acquire: the loads of the slots come before that of `head`.
        fence(Ordering::Acquire);
        let whole = (self.head()? + UNDER_WAY).saturating_sub(N as u64);
        // If the writer has meanwhile pushed more than the ring holds, no record is complete.
        records.torn = whole.saturating_sub(first).min(records.count.into()) as u8;
        Some(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Origin, RecordKind};
    use proptest::prelude::*;

    const TAG: crate::record::Tag = Origin::new(1, 2).tag(RecordKind::Draw, 3);

    fn ring(core: usize) -> TraceRing<8> {
        let ring = TraceRing::new();
        ring.begin(core, 1000, 5);
        ring
    }

    #[test]
    fn a_core_that_has_not_begun_sends_nothing() {
        let rings = [TraceRing::<8>::new(), ring(1)];
        rings[0].push(1, TAG, 0, 0);
        rings[1].push(7, TAG, 8, 9);
        let mut sender = TraceSender::new();
        assert_eq!(sender.take(&rings, 2), None, "too few");
        let sent = sender.take(&rings, 1).expect("one record");
        assert_eq!((sent.core, sent.first, sent.count, sent.torn), (1, 0, 1, 0));
        assert_eq!((sent.frequency, sent.zero), (1000, 5));
        let record = sent.records[0];
        assert_eq!((record.time, record.count, record.other(), record.vm), (7, 8, 9, 1));
        assert_eq!(sender.take(&rings, 1), None);
    }

    proptest! {
        /// For any writes between two frames, each record is sent once and in order, or is missing
        /// because it was overwritten.
        #[test]
        fn numbers_show_what_was_overwritten(
            steps in prop::collection::vec((0usize..2, 0u64..20), 1..40)
        ) {
            let rings = [ring(0), ring(1)];
            let (mut sender, mut pushed, mut next) = (TraceSender::new(), [0u64; 2], [0u64; 2]);
            for (core, count) in steps {
                for _ in 0..count {
                    rings[core].push(pushed[core], TAG, 0, 0);
                    pushed[core] += 1;
                }
                while let Some(sent) = sender.take(&rings, 1) {
                    let core = usize::from(sent.core);
                    prop_assert!(sent.first >= next[core] && sent.torn == 0);
                    if sent.first > next[core] {
                        // No more records are lost than necessary.
                        prop_assert_eq!(sent.first, pushed[core] + 2 - 8);
                    }
                    for (number, record) in (sent.first..).zip(&sent.records[..sent.count.into()]) {
                        prop_assert_eq!(record.time, number);
                        prop_assert_eq!(u64::from(record.sequence()), number);
                    }
                    next[core] = sent.first + u64::from(sent.count);
                }
                prop_assert_eq!(next, pushed);
            }
        }
    }

    #[test]
    fn records_are_whole_next_to_a_writer() {
        let rings = [ring(0)];
        let total = 20_000;
        let mut sender = TraceSender::new();
        let (mut next, mut whole) = (0, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..total {
                    rings[0].push(number, TAG, number, number);
                    if number % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            loop {
                let over = writer.is_finished();
                while let Some(sent) = sender.take(&rings, 1) {
                    assert!(sent.first >= next);
                    let records = &sent.records[..sent.count.into()];
                    for (number, record) in (sent.first..).zip(records).skip(sent.torn.into()) {
                        assert_eq!(
                            (record.time, record.count, record.other()),
                            (number, number, number)
                        );
                        whole += 1;
                    }
                    next = sent.first + u64::from(sent.count);
                }
                if over {
                    break;
                }
            }
        });
        assert_eq!(next, total);
        assert!(whole >= 6, "the last ones are whole");
    }
}
