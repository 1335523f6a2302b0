//! What weir measures of a board for its board file: the overhead of each step of a message, a
//! switch between vCPUs, and what the DMA engine takes for a chunk.

use crate::{
    hypervisor::{SWITCH, counted},
    write_changed,
};
use serde_json::{Value, json};
use std::{
    fmt::{self, Write as _},
    fs,
    path::{Path, PathBuf},
};
use weir_image::{
    Environment, Failure, Result, check_on,
    failure::{Context, INTERRUPTED},
    progress::CountBar,
};
use weir_model::{
    System,
    platform::{Machine, Platform},
    timing::Origin,
};
use weir_qemu_plugin::{CountReport, report::Summary};
use weir_report::{
    overheads::{MeasuredOverheads, OverheadsToml, measured},
    table,
    trace::{
        file::{NAME, Trace},
        words,
    },
};
use weir_runner::{BoardLine, RunOptions, SilentConsole, report::End, run, watch_signals};
use weir_units::{Bytes, Nanos};

/// The system in which a core copies, and the one with a flow to several receivers.
const BY_CORE: [&str; 2] = ["flows-overheads", "flows-several"];
/// The cores that they need.
const CORES: usize = 4;
/// The system with many flows, for steps that search flows or VMs.
const LARGER: &str = "flows-mesh";
/// The cores that it needs.
const LARGER_CORES: usize = 6;
/// The system in which the DMA engine moves.
const BY_ENGINE: &str = "flows-engine";
/// Where its data path is named.
const ENGINE: &str = "path = \"dma\"";
/// Chunk sizes. The receiver's buffers have 4 KiB, and no chunk is larger than a buffer.
const CHUNKS: [Bytes; 4] = [Bytes(512), Bytes(1024), Bytes(2048), Bytes(4096)];
/// The system with VMs that share a core.
const SHARED: &str = "shared";

/// What to measure.
#[derive(Clone, Debug)]
pub struct BoardRequest<'a> {
    /// The board's name, or its board file.
    pub platform: &'a str,
    /// Where it is; QEMU's machine for it without a line.
    pub line: Option<&'a BoardLine>,
    /// The checkout and the tools.
    pub environment: &'a Environment,
}

/// What the engine takes for chunks of one size, from the call that starts it to the end of the
/// broker's handling of its interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkTime {
    /// The chunk.
    pub size: Bytes,
    /// The least time.
    pub min: Nanos,
    /// The median.
    pub median: Nanos,
}

impl ChunkTime {
    /// The rate of chunks of this size, by the median of their time with start and interrupt.
    const fn bytes_per_sec(&self) -> u64 {
        let median = if self.median.0 == 0 { 1 } else { self.median.0 };
        self.size.0.saturating_mul(1_000_000_000) / median
    }
}

/// What a switch between vCPUs takes.
#[derive(Clone, Copy, Debug)]
pub enum Switch {
    /// In QEMU: instructions, counted from outside.
    Counted(Summary),
    /// On a board: times in its trace. They begin and end inside EL2, so that the entry and the
    /// exit of an exception are not in them.
    Traced {
        /// The least.
        min: Nanos,
        /// The median.
        median: Nanos,
        /// The greatest.
        max: Nanos,
        /// Entry and exit of an exception.
        entry: Nanos,
        /// Whether `entry` is the board file's. If not, it is the longest hypercall that was seen,
        /// which contains them.
        is_known: bool,
        /// Records of the trace that were lost, with switches in them perhaps.
        lost: u64,
    },
}

impl fmt::Display for Switch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted(Summary { min, median, max, .. }) => {
                write!(out, "{median} instructions, {min} to {max}")
            }
            Self::Traced { min, median, max, entry, is_known, lost } => {
                let origin = if *is_known { "the board file" } else { "the longest hypercall" };
                write!(
                    out,
                    "{median}, {min} to {max} by the trace, and {entry} for entry and exit of the \
                     exception, by {origin}"
                )?;
                if *lost > 0 {
                    write!(out, "; {lost} records of the trace were lost")?;
                }
                Ok(())
            }
        }
    }
}

impl Switch {
    /// Of the times in a trace.
    fn traced(
        mut times: Vec<u64>,
        (known, seen): (Option<Nanos>, Nanos),
        lost: u64,
    ) -> Option<Self> {
        times.sort_unstable();
        let (min, max) = (Nanos(*times.first()?), Nanos(*times.last()?));
        let median = Nanos(*times.get((times.len() - 1) / 2)?);
        let (entry, is_known) = (known.unwrap_or(seen), known.is_some());
        Some(Self::Traced { min, median, max, entry, is_known, lost })
    }

    /// The least time, and the greatest with a tenth more for what the measured system does not do,
    /// such as the restart of a VM with page classes; rounded outward to whole microseconds. In
    /// QEMU at one instruction per nanosecond. A least time below a microsecond stays: it must not
    /// be 0.
    fn limits(&self) -> [Nanos; 2] {
        let (min, max) = match self {
            Self::Counted(Summary { min, max, .. }) => (*min, *max),
            Self::Traced { min, max, entry, .. } => (min.0, max.0 + entry.0),
        };
        let min = if min < 1000 { min.max(1) } else { min / 1000 * 1000 };
        [Nanos(min), Nanos((max + max / 10).div_ceil(1000) * 1000)]
    }
}

/// What was measured.
#[derive(Debug)]
pub struct BoardFigures {
    /// The overhead of each step of a message.
    pub overheads: MeasuredOverheads,
    /// Those in a system of twelve flows, if the board has the cores for it.
    pub larger: Option<MeasuredOverheads>,
    /// How it was measured.
    pub origin: Origin,
    /// A switch between vCPUs, or why it was not measured on this board.
    pub switch: std::result::Result<Switch, String>,
    /// What the DMA engine takes by chunk size; empty without an engine.
    pub chunks: Vec<ChunkTime>,
    /// Whether it was measured in QEMU's machine of a board that exists, too.
    emulated: bool,
    /// Whether it was measured on a board.
    on_board: bool,
}

/// Measures.
///
/// # Errors
///
/// The system is at fault if a run fails or leaves no complete trace, the environment if a part
/// cannot be built or the image cannot be loaded.
pub fn measure(request: &BoardRequest<'_>) -> Result<BoardFigures> {
    if let Some(platform) = Platform::named(request.platform)
        && platform.cores.len() < CORES
    {
        return Err(Failure::call(format!(
            "the systems that are measured need {CORES} cores, and {} has {}",
            platform.name,
            platform.cores.len()
        )));
    }
    let system = request.checked(&request.environment.system(BY_CORE[0])?)?;
    let platform = system.platform();
    let in_qemu = request.line.is_none();
    if in_qemu && platform.qemu.is_none() {
        return Err(Failure::call(format!(
            "QEMU has no machine for {}: measure the board by --serial and --load",
            platform.name
        )));
    }
    let engine = platform.dma_engine.is_some();
    let larger = platform.cores.len() >= LARGER_CORES;
    let chunk_runs = if engine { CHUNKS.len() } else { 0 };
    let runs = BY_CORE.len() + usize::from(engine) + usize::from(larger) + chunk_runs;
    let bar = CountBar::new("running", runs as u64 + 1);

    let named = |name: &str| {
        let figures = request.overheads(&request.environment.system(name)?)?;
        bar.add(1);
        Ok::<_, Failure>(figures)
    };
    let (mut overheads, mut origin) = named(BY_CORE[0])?;
    overheads.merge(named(BY_CORE[1])?.0);
    let mut chunks = Vec::new();
    if engine {
        overheads.merge(named(BY_ENGINE)?.0);
        for size in CHUNKS {
            chunks.push(request.chunk(size)?);
            bar.add(1);
        }
    }
    let larger = if larger { Some(named(LARGER)?.0) } else { None };
    let known = platform.sharing.as_ref().map(|sharing| sharing.entry);
    let seen = Nanos(overheads.longest_hypercall());
    let switch = match request.line {
        None => Ok(request.switch()?),
        // The others' runs need not be repeated for it.
        Some(_) => match request.switch_in_trace((known, seen)) {
            Err(failure) if failure.status == INTERRUPTED => return Err(failure),
            switch => switch.map_err(|failure| failure.text),
        },
    };
    let unfit = overheads.unfit();
    let unfit = unfit.or_else(|| larger.as_ref().and_then(MeasuredOverheads::unfit_as_larger));
    if let Some(why) = unfit {
        return Err(Failure::system(why));
    }
    let line =
        request.line.map_or(String::new(), |line| format!(" --serial {}", line.serial.argument()));
    origin.command = format!("weir bench board --platform {}{line}", request.platform);
    let emulated = in_qemu && !platform.is_emulator();
    let on_board = !in_qemu;
    Ok(BoardFigures { overheads, larger, origin, switch, chunks, emulated, on_board })
}

impl BoardRequest<'_> {
    fn checked(&self, file: &Path) -> Result<System> {
        let machine = if self.line.is_some() { Machine::Board } else { Machine::Qemu };
        check_on(machine, file, Some(self.platform), self.environment)
    }

    /// The directory of changed systems and of the plug-in's report.
    fn directory(&self) -> Result<PathBuf> {
        let directory = self.environment.build().join("board");
        fs::create_dir_all(&directory).context(|| format!("create {}", directory.display()))?;
        Ok(directory)
    }

    /// Runs a system until all its VMs are off, and returns the overheads in its trace.
    fn overheads(&self, file: &Path) -> Result<(MeasuredOverheads, Origin)> {
        let directory = self.run(file)?;
        let failed = |failure: Failure| Self::failed(file, &directory, &failure.text);
        measured(&directory.join(NAME)).map_err(failed)
    }

    fn failed(file: &Path, directory: &Path, why: &str) -> Failure {
        let (file, logs) = (file.display(), directory.display());
        Failure::system(format!("{file}: {why}\nlogs: {logs}"))
    }

    /// Runs a system until all its VMs are off, and returns the run's directory.
    fn run(&self, file: &Path) -> Result<PathBuf> {
        let system = self.checked(file)?;
        let options = RunOptions {
            accept_not_judged: true,
            keep_running: true,
            serial: self.line.map(|line| line.serial.clone()),
            serial_trace: self.line.is_some(),
            loader: self.line.map(|line| line.loader.clone()),
            interrupt: watch_signals()?,
            ..RunOptions::new(self.environment.clone())
        };
        let outcome = run(&system, &options, &mut SilentConsole)?;
        let report = &outcome.report;
        if outcome.status == INTERRUPTED {
            return Err(Failure::reported(INTERRUPTED));
        }
        if report.ended_by != End::SystemStop || report.totals.met < report.totals.expected {
            let why = outcome.trouble.as_deref().unwrap_or("a VM has not done its work");
            return Err(Self::failed(file, &outcome.directory, why));
        }
        Ok(outcome.directory)
    }

    /// What the engine takes for a chunk of `size`.
    fn chunk(&self, size: Bytes) -> Result<ChunkTime> {
        let with_chunk = format!("{ENGINE}\nchunk = \"{}B\"", size.0);
        let changes = [(ENGINE, with_chunk.as_str())];
        let original = self.environment.system(BY_ENGINE)?;
        let file = self.directory()?.join(format!("chunk-{}.toml", size.0));
        write_changed(&original, changes, &file)?;
        let (overheads, _) = self.overheads(&file)?;
        time_of(size, overheads.transfers()).ok_or_else(|| {
            Failure::system(format!("{}: the engine moved no chunk of {size}", file.display()))
        })
    }

    /// Counts the instructions of a switch.
    fn switch(&self) -> Result<Switch> {
        let file = self.environment.system(SHARED)?;
        let report = self.directory()?.join("switch.json");
        counted(&file, Some(self.platform), true, &report, self.environment)?;
        let seen = CountReport::read(&report).context(|| format!("read {}", report.display()))?;
        let path = seen.paths.get(SWITCH).filter(|path| path.n > 0);
        let counted = path.map(|path| Switch::Counted(path.instructions));
        counted.ok_or_else(|| no_switch(&file))
    }

    /// What a switch takes by the board's trace. `entries` are what the trace does not contain: by
    /// the board file, and the most that it can be.
    fn switch_in_trace(&self, entries: (Option<Nanos>, Nanos)) -> Result<Switch> {
        let file = self.environment.system(SHARED)?;
        let directory = self.run(&file)?;
        let mut trace = Trace::open(&directory.join(NAME))?;
        let (facts, mut times) = (trace.facts.clone(), Vec::new());
        while let Some(record) = trace.next_record()? {
            times.extend(words::switch(&record, &facts));
        }
        Switch::traced(times, entries, facts.lost).ok_or_else(|| no_switch(&file))
    }
}

fn no_switch(file: &Path) -> Failure {
    Failure::system(format!("{}: no vCPU got another's core", file.display()))
}

/// The time of the chunks of this size. The greatest is left out: it can contain an interrupt of the
/// broker's core.
fn time_of(size: Bytes, transfers: &[(u64, u64)]) -> Option<ChunkTime> {
    let of_size = transfers.iter().filter(|(bytes, _)| *bytes == size.0);
    let mut times: Vec<_> = of_size.map(|(_, ns)| Nanos(*ns)).collect();
    times.sort_unstable();
    let median = *times.get(times.len() / 2)?;
    Some(ChunkTime { size, min: *times.first()?, median })
}

/// The keys of `[saturation]` for what the engine reaches by chunk size.
fn rates_to_toml(chunks: &[ChunkTime], origin: &Origin) -> String {
    let chunk = |chunk: &ChunkTime| {
        let (size, dma) = (chunk.size.0, chunk.bytes_per_sec());
        format!("    {{ size = \"{size}B\", dma = \"{dma}B/s\" }},\n")
    };
    let chunks: String = chunks.iter().map(chunk).collect();
    let source = source(origin);
    format!(
        "\n[saturation]\nchunks = [\n{chunks}]\n\
         chunks_source = \"{source}; medians, with start and interrupt\"\n"
    )
}

/// The source of values that were measured.
fn source(origin: &Origin) -> String {
    let Origin { command, build, date, .. } = origin;
    let parts = [Some(command), build.as_ref(), date.as_ref()].into_iter().flatten();
    let parts = parts.map(String::as_str).collect::<Vec<_>>().join(", ");
    format!("measured: {parts}")
}

impl BoardFigures {
    /// Whether there are rates of the board's own DMA engine: QEMU's takes the emulator's time.
    #[must_use]
    pub fn has_rates(&self) -> bool {
        self.on_board && !self.chunks.is_empty()
    }

    /// Whether there is a table for a switch with all its keys.
    #[must_use]
    pub const fn has_sharing(&self) -> bool {
        matches!(self.switch, Ok(Switch::Traced { is_known: false, .. }))
    }

    /// The name of the table for a switch.
    #[must_use]
    pub const fn sharing_table(&self) -> &'static str {
        if self.emulated { "emulated.sharing" } else { "sharing" }
    }

    /// Returns the tables of a board file. `[sharing]`, for a switch, and `[saturation]`, for what
    /// the DMA engine reaches by chunk size, have keys that this does not measure: they are among
    /// them only if the file `has` them, except that a board without `[sharing]` gets one with
    /// its other keys derived.
    #[must_use]
    pub fn to_toml(&self, has: impl Fn(&str) -> bool) -> String {
        let name = |table: &str| {
            if self.emulated { format!("emulated.{table}") } else { table.to_owned() }
        };
        let mut text = self.overheads.to_toml(&OverheadsToml {
            name: &name("overheads"),
            origin: &self.origin,
            larger: self.larger.as_ref(),
        });
        if self.has_rates() && has("saturation") {
            text.push_str(&rates_to_toml(&self.chunks, &self.origin));
        }
        let table = self.sharing_table();
        let Ok(switch) = &self.switch else { return text };
        let [min, max] = switch.limits();
        let (source, limits) =
            (source(&self.origin), format!("switch = {{ min = \"{min}\", max = \"{max}\" }}"));
        // Writing to a string does not fail.
        let _ = match switch {
            Switch::Traced { entry, is_known: false, .. } => write!(
                text,
                "\n[{table}]\nsource = \"{source}; `entry` is the longest hypercall, `interrupt` \
                 twice the longest switch\"\n{limits}\ninterrupt = \"{}\"\nentry = \"{entry}\"\n",
                Nanos(2 * max.0)
            ),
            _ if has(table) => {
                write!(text, "\n[{table}]\nsource = \"{source}\"\n{limits}\n")
            }
            _ => Ok(()),
        };
        text
    }

    /// For a program.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let chunk = |chunk: &ChunkTime| {
            let ChunkTime { size, min, median } = chunk;
            json!({ "bytes": size.0, "min_ns": min.0, "median_ns": median.0 })
        };
        let (counted, traced) = match &self.switch {
            Ok(Switch::Counted(instructions)) => (Some(instructions), None),
            Ok(Switch::Traced { min, median, max, entry, lost, .. }) => {
                let (min, median, max) = (min.0, median.0, max.0);
                let traced = json!({
                    "min": min, "median": median, "max": max, "entry": entry.0,
                    "lost_records": lost,
                });
                (None, Some(traced))
            }
            Err(_) => (None, None),
        };
        json!({
            "command": self.origin.command,
            "build": self.origin.build,
            "date": self.origin.date,
            "machine": self.origin.machine,
            "overheads": self.overheads.record(),
            "larger": self.larger.as_ref().map(MeasuredOverheads::record),
            "switch_instructions": counted,
            "switch_ns": traced,
            "chunks": self.chunks.iter().map(chunk).collect::<Vec<_>>(),
        })
    }

    /// For a person.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.overheads.to_string();
        let _ = match &self.switch {
            Ok(switch) => writeln!(text, "switch between vCPUs: {switch}"),
            Err(why) => writeln!(text, "switch between vCPUs: not measured: {why}"),
        };
        if !self.chunks.is_empty() {
            let header = ["chunk of the DMA engine", "min, ns", "median, ns", "MB/s"];
            let mut rows = table(header.map(str::to_owned));
            for chunk in &self.chunks {
                let rate = chunk.bytes_per_sec() / 1_000_000;
                let numbers = [chunk.min.0, chunk.median.0, rate].map(|number| number.to_string());
                rows.add_row([chunk.size.to_string()].into_iter().chain(numbers));
            }
            let _ = writeln!(text, "{rows}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_report::board_file::TableFile;
    use weir_units::BytesPerSec;

    #[test]
    fn a_chunks_time_is_of_its_size() {
        let all = [(4096, 900), (1000, 10), (4096, 700), (4096, 950)];
        let time = ChunkTime { size: Bytes(4096), min: Nanos(700), median: Nanos(900) };
        assert_eq!(time_of(Bytes(4096), &all), Some(time));
        assert_eq!(time_of(Bytes(8192), &all), None);
    }

    #[test]
    fn a_switch_is_rounded_outward_with_its_exception() {
        let traced = |times: &[u64], known: Option<u64>| {
            Switch::traced(times.to_vec(), (known.map(Nanos), Nanos(300)), 3)
        };
        let switch = traced(&[1500, 1200, 1799, 1300], Some(200)).expect("switches");
        assert_eq!(switch.limits(), [Nanos(1000), Nanos(3000)]);
        let text = "1300ns, 1200ns to 1799ns by the trace, and 200ns for entry and exit of the \
                    exception, by the board file; 3 records of the trace were lost";
        assert_eq!(switch.to_string(), text);
        let quick = traced(&[699], None).expect("a switch");
        assert_eq!(quick.limits(), [Nanos(699), Nanos(2000)]);
        assert!(
            quick.to_string().contains("300ns for entry and exit of the exception, by the longest")
        );
        assert!(traced(&[], None).is_none());
    }

    #[test]
    fn rates_by_chunk_size_replace_a_boards() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("board.toml");
        fs::write(&path, include_str!("../../boards/zcu102/board.toml")).expect("a board file");
        let chunk = |size, median| ChunkTime { size, min: Nanos(1), median: Nanos(median) };
        let chunks = [chunk(Bytes(1024), 2048), chunk(Bytes(4096), 4000)];
        let origin = Origin {
            command: "weir bench board --platform zcu102 --serial /dev/ttyUSB0:115200".to_owned(),
            build: Some("4fe9".to_owned()),
            date: Some("2026-11-27".to_owned()),
            machine: None,
        };
        let file = TableFile::read(&path).expect("a table file");
        let text = file.with(&rates_to_toml(&chunks, &origin)).expect("TOML").text;
        fs::write(&path, text).expect("a board file");
        let board = Platform::load(&path).expect("a board");
        let known = board.saturation.expect("[saturation]");
        assert_eq!(
            known.chunks,
            [(Bytes(1024), BytesPerSec(500_000_000)), (Bytes(4096), BytesPerSec(1_024_000_000)),]
        );
        let source = "measured: weir bench board --platform zcu102 --serial /dev/ttyUSB0:115200, \
                      4fe9, 2026-11-27; medians, with start and interrupt";
        assert_eq!(known.chunks_source.as_deref(), Some(source));
        assert!(known.source.is_some_and(|source| source.starts_with("paper:")), "it stays");
    }
}
