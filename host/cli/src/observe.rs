//! `weir observe`: a system in QEMU with every access to memory sent through a model of caches and
//! DRAM banks.

use crate::{
    build,
    console::Screen,
    environment::Environment,
    failure::{Context, Failure, GOOD, Result, SYSTEM},
    output,
    run::{messages, options},
    screen,
};
use std::{ffi::OsString, fs, io::Write as _, path::PathBuf, time::Duration};
use weir_model::platform::Machine;
use weir_runner::{
    RunOptions,
    observe::{NOTHING, observe, render, render_traces, svg},
    show::summary,
    watch_signals,
};

/// Boots a system in QEMU and counts, per pair of VMs, evicted cache lines and closed DRAM rows.
///
/// Each load, store and fetch goes through a model of private L1s, the platform's shared cache and
/// its DRAM banks. Runs by the emulated clock, slower than `weir run`, and two runs give the
/// same figures. Ends like `weir run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir observe examples/isolation-colors-on/isolation-colors-on.toml\n  \
        weir observe examples/demo/demo.toml --for 2s --json\n  \
        weir observe examples/demo/demo.toml --output demo.svg\n  \
        weir observe my.toml --record traces\n\n\
        Exit status: 0 success, 1 the system failed a check, an expectation or a verdict, 2 \
        wrong call, 3 the environment is incomplete, 130 interrupted.")]
pub struct ObserveArguments {
    /// The system file.
    file: PathBuf,
    #[command(flatten)]
    image: build::BuildOptions,
    /// End after this long, in virtual time.
    #[arg(long = "for", value_name = "TIME", value_parser = crate::duration::parse, allow_hyphen_values = true)]
    time: Option<Duration>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Draw the two matrices here.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Record what VMs read and write: of each that does anything a file NAME.trace in this
    /// directory, which `weir simulate` replays as workload = { kind = "trace", file = "NAME.trace"
    /// }.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// The most accesses to record of each VM. The summary reports how many more there were.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, requires = "record",
        value_parser = clap::value_parser!(u64).range(1..))]
    record_most: u64,
    /// Continue after every expected line was seen.
    #[arg(long)]
    keep_running: bool,
    /// Show no consoles.
    #[arg(long, short)]
    quiet: bool,
    /// One more argument for QEMU; may be given several times.
    #[arg(long = "qemu-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    qemu_args: Vec<OsString>,
}

/// Carries the verb out.
pub fn run(arguments: &ObserveArguments, environment: &Environment) -> Result {
    output::check(arguments.output.as_deref(), arguments.image.inputs(&arguments.file))?;
    let interrupt = watch_signals()?;
    let ObserveArguments { file, image, json, .. } = arguments;
    let system = build::checked(file, image, Machine::Qemu, *json, environment)?;
    let options = RunOptions {
        no_build: arguments.image.no_build,
        all_parts: arguments.image.all_parts,
        time: arguments.time,
        keep_running: arguments.keep_running,
        qemu_args: arguments.qemu_args.clone(),
        interrupt,
        ..options(&system, environment)
    };
    let recorded = arguments.record.as_deref().map(|to| (to, arguments.record_most));
    let mut console =
        Screen::new(messages(false), &system).with_lines(!arguments.quiet && !arguments.json);
    let outcome = observe(&system, &options, recorded, &mut console)?;
    drop(console);
    if let Some(path) = &arguments.output {
        fs::write(path, svg(&outcome)).context(|| format!("write {}", path.display()))?;
    }
    let mut out = screen::stdout();
    if arguments.json {
        writeln!(out, "{:#}", weir_report::versioned(outcome.record()))?;
    } else {
        write!(out, "\n{}", weir_report::fitted(&summary(&outcome.run.report)))?;
        writeln!(out, "{}", render(&outcome))?;
        write!(out, "{}", render_traces(&outcome.traces))?;
        writeln!(out, "logs and report: {}", outcome.run.directory.display())?;
    }
    let trouble = outcome.run.trouble.unwrap_or_default();
    match outcome.run.status {
        GOOD | SYSTEM if !outcome.seen.started => {
            let lines = [trouble.as_str(), NOTHING];
            let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
            Err(Failure::system(lines.join("\n")))
        }
        GOOD => Ok(()),
        status => Err(Failure { status, text: trouble }),
    }
}
