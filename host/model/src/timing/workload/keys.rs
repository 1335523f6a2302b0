//! The keys of a workload.

use super::KERNELS;
use crate::shape::{Key, Kind as Value, Shape};

/// Key `workload` of a VM.
pub(crate) const WORKLOAD_KEY: Key = Key {
    name: "workload",
    doc: "What `weir simulate` takes its vCPUs to do to memory; nothing without it.",
    required: false,
    kind: Value::Table(&WORKLOAD),
};

const fn key(name: &'static str, kind: Value, doc: &'static str) -> Key {
    Key { name, doc, required: false, kind }
}

static WORKLOAD: Shape = Shape {
    name: "[vm.workload]",
    doc: "What each vCPU of a simulated VM does to memory.",
    keys: &[
        Key {
            name: "kind",
            doc: "A walk through a chain of lines, a stream of reads, of writes, or of both by turns, accesses that each open another row of a bank, a recorded trace, the recorded accesses of a program that weir brings along, transfers of a DMA engine, during which the vCPUs do nothing, phases of other accesses, a thread that wakes for each period, or packets from a network.",
            required: true,
            kind: Value::Choice(&[
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
        },
        key(
            "period",
            Value::Duration,
            "Time from the begin of a pass through the workload to the next one's; without it they follow each other (cyclictest: \"1ms\").",
        ),
        key(
            "deadline",
            Value::Duration,
            "By when after its release a pass, or the handling of a packet, must have ended; without it the period, if there is one.",
        ),
        key(
            "phases",
            Value::List(&Value::Table(&PHASE)),
            "profile: what a vCPU does one after the other.",
        ),
        key(
            "window",
            Value::Size,
            "network: the bytes that the sender has on their way; without it \"64KiB\".",
        ),
        key("packet", Value::Size, "network: the bytes of a packet; without it \"1500B\"."),
        key(
            "delay",
            Value::Duration,
            "network: from the end of a packet's handling until the sender knows; without it none.",
        ),
        key(
            "size",
            Value::Size,
            "The bytes that each vCPU or DMA channel goes through; without it \"64KiB\" (row-miss: \"16MiB\", cyclictest: \"4KiB\").",
        ),
        key(
            "gap",
            Value::Duration,
            "Least time between two accesses of a vCPU, or from the end of a DMA transfer to the next; without it none.",
        ),
        key(
            "outstanding",
            Value::Number(1, 64),
            "Lines that a vCPU waits for at once, if it does not depend on each; without it as many as the core can.",
        ),
        key(
            "file",
            Value::Text,
            "trace: lines R 0xOFFSET and W 0xOFFSET, from the start of the VM's RAM, as `weir observe --record` writes them; a path relative to this file.",
        ),
        key("kernel", Value::Choice(&KERNELS), "kernel: the program."),
        key("engine", Value::Text, "dma: the engine, by its name in the memory file."),
        key("channels", Value::Number(1, 64), "dma: how many of its channels; 1 without it."),
        key(
            "mode",
            Value::Choice(&["simple", "linked", "read-only", "write-only"]),
            "dma: transfers of a chunk (\"simple\", as without the key), of pieces that descriptors say, or of one side only.",
        ),
        key("chunk", Value::Size, "dma: the bytes of a transfer; without it all of `size`."),
        key(
            "piece",
            Value::Size,
            "linked: the bytes that are moved of each page; without it \"4KiB\".",
        ),
        key(
            "pace",
            Value::Duration,
            "dma: least time between two bursts of a channel; without it none.",
        ),
    ],
};

static PHASE: Shape = Shape {
    name: "{ accesses = ..., size = ... }",
    doc: "A phase of a profile.",
    keys: &[
        Key {
            name: "accesses",
            doc: "How many there are.",
            required: true,
            kind: Value::Number(1, 1_000_000),
        },
        key("size", Value::Size, "The bytes that they go to; without it the workload's."),
        key("gap", Value::Duration, "Least time between two of them; without it none."),
        key(
            "order",
            Value::Choice(&["random", "stream"]),
            "To lines in a random order, as without it, or to one after the other.",
        ),
        key("writes", Value::Number(0, 100), "How many of a hundred write; none without it."),
    ],
};
