//! Runs a system in QEMU and judges what came out.

use crate::{
    budgets,
    control::Hub,
    demux::{Source, Step},
    findings::Clock,
    judge::{self, Conditions},
    observed::{Observed, Turns},
    plugin::Watch,
    qemu::{self, Heard, Machine, Preload, Setup},
    ram::{self, Ram},
    record::Record,
    report::{self, End, FlowFacts, RunReport, VmFacts},
    rings::{self, Rings},
    session::{Plan, Session},
    show,
    standstill::Standstill,
};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};
use weir_analysis::verdict::Verdict;
use weir_image::{
    Environment, Failure, Result,
    build_id::of_checkout,
    cargo::Programs,
    debian,
    failure::{Context, ENVIRONMENT, GOOD, INTERRUPTED, SYSTEM},
    name, needs_plugin,
};
use weir_model::{Source as ImageSource, System};
use weir_report::trace::{self, file::Trace};
use weir_units::Nanos;

/// How often to look at the clock and at signals while the wire is quiet.
const LOOK: Duration = Duration::from_millis(20);
/// How long to wait for the last counters.
const LAST_COUNTERS: Duration = Duration::from_secs(1);
/// How long the wire must be quiet before a line without an end is taken for a prompt.
const PROMPT: Duration = Duration::from_millis(100);
/// How long QEMU may take to end once the system has.
const ENDING: Duration = Duration::from_secs(5);
/// How long a machine that counts instructions may be silent before it is given up; its own time
/// limit needs it to speak.
const SILENCE: Duration = Duration::from_secs(120);
/// The same where a plug-in watches each access.
const LONG_SILENCE: Duration = Duration::from_secs(1200);

/// How a system is run.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Options {
    /// The checkout and the tools.
    pub environment: Environment,
    /// Takes the hypervisor and the guests as they were built last, without calling cargo.
    pub no_build: bool,
    /// Ends the run after this long: of the host's time, or of virtual time if `deterministic`.
    pub time: Option<Duration>,
    /// Counts instructions instead of time: two runs give the same report and logs, byte for byte.
    pub deterministic: bool,
    /// If `deterministic`: emulated cores have no quantum. Latencies are exact as long as all cores
    /// but one sleep.
    pub unsliced: bool,
    /// Without `deterministic`: what takes too long is not judged, as its time is the host's.
    pub accept_host_time: bool,
    /// A plug-in that watches each access.
    pub watch: Option<Watch>,
    /// Goes on when every expected line was seen.
    pub keep_running: bool,
    /// Boots this image instead of building one.
    pub image_file: Option<PathBuf>,
    /// Further arguments of QEMU.
    pub qemu_args: Vec<OsString>,
    /// The latency bound of each flow of the system, in ns, for serialized cores as QEMU emulates
    /// them. Flows without one are not compared.
    pub bounds: Vec<Option<u64>>,
    /// The origin of the overheads behind `bounds`, which `run.json` records.
    pub overheads: Value,
    /// Ends the run cleanly when it becomes true.
    pub interrupt: Arc<AtomicBool>,
}

impl Options {
    /// Returns the options of a run in host time that ends with the last expected line.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        Self {
            environment,
            no_build: false,
            time: None,
            deterministic: false,
            unsliced: false,
            accept_host_time: false,
            watch: None,
            keep_running: false,
            image_file: None,
            qemu_args: Vec::new(),
            bounds: Vec::new(),
            overheads: Value::Null,
            interrupt: Arc::default(),
        }
    }
}

/// Where a run shows what its VMs print.
///
/// An error ends the run. With [`io::ErrorKind::BrokenPipe`] it ends as if it was interrupted.
pub trait Console {
    /// Shows a line of the VM with this number, or of the hypervisor.
    ///
    /// # Errors
    ///
    /// The line cannot be shown.
    fn line(&mut self, vm: Option<usize>, text: &str) -> io::Result<()>;

    /// Shows what happened to a VM: a start, a fault, a refusal.
    ///
    /// # Errors
    ///
    /// The event cannot be shown.
    fn event(&mut self, text: &str) -> io::Result<()>;

    /// Shows how the run differs from what the system asks for, before it begins.
    fn note(&mut self, text: &str);

    /// Shows everything up to now.
    ///
    /// # Errors
    ///
    /// The lines cannot be shown.
    fn flush(&mut self) -> io::Result<()>;

    /// Tells that the consoles of the run can be attached to by the socket in `directory`
    /// ([`control::connect`](crate::control::connect)). The run ends when `left` becomes true.
    ///
    /// # Errors
    ///
    /// The console cannot be attached.
    fn listening(&mut self, directory: &Path, left: &Arc<AtomicBool>) -> Result {
        let _ = (directory, left);
        Ok(())
    }
}

/// A console that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Console for Silent {
    fn line(&mut self, _: Option<usize>, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn event(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &str) {}

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a run has left.
#[derive(Debug)]
pub struct Run {
    /// The report.
    pub report: RunReport,
    /// The directory with its logs.
    pub directory: PathBuf,
    /// The exit status that the run deserves, see [`weir_image::failure`].
    pub status: u8,
    /// What went wrong in addition to missed lines, in words.
    pub trouble: Option<String>,
    /// The records of its trace, if the hypervisor left one.
    pub trace: Option<rings::Told>,
}

/// The longest that a core runs under instruction counting before the next has its turn: a vCPU
/// sees an interrupt or another core's store later by at most this much for each other core that is
/// busy.
const SLICE: Nanos = Nanos(100_000);

/// The heartbeat of a run that waits for counts, where the system has none.
const COUNTS: Nanos = Nanos(1_000_000_000);

/// A heartbeat that comes soon behind `limit`: virtual time is known by what comes from the
/// machine, and guests may be silent.
fn beat_behind(heartbeat: Option<Nanos>, limit: Duration) -> Nanos {
    const MILLISECOND: u64 = 1_000_000;
    let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    // The hypervisor counts in 32 bits.
    let behind = Nanos(limit.saturating_add(1).min(u32::MAX.into()) * MILLISECOND);
    heartbeat.map_or(behind, |heartbeat| heartbeat.min(behind))
}

/// Makes `system` one whose image is for counted runs: its cores take turns of `SLICE`, unless
/// `unsliced`, and with a limit the machine speaks soon behind it.
pub fn count(system: &mut System, limit: Option<Duration>, unsliced: bool) {
    let hypervisor = &mut system.hypervisor;
    hypervisor.slice = (!unsliced).then_some(SLICE);
    if let Some(limit) = limit {
        hypervisor.heartbeat = Some(beat_behind(hypervisor.heartbeat, limit));
    }
}

/// Whether the run goes on behind the last expected line until the flows' counts are told: where
/// nothing can be asked, as that would come at a time of the host's.
fn awaits_counts(options: &Options, system: &System) -> bool {
    let ends_with_a_line =
        !options.keep_running && system.vms.iter().any(|vm| !vm.expect.is_empty());
    options.deterministic && ends_with_a_line && system.broker().is_some()
}

/// Runs a system in QEMU until its expected lines were seen, the time is over or the system has
/// ended. Logs and reports are left in a new directory, see [`Run::directory`].
///
/// # Errors
///
/// The call is wrong if QEMU has no machine for the platform or a budget would never be spent; the
/// environment is at fault if a part cannot be built or QEMU does not start. What comes out of the
/// run, a missed line for example, is no error here: see [`Run::status`].
///
/// # Examples
///
/// ```no_run
/// use std::path::Path;
/// use weir_image::{Environment, check};
/// use weir_runner::{Options, Silent, run};
///
/// # fn main() -> weir_image::Result {
/// let environment = Environment::find();
/// let system = check(Path::new("examples/demo/demo.toml"), None, &environment)?;
/// let options = Options { deterministic: true, ..Options::new(environment) };
/// let run = run(&system, &options, &mut Silent)?;
/// println!("{}", serde_json::to_string(&run.report).expect("a report"));
/// # Ok(())
/// # }
/// ```
pub fn run(system: &System, options: &Options, console: &mut dyn Console) -> Result<Run> {
    let environment = &options.environment;
    let mut system = system.clone();
    if options.deterministic {
        count(&mut system, options.time, options.unsliced);
    } else if let Some(note) = budgets::adapt(&mut system)? {
        console.note(&note);
    }
    if awaits_counts(options, &system) {
        system.hypervisor.heartbeat.get_or_insert(COUNTS);
    }
    let needs_watch = needs_plugin(&system);
    let mut setup = setup(&system, options)?;
    let version = qemu::version(&environment.qemu)?;
    let built = if let Some(path) = &options.image_file {
        weir_model::read_regular(path).context(|| format!("read {}", path.display()))?
    } else {
        let no_build = options.no_build;
        let options = weir_image::Options { environment: environment.clone(), no_build };
        weir_image::build(&system, &options)?.bytes
    };
    let no_build = options.no_build;
    // What the user adds may need QEMU's main loop while a core runs.
    let steady = options.deterministic && options.qemu_args.is_empty();
    let preload = steady.then(|| preload(options, environment)).transpose()?;
    if options.interrupt.load(Ordering::SeqCst) {
        return Err(Failure::said(INTERRUPTED));
    }

    let record = Record::create(&environment.runs(), &system)?;
    record.write_file("system.img", &built)?;
    let watch = match &options.watch {
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
    let standstill = system.hypervisor.slice.filter(|_| options.deterministic);
    let standstill = standstill.and_then(|_| rings.as_ref().ok()?.progress().cloned());
    let standstill =
        standstill.map(|progress| Standstill::new(progress, Arc::clone(&ram), machine.process()));
    let trace = match rings {
        Ok(rings) => Ok(rings.start(Arc::clone(&ram), record.directory())?),
        Err(why) => Err(why),
    };
    let mut run = Running::new(options, &system, machine, record, console)?;
    run.standstill = standstill;
    if plugin.is_some() {
        run.silence = LONG_SILENCE;
    }
    let (end, trouble) = run.carry_on()?;
    let Running { session, mut record, machine, hub, wire_bytes, .. } = run;
    if plugin.is_some() {
        Watch::until(scratch.path(), wire_bytes)?;
    }
    // Before the clients learn that it is over, the machine is.
    let status = machine.end();
    hub.close();
    let mut report = session.report(end);
    // A machine that is ended by us goes on for a moment, which takes its time from the host.
    let cut = options.deterministic && matches!(end, End::AllMet | End::TimeOver);
    let until = cut.then_some(report.time_ns);
    let trace = trace.map(|trace| trace.finish(until, &record.path(trace::file::NAME)));
    let (trace, traced) = match trace {
        Ok(told) => told.map(|told| (Some(told), told.json()))?,
        Err(why) => (None, json!({ "absent": why })),
    };
    judge_report(&mut report, options, &system, trace.map(|_| record.path(trace::file::NAME)))?;
    record.finish(&report, &show::summary(&report))?;
    let wall = started.elapsed().unwrap_or_default();
    record.write_json("run.json", &json!({
        "weir": env!("CARGO_PKG_VERSION"),
        "hypervisor_build": of_checkout(),
        "overheads": options.overheads,
        "qemu": version,
        "command": std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "qemu_command": std::iter::once(&environment.qemu).chain(&command).map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
        "qemu_status": status.map(|status| status.to_string()),
        "system": system.path.display().to_string(),
        "image_bytes": built.len(),
        "image_crc32": format!("{:#010x}", weir_model::packed::checksum(&built)),
        "deterministic": options.deterministic,
        "counter_page": plugin.map(|plugin| plugin.counts(&ram)),
        "debian_packages": debian_packages(&system, environment),
        "started": humantime::format_rfc3339_seconds(started).to_string(),
        "seconds": wall.as_secs_f64(),
        "trace": traced,
    }))?;
    record.remove("system.img");
    let (status, trouble) = verdict(&report, trouble, status, &record);
    let directory = record.directory().to_owned();
    Ok(Run { report, directory, status, trouble, trace })
}

/// Adds the verdicts to a report. `trace` is the file of the run's records, if there is one.
fn judge_report(
    report: &mut RunReport,
    options: &Options,
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
        if options.deterministic {
            add_turns(&mut found, &report.flows, system, &path)?;
        }
        observed = Some(found);
    }
    judge::judge(report, observed.as_ref(), (&budgets, &lines), conditions(options));
    Ok(())
}

/// What the guests out of Debian were made of.
fn debian_packages(system: &System, environment: &Environment) -> Value {
    let named = |vm: &weir_model::Vm| {
        let sources = [Some(vm.image.source()), vm.image.initrd()];
        let guest = matches!(vm.image, weir_model::Image::Elf { .. });
        !guest
            && sources.into_iter().flatten().any(|source| matches!(source, ImageSource::Named(_)))
    };
    if !system.vms.iter().any(named) {
        return Value::Null;
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

fn setup(system: &System, options: &Options) -> Result<Setup> {
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
        memory: ram::size(platform.memory.size, &options.qemu_args)?,
        deterministic: options.deterministic,
        extra: options.qemu_args.clone(),
    })
}

/// What QEMU loads first so that a counted run repeats. For an image that was built before what was
/// built with it will do.
fn preload(options: &Options, environment: &Environment) -> Result<Preload> {
    let kept = Programs::new(environment, true).icount_shim(environment);
    let library = match kept {
        Ok(kept) if options.no_build || options.image_file.is_some() => kept,
        Err(error) if options.no_build => return Err(error),
        _ => Programs::new(environment, false).icount_shim(environment)?,
    };
    Preload::open(&library)
}

/// The exit status that a run deserves, and what to say beside the summary.
fn verdict(
    report: &RunReport,
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

/// A run under way.
struct Running<'a> {
    options: &'a Options,
    names: Vec<String>,
    session: Session,
    machine: Machine,
    record: Record,
    console: &'a mut dyn Console,
    hub: Arc<Hub>,
    /// Set when the person at an attached console left.
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

impl<'a> Running<'a> {
    fn new(
        options: &'a Options,
        system: &System,
        machine: Machine,
        record: Record,
        console: &'a mut dyn Console,
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
        let limit_ns = options.time.filter(|_| options.deterministic);
        let vcpus = vms.iter().map(|vm| vm.cores.len()).sum();
        let plan = Plan {
            system: name(system),
            platform: system.platform.name.clone(),
            vms,
            flows: flows(system, options),
            expect: expect.collect(),
            limit_ns: limit_ns.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)),
            keep_running: options.keep_running,
            count_flows: awaits_counts(options, system),
        };
        let hub = Hub::new(names.clone(), machine.input());
        let left = Arc::new(AtomicBool::new(false));
        // Input comes in the host's time: no run with it is like another.
        if !options.deterministic {
            hub.listen(record.directory())?;
            console.listening(record.directory(), &left)?;
        }
        let session = Session::new(plan);
        Ok(Self {
            options,
            names,
            session,
            machine,
            record,
            console,
            hub,
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
            End::AllMet | End::TimeOver => !self.options.deterministic,
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
        forgive(self.console.flush())?;
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
                    forgive(self.console.flush())?;
                }
                Heard::Gone if self.session.stopped() => return Ok((End::SystemStop, None)),
                Heard::Gone => return Ok((End::MachineGone, None)),
            }
            if self.options.interrupt.load(Ordering::SeqCst) || self.left.load(Ordering::SeqCst) {
                return Ok((End::Interrupted, None));
            }
            if self.session.stopped() && stopped.get_or_insert_with(Instant::now).elapsed() > ENDING
            {
                let trouble = "the system has ended, but QEMU had to be killed";
                return Ok((End::SystemStop, Some(trouble.into())));
            }
            let limit = self.options.time.filter(|_| !self.options.deterministic);
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                return Ok((End::TimeOver, None));
            }
            let silence = self.silence;
            if self.options.deterministic && heard.elapsed() > silence {
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

    /// Asks for counters and takes what comes until all vCPUs have answered and no VM is within a
    /// line.
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
            match show(self.console, step, &self.names) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => watched = false,
                other => other?,
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

/// Shows what the wire said, as far as it is for a person.
fn show(console: &mut dyn Console, step: &Step, names: &[String]) -> io::Result<()> {
    let name = |vm: usize| names.get(vm).map_or("?", String::as_str);
    match step {
        Step::Line { source: Source::Vm(vm), text, .. } => console.line(Some(*vm), text),
        Step::Line { text, .. } => console.line(None, text),
        Step::Dropped { source: Source::Vm(vm), bytes, .. } => {
            let name = name(*vm);
            let text = format!("{name}: {bytes} console bytes lost: it wrote faster than the wire");
            console.line(None, &text)
        }
        Step::Event(event) => {
            let name = |vm: u8| names.get(usize::from(vm)).cloned().unwrap_or_default();
            let text = report::in_words(event, name);
            console.event(text.strip_prefix("weir: ").unwrap_or(&text))
        }
        _ => Ok(()),
    }
}

/// Forgives that the reader of a console has gone away: that is noticed elsewhere.
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
    flows: &[report::FlowRun],
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
fn conditions(options: &Options) -> Conditions {
    let clock = match (options.deterministic, options.unsliced) {
        (false, _) => Clock::Host,
        (true, false) => Clock::CountedInSlices,
        (true, true) => Clock::Counted,
    };
    Conditions { clock, accept_host_time: options.accept_host_time }
}

/// Returns the flows that the broker moves, with their bounds; without bounds in a run whose time
/// is the host's.
fn flows(system: &System, options: &Options) -> Vec<FlowFacts> {
    if system.broker().is_none() {
        return Vec::new();
    }
    let bounds = options.bounds.iter().copied().chain(std::iter::repeat(None));
    let mut facts = Vec::new();
    for (flow, bound) in system.timing.flows.iter().zip(bounds) {
        let shared = flow.to.len() > 1;
        facts.extend(flow.to.iter().map(|&to| FlowFacts {
            name: if shared {
                format!("{}/{}", flow.name, system.vms[to].name)
            } else {
                flow.name.clone()
            },
            bound_ns: bound.filter(|_| options.deterministic),
            deadline_ns: flow.deadline.map(|deadline| deadline.0),
            period_ns: flow.period.map(|period| period.0),
            shared,
        }));
    }
    facts
}
