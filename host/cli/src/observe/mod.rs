//! `weir observe`: a system in QEMU with every access to memory sent through a model of caches and DRAM banks.

pub mod picture;
pub mod plugin;
mod record;
mod symbols;
mod tell;

pub use plugin::plugin_arguments;

use crate::{
    build,
    cargo::Programs,
    environment::Environment,
    failure::{Context, Failure, GOOD, Result, SYSTEM},
    image, output,
    run::{self, report::End},
    screen,
};
use plugin::Watch;
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};
use weir_model::System;
use weir_qemu_plugin::caches::{Observed, Record, Shape};

/// L1 data cache of a Cortex-A53 in its usual configuration, the one that QEMU's `cortex-a53` reports (Cortex-A53 TRM, DDI 0500,
/// 2.1.4 and 6.1).
const L1D: Shape = Shape { size: 32 << 10, ways: 4, line: 64 };
/// Its L1 instruction cache.
const L1I: Shape = Shape { size: 32 << 10, ways: 2, line: 64 };
/// Bytes of a row of a DRAM bank: 1024 columns of 64 bits, as on DIMMs of DDR4 x8 devices (JESD79-4, 2.7).
const ROW: u64 = 8 << 10;

/// Where the plug-in leaves recordings.
const RECORDINGS: &str = "recordings";
/// What the plug-in is told before the run, and in the end.
const CACHES: &str = "caches.json";
const UNTIL: &str = "until";

/// Boots a system in QEMU and tells who evicted whose cache lines and who closed whose DRAM rows.
///
/// Each load, store and fetch goes through a model of private L1s, the platform's shared cache and its DRAM banks. Runs
/// under instruction counting, slower than `weir run`, and two runs give the same figures. Ends like
/// `weir run --deterministic`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir observe examples/isolation-colors-on/isolation-colors-on.toml\n  weir observe examples/demo/demo.toml --for 2s --json\n  weir observe examples/demo/demo.toml --output demo.svg\n  weir observe my.toml --record traces\n\nExit status: 0 good, 1 the system is at fault, 2 the call is, 3 the environment is, 130 interrupted."
)]
pub struct Arguments {
    /// The system file.
    file: PathBuf,
    #[command(flatten)]
    image: build::Options,
    /// End after this long, in virtual time.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration, allow_hyphen_values = true)]
    time: Option<Duration>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Draw the two matrices here.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Record what VMs read and write: of each that does anything a file NAME.trace in this directory, which `weir simulate` replays as
    /// workload = { kind = "trace", file = "NAME.trace" }.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Accesses of each VM that are recorded, the first ones; how many more there were is said.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, requires = "record",
        value_parser = clap::value_parser!(u64).range(1..))]
    record_most: u64,
    /// Go on when every expected line was seen.
    #[arg(long)]
    keep_running: bool,
    /// Show no consoles.
    #[arg(long, short)]
    quiet: bool,
    /// One more argument for QEMU; may be given several times.
    #[arg(long = "qemu-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    qemu_args: Vec<OsString>,
}

/// What was seen of a system.
pub struct Outcome {
    /// The system.
    pub system: System,
    /// What was counted.
    pub seen: Observed,
    /// The run.
    pub run: run::Outcome,
    /// What was recorded.
    traces: Vec<record::Trace>,
    /// The functions of the hypervisor.
    symbols: symbols::Symbols,
}

impl Outcome {
    /// As data.
    pub fn json(&self) -> Value {
        tell::json(self)
    }
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    if let Some(path) = &arguments.output {
        output::check("--output", path, &arguments.image.inputs(&arguments.file))?;
    }
    let wanted = run::Arguments {
        image: arguments.image.clone(),
        time: arguments.time,
        keep_running: arguments.keep_running,
        quiet: arguments.quiet || arguments.json,
        qemu_args: arguments.qemu_args.clone(),
        ..run::Arguments::of(arguments.file.clone())
    };
    let recorded = arguments.record.as_deref().map(|to| (to, arguments.record_most));
    let outcome = observe(wanted, arguments.json, recorded, environment)?;
    if let Some(path) = &arguments.output {
        fs::write(path, picture::svg(&outcome)).context(|| format!("write {}", path.display()))?;
    }
    let mut out = screen::stdout();
    if arguments.json {
        writeln!(out, "{:#}", outcome.json())?;
    } else {
        writeln!(out, "\n{}", run::show::summary(&outcome.run.report))?;
        writeln!(out, "{}", tell::report(&outcome))?;
        write!(out, "{}", record::tell(&outcome.traces))?;
        writeln!(out, "logs and report: {}", outcome.run.directory.display())?;
    }
    let trouble = outcome.run.trouble.unwrap_or_default();
    match outcome.run.status {
        GOOD | SYSTEM if !outcome.seen.started => {
            let lines = [trouble.as_str(), tell::NOTHING];
            let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
            Err(Failure::system(lines.join("\n")))
        }
        GOOD => Ok(()),
        status => Err(Failure { status, text: trouble }),
    }
}

/// Builds a system to be observed, runs it deterministically with the plug-in, and gives what it saw. The run may have missed what it
/// expected. With a directory and a count it also records as many accesses of each VM there.
pub fn observe(
    arguments: run::Arguments,
    json: bool,
    record: Option<(&Path, u64)>,
    environment: &Environment,
) -> Result<Outcome> {
    record.map_or(Ok(()), |(to, _)| record::check(to))?;
    let mut system = build::checked(&arguments.file, &arguments.image, json, environment)?;
    record.map_or(Ok(()), |(to, _)| output::check_name("--record", to))?;
    system.hypervisor.observed = true;
    run::count(&mut system, arguments.time, arguments.unsliced);
    let scratch = tempfile::tempdir().context(|| "make a directory")?;
    let file = |name: &str| scratch.path().join(name);
    let no_build = arguments.image.no_build;
    let options = image::Options { environment: environment.clone(), no_build };
    let built = image::build(&system, &options)?;
    let out = Some(file("seen.json"));
    let told = record.map(|(_, most)| Record { most, into: file(RECORDINGS) });
    let offsets = record.map_or(Vec::new(), |_| record::offsets(&system, &built.packed.placement));
    let watch = Watch::new(&system, Some(&built.packed), out, no_build, environment)?;
    fs::write(file("system.img"), built.bytes).context(|| "write the image")?;
    let run = run::perform(
        &run::Arguments {
            deterministic: true,
            watch: Some(watch.with_record(told)),
            image_file: Some(file("system.img")),
            ..arguments
        },
        environment,
    )?;
    match Observed::read(&file("seen.json")) {
        Ok(seen) => {
            let recordings = file(RECORDINGS);
            let traces = record.map_or(Ok(Vec::new()), |(to, _)| {
                record::write(&system, &offsets, &seen.recorded, &recordings, to)
            })?;
            let gic_v2 = system.platform.is_gic_v2();
            let elf = Programs::new(environment, true).hypervisor(environment, gic_v2)?;
            Ok(Outcome { system, seen, run, traces, symbols: symbols::Symbols::read(&elf) })
        }
        Err(error) => {
            let log = run.directory.join("qemu.log");
            let said = fs::read_to_string(&log).unwrap_or_default();
            let said = said.lines().find_map(|line| line.strip_prefix("weir-qemu-plugin: "));
            if said.is_none()
                && run.report.ended_by == End::MachineGone
                && let Some(trouble) = run.trouble
            {
                let text = format!("{trouble}\nwhat the plug-in had seen went with it");
                return Err(Failure { status: run.status, text });
            }
            let why = said.map_or_else(|| format!("{error}; see {}", log.display()), str::to_owned);
            Err(Failure::environment(format!("the plug-in saw nothing: {why}")))
        }
    }
}
