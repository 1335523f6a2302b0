//! The memory accesses of a VM's cores in `weir simulate`. The hypervisor does not use them.

use crate::diagnostics::Code;
use crate::document::{Reader, Values};
use std::ops::Range;
use toml::de::DeTable;
use weir_units::{Bytes, Nanos};

/// The pattern of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads of lines in a random order, each one after the last has come (a pointer chase).
    Latency,
    /// Reads of one line after the other.
    Read,
    /// Writes of one line after the other.
    Write,
    /// A read of a line, then a write of it (the memory stressor of bao-throttling 4.1).
    ReadWrite,
    /// Writes, each to another row of one bank.
    RowMiss,
    /// From a file.
    Trace,
    /// A program whose accesses were recorded; see [`KERNELS`](super::KERNELS).
    Kernel,
    /// A DMA engine moves memory; see [`Transfers`].
    Dma,
    /// Phases of a given rate and locality, one after the other.
    Profile,
    /// A thread that wakes for each period and walks through its lines.
    Cyclictest,
    /// A network device that brings packets, each of which a vCPU reads and copies; see
    /// [`Network`].
    Network,
}

/// A phase of [`Kind::Profile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Accesses, at least 1.
    pub accesses: u64,
    /// Bytes that they go to, from a page to the workload's size.
    pub size: Bytes,
    /// Least time between two.
    pub gap: Nanos,
    /// To one line after the other, not to random ones.
    pub stream: bool,
    /// How many of a hundred write.
    pub writes: u64,
}

/// A network device. Its packets come from a sender with a window, as a TCP connection's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Bytes on their way: sent, and not yet known to be handled. At least a packet's.
    pub window: Bytes,
    /// From the end of a packet's handling until the sender knows.
    pub delay: Nanos,
}

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

/// Transfers of a DMA engine for a VM. Each channel has a source and a destination of
/// [`Workload::size`] bytes in the VM's RAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfers {
    /// Name of the engine in the memory file.
    pub engine: String,
    /// Channels that work at the same time, at least 1.
    pub channels: usize,
    /// What each does.
    pub mode: Mode,
    /// Bytes of a transfer, at least 1 and at most the workload's size; of a linked one the source
    /// that its pages span.
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
    /// The program of [`Kind::Kernel`], one of [`KERNELS`](super::KERNELS).
    pub kernel: Option<String>,
    /// Of [`Kind::Dma`]; of [`Kind::Network`] its device, of which a transfer is a packet.
    pub transfers: Option<Transfers>,
    /// Time between the begins of two passes.
    pub period: Option<Nanos>,
    /// By when after its release a pass or a packet's handling must have ended.
    pub deadline: Option<Nanos>,
    /// Of [`Kind::Profile`]: at least one.
    pub phases: Vec<Phase>,
    /// Of [`Kind::Network`].
    pub network: Option<Network>,
}

/// Keys that only some kinds have.
const KEYS_OF: [(&str, Kinds); 14] = [
    ("engine", Kinds::Only(&[Kind::Dma, Kind::Network])),
    ("channels", Kinds::Only(&[Kind::Dma])),
    ("mode", Kinds::Only(&[Kind::Dma])),
    ("chunk", Kinds::Only(&[Kind::Dma])),
    ("piece", Kinds::Only(&[Kind::Dma])),
    ("pace", Kinds::Only(&[Kind::Dma, Kind::Network])),
    ("window", Kinds::Only(&[Kind::Network])),
    ("packet", Kinds::Only(&[Kind::Network])),
    ("delay", Kinds::Only(&[Kind::Network])),
    ("file", Kinds::Only(&[Kind::Trace])),
    ("kernel", Kinds::Only(&[Kind::Kernel])),
    ("phases", Kinds::Only(&[Kind::Profile])),
    // The vCPUs of the others do nothing of their own accord.
    ("outstanding", Kinds::AllBut(&[Kind::Dma, Kind::Network])),
    // A program's data has its own size.
    ("size", Kinds::AllBut(&[Kind::Kernel])),
];

/// Which kinds have a key.
#[derive(Clone, Copy, Debug)]
enum Kinds {
    Only(&'static [Kind]),
    AllBut(&'static [Kind]),
}

impl Kinds {
    fn has(self, kind: Kind) -> bool {
        match self {
            Self::Only(kinds) => kinds.contains(&kind),
            Self::AllBut(kinds) => !kinds.contains(&kind),
        }
    }
}

/// Keys without which a kind is nothing, and what to write.
const NEEDED: [(Kind, &str, &str); 5] = [
    (Kind::Trace, "file", "write file = \"accesses.txt\""),
    (Kind::Kernel, "kernel", "write kernel = \"qsort-large\", or another of them"),
    (Kind::Dma, "engine", "write engine = \"lpd\", or another of the board's"),
    (Kind::Network, "engine", "write engine = \"lpd\", or another of the board's"),
    (Kind::Profile, "phases", "write phases = [{ accesses = 10000, gap = \"20ns\" }]"),
];

fn kind_named(name: &str) -> Kind {
    match name {
        "latency" => Kind::Latency,
        "read" => Kind::Read,
        "write" => Kind::Write,
        "read-write" => Kind::ReadWrite,
        "row-miss" => Kind::RowMiss,
        "dma" => Kind::Dma,
        "kernel" => Kind::Kernel,
        "profile" => Kind::Profile,
        "cyclictest" => Kind::Cyclictest,
        "network" => Kind::Network,
        _ => Kind::Trace,
    }
}

impl Reader<'_> {
    pub(super) fn workload(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
        vm: &str,
    ) -> Option<Workload> {
        let name = table.text("kind")?.value;
        let kind = kind_named(&name);
        for (key, kinds) in KEYS_OF {
            if let Some(value) = table.value(key).filter(|_| !kinds.has(kind)) {
                let message = format!("{vm}'s workload of the kind \"{name}\" has no `{key}`");
                self.fault(
                    Code::Workload,
                    &value.span(),
                    message,
                    "leave it out, or write another kind",
                );
            }
        }
        for (of, key, help) in NEEDED {
            if of == kind && !table.contains_key(key) {
                let message = format!("{vm}'s workload of the kind \"{name}\" needs `{key}`");
                self.fault(Code::Workload, span, message, help);
            }
        }
        if let Some(period) = table.value("period").filter(|_| kind == Kind::Network) {
            let message = format!("{vm}'s packets come when they come");
            self.fault(Code::Workload, &period.span(), message, "write `gap` for their rate");
        }
        if let Some(key) = ["period", "deadline"].into_iter().find(|key| table.contains_key(*key))
            && kind == Kind::Dma
        {
            let message = format!("{vm}'s DMA channels have no `{key}`");
            self.fault(
                Code::Workload,
                span,
                message,
                "leave it out; `gap` is the time between transfers",
            );
        }
        let size = table.size("size");
        if let Some(size) = size.as_ref().filter(|size| size.value.0 < weir_abi::PAGE) {
            let message = format!("{vm}'s workload is smaller than a page");
            self.fault(Code::Workload, &size.span, message, "write 4KiB or more");
        }
        if let Some(size) = size.as_ref().filter(|size| size.value > MOST_SIZE) {
            let message = format!("{vm}'s workload goes through {}", size.value);
            self.fault(Code::Workload, &size.span, message, format!("write at most {MOST_SIZE}"));
        }
        let size = size.map_or(without_size(kind), |size| size.value);
        let wakes = (kind == Kind::Cyclictest).then_some(Nanos(1_000_000));
        self.bounded(table, vm, &["gap", "period", "deadline", "pace", "delay"]);
        let time = |key: &str| table.duration(key).map(|time| time.value);
        let period = time("period").or(wakes);
        if let Some(deadline) = table.value("deadline")
            && period.is_none()
            && kind != Kind::Network
        {
            let message = format!("{vm}'s workload has a deadline, but no period");
            self.fault(
                Code::Workload,
                &deadline.span(),
                message,
                "write both: a pass is released by its period",
            );
        }
        for key in ["period", "deadline"] {
            if let Some(zero) = table.duration(key).filter(|time| time.value.0 == 0) {
                let message = format!("{vm}'s workload has a {key} of 0");
                self.fault(
                    Code::Workload,
                    &zero.span,
                    message,
                    "leave it out, or write 1us or more",
                );
            }
        }
        Some(Workload {
            kind,
            transfers: self.transfers(table, vm, kind, size),
            network: self.network(table, span, vm, kind),
            phases: self.phases(table, vm, size),
            size,
            gap: time("gap").unwrap_or(Nanos(0)),
            outstanding: table.number("outstanding").map(|number| number.value as usize),
            file: table.text("file").map(|file| file.value),
            kernel: table.text("kernel").map(|kernel| kernel.value),
            period,
            deadline: time("deadline").or(period),
        })
    }

    /// Refuses times that would not fit the model's.
    fn bounded(&mut self, table: &DeTable<'_>, vm: &str, keys: &[&str]) {
        for key in keys {
            if let Some(time) = table.duration(key).filter(|time| time.value > LONGEST) {
                let message = format!("{vm}'s workload has a {key} of {}", time.value);
                self.fault(Code::Workload, &time.span, message, format!("write at most {LONGEST}"));
            }
        }
    }

    fn transfers(
        &mut self,
        table: &DeTable<'_>,
        vm: &str,
        kind: Kind,
        size: Bytes,
    ) -> Option<Transfers> {
        let engine = table.text("engine").filter(|_| matches!(kind, Kind::Dma | Kind::Network))?;
        let mode = match table.text("mode").as_ref().map(|mode| mode.value.as_str()) {
            Some("linked") => Mode::Linked,
            Some("read-only") => Mode::ReadOnly,
            Some("write-only") => Mode::WriteOnly,
            _ if kind == Kind::Network => Mode::WriteOnly,
            _ => Mode::Simple,
        };
        for (key, most) in [("chunk", size.0), ("packet", size.0), ("piece", weir_abi::PAGE)] {
            let Some(given) = table.size(key) else { continue };
            if given.value.0 == 0 || given.value.0 > most {
                let message = format!("{vm}'s workload has a {key} of {} bytes", given.value.0);
                self.fault(
                    Code::Workload,
                    &given.span,
                    message,
                    format!("write 1 to {most} bytes"),
                );
            }
        }
        if let Some(piece) =
            table.value("piece").filter(|_| kind == Kind::Dma && mode != Mode::Linked)
        {
            let message = format!("{vm}'s DMA channels have no `piece` but in the mode \"linked\"");
            self.fault(
                Code::Workload,
                &piece.span(),
                message,
                "leave it out, or write mode = \"linked\"",
            );
        }
        let chunk = table.size(if kind == Kind::Network { "packet" } else { "chunk" });
        let whole = if kind == Kind::Network { PACKET } else { size };
        if let Some(packet) = table.size("packet")
            && size.0 / packet.value.0.max(1) > MOST_PACKETS
        {
            let message = format!("{vm}'s ring of {size} has more than {MOST_PACKETS} packets");
            self.fault(
                Code::Workload,
                &packet.span,
                message,
                "write larger packets, or a smaller size",
            );
        }
        Some(Transfers {
            engine: engine.value,
            channels: table.number("channels").map_or(1, |number| number.value as usize),
            mode,
            chunk: chunk.map_or(whole, |chunk| chunk.value),
            piece: table.size("piece").map_or(Bytes(weir_abi::PAGE), |piece| piece.value),
            pace: table.duration("pace").map_or(Nanos(0), |pace| pace.value),
        })
    }

    fn network(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
        vm: &str,
        kind: Kind,
    ) -> Option<Network> {
        if kind != Kind::Network {
            return None;
        }
        let window = table.size("window");
        let packet = table.size("packet").map_or(PACKET, |packet| packet.value);
        let place = window.as_ref().map_or(span, |window| &window.span).clone();
        let window = window.map_or(Bytes(64 << 10), |window| window.value);
        if window.0 < packet.0 {
            let message = format!("{vm}'s sender has a window smaller than a packet");
            self.fault(Code::Workload, &place, message, format!("write {packet} or more"));
        }
        let delay = table.duration("delay").map_or(Nanos(0), |delay| delay.value);
        Some(Network { window, delay })
    }

    fn phases(&mut self, table: &DeTable<'_>, vm: &str, most: Bytes) -> Vec<Phase> {
        let mut phases = Vec::new();
        let mut all = 0_u64;
        for (phase, span) in table.tables("phases") {
            let Some(accesses) = phase.number("accesses") else { continue };
            let before = all;
            all = all.saturating_add(accesses.value);
            if all > MOST_ACCESSES && before <= MOST_ACCESSES {
                let message = format!(
                    "the phases of {vm}'s workload have more than {MOST_ACCESSES} accesses"
                );
                self.fault(
                    Code::Workload,
                    &span,
                    message,
                    "write fewer: they begin again and again",
                );
            }
            self.bounded(phase, vm, &["gap"]);
            let size = phase.size("size").map_or(most, |size| size.value);
            if size.0 < weir_abi::PAGE || size.0 > most.0 {
                let message = format!("a phase of {vm}'s workload goes to {size}");
                let help = format!("write 4KiB to {most}, which is the workload's size");
                self.fault(Code::Workload, &span, message, help);
            }
            phases.push(Phase {
                accesses: accesses.value,
                size,
                gap: phase.duration("gap").map_or(Nanos(0), |gap| gap.value),
                stream: phase.text("order").is_some_and(|order| order.value == "stream"),
                writes: phase.number("writes").map_or(0, |writes| writes.value),
            });
        }
        if phases.is_empty()
            && let Some(value) = table.value("phases")
        {
            let message = format!("{vm}'s workload has no phase");
            self.fault(
                Code::Workload,
                &value.span(),
                message,
                "write one or more, or another kind",
            );
        }
        phases
    }
}

/// Size of the memory that is accessed, if the file does not set it.
const fn without_size(kind: Kind) -> Bytes {
    match kind {
        Kind::Cyclictest => Bytes(weir_abi::PAGE),
        // An eighth of it, the lines of one of eight banks, is twice a last-level cache of 1 MiB;
        // of less the writes would stay in the cache.
        Kind::RowMiss => Bytes(16 << 20),
        _ => Bytes(64 << 10),
    }
}

/// An Ethernet packet's payload.
const PACKET: Bytes = Bytes(1500);

/// Times beyond this are typing errors; in picoseconds they stay far from 64 bits.
const LONGEST: Nanos = Nanos(1_000_000_000_000);
/// A walk through more would take more memory than it is worth: no cache is a tenth as large.
const MOST_SIZE: Bytes = Bytes(1 << 28);
/// Packets in a ring.
const MOST_PACKETS: u64 = 1 << 18;
/// Accesses in all phases together.
const MOST_ACCESSES: u64 = 10_000_000;
