//! The keys of a workload.

use crate::shape::{Key, Kind, Shape, optional, required};

/// The programs of kind "kernel": the automotive part of an embedded benchmark suite, each with a
/// small and a large input.
pub const KERNELS: [&str; 12] = [
    "basicmath-small",
    "basicmath-large",
    "bitcount-small",
    "bitcount-large",
    "qsort-small",
    "qsort-large",
    "susan-smoothing-small",
    "susan-smoothing-large",
    "susan-edges-small",
    "susan-edges-large",
    "susan-corners-small",
    "susan-corners-large",
];

/// Key `workload` of a VM.
pub(crate) const WORKLOAD_KEY: Key = optional(
    "workload",
    Kind::Table(&WORKLOAD),
    "The memory accesses of its vCPUs in `weir simulate`; default: none.",
);

static WORKLOAD: Shape = Shape {
    name: "[vm.workload]",
    doc: "The memory accesses of each vCPU of a simulated VM.",
    keys: &[
        required(
            "kind",
            Kind::Choice(&[
                "latency",
                "read",
                "write",
                "read-write",
                "row-miss",
                "trace",
                "dma",
                "kernel",
                "profile",
                "cyclictest",
                "network",
            ]),
            "A walk through a chain of lines, a stream of reads, of writes, or of both alternately, accesses that each open another row of a bank, a recorded trace, the recorded accesses of a program that weir brings along, transfers of a DMA engine, during which the vCPUs do nothing, phases of other accesses, a thread that wakes for each period, or packets from a network.",
        ),
        optional(
            "period",
            Kind::Duration,
            "Time from the start of a pass through the workload to the start of the next; default: without a pause (cyclictest: \"1ms\").",
        ),
        optional(
            "deadline",
            Kind::Duration,
            "The relative deadline of a pass, or of the handling of a packet; default: the period, if there is one.",
        ),
        optional(
            "phases",
            Kind::List(&Kind::Table(&PHASE)),
            "profile: what a vCPU does one after the other.",
        ),
        optional(
            "window",
            Kind::Size,
            "network: the bytes that the sender has in flight; default: \"64KiB\".",
        ),
        optional("packet", Kind::Size, "network: the bytes of a packet; default: \"1500B\"."),
        optional(
            "delay",
            Kind::Duration,
            "network: from the end of a packet's handling until the sender is informed; default: none.",
        ),
        optional(
            "size",
            Kind::Size,
            "The bytes that each vCPU or DMA channel accesses; default: \"64KiB\" (row-miss: \"16MiB\", cyclictest: \"4KiB\").",
        ),
        optional(
            "gap",
            Kind::Duration,
            "Least time between two accesses of a vCPU, or from the end of a DMA transfer to the next; default: none.",
        ),
        optional(
            "outstanding",
            Kind::Number(1, 64),
            "Lines that a vCPU waits for at once, if it does not depend on each; default: as many as the core can.",
        ),
        optional(
            "file",
            Kind::Text,
            "trace: lines R 0xOFFSET and W 0xOFFSET, from the start of the VM's RAM, as `weir observe --record` writes them; a path relative to this file.",
        ),
        optional("kernel", Kind::Choice(&KERNELS), "kernel: the program."),
        optional("engine", Kind::Text, "dma: the engine, by its name in the memory file."),
        optional("channels", Kind::Number(1, 64), "dma: the number of channels; default: 1."),
        optional(
            "mode",
            Kind::Choice(&["simple", "linked", "read-only", "write-only"]),
            "dma: transfers of a chunk (\"simple\", default), of pieces that descriptors list, or of one side only.",
        ),
        optional("chunk", Kind::Size, "dma: the bytes of a transfer; default: all of `size`."),
        optional(
            "piece",
            Kind::Size,
            "linked: the bytes that are moved per page; default: \"4KiB\".",
        ),
        optional(
            "pace",
            Kind::Duration,
            "dma: least time between two bursts of a channel; default: none.",
        ),
    ],
};

static PHASE: Shape = Shape {
    name: "{ accesses = ..., size = ... }",
    doc: "A phase of a profile.",
    keys: &[
        required("accesses", Kind::Number(1, 1_000_000), "How many there are."),
        optional("size", Kind::Size, "The bytes that they access; default: the workload's."),
        optional("gap", Kind::Duration, "Least time between two of them; default: none."),
        optional(
            "order",
            Kind::Choice(&["random", "stream"]),
            "To lines in a random order (default), or in sequence.",
        ),
        optional("writes", Kind::Number(0, 100), "How many of a hundred write; default: none."),
    ],
};
