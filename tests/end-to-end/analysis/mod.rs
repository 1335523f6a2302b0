//! The verbs that analyze: `analyze`, `plan`, `reproduce`, and what `check` and
//! `build` make of the same keys.

mod budgets;
mod newcomer;
mod plan;
#[path = "../../../host/analysis/tests/reports/texts.rs"]
mod texts;
mod verdicts;

use crate::support::{Fake, Printed, SYSTEM, capture};
use serde_json::Value;
use std::{
    process::Stdio,
    time::{Duration, Instant},
};
use texts::{OVERHEADS, SATURATION, flow, moved_by_the_broker, regulated, table3};

fn fake() -> Fake {
    Fake::new(SYSTEM, "")
}

/// Analyzes a text; returns the output and the JSON.
fn analyze(text: &str, arguments: &[&str]) -> (Printed, Value) {
    let fake = fake();
    fake.write("x.toml", text.as_bytes());
    let printed = capture(fake.weir().args(["analyze", "x.toml", "--json"]).args(arguments));
    let json = serde_json::from_str(&printed.out).unwrap_or(Value::Null);
    (printed, json)
}

#[test]
fn only_refill_budgets_limit_memory() {
    let fake = fake();
    let system = |budget: &str| {
        let vm = |name: &str, cpu: u8, budget: &str| {
            format!(
                "[[vm]]\nname = \"{name}\"\ncpus = [{cpu}]\nmemory = \"16MiB\"\n\
                 image = {{ bin = \"guest.bin\", load = 0x4010_0000 }}\n\
                 memory_budget = {{ {budget}, period = \"30us\" }}\n"
            )
        };
        fake.write(
            "x.toml",
            format!(
                "platform = \"qemu-virt\"\n{}{}{SATURATION}",
                vm("memory-stressor", 0, budget),
                vm("latency", 1, "accesses = 90")
            )
            .as_bytes(),
        );
        let verbs = ["check", "analyze"];
        verbs.map(|verb| capture(fake.weir().args([verb, "x.toml"])))
    };
    for (budget, named) in [
        (
            "accesses = 9, event = \"inst-retired\"",
            "memory-stressor (inst-retired does not count refills)",
        ),
        ("writes = 9", "memory-stressor (l2d-writeback does not count refills)"),
    ] {
        for printed in system(budget) {
            assert_eq!(printed.status, Some(1), "{}", printed.err);
            // Lines are broken where the terminal ends.
            let text = (printed.out + &printed.err).replace("\n  | ", " ");
            assert!(text.contains(named), "{budget}: {text}");
        }
    }
    let [check, analyze] = system("accesses = 130");
    assert_eq!([check.status, analyze.status], [Some(1); 2]);
    let [check, analyze] = system("accesses = 130, overcommit = true");
    assert_eq!([check.status, analyze.status], [Some(0), Some(1)], "{}", check.err);
    assert!(
        check.out.contains("Eq. 2") && check.out.contains("overcommit = true"),
        "{}",
        check.out
    );
}

#[test]
fn several_files_are_one_line_each_in_their_order() {
    let fake = fake();
    fake.write("good.toml", table3("148MB/s", "4KiB", 37_407).as_bytes());
    fake.write("bad.toml", table3("148MB/s", "4KiB", 30_000).as_bytes());
    fake.write("broken.toml", b"[[flow]]\nname = 3\n");
    let files = ["good.toml", "bad.toml", "broken.toml", "nowhere.toml", "good.toml"];
    let printed = capture(fake.weir().args(["analyze", "--json"]).args(files));
    assert_eq!(printed.status, Some(1));
    let lines: Vec<Value> =
        printed.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let holds: Vec<_> = lines.iter().map(|line| line["holds"].as_bool().unwrap()).collect();
    assert_eq!(holds, [true, false, false, false, true]);
    let faults = lines[2]["faults"].as_array().expect("faults");
    assert!(faults.iter().any(|fault| fault["line"] == 2 && fault["name"] == "wrong-type"));
    for (line, file) in lines.iter().zip(files) {
        assert_eq!(line["file"], file);
    }
    let printed = capture(fake.weir().args(["analyze", "good.toml", "good.toml"]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.out.contains("least bandwidth: 147998266 B/s"), "{}", printed.out);
}

#[test]
fn ten_thousand_flows_end_in_host_time() {
    let mut text = format!("[dma]\nbandwidth = \"8GB/s\"\n{OVERHEADS}");
    for i in 0..10_000 {
        let period = format!("{}us", 40_000_000 + 13 * i);
        text.push_str(&flow(
            &format!("f{i}"),
            &format!("v{}", i % 64),
            "\"sink\"",
            "4KiB",
            &period,
            "40s",
        ));
    }
    let fake = fake();
    fake.write("x.toml", text.as_bytes());
    // Seconds, even without optimization, but more than `capture` waits for on a busy machine.
    let started = Instant::now();
    let output = fake.weir().args(["analyze", "x.toml", "--json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["flows"]["tasks"].as_array().map(Vec::len), Some(10_000));
    assert!(started.elapsed() < Duration::from_secs(500));
}

#[test]
fn what_takes_too_long_is_given_up_and_reported() {
    // Periods that have nothing in common: U' <= 1 is what binds, T* lies hours away.
    let mut text = String::from("[dma]\n");
    for i in 0..16u64 {
        let period = 1_000_003 + i * i * 700_001;
        let time = format!("{period}ns");
        text.push_str(&flow(&format!("f{i}"), &format!("v{i}"), "\"b\"", "12KiB", &time, &time));
    }
    text.push_str(OVERHEADS);
    let (printed, json) = analyze(&text, &[]);
    assert_eq!((printed.status, &json["flows"]["gave_up"]), (Some(0), &false.into()), "{json}");
    let least = json["flows"]["min_bandwidth"].as_u64().expect("a bandwidth");
    let (printed, json) = analyze(&text, &["--bandwidth", &(least / 2).to_string()]);
    assert_eq!(
        (printed.status, &json["flows"]["min_bandwidth"]),
        (Some(1), &least.into()),
        "{json}"
    );
    let (printed, json) =
        analyze(&text, &["--max-steps", "100", "--bandwidth", &least.to_string()]);
    let flows = &json["flows"];
    assert_eq!((printed.status, &flows["gave_up"]), (Some(1), &true.into()), "{json}");
    assert!(flows["min_bandwidth"].is_null() && flows["min_bandwidth_at_least"].is_u64(), "{json}");
    assert_eq!(flows["min_bandwidth_is"], "given-up");
    assert!(flows["reasons"][0].as_str().is_some_and(|reason| reason.starts_with("given up")));

    assert_eq!(flows["bounds_gave_up"], true);

    let fake = fake();
    fake.write("x.toml", text.as_bytes());
    let ask = |more: &[&str]| capture(fake.weir().args(["analyze", "x.toml"]).args(more)).out;
    // Neither shown to hold nor shown not to.
    let printed = ask(&["--max-steps", "100", "--bandwidth", &least.to_string()]);
    assert!(printed.starts_with("x.toml: not judged"), "{printed}");
    assert!(
        printed.contains("could be tested within the effort; --max-steps allows more"),
        "{printed}"
    );
    let printed = ask(&["--max-steps", "1", "--bandwidth", &(least - 1000).to_string()]);
    assert!(printed.starts_with("x.toml: does not hold"), "{printed}");
    assert!(printed.contains("first failing instant: not found within the effort"), "{printed}");

    // Without a bandwidth to judge, a proven one is judged, and it is not called the least.
    assert!(ask(&[]).contains("B/s, the least (no bandwidth is given)"), "{}", ask(&[]));
    let mut proven = 0;
    for effort in (6..26).map(|bits| (1u64 << bits).to_string()) {
        let (_, json) = analyze(&text, &["--max-steps", &effort]);
        let (is, enough) =
            (&json["flows"]["min_bandwidth_is"], &json["flows"]["min_bandwidth_enough"]);
        let printed = ask(&["--max-steps", &effort]);
        assert_eq!(printed.contains("the least ("), *is == "exact", "{effort}: {printed}");
        assert_eq!(json["flows"]["min_bandwidth"].is_u64(), *is == "exact", "{effort}: {json}");
        if let Some(enough) = enough.as_u64() {
            proven += 1;
            assert!(
                printed.contains(&format!("at {enough} B/s, which is proven to be enough")),
                "{effort}: {printed}"
            );
        }
    }
    assert!(proven > 0, "some effort is enough for a proof, but not for the least");
}

#[test]
fn a_flow_without_a_period_has_no_utilization() {
    let hasty = flow("hasty", "a", "\"b\"", "4KiB", "1ns", "1ms");
    let (printed, json) =
        analyze(&format!("[dma]\nbandwidth = \"485MB/s\"\n{hasty}{OVERHEADS}"), &[]);
    assert_eq!(printed.status, Some(1));
    let flows = &json["flows"];
    assert!(flows["utilization"].is_null(), "{json}");
    assert_eq!(flows["min_bandwidth_is"], "none");
    let reason = flows["reasons"][0].as_str().expect("a reason");
    assert!(reason.starts_with("hasty: the spread of the send overhead leaves P' = -"), "{reason}");
    let fake = fake();
    fake.write("x.toml", format!("[dma]\nbandwidth = \"485MB/s\"\n{hasty}{OVERHEADS}").as_bytes());
    let printed = capture(fake.weir().args(["analyze", "x.toml"]));
    assert!(printed.out.contains("utilization U': none"), "{}", printed.out);
}

#[test]
fn unusual_names_line_ends_and_paths_are_handled() {
    let fake = fake();
    let text = table3("485MB/s", "4KiB", 1_000_000).replace("\"only\"", "\"Müßig 流 🦀\"");
    fake.write("ünd so.toml", text.as_bytes());
    fake.write("crlf.toml", format!("\u{feff}{}", text.replace('\n', "\r\n")).as_bytes());
    for name in ["ünd so.toml", "crlf.toml"] {
        let printed = capture(fake.weir().args(["analyze", name]));
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        assert!(printed.out.contains("Müßig 流 🦀"), "{}", printed.out);
    }
    fake.write(
        "x.toml",
        format!("{text}{SATURATION}").replace("bandwidth = \"485MB/s\"", "").as_bytes(),
    );
    let printed = capture(fake.weir().args(["plan", "x.toml"]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for place in ["/proc/nowhere/x.toml", "/"] {
        let printed = capture(fake.weir().args(["plan", "x.toml", "-o", place]));
        assert_eq!(printed.status, Some(3), "{}", printed.err);
        assert!(printed.err.contains("cannot write"), "{}", printed.err);
    }
    // A disk that is full is the machine's fault, not the system's.
    for arguments in [["analyze", "crlf.toml"], ["plan", "x.toml"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let status = fake.weir().args(arguments).stdout(full).stderr(Stdio::null()).status();
        assert_eq!(status.unwrap().code(), Some(3), "{arguments:?}");
    }
}

#[test]
fn command_line_values_are_checked_like_the_files() {
    let task = |text: &str, arguments: &[&str]| {
        let fake = fake();
        fake.write("x.toml", text.as_bytes());
        let faster =
            moved_by_the_broker().replace("1GB/s", "2GB/s").replace("max = 700", "max = 1700");
        fake.write("faster.toml", faster.as_bytes());
        let printed = capture(fake.weir().args(["analyze", "x.toml", "--json"]).args(arguments));
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        let json: Value = serde_json::from_str(&printed.out).expect("JSON");
        json["flows"]["tasks"][0].clone()
    };
    let text = moved_by_the_broker();
    let paced = |rate: &str| text.replace("[dma]", &format!("[dma]\nbandwidth = \"{rate}\""));
    let (free, slow) = (task(&text, &[]), task(&paced("61MB/s"), &[]));
    assert!(slow["bound_ns"].as_u64() > free["bound_ns"].as_u64(), "{slow} {free}");
    assert_eq!(task(&text, &["--bandwidth", "61MB/s"]), slow);
    assert_eq!(task(&paced("61MB/s"), &["--bandwidth", "800MB/s"]), task(&paced("800MB/s"), &[]));
    // A sender's own wake-up concerns the comparison with a serialized run only, and is of another
    // run than the given ones.
    let own = format!("{text}senders = [{{ vm = \"a\", wake = 1400 }}]\n");
    assert_eq!(task(&own, &[])["bound_ns"], free["bound_ns"]);
    let serialized = |task: &Value| task["serialized_bound_ns"].as_u64().expect("a bound");
    assert_eq!(serialized(&task(&own, &[])), serialized(&free) + 700);
    let written = text.replace("1GB/s", "2GB/s").replace("max = 700", "max = 1700");
    for text in [&text, &own] {
        assert_eq!(task(text, &["--overheads", "faster.toml"]), task(&written, &[]));
    }
}

/// Where the overheads come from is printed, and another build than the checkout's causes a
/// warning, which leaves the status.
#[test]
fn overheads_name_their_origin_and_stale_ones_warn() {
    let origin = |build: &str| {
        format!(
            "{}origin = {{ command = \"weir run x\", build = \"{build}\", date = \"2026-01-31\" \
             }}\n",
            moved_by_the_broker()
        )
    };
    let weir = |text: &str, arguments: &[&str]| {
        let fake = fake();
        fake.write("x.toml", text.as_bytes());
        let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut command = fake.weir();
        capture(command.env("WEIR_ROOT", checkout).args(["analyze", "x.toml"]).args(arguments))
    };
    let json: Value = serde_json::from_str(&weir(&origin("0"), &["--json"]).out).expect("JSON");
    let table = &json["flows"]["assumed"]["overheads"][0];
    assert_eq!((&table["build"], &table["date"]), (&"0".into(), &"2026-01-31".into()));
    assert_eq!(table["same_build"], false);
    let build = json["flows"]["assumed"]["build"].as_str().expect("this checkout's").to_owned();
    let analyzed = |text: &str| weir(text, &[]);
    let printed = analyzed(&origin("0"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(
        printed.out.contains("measured, not proven (weir run x, 2026-01-31, hypervisor build 0)")
    );
    assert!(
        printed.out.contains("warning: these overheads are of hypervisor build 0"),
        "{}",
        printed.out
    );
    let printed = analyzed(&origin(&build));
    assert!(!printed.out.contains("warning:"), "{}", printed.out);
}

/// `analyze` refuses the rules of interrupts that `check` refuses, and takes those of a file that
/// does not describe its VMs.
#[test]
fn rules_of_interrupts_are_judged_alike() {
    let fake = fake();
    let rule =
        |line: u32| format!("[[irq]]\nline = {line}\nvm = \"b\"\nwcet = \"10us\"\nrate = 20\n");
    let core = |keys: &str| {
        format!(
            "[[core]]\nid = 0\nschedule = {{ kind = \"round-robin\", quantum = \"1ms\"{keys} }}\n"
        )
    };
    let image = "memory = \"16MiB\"\nimage = { bin = \"guest.bin\", load = 0x4010_0000 }\n";
    let device = "devices = [\"rtc\"]\n";
    let whole = |keys: &str| {
        let vm = |name: &str, keys: &str| {
            format!("[[vm]]\nname = \"{name}\"\ncpus = [0]\n{image}{keys}")
        };
        format!("platform = \"qemu-virt\"\n{}{}{}", vm("a", ""), vm("b", keys), core(""))
    };
    let capture = |verb: &str, text: &str| {
        fake.write("x.toml", text.as_bytes());
        let printed = capture(fake.weir().args([verb, "x.toml"]));
        (printed.status, printed.err)
    };
    let refused = [
        (whole(device) + &rule(34) + &rule(34), "W0720", "keep one of them"),
        (whole(device) + &rule(35), "W0721", "its own are 34"),
        (whole("") + &rule(34), "W0721", "b has none: give it a device"),
    ];
    for (text, code, help) in refused {
        for verb in ["check", "analyze"] {
            let (status, printed) = capture(verb, &text);
            assert_eq!(status, Some(1), "{verb}: {text}");
            assert!(printed.contains(code) && printed.contains(help), "{verb}: {printed}");
        }
    }
    let good = whole(device) + &rule(34);
    assert_eq!(["check", "analyze"].map(|verb| capture(verb, &good).0), [Some(0); 2]);
    // The file does not list the devices of these.
    let names = "[[vm]]\nname = \"a\"\n[[vm]]\nname = \"b\"\n";
    let bare = format!("platform = \"qemu-virt\"\n{names}{}", core(", vms = [\"a\", \"b\"]"));
    assert_eq!(capture("analyze", &(bare.clone() + &rule(35))), (Some(0), String::new()));
    let (status, printed) = capture("analyze", &(bare + &rule(35) + &rule(35)));
    assert_eq!(status, Some(1));
    assert!(printed.contains("W0720"), "{printed}");
}

/// Both verbs report costs below the platform's, and a VM without guaranteed time.
#[test]
fn costs_that_are_too_low_are_reported() {
    let fake = fake();
    let vm = |name: &str, keys: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [0]\nmemory = \"16MiB\"\n\
             image = {{ bin = \"guest.bin\", load = 0x4010_0000 }}\n{keys}"
        )
    };
    let (a, b) = (vm("a", ""), vm("b", "devices = [\"rtc\"]\n"));
    let system = |quantum: &str, cost: &str| {
        let text = format!(
            "platform = \"qemu-virt\"\n{a}{b}[[core]]\nid = 0\n\
             schedule = {{ kind = \"round-robin\", quantum = \"{quantum}\" }}\n[[irq]]\nline = 34\n\
             vm = \"b\"\nrate = 20\nwcet = \"{cost}\"\n"
        );
        fake.write("x.toml", text.as_bytes());
        ["check", "analyze"].map(|verb| capture(fake.weir().args([verb, "x.toml"])))
    };
    for printed in system("1ms", "9us") {
        let known = "counts as 9us, its `wcet` (x.toml:";
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        assert!(
            printed.out.contains(known) && printed.out.contains("less than the 10us"),
            "{}",
            printed.out
        );
    }
    for printed in system("1ms", "10us") {
        assert!(!printed.out.contains("counts as"), "{}", printed.out);
    }
    for printed in system("1ms", "0us") {
        assert_eq!(printed.status, Some(1), "{}", printed.out);
        assert!(printed.err.contains("`wcet` of [[irq]] is 0"), "{}", printed.err);
    }
    for printed in system("20us", "10us") {
        assert!(printed.out.contains("a's time slices of 20us are too short"), "{}", printed.out);
    }
}

/// For a broker without guaranteed time the cause and a sufficient value are printed.
#[test]
fn a_broker_without_time_gets_a_cause() {
    let fake = fake();
    let system = |quantum: &str, irq: &str| {
        let vm = |name: &str, core: u8| format!("[[vm]]\nname = \"{name}\"\ncpus = [{core}]\n");
        let text = format!(
            "platform = \"qemu-virt\"\n{}{}{}[dma]\npath = \"broker\"\nbandwidth = \"485MB/s\"\n\
             {}{OVERHEADS}copy = {{ min = 100, max = 200 }}\nwake = {{ min = 100, max = 200 }}\n\
             [[core]]\nid = 2\nschedule = {{ kind = \"round-robin\", quantum = \"{quantum}\", vms \
             = [\"broker\", \"c\"] }}\n{irq}",
            vm("a", 0),
            vm("b", 1),
            vm("c", 2),
            flow("f", "a", "\"b\"", "4KiB", "10ms", "10ms"),
        );
        fake.write("x.toml", text.as_bytes());
        let printed = capture(fake.weir().args(["analyze", "x.toml", "--json"]));
        let json: Value = serde_json::from_str(&printed.out).expect("JSON");
        let fault = &json["faults"][0];
        [&fault["message"], &fault["help"]].map(|text| text.as_str().unwrap_or("").to_owned())
    };
    let [message, help] = system("20us", "");
    assert!(message.contains("broker's time slices of 20us are too short"), "{message}");
    assert!(help.contains("write quantum = "), "{help}");
    let line = "[[irq]]\nline = 40\nvm = \"c\"\npreempt = true\nwcet = \"10us\"\n";
    let [message, help] = system("1ms", line);
    assert!(
        message.contains("no time is guaranteed to it: interrupt 40 of c, on its core"),
        "{message}"
    );
    let most = help.split(": ").nth(1).and_then(|most| most.split(' ').next()).expect("a rate");
    let rated = |rate: u64| system("1ms", &format!("{line}rate = {rate}\n"))[0].clone();
    let most: u64 = most.parse().expect("a rate");
    assert!(!rated(most).contains("no time"), "{}", rated(most));
    assert!(rated(most + 1).contains("may come"), "{}", rated(most + 1));
}

#[test]
fn traces_give_arrival_curves() {
    let fake = fake();
    let times: Vec<String> =
        (0..50).flat_map(|p| (0..4).map(move |i| (p * 1000 + i).to_string())).collect();
    fake.write("trace.txt", format!("# ns\n{}\n", times.join("\n")).as_bytes());
    let run = |service: &str| {
        let arguments = ["analyze", "--trace", "trace.txt", "--service", service, "--json"];
        let printed = capture(fake.weir().args(arguments));
        (printed.status, serde_json::from_str::<Value>(&printed.out).expect("JSON"))
    };
    let (status, json) = run("5/1us");
    assert_eq!(status, Some(0));
    assert_eq!(json["traces"][0]["events"], 200);
    assert_eq!(json["traces"][0]["upper"][3], serde_json::json!([4, 4]));
    // The five may come first in one period and last in the next, when the next four have arrived.
    assert_eq!(json["service"]["delay_ns"], 2000);
    assert_eq!(json["service"]["backlog"], 8);
    // Four that come late stay late: they never catch up.
    let (status, json) = run("4/1us");
    assert_eq!((status, &json["service"]["delay_ns"]), (Some(1), &Value::Null));
    let printed =
        capture(fake.weir().args(["analyze", "--trace", "trace.txt", "--service", "4/1us"]));
    assert!(
        printed.out.contains("no bound: the service does not catch up within 49004ns"),
        "{}",
        printed.out
    );
    fake.write("odd.txt", b"1\n2,x\nthree\n");
    let printed = capture(fake.weir().args(["analyze", "--trace", "odd.txt"]));
    assert_eq!(printed.status, Some(1));
    assert!(printed.err.contains("odd.txt:3: `three`"), "{}", printed.err);
}

#[test]
fn an_event_waits_for_an_early_then_late_service() {
    let fake = fake();
    fake.write("two.txt", b"5\n100000\n");
    let arguments = ["analyze", "--trace", "two.txt", "--service", "1/1us"];
    let printed = capture(fake.weir().args(arguments));
    assert!(printed.out.contains("an event waits at most 2us, at most 1 wait"), "{}", printed.out);
}

#[test]
fn silence_in_a_trace_is_no_proof() {
    let fake = fake();
    fake.write("two.txt", b"5\n100000\n");
    fake.write("empty.txt", b"");
    fake.write("comments.txt", b"# ns\n\n# that is all\n");
    for empty in ["empty.txt", "comments.txt"] {
        for more in [&["--service", "1/1us"][..], &["--trace", "two.txt"], &[]] {
            let printed = capture(fake.weir().args(["analyze", "--trace", empty]).args(more));
            assert_eq!((printed.status, printed.out.as_str()), (Some(1), ""), "{empty} {more:?}");
            assert!(printed.err.contains(&format!("{empty}: no event")), "{}", printed.err);
            assert!(printed.err.contains("leave the file out"), "{}", printed.err);
        }
    }
    // One event does not show the windows in which a service would catch up, and so do more at
    // one time than the curve has steps.
    fake.write("one.txt", b"5\n");
    fake.write("burst.txt", "5\n".repeat(300).as_bytes());
    for little in ["one.txt", "burst.txt"] {
        let arguments = ["--trace", little, "--trace", "two.txt", "--service", "1/1us", "--json"];
        let printed = capture(fake.weir().arg("analyze").args(arguments));
        let json: Value = serde_json::from_str(&printed.out).expect("JSON");
        let service = &json["service"];
        assert_eq!(
            (printed.status, &service["delay_ns"], &service["backlog"]),
            (Some(1), &Value::Null, &Value::Null),
            "{little}"
        );
    }
}

#[test]
fn check_and_build_refuse_what_is_not_enforced() {
    let fake = fake();
    let link = flow("link", "one", "\"two\"", "4KiB", "1ms", "500us");
    let check = |more: &str| {
        fake.write("x.toml", format!("{SYSTEM}{more}").as_bytes());
        capture(fake.weir().args(["check", "--planning", "x.toml"]))
    };
    let good = format!("{link}[dma]\npath = \"dma\"\nbandwidth = \"485MB/s\"\n{OVERHEADS}");
    assert_eq!(check(&good).status, Some(0));
    let printed = capture(fake.weir().args(["build", "x.toml"]));
    assert_eq!(printed.status, Some(1));
    assert!(printed.err.contains("has no DMA engine that weir drives"), "{}", printed.err);
    let printed = check(&good.replace("500us", "9us"));
    assert_eq!(printed.status, Some(1));
    assert!(printed.err.contains("W0643") && printed.err.contains("link"), "{}", printed.err);
    let printed = check(&link);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(!printed.out.contains("not analyzed"), "the board has overheads: {}", printed.out);
    let printed = check(&link.replace("500us", "9us"));
    assert!(printed.err.contains("W0643") && printed.err.contains("link"), "{}", printed.err);
    assert_eq!(check(&good.replace("\"two\"", "\"tow\"")).status, Some(1));
    for more in [
        "[dma]\npath = \"sender\"\n",
        "[[irq]]\nline = 40\nvm = \"one\"\nrate = 10\nwcet = \"1us\"\n",
        "[[irq]]\nline = \"net\"\nvm = \"one\"\nclass = \"dynamic\"\nwcet = \"1us\"\n",
    ] {
        assert_eq!(check(more).status, Some(0), "{more}");
        for verb in ["check", "build"] {
            let printed = capture(fake.weir().args([verb, "x.toml"]));
            assert!(
                printed.status == Some(1) && printed.err.contains("W0903"),
                "{verb} {more}: {}",
                printed.err
            );
        }
    }
    // What only describes is no promise, so a run may pass it over.
    let printed = check("[overheads]\nhc = { min = 1, max = 2 }\n");
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let printed = capture(fake.weir().args(["build", "x.toml"]));
    assert!(!printed.err.contains("W0903"), "{}", printed.err);
}

#[test]
fn experiments_are_listed_and_checked() {
    let fake = fake();
    let printed = capture(fake.weir().args(["reproduce"]));
    assert!(
        printed.out.contains("rt-virtio-table3") && printed.out.contains("rt-virtio-fig5"),
        "{}",
        printed.out
    );
    let run = |arguments: &[&str]| {
        let printed = capture(fake.weir().arg("reproduce").args(arguments).stderr(Stdio::piped()));
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        assert!(!printed.err.contains('\u{1b}'), "no progress in a pipe: {}", printed.err);
        serde_json::from_str::<Value>(&printed.out).expect("JSON")
    };
    let json = run(&["rt-virtio-table3", "--json", "-o", "t3"]);
    let printed: Vec<_> = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["printed_ns"].as_u64().unwrap())
        .collect();
    assert_eq!(printed, [37_407, 103_645, 18_177, 45_954]);
    let table3: Vec<_> = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["table3_ns"].as_u64().unwrap())
        .collect();
    assert_eq!(table3, [36_933, 103_171, 17_703, 45_480]);
    assert!(fake.read("t3/table3.csv").starts_with("bandwidth,size,"));

    // The equations as printed do not give Table III: that is listed, and no statement fails.
    let verdicts = |json: &Value, id: &str| -> Vec<String> {
        let statements = json["statements"].as_array().expect("statements").iter();
        let its = statements.filter(|one| one["id"].as_str().expect("a name").starts_with(id));
        its.map(|one| one["verdict"].as_str().expect("a verdict").to_owned()).collect()
    };
    assert_eq!((&json["version"], &json["as_expected"]), (&1.into(), &true.into()));
    assert_eq!(verdicts(&json, "table3-"), ["holds"; 4]);
    assert_eq!(verdicts(&json, "printed-"), ["known deviation"; 4]);

    let json = run(&["rt-virtio-fig5", "--json", "-o", "f5", "--sets", "3"]);
    assert_eq!(
        (&json["as_expected"], json["curves"].as_array().map(Vec::len)),
        (&true.into(), Some(18))
    );
    // Separate code decides the sets and where U' = 1 lies.
    for id in ["cliff-", "sets-", "compared-"] {
        assert_eq!(verdicts(&json, id), ["holds"; 18], "{id}");
    }
    assert_eq!(fake.read("f5/fig5.csv").lines().count(), 1 + 18 * 20);
    assert!(fake.read("f5/fig5.svg").contains("</svg>"));
    assert_eq!(
        json,
        run(&["rt-virtio-fig5", "--json", "-o", "f5", "--sets", "3"]),
        "the same sets each time"
    );
}

#[test]
fn best_effort_alone_is_limited_by_a_bandwidth() {
    let log =
        "[[flow]]\nname = \"log\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1KiB\"\nbest_effort = true\n";
    let (printed, json) = analyze(&regulated(log), &[]);
    let reason = json["memory"]["reasons"][0].as_str().expect("a reason");
    assert_eq!(printed.status, Some(1), "{json}");
    assert!(reason.contains("nothing limits the flows log"), "{reason}");
    // Exactly the suggested value holds.
    let (printed, _) = analyze(&regulated(log), &["--bandwidth", "47000000B/s"]);
    assert_eq!(printed.status, Some(0), "{}", printed.out);
    let fake = fake();
    fake.write("x.toml", regulated(log).as_bytes());
    let printed = capture(fake.weir().args(["analyze", "x.toml"]));
    assert!(
        printed.out.contains("help: write [dma] bandwidth = \"47000000B/s\" or less"),
        "{}",
        printed.out
    );
    assert_eq!(analyze(&regulated(log), &["--bandwidth", "47000001B/s"]).0.status, Some(1));
}

/// The flow needs more than the 47 MB/s that are below saturation next to these budgets.
#[test]
fn every_suggested_bandwidth_makes_the_flows_hold() {
    let analyzed = |period: &str| {
        let text = regulated(&flow("f", "a", "\"b\"", "64KiB", period, period));
        let fake = fake();
        fake.write("x.toml", text.as_bytes());
        let printed = capture(fake.weir().args(["analyze", "x.toml", "--bandwidth", "485MB/s"]));
        assert_eq!(printed.status, Some(1), "{}", printed.out);
        let help =
            printed.out.lines().find(|line| line.contains("help:")).expect("a help").to_owned();
        (help, analyze(&text, &["--bandwidth", "47MB/s"]).1["flows"]["schedulable"].clone())
    };
    let (help, schedulable) = analyzed("1ms");
    assert!(help.ends_with("count for 30 less") && schedulable == false, "{help}");
    let (help, schedulable) = analyzed("10ms");
    assert!(help.contains("bandwidth = \"47000000B/s\" or less") && schedulable == true, "{help}");
}

/// No bandwidth that is written makes a core copy faster.
#[test]
fn flows_are_judged_at_no_more_than_a_core_copies() {
    let text = |path: &str, copy: &str| {
        format!(
            "[dma]\nbandwidth = \"2000MB/s\"\npath = \"{path}\"\n\
             {copy}{}{OVERHEADS}copy = {{ min = 50, max = 90 }}\n\
             wake = {{ min = 300, max = 700 }}\nhold = {{ min = 0, max = 0 }}\n{SATURATION}",
            flow("f", "a", "\"b\"", "64KiB", "1ms", "400us")
        )
    };
    let judged = |path: &str, copy: &str| {
        let (printed, json) = analyze(&text(path, copy), &[]);
        (printed.status, json["flows"]["bandwidth"].as_u64(), json)
    };
    let slow = "copy_bandwidth = \"100MB/s\"\n";
    for path in ["broker", "sender", "receiver"] {
        let (status, bandwidth, json) = judged(path, slow);
        assert_eq!((status, bandwidth), (Some(1), Some(100_000_000)), "{path}: {json}");
        let demand = json["flows"]["first_failure"].as_str().expect("a demand");
        assert!(demand.contains(" of work in "), "{demand}");
        assert_eq!(judged(path, "").0, Some(0), "{path}");
        // And so none is planned.
        let fake = fake();
        fake.write("x.toml", text(path, slow).replace("bandwidth = \"2000MB/s\"\n", "").as_bytes());
        let printed = capture(fake.weir().args(["plan", "x.toml"]));
        assert!(
            printed.err.contains("there are 100000000 B/s"),
            "{path}: {} {}",
            printed.out,
            printed.err
        );
    }
    assert_eq!(judged("dma", slow).0, Some(0));
}
