//! Attacks on the time of a VM that shares its core.

use crate::support::{
    board::sharing,
    loss::{Attack, LATER},
    qemu::{Options, Outcome, run_system},
};

/// A control loop of 1 ms on core 0, with activations that are due when its slot of [`SLOTS`]
/// begins, and `storms` on these cores.
fn storm(activations: u64, cores: &str, args: &str, more: &str) -> Outcome {
    let text = format!(
        r#"
platform = "qemu-virt"

[hypervisor]
heartbeat = "5ms"
console_core = 0

[[vm]]
name = "control"
cpus = [0]
memory = "4MiB"
image = {{ elf = "control", args = "activations={activations} report={activations} phase_us=0 histogram=1" }}
expect = ["control: {activations} activations, 0 misses", "control: histogram"]

[[vm]]
name = "storms"
cpus = [{cores}]
memory = "4MiB"
image = {{ elf = "storms", args = "{args}" }}
{more}
"#
    );
    run_system(&text, &Options::default()).good()
}

const SLOTS: &str = r#"
[[core]]
id = 0
schedule = { kind = "table", major_frame = "1ms", slots = [{ vm = "control", start = "0us", length = "500us" }, { vm = "storms", start = "500us", length = "500us" }] }
"#;

/// What follows `before` in the victim's report.
fn reported<'a>(outcome: &'a Outcome, before: &str) -> &'a str {
    let lines = outcome.lines("control");
    lines.iter().find_map(|line| line.split_once(before)).expect("latencies").1
}

/// The longest latency that `control` measured, in nanoseconds of virtual time.
fn longest(outcome: &Outcome) -> u64 {
    let max = reported(outcome, " max ").split(' ').next();
    max.and_then(|max| max.parse().ok()).expect("a number")
}

/// What a storm does, with an exit of EL2 that each of its rounds causes. Maintenance causes none:
/// its rounds are counted instead.
const STORMS: [(&str, Option<&str>); 5] = [
    ("sgi", Some("SGI sent")),
    ("mmio", Some("GIC register")),
    ("pending", Some("GIC register")),
    ("hypercall", Some("hypercall")),
    ("maintenance", None),
];
const ACTIVATIONS: u64 = 20;

/// Runs the loop next to this storm, which has one of `share` parts of its core's time, until both
/// are over.
fn run_storm(
    (kind, exit): (&str, Option<&str>),
    cores: &str,
    share: u64,
    schedule: &str,
) -> Outcome {
    let Some(exit) = exit else {
        // A round takes 110 ns, so that these last until the loop has ended.
        let rounds = ACTIVATIONS * 12_000 / share;
        let args = format!("kind={kind} rounds={rounds}");
        let expected = format!("expect = [\"storms: {rounds} rounds\"]\n{schedule}");
        return storm(ACTIVATIONS, cores, &args, &expected);
    };
    let outcome = storm(ACTIVATIONS, cores, &format!("kind={kind}"), schedule);
    let exits = outcome.vm("storms")["exits"][exit].as_u64().expect("counters came");
    // One in 4 us of the storm's time.
    assert!(exits > ACTIVATIONS * 250 / share, "{kind}: {exits} times {exit}");
    outcome
}

/// A storm has no way to a core that its VM does not have.
#[test]
fn storms_on_another_core_cost_a_control_loop_nothing() {
    let quiet = longest(&storm(ACTIVATIONS, "1", "kind=nothing", ""));
    for (kind, exit) in STORMS {
        let (cores, core) = if kind == "sgi" { ("1, 2", "two others") } else { ("1", "another") };
        let latency = longest(&run_storm((kind, exit), cores, 1, ""));
        println!("{kind}: {latency} ns, {quiet} next to a VM that computes");
        let guest = format!("storms kind={kind}");
        // An activation can come while EL2 reports, which is an entry.
        let attack = Attack { guest: &guest, core };
        attack.assert_loss(LATER, latency.saturating_sub(quiet), sharing().entry.0);
    }
}

/// A storm on the same core ends with its slot, but for the trap that EL2 handles then.
#[test]
fn storms_on_a_shared_core_cost_control_one_trap() {
    let quiet = longest(&storm(ACTIVATIONS, "0", "kind=nothing", SLOTS));
    for (kind, exit) in STORMS {
        let latency = longest(&run_storm((kind, exit), "0", 2, SLOTS));
        println!("{kind}: {latency} ns, {quiet} next to a VM that computes");
        // EL2 handles the trap that it is in before it sees the slot's end. The longest switch, by
        // the board's file, contains the longest section, so that no activation is later than that.
        let guest = format!("storms kind={kind}");
        Attack { guest: &guest, core: "shared" }.assert_late(latency, quiet);
    }
}

/// A storm on another core reaches the core that its VM shares by SGIs, of which one comes until
/// the VM's vCPU there has run.
#[test]
fn storms_from_another_core_cost_control_one_event() {
    let quiet = longest(&storm(ACTIVATIONS, "1, 0", "kind=nothing", SLOTS));
    for (kind, exit) in STORMS {
        let latency = longest(&run_storm((kind, exit), "1, 0", 1, SLOTS));
        println!("{kind}: {latency} ns, {quiet} next to a VM that computes");
        let attack = Attack { guest: &format!("storms kind={kind}"), core: "shared and another" };
        attack.assert_loss(LATER, latency.saturating_sub(quiet), sharing().interrupt.0);
    }
}

/// A control loop on core 0, and next to it a VM that runs `image`; `keys` are of the two VMs, the
/// console is on core `console`. No heartbeat comes, whose counts EL2 sends in a row if QEMU's UART
/// takes them at once.
fn next_to(image: &str, keys: [&str; 2], console: u8, activations: u64) -> Outcome {
    let [own, others] = keys;
    let text = format!(
        r#"
platform = "qemu-virt"

[hypervisor]
heartbeat = "1s"
console_core = {console}

[[vm]]
name = "control"
cpus = [0]
memory = "4MiB"
{own}
image = {{ elf = "control", args = "activations={activations} report={activations} phase_us=0 histogram=1" }}
expect = ["control: {activations} activations, 0 misses", "control: histogram"]

[[vm]]
name = "storms"
cpus = [0]
memory = "4MiB"
{others}
image = {{ {image} }}
{SLOTS}"#
    );
    run_system(&text, &Options::default()).good()
}

const COMPUTES: &str = r#"elf = "storms", args = "kind=nothing""#;

/// VMs with different colors.
fn colored(image: &str) -> Outcome {
    next_to(image, [r#"colors = "0-3""#, r#"colors = "5,7,9,11""#], 0, 200)
}

/// A restart zeroes and copies pages of the VM's colors, which EL2 searches, in short sections.
#[test]
fn a_colored_restart_costs_control_one_section() {
    let quiet = longest(&colored(COMPUTES));
    let outcome = colored(r#"elf = "budget-weapon", args = "do=restart""#);
    assert!(outcome.vm("storms")["restarts"].as_u64().expect("a number") > 3);
    let latency = longest(&outcome);
    println!("{latency} ns, {quiet} next to a VM that computes");
    // The section that EL2 is in when the slot ends.
    Attack { guest: "budget-weapon do=restart, colored", core: "shared" }
        .assert_late(latency, quiet);
}

/// A VM that faults and restarts all the time delays a slot of its neighbor by one switch, on
/// whichever core the console is.
#[test]
fn restarts_delay_a_slot_by_at_most_one_switch() {
    let faults = r#"elf = "faults", args = "faults=100000""#;
    let keys = ["", "on_fault = \"restart\""];
    let quiet = longest(&next_to(COMPUTES, keys, 0, 150));
    for console in [0, 1] {
        let outcome = next_to(faults, keys, console, 150);
        let restarts = outcome.vm("storms")["restarts"].as_u64().expect("a number");
        assert!(restarts > 10, "{restarts}");
        let latency = longest(&outcome);
        println!("console on {console}: {latency} ns, {quiet} next to a VM that computes");
        let guest = format!("faults, console on core {console}");
        Attack { guest: &guest, core: "shared" }.assert_late(latency, quiet);
    }
}

/// A VM with a PCI function that is reset at function level, which takes 100 ms, restarts again and
/// again next to a victim that owns half of each ms.
#[test]
fn a_pci_reset_takes_no_time_from_the_sharer() {
    let text = r#"
platform = "qemu-virt"

[[vm]]
name = "victim"
cpus = [0]
memory = "4MiB"
image = { elf = "reader", args = "for_us=250000 size=0x10000 gap_us=524" }
expect = ["reader: "]

[[vm]]
name = "attacker"
cpus = [0]
memory = "4MiB"
image = { elf = "budget-weapon", args = "do=restart" }
devices = ["pci:00:03.0"]

[[core]]
id = 0
schedule = { kind = "table", major_frame = "1ms", slots = [{ vm = "victim", start = "0us", length = "500us" }, { vm = "attacker", start = "500us", length = "500us" }] }
"#;
    let arguments = ["--qemu-arg=-device", "--qemu-arg=nvme,addr=3,serial=a"];
    let outcome = run_system(text, &Options { arguments: &arguments, ..Options::default() }).good();
    let lines = outcome.lines("victim");
    let line = lines.iter().find(|line| line.starts_with("reader: ")).expect("a report");
    let numbers: Vec<u64> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    let (gaps, longest) = (numbers[1], numbers[3]);
    // Half of each ms, and the two switches, which contain the longest section of EL2.
    assert!(gaps == 0, "{line}");
    let guest = "budget-weapon do=restart, with a PCI function that takes 100 ms";
    let attack = Attack { guest, core: "shared, victim owns half of each ms" };
    let away = 500_000 + 2 * sharing().switch.0;
    attack.assert_loss("ns away from the core at a time", longest, away);
    // Each restart has its 100 ms, and is counted once; the last reset may be under way.
    let restarts = outcome.vm("attacker")["restarts"].as_u64().expect("a number");
    assert!((1..=3).contains(&restarts), "{restarts} restarts in 250 ms");
    let resets = outcome.vm("attacker")["resets"].as_u64().expect("a number");
    assert!((restarts..=restarts + 1).contains(&resets), "{resets} resets, {restarts} restarts");
}

/// A guest on the same core that floods the trace with marks, also of a task with the victim's name,
/// hides none of the victim's activations, adds none, and no miss is lost.
#[test]
fn a_flood_of_marks_hides_no_activation() {
    for (phase_us, is_late) in [(200, false), (700, true)] {
        let text = format!(
            r#"
platform = "qemu-virt"

[hypervisor]
heartbeat = "50ms"

[[vm]]
name = "control"
cpus = [0]
memory = "4MiB"
image = {{ elf = "control", args = "activations=200 report=200 phase_us={phase_us}" }}
expect = ["control: 200 activations"]

[[vm.task]]
name = "control"
wcet = "1us"
period = "1ms"
deadline = "100us"

[[vm]]
name = "storms"
cpus = [0]
memory = "4MiB"
image = {{ elf = "storms", args = "kind=marks" }}
{SLOTS}"#
        );
        let outcome = run_system(&text, &Options::default());
        let task = &outcome.vm("control")["tasks"][0];
        let number = |key: &str| task[key].as_u64().unwrap_or_else(|| panic!("{key} of {task}"));
        assert!((200..=201).contains(&number("activations")), "{task}");
        assert_eq!(number("misses"), if is_late { number("activations") } else { 0 }, "{task}");
        assert_eq!(task["verdict"], if is_late { "does-not-hold" } else { "holds" }, "{task}");
        let calls = outcome.vm("storms")["exits"]["hypercall"].as_u64().expect("a number");
        assert!(calls > 100_000, "{calls} marks are no flood");
    }
}
