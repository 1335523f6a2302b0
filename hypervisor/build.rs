//! Turns the board file into constants and arguments of the linker, so that the board is described
//! once. `WEIR_BOARD` names the board's folder in `boards/`; without it the board is QEMU's `virt`
//! with the GIC of the cargo feature.

use std::{env, fmt::Write as _, fs, path::PathBuf};
use toml::Value;
use weir_units::Bytes;

fn main() {
    let gic_v2 = env::var_os("CARGO_FEATURE_GICV2").is_some();
    let usual = if gic_v2 { "qemu-virt-gicv2" } else { "qemu-virt" };
    let name = env::var("WEIR_BOARD").unwrap_or_else(|_| usual.to_owned());
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let path = root.join(format!("boards/{name}/board.toml"));
    println!("cargo::rerun-if-env-changed=WEIR_BOARD");
    println!("cargo::rerun-if-changed={}", path.display());
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rerun-if-changed=board-keys.txt");
    let board = Board::read(path);

    let is_bare = env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none");
    let version = if gic_v2 { 2 } else { 3 };
    assert!(
        board.number("gic.version") == version,
        "board {name}: the feature gicv{version} is not for its GIC"
    );

    let mut constants = String::new();
    let mut put = |name: &str, value: u64, what: &str| {
        writeln!(constants, "/// {what}\npub const {name}: u64 = {value:#x};").unwrap();
    };
    let load_address = board.number("load_address");
    put("LOAD_ADDRESS", load_address, "Physical address of the image's first byte.");
    put("UART", board.number("uart.base"), "Registers of the board's UART.");
    put("UART_INTID", board.number("uart.intid"), "Interrupt of the board's UART.");
    let kind = board.word("uart.kind").unwrap_or("pl011");
    println!("cargo::rustc-check-cfg=cfg(uart, values(\"pl011\", \"cadence\"))");
    println!("cargo::rustc-cfg=uart=\"{kind}\"");
    println!("cargo::rustc-env=WEIR_BOARD_NAME={name}");
    let has_table = board.get("spin_table.base").is_some();
    println!("cargo::rustc-check-cfg=cfg(start, values(\"psci\", \"spin-table\"))");
    println!("cargo::rustc-cfg=start=\"{}\"", if has_table { "spin-table" } else { "psci" });
    println!("cargo::rustc-check-cfg=cfg(starts_in_el3)");
    if board.get("el3.counter").is_some() {
        println!("cargo::rustc-cfg=starts_in_el3");
        put("COUNTER", board.number("el3.counter"), "Frequency of the system counter in Hz.");
    }
    let usual = if kind == "cadence" { 100_000_000 } else { 24_000_000 };
    let clock = board.optional("uart.clock").unwrap_or(usual);
    put("UART_CLOCK", clock, "Its reference clock in Hz.");
    for (name, key, what) in [
        ("SPIN_TABLE", "spin_table.base", "The spin table's entry of core 0"),
        ("WATCHDOG", "spin_table.watchdog", "The watchdog that turns the board off"),
        ("SMMU", "smmu.base", "Registers of the board's SMMU"),
        ("SMMU_EVENT", "smmu.event_intid", "Interrupt of its event queue"),
        ("ECAM", "pci.ecam", "PCI configuration space of bus 0"),
        ("ENGINE", "dma_engine.base", "Registers of the DMA engine"),
        ("ENGINE_INTID", "dma_engine.intid", "Its interrupt"),
    ] {
        put(name, board.optional(key).unwrap_or(0), &format!("{what}; 0 without one."));
    }
    put("GICD", board.number("gic.distributor"), "GIC distributor.");
    for (name, key, is_there, what) in [
        ("GICC", "gic.cpu_interface", gic_v2, "GICv2's CPU interface."),
        ("GICH", "gic.hyp", gic_v2, "GICv2's virtual interface control."),
        ("GICV", "gic.virtual_cpu", gic_v2, "GICv2's virtual CPU interface."),
        ("GICR", "gic.redistributors", !gic_v2, "GICv3's redistributors, 128 KiB a core."),
    ] {
        put(name, if is_there { board.number(key) } else { 0 }, what);
    }
    constants.push_str(&power(&board));
    constants.push_str(&engine(&board));
    constants.push_str(&lists(&board));

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

/// A board file, of which only the keys in board-keys.txt are used: of those the tools know that a
/// board file with other values needs another hypervisor.
struct Board {
    path: PathBuf,
    table: Value,
}

impl Board {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("{}: {error}", path.display());
        });
        let table = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, table: Value::Table(table) }
    }

    /// The value of a key in dotted form, or of a key of each table in a list.
    fn all(&self, key: &str) -> Vec<&Value> {
        let known = include_str!("board-keys.txt").lines();
        assert!(known.into_iter().any(|known| known == key), "add {key} to board-keys.txt");
        key.split('.').fold(vec![&self.table], |values, part| {
            let tables = values.into_iter().flat_map(|value| match value {
                Value::Array(tables) => tables.as_slice(),
                table => std::slice::from_ref(table),
            });
            tables.filter_map(|table| table.get(part)).collect()
        })
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.all(key).first().copied()
    }

    fn word(&self, key: &str) -> Option<&str> {
        self.get(key).map(|value| value.as_str().unwrap_or_else(|| self.wrong(key, "text")))
    }

    fn optional(&self, key: &str) -> Option<u64> {
        self.get(key).map(|value| self.as_number(key, value))
    }

    fn number(&self, key: &str) -> u64 {
        self.optional(key).unwrap_or_else(|| self.wrong(key, "there"))
    }

    fn numbers(&self, key: &str) -> Vec<u64> {
        self.all(key).into_iter().map(|value| self.as_number(key, value)).collect()
    }

    fn as_number(&self, key: &str, value: &Value) -> u64 {
        let number = value.as_integer().and_then(|value| u64::try_from(value).ok());
        number.unwrap_or_else(|| self.wrong(key, "a number of at least 0"))
    }

    fn wrong(&self, key: &str, what: &str) -> ! {
        panic!("{}: `{key}` is not {what}", self.path.display())
    }
}

/// Returns the means to turn the board off.
fn power(board: &Board) -> String {
    let kind = match board.word("spin_table.power").unwrap_or("psci") {
        "psci" => "Firmware",
        "bcm2711" => "Bcm2711",
        "gem5" => "Gem5",
        "nothing" => "Nothing",
        _ => board.wrong("spin_table.power", "known"),
    };
    format!("/// The means to turn the board off.\npub const POWER: Power = Power::{kind};\n")
}

/// Returns the constants of the DMA engine that are no addresses of its own.
fn engine(board: &Board) -> String {
    let is_coherent = board.get("dma_engine.coherent").and_then(Value::as_bool).unwrap_or(false);
    let limit = |key, usual| board.optional(key).unwrap_or(usual);
    let burst = limit("dma_engine.burst", 16);
    let outstanding = limit("dma_engine.outstanding", 31);
    let port = board.optional("dma_engine.qos.port").unwrap_or(0);
    format!(
        "/// Most data beats of one of the DMA engine's accesses.\n\
         pub const ENGINE_BURST: u8 = {burst};\n\
         /// Most of its reads that wait for an answer.\n\
         pub const ENGINE_OUTSTANDING: u8 = {outstanding};\n\
         /// Whether it sees the cores' caches.\n\
         pub const ENGINE_IS_COHERENT: bool = {is_coherent};\n\
         /// Its port at the firmware's call for QoS regulators; 0 without one.\n\
         pub const ENGINE_PORT: u64 = {port:#x};\n"
    )
}

/// Returns the constants with lists as values.
fn lists(board: &Board) -> String {
    let both = |key| [format!("memory.{key}"), format!("memory.more.{key}")];
    let bases = both("base").into_iter().flat_map(|key| board.numbers(&key));
    let size = |value: &Value| Bytes::parse(value.as_str().expect("a size")).expect("a size").0;
    let sizes = both("size")
        .into_iter()
        .flat_map(|key| board.all(&key).into_iter().map(size).collect::<Vec<_>>());
    let ram = bases.zip(sizes).map(|(base, size)| format!("({base:#x}, {:#x})", base + size));
    let cores = board.numbers("core.mpidr").into_iter().map(|mpidr| format!("{mpidr:#x}"));
    let intids = board.get("pmu.intids").and_then(Value::as_array);
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
