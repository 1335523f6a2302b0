//! The emulated clock in QEMU, measured by the guest `concurrency` without a hypervisor.

use crate::support::{
    board::not_applicable_if,
    capture_within,
    qemu::{Load, Options, build_programs, root, run_system, system},
};
use object::{
    Endianness,
    elf::{DF_SYMBOLIC, DT_FLAGS},
    read::elf::{Dyn as _, ElfFile64, ProgramHeader as _},
};
use serde_json::Value;
use std::{
    collections::BTreeMap, ffi::OsString, fs, os::unix::fs::symlink, path::PathBuf,
    process::Command, sync::OnceLock, thread, time::Duration,
};
use tempfile::TempDir;
use weir_image::Environment;

/// Instructions of the guest between a counter read and the next one, with an exception in between:
/// no time of it depends on other cores.
const EXCEPTION: i64 = 150;

/// The lines of the guest: what was measured, and the rest of the line.
type Lines = BTreeMap<String, String>;

/// The clock's library, by a path that the loader does not split: the checkout's may have blanks.
fn library() -> PathBuf {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let environment = Environment::find();
        let built = environment.clock().expect("the clock");
        let folder = tempfile::tempdir().expect("a directory");
        let library = folder.path().join("clock.so");
        symlink(built, &library).expect("a link");
        (folder, library)
    };
    LIBRARY.get_or_init(build).1.clone()
}

fn qemu() -> OsString {
    std::env::var_os("WEIR_QEMU").unwrap_or_else(|| "qemu-system-aarch64".into())
}

/// Runs the guest on so many cores, with these machine options and arguments of the clock, and this
/// way of switching.
fn measure(cores: usize, machine: &str, clock: &str, switch: &str) -> (Lines, String) {
    build_programs();
    let library = library();
    let mut command = Command::new("timeout");
    command.args(["-k", "2", "120"]).arg(qemu()).env("LD_PRELOAD", &library);
    command.env("WEIR_CLOCK_SWITCH", switch);
    command.args(["-machine", machine, "-cpu", "cortex-a53,cntfrq=1000000000", "-m", "64M"]);
    command.args(["-smp", &cores.to_string(), "-accel", "tcg,thread=multi", "-seed", "1"]);
    command.args(["-rtc", "base=2026-01-01,clock=vm", "-display", "none", "-monitor", "none"]);
    command.args(["-nodefaults", "-no-user-config", "-serial", "stdio", "-plugin"]);
    command.arg(format!("{}{clock}", library.display().to_string().replace(',', ",,")));
    command.arg("-kernel").arg(root().join("build/programs/concurrency"));
    let printed = capture_within(&mut command, Duration::from_secs(120));
    assert_eq!(printed.status, Some(0), "{}{}", printed.out, printed.err);
    (lines(&printed.out), printed.out)
}

/// The guest's lines in the text of a console.
fn lines(console: &str) -> Lines {
    let lines = console.lines().filter_map(|line| line.trim_end().strip_prefix("concurrency: "));
    let lines = lines.map(|line| match line.split_once(": ") {
        Some((what, found)) => (what.to_owned(), found.to_owned()),
        None => (line.to_owned(), String::new()),
    });
    lines.collect()
}

/// The extremes of what was measured next to so many busy cores.
fn extremes(lines: &Lines, what: &str, busy: usize) -> [i64; 2] {
    let key = format!("{what}, {busy} busy");
    let text = lines.get(&key).unwrap_or_else(|| panic!("no {key}: {lines:?}"));
    let (_, range) = text.split_once("times, ").expect("a range");
    let (min, max) = range.split_once(" to ").expect("two ends");
    [min, max].map(|end| end.parse().expect("a time"))
}

/// What the guest finds on so many cores: the times next to any number of busy cores are those next
/// to none.
fn assert_concurrent(cores: usize, machine: &str, quantum: i64) {
    let (lines, text) = measure(cores, machine, &format!(",quantum={quantum}"), "");
    for busy in 0..cores - 1 {
        for (what, early) in [
            ("SGI there", quantum),
            ("SGI back", quantum),
            ("timer late asleep", 0),
            ("timer late awake", 0),
        ] {
            let [min, max] = extremes(&lines, what, busy);
            assert!(min >= -early, "{what} next to {busy}: {min} ns early\n{text}");
            assert!(max <= EXCEPTION, "{what} next to {busy}: {max} ns\n{text}");
            assert_eq!(max, extremes(&lines, what, 0)[1], "{what} next to {busy} grows");
        }
        // There and back, each up to a quantum and a few instructions late.
        let [min, max] = extremes(&lines, "message and back", busy);
        assert!(min >= 0 && max <= 2 * quantum + 50, "messages next to {busy}: {min} to {max}");
    }
    let [_, maintenance] = extremes(&lines, "TLB maintenance", cores - 1);
    assert!(maintenance <= 20, "TLB maintenance waits {maintenance} ns");
    let early = assert_consistent(cores, &text);
    assert!(early <= quantum, "a message came {early} ns early");
}

/// Checks that locks and exclusive accesses work and that no counter goes back. Returns the most
/// ticks by which the counter of a core was behind the one in a message that it got.
fn assert_consistent(cores: usize, text: &str) -> i64 {
    let expected = 2000 * cores;
    assert!(text.contains(&format!("locked {expected} of {expected}")), "{text}");
    assert!(text.contains(&format!("exclusive {expected} of {expected}")), "{text}");
    assert!(text.contains(": 0 went back, "), "{text}");
    let early = text.split_once("a message came ").expect("a line").1;
    early.split(' ').next().expect("a word").parse().expect("a time")
}

/// The guest in a VM with all cores of QEMU's machine for a board: its times contain EL2, and
/// nothing of other cores.
fn times_in_a_vm_do_not_depend_on_busy_cores(board: &str, cores: usize) {
    not_applicable_if(|board| board.name != "qemu-virt", "it names its board");
    let all: Vec<usize> = (0..cores).collect();
    let text = format!(
        "platform = {board:?}\n[[vm]]\nname = \"cores\"\ncpus = {all:?}\nmemory = \"2MiB\"\n\
         image = {{ elf = \"concurrency\" }}\nexpect = [\"concurrency: done at \"]\n"
    );
    let outcome = run_system(&text, &Options::default()).good();
    let text = &outcome.consoles["cores"];
    let lines = lines(text);
    for what in ["SGI there", "SGI back", "timer late asleep", "timer late awake"] {
        let [_, alone] = extremes(&lines, what, 0);
        for busy in 1..cores - 1 {
            let [_, max] = extremes(&lines, what, busy);
            assert_eq!(max, alone, "{board}: {what} next to {busy} grows\n{text}");
        }
    }
    let early = assert_consistent(cores, text);
    assert!(early <= 100, "{board}: a message came {early} ns early");
}

#[test]
fn cores_of_zcu102_and_versal_are_concurrent() {
    times_in_a_vm_do_not_depend_on_busy_cores("zcu102", 4);
    times_in_a_vm_do_not_depend_on_busy_cores("versal-virt", 2);
}

#[test]
fn cores_of_rpi4_are_concurrent() {
    times_in_a_vm_do_not_depend_on_busy_cores("rpi4", 4);
}

#[test]
fn times_do_not_depend_on_busy_cores() {
    not_applicable_if(|board| board.name != "qemu-virt", "it starts QEMU's virt itself");
    for (cores, machine, quantum) in [
        (2, "virt,gic-version=3", 100),
        (4, "virt,gic-version=3", 0),
        (4, "virt,gic-version=3", 1000),
        (8, "virt,gic-version=3", 100),
        (4, "virt,gic-version=2", 100),
    ] {
        assert_concurrent(cores, machine, quantum);
    }
}

/// The latencies of the flows of a system's first 100 ms with a quantum: the least, two quantiles
/// and the greatest of each flow.
fn latencies(name: &str, quantum: &str) -> Vec<[u64; 4]> {
    let arguments = ["--for", "100ms", "--quantum", quantum];
    let options = Options { arguments: &arguments, ..Options::default() };
    let report = run_system(&system(name), &options).report;
    let flows = report["flows"].as_array().expect("flows").iter();
    let of = |flow: &Value, key| flow["latency_ns"][key].as_u64().expect("a latency");
    flows.map(|flow| ["min", "p50", "p99", "max"].map(|key| of(flow, key))).collect()
}

/// Runs with a small quantum and with large ones agree: exactly where each message wakes a core
/// that sleeps. Where packets meet, a packet depends on four messages between running cores: its
/// own to the broker and to the receiver, and those of the packet before it. Of two that come
/// within a quantum the other one can be first, whose turn at the broker is shorter than any
/// latency. The least latency of a flow is of a packet that meets no other, and so is the median
/// of `short` and `lazy`; a packet of `long` meets several. A packet of `lazy` that meets others
/// has no deadline: it waits for the turns of all that come before its end.
#[test]
fn the_quantum_changes_a_latency_by_a_turn_at_most() {
    let exact = latencies("flows-exact", "0ns");
    for quantum in ["100ns", "1us", "10us"] {
        assert_eq!(latencies("flows-exact", quantum), exact, "{quantum}");
    }
    let (small, large) = (latencies("flows-many", "0ns"), latencies("flows-many", "100ns"));
    let turn = small.iter().map(|[least, ..]| *least).min().expect("flows");
    let turns_of: [&[u64]; 3] = [&[0, 0, turn, turn], &[0, turn, turn, turn], &[0, 0]];
    assert_eq!(small.len(), turns_of.len());
    for ((small, large), turns) in small.iter().zip(&large).zip(turns_of) {
        for ((small, large), turn) in small.iter().zip(large).zip(turns) {
            assert!(small.abs_diff(*large) <= 4 * 100 + turn, "{small} ns and {large} ns");
        }
    }
}

/// The host's load and the way in which threads are switched change nothing.
#[test]
fn the_clock_is_the_same_on_a_loaded_host() {
    not_applicable_if(|board| board.name != "qemu-virt", "it starts QEMU's virt itself");
    let (_, expected) = measure(4, "virt,gic-version=3", "", "");
    let _load = Load::begin();
    let all = thread::scope(|scope| {
        let run = || (0..5).map(|_| measure(4, "virt,gic-version=3", "", "").1).collect::<Vec<_>>();
        let threads = [(); 4].map(|()| scope.spawn(run));
        threads.map(|thread| thread.join().expect("runs")).concat()
    });
    assert!(all.iter().all(|text| *text == expected), "20 runs are not alike");
    assert_eq!(measure(4, "virt,gic-version=3", "", "futex").1, expected);
}

/// QEMU loads the clock and the plug-in that observes, and both define `qemu_plugin_version`.
/// Cores that wait for a board's memory keep the clock's promises, by each way of switching.
#[test]
fn locks_and_counters_work_with_memory_timing() {
    not_applicable_if(|board| board.name != "qemu-virt", "it starts QEMU's virt itself");
    let charged = |quantum: i64, switch| {
        let options = format!(",quantum={quantum},memory=zcu102");
        measure(4, "virt,gic-version=3", &options, switch)
    };
    for quantum in [0, 100, 1000] {
        let (_, text) = charged(quantum, "");
        assert!(text.contains("locked 8000 of 8000"), "{text}");
        assert!(text.contains("exclusive 8000 of 8000"), "{text}");
        assert!(text.contains(": 0 went back, "), "{text}");
    }
    // The line of a message comes from the other core's cache, there and back.
    let message = |lines: &Lines| extremes(lines, "message and back", 2);
    let (with, without) = (charged(0, "").0, measure(4, "virt,gic-version=3", ",quantum=0", "").0);
    assert!(message(&with)[0] > message(&without)[1], "{with:?}");
    assert_eq!(charged(100, "").1, charged(100, "futex").1, "the ways of switching");
}

#[test]
fn each_library_uses_its_own_symbols() {
    let environment = Environment::find();
    let observer = environment.plugin().expect("a plug-in");
    for path in [library(), observer] {
        let bytes = fs::read(&path).expect("a library");
        let elf = ElfFile64::<Endianness>::parse(&*bytes).expect("an ELF file");
        let endian = elf.endian();
        let headers = elf.elf_program_headers().iter();
        let dynamic = headers.filter_map(|header| header.dynamic(endian, &*bytes).ok()?);
        let is_symbolic = dynamic.flatten().any(|entry| {
            entry.d_tag(endian) == u64::from(DT_FLAGS)
                && entry.d_val(endian) & u64::from(DF_SYMBOLIC) != 0
        });
        assert!(is_symbolic, "{}", path.display());
    }
}

#[test]
fn the_clock_refuses_wrong_arguments() {
    not_applicable_if(|board| board.name != "qemu-virt", "it starts QEMU's virt itself");
    let library = library();
    for (argument, why) in [
        ("quantum=x", "weir-clock: quantum=x: not a number in range"),
        ("speed=3", "weir-clock: speed=3: unknown"),
    ] {
        let mut command = Command::new(qemu());
        command.env("LD_PRELOAD", &library).args(["-M", "virt", "-display", "none", "-nodefaults"]);
        command.arg("-plugin").arg(format!("{},{argument}", library.display()));
        let printed = capture_within(&mut command, Duration::from_secs(60));
        assert_ne!(printed.status, Some(0));
        assert!(printed.err.contains(why), "{}", printed.err);
    }
    let mut command = Command::new(qemu());
    command.args(["-M", "virt", "-display", "none", "-nodefaults", "-plugin"]).arg(&library);
    let printed = capture_within(&mut command, Duration::from_secs(60));
    assert!(printed.err.contains("must be in LD_PRELOAD, too"), "{}", printed.err);
}
