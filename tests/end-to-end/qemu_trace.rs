//! Traces of real runs.

use crate::support::{
    board::{board, most_before_a_period},
    capture_within,
    qemu::{Options, run_system},
    schema::valid,
};
use serde_json::Value;
use std::{fs, path::Path, process::Command, time::Duration};

/// Instructions that the memory stressor may execute in each period.
const BUDGET: u64 = 40_000;
const PERIOD_NS: u64 = 100_000;

fn throttled() -> String {
    format!(
        r#"
platform = "qemu-virt"

[[vm]]
name = "memory-stressor"
cpus = [0]
memory = "8MiB"
image = {{ elf = "memory-stressor", args = "mode=write size=0x200000 passes=10" }}
expect = ["memory-stressor: 10 passes"]
memory_budget = {{ event = "cycles", accesses = {BUDGET}, period = "{}us" }}
"#,
        PERIOD_NS / 1000
    )
}

fn trace(file: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let printed =
        capture_within(command.arg("trace").arg(file).args(arguments), Duration::from_secs(60));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_eq!(printed.err, "", "nothing was lost: the rings hold more than this run records");
    printed.out
}

fn data(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_throttled_stressor_traces_the_same_staircase() {
    let [one, other] = [(); 2].map(|()| run_system(&throttled(), &Options::default()).good());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trace.bin");
    fs::write(&file, &one.files["trace.bin"]).expect("a file");
    assert!(one.files["trace.bin"] == other.files["trace.bin"], "two runs, two traces");

    // The interrupt comes when the budget is spent, not before.
    let records = trace(&file, &["--kind", "replenish,throttle", "--format", "csv"]);
    let records: Vec<Vec<&str>> = records.lines().map(|line| line.split(',').collect()).collect();
    let all = records.iter().filter(|record| record[4] == "throttle").count();
    let (throttled, replenished): (Vec<_>, Vec<_>) =
        records.iter().partition(|record| record[4] == "throttle");
    // The VM starts within its first period.
    let used: Vec<u64> =
        throttled.iter().skip(1).map(|record| record[6].parse().expect("a count")).collect();
    assert!(used.len() > 10, "{used:?}");
    // What one period takes beyond its budget, the next one has less.
    let over = board().interference.and_then(|its| its.overshoot).expect("of the PMU").get();
    let around = |budget: u64, by: u64| budget - by..=budget + by;
    assert!(used.iter().all(|used| around(BUDGET, over).contains(used)), "{used:?}");
    let all_budgets = used.len() as u64 * BUDGET;
    assert!(around(all_budgets, over).contains(&used.iter().sum()), "{used:?}");
    // From the second throttled period on, so that the shorter ones of the start are left out: the
    // first begins where the VM does.
    let (first, end) = (throttled[1][0], replenished[replenished.len() - 1][0]);
    let curve = trace(
        &file,
        &[
            "--arrival-curve",
            "memory-stressor",
            "--from",
            &format!("{first}ns"),
            "--to",
            &format!("{end}ns"),
            "--json",
        ],
    );
    let curve = &valid("trace --arrival-curve", &curve)["curves"][0];
    // The mean of the gaps between replenishments: each is recorded after EL2's work at the
    // beginning of its period, so that the first and the last one make it inexact by that much,
    // divided among the gaps.
    let late = most_before_a_period();
    let period = curve["period_ns"].as_u64().expect("a period");
    assert!(period.abs_diff(PERIOD_NS) <= late / (used.len() as u64 - 2) + 1, "{period}");
    let steps = curve["recorded"]["steps"].as_array().expect("steps");
    let at = |length: u64| {
        let reached = steps.iter().take_while(|step| step[0].as_u64() <= Some(length));
        reached.last().map_or(0, |step| step[1].as_u64().expect("a count"))
    };
    // One more period, one more budget; and never more than one in addition to those of whole
    // periods. Between two steps, which are late by as much as the records are.
    for period in 1..10 {
        let between = |periods: u64| at(periods * PERIOD_NS + PERIOD_NS / 4);
        let (less, count) = (between(period), between(period + 1));
        assert!(around(BUDGET, over).contains(&(count - less)), "{less}, {count}: {steps:?}");
        let most = (period + 2) * BUDGET + over;
        assert!(count <= most, "{count} in {period} periods: {steps:?}");
    }

    let perfetto = data(&trace(&file, &["--format", "perfetto"]));
    let events = perfetto["traceEvents"].as_array().expect("events");
    let slices = events.iter().filter(|event| event["ph"] == "X" && event["name"] == "throttled");
    assert_eq!(slices.count(), all, "a slice for each");
}
