//! Verdicts have three values: holds, not judged with what is missing, does not hold.

use super::{OVERHEADS, SATURATION, analyze, fake, flow};
use crate::support::{capture, checkout};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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
    let (holds, open, not) = ("holds", "not-judged", "does-not-hold");
    let budgets = format!("{BUDGET}{good}");
    for (text, verdict, missing) in [
        // Tasks next to other VMs need the delay by one access.
        (two("", &good, ""), open, "a: the response times contain no memory accesses of other VMs"),
        (vm("a", 0, &good), holds, ""),
        (two(&on("qemu-virt"), &good, ""), holds, ""),
        (two("", &budgets, BUDGET) + &delay, holds, ""),
        (two(&on("zcu102"), &budgets, BUDGET), holds, ""),
        (two(&on("zcu104"), &budgets, BUDGET), holds, ""),
        (two(&on("rpi4"), &budgets, BUDGET), holds, ""),
        // What does not hold without an input does not hold with it.
        (two("", &task("1us", ""), ""), not, "a: the response times contain no"),
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
        let (printed, json) = analyze(&text, &[]);
        let truth = match verdict {
            "holds" => Value::Bool(true),
            "not-judged" => Value::Null,
            _ => Value::Bool(false),
        };
        assert_eq!((&json["verdict"], &json["holds"]), (&verdict.into(), &truth), "{text} {json}");
        assert_eq!(printed.status, Some(i32::from(verdict != holds)), "{text}");
        let found = json["not_judged"].to_string();
        assert_eq!(found == "[]", missing.is_empty(), "{text} {found}");
        assert!(found.contains(missing), "{text} {found}");
        let (printed, _) = analyze(&text, &["--accept-not-judged"]);
        assert_eq!(printed.status, Some(i32::from(verdict == not)), "{text}");
        let fake = fake();
        fake.write("x.toml", text.as_bytes());
        let printed = capture(fake.weir().args(["analyze", "x.toml"]));
        let headline = match verdict {
            "holds" => "x.toml: all holds",
            "not-judged" => "x.toml: not judged",
            _ => "x.toml: does not hold",
        };
        assert!(printed.out.starts_with(headline), "{}", printed.out);
        assert_eq!(printed.out.contains("\nnot judged: "), !missing.is_empty(), "{}", printed.out);
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
            "core 0: no time is guaranteed to a: a's time slices of 20us are too short",
        ),
        (format!("{ROUND}{unlimited}"), "core 0: no time is guaranteed to b: interrupt 34 of b"),
    ] {
        let text = pair.clone() + &core;
        let (printed, json) = analyze(&text, &[]);
        assert_eq!((printed.status, &json["verdict"]), (Some(1), &"not-judged".into()), "{json}");
        assert!(json["not_judged"].to_string().contains(why), "{json}");
        assert!(json["not_judged"][0]["supply"].as_str().is_some_and(|way| !way.is_empty()));
        let flow = flow("f", "a", "\"c\"", "4KiB", "1ms", "500us");
        let text = format!("{pair}{}{core}{flow}", vm("c", 1, ""));
        let (printed, json) =
            analyze(&text.replace("[[core]]", "[dma]\npath = \"broker\"\n[[core]]"), &[]);
        assert_eq!(
            (printed.status, &json["verdict"]),
            (Some(1), &"does-not-hold".into()),
            "{json}"
        );
        assert!(json["time"]["reasons"].to_string().contains("its flow f needs it"), "{json}");
    }
    assert_eq!(analyze(&(pair + ROUND), &[]).1["verdict"], "holds");
}

/// An interrupt's deadline is judged by what it takes and by how long its VM waits for the core.
#[test]
fn the_deadline_of_an_interrupt_is_judged() {
    let (holds, open, not) = ("holds", "not-judged", "does-not-hold");
    let shared = format!("{}{}{ROUND}", vm("a", 0, ""), vm("b", 0, ""));
    let alone = format!("{}{}", vm("a", 0, ""), vm("b", 1, ""));
    let limited = format!("{}{}", vm("a", 0, ""), vm("b", 1, BUDGET));
    let rate = "rate = 20\n";
    for (system, deadline, keys, verdict, printed) in [
        (&shared, "1ns", rate, not, "interrupt 34 takes 10us itself"),
        (&shared, "1ns", "", not, "interrupt 34 takes 10us itself"),
        (&shared, "500us", rate, not, "for the core, its deadline is 500us"),
        (&shared, "5ms", rate, holds, "no more often than its `rate`"),
        (&shared, "5ms", "", open, "interrupt 34 on its core has no `rate`"),
        (&shared, "500us", "rate = 20\npreempt = true\n", open, "how much `preempt` shortens"),
        (&shared, "1ns", "rate = 20\npreempt = true\n", not, "interrupt 34 takes 10us itself"),
        (&alone, "9us", rate, not, "interrupt 34 takes 10us itself"),
        (&alone, "50us", rate, holds, "no more often than its `rate`"),
        (&limited, "50us", rate, open, "the VM's own memory budget may suspend it"),
    ] {
        let text = format!(
            "platform = \"qemu-virt\"\n{system}[[irq]]\nline = 34\nvm = \"b\"\nwcet = \"10us\"\n\
             deadline = \"{deadline}\"\n{keys}"
        );
        let (_, json) = analyze(&text, &[]);
        assert_eq!(json["verdict"], verdict, "{text} {json}");
        let row = &json["time"]["interrupts"][0];
        assert_eq!((&row["verdict"], &row["interrupt"]), (&verdict.into(), &"34".into()), "{json}");
        assert!(json.to_string().contains(printed), "{text} {json}");
    }
}

/// `weir check` finds no fault in a required bandwidth without a budget, and reports that it is
/// open.
#[test]
fn check_reports_what_is_not_judged() {
    let fake = fake();
    let image = "memory = \"16MiB\"\nimage = { bin = \"guest.bin\", load = 0x4010_0000 }\n";
    let keys = format!("{image}memory_budget = {{ required = \"1GB/s\" }}\n");
    let text = format!("platform = \"qemu-virt\"\n{}", vm("a", 0, &keys));
    fake.write("x.toml", text.as_bytes());
    for (verb, status) in [("check", 0), ("analyze", 1)] {
        let printed = capture(fake.weir().args([verb, "x.toml"]));
        assert_eq!(printed.status, Some(status), "{verb}: {}", printed.err);
        let open = "not judged: a: whether it gets 1GB/s is not known";
        assert!(printed.out.contains(open), "{verb}: {}", printed.out);
    }
}

/// Best effort asks for nothing.
#[test]
fn a_file_of_best_effort_alone_has_nothing_to_judge() {
    let flow =
        "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nsize = \"4KiB\"\nbest_effort = true\n";
    for text in [flow.to_owned(), format!("{flow}{OVERHEADS}")] {
        let (printed, json) = analyze(&text, &[]);
        assert_eq!((printed.status, &json["verdict"]), (Some(2), &Value::Null), "{json}");
        assert!(json["nothing"].is_string(), "{json}");
    }
}

/// What a run would not enforce is not judged, in the words of `weir check --planning`.
#[test]
fn a_rule_that_is_not_enforced_is_not_judged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a checkout");
    let text = fs::read_to_string(root.join("examples/flows-mmio/flows-mmio.toml"));
    let text = text.expect("a system");
    let text = text.replacen("[[vm]]", "[dma]\npath = \"sender\"\n[[vm]]", 1);
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("x.toml");
    fs::write(&file, text).expect("a file");
    let analyzed = json_of(&file, &["analyze"]);
    assert_eq!(analyzed["verdict"], "not-judged", "{analyzed}");
    assert!(analyzed["not_judged"].to_string().contains("does not enforce it"), "{analyzed}");
    let checked = json_of(&file, &["check", "--planning"]);
    assert!(checked[0]["notes"].to_string().contains("not judged: this version"), "{checked}");
}

/// Flows without overheads are not judged.
#[test]
fn flows_without_overheads_are_not_judged() {
    let text = flow("f", "a", "\"b\"", "4KiB", "1ms", "500us");
    let (printed, json) = analyze(&text, &[]);
    assert_eq!((printed.status, &json["verdict"]), (Some(1), &"not-judged".into()), "{json}");
    assert!(json["holds"].is_null() && json["faults"][0]["help"].is_string(), "{json}");
    assert_eq!(analyze(&text, &["--accept-not-judged"]).0.status, Some(0));
}

/// What a verdict takes from the platform's file is printed with its source.
#[test]
fn platform_values_are_printed_with_their_source() {
    for (platform, source) in [
        ("qemu-virt", "delay 0ns: model: QEMU's memory has no timing"),
        ("qemu-virt-gicv2", "delay 0ns: model: QEMU's memory has no timing"),
        ("zcu102", "[saturation]: paper: rt-virtio, Table I"),
        ("zcu104", "delay 67ns, overshoot 15: derived: "),
        ("rpi4", "delay 61ns, overshoot 28: derived: "),
    ] {
        let tasks = vm("a", 0, &(BUDGET.to_owned() + &task("10ms", "accesses = 10\n")));
        let text = format!("platform = \"{platform}\"\n{tasks}{}", vm("b", 1, BUDGET));
        let (_, json) = analyze(&text, &[]);
        assert_eq!(json["verdict"], "holds", "{json}");
        let assumed = json["assumed"].as_array().expect("a list");
        let names_source = |one: &Value| one.as_str().is_some_and(|text| text.contains(source));
        assert!(assumed.iter().any(names_source), "{platform}: {assumed:?}");
    }
    let bare = format!("platform = \"qemu-virt\"\n{}", vm("a", 0, ""));
    assert_eq!(
        analyze(&(bare + &ROUND.replace("1ms\"", "1ms\", vms = [\"a\"]")), &[]).1["assumed"],
        Value::Array(Vec::new())
    );
}

/// A plan without a required input is printed, and its status is "not judged".
#[test]
fn a_plan_without_an_input_is_not_judged() {
    let fake = fake();
    let text = format!("{}{}", vm("a", 0, &task("10ms", "")), vm("b", 1, ""));
    fake.write("x.toml", text.as_bytes());
    let printed = capture(fake.weir().args(["plan", "x.toml"]));
    assert_eq!(printed.status, Some(1), "{}", printed.err);
    assert!(
        printed.out.contains("[[vm.task]]") && printed.err.contains("not judged: a:"),
        "{}",
        printed.err
    );
    let printed = capture(fake.weir().args(["plan", "x.toml", "--json", "--accept-not-judged"]));
    let json: Value = serde_json::from_str(&printed.out).expect("JSON");
    assert_eq!((printed.status, &json["verdict"]), (Some(0), &"not-judged".into()), "{json}");
}

/// The JSON of a verb for a file.
fn json_of(file: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let printed = capture(command.args(arguments).arg(file).arg("--json"));
    serde_json::from_str(&printed.out)
        .unwrap_or_else(|_| panic!("{}: {}", file.display(), printed.err))
}

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
    for file in &files {
        let analyzed = json_of(file, &["analyze"]);
        let missing = analyzed["not_judged"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let missing: Vec<_> = missing
            .iter()
            .map(|one| format!("not judged: {}; {}", text(&one["what"]), text(&one["supply"])))
            .collect();
        let checked = json_of(file, &["check", "--planning"])[0].clone();
        let context = format!("{}: {checked}", file.display());
        assert_eq!(checked["good"] == true, analyzed["verdict"] != "does-not-hold", "{context}");
        if checked["good"] == true {
            let notes = checked["notes"].as_array().expect("notes");
            let notes = notes.iter().map(text).filter(|note| note.starts_with("not judged"));
            assert_eq!(notes.collect::<Vec<_>>(), missing, "{context}");
        }
        open += usize::from(!missing.is_empty());
    }
    assert!(files.len() > 100 && open >= 15, "{open} of {}", files.len());
}
