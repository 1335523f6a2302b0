//! The keys of a board file.

use super::{measured, page_classes};
use crate::counters::EVENT_NAMES;
use crate::shape::{Key, Kind, Shape, optional, required};
use weir_abi::{INTID_LIMIT, MAX_CORES};

pub(crate) static PLATFORM: Shape = Shape {
    name: "the platform",
    doc: "A board that weir runs on.",
    keys: &[
        required("name", Kind::Text, "Its name."),
        required("description", Kind::Text, "One line about it."),
        required(
            "load_address",
            Kind::Address,
            "Where the image lies when its first instruction runs.",
        ),
        optional(
            "device_tree",
            Kind::Text,
            "Its flattened device tree, a path relative to this file. If absent, no device can be passed through.",
        ),
        required("memory", Kind::Table(&MEMORY), "Its RAM."),
        required("core", Kind::List(&Kind::Table(&CORE)), "Its cores."),
        required("gic", Kind::Table(&GIC), "Its interrupt controller."),
        required("uart", Kind::Table(&UART), "Its console."),
        required("psci", Kind::Table(&PSCI), "Its firmware."),
        optional("qemu", Kind::Table(&QEMU), "How to start it in QEMU."),
        optional("device", Kind::List(&Kind::Table(&DEVICE)), "Short names for devices."),
        optional("allow", Kind::List(&Kind::Table(&ALLOW)), "Devices that may be passed through."),
        optional("deny", Kind::List(&Kind::Table(&DENY)), "Why others may not."),
        page_classes::CACHE_KEY,
        page_classes::DRAM_KEY,
        page_classes::TLB_KEY,
        page_classes::GROUP_KEY,
        page_classes::PLANNED_KEY,
        measured::OVERHEADS_KEY,
        optional(
            "dma_engine",
            Kind::Text,
            "The DMA engine that can move messages between VMs; without the key the analysis takes the broker's core to copy them.",
        ),
        measured::SATURATION_KEY,
        measured::SHARING_KEY,
        measured::INTERFERENCE_KEY,
        PMU_KEY,
        COUNTER_PAGE_KEY,
        PCI_KEY,
        SMMU_KEY,
    ],
};

static MEMORY: Shape = Shape {
    name: "[memory]",
    doc: "RAM.",
    keys: &[
        required("base", Kind::Address, "Its first byte."),
        required("size", Kind::Size, "Its size."),
        page_classes::MORE_KEY,
    ],
};

static CORE: Shape = Shape {
    name: "[[core]]",
    doc: "A core.",
    keys: &[required("mpidr", Kind::Address, "Affinity fields of MPIDR_EL1.")],
};

static GIC: Shape = Shape {
    name: "[gic]",
    doc: "The interrupt controller.",
    keys: &[
        required("version", Kind::Number(2, 3), "2 or 3."),
        required("distributor", Kind::Address, "GICD."),
        optional("redistributors", Kind::Address, "GICR, version 3."),
        optional("cpu_interface", Kind::Address, "GICC, version 2."),
        optional("hyp", Kind::Address, "GICH, version 2."),
        optional("virtual_cpu", Kind::Address, "GICV, version 2."),
    ],
};

static UART: Shape = Shape {
    name: "[uart]",
    doc: "A PL011.",
    keys: &[
        required("base", Kind::Address, "Its registers."),
        required("intid", Kind::Number(32, 1019), "Its interrupt."),
        optional(
            "clock",
            Kind::Number(1_843_200, 1_000_000_000),
            "Its reference clock in Hz, from which it derives 115200 Bd; 24 MHz without the key.",
        ),
    ],
};

static PSCI: Shape = Shape {
    name: "[psci]",
    doc: "The firmware.",
    keys: &[required("conduit", Kind::Choice(&["smc", "hvc"]), "The instruction that calls it.")],
};

static QEMU: Shape = Shape {
    name: "[qemu]",
    doc: "How to start the board in QEMU.",
    keys: &[
        required("machine", Kind::Text, "Argument of -machine."),
        required("cpu", Kind::Text, "Argument of -cpu."),
        required(
            "cores",
            Kind::Number(1, MAX_CORES as u64),
            "Cores of the machine unless a system needs more.",
        ),
    ],
};

static DEVICE: Shape = Shape {
    name: "[[device]]",
    doc: "A short name for a device.",
    keys: &[
        required("name", Kind::Text, "The name."),
        required("path", Kind::Text, "Its path in the board's device tree."),
    ],
};

static ALLOW: Shape = Shape {
    name: "[[allow]]",
    doc: "A device that does no DMA and reaches nothing but its own registers.",
    keys: &[required("compatible", Kind::Text, "Its compatible string.")],
};

static DENY: Shape = Shape {
    name: "[[deny]]",
    doc: "A device that must not be passed through.",
    keys: &[
        required("compatible", Kind::Text, "Its compatible string."),
        required("reason", Kind::Text, "Why not."),
    ],
};

const INTID: Kind = Kind::Number(16, 255);
const EVENT: Kind = Kind::Choice(EVENT_NAMES);

/// Key `pmu` of a platform file.
pub(crate) const PMU_KEY: Key =
    optional("pmu", Kind::Table(&PMU), "The events that the PMUs of its cores can count.");
/// Key `counter_page` of a platform file.
pub(crate) const COUNTER_PAGE_KEY: Key = optional(
    "counter_page",
    Kind::Table(&COUNTER_PAGE),
    "The events that a counter page counts for each core.",
);

const MIN_PERIOD: Key = required(
    "min_period",
    Kind::Duration,
    "The shortest period of a budget: a shorter one would cost more than a twentieth of the core.",
);

static PMU: Shape = Shape {
    name: "[pmu]",
    doc: "The events that the PMUs of its cores can count.",
    keys: &[
        required("events", Kind::List(&EVENT), "The events that they count."),
        optional(
            "counters",
            Kind::Number(1, 31),
            "Event counters of each core. Two are the hypervisor's; without the key no VM can have others.",
        ),
        optional(
            "intids",
            Kind::List(&INTID),
            "The private interrupt of an overflow, or a shared one for each core. If absent, budgets cannot use the PMU.",
        ),
        MIN_PERIOD,
    ],
};

static COUNTER_PAGE: Shape = Shape {
    name: "[counter_page]",
    doc: "A page of counters that EL2 polls.",
    keys: &[
        required("events", Kind::List(&EVENT), "The events that it counts."),
        required("poll", Kind::Duration, "Time between two polls, unless a VM has the key `poll`."),
        required("access", Kind::Duration, "The least time of an instruction."),
        required(
            "poll_overhead",
            Kind::Duration,
            "Upper bound on the time that a poll takes from the core; at the start of a period at most twice as much.",
        ),
        MIN_PERIOD,
    ],
};

pub(crate) const PCI_KEY: Key = optional(
    "pci",
    Kind::Table(&PCI),
    "Its PCI host bridge. If absent, no function can be passed through.",
);
pub(crate) const SMMU_KEY: Key =
    optional("smmu", Kind::Table(&SMMU), "The SMMU that PCI functions are behind.");

static PCI: Shape = Shape {
    name: "[pci]",
    doc: "A PCI host bridge.",
    keys: &[
        required("ecam", Kind::Address, "The configuration space of bus 0, 1 MiB."),
        required("window", Kind::Address, "Where base addresses below 4 GiB can be."),
        required("window_size", Kind::Size, "The size of that window."),
        required(
            "aperture",
            Kind::Size,
            "The part of the window for each function, a power of two.",
        ),
        required(
            "intx",
            Kind::List(&Kind::Number(32, INTID_LIMIT as u64 - 1)),
            "The interrupts of the four lines.",
        ),
        required(
            "streams",
            Kind::Choice(&["function", "device", "bus"]),
            "The unit that the SMMU distinguishes.",
        ),
    ],
};

static SMMU: Shape = Shape {
    name: "[smmu]",
    doc: "An SMMUv3.",
    keys: &[
        required("version", Kind::Number(3, 3), "3."),
        required("base", Kind::Address, "Its registers, 128 KiB."),
        required(
            "event_intid",
            Kind::Number(32, INTID_LIMIT as u64 - 1),
            "The interrupt of its event queue, edge-triggered.",
        ),
        optional("machine", Kind::Text, "The option of QEMU's machine that adds it."),
    ],
};
