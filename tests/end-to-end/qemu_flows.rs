//! Flows in real runs: every byte arrives, in order, and a VM that breaks the rules affects itself
//! alone.

use crate::support::{
    board::{board, capture_on_board},
    capture_within, checkout,
    loss::Attack,
    qemu::{Load, build_programs, quiet_bounds, root, system, with},
};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// What a run left: `report.json`, all that the hypervisor wrote, the consoles by name; and, where
/// packets arrived, what their phases took. With the bounds of the flows if no other VM disturbs.
struct Ran {
    report: Value,
    wire: Vec<u8>,
    trace: Vec<u8>,
    consoles: Vec<(String, String)>,
    phases: Value,
    quiet_bounds: Vec<Option<u64>>,
}

impl Ran {
    /// Flow `index`: packets, lost.
    fn flow(&self, index: usize) -> [u64; 2] {
        let flow = &self.report["flows"][index];
        ["packets", "lost"].map(|key| flow[key].as_u64().expect("a count"))
    }

    /// The `key` of a phase of packets: `count`, or instructions: `min`, `max`.
    fn phase(&self, name: &str, key: &str) -> u64 {
        let phases = self.phases["phases"].as_array().expect("phases");
        let phase = phases.iter().find(|phase| phase["name"] == name).expect("a phase");
        let value = if key == "count" { &phase[key] } else { &phase["instructions"][key] };
        value.as_u64().expect("a number")
    }

    /// What follows `text` in the first line of a VM's console with it.
    fn behind(&self, vm: &str, text: &str) -> &str {
        let (_, console) = self.consoles.iter().find(|(name, _)| name == vm).expect("a console");
        let line = console.lines().find_map(|line| line.split_once(text));
        line.unwrap_or_else(|| panic!("{vm} does not say {text:?}: {console}")).1
    }

    fn vm(&self, name: &str) -> &Value {
        let vms = self.report["vms"].as_array().expect("VMs");
        vms.iter().find(|vm| vm["name"] == name).expect("a VM")
    }
}

/// Runs a system by the emulated clock until it ends itself, or until the time is over.
fn run(file: &Path, time: &str, arguments: &[&str]) -> Ran {
    let directory = tempfile::tempdir().expect("a directory");
    run_in(&root(), directory.path(), file, time, arguments)
}

/// Does the same with the programs of `checkout`, and leaves the run in `directory`, which has none.
/// Fails the test if a flow does not keep its bound or its deadline.
fn run_in(checkout: &Path, directory: &Path, file: &Path, time: &str, arguments: &[&str]) -> Ran {
    let ran = run_late_in(checkout, directory, file, time, arguments);
    for flow in ran.report["flows"].as_array().into_iter().flatten() {
        assert_ne!(flow["verdict"], "does-not-hold", "{flow}");
    }
    ran
}

/// Does as [`run_in`], for a test whose broker or sender breaks what the bounds assume: its flows
/// may be late.
fn run_late_in(
    checkout: &Path,
    directory: &Path,
    file: &Path,
    time: &str,
    arguments: &[&str],
) -> Ran {
    build_programs();
    let runs = directory.join("runs");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    // Some tests run systems with deadlines below the bound.
    command.arg("run").arg(file).args(["--no-build", "--keep-running", "-q", "--for", time]);
    command
        .args(["--ignore-verdict", "--accept-not-judged"])
        .args(arguments)
        .env("WEIR_ROOT", checkout)
        .env("WEIR_RUNS", &runs);
    let printed = capture_on_board(&mut command, file, Duration::from_secs(1200));
    let ran = only(&runs).unwrap_or_else(|| panic!("{}\n{}", printed.out, printed.err));
    let report = fs::read(ran.join("report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let console = |vm: &Value| {
        let name = vm["name"].as_str().expect("a name").to_owned();
        let log = fs::read(ran.join(format!("{name}.log"))).unwrap_or_default();
        (name, String::from_utf8_lossy(&log).into_owned())
    };
    let consoles = report["vms"].as_array().expect("VMs").iter().map(console).collect();
    let wire = fs::read(ran.join("wire.bin")).expect("the wire's bytes");
    let trace = fs::read(ran.join("trace.bin")).expect("a trace");
    let phases = serde_json::from_str(&output_of(&ran, &["report", "--overheads", "--json"]));
    let platform = arguments.windows(2).find(|pair| pair[0] == "--platform").map(|pair| pair[1]);
    let quiet_bounds = quiet_bounds(file, platform);
    Ran { report, wire, trace, consoles, phases: phases.unwrap_or_default(), quiet_bounds }
}

/// The run in a directory of runs.
fn only(runs: &Path) -> Option<PathBuf> {
    Some(fs::read_dir(runs).ok()?.next()?.ok()?.path())
}

/// The output of the command for a run.
fn output_of(ran: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    capture_within(command.args(arguments).arg(ran), Duration::from_secs(60)).out
}

/// The records of these kinds, as lines of CSV.
fn records(ran: &Path, kinds: &str) -> String {
    output_of(ran, &["trace", "--kind", kinds, "--format", "csv"])
}

fn run_text(text: &str, time: &str, arguments: &[&str]) -> Ran {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("system.toml");
    fs::write(&file, text).expect("a system file");
    run(&file, time, arguments)
}

/// A VM on core `core` with 2 MiB.
fn vm(name: &str, core: usize, guest: &str, arguments: &str, keys: &str) -> String {
    format!(
        "\n[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"2MiB\"\n\
         image = {{ elf = \"{guest}\", args = \"{arguments}\" }}\n{keys}\n"
    )
}

fn flow(name: &str, from: &str, to: &str, port: u32, keys: &str) -> String {
    format!(
        "\n[[flow]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\nport = {port}\n\
         size = \"4KiB\"\n{keys}\n"
    )
}

const PERIOD: &str = "period = \"200us\"\ndeadline = \"200us\"";

#[test]
fn packets_in_chains_of_any_length_arrive() {
    let period = "period = \"1ms\"\ndeadline = \"1ms\"";
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}",
        vm("sender", 0, "sender", "to=4 messages=256 size=4000 period_us=1000 cut=1", ""),
        vm("receiver", 1, "receiver", "bytes=1024000 streams=1", ""),
        flow("messages", "sender", "receiver", 5000, period),
    );
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("system.toml");
    fs::write(&file, text).expect("a system file");
    // The sender waits for room in its queue before a chain of 64 buffers, until its next period.
    let ran = run_late_in(&root(), directory.path(), &file, "60s", &[]);
    assert_eq!(ran.flow(0), [256, 0]);
    let sum = ran.behind("sender", "256 messages of 4000 bytes sent, sum ");
    let arrived = ran.behind("receiver", "1024000 bytes in order, sum ");
    assert_eq!(sum, arrived);
    assert_eq!(ran.report["totals"]["denials"], 0);
}

#[test]
fn ten_thousand_packets_arrive_in_order_on_both_gics() {
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}",
        vm("sender", 0, "sender", "to=4 messages=10000 size=700 period_us=200", ""),
        vm("receiver", 1, "receiver", "bytes=7000000 streams=1", ""),
        flow("messages", "sender", "receiver", 5000, PERIOD),
    );
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        let ran = run_text(&text, "60s", &["--platform", platform]);
        assert_eq!(ran.flow(0), [10_000, 0], "{platform}");
        let sum = ran.behind("sender", "10000 messages of 700 bytes sent, sum ");
        assert_eq!(ran.behind("receiver", "7000000 bytes in order, sum "), sum, "{platform}");
        assert_eq!(ran.report["totals"]["denials"], 0, "{platform}");
    }
}

/// Found by enumeration under the VM's configuration space: at both ends, or at one.
#[test]
fn ten_thousand_packets_arrive_over_pci_on_both_gics() {
    let pci = "vsock = \"pci\"";
    for (platform, sender, receiver) in
        [("qemu-virt", pci, pci), ("qemu-virt-gicv2", pci, pci), ("qemu-virt", "", pci)]
    {
        let text = format!(
            "platform = \"{platform}\"\n{}{}{}",
            vm("sender", 0, "sender", "to=4 messages=10000 size=700 period_us=200", sender),
            vm("receiver", 1, "receiver", "bytes=7000000 streams=1", receiver),
            flow("messages", "sender", "receiver", 5000, PERIOD),
        );
        let ran = run_text(&text, "60s", &[]);
        assert_eq!(ran.flow(0), [10_000, 0], "{platform}");
        let sum = ran.behind("sender", "10000 messages of 700 bytes sent, sum ");
        assert_eq!(ran.behind("receiver", "7000000 bytes in order, sum "), sum, "{platform}");
        assert_eq!(ran.report["totals"]["denials"], 0, "{platform}");
    }
}

/// The emulated clock is a function of the instructions, for any load of the host.
#[test]
fn runs_on_a_loaded_host_are_alike() {
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}",
        vm("sender", 0, "sender", "to=4 messages=40 size=4096 period_us=1000", ""),
        vm("receiver", 1, "receiver", "bytes=163840 streams=1", ""),
        flow("messages", "sender", "receiver", 5000, "period = \"1ms\""),
    );
    build_programs();
    let _load = Load::begin();
    let ran: Vec<Ran> = thread::scope(|scope| {
        let runs = || (0..6).map(|_| run_text(&text, "10s", &[])).collect::<Vec<_>>();
        let threads = [(); 4].map(|()| scope.spawn(runs));
        threads.into_iter().flat_map(|thread| thread.join().expect("runs")).collect()
    });
    assert_eq!(ran[0].flow(0), [40, 0]);
    for other in &ran[1..] {
        assert_eq!(ran[0].report, other.report);
        assert!(ran[0].consoles == other.consoles, "the VMs printed something else");
        assert!(ran[0].wire == other.wire, "the runs wrote other bytes");
        assert!(ran[0].trace == other.trace, "the runs left other traces");
    }
}

/// Without `--keep-running`: the flows' counts are those of the end, whether the system has a
/// heartbeat or not.
#[test]
fn a_counted_run_counts_every_packet_at_its_end() {
    for (system, packets) in [("flows-exact", 200), ("flows-mmio", 1000)] {
        let directory = tempfile::tempdir().expect("a directory");
        let json = directory.path().join("report.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("run").arg(checkout::system(system));
        command.arg("--output").arg(&json);
        command.env("WEIR_ROOT", root()).env("WEIR_RUNS", directory.path().join("runs"));
        let printed = capture_within(&mut command, Duration::from_secs(300));
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        let report: Value =
            serde_json::from_slice(&fs::read(json).expect("a report")).expect("JSON");
        assert_eq!(report["ended_by"], "all-met", "{system}");
        assert_eq!(report["flows"][0]["packets"], packets, "{system}");
    }
}

/// Overheads that a run of `system` has measured, as a file in `directory`.
fn measure(directory: &Path, system: &Path) -> PathBuf {
    measure_with(directory, system, None)
}

/// The overheads of the packets of two runs.
fn measure_with(directory: &Path, system: &Path, other: Option<&Path>) -> PathBuf {
    let run = |name: &str, system: &Path| {
        let directory = directory.join(name);
        run_in(&root(), &directory, system, "10s", &[]);
        only(&directory.join("runs")).expect("a run")
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["report", "--overheads"]).arg(run("one", system));
    if let Some(other) = other {
        command.arg("--with").arg(run("other", other));
    }
    let file = directory.join("overheads.toml");
    command.arg("-o").arg(&file);
    let printed = capture_within(&mut command, Duration::from_secs(60));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    file
}

/// A system of the tree with these overheads.
fn with_overheads(system: &str, overheads: &Path) -> String {
    let text =
        fs::read_to_string(checkout::system(system.trim_end_matches(".toml"))).expect("a system");
    let named = format!("[broker]\noverheads = \"{}\"\n", overheads.display());
    assert!(text.contains("[broker]\n") && !text.contains("overheads ="), "{system}");
    text.replace("[broker]\n", &named)
}

/// A system with flows has a bound without further keys, by the overheads of its board, in the run
/// and in the analysis; and where nothing disturbs it is tight.
#[test]
fn a_flow_has_a_bound_by_the_table_of_its_board() {
    let file = root().join("tests/systems/flows-exact.toml");
    let text = fs::read_to_string(&file).expect("a system");
    assert!(!text.contains("overheads"), "the board's table is to be used");
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        let ran = run(&file, "10s", &["--platform", platform]);
        holds(&ran, &[0]);
        let flow = &ran.report["flows"][0];
        let [observed_max, bound] =
            ["observed_max_ns", "bound_ns"].map(|key| flow[key].as_u64().expect("ns"));
        println!("{platform}: {observed_max} ns of {bound} ns");
        let directory = tempfile::tempdir().expect("a directory");
        let copy = directory.path().join("system.toml");
        fs::write(&copy, text.replace("\"qemu-virt\"", &format!("{platform:?}"))).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let printed =
            capture_within(command.args(["analyze", "--json"]).arg(&copy), Duration::from_secs(60));
        let json: Value = serde_json::from_str(&printed.out).expect("JSON");
        let task = &json["flows"]["tasks"][0];
        assert_eq!(task["bound_ns"], bound, "{platform}");
    }
}

/// The name of a row's flow.
fn name_of(row: &Value) -> Option<&str> {
    row["name"].as_str()?.split('/').next()
}

/// The issue's promise, judged by overheads of another run: no packet takes longer than its flow's
/// bound, and where the run is as bad as the analysis has to think (`tight`), the bound is no more
/// than twice what was measured.
fn holds(ran: &Ran, tight: &[usize]) {
    let flows = ran.report["flows"].as_array().expect("flows");
    for (index, flow) in flows.iter().enumerate() {
        let [observed_max, bound] = ["observed_max_ns", "bound_ns"].map(|key| flow[key].as_u64());
        let (observed_max, bound) = (observed_max.expect("a time"), bound.expect("a bound"));
        assert!(observed_max > 0 && observed_max <= bound, "{flow}");
        // No other VM disturbs in these runs.
        let quiet = ran.quiet_bounds[index].expect("a bound");
        assert!(quiet <= bound, "{quiet} of {flow}");
        // A bound is of the last receiver: `flow/receiver` are the names of those of one flow.
        let rows = flows.iter().filter(|row| name_of(row) == name_of(flow));
        let longest = rows.filter_map(|row| row["observed_max_ns"].as_u64()).max();
        let is_loose = 2 * longest.expect("a row") < quiet;
        assert!(!tight.contains(&index) || !is_loose, "the bound {quiet} is loose: {flow}");
    }
}

#[test]
fn latencies_are_within_tight_bounds() {
    let directory = tempfile::tempdir().expect("a directory");
    let overheads = measure(directory.path(), &root().join("tests/systems/flows-overheads.toml"));
    let text = with_overheads("flows-exact.toml", &overheads);
    let ran = run_text(&text, "10s", &[]);
    assert_eq!(ran.flow(0), [200, 0]);
    holds(&ran, &[0]);
    let flow = &ran.report["flows"][0];
    let observed_max = flow["observed_max_ns"].as_u64().expect("ns");
    let bound = ran.quiet_bounds[0].expect("a bound");
    assert!(observed_max * 100 >= 85 * bound, "the bound {bound} is loose: {flow}");
    // Longer ones, in chunks, and shorter ones.
    for (size, key, period) in [(65_000, "64KiB", 5000), (1, "1B", 1000)] {
        let text = text
            .replace("messages=200 size=4096", &format!("messages=30 size={size}"))
            .replace("period_us=1000", &format!("period_us={period}"))
            .replace("bytes=819200", &format!("bytes={}", 30 * size))
            .replace("\"4KiB\"", &format!("\"{key}\""));
        let ran = run_text(&text, "10s", &[]);
        assert_eq!(ran.flow(0), [30, 0]);
        holds(&ran, &[0]);
    }
}

/// With another schedule of the core that the broker shares than the system's own.
fn scheduled(text: &str, schedule: &str) -> String {
    let (before, rest) = text.split_once("schedule = ").expect("a schedule");
    let (_, behind) = rest.split_once("[broker]").expect("a broker");
    format!("{before}schedule = {schedule}\n\n[broker]{behind}")
}

/// By any schedule the flow keeps the bound for the time that is guaranteed to its broker next to
/// another VM that never sleeps; and that VM computes on. If the broker has priority, it takes the
/// core at once. Elsewhere packets wait for nearly all of the other's slot.
#[test]
fn a_broker_on_a_shared_core_keeps_the_bound() {
    let directory = tempfile::tempdir().expect("a directory");
    let overheads = measure(directory.path(), &root().join("tests/systems/flows-overheads.toml"));
    let own = with_overheads("flows-shared.toml", &overheads);
    // Two frames: each packet comes just behind the broker's slot. In round robin the broker's time
    // slices begin later after each packet, by the time that it took.
    let any = own.replace("period_us=1000 start_us=20000", "period_us=1200 start_us=19930");
    assert_ne!(any, own);
    let table = "{ kind = \"table\", major_frame = \"600us\", slots = [\n\
                 { vm = \"broker\", start = \"0us\", length = \"150us\" },\n\
                 { vm = \"other\", start = \"150us\", length = \"450us\" },\n] }";
    let round = "{ kind = \"round-robin\", quantum = \"400us\" }";
    for (text, waits) in
        [(own, false), (scheduled(&any, table), true), (scheduled(&any, round), true)]
    {
        let ran = run_text(&text, "10s", &[]);
        assert_eq!(ran.flow(0), [200, 0]);
        holds(&ran, if waits { &[0] } else { &[] });
        let flow = &ran.report["flows"][0];
        let [observed_max, bound] = ["observed_max_ns", "bound_ns"].map(|key| flow[key].as_u64());
        let (observed_max, bound) = (observed_max.expect("a time"), bound.expect("a bound"));
        println!("{observed_max} ns of {bound}");
        // In the bound is the longest that its budget can be away.
        assert_eq!(observed_max * 4 > bound, waits, "{flow}");
        let [sent, come] = ["sender", "receiver"].map(|vm| ran.behind(vm, ", sum "));
        assert_eq!(sent, come);
        assert!(ran.behind("other", "context: ").starts_with("8000 rounds, 0 damaged"));
        assert_eq!(ran.report["totals"]["faults"], 0);
    }
}

/// A time slice ends in the middle of copies, and another VM has the core before they go on.
#[test]
fn copies_continue_after_slots_of_others() {
    let text =
        fs::read_to_string(root().join("tests/systems/flows-shared.toml")).expect("a system");
    let text = text
        .replace("messages=200 size=4096 period_us=1000", "messages=60 size=65000 period_us=5037")
        .replace("bytes=819200", "bytes=3900000")
        .replace("\"4KiB\"", "\"64KiB\"");
    let table = "{ kind = \"table\", major_frame = \"60us\", slots = [\n\
                 { vm = \"broker\", start = \"0us\", length = \"20us\" },\n\
                 { vm = \"other\", start = \"20us\", length = \"40us\" },\n] }";
    // Slots as long as a switch promise the broker nothing.
    let ran = run_text(&scheduled(&text, table), "10s", &[]);
    assert_eq!(ran.flow(0), [60, 0]);
    let [sent, come] = ["sender", "receiver"].map(|vm| ran.behind(vm, ", sum "));
    assert_eq!(sent, come);
    assert!(ran.phase("copy", "max") > 40_000, "no copy was cut: {}", ran.phases);
    assert!(ran.behind("other", "context: ").starts_with("8000 rounds, 0 damaged"));
}

/// The same over PCI, by overheads of another run over PCI.
#[test]
fn no_packet_takes_longer_than_its_bound_over_pci() {
    let directory = tempfile::tempdir().expect("a directory");
    let over_pci = |text: &str| {
        let ends = text.replace("memory = \"2MiB\"", "memory = \"2MiB\"\nvsock = \"pci\"");
        assert!(ends.matches("vsock").count() >= 2);
        ends
    };
    let measured = fs::read_to_string(root().join("tests/systems/flows-overheads.toml"));
    let system = directory.path().join("overheads-pci.toml");
    fs::write(&system, over_pci(&measured.expect("a system"))).expect("a system file");
    let overheads = measure(directory.path(), &system);
    let ran = run_text(&over_pci(&with_overheads("flows-exact.toml", &overheads)), "10s", &[]);
    assert_eq!(ran.flow(0), [200, 0]);
    holds(&ran, &[0]);
}

/// Twelve flows between four VMs which all send at the same moment, so that each packet meets all
/// the others.
#[test]
fn twelve_simultaneous_flows_keep_their_bounds() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = fs::read_to_string(root().join("tests/systems/flows-mesh.toml")).expect("a system");
    let shorter = [("size=4096", "size=2000"), ("of 4096", "of 2000"), ("245760", "120000")];
    let shorter = shorter.iter().fold(text.clone(), |text, (from, to)| text.replace(from, to));
    let system = directory.path().join("shorter.toml");
    fs::write(&system, &shorter).expect("a system file");
    let overheads = measure(directory.path(), &system);
    let named = format!("[broker]\noverheads = \"{}\"\n", overheads.display());
    let text = text.replace("[broker]\n", &named);
    let ran = run_text(&text, "10s", &[]);
    (0..12).for_each(|flow| assert_eq!(ran.flow(flow), [20, 0]));
    for vm in ["north", "east", "south", "west"] {
        ran.behind(vm, "to each of 3 ends, got 245760 bytes in order");
    }
    holds(&ran, &[]);
    // The one that is moved last is nearly as late as the bound says, if no other VM disturbs. The
    // bound counts the measured maximum of each step for every packet.
    let flows = ran.report["flows"].as_array().expect("flows");
    let observed_max = flows.iter().filter_map(|flow| flow["observed_max_ns"].as_u64()).max();
    let observed_max = observed_max.expect("ns");
    let bound = ran.quiet_bounds.iter().flatten().copied().max().expect("a bound");
    assert!(observed_max * 100 >= 75 * bound, "the bound is loose: {observed_max} of {bound}");
}

/// Ten thousand packets over the mesh, none lost, each end's bytes in order.
#[test]
fn ten_thousand_packets_cross_the_mesh() {
    let text = fs::read_to_string(root().join("tests/systems/flows-mesh.toml")).expect("a system");
    let more = [
        ("messages=20 size=4096", "messages=834 size=4096 period_us=2000 lead_us=600"),
        ("sent 20 messages", "sent 834 messages"),
        ("245760 bytes", "10248192 bytes"),
        ("period = \"10ms\"", "period = \"2ms\""),
    ];
    let text = more.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let ran = run_text(&text, "10s", &[]);
    (0..12).for_each(|flow| assert_eq!(ran.flow(flow), [834, 0]));
    for vm in ["north", "east", "south", "west"] {
        ran.behind(vm, "to each of 3 ends, got 10248192 bytes in order");
    }
    assert_eq!(ran.report["totals"]["denials"], 0);
}

/// Each message is answered, a thousand times, on bare metal and between two Linux guests.
#[test]
fn messages_are_answered() {
    let ran = run(&root().join("tests/systems/flows-pingpong.toml"), "10s", &[]);
    assert!(ran.behind("ping", "1000 round trips of 64 bytes: min ").ends_with("0 bytes wrong"));
    ran.behind("pong", "answered 1000 messages of 64 bytes, 0 bytes wrong");
    assert_eq!([ran.flow(0), ran.flow(1)], [[1000, 0]; 2]);
    let ran = run(&root().join("tests/systems/flows-linux-latency.toml"), "30s", &[]);
    assert!(ran.behind("ping", "1000 round trips of 64 bytes: min ").ends_with("0 bytes wrong"));
    ran.behind("pong", "port 5002: 4194304 bytes in ");
    sums_agree(
        &ran,
        ["ping", "64 messages sent, 4194304 bytes, sum "],
        ["pong", "port 5002: 4194304 bytes in order, sum "],
    );
    assert_eq!(ran.report["totals"]["denials"], 0);
}

/// Debian's socat at both ends: what one gives the other takes.
#[test]
fn stock_socat_gives_and_takes() {
    let ran = run(&root().join("tests/systems/flows-linux-socat.toml"), "30s", &[]);
    let given = ran.behind("giver", "socat gave 800000 bytes, ");
    assert_eq!(ran.behind("taker", "socat took 800000 bytes, "), given);
    assert_eq!(ran.flow(0)[1], 0, "lost");
    assert_eq!(ran.report["totals"]["denials"], 0);
}

/// One that sends to several.
fn flow_to(name: &str, from: &str, to: &[&str], keys: &str) -> String {
    let flow = flow(name, from, "?", 5000, keys);
    flow.replace("\"?\"", &format!("{to:?}"))
}

/// Several receivers of one sender's packets: two get every byte, one of them over PCI; the third
/// dies, begins anew, and is in from the packet on that comes when it has accepted.
#[test]
fn multicast_reaches_all_and_restarted_receivers() {
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        let file = root().join("examples/flows-multicast/flows-multicast.toml");
        let ran = run(&file, "5s", &["--platform", platform]);
        for (index, name) in ["north", "south"].into_iter().enumerate() {
            sums_agree(
                &ran,
                ["sender", "1000 messages of 4096 bytes sent, sum "],
                [name, "4096000 bytes in order, sum "],
            );
            assert_eq!(ran.flow(index), [1000, 0], "{name}");
        }
        let joined = ran.behind("west", "bytes in order from byte ");
        let from: u64 = joined.split(' ').next().and_then(|at| at.parse().ok()).expect("a place");
        assert!((409_600..4_096_000).contains(&from), "{from}");
        assert_eq!(ran.vm("west")["restarts"], 1);
        let dropped = [0, 1, 2].map(|flow| ran.report["flows"][flow]["dropped"].clone());
        assert_eq!(dropped, [0, 0, 0], "no receiver was slow");
        assert_eq!(ran.report["totals"]["denials"], 0);
    }
}

/// One that leaves everything in its ring, and one without a reader: both are dropped, and the
/// third misses nothing.
#[test]
fn a_slow_receiver_is_dropped_without_loss_to_others() {
    let linux = "weir.run=receive weir.receive=port=5000,streams=1,pause_ms=2000";
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}{}\n[[vm]]\nname = \"linux\"\ncpus = [3]\n\
         memory = \"128MiB\"\nimage = {{ linux = \"debian-rt\", initrd = \"debian-vsock\", cmdline \
         = \"console=ttyAMA0 kpti=off cryptomgr.notests quiet {linux}\" }}\n",
        vm(
            "sender",
            0,
            "sender",
            "to=256 messages=1000 size=4096 period_us=1000 connect_us=1500000",
            "on_fault = \"stop-system\""
        ),
        vm("good", 1, "receiver", "bytes=4096000 streams=1", ""),
        vm("miser", 2, "receiver", "hoard=409600", ""),
        flow_to("orders", "sender", &["good", "miser", "linux"], "period = \"1ms\""),
    );
    let ran = run_text(&text, "4s", &[]);
    sums_agree(
        &ran,
        ["sender", "1000 messages of 4096 bytes sent, sum "],
        ["good", "4096000 bytes in order, sum "],
    );
    assert_eq!(ran.flow(0), [1000, 0]);
    let flows = &ran.report["flows"];
    assert_eq!(flows[0]["dropped"], 0);
    for (index, most) in [(1, 200), (2, 999)] {
        let [packets, dropped] = ["packets", "dropped"].map(|key| flows[index][key].as_u64());
        assert!(dropped > Some(0), "{flows}");
        assert!(packets > Some(0) && packets <= Some(most), "{flows}");
    }
}

/// One transfer for each receiver, and the bound holds for the last of them.
#[test]
fn no_receiver_waits_longer_than_its_flows_bound() {
    let directory = tempfile::tempdir().expect("a directory");
    let [one, other] = ["overheads", "several"]
        .map(|name| root().join(format!("tests/systems/flows-{name}.toml")));
    let overheads = measure_with(directory.path(), &one, Some(&other));
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}{}\n[dma]\npath = \"broker\"\n[broker]\ncpus = [3]\n\
         overheads = \"{}\"\n[hypervisor]\nconsole_core = 4\nheartbeat = \"0s\"\n",
        vm(
            "sender",
            0,
            "sender",
            "to=256 messages=200 size=4096 period_us=1000 connect_us=10000 start_us=20000",
            ""
        ),
        vm("north", 1, "receiver", "bytes=819200 streams=1", ""),
        vm("south", 2, "receiver", "bytes=819200 streams=1", ""),
        flow_to("orders", "sender", &["north", "south"], "period = \"1ms\"\ndeadline = \"500us\""),
        overheads.display(),
    );
    let ran = run_text(&text, "10s", &[]);
    assert_eq!([ran.flow(0), ran.flow(1)], [[200, 0]; 2]);
    holds(&ran, &[0, 1]);
}

/// Next to a flow that keeps the rules: `culprits`, VMs and flows, of which each sleeps whenever it
/// can. Nothing is printed during that.
fn next_to(culprits: &str, overheads: &Path) -> Ran {
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{culprits}{}\n[dma]\npath = \"broker\"\n[broker]\n\
         cpus = [6]\noverheads = \"{}\"\n[hypervisor]\nconsole_core = 7\nheartbeat = \"200ms\"\n",
        vm(
            "good",
            0,
            "sender",
            "to=4 messages=150 size=4096 period_us=1000 start_us=20000",
            "on_fault = \"stop-system\""
        ),
        // It runs to the end, for any connections.
        vm("receiver", 1, "receiver", "bytes=614400 ports=2", ""),
        flow("good", "good", "receiver", 5000, "period = \"1ms\"\ndeadline = \"300us\""),
        overheads.display(),
    );
    run_text(&text, "300ms", &[])
}

#[test]
fn malicious_drivers_leave_bounds_intact() {
    let directory = tempfile::tempdir().expect("a directory");
    let overheads = measure(directory.path(), &root().join("tests/systems/flows-overheads.toml"));
    let own = "period = \"100us\"\ndeadline = \"100us\"";
    let short = |text: String| text.replace("size = \"4KiB\"", "size = \"64B\"");
    let flood = format!(
        "{}{}{}",
        vm("flooder", 2, "sender", "to=6 messages=1000000 size=64 period_us=0", ""),
        vm("drain", 3, "receiver", "", ""),
        short(flow("flood", "flooder", "drain", 5000, own)),
    );
    let malicious = |arguments: &str, transport, period: &str| {
        let keys = format!("period = \"{period}\"\ndeadline = \"{period}\"");
        format!(
            "{}{}",
            vm("malicious", 2, "malicious-driver", arguments, transport),
            flow("malicious", "malicious", "receiver", 5001, &keys),
        )
    };
    // Over before the counts are reported.
    let controls = malicious("rounds=880 every_us=200 controls=16 from=5 to=4", "", "1ms");
    // At all places of a period by and by.
    let often = "rounds=1000000 every_us=190";
    let over_pci = "vsock = \"pci\"";
    let hoard = format!(
        "{}{}{}",
        vm("giver", 2, "sender", "to=6 messages=1000 size=64 period_us=100", ""),
        vm("miser", 3, "receiver", "hoard=640", ""),
        short(flow("hoard", "giver", "miser", 5000, own)),
    );
    for (name, culprits) in [
        ("flood", flood),
        ("control packets", controls),
        ("malicious driver", malicious(often, "", "100us")),
        ("malicious driver over PCI", malicious(often, over_pci, "100us")),
        ("hoard", hoard),
    ] {
        let ran = next_to(&culprits, &overheads);
        let flows = &ran.report["flows"];
        assert_eq!(flows[1]["name"], "good");
        assert_eq!(ran.flow(1), [150, 0], "next to {name}");
        let [observed_max, bound] =
            ["observed_max_ns", "bound_ns"].map(|key| flows[1][key].as_u64());
        let (observed_max, bound) = (observed_max.expect("a time"), bound.expect("a bound"));
        // Steps of the broker's alone: no lock in them, and no hypercall.
        let steps = ["ps", "copy"].map(|phase| ran.phase(phase, "max"));
        println!(
            "next to {name}: {observed_max} ns of {bound}; its steps up to {steps:?}, {} waits for \
             a lock",
            ran.phase("lock", "count")
        );
        assert!(observed_max > 0 && observed_max <= bound, "next to {name}: {flows}");
        let time = ran.report["time_ns"].as_u64().expect("a time");
        match name {
            "flood" => {
                // As fast as the driver can, which is every few microseconds: one a period, and no
                // more.
                let most = time / 100_000 + 1;
                let packets = flows[0]["packets"].as_u64().expect("a count");
                assert!((most / 4..=most).contains(&packets), "{packets} of {most}");
            }
            "hoard" => {}
            _ => {
                let denied =
                    ran.vm("malicious")["denials"]["malformed or disallowed packet"].as_u64();
                let denied = denied.unwrap_or(0);
                if name == "control packets" {
                    // 64 at once, and as many in eight periods of a millisecond.
                    let sent = ran
                        .behind("malicious", "malicious-driver: ")
                        .split(' ')
                        .next()
                        .map(str::parse);
                    let sent: u64 = sent.expect("a word").expect("a number");
                    let (passed, most) = (sent - denied, 64 + 8 * time.div_ceil(1_000_000));
                    assert!((most / 4..=most).contains(&passed) && sent > 4 * most, "{passed}");
                } else {
                    assert!(denied > 500, "the malicious driver is at work: {denied}");
                }
            }
        }
    }
}

/// Of best effort, so that only the bucket holds it up: its own, or the engine's.
#[test]
fn a_flow_and_the_engine_keep_their_bandwidth() {
    let text = |flow_keys: &str, engine: &str| {
        format!(
            "platform = \"qemu-virt\"\n{}{}{}\n[dma]\npath = \"broker\"\n{engine}\n",
            vm("sender", 0, "sender", "to=4 messages=200 size=1000 period_us=10", ""),
            vm("receiver", 1, "receiver", "bytes=200000 streams=1", ""),
            flow("lazy", "sender", "receiver", 5000, &format!("best_effort = true\n{flow_keys}")),
        )
    };
    let limit = "bandwidth = \"2MB/s\"";
    for (text, least, most) in [
        (text("", ""), 0, 60_000_000),
        // All but the burst, at 2 bytes a microsecond.
        (text(limit, ""), 97_000_000, 140_000_000),
        (text("", limit), 97_000_000, 140_000_000),
    ] {
        let ran = run_text(&text, "10s", &[]);
        assert_eq!(ran.flow(0), [200, 0]);
        let time = ran.report["time_ns"].as_u64().expect("a time");
        assert!((least..most).contains(&time), "{time}: {text}");
    }
}

/// Two VMs break the rules next to a flow that keeps them: one sends to a port that is not its
/// flow's, one breaks its rings.
#[test]
fn a_vm_that_breaks_the_rules_affects_itself_alone() {
    for (transport, name) in [("", "MMIO"), ("vsock = \"pci\"", "PCI")] {
        breaks_the_rules_over(transport, name);
    }
}

fn breaks_the_rules_over(transport: &str, name: &str) {
    let ends = format!("{transport}\nexpect = [\"malicious-driver: 2000 rounds over {name}\"]");
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}{}{}{}{}",
        vm("sender", 0, "sender", "to=6 messages=500 size=700 period_us=200", ""),
        vm("stray", 1, "sender", "to=6 port=5002 messages=1", ""),
        vm("malicious", 2, "malicious-driver", "rounds=2000", &ends),
        vm("receiver", 3, "receiver", "bytes=350000 streams=1", ""),
        flow("messages", "sender", "receiver", 5000, PERIOD),
        flow("astray", "stray", "receiver", 5001, PERIOD),
        flow("malicious", "malicious", "receiver", 5001, PERIOD),
    );
    let ran = run_text(&text, "2s", &[]);
    assert_eq!(ran.flow(0), [500, 0]);
    assert_eq!(ran.flow(1), [0, 0]);
    let sum = ran.behind("sender", "500 messages of 700 bytes sent, sum ");
    assert_eq!(ran.behind("receiver", "350000 bytes in order, sum "), sum);
    ran.behind("malicious", &format!("2000 rounds over {name}"));
    for name in ["stray", "malicious"] {
        let refused = &ran.vm(name)["denials"]["malformed or disallowed packet"];
        assert!(refused.as_u64() > Some(10), "{name}: {refused}");
    }
    assert!(ran.vm("sender")["denials"].as_object().is_some_and(serde_json::Map::is_empty));
    assert_eq!(ran.report["totals"]["faults"], 0);
}

/// A sender and a receiver that die in the middle of a flow: the other end is reset, and the flow
/// starts again after the restart.
#[test]
fn an_end_that_restarts_resets_the_other() {
    for (sender, receiver) in [("crash=50", ""), ("", "crash=20000")] {
        let restart = "on_fault = \"restart\"";
        let text = format!(
            "platform = \"qemu-virt\"\n{}{}{}",
            vm(
                "sender",
                0,
                "sender",
                &format!("to=4 messages=200 size=700 period_us=200 {sender}"),
                restart
            ),
            vm("receiver", 1, "receiver", &format!("bytes=140000 {receiver}"), restart),
            flow("messages", "sender", "receiver", 5000, PERIOD),
        );
        let ran = run_text(&text, "1s", &[]);
        let sum = ran.behind("sender", "200 messages of 700 bytes sent, sum ");
        assert_eq!(ran.behind("receiver", "140000 bytes in order, sum "), sum);
        assert_eq!(ran.report["totals"]["restarts"], 1);
        assert_eq!(ran.vm("broker")["state"], "running");
        if !receiver.is_empty() {
            ran.behind("sender", "the connection was reset");
        }
    }
}

/// An end with a budget that is spent in the midst of every packet stands still for the rest of
/// each period: nothing of its flow is lost, and no other component's waits.
#[test]
fn a_throttled_end_delays_no_other_flow() {
    let budget = "memory_budget = { event = \"cycles\", accesses = 50000, period = \"1ms\" }";
    for (sender, receiver) in [(budget, ""), ("", budget)] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("system.toml");
        let text = format!(
            "platform = \"qemu-virt\"\n{}{}{}{}{}{}",
            vm("giver", 0, "sender", "to=4 messages=200 size=4096 period_us=200", sender),
            vm("taker", 1, "receiver", "bytes=819200 streams=1", receiver),
            vm("sender", 2, "sender", "to=6 messages=500 size=700 period_us=200", ""),
            vm("receiver", 3, "receiver", "bytes=350000 streams=1", ""),
            flow("slow", "giver", "taker", 5000, PERIOD),
            flow("messages", "sender", "receiver", 5000, PERIOD),
        );
        fs::write(&file, text).expect("a system file");
        let ran = run_in(&root(), directory.path(), &file, "2s", &[]);
        let throttled = records(&only(&directory.path().join("runs")).expect("a run"), "throttle");
        assert!(throttled.lines().count() > 200, "it stood still: {throttled}");
        assert_eq!([ran.flow(0), ran.flow(1)], [[200, 0], [500, 0]]);
        sums_agree(
            &ran,
            ["giver", "200 messages of 4096 bytes sent, sum "],
            ["taker", "819200 bytes in order, sum "],
        );
        sums_agree(
            &ran,
            ["sender", "500 messages of 700 bytes sent, sum "],
            ["receiver", "350000 bytes in order, sum "],
        );
        assert_eq!(ran.vm("broker")["state"], "running");
    }
}

/// What each VM of a run prints, and the VMs that must print the same sum.
fn sums_agree(ran: &Ran, from: [&str; 2], to: [&str; 2]) {
    let sum = |behind: &str| behind[..16].to_owned();
    assert_eq!(sum(ran.behind(from[0], from[1])), sum(ran.behind(to[0], to[1])));
}

/// Debian's kernel with its own modules at one end, weir's guests at the other; messages from 1 B
/// to 1 MiB.
#[test]
fn linux_sends_to_bare_metal_and_receives_from_it() {
    let ran = run(&root().join("examples/flows-linux/flows-linux.toml"), "60s", &[]);
    assert_eq!(ran.report["verdict"], "holds");
    sums_agree(
        &ran,
        ["linux", "27 messages sent, 3419439 bytes, sum "],
        ["receiver", "port 5000: 3419439 bytes in order, sum "],
    );
    sums_agree(
        &ran,
        ["sender", "1000 messages of 4096 bytes sent, sum "],
        ["linux", "port 5001: 4096000 bytes in order, sum "],
    );
    ran.behind("linux", "linux: done");
    assert_eq!([ran.flow(0)[1], ran.flow(1)[1]], [0, 0], "lost");
    assert_eq!(ran.report["totals"]["denials"], 0);
}

/// The same kernel with its modules for PCI, which are taken out and put back in between.
#[test]
fn linux_sends_and_receives_over_pci() {
    let ran = run(&root().join("tests/systems/flows-pci-linux.toml"), "60s", &[]);
    sums_agree(
        &ran,
        ["linux", "27 messages sent, 3419439 bytes, sum "],
        ["receiver", "port 5000: 3419439 bytes in order, sum "],
    );
    ran.behind("linux", "linux: all modules are back");
    sums_agree(
        &ran,
        ["sender", "1000 messages of 4096 bytes sent, sum "],
        ["linux", "port 5001: 4096000 bytes in order, sum "],
    );
    ran.behind("linux", "linux: done");
    assert_eq!([ran.flow(0)[1], ran.flow(1)[1]], [0, 0], "lost");
    assert_eq!(ran.report["totals"]["denials"], 0);
}

/// 200 connections, eight at a time; sockets that keep messages apart; every module out and in
/// again at both ends; and a receiver that does not read, so that the sender runs out of credit.
#[test]
fn linux_sends_to_linux_after_a_module_reload() {
    let ran = run(&root().join("tests/systems/flows-linux-linux.toml"), "60s", &[]);
    for (sent, received) in [
        ("27 messages sent, 3419439 bytes, sum ", "port 5000: 3419439 bytes in order, sum "),
        ("20 messages sent, 2000000 bytes, sum ", "port 5000: 2000000 bytes in order, sum "),
        ("1000 messages sent, 1000000 bytes, sum ", "port 5000: 1000000 bytes in order, sum "),
    ] {
        sums_agree(&ran, ["sender", sent], ["receiver", received]);
    }
    // ECONNRESET, if it asks before the other end listens.
    let (_, sender) = ran.consoles.iter().find(|(name, _)| name == "sender").expect("a console");
    for (_, error) in sender.lines().filter_map(|line| line.split_once("no listener yet, error ")) {
        assert_eq!(error.trim_end(), "104");
    }
    let apart = ran.behind("receiver", "port 5000: 2000000 bytes in order, sum ");
    assert_eq!(&apart[16..], ", 20 messages");
    ran.behind("sender", "200 connections, 3000000 bytes sent");
    ran.behind("receiver", "port 5000: 200 streams, 3000000 bytes, 0 wrong");
    for name in ["sender", "receiver"] {
        ran.behind(name, "linux: all modules are out");
        ran.behind(name, "linux: done");
    }
    assert_eq!(ran.flow(0)[1], 0, "lost");
    assert_eq!(ran.report["totals"]["denials"], 0);
}

/// The other end dies: a Linux that sends gets EPIPE or ECONNRESET, and one that receives the end
/// of the stream; both continue after the restart.
#[test]
fn linux_sees_that_the_other_end_has_died() {
    let restart = "on_fault = \"restart\"";
    let linux = "weir.run=send,receive,poweroff \
                 weir.send=to=4,messages=200,size=1000,period_us=500 \
                 weir.receive=port=5001,streams=2";
    let text = format!(
        "platform = \"qemu-virt\"\n\n[[vm]]\nname = \"linux\"\ncpus = [0]\nmemory = \"128MiB\"\n\
         image = {{ linux = \"debian-rt\", initrd = \"debian-vsock\", \
         cmdline = \"console=ttyAMA0 kpti=off cryptomgr.notests quiet {linux}\" }}\n{}{}{}{}",
        vm("receiver", 1, "receiver", "bytes=200000 streams=1 crash=50000", restart),
        vm(
            "sender",
            2,
            "sender",
            "to=3 port=5001 messages=200 size=1000 period_us=200 crash=100",
            restart
        ),
        flow("out", "linux", "receiver", 5000, PERIOD),
        flow("in", "sender", "linux", 5001, PERIOD),
    );
    let ran = run_text(&text, "60s", &[]);
    let errno = ran.behind("linux", "the connection was reset, error ");
    assert!(["32", "104"].contains(&errno), "{errno}");
    sums_agree(
        &ran,
        ["linux", "200 messages sent, 200000 bytes, sum "],
        ["receiver", "port 5000: 200000 bytes in order, sum "],
    );
    sums_agree(
        &ran,
        ["sender", "200 messages of 1000 bytes sent, sum "],
        ["linux", "port 5001: 200000 bytes in order, sum "],
    );
    let (_, console) = ran.consoles.iter().find(|(name, _)| name == "linux").expect("a console");
    let ends =
        console.lines().filter(|line| line.contains("port 5001: ") && line.contains(" in order"));
    assert_eq!(ends.count(), 2, "one ended early: {console}");
    ran.behind("linux", "linux: done");
    assert_eq!(ran.report["totals"]["restarts"], 2);
}

/// Debian's kernel suspends to idle in the middle of sending, and again of receiving. Its driver
/// frees its rings then, so both ends are informed that the connection is closed, and the next one
/// transfers everything from the beginning.
#[test]
fn a_linux_suspend_resets_the_connection() {
    a_suspend_resets(&suspended(), "30 messages of 1000 bytes sent, sum ");
}

#[test]
fn a_linux_suspend_resets_it_over_pci() {
    let over_pci =
        with(&suspended(), "devices = [\"rtc\"]", "devices = [\"rtc\"]\nvsock = \"pci\"");
    a_suspend_resets(&over_pci, "30 messages of 1000 bytes sent, sum ");
}

#[test]
fn a_linux_suspend_resets_it_among_linux() {
    a_suspend_resets(&among_linux(&suspended()), "30 messages sent, 30000 bytes, sum ");
}

fn suspended() -> String {
    system("flows-linux-suspend")
}

fn a_suspend_resets(text: &str, sent: &str) {
    let ran = run_text(text, "60s", &[]);
    let reset = |vm: &str, port: &str| {
        let errno = ran.behind(vm, &format!("{port}the connection was reset, error "));
        assert!(["32", "104", "107"].contains(&errno), "{vm}: {errno}");
    };
    reset("linux", "linux: ");
    reset("linux", "linux: port 5001: ");
    if sent.contains("of 1000") {
        ran.behind("sender", "sender: the connection was reset");
    } else {
        reset("sender", "linux: ");
    }
    sums_agree(
        &ran,
        ["linux", "30 messages sent, 30000 bytes, sum "],
        ["receiver", "port 5000: 30000 bytes in order, sum "],
    );
    sums_agree(&ran, ["sender", sent], ["linux", "port 5001: 30000 bytes in order, sum "]);
    ran.behind("linux", "linux: suspends: 2, failed: 0");
    ran.behind("linux", "linux: done");
    for name in ["linux", "receiver", "sender"] {
        assert_eq!(ran.vm(name)["state"], "off", "{name}");
    }
    assert_eq!(ran.report["totals"]["denials"], 0);
    assert_eq!(ran.report["totals"]["faults"], 0);
}

/// The same system with Linux at the other ends, too: these stay awake.
fn among_linux(text: &str) -> String {
    let linux = |run: &str| {
        format!(
            "memory = \"128MiB\"\nimage = {{ linux = \"debian-rt\", initrd = \"debian-vsock\", \
             cmdline = \"console=ttyAMA0 kpti=off cryptomgr.notests quiet {run},poweroff\" }}\n"
        )
    };
    let mut text = text.to_owned();
    for (guest, run) in [
        ("receiver", "weir.receive=streams=2 weir.run=receive"),
        ("sender", "weir.send=to=3,port=5001,messages=30,size=1000,period_us=20000 weir.run=send"),
    ] {
        let from = text.find(&format!("name = \"{guest}\"")).expect("a VM");
        let from = from + text[from..].find("memory").expect("its memory");
        let to = from + text[from..].find("\n\n").expect("its end");
        text.replace_range(from..to, &linux(run));
    }
    text
}

/// Sender, receiver, broker and weir each in their own cache colors: what EL2 and the broker reach
/// of the VMs' memory follows the page classes.
#[test]
fn flows_go_between_cache_colors_on_both_gics() {
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        let file = root().join("tests/systems/flows-colored.toml");
        let ran = run(&file, "30s", &["--platform", platform]);
        sums_agree(
            &ran,
            ["sender", "1000 messages of 4096 bytes sent, sum "],
            ["receiver", "port 5000: 4096000 bytes in order, sum "],
        );
        assert_eq!(ran.flow(0), [1000, 0], "{platform}");
        assert_eq!(ran.report["totals"]["denials"], 0, "{platform}");
    }
}

/// Runs a system with `guests/tests/slow-receiver` in the broker's place.
fn run_with_slow_receiver(text: &str, time: &str) -> Ran {
    run_with_broker("slow-receiver", text, time)
}

/// Runs a system with another guest in the broker's place: in a checkout that has another program
/// by that name.
fn run_with_broker(guest: &str, text: &str, time: &str) -> Ran {
    build_programs();
    let checkout = tempfile::tempdir().expect("a directory");
    let (from, to) = (root(), checkout.path());
    for name in ["hypervisor", "core", "host", "guests", "boards", "Cargo.toml"] {
        symlink(from.join(name), to.join(name)).expect("a link");
    }
    let programs = to.join("build/programs");
    fs::create_dir_all(&programs).expect("a directory");
    let platform = text.split('"').nth(1).expect("the platform comes first").to_owned();
    let platform = if platform == "qemu-virt" { board().name } else { platform };
    let hypervisor = format!("weir-hypervisor-{platform}");
    for name in [&hypervisor, "control", "sender", "receiver", "station", "storms"] {
        fs::copy(from.join("build/programs").join(name), programs.join(name)).expect(name);
    }
    fs::copy(from.join("build/programs").join(guest), programs.join("broker")).expect(guest);
    let file = to.join("system.toml");
    fs::write(&file, text).expect("a system file");
    run_late_in(to, to, &file, time, &[])
}

/// A compromised broker says without end that it accesses the memory of a VM that resets its device
/// without end, and is never busy for as long as EL2 stops it for; at last it is. The VM waits in
/// its own slots: its neighbor begins each of its slots as next to a VM that computes, but for a
/// section of EL2. The device is a port of the switch, or that of a flow.
#[test]
fn a_busy_broker_takes_no_slot_of_a_neighbor() {
    for in_flow in [false, true] {
        a_broker_is_busy(in_flow);
    }
}

fn a_broker_is_busy(in_flow: bool) {
    const SLOTS: &str = r#"
[[core]]
id = 0
schedule = { kind = "table", major_frame = "1ms", slots = [{ vm = "control", start = "0us", length = "500us" }, { vm = "storms", start = "500us", length = "500us" }] }
"#;
    let port = |number: u8| format!("net = {{ mac = \"52:54:00:00:00:{number:02x}\" }}");
    let run = |kind: &str| {
        let args = "activations=150 report=150 phase_us=0";
        let control = vm("control", 0, "control", args, "");
        let others = if in_flow {
            [
                vm("storms", 0, "storms", kind, ""),
                vm("other", 1, "receiver", "bytes=1", ""),
                flow("messages", "storms", "other", 5000, PERIOD),
            ]
        } else {
            [
                vm("storms", 0, "storms", kind, &port(1)),
                vm("other", 1, "station", "to=52:54:00:00:00:01 frames=0", &port(2)),
                String::new(),
            ]
        };
        let text = format!("platform = \"qemu-virt\"\n{control}{}{SLOTS}", others.concat());
        let ran = run_with_broker("busy-broker", &text, "400ms");
        assert!(ran.behind("control", "150 activations, ").starts_with("0 misses"), "{kind}");
        let longest = ran.behind("control", " max ").split(' ').next().map(str::parse::<u64>);
        (ran, longest.expect("a number").expect("a number"))
    };
    let (_, quiet) = run("kind=nothing");
    let (ran, longest) = run("kind=reset");
    ran.behind("broker", "busy-broker: 4 times busy");
    assert_eq!(ran.vm("broker")["state"], "halted", "it was busy for too long");
    println!("{longest} ns, {quiet} next to a VM that computes");
    let guest = if in_flow {
        "busy-broker, storms kind=reset in a flow"
    } else {
        "busy-broker, storms kind=reset"
    };
    Attack { guest, core: "shared" }.assert_late(longest, quiet);
}

/// A compromised broker writes claims of all kinds to what it shares with EL2, then reads RAM of a
/// VM that it does not serve: it stops there, EL2 goes on, and that VM misses nothing. The VMs that
/// it serves get interrupts without a cause at most.
#[test]
fn a_rogue_broker_reaches_only_the_vms_it_serves() {
    let port = |number: u8| format!("net = {{ mac = \"52:54:00:00:00:{number:02x}\" }}");
    let switch = [
        vm("one", 0, "station", "to=52:54:00:00:00:02 frames=20", &port(1)),
        vm("two", 1, "station", "to=52:54:00:00:00:01 frames=20", &port(2)),
        String::new(),
    ];
    let flows = [
        vm("one", 0, "sender", "to=4 messages=60 size=700 period_us=1000", ""),
        vm("two", 1, "receiver", "bytes=42000", ""),
        flow("messages", "one", "two", 5000, PERIOD),
    ];
    // The ZCU102 has a DMA engine, which the broker may not have go elsewhere either.
    let [one, two, more] = &flows;
    let engine = [
        one.clone(),
        two.clone(),
        format!("{more}\n[dma]\npath = \"dma\"\nengine_from = \"0B\"\n"),
    ];
    for (platform, [one, two, more]) in
        [("qemu-virt", switch), ("qemu-virt", flows), ("zcu102", engine)]
    {
        let control = vm("control", 2, "control", "activations=300", "");
        let text = format!("platform = \"{platform}\"\n{one}{two}{control}{more}");
        let ran = run_with_broker("rogue-broker", &text, "500ms");
        if more.contains("[dma]") {
            assert_eq!(ran.behind("broker", "rogue-broker: 0 transfers"), " granted");
            assert_eq!(ran.behind("broker", "rogue-broker: begun true, another "), "false");
        }
        ran.behind("broker", "rogue-broker: claims made");
        let broker = ran.vm("broker");
        assert_eq!(broker["state"], "halted");
        assert_eq!(broker["faults"][0]["kind"], "read outside its memory");
        let (_, console) = ran.consoles.iter().find(|(name, _)| name == "broker").expect("one");
        assert!(!console.contains("rogue-broker: read"), "{console}");
        assert!(ran.behind("control", "300 activations, ").starts_with("0 misses"));
        assert_eq!(ran.vm("control")["denials"], serde_json::json!({}));
        for name in ["one", "two"] {
            assert_eq!(ran.vm(name)["state"], "running", "{}", ran.vm(name));
            assert_eq!(ran.vm(name)["restarts"], 0);
        }
    }
}

/// Each copy takes 3 ms, so that a VM restarts in the middle of one. Nothing from before the
/// restart comes into a stream after it.
#[test]
fn an_endpoint_restart_waits_for_its_chunk() {
    // A broker that shares its core has each copy cut into pieces.
    let next_to = vm("control", 2, "control", "activations=500", "");
    let shared = format!("{next_to}{SHARED}");
    for (sender, receiver, more) in [
        ("crash=5", "streams=2", ""),
        ("", "streams=1 crash=5000", ""),
        ("crash=5", "streams=2", &shared),
        ("", "streams=1 crash=5000", &shared),
    ] {
        let restart = "on_fault = \"restart\"";
        let sending = format!("to=4 messages=20 size=1000 period_us=3000 {sender}");
        let text = format!(
            "platform = \"qemu-virt\"\n{}{}{}{more}",
            vm("sender", 0, "sender", &sending, restart),
            vm("receiver", 1, "receiver", &format!("bytes=20000 {receiver}"), restart),
            flow("messages", "sender", "receiver", 5000, PERIOD),
        );
        let ran = run_with_slow_receiver(&text, "2s");
        let sum = ran.behind("sender", "20 messages of 1000 bytes sent, sum ");
        assert_eq!(ran.behind("receiver", "20000 bytes in order, sum "), sum);
        assert_eq!(ran.report["totals"]["restarts"], 1);
        assert_eq!(ran.report["totals"]["faults"], 1, "the broker goes on");
    }
}

/// The slow receiver makes each transfer of the DMA engine fail. The packet is lost, both ends lose
/// their connection and make a new one, and what the core copies arrives.
#[test]
fn a_failing_engine_disturbs_no_other_flow() {
    let keys = "period = \"10ms\"\ndeadline = \"10ms\"";
    let text = format!(
        "platform = \"zcu102\"\n{}{}{}{}{}\n[dma]\npath = \"dma\"\nengine_from = \"2KiB\"\n",
        vm("long", 0, "sender", "to=5 messages=20 size=4096 period_us=10000", ""),
        vm("short", 1, "sender", "to=5 port=5001 messages=20 size=700 period_us=10000", ""),
        vm("receiver", 2, "receiver", "ports=2 bytes=14000", ""),
        flow("long", "long", "receiver", 5000, keys),
        flow("short", "short", "receiver", 5001, keys),
    );
    let ran = run_with_slow_receiver(&text, "1200ms");
    ran.behind("long", "sender: the connection was reset");
    assert_eq!(ran.flow(0)[0], 0, "none arrived");
    assert!(ran.flow(0)[1] > 1, "{:?}", ran.flow(0));
    assert_eq!(ran.flow(1), [20, 0]);
    let sum = ran.behind("short", "20 messages of 700 bytes sent, sum ");
    assert_eq!(ran.behind("receiver", "port 5001: 14000 bytes in order, sum "), sum);
    assert_eq!(ran.report["totals"]["faults"], 0);
}

/// Core 2, which `control` and the broker share.
const SHARED: &str = "\n[[core]]\nid = 2\nschedule = { kind = \"fixed-priority\", servers = [\n\
                      { vm = \"control\", budget = \"200us\", period = \"1ms\" },\n\
                      { vm = \"broker\", budget = \"500us\", period = \"1ms\" },\n] }\n";

/// A copy that does not end holds up a restart until the broker has had 20 ms of its core. Then the
/// broker is stopped, which is reported; the restart continues, and both ends of every flow are
/// informed that packets are no longer moved. A VM that shares the broker's core misses nothing
/// either.
#[test]
fn a_broker_that_hangs_is_stopped() {
    for more in ["", SHARED] {
        a_broker_that_hangs(more);
    }
}

/// With this schedule besides.
fn a_broker_that_hangs(more: &str) {
    let sending = "to=4 messages=60 size=999 period_us=1000 crash=3";
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}{}{more}",
        vm("sender", 0, "sender", sending, "on_fault = \"restart\""),
        vm("receiver", 1, "receiver", "bytes=59940", ""),
        vm("control", 2, "control", "activations=500", ""),
        flow("messages", "sender", "receiver", 5000, PERIOD),
    );
    let ran = run_with_slow_receiver(&text, "1s");
    let broker = ran.vm("broker");
    assert_eq!(broker["state"], "halted");
    assert_eq!(broker["faults"][0]["kind"], "a copy that does not end");
    assert_eq!(ran.vm("sender")["restarts"], 1);
    assert_eq!(ran.vm("sender")["state"], "running");
    let (_, console) = ran.consoles.iter().find(|(name, _)| name == "sender").expect("a console");
    assert_eq!(console.matches("connected to").count(), 1, "refused in its second boot: {console}");
    assert!(ran.behind("control", "500 activations, ").starts_with("0 misses"));
}

/// A broker that never becomes ready does not keep the VMs of its flows from starting: they wait
/// for 100 ms, and the run reports it. A VM in no flow does not wait. One that shares its core
/// waits in its own slots: nothing interrupts `control`, with activations in the midst of its own.
#[test]
fn waiting_for_an_unready_broker_ends() {
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}{}",
        vm("sender", 0, "sender", "to=4 messages=3 size=999 period_us=1000", ""),
        vm("receiver", 1, "receiver", "bytes=2997", ""),
        vm("control", 0, "control", "activations=50 phase_us=250", ""),
        flow("messages", "sender", "receiver", 5000, PERIOD),
    ) + "\n[broker]\ncpus = [3]\n\n[[core]]\nid = 0\nschedule = { kind = \"table\", \
         major_frame = \"1ms\", slots = [\
         { vm = \"control\", start = \"0us\", length = \"500us\" }, \
         { vm = \"sender\", start = \"500us\", length = \"500us\" } ] }\n";
    let ran = run_with_broker("control", &text, "300ms");
    for (name, waits) in [("sender", true), ("receiver", true), ("control", false)] {
        let vm = ran.vm(name);
        assert_eq!((&vm["state"], &vm["boots"]), (&"running".into(), &1.into()), "{vm}");
        assert_eq!(vm["started_without_broker"] == true, waits, "{vm}");
    }
    ran.behind("control", "50 activations, 0 misses");
    let [least, longest] = [" min ", " max "].map(|name| {
        let value = ran.behind("control", name).split(' ').next().map(str::parse::<u64>);
        value.expect("a number").expect("a number")
    });
    println!("control: {least} to {longest} ns");
    assert!(longest < least + 200, "{least} to {longest} ns");
    assert_eq!(ran.flow(0), [0, 0]);
}

/// Messages of 1000 bytes and of 1 MiB side by side, and one byte of best effort, which is held up
/// until its sender is late: it goes on all the same.
#[test]
fn best_effort_goes_on_behind_what_held_it_up() {
    let ran = run(&root().join("tests/systems/flows-many.toml"), "10s", &[]);
    assert_eq!([ran.flow(0), ran.flow(1), ran.flow(2)], [[2000, 0], [320, 0], [400, 0]]);
    for (sent, sender, receiver, bytes) in [
        ("2000 messages of 1000", "left", "north", "5000: 2000000"),
        ("20 messages of 1048576", "right", "south", "5001: 20971520"),
    ] {
        let sent = format!("{sent} bytes sent, sum ");
        sums_agree(
            &ran,
            [sender, &sent],
            [receiver, &format!("port {bytes} bytes in order, sum ")],
        );
    }
    ran.behind("lazy", "400 messages of 1 bytes sent, sum ");
}

/// The bytes that `docs/results/performance.md` states in the row that begins so.
fn documented(row: &str) -> u64 {
    let page = root().join("docs/results/performance.md");
    let page = fs::read_to_string(page).expect("the page");
    let row = page.lines().find(|line| line.trim_start_matches(['|', ' ', '*']).starts_with(row));
    let cell = row.and_then(|row| row.split('|').nth(2)).expect("a row with a number");
    let digits: String = cell.chars().filter(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// The broker's code next to rt-virtio's (section V), printed with `-- --nocapture`: what moves
/// packets, and what runs once, when it starts; the switch, which rt-virtio does not have, is
/// counted apart. The compiler of `rust-toolchain.toml` makes what the page states; another one's
/// code differs by a twentieth at most (Debian's 1.96: by 1.7 %).
#[test]
fn the_broker_is_as_small_as_documented() {
    const MOVES: [&str; 5] =
        ["broker_vm5serve", "weir_broker", "weir_vsock", "memcpy", "irq_current"];
    const ONCE: [&str; 3] = ["broker_vm5begin", "6Broker3new", "weir_guest3gic"];
    const SWITCH: [&str; 2] = ["weir_broker6switch", "weir_broker..switch"];
    build_programs();
    let file = fs::read(root().join("build/programs/broker")).expect("the broker");
    let file = object::File::parse(&*file).expect("an ELF file");
    let is_one = |name: &str, of: &[&str]| of.iter().any(|part| name.contains(part));
    let (mut moves, mut once, mut switch) = (0, 0, 0);
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        let (name, size) = (symbol.name().expect("a name"), symbol.size());
        let sum = if is_one(name, &SWITCH) {
            &mut switch
        } else if is_one(name, &ONCE) {
            &mut once
        } else if is_one(name, &MOVES) {
            &mut moves
        } else {
            continue;
        };
        *sum += size;
        println!("{size:6} {name}");
    }
    println!("{moves} B move packets, {once} B set the broker up, {switch} B pass frames on");
    assert!(switch > 1000, "{switch}");
    let comment = file.section_by_name(".comment").expect("the compiler's version");
    let compiler = String::from_utf8_lossy(comment.data().expect("its text")).into_owned();
    let pinned = fs::read_to_string(root().join("rust-toolchain.toml")).expect("a version");
    let pinned = pinned.split_once("channel = \"").and_then(|(_, rest)| rest.split_once('"'));
    let pinned = format!("rustc version {} ", pinned.expect("a channel").0);
    let margin = if compiler.contains(&pinned) { 0 } else { 5 };
    for (row, size) in
        [("code that takes and moves packets", moves), ("code that sets the broker up", once)]
    {
        let stated = documented(row);
        let most = stated * margin / 100;
        assert!(size.abs_diff(stated) <= most, "{row}: {size} B, {stated} stated; {compiler}");
    }
    let divides = |symbol: object::Symbol<'_, '_>| {
        symbol.name().is_ok_and(|name| name.contains("u128_div_rem"))
    };
    assert!(!file.symbols().any(divides), "times need no division of 128 bits");
}
