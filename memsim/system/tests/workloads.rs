//! Workloads that wake, change their phase or come from a network.
#![allow(clippy::cast_precision_loss, reason = "tests: ratios of small counts")]

use std::path::Path;
use weir_simulator::{JobsOutcome, Outcome, run};

use crate::support::{board, load, memory, span, vm};

fn one(workload: &str, values: &[(&str, &str)], us: u64) -> Outcome {
    let vms = [vm("one", "[0]", "0-3", &format!("workload = {{ {workload} }}"))];
    run(&board(&vms, &memory(values)), span(us)).unwrap()
}

fn jobs(outcome: &Outcome) -> &JobsOutcome {
    outcome.vms[0].jobs.as_ref().unwrap()
}

#[test]
fn threads_wake_each_period_and_miss_if_too_long() {
    let wakes = one("kind = \"cyclictest\", period = \"50us\"", &[], 1000);
    let all = jobs(&wakes);
    assert_eq!((all.ended, all.missed, all.deadline_ns), (20, 0, Some(50_000)));
    // 64 lines, one after the other, all in the L1.
    assert_eq!(all.response.most_ns(), 160);
    // One pass begins as the span ends.
    assert!((1280..=1281).contains(&wakes.vms[0].accesses), "{}", wakes.vms[0].accesses);
    let late = one("kind = \"cyclictest\", period = \"50us\", deadline = \"159ns\"", &[], 1000);
    assert_eq!((jobs(&late).ended, jobs(&late).missed), (20, 20));
    // 64 us of work each 50 us: ever later, and what waits in the end is late as well.
    let slow = one("kind = \"cyclictest\", period = \"50us\", gap = \"1us\"", &[], 1000);
    assert!(jobs(&slow).ended < 17 && jobs(&slow).missed > 19, "{:?}", jobs(&slow).missed);
}

#[test]
fn a_budget_makes_a_kernel_miss_deadlines() {
    let kernel = "kind = \"read\", size = \"1MiB\", period = \"1ms\", deadline = \"900us\"";
    let of = |bandwidth: &str| {
        let rest = format!("workload = {{ {kernel} }}\n{bandwidth}");
        let vms = [vm("one", "[0]", "0-3", &rest)];
        run(&board(&vms, &memory(&[])), span(4000)).unwrap()
    };
    let free = of("");
    assert_eq!((jobs(&free).ended, jobs(&free).missed), (4, 0));
    let bound = of("memory_budget = { accesses = 100, period = \"100us\", overcommit = true }");
    assert!(jobs(&bound).missed > 0, "{:?}", jobs(&bound).ended);
}

#[test]
fn phases_have_rates_localities_and_writes() {
    let walk = |phases: &str| {
        one(&format!("kind = \"profile\", size = \"2MiB\", phases = [{phases}]"), &[], 1000)
    };
    // 100 accesses in 100 us, then 1000 in 100 us.
    let two = walk(
        "{ accesses = 100, gap = \"1us\", size = \"4KiB\" }, { accesses = 1000, gap = \"100ns\", \
         size = \"4KiB\" }",
    );
    let accesses = two.vms[0].accesses;
    assert!((5490..=5510).contains(&accesses), "{accesses}");
    assert_eq!((two.vms[0].refills, two.vms[0].write_backs), (0, 0));
    let most = two.vms[0].latency.most_ns();
    assert!(most < 3, "{most}");
    let far = walk("{ accesses = 20000, gap = \"100ns\" }");
    assert!(far.vms[0].refills > 4000, "{}", far.vms[0].refills);
    assert_eq!(far.vms[0].write_backs, 0);
    let writes = walk("{ accesses = 20000, gap = \"100ns\", writes = 50 }");
    let share = writes.vms[0].write_backs as f64 / writes.vms[0].refills as f64;
    assert!((0.3..0.7).contains(&share), "{share}");
    let stream = walk("{ accesses = 20000, gap = \"100ns\", order = \"stream\", size = \"8KiB\" }");
    assert_eq!(stream.vms[0].refills, 0);
}

#[test]
fn packets_come_as_fast_as_window_and_way_back_allow() {
    let network = |more: &str| {
        let device = format!("kind = \"network\", engine = \"lpd\", size = \"64KiB\", {more}");
        let outcome = one(&device, &[], 4000);
        let ended = jobs(&outcome).ended;
        let bytes = outcome.vms[0].moved;
        assert!(bytes.abs_diff(ended * 1500) <= 64 * 1500, "{bytes} {ended}");
        (ended, outcome)
    };
    let (one_packet, _) = network("window = \"1500B\", delay = \"96us\"");
    // Nearly 100 us from packet to packet.
    assert!((35..=41).contains(&one_packet), "{one_packet}");
    let (four, _) = network("window = \"6000B\", delay = \"96us\"");
    assert!((140..=164).contains(&four), "{four}");
    let (all, outcome) = network("deadline = \"10ns\"");
    // As many as the device can bring.
    assert!(all > 400, "{all}");
    assert!(jobs(&outcome).missed >= all, "{}", jobs(&outcome).missed);
    let (paced, outcome) = network("gap = \"40us\", deadline = \"20us\"");
    assert!((90..=100).contains(&paced), "{paced}");
    assert_eq!(jobs(&outcome).missed, 0);
}

#[test]
fn a_sender_has_a_window_and_writes_first() {
    let send = |more: &str| {
        let device = format!(
            "kind = \"network\", engine = \"gem\", direction = \"send\", size = \"64KiB\", {more}"
        );
        let outcome = one(&device, &[], 4000);
        let written = jobs(&outcome).ended;
        // The device has sent what was written, but for a packet at each end of the span.
        assert!(outcome.vms[0].moved.abs_diff(written * 1500) <= 2 * 1500, "{written}");
        (written, outcome)
    };
    let (one_packet, _) = send("window = \"1500B\", delay = \"96us\"");
    assert!((35..=41).contains(&one_packet), "{one_packet}");
    let (four, _) = send("window = \"6000B\", delay = \"96us\"");
    assert!((156..=168).contains(&four), "{four}");
    let (paced, outcome) = send("gap = \"40us\", deadline = \"20us\"");
    assert!((99..=101).contains(&paced), "{paced}");
    assert_eq!(jobs(&outcome).missed, 0);
    // It reads and writes each line of a packet once.
    let lines = outcome.vms[0].accesses / paced;
    assert!((46..=52).contains(&lines), "{lines}");
}

#[test]
fn keys_of_another_kind_are_refused_with_their_place() {
    let refusal = |workload: &str| {
        let vms = [vm("one", "[0]", "0-3", &format!("workload = {{ {workload} }}"))];
        load(Path::new("system.toml"), &vms, &memory(&[])).unwrap_err()
    };
    for (workload, expected) in [
        ("kind = \"latency\", packet = \"1KiB\"", "kind \"latency\" has no `packet`"),
        ("kind = \"profile\"", "kind \"profile\" needs `phases`"),
        ("kind = \"profile\", phases = []", "vm `one`: its workload has no phase"),
        (
            "kind = \"profile\", phases = [{ accesses = 1, size = \"1MiB\" }]",
            "vm `one`: a phase of its workload",
        ),
        ("kind = \"profile\", phases = [{ accesses = 0 }]", "an integer from 1"),
        ("kind = \"network\", engine = \"lpd\", window = \"1KiB\"", "less than a packet"),
        ("kind = \"network\"", "needs `engine`"),
        ("kind = \"dma\", engine = \"lpd\", direction = \"send\"", "has no `direction`"),
        ("kind = \"network\", engine = \"lpd\", period = \"1ms\"", "\"network\" has no `period`"),
        ("kind = \"latency\", deadline = \"1ms\"", "has a deadline, but no period"),
        ("kind = \"cyclictest\", period = \"0ns\"", "a period of 0"),
        ("kind = \"dma\", engine = \"lpd\", period = \"1ms\"", "\"dma\" has no `period`"),
        ("kind = \"dma\", engine = \"lpd\", outstanding = 2", "has no `outstanding`"),
    ] {
        let error = refusal(workload);
        assert!(error.contains(expected) && error.contains("system.toml:"), "{workload}: {error}");
    }
}

#[test]
fn accesses_keep_the_gap_even_after_a_wait() {
    // Fewer lines at once than fit into the time of a miss, so that the core often waits for one of
    // them.
    let text = "kind = \"write\", size = \"4MiB\", gap = \"100ns\", outstanding = 2";
    let outcome = one(text, &[("interconnect.to_memory_ps", "80000")], 1000);
    assert!(outcome.vms[0].accesses <= 10_001, "{}", outcome.vms[0].accesses);
}
