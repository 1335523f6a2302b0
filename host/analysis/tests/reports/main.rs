//! The analysis of whole system files.

mod budgets;
#[path = "../../../../tests/checkout.rs"]
mod checkout;
mod documents;
mod engine;
mod missing;
mod plans;
mod rules;
mod schedules;
mod suggestions;
mod support;
mod texts;

use serde_json::Value;
use std::fmt::Write as _;
use support::{analyze, analyze_with, at, causes};
use texts::{OVERHEADS, SATURATION, flow, moved_by_the_broker, system, table3};
use weir_analysis::{
    Options,
    flows::Reading,
    verdict::Verdict::{DoesNotHold, Holds, NotJudged},
};

#[test]
fn a_budget_of_a_longer_period_counts_whole() {
    let system = |a: &str, b: &str| {
        let vm = |name: &str, cpu: u8, budget: &str| {
            format!("[[vm]]\nname = \"{name}\"\ncpus = [{cpu}]\nmemory_budget = {{ {budget} }}\n")
        };
        vm("a", 0, a) + &vm("b", 1, b) + SATURATION
    };
    let long = ["accesses = 390, period = \"100us\"", "accesses = 300, period = \"100us\""];
    let (verdict, json) = analyze(&system(long[0], long[1]));
    assert_eq!(verdict, Some(DoesNotHold), "{json}");
    assert_eq!(json["memory"]["total_budget"], 690);
    let reason = json["memory"]["reasons"][0].as_str().unwrap();
    assert!(reason.contains("counts whole") && reason.contains("a 117, b 90"), "{reason}");
    // The largest is marked: line 4 is the budget of `a`, line 8 that of `b`.
    assert_eq!(support::places(&system(long[0], long[1])), [4]);
    assert_eq!(support::places(&system(long[1], long[0])), [8]);
    let (verdict, json) =
        analyze(&system("accesses = 117, period = \"30us\"", "accesses = 90, period = \"30us\""));
    assert_eq!(verdict, Some(Holds), "{json}");
    assert_eq!(json["memory"]["total_budget"], 207);
    // 29 us are not 30: an interval just over 29 us meets three of these and only two of the
    // table's.
    let (_, json) =
        analyze(&system("accesses = 100, period = \"29us\"", "accesses = 5, period = \"10us\""));
    assert_eq!(json["memory"]["total_budget"], 215);
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
        for (reading, period) in [(Reading::Printed, printed), (Reading::Table3, published)] {
            for (period, holds) in [(period, true), (period - 1, false)] {
                let text = table3(bandwidth, size, period);
                let (verdict, json) =
                    analyze_with(&text, &Options { reading, ..Options::default() });
                assert_eq!(verdict, Some(if holds { Holds } else { DoesNotHold }), "{json}");
                assert_eq!(json["flows"]["schedulable"], holds);
                assert_eq!(json["flows"]["first_failure_ns"].is_null(), holds);
            }
        }
    }
}

#[test]
fn the_result_has_the_shape_that_programs_expect() {
    let (_, json) = analyze(&table3("148MB/s", "4KiB", 37_407));
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
    // One byte/s less than the least is too little, and the first failure is at the only flow's
    // first deadline.
    for (bandwidth, holds) in [(147_998_266, true), (147_998_265, false)] {
        let (verdict, json) = analyze_with(&table3("148MB/s", "4KiB", 37_407), &at(bandwidth));
        assert_eq!(verdict, Some(if holds { Holds } else { DoesNotHold }));
        assert_eq!(json["flows"]["schedulable"], holds);
        let first = &json["flows"]["first_failure_ns"];
        assert!(if holds { first.is_null() } else { *first == 33_574.0 }, "{first}");
    }
}

/// Every value that a flow can have wrong, with its message and place.
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
        ("size", "\"18446744073709551616B\"", "out-of-range"),
        ("size", "\"2000GiB\"", "analysis-limit"),
        ("deadline", "\"0ns\"", "zero"),
        ("period", "\"0s\"", "zero"),
        ("period", "\"5000000s\"", "analysis-limit"),
        ("deadline", "\"18446744073s\"", "analysis-limit"),
        ("period", "\"99999999999s\"", "out-of-range"),
        ("to", "\"a\"", "self-loop"),
        ("to", "[]", "empty"),
        ("to", "[\"b\", \"b\"]", "twice"),
        ("best", "1", "none"),
    ] {
        let text = format!("{}[dma]\nbandwidth = \"485MB/s\"\n{OVERHEADS}", good(key, value));
        let (verdict, json) = analyze(&text);
        if code == "none" {
            assert_eq!(verdict, Some(Holds), "{json}");
            continue;
        }
        assert_eq!(verdict, Some(DoesNotHold), "{key} = {value}: {json}");
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
        ("bandwidth = \"9000000GB/s\"", "analysis-limit"),
        ("bandwidth = \"485MB/s\"\nchunk = \"0B\"", "zero"),
        ("bandwidth = \"485MB/s\"\nqueues = 0", "out-of-range"),
        ("bandwidth = \"485MB/s\"\nqueues = -1", "out-of-range"),
        ("bandwith = \"485MB/s\"", "unknown-key"),
    ] {
        let (verdict, json) = analyze(&format!("{}[dma]\n{keys}\n{OVERHEADS}", good("", "")));
        assert_eq!(
            (verdict, &json["faults"][0]["name"]),
            (Some(DoesNotHold), &code.into()),
            "{keys}"
        );
    }
    for (from, to, code) in [
        ("max = 949 }\npt", "max = 938 }\npt", "out-of-range"),
        ("hc = ", "hcc = ", "unknown-key"),
        ("hc = { min = 939, max = 949 }", "", "no-overheads"),
        ("max = 949 }\npt", "max = \"2000s\" }\npt", "analysis-limit"),
        ("max = 949 }\npt", "max = -1 }\npt", "out-of-range"),
    ] {
        let overheads = OVERHEADS.replacen(from, to, 1);
        let text = format!("{}[dma]\nbandwidth = \"485MB/s\"\n{overheads}", good("", ""));
        let (verdict, json) = analyze(&text);
        let expected = if code == "no-overheads" { NotJudged } else { DoesNotHold };
        assert_eq!((verdict, &json["faults"][0]["name"]), (Some(expected), &code.into()), "{json}");
    }
    let named = format!(
        "[[vm]]\nname = \"bb\"\n[[vm]]\nname = \"a\"\n[[vm]]\nname = \"xyz\"\n{}",
        good("", "")
    );
    let (_, json) = analyze(&named);
    assert_eq!(
        (&json["faults"][0]["name"], &json["faults"][0]["line"]),
        (&"unknown-vm".into(), &10.into())
    );
    assert!(json["faults"][0]["help"].as_str().unwrap().contains("write `"), "{json}");
}

#[test]
fn long_periods_are_answered_and_do_not_wrap() {
    // Periods of hours in ns next to ones of microseconds, deadlines longer and shorter than the
    // period.
    let text = format!(
        "[dma]\nbandwidth = \"485MB/s\"\n{}{}{}{OVERHEADS}",
        flow("hours", "a", "\"b\"", "1000GiB", "14400s", "14400s"),
        flow("short", "b", "\"a\"", "64B", "100us", "300us"),
        flow("tight", "b", "\"a\"", "64B", "3600s", "60us"),
    );
    let (verdict, json) = analyze(&text);
    assert!(verdict.is_some(), "{json}");
    assert!(json["flows"]["min_bandwidth"].as_u64().is_some_and(|b| b > 74_000_000), "{json}");
}

#[test]
fn the_faulty_object_is_named() {
    let impossible = format!(
        "[dma]\nbandwidth = \"485MB/s\"\n{}{}{OVERHEADS}",
        flow("easy", "a", "\"b\"", "4KiB", "10ms", "10ms"),
        flow("hasty", "a", "\"b\"", "4KiB", "10ms", "2us"),
    );
    let (verdict, json) = analyze(&impossible);
    assert_eq!(verdict, Some(DoesNotHold));
    assert!(json["flows"]["min_bandwidth"].is_null());
    let reason = json["flows"]["reasons"][0].as_str().expect("a reason");
    assert!(reason.starts_with("flow `hasty`: the overheads leave D' - J' = -"), "{reason}");
    let overload = format!(
        "[dma]\nbandwidth = \"1MB/s\"\n{}{OVERHEADS}",
        flow("much", "a", "\"b\"", "4KiB", "1ms", "1ms")
    );
    let (_, json) = analyze(&overload);
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
        let (verdict, json) =
            analyze(&format!("{base}{}{more}", flow("f", "a", "\"b\"", "4KiB", "90us", "90us")));
        assert_eq!(verdict, Some(Holds), "{json}");
        json["flows"]["min_bandwidth"].as_u64().expect("a bandwidth")
    };
    let alone = least("");
    let shared = least(
        "[[flow]]\nname = \"log\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1MiB\"\nbest_effort = true\n",
    );
    assert!(shared > alone, "{shared} {alone}");
    // Its size beyond a chunk does not matter.
    let larger = least(
        "[[flow]]\nname = \"log\"\nfrom = \"a\"\nto = \"b\"\nsize = \"9MiB\"\nbest_effort = true\n",
    );
    assert_eq!(shared, larger);
    let (_, one) =
        analyze(&format!("{base}{}", flow("f", "a", "[\"b\"]", "4KiB", "200us", "200us")));
    let (_, two) =
        analyze(&format!("{base}{}", flow("f", "a", "[\"b\", \"c\"]", "4KiB", "200us", "200us")));
    let cost = |json: &Value| json["flows"]["tasks"][0]["c_ns"].as_f64().expect("a cost");
    assert!(cost(&two) > 1.9 * cost(&one) && cost(&two) < 2.0 * cost(&one));
}

#[test]
fn the_own_data_path_has_its_own_terms() {
    let text = |path: &str| {
        format!(
            "[dma]\nbandwidth = \"1GB/s\"\npath = \"{path}\"\n\
             {}{OVERHEADS}copy = {{ min = 50, max = 90 }}\nwake = {{ min = 300, max = 700 }}\n\
             hold = {{ min = 0, max = 0 }}\n",
            flow("f", "a", "\"b\"", "4KiB", "90us", "90us")
        )
    };
    let task = |path: &str| {
        let (verdict, json) = analyze(&text(path));
        assert_eq!(verdict, Some(Holds), "{path}: {json}");
        let task = &json["flows"]["tasks"][0];
        (task["c_ns"].as_f64().unwrap(), task["j_ns"].as_f64().unwrap())
    };
    let (dma, broker) = (task("dma"), task("broker"));
    assert!(broker.0 < dma.0, "no engine to program: {broker:?} {dma:?}");
    // The broker wakes up behind a poll in vain (QA). It may have taken a control packet of the
    // other VM, and read one of each.
    let read = 142.0 + 1161.0;
    let control = read + 71.0 + 90.0 + 2646.0;
    let jitter = 700.0 + 30.0 + control + 2.0 * read;
    assert!((broker.1 - jitter).abs() < 0.1, "{broker:?}");
    // A packet that comes before this one's deadline has a later one.
    let shorter = text("broker").replace("period = \"90us\"", "period = \"45us\"");
    let (_, json) = analyze(&shorter);
    let two = json["flows"]["tasks"][0]["j_ns"].as_f64().expect("a jitter");
    assert!((two - (jitter + read + 101.0)).abs() < 0.1, "{two}");
    let (verdict, json) = analyze(&text("broker").replace("copy = ", "#"));
    assert_eq!((verdict, &json["faults"][0]["name"]), (Some(NotJudged), &"no-overheads".into()));
    let both = text("dma").replace("path = \"dma\"", "copy_bandwidth = \"400MB/s\"");
    let (_, json) = analyze(&both);
    // (949 + 949 + 828 - 90) / (1/400 - 1/1000) bytes at 1 MB/s = 1 B/us.
    assert_eq!(json["flows"]["dma_better_from_bytes"], 1758);
}

/// Waits for locks and for other VMs' packets are in the bound, the verdict and the least
/// bandwidth.
#[test]
fn the_verdict_is_for_concurrent_cores() {
    let with = |hold: &str, deadline: &str| {
        let text = moved_by_the_broker().replace("hold = { min = 0, max = 0 }\n", hold);
        analyze(&text.replace("\"900us\"", &format!("\"{deadline}\"")))
    };
    let bound = |json: &Value| json["flows"]["tasks"][0]["bound_ns"].as_u64().expect("a bound");
    let (verdict, json) = with("", "900us");
    assert_eq!((verdict, &json["faults"][0]["name"]), (Some(NotJudged), &"no-overheads".into()));
    assert!(json["faults"][0]["message"].as_str().expect("a text").ends_with("not known: hold"));
    let alone = bound(&with("hold = { min = 0, max = 0 }\n", "900us").1);
    let held = "hold = { min = 100, max = 3000 }\n";
    let (verdict, json) = with(held, "900us");
    assert_eq!(
        (verdict, json["flows"]["assumed"]["cores"].as_str()),
        (Some(Holds), Some("concurrent"))
    );
    // The hypercall: two critical sections for each of the two devices.
    assert_eq!(bound(&json), alone + 4 * 3000);
    let (verdict, json) = with(held, "24us");
    assert_eq!(verdict, Some(DoesNotHold), "{json}");
    assert_eq!(json["flows"]["schedulable"], false);
    let (verdict, _) = with("hold = { min = 0, max = 0 }\n", "24us");
    assert_eq!(verdict, Some(Holds), "{json}");
}

/// A board without a DMA engine copies by the broker's core, for any keys that the file leaves out;
/// one with an engine is analyzed for it.
#[test]
fn the_data_path_follows_from_the_board() {
    let flow = flow("f", "a", "\"b\"", "4KiB", "1ms", "500us");
    let assumed = |head: &str| {
        let (verdict, json) = analyze(&format!("{head}{flow}"));
        assert_eq!(verdict, Some(Holds), "{head}: {json}");
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

/// With half of a core for the broker each chunk takes twice as long, and each packet may come just
/// when that half is spent. A fault of the schedule is reported once, though flows and cores
/// are analyzed.
#[test]
fn flows_go_by_what_the_brokers_schedule_leaves_it() {
    let text = |schedule: &str| {
        let vm = |name, core| format!("[[vm]]\nname = \"{name}\"\ncpus = [{core}]\n");
        format!(
            "{}{}{}{schedule}[dma]\nbandwidth = \"1GB/s\"\ncopy_bandwidth = \"1GB/s\"\n\
             path = \"broker\"\n{}{OVERHEADS}copy = {{ min = 50, max = 90 }}\n\
             wake = {{ min = 300, max = 700 }}\nhold = {{ min = 0, max = 0 }}\n",
            vm("a", 0),
            vm("b", 1),
            vm("c", 2),
            flow("f", "a", "\"b\"", "4KiB", "1ms", "900us")
        )
    };
    let servers = |other: &str| {
        text(&format!(
            "[[core]]\nid = 2\n\
             schedule = {{ kind = \"fixed-priority\", switch = \"0us\", servers = [\n\
             {{ vm = \"broker\", budget = \"50us\", period = \"100us\" }},\n\
             {{ vm = \"c\", budget = \"{other}\", period = \"1ms\" }},\n] }}\n"
        ))
    };
    let task = |text: &str| {
        let (verdict, json) = analyze(text);
        assert_eq!(verdict, Some(Holds), "{json}");
        let task = &json["flows"]["tasks"][0];
        ["c_ns", "j_ns", "bound_ns"].map(|key| task[key].as_f64().expect("a number"))
    };
    let own = task(&text(""));
    let half = task(&servers("100us"));
    // Twice what is left of each period, with what switches may take besides.
    assert!(half[0] >= 2.0 * own[0] && half[1] >= own[1] + 100_000.0, "{half:?} {own:?}");
    assert!(half[2] >= 100_000.0 + 2.0 * own[0] && half[2] <= 2.0 * (100_000.0 + 2.0 * own[0]));
    let (verdict, json) = analyze(&servers("900us"));
    let codes: Vec<_> =
        json["faults"].as_array().expect("faults").iter().map(|it| it["name"].clone()).collect();
    assert_eq!((verdict, codes), (Some(DoesNotHold), vec![Value::from("server-late")]));
}

/// The bound of a flow to a VM on a shared core contains the longest time for which that VM is off
/// it; where a sender shares its core, that is before the notification. Each deadline is compared
/// with the whole.
#[test]
fn a_bound_contains_the_receivers_absence() {
    let vm = |name, core, keys: &str| format!("[[vm]]\nname = \"{name}\"\ncpus = [{core}]\n{keys}");
    let text = |keys: &str, core: u8, kind: &str, deadline: &str| {
        let schedule =
            format!("[[core]]\nid = {core}\nschedule = {{ switch = \"0us\", {kind} }}\n");
        let schedule = if kind.is_empty() { String::new() } else { schedule };
        format!(
            "{}{}{}{schedule}[dma]\nbandwidth = \"1GB/s\"\ncopy_bandwidth = \"1GB/s\"\n\
             path = \"broker\"\n{}{OVERHEADS}copy = {{ min = 50, max = 90 }}\n\
             wake = {{ min = 300, max = 700 }}\nhold = {{ min = 0, max = 0 }}\n",
            vm("a", 0, ""),
            vm("b", 1, keys),
            vm("c", if kind.is_empty() { 2 } else { core }, ""),
            flow("f", "a", "\"b\"", "4KiB", "9ms", deadline)
        )
    };
    let bounds = |text: &str| {
        let (verdict, json) = analyze(text);
        assert_eq!(verdict, Some(Holds), "{json}");
        let task = &json["flows"]["tasks"][0];
        (task["bound_ns"].as_u64().expect("a bound"), task["absence_ns"].as_u64())
    };
    let (own, none) = bounds(&text("", 1, "", "8ms"));
    assert_eq!(none, None, "it has its own core");
    let table = |first: &str| {
        format!(
            "kind = \"table\", major_frame = \"1ms\", slots = [\
             {{ vm = \"{first}\", start = \"0us\", length = \"400us\" }}, \
             {{ vm = \"c\", start = \"400us\", length = \"600us\" }}]"
        )
    };
    let servers = "kind = \"fixed-priority\", servers = [\
                   { vm = \"b\", budget = \"100us\", period = \"500us\" }, \
                   { vm = \"c\", budget = \"500us\", period = \"1ms\" }]";
    let round = "kind = \"round-robin\", quantum = \"300us\"";
    for (kind, away) in [(&*table("b"), 600_001), (servers, 800_001), (round, 300_001)] {
        let (bound, absence) = bounds(&text("", 1, kind, "8ms"));
        assert_eq!((absence, bound), (Some(away), own + away), "{kind}");
        // The slack of the flow's own task is no longer enough.
        let late = text("", 1, kind, &format!("{}ns", bound - 1));
        let (verdict, found) = causes(&late);
        assert_eq!(verdict, Some(DoesNotHold), "{found}");
        assert!(found.contains("of which vm `b` can be off its core for"), "{found}");
        bounds(&text("", 1, kind, &format!("{bound}ns")));
    }
    assert_eq!(bounds(&text("", 0, &table("a"), "8ms")), (own, None), "the sender's is before");
    let budget = "memory_budget = { accesses = 60, period = \"30us\" }\n";
    let (_, found) = causes(&text(budget, 1, round, "8ms"));
    assert!(found.contains("nothing bounds the time until vm `b` has its shared core"), "{found}");
}

#[test]
fn memory_and_time_are_analyzed_too() {
    let (verdict, json) = analyze(&system(""));
    assert_eq!(verdict, Some(NotJudged), "{json}");
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
    let (_, json) = analyze(&delay);
    assert_eq!(json["time"]["tasks"][0]["response_ns"], 700_000 + 29 * 60);

    let (verdict, json) = analyze(&system("").replace("accesses = 90", "accesses = 151"));
    assert_eq!((verdict, &json["memory"]["holds"]), (Some(DoesNotHold), &false.into()), "{json}");
    let (verdict, json) =
        analyze(&system("").replace("accesses = 90, period = \"30us\"", "required = \"1GB/s\""));
    assert_eq!((verdict, &json["memory"]["holds"]), (Some(DoesNotHold), &false.into()), "{json}");

    let line = "[[irq]]\nline = 40\nvm = \"gp\"\nwcet = \"2us\"\n";
    let (verdict, json) = analyze(&system(line));
    // It waits for gp's slot: once ahead of it, and once behind.
    assert_eq!(
        (verdict, &json["time"]["tasks"][0]["response_ns"]),
        (Some(NotJudged), &704_000.into())
    );
    let (_, json) = analyze(&system(&format!("{line}rate = 1000\n")));
    assert_eq!(json["time"]["tasks"][0]["response_ns"], 704_000);
    let (verdict, json) = analyze(&system(&format!("{line}preempt = true\n")));
    assert_eq!(verdict, Some(DoesNotHold), "no admission rule: no bound");
    assert!(json["time"]["tasks"][0]["response_ns"].is_null(), "{json}");
    assert!(json["time"]["reasons"][0].as_str().is_some_and(|reason| reason.contains("`rate`")));
    let (_, json) = analyze(&system(&format!("{line}rate = 1000\npreempt = true\n")));
    assert!(
        json["time"]["tasks"][0]["response_ns"].as_u64().is_none_or(|time| time > 1_000_000),
        "{json}"
    );
}

/// What a switch takes is the platform's, or the file's, and is in the supply of every kind of
/// schedule; so is what comes to the other VM.
#[test]
fn switches_are_taken_off_what_a_core_supplies() {
    let two = "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\n[[vm]]\nname = \"b\"\n\
               cpus = [0]\n";
    let schedules = [
        ("kind = \"round-robin\", quantum = \"1ms\"", 0.5),
        (
            "kind = \"table\", major_frame = \"2ms\", slots = [{ vm = \"a\", start = \"0us\", \
             length = \"1ms\" }, { vm = \"b\", start = \"1ms\", length = \"1ms\" }]",
            0.5,
        ),
        (
            "kind = \"fixed-priority\", servers = [{ vm = \"a\", budget = \"500us\", period = \
             \"2ms\" }, { vm = \"b\", budget = \"1ms\", period = \"2ms\" }]",
            0.25,
        ),
    ];
    for (schedule, whole) in schedules {
        let share = |head: &str, switch: &str| {
            let core = format!("[[core]]\nid = 0\nschedule = {{ {schedule}{switch} }}\n");
            let (verdict, json) = analyze(&format!("{head}{core}"));
            assert_ne!(verdict, Some(DoesNotHold), "{json}");
            let notes = format!("{}{}", json["time"]["notes"], json["not_judged"]);
            (json["time"]["cores"][0]["vms"][0]["share"].as_f64().expect("a share"), notes)
        };
        let (known, note) = share(two, "");
        assert!(known < 0.99 * whole && known > 0.8 * whole, "{schedule}: {known}");
        assert!(note.contains("up to 6us per switch"), "{note}");
        let (written, _) = share(two, ", switch = \"50us\"");
        assert!(written < known, "{schedule}: {written} {known}");
        let nowhere = two.replacen("platform = \"qemu-virt\"\n", "", 1);
        let (unknown, note) = share(&nowhere, "");
        assert!((unknown - whole).abs() < 1e-6, "{schedule}: {unknown}");
        assert!(note.contains("core 0: the cost of a switch is not known"), "{note}");
        // A device without an [[irq]] is no reason for no bound, and none for nothing.
        let device =
            two.replace("name = \"b\"\n", "name = \"b\"\ndevices = [\"rtc\", \"pci:00:02.0\"]\n");
        let (shared, note) = share(&device, "");
        assert!(shared < known && shared > 0.7 * whole, "{schedule}: {shared} {known}");
        assert!(note.contains("interrupt 34, 37 of vm `b` has no [[irq]]"), "{note}");
    }
}

/// An interrupt of a VM's own steals its core's time like any other.
#[test]
fn own_interrupts_delay_own_tasks() {
    let line = |rate: &str| format!("[[irq]]\nline = 41\nvm = \"rt\"\nwcet = \"2us\"\n{rate}");
    let response = |text: &str| {
        let (verdict, json) = analyze(text);
        (verdict, json["time"]["tasks"][0]["response_ns"].clone())
    };
    // 200 us of work in a slot after 500 us away, and in 702 us comes one.
    assert_eq!(response(&system("")), (Some(NotJudged), 700_000.into()));
    assert_eq!(response(&system(&line("rate = 1000\n"))), (Some(NotJudged), 702_000.into()));
    // The time slice that it brings its own VM is no loss.
    assert_eq!(
        response(&system(&line("rate = 1000\npreempt = true\n"))),
        (Some(NotJudged), 702_000.into())
    );
    assert_eq!(response(&system(&line(""))), (Some(DoesNotHold), Value::Null));
    let (_, json) = analyze(&system(&line("preempt = true\n").replace("wcet = \"2us\"\n", "")));
    assert_eq!(json["faults"][0]["name"], "irq-no-wcet");

    // The same on its own core: 1 ms of work, 1000 a second in 10 ms and two in the bucket.
    let own = |line: &str| {
        format!(
            "[[vm]]\nname = \"rt\"\ncpus = [0]\n[[vm.task]]\nname = \"loop\"\nwcet = \"1ms\"\n\
             period = \"10ms\"\n{line}"
        )
    };
    assert_eq!(response(&own("")), (Some(Holds), 1_000_000.into()));
    // In 1.006 ms: a burst of 2, and one earned.
    assert_eq!(response(&own(&line("rate = 1000\nburst = 2\n"))), (Some(Holds), 1_006_000.into()));
    let (verdict, json) = analyze(&own(&line("")));
    assert_eq!(verdict, Some(DoesNotHold));
    let reason = json["time"]["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("interrupt 41 of vm `rt`, on its core, has no `rate`"), "{reason}");
}

#[test]
fn a_core_that_is_not_the_vms_own_is_no_free_capacity() {
    let vm = |name: &str, more: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [0]\n[[vm.task]]\nname = \"t\"\nwcet = \"6ms\"\n\
             period = \"10ms\"\n{more}"
        )
    };
    let (verdict, json) = analyze(&format!("{}{}", vm("a", ""), vm("b", "")));
    assert_eq!(verdict, Some(DoesNotHold), "{json}");
    assert_eq!(json["faults"][0]["name"], "no-schedule");
    assert_eq!(
        json["faults"][0]["message"],
        "core 0: vm `a` and vm `b` share it without a schedule"
    );
    let (verdict, json) = analyze(&vm("a", "core = 3\n"));
    assert_eq!(verdict, Some(DoesNotHold), "{json}");
    assert_eq!(json["faults"][0]["name"], "task-core");
    assert_eq!(analyze(&vm("a", "")).0, Some(Holds));
}

#[test]
fn the_brokers_core_is_no_vms_own() {
    let vm = |name: &str, cpu: u8| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [{cpu}]\n[[vm.task]]\nname = \"t\"\nwcet = \"9ms\"\n\
             period = \"10ms\"\n"
        )
    };
    let system = format!(
        "[dma]\nbandwidth = \"100MB/s\"\npath = \"broker\"\n\
         {}{}{}{OVERHEADS}copy = {{ min = 50, max = 90 }}\nwake = {{ min = 300, max = 700 }}\n\
         hold = {{ min = 0, max = 0 }}\n",
        vm("a", 0),
        vm("b", 1),
        flow("f", "a", "\"b\"", "64KiB", "1ms", "1ms")
    );
    let shared = |more: &str| format!("{system}[broker]\ncpus = [1]\n{more}");
    let (verdict, json) = analyze(&shared(""));
    assert_eq!((verdict, &json["faults"][0]["name"]), (Some(DoesNotHold), &"no-schedule".into()));
    assert_eq!(
        json["faults"][0]["message"],
        "core 1: vm `b` and the broker share it without a schedule"
    );
    assert_eq!(json["faults"].as_array().map(Vec::len), Some(1), "{json}");
    // Without tasks the flows still are not alone there.
    let (_, json) = analyze(
        &shared("").replace("[[vm.task]]\nname = \"t\"\nwcet = \"9ms\"\nperiod = \"10ms\"\n", ""),
    );
    assert_eq!(json["faults"][0]["name"], "no-schedule", "{json}");
    let core = "[[core]]\nid = 1\nschedule = { kind = \"round-robin\", quantum = \"1ms\" }\n";
    let (_, json) = analyze(&shared(core));
    assert!(json["faults"].is_null() && json["holds"] == false, "{json}");
}

#[test]
fn memory_and_tasks_are_judged_with_the_flows_dma() {
    let saturation = SATURATION.replace("min_accesses", "delay = \"100ns\"\nmin_accesses");
    let vms = "[[vm]]\nname = \"a\"\nmemory_budget = { accesses = 100, period = \"30us\" }\n\
               [[vm.task]]\nname = \"t\"\nwcet = \"200us\"\nperiod = \"10ms\"\n[[vm]]\n\
               name = \"b\"\nmemory_budget = { accesses = 50, period = \"30us\" }\n";
    let text = |dma: &str| {
        format!(
            "{dma}{vms}{}{OVERHEADS}{saturation}",
            flow("f", "a", "\"b\"", "4KiB", "1ms", "1ms")
        )
    };
    let given = analyze(&text("[dma]\nbandwidth = \"47MB/s\"\n")).1;
    let asked = analyze_with(&text(""), &at(47_000_000)).1;
    assert_eq!((&given["memory"], &given["time"]), (&asked["memory"], &asked["time"]));
    assert_eq!(given["memory"]["dma_bandwidth"], 47_000_000);
    let least = analyze(&text("")).1;
    assert_eq!(least["memory"]["dma_bandwidth"], least["flows"]["min_bandwidth"]);
    assert_ne!(least["time"], given["time"], "less DMA, less interference");
}

#[test]
fn broken_schedules_are_refused_at_their_place() {
    for (from, to, code) in [
        ("start = \"500us\"", "start = \"499us\"", "slot-order"),
        ("length = \"400us\"", "length = \"501us\"", "slot-order"),
        ("major_frame = \"1ms\", ", "", "missing-key"),
        ("major_frame = \"1ms\"", "major_frame = \"0s\"", "zero"),
        ("major_frame = \"1ms\"", "major_frame = \"1ms\", quantum = \"1ms\"", "key-conflict"),
        ("vm = \"gp\", start", "vm = \"gpp\", start", "unknown-vm"),
        ("accesses = 90, period = \"30us\"", "accesses = 90", "key-conflict"),
        ("accesses = 90,", "regulator = \"compensation\", accesses = 90,", "key-conflict"),
        ("wcet = \"200us\"", "wcet = \"0us\"", "zero"),
        (
            "slots = [{ vm = \"rt\", start = \"0us\", length = \"500us\" }, ",
            "slots = [",
            "task-core",
        ),
    ] {
        let text = system("");
        assert!(text.contains(from), "{from}");
        let (verdict, json) = analyze(&text.replacen(from, to, 1));
        assert_eq!(
            (verdict, &json["faults"][0]["name"]),
            (Some(DoesNotHold), &code.into()),
            "{to}: {json}"
        );
    }
}

#[test]
fn a_slot_of_a_vm_alone_on_its_core_ends_too() {
    let text = |kind: &str| {
        format!(
            "platform = \"qemu-virt\"\n[[vm]]\nname = \"job\"\ncpus = [0]\n[[vm.task]]\n\
             name = \"j\"\nwcet = \"30150ns\"\nperiod = \"1009us\"\n[[core]]\nid = 0\n\
             schedule = {{ {kind} }}\n"
        )
    };
    let response = |kind: &str| {
        let (verdict, json) = analyze(&text(kind));
        assert_eq!(verdict, Some(Holds), "{json}");
        json["time"]["tasks"][0]["response_ns"].as_u64().expect("a response")
    };
    // Measured with slots of 800 us in QEMU: 236 046 ns. The slot begins and
    // ends with a switch.
    let slot = "kind = \"table\", major_frame = \"1ms\", slots = [{ vm = \"job\", start = \"0us\", \
                length = \"800us\" }]";
    assert!(response(slot) > 240_000, "{}", response(slot));
    let server = |budget: &str| {
        format!(
            "kind = \"fixed-priority\", servers = [{{ vm = \"job\", budget = \"{budget}\", period \
             = \"1ms\" }}]"
        )
    };
    assert!(response(&server("800us")) > 430_150);
    // These never leave the core: only what comes to it is taken off.
    assert!(response(&server("1ms")) < 60_000);
    assert!(response("kind = \"round-robin\", quantum = \"1ms\"") < 60_000);
}

/// A round of a and b, 5 ms each, and a task of a's.
fn in_a_round(task: &str, more: &str) -> Value {
    let text = format!(
        "[[vm]]\nname = \"a\"\ncpus = [0]\n{task}[[vm]]\nname = \"b\"\ncpus = [0]\n\
         memory_budget = {{ accesses = 50, period = \"30us\" }}\n[[core]]\nid = 0\nschedule = {{ \
         kind = \"round-robin\", quantum = \"5ms\", vms = [\"a\", \"b\"], switch = \"0ns\" }}\n\
         {more}{SATURATION}"
    );
    analyze(&text).1["time"]["tasks"][0]["response_ns"].take()
}

/// The round continues without the suspended VM: 40 accesses of 30 are one suspension after the
/// first, and each costs b's time slice.
#[test]
fn a_suspension_in_a_round_costs_the_others_slices() {
    let task = |budget: u64| {
        format!(
            "memory_budget = {{ accesses = {budget}, period = \"30us\" }}\n[[vm.task]]\n\
             name = \"t\"\nwcet = \"100us\"\nperiod = \"1s\"\naccesses = 40\n"
        )
    };
    let [enough, spent] =
        [100, 30].map(|budget| in_a_round(&task(budget), "").as_u64().expect("a bound"));
    assert_eq!(enough, 5_100_000);
    assert!(spent >= 100_000 + 2 * 5_030_000, "{spent}");
}

/// The last part of b's time slice goes to a, and then b has its time slice before a's.
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
        analyze(&format!("{vms}{saturation}")).1["time"]["tasks"][0]["response_ns"].take()
    };
    let task = "[[vm.task]]\nname = \"t\"\nwcet = \"10us\"\nperiod = \"1ms\"\naccesses = 20\n";
    let budget = "memory_budget = { accesses = 50, period = \"30us\"";
    let alone = text(&format!("[[vm]]\nname = \"a\"\ncpus = [0]\n{budget} }}\n{task}"));
    let two = text(&format!(
        "[[vm]]\nname = \"a\"\ncpus = [0]\n{budget} }}\n{task}[[vm]]\nname = \"b\"\ncpus = [1]\n\
         {budget} }}\n"
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
            "[[vm]]\nname = \"a\"\ncpus = [0]\n\
             memory_budget = {{ reads = 100, {writes}period = \"30us\" }}\n{task}"
        );
        analyze(&format!("{vm}{SATURATION}")).1["time"]["tasks"][0]["response_ns"].as_u64()
    };
    assert_eq!(text(""), Some(10_000));
    assert_eq!(text("writes = 100, "), Some(10_000));
    assert_eq!(text("writes = 20, "), Some(10_000 + 3 * 30_000));
}
