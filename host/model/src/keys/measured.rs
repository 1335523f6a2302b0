//! The keys of measured values, in a system file or a board file: overheads, saturation,
//! interference.

use crate::shape::{Key, Kind, Shape, optional, required};

/// A step's greatest value in the larger system.
macro_rules! larger {
    ($name:literal) => {
        optional($name, NANOS, concat!("As `", $name, "`."))
    };
}

const ANY: Kind = Kind::Number(0, u64::MAX);

/// The constants of rt-virtio, Table II, and four of weir's own data path, by their names in a
/// file.
pub(crate) const STEPS: [&str; 16] = [
    "hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "br", "wake", "copy", "hold",
    "tail",
];

/// The steps that take longer the more flows or VMs there are.
pub(crate) const GROWING: [&str; 8] = ["pp", "ql", "qi", "qa", "qr", "ps", "ft", "hold"];

/// Integers here are nanoseconds.
const NANOS: Kind = Kind::OneOf(&[Kind::Number(0, u64::MAX), Kind::Duration]);

/// Key `overheads` of a system or platform file.
pub(crate) const OVERHEADS_KEY: Key = optional(
    "overheads",
    Kind::Table(&OVERHEAD_TABLE),
    "The overhead of each step of a transfer. Values that are absent are taken from the platform.",
);

/// Key `saturation` of a system or platform file.
pub(crate) const SATURATION_KEY: Key = optional(
    "saturation",
    Kind::Table(&SATURATION),
    "Memory traffic below saturation; default: the platform's.",
);

/// Key `sharing` of a platform file.
pub(crate) const SHARING_KEY: Key =
    optional("sharing", Kind::Table(&SHARING), "The overheads of EL2 on a core that VMs share.");

/// Key `interference` of a platform file.
pub(crate) const INTERFERENCE_KEY: Key = optional(
    "interference",
    Kind::Table(&INTERFERENCE),
    "Interference of memory accesses of other VMs with a core; `delay` of [saturation] takes precedence.",
);

static OVERHEAD_TABLE: Shape = Shape {
    name: "[overheads]",
    doc: "The overhead of each step of a transfer (rt-virtio, Table II), each as { min, max } in ns.",
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
        optional(
            "senders",
            Kind::List(&Kind::Table(&SENDER)),
            "Upper bounds on `wake` after the notifications of some senders, on an emulator that runs one core at a time. Only the bound for comparison with such a run uses it.",
        ),
        optional(
            "copy_bandwidth",
            Kind::Rate,
            "The bandwidth at which a core copies, measured together with `copy`.",
        ),
        optional("flows", Kind::Number(1, 1 << 16), "The flows of the system that was measured."),
        optional("vms", Kind::Number(1, 1 << 16), "The VMs of the system that was measured."),
        optional(
            "larger",
            Kind::Table(&LARGER),
            "The greatest values in a larger system, for steps that search flows or VMs.",
        ),
        optional(
            "origin",
            Kind::Table(&ORIGIN),
            "Where these values come from. `weir analyze` and `weir run` print it.",
        ),
    ],
};

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
        optional(
            "build",
            Kind::Text,
            "The build of the hypervisor that was measured, as `weir report --overheads` prints it; another build causes a warning.",
        ),
        optional("date", Kind::Text, "The date of the measurement."),
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

/// The keys of a memory that [saturation] and [interference] share.
const DELAY: Key =
    optional("delay", Kind::Duration, "The delay of a core by one access of another VM.");

const PER_ACCESS: Key = optional(
    "per_access",
    ANY,
    "The most accesses of each other VM that can delay one access; default: unknown.",
);

const OVERSHOOT: Key =
    optional("overshoot", ANY, "Accesses that still pass between a budget's end and the stop.");

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
        optional(
            "min_accesses",
            ANY,
            "The least budget per `period` that is kept without `debt`. `debt` compensates an excess.",
        ),
        optional("min_period", Kind::Duration, "The shortest budget period that EL2 can enforce."),
        OVERSHOOT,
        DELAY,
        PER_ACCESS,
        optional(
            "qos_block",
            Kind::Size,
            "Bytes that the QoS regulator of the DMA engine lets through at a time.",
        ),
        optional("qos_clock", Kind::Number(1, u64::MAX), "The clock of that regulator, in Hz."),
        optional(
            "source",
            Kind::Text,
            "Where the values come from; see `source` of [interference].",
        ),
        optional(
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
        required("switch", Kind::Table(&RANGE), "A switch from one guest to another."),
        required(
            "interrupt",
            Kind::Duration,
            "An upper bound on the time of one event at EL2: an interrupt for a VM that is off the core, or another request to it.",
        ),
        required(
            "entry",
            Kind::Duration,
            "The part of it that delays the interrupted VM; the rest is charged to the VM of the interrupt.",
        ),
    ],
};

const fn overhead(name: &'static str, doc: &'static str) -> Key {
    optional(name, Kind::Table(&RANGE), doc)
}
