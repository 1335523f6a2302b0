//! Verdicts of real runs on deadlines, tasks and memory budgets.

use crate::support::{
    Printed, capture_within,
    qemu::{build_programs, root},
};
use serde_json::Value;
use std::{fs, process::Command, time::Duration};

/// Runs a system and returns the command's output, its report, and its summary as `weir report`
/// prints it.
fn run(text: &str, arguments: &[&str]) -> (Printed, Value, String) {
    build_programs();
    let directory = tempfile::tempdir().expect("a directory");
    let (file, runs) = (directory.path().join("system.toml"), directory.path().join("runs"));
    fs::write(&file, text).expect("a system file");
    let weir = |verb: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg(verb).env("WEIR_ROOT", root()).env("WEIR_RUNS", &runs);
        command
    };
    // The verdict before the run refuses systems with deadlines that are too short; here the run is
    // to show it.
    let mut command = weir("run");
    command.arg(&file).args(["--no-build", "-q", "--ignore-verdict"]).args(arguments);
    let printed = capture_within(&mut command, Duration::from_secs(1200));
    let ran = fs::read_dir(&runs).into_iter().flatten().flatten().next();
    let ran = ran.unwrap_or_else(|| panic!("{}\n{}", printed.out, printed.err)).path();
    let report = fs::read(ran.join("report.json")).expect("a report");
    let summary = capture_within(weir("report").arg(&ran), Duration::from_secs(60)).out;
    (printed, serde_json::from_slice(&report).expect("JSON"), summary)
}

/// One flow of 20 packets of 4 KiB, which take 8 us each, with a deadline.
fn with_flow(deadline: &str) -> String {
    format!(
        r#"
platform = "qemu-virt"

[[vm]]
name = "sender"
cpus = [0]
memory = "2MiB"
image = {{ elf = "sender", args = "to=4 messages=20 size=4096 period_us=2000" }}
expect = ["sender: 20 messages of 4096 bytes sent"]

[[vm]]
name = "receiver"
cpus = [1]
memory = "2MiB"
image = {{ elf = "receiver", args = "bytes=81920 streams=1" }}
expect = ["receiver: port 5000: 81920 bytes in order"]

[broker]
cpus = [2]

[[flow]]
name = "messages"
from = "sender"
to = "receiver"
port = 5000
size = "4KiB"
period = "2ms"
deadline = "{deadline}"
"#
    )
}

#[test]
fn a_packet_that_misses_its_deadline_fails_the_run() {
    let (printed, report, summary) = run(&with_flow("3us"), &[]);
    assert_eq!(printed.status, Some(1), "{}\n{}", printed.out, printed.err);
    let flow = &report["flows"][0];
    assert_eq!((&flow["packets"], &flow["late"]), (&20.into(), &20.into()), "{flow}");
    assert_eq!((&flow["deadline_ns"], &flow["verdict"]), (&3_000.into(), &"does-not-hold".into()));
    let latency = ["min", "p50", "p99", "max"].map(|key| flow["latency_ns"][key].as_u64());
    let [min, p50, p99, max] = latency.map(|value| value.expect("a latency"));
    assert!(3_000 < min && min <= p50 && p50 <= p99 && p99 <= max, "{flow}");
    assert_eq!(flow["observed_max_ns"], max, "the hypervisor's count and the trace agree");
    let packet = flow["latency_ns"]["max_packet"].as_u64().expect("a number");
    assert!((1..=20).contains(&packet), "{flow}");
    for text in [
        "20 of 20 packets missed the deadline of 3000 ns",
        "verdict: does not hold (flow messages)",
    ] {
        assert!(printed.out.contains(text) && summary.contains(text), "{}", printed.out);
    }

    // The same system with a deadline that it keeps.
    let (printed, report, _) = run(&with_flow("1ms"), &[]);
    assert_eq!(
        (printed.status, &report["flows"][0]["late"]),
        (Some(0), &0.into()),
        "{}",
        printed.out
    );
    assert_eq!(report["flows"][0]["verdict"], "holds");
}

/// A sender that sends as soon as it is connected: the broker has started by then, so the first
/// packet keeps the bound like the others.
#[test]
fn the_first_packet_of_a_flow_keeps_the_bound() {
    let text = with_flow("5ms")
        .replace("size=4096 period_us=2000", "size=65536 period_us=10000 start_us=1")
        .replace("messages of 4096", "messages of 65536")
        .replace("81920", "1310720")
        .replace("\"4KiB\"", "\"64KiB\"")
        .replace("\"2ms\"", "\"10ms\"");
    let (printed, report, _) = run(&text, &[]);
    let flow = &report["flows"][0];
    assert_eq!(
        (&flow["packets"], &flow["late"]),
        (&20.into(), &0.into()),
        "{flow}\n{}",
        printed.err
    );
    let [p50, max] = ["p50", "max"].map(|key| flow["latency_ns"][key].as_u64().expect("ns"));
    let bound = flow["bound_ns"].as_u64().expect("a bound");
    assert!(p50 <= max && max <= bound, "{flow}");
    assert_eq!((printed.status, &flow["verdict"]), (Some(0), &"holds".into()), "{}", printed.out);
}

/// A VM on core 0 that never sleeps, and the beginning of a system.
const BUSY: &str = r#"
platform = "qemu-virt"

[[vm]]
name = "busy"
cpus = [0]
memory = "2MiB"
image = { elf = "context", args = "rounds=100000000 spin=2000 seed=1" }
"#;

/// The VMs of core 0 have it in time slices of 4 ms.
const SLICES: &str = r#"
[[core]]
id = 0
schedule = { kind = "round-robin", quantum = "4ms" }
"#;

/// A periodic task of 1 ms on its own core, or in time slices of 4 ms with a VM that never sleeps.
fn task(core: usize) -> String {
    format!(
        r#"{BUSY}
[[vm]]
name = "other"
cpus = [0]
memory = "2MiB"
image = {{ elf = "context", args = "rounds=100000000 spin=2000 seed=2" }}

[[vm]]
name = "a"
cpus = [{core}]
memory = "2MiB"
image = {{ elf = "control", args = "period_us=1000 activations=50" }}
expect = ["control: latency"]

[[vm.task]]
name = "control"
wcet = "1us"
period = "1ms"
{SLICES}"#
    )
}

#[test]
fn a_task_that_misses_deadlines_fails_the_run() {
    let (printed, report, _) = run(&task(0), &["--for", "2s"]);
    let judged = &report["vms"][2]["tasks"][0];
    assert_eq!(printed.status, Some(1), "{judged} {}\n{}", printed.out, printed.err);
    assert!(judged["misses"].as_u64() > Some(10), "{judged}");
    assert_eq!(report["verdict_of"], serde_json::json!(["task control of a"]));
    let (printed, report, _) = run(&task(1), &["--for", "2s"]);
    assert_eq!(printed.status, Some(0), "{}\n{}", printed.out, printed.err);
    let judged = &report["vms"][2]["tasks"][0];
    assert_eq!((&judged["activations"], &judged["misses"]), (&50.into(), &0.into()));
    assert_eq!(report["verdict"], "holds");
}

/// A VM that always wants more than its budget: it walks twice the L2, so that each line misses.
fn stressor(bandwidth: &str, more: &str) -> String {
    format!(
        "platform = \"qemu-virt\"\n{more}\n[[vm]]\nname = \"memory-stressor\"\ncpus = [0]\n\
         memory = \"16MiB\"\nimage = {{ elf = \"memory-stressor\", args = \"size=0x200000\" }}\n\
         memory_budget = {{ {bandwidth} }}\n"
    )
}

#[test]
fn a_memory_budget_is_judged() {
    let limited = stressor("accesses = 1000, period = \"100us\"", "");
    let (printed, report, summary) = run(&limited, &["--for", "20ms"]);
    let budget = &report["vms"][0]["budgets"][0];
    assert_eq!(printed.status, Some(0), "{budget} {}", printed.err);
    assert_eq!((&budget["budget"], &budget["period_ns"]), (&1000.into(), &100_000.into()));
    assert_eq!(budget["verdict"], "holds", "{budget}");
    let count = |key: &str| budget[key].as_u64().expect("a count");
    assert!(count("periods") > 100 && count("throttled_periods") > 100, "{budget}");
    assert!((1000..1000 + count("overshoot")).contains(&count("max_used")), "{budget}");
    assert_eq!(count("exceeded_periods"), 0, "{budget}");
    let row = summary.lines().find(|line| line.contains("memory-stressor/0")).expect("a row");
    assert!(row.contains("1000") && row.contains("100us") && row.contains("holds"), "{summary}");
}

/// The event `cycles` counts the time of the vCPU's own core, and the board file states how many
/// cycles may come beyond a budget.
#[test]
fn a_pmu_budget_is_judged_by_the_stated_overshoot() {
    for (overshoot, verdict) in [("overshoot = 0\n", "does-not-hold"), ("", "holds")] {
        let saturation = format!(
            "[saturation]\nperiod = \"100us\"\nline = \"64B\"\n\
             points = [{{ accesses = 100000, dma = \"0B/s\" }}]\n{overshoot}"
        );
        let limited =
            stressor("accesses = 10000, period = \"100us\", event = \"cycles\"", &saturation);
        let (printed, report, _) = run(&limited, &["--for", "20ms"]);
        let budget = &report["vms"][0]["budgets"][0];
        let fails = verdict == "does-not-hold";
        assert_eq!(
            (printed.status, &report["verdict"]),
            (Some(i32::from(fails)), &verdict.into()),
            "{}",
            printed.out
        );
        assert_eq!(budget["exceeded_periods"].as_u64() > Some(0), fails, "{budget}");
        assert!(budget["max_beyond"].as_u64() > Some(0), "{budget}");
        assert_eq!(printed.out.contains("the overshoot of 0, by "), fails, "{}", printed.out);
    }
}

/// Two VMs have time slices of 4 ms on core 0; an interrupt of one waits for its time slice unless
/// it preempts.
#[test]
fn a_late_interrupt_fails_the_run() {
    let system = |rule: &str| {
        format!(
            r#"{BUSY}
[[vm]]
name = "loaded"
cpus = [0, 1]
memory = "2MiB"
devices = ["/pl031@9010000"]
image = {{ elf = "responder", args = "role=loaded tick_us=2000 line=34 report=20 interval_us=1000 work_us=5" }}
expect = ["loaded: 20 ticks"]
{SLICES}
[[irq]]
line = 34
vm = "loaded"
wcet = "10us"
deadline = "1ms"
{rule}
"#
        )
    };
    let (printed, report, _) = run(&system(""), &["--for", "1s"]);
    let line = &report["vms"][1]["interrupts"][0];
    assert_eq!(printed.status, Some(1), "{line} {}\n{}", printed.out, printed.err);
    assert!(line["late"].as_u64() > Some(0) && line["max_ns"].as_u64() > Some(1_000_000), "{line}");
    assert_eq!(line["verdict"], "does-not-hold");
    let (printed, report, _) = run(&system("preempt = true"), &["--for", "1s"]);
    let line = &report["vms"][1]["interrupts"][0];
    assert_eq!(printed.status, Some(0), "{line} {}\n{}", printed.out, printed.err);
    assert_eq!((&line["late"], &line["verdict"]), (&0.into(), &"holds".into()), "{line}");
}
