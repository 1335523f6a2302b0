use super::{files::ConsoleTail, trace::TraceView, *};
use crate::{
    plan::{PlannedArea, PlannedCore, PlannedFlow, PlannedShare, PlannedVm},
    read_report,
    run::{
        BudgetFinding, Clock, ConsoleCounts, CoreRun, DeniedOperation, End, EngineRun, Expected,
        FaultReport, Finding, FlowRun, FrameCounts, InterruptFinding, Latency, LatencyBucket,
        MissedActivation, RefusedDma, RunReport, State, TaskFinding, Totals, VcpuRun, VmRun,
    },
    trace::file::tests::facts,
};
use serde_json::{Value, json};
use std::{fs, path::Path};
use weir_analysis::verdict::Verdict;
use weir_trace::wire::Regulator;

/// Returns numbers that differ from each other.
#[derive(Default)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        1000 + self.0
    }

    fn small(&mut self) -> u32 {
        self.next() as u32
    }

    fn text(&mut self) -> String {
        format!("text-{}", self.next())
    }
}

/// Without `..Default::default()`: who adds a field adds it here, and then to the page.
fn vm(name: &str, n: &mut Numbers) -> VmRun {
    let exits = Some([(n.text(), n.next())].into());
    VmRun {
        name: name.to_owned(),
        state: State::Running,
        boots: n.small(),
        restarts: n.small(),
        resets: n.small(),
        console: ConsoleCounts { bytes: n.next(), lines: n.next(), dropped: 0 },
        exits: exits.clone(),
        injected: Some(n.next()),
        vcpus: vec![VcpuRun {
            number: 0,
            core: 1,
            counted_ns: Some(n.next()),
            state: Some(n.text()),
            exits,
            injected: Some(n.next()),
        }],
        denials: [(n.text(), n.next())].into(),
        denied: vec![DeniedOperation {
            time_ns: n.next(),
            boot: n.small(),
            vcpu: 0,
            kind: n.text(),
            cause: n.text(),
            pc: n.text(),
        }],
        dma: vec![RefusedDma {
            time_ns: n.next(),
            boot: n.small(),
            stream: n.small(),
            access: n.text(),
            kind: n.text(),
            address: n.text(),
        }],
        started_without_broker: false,
        frames: Some(FrameCounts {
            sent: n.next(),
            received: n.next(),
            over_rate: n.next(),
            refused: n.next(),
            missed: n.next(),
        }),
        fault_counts: [(n.text(), n.next())].into(),
        faults: vec![FaultReport {
            time_ns: n.next(),
            boot: n.small(),
            vcpu: 0,
            kind: n.text(),
            address: n.text(),
            pc: n.text(),
            syndrome: n.text(),
            meaning: n.text(),
            guest_syndrome: n.text(),
            guest_meaning: Some(n.text()),
            guest_elr: n.text(),
        }],
        faults_left_out: 0,
        records_lost: n.next(),
        connected: None,
        expect: vec![Expected { text: n.text(), met: true, time_ns: Some(n.next()) }],
        budgets: vec![BudgetFinding {
            vcpu: 0,
            counts: "all".to_owned(),
            budget: n.next(),
            period_ns: n.next(),
            periods: n.next(),
            max_used: n.next(),
            throttled_periods: n.next(),
            throttled_ns: n.next(),
            max_throttled_ns: n.next(),
            max_beyond: n.next(),
            overshoot: Some(n.next()),
            exceeded_periods: n.next(),
            finding: Finding::holds(),
        }],
        interrupts: vec![InterruptFinding {
            intid: n.small(),
            deadline_ns: n.next(),
            delivered: n.next(),
            late: n.next(),
            bound_ns: Some(n.next()),
            max_ns: n.next(),
            finding: Finding::not_judged(n.text()),
        }],
        tasks: vec![task(n)],
    }
}

/// Without `..Default::default()`, for the same reason.
fn task(n: &mut Numbers) -> TaskFinding {
    TaskFinding {
        name: n.text(),
        deadline_ns: n.next(),
        activations: Some(n.next()),
        misses: Some(n.next()),
        bound_ns: Some(n.next()),
        observed_max_ns: Some(n.next()),
        max_activation: Some(n.next()),
        missed: vec![MissedActivation {
            activation: n.next(),
            release_ns: n.next(),
            response_ns: n.next(),
            skipped: n.next() as u32,
        }],
        finding: Finding::holds(),
    }
}

fn flow(n: &mut Numbers) -> FlowRun {
    FlowRun {
        name: "setpoints".to_owned(),
        from: n.text(),
        to: n.text(),
        address: n.text(),
        packets: n.next(),
        lost: n.next(),
        observed_max_ns: 0,
        deadline_ns: Some(n.next()),
        period_ns: None,
        ends_on_core: false,
        first_receiver: 0,
        late: n.next(),
        latency_ns: Some(Latency {
            min: n.next(),
            p50: Some(n.next()),
            p99: Some(n.next()),
            max: n.next(),
            max_packet: n.next(),
            max_arrived_ns: n.next(),
        }),
        distribution: vec![LatencyBucket { from_ns: n.next(), to_ns: n.next(), packets: n.next() }],
        bound_ns: Some(n.next()),
        finding: Some(Finding::failed("the longest took 1500 ns".to_owned())),
        counted_ns: Some(n.next()),
        dropped: Some(n.small()),
    }
}

/// A run of two VMs with a flow above its bound.
fn report() -> RunReport {
    let n = &mut Numbers::default();
    RunReport {
        system: "demo".to_owned(),
        platform: "qemu-virt".to_owned(),
        started: true,
        ended_by: End::AllMet,
        time_ns: 9000,
        clock: Clock::Emulated,
        memory: Some(n.text()),
        verdict: Some(Verdict::DoesNotHold),
        verdict_of: vec!["flow setpoints".to_owned()],
        vms: vec![vm("control", n), vm("linux", n)],
        flows: vec![flow(n)],
        cores: vec![CoreRun {
            core: 3,
            switches: Some(n.next()),
            max_switch_ns: Some(n.next()),
            stated_switch_ns: Some(n.next()),
        }],
        engine: Some(EngineRun {
            name: n.text(),
            paced: None,
            qos_level: None,
            qos_bandwidth: None,
            firmware: Some(Regulator::Absent),
            firmware_code: None,
        }),
        totals: Totals { expected: 2, met: 2, ..Totals::default() },
        board_resets: n.next(),
        hypervisor: vec![n.text()],
    }
}

/// A run with nothing that is judged.
fn unjudged() -> RunReport {
    let mut report = report();
    report.flows.clear();
    for vm in &mut report.vms {
        vm.tasks.clear();
        vm.budgets.clear();
        vm.interrupts.clear();
    }
    RunReport { verdict: None, verdict_of: Vec::new(), ..report }
}

fn plan() -> SystemPlan {
    let share = |vm: &str, start_ns| PlannedShare {
        vm: vm.to_owned(),
        start_ns,
        length_ns: 500_000,
        period_ns: None,
    };
    let vm = |name: &str| PlannedVm {
        name: name.to_owned(),
        cores: vec![0],
        memory_bytes: 4 << 20,
        ..PlannedVm::default()
    };
    SystemPlan {
        system: "demo".to_owned(),
        platform: "qemu-virt".to_owned(),
        vms: vec![vm("control"), vm("linux")],
        cores: vec![PlannedCore {
            core: 0,
            schedule: Some("table, major frame 1ms".to_owned()),
            frame_ns: 1_000_000,
            shares: vec![share("control", 0), share("linux", 500_000)],
        }],
        flows: vec![PlannedFlow {
            name: "setpoints".to_owned(),
            from: "linux".to_owned(),
            to: "control".to_owned(),
            address: "3:5000".to_owned(),
            size_bytes: 4096,
            period_ns: Some(1_000_000),
            deadline_ns: None,
        }],
        ..SystemPlan::default()
    }
}

fn files(report: RunReport) -> RunFiles {
    let console = |vm: &VmRun| ConsoleTail {
        log: console_log(&vm.name),
        lines: vec!["booted".to_owned(), "10 activations, 0 misses".to_owned()],
        before: 300,
    };
    let facts = json!({
        "version": 1, "weir": "0.1.0", "hypervisor_build": "d06c3963dd60",
        "overheads": [{
            "file": "platform qemu-virt", "command": "weir bench board",
            "build": "d06c3963dd60", "date": "2026-01-30", "same_build": true,
        }],
        "assumed": ["qemu-virt [saturation]: assumed"],
        "qemu": "QEMU emulator version 7.2.22", "command": ["weir", "run", "demo.toml"],
        "system": "demo.toml", "image_bytes": 417_792, "counter_page": null,
        "debian_packages": [{ "name": "busybox", "version": "1:1.35", "sha256": "73" }],
        "started": "2026-01-31T12:00:00Z", "trace": { "records": 24, "lost": 0 },
    });
    RunFiles {
        run: "2026-01-31T12-00-00Z".to_owned(),
        consoles: report.vms.iter().map(console).collect(),
        report,
        facts: Some(serde_json::from_value(facts).expect("facts")),
        plan: Some(plan()),
        system: Some("[[vm]]\nname = \"<a>\"\ncpus = [1]\n".to_owned()),
        has_trace: true,
        trace: TraceView {
            kinds: [("exit", 16), ("packet-sent", 8)].into(),
            ..TraceView::default()
        },
        directory: None,
    }
}

fn page(report: RunReport) -> String {
    run_page(&files(report)).expect("a page")
}

#[test]
fn the_page_of_a_small_run_is_as_recorded() {
    snapbox::assert_data_eq!(page(report()), snapbox::file!["golden.html": Text].raw());
}

/// Collects the numbers and texts of a report that differ from all others.
fn leaves(value: &Value, path: &str, found: &mut Vec<(String, String, Option<u64>)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key.starts_with("text-") {
                    found.push((path.to_owned(), key.clone(), None));
                }
                leaves(value, &format!("{path}.{key}"), found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| leaves(value, path, found)),
        Value::String(text) if text.starts_with("text-") => {
            found.push((path.to_owned(), text.clone(), None));
        }
        Value::Number(number) if number.as_u64() > Some(1000) && number.as_u64() < Some(2000) => {
            found.push((path.to_owned(), number.to_string(), number.as_u64()));
        }
        _ => {}
    }
}

#[test]
fn the_page_has_each_field_of_a_report() {
    let report = report();
    let page = page(report.clone());
    let mut found = Vec::new();
    leaves(&serde_json::to_value(&report).expect("JSON"), "", &mut found);
    assert!(found.len() > 100, "{}", found.len());
    for (path, text, number) in found {
        let forms = number.map(|number| [units::count(number), units::time(number)]);
        let is_there =
            page.contains(&text) || forms.iter().flatten().any(|form| page.contains(form.as_str()));
        assert!(is_there, "{path} {text}");
    }
}

#[test]
fn text_of_guests_and_files_is_escaped() {
    let attack = "\"'><script>alert(1)</script>&\u{1b}[2J\u{202e}";
    let escaped =
        "&quot;&#x27;&gt;&lt;script&gt;alert(1)&lt;&#x2f;script&gt;&amp;\\u{1b}[2J\\u{202e}";
    let mut report = report();
    (report.system, report.platform) = (attack.to_owned(), attack.to_owned());
    report.hypervisor = vec![attack.to_owned()];
    report.flows[0].name = attack.to_owned();
    report.flows[0].finding = Some(Finding::failed(attack.to_owned()));
    let vm = &mut report.vms[0];
    vm.name = attack.to_owned();
    vm.expect[0].text = attack.to_owned();
    vm.vcpus[0].state = Some(attack.to_owned());
    vm.tasks[0].name = attack.to_owned();
    vm.denials = [(attack.to_owned(), 3)].into();
    let mut files = files(report);
    files.run = attack.to_owned();
    files.consoles[0].lines = vec![attack.to_owned()];
    let plan = files.plan.as_mut().expect("a plan");
    (plan.vms[0].name, plan.flows[0].name) = (attack.to_owned(), attack.to_owned());
    let facts = files.facts.as_mut().expect("facts");
    (facts.command, facts.assumed) = (vec![attack.to_owned()], vec![attack.to_owned()]);
    let page = run_page(&files).expect("a page");
    assert!(!page.contains("<script"), "{page}");
    let hidden = page.chars().find(|&each| each != '\n' && weir_model::is_hidden(each));
    assert_eq!(hidden, None);
    let all = page.matches(escaped).count();
    assert!(all >= 20, "{all}");
    assert!(page.contains(&format!("<pre>{escaped}</pre>")), "{page}");
}

#[test]
fn a_page_needs_nothing_but_itself() {
    let (run, plan) = (files(report()), plan());
    let pages =
        [run_page(&run), plan_page(&plan, &[], &[]), comparison_page(&run, &run), plan_svg(&plan)];
    for page in pages.map(|page| page.expect("a page")) {
        let page = page.replace("<link rel=\"icon\" href=\"data:,\">", "");
        for word in ["<script", "<link", "<img", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
        let is_page = page.starts_with("<!DOCTYPE html>");
        assert!(is_page == page.contains("default-src 'none'"));
        // Each figure has a text alternative.
        let figures = page.matches("class=\"figure\"").count();
        assert_eq!(page.matches("role=\"img\" aria-labelledby=").count(), figures);
        assert!(figures > 0 || page.contains("<h1>Two runs"), "{page}");
    }
}

#[test]
fn each_verdict_is_named_with_its_reasons() {
    let with = |finding: Finding| {
        let mut report = unjudged();
        report.verdict = Some(finding.verdict);
        report.flows = vec![FlowRun { finding: Some(finding), ..flow(&mut Numbers::default()) }];
        page(report)
    };
    let bad = with(Finding::failed("too late".to_owned()));
    assert!(bad.contains("<span class=\"badge does-not-hold\">Verdict: does not hold</span>"));
    assert!(bad.contains("<b>flow setpoints</b> does not hold: too late</li>"), "{bad}");
    let open = with(Finding::not_judged("no packet arrived"));
    assert!(open.contains("<span class=\"badge not-judged\">Verdict: not judged</span>"));
    assert!(open.contains("<b>flow setpoints</b> not judged: no packet arrived</li>"));
    let good = with(Finding::holds());
    assert!(good.contains("<span class=\"badge holds\">Verdict: holds</span>"));
    assert!(good.contains("kept its limits"));
    // The verdict stands ahead of all else.
    let place = |text: &str| bad.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(place("Verdict: ") < place("too late") && place("too late") < place("<h2>"));
}

#[test]
fn a_system_without_limits_has_no_verdict() {
    let page = page(unjudged());
    assert!(page.contains("Verdict: no limits") && page.contains("nothing is judged"));
    assert!(!page.contains("Limits and observed maxima"));
}

#[test]
fn a_verdict_that_is_not_that_of_its_parts_is_refused() {
    let report = RunReport { verdict: Some(Verdict::Holds), ..report() };
    let failure = run_page(&files(report)).expect_err("refused");
    assert!(failure.text.contains("`verdict` is not that of its parts"), "{failure}");
}

#[test]
fn what_went_wrong_is_a_warning() {
    let mut report = report();
    report.vms[0].expect[0] = Expected { text: "0 \"x\"".to_owned(), met: false, time_ns: None };
    let linux = &mut report.vms[1];
    linux.state = State::Halted;
    linux.fault_counts = [("read outside its memory".to_owned(), 2)].into();
    linux.console.dropped = 12;
    linux.exits = None;
    report.totals.met = 1;
    (report.totals.records_lost, report.totals.damaged_frames) = (5, 6);
    (report.started, report.ended_by, report.board_resets) = (false, End::MachineGone, 7);
    report.cores[0].max_switch_ns = Some(u64::MAX);
    let (facts, plan, trace) = (None, None, TraceView::default());
    let consoles = Vec::new();
    let files = RunFiles { facts, plan, trace, consoles, has_trace: false, ..files(report) };
    let page = run_page(&files).expect("a page");
    for warning in [
        "control: did not print &quot;0 &quot;x&quot;&quot;",
        "linux: halted at the end",
        "linux: faults: 2 read outside its memory",
        "linux: 12 console bytes lost",
        "linux: the counters of a vCPU did not arrive",
        "5 of the hypervisor&#x27;s records were lost",
        "6 frames of the wire were damaged",
        "the hypervisor never reported its start",
        "the machine was gone before the system ended",
        "the board was reset 7 times: everything is counted from the last start",
        "core 3: a switch took longer than the stated one",
        "run.json is missing or damaged: the build, QEMU, the date and the command are not known",
        "plan.json is missing or damaged: the page does not show the plan",
        "the run has no trace.bin",
        "linux.log is missing: this page has nothing of this console",
    ] {
        assert!(page.contains(&format!("<li>{warning}</li>")), "{warning}\n{page}");
    }
    assert!(page.contains("does-not-hold\">Expected lines: 1 of 2 printed"));
}

#[test]
fn long_lists_of_faults_end_with_their_number() {
    let mut report = report();
    let fault = report.vms[0].faults[0].clone();
    report.vms[0].faults = vec![fault; 21];
    report.vms[0].faults_left_out = 9;
    let page = page(report);
    assert_eq!(page.matches("<li>fault of control/0 at ").count(), 20);
    assert!(page.contains("control: 10 more faults are in report.json"), "{page}");
}

#[test]
fn guessed_sizes_are_named_next_to_the_memory_map() {
    let plan = SystemPlan {
        ram_bytes: 1 << 30,
        memory: vec![PlannedArea { bytes: 1 << 30, ..PlannedArea::default() }],
        ..plan()
    };
    let page =
        plan_page(&plan, &["weir's image at 3MiB".to_owned()], &["W0903: `<pmu>`".to_owned()])
            .expect("a page");
    assert!(page.contains("<li>W0903: `&lt;pmu&gt;`</li>"), "{page}");
    assert!(page.contains("Sizes guessed: weir&#x27;s image at 3MiB; the map of"), "{page}");
    assert!(!plan_page(&plan, &[], &[]).expect("a page").contains("Sizes guessed"));
}

#[test]
fn two_runs_are_compared() {
    let (before, mut after) = (files(report()), files(report()));
    let slower = |flow: &mut FlowRun| {
        let latency = flow.latency_ns.as_mut().expect("packets");
        latency.max *= 2;
    };
    after.report.flows.iter_mut().for_each(slower);
    after.report.vms[1].tasks.clear();
    let plan = after.plan.as_mut().expect("a plan");
    plan.vms[1].memory_bytes = 8 << 20;
    let page = comparison_page(&before, &after).expect("a page");
    assert!(page.contains("<td class=\"number\">2.000</td>"), "{page}");
    assert!(page.contains("not in this run"));
    let difference = "<tr><td>vm linux: memory</td><td>4 MiB</td><td>8 MiB</td></tr>";
    assert!(page.contains(difference), "{page}");
    let same = comparison_page(&before, &before).expect("a page");
    assert!(same.contains("Both runs have the same system"));
    let regulated = Some("[[vm]]\nname = \"<a>\"\ncpus = [2]\n".to_owned());
    let other = RunFiles { system: regulated, ..files(report()) };
    let page = comparison_page(&before, &other).expect("a page");
    assert!(page.contains("<pre>- cpus = [1]\n+ cpus = [2]\n</pre>"), "{page}");
    assert!(!page.contains("the same system"));
    let mut damaged = files(report());
    damaged.report.verdict = None;
    assert!(comparison_page(&before, &damaged).is_err());
}

#[test]
fn a_damaged_report_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |json: &Value| {
        fs::write(directory.path().join("report.json"), json.to_string()).expect("a file");
        read_report(directory.path()).expect_err("refused").text
    };
    let whole = report().json().0;
    let with = |pointer: &str, value: Value| {
        let mut report = whole.clone();
        *report.pointer_mut(pointer).expect(pointer) = value;
        refused(&report)
    };
    let mut without = whole.clone();
    without["vms"][1].as_object_mut().expect("an object").remove("boots");
    for (failure, cause) in [
        (refused(&json!([])), "invalid length"),
        (refused(&json!({})), "missing field `version`"),
        (with("/version", json!(2)), "is of version 2, and this weir reads 1"),
        (with("/vms", json!(3)), "expected a sequence"),
        (refused(&without), "missing field `boots`"),
        (with("/system", json!(3)), "expected a string"),
        (with("/clock", json!("moon")), "unknown variant `moon`"),
        (with("/ended_by", json!("x")), "unknown variant `x`"),
        (with("/flows/0/bound_ns", json!(-1)), "expected u64"),
    ] {
        assert!(failure.contains(cause), "{failure}");
        assert!(failure.ends_with("; run the system again"), "{failure}");
    }
    fs::write(directory.path().join("report.json"), whole.to_string()).expect("a file");
    let read = read_report(directory.path()).expect("a report");
    assert_eq!(serde_json::to_value(read).expect("JSON"), json!(report()));
}

/// Writes a run with a trace of these bytes.
fn directory(trace: Option<&[u8]>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(directory.path().join(name), bytes).expect("a file");
    };
    write("report.json", report().json().to_string().as_bytes());
    write("run.json", b"{ \"trace\": { \"records\": 2, \"lost\": 0 } }");
    let lines: Vec<_> = (1..=30).map(|line| format!("line {line}\r\n")).collect();
    write("control.log", lines.concat().as_bytes());
    if let Some(trace) = trace {
        write("trace.bin", trace);
    }
    directory
}

fn read(directory: &Path) -> (RunFiles, String) {
    let files = RunFiles::read(directory).expect("a run");
    let page = run_page(&files).expect("a page");
    (files, page)
}

#[test]
fn the_ends_of_consoles_are_read() {
    let directory = directory(None);
    let (files, page) = read(directory.path());
    let [console] = files.consoles.as_slice() else { panic!("{files:?}") };
    assert_eq!(console.lines.len(), 20);
    assert_eq!((console.lines[0].as_str(), console.lines[19].as_str()), ("line 11", "line 30"));
    assert_eq!(console.before, 9 * 8 + 9);
    assert!(page.contains("81 bytes before these lines are in control.log."));
    assert!(page.contains("<li>linux.log is missing"));
    fs::write(directory.path().join("linux.log"), "x".repeat(10_000)).expect("a file");
    let console = RunFiles::read(directory.path()).expect("a run").consoles.remove(1);
    assert_eq!((console.lines.len(), console.before), (1, 10_000 - 8192));
    fs::write(directory.path().join("linux.log"), "").expect("a file");
    let console = RunFiles::read(directory.path()).expect("a run").consoles.remove(1);
    assert_eq!((console.lines, console.before), (vec![String::new()], 0));
}

#[test]
fn a_missing_or_damaged_trace_is_a_warning() {
    let (files, page) = read(directory(None).path());
    assert!(!files.has_trace);
    assert!(page.contains("<li>the run has no trace.bin</li>"));

    let mut whole = Vec::new();
    crate::trace::file::TraceFacts { records: 2, ..facts() }.write(&mut whole).expect("memory");
    let (files, page) = read(directory(Some(&whole)).path());
    assert!(files.trace_damage().is_some());
    assert!(page.contains("<li>trace.bin: the trace is damaged: it is cut short: 0 of 2 records"));
    assert!(page.contains("<li>trace.bin has 0 records; run.json states 2</li>"));

    let (_, page) = read(directory(Some(b"no trace")).path());
    assert!(page.contains("it is cut short"), "{page}");
}

#[test]
fn a_run_without_a_report_is_a_wrong_call() {
    let directory = directory(None);
    let path = directory.path().join("report.json");
    fs::write(&path, "{").expect("a file");
    let failure = RunFiles::read(directory.path()).expect_err("refused");
    assert!(failure.text.contains("report.json is damaged: EOF"), "{failure}");
    assert_eq!(failure.status, weir_image::failure::CALL);
    fs::remove_file(&path).expect("a file");
    let failure = RunFiles::read(directory.path()).expect_err("refused");
    assert!(failure.text.contains("a run writes this file when it ends"), "{failure}");
}

#[test]
fn the_name_of_a_vm_leads_to_no_other_directory() {
    let directory = directory(None);
    fs::write(directory.path().join("secret.log"), "secret").expect("a file");
    let inner = directory.path().join("run");
    fs::create_dir(&inner).expect("a directory");
    let mut report = report();
    report.vms[0].name = "../secret".to_owned();
    fs::write(inner.join("report.json"), report.json().to_string()).expect("a file");
    let (files, page) = read(&inner);
    assert_eq!((files.consoles.len(), page.contains("<pre>secret")), (0, false));
}

#[test]
fn pages_of_a_run_can_be_replaced_but_no_other_file() {
    let directory = directory(None);
    fs::write(directory.path().join("page.html"), "").expect("a file");
    let mut names: Vec<_> = RunFiles::inputs(directory.path())
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    assert_eq!(names, ["control.log", "report.json", "run.json"]);
}
