//! The content of a memory file, such as `memsim/models/ddr4-2400.toml`.

mod chip;
mod dram;
mod engines;

use std::{collections::BTreeMap, fmt, path::Path};

pub use chip::{Caches, CoreSettings, HypervisorCosts, Interconnect};
pub use dram::Dram;
use engines::Engines;
pub use engines::{EngineSettings, TbuSettings};
use serde::Deserialize;
use weir_memory::{AddressMap, MemorySystem, Pa, SystemConfig, stalls::Stalls};

/// A memory system, as far as its file describes one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryModel {
    /// One line about it.
    pub description: String,
    /// The DRAM.
    pub dram: Dram,
    cores: Option<CoreSettings>,
    caches: Option<Caches>,
    interconnect: Option<Interconnect>,
    hypervisor: Option<HypervisorCosts>,
    #[serde(default)]
    dma: BTreeMap<String, EngineSettings>,
    #[serde(default)]
    tbu: BTreeMap<String, TbuSettings>,
}

/// The memory system between the cores and DRAM.
#[derive(Clone, Copy, Debug)]
pub struct Chip {
    /// The cores and their caches.
    pub cores: CoreSettings,
    /// The caches' times.
    pub caches: Caches,
    /// The way to DRAM.
    pub interconnect: Interconnect,
    /// The overheads of the hypervisor's interrupts.
    pub hypervisor: HypervisorCosts,
}

/// Why a memory file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryError {
    /// The file's name.
    pub file: String,
    /// The fault, with the line where it is.
    pub message: String,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.message.trim_end())
    }
}

impl std::error::Error for MemoryError {}

/// A memory file has some kilobytes.
const MOST_BYTES: u64 = 1 << 20;

/// The files that weir brings along, by name.
const EMBEDDED: [(&str, &str); 9] = [
    ("arm11mpcore", include_str!("../../../../memsim/models/arm11mpcore.toml")),
    ("athlon64x2", include_str!("../../../../memsim/models/athlon64x2.toml")),
    ("ddr4-2400", include_str!("../../../../memsim/models/ddr4-2400.toml")),
    ("gem5", include_str!("../../../../boards/gem5/memory.toml")),
    ("qemu-virt", VIRT),
    ("qemu-virt-gicv2", VIRT),
    ("rpi4", include_str!("../../../../boards/rpi4/memory.toml")),
    ("zcu102", ZYNQ),
    ("zcu104", ZYNQ),
];

const VIRT: &str = include_str!("../../../../boards/qemu-virt/memory.toml");
const ZYNQ: &str = include_str!("../../../../boards/zcu102/memory.toml");

impl MemoryModel {
    /// Names that [`MemoryModel::find`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// The memory that weir knows by this name, or else that of the file at this path.
    ///
    /// # Errors
    /// [`MemoryError`] with the file and the line.
    pub fn find(name: &str) -> Result<Self, MemoryError> {
        Self::find_with(name, &[])
    }

    /// The same with other values for some keys, each given as (`caches.l2_misses`, `2`).
    ///
    /// # Errors
    /// [`MemoryError`]; also for a key that the file has not.
    pub fn find_with(name: &str, values: &[(String, String)]) -> Result<Self, MemoryError> {
        if let Some((_, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) {
            return Self::parse_with(name, text, values);
        }
        let text = weir_model::read_text(Path::new(name), MOST_BYTES).map_err(|error| {
            let names: Vec<_> = Self::names().collect();
            let message =
                format!("{error}; name a memory file, or one that weir has: {}", names.join(", "));
            MemoryError { file: name.to_owned(), message }
        })?;
        Self::parse_with(name, &text, values)
    }

    /// Reads the text of a memory file; `name` is what messages call it.
    ///
    /// # Errors
    /// [`MemoryError`] with the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, MemoryError> {
        Self::parse_with(name, text, &[])
    }

    fn parse_with(
        name: &str,
        text: &str,
        values: &[(String, String)],
    ) -> Result<Self, MemoryError> {
        let refuse = |message: String| MemoryError { file: name.to_owned(), message };
        let memory: Self = if values.is_empty() {
            toml::from_str(text).map_err(|error| refuse(error.to_string()))?
        } else {
            let mut table: toml::Table =
                toml::from_str(text).map_err(|error| refuse(error.to_string()))?;
            for (key, value) in values {
                set(&mut table, key, value).map_err(refuse)?;
            }
            table.try_into().map_err(|error: toml::de::Error| refuse(error.to_string()))?
        };
        memory.dram.check().map_err(|message| refuse(format!("[dram]: {message}")))?;
        memory.check().map_err(refuse)?;
        Ok(memory)
    }

    /// The memory system above the DRAM; `None` for a bare one.
    #[must_use]
    pub fn chip(&self) -> Option<Chip> {
        Some(Chip {
            cores: self.cores?,
            caches: self.caches?,
            interconnect: self.interconnect?,
            hypervisor: self.hypervisor?,
        })
    }

    /// The stalls of so many cores on this memory. The DRAM's banks are those of `banks`, masks of
    /// address bits; of none, those of the file.
    ///
    /// # Errors
    /// A sentence about what does not fit; also if the file describes DRAM only.
    pub fn stalls(&self, cores: usize, banks: &[u64]) -> Result<Stalls, String> {
        let chip = self.chip().ok_or_else(|| {
            format!("{}: the file describes neither cores nor caches", self.description)
        })?;
        let map = if banks.is_empty() { self.dram.map() } else { self.dram.map_with_banks(banks) }?;
        let system = self.build(&chip, map, cores, cores, 0, Pa(0))?;
        Ok(Stalls::new(system, cores))
    }

    fn check(&self) -> Result<(), String> {
        let Some(chip) = self.chip() else {
            let bare = self.cores.is_none()
                && self.caches.is_none()
                && self.interconnect.is_none()
                && self.hypervisor.is_none()
                && self.dma.is_empty()
                && self.tbu.is_empty();
            let parts = "[cores], [caches], [interconnect], [hypervisor]";
            return if bare { Ok(()) } else { Err(format!("{parts}: write all or none")) };
        };
        chip.cores.check()?;
        chip.caches.check()?;
        chip.interconnect.check()?;
        chip.hypervisor.check()?;
        self.engines().check(chip.interconnect.clock_ps)?;
        self.build(&chip, self.dram.map()?, 1, 1, 0, Pa(0)).map(|_| ())
    }

    fn engines(&self) -> Engines<'_> {
        Engines::new(&self.dma, &self.tbu)
    }

    /// The DMA engine of a name: its number and its values in the file.
    pub(crate) fn engine(&self, name: &str) -> Option<(usize, &EngineSettings)> {
        let at = self.dma.keys().position(|known| known == name)?;
        Some((at, &self.dma[name]))
    }

    /// Names of the DMA engines.
    pub fn engine_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.dma.keys().map(String::as_str)
    }

    /// Names of the translation buffer units.
    pub fn tbu_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tbu.keys().map(String::as_str)
    }

    /// The memory system of a chip with so many cores, for so many owners, and these address
    /// functions of the DRAM. Translation tables of devices lie at `tables`.
    pub(crate) fn build(
        &self,
        chip: &Chip,
        map: AddressMap,
        cores: usize,
        owners: usize,
        seed: u64,
        tables: Pa,
    ) -> Result<MemorySystem, String> {
        let mut hierarchy = chip.cores.hierarchy(cores, owners, seed);
        hierarchy.dram = Some(map);
        MemorySystem::new(SystemConfig {
            hierarchy,
            caches: chip.caches.timing(chip.cores.outstanding),
            interconnect: chip.interconnect.timing(),
            dram: self.dram.timing(),
            policy: self.dram.policy(),
            dma: self.engines().ports(tables),
            tbus: self.engines().tlbs(seed),
        })
        .map_err(|error| error.to_string())
    }
}

/// Sets a key of a table that is there, given with the names of the tables that it is in.
fn set(table: &mut toml::Table, key: &str, text: &str) -> Result<(), String> {
    let missing = || {
        format!("there is no key `{key}` to set; write one of the file's, like caches.l2_misses=2")
    };
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut inner = table;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        inner = inner.get_mut(name).and_then(toml::Value::as_table_mut).ok_or_else(missing)?;
    }
    // What is no TOML value is a text without its quotes.
    let read: Option<toml::Table> = toml::from_str(&format!("value = {text}")).ok();
    let read = read.and_then(|mut table| table.remove("value"));
    // A key that no memory file can have is refused when all of it is read.
    inner.insert(last.to_owned(), read.unwrap_or_else(|| toml::Value::String(text.to_owned())));
    Ok(())
}
