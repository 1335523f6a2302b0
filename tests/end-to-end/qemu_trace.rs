//! Traces of real runs.

use crate::support::{
    capture_within,
    qemu::{Options, run_system},
    schema::valid,
};
use serde_json::Value;
use std::{fs, path::Path, process::Command, time::Duration};

/// Instructions that the memory stressor may execute in each period.
const BUDGET: u64 = 40_000;
const PERIOD_NS: u64 = 100_000;
/// The most by which a replenishment is recorded behind its moment.
const LATE_NS: u64 = 1000;

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

    // The interrupt comes when the budget is spent, not before. The test judges the longest stretch
    // without an exit: while the VM prints, QEMU adds the events of the console's core to its own.
    let records = trace(&file, &["--kind", "replenish,throttle,exit", "--format", "csv"]);
    let records: Vec<Vec<&str>> = records.lines().map(|line| line.split(',').collect()).collect();
    let all = records.iter().filter(|record| record[4] == "throttle").count();
    let quiet = records.split(|record| record[4] == "exit").max_by_key(|records| records.len());
    let (throttled, replenished): (Vec<_>, Vec<_>) =
        quiet.expect("records").iter().partition(|record| record[4] == "throttle");
    // The first period of the stretch has the exit.
    let used: Vec<u64> =
        throttled.iter().skip(1).map(|record| record[6].parse().expect("a count")).collect();
    assert!(used.len() > 10, "{used:?}");
    assert!(used.iter().all(|&used| (BUDGET - 16..BUDGET + 16).contains(&used)), "{used:?}");
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
    // The mean of the gaps between replenishments: each is recorded up to 1 us behind its moment,
    // so that the first and the last one make it inexact by that much, divided among the gaps.
    let period = curve["period_ns"].as_u64().expect("a period");
    assert!(period.abs_diff(PERIOD_NS) <= LATE_NS / (used.len() as u64 - 2) + 1, "{period}");
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
        assert!((BUDGET - 32..BUDGET + 32).contains(&(count - less)), "{less}, {count}: {steps:?}");
        assert!(count <= (period + 2) * (BUDGET + 16), "{count} in {period} periods: {steps:?}");
    }

    let perfetto = data(&trace(&file, &["--format", "perfetto"]));
    let events = perfetto["traceEvents"].as_array().expect("events");
    let slices = events.iter().filter(|event| event["ph"] == "X" && event["name"] == "throttled");
    assert_eq!(slices.count(), all, "a slice for each");
}
