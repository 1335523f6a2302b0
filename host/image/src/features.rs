//! The optional parts of the hypervisor that a system uses.

use weir_abi::{Features, Regulation};
use weir_model::{SocketBus, System, Vm, timing::Class};

/// Returns the optional parts of the hypervisor that a system uses. EL2 refuses an image with a
/// hypervisor that lacks one of them.
#[must_use]
pub fn features_of(system: &System) -> Features {
    let any = |uses: fn(&Vm) -> bool| system.vms.iter().any(uses);
    let on_pci = |vm: &Vm| !vm.functions.is_empty() || vm.socket == Some(SocketBus::Pci);
    let has_active = system.lines.iter().any(|line| line.class == Class::Active);
    let hands_over = has_active || any(|vm| vm.focus);
    let has_budget = system.regulations.iter().any(Regulation::is_on);
    Features::BROKER
        .when(any(|vm| vm.socket.is_some() || vm.net.is_some()))
        .with(Features::PCI.when(any(on_pci)))
        .with(Features::SHARED_CORES.when(!system.cores.is_empty() || hands_over))
        .with(Features::BUDGETS.when(has_budget || any(|vm| vm.pmu > 0)))
        .with(Features::PAGE_CLASSES.when(system.division.divided))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, load};
    use std::{fs, path::Path};
    use weir_model::platform::Machine;

    fn of(name: &str) -> Features {
        let environment = Environment::find();
        let file = environment.system(name).expect("a checkout");
        let system = load(&file, None, Machine::Board, &environment);
        features_of(&system.unwrap_or_else(|_| panic!("{name}")))
    }

    #[test]
    fn a_system_uses_the_parts_that_it_names() {
        for (system, parts) in [
            ("demo", Features::NONE),
            ("probe-4", Features::NONE),
            ("flows-mmio", Features::BROKER),
            ("flows-pci", Features::BROKER.with(Features::PCI)),
            ("simulate-flows", Features::BROKER.with(Features::PAGE_CLASSES)),
            ("frames", Features::BROKER),
            ("dma", Features::PCI),
            ("shared", Features::SHARED_CORES),
        ] {
            assert_eq!(of(system), parts, "{system}: {:?}", of(system).names().collect::<Vec<_>>());
        }
    }

    #[test]
    fn parts_are_features_of_the_hypervisor() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hypervisor/Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("a manifest");
        assert!(manifest.contains(&format!("\nall = {:#?}\n", Features::NAMES)), "{manifest}");
    }

    #[test]
    fn keys_of_a_vm_ask_for_parts() {
        let of = |key: &str| {
            let vm = "name = \"a\"\ncpus = [0]\nmemory = \"4MiB\"\nimage = { elf = \"control\" }\n";
            let text = format!("platform = \"qemu-virt\"\n[[vm]]\n{vm}{key}\n");
            let directory = tempfile::tempdir().expect("a directory");
            let file = directory.path().join("system.toml");
            fs::write(&file, text).expect("a file");
            let system = load(Path::new(&file), None, Machine::Board, &Environment::find());
            features_of(&system.unwrap_or_else(|faults| panic!("{faults:?}")))
        };
        assert_eq!(of("pmu = 2"), Features::BUDGETS);
        assert_eq!(of("focus = true"), Features::SHARED_CORES);
        let budget = "memory_budget = { accesses = 4000, period = \"1ms\" }";
        assert_eq!(of(budget), Features::BUDGETS);
    }
}
