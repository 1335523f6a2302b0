//! Tests of the shipped writer and reader under `loom`, which tries every order of their accesses
//! that the memory model allows, up to two preemptions. Two more tests show that `loom` detects a
//! missing barrier on either side.

mod shipped;
mod unordered_reader;
mod unordered_writer;

use crate::record::{Origin, RecordKind};
use zerocopy::IntoBytes;

/// Tests one build of writer and reader: two records wait in a ring of four. While they are read
/// the writer pushes three more, the third into the slot of the first.
macro_rules! whole_records_in_order {
    ($build:ident) => {{
        use $build::{
            reader::{Reader, RingEntry, RingMemory},
            recorder::{HEADER, MAGIC, RingHeader, SLOT, TraceRing, VERSION},
        };
        const SLOTS: usize = 4;
        /// A view of the ring. Only `head` of the header is loaded, because the other words never
        /// change.
        struct View<'a>(&'a TraceRing<SLOTS>);
        impl RingMemory for View<'_> {
            fn read(&mut self, offset: usize, into: &mut [u8]) -> bool {
                if offset != 0 {
                    return (&mut &*self.0).read(offset, into);
                }
                let mut header = RingHeader {
                    magic: MAGIC,
                    version: VERSION,
                    slot: SLOT as u16,
                    capacity: SLOTS as u32,
                    frequency: 1,
                    ..RingHeader::default()
                };
                header.head = self.0.word(std::mem::offset_of!(RingHeader, head) / 8);
                into.copy_from_slice(header.as_bytes());
                true
            }
        }
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let ring = loom::sync::Arc::new($build::ring::<SLOTS>());
            let push = |ring: &TraceRing<SLOTS>, number: u64| {
                let tag = Origin::new(number as u8, 0).tag(RecordKind::Draw, 0);
                ring.push(number * 10, tag, number * 100, number * 1000);
            };
            let mut reader = Reader::new(HEADER + SLOTS * SLOT);
            let mut next = 0;
            let mut read = |entry| match entry {
                RingEntry::Record(record) => {
                    assert_eq!(record.time, next * 10, "torn, or out of order");
                    assert_eq!(u64::from(record.vm), next, "torn");
                    assert_eq!(record.count, next * 100, "torn");
                    assert_eq!(record.other(), next * 1000, "torn");
                    next += 1;
                }
                RingEntry::Lost(records) => next += records,
            };
            (0..2).for_each(|number| push(&ring, number));
            let mut taken = reader.take(&mut View(&ring), &mut read);
            (2..4).for_each(|number| push(&ring, number));
            let writer = loom::thread::spawn({
                let ring = loom::sync::Arc::clone(&ring);
                move || (4..7).for_each(|number| push(&ring, number))
            });
            taken += reader.take(&mut View(&ring), &mut read);
            writer.join().unwrap();
            taken += reader.take(&mut View(&ring), &mut read);
            assert_eq!((taken, next), (7, 7), "all are accounted for");
        });
    }};
}

#[test]
fn every_record_is_whole_or_counted_as_lost() {
    whole_records_in_order!(shipped);
}

#[test]
#[should_panic(expected = "torn")]
fn without_the_writers_barrier_a_torn_record_is_found() {
    whole_records_in_order!(unordered_writer);
}

#[test]
#[should_panic(expected = "torn")]
fn missing_reader_barriers_tear_a_record() {
    whole_records_in_order!(unordered_reader);
}
