//! The texts of causes and suggestions for shared cores.

use super::*;
use std::path::Path;
use weir_model::{Catalog, SystemFile};

/// The faults of a core with this schedule and these lines, which `rtos`, that has a task, and
/// `gpos` share.
fn faults(core: &str) -> String {
    let text = format!(
        "platform = \"qemu-virt\"\n[[vm]]\nname = \"rtos\"\ncpus = [0]\n[[vm.task]]\nname = \"t\"\n\
         wcet = \"1ms\"\nperiod = \"100ms\"\n[[vm]]\nname = \"gpos\"\ncpus = [0]\n[[core]]\n\
         id = 0\nschedule = {{ {core}"
    );
    let file =
        SystemFile::parse(Path::new("s.toml"), &text, &Catalog::default()).expect("a system");
    let faults = check(file.system()).err().map(|faults| faults.to_string());
    // Lines are broken where a page ends.
    let words = |line: &str| line.trim_start_matches([' ', '|']).to_owned();
    let lines: Vec<_> = faults.iter().flat_map(|faults| faults.lines()).map(words).collect();
    lines.join(" ")
}

#[test]
fn an_interrupt_without_a_rate_is_located() {
    let rule = "kind = \"round-robin\", quantum = \"20ms\" }\n[[irq]]\nline = 34\nvm = \"gpos\"\n";
    assert_eq!(faults(rule), "");
    let message = faults(&format!("{rule}preempt = true\n"));
    assert!(message.contains("s.toml:15:1") && message.contains("add `rate` to this"), "{message}");
    assert!(message.contains("interrupt 34 of vm `gpos`, on its core, has no `rate`"), "{message}");
}

/// The number in `text` behind `before`.
fn number(text: &str, before: &str) -> u64 {
    let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("{before}: {text}"));
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("{before}: {text}"))
}

#[test]
fn the_interrupt_that_takes_most_is_named() {
    let rule = |keys: &str| {
        faults(&format!(
            "kind = \"round-robin\", quantum = \"20ms\" }}\n[[irq]]\nline = 33\nvm = \"gpos\"\n\
             rate = 1\npreempt = true\n[[irq]]\nline = 34\nvm = \"gpos\"\n{keys}"
        ))
    };
    let preempt = |rate: u64| rule(&format!("preempt = true\nrate = {rate}\n"));
    let message = preempt(1000);
    assert!(message.contains("s.toml:20:1"), "{message}");
    assert!(
        message.contains(
            "interrupt 34 of vm `gpos`, on its core, may come 1000 times per second and takes 10us \
             each time, and with `preempt` the slot of its VM"
        ),
        "{message}"
    );
    assert!(message.contains("write a lower `rate`"), "{message}");
    assert_eq!(rule("rate = 1000\n"), "");
}

#[test]
fn slots_that_switches_take_are_too_short() {
    let round = |quantum: u64| {
        faults(&format!(
            "kind = \"round-robin\", switch = \"15us\", quantum = \"{quantum}us\" }}\n"
        ))
    };
    let message = round(10);
    for text in [
        "the time slices of 10us of vm `rtos` are too short: switches take up to 15us",
        "write a longer `quantum`",
    ] {
        assert!(message.contains(text), "{message}");
    }
    assert!(!message.contains("the rest"), "{message}");
    assert!(
        round(24).contains("and events of VMs that are off the core, up to 10us each, the rest")
    );
    assert!(!round(1000).contains("too short"));
    let table = faults(
        "kind = \"table\", switch = \"15us\", major_frame = \"1ms\", slots = [{ vm = \"rtos\", \
         start = \"0us\", length = \"20us\" }, { vm = \"gpos\", start = \"20us\", length = \
         \"50us\" }] }\n",
    );
    let servers = faults(
        "kind = \"fixed-priority\", switch = \"15us\", servers = [{ vm = \"rtos\", budget = \
         \"20us\", period = \"2ms\" }, { vm = \"gpos\", budget = \"500us\", period = \"2ms\" }] \
         }\n",
    );
    for (message, what, help) in [
        (table, "slots", "write longer slots and a longer `major_frame`"),
        (servers, "budgets", "write longer budgets and periods"),
    ] {
        let reason =
            format!("the {what} of 20us of vm `rtos` are too short: switches take up to 30us");
        assert!(message.contains(&reason) && message.contains(help), "{message}");
    }
}

#[test]
fn excess_demand_names_the_guaranteed_supply() {
    let message = faults(
        "kind = \"table\", major_frame = \"100ms\", slots = [{ vm = \"rtos\", start = \"0us\", \
         length = \"1ms\" }, { vm = \"gpos\", start = \"40ms\", length = \"50ms\" }] }\n",
    );
    assert!(
        message.contains(
            "0.9 % of its core are guaranteed, and the VM's tasks up to this one need 1.0 %"
        ),
        "{message}"
    );
}

/// A VM without tasks is in no fault.
#[test]
fn missing_supply_and_tiny_costs_are_noted() {
    let notes = |core: &str| {
        let text = format!(
            "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\n[[vm]]\nname = \"b\"\n\
             cpus = [0]\n[[core]]\nid = 0\nschedule = {{ {core}"
        );
        let file =
            SystemFile::parse(Path::new("s.toml"), &text, &Catalog::default()).expect("a system");
        let supplies = supplies(file.system()).expect("supplies");
        let judgement = supplies.judgement();
        let open = judgement.missing().iter().map(ToString::to_string);
        open.fold(supplies.notes.concat(), |message, one| message + &one)
    };
    let message = notes("kind = \"round-robin\", quantum = \"20us\" }\n");
    assert!(
        message.contains(
            "no time is guaranteed to vm `b`: the time slices of 20us of vm `b` are too short"
        ),
        "{message}"
    );
    let cost = |cost: &str| {
        notes(&format!(
            "kind = \"round-robin\", quantum = \"1ms\" }}\n[[irq]]\nline = 34\nvm = \"b\"\n{cost}"
        ))
    };
    let message = cost("wcet = \"9us\"\n");
    assert!(
        message.contains(
            "interrupt 34 of vm `b` counts as 9us, its `wcet` (s.toml:11:1), which is less than \
             the 10us of one on qemu-virt"
        ),
        "{message}"
    );
    for good in ["", "wcet = \"10us\"\n"] {
        assert!(!cost(good).contains("counts as"), "{good}");
    }
}

#[test]
fn a_late_server_gets_a_budget_that_fits() {
    let servers = |budget: &str| {
        faults(&format!(
            "kind = \"fixed-priority\", servers = [{{ vm = \"rtos\", budget = \"20ms\", period = \
             \"40ms\" }}, {{ vm = \"gpos\", budget = \"{budget}\", period = \"40ms\" }}] }}\n"
        ))
    };
    let message = servers("20ms");
    assert!(message.contains("vm `gpos` may not get its 20ms in each 40ms"), "{message}");
    let fits = number(&message, "write a budget of ");
    assert_eq!(servers(&format!("{fits}us")), "");
    assert!(!servers(&format!("{}us", fits + 1)).is_empty());
}
