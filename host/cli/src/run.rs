//! `weir run`: runs a system in QEMU or on a board, prints its consoles, and reports at the end.

use crate::{
    analyze, build, build_id,
    console::Screen,
    environment::Environment,
    failure::{Context, Failure, GOOD, Result},
    output, screen,
};
use std::{
    ffi::OsString,
    fs,
    io::{self, Write, stdout},
    path::PathBuf,
    time::Duration,
};
use weir_analysis::{
    flows::Effort,
    system::{OtherVms, bounds, overhead_sources, times},
    verdict::Verdict,
};
use weir_image::Format;
use weir_model::{System, platform::Machine, timing::OverheadTable};
use weir_report::trace;
use weir_runner::{
    BoardLine, ConsoleInput, Loader, Run, RunBounds, RunOptions, SerialLine, show::summary,
    watch_signals,
};
use weir_simulator::MemoryModel;

/// Boots a system in QEMU and shows what its VMs print, each line under the VM's name.
///
/// Ends as soon as every `expect` line of the system file was seen (exit status 0), when the time
/// is over (1 if a line is missing), or when the system has ended. Ctrl-C ends it at any time with
/// the summary (130); a second one at once. Logs and a JSON report are left in `runs/TIME/`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir run examples/demo/demo.toml\n  \
        weir run examples/demo/demo.toml --for 30s --json | jq .verdict\n  \
        weir run examples/demo/demo.toml --attach linux\n  \
        weir run examples/flows-mmio/flows-mmio.toml --memory qemu-virt --accept-not-judged\n  \
        weir run examples/demo/demo.toml --input --keep-running\n  \
        weir run examples/demo/demo.toml --replay runs/2026-01-31T12-00-00Z\n  \
        weir run examples/demo/demo.toml --platform zcu102 --serial /dev/ttyUSB0\n\n\
        Exit status: 0 success, 1 the system failed a check, an expectation or a verdict, 2 \
        wrong call, 3 the environment is incomplete, 130 interrupted.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch on the command line")]
pub struct RunArguments {
    /// The system file.
    pub file: PathBuf,
    #[command(flatten)]
    pub image: build::BuildOptions,
    /// End after this long: of virtual time in QEMU, of the host's time on a board.
    #[arg(long = "for", value_name = "TIME", value_parser = crate::duration::parse, allow_hyphen_values = true)]
    pub time: Option<Duration>,
    /// Print the report as JSON; everything else goes to standard error.
    #[arg(long, conflicts_with = "attach")]
    pub json: bool,
    /// Write the report to this file as well.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Exit with status 0 also where something is not judged because an input is missing.
    #[arg(long)]
    pub accept_not_judged: bool,
    /// Take input from `weir attach`. Virtual time is never ahead of the host's then, and the input
    /// is recorded for --replay. Without input, two runs give the same report and logs, byte for byte.
    #[arg(long)]
    pub input: bool,
    /// The most by which the clocks of two running cores may be apart, 100ns by default: 0ns is the
    /// most exact and the slowest.
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse, conflicts_with = "serial")]
    pub quantum: Option<Duration>,
    /// Charge the time of this board's caches and DRAM to the cores, by the model of `weir
    /// simulate`: a name that `weir simulate run --memory` takes. Otherwise each instruction takes
    /// 1 ns. Bounds, which are for that, are not judged then.
    #[arg(long, value_name = "BOARD", value_parser = memory, conflicts_with = "serial")]
    pub memory: Option<String>,
    /// Connect this terminal to one VM's console; Ctrl-] ends the run. Implies --input.
    #[arg(long, value_name = "VM")]
    pub attach: Option<String>,
    /// Repeat the run in this directory with its recorded input and its limits. A run that was
    /// interrupted is repeated up to its last time.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["input", "attach", "time", "keep_running", "quantum", "memory"])]
    pub replay: Option<PathBuf>,
    /// Continue after every expected line was seen.
    #[arg(long)]
    pub keep_running: bool,
    /// Show what happens to the VMs (starts, faults, refusals) between their lines.
    #[arg(long)]
    pub events: bool,
    /// Show no consoles, only the summary.
    #[arg(long, short)]
    pub quiet: bool,
    /// Listen to the board on this serial line, which the user starts, instead of running QEMU. The
    /// rate is 115200 Bd unless another follows the device. The board must run the image that `weir
    /// build` writes, or that of --image-file.
    #[arg(long, value_name = "DEVICE[:BAUD]", conflicts_with_all = ["input", "replay", "qemu_args"])]
    pub serial: Option<SerialLine>,
    /// With --serial: have the board send its trace whenever the line is free, and to the end
    /// before it powers off: up to 27 s at 115200 Bd. Records that are overwritten before are
    /// counted.
    #[arg(long, requires = "serial")]
    pub trace: bool,
    #[command(flatten)]
    pub load: LoadArguments,
    /// Boot this image, or expect it on the board, instead of building one.
    #[arg(long, value_name = "IMAGE", conflicts_with = "no_build")]
    pub image_file: Option<PathBuf>,
    /// One more argument for QEMU; may be given several times.
    #[arg(long = "qemu-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub qemu_args: Vec<OsString>,
}

/// Returns the name of a board whose memory can be charged to cores.
fn memory(name: &str) -> std::result::Result<String, String> {
    let has_timing =
        |name: &&str| MemoryModel::find(name).is_ok_and(|memory| memory.chip().is_some());
    if MemoryModel::names().any(|known| known == name) && has_timing(&name) {
        return Ok(name.to_owned());
    }
    let names: Vec<_> = MemoryModel::names().filter(has_timing).collect();
    Err(format!(
        "weir has no timing of the caches and DRAM of this board: use {}",
        names.join(", ")
    ))
}

/// How an image gets on a board.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArguments {
    /// With --serial: run this shell command for each image. It has to load $WEIR_IMAGE on the
    /// board and reset it.
    #[arg(long, value_name = "COMMAND", requires = "serial", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    load: Option<String>,
    /// With --load: the format of $WEIR_IMAGE, see `weir build`.
    #[arg(long, value_name = "FORMAT", default_value = "image", value_parser = build::format_of, requires = "load")]
    load_format: Format,
}

impl LoadArguments {
    /// The way to load an image, if there is a command.
    pub fn loader(&self) -> Option<Loader> {
        let format = self.load_format;
        self.load.clone().map(|command| Loader { command, format })
    }
}

/// The board that is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct LineArguments {
    /// Measure the board on this serial line, as `weir run --serial` does, instead of QEMU's
    /// machine.
    #[arg(long, value_name = "DEVICE[:BAUD]", requires = "load")]
    serial: Option<SerialLine>,
    #[command(flatten)]
    load: LoadArguments,
}

impl LineArguments {
    /// The board's line, if it is not QEMU's machine that is measured.
    pub fn line(&self) -> Option<BoardLine> {
        let line = self.serial.clone().zip(self.load.loader());
        line.map(|(serial, loader)| BoardLine { serial, loader })
    }
}

/// Carries the verb out.
pub fn run(arguments: &RunArguments, environment: &Environment) -> Result {
    let inputs = arguments.image.inputs(&arguments.file).chain(arguments.image_file.as_deref());
    output::check(arguments.output.as_deref(), inputs)?;
    let interrupt = watch_signals()?;
    // An image that was built before is the board's.
    let on_board = arguments.serial.is_some() || arguments.image_file.is_some();
    let machine = if on_board { Machine::Board } else { Machine::Qemu };
    let system =
        build::checked(&arguments.file, &arguments.image, machine, arguments.json, environment)?;
    let options = RunOptions {
        no_build: arguments.image.no_build,
        all_parts: arguments.image.all_parts,
        time: arguments.time,
        quantum: arguments.quantum,
        memory: arguments.memory.clone(),
        input: input(arguments, environment)?,
        accept_not_judged: arguments.accept_not_judged,
        keep_running: arguments.keep_running || arguments.attach.is_some(),
        image_file: arguments.image_file.clone(),
        qemu_args: arguments.qemu_args.clone(),
        serial: arguments.serial.clone(),
        serial_trace: arguments.trace,
        loader: arguments.load.loader(),
        interrupt,
        ..options(&system, environment)
    };
    let mut console = Screen::new(messages(arguments.json), &system)
        .with_events(arguments.events)
        .with_lines(!arguments.quiet && arguments.attach.is_none())
        .with_attached(arguments.attach.as_deref())?;
    let outcome = weir_runner::run(&system, &options, &mut console)?;
    drop(console);
    let json = format!("{:#}\n", outcome.report.json());
    if let Some(path) = &arguments.output {
        fs::write(path, &json).context(|| format!("write {}", path.display()))?;
    }
    let shown = render(&outcome, &system.tables, arguments.json.then_some(&json));
    // A reader that has gone away takes nothing from the verdict.
    if let Err(error) = shown
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(error.into());
    }
    match (outcome.status, outcome.trouble) {
        (GOOD, _) => Ok(()),
        (status, trouble) => Err(Failure { status, text: trouble.unwrap_or_default() }),
    }
}

/// Returns the input of the consoles.
fn input(arguments: &RunArguments, environment: &Environment) -> Result<ConsoleInput> {
    if let Some(run) = &arguments.replay {
        return Ok(ConsoleInput::Replay(trace::find(run, &environment.runs())?));
    }
    let takes_input = arguments.input || arguments.attach.is_some();
    Ok(if takes_input { ConsoleInput::Live } else { ConsoleInput::None })
}

/// Returns the options of a run of `system` with its bounds, and nothing else asked for.
pub fn options(system: &System, environment: &Environment) -> RunOptions {
    RunOptions {
        bounds: run_bounds(system),
        overheads: overhead_sources(&system.tables, build_id::of_checkout()),
        ..RunOptions::new(environment.clone())
    }
}

/// Where lines for a person go.
pub fn messages(stdout_is_taken: bool) -> Box<dyn Write> {
    if stdout_is_taken { Box::new(screen::stderr()) } else { Box::new(screen::shared_stdout()) }
}

/// Returns what the analysis bounds of `system`. What it cannot judge has no bound.
fn run_bounds(system: &System) -> RunBounds {
    let flows = || bounds(system, OtherVms::Active, Effort::default()).of;
    let time = times(system).unwrap_or_default();
    let tasks = time.tasks.into_iter().filter(|task| task.verdict != Verdict::NotJudged);
    let lines = time.interrupts.into_iter().filter(|line| line.verdict != Verdict::NotJudged);
    RunBounds {
        flows: if system.has_flows() { flows() } else { Vec::new() },
        tasks: tasks.filter_map(|of| Some(((of.vm, of.name), of.response_ns?))).collect(),
        interrupts: lines.filter_map(|of| Some(((of.vm, of.interrupt), of.wait_ns?))).collect(),
    }
}

/// Prints the summary, and before it the report where standard output takes it.
fn render(outcome: &Run, overheads: &[OverheadTable], json: Option<&String>) -> io::Result<()> {
    if let Some(json) = json {
        stdout().write_all(json.as_bytes())?;
    }
    let mut out = messages(json.is_some());
    write!(out, "\n{}", weir_report::fitted(&summary(&outcome.report)))?;
    if !outcome.report.flows.is_empty() {
        let build = build_id::of_checkout();
        let lines = analyze::render::overheads(&overhead_sources(overheads, build), build);
        write!(out, "{lines}")?;
    }
    if let Some(trace) = outcome.trace.filter(|trace| trace.lost > 0) {
        let of = trace.records.saturating_add(trace.lost);
        writeln!(
            out,
            "trace: {} of {of} records were overwritten before they were read",
            trace.lost
        )?;
    }
    writeln!(out, "logs and report: {}", outcome.directory.display())?;
    out.flush()
}
