//! What a VM's cores do to memory in `weir simulate`. The hypervisor does not look at it.

use super::read::Reader;
use crate::{
    raw::Values,
    shape::{Key, Kind as Value, Shape},
    units::{Bytes, Nanos},
};
use std::ops::Range;
use toml::de::DeTable;

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
            doc: "A walk through a chain of lines, a stream of reads, of writes, or of both by turns, accesses that each open another row of a bank, a recorded trace, the recorded accesses of a program that weir brings along, or transfers of a DMA engine, during which the vCPUs do nothing.",
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
            ]),
        },
        key(
            "size",
            Value::Size,
            "The bytes that each vCPU or DMA channel goes through; without it \"64KiB\".",
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
            "trace: lines R 0xOFFSET and W 0xOFFSET, from the start of the VM's RAM; a path relative to this file.",
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

/// The pattern of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads of lines in a random order, each one after the last has come (a pointer chase).
    Latency,
    /// Reads of one line after the other.
    Read,
    /// Writes of one line after the other.
    Write,
    /// A read of a line, then a write of it (the hog of bao-throttling 4.1).
    ReadWrite,
    /// Writes, each to another row of one bank.
    RowMiss,
    /// A file says it.
    Trace,
    /// A program whose accesses were recorded; see [`KERNELS`].
    Kernel,
    /// A DMA engine moves memory; see [`Transfers`].
    Dma,
}

/// The programs of [`Kind::Kernel`]: the automotive part of an embedded benchmark suite, each with a small and a large input.
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

/// Modes of a DMA channel (bao-throttling 3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One piece a transfer, its parameters in registers.
    Simple,
    /// A piece of each page, from descriptors in memory.
    Linked,
    /// As simple, but nothing is written.
    ReadOnly,
    /// As simple, but nothing is read.
    WriteOnly,
}

/// Transfers of a DMA engine for a VM. Each channel has a source and a destination of [`Workload::size`] bytes in the VM's RAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfers {
    /// Name of the engine in the memory file.
    pub engine: String,
    /// Channels that work at the same time, at least 1.
    pub channels: usize,
    /// What each does.
    pub mode: Mode,
    /// Bytes of a transfer, at least 1 and at most the workload's size; of a linked one the source that its pages span.
    pub chunk: Bytes,
    /// Bytes that a linked transfer moves of each page, 1 to 4096.
    pub piece: Bytes,
    /// Least time between two bursts of a channel.
    pub pace: Nanos,
}

/// A VM's workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The pattern.
    pub kind: Kind,
    /// Bytes that each vCPU goes through, at least a page.
    pub size: Bytes,
    /// Least time between two accesses of a vCPU.
    pub gap: Nanos,
    /// Lines that a vCPU waits for at once.
    pub outstanding: Option<usize>,
    /// The trace, as the file names it.
    pub file: Option<String>,
    /// The program of [`Kind::Kernel`], one of [`KERNELS`].
    pub kernel: Option<String>,
    /// Of [`Kind::Dma`].
    pub transfers: Option<Transfers>,
}

/// Keys that only the kind `dma` has.
const DMA_KEYS: [&str; 6] = ["engine", "channels", "mode", "chunk", "piece", "pace"];

impl Reader<'_> {
    pub(super) fn workload(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
        vm: &str,
    ) -> Option<Workload> {
        let kind = match table.text("kind")?.value.as_str() {
            "latency" => Kind::Latency,
            "read" => Kind::Read,
            "write" => Kind::Write,
            "read-write" => Kind::ReadWrite,
            "row-miss" => Kind::RowMiss,
            "dma" => Kind::Dma,
            "kernel" => Kind::Kernel,
            _ => Kind::Trace,
        };
        let file = table.text("file");
        if (kind == Kind::Trace) != file.is_some() {
            let place = file.as_ref().map_or(span, |file| &file.span).clone();
            let message = format!("{vm}'s workload has a kind and a file that don't agree");
            let help = "write `file` with the kind \"trace\", and with no other";
            self.fault("workload", &place, message, help);
        }
        let kernel = table.text("kernel");
        if (kind == Kind::Kernel) != kernel.is_some() {
            let place = kernel.as_ref().map_or(span, |kernel| &kernel.span).clone();
            let message = format!("{vm}'s workload has a kind and a kernel that don't agree");
            let help = "write `kernel` with the kind \"kernel\", and with no other";
            self.fault("workload", &place, message, help);
        }
        let size = table.size("size");
        if let Some(size) = size.as_ref().filter(|size| size.value.0 < crate::packed::PAGE) {
            let message = format!("{vm}'s workload is smaller than a page");
            self.fault("workload", &size.span, message, "write 4KiB or more");
        }
        let size = size.map_or(Bytes(64 << 10), |size| size.value);
        Some(Workload {
            kind,
            transfers: self.transfers(table, span, vm, kind, size),
            size,
            gap: table.duration("gap").map_or(Nanos(0), |gap| gap.value),
            outstanding: table.number("outstanding").map(|number| number.value as usize),
            file: file.map(|file| file.value),
            kernel: kernel.map(|kernel| kernel.value),
        })
    }

    fn transfers(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
        vm: &str,
        kind: Kind,
        size: Bytes,
    ) -> Option<Transfers> {
        if kind != Kind::Dma {
            if let Some(key) = DMA_KEYS.iter().find(|key| table.contains_key(**key)) {
                let message = format!("{vm}'s workload has `{key}`, but no DMA engine");
                self.fault("workload", span, message, "leave it out, or write kind = \"dma\"");
            }
            return None;
        }
        let Some(engine) = table.text("engine") else {
            let message = format!("{vm}'s workload is a DMA engine's, and names none");
            self.fault(
                "workload",
                span,
                message,
                "write engine = \"lpd\", or another of the board's",
            );
            return None;
        };
        let mode = match table.text("mode").as_ref().map(|mode| mode.value.as_str()) {
            Some("linked") => Mode::Linked,
            Some("read-only") => Mode::ReadOnly,
            Some("write-only") => Mode::WriteOnly,
            _ => Mode::Simple,
        };
        for (key, most) in [("chunk", size.0), ("piece", crate::packed::PAGE)] {
            let Some(given) = table.size(key) else { continue };
            if given.value.0 == 0 || given.value.0 > most {
                let message = format!("{vm}'s workload has a {key} of {} bytes", given.value.0);
                self.fault("workload", &given.span, message, format!("write 1 to {most} bytes"));
            }
        }
        if let Some(outstanding) = table.number("outstanding") {
            let message = format!("{vm}'s DMA channels have no `outstanding`");
            let help = "leave it out; the memory file says what the engine has on its way";
            self.fault("workload", &outstanding.span, message, help);
        }
        Some(Transfers {
            engine: engine.value,
            channels: table.number("channels").map_or(1, |number| number.value as usize),
            mode,
            chunk: table.size("chunk").map_or(size, |chunk| chunk.value),
            piece: table.size("piece").map_or(Bytes(crate::packed::PAGE), |piece| piece.value),
            pace: table.duration("pace").map_or(Nanos(0), |pace| pace.value),
        })
    }
}
