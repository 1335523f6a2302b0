use super::*;
use crate::trace::file::tests::facts;
use serde_json::{Value, json};
use std::{fs, path::Path};

/// A run of two VMs with a flow above its bound.
fn report() -> Value {
    let vm = |name: &str| {
        json!({
            "name": name, "state": "running", "boots": 1, "restarts": 0, "resets": 0,
            "console": { "bytes": 37, "lines": 1, "dropped": 0 },
            "exits": { "fault": 0, "timer interrupt": 8 }, "injected": 4,
            "vcpus": [{
                "vcpu": 0, "core": 2, "counted_ns": 8000, "state": "on",
                "exits": { "fault": 0, "timer interrupt": 8 }, "injected": 4,
            }],
            "denials": {}, "fault_counts": {}, "faults": [], "faults_left_out": 0,
            "records_lost": 0, "expect": [{ "text": "0 misses", "met": true, "time_ns": 7000 }],
        })
    };
    let mut report = json!({
        "version": 1, "system": "demo", "platform": "qemu-virt", "started": true,
        "ended_by": "all-met", "time_ns": 9000, "clock": "emulated",
        "verdict": "does-not-hold", "verdict_of": ["flow setpoints"],
        "vms": [vm("control"), vm("linux")],
        "flows": [{
            "name": "setpoints", "packets": 3, "lost": 0, "observed_max_ns": 1500,
            "deadline_ns": 4000, "late": 0, "bound_ns": 1000, "counted_ns": 9000,
            "latency_ns": {
                "min": 500, "p50": 700, "p99": 1500, "max": 1500, "max_packet": 2,
                "max_arrived_ns": 6000,
            },
            "verdict": "does-not-hold", "reason": "the longest took 1500 ns",
        }],
        "totals": { "expected": 2, "met": 2, "records_lost": 0, "damaged_frames": 0 },
        "hypervisor": ["weir on 2 cores"],
    });
    report["vms"][0]["tasks"] = json!([{
        "name": "loop", "deadline_ns": 500, "activations": 10, "misses": 0,
        "observed_max_ns": 300, "bound_ns": 400,
        "verdict": "holds", "reason": "",
    }]);
    report
}

fn files() -> RunFiles {
    let console = |log: &str| ConsoleTail {
        log: log.to_owned(),
        lines: vec!["booted".to_owned(), "10 activations, 0 misses".to_owned()],
        before: 300,
    };
    RunFiles {
        run: "2026-01-31T12-00-00Z".to_owned(),
        report: report(),
        record: json!({
            "version": 1, "weir": "0.1.0", "hypervisor_build": "d06c3963dd60",
            "overheads": [{
                "file": "platform qemu-virt", "command": "weir bench board",
                "build": "d06c3963dd60", "date": "2026-01-30", "same_build": true,
            }],
            "assumed": ["qemu-virt [saturation]: assumed"],
            "qemu": "QEMU emulator version 7.2.22", "command": ["weir", "run", "demo.toml"],
            "system": "demo.toml", "image_bytes": 417_792, "counter_page": null,
            "started": "2026-01-31T12:00:00Z", "trace": { "records": 24, "lost": 0 },
        }),
        consoles: vec![console("control.log"), console("linux.log")],
        trace: Some(TraceCounts {
            kinds: [("exit", 16), ("packet-sent", 8)].into(),
            ..TraceCounts::default()
        }),
    }
}

fn of(report: Value) -> String {
    html(&RunFiles { report, ..files() }).expect("a page")
}

fn failure(report: Value) -> String {
    html(&RunFiles { report, ..files() }).expect_err("damaged").text
}

#[test]
fn the_page_of_a_small_run_is_as_recorded() {
    let page = html(&files()).expect("a page");
    snapbox::assert_data_eq!(page, snapbox::file!["golden.html": Text].raw());
}

#[test]
fn text_of_guests_and_files_is_escaped() {
    let attack = "\"'><script>alert(1)</script>&\u{1b}[2J\u{202e}";
    let escaped = "&quot;&#39;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;\\u{1b}[2J\\u{202e}";
    let mut files = files();
    files.run = attack.to_owned();
    files.consoles[0] =
        ConsoleTail { log: console_log(attack), lines: vec![attack.to_owned()], before: 1 };
    files.record["command"] = json!([attack]);
    files.record["assumed"] = json!([attack]);
    files.record[attack] = json!({ attack: attack });
    let report = &mut files.report;
    for pointer in [
        "/system",
        "/platform",
        "/hypervisor/0",
        "/vms/0/name",
        "/vms/0/expect/0/text",
        "/vms/0/vcpus/0/state",
        "/flows/0/name",
        "/flows/0/reason",
        "/vms/0/tasks/0/name",
    ] {
        *report.pointer_mut(pointer).expect(pointer) = json!(attack);
    }
    report["verdict_of"] = json!([format!("flow {attack}")]);
    report["vms"][0]["denials"] = json!({ attack: 3 });
    report["unknown"] = json!({ attack: 1 });
    let page = html(&files).expect("a page");
    assert!(!page.contains("<script"), "{page}");
    let hidden = page.chars().find(|&each| each != '\n' && weir_model::is_hidden(each));
    assert_eq!(hidden, None);
    // The picture has its own escapes of quotation marks.
    let all = page.matches(escaped).count();
    assert!(all >= 20, "{all}");
    assert!(page.contains(&format!("<pre>{escaped}</pre>")), "{page}");
}

#[test]
fn a_page_needs_nothing_but_itself() {
    let page = html(&files()).expect("a page");
    for word in ["<script", "<link", "<img", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn each_verdict_is_named_with_its_reasons() {
    let with = |verdict: &str, reason: &str| {
        let mut report = report();
        report["flows"][0]["verdict"] = json!(verdict);
        report["flows"][0]["reason"] = json!(reason);
        report["verdict"] = json!(verdict);
        if verdict == "holds" {
            report["verdict_of"] = json!(["flow setpoints", "task loop of control"]);
        }
        of(report)
    };
    let bad = with("does-not-hold", "too late");
    assert!(bad.contains("<strong class=\"does-not-hold\">Verdict: does not hold</strong>"));
    assert!(bad.contains("<li>flow setpoints: does not hold: too late</li>"));
    let open = with("not-judged", "no packet arrived");
    assert!(open.contains("<strong class=\"not-judged\">Verdict: not judged</strong>"));
    assert!(open.contains("<li>flow setpoints: not judged: no packet arrived</li>"));
    let good = with("holds", "");
    assert!(good.contains("<strong class=\"holds\">Verdict: holds</strong>"));
    assert!(good.contains("kept its limits"));
}

#[test]
fn a_system_without_limits_is_not_judged() {
    let mut report = report();
    (report["verdict"], report["verdict_of"]) = (Value::Null, json!([]));
    report.as_object_mut().expect("an object").remove("flows");
    report["vms"][0].as_object_mut().expect("an object").remove("tasks");
    let page = of(report);
    assert!(page.contains("Verdict: not judged") && page.contains("nothing is judged"));
    assert!(!page.contains("<svg") && !page.contains("Limits and observed maxima"));
}

#[test]
fn what_went_wrong_is_a_warning() {
    let mut files = RunFiles { report: report(), ..RunFiles::default() };
    let report = &mut files.report;
    report["vms"][0]["expect"][0]["met"] = json!(false);
    report["vms"][1]["state"] = json!("halted");
    report["vms"][1]["fault_counts"] = json!({ "read outside its memory": 2 });
    report["vms"][1]["console"]["dropped"] = json!(12);
    report["vms"][1]["exits"] = Value::Null;
    report["totals"] = json!({ "expected": 2, "met": 1, "records_lost": 5, "damaged_frames": 6 });
    (report["started"], report["ended_by"]) = (json!(false), json!("machine-gone"));
    report["board_resets"] = json!(7);
    let page = html(&files).expect("a page");
    for warning in [
        "control did not print &quot;0 misses&quot;",
        "linux: halted at the end",
        "linux: faults: 2 read outside its memory",
        "linux: 12 console bytes lost",
        "linux: the counters of a vCPU did not arrive",
        "5 of the hypervisor&#39;s records were lost",
        "6 frames of the wire were damaged",
        "the hypervisor never reported its start",
        "the machine was gone before the system ended",
        "the board was reset 7 times: everything is counted from the last start",
        "run.json is missing or damaged: the build, QEMU, the date and the command are not known",
        "the run has no trace.bin",
        "linux.log is missing: this page has nothing of this console",
    ] {
        assert!(page.contains(&format!("<li>{warning}</li>")), "{warning}\n{page}");
    }
    assert!(page.contains("<strong class=\"does-not-hold\">Expected lines: 1 of 2 printed"));
}

#[test]
fn what_the_page_leaves_out_is_listed() {
    let mut report = report();
    report["vms"][0]["color"] = json!("red");
    report["vms"][1]["color"] = json!([1, 2]);
    let fault = json!({
        "time_ns": 1, "boot": 0, "vcpu": 0, "kind": "read", "address": "0x0", "pc": "0x4",
        "syndrome": "0x9", "meaning": "m", "guest_syndrome": "0x0", "guest_elr": "0x0",
    });
    report["vms"][0]["faults"] = json!(vec![fault; 21]);
    report["vms"][0]["faults_left_out"] = json!(9);
    let page = of(report);
    for line in [
        "report.json.vms[].color: 1 values",
        "report.json.vms[].color[]: 2 values",
        "control: further faults are in report.json, `faults`",
        "control: 9 more faults, which only hypervisor.log has",
    ] {
        assert!(page.contains(&format!("<li>{line}</li>")), "{line}\n{page}");
    }
    assert_eq!(page.matches("<li>control/0 at 1 ns").count(), 20);
    assert!(!of(self::report()).contains(" values</li>"));
}

#[test]
fn a_damaged_report_is_refused() {
    let with = |pointer: &str, value: Value| {
        let mut report = report();
        *report.pointer_mut(pointer).expect(pointer) = value;
        failure(report)
    };
    let mut without = report();
    without["vms"][1].as_object_mut().expect("an object").remove("boots");
    for (failure, cause) in [
        (failure(json!([])), "report.json is no object"),
        (failure(json!({})), "report.json has no `version`"),
        (with("/version", json!(2)), "report.json is of version 2, and this weir reads 1"),
        (with("/vms", json!(3)), "report.json.vms is no list"),
        (with("/vms/1", json!(3)), "report.json.vms[1] is no object"),
        (failure(without), "report.json.vms[1] has no `boots`"),
        (with("/system", json!(3)), "report.json has a `system` that is no text"),
        (with("/clock", json!("moon")), "report.json has an unknown `clock`"),
        (with("/ended_by", json!("x")), "report.json has an unknown `ended_by`"),
        (with("/flows/0/verdict", json!("x")), "has a `verdict` that is no verdict"),
        (with("/flows/0/bound_ns", json!(-1)), "has a `bound_ns` that is no number"),
        (with("/verdict", json!("holds")), "has a `verdict` that is not that of its parts"),
        (with("/verdict_of", json!(["x"])), "has a `verdict` that is not that of its parts"),
    ] {
        assert!(failure.contains(cause), "{failure}");
        assert!(failure.ends_with("; run the system again"), "{failure}");
    }
}

/// Writes a run with a trace of these bytes.
fn directory(trace: Option<&[u8]>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(directory.path().join(name), bytes).expect("a file");
    };
    write("report.json", report().to_string().as_bytes());
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
    let page = html(&files).expect("a page");
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
    assert_eq!(files.trace, None);
    assert!(page.contains("<li>the run has no trace.bin</li>"));

    let mut whole = Vec::new();
    crate::trace::file::TraceFacts { records: 2, ..facts() }.write(&mut whole).expect("memory");
    let (files, page) = read(directory(Some(&whole)).path());
    assert!(files.trace.is_some_and(|trace| trace.damage.is_some()));
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
    report["vms"][0]["name"] = json!("../secret");
    report["vms"][0].as_object_mut().expect("an object").remove("tasks");
    fs::write(inner.join("report.json"), report.to_string()).expect("a file");
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
