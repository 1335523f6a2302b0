//! The keys of a workload.

use crate::shape;
use crate::table::{At, choice, table};
use weir_units::{Bytes, Nanos};

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

/// One of the programs.
const PROGRAM: shape::Kind = shape::Kind::Choice(&KERNELS);

table! {
    /// The memory accesses of each vCPU of a simulated VM.
    pub(crate) struct Workload = "[vm.workload]" {
        /// A walk through a chain of lines, a stream of reads, of writes, or of both alternately,
        /// accesses that each open another row of a bank, a recorded trace, the recorded accesses
        /// of a program that weir brings along, transfers of a DMA engine, during which the vCPUs
        /// do nothing, phases of other accesses, a thread that wakes for each period, or packets
        /// from or to a network.
        kind: WorkloadKind,
        /// Time from the start of a pass through the workload to the start of the next. Default:
        /// without a pause (cyclictest: "1ms").
        period: Option<At<Nanos>>,
        /// The relative deadline of a pass, or of the handling of a packet. Default: the period, if
        /// there is one.
        deadline: Option<At<Nanos>>,
        /// profile: what a vCPU does one after the other.
        phases: Option<At<Vec<At<Phase>>>>,
        /// network: whether the device brings packets, or sends what a vCPU writes. Default:
        /// "receive".
        direction: Option<At<Direction>>,
        /// network: the bytes that the sender has in flight. Default: "64KiB".
        window: Option<At<Bytes>>,
        /// network: the bytes of a packet. Default: "1500B".
        packet: Option<At<Bytes>>,
        /// network: from the end of a packet's handling until the sender is informed. Default:
        /// none.
        delay: Option<At<Nanos>>,
        /// The bytes that each vCPU or DMA channel accesses. Default: "64KiB" (row-miss: "16MiB",
        /// cyclictest: "4KiB").
        size: Option<At<Bytes>>,
        /// Least time between two accesses of a vCPU, or from the end of a DMA transfer to the
        /// next. Default: none.
        gap: Option<At<Nanos>>,
        /// Lines that a vCPU waits for at once, if it does not depend on each. Default: as many as
        /// the core can.
        outstanding: Option<At<usize>> [1, 64],
        /// trace: lines R 0xOFFSET and W 0xOFFSET, from the start of the VM's RAM, as
        /// `weir observe --record` writes them; a path relative to this file.
        file: Option<At<String>>,
        /// kernel: the program.
        kernel: Option<At<String>> as PROGRAM,
        /// dma: the engine, by its name in the memory file.
        engine: Option<At<String>>,
        /// dma: the number of channels. Default: 1.
        channels: Option<At<usize>> [1, 64],
        /// dma: transfers of a chunk ("simple", the default), of pieces that descriptors list, or
        /// of one side only.
        mode: Option<At<Mode>>,
        /// dma: the bytes of a transfer. Default: all of `size`.
        chunk: Option<At<Bytes>>,
        /// linked: the bytes that are moved per page. Default: "4KiB".
        piece: Option<At<Bytes>>,
        /// dma: least time between two bursts of a channel. Default: none.
        pace: Option<At<Nanos>>,
    }

    /// A phase of a profile.
    pub(crate) struct Phase = "{ accesses = ..., size = ... }" {
        /// The number of them.
        accesses: u64 [1, 1_000_000],
        /// The bytes that they access. Default: the workload's.
        size: Option<Bytes>,
        /// Least time between two of them.
        gap: At<Nanos> = "0s",
        /// To lines in a random order, or in sequence.
        order: Order = "random",
        /// How many of a hundred write.
        writes: u64 [0, 100] = 0,
    }
}

choice! {
    /// The order of accesses.
    pub(crate) enum Order {
        Random = "random",
        Stream = "stream",
    }
}

choice! {
    /// The direction of a network device's packets.
    pub(crate) enum Direction {
        Receive = "receive",
        Send = "send",
    }
}

choice! {
    /// The pattern of the accesses.
    pub enum WorkloadKind {
        /// Reads of lines in a random order, each one after the last has come (a pointer chase).
        Latency = "latency",
        /// Reads of one line after the other.
        Read = "read",
        /// Writes of one line after the other.
        Write = "write",
        /// A read of a line, then a write of it (the memory stressor of bao-throttling 4.1).
        ReadWrite = "read-write",
        /// Writes, each to another row of one bank.
        RowMiss = "row-miss",
        /// From a file.
        Trace = "trace",
        /// A DMA engine moves memory; see [`Transfers`](crate::timing::Transfers).
        Dma = "dma",
        /// A program with recorded accesses; see [`KERNELS`].
        Kernel = "kernel",
        /// Phases of a given rate and locality, one after the other.
        Profile = "profile",
        /// A thread that wakes for each period and walks through its lines.
        Cyclictest = "cyclictest",
        /// A network device that brings packets, each of which a vCPU reads and copies, or that
        /// sends packets, each of which a vCPU writes; see [`Network`](crate::timing::Network).
        Network = "network",
    }
}

choice! {
    /// Modes of a DMA channel (bao-throttling 3.1.1).
    pub enum Mode {
        /// One piece a transfer, its parameters in registers.
        Simple = "simple",
        /// A piece of each page, from descriptors in memory.
        Linked = "linked",
        /// As simple, but nothing is written.
        ReadOnly = "read-only",
        /// As simple, but nothing is read.
        WriteOnly = "write-only",
    }
}
