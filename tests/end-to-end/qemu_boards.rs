//! Systems on QEMU's machines for real boards. Each commit runs here what depends on a board: its
//! start, console and memory, and on the ZCU102 each part of EL2 with another GIC and UART.
//! `./weir test qemu --platform BOARD` runs the whole suite on a board.

use crate::support::{
    Signal,
    board::{capture_on_board, not_applicable_if},
    eventually, finish,
    qemu::{
        Options, Outcome, Slot, build_image, build_programs, random_word, root, run_system,
        type_keys, with,
    },
    schema::valid,
    signal,
};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// `echo`, which is to print `word`, with this much memory and further keys, and `control`.
fn pair(platform: &str, word: &str, memory: &str, keys: &str) -> String {
    format!(
        r#"
platform = "{platform}"

[[vm]]
name = "control"
cpus = [1]
memory = "2MiB"
image = {{ elf = "control", args = "activations=100" }}
expect = ["control: 100 activations, 0 misses"]

[[vm]]
name = "echo"
cpus = [0]
memory = "{memory}"
image = {{ elf = "echo", args = "word={word}" }}
expect = ["echo: word={word}"]
{keys}
"#
    )
}

fn a_guest_echoes(board: &str) {
    let word = random_word();
    let outcome = run_system(&pair(board, &word, "2MiB", ""), &Options::default()).good();
    assert!(outcome.lines("echo").contains(&format!("echo: word={word}").as_str()));
    assert_eq!(outcome.vm("echo")["state"], "off");
    assert_eq!(outcome.report["totals"]["damaged_frames"], 0);
}

/// The image file ends before the hypervisor's `.bss` and stacks. A reset board has anything there.
#[test]
fn memory_behind_the_image_file_may_hold_anything() {
    let directory = tempfile::tempdir().expect("a directory");
    let garbage = directory.path().join("garbage");
    for platform in ["qemu-virt", "qemu-virt-gicv2", "zcu102", "zcu104"] {
        let text = pair(platform, "clean", "2MiB", "");
        let built = build_image(&text, &directory.path().join("pair.img"));
        let rows = built["placement"].as_array().expect("a map");
        let image = rows.iter().find(|row| row["what"] == "image").expect("the image");
        let address = image["address"].as_str().and_then(|address| address.strip_prefix("0x"));
        let address = u64::from_str_radix(address.expect("a number"), 16).expect("a number");
        let [len, file_len] = [&image["bytes"], &built["bytes"]].map(|len| len.as_u64().unwrap());
        // The stacks alone are 8 x 36 KiB.
        assert!(file_len + (288 << 10) < len, "{file_len} of {len} bytes are in the file");
        fs::write(&garbage, vec![0xa5; (len - file_len) as usize]).expect("a file");
        let device = format!(
            "--qemu-arg=loader,file={},addr={:#x},force-raw=on",
            garbage.display(),
            address + file_len
        );
        let arguments = ["--qemu-arg=-device", &device];
        let outcome = run_system(&text, &Options { arguments: &arguments, ..Options::default() });
        assert_eq!(outcome.good().vm("echo")["state"], "off", "{platform}");
    }
}

/// A guest that prints `>`, then sends back what it receives by its PL011.
const ECHO_KEYS: [u32; 8] = [
    0xd2a1_2000, // mov x0, #0x9000000
    0x5280_07c2, // mov w2, #'>'
    0xb900_0002, // str w2, [x0]
    0xb940_1801, // ldr w1, [x0, #0x18]
    0x3727_ffe1, // tbnz w1, #4, .-4
    0xb940_0002, // ldr w2, [x0]
    0xb900_0002, // str w2, [x0]
    0x17ff_fffc, // b .-16
];

/// A system of [`ECHO_KEYS`], the file of which goes to `folder`.
fn system_of_keys(board: &str, folder: &Path) -> String {
    let guest = folder.join("keys.bin");
    fs::write(&guest, ECHO_KEYS.map(u32::to_le_bytes).concat()).expect("a guest");
    format!(
        "platform = \"{board}\"\n[[vm]]\nname = \"keys\"\ncpus = [0]\nmemory = \"4MiB\"\n\
         image = {{ bin = {:?}, load = 0x4010_0000 }}\n",
        guest.to_str().expect("a path")
    )
}

/// A run that was interrupted is repeated up to its end, with what was typed until then.
#[test]
fn a_run_that_was_interrupted_is_replayed() {
    not_applicable_if(|board| board.name != "qemu-virt", "its first run is of qemu-virt");
    build_programs();
    let slot = Slot::take();
    let directory = tempfile::tempdir().expect("a directory");
    let text = system_of_keys("qemu-virt", directory.path());
    let (file, runs) = (directory.path().join("keys.toml"), directory.path().join("runs"));
    fs::write(&file, &text).expect("a system file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("run").arg(&file).args(["--input", "--no-build", "--for", "300s"]);
    command.env("WEIR_ROOT", root()).env("WEIR_RUNS", &runs).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weir");
    type_keys(&runs, "keys", ">", "typed before");
    let run = fs::read_dir(&runs).expect("runs").flatten().next().expect("a run").path();
    let typed = || fs::read_to_string(run.join("keys.log")).unwrap_or_default();
    assert!(eventually(|| typed() == ">typed before"), "{}", typed());
    signal(&child, Signal::INT);
    let printed = finish(child);
    drop(slot);
    assert_eq!(printed.status, Some(130), "{}", printed.err);
    let report = fs::read_to_string(run.join("report.json")).expect("a report");
    let report = valid("report", &report);
    assert_eq!(report["ended_by"], "interrupted");
    let arguments = ["--replay", run.to_str().expect("a path")];
    let again = run_system(&text, &Options { arguments: &arguments, ..Options::default() }).good();
    assert_eq!(again.consoles["keys"], ">typed before");
    assert_eq!(again.report["time_ns"], report["time_ns"]);
}

fn receives_what_is_typed(board: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let text = system_of_keys(board, directory.path());
    let text = text + "expect = [\"sent back by the guest\"]\n";
    let options = Options {
        typed: Some(("keys", ">", "sent back by the guest, in more bytes than the FIFO holds\n")),
        arguments: &["--for", "60s"],
        ..Options::default()
    };
    let outcome = run_system(&text, &options).good();
    assert_eq!(outcome.report["totals"]["damaged_frames"], 0);
    // The machine was never ahead of the host, for which more of it passed at a slow start.
    let facts = fs::read(outcome.run.join("run.json")).expect("run.json");
    let facts: Value = serde_json::from_slice(&facts).expect("JSON");
    let host_ns = facts["seconds"].as_f64().expect("a time") * 1e9;
    let virtual_ns = outcome.report["time_ns"].as_f64().expect("a time");
    assert!(virtual_ns < host_ns, "{virtual_ns} ns in {host_ns} ns");
    // The keys come again at their times.
    let run = outcome.run.to_str().expect("a path");
    let replay = Options { arguments: &["--replay", run], ..Options::default() };
    let again = run_system(&text, &replay).good();
    for name in ["wire.bin", "keys.log", "report.json", "trace.bin"] {
        assert!(again.files[name] == outcome.files[name], "{name} differs");
    }
    // Another key makes another run, here an H instead of each F.
    let record = outcome.run.join("input.txt");
    let typed = fs::read_to_string(&record).expect("the input");
    let changed = typed.lines().map(|line| {
        let (time, digits) = line.split_once(' ').expect("a time");
        let bytes = digits.as_bytes().chunks(2).map(|byte| str::from_utf8(byte).expect("digits"));
        let bytes = bytes.map(|byte| if byte == "46" { "48" } else { byte });
        format!("{time} {}\n", bytes.collect::<String>())
    });
    fs::write(&record, changed.collect::<String>()).expect("a file");
    let other = run_system(&text, &replay);
    assert_eq!(other.printed.status, Some(1), "{}", other.printed.err);
    assert!(other.printed.err.contains("wire.bin differs from byte "), "{}", other.printed.err);
    // A damaged record is refused.
    fs::write(&record, &typed[..typed.len() - 1]).expect("a file");
    let other = run_system(&text, &replay);
    assert_eq!(other.printed.status, Some(3), "{}", other.printed.err);
    assert!(
        other.printed.err.contains("of the input's record is damaged"),
        "{}",
        other.printed.err
    );
    // Of another image they mean something else.
    let other = run_system(&text.replace("4MiB", "6MiB"), &replay);
    assert_eq!(other.printed.status, Some(2), "{}", other.printed.err);
    assert!(other.printed.err.contains("the image is not the one of"), "{}", other.printed.err);
}

/// A VM that does not fit into the first piece of RAM lies in the second, which starts at 32 GiB.
#[test]
fn zcu102_uses_ram_above_the_gap() {
    let board = fs::read_to_string(root().join("boards/zcu102/board.toml")).expect("a board");
    let board = with(&board, "base = 0\nsize = \"2GiB\"", "base = 0\nsize = \"16MiB\"");
    // So little RAM has no page in some banks of the other DRAM map.
    let board = with(&board, "banks = [[28], [29], [30], [35]]", "banks = [[13], [14]]");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("small.toml");
    fs::write(&file, board).expect("a board");
    let text = pair(file.to_str().expect("a path"), "above", "32MiB", "");
    for (memory, status) in [("4G", 0), ("2G", 1)] {
        let memory_argument = format!("--qemu-arg={memory}");
        let arguments = ["--qemu-arg=-m", &memory_argument, "--for", "5s"];
        let outcome = run_system(&text, &Options { arguments: &arguments, ..Options::default() });
        assert_eq!(outcome.printed.status, Some(status), "{memory}: {}", outcome.printed.err);
        let text = outcome.report["hypervisor"].to_string();
        let refused = text.contains("needs 2080 MiB of RAM, and the machine has 2048");
        assert_eq!(refused, status == 1, "{memory}: {text}");
    }
}

/// A VM that runs this program.
fn vm(name: &str, cpus: &str, program: &str, args: &str, keys: &str) -> String {
    format!(
        "\n[[vm]]\nname = \"{name}\"\ncpus = {cpus}\nmemory = \"4MiB\"\n\
         image = {{ elf = \"{program}\", args = \"{args}\" }}\n{keys}\n"
    )
}

/// The last core of a board.
fn last_core(board: &str) -> u8 {
    if board == "versal-virt" { 1 } else { 3 }
}

/// Runs these VMs on a board until all expected lines are there. The console is served by the last
/// core, which has no VM if the board has four cores. It reports the counters each 5 ms.
fn run(board: &str, parts: &[String]) -> Outcome {
    let core = last_core(board);
    let hypervisor = format!("[hypervisor]\nconsole_core = {core}\nheartbeat = \"5ms\"\n");
    let text = format!("platform = \"{board}\"\n{hypervisor}{}", parts.concat());
    run_system(&text, &Options::default()).good()
}

/// A control loop on core 0 that misses no deadline.
fn control(activations: u32) -> String {
    let keys = format!("expect = [\"control: {activations} activations, 0 misses\"]");
    vm("control", "[0]", "control", &format!("activations={activations}"), &keys)
}

/// Checks that nothing happened to `control`.
fn assert_unharmed(outcome: &Outcome) {
    let vm = outcome.vm("control");
    assert_eq!((&vm["restarts"], &vm["faults"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(vm["denials"], serde_json::json!({}));
}

/// The budget of a VM's first vCPU held in each period.
fn assert_budget_holds<'a>(outcome: &'a Outcome, name: &str) -> &'a Value {
    let judged = &outcome.vm(name)["budgets"][0];
    let number = |key: &str| judged[key].as_u64().unwrap_or_else(|| panic!("{key}: {judged}"));
    assert!(number("max_beyond") <= number("overshoot"), "{judged}");
    assert_eq!(number("exceeded_periods"), 0, "{judged}");
    assert!(number("throttled_periods") > 10, "{judged}");
    judged
}

fn page_classes_keep_lines_apart(board: &str) {
    let observe = |colors: [&str; 3]| {
        let [weir, first, second] = colors;
        let args = ["mode=write size=0x200000 passes=10", "mode=read size=0x200000"];
        let text = format!(
            "platform = \"{board}\"\n[hypervisor]\nconsole_core = 1\n{weir}\n{}{}",
            vm(
                "a",
                "[0]",
                "memory-stressor",
                args[0],
                &format!("{first}\nexpect = [\"memory-stressor: 10 passes\"]"),
            ),
            vm("b", "[1]", "memory-stressor", args[1], second),
        );
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("system.toml");
        fs::write(&file, text).expect("a system file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        build_programs();
        command.arg("observe").arg(&file).args(["--no-build", "--json"]);
        command.env("WEIR_ROOT", root());
        command.env("WEIR_RUNS", directory.path().join("runs"));
        let printed = capture_on_board(&mut command, &file, Duration::from_secs(300));
        assert_eq!(printed.status, Some(0), "{}\n{}", printed.out, printed.err);
        serde_json::from_str::<Value>(&printed.out).expect("JSON")
    };
    let apart = observe(["colors = \"14-15\"", "colors = \"0-3\"", "colors = \"4-7\""]);
    // The banks of these are other ones, too: on this board they are bits of the color.
    for sum in ["between_vms", "of_vms_by_weir", "of_weir_by_vms"] {
        assert_eq!(apart["evictions"][sum], 0, "{}", apart["evictions"]);
    }
    assert_eq!(
        (&apart["intrusions"], &apart["unseen_blocks"]),
        (&serde_json::json!([]), &0.into())
    );
    let shared = observe([""; 3]);
    let evicted = shared["evictions"]["between_vms"].as_u64();
    assert!(evicted.is_some_and(|evicted| evicted > 1000), "{}", shared["evictions"]);
}

fn budgets_count_by_the_counter_page(board: &str) {
    let budget = |more: &str| {
        let keys = format!("memory_budget = {{ accesses = 4000, period = \"1ms\"{more} }}");
        pair(board, "budget", "2MiB", &keys)
    };
    let refused = run_system(&budget(", source = \"pmu\""), &Options::default());
    assert_eq!(refused.printed.status, Some(1), "{}", refused.printed.err);
    assert!(refused.printed.err.contains("leave `source` out"), "{}", refused.printed.err);
    run_system(&budget(""), &Options::default()).good();
    // On the board the PMU counts them.
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("board.img");
    build_image(&budget(""), &image);
    let image = image.to_str().expect("a path");
    let options = Options { arguments: &["--image-file", image], ..Options::default() };
    let refused = run_system(&budget(""), &options);
    assert_eq!(refused.printed.status, Some(2), "{}", refused.printed.err);
    let cause = "does not have the interrupt of the PMUs";
    assert!(refused.printed.err.contains(cause), "{}", refused.printed.err);
}

/// Reads with and without the cache, maintenance, and changes of the own budget gain no access.
/// The budgets are below the saturation of the board's memory.
fn attacks_on_budgets_fail(board: &str) {
    for how in ["load", "uncached", "invalidate"] {
        let args = format!("for_us=20000 size=0x200000 how={how}");
        let keys = "memory_budget = { accesses = 600, period = \"100us\" }\n\
                    expect = [\"reader: \"]";
        let outcome = run(board, &[vm("attacker", "[0]", "reader", &args, keys)]);
        let judged = assert_budget_holds(&outcome, "attacker");
        println!("{how}: {judged}");
    }
    let keys = "memory_budget = { accesses = 300, period = \"100us\", scope = \"vcpu\", \
                adjust = { by = \"attacker\", min = 200, max = 300 } }\n\
                expect = [\"budget-weapon: \"]";
    let args = "do=set vm=0 reads=299 for_us=20000";
    assert_budget_holds(
        &run(board, &[vm("attacker", "[0, 1]", "budget-weapon", args, keys)]),
        "attacker",
    );
}

fn a_vm_with_a_budget_restarts(board: &str) {
    let keys = "memory_budget = { accesses = 500, period = \"100us\" }\n\
                expect = [\"budget-weapon: 3 rounds\"]";
    let attacker = vm("attacker", "[1]", "budget-weapon", "do=restart boots=3", keys);
    let outcome = run(board, &[control(20), attacker]);
    assert_eq!(outcome.vm("attacker")["restarts"], 3);
    assert_unharmed(&outcome);
}

/// Calls and accesses at random, and faults that restart the VM.
fn attacks_on_memory_fail(board: &str) {
    let keys = "on_outside = \"abort\"\nexpect = [\"fuzzer: 10000 rounds\"]";
    let fuzzer = vm("fuzzer", "[1]", "fuzzer", "seed=4 rounds=10000", keys);
    let outcome = run(board, &[control(100), fuzzer]);
    assert_unharmed(&outcome);
    assert_eq!(outcome.vm("fuzzer")["faults"], serde_json::json!([]));
    let aborts = outcome.vm("fuzzer")["denials"]["access outside its memory"].as_u64();
    assert!(aborts.is_some_and(|aborts| aborts > 1000), "{aborts:?}");
    let keys = "on_fault = \"restart\"\nexpect = [\"faults: 20 faults\"]";
    let outcome = run(board, &[control(100), vm("faults", "[1]", "faults", "faults=20", keys)]);
    assert_unharmed(&outcome);
    let faults = outcome.vm("faults");
    assert_eq!(faults["fault_counts"]["write outside its memory"], 20);
    assert_eq!((&faults["restarts"], &faults["state"]), (&20.into(), &"off".into()));
}

/// SGIs, GIC registers and calls without end next to a control loop.
fn interrupt_storms_reach_no_other_vm(board: &str) {
    let exits = |outcome: &Outcome| {
        let exits = &outcome.vm("control")["exits"];
        ["message from another core", "GIC maintenance", "device interrupt"]
            .map(|cause| exits[cause].as_u64().expect("counters came"))
    };
    let alone = exits(&run(board, &[control(50)]));
    let cpus = if last_core(board) == 1 { "[1]" } else { "[1, 2]" };
    for kind in ["sgi", "mmio", "hypercall"] {
        let storms = vm("storms", cpus, "storms", &format!("kind={kind}"), "");
        let outcome = run(board, &[control(50), storms]);
        assert_unharmed(&outcome);
        assert_eq!(exits(&outcome), alone, "{kind}");
    }
}

/// Half of each 2 ms is the worker's, the other half an attacker's with timers that stay pending.
fn pending_timers_stay_with_their_vm(board: &str) {
    let slots = "\n[[core]]\nid = 0\n\
        schedule = { kind = \"table\", major_frame = \"2ms\", slots = [\
        { vm = \"worker\", start = \"0ms\", length = \"1ms\" }, \
        { vm = \"attacker\", start = \"1ms\", length = \"1ms\" } ] }\n";
    for args in ["rounds=100000", "rounds=500 then=reset"] {
        let worker = vm(
            "worker",
            "[0]",
            "worker",
            "steps=8000",
            "expect = [\"worker: 8000 steps\", \" us, 0 interrupts\"]",
        );
        let attacker = vm("attacker", "[0]", "timer-latch", args, "");
        let outcome = run(board, &[worker, attacker, slots.to_owned()]);
        let lines = outcome.lines("worker");
        let line = lines.iter().find(|line| line.starts_with("worker: ")).expect("a report");
        let numbers: Vec<u64> =
            line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        assert_eq!(numbers[2], 0, "{args}: {line}");
    }
}

/// Registers, timers and floating-point state of VMs on one core stay theirs, in each kind of
/// schedule.
fn vms_share_a_core(board: &str) {
    let context = |name: &str, args: &str| {
        let keys = "expect = [\"context: 800 rounds, 0 damaged\", \" ticks, 0 early, 0 odd\"]";
        vm(name, "[0]", "context", &format!("rounds=800 spin=2000 {args}"), keys)
    };
    let schedules = [
        "kind = \"round-robin\", quantum = \"1ms\"",
        "kind = \"table\", major_frame = \"1ms\", slots = [\
         { vm = \"a\", start = \"0us\", length = \"600us\" }, \
         { vm = \"b\", start = \"600us\", length = \"400us\" } ]",
    ];
    for schedule in schedules {
        let core = format!("\n[[core]]\nid = 0\nschedule = {{ {schedule} }}\n");
        let vms = [context("a", "seed=1"), context("b", "seed=2 tick_us=300")];
        let outcome = run(board, &[vms.concat(), core]);
        for name in ["a", "b"] {
            let lines = outcome.lines(name);
            let line = lines.iter().find(|line| line.starts_with("context: ")).expect("a report");
            assert!(line.ends_with(" ticks, 0 early, 0 odd"), "{schedule}: {line}");
        }
    }
}

/// A flow that the broker's core copies, with latencies below the emulated board's bound.
fn a_flow_keeps_its_bound(board: &str) {
    let all_sent = "expect = [\"sender: 100 messages of 4096 bytes sent\"]";
    let all_arrived = "expect = [\"receiver: port 5000: 409600 bytes in order\"]";
    let flow = "\n[[flow]]\nname = \"messages\"\nfrom = \"sender\"\nto = \"receiver\"\n\
                port = 5000\nsize = \"4KiB\"\nperiod = \"1ms\"\ndeadline = \"500us\"\n\
                [dma]\npath = \"broker\"\n";
    for keys in ["", "vsock = \"pci\"\n"] {
        let args = "to=4 messages=100 size=4096 period_us=1000";
        let sender = vm("sender", "[0]", "sender", args, &format!("{keys}{all_sent}"));
        let args = "bytes=409600 streams=1";
        let receiver = vm("receiver", "[1]", "receiver", args, &format!("{keys}{all_arrived}"));
        let text = format!("platform = \"{board}\"\n{sender}{receiver}{flow}");
        run_system(&text, &Options::default()).good().keeps_its_bound(100);
    }
}

fn frames_pass_between_vms(board: &str) {
    let station = |name: &str, number: u8, args: &str, keys: &str| {
        let port = format!("net = {{ mac = \"52:54:00:00:00:0{number}\" }}\n{keys}");
        vm(name, &format!("[{number}]"), "station", args, &port)
    };
    let expect = "expect = [\"100 frames from 52:54:00:00:00:00, 0 lost, 0 damaged\"]";
    run(
        board,
        &[
            station("north", 0, "to=52:54:00:00:00:01 frames=100", ""),
            station("south", 1, "expect=100 from=52:54:00:00:00:00", expect),
        ],
    );
}

fn linux_boots(board: &str) {
    let text = format!(
        "platform = \"{board}\"\n[[vm]]\nname = \"linux\"\ncpus = [0, 1]\n\
         memory = \"128MiB\"\nimage = {{ linux = \"debian-rt\", initrd = \"busybox\" }}\n\
         expect = [\"linux: user space on 2 cpus\"]\n"
    );
    run_system(&text, &Options::default()).good();
}

/// A scenario that runs on a board.
type Scenario = fn(&str);

/// Scenarios that each commit runs on each board: its start, memory, console and GIC.
const ON_EACH: [Scenario; 2] = [a_guest_echoes, receives_what_is_typed];
/// Scenarios of the boards whose GIC, UART or start `qemu-virt` does not have.
const ON_OTHERS: [Scenario; 3] = [vms_share_a_core, a_flow_keeps_its_bound, linux_boots];
/// Scenarios of a board with another GIC that attacks are run on, too.
const ATTACKS: [Scenario; 7] = [
    page_classes_keep_lines_apart,
    budgets_count_by_the_counter_page,
    attacks_on_budgets_fail,
    a_vm_with_a_budget_restarts,
    attacks_on_memory_fail,
    interrupt_storms_reach_no_other_vm,
    pending_timers_stay_with_their_vm,
];

fn on(board: &str, scenarios: &[Scenario]) {
    for scenario in ON_EACH.iter().chain(scenarios) {
        scenario(board);
    }
}

#[test]
fn guests_run_on_zcu102() {
    on("zcu102", &ON_OTHERS);
    frames_pass_between_vms("zcu102");
}

#[test]
fn attacks_fail_on_zcu102() {
    for attack in ATTACKS {
        attack("zcu102");
    }
}

#[test]
fn guests_run_on_rpi4() {
    on("rpi4", &ON_OTHERS);
}

#[test]
fn guests_run_on_versal() {
    on("versal-virt", &[linux_boots]);
}

#[test]
fn guests_run_on_el3() {
    on("qemu-virt-el3", &[pending_timers_stay_with_their_vm, vms_share_a_core]);
}

/// The watchdog ends QEMU when no VM is left.
#[test]
fn rpi4_turns_itself_off() {
    let text = format!("platform = \"rpi4\"\n{}", vm("echo", "[3]", "echo", "word=off", ""));
    let outcome = run_system(&text, &Options::default()).good();
    assert_eq!(outcome.report["ended_by"], "system-stop");
}

/// The machine's tree describes RAM below the GPU's.
#[test]
fn rpi4_refuses_more_memory_than_the_machine_has() {
    let text = pair("rpi4", "large", "1GiB", "");
    let arguments = ["--for", "5s"];
    let outcome = run_system(&text, &Options { arguments: &arguments, ..Options::default() });
    assert_eq!(outcome.printed.status, Some(1), "{}", outcome.printed.err);
    let text = outcome.report["hypervisor"].to_string();
    assert!(text.contains("MiB of RAM, and the machine has 958"), "{text}");
}

#[test]
fn a_guest_runs_on_zcu104() {
    run_system(&pair("zcu104", "small", "2MiB", ""), &Options::default()).good();
}

#[test]
fn an_image_for_another_board_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("virt.img");
    build_image(&pair("qemu-virt-gicv2", "other", "2MiB", ""), &image);
    let image = image.to_str().expect("a path");
    let options = Options { arguments: &["--image-file", image], ..Options::default() };
    let outcome = run_system(&pair("zcu102", "other", "2MiB", ""), &options);
    assert_eq!(outcome.printed.status, Some(2), "{}", outcome.printed.err);
    let cause = "was built for qemu-virt-gicv2, and the system is for zcu102";
    assert!(outcome.printed.err.contains(cause), "{}", outcome.printed.err);
}
