//! Attacks on the time of a VM that shares its core.

mod support;

use support::qemu::{Options, run_system};

/// A VM with a PCI function that is reset at function level, which takes 100 ms, restarts again and again next to a victim that owns
/// half of each ms.
#[test]
fn a_vm_whose_pci_function_is_reset_takes_no_time_from_the_sharer() {
    let text = r#"
platform = "qemu-virt"

[[vm]]
name = "victim"
cpus = [0]
memory = "4MiB"
image = { elf = "guests/attacks/reader", args = "for_us=250000 size=0x10000 gap_us=700" }
expect = ["reader: "]

[[vm]]
name = "attacker"
cpus = [0]
memory = "4MiB"
image = { elf = "guests/attacks/budget-weapon", args = "do=restart" }
devices = ["pci:00:03.0"]

[[core]]
id = 0
schedule = { kind = "table", frame = "1ms", slots = [{ vm = "victim", start = "0us", length = "500us" }, { vm = "attacker", start = "500us", length = "500us" }] }
"#;
    let arguments = ["--qemu-arg=-device", "--qemu-arg=nvme,addr=3,serial=a"];
    let outcome = run_system(text, &Options { arguments: &arguments, ..Options::default() }).good();
    let lines = outcome.lines("victim");
    let line = lines.iter().find(|line| line.starts_with("reader: ")).expect("a report");
    let numbers: Vec<u64> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    let (gaps, longest) = (numbers[1], numbers[3]);
    // Half of each ms, two switches, and what EL2 does in one piece at the end of the attacker's slot.
    assert!(gaps == 0 && longest <= 700_000, "{line}");
    // Each restart has its 100 ms, and is counted once; the last reset may be under way.
    let restarts = outcome.vm("attacker")["restarts"].as_u64().expect("a number");
    assert!((1..=3).contains(&restarts), "{restarts} restarts in 250 ms");
    let resets = outcome.vm("attacker")["resets"].as_u64().expect("a number");
    assert!((restarts..=restarts + 1).contains(&resets), "{resets} resets, {restarts} restarts");
}
