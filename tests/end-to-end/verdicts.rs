//! The verdict of a run and its exit status, with a script in QEMU's place.

use crate::support::{Fake, Printed, SyntheticWire, capture};
use serde_json::Value;
use std::{fs, path::Path};
use weir_trace::wire::{HYPERVISOR, What};

const DEADLINE: u64 = 1_000_000;

/// A task of the first VM.
const TASK: &str = "[[vm.task]]\nname = \"loop\"\nwcet = \"10us\"\nperiod = \"1ms\"\n";

/// A system with these tables of its first VM.
fn system(more: &str) -> String {
    let vm = |name: &str, core: usize, keys: &str| {
        format!(
            "\n[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"16MiB\"\n\
             image = {{ bin = \"guest.bin\", load = 0x4010_0000 }}\n{keys}\n"
        )
    };
    let expect = format!("expect = [\"all is well\"]\n{more}");
    format!(
        "platform = \"qemu-virt\"\n{}{}\n[broker]\ncpus = [2]\n\n[[flow]]\nname = \"messages\"\n\
         from = \"one\"\nto = \"two\"\nport = 5000\nsize = \"4KiB\"\nperiod = \"10ms\"\n\
         deadline = \"1ms\"\n",
        vm("one", 0, &expect),
        vm("two", 1, ""),
    )
}

/// A run in which the flow's slowest packet took `worst` and `late` packets of 100 were late.
fn run(worst: u64, late: u64, arguments: &[&str]) -> (Printed, Value, Fake) {
    let wire = SyntheticWire::default()
        .text("weir on 3 cores\r\n")
        .event(1_000, What::SystemStart, HYPERVISOR, 0)
        .event(2_000, What::VmStart, 0, 0)
        .late_flow(900_000_000, 0, [100, 0, worst], late)
        .line(900_000_100, 0, "all is well\r")
        .late_flow(900_000_200, 0, [100, 0, worst], late);
    run_of(&wire, arguments)
}

/// A run of a system in which no packet arrives.
fn well() -> SyntheticWire {
    SyntheticWire::default()
        .text("weir on 3 cores\r\n")
        .event(1_000, What::SystemStart, HYPERVISOR, 0)
        .event(2_000, What::VmStart, 0, 0)
        .flow(4_000, 0, [0, 0, 0])
        .line(6_000, 0, "all is well\r")
        .flow(7_000, 0, [0, 0, 0])
}

fn run_of(wire: &SyntheticWire, arguments: &[&str]) -> (Printed, Value, Fake) {
    run_system(&system(""), wire, arguments)
}

fn run_system(system: &str, wire: &SyntheticWire, arguments: &[&str]) -> (Printed, Value, Fake) {
    let fake = Fake::new(system, "cat wire; exec sleep 100");
    fake.write("wire", wire.bytes());
    let printed = capture(&mut fake.run(arguments));
    let report = fake.report();
    assert_eq!(report["vms"][0]["expect"][0]["met"], true, "{}\n{}", printed.out, printed.err);
    (printed, report, fake)
}

#[test]
fn a_run_with_late_packets_fails() {
    let (printed, report, _fake) = run(9_600_000, 97, &[]);
    assert_eq!(printed.status, Some(1), "{}", printed.out);
    let flow = &report["flows"][0];
    assert_eq!(flow["deadline_ns"], DEADLINE);
    assert_eq!((&flow["late"], &flow["verdict"]), (&97.into(), &"does-not-hold".into()));
    let latency = &flow["latency_ns"];
    assert_eq!((&latency["max"], &latency["max_packet"]), (&9_600_000.into(), &100.into()));
    assert_eq!(latency["p99"], Value::Null, "a run without a trace has no percentiles");
    assert_eq!(report["verdict"], "does-not-hold");
    assert_eq!(report["verdict_of"], serde_json::json!(["flow messages"]));
    for text in [
        "flow messages: does not hold: 97 of 100 packets missed the deadline of 1000000 ns, the \
         longest took 9600000 ns\n",
        "flow messages: the longest was packet 100 of 100, which arrived at 0.900000 s\n",
        "verdict: does not hold (flow messages)\n",
    ] {
        assert!(printed.out.contains(text), "{text}: {}", printed.out);
    }
    assert!(printed.err.contains("does not hold: flow messages"), "{}", printed.err);
}

#[test]
fn a_run_that_keeps_everything_holds() {
    let (printed, report, _fake) = run(5_000, 0, &[]);
    assert_eq!((printed.status, printed.err.as_str()), (Some(0), ""), "{}", printed.out);
    assert_eq!(report["verdict"], "holds");
    assert!(printed.out.contains("\nverdict: holds\n"), "{}", printed.out);
}

#[test]
fn the_summary_of_a_run_can_be_read_again() {
    let (printed, report, fake) = run(9_600_000, 97, &[]);
    let again = capture(fake.weir().arg("report"));
    assert_eq!(again.status, Some(0), "{}", again.err);
    assert!(again.out.contains("verdict: does not hold (flow messages)\n"), "{}", again.out);
    assert!(printed.out.contains(&again.out), "{}\n{}", printed.out, again.out);
    let run = fake.runs().remove(0);
    assert_eq!(capture(fake.weir().arg("report").arg(&run)).out, again.out);
    let json =
        capture(fake.weir().arg("report").arg(run.file_name().expect("a name")).arg("--json"));
    assert_eq!(serde_json::from_str::<Value>(&json.out).expect("JSON"), report);
    let none = capture(fake.weir().args(["report", "no-such-run"]));
    assert_eq!(none.status, Some(2), "{}", none.out);
    assert!(none.err.contains("there is no run no-such-run"), "{}", none.err);
}

#[test]
fn the_page_of_a_run_has_its_verdict() {
    let (_, report, fake) = run(9_600_000, 97, &[]);
    let page = |output: &Path, more: &[&str]| {
        capture(fake.weir().args(["report", "--html"]).arg(output).args(more))
    };
    let written = page(Path::new("page.html"), &[]);
    assert_eq!(written.status, Some(0), "{}", written.err);
    assert_eq!((written.out.as_str(), written.err.as_str()), ("", ""));
    let html = fake.read("page.html");
    let reason = report["flows"][0]["reason"].as_str().expect("a reason");
    for text in ["Verdict: does not hold", reason, "fake 1", "<svg", "<td>all is well</td>"] {
        assert!(html.contains(text), "{text}: {html}");
    }

    let run = fake.runs().remove(0);
    for name in ["report.json", "one.log", "wire.bin"] {
        let before = fs::read(run.join(name)).expect("a file");
        let refused = page(&run.join(name), &[]);
        assert_eq!(refused.status, Some(2), "{}", refused.err);
        assert!(refused.err.contains("the output would overwrite"), "{}", refused.err);
        assert_eq!(fs::read(run.join(name)).expect("a file"), before);
    }
    let system = fake.path("other.toml");
    fs::write(&system, "a system").expect("a file");
    let refused = page(&system, &[]);
    assert_eq!(refused.status, Some(2), "{}", refused.err);
    assert!(refused.err.contains("a page's file ends in .html"), "{}", refused.err);
    assert_eq!(fs::read_to_string(&system).expect("a file"), "a system");
    assert_eq!(page(&run.join("page.html"), &[]).status, Some(0));
    assert_eq!(page(&run.join("page.html"), &[]).status, Some(0), "a page can be replaced");
    // Without a file, the summary is printed, and the page is with the other files of the run.
    let both = capture(fake.weir().arg("report"));
    assert_eq!(both.status, Some(0), "{}", both.err);
    assert!(both.out.contains("\nverdict: does not hold (flow messages)\n"), "{}", both.out);
    assert!(both.err.starts_with("page: ") && both.err.ends_with("/report.html\n"), "{}", both.err);
    assert_eq!(fs::read_to_string(run.join("report.html")).expect("a page"), html);
    let both = page(Path::new("both.html"), &["--json"]);
    assert_eq!((both.status, fake.path("both.html").exists()), (Some(2), false));

    fs::write(run.join("trace.bin"), "no trace").expect("a file");
    let damaged = page(Path::new("damaged.html"), &[]);
    assert_eq!(damaged.status, Some(1), "{}", damaged.err);
    assert!(damaged.err.contains("cannot read the trace"), "{}", damaged.err);
    assert!(fake.read("damaged.html").contains("<li>trace.bin: cannot read the trace"));
    fs::write(run.join("report.json"), "{}").expect("a file");
    let refused = page(Path::new("none.html"), &[]);
    assert_eq!((refused.status, fake.path("none.html").exists()), (Some(2), false));
    assert!(
        refused.err.contains("report.json is damaged: missing field `version`"),
        "{}",
        refused.err
    );
}

/// Neither a wrong port nor a task that never runs passes for one that keeps its deadline.
#[test]
fn a_run_without_arrivals_is_not_judged() {
    let system = system(TASK);
    let (printed, report, fake) = run_system(&system, &well(), &[]);
    assert_eq!(
        (printed.status, &report["verdict"]),
        (Some(1), &"not-judged".into()),
        "{}",
        printed.err
    );
    let expected = "error: not judged: flow messages, task loop of one\nhelp: ";
    assert!(printed.err.contains(expected), "{}", printed.err);
    let (accepted, _, _) = run_system(&system, &well(), &["--accept-not-judged"]);
    assert_eq!((accepted.status, accepted.err.as_str()), (Some(0), ""));
    assert_eq!(
        report["verdict_of"],
        serde_json::json!(["flow messages", "task loop of one"]),
        "{report}"
    );
    let again = capture(fake.weir().arg("report"));
    for text in [
        "flow messages: not judged: no packet is known to have arrived: `one` must connect to 4:5000",
        "task loop of one: not judged: the run left no trace",
        "verdict: not judged (flow messages, task loop of one)\n",
    ] {
        assert!(printed.out.contains(text) && again.out.contains(text), "{text}: {}", printed.out);
    }
    assert!(report["flows"][0]["bound_ns"].is_u64(), "{report}");
    assert!(!printed.out.contains("0.000 "), "no ratio without a packet: {}", printed.out);
}

#[test]
fn a_report_that_is_no_report_is_refused() {
    use std::os::unix::fs::symlink;
    let (_, _, fake) = run(5_000, 0, &[]);
    let run = fake.runs().remove(0);
    let refused = |arguments: &[&str], why: &str| {
        let printed = capture(fake.weir().arg("report").arg(&run).args(arguments));
        assert_eq!((printed.status, printed.out.as_str()), (Some(2), ""), "{why}");
        assert!(printed.err.contains(why), "{why}: {}", printed.err);
    };
    for text in ["{", "", "[]", "{} {}"] {
        fs::write(run.join("report.json"), text).expect("a file");
        refused(&["--json"], "report.json is damaged: ");
    }
    for (name, arguments) in [("report.json", &["--json"][..]), ("summary.txt", &[])] {
        let file = run.join(name);
        fs::remove_file(&file).expect("a file");
        symlink("/dev/zero", &file).expect("a link");
        refused(arguments, "it is a device, not a regular file");
        fs::remove_file(&file).expect("a link");
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RUSR).expect("a pipe");
        refused(arguments, "it is a pipe, not a regular file");
    }
}
