//! What is known of a board, and what follows from it.

use crate::board::Board;
pub use crate::board::RamRange;
use crate::classes::places::Places;
use crate::keys::board::Deny;
use crate::keys::board::{CounterPageSource, Pmu};
pub use crate::keys::board::{
    EngineKind, EngineQos, Feature, NamedDevice, PlatformCore, Qemu, UartKind, Verified,
};
use crate::measured::{Interference, OverheadValues, Saturation, Sharing};
use crate::object::named;
use crate::pci::{Pci, Smmu};
use std::{ops::Range, sync::Arc};
use weir_abi::{ENGINE_CHUNK, PAGE};
use weir_units::{Bytes, IntId, Pa};

/// The events that a board's cores can count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The PMUs of its cores.
    pub pmu: Option<Pmu>,
    /// A counter page.
    pub counter_page: Option<CounterPageSource>,
}

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
    pub memory: RamRange,
    /// Its cores, at most [`weir_abi::MAX_CORES`]; a system uses the first ones.
    pub cores: Vec<PlatformCore>,
    /// Its interrupt controller.
    pub gic: PlatformGic,
    /// The UART that is the console of all.
    pub uart: Uart,
    /// Its PCI host bridge.
    pub pci: Option<Pci>,
    /// The SMMU in front of it.
    pub smmu: Option<Smmu>,
    /// How firmware with PSCI is called: `smc` or `hvc`. None where a spin table starts the cores.
    pub psci_conduit: Option<String>,
    /// The spin table that starts its other cores; none where PSCI does.
    pub spin_table: Option<Pa>,
    /// Whether all its cores start in EL3, without firmware.
    pub starts_in_el3: bool,
    /// Whether nothing turns it off at the end of a system.
    pub stays_on: bool,
    /// How to start it in QEMU.
    pub qemu: Option<Qemu>,
    /// Values in QEMU's machine.
    pub(super) emulated: Emulated,
    /// How far weir was verified on it.
    pub verified: Verified,
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
    pub overheads: OverheadValues,
    /// The DMA engine that moves messages between VMs; without one a core copies them.
    pub dma_engine: Option<DmaEngine>,
    /// The saturation of its memory.
    pub saturation: Option<Saturation>,
    /// Overheads of EL2 on a core that VMs share, if measured.
    pub sharing: Option<Sharing>,
    /// What memory accesses of other VMs do to a core, if it is known.
    pub interference: Option<Interference>,
    /// What its cores' accesses are counted by.
    pub counters: Counters,
    /// The origin of these values.
    pub(crate) machine: Machine,
    /// The text of its file.
    pub(super) text: Arc<str>,
}

/// The keys that the hypervisor for a board is built from (`hypervisor/build.rs`).
const BUILT_FROM: &str = include_str!("../../../../hypervisor/board-keys.txt");

/// The values of a key in dotted form, as text: one for each table in a list of tables. Sizes are
/// in bytes.
fn values(value: &toml::Value, path: &str) -> Vec<Option<String>> {
    if let (toml::Value::Array(items), false) = (value, path.is_empty()) {
        return items.iter().flat_map(|item| values(item, path)).collect();
    }
    if path.is_empty() {
        let size = value.as_str().and_then(|text| Bytes::parse(text).ok());
        return vec![Some(size.map_or_else(|| format!("{value:?}"), |size| size.0.to_string()))];
    }
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    value.get(key).map_or_else(|| vec![None], |value| values(value, rest))
}

/// What was measured in QEMU.
#[derive(Clone, Debug)]
pub(super) struct Emulated {
    pub(super) overheads: OverheadValues,
    pub(super) sharing: Option<Sharing>,
}

/// What a system is checked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    /// The board.
    #[default]
    Board,
    /// QEMU's machine for the board.
    Qemu,
}

/// An interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlatformGic {
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

/// A UART.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uart {
    /// What it is.
    pub kind: UartKind,
    /// Its registers, one page.
    pub base: Pa,
    /// Its interrupt.
    pub intid: IntId,
}

/// A channel of a DMA engine, which is the broker's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DmaEngine {
    /// The name of the engine.
    pub name: String,
    /// What it is.
    pub kind: EngineKind,
    /// The registers of the channel, one page.
    pub base: Pa,
    /// The interrupt of the channel, level-sensitive.
    pub intid: IntId,
    /// Whether it sees the cores' caches.
    pub is_coherent: bool,
    /// The QoS regulator at its port, if firmware can set it.
    pub qos: Option<EngineQos>,
}

impl DmaEngine {
    /// Most bytes that the broker has it move at once.
    pub const CHUNK: Bytes = Bytes(ENGINE_CHUNK);

    /// The channel's registers.
    pub(crate) const fn page(&self) -> Range<u64> {
        self.base.0..self.base.0 + PAGE
    }
}

impl Uart {
    /// The register that sends what is written to it.
    #[must_use]
    pub const fn data(&self) -> Pa {
        match self.kind {
            UartKind::Pl011 => self.base,
            UartKind::Cadence => Pa(self.base.0 + 0x30),
        }
    }
}

named! { Platform: platform(name) }

impl Platform {
    /// The path of a device that a file may call by a short name.
    pub(crate) fn device_path<'a>(&'a self, name: &'a str) -> &'a str {
        let short = self.devices.iter().find(|device| device.name == name);
        short.map_or(name, |device| &device.path)
    }

    /// All its RAM, in the order of the file.
    pub fn ram(&self) -> impl Iterator<Item = RamRange> + use<'_> {
        [self.memory].into_iter().chain(self.places.more_memory.iter().copied())
    }

    /// The RAM of QEMU's machine, in the order of its addresses in one file.
    #[must_use]
    pub fn ram_in_qemu(&self) -> Vec<RamRange> {
        let memory = self.qemu.as_ref().and_then(|qemu| qemu.memory.as_ref());
        let one = memory.map(|memory| vec![RamRange { base: memory.base, size: memory.size }]);
        one.unwrap_or_else(|| self.ram().collect())
    }

    /// All its RAM, by address.
    #[must_use]
    pub fn pools(&self) -> Vec<Range<u64>> {
        let mut pools: Vec<_> =
            self.ram().map(|memory| memory.base.0..memory.base.0 + memory.size.0).collect();
        pools.sort_by_key(|pool| pool.start);
        pools
    }

    /// Returns the board as QEMU's machine has it: without a PMU interrupt that the machine lacks,
    /// and with the values of `[emulated]`.
    #[must_use]
    pub fn on(mut self, machine: Machine) -> Self {
        let Some(qemu) = self.qemu.as_ref().filter(|_| machine == Machine::Qemu) else {
            return self;
        };
        if !qemu.pmu_interrupt
            && let Some(pmu) = &mut self.counters.pmu
        {
            pmu.intids.clear();
        }
        self.machine = machine;
        if !self.emulated.overheads.steps.is_empty() {
            self.overheads.clone_from(&self.emulated.overheads);
        }
        self.sharing = self.emulated.sharing.clone().or(self.sharing);
        self
    }

    /// Returns the first key of those that the hypervisor is built from with another value
    /// in `text`, a board file; none if that is no TOML.
    #[must_use]
    pub fn differs_in_build(&self, text: &str) -> Option<&'static str> {
        let [own, other] = [&*self.text, text].map(|text| text.parse::<toml::Table>().ok());
        let [own, other] = [toml::Value::Table(own?), toml::Value::Table(other?)];
        BUILT_FROM.lines().find(|key| values(&own, key) != values(&other, key))
    }

    /// Whether the board is a machine that only QEMU has.
    #[must_use]
    pub fn is_emulator(&self) -> bool {
        self.qemu.as_ref().is_some_and(|qemu| qemu.machine.starts_with("virt,"))
    }

    /// Whether it has a GICv2, and its VMs therefore too.
    #[must_use]
    pub const fn is_gic_v2(&self) -> bool {
        matches!(self.gic, PlatformGic::V2 { .. })
    }
}
