//! Isolation attacks on time, memory, debug registers, consoles and reports, each next to a VM that
//! measures (docs/results/attacks.md).

use crate::{
    qemu_linux::assert_attacks_are_named,
    support::{
        loss::Attack,
        qemu::{Options, Outcome, build_programs, root, run_minimal, run_system},
    },
};
use object::{Object as _, ObjectSymbol as _};
use std::fs;

/// `control` on core 0, with the given number of activations each millisecond.
fn control(activations: u64) -> String {
    format!(
        "platform = \"qemu-virt\"\n\n[hypervisor]\nheartbeat = \"50ms\"\n\n[[vm]]\n\
         name = \"control\"\ncpus = [0]\nmemory = \"4MiB\"\nimage = {{ elf = \"control\", args = \
         \"activations={activations} report={activations}\" }}\n\
         expect = [\"control: {activations} activations, 0 misses\", \"control: latency min\"]\n"
    )
}

/// An attacker on these cores.
fn attacker(name: &str, cores: &str, args: &str, more: &str) -> String {
    format!(
        "\n[[vm]]\nname = \"{name}\"\ncpus = [{cores}]\nmemory = \"4MiB\"\n\
         image = {{ elf = \"{name}\", args = \"{args}\" }}\n{more}\n"
    )
}

fn run(text: &str, arguments: &[&str]) -> Outcome {
    run_system(text, &Options { arguments, ..Options::default() }).good()
}

/// What follows `before` in the last line of a VM that has it.
fn number(outcome: &Outcome, vm: &str, before: &str) -> u64 {
    let lines = outcome.lines(vm);
    let line = lines.iter().rfind(|line| line.contains(before));
    let line = line.unwrap_or_else(|| panic!("no {before} in {lines:?}"));
    let word = line.split(before).nth(1).and_then(|rest| rest.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number in {line}"))
}

/// Checks that nothing happened to `control`.
fn assert_unharmed(outcome: &Outcome) {
    let vm = outcome.vm("control");
    assert_eq!((&vm["state"], &vm["restarts"]), (&"running".into(), &0.into()));
    assert_eq!((&vm["denials"], &vm["faults"]), (&serde_json::json!({}), &serde_json::json!([])));
}

/// SGIs between an attacker's own vCPUs reach no other VM.
#[test]
fn sgis_within_an_attacker_interrupt_no_other_vm() {
    let alone = run(&control(200), &[]);
    let text = control(200) + &attacker("storms", "1, 2", "kind=sgi", "");
    let outcome = run(&text, &[]);
    let exits = |outcome: &Outcome| {
        let exits = &outcome.vm("control")["exits"];
        ["message from another core", "GIC maintenance", "device interrupt"]
            .map(|cause| exits[cause].as_u64().expect("counters came"))
    };
    assert_eq!(exits(&outcome), exits(&alone), "no exit of the victim's is the attacker's");
    let sum = |outcome| exits(outcome).iter().sum::<u64>();
    let attack = Attack { guest: "storms kind=sgi", core: "two others" };
    attack.assert_loss("exits of the victim more than alone", sum(&outcome) - sum(&alone), 0);
}

/// Ten thousand calls and accesses that mean nothing, of each of three seeds: no fault of EL2, none
/// of the victim.
#[test]
fn fuzzing_ends_nothing_but_the_fuzzer() {
    for (platform, seed) in [("qemu-virt", 1), ("qemu-virt", 2), ("qemu-virt-gicv2", 3)] {
        let text = control(200)
            + &attacker(
                "fuzzer",
                "1",
                &format!("seed={seed} rounds=10000"),
                "on_outside = \"abort\"\nexpect = [\"fuzzer: 10000 rounds\"]",
            );
        let outcome = run(&text, &["--platform", platform]);
        assert_unharmed(&outcome);
        assert_fuzzed(&outcome);
    }
}

/// Checks that the VM `fuzzer` was not ended, and got an abort for each access outside.
fn assert_fuzzed(outcome: &Outcome) {
    let fuzzer = outcome.vm("fuzzer");
    // A pair or a misaligned access to a virtual device is no access outside.
    assert_eq!(fuzzer["faults"], serde_json::json!([]));
    let aborts = fuzzer["denials"]["access outside its memory"].as_u64();
    assert!(aborts.is_some_and(|aborts| aborts > 1000), "{aborts:?}");
    assert_eq!(aborts, Some(number(outcome, "fuzzer", " accesses, ")), "each was injected");
}

/// A hypervisor that was built without its optional parts contains the same attacks: all that the
/// demo makes, and random calls and accesses.
#[test]
fn attacks_fail_without_optional_parts() {
    let fuzzer = "on_outside = \"abort\"\nexpect = [\"fuzzer: 10000 rounds\"]";
    let restarts = "on_fault = \"restart\"\nexpect = [\"attacks executed\"]";
    let text = control(200)
        + &attacker("attacker", "1", "victim=0x40400000", restarts)
        + &attacker("fuzzer", "2", "seed=4 rounds=10000", fuzzer);
    let outcome = run_minimal(&text, &[]).good();
    assert_unharmed(&outcome);
    assert_attacks_are_named(&outcome);
    assert_fuzzed(&outcome);
}

/// Breakpoints, watchpoints and single step work, and a VM that shares the core does not meet
/// another's.
#[test]
fn a_vms_debug_registers_are_its_own() {
    let alone = run(
        &("platform = \"qemu-virt\"\n".to_owned()
            + &attacker(
                "debugger",
                "0",
                "",
                "expect = [\"debugger: 1 breakpoints, 1 watchpoints, 1 steps, 0 others\"]",
            )),
        &[],
    );
    assert_eq!(alone.vm("debugger")["denials"], serde_json::json!({}));
    let text = control(20)
        + &attacker(
            "debugger",
            "0",
            "hold=1",
            "expect = [\"debugger: 1 breakpoints, 1 watchpoints, 1 steps, 0 others\"]",
        )
        + "\n[[core]]\nid = 0\nschedule = { kind = \"round-robin\", quantum = \"200us\" }\n";
    assert_unharmed(&run(&text, &[]));
}

/// A guest that takes one exception after another and executes nothing spends the time of its own
/// core, the same each time, with one such guest or two, and with the console on an idle core or on
/// one with a guest.
#[test]
fn a_guest_that_executes_nothing_harms_no_other() {
    let stuck =
        |name: &str, core: u32, args: &str| {
            attacker("no-vectors", &core.to_string(), args, "expect = [\"no-vectors: here\"]")
                .replacen("\"no-vectors\"", &format!("\"{name}\""), 1)
        };
    let one = stuck("first", 1, "wait_ms=20");
    let two = stuck("first", 1, "kind=load wait_ms=20") + &stuck("second", 3, "wait_ms=40");
    let busy = stuck("first", 1, "kind=load") + &attacker("storms", "2, 3", "kind=sgi", "");
    for more in [one, two, busy] {
        let [outcome, again] = [(), ()].map(|()| run(&(control(50) + &more), &[]));
        assert_unharmed(&outcome);
        assert_eq!(outcome.vm("first")["state"], "running");
        assert_eq!(outcome.files["wire.bin"], again.files["wire.bin"], "the same each time");
    }
}

/// All that a VM prints is on its own console, and the user's terminal gets no escape sequence of
/// it.
#[test]
fn no_output_passes_for_anothers_or_the_hypervisors() {
    let text = control(200) + &attacker("forger", "1", "rounds=20", "expect = [\"forger: done\"]");
    let outcome = run(&text, &[]);
    assert_unharmed(&outcome);
    let forged = |text: &str| text.contains("forged") || text.contains("9 misses");
    assert!(!outcome.lines("control").into_iter().any(forged));
    let log = String::from_utf8_lossy(&outcome.files["hypervisor.log"]).into_owned();
    assert!(!forged(&log) && !log.contains("fault"), "{log}");
    assert_eq!(outcome.report["totals"]["faults"], 0);
    assert_eq!(outcome.report["totals"]["damaged_frames"], 0);
    for line in outcome.printed.out.lines().filter(|line| forged(line)) {
        assert!(line.starts_with("forger"), "{line:?}");
        let harmless = |character: char| !character.is_control() || character == '\t';
        assert!(line.chars().all(harmless), "{line:?}");
    }
}

/// Twenty faults in a row and a power-off: the report has all of them, and the other VM's records.
#[test]
fn a_flood_of_faults_is_counted_and_harmless() {
    let text = control(500)
        + &attacker(
            "faults",
            "1",
            "faults=60",
            "on_fault = \"restart\"\nexpect = [\"faults: 60 faults\"]",
        );
    let outcome = run(&text, &[]);
    assert_unharmed(&outcome);
    let vm = outcome.vm("faults");
    assert_eq!((&vm["restarts"], &vm["state"]), (&60.into(), &"off".into()));
    assert_eq!(vm["fault_counts"]["write outside its memory"], 60);
    let lost = vm["records_lost"].as_u64().expect("a number");
    println!("records of the flood lost: {lost}");
    let lost = outcome.vm("control")["records_lost"].as_u64().expect("a number");
    let attack = Attack { guest: "faults, 60 at once", core: "another" };
    attack.assert_loss("records of the victim lost", lost, 0);
    let listed = vm["faults"].as_array().expect("faults").len() as u64;
    assert_eq!(listed + vm["faults_left_out"].as_u64().expect("a number"), 60);
}

/// No input can make EL2 panic: none of its builds has the code for it.
#[test]
fn the_hypervisor_has_no_code_that_panics() {
    build_programs();
    let programs = root().join("build/programs");
    let names = fs::read_dir(&programs).expect("the programs").flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    // Each board's build with all parts has a list of its sources.
    let boards = names.filter_map(|name| Some(name.strip_suffix(".sources")?.to_owned()));
    let mut builds = 0;
    for name in boards.filter(|name| name.starts_with("weir-hypervisor-")) {
        let elf = fs::read(programs.join(&name)).expect("a hypervisor");
        let elf = object::File::parse(&*elf).expect("an ELF file");
        let symbols: Vec<&str> = elf.symbols().filter_map(|symbol| symbol.name().ok()).collect();
        assert!(symbols.contains(&"vectors"), "{name} has symbols");
        let panics: Vec<_> = symbols.iter().filter(|name| name.contains("9panicking")).collect();
        assert!(panics.is_empty(), "{name}: {panics:?}");
        builds += 1;
    }
    assert!(builds >= 2, "both GICs");
}
