use super::*;
use serde_json::{Value, json};
use weir_model::{Catalog, SystemFile};

fn overheads(copies: &[(u64, u64)]) -> MeasuredOverheads {
    let mut phases = BTreeMap::from([(Phase::Pd, vec![80, 90, 100])]);
    let mut times: Vec<u64> = copies.iter().map(|(_, ns)| *ns).collect();
    times.sort_unstable();
    phases.insert(Phase::Copy, times);
    MeasuredOverheads {
        phases,
        copies: copies.to_vec(),
        transfers: Vec::new(),
        packets: 3,
        size: [2, 3],
        lost: 0,
        shared: false,
        counted: true,
        longest: 65_535,
    }
}

#[test]
fn no_copy_exceeds_set_up_plus_bandwidth() {
    let all = [(4096, 1200), (4096, 1230), (3000, 1000), (1, 70), (44, 60)];
    let (bandwidth, set_up) = overheads(&all).copy().expect("copies");
    assert_eq!((bandwidth, set_up), (3_000_000_000, 70));
    for (bytes, ns) in all {
        assert!(ns <= set_up + (bytes * 1_000_000_000).div_ceil(bandwidth), "{bytes}");
    }
}

fn transfers(all: &[(u64, u64)]) -> MeasuredOverheads {
    let mut times: Vec<u64> = all.iter().map(|(_, ns)| *ns).collect();
    times.sort_unstable();
    let mut overheads = MeasuredOverheads { transfers: all.to_vec(), ..overheads(&[]) };
    overheads.phases = BTreeMap::from([(Phase::Pd, vec![80, 90]), (Phase::Ip, times)]);
    overheads
}

#[test]
fn no_transfer_exceeds_interrupt_plus_bandwidth() {
    // 2 GB/s behind 1 us, and late interrupts.
    let all = [(4096, 3048), (4096, 3100), (1024, 1512), (1024, 2000), (2048, 2124)];
    let measured = transfers(&all);
    assert_eq!(measured.engine_bandwidth(), Some(2_000_000_000));
    let ip = measured.interrupts();
    assert_eq!((ip.min, ip.max), (1000, 1488));
    for (bytes, ns) in all {
        assert!(ns <= ip.max + bytes.div_ceil(2), "{bytes}");
    }
}

#[test]
fn an_engine_without_slope_has_no_bandwidth() {
    for all in [
        &[(4096, 3048), (4096, 3100)][..],
        &[(4096, 900), (64, 900), (64, 950)],
        &[(4096, 900), (64, 901)],
    ] {
        let measured = transfers(all);
        let ip = measured.interrupts();
        let times = all.iter().map(|(_, ns)| *ns);
        assert_eq!(measured.engine_bandwidth(), None);
        assert_eq!((Some(ip.min), Some(ip.max)), (times.clone().min(), times.max()));
    }
    let none = overheads(&[(4096, 1024)]);
    assert_eq!((none.engine_bandwidth(), none.interrupts()), (None, Spread::default()));
}

fn named<'a>(origin: &'a Origin, larger: Option<&'a MeasuredOverheads>) -> OverheadsToml<'a> {
    OverheadsToml { name: "overheads", origin, larger }
}

#[test]
fn a_table_has_the_movers_of_its_run() {
    let origin =
        Origin { command: "weir run x".to_owned(), build: None, date: None, machine: None };
    let keys = |measured: &MeasuredOverheads| {
        let text = measured.to_toml(&named(&origin, None));
        let file = SystemFile::parse("o.toml".as_ref(), &text, &Catalog::default());
        let system = file.unwrap_or_else(|faults| panic!("{text}{faults}")).system().clone();
        let known = |name| system.overheads.iter().any(|step| step.name == name);
        let rates = [system.dma.copy_bandwidth, system.dma.engine_bandwidth];
        (known("copy"), known("ip"), rates.map(|rate| rate.map(|rate| rate.0)))
    };
    let by_core = overheads(&[(4096, 1024), (1, 30)]);
    assert_eq!(keys(&by_core), (true, false, [Some(4_000_000_000), None]));
    let by_engine = || transfers(&[(4096, 3048), (1024, 1512)]);
    assert_eq!(keys(&by_engine()), (false, true, [None, Some(2_000_000_000)]));
    let text = by_engine().to_toml(&named(&origin, None));
    assert!(text.contains("\nip = { min = 1000, max = 1000 }\n"), "{text}");
    let json = json!(by_engine().record());
    assert_eq!((&json["copy_bandwidth"], &json["engine_set_up_ns"]), (&Value::Null, &1000.into()));
    let text = by_engine().to_string();
    assert!(
        text.contains("3 packets; the DMA engine at 2000000000 B/s and 1000 ns more"),
        "{text}"
    );
    let text = transfers(&[(4096, 3048)]).to_string();
    assert!(text.contains("; the DMA engine in 3048 ns at most"), "{text}");
    let mut both = by_core;
    both.merge(by_engine());
    assert_eq!(keys(&both), (true, true, [Some(4_000_000_000), Some(2_000_000_000)]));
    // A chunk that took longer than a record holds is no upper limit.
    assert_eq!(both.unfit(), None);
    both.merge(transfers(&[(4096, 65_535)]));
    assert!(both.unfit().is_some_and(|why| why.starts_with("the maximum of ip is")));
}

#[test]
fn chunks_are_told_by_who_moved_them() {
    use crate::trace::file::{TraceFacts, TracedVm};
    use weir_trace::{phases::pack, record::BY_ENGINE};
    use zerocopy::IntoBytes;

    let vms = vec![TracedVm { name: "a".to_owned(), cores: vec![0] }];
    let frequency = 1_000_000_000;
    let facts = TraceFacts { cores: 1, frequency, records: 3, vms, ..TraceFacts::default() };
    let mut bytes = Vec::new();
    facts.write(&mut bytes).expect("memory");
    let chunk = |detail, ns, rest| {
        let kind = RecordKind::PacketChunk as u16;
        Record { kind, detail, count: pack([1, 2, ns, 3]), rest, ..Record::default() }
    };
    let arrived = Record { kind: RecordKind::PacketArrived as u16, ..Record::default() };
    bytes.extend([chunk(5, 70, 64), chunk(5 | BY_ENGINE, 900, 4096), arrived].as_bytes());
    let mut trace = Trace::read(bytes.as_slice()).expect("a trace");
    let measured = MeasuredOverheads::of(&mut trace, true).expect("overheads");
    assert_eq!((measured.copies, measured.transfers), (vec![(64, 70)], vec![(4096, 900)]));
}

#[test]
fn merged_runs_have_the_extremes_of_both() {
    let mut merged = overheads(&[(4096, 1024)]);
    let other = MeasuredOverheads { size: [1, 9], ..overheads(&[(4096, 2048), (1, 30)]) };
    merged.merge(other);
    assert_eq!(merged.spread(Phase::Copy).row(), [30, 1034, 1024, 2048]);
    assert_eq!((merged.packets, merged.size, merged.copies.len()), (6, [2, 9], 3));
}

#[test]
fn a_damaged_trace_gives_no_overheads() {
    use crate::trace::file::{TraceFacts, TracedVm};
    use zerocopy::IntoBytes;

    let vms = vec![TracedVm { name: "a".to_owned(), cores: vec![0] }];
    let facts =
        TraceFacts { cores: 1, frequency: 1_000_000_000, records: 1, vms, ..TraceFacts::default() };
    let mut bytes = Vec::new();
    facts.write(&mut bytes).expect("memory");
    let arrived = Record { kind: RecordKind::PacketArrived as u16, ..Record::default() };
    let of = |records: &[Record]| {
        let bytes = [bytes.as_slice(), records.as_bytes()].concat();
        MeasuredOverheads::of(&mut Trace::read(bytes.as_slice()).expect("a trace"), true)
    };
    assert_eq!(of(&[arrived]).map(|overheads| overheads.packets).ok(), Some(1));
    for damaged in [vec![], vec![arrived, arrived], vec![Record { vm: 1, ..arrived }]] {
        let refused = of(&damaged).expect_err("damaged");
        assert!(refused.text.contains("the trace is damaged"), "{}", refused.text);
    }
}

#[test]
fn time_slices_in_the_phases_are_reported() {
    use crate::trace::file::{TraceFacts, TracedVm};
    use zerocopy::IntoBytes;

    let vms = ["a", "broker"].map(|name| TracedVm { name: name.to_owned(), cores: vec![0, 1] });
    let (cores, records) = (2, 2);
    let frequency = 1_000_000_000;
    let facts = TraceFacts { cores, frequency, records, vms: vms.into(), ..TraceFacts::default() };
    let on = |kind, core: u64| Record { kind: kind as u16, rest: core << 48, ..Record::default() };
    let unfit = |switch: u64| {
        let mut bytes = Vec::new();
        facts.write(&mut bytes).expect("memory");
        let records = [on(RecordKind::VcpuSwitch, switch), on(RecordKind::PacketArrived, 1)];
        bytes.extend(records.as_bytes());
        let of = MeasuredOverheads::of(&mut Trace::read(bytes.as_slice()).expect("a trace"), true);
        of.expect("overheads").unfit().is_some()
    };
    assert_eq!([0, 1].map(unfit), [false, true]);
}

#[test]
fn phases_longer_than_a_record_holds_are_no_overheads() {
    let of = |phase, ns| {
        let mut overheads = overheads(&[(1, 30)]);
        overheads.phases.insert(phase, vec![10, ns]);
        overheads
    };
    let why = of(Phase::Wake, 65_535).unfit().expect("refused");
    assert!(why.starts_with("the maximum of wake is 65535 ns or more"), "{why}");
    assert!(of(Phase::Copy, 65_535).unfit().is_some());
    assert_eq!(of(Phase::Wake, 65_534).unfit(), None);
    assert_eq!(of(Phase::Wake, 65_535).unfit_as_larger(), None);
    assert!(of(Phase::Hold, 65_535).unfit_as_larger().is_some());
    for without in [Phase::Tail, Phase::Lock, Phase::Br] {
        assert_eq!(of(without, 65_535).unfit(), None, "{}", without.name());
    }
    let shown = of(Phase::Tail, 65_535);
    assert!(shown.to_string().contains("65535 or more"), "{shown}");
    let json = json!(shown.record());
    let open = |name| {
        let phases = json["phases"].as_array().expect("phases").iter();
        phases.filter(move |phase| phase["name"] == name).map(|phase| phase["max_or_more"] == true)
    };
    assert_eq!([open("tail").next(), open("pd").next()], [Some(true), Some(false)]);
}

#[test]
fn what_is_written_is_read_again() {
    let origin = Origin {
        command: "weir run flows.toml".to_owned(),
        build: Some("12ab".to_owned()),
        date: None,
        machine: Some("QEMU 7.2.22".to_owned()),
    };
    let larger = MeasuredOverheads { size: [12, 4], ..overheads(&[(1, 30)]) };
    let text = overheads(&[(4096, 1024), (1, 30)]).to_toml(&named(&origin, Some(&larger)));
    assert!(text.contains("flows = 2\nvms = 3\nlarger = { flows = 12, vms = 4, pp = 0"), "{text}");
    let file = SystemFile::parse("o.toml".as_ref(), &text, &Catalog::default());
    let file = file.expect("overheads");
    let system = file.system();
    assert_eq!(system.overheads.len(), Phase::ALL.len() - 3);
    assert_eq!(system.tables[0].origin, Some(origin));
    let named = |name| system.overheads.iter().find(|one| one.name == name).expect("a phase");
    assert_eq!((named("pd").min.0, named("pd").max.0), (80, 100));
    assert_eq!((named("copy").min.0, named("copy").max.0), (80, 130));
    assert_eq!(system.dma.copy_bandwidth.map(|rate| rate.0), Some(4_000_000_000));
}
