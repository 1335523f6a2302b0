//! Boards: the description in `boards/*/board.toml`, and the device tree.

use crate::board::Board;
pub use crate::board::Memory;
use crate::coloring::places::{self, Places};
use crate::counters::{self, Counters};
use crate::diagnostics::Code;
use crate::document::{self, At, Values};
use crate::fault::{self, Fault, Faults, File};
use crate::files;
use crate::keys::board::PLATFORM;
use crate::measured::{Interference, Overheads, Saturation, Sharing};
use crate::pci::{self, Pci, Smmu};
use crate::shape::suggestion;
use std::{
    ops::Range,
    path::Path,
    sync::{Arc, LazyLock},
};
use toml::de::DeTable;
use weir_abi::{ADDRESS_LIMIT, MAX_CORES, PAGE};
use weir_units::{IntId, Pa};

/// Longest flattened device tree of a board, in bytes; boards' are below 100 KiB.
const TREE_LIMIT: u64 = 1 << 20;

/// A board that weir runs on.
#[derive(Clone, Debug)]
pub struct Platform {
    /// Its name: `qemu-virt`.
    pub name: String,
    /// One line about it.
    pub description: String,
    /// Where the image lies when its first instruction runs.
    pub load_address: Pa,
    /// Its RAM.
    pub memory: Memory,
    /// Its cores, at most [`MAX_CORES`]; a system uses the first ones.
    pub cores: Vec<Core>,
    /// Its interrupt controller.
    pub gic: Gic,
    /// The PL011 that is the console of all.
    pub uart: Uart,
    /// Its PCI host bridge.
    pub pci: Option<Pci>,
    /// The SMMU in front of it.
    pub smmu: Option<Smmu>,
    /// How the firmware is called: `smc` or `hvc`.
    pub psci_conduit: String,
    /// How to start it in QEMU.
    pub qemu: Option<Qemu>,
    /// Short names for devices.
    pub devices: Vec<NamedDevice>,
    /// The board's flattened device tree; empty where the platform has none.
    pub device_tree: Vec<u8>,
    /// The same, read.
    pub(crate) board: Arc<Board>,
    /// Devices that may be passed through, by compatible string.
    pub(crate) allow: Vec<String>,
    /// Why others may not.
    pub(crate) deny: Vec<Deny>,
    /// Where lines lie in the cache and in DRAM, and more RAM.
    pub places: Places,
    /// What the steps of a transfer cost.
    pub overheads: Overheads,
    /// The DMA engine that can move messages between VMs; without one a core copies them.
    pub dma_engine: Option<String>,
    /// The saturation of its memory.
    pub saturation: Option<Saturation>,
    /// Overheads of EL2 on a core that VMs share, if measured.
    pub sharing: Option<Sharing>,
    /// What memory accesses of other VMs do to a core, if it is known.
    pub interference: Option<Interference>,
    /// What its cores' accesses are counted by.
    pub counters: Counters,
}

/// A core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// Affinity fields of MPIDR_EL1, as PSCI takes them.
    pub mpidr: u64,
}

/// An interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gic {
    /// GICv2 with virtualization extensions (IHI 0048).
    V2 {
        /// GICD.
        distributor: Pa,
        /// GICC.
        cpu_interface: Pa,
        /// GICH.
        hyp: Pa,
        /// GICV.
        virtual_cpu: Pa,
    },
    /// GICv3 (IHI 0069).
    V3 {
        /// GICD.
        distributor: Pa,
        /// GICR of the first core; the others follow.
        redistributors: Pa,
    },
}

/// A PL011.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uart {
    /// Its registers, one page.
    pub base: Pa,
    /// Its interrupt.
    pub intid: IntId,
}

/// How to start a board in QEMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// Argument of `-machine`.
    pub machine: String,
    /// Argument of `-cpu`.
    pub cpu: String,
    /// Cores of the machine, unless the system needs more.
    pub cores: usize,
}

/// A short name for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDevice {
    /// The name that a system file may use.
    pub name: String,
    /// Its path in the board's device tree.
    pub path: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Deny {
    pub compatible: String,
    pub reason: String,
}

struct Embedded {
    name: &'static str,
    text: &'static str,
    device_tree: &'static [u8],
}

static EMBEDDED: [Embedded; 5] = [
    Embedded {
        name: "qemu-virt",
        text: include_str!("../../../boards/qemu-virt/board.toml"),
        device_tree: include_bytes!("../../../boards/qemu-virt/qemu-virt.dtb"),
    },
    Embedded {
        name: "qemu-virt-gicv2",
        text: include_str!("../../../boards/qemu-virt-gicv2/board.toml"),
        device_tree: include_bytes!("../../../boards/qemu-virt-gicv2/qemu-virt-gicv2.dtb"),
    },
    Embedded {
        name: "zcu102",
        text: include_str!("../../../boards/zcu102/board.toml"),
        device_tree: &[],
    },
    Embedded {
        name: "zcu104",
        text: include_str!("../../../boards/zcu104/board.toml"),
        device_tree: &[],
    },
    Embedded {
        name: "rpi4",
        text: include_str!("../../../boards/rpi4/board.toml"),
        device_tree: &[],
    },
];

/// The embedded platforms, read once.
static KNOWN: LazyLock<Vec<Platform>> = LazyLock::new(|| {
    let read = |embedded: &Embedded| {
        let file = fault::file(Path::new(embedded.name), embedded.text);
        parse(&file, |_| Ok(embedded.device_tree.to_vec())).ok()
    };
    EMBEDDED.iter().filter_map(read).collect()
});

impl Platform {
    /// The path of a device that a file may call by a short name.
    pub(crate) fn device_path<'a>(&'a self, name: &'a str) -> &'a str {
        let short = self.devices.iter().find(|device| device.name == name);
        short.map_or(name, |device| &device.path)
    }

    /// The platforms that weir knows by name.
    #[must_use]
    pub fn all() -> Vec<Self> {
        KNOWN.clone()
    }

    /// The names of [`Platform::all`].
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        EMBEDDED.iter().map(|embedded| embedded.name)
    }

    /// The platform that weir knows by this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KNOWN.iter().find(|platform| platform.name == name).cloned()
    }

    /// Reads a platform file and the device tree next to it.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        let file = fault::read(path)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        parse(&file, |name| {
            let path = directory.join(name);
            files::read_short(&path, TREE_LIMIT)
                .map_err(|error| format!("cannot read {name}: {error}"))
        })
    }

    /// All its RAM, by address.
    #[must_use]
    pub fn pools(&self) -> Vec<Range<u64>> {
        let pieces = [self.memory].into_iter().chain(self.places.more_memory.iter().copied());
        let mut pools: Vec<_> =
            pieces.map(|memory| memory.base.0..memory.base.0 + memory.size.0).collect();
        pools.sort_by_key(|pool| pool.start);
        pools
    }

    /// Whether it has a GICv2, and its VMs therefore too.
    #[must_use]
    pub const fn is_gic_v2(&self) -> bool {
        matches!(self.gic, Gic::V2 { .. })
    }
}

/// The platform that a file in `directory` names.
pub(crate) fn find(
    file: &File,
    directory: &Path,
    name: &At<String>,
    faults: &mut Faults,
) -> Option<Platform> {
    let At { value: name, span } = name;
    if let Some(platform) = Platform::named(name) {
        return Some(platform);
    }
    let path = directory.join(name);
    if path.extension().is_some_and(|extension| extension == "toml") && path.exists() {
        return match Platform::load(&path) {
            Ok(platform) => Some(platform),
            Err(broken) => {
                let message = format!("the platform file {name} is at fault");
                let fault =
                    Fault::new(Code::PlatformBroken, file, span.clone(), message).label("this");
                let list: Vec<_> = broken
                    .0
                    .iter()
                    .map(|fault| format!("{}: {}: {fault}", fault.location(), fault.code))
                    .collect();
                faults.push(fault.help(list.join("; ")));
                None
            }
        };
    }
    let message = format!("there is no platform `{name}`");
    let help = suggestion(name, Platform::names());
    let fault = Fault::new(Code::PlatformUnknown, file, span.clone(), message).label("unknown");
    faults.push(fault.help(format!("{help}, or the path of a platform's TOML file")));
    None
}

fn parse(
    file: &File,
    device_tree: impl FnOnce(&str) -> Result<Vec<u8>, String>,
) -> Result<Platform, Faults> {
    let mut faults = Faults::default();
    let mut found = Faults::default();
    let platform = document::parse(file, &PLATFORM, &mut faults, |table| {
        let mut reader = Reader { table, file, faults: &mut found };
        reader.platform(device_tree)
    });
    // What follows from a value that can't be right anyway is no fault of its own.
    let wrong = |fault: &Fault| {
        let section = section(file.inner(), fault.span().start);
        places::FOLLOWS.contains(&fault.code)
            && faults.0.iter().any(|cause| section.contains(&cause.span().start))
    };
    found.0.retain(|fault| !wrong(fault));
    faults.0.append(&mut found.0);
    match platform.flatten() {
        Some(platform) => faults.into_result(platform),
        // What is not there was reported as missing.
        None => Err(Faults(faults.sorted())),
    }
}

/// The table that the byte at `place` is in: from its header to the next one.
fn section(text: &str, place: usize) -> Range<usize> {
    let header = |rest: &str| rest.find("\n[").map(|line| line + 1);
    let (before, behind) = text.split_at_checked(place).unwrap_or((text, ""));
    let start = if behind.starts_with('[') { Some(place) } else { None };
    let start = start.or_else(|| before.rfind("\n[").map(|line| line + 1)).unwrap_or(0);
    // A header has no line break in it.
    let end = header(text.get(start..).unwrap_or("")).map_or(text.len(), |end| start + end);
    start..end
}

/// Reads a platform file key by key. `None` everywhere means that there is a fault.
struct Reader<'a, 'toml> {
    table: &'a DeTable<'toml>,
    file: &'a File,
    faults: &'a mut Faults,
}

impl Reader<'_, '_> {
    fn fault(&mut self, code: Code, span: Range<usize>, message: &str, help: &str) {
        self.faults.push(Fault::new(code, self.file, span, message).help(help));
    }

    fn platform(
        &mut self,
        device_tree: impl FnOnce(&str) -> Result<Vec<u8>, String>,
    ) -> Option<Platform> {
        let table = self.table;
        let memory = self.memory();
        let load_address = table.number("load_address")?;
        let cores = self.cores();
        let gic = self.gic();
        let uart = self.uart();
        let device_tree = self.device_tree(device_tree);
        let places = places::read(table, self.file, self.faults);
        let mut measured = document::Reader { file: self.file, faults: self.faults };
        let overheads = measured.overheads(table);
        let saturation = measured.saturation(table);
        let sharing = measured.sharing(table);
        let interference = measured.interference(table);
        let counters = counters::read(table, self.file, self.faults);
        let (host_bridge, smmu) = pci::platform(table, self.file, self.faults);
        let memory = memory?;
        let inside = (memory.base.0..memory.base.0 + memory.size.0).contains(&load_address.value);
        if !inside || !load_address.value.is_multiple_of(PAGE) {
            let help = "use an address in [memory], a multiple of 0x1000";
            let message = "`load_address` is no page of [memory]";
            self.fault(Code::PlatformLoadAddress, load_address.span.clone(), message, help);
        }
        let (psci, _) = table.inner("psci")?;
        let (device_tree, board) = device_tree?;
        Some(Platform {
            name: table.text("name")?.value,
            description: table.text("description")?.value,
            load_address: Pa(load_address.value),
            memory,
            cores: cores?,
            gic: gic?,
            uart: uart?,
            pci: host_bridge,
            smmu,
            psci_conduit: psci.text("conduit")?.value,
            qemu: table.inner("qemu").and_then(|(qemu, _)| {
                Some(Qemu {
                    machine: qemu.text("machine")?.value,
                    cpu: qemu.text("cpu")?.value,
                    cores: qemu.number("cores")?.value as usize,
                })
            }),
            devices: pairs(table, "device", "name", "path")
                .map(|(name, path)| NamedDevice { name, path })
                .collect(),
            allow: pairs(table, "allow", "compatible", "compatible")
                .map(|(allow, _)| allow)
                .collect(),
            deny: pairs(table, "deny", "compatible", "reason")
                .map(|(compatible, reason)| Deny { compatible, reason })
                .collect(),
            device_tree,
            board: Arc::new(board),
            places,
            overheads,
            dma_engine: table.text("dma_engine").map(|name| name.value),
            saturation,
            sharing,
            interference,
            counters,
        })
    }

    fn memory(&mut self) -> Option<Memory> {
        let (memory, span) = self.table.inner("memory")?;
        let (base, size) = (memory.number("base")?.value, memory.size("size")?.value);
        if !base.is_multiple_of(PAGE) || !size.0.is_multiple_of(PAGE) || size.0 == 0 {
            self.fault(
                Code::MemoryUnaligned,
                span.clone(),
                "RAM is not whole pages",
                "use multiples of 4KiB",
            );
        }
        if base.checked_add(size.0).is_none_or(|end| end > ADDRESS_LIMIT) {
            self.fault(Code::AddressTooHigh, span, "RAM ends above 39 bits", "shorten or move it");
            return None;
        }
        Some(Memory { base: Pa(base), size })
    }

    fn cores(&mut self) -> Option<Vec<Core>> {
        let cores = self.table.tables("core");
        if cores.is_empty() || cores.len() > MAX_CORES {
            let span = cores.get(MAX_CORES).map_or(0..0, |(_, span)| span.clone());
            let message = format!("{} cores", cores.len());
            self.fault(Code::PlatformCores, span, &message, "describe 1 to 8 cores with [[core]]");
        }
        let cores = cores.iter().map(|(core, _)| Some(Core { mpidr: core.number("mpidr")?.value }));
        cores.collect()
    }

    /// The address of a device's registers.
    fn registers(&mut self, table: &DeTable<'_>, key: &str) -> Option<Pa> {
        let At { value, span } = table.number(key)?;
        if !value.is_multiple_of(PAGE) || value >= ADDRESS_LIMIT {
            let message = format!("`{key}` is at no page below 39 bits");
            self.fault(
                Code::Unaligned,
                span,
                &message,
                "use a multiple of 0x1000 below 0x100_0000_0000",
            );
            return None;
        }
        Some(Pa(value))
    }

    fn gic(&mut self) -> Option<Gic> {
        let (gic, span) = self.table.inner("gic")?;
        let distributor = self.registers(gic, "distributor")?;
        let v2 = gic.number("version")?.value == 2;
        let keys: &[&str] =
            if v2 { &["cpu_interface", "hyp", "virtual_cpu"] } else { &["redistributors"] };
        if keys.iter().any(|key| !gic.contains_key(*key)) {
            let help = "version 2 has `cpu_interface`, `hyp` and `virtual_cpu`, version 3 `redistributors`";
            self.fault(Code::MissingKey, span, "[gic] lacks an address", help);
            return None;
        }
        if !v2 {
            let redistributors = self.registers(gic, "redistributors")?;
            return Some(Gic::V3 { distributor, redistributors });
        }
        Some(Gic::V2 {
            distributor,
            cpu_interface: self.registers(gic, "cpu_interface")?,
            hyp: self.registers(gic, "hyp")?,
            virtual_cpu: self.registers(gic, "virtual_cpu")?,
        })
    }

    fn uart(&mut self) -> Option<Uart> {
        let (uart, _) = self.table.inner("uart")?;
        let intid = IntId(uart.number("intid")?.value as u32);
        Some(Uart { base: self.registers(uart, "base")?, intid })
    }

    fn device_tree(
        &mut self,
        read: impl FnOnce(&str) -> Result<Vec<u8>, String>,
    ) -> Option<(Vec<u8>, Board)> {
        if !self.table.contains_key("device_tree") {
            return Some((Vec::new(), Board::unknown()));
        }
        let At { value: path, span } = self.table.text("device_tree")?;
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(message) => {
                let help = "give the path of a flattened device tree";
                self.fault(Code::DeviceTreeMissing, span, &message, help);
                return None;
            }
        };
        match Board::read(&bytes) {
            Ok(board) => Some((bytes, board)),
            Err(message) => {
                let message = format!("{path} is not a flattened device tree: {message}");
                let help = "dump the board's with `dumpdtb` or compile one with `dtc`";
                self.fault(Code::DeviceTreeDamaged, span, &message, help);
                None
            }
        }
    }
}

fn pairs(
    table: &DeTable<'_>,
    list: &str,
    first: &str,
    second: &str,
) -> impl Iterator<Item = (String, String)> {
    table
        .tables(list)
        .into_iter()
        .filter_map(move |(item, _)| Some((item.text(first)?.value, item.text(second)?.value)))
}
