//! Tests of the report with records of a synthetic wire.

use super::{
    Counted, End, Expected, FAULTS_LISTED, FlowRun, RunReport, State, Tally, VcpuRun, VmRun,
    in_words,
};
use crate::{
    demux::{Demux, WireStep},
    expect::Expectations,
    findings::Clock,
    observed::{ArrivedPacket, ObservedTrace},
    show,
    synthetic::SyntheticWire,
};
use weir_trace::wire::{Denial, FaultKind, HYPERVISOR, VmState, What, WireEvent, dma_syndrome};

fn tally(wire: &SyntheticWire) -> Tally {
    let vcpu = |(number, core)| VcpuRun { number, core, ..VcpuRun::default() };
    let vm = |name: &str, cores: &[u8]| VmRun {
        name: name.into(),
        vcpus: (0..).zip(cores.iter().copied()).map(vcpu).collect(),
        ..VmRun::default()
    };
    let (mut demux, mut steps) = (Demux::new(2), Vec::new());
    for &byte in wire.bytes() {
        demux.push(byte, &mut steps);
    }
    demux.finish(&mut steps);
    let mut tally = Tally::new(&[vm("one", &[0]), vm("two", &[2, 3])]);
    for step in &steps {
        tally.step(step);
    }
    tally
}

fn report(wire: &SyntheticWire) -> RunReport {
    tally(wire).report("s", "p", &Expectations::default(), End::TimeOver, 9)
}

#[test]
fn lives_faults_and_denials_are_counted_by_name() {
    let wire = SyntheticWire::default()
        .event(1, What::SystemStart, HYPERVISOR, 0)
        .event(2, What::VmStart, 1, 0)
        .event(3, What::Denied, 1, Denial::SetWay as u32)
        .fault(4, 1, FaultKind::Write, 0x9200_0046)
        .event(5, What::VmStart, 1, 1)
        .fault(6, 1, FaultKind::Write, 0x9200_0046)
        .event(7, What::VmHalted, 1, 0);
    let report = report(&wire);
    assert!(report.started);
    assert_eq!(report.vms[0].state, State::NotStarted);
    let two = &report.vms[1];
    assert_eq!((two.state, two.boots, two.restarts), (State::Halted, 2, 1));
    assert_eq!(two.fault_counts["write outside its memory"], 2);
    assert_eq!(two.denials["set/way cache maintenance"], 1);
    let denied = &two.denied[0];
    assert_eq!((denied.time_ns, denied.boot, denied.kind.as_str()), (3, 0, Denial::SetWay.name()));
    assert!(show::summary(&report).contains("refused of two/0 at 0.000000 s: set/way cache"));
    assert_eq!(two.faults[1].boot, 1);
    assert_eq!(two.faults[1].meaning, "data abort: store, translation fault at level 2");
    assert_eq!(report.totals.faults, 2);
    let shown = show::summary(&report);
    let fault = "fault of two/0 at 0.000000 s: write outside its memory: address 0xdead0000, \
                 pc 0x40001234: data abort: store, translation fault at level 2\n";
    assert_eq!(shown.matches(fault).count(), 2, "{shown}");
}

#[test]
fn lost_records_change_no_count_and_no_state() {
    // Of 20 faults three have records, and the record of the stop is missing.
    let wire = SyntheticWire::default()
        .event(2, What::VmStart, 1, 0)
        .fault(4, 1, FaultKind::Read, 0x9200_0046)
        .fault(6, 1, FaultKind::Read, 0x9200_0046)
        .fault(8, 1, FaultKind::Read, 0x9200_0046)
        .boots(9, (1, VmState::Off), [20, 20, 39]);
    let report = report(&wire);
    let two = &report.vms[1];
    assert_eq!((two.state, two.boots, two.restarts), (State::Off, 21, 20));
    assert_eq!(two.fault_counts["read outside its memory"], 20);
    assert_eq!((two.faults.len(), two.faults_left_out, two.records_lost), (3, 17, 39));
    assert_eq!((report.totals.faults, report.totals.records_lost), (20, 39));
    assert_eq!((report.vms[0].records_lost, report.vms[0].state), (0, State::NotStarted));
    assert!(show::summary(&report).contains("39 of the hypervisor's records were lost"));
}

#[test]
fn an_event_that_overtook_the_counts_says_the_state() {
    let wire = SyntheticWire::default()
        .event(2, What::VmStart, 0, 0)
        .event(9, What::VmOff, 0, 0)
        .boots(8, (0, VmState::Running), [0; 3]);
    assert_eq!(report(&wire).vms[0].state, State::Off);
    let wire = wire.boots(10, (0, VmState::Running), [0, 1, 0]);
    assert_eq!(report(&wire).vms[0].state, State::Running);
}

#[test]
fn the_last_counters_count() {
    let wire = SyntheticWire::default()
        .counters(1, 1, 0, 5)
        .counters(2, 1, 0, 7)
        .counters(2, 1, 1, 1)
        .denials(2, 1, 3);
    let two = report(&wire).vms.remove(1);
    assert_eq!(two.exits.as_ref().expect("told")["timer interrupt"], 8);
    assert_eq!(two.injected, Some(8));
    assert_eq!(two.vcpus[0].exits.as_ref().expect("told")["fault"], 7);
    assert_eq!((two.vcpus[1].core, two.vcpus[1].counted_ns), (3, Some(2)));
    assert_eq!(two.denials["PMU register"], 3);
    assert_eq!(two.denials.len(), Denial::ALL.len());
}

#[test]
fn flows_above_their_bounds_and_old_counts_are_told() {
    let wire = SyntheticWire::default().flow(4_000, 0, [3, 0, 109_984]).flow(5_000, 1, [3, 0, 500]);
    let facts = ["late", "good"].map(|name| FlowRun {
        name: name.into(),
        bound_ns: Some(70_340),
        ..FlowRun::default()
    });
    let report = |ended_by, time_ns| {
        let tally = tally(&wire);
        let report = tally.report("s", "p", &Expectations::default(), ended_by, time_ns);
        let mut report = RunReport { flows: tally.flows(&facts), ..report };
        let emulated = Clock::Emulated;
        let packet = ArrivedPacket { latency_ns: 109_984, arrived_ns: 200_000, waited: false };
        let observed = ObservedTrace::of_packets(vec![packet], 0);
        crate::judge::judge(&mut report, Some(&observed), emulated);
        report
    };
    let told = |report: &RunReport| show::summary(report);
    let shown = told(&report(End::TimeOver, 2_000_000));
    let reason =
        "flow late: does not hold: the longest took 109984 ns, 39644 ns more than the bound\n";
    assert!(shown.contains(reason), "{shown}");
    assert!(shown.contains("flow late: the longest was packet 1 of 3, which arrived at"));
    assert!(!shown.contains("flow good: does not hold"), "{shown}");
    assert!(shown.contains("\nverdict: does not hold (flow late)\n"), "{shown}");
    assert!(shown.contains("counts are as of 0.000004 s, the last that came"), "{shown}");
    let mut met = report(End::AllMet, 2_000_000);
    let line = |time_ns| Expected { text: String::new(), met: true, time_ns: Some(time_ns) };
    met.vms[0].expect = vec![line(3_000)];
    assert_eq!(met.flows_counted(), Counted::ToTheEnd, "counted behind the last line");
    met.vms[1].expect = vec![line(4_500)];
    assert_eq!(met.flows_counted(), Counted::Until(4_000));
    assert_eq!(report(End::SystemStop, 2_000_000).flows_counted(), Counted::ToTheEnd);
    met.flows[1].counted_ns = None;
    assert_eq!(met.flows_counted(), Counted::Never);
    assert!(told(&met).contains("no counts of some flows came"), "{}", told(&met));
    assert_eq!(RunReport { flows: Vec::new(), ..met }.flows_counted(), Counted::ToTheEnd);
}

#[test]
fn counters_that_did_not_come_are_not_zero() {
    let report = report(&SyntheticWire::default().counters(1, 1, 0, 5));
    let two = &report.vms[1];
    assert_eq!((two.exit_count(), two.injected), (None, None));
    assert_eq!((two.vcpus[0].injected, two.vcpus[1].injected), (Some(5), None));
    let shown = show::summary(&report);
    let row = shown.lines().find(|line| line.contains("two")).expect("a row");
    assert_eq!(row.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["-"; 2], "{shown}");
    let json = serde_json::to_value(two).expect("JSON");
    assert!(json["exits"].is_null() && json["injected"].is_null(), "{json}");
    assert!(json["vcpus"][1]["exits"].is_null(), "{json}");
}

#[test]
fn the_last_counts_of_a_flow_count() {
    let wire =
        SyntheticWire::default().flow(1, 1, [5, 0, 70]).flow(2, 1, [9, 1, 80]).flow(2, 7, [1; 3]);
    let facts = |name: &str, bound_ns| FlowRun {
        name: name.into(),
        bound_ns,
        dropped: (name == "b").then_some(0),
        ..FlowRun::default()
    };
    let flows = tally(&wire).flows(&[facts("a", None), facts("b", Some(90))]);
    let numbers = |flow: &FlowRun| (flow.packets, flow.lost, flow.observed_max_ns, flow.bound_ns);
    assert_eq!([flows[0].dropped, flows[1].dropped], [None, Some(0)]);
    assert_eq!(
        flows.iter().map(numbers).collect::<Vec<_>>(),
        [(0, 0, 0, None), (9, 1, 80, Some(90))]
    );
}

#[test]
fn counters_of_a_vcpu_that_does_not_exist_are_damage() {
    let wire = SyntheticWire::default().counters(1, 0, 5, 5).garbage(&[0x10, 1, 1, 1, 1]);
    assert_eq!(report(&wire).totals.damaged_frames, 2);
}

#[test]
fn refused_accesses_of_a_device_name_its_stream() {
    let mut tally = tally(&SyntheticWire::default().event(1, What::VmStart, 1, 4));
    for (time_ns, write) in [(2, true), (3, false)] {
        tally.step(&WireStep::Event(WireEvent {
            time_ns,
            what: What::Denied as u16,
            vm: 1,
            detail: Denial::Dma as u32,
            syndrome: dma_syndrome(16, write, 0x10),
            address: 0x4100_0000,
            ..WireEvent::default()
        }));
    }
    let report = tally.report("s", "p", &Expectations::default(), End::TimeOver, 9);
    let two = &report.vms[1];
    assert_eq!(two.denials["DMA outside its memory"], 2);
    let [first, second] = two.dma.as_slice() else { panic!("{:?}", two.dma) };
    assert_eq!((first.boot, first.stream, first.access.as_str()), (4, 16, "write"));
    assert_eq!((first.kind.as_str(), first.address.as_str()), ("translation fault", "0x41000000"));
    assert_eq!((second.time_ns, second.access.as_str()), (3, "read"));
    let event = WireEvent {
        what: What::Denied as u16,
        detail: Denial::Dma as u32,
        syndrome: dma_syndrome(16, true, 0x13),
        address: 0x1000,
        ..WireEvent::default()
    };
    let words = "vm: DMA outside its memory (stream 16): write at 0x1000, permission fault";
    assert_eq!(in_words(&event, |_| "vm".into()), words);
}

#[test]
fn faults_beyond_the_list_are_still_counted() {
    let mut wire = SyntheticWire::default();
    for time in 0..FAULTS_LISTED as u64 + 5 {
        wire = wire.fault(time, 0, FaultKind::Read, 0);
    }
    let one = report(&wire).vms.remove(0);
    assert_eq!(one.faults.len(), FAULTS_LISTED);
    assert_eq!(one.faults_left_out, 5);
    assert_eq!(one.fault_counts["read outside its memory"], FAULTS_LISTED as u64 + 5);
}

#[test]
fn an_event_of_a_newer_hypervisor_is_named() {
    let mut event = WireEvent {
        time_ns: 0,
        what: 77,
        vm: 0,
        vcpu: 0,
        detail: 5,
        syndrome: 0,
        address: 0,
        pc: 0,
        guest_syndrome: 0,
        guest_elr: 0,
    };
    let name = |_| "one".to_owned();
    assert_eq!(in_words(&event, name), "one: event 77 of a newer hypervisor, detail 5");
    event.what = What::VmFault as u16;
    event.detail = 99;
    assert!(in_words(&event, name).contains("fault of unknown kind 99"));
}
