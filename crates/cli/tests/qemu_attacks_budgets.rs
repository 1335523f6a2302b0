//! Attacks by means of memory budgets: what one VM does with its own must not cost another VM its time, and nothing that EL2 does
//! for a VM is outside of that VM's budget.

mod support;

use serde_json::Value;
use std::fs;
use support::qemu::{Options, Outcome, run_system};

/// A VM that runs a program of `guests/attacks`.
fn vm(name: &str, cpus: &str, program: &str, args: &str, keys: &str) -> String {
    format!(
        "\n[[vm]]\nname = \"{name}\"\ncpus = {cpus}\nmemory = \"4MiB\"\n\
         image = {{ elf = \"guests/attacks/{program}\", args = \"{args}\" }}\n{keys}\n"
    )
}

/// Runs the system of these VMs until all expected lines are there. A core without a VM reports the counters each 5 ms.
fn run(vms: &[String]) -> Outcome {
    let hypervisor = "[hypervisor]\nconsole_core = 2\nheartbeat = \"5ms\"\n";
    let text = format!("platform = \"qemu-virt\"\n{hypervisor}{}", vms.concat());
    run_system(&text, &Options::default()).good()
}

/// The exits of this kind of a VM.
fn exits(outcome: &Outcome, vm: &str, kind: &str) -> u64 {
    outcome.vm(vm)["exits"][kind].as_u64().unwrap_or_else(|| panic!("{}", outcome.vm(vm)))
}

/// The numbers in the last line of a VM that contains `text`.
fn numbers(outcome: &Outcome, vm: &str, text: &str) -> Vec<u64> {
    let lines = outcome.lines(vm);
    let line = lines.iter().rfind(|line| line.contains(text));
    let line = line.unwrap_or_else(|| panic!("no line with {text}: {lines:?}"));
    line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect()
}

/// The victim's reads, and what EL2 was sent to its core.
struct Felt {
    reads: u64,
    messages: u64,
}

fn felt(outcome: &Outcome) -> Felt {
    Felt {
        reads: numbers(outcome, "victim", "reader: ")[0],
        messages: exits(outcome, "victim", "message from another core"),
    }
}

const MEMGUARD: &str = "regulator = \"memguard\", period = \"1ms\"";

/// 20 ms, in which the victim uses a part of its budget and is never suspended.
fn victim(keys: &str) -> String {
    let keys = format!("{keys}\nexpect = [\"reader: \"]");
    vm("victim", "[0]", "reader", "for_us=20000 size=0x10000", &keys)
}

/// Under instruction counting cores run one at a time, so the victim is compared with itself next to the same program that shares
/// no budget with it.
fn assert_not_disturbed(attacked: &Outcome, harmless: &Outcome) {
    let ([attacked, harmless], outcome) = ([attacked, harmless].map(felt), attacked);
    assert!(attacked.messages <= 10, "{} messages", attacked.messages);
    assert!(
        attacked.reads * 100 >= harmless.reads * 90,
        "{} reads instead of {}",
        attacked.reads,
        harmless.reads
    );
    // It is the attack that it says.
    assert!(exits(outcome, "attacker", "hypercall") > 1000, "{}", outcome.vm("attacker"));
}

#[test]
fn a_vm_that_suspends_again_and_again_does_not_interrupt_another_that_runs() {
    let budget = format!("bandwidth = {{ budget = 4000, {MEMGUARD} }}");
    let own = "bandwidth = { budget = 4000, period = \"1ms\" }";
    for action in ["suspend", "pending"] {
        let with =
            |budget: &str| vm("attacker", "[1]", "budget-weapon", &format!("do={action}"), budget);
        let [attacked, harmless] =
            [with(&budget), with(own)].map(|attacker| run(&[victim(&budget), attacker]));
        assert_not_disturbed(&attacked, &harmless);
    }
}

#[test]
fn a_suspended_vcpu_is_woken_once_in_a_period_however_often_budget_is_returned() {
    // The victim is spent early in each period of 1 ms; the attacker returns its own every 3 us.
    let budget = |budget: u32| format!("bandwidth = {{ budget = {budget}, {MEMGUARD} }}");
    let keys = format!("{}\nexpect = [\"reader: \"]", budget(500));
    let victim = vm("victim", "[0]", "reader", "for_us=20000 size=0x180000", &keys);
    let attacker = vm("attacker", "[1]", "budget-weapon", "do=suspend", &budget(4000));
    let disturbed = felt(&run(&[victim, attacker]));
    // 20 periods, and those in which the system starts and ends.
    assert!((1..=30).contains(&disturbed.messages), "{} messages", disturbed.messages);
}

#[test]
fn a_vm_that_sets_anothers_budget_again_and_again_does_not_interrupt_it() {
    let budget = "budget = 4000, period = \"100us\"";
    let adjust = ", adjust = { by = \"attacker\", min = 3000, max = 5000 }";
    let [attacked, harmless] = [adjust, ""].map(|adjust| {
        let attacker = vm("attacker", "[1]", "budget-weapon", "do=set vm=0 reads=3000", "");
        run(&[victim(&format!("bandwidth = {{ {budget}{adjust} }}")), attacker])
    });
    assert_not_disturbed(&attacked, &harmless);
    assert!(
        harmless.vm("attacker")["denials"].as_object().is_some_and(|denials| !denials.is_empty())
    );
}

/// The attacker's first vCPU shares core 0 with the victim and spends the pool; its second one returns its share.
#[test]
fn a_vm_that_returns_its_pool_share_again_and_again_interrupts_the_sharer_at_most_once_a_turn() {
    let schedule = "\n[[core]]\nid = 0\nschedule = { kind = \"table\", frame = \"1ms\", slots = [\
        { vm = \"victim\", start = \"0us\", length = \"500us\" }, \
        { vm = \"attacker\", start = \"500us\", length = \"500us\" } ] }\n";
    let budget = "bandwidth = { budget = 1000, period = \"100us\", split = \"pool\" }";
    let victim =
        vm("victim", "[0]", "reader", "for_us=40000 size=0x10000", "expect = [\"reader: \"]");
    let attacker = vm("attacker", "[0, 1]", "budget-weapon", "do=suspend", budget);
    let outcome = run(&[victim, attacker, schedule.to_owned()]);
    let messages = exits(&outcome, "victim", "message from another core");
    // 40 turns of the attacker's: what is promised of one is three messages, and of its budget one.
    assert!(messages <= 60, "{messages} messages in 40 slots");
    assert!(exits(&outcome, "attacker", "hypercall") > 1000, "{}", outcome.vm("attacker"));
}

/// What a vCPU returned when it went off is not needed for it to come on again.
#[test]
fn a_vm_with_a_pool_restarts_on_a_shared_core() {
    let schedule = "\n[[core]]\nid = 0\nschedule = { kind = \"round-robin\", quantum = \"1ms\" }\n";
    for budget in ["split = \"pool\"", "regulator = \"memguard\""] {
        let keys = format!(
            "bandwidth = {{ budget = 5000, period = \"1ms\", {budget} }}\nexpect = [\"budget-weapon: 2 rounds\"]"
        );
        let restarts = vm("attacker", "[0]", "budget-weapon", "do=restart lives=2", &keys);
        run(&[restarts, vm("other", "[0]", "reader", "for_us=1", ""), schedule.to_owned()]);
    }
}

/// What core `core` moved between the shared cache and memory, for the guest and at EL2.
fn refills(outcome: &Outcome, core: usize) -> u64 {
    let run = fs::read(outcome.run.join("run.json")).expect("run.json");
    let run: Value = serde_json::from_slice(&run).expect("JSON");
    let of = |name: &str| run["monitor"][core][name].as_u64().expect("a count");
    of("refills") + of("hypervisor_refills")
}

#[test]
fn what_el2_zeroes_and_copies_at_restarts_is_on_the_vms_budget() {
    let budget =
        "bandwidth = { budget = 500, period = \"100us\" }\nexpect = [\"budget-weapon: 6 rounds\"]";
    let attacker = vm("attacker", "[1]", "budget-weapon", "do=restart lives=6", budget);
    let outcome = run(&[attacker, vm("console", "[0]", "reader", "for_us=1", "")]);
    assert_eq!(outcome.vm("attacker")["restarts"], 6);
    // 65,536 lines are zeroed in each life, at 5 in each microsecond.
    let time_ns = outcome.report["time_ns"].as_u64().expect("a time");
    let moved = refills(&outcome, 1);
    assert!(moved > 300_000, "{moved} refills");
    // The first load, before the VM ran, is not on its budget.
    let allowed = time_ns / 100_000 * 500 + 65_536 + 10_000;
    assert!(moved <= allowed, "{moved} refills where {allowed} are allowed");
}
