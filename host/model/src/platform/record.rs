//! Boards in a JSON result.

use super::{Feature, Platform, PlatformGic, RamRange};
use crate::classes::{groups::Group, places::Tlb};
use schemars::JsonSchema;
use serde::Serialize;
use weir_paging::classes::PageClasses;

/// A board in a JSON result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlatformRecord {
    /// The name of the board.
    pub name: String,
    /// One line about it.
    pub description: String,
    /// The MPIDR of each core, in hexadecimal.
    pub cores: Vec<String>,
    /// Its first RAM.
    pub memory: MemoryRecord,
    /// RAM at other addresses.
    pub more_memory: Vec<MemoryRecord>,
    /// The last-level cache, if the board file describes one.
    pub cache: Option<CacheRecord>,
    /// The address maps of its DRAM controller, the default first.
    pub dram: Vec<DramRecord>,
    /// TLBs with sets that can be chosen.
    pub tlbs: Vec<Tlb>,
    /// Names for colors and banks.
    pub groups: Vec<Group>,
    /// Whether this version of weir runs there.
    pub runs: bool,
    /// Why it does not.
    pub planned: Option<String>,
    /// How far weir was verified on it.
    pub verified: VerifiedRecord,
    /// The address of the image when its first instruction runs, in hexadecimal.
    pub load_address: String,
    /// Its interrupt controller.
    pub gic: GicRecord,
    /// The UART that is the console of all VMs.
    pub uart: UartRecord,
    /// How firmware with PSCI is called: `smc` or `hvc`; none where a spin table starts the cores.
    pub psci: Option<String>,
    /// How to start it in QEMU.
    pub qemu: Option<QemuRecord>,
    /// Short names for devices.
    pub devices: Vec<DeviceRecord>,
}

/// A piece of RAM.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MemoryRecord {
    /// The address of its first byte, in hexadecimal.
    pub base: String,
    /// The size in bytes.
    pub bytes: u64,
}

/// A last-level cache.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CacheRecord {
    /// The size in bytes.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u64,
    /// Bytes of a line.
    pub line_bytes: u64,
}

/// An address map of a DRAM controller, and the page classes that follow from it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DramRecord {
    /// The name of the map.
    pub map: String,
    /// For each bit of a bank's number the address bits that it is the XOR of.
    pub bank_functions: Vec<Vec<u32>>,
    /// The number of page classes.
    pub page_classes: usize,
    /// The number of cache colors.
    pub colors: u16,
    /// The number of banks or groups of banks that a page can be in.
    pub bank_groups: u16,
    /// The number of banks in a group.
    pub banks_in_group: u16,
}

/// How far weir was verified on a board.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VerifiedRecord {
    /// The emulator in which the tests run the board, with its version.
    pub emulator: Option<String>,
    /// Whether weir was run on the board itself.
    pub silicon: bool,
    /// The features that were tested there.
    pub features: Vec<&'static str>,
    /// The other features.
    pub not_verified: Vec<&'static str>,
}

/// An interrupt controller; addresses are in hexadecimal.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct GicRecord {
    /// 2 or 3.
    pub version: u8,
    /// GICD.
    pub distributor: String,
    /// GICR of the first core, version 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redistributors: Option<String>,
    /// GICC, version 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_interface: Option<String>,
    /// GICH, version 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyp: Option<String>,
    /// GICV, version 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_cpu: Option<String>,
}

/// A UART.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UartRecord {
    /// The kind: `pl011` or `cadence`.
    pub kind: &'static str,
    /// The address of its registers, in hexadecimal.
    pub base: String,
    /// Its interrupt.
    pub intid: u32,
}

/// A machine of QEMU.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QemuRecord {
    /// Argument of `-machine`.
    pub machine: String,
    /// Argument of `-cpu`.
    pub cpu: String,
    /// Cores of the machine unless a system needs more.
    pub cores: usize,
    /// The oldest major version of QEMU that has the machine.
    pub version: u64,
}

/// A short name for a device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceRecord {
    /// The name.
    pub name: String,
    /// The path in the board's device tree.
    pub path: String,
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}

impl From<RamRange> for MemoryRecord {
    fn from(RamRange { base, size }: RamRange) -> Self {
        Self { base: hex(base.0), bytes: size.0 }
    }
}

impl From<PlatformGic> for GicRecord {
    fn from(gic: PlatformGic) -> Self {
        match gic {
            PlatformGic::V2 { distributor, cpu_interface, hyp, virtual_cpu } => Self {
                version: 2,
                distributor: hex(distributor.0),
                cpu_interface: Some(hex(cpu_interface.0)),
                hyp: Some(hex(hyp.0)),
                virtual_cpu: Some(hex(virtual_cpu.0)),
                ..Self::default()
            },
            PlatformGic::V3 { distributor, redistributors } => Self {
                version: 3,
                distributor: hex(distributor.0),
                redistributors: Some(hex(redistributors.0)),
                ..Self::default()
            },
        }
    }
}

impl Platform {
    /// Returns the features that were verified on the board, or else those that were not.
    #[must_use]
    pub fn features(&self, verified: bool) -> Vec<&'static str> {
        let of = &self.verified.features;
        let all = Feature::ALL.iter().filter(|feature| of.contains(feature) == verified);
        all.map(|feature| feature.name()).collect()
    }

    /// Returns its page classes, by DRAM map.
    pub fn page_classes(&self) -> impl Iterator<Item = (&str, PageClasses)> + use<'_> {
        let maps = self.places.dram.iter().enumerate();
        maps.filter_map(|(place, map)| {
            Some((map.name.as_str(), PageClasses::new(&self.places.geometry(place)).ok()?))
        })
    }

    /// For each bit of a bank's number the address bits that it is the XOR of.
    fn bank_functions(&self, map: &str) -> Vec<Vec<u32>> {
        let bits = |mask: &u64| (0..u64::BITS).filter(|bit| mask >> bit & 1 != 0).collect();
        let map = self.places.dram.iter().find(|known| known.name == map);
        map.map_or_else(Vec::new, |map| map.banks.iter().map(bits).collect())
    }

    /// Returns the board as a JSON result has it.
    #[must_use]
    pub fn record(&self) -> PlatformRecord {
        let dram = |(map, classes): (&str, PageClasses)| DramRecord {
            map: map.to_owned(),
            bank_functions: self.bank_functions(map),
            page_classes: classes.count(),
            colors: classes.colors(),
            bank_groups: classes.bank_groups(),
            banks_in_group: classes.banks_in_group(),
        };
        PlatformRecord {
            name: self.name.clone(),
            description: self.description.clone(),
            cores: self.cores.iter().map(|core| hex(core.mpidr)).collect(),
            memory: self.memory.into(),
            more_memory: self.places.more_memory.iter().copied().map(Into::into).collect(),
            cache: self.places.cache.map(|cache| CacheRecord {
                bytes: cache.size.0,
                ways: cache.ways,
                line_bytes: cache.line.0,
            }),
            dram: self.page_classes().map(dram).collect(),
            tlbs: self.places.tlbs.clone(),
            groups: self.places.groups.clone(),
            runs: self.places.planned.is_none(),
            planned: self.places.planned.clone(),
            verified: VerifiedRecord {
                emulator: self.verified.emulator.clone(),
                silicon: self.verified.silicon,
                features: self.features(true),
                not_verified: self.features(false),
            },
            load_address: hex(self.load_address.0),
            gic: self.gic.into(),
            uart: UartRecord {
                kind: self.uart.kind.name(),
                base: hex(self.uart.base.0),
                intid: self.uart.intid.0,
            },
            psci: self.psci_conduit.clone(),
            qemu: self.qemu.as_ref().map(|qemu| QemuRecord {
                machine: qemu.machine.clone(),
                cpu: qemu.cpu.clone(),
                cores: qemu.cores,
                version: qemu.version,
            }),
            devices: self
                .devices
                .iter()
                .map(|device| DeviceRecord { name: device.name.clone(), path: device.path.clone() })
                .collect(),
        }
    }
}
