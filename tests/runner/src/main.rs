//! `./weir test`: runs weir's tests in stages and reports them.

mod boards;
mod cargo;
#[path = "../../checkout.rs"]
mod checkout;
mod coverage;
mod idle;
mod junit;
mod layers;
mod libtest;
mod losses;
mod names;
mod pool;
mod process;
#[path = "../../programs.rs"]
mod programs;
mod progress;
mod python;
mod report;
mod stages;

use cargo::Cargo;
use clap::{Parser, ValueEnum};
use report::StageReport;
use std::{
    env, fs,
    io::{self, Write as _},
    num::NonZero,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

/// Exit status after a signal that ended the run: that of a shell after Ctrl-C.
const INTERRUPTED: u8 = 130;
/// Exit status of a wrong call.
const CALL: u8 = 2;
/// Exit status if the machine is incomplete.
const ENVIRONMENT: u8 = 3;

/// Runs weir's tests. Without a STAGE, all stages but `parts` run, in the order below.
#[derive(Debug, Parser)]
#[command(
    bin_name = "./weir test",
    after_help = "Examples:\n  ./weir test clippy unit\n  \
        ./weir test unit --package weir-vsock\n  \
        ./weir test qemu --only share_a_device\n  \
        ./weir test qemu --platform qemu-virt,zcu102 --table boards.md\n  \
        ./weir test qemu --only qemu_attacks --losses docs/results/attacks.json\n\n\
        The last line counts tests; a stage without cargo's tests counts as one. build/test keeps \
        the log of each stage and junit.xml. A test of the stage qemu is a process of its own; \
        one with a name that ends in `_in_host_time` runs while no other does.\n\n\
        Exit status: 0 nothing failed, 1 something failed, 2 wrong call, 3 the environment lacks \
        something, 130 interrupted."
)]
struct Arguments {
    /// Stages to run
    #[arg(value_enum, value_name = "STAGE")]
    stages: Vec<Stage>,
    /// Of the stages unit and qemu, runs only the tests with TEXT in their names
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// In the stages unit and qemu, builds and runs only the tests of this package, such as
    /// weir-vsock; several times for several packages
    #[arg(long, short, value_name = "NAME")]
    package: Vec<String>,
    /// Test processes at a time in the stage qemu [default: the number of cores, and one more
    /// while a core is idle]
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<NonZero<usize>>,
    /// In the stage qemu, runs systems of qemu-virt on these boards instead, one after the other
    #[arg(long, value_name = "BOARD", value_delimiter = ',')]
    platform: Vec<String>,
    /// Writes the results of the stage qemu by board to FILE
    #[arg(long, value_name = "FILE", requires = "platform")]
    table: Option<PathBuf>,
    /// Writes what the victims of the attack tests lost to FILE, as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "platform")]
    losses: Option<PathBuf>,
    /// Kills a test process that takes longer
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = humantime::parse_duration)]
    time_limit: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// rustfmt changes nothing, and no test's name is too long
    Format,
    /// No lint in host and bare-metal code
    Clippy,
    /// The documentation of every crate builds without a warning
    Doc,
    /// Unit, property and documentation tests on the host
    Unit,
    /// Integration tests, most of them of whole systems in QEMU
    Qemu,
    /// The Python package: types, tests, and notebooks
    Python,
    /// The hypervisor with each optional part alone links; no lint in the clock for AArch64. Only
    /// if it is named, such as each night
    Parts,
}

impl Stage {
    /// The stages of a run that names none.
    const USUAL: [Self; 6] =
        [Self::Format, Self::Clippy, Self::Doc, Self::Unit, Self::Qemu, Self::Python];

    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Clippy => "clippy",
            Self::Doc => "doc",
            Self::Unit => "unit",
            Self::Qemu => "qemu",
            Self::Python => "python",
            Self::Parts => "parts",
        }
    }
}

/// The common state of all stages.
struct Context {
    cargo: Cargo,
    /// The checkout.
    root: PathBuf,
    /// Folder of the logs.
    logs: PathBuf,
    only: Option<String>,
    packages: Vec<String>,
    jobs: usize,
    /// One more test process runs while a core is idle.
    fills_idle_cores: bool,
    /// The boards of the stage qemu; none means the systems' own.
    boards: Vec<String>,
    /// Where the table of the boards goes.
    table: Option<PathBuf>,
    /// Where the losses by attacks go.
    losses: Option<PathBuf>,
    time_limit: Duration,
}

impl Context {
    fn log(&self, stage: Stage) -> PathBuf {
        self.logs.join(stage.name()).with_extension("log")
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("weir: {error}");
            ExitCode::from(ENVIRONMENT)
        }
    }
}

fn run(arguments: Arguments) -> io::Result<ExitCode> {
    process::watch_signals()?;
    let root = env::var_os("WEIR_ROOT").map_or_else(checkout::root, PathBuf::from);
    let logs = root.join("build/test");
    fs::create_dir_all(&logs)?;
    let cargo = Cargo::from_environment(&root)?;
    let cores = thread::available_parallelism().map_or(2, NonZero::get);
    let context = Context {
        cargo,
        root,
        logs,
        only: arguments.only,
        packages: arguments.package,
        jobs: arguments.jobs.map_or(cores, NonZero::get),
        fills_idle_cores: arguments.jobs.is_none(),
        boards: arguments.platform,
        table: arguments.table,
        losses: arguments.losses,
        time_limit: arguments.time_limit,
    };
    let chosen = if arguments.stages.is_empty() { Stage::USUAL.to_vec() } else { arguments.stages };
    let mut reports = Vec::new();
    for stage in chosen {
        if progress::is_visible() {
            progress::show(stage.name(), "");
        } else {
            print!("{:<7} ", stage.name());
            io::stdout().flush()?;
        }
        let report = stages::run(stage, &context)?;
        if progress::is_visible() {
            progress::clear();
            print!("{:<7} ", stage.name());
        }
        println!("{}", report.line());
        if report.failed() > 0 {
            print!("{}", report::indented(&report.details(&context.log(stage))));
        }
        reports.push(report);
        if process::interrupted() {
            break;
        }
    }
    finish(&reports, &context.logs)
}

/// Prints what concerns all stages and writes the JUnit file.
fn finish(reports: &[StageReport], logs: &Path) -> io::Result<ExitCode> {
    fs::write(logs.join("junit.xml"), junit::document(reports))?;
    print!("{}", report::slowest(reports));
    let passed: usize = reports.iter().map(StageReport::passed).sum();
    let failed: usize = reports.iter().map(StageReport::failed).sum();
    if process::interrupted() {
        println!("{passed} passed, {failed} failed, then interrupted");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    println!("{passed} passed, {failed} failed");
    if reports.iter().all(|report| report.cases.is_empty()) {
        eprintln!("weir: no test's name contains the text of --only");
        return Ok(ExitCode::from(CALL));
    }
    Ok(ExitCode::from(u8::from(failed > 0)))
}
