//! The keys of a system file.

use super::{measured, memory_budget, page_classes, timing, workload};
use crate::shape::{Kind, Shape, optional, required};
use weir_abi::{INTID_LIMIT, MAX_CORES, MAX_PMU_COUNTERS};

const TEXTS: Kind = Kind::List(&Kind::Text);
const CORE: Kind = Kind::Number(0, MAX_CORES as u64 - 1);

/// The system file.
pub(crate) static SYSTEM: Shape = Shape {
    name: "the system",
    doc: "A weir system: virtual machines on one board.",
    keys: &[
        required(
            "platform",
            Kind::Text,
            "The board: a name that `weir platforms` lists, or the path of a platform file.",
        ),
        required("vm", Kind::List(&Kind::Table(&VM)), "The virtual machines."),
        optional("hypervisor", Kind::Table(&HYPERVISOR), "Options of the hypervisor."),
        optional(
            "broker",
            Kind::Table(&BROKER),
            "Options of the VM that moves the flows' packets.",
        ),
        page_classes::DRAM_MAP_KEY,
        page_classes::GROUP_KEY,
        timing::FLOW_KEY,
        timing::DMA_KEY,
        measured::OVERHEADS_KEY,
        measured::SATURATION_KEY,
        timing::CORE_KEY,
        timing::IRQ_KEY,
    ],
};

static HYPERVISOR: Shape = Shape {
    name: "[hypervisor]",
    doc: "Options of the hypervisor.",
    keys: &[
        optional(
            "console_core",
            CORE,
            "The core that serves the board's UART. Default: a core that runs no VM, or else the last core of the last VM.",
        ),
        optional(
            "heartbeat",
            Kind::Duration,
            "Time between two reports of the counters, in whole milliseconds, like \"1s\"; \"0s\" for none. Default: \"1s\".",
        ),
        page_classes::COLORS_KEY,
        page_classes::BANKS_KEY,
    ],
};

static BROKER: Shape = Shape {
    name: "[broker]",
    doc: "Options of the VM that moves the flows' packets.",
    keys: &[
        optional(
            "cpus",
            Kind::List(&CORE),
            "Its core, one; it shares it if that core's schedule names \"broker\". The default is the core with such a schedule, else the first that runs no VM.",
        ),
        page_classes::COLORS_KEY,
        page_classes::BANKS_KEY,
        optional(
            "overheads",
            Kind::Text,
            "A file with measured [overheads], as `weir report --overheads` writes it: flows get bounds. Relative to this file.",
        ),
    ],
};

static VM: Shape = Shape {
    name: "[[vm]]",
    doc: "A virtual machine.",
    keys: &[
        required("name", Kind::Text, "Its name: 1 to 31 characters of a-z, A-Z, 0-9, `-` and `_`."),
        required(
            "cpus",
            Kind::List(&CORE),
            "The core of each of its vCPUs; no core runs two, unless it has a schedule: [[core]].",
        ),
        required(
            "memory",
            Kind::OneOf(&[Kind::Size, Kind::List(&Kind::Table(&PIECE))]),
            "Its RAM: a size, like \"16MiB\", for one piece at 0x4000_0000, or a list of pieces with their addresses.",
        ),
        required("image", Kind::Variant(&IMAGES), "Its program."),
        optional(
            "devices",
            Kind::OneOf(&[Kind::Choice(&["rest"]), TEXTS]),
            "Devices of the board that it gets, by their path in the board's device tree or their name in the platform file, or PCI functions like \"pci:00:02.0\"; or \"rest\": all that may be passed through and that no other VM took.",
        ),
        optional(
            "on_fault",
            Kind::Choice(&["halt", "restart", "stop-system"]),
            "The reaction to a fault of the VM: stop it (default), restart it from its pristine image, or stop the system.",
        ),
        optional(
            "on_outside",
            Kind::Choice(&["fault", "abort"]),
            "The result of an access to an unmapped address: a fault, handled by `on_fault` (default), or an external abort that the VM takes, as on a machine.",
        ),
        optional(
            "ticks",
            Kind::Choice(&["keep", "lose"]),
            "Timer ticks that fall due while it is off a core that it shares are late (\"keep\", default), or one comes for all (\"lose\", for a guest that takes its next deadline from the timer).",
        ),
        optional(
            "focus",
            Kind::Boolean,
            "Whether it may hand the console and the devices of class \"active\" to a VM, by a hypercall.",
        ),
        optional(
            "expect",
            TEXTS,
            "Texts that its console must show, each within a line, for a run to succeed.",
        ),
        optional(
            "board",
            Kind::Table(&BOARD),
            "Addresses of its virtual board, where they are not those of QEMU's virt machine.",
        ),
        optional(
            "vsock",
            Kind::Choice(&["mmio", "pci"]),
            "The transport of its virtio socket device, if it is in a flow: registers at a fixed address (\"mmio\", default), or a PCI function (\"pci\").",
        ),
        optional(
            "net",
            Kind::Table(&NET),
            "Its network device: a port of the switch that all VMs with `net` are at.",
        ),
        optional(
            "pmu",
            Kind::Number(1, MAX_PMU_COUNTERS as u64),
            "Event counters of the PMU that it may use on each of its cores, and the cycle counter with them. Default: it sees no PMU.",
        ),
        page_classes::COLORS_KEY,
        page_classes::BANKS_KEY,
        page_classes::TLB_COLORS_KEY,
        timing::CRITICALITY_KEY,
        timing::WORKING_SET_KEY,
        memory_budget::MEMORY_BUDGET_KEY,
        timing::TASK_KEY,
        workload::WORKLOAD_KEY,
    ],
};

static NET: Shape = Shape {
    name: "{ mac = ... }",
    doc: "A network device.",
    keys: &[
        required("mac", Kind::Text, "Its MAC address, like \"52:54:00:00:00:01\"."),
        optional(
            "rate",
            Kind::Number(1, 1_000_000_000),
            "Frames a second that the VM may send; frames above it are dropped. Default: no limit.",
        ),
        optional(
            "burst",
            Kind::Number(1, 1 << 20),
            "Frames that may be sent at once; default: 32.",
        ),
        optional(
            "bandwidth",
            Kind::Rate,
            "Bytes a second that the VM may send, `burst` frames of 1514 at once; frames above it are dropped. Default: no limit.",
        ),
        optional(
            "uplink",
            Kind::Boolean,
            "Whether frames that are for no VM's address go to this VM: it drives the device that all share.",
        ),
    ],
};

static PIECE: Shape = Shape {
    name: "{ base = ..., size = ... }",
    doc: "A piece of RAM.",
    keys: &[
        required("base", Kind::Address, "Where the VM sees it: an intermediate physical address."),
        required("size", Kind::Size, "Its size, whole pages of 4 KiB."),
    ],
};

static IMAGES: [Shape; 3] = [
    Shape {
        name: "{ elf = ... }",
        doc: "An ELF program, loaded at its physical addresses.",
        keys: &[
            required(
                "elf",
                Kind::Text,
                "The name of one of weir's own guests, or a file, relative to this one.",
            ),
            optional("args", Kind::Text, "Arguments: /chosen/bootargs of its device tree."),
        ],
    },
    Shape {
        name: "{ bin = ... }",
        doc: "A flat binary.",
        keys: &[
            required(
                "bin",
                Kind::Text,
                "The file, relative to this one; or u-boot, Debian's for QEMU.",
            ),
            optional(
                "load",
                Kind::Address,
                "Its load address; default: 2 MiB above the start of RAM.",
            ),
            optional("entry", Kind::Address, "Its entry point; default: its first byte."),
            optional("args", Kind::Text, "Arguments: /chosen/bootargs of its device tree."),
        ],
    },
    Shape {
        name: "{ linux = ... }",
        doc: "A Linux kernel.",
        keys: &[
            required(
                "linux",
                Kind::Text,
                "The kernel's arm64 Image, relative to this file; or debian-rt, Debian's PREEMPT_RT kernel.",
            ),
            optional(
                "initrd",
                Kind::Text,
                "The initial RAM disk, relative to this file; or busybox, a shell and its tools; or debian-rt, with cyclictest in addition; or debian-virtio, with the modules for virtio disks on PCI; or debian-vsock, with those for virtio sockets and a program that uses them; or debian-net, with those for the network device and cyclictest; or debian-socat, with socat besides.",
            ),
            optional("cmdline", Kind::Text, "The kernel's command line."),
        ],
    },
];

static BOARD: Shape = Shape {
    name: "board",
    doc: "Addresses of the virtual board, each an intermediate physical address.",
    keys: &[
        optional(
            "ram",
            Kind::Address,
            "Start of RAM, if `memory` is one size; default: 0x4000_0000.",
        ),
        optional(
            "distributor",
            Kind::Address,
            "The GIC's distributor, 64 KiB; default: 0x0800_0000.",
        ),
        optional(
            "redistributors",
            Kind::Address,
            "GICv3: the redistributors, 128 KiB for each vCPU; default: 0x080a_0000.",
        ),
        optional(
            "cpu_interface",
            Kind::Address,
            "GICv2: the CPU interface, 8 KiB; default: 0x0801_0000.",
        ),
        optional("uart", Kind::Address, "The PL011, one page; default: 0x0900_0000."),
        optional(
            "uart_intid",
            Kind::Number(32, INTID_LIMIT as u64 - 1),
            "The PL011's interrupt, a shared one; default: 33 (SPI 1).",
        ),
        optional(
            "ecam",
            Kind::Address,
            "The PCI configuration space, 256 MiB, of a VM that has functions or its socket device on PCI; default: 0x40_1000_0000.",
        ),
        optional(
            "device_tree",
            Kind::Address,
            "Address of the device tree, in RAM, 8-byte aligned; default: the start of RAM.",
        ),
    ],
};

/// Tables whose required keys a file may leave out if it is analyzed only.
pub(crate) const ABSENT: &[&str] = &["the system", VM.name];
