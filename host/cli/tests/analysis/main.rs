//! The verbs that analyze: `analyze`, `plan`, `reproduce`, `bench analysis`, and what `check` and `build` make of the
//! same keys.

mod budgets;
mod newcomer;
mod plan;
#[path = "../support/mod.rs"]
mod support;
mod verdicts;

use serde_json::Value;
use std::{
    fmt::Write as _,
    process::Stdio,
    time::{Duration, Instant},
};
use support::{Fake, SYSTEM, Said, say};

/// Table II of rt-virtio.
const OVERHEADS: &str = "
[overheads]
hc = { min = 939, max = 949 }
pt = { min = 111, max = 757 }
pp = { min = 181, max = 1161 }
ql = { min = 71, max = 142 }
qi = { min = 50, max = 101 }
qa = { min = 24, max = 30 }
qr = { min = 20, max = 40 }
ps = { min = 20, max = 71 }
pd = { min = 373, max = 949 }
ft = { min = 2222, max = 2646 }
ip = { min = 797, max = 828 }
br = { min = 1370, max = 1460 }
";

/// Table I of rt-virtio.
const SATURATION: &str = r#"
[saturation]
period = "30us"
line = "64B"
points = [
    { accesses = 150, dma = "1074MB/s" },
    { accesses = 165, dma = "649MB/s" },
    { accesses = 180, dma = "485MB/s" },
    { accesses = 195, dma = "148MB/s" },
    { accesses = 210, dma = "47MB/s" },
]
min_accesses = 50
"#;

fn fake() -> Fake {
    Fake::new(SYSTEM, "")
}

fn flow(name: &str, from: &str, to: &str, size: &str, period: &str, deadline: &str) -> String {
    format!(
        "[[flow]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = {to}\nsize = \"{size}\"\nperiod = \"{period}\"\ndeadline = \"{deadline}\"\n"
    )
}

/// One flow with deadline = period on an engine with one sender.
fn table3(bandwidth: &str, size: &str, period: u64) -> String {
    let period = format!("{period}ns");
    let flow = flow("only", "a", "\"b\"", size, &period, &period);
    format!("[dma]\nbandwidth = \"{bandwidth}\"\nchunk = \"4KiB\"\n{flow}{OVERHEADS}")
}

/// Analyzes a text; what was said and the JSON.
fn analyze(text: &str, arguments: &[&str]) -> (Said, Value) {
    let fake = fake();
    fake.write("x.toml", text.as_bytes());
    let said = say(fake.weir().args(["analyze", "x.toml", "--json"]).args(arguments));
    let json = serde_json::from_str(&said.out).unwrap_or(Value::Null);
    (said, json)
}

#[test]
fn a_budget_of_a_longer_period_counts_whole() {
    let system = |a: &str, b: &str| {
        let vm = |name: &str, cpu: u8, budget: &str| {
            format!("[[vm]]\nname = \"{name}\"\ncpus = [{cpu}]\nmemory_budget = {{ {budget} }}\n")
        };
        vm("a", 0, a) + &vm("b", 1, b) + SATURATION
    };
    let long = ["accesses = 390, period = \"100us\"", "accesses = 300, period = \"100us\""];
    let (said, json) = analyze(&system(long[0], long[1]), &[]);
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert_eq!(json["memory"]["total_budget"], 690);
    let reason = json["memory"]["reasons"][0].as_str().unwrap();
    assert!(reason.contains("counts whole") && reason.contains("a 117, b 90"), "{reason}");
    let (said, json) = analyze(
        &system("accesses = 117, period = \"30us\"", "accesses = 90, period = \"30us\""),
        &[],
    );
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert_eq!(json["memory"]["total_budget"], 207);
    // 29 us are not 30: an interval just over 29 us meets three of these and only two of the table's.
    let (_, json) = analyze(
        &system("accesses = 100, period = \"29us\"", "accesses = 5, period = \"10us\""),
        &[],
    );
    assert_eq!(json["memory"]["total_budget"], 215);
}

#[test]
fn only_refill_budgets_limit_memory() {
    let fake = fake();
    let system = |budget: &str| {
        let vm = |name: &str, cpu: u8, budget: &str| {
            format!(
                "[[vm]]\nname = \"{name}\"\ncpus = [{cpu}]\nmemory = \"16MiB\"\nimage = {{ bin = \"guest.bin\", load = 0x4010_0000 }}\nmemory_budget = {{ {budget}, period = \"30us\" }}\n"
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
        verbs.map(|verb| say(fake.weir().args([verb, "x.toml"])))
    };
    for (budget, named) in [
        (
            "accesses = 9, event = \"inst-retired\"",
            "memory-stressor (inst-retired says nothing of refills)",
        ),
        ("writes = 9", "memory-stressor (l2d-writeback says nothing of refills)"),
    ] {
        for said in system(budget) {
            assert_eq!(said.status, Some(1), "{}", said.err);
            // Lines are broken where the terminal ends.
            let text = (said.out + &said.err).replace("\n  | ", " ");
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
fn table_3_in_both_readings() {
    let rows = [
        ("148MB/s", "4KiB", 37_407, 36_933),
        ("148MB/s", "12KiB", 103_645, 103_171),
        ("485MB/s", "4KiB", 18_177, 17_703),
        ("485000000B/s", "12KiB", 45_954, 45_480),
    ];
    for (bandwidth, size, printed, published) in rows {
        for (reading, period) in [("printed", printed), ("table3", published)] {
            for (period, holds) in [(period, true), (period - 1, false)] {
                let text = table3(bandwidth, size, period);
                let (said, json) = analyze(&text, &["--model", reading]);
                assert_eq!(said.status, Some(i32::from(!holds)), "{}", said.err);
                assert_eq!(json["flows"]["schedulable"], holds);
                assert_eq!(json["flows"]["first_failure_ns"].is_null(), holds);
            }
        }
    }
}

#[test]
fn the_result_has_the_shape_that_programs_expect() {
    let (_, json) = analyze(&table3("148MB/s", "4KiB", 37_407), &[]);
    let flows = &json["flows"];
    assert_eq!(flows["min_bandwidth"], 147_998_266);
    assert!((flows["utilization"].as_f64().unwrap() - 0.913_42).abs() < 1e-5);
    let task = &flows["tasks"][0];
    assert_eq!(task["name"], "only");
    for (key, expected) in [
        ("c_ns", 33_573.675),
        ("d_ns", 35_190.0),
        ("p_ns", 36_756.0),
        ("j_ns", 1616.0),
        ("q_ns", 33_573.675),
    ] {
        assert!((task[key].as_f64().unwrap() - expected).abs() < 0.01, "{key}: {task}");
    }
    // One byte/s less than the least is too little, and the first failure is at the only flow's first deadline.
    for (bandwidth, holds) in [(147_998_266, true), (147_998_265, false)] {
        let (said, json) =
            analyze(&table3("148MB/s", "4KiB", 37_407), &["--bandwidth", &bandwidth.to_string()]);
        assert_eq!(
            (said.status, &json["flows"]["schedulable"]),
            (Some(i32::from(!holds)), &holds.into())
        );
        let first = &json["flows"]["first_failure_ns"];
        assert!(if holds { first.is_null() } else { *first == 33_574.0 }, "{first}");
    }
}

#[test]
fn several_files_are_one_line_each_in_their_order() {
    let fake = fake();
    fake.write("good.toml", table3("148MB/s", "4KiB", 37_407).as_bytes());
    fake.write("bad.toml", table3("148MB/s", "4KiB", 30_000).as_bytes());
    fake.write("broken.toml", b"[[flow]]\nname = 3\n");
    let files = ["good.toml", "bad.toml", "broken.toml", "nowhere.toml", "good.toml"];
    let said = say(fake.weir().args(["analyze", "--json"]).args(files));
    assert_eq!(said.status, Some(1));
    let lines: Vec<Value> =
        said.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let holds: Vec<_> = lines.iter().map(|line| line["holds"].as_bool().unwrap()).collect();
    assert_eq!(holds, [true, false, false, false, true]);
    let faults = lines[2]["faults"].as_array().expect("faults");
    assert!(faults.iter().any(|fault| fault["line"] == 2 && fault["name"] == "wrong-type"));
    for (line, file) in lines.iter().zip(files) {
        assert_eq!(line["file"], file);
    }
    let said = say(fake.weir().args(["analyze", "good.toml", "good.toml"]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(said.out.contains("least bandwidth: 147998266 B/s"), "{}", said.out);
}

#[test]
fn wrong_calls_have_status_2() {
    for wrong in [
        &["analyze"][..],
        &["analyze", "x", "--model", "mine"],
        &["analyze", "x", "--bandwidth", "fast"],
        &["analyze", "x", "--service", "1/1us"],
        &["analyze", "--trace", "x", "--service", "0/1us"],
        &["plan"],
        &["plan", "a", "b"],
        &["reproduce", "nothing"],
        &["reproduce", "rt-virtio-fig5", "--sets", "0"],
        &["bench", "analysis", "--sets", "0"],
    ] {
        assert_eq!(say(fake().weir().args(wrong)).status, Some(2), "{wrong:?}");
    }
}

/// Every value that a flow can have wrong, with what is said of it and where.
#[test]
fn bad_values_are_refused_at_their_place() {
    let good = |key: &str, value: &str| {
        let mut text = String::from("[[flow]]\n");
        for (known, otherwise) in [
            ("name", "\"f\""),
            ("from", "\"a\""),
            ("to", "\"b\""),
            ("size", "\"4KiB\""),
            ("period", "\"1ms\""),
            ("deadline", "\"1ms\""),
        ] {
            let value = if known == key { value } else { otherwise };
            let _ = writeln!(text, "{known} = {value}");
        }
        text
    };
    let lines = [("name", 2), ("from", 3), ("to", 4), ("size", 5), ("period", 6), ("deadline", 7)];
    for (key, value, code) in [
        ("size", "\"0B\"", "zero"),
        ("size", "\"-1B\"", "wrong-number"),
        ("size", "-1", "wrong-type"),
        ("size", "\"4KB\"", "wrong-unit"),
        ("size", "\"18446744073709551616B\"", "too-large"),
        ("size", "\"2000GiB\"", "flow-limit"),
        ("deadline", "\"0ns\"", "zero"),
        ("period", "\"0s\"", "zero"),
        ("period", "\"5000000s\"", "flow-limit"),
        ("deadline", "\"18446744073s\"", "flow-limit"),
        ("period", "\"99999999999s\"", "too-large"),
        ("to", "\"a\"", "self-loop"),
        ("to", "[]", "no-receiver"),
        ("to", "[\"b\", \"b\"]", "receiver-twice"),
        ("best", "1", "none"),
    ] {
        let text = format!("{}[dma]\nbandwidth = \"485MB/s\"\n{OVERHEADS}", good(key, value));
        let (said, json) = analyze(&text, &[]);
        if code == "none" {
            assert_eq!(said.status, Some(0), "{}", said.out);
            continue;
        }
        assert_eq!(said.status, Some(1), "{key} = {value}: {}", said.out);
        let fault = &json["faults"][0];
        assert_eq!(fault["name"], code, "{key} = {value}: {fault}");
        let line = lines.iter().find(|line| line.0 == key).expect("a key").1;
        assert_eq!(fault["line"], line, "{key} = {value}: {fault}");
        assert!(fault["help"].is_string(), "{fault}");
    }
    for (keys, code) in [
        ("bandwidth = \"0B/s\"", "zero"),
        ("bandwidth = \"485MB\"", "wrong-unit"),
        ("bandwidth = 485", "wrong-type"),
        ("bandwidth = \"9000000GB/s\"", "flow-limit"),
        ("bandwidth = \"485MB/s\"\nchunk = \"0B\"", "zero"),
        ("bandwidth = \"485MB/s\"\nqueues = 0", "out-of-range"),
        ("bandwidth = \"485MB/s\"\nqueues = -1", "negative"),
        ("bandwith = \"485MB/s\"", "unknown-key"),
    ] {
        let (said, json) = analyze(&format!("{}[dma]\n{keys}\n{OVERHEADS}", good("", "")), &[]);
        assert_eq!((said.status, &json["faults"][0]["name"]), (Some(1), &code.into()), "{keys}");
    }
    for (from, to, code) in [
        ("max = 949 }\npt", "max = 938 }\npt", "range-reversed"),
        ("hc = ", "hcc = ", "unknown-key"),
        ("hc = { min = 939, max = 949 }", "", "no-overheads"),
        ("max = 949 }\npt", "max = \"2000s\" }\npt", "flow-limit"),
        ("max = 949 }\npt", "max = -1 }\npt", "negative"),
    ] {
        let overheads = OVERHEADS.replacen(from, to, 1);
        let text = format!("{}[dma]\nbandwidth = \"485MB/s\"\n{overheads}", good("", ""));
        let (said, json) = analyze(&text, &[]);
        assert_eq!(
            (said.status, &json["faults"][0]["name"]),
            (Some(1), &code.into()),
            "{to}: {json}"
        );
    }
    let named = format!(
        "[[vm]]\nname = \"bb\"\n[[vm]]\nname = \"a\"\n[[vm]]\nname = \"xyz\"\n{}",
        good("", "")
    );
    let (_, json) = analyze(&named, &[]);
    assert_eq!(
        (&json["faults"][0]["name"], &json["faults"][0]["line"]),
        (&"unknown-vm".into(), &10.into())
    );
    assert!(json["faults"][0]["help"].as_str().unwrap().contains("write `"), "{json}");
}

#[test]
fn long_periods_are_answered_and_do_not_wrap() {
    // Periods of hours in ns next to ones of microseconds, deadlines longer and shorter than the period.
    let text = format!(
        "[dma]\nbandwidth = \"485MB/s\"\n{}{}{}{OVERHEADS}",
        flow("hours", "a", "\"b\"", "1000GiB", "14400s", "14400s"),
        flow("short", "b", "\"a\"", "64B", "100us", "300us"),
        flow("tight", "b", "\"a\"", "64B", "3600s", "60us"),
    );
    let (said, json) = analyze(&text, &[]);
    assert!(said.status.is_some_and(|status| status < 2), "{}", said.err);
    assert!(json["flows"]["min_bandwidth"].as_u64().is_some_and(|b| b > 74_000_000), "{json}");
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
    // Seconds, even without optimization, but more than `say` waits for on a busy machine.
    let started = Instant::now();
    let output = fake.weir().args(["analyze", "x.toml", "--json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["flows"]["tasks"].as_array().map(Vec::len), Some(10_000));
    assert!(started.elapsed() < Duration::from_secs(500));
}

#[test]
fn what_takes_too_long_is_given_up_and_said() {
    // Periods that have nothing in common: U' <= 1 is what binds, T* lies hours away.
    let mut text = String::from("[dma]\n");
    for i in 0..16u64 {
        let period = 1_000_003 + i * i * 700_001;
        let time = format!("{period}ns");
        text.push_str(&flow(&format!("f{i}"), &format!("v{i}"), "\"b\"", "12KiB", &time, &time));
    }
    text.push_str(OVERHEADS);
    let (said, json) = analyze(&text, &[]);
    assert_eq!((said.status, &json["flows"]["gave_up"]), (Some(0), &false.into()), "{json}");
    let least = json["flows"]["min_bandwidth"].as_u64().expect("a bandwidth");
    let (said, json) = analyze(&text, &["--bandwidth", &(least / 2).to_string()]);
    assert_eq!((said.status, &json["flows"]["min_bandwidth"]), (Some(1), &least.into()), "{json}");
    let (said, json) = analyze(&text, &["--max-steps", "100", "--bandwidth", &least.to_string()]);
    let flows = &json["flows"];
    assert_eq!((said.status, &flows["gave_up"]), (Some(1), &true.into()), "{json}");
    assert!(flows["min_bandwidth"].is_null() && flows["min_bandwidth_at_least"].is_u64(), "{json}");
    assert_eq!(flows["min_bandwidth_is"], "given-up");
    assert!(flows["reasons"][0].as_str().is_some_and(|reason| reason.starts_with("given up")));

    assert_eq!(flows["bounds_gave_up"], true);

    let fake = fake();
    fake.write("x.toml", text.as_bytes());
    let ask = |more: &[&str]| say(fake.weir().args(["analyze", "x.toml"]).args(more)).out;
    // Neither shown to hold nor shown not to.
    let said = ask(&["--max-steps", "100", "--bandwidth", &least.to_string()]);
    assert!(said.starts_with("x.toml: not judged"), "{said}");
    assert!(said.contains("could be tested within the effort; --max-steps allows more"), "{said}");
    let said = ask(&["--max-steps", "1", "--bandwidth", &(least - 1000).to_string()]);
    assert!(said.starts_with("x.toml: does not hold"), "{said}");
    assert!(said.contains("first failing instant: not found within the effort"), "{said}");

    // Without a bandwidth to judge, a proven one is judged, and nobody calls it the least.
    assert!(ask(&[]).contains("B/s, the least (no bandwidth is given)"), "{}", ask(&[]));
    let mut proven = 0;
    for effort in (6..26).map(|bits| (1u64 << bits).to_string()) {
        let (_, json) = analyze(&text, &["--max-steps", &effort]);
        let (is, enough) =
            (&json["flows"]["min_bandwidth_is"], &json["flows"]["min_bandwidth_enough"]);
        let said = ask(&["--max-steps", &effort]);
        assert_eq!(said.contains("the least ("), *is == "exact", "{effort}: {said}");
        assert_eq!(json["flows"]["min_bandwidth"].is_u64(), *is == "exact", "{effort}: {json}");
        if let Some(enough) = enough.as_u64() {
            proven += 1;
            assert!(
                said.contains(&format!("at {enough} B/s, which is proven to be enough")),
                "{effort}: {said}"
            );
        }
    }
    assert!(proven > 0, "some effort is enough for a proof, but not for the least");
}

#[test]
fn a_flow_without_a_period_has_no_utilization() {
    let hasty = flow("hasty", "a", "\"b\"", "4KiB", "1ns", "1ms");
    let (said, json) = analyze(&format!("[dma]\nbandwidth = \"485MB/s\"\n{hasty}{OVERHEADS}"), &[]);
    assert_eq!(said.status, Some(1));
    let flows = &json["flows"];
    assert!(flows["utilization"].is_null(), "{json}");
    assert_eq!(flows["min_bandwidth_is"], "none");
    let reason = flows["reasons"][0].as_str().expect("a reason");
    assert!(reason.starts_with("hasty: the spread of the send overhead leaves P' = -"), "{reason}");
    let fake = fake();
    fake.write("x.toml", format!("[dma]\nbandwidth = \"485MB/s\"\n{hasty}{OVERHEADS}").as_bytes());
    let said = say(fake.weir().args(["analyze", "x.toml"]));
    assert!(said.out.contains("utilization U': none"), "{}", said.out);
}

#[test]
fn where_nothing_can_be_judged_nothing_holds() {
    let fake = fake();
    fake.write("bare.toml", b"platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\n");
    let said = say(fake.weir().args(["analyze", "bare.toml"]));
    assert_eq!(said.status, Some(2), "{}", said.out);
    assert!(said.err.contains("nothing to judge") && !said.out.contains("holds"), "{}", said.out);
    let said = say(fake.weir().args(["analyze", "bare.toml", "--json"]));
    let json: Value = serde_json::from_str(&said.out).expect("JSON");
    assert!(json["holds"].is_null() && json["nothing"].is_string(), "{json}");
    // What does not hold is the stronger news.
    fake.write("bad.toml", table3("148MB/s", "4KiB", 30_000).as_bytes());
    for files in [["bad.toml", "bare.toml"], ["bare.toml", "bad.toml"]] {
        assert_eq!(say(fake.weir().arg("analyze").args(files)).status, Some(1));
    }
}

#[test]
fn a_wrong_call_is_not_blamed_on_the_file() {
    let fake = fake();
    fake.write("x.toml", table3("148MB/s", "4KiB", 37_407).as_bytes());
    fake.write("bare.toml", b"[[vm]]\nname = \"a\"\n");
    for (arguments, told) in [
        (&["analyze", "x.toml", "--bandwidth", "0"][..], "at least 1"),
        (&["analyze", "x.toml", "--bandwidth", "0MB/s"], "at least 1"),
        (&["analyze", "x.toml", "--bandwidth", "9000000GB/s"], "1 PiB/s"),
        (&["analyze", "x.toml", "--overheads", "bare.toml"], "bare.toml says no overheads"),
        (&["analyze", "x.toml", "--overheads", "nowhere.toml"], "nowhere.toml"),
        (&["analyze", "nowhere.toml"], "cannot read nowhere.toml"),
        (&["analyze", "nowhere.toml", "--json"], ""),
        (&["analyze", "."], "is a directory"),
        (&["analyze", "--trace", "nowhere.txt"], "cannot read nowhere.txt"),
        (&["plan", "nowhere.toml"], "cannot read nowhere.toml"),
        (&["plan", "x.toml", "--max-steps", "some"], "--max-steps"),
    ] {
        let said = say(fake.weir().args(arguments));
        assert_eq!(said.status, Some(2), "{arguments:?}: {}", said.err);
        assert!(said.err.contains(told) && !said.err.contains("x.toml:1"), "{}", said.err);
    }
    fake.write("table.toml", OVERHEADS.as_bytes());
    let said = say(fake.weir().args(["analyze", "x.toml", "--overheads", "table.toml"]));
    assert_eq!(said.status, Some(0), "{}", said.err);
}

#[test]
fn unusual_names_line_ends_and_paths_are_handled() {
    let fake = fake();
    let text = table3("485MB/s", "4KiB", 1_000_000).replace("\"only\"", "\"Müßig 流 🦀\"");
    fake.write("ünd so.toml", text.as_bytes());
    fake.write("crlf.toml", format!("\u{feff}{}", text.replace('\n', "\r\n")).as_bytes());
    for name in ["ünd so.toml", "crlf.toml"] {
        let said = say(fake.weir().args(["analyze", name]));
        assert_eq!(said.status, Some(0), "{}", said.err);
        assert!(said.out.contains("Müßig 流 🦀"), "{}", said.out);
    }
    fake.write(
        "x.toml",
        format!("{text}{SATURATION}").replace("bandwidth = \"485MB/s\"", "").as_bytes(),
    );
    let said = say(fake.weir().args(["plan", "x.toml"]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    for place in ["/proc/nowhere/x.toml", "/"] {
        let said = say(fake.weir().args(["plan", "x.toml", "-o", place]));
        assert_eq!(said.status, Some(3), "{}", said.err);
        assert!(said.err.contains("cannot write"), "{}", said.err);
    }
    // A disk that is full is the machine's fault, not the system's.
    for arguments in
        [&["analyze", "crlf.toml"][..], &["plan", "x.toml"], &["bench", "analysis", "--sets", "1"]]
    {
        let full = std::fs::File::create("/dev/full").unwrap();
        let status = fake.weir().args(arguments).stdout(full).stderr(Stdio::null()).status();
        assert_eq!(status.unwrap().code(), Some(3), "{arguments:?}");
    }
}

#[test]
fn who_is_at_fault_is_named() {
    let impossible = format!(
        "[dma]\nbandwidth = \"485MB/s\"\n{}{}{OVERHEADS}",
        flow("easy", "a", "\"b\"", "4KiB", "10ms", "10ms"),
        flow("hasty", "a", "\"b\"", "4KiB", "10ms", "2us"),
    );
    let (said, json) = analyze(&impossible, &[]);
    assert_eq!(said.status, Some(1));
    assert!(json["flows"]["min_bandwidth"].is_null());
    let reason = json["flows"]["reasons"][0].as_str().expect("a reason");
    assert!(reason.starts_with("hasty: the overheads leave D' - J' = -"), "{reason}");
    let overload = format!(
        "[dma]\nbandwidth = \"1MB/s\"\n{}{OVERHEADS}",
        flow("much", "a", "\"b\"", "4KiB", "1ms", "1ms")
    );
    let (_, json) = analyze(&overload, &[]);
    assert!(
        json["flows"]["reasons"][0].as_str().is_some_and(|reason| reason.contains("U' > 1")),
        "{json}"
    );
    assert!(json["flows"]["min_bandwidth"].is_u64());
}

#[test]
fn best_effort_blocks_and_several_receivers_cost() {
    let base = format!("[dma]\nbandwidth = \"148MB/s\"\n{OVERHEADS}");
    let least = |more: &str| {
        let (said, json) = analyze(
            &format!("{base}{}{more}", flow("f", "a", "\"b\"", "4KiB", "90us", "90us")),
            &[],
        );
        assert_eq!(said.status, Some(0), "{} {}", said.err, said.out);
        json["flows"]["min_bandwidth"].as_u64().expect("a bandwidth")
    };
    let alone = least("");
    let beside = least(
        "[[flow]]\nname = \"log\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1MiB\"\nbest_effort = true\n",
    );
    assert!(beside > alone, "{beside} {alone}");
    // Its size beyond a chunk does not matter.
    let larger = least(
        "[[flow]]\nname = \"log\"\nfrom = \"a\"\nto = \"b\"\nsize = \"9MiB\"\nbest_effort = true\n",
    );
    assert_eq!(beside, larger);
    let (_, one) =
        analyze(&format!("{base}{}", flow("f", "a", "[\"b\"]", "4KiB", "200us", "200us")), &[]);
    let (_, two) = analyze(
        &format!("{base}{}", flow("f", "a", "[\"b\", \"c\"]", "4KiB", "200us", "200us")),
        &[],
    );
    let cost = |json: &Value| json["flows"]["tasks"][0]["c_ns"].as_f64().expect("a cost");
    assert!(cost(&two) > 1.9 * cost(&one) && cost(&two) < 2.0 * cost(&one));
}

#[test]
fn the_own_data_path_has_its_own_terms() {
    let text = |path: &str| {
        format!(
            "[dma]\nbandwidth = \"1GB/s\"\npath = \"{path}\"\n{}{OVERHEADS}copy = {{ min = 50, max = 90 }}\nwake = {{ min = 300, max = 700 }}\nhold = {{ min = 0, max = 0 }}\n",
            flow("f", "a", "\"b\"", "4KiB", "90us", "90us")
        )
    };
    let task = |path: &str| {
        let (said, json) = analyze(&text(path), &[]);
        assert_eq!(said.status, Some(0), "{path}: {}", said.err);
        let task = &json["flows"]["tasks"][0];
        (task["c_ns"].as_f64().unwrap(), task["j_ns"].as_f64().unwrap())
    };
    let (dma, broker, sender) = (task("dma"), task("broker"), task("sender"));
    assert!(broker.0 < dma.0, "no engine to program: {broker:?} {dma:?}");
    // A sender is awake, and looks for nothing else (QA); it takes no lock, but finds the place
    // itself.
    let more = 700.0 + 30.0 + 142.0 - 30.0;
    assert!((broker.1 - sender.1 - more).abs() < 0.1, "{broker:?} {sender:?}");
    let (said, json) = analyze(&text("broker").replace("copy = ", "#"), &[]);
    assert_eq!((said.status, &json["faults"][0]["name"]), (Some(1), &"no-overheads".into()));
    let both = text("dma").replace("path = \"dma\"", "copy_bandwidth = \"400MB/s\"");
    let (_, json) = analyze(&both, &[]);
    // (949 + 949 + 828 - 90) / (1/400 - 1/1000) bytes at 1 MB/s = 1 B/us.
    assert_eq!(json["flows"]["dma_better_from_bytes"], 1758);
}

/// A broker's flow with all overheads, without waits for locks, and the copy's bandwidth.
fn moved_by_the_broker() -> String {
    let flow = flow("f", "a", "\"b\"", "4KiB", "900us", "900us");
    format!(
        "[dma]\npath = \"broker\"\ncopy_bandwidth = \"1GB/s\"\n{flow}{OVERHEADS}copy = {{ min = 50, max = 90 }}\nwake = {{ min = 300, max = 700 }}\nhold = {{ min = 0, max = 0 }}\n"
    )
}

#[test]
fn command_line_values_are_checked_like_the_files() {
    let task = |text: &str, arguments: &[&str]| {
        let fake = fake();
        fake.write("x.toml", text.as_bytes());
        let faster =
            moved_by_the_broker().replace("1GB/s", "2GB/s").replace("max = 700", "max = 1700");
        fake.write("faster.toml", faster.as_bytes());
        let said = say(fake.weir().args(["analyze", "x.toml", "--json"]).args(arguments));
        assert_eq!(said.status, Some(0), "{}", said.err);
        let json: Value = serde_json::from_str(&said.out).expect("JSON");
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

/// Waits for locks are in the bound, the verdict and the least bandwidth; only the bound for
/// comparison with serialized cores leaves them out.
#[test]
fn the_verdict_is_for_concurrent_cores() {
    let with = |hold: &str, deadline: &str| {
        let text = moved_by_the_broker().replace("hold = { min = 0, max = 0 }\n", hold);
        analyze(&text.replace("\"900us\"", &format!("\"{deadline}\"")), &[])
    };
    let bounds = |json: &Value| {
        let task = &json["flows"]["tasks"][0];
        ["bound_ns", "serialized_bound_ns"].map(|key| task[key].as_u64().expect("a bound"))
    };
    let (said, json) = with("", "900us");
    assert_eq!((said.status, &json["faults"][0]["name"]), (Some(1), &"no-overheads".into()));
    assert!(json["faults"][0]["message"].as_str().expect("a text").ends_with("not known: hold"));
    let [alone, serialized] = bounds(&with("hold = { min = 0, max = 0 }\n", "900us").1);
    assert_eq!(alone, serialized);
    let held = "hold = { min = 100, max = 3000 }\n";
    let (said, json) = with(held, "900us");
    assert_eq!(
        (said.status, json["flows"]["assumed"]["cores"].as_str()),
        (Some(0), Some("concurrent"))
    );
    let [concurrent, still] = bounds(&json);
    assert_eq!(still, serialized);
    // Sender, broker: four turns for the sender's packet, eight for the broker's completions.
    assert_eq!(concurrent, serialized + 12 * 3000);
    // Serialized cores keep 30 us, concurrent ones do not.
    let (said, json) = with(held, "30us");
    assert!(serialized < 30_000 && said.status == Some(1), "{json}");
    assert_eq!(json["flows"]["schedulable"], false);
    let (said, _) = with("hold = { min = 0, max = 0 }\n", "30us");
    assert_eq!(said.status, Some(0), "{}", said.out);
}

/// A board without a DMA engine copies by the broker's core, whatever the file leaves out; one with
/// an engine is analyzed for it.
#[test]
fn the_data_path_follows_from_the_board() {
    let flow = flow("f", "a", "\"b\"", "4KiB", "1ms", "500us");
    let assumed = |head: &str| {
        let (said, json) = analyze(&format!("{head}{flow}"), &[]);
        assert_eq!(said.status, Some(0), "{head}: {}", said.out);
        let assumed = &json["flows"]["assumed"];
        let from = assumed["data_path_from"].as_str().expect("a reason").to_owned();
        (assumed["data_path"].as_str().expect("a path").to_owned(), from)
    };
    for board in ["qemu-virt", "qemu-virt-gicv2"] {
        let head = format!("platform = \"{board}\"\n");
        let none = format!("platform {board} has no DMA engine");
        assert_eq!(assumed(&head), ("broker".to_owned(), none));
    }
    let (path, from) = assumed("platform = \"zcu102\"\n");
    assert!(path == "dma" && from == "platform zcu102 has the DMA engine GDMA", "{path} {from}");
}

/// Where the overheads come from is printed, and another build than the checkout's causes a
/// warning, which leaves the status.
#[test]
fn overheads_name_their_origin_and_stale_ones_warn() {
    let origin = |build: &str| {
        format!(
            "{}origin = {{ command = \"weir run x\", build = \"{build}\", date = \"2026-01-31\" }}\n",
            moved_by_the_broker()
        )
    };
    let weir = |text: &str, arguments: &[&str]| {
        let fake = fake();
        fake.write("x.toml", text.as_bytes());
        let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut command = fake.weir();
        say(command.env("WEIR_ROOT", checkout).args(["analyze", "x.toml"]).args(arguments))
    };
    let json: Value = serde_json::from_str(&weir(&origin("0"), &["--json"]).out).expect("JSON");
    let table = &json["flows"]["assumed"]["overheads"][0];
    assert_eq!((&table["build"], &table["date"]), (&"0".into(), &"2026-01-31".into()));
    assert_eq!(table["same_build"], false);
    let build = json["flows"]["assumed"]["build"].as_str().expect("this checkout's").to_owned();
    let told = |text: &str| weir(text, &[]);
    let said = told(&origin("0"));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(said.out.contains("measured, not proven (weir run x, 2026-01-31, hypervisor build 0)"));
    assert!(
        said.out.contains("warning: these overheads are of hypervisor build 0"),
        "{}",
        said.out
    );
    let said = told(&origin(&build));
    assert!(!said.out.contains("warning:"), "{}", said.out);
}

/// With half of a core for the broker each chunk takes twice as long, and each packet may come just when that half is spent. What is wrong with the schedule is told
/// once, though flows and cores are analyzed.
#[test]
fn flows_go_by_what_the_brokers_schedule_leaves_it() {
    let text = |schedule: &str| {
        let vm = |name, core| format!("[[vm]]\nname = \"{name}\"\ncpus = [{core}]\n");
        format!(
            "{}{}{}{schedule}[dma]\nbandwidth = \"1GB/s\"\ncopy_bandwidth = \"1GB/s\"\npath = \"broker\"\n{}{OVERHEADS}\
             copy = {{ min = 50, max = 90 }}\nwake = {{ min = 300, max = 700 }}\nhold = {{ min = 0, max = 0 }}\n",
            vm("a", 0),
            vm("b", 1),
            vm("c", 2),
            flow("f", "a", "\"b\"", "4KiB", "1ms", "900us")
        )
    };
    let servers = |other: &str| {
        text(&format!(
            "[[core]]\nid = 2\nschedule = {{ kind = \"fixed-priority\", switch = \"0us\", servers = [\n\
             {{ vm = \"broker\", budget = \"50us\", period = \"100us\" }},\n\
             {{ vm = \"c\", budget = \"{other}\", period = \"1ms\" }},\n] }}\n"
        ))
    };
    let task = |text: &str| {
        let (said, json) = analyze(text, &[]);
        assert_eq!(said.status, Some(0), "{}", said.err);
        let task = &json["flows"]["tasks"][0];
        ["c_ns", "j_ns", "bound_ns"].map(|key| task[key].as_f64().expect("a number"))
    };
    let own = task(&text(""));
    let half = task(&servers("100us"));
    // Twice what is left of each period, with what switches may take besides.
    assert!(half[0] >= 2.0 * own[0] && half[1] >= own[1] + 100_000.0, "{half:?} {own:?}");
    assert!(half[2] >= 100_000.0 + 2.0 * own[0] && half[2] <= 2.0 * (100_000.0 + 2.0 * own[0]));
    let (said, json) = analyze(&servers("900us"), &[]);
    let codes: Vec<_> =
        json["faults"].as_array().expect("faults").iter().map(|it| it["name"].clone()).collect();
    assert_eq!((said.status, codes), (Some(1), vec![Value::from("server-late")]));
}

/// Two VMs on a core, budgets, a task.
fn system(more: &str) -> String {
    format!(
        r#"
[[vm]]
name = "rt"
cpus = [0]
memory_budget = {{ accesses = 60, period = "30us" }}
[[vm.task]]
name = "loop"
wcet = "200us"
period = "2ms"
accesses = 29
[[vm]]
name = "gp"
cpus = [0, 1]
memory_budget = {{ accesses = 90, period = "30us" }}
[[core]]
id = 0
schedule = {{ kind = "table", major_frame = "1ms", slots = [{{ vm = "rt", start = "0us", length = "500us" }}, {{ vm = "gp", start = "500us", length = "400us" }}] }}
{more}
{SATURATION}"#
    )
}

#[test]
fn memory_and_time_are_analyzed_too() {
    let (said, json) = analyze(&system(""), &["--accept-not-judged"]);
    assert_eq!(said.status, Some(0), "{} {}", said.err, said.out);
    assert!(json["flows"].is_null());
    assert_eq!(
        (&json["memory"]["total_budget"], &json["memory"]["holds"]),
        (&150.into(), &true.into())
    );
    // b = Q S_l / P.
    assert_eq!(json["memory"]["vms"][0]["bandwidth"], 128_000_000);
    // 200 us begun at the end of a slot: 500 us away.
    assert_eq!(json["time"]["tasks"][0]["response_ns"], 700_000);
    assert_eq!(json["time"]["memory_interference"], false);

    let delay =
        system("").replace("min_accesses", "delay = \"60ns\"\nper_access = 1\nmin_accesses");
    let (_, json) = analyze(&delay, &[]);
    assert_eq!(json["time"]["tasks"][0]["response_ns"], 700_000 + 29 * 60);

    let (said, json) = analyze(&system("").replace("accesses = 90", "accesses = 151"), &[]);
    assert_eq!((said.status, &json["memory"]["holds"]), (Some(1), &false.into()), "{json}");
    let (said, json) = analyze(
        &system("").replace("accesses = 90, period = \"30us\"", "required = \"1GB/s\""),
        &[],
    );
    assert_eq!((said.status, &json["memory"]["holds"]), (Some(1), &false.into()), "{json}");

    let line = "[[irq]]\nline = 40\nvm = \"gp\"\nwcet = \"2us\"\n";
    let (said, json) = analyze(&system(line), &["--accept-not-judged"]);
    // It waits for gp's slot: once ahead of it, and once behind.
    assert_eq!((said.status, &json["time"]["tasks"][0]["response_ns"]), (Some(0), &704_000.into()));
    let (_, json) = analyze(&system(&format!("{line}rate = 1000\n")), &[]);
    assert_eq!(json["time"]["tasks"][0]["response_ns"], 704_000);
    let (said, json) = analyze(&system(&format!("{line}preempt = true\n")), &[]);
    assert_eq!(said.status, Some(1), "no admission rule: no bound");
    assert!(json["time"]["tasks"][0]["response_ns"].is_null(), "{json}");
    assert!(json["time"]["reasons"][0].as_str().is_some_and(|reason| reason.contains("`rate`")));
    let (_, json) = analyze(&system(&format!("{line}rate = 1000\npreempt = true\n")), &[]);
    assert!(
        json["time"]["tasks"][0]["response_ns"].as_u64().is_none_or(|time| time > 1_000_000),
        "{json}"
    );
}

/// What a switch takes is the platform's, or the file's, and is in the supply of every kind of schedule; so is what comes to the other VM.
#[test]
fn switches_are_taken_off_what_a_core_supplies() {
    let two = "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\n[[vm]]\nname = \"b\"\ncpus = [0]\n";
    let schedules = [
        ("kind = \"round-robin\", quantum = \"1ms\"", 0.5),
        (
            "kind = \"table\", major_frame = \"2ms\", slots = [{ vm = \"a\", start = \"0us\", length = \"1ms\" }, { vm = \"b\", start = \"1ms\", length = \"1ms\" }]",
            0.5,
        ),
        (
            "kind = \"fixed-priority\", servers = [{ vm = \"a\", budget = \"500us\", period = \"2ms\" }, { vm = \"b\", budget = \"1ms\", period = \"2ms\" }]",
            0.25,
        ),
    ];
    for (schedule, whole) in schedules {
        let share = |head: &str, switch: &str| {
            let core = format!("[[core]]\nid = 0\nschedule = {{ {schedule}{switch} }}\n");
            let (said, json) = analyze(&format!("{head}{core}"), &["--accept-not-judged"]);
            assert_eq!(said.status, Some(0), "{} {}", said.err, said.out);
            let notes = format!("{}{}", json["time"]["notes"], json["not_judged"]);
            (json["time"]["cores"][0]["vms"][0]["share"].as_f64().expect("a share"), notes)
        };
        let (known, note) = share(two, "");
        assert!(known < 0.97 * whole && known > 0.8 * whole, "{schedule}: {known}");
        assert!(note.contains("up to 25us per switch"), "{note}");
        let (written, _) = share(two, ", switch = \"50us\"");
        assert!(written < known, "{schedule}: {written} {known}");
        let nowhere = two.replacen("platform = \"qemu-virt\"\n", "", 1);
        let (unknown, note) = share(&nowhere, "");
        assert!((unknown - whole).abs() < 1e-6, "{schedule}: {unknown}");
        assert!(note.contains("core 0: the cost of a switch is not known"), "{note}");
        // A device without an [[irq]] is no reason for no bound, and none for nothing.
        let device =
            two.replace("name = \"b\"\n", "name = \"b\"\ndevices = [\"rtc\", \"pci:00:02.0\"]\n");
        let (beside, note) = share(&device, "");
        assert!(beside < known && beside > 0.7 * whole, "{schedule}: {beside} {known}");
        assert!(note.contains("interrupt 34, 37 of b has no [[irq]]"), "{note}");
    }
}

/// `analyze` refuses the rules of interrupts that `check` refuses, and takes those of a file that does not say what its VMs are.
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
    let say = |verb: &str, text: &str| {
        fake.write("x.toml", text.as_bytes());
        let said = say(fake.weir().args([verb, "x.toml"]));
        (said.status, said.err)
    };
    let refused = [
        (whole(device) + &rule(34) + &rule(34), "irq-twice", "keep one of them"),
        (whole(device) + &rule(35), "irq-unknown", "its own are 34"),
        (whole("") + &rule(34), "irq-unknown", "b has none: give it a device"),
    ];
    for (text, code, help) in refused {
        for verb in ["check", "analyze"] {
            let (status, said) = say(verb, &text);
            assert_eq!(status, Some(1), "{verb}: {text}");
            assert!(said.contains(code) && said.contains(help), "{verb}: {said}");
        }
    }
    let good = whole(device) + &rule(34);
    assert_eq!(["check", "analyze"].map(|verb| say(verb, &good).0), [Some(0); 2]);
    // Of these nobody says which devices they have.
    let names = "[[vm]]\nname = \"a\"\n[[vm]]\nname = \"b\"\n";
    let bare = format!("platform = \"qemu-virt\"\n{names}{}", core(", vms = [\"a\", \"b\"]"));
    assert_eq!(say("analyze", &(bare.clone() + &rule(35))), (Some(0), String::new()));
    let (status, said) = say("analyze", &(bare + &rule(35) + &rule(35)));
    assert_eq!(status, Some(1));
    assert!(said.contains("irq-twice"), "{said}");
}

/// What costs less than the platform says, and who is sure of nothing, both verbs say.
#[test]
fn costs_that_are_too_low_are_said() {
    let fake = fake();
    let vm = |name: &str, keys: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [0]\nmemory = \"16MiB\"\nimage = {{ bin = \"guest.bin\", load = 0x4010_0000 }}\n{keys}"
        )
    };
    let (a, b) = (vm("a", ""), vm("b", "devices = [\"rtc\"]\n"));
    let system = |quantum: &str, cost: &str| {
        let text = format!(
            "platform = \"qemu-virt\"\n{a}{b}[[core]]\nid = 0\nschedule = {{ kind = \"round-robin\", quantum = \"{quantum}\" }}\n[[irq]]\nline = 34\nvm = \"b\"\nrate = 20\nwcet = \"{cost}\"\n"
        );
        fake.write("x.toml", text.as_bytes());
        ["check", "analyze"].map(|verb| say(fake.weir().args([verb, "x.toml"])))
    };
    for said in system("1ms", "9us") {
        let known = "counts as 9us, its `wcet` (x.toml:";
        assert_eq!(said.status, Some(0), "{}", said.err);
        assert!(
            said.out.contains(known) && said.out.contains("less than the 10us"),
            "{}",
            said.out
        );
    }
    for said in system("1ms", "10us") {
        assert!(!said.out.contains("counts as"), "{}", said.out);
    }
    for said in system("1ms", "0us") {
        assert_eq!(said.status, Some(1), "{}", said.out);
        assert!(said.err.contains("`wcet` of interrupt 34 is 0"), "{}", said.err);
    }
    for said in system("20us", "10us") {
        assert!(said.out.contains("a's time slices of 20us are too short"), "{}", said.out);
    }
}

/// A broker that is sure of no time is told why, and what is enough.
#[test]
fn a_broker_without_time_is_told_why() {
    let fake = fake();
    let system = |quantum: &str, irq: &str| {
        let vm = |name: &str, core: u8| format!("[[vm]]\nname = \"{name}\"\ncpus = [{core}]\n");
        let text = format!(
            "platform = \"qemu-virt\"\n{}{}{}[dma]\npath = \"broker\"\nbandwidth = \"485MB/s\"\n{}{OVERHEADS}copy = {{ min = 100, max = 200 }}\nwake = {{ min = 100, max = 200 }}\n[[core]]\nid = 2\nschedule = {{ kind = \"round-robin\", quantum = \"{quantum}\", vms = [\"broker\", \"c\"] }}\n{irq}",
            vm("a", 0),
            vm("b", 1),
            vm("c", 2),
            flow("f", "a", "\"b\"", "4KiB", "10ms", "10ms"),
        );
        fake.write("x.toml", text.as_bytes());
        let said = say(fake.weir().args(["analyze", "x.toml", "--json"]));
        let json: Value = serde_json::from_str(&said.out).expect("JSON");
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

/// An interrupt of a VM's own steals its core's time like any other.
#[test]
fn own_interrupts_delay_own_tasks() {
    let line = |rate: &str| format!("[[irq]]\nline = 41\nvm = \"rt\"\nwcet = \"2us\"\n{rate}");
    let response = |text: &str| {
        let (said, json) = analyze(text, &["--accept-not-judged"]);
        (said.status, json["time"]["tasks"][0]["response_ns"].clone())
    };
    // 200 us of work in a slot after 500 us away, and in 702 us comes one.
    assert_eq!(response(&system("")), (Some(0), 700_000.into()));
    assert_eq!(response(&system(&line("rate = 1000\n"))), (Some(0), 702_000.into()));
    // The turn that it brings its own VM is no loss.
    assert_eq!(
        response(&system(&line("rate = 1000\npreempt = true\n"))),
        (Some(0), 702_000.into())
    );
    assert_eq!(response(&system(&line(""))), (Some(1), Value::Null));
    let (_, json) =
        analyze(&system(&line("preempt = true\n").replace("wcet = \"2us\"\n", "")), &[]);
    assert_eq!(json["faults"][0]["name"], "irq-no-wcet");

    // The same on a core of its own: 1 ms of work, 1000 a second in 10 ms and two in the bucket.
    let own = |line: &str| {
        format!(
            "[[vm]]\nname = \"rt\"\ncpus = [0]\n[[vm.task]]\nname = \"loop\"\nwcet = \"1ms\"\nperiod = \"10ms\"\n{line}"
        )
    };
    assert_eq!(response(&own("")), (Some(0), 1_000_000.into()));
    // In 1.006 ms: a burst of 2, and one earned.
    assert_eq!(response(&own(&line("rate = 1000\nburst = 2\n"))), (Some(0), 1_006_000.into()));
    let (said, json) = analyze(&own(&line("")), &[]);
    assert_eq!(said.status, Some(1));
    let reason = json["time"]["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("interrupt 41 of rt, on its core, has no `rate`"), "{reason}");

    // A core that copies flows is interrupted as well.
    let copies = |line: &str| {
        let text = format!(
            "[dma]\nbandwidth = \"1GB/s\"\npath = \"sender\"\n{}{line}{OVERHEADS}copy = {{ min = 50, max = 90 }}\n",
            flow("f", "rt", "\"b\"", "4KiB", "90us", "90us")
        );
        let (said, json) = analyze(&text, &[]);
        (said.status, json["flows"]["tasks"][0]["c_ns"].as_f64().unwrap_or(0.0))
    };
    let (free, interrupted) = (copies(""), copies(&line("rate = 10000\n")));
    assert_eq!((free.0, interrupted.0), (Some(0), Some(0)));
    assert!(interrupted.1 > 1.01 * free.1, "{interrupted:?} {free:?}");
    assert_eq!(copies(&line("")).0, Some(1));
}

#[test]
fn a_core_that_is_not_the_vms_own_is_no_free_capacity() {
    let vm = |name: &str, more: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [0]\n[[vm.task]]\nname = \"t\"\nwcet = \"6ms\"\nperiod = \"10ms\"\n{more}"
        )
    };
    let (said, json) = analyze(&format!("{}{}", vm("a", ""), vm("b", "")), &[]);
    assert_eq!(said.status, Some(1), "{}", said.out);
    assert_eq!(json["faults"][0]["name"], "no-schedule");
    assert_eq!(json["faults"][0]["message"], "a and b share core 0 without a schedule");
    let (said, json) = analyze(&vm("a", "core = 3\n"), &[]);
    assert_eq!(said.status, Some(1), "{}", said.out);
    assert_eq!(json["faults"][0]["name"], "task-core");
    assert_eq!(analyze(&vm("a", ""), &[]).0.status, Some(0));
}

/// Flow `f` from a to b, 64 KiB each `period`, moved by the core that `path` says, beside a task of 9 ms in each 10 ms of each VM.
fn copied(path: &str, period: &str) -> String {
    let vm = |name: &str, cpu: u8| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [{cpu}]\n[[vm.task]]\nname = \"t\"\nwcet = \"9ms\"\nperiod = \"10ms\"\n"
        )
    };
    format!(
        "[dma]\nbandwidth = \"100MB/s\"\npath = \"{path}\"\n{}{}{}{OVERHEADS}copy = {{ min = 50, max = 90 }}\nwake = {{ min = 300, max = 700 }}\nhold = {{ min = 0, max = 0 }}\n",
        vm("a", 0),
        vm("b", 1),
        flow("f", "a", "\"b\"", "64KiB", period, period)
    )
}

/// U' 0.7 and 0.9 of one core: whoever copies is late, and the other is not.
#[test]
fn what_a_core_copies_is_taken_from_its_tasks() {
    for (path, late, other) in [("sender", 0, 1), ("receiver", 1, 0)] {
        let (said, json) = analyze(&copied(path, "1ms"), &[]);
        let tasks = &json["time"]["tasks"];
        assert_eq!((said.status, &json["flows"]["schedulable"]), (Some(1), &true.into()), "{path}");
        // The delay by other VMs' accesses is not known.
        assert_eq!((&tasks[late]["holds"], &tasks[other]["holds"]), (&false.into(), &Value::Null));
        assert_eq!(tasks[other]["response_ns"], 9_000_000);
        // Once in 100 ms there is time for it: once in the response.
        let (said, json) = analyze(&copied(path, "100ms"), &["--accept-not-judged"]);
        let c = json["flows"]["tasks"][0]["c_ns"].as_f64().expect("C'");
        let response = json["time"]["tasks"][late]["response_ns"].as_f64().expect("a response");
        assert_eq!(said.status, Some(0), "{path}: {json}");
        assert!((response - 9e6 - c).abs() < 2.0, "{path}: {response} {c}");
    }
    let accepted = analyze(&copied("broker", "1ms"), &["--accept-not-judged"]);
    assert_eq!(accepted.0.status, Some(0));
    // What has no period has no limit.
    let best_effort =
        "[[flow]]\nname = \"log\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1KiB\"\nbest_effort = true\n";
    let (_, json) = analyze(&format!("{}{best_effort}", copied("sender", "100ms")), &[]);
    let reason = json["time"]["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("copy the flow log"), "{reason}");
}

#[test]
fn the_brokers_core_is_no_vms_own() {
    let shared = |more: &str| format!("{}[broker]\ncpus = [1]\n{more}", copied("broker", "1ms"));
    let (said, json) = analyze(&shared(""), &[]);
    assert_eq!((said.status, &json["faults"][0]["name"]), (Some(1), &"no-schedule".into()));
    assert_eq!(json["faults"][0]["message"], "b and the broker share core 1 without a schedule");
    assert_eq!(json["faults"].as_array().map(Vec::len), Some(1), "{json}");
    // Without tasks the flows still are not alone there.
    let (_, json) = analyze(
        &shared("").replace("[[vm.task]]\nname = \"t\"\nwcet = \"9ms\"\nperiod = \"10ms\"\n", ""),
        &[],
    );
    assert_eq!(json["faults"][0]["name"], "no-schedule", "{json}");
    let core = "[[core]]\nid = 1\nschedule = { kind = \"round-robin\", quantum = \"1ms\" }\n";
    let (_, json) = analyze(&shared(core), &[]);
    assert!(json["faults"].is_null() && json["holds"] == false, "{json}");
}

#[test]
fn memory_and_tasks_are_judged_with_the_flows_dma() {
    let saturation = SATURATION.replace("min_accesses", "delay = \"100ns\"\nmin_accesses");
    let vms = "[[vm]]\nname = \"a\"\nmemory_budget = { accesses = 100, period = \"30us\" }\n[[vm.task]]\nname = \"t\"\nwcet = \"200us\"\nperiod = \"10ms\"\n\
               [[vm]]\nname = \"b\"\nmemory_budget = { accesses = 50, period = \"30us\" }\n";
    let text = |dma: &str| {
        format!(
            "{dma}{vms}{}{OVERHEADS}{saturation}",
            flow("f", "a", "\"b\"", "4KiB", "1ms", "1ms")
        )
    };
    let given = analyze(&text("[dma]\nbandwidth = \"47MB/s\"\n"), &[]).1;
    let asked = analyze(&text(""), &["--bandwidth", "47MB/s"]).1;
    assert_eq!((&given["memory"], &given["time"]), (&asked["memory"], &asked["time"]));
    assert_eq!(given["memory"]["dma_bandwidth"], 47_000_000);
    let least = analyze(&text(""), &[]).1;
    assert_eq!(least["memory"]["dma_bandwidth"], least["flows"]["min_bandwidth"]);
    assert_ne!(least["time"], given["time"], "less DMA, less interference");
}

#[test]
fn a_map_does_not_overwrite_the_system() {
    let fake = fake();
    let said = say(fake.weir().args(["check", "system.toml", "--output", "./system.toml"]));
    assert_eq!(said.status, Some(2), "{}", said.err);
    assert!(said.err.contains("would overwrite"), "{}", said.err);
    assert_eq!(fake.read("system.toml"), SYSTEM);
}

#[test]
fn broken_schedules_are_refused_at_their_place() {
    for (from, to, code) in [
        ("start = \"500us\"", "start = \"499us\"", "slot-order"),
        ("length = \"400us\"", "length = \"501us\"", "slot-order"),
        ("major_frame = \"1ms\", ", "", "missing-key"),
        ("major_frame = \"1ms\"", "major_frame = \"0s\"", "zero"),
        ("major_frame = \"1ms\"", "major_frame = \"1ms\", quantum = \"1ms\"", "schedule-kind"),
        ("vm = \"gp\", start", "vm = \"gpp\", start", "unknown-vm"),
        ("accesses = 90, period = \"30us\"", "accesses = 90", "budget-incomplete"),
        ("accesses = 90,", "regulator = \"compensation\", accesses = 90,", "compensation-window"),
        ("wcet = \"200us\"", "wcet = \"0us\"", "zero"),
        (
            "slots = [{ vm = \"rt\", start = \"0us\", length = \"500us\" }, ",
            "slots = [",
            "task-not-scheduled",
        ),
    ] {
        let text = system("");
        assert!(text.contains(from), "{from}");
        let (said, json) = analyze(&text.replacen(from, to, 1), &[]);
        assert_eq!(
            (said.status, &json["faults"][0]["name"]),
            (Some(1), &code.into()),
            "{to}: {json}"
        );
    }
}

#[test]
fn a_slot_of_who_has_the_core_alone_ends_too() {
    let text = |kind: &str| {
        format!(
            "platform = \"qemu-virt\"\n[[vm]]\nname = \"job\"\ncpus = [0]\n[[vm.task]]\nname = \"j\"\nwcet = \"30150ns\"\nperiod = \"1009us\"\n[[core]]\nid = 0\nschedule = {{ {kind} }}\n"
        )
    };
    let response = |kind: &str| {
        let (said, json) = analyze(&text(kind), &[]);
        assert_eq!(said.status, Some(0), "{json}");
        json["time"]["tasks"][0]["response_ns"].as_u64().expect("a response")
    };
    // Measured with slots of 800 us under instruction counting: 236 046 ns. The slot begins and ends with a switch.
    let slot = "kind = \"table\", major_frame = \"1ms\", slots = [{ vm = \"job\", start = \"0us\", length = \"800us\" }]";
    assert!(response(slot) > 240_000, "{}", response(slot));
    let server = |budget: &str| {
        format!(
            "kind = \"fixed-priority\", servers = [{{ vm = \"job\", budget = \"{budget}\", period = \"1ms\" }}]"
        )
    };
    assert!(response(&server("800us")) > 430_150);
    // These never leave the core: only what comes to it is taken off.
    assert!(response(&server("1ms")) < 60_000);
    assert!(response("kind = \"round-robin\", quantum = \"1ms\"") < 60_000);
}

#[test]
fn traces_give_arrival_curves() {
    let fake = fake();
    let times: Vec<String> =
        (0..50).flat_map(|p| (0..4).map(move |i| (p * 1000 + i).to_string())).collect();
    fake.write("trace.txt", format!("# ns\n{}\n", times.join("\n")).as_bytes());
    let run = |service: &str| {
        let arguments = ["analyze", "--trace", "trace.txt", "--service", service, "--json"];
        let said = say(fake.weir().args(arguments));
        (said.status, serde_json::from_str::<Value>(&said.out).expect("JSON"))
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
    let said = say(fake.weir().args(["analyze", "--trace", "trace.txt", "--service", "4/1us"]));
    assert!(
        said.out.contains("no bound: the service does not catch up within 49004ns"),
        "{}",
        said.out
    );
    fake.write("odd.txt", b"1\n2,x\nthree\n");
    let said = say(fake.weir().args(["analyze", "--trace", "odd.txt"]));
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("odd.txt:3: `three`"), "{}", said.err);
}

#[test]
fn an_event_waits_for_an_early_then_late_service() {
    let fake = fake();
    fake.write("two.txt", b"5\n100000\n");
    let arguments = ["analyze", "--trace", "two.txt", "--service", "1/1us"];
    let said = say(fake.weir().args(arguments));
    assert!(said.out.contains("an event waits at most 2us, at most 1 wait"), "{}", said.out);
}

#[test]
fn silence_in_a_trace_is_no_proof() {
    let fake = fake();
    fake.write("two.txt", b"5\n100000\n");
    fake.write("empty.txt", b"");
    fake.write("comments.txt", b"# ns\n\n# that is all\n");
    for empty in ["empty.txt", "comments.txt"] {
        for more in [&["--service", "1/1us"][..], &["--trace", "two.txt"], &[]] {
            let said = say(fake.weir().args(["analyze", "--trace", empty]).args(more));
            assert_eq!((said.status, said.out.as_str()), (Some(1), ""), "{empty} {more:?}");
            assert!(said.err.contains(&format!("{empty}: no event")), "{}", said.err);
            assert!(said.err.contains("leave the file out"), "{}", said.err);
        }
    }
    // One event tells nothing of the windows in which a service would catch up, and so do more at one time than
    // the curve has steps.
    fake.write("one.txt", b"5\n");
    fake.write("burst.txt", "5\n".repeat(300).as_bytes());
    for little in ["one.txt", "burst.txt"] {
        let arguments = ["--trace", little, "--trace", "two.txt", "--service", "1/1us", "--json"];
        let said = say(fake.weir().arg("analyze").args(arguments));
        let json: Value = serde_json::from_str(&said.out).expect("JSON");
        let service = &json["service"];
        assert_eq!(
            (said.status, &service["delay_ns"], &service["backlog"]),
            (Some(1), &Value::Null, &Value::Null),
            "{little}"
        );
    }
}

#[test]
fn a_negative_value_is_told_what_to_write_instead() {
    for (call, instead) in [
        (&["analyze", "--trace", "x", "--service", "-1/30us"][..], "like 50/30us"),
        (&["analyze", "x", "--bandwidth", "-1"], "a whole number of bytes/s"),
        (&["analyze", "x", "--max-steps", "-1"], "invalid digit"),
        (&["reproduce", "rt-virtio-fig5", "--sets", "-1"], "1..=1000000"),
        (&["bench", "analysis", "--sets", "-1"], "is not in 1.."),
    ] {
        let said = say(fake().weir().args(call));
        assert_eq!(said.status, Some(2), "{call:?}");
        assert!(said.err.contains(instead), "{}", said.err);
        assert!(!said.err.contains("-- -1"), "{}", said.err);
    }
}

#[test]
fn check_and_build_refuse_what_is_not_enforced() {
    let fake = fake();
    let link = flow("link", "one", "\"two\"", "4KiB", "1ms", "500us");
    let check = |more: &str| {
        fake.write("x.toml", format!("{SYSTEM}{more}").as_bytes());
        say(fake.weir().args(["check", "--planning", "x.toml"]))
    };
    let good = format!("{link}[dma]\npath = \"dma\"\nbandwidth = \"485MB/s\"\n{OVERHEADS}");
    assert_eq!(check(&good).status, Some(0));
    let said = say(fake.weir().args(["build", "x.toml"]));
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("does not enforce it yet"), "{}", said.err);
    let said = check(&good.replace("500us", "9us"));
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("flow-deadline-missed") && said.err.contains("link"), "{}", said.err);
    let said = check(&link);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(!said.out.contains("not analyzed"), "the board has overheads: {}", said.out);
    let said = check(&link.replace("500us", "9us"));
    assert!(said.err.contains("flow-deadline-missed") && said.err.contains("link"), "{}", said.err);
    assert_eq!(check(&good.replace("\"two\"", "\"tow\"")).status, Some(1));
    for more in [
        "[dma]\npath = \"sender\"\n",
        "[[irq]]\nline = 40\nvm = \"one\"\nrate = 10\nwcet = \"1us\"\n",
        "[[irq]]\nline = \"net\"\nvm = \"one\"\nclass = \"dynamic\"\nwcet = \"1us\"\n",
    ] {
        assert_eq!(check(more).status, Some(0), "{more}");
        for verb in ["check", "build"] {
            let said = say(fake.weir().args([verb, "x.toml"]));
            assert!(
                said.status == Some(1) && said.err.contains("not-enforced"),
                "{verb} {more}: {}",
                said.err
            );
        }
    }
    // What only describes is no promise, so a run may pass it over.
    let said = check("[overheads]\nhc = { min = 1, max = 2 }\n");
    assert_eq!(said.status, Some(0), "{}", said.err);
    let said = say(fake.weir().args(["build", "x.toml"]));
    assert!(!said.err.contains("not-enforced"), "{}", said.err);
}

#[test]
fn experiments_are_listed_and_checked() {
    let fake = fake();
    let said = say(fake.weir().args(["reproduce"]));
    assert!(
        said.out.contains("rt-virtio-table3") && said.out.contains("rt-virtio-fig5"),
        "{}",
        said.out
    );
    let run = |arguments: &[&str]| {
        let said = say(fake.weir().arg("reproduce").args(arguments).stderr(Stdio::piped()));
        assert_eq!(said.status, Some(0), "{}", said.err);
        assert!(!said.err.contains('\u{1b}'), "no progress in a pipe: {}", said.err);
        serde_json::from_str::<Value>(&said.out).expect("JSON")
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
fn the_analysis_is_timed() {
    let said = say(fake().weir().args(["bench", "analysis", "--sets", "30", "--json"]));
    let json: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((&json["sets"], &json["gave_up"]), (&30.into(), &0.into()));
    let times = ["median_ns", "p95_ns", "max_ns"].map(|key| json[key].as_u64().expect("a time"));
    assert!(times.is_sorted() && times[0] > 0, "{times:?}");
}

/// Budgets of 110 and 100 for a and b, which a flow goes between, with these tables beside Table I.
fn regulated(more: &str) -> String {
    let vm = |name: &str, budget: u64| {
        format!(
            "[[vm]]\nname = \"{name}\"\nmemory_budget = {{ accesses = {budget}, period = \"30us\" }}\n"
        )
    };
    format!("{}{}{more}{OVERHEADS}{SATURATION}", vm("a", 110), vm("b", 100))
}

#[test]
fn best_effort_alone_is_limited_by_a_bandwidth() {
    let log =
        "[[flow]]\nname = \"log\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1KiB\"\nbest_effort = true\n";
    let (said, json) = analyze(&regulated(log), &[]);
    let reason = json["memory"]["reasons"][0].as_str().expect("a reason");
    assert_eq!(said.status, Some(1), "{json}");
    assert!(reason.contains("nothing limits the flows log"), "{reason}");
    // Exactly what it says to write holds.
    let (said, _) = analyze(&regulated(log), &["--bandwidth", "47000000B/s"]);
    assert_eq!(said.status, Some(0), "{}", said.out);
    let fake = fake();
    fake.write("x.toml", regulated(log).as_bytes());
    let said = say(fake.weir().args(["analyze", "x.toml"]));
    assert!(
        said.out.contains("help: write [dma] bandwidth = \"47000000B/s\" or less"),
        "{}",
        said.out
    );
    assert_eq!(analyze(&regulated(log), &["--bandwidth", "47000001B/s"]).0.status, Some(1));
}

/// The flow needs more than the 47 MB/s that are harmless beside these budgets.
#[test]
fn every_suggested_bandwidth_makes_the_flows_hold() {
    let told = |period: &str| {
        let text = regulated(&flow("f", "a", "\"b\"", "64KiB", period, period));
        let fake = fake();
        fake.write("x.toml", text.as_bytes());
        let said = say(fake.weir().args(["analyze", "x.toml", "--bandwidth", "485MB/s"]));
        assert_eq!(said.status, Some(1), "{}", said.out);
        let help = said.out.lines().find(|line| line.contains("help:")).expect("a help").to_owned();
        (help, analyze(&text, &["--bandwidth", "47MB/s"]).1["flows"]["schedulable"].clone())
    };
    let (help, schedulable) = told("1ms");
    assert!(help.ends_with("count for 30 less") && schedulable == false, "{help}");
    let (help, schedulable) = told("10ms");
    assert!(help.contains("bandwidth = \"47000000B/s\" or less") && schedulable == true, "{help}");
}

#[test]
fn what_vms_copy_is_in_their_budgets_and_no_dma() {
    let copied = |path: &str| {
        let dma = format!("[dma]\nbandwidth = \"485MB/s\"\npath = \"{path}\"\n");
        let flow = flow("f", "a", "\"b\"", "64KiB", "1ms", "1ms");
        let text = regulated(&format!("{dma}{flow}"));
        let kinds = "[overheads]\ncopy = { min = 50, max = 90 }\nwake = { min = 300, max = 700 }\nhold = { min = 0, max = 0 }\n";
        let (said, json) = analyze(&text.replace("[overheads]\n", kinds), &[]);
        let notes = json["memory"]["notes"].to_string();
        (
            said.status,
            json["memory"]["dma_bandwidth"].as_u64(),
            notes.contains("the copies of its cores"),
        )
    };
    for path in ["sender", "receiver"] {
        assert_eq!(copied(path), (Some(0), Some(0), true), "{path}");
    }
    assert_eq!(copied("broker"), (Some(1), Some(485_000_000), false));
}

/// No bandwidth that is written makes a core copy faster.
#[test]
fn flows_are_judged_at_no_more_than_a_core_copies() {
    let text = |path: &str, copy: &str| {
        format!(
            "[dma]\nbandwidth = \"2000MB/s\"\npath = \"{path}\"\n{copy}{}{OVERHEADS}copy = {{ min = 50, max = 90 }}\nwake = {{ min = 300, max = 700 }}\nhold = {{ min = 0, max = 0 }}\n{SATURATION}",
            flow("f", "a", "\"b\"", "64KiB", "1ms", "400us")
        )
    };
    let judged = |path: &str, copy: &str| {
        let (said, json) = analyze(&text(path, copy), &[]);
        (said.status, json["flows"]["bandwidth"].as_u64(), json)
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
        let said = say(fake.weir().args(["plan", "x.toml"]));
        assert!(said.err.contains("there are 100000000 B/s"), "{path}: {} {}", said.out, said.err);
    }
    assert_eq!(judged("dma", slow).0, Some(0));
}

/// A round of a and b, 5 ms each, and a task of a's.
fn in_a_round(task: &str, more: &str) -> Value {
    let text = format!(
        "[[vm]]\nname = \"a\"\ncpus = [0]\n{task}[[vm]]\nname = \"b\"\ncpus = [0]\nmemory_budget = {{ accesses = 50, period = \"30us\" }}\n\
         [[core]]\nid = 0\nschedule = {{ kind = \"round-robin\", quantum = \"5ms\", vms = [\"a\", \"b\"], switch = \"0ns\" }}\n{more}{SATURATION}"
    );
    analyze(&text, &[]).1["time"]["tasks"][0]["response_ns"].take()
}

/// The round goes on without who is suspended: 40 accesses of 30 are one suspension behind the first, and each costs b's turn.
#[test]
fn a_suspension_in_a_round_costs_the_others_turns() {
    let task = |budget: u64| {
        format!(
            "memory_budget = {{ accesses = {budget}, period = \"30us\" }}\n[[vm.task]]\nname = \"t\"\nwcet = \"100us\"\nperiod = \"1s\"\naccesses = 40\n"
        )
    };
    let [enough, spent] =
        [100, 30].map(|budget| in_a_round(&task(budget), "").as_u64().expect("a bound"));
    assert_eq!(enough, 5_100_000);
    assert!(spent >= 100_000 + 2 * 5_030_000, "{spent}");
}

/// The last bit of b's turn goes to a, and then b has its turn before a's.
#[test]
fn a_preempting_own_interrupt_may_cost_the_own_slot() {
    let task = "[[vm.task]]\nname = \"t\"\nwcet = \"1ms\"\nperiod = \"100ms\"\n";
    let line = |preempt: &str| {
        format!("[[irq]]\nline = 40\nvm = \"a\"\nrate = 10\nburst = 1\nwcet = \"1us\"\n{preempt}")
    };
    let waiting = in_a_round(task, &line("")).as_u64().expect("a bound");
    let taking = in_a_round(task, &line("preempt = true\n")).as_u64().expect("a bound");
    assert!(waiting < 6_100_000 && taking >= 10_990_000, "{waiting} {taking}");
}

#[test]
fn other_cores_of_a_vm_delay_its_tasks_like_a_vm() {
    let text = |vms: &str| {
        let saturation = SATURATION.replace("min_accesses", "delay = \"100ns\"\nmin_accesses");
        analyze(&format!("{vms}{saturation}"), &[]).1["time"]["tasks"][0]["response_ns"].take()
    };
    let task = "[[vm.task]]\nname = \"t\"\nwcet = \"10us\"\nperiod = \"1ms\"\naccesses = 20\n";
    let budget = "memory_budget = { accesses = 50, period = \"30us\"";
    let alone = text(&format!("[[vm]]\nname = \"a\"\ncpus = [0]\n{budget} }}\n{task}"));
    let two = text(&format!(
        "[[vm]]\nname = \"a\"\ncpus = [0]\n{budget} }}\n{task}[[vm]]\nname = \"b\"\ncpus = [1]\n{budget} }}\n"
    ));
    let own = text(&format!(
        "[[vm]]\nname = \"a\"\ncpus = [0, 1]\n{budget}, scope = \"vcpu\" }}\n{task}"
    ));
    assert_eq!(alone, 10_000);
    assert!(two.as_u64().expect("a bound") > 20_000, "{two}");
    assert_eq!(own, two);
}

#[test]
fn a_budget_of_writes_suspends_as_well() {
    let text = |writes: &str| {
        let task = "[[vm.task]]\nname = \"t\"\nwcet = \"10us\"\nperiod = \"10ms\"\naccesses = 40\n";
        let vm = format!(
            "[[vm]]\nname = \"a\"\ncpus = [0]\nmemory_budget = {{ reads = 100, {writes}period = \"30us\" }}\n{task}"
        );
        analyze(&format!("{vm}{SATURATION}"), &[]).1["time"]["tasks"][0]["response_ns"].as_u64()
    };
    assert_eq!(text(""), Some(10_000));
    assert_eq!(text("writes = 100, "), Some(10_000));
    assert_eq!(text("writes = 20, "), Some(10_000 + 3 * 30_000));
}
