//! Memory budgets on a machine that runs in the host's time.

use weir_abi::regulation;
use weir_image::{Failure, Result};
use weir_model::{System, counters::CounterEvent};

/// The time between two polls of the counter page without instruction counting. A poll takes the
/// emulator about 10 us of the host's time. If the next poll is due when one has ended, the guest
/// never executes its next instruction.
const POLL_NS: u64 = 50_000;

/// Adapts budgets to a run that is not deterministic, and returns a note about the change.
///
/// # Errors
///
/// A wrong call, where a budget would never be spent.
pub fn adapt(system: &mut System) -> Result<Option<String>> {
    if system.platform.qemu.is_none() {
        return Ok(None);
    }
    let instructions = CounterEvent::InstRetired.number();
    let mut polled = Vec::new();
    for (vm, rules) in system.vms.iter().zip(&mut system.regulations) {
        if rules.period_ns == 0 {
            continue;
        }
        if rules.source == regulation::PMU && rules.events.contains(&instructions) {
            return Err(Failure::call(format!(
                "QEMU counts no instructions but with --deterministic: the budget of {} would \
                 never be spent. Add --deterministic",
                vm.name
            )));
        }
        if rules.source == regulation::COUNTER_PAGE && rules.poll_ns < POLL_NS {
            rules.poll_ns = POLL_NS.min(rules.period_ns);
            polled.push(vm.name.as_str());
        }
    }
    Ok((!polled.is_empty()).then(|| {
        format!(
            "EL2 polls the budget of {} only each {} us of the host's time, and the accesses \
             between two polls can exceed it; --deterministic keeps it",
            polled.join(", "),
            POLL_NS / 1000
        )
    }))
}

/// Checks that QEMU's machine for the board can enforce the budgets of a system.
///
/// # Errors
///
/// The call is wrong if a budget needs the PMU's interrupt and the machine lacks it.
pub fn check_machine(system: &System) -> Result {
    if system.platform.qemu.as_ref().is_none_or(|qemu| qemu.pmu_interrupt) {
        return Ok(());
    }
    let by_pmu =
        |rules: &&regulation::Regulation| rules.period_ns > 0 && rules.source == regulation::PMU;
    let mut budgets = system.vms.iter().zip(&system.regulations);
    match budgets.find(|(_, rules)| by_pmu(rules)) {
        Some((vm, _)) => Err(Failure::call(format!(
            "QEMU's machine for {} does not have the interrupt of the PMUs, so the budget of {} \
             would never be spent: give it source = \"counter-page\"",
            system.platform.name, vm.name
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weir_image::failure::CALL;
    use weir_model::{Catalog, check_text};

    /// A system with one VM, under a budget with these keys.
    fn system(keys: &str) -> System {
        let text = format!(
            "platform = \"qemu-virt\"\n[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"16MiB\"\n\
             image = {{ elf = \"memory-stressor\" }}\n\
             memory_budget = {{ accesses = 1000, {keys} }}\n"
        );
        let catalog = Catalog { guests: vec!["memory-stressor".to_owned()], ..Catalog::default() };
        check_text(Path::new("s.toml"), &text, &catalog).expect("a system")
    }

    #[test]
    fn a_budget_without_a_counter_is_refused() {
        let mut counted = system("period = \"1ms\", event = \"inst-retired\"");
        let refused = adapt(&mut counted).expect_err("refused");
        assert_eq!(refused.status, CALL);
        assert!(refused.text.contains("the budget of a would never be spent"), "{}", refused.text);
    }

    #[test]
    fn a_budget_without_an_interrupt_is_refused() {
        assert!(check_machine(&system("period = \"1ms\"")).is_ok());
        let mut on_zcu102 = system("period = \"1ms\", event = \"inst-retired\"");
        on_zcu102.platform = weir_model::platform::Platform::named("zcu102").expect("a board");
        let refused = check_machine(&on_zcu102).expect_err("refused");
        assert_eq!(refused.status, CALL);
        assert!(refused.text.contains("machine for zcu102"), "{}", refused.text);
        on_zcu102.regulations[0].source = regulation::COUNTER_PAGE;
        assert!(check_machine(&on_zcu102).is_ok());
    }

    #[test]
    fn polls_leave_the_guest_some_time() {
        for (period, poll) in [("1ms", 50_000), ("30us", 30_000)] {
            let mut polled = system(&format!("period = \"{period}\""));
            assert!(polled.regulations[0].poll_ns < poll);
            let note = adapt(&mut polled).expect("it runs").expect("a note");
            assert!(note.starts_with("EL2 polls the budget of a only each 50 us"), "{note}");
            assert_eq!(polled.regulations[0].poll_ns, poll);
        }
    }
}
