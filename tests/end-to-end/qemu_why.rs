//! `weir why` on real runs.

use crate::support::{
    capture,
    qemu::{Options, Outcome, run_system},
    schema::valid,
};
use serde_json::Value;
use std::process::Command;

/// Two senders at once: the short packets come while the long ones are moved.
const FLOWS: &str = r#"
platform = "qemu-virt"

[[vm]]
name = "short"
cpus = [0]
memory = "2MiB"
image = {elf = "sender", args = "to=5 messages=4 size=1000 period_us=4000 start_us=9000"}
expect = ["sender: 4 messages of 1000 bytes sent"]

[[vm]]
name = "long"
cpus = [1]
memory = "2MiB"
image = {elf = "sender", args = "to=5 port=5001 messages=4 size=65536 period_us=4000 start_us=9000"}

[[vm]]
name = "receiver"
cpus = [2]
memory = "2MiB"
image = { elf = "receiver", args = "port=5000 ports=2 bytes=262144 streams=2" }
expect = ["receiver: port 5001: 262144 bytes in order"]

[broker]
cpus = [3]

[[flow]]
name = "short"
from = "short"
to = "receiver"
port = 5000
size = "1000B"
period = "1ms"
deadline = "500us"

[[flow]]
name = "long"
from = "long"
to = "receiver"
port = 5001
size = "64KiB"
period = "4ms"
deadline = "2ms"
"#;

fn printed(outcome: &Outcome, verb: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let printed = capture(command.arg(verb).arg(&outcome.run).args(arguments));
    assert_eq!((printed.status, printed.err.as_str()), (Some(0), ""));
    printed.out
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// The parts sum to the whole, and follow each other.
fn assert_whole(why: &Value) {
    let mut now = number(why, "from_ns");
    let end = now + number(why, "total_ns");
    for part in why["parts"].as_array().expect("parts") {
        assert_eq!(number(part, "from_ns"), now, "{why:#}");
        now += number(part, "ns");
    }
    assert_eq!(now, end, "{why:#}");
}

#[test]
fn parts_sum_to_the_latency_that_the_report_has() {
    let outcome = run_system(FLOWS, &Options::default()).good();
    let arrived = ["--kind", "packet-arrived", "--json"];
    let trace: Value = serde_json::from_str(&printed(&outcome, "trace", &arrived)).expect("JSON");
    let records = trace["records"].as_array().expect("records");
    for flow in outcome.report["flows"].as_array().expect("flows") {
        let name = flow["name"].as_str().expect("a name");
        let why = valid("why", &printed(&outcome, "why", &["flow", name, "--json"]));
        assert_whole(&why);
        let latency = &flow["latency_ns"];
        assert_eq!(number(&why, "total_ns"), number(latency, "max"));
        assert_eq!(number(&why, "number"), number(latency, "max_packet"));
        assert_eq!(number(&why, "count"), number(flow, "packets"));
        let of = |record: &&Value| record["flow"] == *name && record["packet"] == why["number"];
        let record = records.iter().find(of).expect("the packet has its number in the trace");
        assert_eq!(number(record, "latency"), number(latency, "max"));
        // What no record explains is a small part.
        let parts = why["parts"].as_array().expect("parts");
        let unknown = parts.iter().filter(|part| part["what"] == "not recorded");
        let unknown: u64 = unknown.map(|part| number(part, "ns")).sum();
        assert!(unknown * 10 <= number(&why, "total_ns"), "{why:#}");
        for packet in 1..=number(flow, "packets") {
            let packet = packet.to_string();
            let arguments = ["flow", name, "--packet", &packet, "--json"];
            assert_whole(&valid("why", &printed(&outcome, "why", &arguments)));
        }
    }
    let text = printed(&outcome, "why", &[]);
    assert!(text.starts_with("flow long, packet "), "{text}");
    assert!(text.lines().any(|line| line.contains("copy the chunk")), "{text}");
}

#[test]
fn a_spent_budget_is_shown_by_its_periods() {
    let text = r#"
platform = "qemu-virt"

[[vm]]
name = "memory-stressor"
cpus = [0]
memory = "8MiB"
image = { elf = "memory-stressor", args = "mode=write size=0x200000 passes=10" }
expect = ["memory-stressor: 10 passes"]
memory_budget = { event = "cycles", accesses = 40_000, period = "100us" }
"#;
    let outcome = run_system(text, &Options::default()).good();
    let why = valid("why", &printed(&outcome, "why", &["budget", "memory-stressor", "--json"]));
    assert_whole(&why);
    let budget = &outcome.report["vms"][0]["budgets"][0];
    assert_eq!(number(&why, "count"), number(budget, "periods"));
    let parts = why["parts"].as_array().expect("parts");
    let is_throttled = |part: &&Value| part["term"] == "budget";
    let throttled: u64 = parts.iter().filter(is_throttled).map(|part| number(part, "ns")).sum();
    // A cycle is an instruction, and takes 1 ns.
    assert!(throttled.abs_diff(60_000) < 1000, "{why:#}");
}

/// A control task and a VM that never sleeps share a core in slots: the longest response of the task
/// waits for its slot.
#[test]
fn an_activation_is_shown_by_its_marks() {
    let text = r#"
platform = "qemu-virt"

[[vm]]
name = "control"
cpus = [0]
memory = "4MiB"
image = { elf = "control", args = "activations=50 report=50 phase_us=700 work_us=50" }
expect = ["control: 50 activations"]

[[vm.task]]
name = "control"
wcet = "60us"
period = "1ms"

[[vm]]
name = "other"
cpus = [0]
memory = "4MiB"
image = { elf = "context", args = "rounds=100000000 spin=2000" }

[[core]]
id = 0
schedule = { kind = "table", major_frame = "1ms", slots = [
    { vm = "control", start = "0us", length = "500us" },
    { vm = "other", start = "500us", length = "500us" },
] }
"#;
    let outcome = run_system(text, &Options::default()).good();
    let task = &outcome.report["vms"][0]["tasks"][0];
    let why = valid("why", &printed(&outcome, "why", &["task", "control", "--json"]));
    assert_whole(&why);
    assert_eq!(number(&why, "total_ns"), number(task, "observed_max_ns"));
    assert_eq!(number(&why, "number"), number(task, "max_activation"));
    assert_eq!(number(&why, "count"), number(task, "activations"));
    // Released in the slot of the other VM; its own begins with a millisecond, after a switch. One
    // instruction takes 1 ns.
    let parts = why["parts"].as_array().expect("parts");
    let of = |term: &str| -> u64 {
        parts.iter().filter(|part| part["term"] == term).map(|part| number(part, "ns")).sum()
    };
    let until_slot = 1_000_000 - number(&why, "from_ns") % 1_000_000;
    assert!((300_000..400_000).contains(&until_slot), "{why:#}");
    assert!((0..6_000).contains(&(of("schedule") - until_slot)), "{why:#}");
    assert!(of("wcet").abs_diff(50_000) < 1_000, "{why:#}");
    assert!(parts.iter().any(|part| part["vm"] == "other"), "{why:#}");
    let arguments = ["task", "control", "--activation", "1", "--json"];
    let first = valid("why", &printed(&outcome, "why", &arguments));
    assert_eq!(number(&first, "number"), 1);
    let trace = printed(&outcome, "trace", &["--kind", "task-release,task-complete", "--json"]);
    let trace: Value = serde_json::from_str(&trace).expect("JSON");
    let records = trace["records"].as_array().expect("records");
    assert!(records.len() as u64 >= 2 * number(task, "activations"));
    assert!(records.iter().all(|record| record["task"] == "control" && record["vm"] == "control"));
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.html");
    printed(&outcome, "report", &["--html", page.to_str().expect("UTF-8")]);
    let page = std::fs::read_to_string(page).expect("a page");
    let title = format!("task control, activation {} of ", number(&why, "number"));
    assert!(page.contains(&title), "no time line: {title}");
}
