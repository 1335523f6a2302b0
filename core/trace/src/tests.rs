//! Tests that write and read rings.

use crate::{
    reader::{Reader, RingEntry, RingFacts, RingMemory},
    record::{Origin, Record, RecordKind},
    recorder::{HEADER, RingHeader, SLOT, TraceRing},
};
use proptest::prelude::*;
use zerocopy::IntoBytes;

const SLOTS: usize = 16;
const BYTES: usize = HEADER + SLOTS * SLOT;

fn push(ring: &TraceRing<SLOTS>, number: u64) {
    let origin = Origin::new(number as u8, (number >> 8) as u8);
    ring.push(number, origin.tag(RecordKind::Draw, number as u32), number * 3, number * 5);
}

fn begun() -> TraceRing<SLOTS> {
    let ring = TraceRing::new();
    ring.begin(5, 62_500_000, 77);
    ring
}

/// Returns the bytes of the ring as a reader sees them.
fn bytes(mut ring: &TraceRing<SLOTS>) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    assert!(ring.read(0, &mut bytes));
    bytes
}

/// Returns the numbers of the records read, and how many were lost.
fn take(reader: &mut Reader, memory: &mut impl RingMemory) -> (Vec<u64>, u64) {
    let (mut numbers, mut lost) = (Vec::new(), 0);
    let taken = reader.take(memory, |entry| match entry {
        RingEntry::Lost(count) => lost += count,
        RingEntry::Record(record) => {
            let number = record.time;
            let expected = Record {
                time: number,
                kind: RecordKind::Draw as u16,
                vm: number as u8,
                vcpu: (number >> 8) as u8,
                detail: number as u32,
                count: number * 3,
                rest: record.rest,
            };
            assert_eq!(record, expected);
            assert_eq!((record.other(), record.sequence()), (number * 5, number as u16));
            numbers.push(number);
        }
    });
    assert_eq!(taken, numbers.len() as u64 + lost);
    (numbers, lost)
}

#[test]
fn a_ring_that_has_not_begun_is_not_read() {
    let ring = TraceRing::<SLOTS>::new();
    let mut reader = Reader::new(BYTES);
    push(&ring, 0);
    assert_eq!(take(&mut reader, &mut &ring), (vec![], 0));
    assert_eq!(reader.facts(), None);
    ring.begin(5, 62_500_000, 77);
    assert_eq!(take(&mut reader, &mut &ring), (vec![0], 0));
    let facts = RingFacts { core: 5, capacity: SLOTS as u32, frequency: 62_500_000, zero: 77 };
    assert_eq!(reader.facts(), Some(facts));
}

#[test]
fn the_header_is_as_documented() {
    let ring = begun();
    for number in 0..3 {
        push(&ring, number);
    }
    let header = RingHeader {
        magic: *b"weirring",
        version: 1,
        slot: 32,
        capacity: SLOTS as u32,
        core: 5,
        frequency: 62_500_000,
        zero: 77,
        head: 3,
        reserved: [0; 2],
    };
    let bytes = bytes(&ring);
    assert_eq!(bytes[..HEADER], *header.as_bytes());
    // A trace of an older version of weir must remain readable.
    let third: &[u8] = &[2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 0, 2, 0, 0, 0];
    assert_eq!(bytes[HEADER + 2 * SLOT..][..16], *third);
    let counts: &[u8] = &[6, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 2, 0];
    assert_eq!(bytes[HEADER + 2 * SLOT + 16..][..16], *counts);
}

#[test]
fn the_two_oldest_slots_of_a_full_ring_are_dropped() {
    let (ring, mut reader) = (begun(), Reader::new(BYTES));
    for number in 0..100 {
        push(&ring, number);
    }
    assert_eq!(take(&mut reader, &mut &ring), ((86..100).collect(), 86));
    assert_eq!(take(&mut reader, &mut &ring), (vec![], 0));
}

#[test]
fn a_damaged_slot_is_counted_and_passed_over() {
    let ring = begun();
    for number in 0..8 {
        push(&ring, number);
    }
    let mut bytes = bytes(&ring);
    // Changes a record's sequence number.
    bytes[HEADER + 3 * SLOT + 30] ^= 1;
    let mut entries = Vec::new();
    assert_eq!(Reader::new(BYTES).take(&mut bytes.as_slice(), |entry| entries.push(entry)), 8);
    assert_eq!(entries[3], RingEntry::Lost(1));
    assert_eq!(entries.len(), 8);
}

#[test]
fn a_ring_of_somebody_else_is_left_alone() {
    let ring = begun();
    for number in 0..8 {
        push(&ring, number);
    }
    let good = bytes(&ring);
    for (place, value) in [(0, b'x'), (8, 2), (10, 64), (12, 17), (13, 1), (17, 1), (47, 0x80)] {
        let mut bytes = good.clone();
        bytes[place] = value;
        let mut reader = Reader::new(BYTES);
        assert_eq!(take(&mut reader, &mut bytes.as_slice()), (vec![], 0), "{place}");
    }
    let mut frequency = good.clone();
    frequency[24..32].fill(0);
    assert_eq!(take(&mut Reader::new(BYTES), &mut frequency.as_slice()), (vec![], 0));
    assert_eq!(take(&mut Reader::new(BYTES - SLOT), &mut good.as_slice()), (vec![], 0));
    // The memory now holds another ring than the one that was read before.
    let mut reader = Reader::new(BYTES);
    assert_eq!(take(&mut reader, &mut good.as_slice()).0.len(), 8);
    let mut other = good.clone();
    (other[16], other[40]) = (6, 10);
    assert_eq!(take(&mut reader, &mut other.as_slice()), (vec![], 0));
}

#[test]
fn a_head_that_never_settles_is_refused() {
    struct Restless(Vec<u8>);
    impl RingMemory for Restless {
        fn read(&mut self, offset: usize, into: &mut [u8]) -> bool {
            self.0[40] = self.0[40].wrapping_add(1);
            self.0.as_slice().read(offset, into)
        }
    }
    let mut memory = Restless(bytes(&begun()));
    assert_eq!(take(&mut Reader::new(BYTES), &mut memory), (vec![], 0));
}

#[test]
fn a_concurrent_reader_gets_whole_records_in_order() {
    const COUNT: u64 = 200_000;
    let (ring, mut reader) = (begun(), Reader::new(BYTES));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..COUNT).for_each(|number| push(&ring, number)));
        let (mut total, mut newest) = (0, None);
        while total < COUNT {
            let (numbers, lost) = take(&mut reader, &mut &ring);
            for number in &numbers {
                assert!(newest.is_none_or(|newest| newest < *number));
                newest = Some(*number);
            }
            total += numbers.len() as u64 + lost;
        }
        assert_eq!((total, newest), (COUNT, Some(COUNT - 1)));
    });
}

proptest! {
    #[test]
    fn what_is_read_in_time_is_read_once_and_in_order(
        bursts in prop::collection::vec(0u64..40, 0..30),
    ) {
        let (ring, mut reader) = (begun(), Reader::new(BYTES));
        let mut pushed = 0;
        for burst in bursts {
            (pushed..pushed + burst).for_each(|number| push(&ring, number));
            let (numbers, lost) = take(&mut reader, &mut &ring);
            let first = (pushed + burst + 2).saturating_sub(SLOTS as u64).max(pushed);
            pushed += burst;
            prop_assert_eq!(numbers, (first.min(pushed)..pushed).collect::<Vec<_>>());
            prop_assert_eq!(lost, first.min(pushed) - (pushed - burst));
        }
    }

    #[test]
    fn any_memory_is_read_without_panic(
        noise in prop::collection::vec(any::<u8>(), 0..BYTES + 40),
        head in any::<u64>(),
        dress in any::<bool>(),
        limit in 0usize..2 * BYTES,
    ) {
        let mut memory = noise;
        if dress && memory.len() >= HEADER {
            memory[..HEADER].copy_from_slice(&bytes(&begun())[..HEADER]);
            memory[40..48].copy_from_slice(&head.to_le_bytes());
        }
        let mut reader = Reader::new(limit);
        for _ in 0..2 {
            let mut lost = 0;
            let taken = reader.take(&mut memory.as_slice(), |entry| {
                lost += match entry { RingEntry::Lost(count) => count, RingEntry::Record(_) => 1 };
            });
            prop_assert_eq!(taken <= lost, true);
        }
    }
}
