//! Real systems under the model of caches and DRAM banks: evictions and closed rows per pair of
//! VMs.

use crate::support::{
    Printed,
    board::{board, capture_on_board, has_independent_banks},
    capture_within,
    qemu::{Options, build_programs, root, with},
    schema::valid,
};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt, process::Command, time::Duration};

/// Each goes over 2 MiB, twice the cache.
const STRESSORS: [&str; 2] = ["mode=write size=0x200000 passes=100", "mode=read size=0x200000"];

/// Two VMs, `a` and `b`, with these arguments. Of `keys` are weir's, `a`'s and `b`'s.
/// Ends when `a` prints `expect`.
fn pair(
    keys: [&str; 3],
    [a_memory, b_memory]: [&str; 2],
    [a_args, b_args]: [&str; 2],
    expect: &str,
) -> String {
    let [weir, a, b] = keys;
    format!(
        r#"
platform = "qemu-virt"

[hypervisor]
console_core = 1
{weir}

[[vm]]
name = "a"
cpus = [0]
memory = "{a_memory}"
image = {{ elf = "memory-stressor", args = "{a_args}" }}
expect = ["{expect}"]
{a}

[[vm]]
name = "b"
cpus = [1]
memory = "{b_memory}"
image = {{ elf = "memory-stressor", args = "{b_args}" }}
{b}
"#
    )
}

/// `a` runs already while weir zeroes `b`'s memory.
const A_FIRST: [&str; 2] = ["4MiB", "16MiB"];
/// The other way round.
const B_FIRST: [&str; 2] = ["32MiB", "4MiB"];

/// Both as memory stressors.
fn stressors(keys: [&str; 3]) -> String {
    pair(keys, A_FIRST, STRESSORS, "memory-stressor: 100 passes")
}

const COLORS: [&str; 3] = ["colors = \"14-15\"", "colors = \"0-3\"", "colors = \"4-7\""];
const BANKS: [&str; 3] = ["banks = \"7\"", "banks = \"0-2\"", "banks = \"3-5\""];

/// The JSON of `weir observe` for a system; with `more` arguments.
fn observe(text: &str, more: &[&str]) -> Value {
    let printed = call(text, more);
    assert_eq!(printed.status, Some(0), "{}\n{}", printed.out, printed.err);
    valid("observe", &printed.out)
}

fn call(text: &str, more: &[&str]) -> Printed {
    build_programs();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("system.toml");
    fs::write(&file, text).expect("a system file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("observe").arg(&file).args(["--no-build", "--json"]).args(more);
    command.env("WEIR_ROOT", root()).env("WEIR_RUNS", directory.path().join("runs"));
    capture_on_board(&mut command, &file, Duration::from_secs(1200))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn owner<'a>(seen: &'a Value, name: &str) -> &'a Value {
    let owners = seen["owners"].as_array().expect("owners");
    owners.iter().find(|owner| owner["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

/// What `by` did to `of`.
fn at(seen: &Value, matrix: &str, by: &str, of: &str) -> u64 {
    let owners = seen["owners"].as_array().expect("owners");
    let place = |name: &str| owners.iter().position(|owner| owner["name"] == name).expect("known");
    number(&seen["matrices"][matrix][place(by)][place(of)])
}

#[test]
fn colors_keep_lines_and_banks_keep_rows() {
    let shared = observe(&stressors([""; 3]), &[]);
    let colored = observe(&stressors(COLORS), &[]);
    let banked = observe(&stressors(BANKS), &[]);
    for (what, apart) in [("evictions", &colored), ("row_conflicts", &banked)] {
        assert!(number(&shared[what]["between_vms"]) > 1000, "{what}: {}", shared[what]);
        for sum in ["between_vms", "of_vms_by_weir", "of_weir_by_vms"] {
            assert_eq!(apart[what][sum], 0, "{what}: {}", apart[what]);
        }
    }
    assert_eq!(colored["intrusions"], Value::Array(Vec::new()));
    assert!(number(&shared["evictions"]["of_vms_by_weir"]) > 0);
    assert_ne!(shared["intrusions"], Value::Array(Vec::new()));
    // Neither does for the other, unless colors choose banks, too.
    if has_independent_banks(&board()) {
        assert!(number(&colored["row_conflicts"]["between_vms"]) > 0);
        assert!(number(&banked["evictions"]["between_vms"]) > 0);
    }
    // Each has its own work: passes over 32768 lines, all of which miss.
    for seen in [&shared, &colored, &banked] {
        for (vm, passes) in [("a", 100), ("b", 1)] {
            let vm = owner(seen, vm);
            assert!(number(&vm["accesses"]) >= passes << 15, "{vm}");
            assert!(number(&vm["l2_misses"]) >= passes << 15, "{vm}");
            assert!(number(&vm["fetches"]) > 0, "{vm}");
        }
        assert_eq!(seen["unseen_blocks"], 0);
        // weir zeroes b's memory while a runs already, by stores that are seen.
        assert!(number(&owner(seen, "weir for b")["accesses"]) > (4 << 20) / 64);
    }
}

/// The system of the tutorial, without the colors that it adds, and with them.
#[test]
fn colors_do_what_the_tutorial_shows() {
    let page = root().join("docs/tutorials/memory-isolation.md");
    let page = fs::read_to_string(page).expect("the page");
    let after = |text: &str| page.split_once(text).expect("a block").1.to_owned();
    let text = after("```toml\n").split("```").next().expect("a system").to_owned();
    let mut colored = text.clone();
    for owner in ["[hypervisor]", "name = \"control\"", "name = \"stressor\""] {
        let mut lines = page.lines();
        let colors = lines.find(|line| line.ends_with(&format!("# below {owner}")));
        let colors = colors.expect("the owner's colors").trim();
        colored = with(&colored, owner, &format!("{owner}\n{colors}"));
    }
    let [shared, colored] = [text, colored].map(|text| observe(&text, &[]));
    let of_control = |seen| at(seen, "l2_evictions", "stressor", "control");
    assert!(of_control(&shared) > 1_000_000, "{shared}");
    assert_eq!(of_control(&colored), 0, "{colored}");
    // The page has these figures to some tens of lines, as weir has other parts here.
    let shown = after(" stressor            ").split(' ').next().expect("a number").to_owned();
    let shown: u64 = shown.parse().expect("a number");
    assert!(of_control(&shared).abs_diff(shown) < shown / 100, "{shown}: {shared}");
}

#[test]
fn vms_that_share_unowned_classes_are_seen_to_share() {
    let [weir, _, _] = COLORS;
    let seen = observe(&stressors([weir, "", ""]), &[]);
    assert!(at(&seen, "l2_evictions", "a", "b") > 1000);
    assert!(at(&seen, "l2_evictions", "b", "a") > 1000);
    assert_eq!(seen["evictions"]["of_vms_by_weir"], 0);
    assert_eq!(seen["evictions"]["of_weir_by_vms"], 0);
}

#[test]
fn vms_that_share_a_core_are_distinguished() {
    let text = |keys| {
        let arguments = ["mode=read size=0x20000 passes=200", "mode=write size=0x200000"];
        let apart = pair(keys, ["4MiB"; 2], arguments, "memory-stressor: 200 passes");
        let core = "[[core]]\nid = 0\nschedule = { kind = \"round-robin\", quantum = \"200us\", \
                    vms = [\"a\", \"b\"] }\n";
        apart.replace("cpus = [1]", "cpus = [0]") + core
    };
    let shared = observe(&text([""; 3]), &[]);
    let colored = observe(&text(COLORS), &[]);
    for seen in [&shared, &colored] {
        let (a, b) = (owner(seen, "a"), owner(seen, "b"));
        assert!(number(&a["accesses"]) >= 200 << 11 && number(&a["fetches"]) > 0, "{a}");
        assert!(number(&b["accesses"]) >= 1 << 15 && number(&b["fetches"]) > 0, "{b}");
        // The owner of a line that leaves the core's L1 depends on the time slices, not on colors.
        assert!(at(seen, "l1_evictions", "a", "b") > 0 && at(seen, "l1_evictions", "b", "a") > 0);
        assert!(number(&seen["l1_evictions"]["between_vms"]) > 0);
        assert_eq!(seen["unseen_blocks"], 0);
    }
    assert!(at(&shared, "l2_evictions", "a", "b") > 1000, "{}", shared["matrices"]);
    assert!(at(&shared, "l2_evictions", "b", "a") > 1000, "{}", shared["matrices"]);
    for sum in ["between_vms", "of_vms_by_weir", "of_weir_by_vms"] {
        assert_eq!(colored["evictions"][sum], 0, "{}", colored["matrices"]);
    }
    // Half of its share of the cache is enough for a, after any other time slice; b's 2 MiB are
    // eight times its own.
    let misses = |seen: &Value, vm| number(&owner(seen, vm)["l2_misses"]);
    assert!(misses(&colored, "a") * 4 < misses(&shared, "a"));
    assert!(misses(&colored, "b") > 1 << 15);
}

#[test]
fn two_observations_are_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let picture = directory.path().join("x.svg");
    let more = ["--output", picture.to_str().expect("a path")];
    let text = pair(COLORS, A_FIRST, ["passes=3", STRESSORS[1]], "memory-stressor: 3 passes");
    assert_eq!(observe(&text, &more), observe(&text, &[]));
    let picture = fs::read_to_string(picture).expect("a picture");
    assert!(picture.ends_with("</svg>\n") && picture.contains("weir for b"), "{picture}");
}

#[test]
fn the_l2_misses_rise_where_the_share_ends() {
    // Four colors of sixteen: 256 KiB of 1 MiB. Misses in a thousand loads.
    let walk = |keys: [&str; 3]| {
        let arguments =
            ["mode=walk size=0x20000 upto=0x80000 loads=200000", "mode=write size=0x200000"];
        let seen = observe(&pair(keys, B_FIRST, arguments, "memory-stressor: walked"), &[]);
        let marks = seen["marks"].as_array().expect("marks").clone();
        assert_eq!(marks.len(), 6);
        let misses = |size: usize| {
            let count = |mark: usize| number(&marks[2 * size + mark]["l2_misses"]);
            1000 * (count(1) - count(0)) / 200_000_u64.next_multiple_of((0x20000 << size) / 64)
        };
        [misses(0), misses(1), misses(2)]
    };
    let colored = walk(COLORS);
    assert!(colored[0] < 10 && colored[1] < 10 && colored[2] > 900, "{colored:?}");
    let shared = walk([""; 3]);
    // 512 KiB are half of the cache. The neighbor brings more lines than the other half has until a
    // line is read again; of 256 KiB it does not.
    assert!(shared[1] < 10 && shared[2] > 900, "a neighbor takes its lines: {shared:?}");
}

/// QEMU killed, the plug-in has written nothing: that is no fault of the plug-in's.
#[test]
fn a_killed_qemu_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let qemu = directory.path().join("qemu");
    let real = std::env::var("WEIR_QEMU").unwrap_or_else(|_| "qemu-system-aarch64".to_owned());
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec {real} --version\n\
         exec timeout -s KILL 5 {real} \"$@\"\n"
    );
    fs::write(&qemu, script).expect("a script");
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).expect("a mode");
    let file = directory.path().join("system.toml");
    fs::write(&file, pair([""; 3], A_FIRST, [STRESSORS[1]; 2], "never printed")).expect("a system");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    build_programs();
    command.args(["observe", "--no-build"]).arg(&file);
    command.env("WEIR_ROOT", root()).env("WEIR_QEMU", &qemu);
    command.env("WEIR_RUNS", directory.path().join("runs"));
    let printed = capture_within(&mut command, Duration::from_secs(1200));
    assert_eq!(printed.status, Some(3), "{}\n{}", printed.out, printed.err);
    assert!(printed.err.contains("QEMU ended"), "{}", printed.err);
    assert!(printed.err.contains("what the plug-in had seen went with it"), "{}", printed.err);
    assert!(!printed.err.contains("saw nothing"), "{}", printed.err);
}

#[test]
fn zeroing_is_made_visible() {
    let zero = "\n[[vm]]\nname = \"zero\"\ncpus = [0]\nmemory = \"4MiB\"\nimage = { elf = \
                \"memory-stressor\", args = \"mode=zero size=0x100000 passes=1\" }\n";
    let text = |expect: &str| format!("platform = \"qemu-virt\"\n{zero}expect = [\"{expect}\"]\n");
    let seen = observe(&text("memory-stressor: zero 1048576 bytes by 8"), &[]);
    assert!(number(&owner(&seen, "zero")["accesses"]) >= 0x10_0000 / 8);
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a file");
    fs::write(&file, text("memory-stressor: zero 1048576 bytes by 64")).expect("a system");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["run", "--no-build"]).arg(file.path()).env("WEIR_ROOT", root());
    let runs = tempfile::tempdir().expect("a directory");
    let printed = capture_within(command.env("WEIR_RUNS", runs.path()), Options::default().limit);
    assert_eq!(printed.status, Some(0), "{}\n{}", printed.out, printed.err);
}

#[test]
fn zeroed_memory_is_counted_in_lines() {
    // Twice the cache. 500 lines in 100 us are 5000 in 1 ms, however many stores zero one.
    let vm = "[[vm]]\nname = \"zero\"\ncpus = [0]\nmemory = \"4MiB\"\nimage = { elf = \
              \"memory-stressor\", args = \"mode=zero size=0x200000 passes=3 report_us=1000\" }\n\
              memory_budget = { accesses = 500, period = \"100us\", source = \"counter-page\" }\n\
              expect = [\"memory-stressor: 3 passes\"]\n";
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a file");
    fs::write(&file, format!("platform = \"qemu-virt\"\n{vm}")).expect("a system");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["run", "--no-build"]).arg(file.path()).env("WEIR_ROOT", root());
    let runs = tempfile::tempdir().expect("a directory");
    let printed = capture_within(command.env("WEIR_RUNS", runs.path()), Options::default().limit);
    assert_eq!(printed.status, Some(0), "{}\n{}", printed.out, printed.err);
    assert!(printed.out.contains("memory-stressor: zero 2097152 bytes by 8"), "{}", printed.out);
    let number = |line: &str| {
        let rest = line.split_once("memory-stressor: ")?.1;
        rest.split_once(" lines in")?.0.parse::<u64>().ok()
    };
    let lines: Vec<_> = printed.out.lines().filter_map(number).collect();
    assert!(lines.len() > 10, "{lines:?}");
    // The guest reads the clock each 8 lines.
    assert!(lines[1..].iter().all(|lines| (4000..6000).contains(lines)), "{lines:?}");
}

#[test]
fn colored_pages_are_mapped_as_fast() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["bench", "mapping", "--json"]).env("WEIR_ROOT", root());
    let printed = capture_within(&mut command, Duration::from_secs(1200));
    assert_eq!(printed.status, Some(0), "{}\n{}", printed.out, printed.err);
    let rows: Value = serde_json::from_str(&printed.out).expect("JSON");
    let rows = rows.as_array().expect("a list");
    let sizes: Vec<u64> = rows.iter().map(|row| number(&row["mib"])).collect();
    assert_eq!(sizes, [1, 4, 16, 64, 256]);
    for row in rows {
        let (native, colored) =
            (number(&row["native_instructions"]), number(&row["colored_instructions"]));
        let ratio = row["ratio"].as_f64().expect("a ratio");
        assert!(100 * colored <= 105 * native && (1.0..=1.05).contains(&ratio), "{row}");
        // At least one instruction a page, and blocks far fewer.
        assert!(native >= number(&row["mib"]) * 256, "{row}");
        assert!(number(&row["block_instructions"]) < native, "{row}");
    }
    assert!(number(&rows[4]["block_instructions"]) * 50 < number(&rows[4]["native_instructions"]));
}

/// Both record and replay; the writer's accesses are more than are recorded.
const RECORDED: &str = r#"
platform = "qemu-virt"

[hypervisor]
console_core = 1
colors = "14-15"

[[vm]]
name = "writer"
cpus = [1]
memory = "4MiB"
colors = "4-7"
image = { elf = "memory-stressor", args = "mode=write size=0x100000" }
workload = { kind = "trace", file = "writer.trace", period = "100ms" }

[[vm]]
name = "walk"
cpus = [0]
memory = "16MiB"
colors = "0-3"
image = { elf = "latency", args = "size=0x80000 rounds=1 loads=8192" }
workload = { kind = "trace", file = "walk.trace", period = "100ms" }
expect = ["latency: 1 rounds"]
"#;

#[test]
fn what_is_recorded_misses_as_often_in_the_simulation() {
    let directory = tempfile::tempdir().expect("a directory");
    let to = directory.path().to_str().expect("a path");
    let seen = observe(RECORDED, &["--record", to, "--record-most", "150000"]);
    let [writer, walk] = [0, 1].map(|vm| seen["recorded"][vm].clone());
    assert_eq!((&writer["vm"], &walk["vm"]), (&"writer".into(), &"walk".into()));
    assert_eq!((number(&writer["accesses"]), number(&walk["left_out"])), (150_000, 0));
    let accesses = |name| number(&owner(&seen, name)["accesses"]);
    assert_eq!(number(&writer["left_out"]), accesses("writer") - 150_000);
    assert_eq!(number(&walk["accesses"]), accesses("walk"));

    let file = directory.path().join("system.toml");
    fs::write(&file, RECORDED).expect("a system file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["simulate", "run"]).arg(&file).args([
        "--json",
        "--warm-up",
        "1ns",
        "--for",
        "50ms",
    ]);
    let printed = capture_within(command.env("WEIR_ROOT", root()), Options::default().limit);
    assert_eq!(printed.status, Some(0), "{}\n{}", printed.out, printed.err);
    let simulated: Value = serde_json::from_str(&printed.out).expect("JSON");
    let replayed = &simulated["vms"][1];
    assert_eq!((&replayed["name"], &replayed["jobs"]["ended"]), (&"walk".into(), &1.into()));
    // The accesses at the very first instant come before the span.
    assert!(number(&replayed["accesses"]).abs_diff(accesses("walk")) < 4, "{replayed}");
    // The walk is twice its share of the cache: all of it misses. Fetches are not replayed.
    let (misses, moved) = (number(&replayed["refills"]), number(&replayed["write_backs"]));
    let walk = owner(&seen, "walk");
    for (simulated, observed) in
        [(misses, number(&walk["l2_misses"])), (misses + moved, number(&walk["dram_accesses"]))]
    {
        assert!(observed > 16_384, "{walk}");
        assert!(simulated.abs_diff(observed) < observed / 50, "{simulated} of {observed}");
    }
}

#[test]
fn traces_go_to_a_directory() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a path");
    let printed = call(RECORDED, &["--record", path]);
    assert_eq!(printed.status, Some(3), "{}", printed.err);
    assert!(printed.err.contains(&format!("cannot make {path}")), "{}", printed.err);
}

/// Nothing comes over the wire for as long as guests are silent and no heartbeat is asked for.
#[test]
fn silent_guests_are_observed_for_the_requested_time() {
    let silent = r#"
platform = "qemu-virt"

[hypervisor]
heartbeat = "0s"

[[vm]]
name = "a"
cpus = [0]
memory = "4MiB"
image = { elf = "memory-stressor", args = "size=0x1000 period_us=1000000" }
"#;
    let seen = observe(silent, &["--for", "5ms"]);
    assert!(number(&owner(&seen, "a")["accesses"]) > 0);
    assert_eq!(seen["ended_by"], "time-over");
    let time = number(&seen["time_ns"]);
    assert!((5_000_000..10_000_000).contains(&time), "{time} ns of virtual time");
    let missed = silent.to_owned() + "expect = [\"never printed\"]\n";
    assert_eq!(call(&missed, &["--for", "5ms"]).status, Some(1));
}

/// What the boot does is not counted, also where nothing else happens.
#[test]
fn a_run_without_a_guest_counts_nothing() {
    let printed = call(&stressors(["", "", ""]), &["--for", "1ns"]);
    assert_eq!(printed.status, Some(1), "{}\n{}", printed.out, printed.err);
    assert!(printed.err.contains("before the first guest's first instruction"), "{}", printed.err);
    let seen: Value = serde_json::from_str(&printed.out).expect("JSON");
    assert_eq!(seen["guest_started"], false);
    assert_eq!(seen["as_expected"], false);
    for owner in seen["owners"].as_array().expect("owners") {
        assert_eq!(number(&owner["accesses"]), 0, "{owner}");
    }
    assert_eq!(number(&seen["device_accesses"]), 0);
}
