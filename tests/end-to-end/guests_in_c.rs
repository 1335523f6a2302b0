//! The numbers of `guests/c/weir.h`, against what weir and its model have.

use crate::support::checkout::root;
use std::{collections::BTreeMap, fs, path::Path};
use weir_model::{Catalog, VirtualBoard, check_text};
use weir_vdev::{
    psci::{self, Decoded, PsciRequest},
    smccc,
};

/// The numbers of the header by their names without `WEIR_`.
fn numbers() -> BTreeMap<String, i64> {
    let text = fs::read_to_string(root().join("guests/c/weir.h")).expect("a header");
    let defined = text.lines().filter_map(|line| line.strip_prefix("#define WEIR_"));
    let value = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        let value = value.trim_matches(['(', ')']);
        let number = match value.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16),
            None => value.parse(),
        };
        Some((name.to_owned(), number.unwrap_or_else(|_| panic!("{line}"))))
    };
    // The header's guard has no value.
    defined.filter_map(value).collect()
}

/// The virtual board of a VM on this platform.
fn virtual_board(platform: &str) -> VirtualBoard {
    let text = format!(
        "platform = {platform:?}\n[[vm]]\nname = \"one\"\ncpus = [0]\nmemory = \"2MiB\"\n\
         image = {{ elf = \"echo\" }}\n"
    );
    let catalog = Catalog { guests: vec!["echo".to_owned()], ..Catalog::default() };
    check_text(Path::new("system.toml"), &text, &catalog).expect("a system").vms[0].board
}

/// The identifier of the PSCI function without arguments that means this.
fn psci_function(request: PsciRequest) -> u32 {
    let mut all = psci::PSCI_VERSION..psci::PSCI_VERSION + 0x20;
    let meant = all.find(|id| psci::decode(*id, [0; 3]) == Decoded::Request(request));
    meant.expect("a function")
}

#[test]
fn the_header_for_c_has_the_numbers_of_weir() {
    let [v3, v2] = ["qemu-virt", "qemu-virt-gicv2"].map(virtual_board);
    let addresses = [
        ("DISTRIBUTOR", v3.distributor.0),
        ("REDISTRIBUTORS", v3.gic_cpu.0),
        ("CPU_INTERFACE", v2.gic_cpu.0),
        ("UART", v3.uart.0),
        ("UART_INTID", v3.uart_intid.0.into()),
        // RAM begins with the device tree.
        ("RAM", v3.device_tree.0),
        ("RAM_SIZE", 2 << 20),
        ("NOT_SUPPORTED", smccc::NOT_SUPPORTED),
        ("DENIED", smccc::DENIED),
    ];
    assert_eq!((v2.distributor, v2.uart), (v3.distributor, v3.uart));
    let functions = [
        ("NULL", smccc::NULL),
        ("RESTARTS", smccc::RESTARTS),
        ("SET_BUDGET", smccc::SET_BUDGET),
        ("HAND_OVER", smccc::HAND_OVER),
        ("HAS_DEVICES", smccc::HAS_DEVICES),
        ("MARK", smccc::MARK),
        ("PV_TIME_FEATURES", smccc::PV_TIME_FEATURES),
        ("PV_TIME_ST", smccc::PV_TIME_ST),
        ("HYPERVISOR_UID", smccc::HYPERVISOR_UID),
        ("HYPERVISOR_REVISION", smccc::HYPERVISOR_REVISION),
        ("SMCCC_VERSION", smccc::SMCCC_VERSION),
        ("PSCI_VERSION", psci::PSCI_VERSION),
        ("PSCI_SYSTEM_OFF", psci_function(PsciRequest::SystemOff)),
        ("PSCI_SYSTEM_RESET", psci_function(PsciRequest::SystemReset)),
        // PPI 11, by the binding of the timer.
        ("VIRTUAL_TIMER", 16 + 11),
    ];
    let functions = functions.map(|(name, value)| (name, u64::from(value)));
    let expected = addresses.into_iter().chain(functions);
    let expected: BTreeMap<_, _> =
        expected.map(|(name, value)| (name.to_owned(), value.cast_signed())).collect();
    assert_eq!(numbers(), expected);
}
