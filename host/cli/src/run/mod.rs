//! `weir run`: a system in QEMU, its consoles side by side, and a report at the end.

mod budgets;
pub mod control;
pub mod demux;
pub mod expect;
pub mod judge;
mod observed;
pub mod qemu;
pub mod ram;
pub mod record;
pub mod report;
pub mod rings;
pub mod session;
pub mod show;
mod standstill;
pub mod statics;
mod syndrome;
#[cfg(test)]
pub mod synthetic;

use crate::{
    analyze::render,
    attach, build, build_id,
    cargo::Programs,
    debian,
    environment::Environment,
    failure::{Context, ENVIRONMENT, Failure, GOOD, INTERRUPTED, Result, SYSTEM},
    image,
    observe::plugin::Watch,
    output, screen,
};
use control::Hub;
use demux::{Source, Step};
use judge::{Clock, Conditions};
use observed::{Observed, Turns};
use qemu::{Heard, Machine, Preload, Setup};
use ram::Ram;
use record::Record;
use report::{End, FlowFacts, Report, VmFacts};
use rings::Rings;
use serde_json::json;
use session::{Plan, Session};
use show::Screen;
use standstill::Standstill;
use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    io::{self, Write, stdout},
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};
use weir_analysis::{
    flows::Effort,
    system::{Cores, bounds, overhead_sources},
    verdict::Verdict,
};
use weir_model::Source as ImageSource;
use weir_model::System;
use weir_model::timing::OverheadTable;
use weir_report::trace::file::Trace;
use weir_units::Nanos;

/// How often to look at the clock and at signals while the wire is quiet.
const LOOK: Duration = Duration::from_millis(20);
/// How long to wait for the last counters.
const LAST_COUNTERS: Duration = Duration::from_secs(1);
/// How long the wire must be quiet before a line without an end is taken for a prompt.
const PROMPT: Duration = Duration::from_millis(100);
/// How long QEMU may take to end once the system has.
const ENDING: Duration = Duration::from_secs(5);
/// How long a machine that counts instructions may be silent before it is given up; its own time limit
/// needs it to speak.
const SILENCE: Duration = Duration::from_secs(120);
/// The same where a plug-in watches each access.
const LONG_SILENCE: Duration = Duration::from_secs(1200);

/// Boots a system in QEMU and shows what its VMs print, each line under the VM's name.
///
/// Ends as soon as every `expect` line of the system file was seen (exit status 0), when the time is
/// over (1 if a line is missing), or when the system has ended. Ctrl-C ends it at any time with the
/// summary (130); a second one at once. Logs and a JSON report are left in `runs/TIME/`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir run examples/demo/demo.toml\n  weir run examples/demo/demo.toml --for 30s --json report.json\n  weir run examples/demo/demo.toml --attach linux\n  weir run examples/demo/demo.toml --deterministic --for 5s\n\nExit status: 0 good, 1 the system is at fault, 2 the call is, 3 the environment is, 130 interrupted."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch on the command line")]
pub struct Arguments {
    /// The system file.
    pub file: PathBuf,
    #[command(flatten)]
    pub image: build::Options,
    /// End after this long: of the host's time, or of virtual time with --deterministic.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration, allow_hyphen_values = true)]
    pub time: Option<Duration>,
    /// Write the report here as well; `-` prints it, and everything else goes to standard error.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Count instructions instead of time, so that two runs give the same report and logs, byte for byte.
    #[arg(long, conflicts_with = "attach")]
    pub deterministic: bool,
    /// With --deterministic: no ticks that end a core's turn. Latencies are exact then, as long as all cores but one sleep.
    #[arg(long = "no-quantum", requires = "deterministic")]
    pub unsliced: bool,
    /// Without --deterministic: late packets, tasks, interrupts and exceeded memory budgets are not
    /// judged, since their time is the host's.
    #[arg(long, conflicts_with = "deterministic")]
    pub accept_host_time: bool,
    /// A plug-in that watches each access.
    #[arg(skip)]
    pub watch: Option<Watch>,
    /// Connect this terminal to one VM's console; Ctrl-] ends the run.
    #[arg(long, value_name = "VM")]
    pub attach: Option<String>,
    /// Go on when every expected line was seen.
    #[arg(long)]
    pub keep_running: bool,
    /// Show what happens to the VMs (starts, faults, refusals) between their lines.
    #[arg(long)]
    pub events: bool,
    /// Show no consoles, only the summary.
    #[arg(long, short)]
    pub quiet: bool,
    /// Boot this image instead of building one.
    #[arg(long, value_name = "IMAGE", conflicts_with = "no_build")]
    pub image_file: Option<PathBuf>,
    /// One more argument for QEMU; may be given several times.
    #[arg(long = "qemu-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub qemu_args: Vec<OsString>,
}

impl Arguments {
    /// To run `file` with nothing else asked for.
    pub fn of(file: PathBuf) -> Self {
        Self {
            file,
            image: build::Options::default(),
            time: None,
            json: None,
            deterministic: false,
            unsliced: false,
            accept_host_time: false,
            watch: None,
            attach: None,
            keep_running: false,
            events: false,
            quiet: false,
            image_file: None,
            qemu_args: Vec::new(),
        }
    }
}

/// What a run has left.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// The directory with its logs.
    pub directory: PathBuf,
    /// The exit status it deserves.
    pub status: u8,
    /// What went wrong beside missed lines, in words.
    pub trouble: Option<String>,
    /// The tables that the flows' bounds were computed from.
    pub overheads: Vec<OverheadTable>,
    /// What its trace has come to, if the hypervisor left one.
    pub trace: Option<rings::Told>,
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    let to_stdout = arguments.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = arguments.json.as_deref().filter(|_| !to_stdout) {
        let image = arguments.image_file.as_deref();
        let inputs = arguments.image.inputs(&arguments.file);
        output::check("--json", path, &[inputs, image.into_iter().collect()].concat())?;
    }
    let outcome = perform(arguments, environment)?;
    let json = serde_json::to_string_pretty(&outcome.report).context(|| "write the report")? + "\n";
    if let Some(path) = arguments.json.as_deref().filter(|_| !to_stdout) {
        fs::write(path, &json).context(|| format!("write {}", path.display()))?;
    }
    let told = tell(&outcome, to_stdout.then_some(&json));
    // A reader that has gone away takes nothing from the verdict.
    if let Err(error) = told
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(error.into());
    }
    match (outcome.status, outcome.trouble) {
        (GOOD, _) => Ok(()),
        (status, trouble) => Err(Failure { status, text: trouble.unwrap_or_default() }),
    }
}

/// Where lines for a person go.
fn messages(stdout_is_taken: bool) -> Box<dyn Write> {
    if stdout_is_taken { Box::new(screen::stderr()) } else { Box::new(screen::shared_stdout()) }
}

/// The longest that a core runs under instruction counting before the next has its turn: a vCPU sees an interrupt or another
/// core's store later by at most this much for each other core that is busy.
const SLICE: Nanos = Nanos(100_000);

/// The heartbeat of a run that waits for counts, where the system has none.
const COUNTS: Nanos = Nanos(1_000_000_000);

/// A heartbeat that comes soon behind `limit`: virtual time is known by what comes from the machine, and guests may be silent.
fn beat_behind(heartbeat: Option<Nanos>, limit: Duration) -> Nanos {
    const MILLISECOND: u64 = 1_000_000;
    let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    // The hypervisor counts in 32 bits.
    let behind = Nanos(limit.saturating_add(1).min(u32::MAX.into()) * MILLISECOND);
    heartbeat.map_or(behind, |heartbeat| heartbeat.min(behind))
}

/// Makes `system` one whose image is for counted runs: its cores take turns of `SLICE`, unless `unsliced`, and with a limit the
/// machine speaks soon behind it.
pub fn count(system: &mut System, limit: Option<Duration>, unsliced: bool) {
    let hypervisor = &mut system.hypervisor;
    hypervisor.slice = (!unsliced).then_some(SLICE);
    if let Some(limit) = limit {
        hypervisor.heartbeat = Some(beat_behind(hypervisor.heartbeat, limit));
    }
}

/// Whether the run goes on behind the last expected line until the flows' counts are told: where nothing can be asked, as that would come at a
/// time of the host's.
fn awaits_counts(arguments: &Arguments, system: &System) -> bool {
    let ends_with_a_line =
        !arguments.keep_running && system.vms.iter().any(|vm| !vm.expect.is_empty());
    arguments.deterministic && ends_with_a_line && system.broker().is_some()
}

/// Runs a system from its file to its end, showing consoles but no summary.
#[expect(clippy::too_many_lines, reason = "the steps of a run, in their order")]
pub fn perform(arguments: &Arguments, environment: &Environment) -> Result<Outcome> {
    let signals = Signals::watch()?;
    let json = arguments.json.as_deref() == Some(Path::new("-"));
    let mut system = build::checked(&arguments.file, &arguments.image, json, environment)?;
    if arguments.deterministic {
        count(&mut system, arguments.time, arguments.unsliced);
    } else if let Some(note) = budgets::adapt(&mut system)? {
        screen::say(format_args!("weir: {note}"));
    }
    if awaits_counts(arguments, &system) {
        system.hypervisor.heartbeat.get_or_insert(COUNTS);
    }
    let needs_watch = image::needs_plugin(&system);
    let mut setup = setup(&system, arguments)?;
    if let Some(vm) = &arguments.attach
        && !system.vms.iter().any(|known| &known.name == vm)
    {
        let names: Vec<&str> = system.vms.iter().map(|vm| vm.name.as_str()).collect();
        return Err(Failure::call(format!("no VM is named {vm}; there are: {}", names.join(", "))));
    }
    let version = qemu::version(&environment.qemu)?;
    let built = if let Some(path) = &arguments.image_file {
        weir_model::read_regular(path).context(|| format!("read {}", path.display()))?
    } else {
        let no_build = arguments.image.no_build;
        let options = image::Options { environment: environment.clone(), no_build };
        image::build(&system, &options)?.bytes
    };
    let no_build = arguments.image.no_build;
    // What the user adds may need QEMU's main loop while a core runs.
    let steady = arguments.deterministic && arguments.qemu_args.is_empty();
    let preload = steady.then(|| preload(arguments, environment)).transpose()?;
    if signals.interrupted() {
        return Err(Failure::said(INTERRUPTED));
    }

    let record = Record::create(&environment.runs(), &system)?;
    record.write_file("system.img", &built)?;
    let watch = match &arguments.watch {
        None if needs_watch => Some(Watch::new(&system, None, None, no_build, environment)?),
        watch => watch.clone(),
    };
    let ram = Arc::new(Ram::new(system.platform.memory.base, setup.memory)?);
    let scratch = tempfile::tempdir().context(|| "make a directory")?;
    let prepare = |watch: &Watch| {
        let gic_v2 = system.platform.is_gic_v2();
        watch.prepare(scratch.path(), &built, gic_v2, &ram, needs_watch)
    };
    let plugin = watch.as_ref().map(prepare).transpose()?;
    if let Some(plugin) = &plugin {
        setup.extra.splice(0..0, plugin.arguments.iter().map(Into::into));
    }
    let command = setup.arguments(record.path("system.img").into_os_string(), &ram);
    let log = record.file("qemu.log")?;
    let rings = Rings::find(&system, &built, environment);
    let started = SystemTime::now();
    let machine = Machine::start(&environment.qemu, &command, &ram, preload, log)?;
    // Without slices few ticks come, and other cores are not promised to go on.
    let standstill = system.hypervisor.slice.filter(|_| arguments.deterministic);
    let standstill = standstill.and_then(|_| rings.as_ref().ok()?.progress().cloned());
    let standstill =
        standstill.map(|progress| Standstill::new(progress, Arc::clone(&ram), machine.process()));
    let trace = match rings {
        Ok(rings) => Ok(rings.start(Arc::clone(&ram), record.directory())?),
        Err(why) => Err(why),
    };
    let mut run = Run::new(arguments, &system, machine, record, signals)?;
    run.standstill = standstill;
    if plugin.is_some() {
        run.silence = LONG_SILENCE;
    }
    let (end, trouble) = run.carry_on()?;
    let Run { session, mut record, machine, hub, wire_bytes, .. } = run;
    if plugin.is_some() {
        Watch::until(scratch.path(), wire_bytes)?;
    }
    // Before the clients learn that it is over, the machine is.
    let status = machine.end();
    hub.close();
    let mut report = session.report(end);
    // A machine that is ended by us goes on for a moment, which takes its time from the host.
    let cut = arguments.deterministic && matches!(end, End::AllMet | End::TimeOver);
    let until = cut.then_some(report.time_ns);
    let trace =
        trace.map(|trace| trace.finish(until, &record.path(weir_report::trace::file::NAME)));
    let (trace, traced) = match trace {
        Ok(told) => told.map(|told| (Some(told), told.json()))?,
        Err(why) => (None, json!({ "absent": why })),
    };
    judge_report(
        &mut report,
        arguments,
        &system,
        trace.map(|_| record.path(weir_report::trace::file::NAME)),
    )?;
    record.finish(&report, &show::summary(&report))?;
    let wall = started.elapsed().unwrap_or_default();
    record.write_json("run.json", &json!({
        "weir": env!("CARGO_PKG_VERSION"),
        "hypervisor_build": build_id::of_checkout(),
        "overheads": overhead_sources(&system.timing.tables, build_id::of_checkout()),
        "qemu": version,
        "command": std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "qemu_command": std::iter::once(&environment.qemu).chain(&command).map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
        "qemu_status": status.map(|status| status.to_string()),
        "system": system.path.display().to_string(),
        "image_bytes": built.len(),
        "image_crc32": format!("{:#010x}", weir_model::packed::checksum(&built)),
        "deterministic": arguments.deterministic,
        "counter_page": plugin.map(|plugin| plugin.counts(&ram)),
        "debian_packages": debian_packages(&system, environment),
        "started": humantime::format_rfc3339_seconds(started).to_string(),
        "seconds": wall.as_secs_f64(),
        "trace": traced,
    }))?;
    record.remove("system.img");
    let (status, trouble) = verdict(&report, trouble, status, &record);
    let (overheads, directory) = (system.timing.tables.clone(), record.directory().to_owned());
    Ok(Outcome { report, directory, status, trouble, overheads, trace })
}

/// Adds the verdicts to a report. `trace` is the file of the run's records, if there is one.
fn judge_report(
    report: &mut Report,
    arguments: &Arguments,
    system: &System,
    trace: Option<PathBuf>,
) -> Result {
    let (budgets, lines) = (judge::budgets(system), judge::lines(system));
    let needs_trace = !(report.flows.is_empty() && budgets.is_empty() && lines.is_empty());
    let mut observed = None;
    if let Some(path) = trace.filter(|_| needs_trace) {
        let overshoot = |meter| budgets.iter().find(|of| of.meter == meter)?.overshoot;
        let deadline = |line| lines.iter().find(|of| (of.vm, of.intid) == line);
        let deadline = |line| deadline(line).map(|of| of.deadline_ns);
        let mut found = Observed::read(&mut Trace::open(&path)?, overshoot, deadline)?;
        if arguments.deterministic {
            add_turns(&mut found, &report.flows, system, &path)?;
        }
        observed = Some(found);
    }
    judge::judge(report, observed.as_ref(), (&budgets, &lines), conditions(arguments));
    Ok(())
}

/// What the guests out of Debian were made of.
fn debian_packages(system: &System, environment: &Environment) -> serde_json::Value {
    let named = |vm: &weir_model::Vm| {
        let sources = [Some(vm.image.source()), vm.image.initrd()];
        let guest = matches!(vm.image, weir_model::Image::Elf { .. });
        !guest
            && sources.into_iter().flatten().any(|source| matches!(source, ImageSource::Named(_)))
    };
    if !system.vms.iter().any(named) {
        return serde_json::Value::Null;
    }
    let root = environment.root().map(debian::cache_dir).ok();
    let packages = root.and_then(|cache| debian::packages(&cache).ok()).unwrap_or_default();
    let package = |package: &debian::Package| json!({ "name": package.name, "version": package.version, "sha256": package.sha256, "locked": debian::is_locked(package) });
    packages.iter().map(package).collect()
}

/// QEMU's machine, with an SMMU where a VM has PCI functions.
fn machine(system: &System, plain: &str) -> String {
    let smmu = system.platform.smmu.as_ref().and_then(|smmu| smmu.machine.as_deref());
    match smmu {
        Some(smmu) if system.vms.iter().any(|vm| !vm.functions.is_empty()) => {
            format!("{plain},{smmu}")
        }
        _ => plain.to_owned(),
    }
}

fn setup(system: &System, arguments: &Arguments) -> Result<Setup> {
    let platform = &system.platform;
    let qemu = platform.qemu.as_ref().ok_or_else(|| {
        Failure::call(format!(
            "QEMU has no machine for {}: build the image with `weir build` and start it on the board",
            platform.name
        ))
    })?;
    Ok(Setup {
        machine: machine(system, &qemu.machine),
        cpu: qemu.cpu.clone(),
        cores: system.machine_cores(),
        memory: ram::size(platform.memory.size, &arguments.qemu_args)?,
        deterministic: arguments.deterministic,
        extra: arguments.qemu_args.clone(),
    })
}

/// What QEMU loads first so that a counted run repeats. For an image that was built before what was built with it will do.
fn preload(arguments: &Arguments, environment: &Environment) -> Result<Preload> {
    let kept = Programs::new(environment, true).icount_shim(environment);
    let library = match kept {
        Ok(kept) if arguments.image.no_build || arguments.image_file.is_some() => kept,
        Err(error) if arguments.image.no_build => return Err(error),
        _ => Programs::new(environment, false).icount_shim(environment)?,
    };
    Preload::open(&library)
}

/// Prints the summary, and before it the report where standard output takes it.
fn tell(outcome: &Outcome, json: Option<&String>) -> io::Result<()> {
    if let Some(json) = json {
        stdout().write_all(json.as_bytes())?;
    }
    let mut out = messages(json.is_some());
    writeln!(out, "\n{}", show::summary(&outcome.report))?;
    if !outcome.report.flows.is_empty() {
        let build = build_id::of_checkout();
        let lines = render::overheads(&overhead_sources(&outcome.overheads, build), build);
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

/// The exit status that a run deserves, and what to say beside the summary.
fn verdict(
    report: &Report,
    trouble: Option<String>,
    qemu: Option<ExitStatus>,
    record: &Record,
) -> (u8, Option<String>) {
    let missed = report.totals.met < report.totals.expected;
    let failed = report.verdict == Some(Verdict::DoesNotHold.key());
    let status = match report.ended_by {
        End::AllMet => GOOD,
        End::Interrupted => INTERRUPTED,
        End::TimeOver => {
            if missed || !report.started {
                SYSTEM
            } else {
                GOOD
            }
        }
        End::SystemStop => {
            let halted = report.vms.iter().any(|vm| vm.state == report::State::Halted);
            let judged = report.totals.expected > 0;
            if missed || (halted && !judged) { SYSTEM } else { GOOD }
        }
        End::Silent => SYSTEM,
        // The hypervisor powers off what it refuses to run, which ends QEMU well.
        End::MachineGone if qemu.is_some_and(|status| status.success()) => SYSTEM,
        End::MachineGone => ENVIRONMENT,
    };
    let status = if status == GOOD && failed { SYSTEM } else { status };
    let mut text = trouble.unwrap_or_default();
    if failed {
        let what = report.verdict_of.join(", ");
        let _ = write!(text, "{}does not hold: {what}", if text.is_empty() { "" } else { "\n" });
    }
    if report.ended_by == End::MachineGone {
        let how = qemu.map_or_else(
            || "QEMU closed its console".into(),
            |status| format!("QEMU ended ({status})"),
        );
        let when = if report.started { "while the system ran" } else { "before the system ran" };
        let _ = write!(text, "{}{how} {when}", if text.is_empty() { "" } else { "\n" });
        for line in &report.hypervisor {
            let _ = write!(text, "\n  the hypervisor said: {line}");
        }
        for line in record.tail("qemu.log", 10) {
            let _ = write!(text, "\n  QEMU said: {line}");
        }
    }
    (status, (!text.is_empty()).then_some(text))
}

/// Signals that end a run. The first one does it cleanly, the second at once.
#[derive(Debug)]
struct Signals(Arc<AtomicBool>);

impl Signals {
    fn watch() -> Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the one that ends the process looks at the flag before the other sets it.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                i32::from(INTERRUPTED),
                Arc::clone(&flag),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context(|| "watch for signals")?;
        }
        Ok(Self(flag))
    }

    fn interrupted(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A run under way.
struct Run<'a> {
    arguments: &'a Arguments,
    session: Session,
    machine: Machine,
    record: Record,
    screen: Option<Screen>,
    hub: Arc<Hub>,
    signals: Signals,
    /// Set when the person at `--attach` left, or the console broke.
    left: Arc<AtomicBool>,
    vcpus: usize,
    /// How long the machine may be silent.
    silence: Duration,
    /// Watches virtual time, where it can stand still.
    standstill: Option<Standstill>,
    /// Bytes of the wire that belong to the run.
    wire_bytes: usize,
    /// What came in one read with the byte at which the run ended, behind it.
    behind: Vec<u8>,
    steps: Vec<Step>,
}

impl<'a> Run<'a> {
    fn new(
        arguments: &'a Arguments,
        system: &System,
        machine: Machine,
        record: Record,
        signals: Signals,
    ) -> Result<Self> {
        let mut vms: Vec<VmFacts> = system
            .vms
            .iter()
            .map(|vm| VmFacts {
                name: vm.name.clone(),
                cores: vm.cpus.iter().map(|core| core.0).collect(),
                tasks: Vec::new(),
            })
            .collect();
        for (facts, timed) in vms.iter_mut().zip(&system.timing.vms) {
            let tasks = timed.tasks.iter().map(|task| (task.name.clone(), task.deadline.0));
            facts.tasks = tasks.collect();
        }
        let names: Vec<String> = vms.iter().map(|vm| vm.name.clone()).collect();
        let expect = system.vms.iter().enumerate();
        let expect =
            expect.flat_map(|(vm, facts)| facts.expect.iter().map(move |text| (vm, text.clone())));
        let limit_ns = arguments.time.filter(|_| arguments.deterministic);
        let vcpus = vms.iter().map(|vm| vm.cores.len()).sum();
        let plan = Plan {
            system: image::name(system),
            platform: system.platform.name.clone(),
            vms,
            flows: flows(system, arguments.deterministic),
            expect: expect.collect(),
            limit_ns: limit_ns.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)),
            keep_running: arguments.keep_running || arguments.attach.is_some(),
            count_flows: awaits_counts(arguments, system),
        };
        let hub = Hub::new(names.clone(), machine.input());
        let left = Arc::new(AtomicBool::new(false));
        let mut screen = None;
        if let Some(vm) = &arguments.attach {
            hub.listen(record.directory())?;
            let stream = control::connect(record.directory()).context(|| "attach")?;
            let (vm, leaving) = (vm.clone(), Arc::clone(&left));
            thread::spawn(move || {
                // The end of the conversation is the end of the run, whoever ended it; only its
                // reason has to be told here.
                if let Err(failure) =
                    attach::converse(stream, &vm, attach::Stay::default(), &leaving, false)
                {
                    crate::report_failure(&failure);
                }
                leaving.store(true, Ordering::SeqCst);
            });
        } else {
            if !arguments.quiet {
                let to_stdout = arguments.json.as_deref() == Some(Path::new("-"));
                screen = Some(Screen::new(messages(to_stdout), names, arguments.events));
            }
            // Input comes in the host's time: no run with it is like another.
            if !arguments.deterministic {
                hub.listen(record.directory())?;
            }
        }
        let session = Session::new(plan);
        Ok(Self {
            arguments,
            session,
            machine,
            record,
            screen,
            hub,
            signals,
            left,
            vcpus,
            silence: SILENCE,
            standstill: None,
            wire_bytes: 0,
            behind: Vec::new(),
            steps: Vec::new(),
        })
    }

    /// From the first byte to the last; gives why it ended and what else there is to say.
    fn carry_on(&mut self) -> Result<(End, Option<String>)> {
        let (end, trouble) = self.until_end()?;
        let end = self.session.ended(end);
        let ask = match end {
            End::Interrupted => true,
            End::AllMet | End::TimeOver => !self.arguments.deterministic,
            _ => false,
        };
        if ask {
            let behind = std::mem::take(&mut self.behind);
            self.drain(&behind)?;
            self.last_counters()?;
        }
        let over = !matches!(end, End::MachineGone | End::SystemStop);
        self.session.finish(over, &mut self.steps);
        self.take_steps()?;
        if let Some(screen) = &mut self.screen {
            forgive(screen.flush())?;
        }
        Ok((end, trouble))
    }

    fn until_end(&mut self) -> Result<(End, Option<String>)> {
        let started = Instant::now();
        let (mut heard, mut stopped) = (started, None);
        loop {
            match self.machine.hear(LOOK) {
                Heard::Bytes(bytes) => {
                    heard = Instant::now();
                    let (taken, end) = self.session.feed(&bytes, &mut self.steps);
                    let (taken, behind) = bytes.split_at_checked(taken).unwrap_or((&bytes, &[]));
                    self.wire_bytes += taken.len();
                    self.record.wire(taken)?;
                    self.behind = behind.to_vec();
                    if !self.take_steps()? {
                        return Ok((End::Interrupted, None));
                    }
                    if let Some(end) = end {
                        return Ok((end, None));
                    }
                }
                Heard::Nothing => {
                    if self.standstill.as_mut().is_some_and(Standstill::look) {
                        self.machine.end_standstill();
                    }
                    self.record.flush()?;
                    if let Some(screen) = &mut self.screen {
                        forgive(screen.flush())?;
                    }
                }
                Heard::Gone if self.session.stopped() => return Ok((End::SystemStop, None)),
                Heard::Gone => return Ok((End::MachineGone, None)),
            }
            if self.signals.interrupted() || self.left.load(Ordering::SeqCst) {
                return Ok((End::Interrupted, None));
            }
            if self.session.stopped() && stopped.get_or_insert_with(Instant::now).elapsed() > ENDING
            {
                let trouble = "the system has ended, but QEMU had to be killed";
                return Ok((End::SystemStop, Some(trouble.into())));
            }
            let limit = self.arguments.time.filter(|_| !self.arguments.deterministic);
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                return Ok((End::TimeOver, None));
            }
            let silence = self.silence;
            if self.arguments.deterministic && heard.elapsed() > silence {
                let trouble = format!("nothing came from the machine for {} s", silence.as_secs());
                return Ok((End::Silent, Some(trouble)));
            }
        }
    }

    /// Takes what came after the end of the run; gives the number of counters in it.
    fn drain(&mut self, bytes: &[u8]) -> Result<usize> {
        self.session.drain(bytes, &mut self.steps);
        self.record.wire(bytes)?;
        let counters = self.steps.iter().filter(|step| matches!(step, Step::Counters(_))).count();
        self.take_steps()?;
        Ok(counters)
    }

    /// Asks for counters and takes what comes until all vCPUs have answered and no VM is within a line.
    fn last_counters(&mut self) -> Result {
        if !self.machine.ask_for_report() {
            return Ok(());
        }
        let mut heard = Instant::now();
        let until = heard + LAST_COUNTERS;
        let mut missing = self.vcpus;
        while Instant::now() < until
            && (missing > 0 || self.session.is_within_line() && heard.elapsed() < PROMPT)
        {
            match self.machine.hear(LOOK) {
                Heard::Bytes(bytes) => {
                    heard = Instant::now();
                    missing = missing.saturating_sub(self.drain(&bytes)?);
                }
                Heard::Nothing => {}
                Heard::Gone => return Ok(()),
            }
        }
        Ok(())
    }

    /// Shows and records what the wire said. False when nobody looks any more.
    fn take_steps(&mut self) -> Result<bool> {
        let steps = std::mem::take(&mut self.steps);
        let mut watched = true;
        let mut spoken: Option<(usize, Vec<u8>)> = None;
        for step in &steps {
            if let Step::Byte(Source::Vm(vm), byte) = *step {
                match &mut spoken {
                    Some((speaker, bytes)) if *speaker == vm => bytes.push(byte),
                    _ => {
                        if let Some((vm, bytes)) = spoken.replace((vm, vec![byte])) {
                            self.hub.output(vm, &bytes);
                        }
                    }
                }
            }
            self.record.step(step, |vm| self.session.name(usize::from(vm)))?;
            if let Some(screen) = &mut self.screen {
                match screen.step(step) {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => watched = false,
                    other => other?,
                }
            }
        }
        if let Some((vm, bytes)) = spoken {
            self.hub.output(vm, &bytes);
        }
        self.steps = steps;
        self.steps.clear();
        Ok(watched)
    }
}

/// A reader of ours that has gone away is noticed elsewhere.
fn forgive(result: io::Result<()>) -> Result {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Adds the turns of emulated cores that have no part in a flow, for each flow with a packet above
/// its bound.
fn add_turns(
    observed: &mut Observed,
    flows: &[report::Flow],
    system: &System,
    trace: &Path,
) -> Result {
    let broker = system.broker().and_then(|broker| system.vms.get(broker));
    let broker = broker.map_or(&[][..], |broker| &broker.cpus);
    let senders = system.timing.flows.iter().flat_map(|flow| flow.to.iter().map(|_| flow.from));
    for ((place, flow), sender) in (0..).zip(flows).zip(senders) {
        let mut packets = observed.packets(place).iter();
        if packets.any(|packet| flow.bound_ns.is_some_and(|bound| packet.latency_ns > bound)) {
            let cores = system.vms.get(sender).map_or(&[][..], |vm| &vm.cpus);
            let own: Vec<u8> = cores.iter().chain(broker).map(|core| core.0).collect();
            observed.add_turns(place, Turns::read(&mut Trace::open(trace)?, &own)?);
        }
    }
    Ok(())
}

/// How a run is judged.
fn conditions(arguments: &Arguments) -> Conditions {
    let clock = match (arguments.deterministic, arguments.unsliced) {
        (false, _) => Clock::Host,
        (true, false) => Clock::CountedInSlices,
        (true, true) => Clock::Counted,
    };
    Conditions { clock, accept_host_time: arguments.accept_host_time }
}

/// The flows that the broker moves, with what the analysis says of each: nothing in a run whose time is the host's.
fn flows(system: &System, counted: bool) -> Vec<FlowFacts> {
    if system.broker().is_none() {
        return Vec::new();
    }
    let flows = system
        .timing
        .flows
        .iter()
        .zip(bounds(&system.timing, Cores::Serialized, Effort::default()).of);
    let mut facts = Vec::new();
    for (flow, bound) in flows {
        let shared = flow.to.len() > 1;
        facts.extend(flow.to.iter().map(|&to| FlowFacts {
            name: if shared {
                format!("{}/{}", flow.name, system.vms[to].name)
            } else {
                flow.name.clone()
            },
            bound_ns: bound.filter(|_| counted),
            deadline_ns: flow.deadline.map(|deadline| deadline.0),
            period_ns: flow.period.map(|period| period.0),
            shared,
        }));
    }
    facts
}
