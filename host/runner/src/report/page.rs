//! The page of [`weir_report::html`] has each field of a report.

use super::{
    ConsoleCounts, End, EngineRun, Expected, FaultReport, FlowRun, FrameCounts, RefusedDma,
    RunReport, State, Totals, VcpuRun, VmRun,
};
use crate::findings::{BudgetFinding, Clock, Finding, InterruptFinding, Latency, TaskFinding};
use weir_report::RunFiles;
use weir_trace::wire::Regulator;

/// Without `..Default::default()`: who adds a field adds it here, and then to the page.
fn vm(name: &str) -> VmRun {
    let finding = Finding::holds();
    let exits = Some([("fault", 3)].into());
    let fault = FaultReport {
        time_ns: 1,
        boot: 0,
        vcpu: 0,
        kind: "read".into(),
        address: "0x0".into(),
        pc: "0x4".into(),
        syndrome: "0x9".into(),
        meaning: "data abort".into(),
        guest_syndrome: "0x1".into(),
        guest_meaning: Some("unknown".into()),
        guest_elr: "0x8".into(),
    };
    let dma = RefusedDma {
        time_ns: 1,
        boot: 0,
        stream: 5,
        access: "read",
        kind: "translation",
        address: "0x0".into(),
    };
    let vcpu = VcpuRun {
        number: 0,
        core: 1,
        counted_ns: Some(5),
        state: Some("on"),
        exits: exits.clone(),
        injected: Some(2),
    };
    let budget = BudgetFinding {
        vcpu: 0,
        counts: "all",
        budget: 10,
        period_ns: 1000,
        periods: 9,
        max_used: 8,
        throttled_periods: 1,
        max_beyond: 1,
        overshoot: Some(2),
        exceeded_periods: 0,
        finding: finding.clone(),
    };
    let task = TaskFinding {
        name: "loop".into(),
        deadline_ns: 5,
        activations: Some(3),
        misses: Some(0),
        bound_ns: Some(4),
        observed_max_ns: Some(2),
        finding: finding.clone(),
    };
    let interrupt = InterruptFinding {
        intid: 40,
        deadline_ns: 9,
        delivered: 2,
        late: 0,
        bound_ns: Some(8),
        max_ns: 7,
        finding,
    };
    VmRun {
        name: name.into(),
        state: State::Running,
        boots: 1,
        restarts: 0,
        resets: 0,
        console: ConsoleCounts { bytes: 4, lines: 1, dropped: 0 },
        exits,
        injected: Some(2),
        vcpus: vec![vcpu],
        denials: [("PMU register", 3)].into(),
        dma: vec![dma],
        started_without_broker: true,
        frames: Some(FrameCounts { sent: 1, received: 2, over_rate: 3, refused: 4, missed: 5 }),
        fault_counts: [("read".into(), 1)].into(),
        faults: vec![fault],
        faults_left_out: 0,
        records_lost: 0,
        counted: None,
        event_ns: 0,
        expect: vec![Expected { text: "up".into(), met: true, time_ns: Some(3) }],
        budgets: vec![budget],
        interrupts: vec![interrupt],
        tasks: vec![task],
    }
}

fn report() -> RunReport {
    let latency =
        Latency { min: 1, p50: Some(2), p99: Some(3), max: 4, max_packet: 1, max_arrived_ns: 9 };
    let flow = FlowRun {
        name: "setpoints".into(),
        packets: 3,
        lost: 0,
        observed_max_ns: 4,
        deadline_ns: Some(8),
        period_ns: Some(9),
        first_receiver: 0,
        ends_on_core: false,
        late: 0,
        latency_ns: Some(latency),
        bound_ns: Some(5),
        finding: Some(Finding::not_judged("host time")),
        counted_ns: Some(9),
        dropped: Some(0),
    };
    let engine = EngineRun {
        name: "GDMA".into(),
        paced: Some(1),
        qos_level: Some(2),
        qos_bandwidth: Some(3),
        firmware: Some(Regulator::Refused),
        firmware_code: Some(-4),
    };
    RunReport {
        system: "demo".into(),
        platform: "qemu-virt".into(),
        started: true,
        ended_by: End::AllMet,
        time_ns: 9,
        clock: Clock::Emulated,
        memory: Some("zcu102".into()),
        verdict: Some("not-judged"),
        verdict_of: vec!["flow setpoints".into()],
        vms: vec![vm("control"), vm("linux")],
        flows: vec![flow],
        engine: Some(engine),
        totals: Totals { expected: 2, met: 2, ..Totals::default() },
        board_resets: 1,
        hypervisor: vec!["weir on 2 cores".into()],
    }
}

#[test]
fn a_page_has_each_field_of_a_report() {
    let files = RunFiles { report: report().json().0, ..RunFiles::default() };
    let page = weir_report::html(&files).expect("a page");
    assert!(!page.contains(" values</li>"), "{page}");
    assert!(page.contains("interrupt 40 of linux"), "{page}");
}

#[test]
fn a_page_knows_each_clock_end_and_state() {
    let page = |report: RunReport| {
        weir_report::html(&RunFiles { report: report.json().0, ..RunFiles::default() })
            .expect("a page")
    };
    for clock in [Clock::Emulated, Clock::Board] {
        assert!(page(RunReport { clock, ..report() }).contains("<li>Times are "), "{clock:?}");
    }
    for (ended_by, bad) in [
        (End::AllMet, false),
        (End::TimeOver, false),
        (End::SystemStop, false),
        (End::Interrupted, true),
        (End::MachineGone, true),
        (End::Silent, true),
    ] {
        let page = page(RunReport { ended_by, ..report() });
        let warnings = if bad { 10 } else { 9 };
        assert!(page.contains(&format!("Warnings: {warnings}<")), "{ended_by:?} {page}");
    }
}
