//! Runs a system and judges the result.

mod board;
mod console;
mod load;
mod options;
mod outcome;
mod replay;
mod running;
mod setup;

use crate::{
    board as image_board, budgets,
    kept::Traced,
    plugin::Watch,
    qemu::{self, QemuProcess},
    ram::Ram,
    record::{RunRecord, WIRE},
    report::{End, RunReport},
    rings::Rings,
    show,
};
pub use console::{Console, SilentConsole};
pub use options::{ConsoleInput, RunOptions};
use outcome::judge_report;
use replay::Replay;
use running::{LONG_SILENCE, Peer, Running};
pub(crate) use setup::adapted;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};
use weir_image::{
    Failure, Format, Result,
    build_id::of_checkout,
    debian,
    failure::{Context, GOOD, INTERRUPTED},
    needs_plugin,
};
use weir_model::{ImageSource, System};
use weir_report::{
    run::{GuestPackage, RunFacts, TraceSize},
    trace,
};

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// The report.
    pub report: RunReport,
    /// The directory with its logs.
    pub directory: PathBuf,
    /// The exit status of the run, see [`weir_image::failure`].
    pub status: u8,
    /// The errors in addition to missed lines, as text.
    pub trouble: Option<String>,
    /// The records of its trace, if the hypervisor wrote a trace.
    pub trace: Option<Traced>,
}

impl Run {
    /// Returns the run of the system in `file` if its status is good.
    ///
    /// # Errors
    ///
    /// The run is not good: with its errors, or else its summary, and the directory of its logs.
    pub fn good(self, file: &Path) -> Result<Self> {
        if self.status == GOOD {
            return Ok(self);
        }
        let why = self.trouble.unwrap_or_else(|| show::summary(&self.report));
        let logs = self.directory.display();
        let text = format!("{}: {why}\nlogs: {logs}", file.display());
        Err(Failure { status: self.status, text })
    }
}

/// Runs a system in QEMU, or on the board at [`RunOptions::serial`], until its expected lines are
/// printed, the time elapses or the system stops. Logs and reports are written to a new directory,
/// see [`Run::directory`].
///
/// # Errors
///
/// The call is wrong if QEMU has no machine for the platform or a budget would never be spent. The
/// environment is wrong if a part cannot be built or QEMU does not start. A bad result of the run,
/// for example a missed line, is not an error here: see [`Run::status`].
///
/// # Examples
///
/// ```no_run
/// use std::path::Path;
/// use weir_image::{Environment, check};
/// use weir_runner::{RunOptions, SilentConsole, run};
///
/// # fn main() -> weir_image::Result {
/// let environment = Environment::find();
/// let system = check(Path::new("examples/demo/demo.toml"), None, &environment)?;
/// let run = run(&system, &RunOptions::new(environment), &mut SilentConsole)?;
/// println!("{}", serde_json::to_string(&run.report).expect("a report"));
/// # Ok(())
/// # }
/// ```
pub fn run(system: &System, options: &RunOptions, console: &mut dyn Console) -> Result<Run> {
    match &options.serial {
        Some(line) => board::run(system, line, options, console),
        None => run_in_qemu(system, options, console),
    }
}

fn run_in_qemu(system: &System, options: &RunOptions, console: &mut dyn Console) -> Result<Run> {
    let environment = &options.environment;
    let replay = Replay::of(options)?;
    let options = &replay.options;
    let system = match &options.image_file {
        Some(_) => system.clone(),
        None => adapted(system, options),
    };
    let needs_watch = needs_plugin(&system);
    let mut setup = setup::setup(&system, options)?;
    budgets::check_machine(&system)?;
    let qemu = qemu::Program::find(environment, system.platform())?;
    let built = image(&system, options)?;
    replay.compare(&built)?;
    let mut clock = setup::clock(options, &system, environment)?;
    if options.interrupt.load(Ordering::SeqCst) {
        return Err(Failure::reported(INTERRUPTED));
    }

    let record = RunRecord::create(environment, &system)?;
    let kernel = write_image(&record, &built, &system)?;
    let watch = watch(&system, options)?;
    let ram = Arc::new(Ram::new(system.platform().ram_in_qemu(), setup.memory)?);
    let scratch = tempfile::tempdir().context(|| "make a directory")?;
    setup.device_tree = setup::device_tree(system.platform(), scratch.path())?;
    let prepare = |watch: &Watch| {
        let gic_v2 = system.platform().is_gic_v2();
        watch.prepare(scratch.path(), &built, gic_v2, &ram, needs_watch)
    };
    let plugin = watch.as_ref().map(prepare).transpose()?;
    if let Some(plugin) = &plugin {
        setup.extra.splice(0..0, plugin.arguments.iter().map(Into::into));
    }
    let rings = Rings::find(&system, &built, environment);
    let rings = rings.map(|rings| {
        let stops = clock.stop_for_reader(&ram, rings.heads(&ram)?)?;
        Ok((rings, stops))
    });
    replay.give_input(&mut clock, &record)?;
    let command = setup.arguments(kernel.into_os_string(), &ram, clock.argument());
    let log = record.file("qemu.log")?;
    let (started, begun) = (SystemTime::now(), Instant::now());
    let machine = QemuProcess::start(&qemu.path, &command, &ram, clock, log)?;
    let start = |(rings, stops): (Rings, _)| rings.start(ram.clone(), record.directory(), stops);
    let trace = match rings {
        Ok(rings) => Ok(rings.and_then(start)?),
        Err(reason) => Err(reason),
    };
    let mut run = Running::new(options, &system, Peer::Qemu(machine), record, console)?;
    run.session.end_at(replay.end_ns);
    if plugin.is_some() || options.memory.is_some() {
        run.silence = LONG_SILENCE;
    }
    let (end, trouble) = run.carry_on()?;
    let Running { session, mut record, peer, hub, wire_bytes, .. } = run;
    if plugin.is_some() {
        Watch::until(scratch.path(), wire_bytes)?;
    }
    // The machine ends before the clients are notified.
    let status = peer.end();
    hub.close();
    let mut report = session.report(end);
    // A machine that the runner ends continues for a moment, which depends on the host.
    let cut = matches!(end, End::AllMet | End::TimeOver | End::Interrupted);
    let until = cut.then_some(report.time_ns);
    let trace = trace.map(|trace| trace.finish(until, &record.path(trace::file::NAME)));
    let (trace, traced) = match trace {
        Ok(written) => written.map(|written| (Some(written), written.size()))?,
        Err(reason) => (None, TraceSize { absent: Some(reason), ..TraceSize::default() }),
    };
    judge_report(&mut report, options, &system, trace.map(|_| record.path(trace::file::NAME)))?;
    record.finish(&report, &show::summary(&report))?;
    record.write_json(
        "run.json",
        RunFacts {
            overheads: options.overheads.clone(),
            qemu: Some(qemu.version),
            qemu_command: words(std::iter::once(&qemu.path).chain(&command)),
            qemu_status: status.map(|status| status.to_string()),
            image_bytes: Some(built.len() as u64),
            image_crc32: Some(replay::checksum(&built)),
            takes_input: options.input == ConsoleInput::Live,
            limit_ns: options.time.map(nanoseconds),
            keep_running: options.keep_running,
            quantum_ns: options.quantum.map(nanoseconds),
            memory: options.memory.clone(),
            counter_page: plugin.and_then(|plugin| plugin.counts(&ram)),
            debian_packages: debian_packages(&system),
            trace: Some(traced),
            ..facts(&system, started, begun.elapsed())
        },
    )?;
    record.remove("system.img");
    let outcome = outcome::status(&report, options, trouble, status, &record);
    let (status, trouble) = replay.conclude(outcome, &record.path(WIRE))?;
    let directory = record.directory().to_owned();
    Ok(Run { report, directory, status, trouble, trace })
}

/// Returns what watches the machine: what the caller wants, or what the system needs.
fn watch(system: &System, options: &RunOptions) -> Result<Option<Watch>> {
    match &options.watch {
        None if needs_plugin(system) => {
            Watch::new(system, None, None, options.no_build, &options.environment).map(Some)
        }
        watch => Ok(watch.clone()),
    }
}

/// Keeps the image with the run. Returns the file that QEMU takes: an arm64 Image it starts in EL2,
/// an ELF file where the machine starts.
fn write_image(record: &RunRecord, built: &[u8], system: &System) -> Result<PathBuf> {
    record.write_file("system.img", built)?;
    if !system.platform().starts_in_el3 {
        return Ok(record.path("system.img"));
    }
    record.write_file("system.elf", &Format::Elf.wrap(built.to_vec(), system)?)?;
    Ok(record.path("system.elf"))
}

/// Reads or builds the image.
fn image(system: &System, options: &RunOptions) -> Result<Vec<u8>> {
    if let Some(path) = &options.image_file {
        let image =
            weir_model::read_regular(path).context(|| format!("read {}", path.display()))?;
        image_board::check(path, &image, &system.platform().name)?;
        return Ok(image);
    }
    let RunOptions { no_build, all_parts, .. } = *options;
    let environment = options.environment.clone();
    let fixed_seeds = options.serial.is_none();
    let options = weir_image::ImageOptions { environment, no_build, all_parts, fixed_seeds };
    Ok(weir_image::build(system, &options)?.bytes)
}

/// Returns a duration in ns, at most 2^64 - 1.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the words of a command line as text.
fn words(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Vec<String> {
    words.into_iter().map(|word| word.as_ref().to_string_lossy().into_owned()).collect()
}

/// Returns the facts of each run of `system`, which began at this date and took so long.
fn facts(system: &System, started: SystemTime, took: Duration) -> RunFacts {
    RunFacts {
        weir: Some(env!("CARGO_PKG_VERSION").to_owned()),
        hypervisor_build: of_checkout().map(str::to_owned),
        assumed: outcome::assumed(system),
        command: words(std::env::args_os()),
        system: Some(system.path.display().to_string()),
        started: Some(humantime::format_rfc3339_seconds(started).to_string()),
        seconds: Some(took.as_secs_f64()),
        ..RunFacts::default()
    }
}

/// Returns the Debian packages of the guests; none if no guest is made of them.
fn debian_packages(system: &System) -> Option<Vec<GuestPackage>> {
    let named = |vm: &weir_model::Vm| {
        let sources = [Some(vm.image.source()), vm.image.initrd()];
        let guest = matches!(vm.image, weir_model::Image::Elf { .. });
        !guest
            && sources.into_iter().flatten().any(|source| matches!(source, ImageSource::Named(_)))
    };
    let package = |package: &debian::Package| GuestPackage {
        name: package.name.to_owned(),
        version: package.version.to_owned(),
        sha256: package.sha256.to_owned(),
    };
    let packages = || debian::packages().iter().map(package).collect();
    system.vms.iter().any(named).then(packages)
}
