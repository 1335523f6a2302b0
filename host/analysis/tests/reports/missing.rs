//! Verdicts have three values: holds, not judged with what is missing, does not hold.

use crate::{
    checkout,
    support::{analyze, check, guests, plan_within},
    texts::{OVERHEADS, SATURATION, flow},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};
use weir_analysis::{
    CheckRules, Options, PlanOptions,
    verdict::Verdict::{DoesNotHold, Holds, NotJudged},
};
use weir_model::{SystemFile, check_file};

fn vm(name: &str, core: u8, keys: &str) -> String {
    format!("[[vm]]\nname = \"{name}\"\ncpus = [{core}]\n{keys}")
}

/// A task of 1 ms in each 10 ms.
fn task(deadline: &str, accesses: &str) -> String {
    format!(
        "[[vm.task]]\nname = \"t\"\nwcet = \"1ms\"\nperiod = \"10ms\"\ndeadline = \"{deadline}\"\n\
         {accesses}"
    )
}

const BUDGET: &str = "memory_budget = { accesses = 60, period = \"30us\" }\n";
const ROUND: &str = "[[core]]\nid = 0\nschedule = { kind = \"round-robin\", quantum = \"1ms\" }\n";

#[test]
fn a_missing_input_is_named_and_not_judged() {
    let two = |head: &str, keys: &str, other: &str| {
        format!("{head}{}{}", vm("a", 0, keys), vm("b", 1, other))
    };
    let on = |name: &str| format!("platform = \"{name}\"\n");
    let good = task("10ms", "accesses = 10\n");
    let delay = SATURATION.replace("min_accesses", "delay = \"10ns\"\novershoot = 0\nmin_accesses");
    let one_flow = flow("f", "a", "\"b\"", "4KiB", "1ms", "500us");
    let (holds, open, not) = (Holds, NotJudged, DoesNotHold);
    let budgets = format!("{BUDGET}{good}");
    for (text, verdict, missing) in [
        // Tasks next to other VMs need the delay by one access.
        (
            two("", &good, ""),
            open,
            "vm `a`: the response times contain no memory accesses of other VMs",
        ),
        (vm("a", 0, &good), holds, ""),
        (two(&on("qemu-virt"), &good, ""), holds, ""),
        (two("", &budgets, BUDGET) + &delay, holds, ""),
        (two(&on("zcu102"), &budgets, BUDGET), holds, ""),
        (two(&on("zcu104"), &budgets, BUDGET), holds, ""),
        (two(&on("rpi4"), &budgets, BUDGET), holds, ""),
        // What does not hold without an input does not hold with it.
        (two("", &task("1us", ""), ""), not, "vm `a`: the response times contain no"),
        // Budgets need the saturation, unless no access delays another one.
        (two("", BUDGET, ""), open, "memory: whether the budgets saturate it"),
        (two(&on("qemu-virt"), BUDGET, ""), holds, ""),
        (two(&on("zcu102"), BUDGET, BUDGET), holds, ""),
        (two(&on("zcu102"), BUDGET, ""), not, ""),
        (two("", "memory_budget = { required = \"1MB/s\" }\n", ""), open, "whether it gets 1MB/s"),
        // A VM's own budget needs its tasks' accesses.
        (
            two(&on("zcu102"), &format!("{BUDGET}{}", task("10ms", "")), BUDGET),
            open,
            "the `accesses` of its tasks are not known",
        ),
        // A shared core needs the cost of a switch.
        (
            two("", "", "").replace("[1]", "[0]") + ROUND,
            open,
            "core 0: the cost of a switch is not known",
        ),
        (two(&on("qemu-virt"), "", "").replace("[1]", "[0]") + ROUND, holds, ""),
        // The most severe of all parts is the verdict.
        (two("", BUDGET, "") + &one_flow + OVERHEADS, open, "memory: whether"),
        (two("", BUDGET, "") + &one_flow.replace("500us", "1us") + OVERHEADS, not, "memory:"),
    ] {
        let (found, json) = analyze(&text);
        assert_eq!(found, Some(verdict), "{text} {json}");
        assert_eq!(json["holds"], serde_json::json!(verdict.truth()), "{text} {json}");
        let found = json["not_judged"].to_string();
        assert_eq!(found == "[]", missing.is_empty(), "{text} {found}");
        assert!(found.contains(missing), "{text} {found}");
    }
}

/// A VM without guaranteed time is not judged if it requests none, and a flow of it does not hold.
#[test]
fn a_vm_without_guaranteed_time_never_holds() {
    let pair = format!("platform = \"qemu-virt\"\n{}{}", vm("a", 0, ""), vm("b", 0, ""));
    let short = ROUND.replace("1ms", "20us");
    let unlimited = "[[irq]]\nline = 34\nvm = \"b\"\npreempt = true\n";
    for (core, why) in [
        (
            short.clone(),
            "no time is guaranteed to vm `a`: the time slices of 20us of vm `a` are too short",
        ),
        (
            format!("{ROUND}{unlimited}"),
            "core 0: no time is guaranteed to vm `b`: interrupt 34 of vm `b`",
        ),
    ] {
        let text = pair.clone() + &core;
        let (verdict, json) = analyze(&text);
        assert_eq!(verdict, Some(NotJudged), "{json}");
        assert!(json["not_judged"].to_string().contains(why), "{json}");
        assert!(json["not_judged"][0]["supply"].as_str().is_some_and(|way| !way.is_empty()));
        let flow = flow("f", "a", "\"c\"", "4KiB", "1ms", "500us");
        let text = format!("{pair}{}{core}{flow}", vm("c", 1, ""));
        let (verdict, json) =
            analyze(&text.replace("[[core]]", "[dma]\npath = \"broker\"\n[[core]]"));
        assert_eq!(verdict, Some(DoesNotHold), "{json}");
        assert!(json["time"]["reasons"].to_string().contains("its flow `f` needs it"), "{json}");
    }
    assert_eq!(analyze(&(pair + ROUND)).0, Some(Holds));
}

/// An interrupt's deadline is judged by what it takes and by how long its VM waits for the core.
#[test]
fn the_deadline_of_an_interrupt_is_judged() {
    let (holds, open, not) = (Holds, NotJudged, DoesNotHold);
    let shared = format!("{}{}{ROUND}", vm("a", 0, ""), vm("b", 0, ""));
    let alone = format!("{}{}", vm("a", 0, ""), vm("b", 1, ""));
    let limited = format!("{}{}", vm("a", 0, ""), vm("b", 1, BUDGET));
    let rate = "rate = 20\n";
    for (system, deadline, keys, verdict, printed) in [
        (&shared, "1ns", rate, not, "interrupt 34 of vm `b`: takes 10us itself"),
        (&shared, "1ns", "", not, "interrupt 34 of vm `b`: takes 10us itself"),
        (&shared, "500us", rate, not, "for the core, its deadline is 500us"),
        (&shared, "5ms", rate, holds, "no more often than its `rate`"),
        (&shared, "5ms", "", open, "interrupt 34 on its core has no `rate`"),
        (&shared, "500us", "rate = 20\npreempt = true\n", open, "how much `preempt` shortens"),
        (
            &shared,
            "1ns",
            "rate = 20\npreempt = true\n",
            not,
            "interrupt 34 of vm `b`: takes 10us itself",
        ),
        (&alone, "9us", rate, not, "interrupt 34 of vm `b`: takes 10us itself"),
        (&alone, "50us", rate, holds, "no more often than its `rate`"),
        (&limited, "50us", rate, open, "the VM's own memory budget may suspend it"),
    ] {
        let text = format!(
            "platform = \"qemu-virt\"\n{system}[[irq]]\nline = 34\nvm = \"b\"\nwcet = \"10us\"\n\
             deadline = \"{deadline}\"\n{keys}"
        );
        let (found, json) = analyze(&text);
        assert_eq!(found, Some(verdict), "{text} {json}");
        let row = &json["time"]["interrupts"][0];
        let key = verdict.key().into();
        assert_eq!((&row["verdict"], &row["interrupt"]), (&key, &"34".into()), "{json}");
        assert!(json.to_string().contains(printed), "{text} {json}");
    }
}

/// `weir check` finds no fault in a required bandwidth without a budget, and reports that it is
/// open.
#[test]
fn check_reports_what_is_not_judged() {
    let image = "memory = \"16MiB\"\nimage = { bin = \"guest.bin\", load = 0x4010_0000 }\n";
    let keys = format!("{image}memory_budget = {{ required = \"1GB/s\" }}\n");
    let text = format!("platform = \"qemu-virt\"\n{}", vm("a", 0, &keys));
    let open = "vm `a`: whether it gets 1GB/s is not known";
    let notes = check(&text).unwrap();
    assert!(notes.contains(&format!("not judged: {open}")), "{notes}");
    let (verdict, json) = analyze(&text);
    assert_eq!(verdict, Some(NotJudged));
    assert!(json["not_judged"].to_string().contains(open), "{json}");
}

/// Best effort asks for nothing.
#[test]
fn a_file_of_best_effort_alone_has_nothing_to_judge() {
    let flow =
        "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nsize = \"4KiB\"\nbest_effort = true\n";
    for text in [flow.to_owned(), format!("{flow}{OVERHEADS}")] {
        assert_eq!(analyze(&text).0, None, "{text}");
    }
}

/// What a run would not enforce is not judged, in the words of `weir check --planning`.
#[test]
fn a_rule_that_is_not_enforced_is_not_judged() {
    let text = fs::read_to_string(checkout::system("flows-mmio")).expect("a system");
    let text = text.replacen("[[vm]]", "[dma]\npath = \"dma\"\n[[vm]]", 1);
    let file = SystemFile::parse(Path::new("x.toml"), &text, &guests()).unwrap();
    let report = weir_analysis::analyze(&file, &Options::default()).unwrap();
    let found = format!("{:?}", report.not_judged);
    assert_eq!(report.verdict, Some(NotJudged));
    assert!(found.contains("does not enforce it"), "{found}");
    let notes = PLANNING.judge(file.system()).unwrap().join("\n");
    assert!(notes.contains("not judged: [dma]: this version"), "{notes}");
}

/// Flows without overheads are not judged.
#[test]
fn flows_without_overheads_are_not_judged() {
    let text = flow("f", "a", "\"b\"", "4KiB", "1ms", "500us");
    let (verdict, json) = analyze(&text);
    assert_eq!(verdict, Some(NotJudged), "{json}");
    assert!(json["holds"].is_null() && json["faults"][0]["help"].is_string(), "{json}");
}

/// What a verdict takes from the platform's file is printed with its source.
#[test]
fn platform_values_are_printed_with_their_source() {
    for (platform, source) in [
        ("qemu-virt", "delay 0ns, overshoot 1024: model: "),
        ("qemu-virt-gicv2", "delay 0ns, overshoot 1024: model: "),
        ("zcu102", "[saturation]: paper: rt-virtio, Table I"),
        ("zcu104", "delay 67ns, overshoot 15: derived: "),
        ("rpi4", "delay 61ns, overshoot 28: derived: "),
    ] {
        let tasks = vm("a", 0, &(BUDGET.to_owned() + &task("10ms", "accesses = 10\n")));
        let text = format!("platform = \"{platform}\"\n{tasks}{}", vm("b", 1, BUDGET));
        let (verdict, json) = analyze(&text);
        assert_eq!(verdict, Some(Holds), "{json}");
        let assumed = json["assumed"].as_array().expect("a list");
        let names_source = |one: &Value| one.as_str().is_some_and(|text| text.contains(source));
        assert!(assumed.iter().any(names_source), "{platform}: {assumed:?}");
    }
    let bare = format!("platform = \"qemu-virt\"\n{}", vm("a", 0, ""));
    assert_eq!(
        analyze(&(bare + &ROUND.replace("1ms\"", "1ms\", vms = [\"a\"]"))).1["assumed"],
        Value::Array(Vec::new())
    );
}

#[test]
fn a_plan_without_an_input_is_not_judged() {
    let text = format!("{}{}", vm("a", 0, &task("10ms", "")), vm("b", 1, ""));
    let plan = plan_within(PlanOptions::default().max_steps, &text).unwrap();
    assert_eq!(plan.report.verdict, Some(NotJudged));
    assert!(plan.file.text().contains("[[vm.task]]"));
    assert!(plan.report.not_judged[0].to_string().starts_with("vm `a`:"), "{:?}", plan.report);
}

const PLANNING: CheckRules = CheckRules { planning: true, ignore_verdict: false };

/// `weir check` and `weir analyze` name the same missing inputs in the same words, and judge alike:
/// of all shipped systems, and of the same on boards with files without overheads and
/// interference, and without a bandwidth of the DMA.
#[test]
fn check_and_analyze_agree_on_what_is_not_judged() {
    let root = checkout::root();
    let bare = tempfile::tempdir().expect("a directory");
    let entries = |folder: PathBuf| fs::read_dir(folder).expect("a folder").flatten();
    let boards = entries(root.join("boards")).flat_map(|board| entries(board.path()));
    for entry in boards {
        let path = entry.path();
        let board = path.parent().and_then(Path::file_name).expect("a board");
        let to = bare.path().join(board).join(entry.file_name());
        fs::create_dir_all(bare.path().join(board)).expect("a directory");
        match fs::read_to_string(entry.path()) {
            Ok(text) => {
                let parts = text.split_inclusive('\n');
                let mut left_out = false;
                let kept = parts.filter(|line| {
                    if line.starts_with('[') {
                        left_out =
                            ["[overheads", "[interference"].iter().any(|key| line.starts_with(key));
                    }
                    !left_out
                });
                fs::write(to, kept.collect::<String>()).expect("a platform");
            }
            Err(_) => _ = fs::copy(entry.path(), to).expect("a device tree"),
        }
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for path in checkout::systems() {
        let text = fs::read_to_string(&path).expect("a system");
        let name =
            text.lines().find_map(|line| line.strip_prefix("platform = \"")?.strip_suffix('"'));
        let name = name.unwrap_or_else(|| panic!("{} names no platform", path.display()));
        let board = bare.path().join(name).join("board.toml");
        let kept = text.lines().filter(|line| !line.starts_with("bandwidth = \""));
        let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
        let own = |to: &Path| format!("platform = \"{}\"", to.display());
        for (kind, text) in [
            ("bare", text.replace(&format!("platform = \"{name}\""), &own(&board))),
            ("paced", kept),
        ] {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let file = bare.path().join(format!("{kind}-{name}"));
            fs::write(&file, text).expect("a file");
            files.push(file);
        }
        files.push(path);
    }
    let mut open = 0;
    let catalog = guests();
    for path in &files {
        let report = SystemFile::load(path, &catalog)
            .and_then(|file| weir_analysis::analyze(&file, &Options::default()));
        let (verdict, missing) = report.map_or((Some(DoesNotHold), Vec::new()), |report| {
            let missing = report.not_judged.iter().map(|missing| format!("not judged: {missing}"));
            (report.verdict, missing.collect::<Vec<_>>())
        });
        let checked = check_file(path, &catalog).and_then(|system| PLANNING.judge(&system));
        let context = format!("{}: {checked:?}", path.display());
        assert_eq!(checked.is_ok(), verdict != Some(DoesNotHold), "{context}");
        if let Ok(notes) = checked {
            let open: Vec<_> =
                notes.into_iter().filter(|note| note.starts_with("not judged")).collect();
            assert_eq!(open, missing, "{context}");
        }
        open += usize::from(!missing.is_empty());
    }
    assert!(files.len() > 100 && open >= 15, "{open} of {}", files.len());
}
