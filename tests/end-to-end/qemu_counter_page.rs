//! The counter page in real runs, and the guests that it is tried with.

use crate::support::{
    Printed,
    board::{capture_on_board, not_applicable_if},
    capture_within,
    qemu::{build_image, build_programs, overcommitted, root},
};
use serde_json::Value;
use std::{fs, process::Command, time::Duration};

/// What a run left.
struct Ran {
    printed: Printed,
    /// `run.json`.
    run: Value,
    report: Value,
    /// Each VM's console.
    consoles: Vec<(String, String)>,
}

impl Ran {
    fn good(self) -> Self {
        assert_eq!(self.printed.status, Some(0), "{}\n{}", self.printed.out, self.printed.err);
        self
    }

    /// The refills, write-backs, and those of the hypervisor that the counter page has of a core.
    fn core(&self, core: usize) -> [u64; 4] {
        let of = &self.run["counter_page"][core];
        assert_eq!(of["core"], core, "{}", self.run["counter_page"]);
        ["refills", "write_backs", "hypervisor_refills", "hypervisor_write_backs"]
            .map(|name| of[name].as_u64().expect("a count"))
    }

    /// The numbers in the lines of a VM's console that contain `text`.
    fn numbers(&self, vm: &str, text: &str) -> Vec<Vec<f64>> {
        let (_, console) = self.consoles.iter().find(|(name, _)| name == vm).expect("a console");
        let numbers =
            |line: &str| line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        console.lines().filter(|line| line.contains(text)).map(numbers).collect()
    }
}

/// Runs a system by the emulated clock until all its VMs are off.
fn run(text: &str, arguments: &[&str]) -> Ran {
    build_programs();
    let directory = tempfile::tempdir().expect("a directory");
    let (file, runs) = (directory.path().join("system.toml"), directory.path().join("runs"));
    fs::write(&file, overcommitted(text)).expect("a system file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("run").arg(&file).args([
        "--no-build",
        "--keep-running",
        "-q",
        "--ignore-verdict",
        "--accept-not-judged",
    ]);
    command.args(arguments);
    command.env("WEIR_ROOT", root()).env("WEIR_RUNS", &runs);
    let printed = capture_on_board(&mut command, &file, Duration::from_secs(1200));
    let ran = fs::read_dir(&runs).into_iter().flatten().flatten().next().map(|entry| entry.path());
    let read = |name: &str| {
        let bytes = ran.as_ref().and_then(|ran| fs::read(ran.join(name)).ok());
        bytes.map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).expect("JSON"))
    };
    let (run, report) = (read("run.json"), read("report.json"));
    let names = report["vms"].as_array().cloned().unwrap_or_default();
    let console = |vm: &Value| {
        let name = vm["name"].as_str()?.to_owned();
        let log = fs::read(ran.as_ref()?.join(format!("{name}.log"))).ok()?;
        Some((name, String::from_utf8_lossy(&log).into_owned()))
    };
    Ran { printed, run, report, consoles: names.iter().filter_map(console).collect() }
}

/// A VM of this name on core `core`.
fn vm(name: &str, core: usize, guest: &str, arguments: &str, keys: &str) -> String {
    format!(
        "\n[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"32MiB\"\n\
         image = {{ elf = \"{guest}\", args = \"{arguments}\" }}\n{keys}\n"
    )
}

/// A budget that is never spent: what it stands on must be there all the same.
const WIDE: &str = "memory_budget = { accesses = 1000000, period = \"1ms\", source = \
                    \"counter-page\", overcommit = true }";
/// Twice the cache.
const SIZE: &str = "size=0x200000";
const LINES: u64 = 0x20_0000 / 64;

/// A system of these VMs.
fn system(vms: &[String]) -> String {
    format!("platform = \"qemu-virt\"\n{}", vms.concat())
}

#[test]
fn each_core_is_charged_for_what_its_guest_moves() {
    for divided in ["", "colors = \"0-3\""] {
        let hypervisor = if divided.is_empty() { "" } else { "[hypervisor]\ncolors = \"14-15\"\n" };
        let others = divided.replace("0-3", "4-7");
        let passes = |mode: &str, passes: u64| format!("mode={mode} {SIZE} passes={passes}");
        let text = format!(
            "platform = \"qemu-virt\"\n{hypervisor}{}{}",
            vm("reader", 0, "memory-stressor", &passes("read", 5), &format!("{divided}\n{WIDE}")),
            vm("writer", 1, "memory-stressor", &passes("write", 3), &others),
        );
        let [one, other] = [(), ()].map(|()| run(&text, &[]).good());
        assert_eq!(one.run["counter_page"], other.run["counter_page"], "two runs are one");
        let ([reads, evicted, weirs, _], [writes, written, ..]) = (one.core(0), one.core(1));
        // Code, stacks and the device tree come on top.
        assert!((5 * LINES..5 * LINES + 2000).contains(&reads), "{reads} of 5 times {LINES}");
        assert!((3 * LINES..3 * LINES + 2000).contains(&writes), "{writes} of 3 times {LINES}");
        // All but what is in the caches at the end, of which the writer has one pass at most. Both
        // cores evict the writer's lines from the shared cache.
        assert!(written < 3 * LINES + 2000, "{written} of 3 times {LINES}");
        assert!(evicted + written >= 2 * LINES, "{evicted} and {written} of 3 times {LINES}");
        assert!(weirs > 0 && weirs < 600_000, "{weirs}");
        assert_eq!(one.core(3)[..2], [0, 0], "no VM runs there");
    }
}

#[test]
fn a_run_without_such_a_budget_has_no_plug_in() {
    let text = system(&[vm(
        "reader",
        0,
        "memory-stressor",
        "passes=1",
        "expect = [\"memory-stressor: 1 passes\"]",
    )]);
    let ran = run(&text, &[]).good();
    assert_eq!(ran.run["counter_page"], Value::Null);
    let command = ran.run["qemu_command"].to_string();
    assert!(
        !command.contains("weir_qemu_plugin") && command.contains("memory-backend-file"),
        "{command}"
    );
}

#[test]
fn a_budget_on_the_page_is_kept() {
    // 500 in 100 us are 5000 in 1 ms.
    let budget =
        "memory_budget = { accesses = 500, period = \"100us\", source = \"counter-page\" }";
    let arguments = format!("mode=read {SIZE} passes=3 report_us=1000");
    let ran = run(&system(&[vm("memory-stressor", 0, "memory-stressor", &arguments, budget)]), &[])
        .good();
    let lines = ran.numbers("memory-stressor", "lines in");
    assert!(lines.len() > 10, "{lines:?}");
    let [count, us] = [0, 1].map(|n| lines[1..].iter().map(|line| line[n]).sum::<f64>());
    let rate = 1000.0 * count / us;
    assert!((4500.0..5100.0).contains(&rate), "{rate} lines in 1 ms");
}

#[test]
fn whichever_of_two_budgets_is_spent_first_stops() {
    // A writer brings in a line and writes back another, each time.
    let rate = |budgets: &str| {
        let keys = format!(
            "memory_budget = {{ {budgets}, period = \"100us\", source = \"counter-page\" }}"
        );
        let arguments = format!("mode=write {SIZE} passes=5 report_us=1000");
        let ran =
            run(&system(&[vm("memory-stressor", 0, "memory-stressor", &arguments, &keys)]), &[])
                .good();
        let lines = ran.numbers("memory-stressor", "lines in");
        // The cache is clean at first, so that nothing is written back.
        let later = &lines[lines.len() / 2..];
        let [count, us] = [0, 1].map(|n| later.iter().map(|line| line[n]).sum::<f64>());
        1000.0 * count / us
    };
    for (budgets, expected) in [
        ("reads = 900, writes = 500", 5000.0),
        ("reads = 500, writes = 900", 5000.0),
        ("writes = 700", 7000.0),
        ("accesses = 600, event = \"l2d-writeback\"", 6000.0),
    ] {
        let rate = rate(budgets);
        assert!((rate / expected - 1.0).abs() < 0.06, "{budgets}: {rate} of {expected} in 1 ms");
    }
}

#[test]
fn only_counter_page_memory_of_valid_size_is_taken() {
    let why = "QEMU's machine has no other size of RAM";
    not_applicable_if(|board| board.name == "rpi4", why);
    let text = system(&[vm(
        "reader",
        0,
        "memory-stressor",
        "passes=1",
        "expect = [\"memory-stressor: 1 passes\"]",
    )]);
    let ran = run(&text, &["--qemu-arg=-m", "--qemu-arg=512M"]).good();
    assert!(ran.run["qemu_command"].to_string().contains("size=536870912"));
    let ran = run(&text, &["--qemu-arg=-machine", "--qemu-arg=memory-backend=mine"]);
    assert_eq!((ran.printed.status, &ran.report), (Some(2), &Value::Null), "{}", ran.printed.err);
    assert!(ran.printed.err.contains("-m alone changes its size"), "{}", ran.printed.err);
}

#[test]
fn a_memory_stressor_reports_at_the_requested_rate() {
    let arguments = format!("mode=read {SIZE} passes=50 report_us=500");
    let ran =
        run(&system(&[vm("memory-stressor", 0, "memory-stressor", &arguments, "")]), &[]).good();
    let lines = ran.numbers("memory-stressor", "lines in");
    assert!(lines.len() >= 2, "{lines:?}");
    assert!(lines.iter().all(|line| (500.0..700.0).contains(&line[1])), "{lines:?}");
    let all: f64 = lines.iter().map(|line| line[0]).sum();
    let last = lines.last().map_or(0.0, |line| line[0]);
    let accesses = ran.numbers("memory-stressor", "passes")[0][1];
    assert!((accesses - f64::from(50 * LINES as u32)).abs() < 0.5, "{accesses}");
    assert!(all <= accesses && all + 2.0 * last > accesses, "{all} of {accesses}");
}

#[test]
fn a_row_stressor_misses_rows_and_needs_the_banks() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("system.toml");
    let observe = |mode: &str| {
        let arguments =
            format!("mode={mode} size=0x1000000 passes=1 banks=0x90000,0x120000,0x240000");
        let stressor = vm(
            "memory-stressor",
            0,
            "memory-stressor",
            &arguments,
            "expect = [\"memory-stressor: 1 passes\"]",
        );
        fs::write(&file, system(&[stressor])).expect("a system file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        build_programs();
        command.args(["observe", "--no-build", "--json"]).arg(&file).env("WEIR_ROOT", root());
        command.env("WEIR_RUNS", directory.path().join("runs"));
        let printed = capture_within(&mut command, Duration::from_secs(1200));
        assert_eq!(printed.status, Some(0), "{}\n{}", printed.out, printed.err);
        let seen: Value = serde_json::from_str(&printed.out).expect("JSON");
        let owners = seen["owners"].as_array().expect("owners").clone();
        let stressor = owners
            .iter()
            .find(|owner| owner["name"] == "memory-stressor")
            .expect("the memory stressor")
            .clone();
        let [all, hits] =
            ["dram_accesses", "row_hits"].map(|key| stressor[key].as_u64().expect(key));
        assert!(all > 30_000, "{stressor}");
        100 * hits / all
    };
    let [missing, plain] = ["rowmiss", "write"].map(observe);
    assert!(missing < 5 && plain > 90, "{missing} % and {plain} % of accesses find their row open");
    let arguments = "mode=rowmiss size=0x1000000";
    let keys = "expect = [\"mode=rowmiss needs banks=MASK\"]";
    run(&system(&[vm("memory-stressor", 0, "memory-stressor", arguments, keys)]), &["--for", "1s"])
        .good();
    let arguments = "mode=rowmiss size=0x1000000 banks=0x1000";
    let keys = "expect = [\"banks=: a bit is below row=8192\"]";
    run(&system(&[vm("memory-stressor", 0, "memory-stressor", arguments, keys)]), &["--for", "1s"])
        .good();
}

#[test]
fn latency_prints_what_a_load_takes() {
    let arguments = "size=0x10000 loads=10000 rounds=6 report=3";
    let keys = "expect = [\"latency: 65536 bytes by 64, 6 rounds of 10240 loads\"]";
    let ran = run(&system(&[vm("latency", 0, "latency", arguments, keys)]), &[]).good();
    let rounds = ran.numbers("latency", "ns a load");
    assert_eq!(rounds.len(), 2, "{rounds:?}");
    for line in rounds {
        let [rounds, min, avg, max] = line[..] else { panic!("{line:?}") };
        assert!((rounds - 3.0).abs() < 0.5, "{line:?}");
        // At one instruction a nanosecond, and a load and two or three more in a loop iteration.
        assert!(1.0 <= min && min <= avg && avg <= max && max < 8.0, "{line:?}");
    }
    let keys = "expect = [\"size=33554432: this VM has room for 31457280 bytes\"]";
    run(&system(&[vm("latency", 0, "latency", "size=33554432", keys)]), &["--for", "1s"]).good();
}

#[test]
fn a_throttled_load_takes_longer() {
    let latency = |keys: &str| {
        let arguments = format!("{SIZE} loads=30000 rounds=3");
        let ran = run(&system(&[vm("latency", 0, "latency", &arguments, keys)]), &[]).good();
        ran.numbers("latency", "ns a load")[0].clone()
    };
    let (free, throttled) = (
        latency(WIDE),
        latency(
            "memory_budget = { accesses = 1000, period = \"100us\", source = \"counter-page\" }",
        ),
    );
    // Each load is a refill, and 1000 of them take 100 us.
    assert!(free[2] < 10.0 && (95.0..106.0).contains(&throttled[2]), "{free:?} {throttled:?}");
}

#[test]
fn a_budget_without_a_counter_page_ends_its_vm() {
    not_applicable_if(|board| board.name != "qemu-virt", "it starts QEMU's virt itself");
    let text = r#"
platform = "qemu-virt"

[[vm]]
name = "memory-stressor"
cpus = [0]
memory = "8MiB"
image = { elf = "memory-stressor", args = "mode=read size=0x100000 passes=0" }
memory_budget = { accesses = 1000, period = "100us", source = "counter-page" }
on_fault = "stop-system"
"#;
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("stressor.img");
    build_image(text, &image);
    let qemu = std::env::var_os("WEIR_QEMU").unwrap_or_else(|| "qemu-system-aarch64".into());
    // Without the plug-in; the guest would run for ever.
    let mut machine = Command::new("timeout");
    machine.arg("60").arg(qemu).args(["-machine", "virt,virtualization=on,gic-version=3"]);
    machine.args([
        "-cpu",
        "cortex-a53",
        "-smp",
        "4",
        "-m",
        "2G",
        "-display",
        "none",
        "-monitor",
        "none",
    ]);
    machine.args(["-nodefaults", "-serial", "stdio", "-icount", "shift=0,sleep=off", "-kernel"]);
    let output = machine.arg(&image).output().expect("QEMU");
    assert!(output.status.success(), "the system did not end: {:?}", output.status);
}
