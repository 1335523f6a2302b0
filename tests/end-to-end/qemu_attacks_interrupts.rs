//! Isolation attacks with interrupts: what a VM does with its lines and timers, and what another VM
//! on the same core loses by it.

use crate::support::{
    board::sharing,
    capture,
    loss::Attack,
    qemu::{Options, Outcome, build_programs, root, run_system},
};
use std::{fs, process::Command};

/// Half of each 2 ms is the victim's.
const SLOTS: &str = r#"
[[core]]
id = 0
schedule = { kind = "table", major_frame = "2ms", slots = [
    { vm = "worker", start = "0ms", length = "1ms" }, { vm = "attacker", start = "1ms", length = "1ms" },
] }
"#;

/// What the victims lose.
const IN_SLOT: &str = "interrupts in one of the victim's slots";
const INTERRUPTS: &str = "interrupts of the attacker's timers at the victim";

/// What lasts for about 20 slots.
const STEPS: u32 = 8000;

/// The victim, and an attacker on these cores that runs this guest.
fn system(platform: &str, cpus: &str, attack: &str, args: &str) -> String {
    let slots = SLOTS.replace(" = [\n", " = [").replace("\n] }", "] }");
    format!(
        r#"
platform = "{platform}"

[[vm]]
name = "worker"
cpus = [0]
memory = "4MiB"
image = {{ elf = "worker", args = "steps={STEPS}" }}
expect = [" interrupts"]

[[vm]]
name = "attacker"
cpus = {cpus}
memory = "4MiB"
image = {{ elf = "{attack}", args = "{args}" }}
devices = ["/pl031@9010000"]
{slots}
"#
    )
}

/// How long the victim's work took, in microseconds, and how many interrupts it saw.
fn work(outcome: &Outcome) -> (u64, u64) {
    let lines = outcome.lines("worker");
    let line = lines.iter().find(|line| line.starts_with("worker: ")).expect("a report");
    let numbers: Vec<u64> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    (numbers[1], numbers[2])
}

/// The fields of the trace's records of a kind.
fn records(outcome: &Outcome, kind: &str) -> Vec<Vec<String>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("trace").arg(&outcome.run).args(["--format", "csv", "--kind", kind]);
    let printed = capture(&mut command);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    printed.out.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// The attacker's line, and the SGI by which EL2 informs a core of a change in a VM's distributor.
const LINE_AND_SGI: [&str; 2] = ["34", "1"];

/// Returns the times at which VMs got core 0.
fn switches(outcome: &Outcome) -> Vec<(u64, String)> {
    let switches = records(outcome, "vcpu-switch").into_iter();
    let on_core = switches.filter(|fields| fields[1] == "0");
    on_core.map(|fields| (fields[0].parse().expect("a time"), fields[2].clone())).collect()
}

/// Returns the time that the victim's work took of its own slots, in microseconds: without those
/// of the other VM in between, of which there is one more if the work just misses a slot's end.
fn own_us(outcome: &Outcome) -> u64 {
    let slots = switches(outcome).iter().filter(|(_, vm)| vm == "worker").count() as u64;
    work(outcome).0 - 1000 * (slots - 1)
}

/// The most interrupts for the attacker that core 0 took in one of the victim's slots.
fn most_in_a_slot(outcome: &Outcome) -> usize {
    let time = |fields: &Vec<String>| fields[0].parse::<u64>().expect("a time");
    let switches = switches(outcome);
    let interrupts = records(outcome, "interrupt");
    let for_attacker =
        |fields: &&Vec<String>| fields[1] == "0" && LINE_AND_SGI.contains(&fields[5].as_str());
    let came: Vec<u64> = interrupts.iter().filter(for_attacker).map(time).collect();
    let slots = switches.windows(2).filter(|pair| pair[0].1 == "worker");
    let most = slots
        .clone()
        .map(|pair| came.iter().filter(|at| (pair[0].0..pair[1].0).contains(*at)).count())
        .max();
    assert!(slots.count() > 10, "{switches:?}");
    most.unwrap_or(0)
}

/// How often the attacker's line came to core 0.
fn raised(outcome: &Outcome) -> usize {
    let interrupts = records(outcome, "interrupt");
    interrupts.iter().filter(|fields| fields[1] == "0" && fields[5] == LINE_AND_SGI[0]).count()
}

/// A line comes at most once in a slot of another VM, for any writes of its own VM to the
/// distributor elsewhere.
#[test]
fn a_cross_core_line_costs_one_interrupt_per_slot() {
    let attacks: [(&str, &[&str]); 2] = [
        ("qemu-virt", &["pending", "enable", "active", "route"]),
        ("qemu-virt-gicv2", &["pending", "route"]),
    ];
    for (platform, ways) in attacks {
        let run = |by: &str| {
            let text = system(platform, "[0, 1]", "line-raiser", &format!("by={by}"));
            run_system(&text, &Options::default()).good()
        };
        let quiet = own_us(&run("nothing"));
        for by in ways {
            let outcome = run(by);
            let rounds = outcome.consoles["attacker"].matches(" rounds").count();
            assert!(rounds > 0, "{platform} {by}: the attacker did nothing");
            let (us, most) = (own_us(&outcome), most_in_a_slot(&outcome));
            println!("{platform} by={by}: {most} in a slot, {us} us of work, {quiet} without");
            // With QEMU's GICv2 this attack disarms itself. If core 0 has acknowledged the line and
            // the second vCPU ends it, on core 1, by a list register with the HW bit, the line is
            // not deactivated: QEMU's trace of its GIC shows that it cannot be raised again. That
            // is a matter of chance, after one time to eleven in the builds so far, all of them in
            // a slot of the attacker's. With a GICv3 the attack goes on.
            let disarmed = (platform, *by) == ("qemu-virt-gicv2", "route");
            let lines = raised(&outcome);
            println!("the line came {lines} times to core 0");
            assert!(lines >= if disarmed { 1 } else { 100 }, "{platform} by={by}: {lines} times");
            // The line, and one message for what changed in the distributor.
            let least = usize::from(!disarmed);
            assert!(most >= least, "{platform} by={by}: {most} interrupts in a slot");
            let guest = format!("line-raiser by={by}, {platform}");
            let attack = Attack { guest: &guest, core: "shared and another" };
            attack.assert_loss(IN_SLOT, most as u64, 2);
            // The slots of a time table do not move: in each of its own, one in 2 ms, the victim
            // loses two interrupts of EL2, each of which takes less than a switch.
            let allowed = 2 * us.div_ceil(1000) * sharing().switch.0 / 1000;
            attack.assert_loss("us of the victim's work", us.saturating_sub(quiet), allowed);
        }
    }
}

/// Nothing of one VM's timers is left on the core for the next VM, nor for the next boot.
#[test]
fn a_pending_timer_interrupt_stays_with_its_vm() {
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        for args in ["rounds=100000", "rounds=500 then=reset"] {
            let text = system(platform, "[0]", "timer-latch", args);
            let outcome = run_system(&text, &Options::default()).good();
            let (_, interrupts) = work(&outcome);
            let guest = format!("timer-latch {args}, {platform}");
            Attack { guest: &guest, core: "shared" }.assert_loss(INTERRUPTS, interrupts, 0);
            if args.ends_with("reset") {
                let restarts = outcome.vm("attacker")["restarts"].as_u64();
                assert!(restarts.is_some_and(|restarts| restarts > 2), "{restarts:?}");
            }
        }
    }
}

/// A vCPU that sets another one's timers pending while that one's core takes them leaves nothing
/// for the next VM on that core.
#[test]
fn a_raced_timer_interrupt_stays_with_its_vm() {
    let text = system("qemu-virt", "[0, 1]", "timer-latch", "by=other");
    let text = text.replace(&format!("steps={STEPS}"), &format!("steps={}", 2 * STEPS));
    let outcome = run_system(&text, &Options::default()).good();
    let rounds = outcome.consoles["attacker"].matches(" rounds").count();
    assert!(rounds > 0, "the attacker did nothing");
    let (_, interrupts) = work(&outcome);
    println!("{rounds} thousand rounds, {interrupts} interrupts at the victim");
    let attack = Attack { guest: "timer-latch by=other", core: "shared and another" };
    attack.assert_loss(INTERRUPTS, interrupts, 0);
}

/// The interrupt that wakes a core from a power-down suspend comes, and so does the next one.
#[test]
fn power_down_keeps_the_wakeup_interrupt() {
    const GUEST: &str = r#"
[[vm]]
name = "sleeper"
cpus = [0]
memory = "4MiB"
image = { elf = "power-down" }
expect = ["power-down: 20 rounds, 40 interrupts"]
"#;
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        let dedicated = format!("platform = \"{platform}\"\n{GUEST}");
        let _ = run_system(&dedicated, &Options::default()).good();
        let worker = system(platform, "[0]", "power-down", "");
        let shared = worker.replace(
            "name = \"attacker\"",
            "name = \"attacker\"\nexpect = [\"power-down: 20 rounds, 40 interrupts\"]",
        );
        let outcome = run_system(&shared, &Options::default()).good();
        let guest = format!("power-down, {platform}");
        let attack = Attack { guest: &guest, core: "shared" };
        attack.assert_loss(INTERRUPTS, work(&outcome).1, 0);
    }
}

/// A core that is powered down without a timer is woken by its VM's other vCPU.
#[test]
fn an_sgi_wakes_a_core_that_is_powered_down() {
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        let vm = r#"
[[vm]]
name = "sleeper"
cpus = [0, 1]
memory = "4MiB"
image = { elf = "power-down", args = "by=sgi" }
expect = ["power-down: 20 rounds by sgi"]
"#;
        let _ = run_system(&format!("platform = \"{platform}\"\n{vm}"), &Options::default()).good();
    }
}

/// A power-down suspend leaves breakpoints and event counters as a reset of the core does. An
/// overflow that is pending at the call ends it, although the reset clears the overflow.
#[test]
fn power_down_resets_breakpoints_and_counters() {
    for (by, expected) in [("timer", "20 rounds, 40 interrupts"), ("pmu", "20 rounds by pmu")] {
        let text = format!(
            r#"
platform = "qemu-virt"

[[vm]]
name = "sleeper"
cpus = [0]
memory = "4MiB"
image = {{ elf = "power-down", args = "by={by}" }}
pmu = 2
expect = ["power-down: {expected}"]
"#
        );
        let outcome = run_system(&text, &Options::default());
        assert_eq!(outcome.lines("sleeper"), [format!("power-down: {expected}")], "by {by}");
        let _ = outcome.good();
    }
}

/// ICC_SRE_EL1 is written when a core starts and whenever a vCPU comes on its core, so that no vCPU
/// reads what another wrote. QEMU fixes the register, so that no guest can show it there; hence the
/// test searches the program for the instruction.
#[test]
fn the_hypervisor_writes_icc_sre_el1_for_each_vcpu() {
    build_programs();
    let count = |name: &str| {
        let elf = fs::read(root().join("build/programs").join(name)).expect("the hypervisor");
        let words = elf.chunks_exact(4);
        let words = words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
        // MSR ICC_SRE_EL1, Xt.
        words.filter(|word| word & !31 == 0xd518_cca0).count()
    };
    let v3 = count("weir-hypervisor-qemu-virt");
    assert!(v3 >= 2, "{v3} times, one at a core's start");
    assert_eq!(count("weir-hypervisor-qemu-virt-gicv2"), 0);
}
