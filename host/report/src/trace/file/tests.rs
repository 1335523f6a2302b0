use super::*;
use proptest::prelude::*;

/// Facts of two VMs on three cores, with a counter of 1 GHz.
pub fn facts() -> TraceFacts {
    TraceFacts {
        cores: 3,
        frequency: 1_000_000_000,
        zero: 1000,
        records: 0,
        lost: 0,
        last: 0,
        vms: vec![
            TracedVm { name: "control".into(), cores: vec![0] },
            TracedVm { name: "linux".into(), cores: vec![1, 2] },
        ],
        flows: Vec::new(),
    }
}

/// A trace with these records.
pub fn trace(mut facts: TraceFacts, records: &[Record]) -> Trace<io::Cursor<Vec<u8>>> {
    facts.records = records.len() as u64;
    let mut bytes = Vec::new();
    facts.write(&mut bytes).expect("memory");
    bytes.extend_from_slice(records.as_bytes());
    Trace::read(io::Cursor::new(bytes)).expect("a trace")
}

#[test]
fn a_trace_comes_back_as_written() {
    let records = [lost(1, 1100, 7), lost(2, 1200, 8)];
    let mut read = trace(facts(), &records);
    assert_eq!(read.facts, TraceFacts { records: 2, ..facts() });
    assert_eq!(
        (read.next_record().unwrap(), read.next_record().unwrap()),
        (Some(records[0]), Some(records[1]))
    );
    assert_eq!((read.next_record().unwrap(), read.warning()), (None, None));
    assert_eq!((core(&records[1]), read.facts.nanos(records[1].time)), (2, 200));
    assert_eq!((read.facts.name(1), read.facts.name(255)), (Some("linux"), None));
}

#[test]
fn ticks_become_the_nanoseconds_of_the_wire() {
    let facts = TraceFacts { frequency: 62_500_000, zero: 10, ..TraceFacts::default() };
    assert_eq!((facts.nanos(10), facts.nanos(11), facts.nanos(72)), (0, 16, 992));
    assert_eq!(TraceFacts { frequency: 3, zero: 0, ..facts.clone() }.nanos(2), 666_666_666);
    assert_eq!(TraceFacts { frequency: 0, ..facts }.nanos(0), u64::MAX);
}

#[test]
fn missing_records_are_reported() {
    let mut bytes = Vec::new();
    TraceFacts { records: 2, lost: 3, ..facts() }.write(&mut bytes).expect("memory");
    bytes.extend_from_slice(lost(0, 1005, 3).as_bytes());
    for (cut, message) in [(0, "1 of 2"), (5, "0 of 2")] {
        let part = &bytes[..bytes.len() - cut];
        let mut trace = Trace::read(part).expect("a trace");
        while trace.next_record().expect("memory").is_some() {}
        assert!(trace.damage().is_some_and(|damage| damage.contains(message)), "{cut}");
    }
    bytes.extend_from_slice(lost(0, 1005, 3).as_bytes());
    let mut trace = Trace::read(bytes.as_slice()).expect("a trace");
    while trace.next_record().expect("memory").is_some() {}
    assert!(trace.warning().is_some_and(|warning| warning.contains("3 records were overwritten")));
    assert_eq!(trace.damage(), None);
    let mut few = trace_with(3);
    while few.next_record().expect("memory").is_some() {}
    let damage = few.damage().unwrap_or_default();
    assert!(damage.contains("its header states 3 lost records, and its records 2"), "{damage}");
}

/// A trace with records of two of three losses.
fn trace_with(lost_records: u64) -> Trace<io::Cursor<Vec<u8>>> {
    trace(TraceFacts { lost: lost_records, ..facts() }, &[lost(0, 1005, 2)])
}

#[test]
fn impossible_records_are_reported() {
    let good = [lost(1, 1100, 7), Record { vm: 1, vcpu: 1, ..lost(2, 1200, 8) }];
    let damage = |facts: TraceFacts, records: &[Record], rest: &[u8]| {
        let mut bytes = Vec::new();
        facts.write(&mut bytes).expect("memory");
        bytes.extend_from_slice(records.as_bytes());
        bytes.extend_from_slice(rest);
        let mut trace = Trace::read(bytes.as_slice()).expect("a trace");
        while trace.next_record().expect("memory").is_some() {}
        (trace.damage().unwrap_or_default(), trace.end())
    };
    let two = TraceFacts { records: 2, ..facts() };
    assert_eq!(damage(two.clone(), &good, b""), (String::new(), 200));
    let described = TraceFacts { last: 1200, ..two.clone() };
    assert_eq!(damage(described.clone(), &good, b""), (String::new(), 200));
    let ahead = Record { time: 1 << 60, ..good[1] };
    let (message, end) = damage(described.clone(), &[good[0], ahead], b"");
    assert!(message.contains("1 records are none that a run makes") && end == 100, "{message}");
    let early = Record { time: 1150, ..good[1] };
    let (message, _) = damage(described, &[good[0], early], b"");
    assert!(
        message.contains("its last record is of 150ns, and its header states 200ns"),
        "{message}"
    );
    for strange in [
        Record { vm: 2, ..good[1] },
        Record { vcpu: 2, ..good[1] },
        Record { time: 1099, ..good[1] },
        good[1].with_sequence(3),
    ] {
        let (message, _) = damage(two.clone(), &[good[0], strange], b"");
        assert!(message.contains("1 records are none that a run makes"), "{strange:?} {message}");
    }
    assert!(damage(two.clone(), &good, b"12345").0.contains("its 2 records, by 5 bytes"));
    let one = TraceFacts { records: 1, ..facts() };
    assert!(damage(one, &good, b"").0.contains("its 1 records, by 32 bytes"));
}

#[test]
fn a_count_that_no_core_reaches_is_no_runs() {
    let counted = |kind: RecordKind, time, count| {
        let record = Record { time, kind: kind as u16, vm: 1, count, ..Record::default() };
        record.with_sequence(1)
    };
    let damage = |records: &[Record]| {
        let mut trace = trace(facts(), records);
        while trace.next_record().expect("memory").is_some() {}
        trace.damage().unwrap_or_default()
    };
    let (begun, most) =
        (counted(RecordKind::Replenish, 2_000_000, 0), (2000 + LATE_NS) * MOST_PER_NS);
    for kind in [
        RecordKind::Replenish,
        RecordKind::Overflow,
        RecordKind::Throttle,
        RecordKind::Wake,
        RecordKind::Draw,
    ] {
        for (count, described) in [(most, ""), (most + 1, "accesses"), (u64::MAX, "accesses")] {
            let message = damage(&[begun, counted(kind, 2_002_000, count)]);
            assert_eq!(message.is_empty(), described.is_empty(), "{kind:?} {count} {message}");
            assert!(message.contains(described), "{message}");
        }
    }
    // The field of other kinds is no count of accesses.
    assert_eq!(damage(&[begun, counted(RecordKind::BudgetChanged, 2_000_001, u64::MAX)]), "");
    // Without its own beginning it counts from the hypervisor's start, and another vCPU's is
    // none of its own.
    assert!(!damage(&[counted(RecordKind::Draw, 2_000_000, u64::MAX)]).is_empty());
    let other = Record { vcpu: 1, ..begun };
    let late = counted(RecordKind::Draw, 2_002_000, most + 1);
    assert_eq!(damage(&[other, late]), "");
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let mut bytes = Vec::new();
    facts().write(&mut bytes).expect("memory");
    let with = |place: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[place] = value;
        Trace::read(io::Cursor::new(bytes)).expect_err("refused")
    };
    assert!(with(0, b'x').contains("no trace"));
    assert!(with(8, 9).contains("version 9"));
    assert!(with(49, 9).contains("damaged"));
    assert!(Trace::read(&bytes[..100]).expect_err("refused").contains("cut short"));
    assert!(Trace::read(&b""[..]).expect_err("refused").contains("cut short"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400), dress in any::<bool>(),
    ) {
        if dress && bytes.len() > 12 {
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        }
        if let Ok(mut trace) = Trace::read(bytes.as_slice()) {
            while let Some(record) = trace.next_record().expect("memory") {
                let _ = trace.facts.nanos(record.time);
            }
            trace.damage();
            trace.warning();
        }
    }
}
