//! A device of the class *active*, and the console, from VM to VM, in real runs.

use crate::support::qemu::{Options, Outcome, run_system};

/// A VM with the PL061, which hands it on to VM `other`.
fn vm(name: &str, core: u32, other: u32, args: &str, more: &str) -> String {
    format!(
        r#"
[[vm]]
name = "{name}"
cpus = [{core}]
memory = "4MiB"
image = {{ elf = "focus", args = "other={other} {args}" }}
devices = ["/pl061@9030000"]
focus = true
{more}

[[irq]]
line = 39
vm = "{name}"
class = "active"
wcet = "10us"
"#
    )
}

const ROUNDS: &str = r#"expect = ["focus: 5 rounds, 5 kept to the end"]"#;
const SHARED: &str = "[[core]]\nid = 0\nschedule = { kind = \"round-robin\", quantum = \"1ms\" }\n";

fn system(platform: &str, parts: &[String]) -> String {
    format!("platform = \"{platform}\"\n{}", parts.concat())
}

/// Blind and wrong rounds of a VM's last report.
fn counts(outcome: &Outcome, vm: &str) -> (u64, u64) {
    let lines = outcome.lines(vm);
    let line = lines.iter().rfind(|line| line.contains(" rounds, ")).expect("a report");
    let numbers: Vec<u64> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    (numbers[2], numbers[3])
}

#[test]
fn a_device_is_handed_over_after_its_interrupt() {
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        for second in [0, 1] {
            let vms = [vm("a", 0, 1, "", ROUNDS), vm("b", second, 0, "", ROUNDS)];
            let shared = if second == 0 { SHARED } else { "" };
            let text = system(platform, &[vms.concat(), shared.to_owned()]);
            let outcome = run_system(&text, &Options::default()).good();
            let all = [counts(&outcome, "a"), counts(&outcome, "b")];
            assert!(all.iter().all(|(_, wrong)| *wrong == 0), "{all:?}");
            assert!(all.iter().any(|(blind, _)| *blind > 0), "{all:?}");
        }
    }
}

/// The second one ends while it handles the device's interrupt: that comes to the first then.
#[test]
fn a_vm_that_dies_gives_back_what_it_had() {
    for core in [0, 1] {
        let dies = format!("{ROUNDS}\non_fault = \"restart\"");
        // It has it twice in its first boot and five times in its second.
        let first = vm("a", 0, 1, "rounds=7", r#"expect = ["focus: 7 rounds, 7 kept to the end"]"#);
        let vms = [first, vm("b", core, 0, "die=2", &dies)];
        let shared = if core == 0 { SHARED } else { "" };
        let text = system("qemu-virt", &[vms.concat(), shared.to_owned()]);
        let outcome = run_system(&text, &Options::default()).good();
        assert_eq!(outcome.vm("b")["restarts"], 1);
        assert_eq!((counts(&outcome, "a").1, counts(&outcome, "b").1), (0, 0));
    }
    // One that is not started again: the first has it to its end, as no other VM can take it.
    let dies = "on_fault = \"halt\"";
    let first = vm("a", 0, 1, "rounds=2", r#"expect = ["focus: 2 rounds"]"#);
    let text = system("qemu-virt", &[first, vm("b", 1, 0, "die=1", dies)]);
    let outcome = run_system(&text, &Options::default()).good();
    assert_eq!(outcome.vm("b")["state"], "halted");
}

/// The second VM hands the console over after three characters: what is typed later is the first
/// one's.
#[test]
fn the_console_is_handed_over_in_the_middle_of_a_line() {
    let first = vm("a", 0, 1, "rounds=0", r#"expect = ["focus: typed lo"]"#);
    let second = vm("b", 0, 0, "rounds=0 keys=3", r#"expect = ["focus: typed hel"]"#);
    let text = system("qemu-virt", &[first, second, SHARED.to_owned()]);
    let options = Options {
        typed: Some(("b", "focus: 0 rounds", "hel")),
        then: Some(("b", "focus: typed hel", "lo\r")),
        ..Options::default()
    };
    let outcome = run_system(&text, &options).good();
    assert!(!outcome.consoles["b"].contains("lo"), "{}", outcome.consoles["b"]);
}

#[test]
fn only_permitted_vms_hand_over() {
    let no = |vm: String| vm.replace("focus = true", "focus = false");
    let first = no(vm(
        "a",
        0,
        1,
        "rounds=1",
        r#"expect = ["focus: 1 rounds, 0 kept to the end, 0 blind after it, 1 wrong"]"#,
    ));
    let text = system("qemu-virt", &[first, no(vm("b", 1, 0, "rounds=1", ""))]);
    let outcome = run_system(&text, &Options::default()).good();
    assert!(!outcome.consoles["b"].contains("rounds"));
}
