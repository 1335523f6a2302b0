//! The durations of the phases of packets in a run, as in Table II of rt-virtio.

use crate::{
    run::RunFacts,
    table::table,
    trace::{file::Trace, words},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    io::Read,
    path::Path,
};
use weir_image::{Failure, Result, failure::SYSTEM};
use weir_model::timing::Origin;
use weir_trace::{
    phases::Phase,
    record::{Record, RecordKind},
};

/// The durations of the phases of a run's packets.
#[derive(Debug)]
pub struct MeasuredOverheads {
    /// In ns, each in order, of those phases that occurred.
    phases: BTreeMap<Phase, Vec<u64>>,
    /// Bytes and ns of each chunk that a core copied.
    copies: Vec<(u64, u64)>,
    /// Bytes and ns of each chunk that the DMA engine moved.
    transfers: Vec<(u64, u64)>,
    /// Packets that arrived.
    packets: usize,
    /// Flows with packets, and VMs without the broker.
    size: [usize; 2],
    /// Another VM had the broker's core in between: what it took is in the phases.
    shared: bool,
    /// Records that the trace lost.
    lost: u64,
    /// The run was by the emulated clock: an instruction takes a nanosecond.
    counted: bool,
    /// The longest phase that a record can hold, in ns: a phase of this length took at least this
    /// long.
    longest: u64,
}

/// How overheads are written as a TOML table.
#[derive(Clone, Copy, Debug)]
pub struct OverheadsToml<'a> {
    /// The table's name.
    pub name: &'a str,
    /// How they were measured.
    pub origin: &'a Origin,
    /// The overheads of a larger system, for steps that take longer there.
    pub larger: Option<&'a MeasuredOverheads>,
}

/// Steps that search flows or VMs, so that they take longer in a larger system.
const SEARCHING: [Phase; 8] =
    [Phase::Pp, Phase::Ql, Phase::Qi, Phase::Qa, Phase::Qr, Phase::Ps, Phase::Ft, Phase::Hold];

/// Returns the time of a chunk without its transfer at this bandwidth, in ns.
fn without_transfer((bytes, ns): (u64, u64), bandwidth: u64) -> u64 {
    let moving = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.max(1));
    ns.saturating_sub(u64::try_from(moving).unwrap_or(u64::MAX))
}

/// Least, mean, median and greatest of what was measured, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The least.
    pub min: u64,
    /// The mean.
    pub avg: u64,
    /// The median.
    pub median: u64,
    /// The greatest.
    pub max: u64,
}

/// The overheads of a run in a JSON result.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OverheadsRecord {
    /// Packets that arrived.
    pub packets: usize,
    /// Records that the trace lost.
    pub records_lost: u64,
    /// The phases of a packet, by the names of rt-virtio's Table II and further ones.
    pub phases: Vec<PhaseRecord>,
    /// The bandwidth of the copy in bytes/s, if a core copies.
    pub copy_bandwidth: Option<u64>,
    /// The time of a copy in addition to its bytes, in ns.
    pub copy_set_up_ns: Option<u64>,
    /// The bandwidth of the DMA engine in bytes/s, if it was measured.
    pub engine_bandwidth: Option<u64>,
    /// The time of a transfer by the DMA engine in addition to its bytes, in ns.
    pub engine_set_up_ns: Option<u64>,
}

/// The durations of a phase in a JSON result.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PhaseRecord {
    /// The name of the phase.
    pub name: String,
    /// The meaning of the phase.
    pub action: String,
    /// How often it occurred.
    pub count: usize,
    /// The durations in ns.
    pub ns: Spread,
    /// Whether the longest can have taken longer than the record holds.
    pub max_or_more: bool,
    /// The same in instructions, if the run was by the emulated clock, where one takes 1 ns.
    pub instructions: Option<Spread>,
}

impl Spread {
    /// Of values in order.
    fn of(values: &[u64]) -> Self {
        let (Some(min), Some(max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        let sum: u64 = values.iter().sum();
        let median = values.get(values.len() / 2).copied().unwrap_or(*max);
        Self { min: *min, avg: sum / values.len() as u64, median, max: *max }
    }

    fn row(self) -> [u64; 4] {
        [self.min, self.avg, self.median, self.max]
    }
}

impl MeasuredOverheads {
    /// Collects the values of a trace's records. `counted` states whether its nanoseconds are
    /// instructions.
    ///
    /// # Errors
    ///
    /// A damaged trace, or one in which no packet arrived.
    pub fn of<R: Read>(trace: &mut Trace<R>, counted: bool) -> Result<Self> {
        let facts = trace.facts.clone();
        let mut phases: BTreeMap<Phase, Vec<u64>> = BTreeMap::new();
        let (mut copies, mut transfers) = (Vec::new(), Vec::new());
        let mut packets = 0;
        let (mut taken, mut flows) = (0, BTreeSet::new());
        let (mut brokers, mut shared) = (0u64, 0u64);
        let core = |record: &Record| 1u64.checked_shl(record.sequence().into()).unwrap_or(0);
        while let Some(record) = trace.next_record()? {
            if record.kind == RecordKind::PacketArrived as u16 {
                packets += 1;
                flows.insert(record.flow());
                brokers |= core(&record);
            }
            if record.kind == RecordKind::VcpuSwitch as u16 {
                shared |= core(&record);
            }
            taken += usize::from(record.kind == RecordKind::PacketTaken as u16);
            for (phase, ns) in words::phases(&record, &facts) {
                // The first covers all waits since the start.
                if taken == 1 && phase == Phase::Lock {
                    continue;
                }
                phases.entry(phase).or_default().push(ns);
                match phase {
                    Phase::Copy => copies.push((record.other(), ns)),
                    Phase::Ip => transfers.push((record.other(), ns)),
                    _ => {}
                }
            }
        }
        // A missing record may contain the maximum.
        if let Some(damage) = trace.damage() {
            return Err(Failure::system(format!("{damage}: no overheads can be measured from it")));
        }
        if packets == 0 {
            let text = "no packet of a flow has arrived in this run: run a system with [[flow]]s"
                .to_owned();
            return Err(Failure { status: SYSTEM, text });
        }
        for values in phases.values_mut() {
            values.sort_unstable();
        }
        let shared = brokers & shared != 0;
        let size = [flows.len(), facts.vms.len().saturating_sub(1)];
        let (lost, longest) = (facts.lost, words::longest_phase(&facts));
        Ok(Self { phases, copies, transfers, packets, size, shared, lost, counted, longest })
    }

    /// Takes in the packets of another run of the same hypervisor and board.
    pub fn merge(&mut self, other: Self) {
        for (phase, values) in other.phases {
            let all = self.phases.entry(phase).or_default();
            all.extend(values);
            all.sort_unstable();
        }
        self.copies.extend(other.copies);
        self.transfers.extend(other.transfers);
        self.packets += other.packets;
        self.size = [0, 1].map(|which| self.size[which].max(other.size[which]));
        self.shared |= other.shared;
        self.lost += other.lost;
        self.counted &= other.counted;
        self.longest = self.longest.min(other.longest);
    }

    fn spread(&self, phase: Phase) -> Spread {
        Spread::of(self.phases.get(&phase).map_or(&[], Vec::as_slice))
    }

    /// Returns the phases that a table of overheads has. A wait for a lock is no step of the path,
    /// `br` is the receiver's own and has no maximum here, and `copy` and `ip` are those of chunks
    /// that a core or the DMA engine has moved.
    fn steps(&self) -> impl Iterator<Item = Phase> + use<> {
        let left_out = [
            Some(Phase::Lock),
            Some(Phase::Br),
            self.copies.is_empty().then_some(Phase::Copy),
            self.transfers.is_empty().then_some(Phase::Ip),
        ];
        Phase::ALL.into_iter().filter(move |phase| !left_out.contains(&Some(*phase)))
    }

    /// The bandwidth of the copy, bytes/s: the least of long chunks. What short ones take longer is
    /// their set-up, in ns: the greatest. None if no core copied.
    fn copy(&self) -> Option<(u64, u64)> {
        if self.copies.is_empty() {
            return None;
        }
        let longest = self.copies.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
        let long = self.copies.iter().filter(|(bytes, _)| *bytes * 2 > longest);
        let bandwidth = long.map(|(bytes, ns)| bytes * 1_000_000_000 / ns.max(&1)).min();
        let bandwidth = bandwidth.unwrap_or(0).max(1);
        let set_ups = self.copies.iter().map(|copy| without_transfer(*copy, bandwidth));
        Some((bandwidth, set_ups.max().unwrap_or(0)))
    }

    /// The bandwidth of the DMA engine, bytes/s: what the quickest chunks of the greatest size take
    /// more than those of the least size. A chunk's start and interrupt take about as long as its
    /// transfer, so that bytes by time would count them twice. None if all chunks have one size, or
    /// longer ones take no longer.
    fn engine_bandwidth(&self) -> Option<u64> {
        let sizes = || self.transfers.iter().map(|(bytes, _)| *bytes);
        let [short, long] = [sizes().min()?, sizes().max()?];
        let quickest = |size| {
            let its = self.transfers.iter().filter(|(bytes, _)| *bytes == size);
            its.map(|(_, ns)| *ns).min()
        };
        let more = quickest(long)?.checked_sub(quickest(short)?).filter(|more| *more > 0)?;
        let rate = u128::from(long - short) * 1_000_000_000 / u128::from(more);
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    }

    /// The greatest time of a hypercall that does nothing more, in ns; 0 if none was seen.
    #[must_use]
    pub fn longest_hypercall(&self) -> u64 {
        self.spread(Phase::Hc).max
    }

    /// Returns bytes and ns of each chunk that the DMA engine moved, from the call that starts the
    /// engine to the end of the broker's handling of its interrupt.
    #[must_use]
    pub fn transfers(&self) -> &[(u64, u64)] {
        &self.transfers
    }

    /// What the chunks of the DMA engine take without their transfer, as far as the bandwidth is
    /// known.
    fn interrupts(&self) -> Spread {
        let bandwidth = self.engine_bandwidth();
        let time = |transfer: &(u64, u64)| match bandwidth {
            Some(bandwidth) => without_transfer(*transfer, bandwidth),
            None => transfer.1,
        };
        let mut times: Vec<_> = self.transfers.iter().map(time).collect();
        times.sort_unstable();
        Spread::of(&times)
    }

    /// Returns the reason for which the analysis cannot use these overheads, if there is one.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        // The analysis uses the shortest tail only: a longer one than recorded is no fault.
        self.unfit_of(self.steps().filter(|phase| *phase != Phase::Tail))
    }

    /// Returns the reason for which they cannot be those of a larger system, if there is one. Only
    /// the steps that search flows or VMs matter.
    #[must_use]
    pub fn unfit_as_larger(&self) -> Option<String> {
        self.unfit_of(SEARCHING.into_iter())
    }

    fn unfit_of(&self, used: impl Iterator<Item = Phase>) -> Option<String> {
        if self.shared {
            let text = "the broker shares its core in this run, so the phases contain time slices \
                        of VMs: measure the flows in a system in which the broker has its own core";
            return Some(text.to_owned());
        }
        let open = used.filter(|phase| self.is_open(*phase));
        let open: Vec<_> = open.map(Phase::name).collect();
        (!open.is_empty()).then(|| {
            format!(
                "the maximum of {} is {} ns or more, the most that a trace records: an overhead \
                 must be an upper limit; measure flows with senders and receivers that keep their \
                 periods",
                open.join(", "),
                self.longest
            )
        })
    }

    /// Whether a phase took longer than a record can hold, perhaps.
    fn is_open(&self, phase: Phase) -> bool {
        self.spread(phase).max >= self.longest
    }

    /// A time as the table shows it.
    fn shown(&self, ns: u64) -> String {
        if ns >= self.longest { format!("{ns} or more") } else { ns.to_string() }
    }

    /// Returns the overheads as a TOML table, times in ns. `copy` is the set-up of a chunk's copy,
    /// its program included; `ip` leaves out the transfer if its bandwidth is known.
    #[must_use]
    pub fn to_toml(&self, table: &OverheadsToml<'_>) -> String {
        let OverheadsToml { name, origin, larger } = *table;
        let unit = if self.counted { "1 ns is 1 instruction" } else { "of the board's clock" };
        let mut text = format!(
            "# Measured by weir on {} packets, in ns ({unit}): the command is in `origin`.\n\
             [{name}]\n",
            self.packets
        );
        let quoted = |key: &str, value: &String| format!("{key} = {value:?}");
        let command = Some(quoted("command", &origin.command));
        let build = origin.build.as_ref().map(|build| quoted("build", build));
        let date = origin.date.as_ref().map(|date| quoted("date", date));
        let machine = origin.machine.as_ref().map(|machine| quoted("machine", machine));
        let origin: Vec<_> = [command, build, date, machine].into_iter().flatten().collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "origin = {{ {} }}", origin.join(", "));
        let copy = self.copy();
        for phase in self.steps() {
            let Spread { min, max, .. } = match (phase, copy) {
                (Phase::Copy, Some((_, set_up))) => {
                    let program = self.spread(Phase::Pd);
                    Spread { max: program.max + set_up, ..program }
                }
                (Phase::Ip, _) => self.interrupts(),
                _ => self.spread(phase),
            };
            let _ = writeln!(text, "{} = {{ min = {min}, max = {max} }}", phase.name());
        }
        let [flows, vms] = self.size;
        let _ = writeln!(text, "flows = {flows}\nvms = {vms}");
        if let Some(larger) = larger {
            let [flows, vms] = larger.size;
            let most =
                SEARCHING.map(|phase| format!("{} = {}", phase.name(), larger.spread(phase).max));
            let most = most.join(", ");
            let _ = writeln!(text, "larger = {{ flows = {flows}, vms = {vms}, {most} }}");
        }
        let rates = [
            ("copy_bandwidth", copy.map(|(bandwidth, _)| bandwidth)),
            ("engine_bandwidth", self.engine_bandwidth()),
        ];
        for (key, rate) in rates {
            if let Some(rate) = rate {
                let _ = writeln!(text, "{key} = \"{rate}B/s\"");
            }
        }
        text
    }

    /// Returns the overheads as a JSON result has them.
    #[must_use]
    pub fn record(&self) -> OverheadsRecord {
        let phases = Phase::ALL.map(|phase| {
            let spread = self.spread(phase);
            PhaseRecord {
                name: phase.name().to_owned(),
                action: phase.action().to_owned(),
                count: self.phases.get(&phase).map_or(0, Vec::len),
                ns: spread,
                max_or_more: self.is_open(phase),
                instructions: self.counted.then_some(spread),
            }
        });
        let copy = self.copy();
        let has_engine = !self.transfers.is_empty();
        OverheadsRecord {
            packets: self.packets,
            records_lost: self.lost,
            phases: phases.into(),
            copy_bandwidth: copy.map(|(bandwidth, _)| bandwidth),
            copy_set_up_ns: copy.map(|(_, set_up)| set_up),
            engine_bandwidth: self.engine_bandwidth(),
            engine_set_up_ns: has_engine.then(|| self.interrupts().max),
        }
    }
}

impl fmt::Display for MeasuredOverheads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.counted { "ns = instructions" } else { "ns" };
        let header = ["", unit, "times", "min", "avg", "median", "max"];
        let mut rows = table(header.map(str::to_owned));
        for phase in Phase::ALL {
            let count = self.phases.get(&phase).map_or(0, Vec::len).to_string();
            let mut row = vec![phase.name().to_owned(), phase.action().to_owned(), count];
            row.extend(self.spread(phase).row().map(|ns| self.shown(ns)));
            rows.add_row(row);
        }
        writeln!(f, "{rows}")?;
        write!(f, "{} packets", self.packets)?;
        if let Some((bandwidth, set_up)) = self.copy() {
            write!(f, "; copies at {bandwidth} B/s and {set_up} ns more")?;
        }
        if !self.transfers.is_empty() {
            let set_up = self.interrupts().max;
            match self.engine_bandwidth() {
                Some(rate) => write!(f, "; the DMA engine at {rate} B/s and {set_up} ns more")?,
                None => write!(f, "; the DMA engine in {set_up} ns at most")?,
            }
        }
        writeln!(f)?;
        if let Some(why) = self.unfit() {
            writeln!(f, "{why}")?;
        }
        if self.lost > 0 {
            writeln!(f, "{} records were lost: the greatest may be among them", self.lost)?;
        }
        Ok(())
    }
}

/// Returns where the overheads of a run come from.
fn origin(run: &RunFacts) -> Origin {
    let platform = run.command.windows(2).find(|pair| pair[0] == "--platform");
    let platform = platform.map_or_else(String::new, |pair| format!(" {}", pair.join(" ")));
    let system = run.system.as_deref().unwrap_or("?");
    let day = |time: &String| time.split('T').next().unwrap_or_default().to_owned();
    let emulator = run.qemu.as_ref().map(|text| {
        // QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)
        let version = text.strip_prefix("QEMU emulator version ").unwrap_or(text);
        format!("QEMU {}", version.split(' ').next().unwrap_or(version))
    });
    let board = || run.serial.as_ref().map(|line| format!("board at {line}"));
    Origin {
        command: format!("weir run {system}{platform}"),
        build: run.hypervisor_build.clone(),
        date: run.started.as_ref().map(day),
        machine: emulator.or_else(board),
    }
}

/// Reads the overheads of a run, which is named by its directory or its trace, and their origin.
///
/// # Errors
///
/// The trace cannot be read or is damaged, or no packet has arrived.
pub fn measured(path: &Path) -> Result<(MeasuredOverheads, Origin)> {
    let mut trace = Trace::open(path)?;
    let directory = if path.is_dir() { Some(path) } else { path.parent() };
    // A trace alone, without what else its run left, is of unknown time.
    let run = directory.and_then(RunFacts::read).unwrap_or_default();
    let overheads = MeasuredOverheads::of(&mut trace, run.qemu.is_some())?;
    Ok((overheads, origin(&run)))
}

#[cfg(test)]
mod tests;
