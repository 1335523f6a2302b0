//! The time of a board's memory on the emulated clock: guests that load and store, next to the same
//! accesses in `weir simulate`.

use crate::support::{
    board::not_applicable_if,
    capture_within,
    qemu::{Load, Options, Outcome, root, run_system},
};
use serde_json::Value;
use std::{fmt::Write as _, fs, process::Command, time::Duration};

/// A VM that walks through 2 MiB, each load after the one before, next to so many VMs that write.
/// The workloads are the same accesses for `weir simulate`.
fn walk(writers: usize) -> String {
    walk_with(writers, "")
}

/// The same with these keys of each VM that writes.
fn walk_with(writers: usize, keys: &str) -> String {
    let mut text = "platform = \"qemu-virt\"\n\n[[vm]]\nname = \"walk\"\ncpus = [0]\n\
         memory = \"8MiB\"\nexpect = [\"memory-stressor: walked\"]\n\
         image = { elf = \"memory-stressor\", \
         args = \"mode=walk size=2097152 upto=2097152 loads=65536\" }\n\
         workload = { kind = \"latency\", size = \"2MiB\" }\n"
        .to_owned();
    for writer in 1..=writers {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n[[vm]]\nname = \"writer{writer}\"\ncpus = [{writer}]\nmemory = \"8MiB\"\n{keys}\n\
             image = {{ elf = \"memory-stressor\", args = \"mode=write size=4194304 passes=0\" }}\n\
             workload = {{ kind = \"write\", size = \"4MiB\" }}\n"
        );
    }
    text
}

/// Runs the walk with these arguments. Returns the mean time of a load, in ns.
fn run(writers: usize, arguments: &[&str]) -> (u32, Outcome) {
    run_text(&walk(writers), arguments)
}

fn run_text(text: &str, arguments: &[&str]) -> (u32, Outcome) {
    let outcome = run_system(text, &Options { arguments, ..Options::default() }).good();
    let line = outcome.lines("walk").into_iter().find(|line| line.ends_with(" ns each"));
    let (_, time) = line.and_then(|line| line.rsplit_once(", ")).expect("the mean time");
    (time.trim_end_matches(" ns each").parse().expect("a number"), outcome)
}

/// The mean time of a load by `weir simulate`, in ns.
fn simulated(writers: usize) -> f64 {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("walk.toml");
    fs::write(&file, walk(writers)).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env("WEIR_ROOT", root()).args(["simulate", "run"]).arg(&file);
    command.args(["--memory", "gem5", "--for", "10ms", "--warm-up", "10ms", "--json"]);
    let printed = capture_within(&mut command, Duration::from_secs(120));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let result: Value = serde_json::from_str(&printed.out).expect("JSON");
    result["vms"][0]["latency_ns"]["mean"].as_f64().expect("a mean latency")
}

#[test]
fn charged_memory_agrees_with_the_simulator() {
    not_applicable_if(|board| board.name != "qemu-virt", "the system is of qemu-virt");
    let (plain, _) = run(3, &[]);
    assert!(plain <= 5, "{plain} ns for a load whose memory takes no time");
    for writers in [0, 1, 3] {
        let (time, outcome) = run(writers, &["--memory", "gem5"]);
        // A load is three instructions, each of 1 ns.
        let (charged, expected) = (f64::from(time - plain), simulated(writers));
        assert!((charged / expected - 1.0).abs() < 0.05, "{writers}: {charged} and {expected} ns");
        assert_eq!(outcome.report["memory"], "gem5");
        let told = "memory timing of gem5 was charged to the cores\n";
        assert!(outcome.printed.out.contains(told), "{}", outcome.printed.out);
    }
}

#[test]
fn budgets_of_writers_shorten_the_loads_of_a_reader() {
    not_applicable_if(|board| board.name != "qemu-virt", "the system is of qemu-virt");
    let arguments = ["--memory", "gem5"];
    let (alone, _) = run(0, &arguments);
    let (disturbed, _) = run(3, &arguments);
    assert!(disturbed * 10 >= alone * 13, "{alone} ns alone, {disturbed} ns next to writers");
    // A fifth of the time, and a fifth of what a writer does in it.
    for budget in [
        "source = \"pmu\", event = \"cycles\", accesses = 20000",
        "source = \"counter-page\", event = \"l2d-refill\", accesses = 200",
    ] {
        let keys = format!("memory_budget = {{ {budget}, period = \"100us\" }}");
        let (regulated, outcome) = run_text(&walk_with(3, &keys), &arguments);
        let saved = (disturbed - regulated) * 2;
        assert!(saved >= disturbed - alone, "{alone}, {disturbed}, {regulated} ns: {budget}");
        let budgets = outcome.vm("writer1")["budgets"].as_array().expect("budgets");
        assert!(budgets[0]["throttled_periods"].as_u64() > Some(50), "{budgets:?}");
    }
}

/// A VM that walks through 192 KiB next to three writers. The L2 of zcu102 replaces any line.
#[test]
fn colors_keep_the_lines_of_a_reader() {
    not_applicable_if(|board| board.name != "qemu-virt", "the system is of zcu102");
    let text = walk(3)
        .replace("\"qemu-virt\"", "\"zcu102\"")
        .replace("=2097152", "=196608")
        .replace("2MiB", "192KiB");
    let mut colored = text.replacen("\n\n", "\n\n[hypervisor]\ncolors = \"15\"\n\n", 1);
    for (colors, core) in ["0-3", "4-6", "7-9", "10-12"].into_iter().zip(0..) {
        let cpus = format!("cpus = [{core}]\n");
        colored = colored.replace(&cpus, &format!("{cpus}colors = \"{colors}\"\n"));
    }
    let arguments = ["--memory", "zcu102"];
    let (open, _) = run_text(&text, &arguments);
    let (kept, _) = run_text(&colored, &arguments);
    // From the L2, by memory.toml, and the load's instructions.
    assert!(kept <= 12 + 8 && open >= 100, "{kept} ns with colors, {open} ns without");
}

#[test]
fn charged_memory_is_the_same_on_a_loaded_host() {
    not_applicable_if(|board| board.name != "qemu-virt", "the system is of qemu-virt");
    let arguments = ["--memory", "qemu-virt"];
    let text = walk(3).replace("loads=65536", "loads=16384");
    let (time, quiet) = run_text(&text, &arguments);
    let load = Load::begin();
    let (loaded_time, loaded) = run_text(&text, &arguments);
    drop(load);
    assert_eq!(time, loaded_time);
    assert!(quiet.files.contains_key("trace.bin"), "{:?}", quiet.files.keys());
    assert!(quiet.files == loaded.files, "a file of the two runs differs");
}

#[test]
fn a_bound_is_not_judged_with_memory_timing() {
    not_applicable_if(|board| board.name != "qemu-virt", "the system is of qemu-virt");
    let system = crate::support::qemu::system("flows-mmio");
    let options = Options { arguments: &["--memory", "qemu-virt"], ..Options::default() };
    let outcome = run_system(&system, &options).good();
    let flow = &outcome.report["flows"][0];
    assert_eq!(flow["verdict"], "not-judged", "{flow}");
    let max = flow["latency_ns"]["max"].as_u64().expect("a latency");
    let plain = run_system(&system, &Options::default()).good();
    let plain_max = plain.report["flows"][0]["latency_ns"]["max"].as_u64().expect("a latency");
    assert!(max > plain_max, "{max} ns with memory timing, {plain_max} ns without");
}

#[test]
fn memory_must_have_a_timing_that_fits() {
    let refused = |platform: &str, memory: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("walk.toml");
        let text = walk(0).replace("cpus = [0]", "cpus = [0]\ncolors = \"0-1\"");
        fs::write(&file, text.replace("qemu-virt", platform)).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.env("WEIR_ROOT", root()).env("WEIR_RUNS", directory.path().join("runs"));
        let arguments = ["--no-build", "--ignore-verdict", "--memory", memory];
        command.arg("run").arg(&file).args(arguments);
        let printed = capture_within(&mut command, Duration::from_secs(120));
        assert_eq!(printed.status, Some(2), "{}", printed.err);
        printed.err
    };
    let unknown = "weir has no timing of the caches and DRAM of this board: use ";
    for memory in ["versal-virt", "ddr4-2400", "nothing"] {
        let error = refused("qemu-virt", memory);
        assert!(error.contains(unknown) && error.contains("zcu102"), "{error}");
    }
    let error = refused("qemu-virt", "zcu102");
    assert!(error.contains("--memory zcu102 does not fit qemu-virt: "), "{error}");
}
