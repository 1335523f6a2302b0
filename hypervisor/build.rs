//! Turns the board file into constants and arguments of the linker, so that the board is described
//! once. `WEIR_BOARD` names the board's folder in `boards/`; without it the board is QEMU's `virt`
//! with the GIC of the cargo feature.

use std::{env, fmt::Write as _, fs, path::PathBuf};
use toml::{Table, Value};
use weir_units::Bytes;

fn main() {
    let gic_v2 = env::var_os("CARGO_FEATURE_GICV2").is_some();
    let usual = if gic_v2 { "qemu-virt-gicv2" } else { "qemu-virt" };
    let board = env::var("WEIR_BOARD").unwrap_or_else(|_| usual.to_owned());
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let path = root.join(format!("boards/{board}/board.toml"));
    println!("cargo::rerun-if-env-changed=WEIR_BOARD");
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

    let is_bare = env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none");
    // What not every board has; 0 stands for its absence.
    let optional = |section: &str, key: &str| -> u64 {
        let has = table.get(section).is_some_and(|section| section.get(key).is_some());
        if has { number(&[section, key]) } else { 0 }
    };
    let version = if gic_v2 { 2 } else { 3 };
    assert!(
        number(&["gic", "version"]) == version,
        "{}: the feature gicv{version} is not for its GIC",
        path.display()
    );

    let mut constants = String::new();
    let mut put = |name: &str, value: u64, what: &str| {
        writeln!(constants, "/// {what}\npub const {name}: u64 = {value:#x};").unwrap();
    };
    let load_address = number(&["load_address"]);
    put("LOAD_ADDRESS", load_address, "Physical address of the image's first byte.");
    put("UART", number(&["uart", "base"]), "Registers of the board's UART.");
    put("UART_INTID", number(&["uart", "intid"]), "Interrupt of the board's UART.");
    let kind = table["uart"].get("kind").map_or("pl011", |kind| kind.as_str().expect("kind"));
    println!("cargo::rustc-check-cfg=cfg(uart, values(\"pl011\", \"cadence\"))");
    println!("cargo::rustc-cfg=uart=\"{kind}\"");
    println!("cargo::rustc-env=WEIR_BOARD_NAME={board}");
    let has_table = table.contains_key("spin_table");
    println!("cargo::rustc-check-cfg=cfg(start, values(\"psci\", \"spin-table\"))");
    println!("cargo::rustc-cfg=start=\"{}\"", if has_table { "spin-table" } else { "psci" });
    let power =
        table.get("spin_table").map_or("psci", |table| table["power"].as_str().expect("power"));
    println!(
        "cargo::rustc-check-cfg=cfg(power, values(\"psci\", \"bcm2711\", \"gem5\", \"nothing\"))"
    );
    println!("cargo::rustc-cfg=power=\"{power}\"");
    // Each build for tests has the modules.
    if has_table || !is_bare {
        put("SPIN_TABLE", optional("spin_table", "base"), "Its entry of core 0.");
    }
    if power == "bcm2711" || !is_bare {
        put("WATCHDOG", optional("spin_table", "watchdog"), "Turns the board off.");
    }
    println!("cargo::rustc-check-cfg=cfg(starts_in_el3)");
    if table.contains_key("el3") {
        println!("cargo::rustc-cfg=starts_in_el3");
        put("COUNTER", number(&["el3", "counter"]), "Frequency of the system counter in Hz.");
    }
    let usual = if kind == "cadence" { 100_000_000 } else { 24_000_000 };
    let clock = table["uart"].get("clock").map_or(usual, |_| number(&["uart", "clock"]));
    put("UART_CLOCK", clock, "Its reference clock in Hz.");
    put("SMMU", optional("smmu", "base"), "Registers of the board's SMMU; 0 without one.");
    put(
        "SMMU_EVENT",
        optional("smmu", "event_intid"),
        "Interrupt of its event queue; 0 without one.",
    );
    put("ECAM", optional("pci", "ecam"), "PCI configuration space of bus 0; 0 without one.");
    put("ENGINE", optional("dma_engine", "base"), "Registers of the DMA engine; 0 without one.");
    put("ENGINE_INTID", optional("dma_engine", "intid"), "Its interrupt; 0 without one.");
    put("GICD", number(&["gic", "distributor"]), "GIC distributor.");
    if gic_v2 {
        put("GICC", number(&["gic", "cpu_interface"]), "GIC CPU interface.");
        put("GICH", number(&["gic", "hyp"]), "GIC virtual interface control.");
        put("GICV", number(&["gic", "virtual_cpu"]), "GIC virtual CPU interface.");
    } else {
        put("GICR", number(&["gic", "redistributors"]), "GIC redistributors, 128 KiB a core.");
    }
    constants.push_str(&engine(&table));
    constants.push_str(&lists(&table));

    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    fs::write(out.join("board.rs"), constants).unwrap();
    if !is_bare {
        // The host's programs are the tests.
        return;
    }
    println!("cargo::rustc-link-arg-bins=-T{}", root.join("hypervisor/link.ld").display());
    println!("cargo::rustc-link-arg-bins=--defsym=LOAD_ADDRESS={load_address:#x}");
    // 4 KiB alignment of segments: the linker's default of 64 KiB would only pad the image.
    println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
    println!("cargo::rustc-link-arg-bins=-znognustack");
}

/// Returns the constants of the DMA engine that are no addresses of its own.
fn engine(table: &Table) -> String {
    let engine = table.get("dma_engine");
    let coherent = engine.and_then(|engine| engine.get("coherent"));
    let is_coherent = coherent.is_some_and(|coherent| coherent.as_bool().expect("coherent"));
    let port = engine.and_then(|engine| engine.get("qos")?.get("port"));
    let port = port.map_or(0, |port| port.as_integer().expect("port").cast_unsigned());
    format!(
        "/// Whether the DMA engine sees the cores' caches.\n\
         pub const ENGINE_IS_COHERENT: bool = {is_coherent};\n\
         /// Its port at the firmware's call for QoS regulators; 0 without one.\n\
         pub const ENGINE_PORT: u64 = {port:#x};\n"
    )
}

/// Returns the constants whose values are lists.
fn lists(table: &Table) -> String {
    let more = table["memory"].get("more").and_then(Value::as_array);
    let ram = std::iter::once(&table["memory"]).chain(more.into_iter().flatten()).map(|memory| {
        let base = memory["base"].as_integer().expect("the base of RAM");
        let size = Bytes::parse(memory["size"].as_str().expect("a size")).expect("a size");
        format!("({base:#x}, {:#x})", base.cast_unsigned() + size.0)
    });
    let cores = table["core"].as_array().expect("[[core]] tables").iter();
    let cores = cores.map(|core| format!("{:#x}", core["mpidr"].as_integer().expect("mpidr")));
    let intids = table.get("pmu").and_then(|pmu| pmu.get("intids")).and_then(Value::as_array);
    let intids = intids.into_iter().flatten().map(ToString::to_string);
    let list = |name, item, values: Vec<String>, doc| {
        let (count, values) = (values.len(), values.join(", "));
        format!("/// {doc}\npub const {name}: [{item}; {count}] = [{values}];\n")
    };
    [
        list("RAM", "(u64, u64)", ram.collect(), "Start and end of each piece of RAM."),
        list("CORES", "u64", cores.collect(), "Affinity of each core, as PSCI CPU_ON takes it."),
        list(
            "PMU_INTIDS",
            "u32",
            intids.collect(),
            "PMU interrupts: one PPI, or one SPI per core.",
        ),
    ]
    .concat()
}
