//! Rules that `check` and `analyze` share, and the suggestions for what they refuse.

use crate::{
    support::{analyze, analyze_with, at, causes, check, check_by, plan},
    texts::{OVERHEADS, SATURATION, flow, moved_by_the_broker, regulated},
};
use serde_json::Value;
use std::path::Path;
use weir_analysis::{
    CheckRules, Options,
    flows::Effort,
    system::FlowBound,
    verdict::Verdict::{DoesNotHold, Holds, NotJudged},
};
use weir_model::{Catalog, SystemFile};

fn vm(name: &str, core: u8, keys: &str) -> String {
    format!(
        "[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"16MiB\"\n\
         image = {{ bin = \"guest.bin\", load = 0x4010_0000 }}\n{keys}"
    )
}

fn round_robin(id: u8, keys: &str) -> String {
    format!("[[core]]\nid = {id}\nschedule = {{ kind = \"round-robin\", quantum = {keys} }}\n")
}

#[test]
fn only_refill_budgets_limit_memory() {
    let system = |budget: &str| {
        let vm = |name: &str, cpu: u8, budget: &str| {
            vm(name, cpu, &format!("memory_budget = {{ {budget}, period = \"30us\" }}\n"))
        };
        let stressor = vm("memory-stressor", 0, budget);
        let latency = vm("latency", 1, "accesses = 90");
        format!("platform = \"qemu-virt\"\n{stressor}{latency}{SATURATION}")
    };
    for (budget, named) in [
        (
            "accesses = 9, event = \"cycles\"",
            "vm `memory-stressor` (cycles does not count refills)",
        ),
        ("writes = 9", "vm `memory-stressor` (l2d-writeback does not count refills)"),
    ] {
        let (verdict, found) = causes(&system(budget));
        assert!(verdict != Some(Holds) && found.contains(named), "{budget}: {found}");
        let refused = check(&system(budget)).unwrap_err();
        assert!(refused.contains(named), "{budget}: {refused}");
    }
    let large = system("accesses = 130");
    assert_ne!(analyze(&large).0, Some(Holds));
    check(&large).unwrap_err();
    let accepted = system("accesses = 130, overcommit = true");
    assert_ne!(analyze(&accepted).0, Some(Holds));
    let notes = check(&accepted).unwrap();
    assert!(notes.contains("Eq. 2") && notes.contains("overcommit = true"), "{notes}");
}

/// 10 000 flows in seconds, also without optimization.
#[test]
fn a_file_of_ten_thousand_flows_is_analyzed() {
    let mut text = format!("[dma]\nbandwidth = \"8GB/s\"\n{OVERHEADS}");
    for i in 0..10_000 {
        let period = format!("{}us", 40_000_000 + 13 * i);
        let (name, from) = (format!("f{i}"), format!("v{}", i % 64));
        text.push_str(&flow(&name, &from, "\"sink\"", "4KiB", &period, "40s"));
    }
    let (verdict, json) = analyze(&text);
    assert_eq!(verdict, Some(Holds));
    assert_eq!(json["flows"]["tasks"].as_array().map(Vec::len), Some(10_000));
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
    let within = |steps: u64, bandwidth: Option<u64>| {
        let given = bandwidth.map(at).unwrap_or_default();
        let (verdict, json) = analyze_with(&text, &Options { effort: Effort(steps), ..given });
        (verdict.expect("a verdict"), json["flows"].clone())
    };
    let (verdict, flows) = within(Effort::default().0, None);
    assert_eq!((verdict, &flows["gave_up"]), (Holds, &false.into()), "{flows}");
    let least = flows["min_bandwidth"].as_u64().expect("a bandwidth");
    let (verdict, flows) = within(Effort::default().0, Some(least / 2));
    assert_eq!((verdict, &flows["min_bandwidth"]), (DoesNotHold, &least.into()), "{flows}");
    // Neither shown to hold nor shown not to.
    let (verdict, flows) = within(100, Some(least));
    assert_eq!((verdict, &flows["gave_up"]), (NotJudged, &true.into()), "{flows}");
    assert!(flows["min_bandwidth"].is_null() && flows["min_bandwidth_at_least"].is_u64());
    assert_eq!(
        (&flows["min_bandwidth_is"], &flows["bounds_gave_up"]),
        (&"given-up".into(), &true.into())
    );
    assert!(flows["reasons"][0].as_str().is_some_and(|reason| reason.contains(": given up")));
    assert_eq!(within(1, Some(least - 1000)).0, DoesNotHold);
    // Without a bandwidth to judge, a proven one is judged, and it is not called the least.
    let mut proven = 0;
    for bits in 6..26 {
        let (_, flows) = within(1 << bits, None);
        let is_exact = flows["min_bandwidth_is"] == "exact";
        assert_eq!(flows["min_bandwidth"].is_u64(), is_exact, "{bits}: {flows}");
        if flows["min_bandwidth_enough"].is_u64() {
            proven += 1;
            assert_eq!(flows["bandwidth"], flows["min_bandwidth_enough"], "{bits}: {flows}");
        }
    }
    assert!(proven > 0, "some effort is enough for a proof, but not for the least");
}

#[test]
fn a_flow_without_a_period_has_no_utilization() {
    let hasty = flow("hasty", "a", "\"b\"", "4KiB", "1ns", "1ms");
    let (verdict, json) = analyze(&format!("[dma]\nbandwidth = \"485MB/s\"\n{hasty}{OVERHEADS}"));
    assert_eq!(verdict, Some(DoesNotHold));
    let flows = &json["flows"];
    assert!(flows["utilization"].is_null(), "{json}");
    assert_eq!(flows["min_bandwidth_is"], "none");
    let reason = flows["reasons"][0].as_str().expect("a reason");
    assert!(
        reason.starts_with("flow `hasty`: the spread of the send overhead leaves P' = -"),
        "{reason}"
    );
}

/// What is raised must be what is too short.
#[test]
fn a_suggestion_names_the_key_that_helps() {
    let hasty = flow("hasty", "a", "\"b\"", "4KiB", "10us", "1s");
    let (_, found) = causes(&format!("[dma]\nbandwidth = \"485MB/s\"\n{hasty}{OVERHEADS}"));
    assert!(found.contains("raise the flow's `period`"), "{found}");
    let late = flow("late", "a", "\"b\"", "4KiB", "1s", "1us");
    let (_, found) = causes(&format!("[dma]\nbandwidth = \"485MB/s\"\n{late}{OVERHEADS}"));
    assert!(found.contains("raise the flow's `deadline`"), "{found}");
    let task = "[[vm.task]]\nname = \"t\"\nwcet = \"2ms\"\nperiod = \"1ms\"\n";
    let (_, found) = causes(&format!("[[vm]]\nname = \"a\"\ncpus = [0]\n{task}"));
    assert!(found.contains("lower `wcet` or raise `period`"), "{found}");
}

#[test]
fn options_and_overheads_are_judged_like_the_files() {
    let file = |text: &str| {
        SystemFile::parse(Path::new("x.toml"), text, &Catalog::default()).expect("a file")
    };
    let task_of = |file: &SystemFile, options: &Options| {
        let report = weir_analysis::analyze(file, options).expect("a report");
        assert_eq!(report.verdict, Some(Holds));
        report.flows().next().expect("a flow").clone()
    };
    let task = |text: &str| task_of(&file(text), &Options::default());
    let text = moved_by_the_broker();
    let paced = |rate: &str| text.replace("[dma]", &format!("[dma]\nbandwidth = \"{rate}\""));
    let (free, slow) = (task(&text), task(&paced("61MB/s")));
    assert!(slow.bound_ns > free.bound_ns, "{slow:?} {free:?}");
    let same =
        |one: &FlowBound, other: &FlowBound| assert_eq!(format!("{one:?}"), format!("{other:?}"));
    same(&task_of(&file(&text), &at(61_000_000)), &slow);
    same(&task_of(&file(&paced("61MB/s")), &at(800_000_000)), &task(&paced("800MB/s")));
    let faster = text.replace("1GB/s", "2GB/s").replace("max = 700", "max = 1700");
    let mut given = file(&text);
    given.prefer_overheads(&file(&faster));
    same(&task_of(&given, &Options::default()), &task(&faster));
}

/// `analyze` refuses the rules of interrupts that `check` refuses, and takes those of a file that
/// does not describe its VMs.
#[test]
fn rules_of_interrupts_are_judged_alike() {
    let rule =
        |line: u32| format!("[[irq]]\nline = {line}\nvm = \"b\"\nwcet = \"10us\"\nrate = 20\n");
    let device = "devices = [\"rtc\"]\n";
    let whole = |keys: &str| {
        let (a, b) = (vm("a", 0, ""), vm("b", 0, keys));
        format!("platform = \"qemu-virt\"\n{a}{b}{}", round_robin(0, "\"1ms\""))
    };
    for (text, code, help) in [
        (whole(device) + &rule(34) + &rule(34), "W0034", "keep one of them"),
        (whole(device) + &rule(35), "W0721", "write one of its own: 34"),
        (whole("") + &rule(34), "W0721", "take the rule out, or give vm `b` the device"),
    ] {
        for refused in [check(&text).unwrap_err(), causes(&text).1] {
            assert!(refused.contains(code) && refused.contains(help), "{refused}");
        }
    }
    let good = whole(device) + &rule(34);
    check(&good).unwrap();
    assert_eq!(analyze(&good).0, Some(Holds));
    // The file does not list the devices of these.
    let names = "[[vm]]\nname = \"a\"\n[[vm]]\nname = \"b\"\n";
    let core = round_robin(0, "\"1ms\", vms = [\"a\", \"b\"]");
    let bare = format!("platform = \"qemu-virt\"\n{names}{core}");
    assert_eq!(causes(&(bare.clone() + &rule(35))), (Some(Holds), String::new()));
    let (verdict, found) = causes(&(bare + &rule(35) + &rule(35)));
    assert!(verdict == Some(DoesNotHold) && found.contains("W0034"), "{found}");
}

/// Both verbs report costs below the platform's, and a VM without guaranteed time.
#[test]
fn costs_that_are_too_low_are_reported() {
    let system = |quantum: &str, cost: &str| {
        format!(
            "platform = \"qemu-virt\"\n{}{}{}[[irq]]\nline = 34\nvm = \"b\"\nrate = 20\n\
             wcet = \"{cost}\"\n",
            vm("a", 0, ""),
            vm("b", 0, "devices = [\"rtc\"]\n"),
            round_robin(0, &format!("\"{quantum}\"")),
        )
    };
    let printed = |quantum: &str, cost: &str| {
        let text = system(quantum, cost);
        let json = analyze(&text).1.to_string();
        [check(&text).unwrap_or_else(|refused| refused), json]
    };
    let known = "counts as 9us, its `wcet` (x.toml:";
    let [_, json] = printed("1ms", "9us");
    assert!(json.contains(known) && json.contains("less than the 10us"), "{json}");
    assert_eq!(analyze(&system("1ms", "9us")).0, Some(Holds));
    check(&system("1ms", "9us")).unwrap();
    for text in printed("1ms", "10us") {
        assert!(!text.contains("counts as"), "{text}");
    }
    for text in printed("1ms", "0us") {
        assert!(text.contains("interrupt 34 of vm `b`: `wcet` is 0"), "{text}");
    }
    for text in printed("20us", "10us") {
        assert!(text.contains("the time slices of 20us of vm `a` are too short"), "{text}");
    }
}

/// For a broker without guaranteed time the cause and a sufficient value are printed.
#[test]
fn a_broker_without_time_gets_a_cause() {
    let system = |quantum: &str, irq: &str| {
        let vm = |name: &str, core: u8| format!("[[vm]]\nname = \"{name}\"\ncpus = [{core}]\n");
        let text = format!(
            "platform = \"qemu-virt\"\n{}{}{}[dma]\npath = \"broker\"\nbandwidth = \"485MB/s\"\n\
             {}{OVERHEADS}copy = {{ min = 100, max = 200 }}\nwake = {{ min = 100, max = 200 }}\n\
             {}{irq}",
            vm("a", 0),
            vm("b", 1),
            vm("c", 2),
            flow("f", "a", "\"b\"", "4KiB", "10ms", "10ms"),
            round_robin(2, &format!("\"{quantum}\", vms = [\"broker\", \"c\"]")),
        );
        let fault = analyze(&text).1["faults"][0].clone();
        [&fault["message"], &fault["help"]].map(|text| text.as_str().unwrap_or("").to_owned())
    };
    let [message, help] = system("20us", "");
    assert!(message.contains("the time slices of 20us of the broker are too short"), "{message}");
    assert!(help.contains("write a longer `quantum`"), "{help}");
    let line = "[[irq]]\nline = 40\nvm = \"c\"\npreempt = true\nwcet = \"10us\"\n";
    let [message, help] = system("1ms", line);
    assert!(
        message.contains("no time is guaranteed to it: interrupt 40 of vm `c`, on its core"),
        "{message}"
    );
    assert!(help.starts_with("add `rate` to this [[irq]]"), "{help}");
    assert!(!system("1ms", &format!("{line}rate = 1\n"))[0].contains("no time"));
}

#[test]
fn what_is_not_enforced_is_not_built() {
    let system = |more: &str| {
        format!("platform = \"qemu-virt\"\n{}{}{more}", vm("one", 0, ""), vm("two", 1, ""))
    };
    let planning = CheckRules { planning: true, ignore_verdict: false };
    let plan = |more: &str| check_by(planning, &system(more));
    let link = flow("link", "one", "\"two\"", "4KiB", "1ms", "500us");
    let good = format!("{link}[dma]\npath = \"dma\"\nbandwidth = \"485MB/s\"\n{OVERHEADS}");
    plan(&good).unwrap();
    let refused = check(&system(&good)).unwrap_err();
    assert!(refused.contains("has no DMA engine that weir drives"), "{refused}");
    // The board has overheads.
    assert!(!plan(&link).unwrap().contains("not analyzed"));
    for late in [good.replace("500us", "9us"), link.replace("500us", "9us")] {
        let refused = plan(&late).unwrap_err();
        assert!(refused.contains("W0643"), "{refused}");
        check_by(CheckRules { ignore_verdict: true, ..planning }, &system(&late)).unwrap();
    }
    plan(&good.replace("\"two\"", "\"tow\"")).unwrap_err();
    for more in [
        "[dma]\npath = \"dma\"\n",
        "[[irq]]\nline = 40\nvm = \"one\"\nrate = 10\nwcet = \"1us\"\n",
        "[[irq]]\nline = \"net\"\nvm = \"one\"\nclass = \"dynamic\"\nwcet = \"1us\"\n",
    ] {
        plan(more).unwrap();
        let refused = check(&system(more)).unwrap_err();
        assert!(refused.contains("W0903"), "{more}: {refused}");
    }
    // What only describes is no promise, so a run may pass it over.
    check(&system("[overheads]\nhc = { min = 1, max = 2 }\n")).unwrap();
}

/// Of a file that is good for planning, but asks for what the hypervisor does not do.
#[test]
fn planning_reports_what_a_build_refuses() {
    let planning = CheckRules { planning: true, ignore_verdict: false };
    let system = |keys: &str| {
        let vms = vm("a", 0, keys) + &vm("b", 0, "");
        format!("platform = \"qemu-virt\"\n{vms}{}", round_robin(0, "\"1ms\""))
    };
    let pmu = system("pmu = 2\n");
    assert_eq!(check_by(planning, &pmu), Ok(String::new()));
    let refused = check(&pmu).unwrap_err();
    let words = "gives no event counters to a VM that shares a core; take its `pmu` out";
    assert!(refused.contains(words), "{refused}");
    let budget = system("memory_budget = { required = \"1MB/s\" }\n");
    assert_ne!(check_by(planning, &budget), Ok(String::new()));
    assert_eq!(check(&system("")), Ok(String::new()));
}

/// What is wrong with the file itself is refused by all verbs, and what does not hold or is not
/// built only by those that build.
#[test]
fn every_verb_goes_by_the_same_rules() {
    let system = |keys: &str, rest: &str| {
        format!("platform = \"qemu-virt\"\n{}{}{rest}", vm("a", 0, keys), vm("b", 1, ""))
    };
    let task = |deadline: &str| {
        format!(
            "[[vm.task]]\nname = \"t\"\nwcet = \"1ms\"\nperiod = \"9ms\"\n\
             deadline = \"{deadline}\"\n"
        )
    };
    let irq = |keys: &str| format!("[[irq]]\nline = 34\nvm = \"a\"\n{keys}");
    let shared = |keys: &str, rest: &str| {
        let round = round_robin(0, "\"1ms\", vms = [\"a\", \"b\"]");
        system(keys, &(round + rest)).replace("cpus = [1]", "cpus = [0]")
    };
    let work = "workload = { kind = \"latency\", size = \"64KiB\" }\n";
    let plan_only = CheckRules { planning: true, ignore_verdict: true };
    // The file, whether it can be built, and whether the rules of the file itself refuse it.
    for (name, text, builds, wrong) in [
        ("good", system(work, ""), true, false),
        ("good tasks", system(&(work.to_owned() + &task("9ms")), ""), true, false),
        ("good sharing", shared(work, ""), true, false),
        ("a path that is not built", system("", "[dma]\npath = \"dma\"\n"), false, false),
        ("a rule on an own core", system("", &irq("rate = 10\nwcet = \"1us\"\n")), false, false),
        ("counters on a shared core", shared("pmu = 2\n", ""), false, false),
        ("a late task", system(&task("1us"), ""), false, false),
        ("another's interrupt", shared("", &irq("")), false, true),
        ("one core twice", system("", "").replace("cpus = [1]", "cpus = [0]"), false, true),
        ("no such core", system("", "").replace("cpus = [1]", "cpus = [64]"), false, true),
        ("no slice", shared("", "").replace("[\"a\", \"b\"]", "[\"a\"]"), false, true),
        ("a short slice", shared("", "").replace("1ms", "1us"), false, true),
        ("an unknown key", system("", "[nothing]\n"), false, true),
        ("an unknown device", system("devices = [\"none\"]\n", ""), false, true),
    ] {
        let (checked, planning) = (check(&text), check_by(plan_only, &text));
        assert_eq!(checked.is_ok(), builds, "{name}: {checked:?}");
        assert_eq!(planning.is_err(), wrong, "{name}: {planning:?}");
        if wrong {
            assert_eq!(analyze(&text).0, Some(DoesNotHold), "{name}");
            // Of a core that two VMs share, a plan chooses the schedule.
            assert_eq!(plan(&text).is_ok(), name == "one core twice", "{name}");
        }
    }
}

#[test]
fn best_effort_alone_is_limited_by_a_bandwidth() {
    let log =
        "[[flow]]\nname = \"log\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1KiB\"\nbest_effort = true\n";
    let (verdict, found) = causes(&regulated(log));
    assert_ne!(verdict, Some(Holds));
    assert!(found.contains("flow `log`: nothing limits best effort"), "{found}");
    assert!(found.contains("write [dma] bandwidth = \"47000000B/s\" or less"), "{found}");
    // Exactly the suggested value holds.
    assert_eq!(analyze_with(&regulated(log), &at(47_000_000)).0, Some(Holds));
    assert_eq!(analyze_with(&regulated(log), &at(47_000_001)).0, Some(DoesNotHold));
}

/// The flow needs more than the 47 MB/s that are below saturation next to these budgets.
#[test]
fn every_suggested_bandwidth_makes_the_flows_hold() {
    for (period, help, schedulable) in [
        ("1ms", "count for 30 less\n", false),
        ("10ms", "bandwidth = \"47000000B/s\" or less", true),
    ] {
        let text = regulated(&flow("f", "a", "\"b\"", "64KiB", period, period));
        let (verdict, found) = causes(&format!("[dma]\nbandwidth = \"485MB/s\"\n{text}"));
        assert!(verdict != Some(Holds) && found.contains(help), "{found}");
        let flows = &analyze_with(&text, &at(47_000_000)).1["flows"];
        assert_eq!(flows["schedulable"], schedulable, "{period}");
    }
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
    let slow = "copy_bandwidth = \"100MB/s\"\n";
    let (verdict, json) = analyze(&text("broker", slow));
    let flows = &json["flows"];
    let judged = (verdict, &flows["bandwidth"]);
    assert_eq!(judged, (Some(DoesNotHold), &Value::from(100_000_000)), "{json}");
    let demand = flows["first_failure"].as_str().expect("a demand");
    assert!(demand.contains(" of work in "), "{demand}");
    assert_eq!(analyze(&text("broker", "")).0, Some(Holds));
    // And so none is planned.
    let open = text("broker", slow).replace("bandwidth = \"2000MB/s\"\n", "");
    let refused = plan(&open).unwrap_err();
    assert!(refused.contains("there are 100000000 B/s"), "{refused}");
    assert_eq!(analyze(&text("dma", slow)).0, Some(Holds));
}
