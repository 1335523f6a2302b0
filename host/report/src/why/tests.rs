use super::{flow::parts, subject::ReportedRun, survey::Survey, *};
use crate::run::{BudgetFinding, Finding, FlowRun, Latency, RunReport, TaskFinding, Totals, VmRun};
use crate::trace::file::{Trace, TraceFacts, TracedVm, tests::trace};
use serde_json::json;
use std::io::Cursor;
use weir_model::timing::Flow;
use weir_trace::{
    phases::pack,
    record::{BY_ENGINE, MarkName, Record, RecordKind, WAITED, packet},
    wire::ExitCause,
};
use weir_units::Nanos;

const BROKER: u8 = 2;
const CORE: u16 = 3;

/// Two senders, the broker and a receiver, with a counter of 1 GHz from 0.
fn facts() -> TraceFacts {
    let vm = |(name, core): (&str, u8)| TracedVm { name: name.into(), cores: vec![core] };
    let vms = [("short", 0), ("long", 1), ("broker", 3), ("receiver", 2)].map(vm);
    let flows = vec!["short".into(), "long".into()];
    TraceFacts {
        cores: 4,
        frequency: 1_000_000_000,
        vms: vms.into(),
        flows,
        ..TraceFacts::default()
    }
}

fn record(time: u64, kind: RecordKind, vm: u8, detail: u32) -> Record {
    let record = Record { time, kind: kind as u16, vm, detail, ..Record::default() };
    record.with_sequence(CORE)
}

fn call(time: u64) -> Record {
    record(time, RecordKind::Exit, BROKER, ExitCause::Call as u32)
}

/// A record with phases.
fn step(mut record: Record, phases: [u64; 4], value: u64) -> Record {
    record.count = pack(phases);
    record.rest = value;
    record.with_sequence(CORE)
}

fn sent(time: u64, (vm, flow, head): (u8, u8, u16), seen: u64) -> Record {
    let sent = record(time, RecordKind::PacketSent, vm, packet(flow, head));
    step(sent, [93, 700, 30, 60], seen)
}

fn chunk(time: u64, engine: u32, bytes: u64) -> Record {
    step(record(time, RecordKind::PacketChunk, 3, engine | 7), [600, 100, 1300, 200], bytes)
}

fn arrived(time: u64, (vm, flow, head): (u8, u8, u32), wake: u64, latency: u64) -> Record {
    let arrived = record(time, RecordKind::PacketArrived, vm, packet(flow, 0) | head);
    step(arrived, [400, wake, 120, 300], latency)
}

/// The flows: `short` has the earlier deadline.
fn flows() -> survey::Flows {
    let flow = |deadline| Flow {
        period: Some(Nanos(100_000)),
        deadline: Some(Nanos(deadline)),
        to: vec![3],
        ..Flow::default()
    };
    [(0, flow(10_000)), (1, flow(90_000))].into()
}

fn again(records: &[Record]) -> Trace<Cursor<Vec<u8>>> {
    let mut trace = trace(TraceFacts { flows: Vec::new(), ..facts() }, records);
    trace.facts.flows = facts().flows;
    trace
}

fn chosen(name: &str, facts: Facts) -> Chosen {
    let (name, vm) = (name.to_owned(), "long".to_owned());
    Chosen { name, facts, vm, place: 0, reason: None }
}

/// Explains a packet.
fn explained(records: &[Record], flow: u32, number: Option<u64>) -> WhyReport {
    let survey = Survey::read(&mut again(records), &flows()).expect("memory");
    let report = WhyReport::new(Path::new("run"), &chosen_flow(flow));
    let report = parts(&survey, &mut again(records), report, (flow, number)).expect("a packet");
    assert_whole(&report);
    report
}

fn chosen_flow(flow: u32) -> Chosen {
    let bound_ns = Some(80_000);
    chosen(&facts().flow(flow), Facts::Flow(FlowRun { bound_ns, ..FlowRun::default() }))
}

/// The parts follow each other and sum to the whole.
fn assert_whole(report: &WhyReport) {
    let mut now = report.from_ns.unwrap_or(0);
    for part in &report.parts {
        assert_eq!(part.from_ns, now, "{report}");
        now += part.ns;
    }
    assert_eq!(now, report.from_ns.unwrap_or(0) + report.total_ns, "{report}");
}

/// The parts without their places: name and length.
fn lengths(report: &WhyReport) -> Vec<(&str, u64)> {
    report.parts.iter().map(|part| (part.what.as_str(), part.ns)).collect()
}

#[test]
fn the_parts_of_a_lone_packet_are_its_phases() {
    let records = [
        call(500),
        record(1100, RecordKind::Interrupt, BROKER, 1),
        call(5100),
        sent(5300, (0, 0, 0), 1000),
        chunk(5340, 0, 1000),
        arrived(5400, (0, 0, 0), 300, 4380),
    ];
    let report = explained(&records, 0, None);
    assert_eq!((report.number, report.count, report.total_ns), (Some(1), 1, 4380));
    let expected = [
        ("wake-up of the broker", 300),
        ("take the packet", 790),
        ("find its place by deadline", 400),
        ("pick the chunk by deadline", 600),
        ("prepare the chunk", 100),
        ("copy the chunk", 1300),
        ("complete the chunk", 200),
        ("return buffers, interrupt", 690),
    ];
    assert_eq!(lengths(&report), expected);
    let terms: Vec<_> = report.parts.iter().filter_map(|part| part.term.as_deref()).collect();
    let expected = ["wake", "ql+pp+qi", "qa", "ps", "pd", "copy+C/b", "qr", "ft"];
    assert!(terms.iter().zip(expected).all(|(term, end)| term.ends_with(end)), "{terms:?}");
    assert!(
        report
            .parts
            .iter()
            .all(|part| { (part.vm.as_deref(), part.core) == (Some("broker"), Some(CORE)) })
    );
    assert_eq!(report.notes, [""; 0]);
}

#[test]
fn chunks_of_other_flows_have_their_names() {
    // The chunk of `long` blocks, then that of `short`, which comes first, delays `long`.
    let records = [
        call(500),
        call(4000),
        sent(4100, (1, 1, 0), 600),
        chunk(4140, 0, 4096),
        call(10_000),
        sent(10_100, (0, 0, 0), 3000),
        chunk(10_140, 0, 1000),
        arrived(10_200, (0, 0, 0), 0, 7150),
        call(13_000),
        chunk(13_100, 0, 1000),
        arrived(13_200, (1, 1, 0), 0, 12_500),
    ];
    let short = explained(&records, 0, None);
    assert_eq!(lengths(&short)[0], ("chunk of packet 1 of long", 1000));
    assert_eq!(short.parts[0].term.as_deref(), Some("blocking q'"));
    let long = explained(&records, 1, None);
    let other = long.parts.iter().find(|part| part.what == "chunk of packet 1 of short");
    assert_eq!(other.map(|part| (part.ns, part.term.as_deref())), Some((2200, Some("demand"))));
    let gap = long.parts.iter().filter(|part| part.what == NOT_RECORDED);
    assert!(gap.map(|part| part.ns).sum::<u64>() > 0, "{long}");
}

#[test]
fn records_that_wait_for_later_calls_are_placed() {
    // Three packets are taken in one step, and two records go with each call.
    let head = [(0, 0, 0), (1, 1, 0), (1, 1, 1)];
    let records = [
        call(500),
        call(8000),
        sent(8100, head[0], 1000),
        sent(8110, head[1], 1000),
        arrived(8200, (0, 0, 0), 0, 7050),
        call(11_000),
        sent(11_100, head[2], 1000),
        chunk(11_110, 0, 1000),
        arrived(11_200, (1, 1, 0), 0, 10_050),
        call(14_000),
        chunk(14_100, 0, 1000),
        call(14_500),
        call(15_000),
    ];
    let report = explained(&records, 0, None);
    let copies = report.parts.iter().filter(|part| part.what == "copy the chunk");
    assert_eq!(copies.map(|part| part.ns).collect::<Vec<_>>(), [1300], "{report}");
    let long = explained(&records, 1, Some(1));
    let others = long.parts.iter().filter(|part| part.what == "chunk of packet 1 of short");
    assert_eq!(others.count(), 1, "{long}");
}

#[test]
fn calls_of_the_engine_are_in_its_chunk() {
    let records = [
        call(500),
        call(3500),
        call(4100),
        call(5100),
        sent(5300, (0, 0, 0), 1000),
        chunk(5340, BY_ENGINE, 1000),
        arrived(5400, (0, 0, 0), 300, 4380),
    ];
    let report = explained(&records, 0, None);
    assert!(lengths(&report).contains(&("the DMA engine moves the chunk", 1300)), "{report}");
}

#[test]
fn pacing_and_missing_buffers_are_told_apart() {
    let records = |waited: u32| {
        [
            call(500),
            call(5100),
            sent(5300, (1, 1, 0), 1000),
            chunk(5340, 0, 4096),
            record(30_000, RecordKind::Interrupt, BROKER, 27),
            call(34_000),
            chunk(34_100, 0, 1000),
            arrived(34_200, (1, 1, waited), 300, 33_100),
        ]
    };
    let wait = |waited, what: &str| {
        let report = explained(&records(waited), 1, None);
        let found = report.parts.iter().find(|part| part.what == what).cloned();
        found.unwrap_or_else(|| panic!("{report}"))
    };
    let pacing = wait(0, "wait for bandwidth (pacing)");
    assert_eq!((pacing.from_ns + pacing.ns, pacing.term.as_deref()), (30_000, Some("b")));
    let buffers = wait(WAITED, "the receiver has no buffer");
    assert_eq!((buffers.vm.as_deref(), buffers.core), (Some("receiver"), Some(2)));
    assert_eq!(buffers.term, None);
}

#[test]
fn a_core_of_others_is_a_part() {
    let switch = |time, vm| record(time, RecordKind::VcpuSwitch, vm, 0);
    let records = [
        call(500),
        switch(800, 1),
        switch(2000, BROKER),
        call(7000),
        sent(7100, (0, 0, 0), 1000),
        chunk(7140, 0, 1000),
        arrived(7200, (0, 0, 0), 0, 6150),
    ];
    let report = explained(&records, 0, None);
    assert_eq!(lengths(&report)[0], ("broker off its core", 1000));
    assert_eq!(report.parts[0].vm.as_deref(), Some("long"));
}

#[test]
fn an_early_packet_begins_with_its_period() {
    let records = [
        call(500),
        call(5100),
        sent(5300, (0, 0, 0), 1000),
        chunk(5340, 0, 1000),
        arrived(5400, (0, 0, 0), 300, 4380),
        call(60_000),
        sent(60_100, (0, 0, 1), 51_000),
        record(101_050, RecordKind::Interrupt, BROKER, 27),
        call(105_000),
        chunk(105_100, 0, 1000),
        arrived(105_200, (0, 0, 1), 0, 4100),
    ];
    let report = explained(&records, 0, Some(2));
    assert_eq!((report.from_ns, report.number, report.count), (Some(101_000), Some(2), 2));
    assert!(report.notes[0].contains("50000 ns before the packet's period"), "{report}");
}

#[test]
fn a_packet_that_is_not_there_is_refused() {
    let records = [call(500), arrived(5400, (0, 0, 0), 300, 400)];
    let survey = Survey::read(&mut again(&records), &flows()).expect("memory");
    let refused = |flow, number| {
        let report = WhyReport::new(Path::new("run"), &chosen_flow(flow));
        parts(&survey, &mut again(&records), report, (flow, number)).expect_err("refused").text
    };
    assert!(refused(0, Some(2)).contains("no packet 2: 1 packets arrived"));
    assert!(refused(1, None).contains("no packet arrived"));
    // Its sending is not in the trace.
    let report = explained(&records, 0, None);
    assert!(report.notes[0].contains("the beginning is known"), "{report}");
}

#[test]
fn a_period_is_throttled_from_throttle_to_wake() {
    let counted = |time, kind, used, budget| {
        let counted = Record { count: used, rest: budget, ..record(time, kind, 1, 0) };
        counted.with_sequence(1)
    };
    let records = [
        counted(1000, RecordKind::Replenish, 0, 50),
        counted(1600, RecordKind::Throttle, 55, 50),
        counted(2000, RecordKind::Replenish, 56, 50),
        counted(2010, RecordKind::Wake, 0, 44),
        counted(2500, RecordKind::Throttle, 50, 44),
        counted(3000, RecordKind::Replenish, 50, 50),
        counted(3005, RecordKind::Wake, 0, 50),
    ];
    let explained = |number| {
        let budget = finding_of_budget("all", Finding::holds());
        let chosen = chosen("long/0/all", Facts::Budget(budget.clone()));
        let report = WhyReport::new(Path::new("run"), &chosen);
        budget::parts(&mut again(&records), report, ("long", &budget), number)
    };
    let worst = explained(None).expect("a period");
    assert_whole(&worst);
    assert_eq!((worst.number, worst.count, worst.total_ns), (Some(2), 2, 1000));
    let expected = [
        ("EL2 begins the period and wakes the vCPU", 10),
        ("not throttled", 490),
        ("throttled: budget of all accesses spent", 500),
    ];
    assert_eq!(lengths(&worst), expected);
    let first = explained(Some(1)).expect("a period");
    assert_eq!(lengths(&first)[1].1, 400);
    assert!(explained(Some(3)).expect_err("under way").text.contains("no period 3: 2 periods"));
}

fn finding_of_task(max: u64, finding: Finding) -> TaskFinding {
    TaskFinding {
        name: "t".to_owned(),
        deadline_ns: 100,
        activations: Some(4),
        misses: Some(0),
        bound_ns: None,
        observed_max_ns: Some(max),
        max_activation: Some(2),
        missed: Vec::new(),
        finding,
    }
}

fn finding_of_budget(counts: &str, finding: Finding) -> BudgetFinding {
    BudgetFinding {
        vcpu: 0,
        counts: counts.to_owned(),
        budget: 50,
        period_ns: 1000,
        periods: 4,
        max_used: 50,
        throttled_periods: 2,
        throttled_ns: 900,
        max_throttled_ns: 500,
        max_beyond: 0,
        overshoot: Some(100),
        exceeded_periods: 0,
        finding,
    }
}

/// The report of a run without objects.
fn report() -> RunReport {
    serde_json::from_value(json!({
        "system": "s", "platform": "p", "started": true, "ended_by": "all-met", "time_ns": 9,
        "clock": "emulated", "verdict": null, "verdict_of": [], "vms": [], "hypervisor": [],
        "totals": Totals::default(),
    }))
    .expect("a report")
}

/// A report with a flow, a task and a budget.
fn reported(flow: u64, task: u64, beyond: u64, fails: &str) -> ReportedRun {
    let finding = |name: &str| {
        if name == fails { Finding::failed("late".to_owned()) } else { Finding::holds() }
    };
    let flow = FlowRun {
        name: "f".to_owned(),
        latency_ns: Some(Latency { max: flow, ..Latency::default() }),
        bound_ns: Some(100),
        finding: Some(finding("f")),
        ..FlowRun::default()
    };
    let budget = finding_of_budget("reads", finding("b"));
    let vm = VmRun {
        name: "v".to_owned(),
        tasks: vec![finding_of_task(task, finding("t"))],
        budgets: vec![BudgetFinding { max_beyond: beyond, ..budget }],
        ..VmRun::default()
    };
    ReportedRun::of(
        Path::new("runs/one"),
        RunReport { flows: vec![flow], vms: vec![vm], ..report() },
    )
}

#[test]
fn without_a_subject_the_worst_one_is_explained() {
    let worst = |run: &ReportedRun| run.choose(&WhyQuery::default()).expect("a subject");
    for (run, name, reason) in [
        (reported(50, 20, 30, ""), "f", "max/bound is 0.500, the greatest of the run"),
        (reported(50, 60, 30, ""), "t", "max/deadline is 0.600, the greatest of the run"),
        (reported(50, 60, 30, "t"), "t", "it does not hold; max/deadline is 0.600"),
        (reported(50, 60, 70, ""), "v/0/reads", "max above limit/overshoot is 0.700"),
        (reported(50, 60, 70, "f"), "f", "it does not hold; max/bound is 0.500"),
    ] {
        let chosen = worst(&run);
        assert_eq!(chosen.name, name);
        assert!(chosen.reason.as_deref().unwrap_or_default().starts_with(reason), "{chosen:?}");
    }
    let flows = vec![FlowRun { name: "f".to_owned(), ..FlowRun::default() }];
    let nothing =
        ReportedRun::of(Path::new("runs/one"), RunReport { flows, vms: Vec::new(), ..report() });
    assert!(nothing.choose(&WhyQuery::default()).is_err());
}

#[test]
fn a_subject_has_the_names_of_the_report() {
    let run = reported(50, 60, 70, "");
    let choose = |subject| run.choose(&WhyQuery { subject: Some(subject), number: None });
    for name in ["v", "v/0", "v/0/reads"] {
        let chosen = choose(Subject::Budget(name.into())).expect("a budget");
        assert_eq!((chosen.name.as_str(), chosen.reason), ("v/0/reads", None));
    }
    assert_eq!(choose(Subject::Task("v/t".into())).expect("a task").name, "t");
    let refused = choose(Subject::Flow("g".into())).expect_err("refused");
    assert!(refused.text.contains("no flow `g`: it has f"), "{}", refused.text);
}

/// A mark of task `t` of VM `long` on core 1.
fn mark(time: u64, kind: RecordKind, age: u64) -> Record {
    let count = MarkName::new("t").0;
    Record { count, rest: age, ..record(time, kind, 1, 0) }.with_sequence(1)
}

#[test]
fn the_parts_of_a_response_are_an_activation_s() {
    let on_core = |time, kind, vm| record(time, kind, vm, 0).with_sequence(1);
    let records = [
        mark(100, RecordKind::TaskRelease, 10),
        mark(150, RecordKind::TaskComplete, 0),
        // Released at 1000, while another VM has the core.
        on_core(900, RecordKind::VcpuSwitch, 0),
        on_core(1400, RecordKind::VcpuSwitch, 1),
        mark(1430, RecordKind::TaskRelease, 430),
        on_core(1500, RecordKind::Interrupt, 1),
        on_core(1600, RecordKind::Throttle, 1),
        // Of another core.
        record(1650, RecordKind::VcpuSwitch, 0, 0),
        on_core(1900, RecordKind::Wake, 1),
        mark(2000, RecordKind::TaskComplete, 0),
        on_core(2100, RecordKind::VcpuSwitch, 0),
    ];
    let task = finding_of_task(1000, Finding::holds());
    let chosen = chosen("t", Facts::Task(task.clone()));
    let explained = |number| {
        let found = task::find(&mut again(&records), ("long", &task), number)?;
        task::parts(&mut again(&records), WhyReport::new(Path::new("run"), &chosen), found)
    };
    let worst = explained(None).expect("an activation");
    assert_whole(&worst);
    assert_eq!((worst.number, worst.count, worst.total_ns), (Some(2), 2, 1000));
    let expected = [
        ("off its core", 400),
        ("from the release to its mark: EL2, and other work of the VM", 30),
        ("the task, and what interrupts it", 170),
        ("throttled: memory budget spent", 300),
        ("the task, and what interrupts it", 100),
    ];
    assert_eq!(lengths(&worst), expected);
    assert_eq!(worst.parts[0].vm.as_deref(), Some("short"));
    assert!(worst.notes[0].starts_with("1 interrupts came"), "{worst}");
    assert!(worst.to_string().starts_with("task t, activation 2 of 2: response 1000 ns\n"));
    let first = explained(Some(1)).expect("an activation");
    assert_eq!((first.from_ns, first.total_ns), (Some(90), 60));
    let refused = explained(Some(3)).expect_err("two activations");
    assert!(refused.text.contains("no activation 3: its VM marked 2"), "{}", refused.text);
}

#[test]
fn the_text_has_sums_and_a_line_of_time() {
    let records = [
        call(500),
        call(5100),
        sent(5300, (0, 0, 0), 1000),
        chunk(5340, 0, 1000),
        arrived(5400, (0, 0, 0), 300, 4380),
    ];
    let text = explained(&records, 0, None).to_string();
    let lines: Vec<_> = text.lines().collect();
    let scale = lines.iter().position(|line| line.contains("a column is 73 ns")).expect("a scale");
    let letters = lines[scale - 1].trim();
    assert!(letters.len() == 60 && letters.starts_with("aaaabbbb"), "{text}");
    assert!(letters.ends_with("hhhhh"), "{text}");
    assert!(text.starts_with("flow short, packet 1 of 1: latency 4380 ns\n"), "{text}");
    assert!(text.contains("bound 80000 ns (latency/bound 0.054)"), "{text}");
    let sum = text.lines().find(|line| line.contains(" sum ")).expect("a sum");
    assert!(sum.trim_end().ends_with("4380"), "{text}");
}

#[test]
fn a_damaged_record_breaks_no_sum() {
    let whole =
        [call(500), call(5100), sent(5300, (0, 0, 0), 1000), arrived(5400, (0, 0, 0), 300, 4380)];
    for (at, time) in (0..whole.len()).flat_map(|at| [0, 1, u64::MAX].map(|time| (at, time))) {
        let mut records = whole;
        records[at].time = time;
        let survey = Survey::read(&mut again(&records), &flows()).expect("memory");
        let report = WhyReport::new(Path::new("run"), &chosen_flow(0));
        if let Ok(report) = parts(&survey, &mut again(&records), report, (0, None)) {
            assert_whole(&report);
        }
    }
    let mut records = whole;
    // A latency that is longer than the run.
    records[3].rest = (1 << 48) - 1;
    assert!(explained(&records, 0, None).total_ns <= 5400);
}

#[test]
fn a_trace_without_the_packet_names_its_damage() {
    let records = [call(500)];
    let mut survey = Survey::read(&mut again(&records), &flows()).expect("memory");
    survey.damage = Some("it is cut short: 1 of 5 records".to_owned());
    let report = WhyReport::new(Path::new("run"), &chosen_flow(0));
    let refused = parts(&survey, &mut again(&records), report, (0, None)).expect_err("damaged");
    assert!(refused.text.contains("cut short: 1 of 5") && refused.status == 1, "{}", refused.text);
}

#[test]
fn a_report_of_another_version_is_refused() {
    let run = tempfile::tempdir().expect("a directory");
    for (text, why) in [
        (r#"{ "version": 99 }"#, "is of version 99, and this weir reads 1"),
        ("[]", "is damaged: invalid length"),
        ("{", "is damaged"),
    ] {
        std::fs::write(run.path().join("report.json"), text).expect("a file");
        let refused = super::why(run.path(), &WhyQuery::default()).expect_err(text);
        assert!(refused.text.contains(why), "{}", refused.text);
    }
}
