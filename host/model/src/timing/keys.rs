//! The keys of a system file and of a platform file that the analysis of time and bandwidth reads.

use crate::shape::{Key, Kind, Shape};

/// The constants of rt-virtio, Table II, and four of weir's own data path, by their names in a
/// file.
pub(crate) const OVERHEADS: [&str; 16] = [
    "hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "br", "wake", "copy", "hold",
    "tail",
];

/// The steps that take longer the more flows or VMs there are.
pub(crate) const GROWING: [&str; 8] = ["pp", "ql", "qi", "qa", "qr", "ps", "ft", "hold"];

const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, doc, required: false, kind }
}

const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, doc, required: true, kind }
}

const ANY: Kind = Kind::Number(0, u64::MAX);
/// Integers here are nanoseconds.
const NANOS: Kind = Kind::OneOf(&[Kind::Number(0, u64::MAX), Kind::Duration]);

const FLOW_TABLE: Kind = Kind::Table(&FLOW);
const CORE_TABLE: Kind = Kind::Table(&CORE);
const IRQ_TABLE: Kind = Kind::Table(&IRQ);
const TASK_TABLE: Kind = Kind::Table(&TASK);

/// Key `flow` of a system file.
pub(crate) const FLOW_KEY: Key = key(
    "flow",
    Kind::List(&FLOW_TABLE),
    "Messages from one VM to others through virtio sockets; the broker moves them by their deadlines.",
);
/// Key `dma` of a system file.
pub(crate) const DMA_KEY: Key =
    key("dma", Kind::Table(&DMA), "How the bytes of all flows are moved.");
/// Key `overheads` of a system or platform file.
pub(crate) const OVERHEADS_KEY: Key = key(
    "overheads",
    Kind::Table(&OVERHEAD_TABLE),
    "What each step of a transfer costs; what is not here is taken from the platform.",
);
/// Key `saturation` of a system or platform file.
pub(crate) const SATURATION_KEY: Key = key(
    "saturation",
    Kind::Table(&SATURATION),
    "Memory traffic below saturation; without it the platform's.",
);
/// Key `sharing` of a platform file.
pub(crate) const SHARING_KEY: Key =
    key("sharing", Kind::Table(&SHARING), "The overheads of EL2 on a core that VMs share.");
/// Key `interference` of a platform file.
pub(crate) const INTERFERENCE_KEY: Key = key(
    "interference",
    Kind::Table(&INTERFERENCE),
    "Interference of memory accesses of other VMs with a core; `delay` of [saturation] takes precedence.",
);
/// Key `core` of a system file.
pub(crate) const CORE_KEY: Key =
    key("core", Kind::List(&CORE_TABLE), "Cores that several VMs share.");
/// Key `irq` of a system file.
pub(crate) const IRQ_KEY: Key =
    key("irq", Kind::List(&IRQ_TABLE), "Interrupts that take time on a shared core.");

/// Key `criticality` of a VM.
pub(crate) const CRITICALITY_KEY: Key = key(
    "criticality",
    Kind::Number(0, 255),
    "How critical it is; 0, as without the key, is best effort: it gets what the other VMs leave.",
);
/// Key `working_set` of a VM.
pub(crate) const WORKING_SET_KEY: Key =
    key("working_set", Kind::Size, "What should stay in its part of the cache.");
/// Key `task` of a VM.
pub(crate) const TASK_KEY: Key = key(
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
        key(
            "port",
            Kind::Number(0, u32::MAX as u64),
            "The vsock port of the receiver; 5000 without it.",
        ),
        required("size", Kind::Size, "The most bytes of a packet's payload."),
        key("period", Kind::Duration, "The least time between two packets."),
        key(
            "jitter",
            Kind::Duration,
            "In a simulation: how late a packet is released at most; without it, never.",
        ),
        key(
            "deadline",
            Kind::Duration,
            "The time in which each packet must arrive; without it the period.",
        ),
        key(
            "bandwidth",
            Kind::Rate,
            "The rate to which the broker limits it: at least `size` per `period`. Without it only the period limits it.",
        ),
        key(
            "best_effort",
            Kind::Boolean,
            "Whether it has no deadline and is served when nothing else is.",
        ),
    ],
};

static DMA: Shape = Shape {
    name: "[dma]",
    doc: "How the bytes of all flows are moved.",
    keys: &[
        key("bandwidth", Kind::Rate, "What the DMA engine, or the copying core, moves."),
        key(
            "chunk",
            Kind::Size,
            "Bytes moved between two scheduling decisions; without it \"4KiB\".",
        ),
        key(
            "queues",
            Kind::Number(1, 1 << 16),
            "Queues that the broker searches; without it as many as VMs that send.",
        ),
        key(
            "path",
            Kind::Choice(&["dma", "broker", "sender", "receiver"]),
            "What moves the bytes: a DMA engine behind a broker, as in rt-virtio (\"dma\"), or a core that copies: the broker's, the sender's or the receiver's. Without the key it follows from the platform: \"dma\" if the platform has the key `dma_engine`, else \"broker\"; without a platform \"dma\".",
        ),
        key(
            "copy_bandwidth",
            Kind::Rate,
            "The bandwidth at which a core copies; without it the one in [overheads].",
        ),
        key(
            "engine",
            Kind::Text,
            "In a simulation: which [dma.NAME] of the memory file it is; without it the first.",
        ),
    ],
};

const fn overhead(name: &'static str, doc: &'static str) -> Key {
    key(name, Kind::Table(&RANGE), doc)
}

static OVERHEAD_TABLE: Shape = Shape {
    name: "[overheads]",
    doc: "What each step of a transfer costs (rt-virtio, Table II), each as { min, max } in ns.",
    keys: &[
        overhead("hc", "Hypervisor entry and exit."),
        overhead("pt", "Transport layer (PCI or MMIO)."),
        overhead("pp", "Parsing of one packet header."),
        overhead("ql", "Queue locking."),
        overhead("qi", "Queue insertion."),
        overhead("qa", "Finding the place for the insertion, for each packet in the queue."),
        overhead("qr", "Removal from a queue."),
        overhead("ps", "Finding the earliest deadline, for each queue."),
        overhead("pd", "Processing a packet and programming the DMA engine."),
        overhead("ft", "Finishing a transfer."),
        overhead("ip", "The DMA interrupt in the broker."),
        overhead("br", "Interrupt processing at the receiver."),
        overhead("wake", "From the SGI to the scheduler of a core that slept; weir's own path."),
        overhead("copy", "Setting up the copy of a chunk by a core; weir's own path."),
        overhead(
            "hold",
            "The time for which a device's lock is held and another core may wait; weir's own path.",
        ),
        overhead(
            "tail",
            "The part of `ft` after the receiver's interrupt, which delays no packet that has arrived; weir's own path.",
        ),
        key(
            "senders",
            Kind::List(&Kind::Table(&SENDER)),
            "The longest `wake` after the notifications of some senders, on an emulator that runs one core at a time. Only the bound for comparison with such a run uses it.",
        ),
        key(
            "copy_bandwidth",
            Kind::Rate,
            "The bandwidth at which a core copies, measured together with `copy`.",
        ),
        key("flows", Kind::Number(1, 1 << 16), "The flows of the system that was measured."),
        key("vms", Kind::Number(1, 1 << 16), "The VMs of the system that was measured."),
        key(
            "larger",
            Kind::Table(&LARGER),
            "The greatest values in a larger system, for steps that search flows or VMs.",
        ),
        key(
            "origin",
            Kind::Table(&ORIGIN),
            "Where these values come from. `weir analyze` and `weir run` print it.",
        ),
    ],
};

/// A step's greatest value in the larger system.
macro_rules! larger {
    ($name:literal) => {
        key($name, NANOS, concat!("As `", $name, "`."))
    };
}

static LARGER: Shape = Shape {
    name: "larger",
    doc: "The greatest values in a system of more flows and VMs.",
    keys: &[
        required("flows", Kind::Number(1, 1 << 16), "Its flows."),
        required("vms", Kind::Number(1, 1 << 16), "Its VMs."),
        larger!("pp"),
        larger!("ql"),
        larger!("qi"),
        larger!("qa"),
        larger!("qr"),
        larger!("ps"),
        larger!("ft"),
        larger!("hold"),
    ],
};

static ORIGIN: Shape = Shape {
    name: "origin",
    doc: "Where measured values come from.",
    keys: &[
        required("command", Kind::Text, "The command that measured them, or a publication."),
        key(
            "build",
            Kind::Text,
            "The build of the hypervisor that was measured, as `weir report --overheads` prints it; another build causes a warning.",
        ),
        key("date", Kind::Text, "The date of the measurement."),
    ],
};

static SENDER: Shape = Shape {
    name: "{ vm = ..., wake = ... }",
    doc: "A sender's own overhead.",
    keys: &[
        required("vm", Kind::Text, "The VM's name."),
        required("wake", NANOS, "Greatest: an integer in ns, or a duration."),
    ],
};

static RANGE: Shape = Shape {
    name: "{ min = ..., max = ... }",
    doc: "The least and the greatest value that was measured.",
    keys: &[
        required("min", NANOS, "Least: an integer in ns, or a duration."),
        required("max", NANOS, "Greatest: an integer in ns, or a duration."),
    ],
};

/// What [saturation] and [interference] both say of a memory.
const DELAY: Key =
    key("delay", Kind::Duration, "How much one access of another VM can delay a core.");
const PER_ACCESS: Key = key(
    "per_access",
    ANY,
    "The most accesses of each other VM that can delay one access; without it the number is not known.",
);
const OVERSHOOT: Key =
    key("overshoot", ANY, "Accesses that still pass between a budget's end and the stop.");

static SATURATION: Shape = Shape {
    name: "[saturation]",
    doc: "Memory traffic below saturation (rt-virtio, Table I).",
    keys: &[
        required("period", Kind::Duration, "The period of the budgets in `points`."),
        required("line", Kind::Size, "The bytes of a counted access: a cache line."),
        required(
            "points",
            Kind::List(&Kind::Table(&POINT)),
            "Measured pairs of total budget and DMA bandwidth.",
        ),
        key(
            "min_accesses",
            ANY,
            "The least budget per `period` that is kept without `debt`, which makes up for what goes beyond.",
        ),
        key("min_period", Kind::Duration, "The shortest period whose budgets are kept."),
        OVERSHOOT,
        DELAY,
        PER_ACCESS,
        key(
            "qos_block",
            Kind::Size,
            "Bytes that the QoS regulator of the DMA engine lets through at a time.",
        ),
        key("qos_clock", Kind::Number(1, u64::MAX), "The clock of that regulator, in Hz."),
        key("source", Kind::Text, "Where the values come from; see `source` of [interference]."),
        key(
            "chunks",
            Kind::List(&Kind::Table(&REACH)),
            "Chunk sizes with the bandwidth that the DMA engine reaches.",
        ),
    ],
};

static POINT: Shape = Shape {
    name: "{ accesses = ..., dma = ... }",
    doc: "A measured pair.",
    keys: &[
        required("accesses", ANY, "Sum of all VMs' accesses per period."),
        required("dma", Kind::Rate, "DMA bandwidth at the same time."),
    ],
};

static REACH: Shape = Shape {
    name: "{ size = ..., dma = ... }",
    doc: "A chunk size.",
    keys: &[
        required("size", Kind::Size, "The chunk."),
        required("dma", Kind::Rate, "The bandwidth that the engine reaches with it."),
    ],
};

static INTERFERENCE: Shape = Shape {
    name: "[interference]",
    doc: "Interference of memory accesses of other VMs with a core.",
    keys: &[
        required(DELAY.name, DELAY.kind, DELAY.doc),
        PER_ACCESS,
        OVERSHOOT,
        required(
            "source",
            Kind::Text,
            "Where the values come from: \"manual: ...\", \"paper: ...\", \"measured: COMMAND\", \"fitted: ...\", \"derived: ...\", \"model: ...\" or \"assumed: ...\".",
        ),
    ],
};

static SHARING: Shape = Shape {
    name: "[sharing]",
    doc: "The overheads of EL2 on a core that VMs share: `vcpu_switch` of `weir bench hypervisor`, in time.",
    keys: &[
        required("switch", Kind::Table(&RANGE), "A switch, from the one guest to the other."),
        required(
            "interrupt",
            Kind::Duration,
            "The longest that one event takes at EL2: an interrupt for a VM that is off the core, or another request to it.",
        ),
        required(
            "entry",
            Kind::Duration,
            "The part of it that delays the interrupted VM; the rest is charged to the VM of the interrupt.",
        ),
    ],
};

static CORE: Shape = Shape {
    name: "[[core]]",
    doc: "A core that several VMs share.",
    keys: &[
        required("id", Kind::Number(0, crate::packed::MAX_CORES as u64 - 1), "The core."),
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
        key("quantum", Kind::Duration, "round-robin: the time slice of each VM."),
        key(
            "switch",
            Kind::Duration,
            "The longest time of a switch from one VM to another; without it the platform's.",
        ),
        key(
            "vms",
            Kind::List(&Kind::Text),
            "round-robin: the VMs; without it those with this core in `cpus`.",
        ),
        key("major_frame", Kind::Duration, "table: the time after which it repeats."),
        key("slots", Kind::List(&Kind::Table(&SLOT)), "table: the slots, in order."),
        key(
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
        key(
            "class",
            Kind::Choice(&["dedicated", "active", "running", "dynamic"]),
            "Its device's class (mobivmm).",
        ),
        key(
            "preempt",
            Kind::Boolean,
            "Whether it starts its VM at once, for the rest of the VM's time slice.",
        ),
        key(
            "priority",
            Kind::Number(0, 255),
            "With `preempt`: an interrupt of this or a smaller number may preempt a time slice that another interrupt started; 128 without it.",
        ),
        key(
            "rate",
            Kind::Number(1, 1_000_000_000),
            "The most interrupts per second that are admitted; without it all.",
        ),
        key(
            "burst",
            Kind::Number(1, 1 << 32),
            "The most interrupts that are admitted at once; 1 without it.",
        ),
        key(
            "over",
            Kind::Choice(&["defer"]),
            "Treatment of interrupts beyond the rate: they wait.",
        ),
        key(
            "wcet",
            Kind::Duration,
            "The longest time that one interrupt takes from the running VM; without it the platform's, for a shared core. With `preempt` the VM's whole time slice is added.",
        ),
        key(
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
        key("deadline", Kind::Duration, "The time in which it must finish; without it the period."),
        key("jitter", Kind::Duration, "The release jitter: how late an activation may be."),
        key("blocking", Kind::Duration, "The longest blocking by a task of lower priority."),
        key(
            "core",
            Kind::Number(0, crate::packed::MAX_CORES as u64 - 1),
            "Its core; without it the VM's first.",
        ),
        key("accesses", ANY, "Its own memory accesses per activation; unknown without it."),
    ],
};
