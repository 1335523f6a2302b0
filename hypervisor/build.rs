//! Turns the platform file into constants and a linker script, so that the board is described once.

use std::{env, fmt::Write as _, fs, path::PathBuf};
use toml::{Table, Value};

fn main() {
    let platform =
        if env::var_os("CARGO_FEATURE_GICV2").is_some() { "qemu-virt-gicv2" } else { "qemu-virt" };
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let path = root.join(format!("boards/{platform}/board.toml"));
    println!("cargo::rerun-if-changed={}", path.display());
    println!("cargo::rerun-if-changed=link.ld");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}", path.display());
    });
    let table: Table = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let number = |keys: &[&str]| -> u64 {
        let mut value = &Value::Table(table.clone());
        for key in keys {
            value = value
                .get(key)
                .unwrap_or_else(|| panic!("{}: no key `{}`", path.display(), keys.join(".")));
        }
        value
            .as_integer()
            .and_then(|value| u64::try_from(value).ok())
            .unwrap_or_else(|| panic!("{}: `{}` is no address", path.display(), keys.join(".")))
    };

    // What not every board has; 0 stands for its absence.
    let optional = |section: &str, key: &str| -> u64 {
        if table.contains_key(section) { number(&[section, key]) } else { 0 }
    };

    let mut constants = String::new();
    let mut put = |name: &str, value: u64, what: &str| {
        writeln!(constants, "/// {what}\npub const {name}: u64 = {value:#x};").unwrap();
    };
    let load_address = number(&["load_address"]);
    put("LOAD_ADDRESS", load_address, "Physical address of the image's first byte.");
    put("RAM_BASE", number(&["memory", "base"]), "Physical address where RAM begins.");
    put("UART", number(&["uart", "base"]), "Registers of the board's PL011.");
    put("UART_INTID", number(&["uart", "intid"]), "Interrupt of the board's PL011.");
    let clock = table["uart"].get("clock").map_or(24_000_000, |_| number(&["uart", "clock"]));
    put("UART_CLOCK", clock, "Its reference clock in Hz.");
    put("SMMU", optional("smmu", "base"), "Registers of the board's SMMU; 0 without one.");
    put(
        "SMMU_EVENT",
        optional("smmu", "event_intid"),
        "Interrupt of its event queue; 0 without one.",
    );
    put("ECAM", optional("pci", "ecam"), "PCI configuration space of bus 0; 0 without one.");
    put("GICD", number(&["gic", "distributor"]), "GIC distributor.");
    if platform == "qemu-virt" {
        put("GICR", number(&["gic", "redistributors"]), "GIC redistributors, 128 KiB a core.");
    } else {
        put("GICC", number(&["gic", "cpu_interface"]), "GIC CPU interface.");
        put("GICH", number(&["gic", "hyp"]), "GIC virtual interface control.");
        put("GICV", number(&["gic", "virtual_cpu"]), "GIC virtual CPU interface.");
    }
    let cores: Vec<String> = table["core"]
        .as_array()
        .expect("[[core]] tables")
        .iter()
        .map(|core| format!("{:#x}", core["mpidr"].as_integer().expect("mpidr")))
        .collect();
    writeln!(
        constants,
        "/// Affinity of each core, as PSCI CPU_ON takes it.\npub const CORES: [u64; {}] = [{}];",
        cores.len(),
        cores.join(", ")
    )
    .unwrap();

    let intids: Vec<String> = table
        .get("pmu")
        .and_then(|pmu| pmu.get("intids"))
        .and_then(Value::as_array)
        .map_or(Vec::new(), |intids| intids.iter().map(ToString::to_string).collect());
    writeln!(
        constants,
        "/// Interrupt of a PMU: private to each core, or one for each.\npub const PMU_INTIDS: [u32; {}] = [{}];",
        intids.len(),
        intids.join(", ")
    )
    .unwrap();

    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    fs::write(out.join("platform.rs"), constants).unwrap();
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        // The host's programs are the tests.
        return;
    }
    println!("cargo::rustc-link-arg-bins=-T{}", root.join("hypervisor/link.ld").display());
    println!("cargo::rustc-link-arg-bins=--defsym=LOAD_ADDRESS={load_address:#x}");
    // 4 KiB alignment of segments: the linker's default of 64 KiB would only pad the image.
    println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
    println!("cargo::rustc-link-arg-bins=-znognustack");
}
