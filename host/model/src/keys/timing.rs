//! The keys of flows, shared cores, interrupts and tasks.

use crate::shape::{Key, Kind, Shape, optional, required};

const ANY: Kind = Kind::Number(0, u64::MAX);

const FLOW_TABLE: Kind = Kind::Table(&FLOW);
const CORE_TABLE: Kind = Kind::Table(&CORE);
const IRQ_TABLE: Kind = Kind::Table(&IRQ);
const TASK_TABLE: Kind = Kind::Table(&TASK);

/// Key `flow` of a system file.
pub(crate) const FLOW_KEY: Key = optional(
    "flow",
    Kind::List(&FLOW_TABLE),
    "Messages from one VM to others through virtio sockets; the broker moves them by their deadlines.",
);
/// Key `dma` of a system file.
pub(crate) const DMA_KEY: Key =
    optional("dma", Kind::Table(&DMA), "How the bytes of all flows are moved.");
/// Key `core` of a system file.
pub(crate) const CORE_KEY: Key =
    optional("core", Kind::List(&CORE_TABLE), "Cores that several VMs share.");
/// Key `irq` of a system file.
pub(crate) const IRQ_KEY: Key =
    optional("irq", Kind::List(&IRQ_TABLE), "Interrupts that take time on a shared core.");

/// Key `criticality` of a VM.
pub(crate) const CRITICALITY_KEY: Key = optional(
    "criticality",
    Kind::Number(0, 255),
    "Its criticality. 0 (default) is best effort: it gets what the other VMs leave.",
);
/// Key `working_set` of a VM.
pub(crate) const WORKING_SET_KEY: Key = optional(
    "working_set",
    Kind::Size,
    "The amount of memory that should stay in its part of the cache.",
);
/// Key `task` of a VM.
pub(crate) const TASK_KEY: Key = optional(
    "task",
    Kind::List(&TASK_TABLE),
    "Its tasks by falling priority, for the analysis of their response times.",
);

static FLOW: Shape = Shape {
    name: "[[flow]]",
    doc: "Packets from one VM to one or several others.",
    keys: &[
        required("name", Kind::Text, "Its name."),
        required("from", Kind::Text, "The VM that sends."),
        required(
            "to",
            Kind::OneOf(&[Kind::Text, Kind::List(&Kind::Text)]),
            "The VM that receives, or a list of them.",
        ),
        optional(
            "port",
            Kind::Number(0, u32::MAX as u64),
            "The vsock port of the receiver; default: 5000.",
        ),
        required("size", Kind::Size, "The most bytes of a packet's payload."),
        optional("period", Kind::Duration, "The least time between two packets."),
        optional(
            "jitter",
            Kind::Duration,
            "In a simulation: the maximum release jitter of a packet; default: 0.",
        ),
        optional(
            "deadline",
            Kind::Duration,
            "The time in which each packet must arrive; default: the period.",
        ),
        optional(
            "bandwidth",
            Kind::Rate,
            "The rate to which the broker limits it: at least `size` per `period`. Default: only the period limits it.",
        ),
        optional(
            "best_effort",
            Kind::Boolean,
            "Whether it has no deadline and is served only if no other flow is pending.",
        ),
    ],
};

static DMA: Shape = Shape {
    name: "[dma]",
    doc: "How the bytes of all flows are moved.",
    keys: &[
        optional(
            "bandwidth",
            Kind::Rate,
            "The bandwidth of the DMA engine, or of the copying core.",
        ),
        optional(
            "chunk",
            Kind::Size,
            "Bytes moved between two scheduling decisions; default: \"4KiB\".",
        ),
        optional(
            "queues",
            Kind::Number(1, 1 << 16),
            "Queues that the broker searches; default: the number of VMs that send.",
        ),
        optional(
            "path",
            Kind::Choice(&["dma", "broker", "sender", "receiver"]),
            "The mover of the bytes: a DMA engine behind a broker, as in rt-virtio (\"dma\"), or a core that copies: the broker's, the sender's or the receiver's. The default follows from the platform: \"dma\" if the platform has the key `dma_engine`, else \"broker\"; without a platform \"dma\".",
        ),
        optional(
            "copy_bandwidth",
            Kind::Rate,
            "The bandwidth at which a core copies; default: the one in [overheads].",
        ),
        optional(
            "engine",
            Kind::Text,
            "In a simulation: the [dma.NAME] of the memory file; default: the first.",
        ),
    ],
};

static CORE: Shape = Shape {
    name: "[[core]]",
    doc: "A core that several VMs share.",
    keys: &[
        required("id", Kind::Number(0, weir_abi::MAX_CORES as u64 - 1), "The core."),
        required("schedule", Kind::Table(&SCHEDULE), "Its schedule."),
    ],
};

static SCHEDULE: Shape = Shape {
    name: "schedule",
    doc: "The schedule of a core. The kind determines its keys.",
    keys: &[
        required(
            "kind",
            Kind::Choice(&["round-robin", "table", "fixed-priority"]),
            "Round robin, a time table, or servers of fixed priority.",
        ),
        optional("quantum", Kind::Duration, "round-robin: the time slice of each VM."),
        optional(
            "switch",
            Kind::Duration,
            "An upper bound on the time of a switch from one VM to another; default: the platform's.",
        ),
        optional(
            "vms",
            Kind::List(&Kind::Text),
            "round-robin: the VMs; default: those with this core in `cpus`.",
        ),
        optional("major_frame", Kind::Duration, "table: the time after which it repeats."),
        optional("slots", Kind::List(&Kind::Table(&SLOT)), "table: the slots, in order."),
        optional(
            "servers",
            Kind::List(&Kind::Table(&SERVER)),
            "fixed-priority: the servers by falling priority.",
        ),
    ],
};

static SLOT: Shape = Shape {
    name: "{ vm = ..., start = ..., length = ... }",
    doc: "A slot of a time table.",
    keys: &[
        required("vm", Kind::Text, "The VM, or \"broker\"."),
        required("start", Kind::Duration, "Its start in the major frame."),
        required("length", Kind::Duration, "Its length."),
    ],
};

static SERVER: Shape = Shape {
    name: "{ vm = ..., budget = ..., period = ... }",
    doc: "A budget of time.",
    keys: &[
        required("vm", Kind::Text, "The VM, or \"broker\"."),
        required("budget", Kind::Duration, "Its time in each period."),
        required("period", Kind::Duration, "The period."),
    ],
};

static IRQ: Shape = Shape {
    name: "[[irq]]",
    doc: "An interrupt line that takes time on a shared core.",
    keys: &[
        required(
            "line",
            Kind::OneOf(&[Kind::Text, Kind::Number(0, 1019)]),
            "The line: a number or a name.",
        ),
        required("vm", Kind::Text, "The VM that it belongs to."),
        optional(
            "class",
            Kind::Choice(&["dedicated", "active", "running", "dynamic"]),
            "Its device's class (mobivmm).",
        ),
        optional(
            "preempt",
            Kind::Boolean,
            "Whether it starts its VM at once, for the rest of the VM's time slice.",
        ),
        optional(
            "priority",
            Kind::Number(0, 255),
            "With `preempt`: an interrupt of this or a smaller number may preempt a time slice that another interrupt started; default: 128.",
        ),
        optional(
            "rate",
            Kind::Number(1, 1_000_000_000),
            "The most interrupts per second that are admitted; default: no limit.",
        ),
        optional(
            "burst",
            Kind::Number(1, 1 << 32),
            "The most interrupts that are admitted at once; default: 1.",
        ),
        optional(
            "over",
            Kind::Choice(&["defer"]),
            "Treatment of interrupts beyond the rate: they wait.",
        ),
        optional(
            "wcet",
            Kind::Duration,
            "An upper bound on the time that one interrupt takes from the running VM; default: the platform's, for a shared core. With `preempt` the VM's whole time slice is added.",
        ),
        optional(
            "deadline",
            Kind::Duration,
            "The most time from the interrupt's arrival until its VM has the core. A run in which it takes longer fails; the analysis does not use it.",
        ),
    ],
};

static TASK: Shape = Shape {
    name: "[[vm.task]]",
    doc: "A task of a VM.",
    keys: &[
        required("name", Kind::Text, "Its name."),
        required(
            "wcet",
            Kind::Duration,
            "Its worst-case execution time without memory interference.",
        ),
        required("period", Kind::Duration, "The least time between two activations."),
        optional(
            "deadline",
            Kind::Duration,
            "The time in which it must finish; default: the period.",
        ),
        optional("jitter", Kind::Duration, "The release jitter: how late an activation may be."),
        optional(
            "blocking",
            Kind::Duration,
            "An upper bound on the blocking by a task of lower priority.",
        ),
        optional(
            "core",
            Kind::Number(0, weir_abi::MAX_CORES as u64 - 1),
            "Its core; default: the VM's first.",
        ),
        optional("accesses", ANY, "Its own memory accesses per activation; default: unknown."),
    ],
};
