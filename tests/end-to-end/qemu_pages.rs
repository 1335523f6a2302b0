//! The pages of `weir report` in a browser.

use crate::support::{
    browser::{Scheme, measured, screenshot},
    capture,
    qemu::{Options, Outcome, run_system},
};
use std::{fs, path::Path, process::Command};

/// A core that VMs share, a memory budget, and a flow; with the deadline and the address of the
/// flow's packets.
fn system(deadline: &str, to: u32) -> String {
    format!(
        r#"
platform = "qemu-virt"

[hypervisor]
heartbeat = "50ms"

[[vm]]
name = "control"
cpus = [0]
memory = "4MiB"
image = {{ elf = "control", args = "activations=50 work_us=300" }}
expect = ["control: 50 activations, 0 misses"]

[[vm.task]]
name = "control"
wcet = "305us"
period = "1ms"
deadline = "1ms"

[[vm]]
name = "logger"
cpus = [0]
memory = "4MiB"
image = {{ elf = "context", args = "rounds=200 spin=2000" }}
memory_budget = {{ accesses = 200_000, period = "1ms", event = "cycles" }}

[[core]]
id = 0
schedule = {{ kind = "table", major_frame = "1ms", slots = [
    {{ vm = "control", start = "0us", length = "650us" }},
    {{ vm = "logger", start = "650us", length = "350us" }},
] }}

[[vm]]
name = "a-sensor-with-a-long-name"
cpus = [1]
memory = "2MiB"
image = {{ elf = "sender", args = "to={to} messages=20 size=4096 period_us=1000 start_us=9000" }}

[[vm]]
name = "planner"
cpus = [2]
memory = "2MiB"
image = {{ elf = "receiver", args = "bytes=81920 streams=1" }}

[[flow]]
name = "samples"
from = "a-sensor-with-a-long-name"
to = "planner"
port = 5000
size = "4KiB"
period = "1ms"
deadline = "{deadline}"

[broker]
cpus = [3]
"#
    )
}

/// The page of `weir report` with these arguments.
fn page(arguments: &[&Path], file: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let printed = capture(command.arg("report").args(arguments).arg("--html").arg(file));
    assert_eq!((printed.status, printed.err.as_str()), (Some(0), ""));
    fs::read_to_string(file).expect("a page")
}

/// A reader of a narrow and of a wide window, who prefers light or dark, sees all of the page.
fn assert_readable(page: &str, figures: u64) {
    let widths = [400, 1280, 1600];
    let both = [Scheme::Light, Scheme::Dark];
    let all = both.into_iter().flat_map(|scheme| {
        let found = widths.into_iter().zip(measured(page, &widths, scheme));
        found.map(move |(width, found)| (width, scheme, found))
    });
    let mut windows = 0;
    for (width, scheme, found) in all {
        windows += 1;
        assert_eq!(found["width"], width, "{found}");
        assert!(found["needed"].as_u64() <= Some(width.into()), "{width}: overflow: {found}");
        assert_eq!(found["figures"], figures, "{found}");
        assert!(found["texts"].as_u64() > Some(20), "{found}");
        for fault in ["faint", "small", "outside", "overlapping", "unnamed"] {
            assert_eq!(found[fault], serde_json::json!([]), "{width} {scheme:?}: {fault}");
        }
        let is_light = found["paper"] == "rgb(255, 255, 255)";
        assert_eq!(is_light, scheme == Scheme::Light, "{found}");
    }
    assert_eq!(windows, 6);
}

fn assert_pictures(page: &Path, name: &str) {
    for (width, scheme) in [(400, Scheme::Light), (1280, Scheme::Dark)] {
        assert_eq!(screenshot(page, name, width, scheme), (width, 3000));
    }
}

fn run(deadline: &str, to: u32) -> Outcome {
    let arguments = ["--for", "120ms", "--keep-running"];
    run_system(&system(deadline, to), &Options { arguments: &arguments, ..Options::default() })
}

#[test]
fn the_pages_of_runs_are_readable() {
    let (good, bad) = (run("500us", 6), run("2us", 6));
    assert_eq!(good.report["verdict"], "holds", "{}", good.printed.out);
    assert_eq!(bad.report["verdict"], "does-not-hold", "{}", bad.printed.out);
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str| directory.path().join(name).with_extension("html");
    for (run, name) in [(&good, "good"), (&bad, "failed")] {
        let page = page(&[&run.run], &file(name));
        // Cores, memory and flows; three events; latencies and responses; a budget; exits.
        assert_readable(&page, 3 + 3 + 2 + 1 + 1);
        assert_pictures(&file(name), name);
        assert!(page.contains("core 0: table, major frame 1ms"));
    }
    let compared = page(&[&good.run, &bad.run], &file("compared"));
    assert_readable(&compared, 0);
    assert!(compared.contains("Before: holds") && compared.contains("After: does not hold"));
    assert!(compared.contains("<td>flow samples</td><td>4 KiB from"), "{compared}");
}

#[test]
fn the_page_of_a_plan_is_readable() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("plan.html");
    for (example, figures) in [("mixed", 3), ("isolation-banks-on", 3), ("passthrough-pci", 3)] {
        let system = format!("examples/{example}/{example}.toml");
        let system = crate::support::qemu::root().join(system);
        assert_readable(&page(&[&system], &file), figures);
    }
    assert_pictures(&file, "plan");
}

#[test]
fn a_flow_to_nowhere_says_where_it_went() {
    let outcome = run("500us", 3);
    let text = "no packet is known to have arrived: ";
    let reason = outcome.report["flows"][0]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with(text) && reason.ends_with("the flow is at 6:5000"), "{reason}");
}
