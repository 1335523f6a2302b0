//! `weir reproduce throttling` on a small grid, and `weir calibrate`, in real runs.

use crate::support::{capture_within, qemu::root, schema::valid};
use serde_json::Value;
use std::{process::Command, time::Duration};
use weir_abi::regulation::most_events;
use weir_model::platform::Platform;

fn json(directory: &std::path::Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).arg("--json");
    command.env("WEIR_ROOT", root()).env("WEIR_RUNS", directory.join("runs"));
    let printed = capture_within(&mut command, Duration::from_secs(1200));
    assert_eq!(printed.status, Some(0), "{}\n{}", printed.out, printed.err);
    serde_json::from_str(&printed.out).expect("JSON")
}

#[test]
fn budgets_are_kept_as_seen_from_outside() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out");
    let out = out.to_str().expect("a path");
    let json = json(directory.path(), &["reproduce", "throttling", "--quick", "-o", out]);
    assert_eq!((&json["version"], &json["as_expected"]), (&1.into(), &true.into()), "{json}");
    // Four for each run, those on what is unregulated, and on EL2's paths.
    let statements = json["statements"].as_array().expect("statements");
    assert_eq!(statements.len(), 4 * 6 + 4 + 5);
    assert!(statements.iter().all(|one| one["verdict"] == "holds"), "{json}");
    assert!(json["compiler"].as_str().is_some_and(|name| name.starts_with("rustc 1.")), "{json}");
    let platform = Platform::named("qemu-virt").expect("a board");
    let page = platform.counters.counter_page.expect("a counter page");
    let overshoot = platform.interference.and_then(|its| its.overshoot).expect("of the PMU");
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 6);
    for run in runs {
        let number = |key: &str| run[key].as_u64().unwrap_or_else(|| panic!("{key}: {run}"));
        let (budget, most) = (number("budget"), number("max_per_period"));
        let allowed = match run["source"].as_str() {
            Some("pmu") => overshoot.get(),
            _ => most_events(page.poll.value.0, page.access.0),
        };
        assert!(budget <= most && most <= budget + allowed, "{run}");
        assert!(number("overshoot_max") <= allowed && number("periods") > 30, "{run}");
        // What the last period owes is of some million lines, or a few cycles.
        let rate = run["rate_error"].as_f64().expect("a rate");
        assert!(rate.abs() <= 3e-4, "{run}");
        assert_eq!(run["regulator"], "static");
    }
    let of = |source: &str| runs.iter().filter(|run| run["source"] == source).count();
    assert_eq!((of("pmu"), of("counter-page")), (4, 2));
    assert_eq!(runs.iter().filter(|run| run["guest"] == "storm").count(), 2, "it traps: {json}");
    assert_eq!(json["unregulated_overhead"], 0.0, "{json}");
    for path in ["replenish", "overflow", "release"] {
        assert!(json["el2_instructions"]["static"][path]["median"].is_u64(), "{path}: {json}");
    }
    // And its double at the start of a period.
    let poll = page.poll_overhead.0;
    for (path, most) in [("poll", poll), ("poll-replenish", 2 * poll)] {
        let max = json["el2_instructions"]["static"][path]["max"].as_u64();
        assert!(max.is_some_and(|max| (most / 10..=most).contains(&max)), "{path}: {json}");
    }
}

/// The memory stressor on a core.
fn stressor(core: u32) -> String {
    format!(
        "[[vm]]\nname = \"stressor{core}\"\ncpus = [{core}]\nmemory = \"8MiB\"\n\
         image = {{ elf = \"memory-stressor\" }}\n"
    )
}

#[test]
fn a_platform_is_calibrated_and_its_table_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    // A table that the file has does not stand in the way of a new one.
    let old = "[saturation]\nperiod = \"1us\"\nline = \"64B\"\n\
               points = [{ accesses = 1, dma = \"0B/s\" }]\nmin_period = \"1s\"\n";
    let budget = "memory_budget = { accesses = 9, period = \"100us\" }";
    let text = format!("platform = \"qemu-virt\"\n{old}{}\n{budget}\n", stressor(0)) + &stressor(1);
    let system = directory.path().join("old.toml");
    std::fs::write(&system, text).expect("a system file");
    let table = directory.path().join("saturation.toml");
    let found = json(
        directory.path(),
        &["calibrate", system.to_str().expect("a path"), "-o", table.to_str().expect("a path")],
    );
    valid("calibrate", &found.to_string());
    let number = |key: &str| found[key].as_u64().unwrap_or_else(|| panic!("{key}: {found}"));
    // A load and an addition take 2 ns: at most 50 000 lines in 100 us. No compiler makes ten
    // instructions of them.
    let one = number("one_core");
    assert!((10_000..=50_000).contains(&one), "{found}");
    // Two cores run concurrently, but do not start at the same time.
    assert!((18 * one / 10..=2 * one).contains(&number("saturation")), "{found}");
    // In the microsecond of a poll at least half of what one core reads come, and what EL2's
    // lateness adds is no more than that again.
    let in_a_poll = one / 100;
    assert!((in_a_poll / 2..=2 * in_a_poll).contains(&number("overshoot")), "{found}");
    let least = number("min_accesses");
    assert!(least > number("overshoot") && least < one, "{found}");
    let table = std::fs::read_to_string(table).expect("the table");
    let file = directory.path().join("system.toml");
    let system = |budget: u64| {
        let bandwidth = format!("memory_budget = {{ accesses = {budget}, period = \"100us\" }}");
        format!("platform = \"qemu-virt\"\n{table}\n{}{bandwidth}\n", stressor(0))
    };
    let check = |budget: u64| {
        std::fs::write(&file, system(budget)).expect("a system file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("check").arg(&file).env("WEIR_ROOT", root());
        capture_within(&mut command, Duration::from_secs(60))
    };
    let printed = check(number("saturation"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let printed = check(number("saturation") + 1);
    assert_eq!(printed.status, Some(1), "{}", printed.out);
    assert!(printed.err.contains("[saturation] of platform"), "{}", printed.err);
}
