//! The keys of a board file.

use super::measured::{Interference, Overheads, Saturation, Sharing};
use super::page_classes::{Cache, Dram, Group, Tlb};
use crate::counters::CounterEvent;
use crate::shape::Kind;
use crate::table::{At, choice, table};
use weir_abi::{INTID_LIMIT, MAX_CORES};
use weir_units::{Bytes, IntId, Nanos, Pa};

const ADDRESS: Kind = Kind::Address;
const OVERFLOWS: Kind = Kind::List(&Kind::Number(16, 255));
const LINES: Kind = Kind::List(&Kind::Number(32, INTID_LIMIT as u64 - 1));

table! {
    /// A board that weir runs on.
    pub(crate) struct Platform = "the platform" {
        /// Its name.
        name: String,
        /// One line about it.
        description: String,
        /// Where the image lies when its first instruction runs.
        load_address: At<u64> as ADDRESS,
        /// Its flattened device tree, a path relative to this file. If absent, no device can be
        /// passed through.
        device_tree: Option<At<String>>,
        /// Its RAM.
        memory: At<Memory>,
        /// Its cores.
        core: Vec<At<PlatformCore>>,
        /// Its interrupt controller.
        gic: At<Gic>,
        /// Its console.
        uart: Uart,
        /// Firmware with PSCI.
        psci: Option<Psci>,
        /// No PSCI: cores wait in a loop for the address of their start.
        spin_table: Option<At<SpinTable>>,
        /// No firmware: all cores start in EL3, at the image's first byte.
        el3: Option<At<El3>>,
        /// How to start it in QEMU.
        qemu: Option<Qemu>,
        /// What QEMU's machine takes in place of values of the board.
        emulated: Emulated = {},
        /// How far weir was verified on the board.
        verified: Verified = {},
        /// Short names for devices.
        device: Vec<NamedDevice> = [],
        /// Devices that may be passed through.
        allow: Vec<Allow> = [],
        /// Why others may not.
        deny: Vec<Deny> = [],
        /// Its last-level cache, physically indexed and shared by all cores.
        cache: Option<At<Cache>>,
        /// Address maps of its DRAM controller; the one after reset comes first.
        dram: Vec<At<Dram>> = [],
        /// Its TLBs that are set-associative and indexed by the lowest bits of the page's number.
        tlb: Vec<At<Tlb>> = [],
        /// Names for colors and banks.
        group: Vec<Group> = [],
        /// Why this version of weir does not run on it; such a platform is for checking and
        /// planning.
        planned: Option<String>,
        /// The overhead of each step of a transfer.
        overheads: Overheads = {},
        /// The DMA engine that moves messages between VMs; without the key the broker's core
        /// copies them.
        dma_engine: Option<At<DmaEngine>>,
        /// Memory traffic below saturation.
        saturation: Option<Saturation>,
        /// The overheads of EL2 on a core that VMs share.
        sharing: Option<Sharing>,
        /// Interference of memory accesses of other VMs with a core; `delay` of [saturation] takes
        /// precedence.
        interference: Option<Interference>,
        /// The events that the PMUs of its cores can count.
        pmu: Option<Pmu>,
        /// The events that a counter page counts for each core.
        counter_page: Option<CounterPageSource>,
        /// Its PCI host bridge. If absent, no function can be passed through.
        pci: Option<At<Pci>>,
        /// The SMMU that PCI functions are behind.
        smmu: Option<At<Smmu>>,
    }

    /// RAM.
    pub(crate) struct Memory = "[memory]" {
        /// Its first byte.
        base: Pa,
        /// Its size.
        size: Bytes,
        /// More RAM, at other addresses.
        more: Vec<At<More>> = [],
    }

    /// A piece of RAM.
    pub struct More = "{ base = ..., size = ... }" {
        /// Its first byte.
        base: Pa,
        /// Its size.
        size: Bytes,
    }

    /// A core.
    pub struct PlatformCore = "[[core]]" {
        /// Affinity fields of MPIDR_EL1, as PSCI takes them.
        mpidr: u64 as ADDRESS,
    }

    /// The interrupt controller.
    pub(crate) struct Gic = "[gic]" {
        /// 2 or 3.
        version: u64 [2, 3],
        /// GICD.
        distributor: At<u64> as ADDRESS,
        /// GICR, version 3.
        redistributors: Option<At<u64>> as ADDRESS,
        /// GICC, version 2.
        cpu_interface: Option<At<u64>> as ADDRESS,
        /// GICH, version 2.
        hyp: Option<At<u64>> as ADDRESS,
        /// GICV, version 2.
        virtual_cpu: Option<At<u64>> as ADDRESS,
    }

    /// The UART that is the console of all VMs.
    pub(crate) struct Uart = "[uart]" {
        /// The kind of UART; `pl011` without the key. `cadence` is the UART of the Zynq
        /// UltraScale+.
        kind: Option<UartKind>,
        /// Its registers.
        base: At<u64> as ADDRESS,
        /// Its interrupt.
        intid: IntId [32, 1019],
        /// Its reference clock in Hz, from which it derives 115200 Bd; without the key 24 MHz for a
        /// PL011, and 100 MHz for a Cadence UART.
        clock: Option<u64> [1_843_200, 1_000_000_000],
    }

    /// A channel of a DMA engine, which weir's I/O service VM (the broker) has for itself.
    pub(crate) struct DmaEngine = "[dma_engine]" {
        /// The name of the engine.
        name: String,
        /// The kind of engine: `zdma` is that of the Zynq UltraScale+.
        kind: EngineKind,
        /// The registers of the channel, one page.
        base: At<u64> as ADDRESS,
        /// The interrupt of the channel, level-sensitive.
        intid: At<IntId> [32, INTID_LIMIT as u64 - 1],
        /// Whether the engine sees the cores' caches. If not, the broker cleans and invalidates the
        /// lines of each chunk.
        coherent: bool,
        /// The most data beats of an access: 1, 2, 4, 8 or 16, the default. Fewer leave more of the
        /// memory to others. `engine_bandwidth` and `chunks` hold for the value with which they
        /// were measured.
        burst: Option<At<u64>> [1, 16],
        /// The most reads that wait for an answer.
        outstanding: u64 [1, 31] = 31,
        /// The QoS regulator where the engine's accesses enter the interconnect. If absent,
        /// `qos_level` of a system's [dma] is refused.
        qos: Option<EngineQos>,
    }

    /// A QoS regulator that firmware sets; see boards/zcu102/firmware-call.md.
    pub struct EngineQos = "{ port = ..., block = ..., clock = ... }" {
        /// The number of the engine's port at the firmware's call.
        port: u64 [1, 255],
        /// Bytes of the engine's transaction of 16 beats, which the regulator lets through at a
        /// time; those with another `burst` are as much shorter.
        block: Bytes > 0,
        /// The clock of the regulator in Hz.
        clock: u64 [1, 10_000_000_000],
    }

    /// Firmware with PSCI.
    pub(crate) struct Psci = "[psci]" {
        /// The instruction that calls it.
        conduit: Conduit,
    }

    /// A start of cores without PSCI.
    pub(crate) struct SpinTable = "[spin_table]" {
        /// The entry of core 0, 8 bytes, in a page outside of [memory]; those of the other cores
        /// follow. A core's number is Aff0 of its MPIDR.
        base: u64 as ADDRESS,
        /// What turns the board off.
        power: PowerKind,
        /// The registers of the watchdog, with `power = "bcm2711"`.
        watchdog: Option<At<u64>> as ADDRESS,
    }

    /// A start without firmware: weir sets EL3 up and goes on in EL2, and the other cores wait at
    /// the spin table.
    pub(crate) struct El3 = "[el3]" {
        /// The frequency of the system counter in Hz, for CNTFRQ_EL0.
        counter: u64 [1_000_000, 1_000_000_000],
    }

    /// How to start the board in QEMU.
    pub struct Qemu = "[qemu]" {
        /// Argument of -machine.
        machine: String,
        /// The oldest major version of QEMU that has the machine, and in which weir runs there.
        version: u64 [1, 99] = 7,
        /// Argument of -cpu.
        cpu: String,
        /// Cores of the machine unless a system needs more.
        cores: usize [1, MAX_CORES as u64],
        /// RAM of the machine, in one piece; without the key that of the board.
        memory: Option<More>,
        /// Whether the machine generates a device tree. If not, weir passes one by `-dtb`, and QEMU
        /// adds the size of RAM.
        device_tree: bool = true,
        /// Whether the machine has the interrupt of the PMUs. If not, `weir run` refuses budgets by
        /// the PMU.
        pmu_interrupt: bool = true,
    }

    /// What was measured in QEMU, for runs there. The analysis uses the board's own values.
    pub(crate) struct Emulated = "[emulated]" {
        /// In place of [overheads].
        overheads: Overheads = {},
        /// In place of [sharing].
        sharing: Option<Sharing>,
    }

    /// How far weir was verified on a board: `weir platforms` prints it.
    pub struct Verified = "[verified]" {
        /// The emulator in which weir's tests run the board, with its version; without the key
        /// none.
        emulator: Option<String>,
        /// Whether weir was run on the board itself.
        silicon: bool = false,
        /// What was tested there.
        features: Vec<Feature> = [],
    }

    /// A short name for a device.
    pub struct NamedDevice = "[[device]]" {
        /// The name.
        name: String,
        /// Its path in the board's device tree.
        path: String,
    }

    /// A device that does no DMA and reaches nothing but its own registers.
    pub(crate) struct Allow = "[[allow]]" {
        /// Its compatible string.
        compatible: String,
    }

    /// A device that must not be passed through.
    pub(crate) struct Deny = "[[deny]]" {
        /// Its compatible string.
        compatible: String,
        /// Why not.
        reason: String,
    }

    /// The events that the PMUs of its cores can count.
    pub struct Pmu = "[pmu]" {
        /// The events that they count.
        events: Vec<CounterEvent>,
        /// Event counters of each core. Two are the hypervisor's; without the key no VM can have
        /// others.
        counters: u8 [1, 31] = 0,
        /// The private interrupt of an overflow, or a shared one for each core. If absent, budgets
        /// cannot use the PMU.
        intids: Vec<IntId> as OVERFLOWS = [],
        /// The shortest period of a budget: a shorter one would cost more than a twentieth of the
        /// core.
        min_period: Nanos > 0,
    }

    /// A page of counters that EL2 polls.
    pub struct CounterPageSource = "[counter_page]" {
        /// The events that it counts.
        events: Vec<CounterEvent>,
        /// Time between two polls, unless a VM has the key `poll`.
        poll: At<Nanos> > 0,
        /// The least time of an instruction.
        access: Nanos > 0,
        /// Upper bound on the time that a poll takes from the core; at the start of a period at
        /// most twice as much.
        poll_overhead: Nanos > 0,
        /// The shortest period of a budget: a shorter one would cost more than a twentieth of the
        /// core.
        min_period: Nanos > 0,
    }

    /// A PCI host bridge.
    pub(crate) struct Pci = "[pci]" {
        /// The configuration space of bus 0, 1 MiB.
        ecam: At<u64> as ADDRESS,
        /// Where base addresses below 4 GiB can be.
        window: At<u64> as ADDRESS,
        /// The size of that window.
        window_size: Bytes,
        /// The part of the window for each function, a power of two.
        aperture: At<Bytes>,
        /// The interrupts of the four lines.
        intx: Vec<IntId> as LINES,
        /// The unit that the SMMU distinguishes.
        streams: Streams,
    }

    /// An SMMUv3.
    pub(crate) struct Smmu = "[smmu]" {
        /// 3.
        version: u64 [3, 3],
        /// Its registers, 128 KiB.
        base: At<u64> as ADDRESS,
        /// The interrupt of its event queue, edge-triggered.
        event_intid: IntId [32, INTID_LIMIT as u64 - 1],
        /// The option of QEMU's machine that adds it.
        machine: Option<String>,
    }
}

choice! {
    /// What the SMMU distinguishes. A stream's number is the requester ID, with the bits that it
    /// does not distinguish zero.
    pub enum Streams {
        /// Every function.
        Function = "function",
        /// Devices, but not their functions.
        Device = "device",
        /// Nothing: all functions are one stream.
        Bus = "bus",
    }
}

choice! {
    /// A feature of weir that depends on the board.
    pub enum Feature {
        /// All cores start; interrupts, timers and the UART work.
        Boot = "boot",
        /// Cache colors and DRAM banks.
        PageClasses = "page-classes",
        /// Memory budgets by the PMU.
        PmuBudgets = "pmu-budgets",
        /// Memory budgets by the counter page.
        CounterPageBudgets = "counter-page-budgets",
        /// Messages between VMs.
        Flows = "flows",
        /// Messages between VMs that a DMA engine moves.
        DmaEngine = "dma-engine",
        /// Ethernet frames between VMs.
        Switch = "switch",
        /// Several VMs on a core.
        SharedCores = "shared-cores",
        /// Linux as a guest.
        Linux = "linux",
        /// Devices without DMA.
        PassThrough = "pass-through",
        /// PCI functions behind the SMMU.
        Pci = "pci",
        /// The attack guests on memory, interrupts and budgets are contained.
        Attacks = "attacks",
        /// Reading a system over a serial line.
        Serial = "serial",
    }
}

choice! {
    /// A kind of DMA engine.
    pub enum EngineKind {
        /// The ZDMA of the Zynq UltraScale+ (UG1085, chapter 19): GDMA and ADMA.
        Zdma = "zdma",
    }
}

choice! {
    /// What turns a board without PSCI off.
    pub(crate) enum PowerKind {
        /// The watchdog of the BCM2711.
        Bcm2711 = "bcm2711",
        /// gem5's pseudo-instruction that ends the simulation.
        Gem5 = "gem5",
        /// Nothing: its cores wait.
        Nothing = "nothing",
    }
}

choice! {
    /// A kind of UART.
    pub enum UartKind {
        /// Arm's PrimeCell PL011.
        Pl011 = "pl011",
        /// Cadence's, in the Zynq UltraScale+.
        Cadence = "cadence",
    }
}

choice! {
    /// The instruction that calls the firmware.
    pub(crate) enum Conduit {
        Smc = "smc",
        Hvc = "hvc",
    }
}
