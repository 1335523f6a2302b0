//! Memory budgets in QEMU.

use weir_abi::regulation;
use weir_image::{Failure, Result};
use weir_model::{System, counters::CounterEvent};

/// Checks that QEMU's machine for the board can enforce the budgets of a system.
///
/// # Errors
///
/// The call is wrong if a budget needs an event that QEMU does not count, or the PMU's interrupt and
/// the machine lacks it.
pub fn check_machine(system: &System) -> Result {
    let Some(qemu) = &system.platform().qemu else { return Ok(()) };
    let by_pmu =
        |rules: &regulation::Regulation| rules.period_ns > 0 && rules.source == regulation::PMU;
    let budgets = system.vms.iter().zip(&system.regulations);
    let mut budgets = budgets.filter(|(_, rules)| by_pmu(rules));
    let instructions = CounterEvent::InstRetired.number();
    if let Some((vm, _)) = budgets.clone().find(|(_, rules)| rules.events.contains(&instructions)) {
        return Err(Failure::call(format!(
            "QEMU's PMU does not count `inst-retired`, so the budget of {} would never be spent: \
             give it event = \"cycles\", which counts its core's time",
            vm.name
        )));
    }
    match budgets.next().filter(|_| !qemu.pmu_interrupt) {
        Some((vm, _)) => Err(Failure::call(format!(
            "QEMU's machine for {} does not have the interrupt of the PMUs, so the budget of {} \
             would never be spent: give it source = \"counter-page\"",
            system.platform().name,
            vm.name
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
    fn system(platform: &str, keys: &str) -> System {
        let text = format!(
            "platform = \"{platform}\"\n[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"16MiB\"\n\
             image = {{ elf = \"memory-stressor\" }}\n\
             memory_budget = {{ accesses = 1000, {keys} }}\n"
        );
        let catalog = Catalog { guests: vec!["memory-stressor".to_owned()], ..Catalog::default() };
        check_text(Path::new("s.toml"), &text, &catalog).expect("a system")
    }

    #[test]
    fn a_budget_without_a_counter_is_refused() {
        let counted = system("versal-virt", "period = \"1ms\", event = \"inst-retired\"");
        let refused = check_machine(&counted).expect_err("refused");
        assert_eq!(refused.status, CALL);
        assert!(refused.text.contains("the budget of a would never be spent"), "{}", refused.text);
    }

    #[test]
    fn a_budget_without_an_interrupt_is_refused() {
        assert!(check_machine(&system("qemu-virt", "period = \"1ms\"")).is_ok());
        let mut on_zcu102 = system("zcu102", "period = \"1ms\", event = \"cycles\"");
        let refused = check_machine(&on_zcu102).expect_err("refused");
        assert_eq!(refused.status, CALL);
        assert!(refused.text.contains("machine for zcu102"), "{}", refused.text);
        on_zcu102.regulations[0].source = regulation::COUNTER_PAGE;
        assert!(check_machine(&on_zcu102).is_ok());
    }
}
