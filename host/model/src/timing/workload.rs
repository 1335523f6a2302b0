//! The memory accesses of a VM's cores in `weir simulate`. The hypervisor does not use them.

use crate::diagnostics::Code;
use crate::document::Reader;
use crate::keys::workload::{Direction, Order, Workload as Keys};
pub use crate::keys::workload::{Mode, WorkloadKind};
use crate::table::At;
use std::ops::Range;
use weir_units::{Bytes, Nanos};

/// A phase of [`WorkloadKind::Profile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadPhase {
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

/// A network device. Its packets come from a sender with a window, as a TCP connection's, or go from
/// the VM, which is the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Bytes on their way: sent, and not yet known to be handled. At least a packet's.
    pub window: Bytes,
    /// From the end of a packet's handling (of a packet that the VM sends, from its transfer's end)
    /// until the sender knows.
    pub delay: Nanos,
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
    pub kind: WorkloadKind,
    /// Bytes that each vCPU goes through, at least a page.
    pub size: Bytes,
    /// Least time between two accesses of a vCPU.
    pub gap: Nanos,
    /// Lines that a vCPU waits for at once.
    pub outstanding: Option<usize>,
    /// The trace, as the file names it.
    pub file: Option<String>,
    /// The program of [`WorkloadKind::Kernel`], one of [`KERNELS`](super::KERNELS).
    pub kernel: Option<String>,
    /// Of [`WorkloadKind::Dma`]; of [`WorkloadKind::Network`] its device, of which a transfer is a
    /// packet.
    pub transfers: Option<Transfers>,
    /// Time between the begins of two passes.
    pub period: Option<Nanos>,
    /// By when after its release a pass or a packet's handling must have ended.
    pub deadline: Option<Nanos>,
    /// Of [`WorkloadKind::Profile`]: at least one.
    pub phases: Vec<WorkloadPhase>,
    /// Of [`WorkloadKind::Network`].
    pub network: Option<Network>,
}

/// The kinds that have a key.
#[derive(Clone, Copy)]
enum Kinds {
    Only(&'static [WorkloadKind]),
    AllBut(&'static [WorkloadKind]),
}

const DMA: Kinds = Kinds::Only(&[WorkloadKind::Dma]);
const ENGINE: Kinds = Kinds::Only(&[WorkloadKind::Dma, WorkloadKind::Network]);
const NETWORK: Kinds = Kinds::Only(&[WorkloadKind::Network]);
const PROGRAM: Kinds = Kinds::AllBut(&[WorkloadKind::Dma, WorkloadKind::Network]);

/// Keys without which a kind is nothing, and what to write.
const NEEDED: [(WorkloadKind, &str, &str); 5] = [
    (WorkloadKind::Trace, "file", "write file = \"accesses.txt\""),
    (WorkloadKind::Kernel, "kernel", "write kernel = \"qsort-large\", or another of them"),
    (WorkloadKind::Dma, "engine", "write engine = \"lpd\", or another of the board's"),
    (WorkloadKind::Network, "engine", "write engine = \"lpd\", or another of the board's"),
    (WorkloadKind::Profile, "phases", "write phases = [{ accesses = 10000, gap = \"20ns\" }]"),
];

/// The place of a key that is there.
fn place<T>(key: Option<&At<T>>) -> Option<&Range<usize>> {
    key.map(|key| &key.span)
}

impl Reader<'_> {
    /// The workload of the VM that messages call `vm`.
    pub(crate) fn workload(&mut self, raw: &At<Keys>, vm: &str) -> Workload {
        let At { value: keys, span } = raw;
        let (kind, name) = (keys.kind, keys.kind.name());
        let mut wrong = |place: &Range<usize>, what: String, help: &str| {
            self.fault(Code::Workload, place, format!("{vm}: its workload {what}"), help);
        };
        // Of AllBut: the vCPUs do nothing of their own accord, or a program's data has its size.
        let given = [
            ("engine", ENGINE, place(keys.engine.as_ref())),
            ("channels", DMA, place(keys.channels.as_ref())),
            ("mode", DMA, place(keys.mode.as_ref())),
            ("chunk", DMA, place(keys.chunk.as_ref())),
            ("piece", DMA, place(keys.piece.as_ref())),
            ("pace", ENGINE, place(keys.pace.as_ref())),
            ("direction", NETWORK, place(keys.direction.as_ref())),
            ("window", NETWORK, place(keys.window.as_ref())),
            ("packet", NETWORK, place(keys.packet.as_ref())),
            ("delay", NETWORK, place(keys.delay.as_ref())),
            ("file", Kinds::Only(&[WorkloadKind::Trace]), place(keys.file.as_ref())),
            ("kernel", Kinds::Only(&[WorkloadKind::Kernel]), place(keys.kernel.as_ref())),
            ("phases", Kinds::Only(&[WorkloadKind::Profile]), place(keys.phases.as_ref())),
            ("outstanding", PROGRAM, place(keys.outstanding.as_ref())),
            ("size", Kinds::AllBut(&[WorkloadKind::Kernel]), place(keys.size.as_ref())),
            ("period", PROGRAM, place(keys.period.as_ref())),
            ("deadline", Kinds::AllBut(&[WorkloadKind::Dma]), place(keys.deadline.as_ref())),
        ];
        for (key, kinds, given) in given {
            let is_of_kind = match kinds {
                Kinds::Only(kinds) => kinds.contains(&kind),
                Kinds::AllBut(kinds) => !kinds.contains(&kind),
            };
            if let Some(place) = given.filter(|_| !is_of_kind) {
                let help = match key {
                    "period" | "deadline" => "leave it out; `gap` sets the rate",
                    _ => "leave it out, or write another kind",
                };
                wrong(place, format!("of the kind \"{name}\" has no `{key}`"), help);
            }
            let needed = NEEDED.into_iter().find(|(of, needed, _)| *of == kind && *needed == key);
            if let (Some((_, key, help)), None) = (needed, given) {
                wrong(span, format!("of the kind \"{name}\" needs `{key}`"), help);
            }
        }
        let size = keys.size.as_ref();
        if let Some(size) = size.filter(|size| size.value.0 < weir_abi::PAGE) {
            let what = format!("has a size of {}, less than a page", size.value);
            wrong(&size.span, what, "write 4KiB or more");
        }
        if let Some(size) = size.filter(|size| size.value > MOST_SIZE) {
            let help = format!("write at most {MOST_SIZE}");
            let what = format!("goes through {} (weir supports {MOST_SIZE})", size.value);
            wrong(&size.span, what, &help);
        }
        let size = size.map_or(without_size(kind), |size| size.value);
        let Keys { period, deadline, gap, pace, delay, .. } = keys;
        let phases = keys.phases.iter().flat_map(|phases| &phases.value);
        let gaps = phases.map(|phase| ("gap", Some(&phase.gap)));
        let times = [
            ("gap", gap.as_ref()),
            ("period", period.as_ref()),
            ("deadline", deadline.as_ref()),
            ("pace", pace.as_ref()),
            ("delay", delay.as_ref()),
        ];
        for (key, time) in times.into_iter().chain(gaps) {
            let Some(time) = time else { continue };
            if time.value > LONGEST {
                let help = format!("write at most {LONGEST}");
                let what = format!("has a {key} of {} (weir supports {LONGEST})", time.value);
                wrong(&time.span, what, &help);
            }
            if time.value.0 == 0 && matches!(key, "period" | "deadline") {
                let help = "leave it out, or write 1us or more";
                wrong(&time.span, format!("has a {key} of 0"), help);
            }
        }
        let wakes = (kind == WorkloadKind::Cyclictest).then_some(Nanos(1_000_000));
        let time = |time: &Option<At<Nanos>>| time.as_ref().map(|time| time.value);
        let released = time(period).or(wakes);
        if let (Some(deadline), None) = (deadline, released)
            && kind != WorkloadKind::Network
        {
            let help = "write both: a pass is released by its period";
            wrong(&deadline.span, "has a deadline, but no period".to_owned(), help);
        }
        let text = |text: &Option<At<String>>| text.as_ref().map(|text| text.value.clone());
        Workload {
            kind,
            transfers: self.transfers(keys, vm, size),
            network: self.network(raw, vm),
            phases: self.phases(keys, vm, size),
            size,
            gap: time(gap).unwrap_or(Nanos(0)),
            outstanding: keys.outstanding.as_ref().map(|number| number.value),
            file: text(&keys.file),
            kernel: text(&keys.kernel),
            period: released,
            deadline: time(deadline).or(released),
        }
    }

    fn transfers(&mut self, keys: &Keys, vm: &str, size: Bytes) -> Option<Transfers> {
        let is_network = keys.kind == WorkloadKind::Network;
        let engine =
            keys.engine.as_ref().filter(|_| is_network || keys.kind == WorkloadKind::Dma)?;
        let mode = keys.mode.as_ref().map(|mode| mode.value);
        let mode = mode.unwrap_or(match &keys.direction {
            _ if !is_network => Mode::Simple,
            Some(At { value: Direction::Send, .. }) => Mode::ReadOnly,
            _ => Mode::WriteOnly,
        });
        let Keys { chunk, packet, piece, .. } = keys;
        let mut wrong = |place: &Range<usize>, message: String, help: &str| {
            self.fault(Code::Workload, place, message, help);
        };
        let page = Bytes(weir_abi::PAGE);
        for (key, given, most) in
            [("chunk", chunk, size), ("packet", packet, size), ("piece", piece, page)]
        {
            let Some(given) = given.as_ref() else { continue };
            if given.value.0 == 0 || given.value > most {
                let message = format!("{vm}: its workload has a {key} of {} bytes", given.value.0);
                wrong(&given.span, message, &format!("write 1 to {} bytes", most.0));
            }
        }
        if let Some(piece) = piece.as_ref().filter(|_| !is_network && mode != Mode::Linked) {
            let message = format!("{vm}: `piece` is only for DMA channels in the mode \"linked\"");
            wrong(&piece.span, message, "leave it out, or write mode = \"linked\"");
        }
        if let Some(packet) = packet
            && size.0 / packet.value.0.max(1) > MOST_PACKETS
        {
            let message = format!("{vm}: its ring of {size} has more than {MOST_PACKETS} packets");
            wrong(&packet.span, message, "write larger packets, or a smaller size");
        }
        let (chunk, whole) = if is_network { (packet, PACKET) } else { (chunk, size) };
        let of = |given: &Option<At<Bytes>>, or| given.as_ref().map_or(or, |given| given.value);
        Some(Transfers {
            engine: engine.value.clone(),
            channels: keys.channels.as_ref().map_or(1, |number| number.value),
            mode,
            chunk: of(chunk, whole),
            piece: of(piece, page),
            pace: keys.pace.as_ref().map_or(Nanos(0), |pace| pace.value),
        })
    }

    fn network(&mut self, At { value: keys, span }: &At<Keys>, vm: &str) -> Option<Network> {
        if keys.kind != WorkloadKind::Network {
            return None;
        }
        let packet = keys.packet.as_ref().map_or(PACKET, |packet| packet.value);
        let window = keys.window.as_ref();
        let place = window.map_or(span, |window| &window.span);
        let window = window.map_or(Bytes(64 << 10), |window| window.value);
        if window < packet {
            let message = format!(
                "{vm}: its sender has a `window` of {window}, less than a packet ({packet})"
            );
            self.fault(Code::Workload, place, message, format!("write {packet} or more"));
        }
        Some(Network { window, delay: keys.delay.as_ref().map_or(Nanos(0), |delay| delay.value) })
    }

    fn phases(&mut self, keys: &Keys, vm: &str, most: Bytes) -> Vec<WorkloadPhase> {
        let Some(given) = &keys.phases else { return Vec::new() };
        if given.is_empty() {
            let message = format!("{vm}: its workload has no phase");
            let help = "write one or more, or another kind";
            self.fault(Code::Workload, &given.span, message, help);
        }
        let mut phases = Vec::new();
        let mut all = 0_u64;
        for At { value: phase, span } in &given.value {
            let before = all;
            all = all.saturating_add(phase.accesses);
            if all > MOST_ACCESSES && before <= MOST_ACCESSES {
                let message = format!(
                    "{vm}: the phases of its workload have more than {MOST_ACCESSES} accesses"
                );
                let help = "write fewer: they begin again and again";
                self.fault(Code::Workload, span, message, help);
            }
            let size = phase.size.unwrap_or(most);
            if size.0 < weir_abi::PAGE || size > most {
                let message = format!("{vm}: a phase of its workload goes to {size}");
                let help = format!("write 4KiB to {most}, which is the workload's size");
                self.fault(Code::Workload, span, message, help);
            }
            phases.push(WorkloadPhase {
                accesses: phase.accesses,
                size,
                gap: phase.gap.value,
                stream: phase.order == Order::Stream,
                writes: phase.writes,
            });
        }
        phases
    }
}

/// Size of the memory that is accessed, if the file does not set it.
const fn without_size(kind: WorkloadKind) -> Bytes {
    match kind {
        WorkloadKind::Cyclictest => Bytes(weir_abi::PAGE),
        // An eighth of it, the lines of one of eight banks, is twice a last-level cache of 1 MiB;
        // of less the writes would stay in the cache.
        WorkloadKind::RowMiss => Bytes(16 << 20),
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
