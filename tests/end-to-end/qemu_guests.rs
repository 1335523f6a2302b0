//! Real systems in QEMU: bare-metal guests, U-Boot, and images and boards that are not as they
//! should be.

use crate::support::board::{board, has_gicv2};
use crate::support::qemu::{Options, Outcome, build_image, random_word, run_system, system, with};
use std::{fs, mem::offset_of};
use weir_abi::{MAGIC, PAGE, PackedHeader, PackedVm, checksum};

const GICV2: &[&str] = &["--platform", "qemu-virt-gicv2"];

/// Runs a system for at most 30 s of virtual time until all of its expected lines were seen.
fn run(text: &str, arguments: &[&str]) -> Outcome {
    let all = [&["--for", "30s"], arguments].concat();
    run_system(text, &Options { arguments: &all, ..Options::default() }).good()
}

/// Fails unless each report of `control`, of which there is at least one, has no miss, and nothing
/// else happened to it.
fn control_was_not_disturbed(outcome: &Outcome) {
    let lines = outcome.lines("control");
    let reports: Vec<_> = lines.iter().filter(|line| line.contains(" activations, ")).collect();
    assert!(!reports.is_empty(), "{lines:?}");
    assert!(reports.iter().all(|line| line.ends_with(", 0 misses")), "{lines:?}");
    let vm = outcome.vm("control");
    assert_eq!((&vm["state"], &vm["restarts"]), (&"running".into(), &0.into()));
    assert_eq!((&vm["denials"], &vm["faults"]), (&serde_json::json!({}), &serde_json::json!([])));
}

/// The number before `unit` in `line`.
fn number(line: &str, unit: &str) -> u64 {
    let before = line.split(unit).next().expect("a part");
    let word = before.split_whitespace().last().unwrap_or_default();
    word.parse().unwrap_or_else(|_| panic!("no number before {unit} in {line}"))
}

/// With page classes for the hypervisor, so that it moves there while it boots, and all VMs' memory
/// is divided from it.
fn moved(text: &str) -> String {
    if text.contains("[hypervisor]\n") {
        return with(text, "[hypervisor]\n", "[hypervisor]\ncolors = \"12-15\"\n");
    }
    format!("{text}\n[hypervisor]\ncolors = \"12-15\"\n")
}

/// Fails unless the hypervisor read back tables that keep to all owners' page classes.
fn it_moved(outcome: &Outcome) {
    let printed = outcome.report["hypervisor"].to_string();
    assert!(printed.contains("pages in its tables, each in its owner's page classes"), "{printed}");
}

fn four_vcpus_interrupt_each_other(arguments: &[&str]) {
    four_vcpus_are_interrupted(&run(&system("smp"), arguments));
}

fn four_vcpus_are_interrupted(outcome: &Outcome) {
    let vm = outcome.vm("smp");
    let vcpus = vm["vcpus"].as_array().expect("vCPUs");
    assert_eq!(vcpus.len(), 4);
    assert_eq!(vm["faults"], serde_json::json!([]));
    assert_eq!(outcome.lines("smp").last(), Some(&"smp: 4 cores, all checks passed"));
}

#[test]
fn four_vcpus_interrupt_each_other_on_gicv3() {
    four_vcpus_interrupt_each_other(&[]);
}

#[test]
fn four_vcpus_interrupt_each_other_on_gicv2() {
    four_vcpus_interrupt_each_other(GICV2);
}

/// Every device of the virtual board elsewhere: the guest knows it from the device tree alone.
#[test]
fn the_devices_of_the_board_can_be_moved() {
    let cpus = "cpus = [0, 1, 2, 3]";
    let moved = |gic: &str| {
        format!(
            "{cpus}\n\
             board = {{ distributor = 0x1000_0000, {gic}, uart = 0x2345_6000, uart_intid = 57 }}"
        )
    };
    for (gic, arguments) in
        [("redistributors = 0x1100_0000", &[][..]), ("cpu_interface = 0x1100_0000", GICV2)]
    {
        let outcome = run(&with(&system("smp"), cpus, &moved(gic)), arguments);
        assert_eq!(outcome.lines("smp").last(), Some(&"smp: 4 cores, all checks passed"));
    }
}

fn a_storm_leaves_control_alone(arguments: &[&str]) {
    the_storm_was_one(&run(&system("storm"), arguments));
}

fn the_storm_was_one(outcome: &Outcome) {
    control_was_not_disturbed(outcome);
    let lines = outcome.lines("storm");
    let line = lines.iter().find(|line| line.contains(" MMIO, ")).expect("what was met");
    // It is a storm only if EL2 had something to do nearly all the time.
    assert!(number(line, " MMIO") > 100_000 && number(line, " calls") > 100_000, "{line}");
    assert!(outcome.report["totals"]["exits"].as_u64() > Some(200_000), "{}", outcome.report);
}

#[test]
fn an_mmio_and_call_storm_spares_control_on_gicv3() {
    a_storm_leaves_control_alone(&[]);
}

#[test]
fn an_mmio_and_call_storm_spares_control_on_gicv2() {
    a_storm_leaves_control_alone(GICV2);
}

/// `control`'s histogram of latencies: how many activations by the lower end of their bucket in
/// nanoseconds.
fn histogram(outcome: &Outcome) -> Vec<(u64, u64)> {
    let lines = outcome.lines("control");
    let line = lines.iter().find_map(|line| line.strip_prefix("control: histogram ")).expect("one");
    let pair = |pair: &str| {
        let (lower, count) = pair.split_once(':').expect("lower:count");
        (lower.parse().expect("nanoseconds"), count.parse().expect("a count"))
    };
    line.split(' ').map(pair).collect()
}

/// The guest hashes its memory before it writes to any; a random word in its device tree makes the
/// hash unpredictable.
#[test]
fn all_boots_begin_with_the_same_memory() {
    let quiet = "image = { elf = \"control\" }\nexpect = [";
    let args =
        "image = { elf = \"control\", args = \"histogram=1\" }\nexpect = [\"control: histogram\", ";
    let system = with(&system("phoenix"), quiet, args);
    let alone = with(&system, "boots=250 quiet=1", "boots=1 quiet=1");
    let alone = histogram(&run(&with(&alone, "250 boots, hash", "1 boots, hash"), &[]));

    let args = format!("boots=250 word={}", random_word());
    let text = with(&system, "boots=250 quiet=1", &args);
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("phoenix.img");
    let built = build_image(&text, &image);
    let pristine = &built["vms"][0];
    assert_eq!(pristine["name"], "phoenix");
    let pristine = pristine["pristine_crc32c"].as_str().expect("a check sum");
    let pristine = pristine.trim_start_matches("0x").to_uppercase();
    let outcome = run(&text, &["--image-file", image.to_str().expect("a path")]);
    let lines = outcome.lines("phoenix");
    let expected: Vec<String> = (1..=250)
        .map(|boot| format!("phoenix: boot {boot} hash {pristine}"))
        .chain([format!("phoenix: 250 boots, hash {pristine}")])
        .collect();
    for (line, expected) in lines.iter().zip(&expected) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.len(), expected.len());
    let vm = outcome.vm("phoenix");
    let count = |key: &str| vm[key].as_u64().expect("a count");
    assert_eq!((count("boots"), count("restarts"), count("resets")), (250, 249, 249));
    assert_eq!(vm["faults"], serde_json::json!([]));
    control_was_not_disturbed(&outcome);
    let shared = histogram(&outcome);
    assert_eq!(shared, alone, "next to 250 boots, and alone");
}

#[test]
fn a_relocated_hypervisor_behaves_the_same() {
    for arguments in [&[][..], GICV2] {
        let outcome = run(&moved(&system("smp")), arguments);
        it_moved(&outcome);
        four_vcpus_are_interrupted(&outcome);
        let outcome = run(&moved(&system("storm")), arguments);
        it_moved(&outcome);
        the_storm_was_one(&outcome);
    }
    let text = with(&system("phoenix"), "250 boots, hash", "20 boots, hash");
    let text = with(&text, "boots=250 quiet=1", &format!("boots=20 word={}", random_word()));
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("phoenix.img");
    let built = build_image(&moved(&text), &image);
    let pristine = built["vms"][0]["pristine_crc32c"].as_str().expect("a check sum");
    let outcome = run(&moved(&text), &["--image-file", image.to_str().expect("a path")]);
    it_moved(&outcome);
    let same = format!(" hash {}", pristine.trim_start_matches("0x").to_uppercase());
    let lines = outcome.lines("phoenix");
    assert!(lines.len() == 21 && lines.iter().all(|line| line.ends_with(&same)), "{lines:?}");
    control_was_not_disturbed(&outcome);
}

#[test]
fn basic_systems_run_in_a_relocated_hypervisor() {
    for name in ["demo", "linux-reboot", "passthrough", "probe-4"] {
        it_moved(&run(&moved(&system(name)), &[]));
    }
}

const CONTROL: &str = r#"
[[vm]]
name = "control"
cpus = [0]
memory = "2MiB"
image = { elf = "control", args = "activations=200" }
"#;

/// Three VMs; `attacks` sets for `one` and `two` the reaction to a fault, and further keys.
fn attackers(attacks: [(&str, &str); 2]) -> String {
    let [one, two] = attacks.map(|(on_fault, expect)| {
        format!(
            "memory = \"2MiB\"\nimage = {{ elf = \"attacker\", args = \"attack=1\" }}\n\
             on_fault = \"{on_fault}\"\n{expect}\n"
        )
    });
    format!(
        "platform = \"qemu-virt\"\n{CONTROL}expect = [\"control: 200 activations, 0 misses\"]\n\
         [[vm]]\nname = \"one\"\ncpus = [1]\n{one}[[vm]]\nname = \"two\"\ncpus = [2]\n{two}"
    )
}

#[test]
fn a_fault_halts_or_restarts_that_vm_alone() {
    let attacks =
        |count| format!("expect = {:?}", vec!["attacker: attack 1: read below its memory"; count]);
    let text = attackers([("halt", &attacks(1)), ("restart", &attacks(10))]);
    let text = text.replace("activations=200", "activations=30").replace("200 act", "30 act");
    one_was_halted_and_one_restarted(&run(&text, &[]));
    let outcome = run(&moved(&text), &[]);
    it_moved(&outcome);
    one_was_halted_and_one_restarted(&outcome);
}

fn one_was_halted_and_one_restarted(outcome: &Outcome) {
    control_was_not_disturbed(outcome);
    let (halted, restarted) = (outcome.vm("one"), outcome.vm("two"));
    assert_eq!((&halted["state"], &halted["boots"]), (&"halted".into(), &1.into()));
    assert_eq!(halted["fault_counts"], serde_json::json!({ "read outside its memory": 1 }));
    assert_eq!(restarted["state"], "running");
    let restarts = restarted["restarts"].as_u64().expect("a count");
    assert!(restarts >= 9, "{restarts}");
    assert_eq!(restarted["boots"], restarts + 1);
    assert_eq!(restarted["resets"], 0, "it did not ask for them");
    let lines = outcome.lines("one");
    assert_eq!(lines, ["attacker: attack 1: read below its memory"], "nothing ran after the fault");
}

#[test]
fn a_fault_stops_the_system_with_stop_system() {
    let system = attackers([("stop-system", "expect = [\"attacker: attack 1\"]"), ("halt", "")]);
    let system = with(&system, "control: 200 activations", "control: 1000000 activations");
    let arguments = ["--for", "30s"];
    let outcome = run_system(&system, &Options { arguments: &arguments, ..Options::default() });
    assert_eq!(outcome.report["ended_by"], "system-stop", "{}", outcome.printed.err);
    assert_eq!(outcome.printed.status, Some(1), "control could not finish");
    assert_eq!(outcome.vm("one")["state"], "halted");
    assert_eq!(outcome.vm("one")["expect"][0]["met"], true);
}

/// Debian's U-Boot, which was not made for weir: its prompt, then the device tree that it found.
fn u_boot_prints_its_device_tree(name: &str, memory: &[&str]) {
    const NODES: &[&str] = &[
        "=> fdt addr $fdtcontroladdr",
        "=> fdt print",
        "stdout-path = \"/pl011@9000000\"",
        "compatible = \"arm,armv8-timer\"",
        "pl011@9000000 {",
    ];
    let gic = if has_gicv2(&board()) { "arm,cortex-a15-gic" } else { "arm,gic-v3" };
    let gic = format!("compatible = \"{gic}\"");
    let all: Vec<_> =
        NODES.iter().chain([&gic.as_str()]).chain(memory).map(|text| format!("{text:?}")).collect();
    let text = with(&system(name), "\"=> \"]", &format!("\"=> \", {}]", all.join(", ")));
    let outcome = run_system(
        &text,
        &Options {
            arguments: &["--for", "120s"],
            typed: Some(("uboot", "stop autoboot", " ")),
            then: Some(("uboot", "=> ", "fdt addr $fdtcontroladdr\rfdt print\r")),
            ..Options::default()
        },
    )
    .good();
    let vm = outcome.vm("uboot");
    assert_eq!((&vm["state"], &vm["faults"]), (&"running".into(), &serde_json::json!([])));
}

#[test]
fn u_boot_prints_its_device_tree_at_ram_base_1_gib() {
    u_boot_prints_its_device_tree(
        "uboot",
        &["memory@40000000 {", "reg = <0x00000000 0x40000000 0x00000000 0x04000000"],
    );
}

#[test]
fn u_boot_prints_its_device_tree_at_ram_base_0() {
    u_boot_prints_its_device_tree(
        "uboot-low",
        &["memory@0 {", "reg = <0x00000000 0x00000000 0x00000000 0x04200000 0x00000000 0x40000000"],
    );
}

#[test]
fn damaged_tables_are_refused_with_the_reason() {
    let text =
        with(&format!("platform = \"qemu-virt\"\n{CONTROL}"), "activations=200", "activations=1");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("damaged.img");
    build_image(&text, &file);
    let good = fs::read(&file).expect("an image");
    let page = usize::try_from(PAGE).expect("a page");
    let mut pages = (0..good.len()).step_by(page);
    let start = pages.find(|&start| good[start..].starts_with(&MAGIC)).expect("the packed form");
    let word = |bytes: &[u8], offset: usize| {
        u32::from_le_bytes(bytes[start + offset..][..4].try_into().expect("four bytes")) as usize
    };
    let tables_len = word(&good, offset_of!(PackedHeader, tables_len));
    // A damaged table can have the right check sum.
    let summed = |mut bytes: Vec<u8>| {
        let sum = checksum(&bytes[start + 16..start + tables_len]);
        bytes[start + 12..][..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    let flipped = |offset: usize| {
        let mut bytes = good.clone();
        bytes[start + offset] ^= 0x81;
        bytes
    };
    assert_eq!(summed(good.clone()), good, "the check sum is where it is thought to be");
    let cases = [
        ("no packed system", flipped(0)),
        ("of another version", flipped(offset_of!(PackedHeader, version))),
        ("check sum is wrong", flipped(size_of::<PackedHeader>() + 3)),
        ("check sum is wrong", flipped(tables_len - 1)),
        ("points beyond its end", summed(flipped(offset_of!(PackedHeader, cores)))),
        (
            "addresses are not aligned",
            summed(flipped(size_of::<PackedHeader>() + offset_of!(PackedVm, distributor))),
        ),
    ];
    let platform = board().name;
    for (reason, bytes) in cases {
        fs::write(&file, bytes).expect("an image");
        let file = file.to_str().expect("a path");
        let arguments = ["--for", "5s", "--platform", &platform, "--image-file", file];
        let outcome = run_system(&text, &Options { arguments: &arguments, ..Options::default() });
        assert_eq!(outcome.printed.status, Some(1), "{reason}: {}", outcome.printed.err);
        let printed = outcome.report["hypervisor"].to_string();
        assert!(
            printed.contains("refuses its image") && printed.contains(reason),
            "{reason}: {printed}"
        );
        assert!(!printed.contains("panic"), "{printed}");
        assert_eq!(outcome.vm("control")["state"], "not-started");
    }
}

/// With EOImode 1, interrupts are deactivated in any order, and SPIs on another core than the one
/// that took them; more are active than there are list registers.
#[test]
fn interrupts_are_deactivated_in_any_order() {
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        for shared in [false, true] {
            let mut text = format!(
                r#"
platform = "{platform}"

[[vm]]
name = "guest"
cpus = [0, 1]
memory = "4MiB"
image = {{ elf = "interface", args = "do=deactivate" }}
devices = ["/pl031@9010000"]
expect = [" checks, 0 wrong"]
"#
            );
            if shared {
                text += r#"
[[vm]]
name = "other"
cpus = [0]
memory = "4MiB"
image = { elf = "worker", args = "steps=1000" }

[[core]]
id = 0
schedule = { kind = "round-robin", quantum = "200us" }
"#;
            }
            let outcome = run(&text, &[]);
            let console = &outcome.consoles["guest"];
            assert!(!console.contains("FAILED"), "{platform} shared={shared}: {console}");
        }
    }
}
