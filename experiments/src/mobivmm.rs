//! mobivmm, VI: how long a 10 ms sleep of one VM takes beside another on its core, under round
//! robin and interrupts that take the core at once (Table I, Figures 8, 9 and 11), and what
//! admission and other schedules make of it.
//!
//! Both guests have a tick of 10 ms, and lose those that fall due while they are off the core, as
//! MobiVMM's do. The interrupts are those of a network device that the loaded VM drives, for frames
//! that a generator on another core sends it by a device of its own on the same hub of QEMU's. The
//! second source, which stands for audio, is a physical line of lower priority that the loaded VM's
//! second vCPU raises on a core of its own, every 5 ms. A storm is such a line, too: no driver
//! takes frames as fast as that.

use crate::{
    Outcome, Request,
    statement::{Deviation, Paper, Relation, Source, Statement},
};
use serde_json::{Value, json};
use std::{ffi::OsString, fmt::Write as _, fs, path::Path};
use weir_analysis::{Nanos, system::supply};
use weir_image::{
    Environment, Failure, Result,
    cargo::Programs,
    failure::{Context, GOOD},
    progress::Bar,
};
use weir_model::{Catalog, SystemFile, timing::Entity};
use weir_runner::{Options, Silent, run, show::summary, watch_signals};

/// Milliseconds of a tick of both guests, and of the sleep.
const TICK_MS: u64 = 10;
/// Microseconds between two interrupts of the second source.
const SECOND_US: u32 = 5_000;
/// Interrupts a second that may take the core, where they are admitted by a rule, and how many at
/// once.
const ADMITTED: (u64, u64) = (5, 1);
/// The interval, in microseconds, that stands for a storm: a line is raised again as fast as a core
/// can.
pub const STORM_US: u32 = 1;
/// By how much the longest of some sleeps may differ from load to load where none of it takes the
/// core: the phases, and EL2's own time for the interrupts, in microseconds. Most of it is QEMU's:
/// who waits for a lock of a VM that storms waits for the other core's slice of 30 us.
const INDEPENDENT_US: u32 = 1_000;
/// What the sleeper needs besides its ticks until it has noticed, in microseconds: also such waits,
/// when it gets the core.
const NOTICE_US: u64 = 500;

const PAPER: Paper = Paper("mobivmm");
const TABLE1: Source = PAPER.at("Table I");
const FIGURE8: Source = PAPER.at("VI, Figure 8");
const FIGURE9: Source = PAPER.at("VI, Figure 9");
const FIGURE10: Source = PAPER.at("VI, Figure 10");
const FIGURE11: Source = PAPER.at("VI, Figure 11");
const WEIR: Source =
    Source { paper: "weir", place: "docs/results/reproduce.md, Shared core under interrupt load" };

/// Table I: a sleep alone and next to the other VM, in ms.
const ALONE_MS: f64 = 17.6;
const SHARED_MS: f64 = 37.5;
/// The share by which values of Table I, of three digits and an unknown number of sleeps, may be
/// missed.
const TABLE_TOLERANCE: f64 = 0.05;
/// Figure 8: a sleep at the longest interval, and at 1 ms, where it is longest.
const FIG8_MS: (f64, f64) = (40.0, 60.0);
/// These two are given to a digit: half of it.
const FIG8_READ_MS: f64 = 5.0;
/// Their ratio is then between 55/45 and 65/35, which is the published one less and more by this
/// share.
const FIG8_RATIO: f64 = 0.24;
/// The interval in us at which Figures 8 and 9 have their maximum, and the one at which they fall.
const FIG8_MOST_US: u32 = 1_000;
const FIG8_DIP_US: u32 = 500;
/// By how much a sleep may be off a trend: a tenth of the figure's range. Means of runs with frames
/// scatter by a millisecond.
const FIG8_SLACK_MS: f64 = (FIG8_MS.1 - FIG8_MS.0) / 10.0;
/// "0" of Figure 10, in interrupts in 10 ms.
const NONE: Relation = Relation::Near(0.0, 0.05);

/// What is known to differ.
pub static DEVIATIONS: [Deviation; 5] = [
    Deviation {
        id: "bare-metal-sleeper",
        reason: "the sleeper has no kernel between its tick and its program: it sleeps a tick and a half in the mean, and the paper's Linux \
                 2.4 ms more, alone and beside the other VM",
        of: &[
            ("alone", Relation::Near(15.2, 0.6)),
            ("shared", Relation::Near(35.2, 0.6)),
            ("ratio", Relation::Near(2.31, 0.08)),
        ],
    },
    Deviation {
        id: "interrupts-shift-turns",
        reason: "an interrupt gives the loaded VM the rest of the turn, and the next turn is the sleeper's again: few interrupts shorten the time \
                 that it waits below that without any",
        of: &[("fig8-least", Relation::Near(24.0, 4.0))],
    },
    Deviation {
        id: "handlers-are-short",
        reason: "at 1 ms a sleep is longer by one turn of 20 ms in the paper; there the loaded VM is a Linux, whose handlers take a time that \
                 the paper does not give, and here 20 us for each frame",
        of: &[("fig8-most", Relation::Near(40.5, 4.0))],
    },
    Deviation {
        id: "interrupts-are-never-blocked",
        reason: "the loaded VM takes its interrupts one by one and blocks none, so that a sleep does not become shorter at 0.5 ms",
        of: &[("fig8-dip", Relation::Near(0.0, 4.5)), ("fig9-dip", Relation::Near(0.0, 4.5))],
    },
    Deviation {
        id: "time-for-both-sources",
        reason: "the loaded VM has time left for the second source: 131 interrupts of 20 us in 10 ms are 2.6 of the 5 ms that it has",
        of: &[
            ("fig10-starved", Relation::Near(2.0, 0.2)),
            ("fig10-storm", Relation::Near(1.2, 0.2)),
        ],
    },
];

/// The loaded VM's network device and the generator's: the slot on PCI, and QEMU's name of the port
/// of the hub.
const PORTS: [(u32, &str); 2] = [(2, "loaded"), (3, "generator")];
/// The line of the loaded VM's: INTA of slot 2 on QEMU's bus.
const NETWORK_LINE: u32 = 37;
/// The line of the storm, of QEMU's clock, and that of the second source, of its GPIO.
const STORM_LINE: u32 = 34;
const SECOND_LINE: u32 = 39;

/// How VMs share the core, and what interrupts may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Round robin, every interrupt takes the core for the rest of the turn (mobivmm).
    Preempt,
    /// The same for a few interrupts a second.
    Admit,
    /// Interrupts wait for their VM's turn.
    Defer,
    /// Half of the time for the sleeper, which goes first, and all but a millisecond of the rest
    /// for the other.
    FixedPriority,
    /// A time table of two slots of a quantum each.
    Table,
}

impl Policy {
    const fn name(self) -> &'static str {
        match self {
            Self::Preempt => "preempt",
            Self::Admit => "admit",
            Self::Defer => "defer",
            Self::FixedPriority => "fixed-priority",
            Self::Table => "table",
        }
    }
}

/// One run of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// How the two VMs share the core.
    pub policy: Policy,
    /// The quantum, in ms.
    pub quantum_ms: u64,
    /// Whether a second device interrupts.
    pub audio: bool,
    /// The time between two interrupts, in us; None without interrupts.
    pub interval_us: Option<u32>,
    /// The number of sleeps that are measured.
    pub sleeps: u32,
}

/// What interrupts the loaded VM first of all.
enum First {
    None,
    /// Frames, so many microseconds apart.
    Frames(u32),
    /// A line that is raised as fast as a core can.
    Storm,
}

/// What came of it, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Response {
    avg: f64,
    max: f64,
    /// Interrupts of each source that the loaded VM dealt with in 10 ms, if it was there long
    /// enough to say (mobivmm, Figure 10).
    came: Option<[f64; 2]>,
    /// The bound of the longest sleep.
    bound: Option<f64>,
}

fn sleeper(sleeps: u32) -> String {
    format!(
        "\n[[vm]]\nname = \"rtos\"\ncpus = [0]\nmemory = \"4MiB\"\nticks = \"lose\"\n\
         image = {{ elf = \"responder\", args = \"role=sleeper sleeps={sleeps}\" }}\n\
         expect = [\"sleeper: {sleeps} sleeps\"]\n"
    )
}

/// The address of the network device in a slot.
fn mac(slot: u32) -> String {
    format!("52:54:00:00:00:{slot:02x}")
}

/// What QEMU is told to have two network devices on one hub.
fn hub() -> Vec<OsString> {
    let port = |(slot, name)| {
        let device = format!(
            "virtio-net-pci,netdev={name},addr={slot},mac={},disable-legacy=on,iommu_platform=on,romfile=",
            mac(slot)
        );
        ["-netdev".to_owned(), format!("hubport,id={name},hubid=0"), "-device".to_owned(), device]
    };
    PORTS.into_iter().flat_map(port).map(OsString::from).collect()
}

impl Point {
    /// What interrupts the loaded VM, but the second source.
    fn first(&self) -> First {
        match self.interval_us {
            None => First::None,
            Some(STORM_US) => First::Storm,
            Some(us) => First::Frames(us),
        }
    }

    /// Returns the system file of the run.
    #[must_use]
    pub fn toml(&self) -> String {
        let (line, device, raised, generator) = match self.first() {
            First::None => (None, None, String::new(), String::new()),
            First::Storm => {
                let raised = format!(" line={STORM_LINE} interval_us={STORM_US}");
                (Some(STORM_LINE), Some("/pl031@9010000".to_owned()), raised, String::new())
            }
            First::Frames(us) => {
                let [(to, _), (from, _)] = PORTS;
                let generator = format!(
                    "\n[[vm]]\nname = \"generator\"\ncpus = [2]\nmemory = \"2MiB\"\n\
                     image = {{ elf = \"station\", args = \"to={} frames={} interval_us={us} at_once=1\" }}\n\
                     devices = [\"pci:00:{from:02}.0\"]\n",
                    mac(to),
                    u32::MAX,
                );
                (Some(NETWORK_LINE), Some(format!("pci:00:{to:02}.0")), String::new(), generator)
            }
        };
        let second = if self.audio {
            format!(" second={SECOND_LINE} second_us={SECOND_US}")
        } else {
            String::new()
        };
        let devices: Vec<_> = device.into_iter().chain(["/pl061@9030000".to_owned()]).collect();
        let schedule = match self.policy {
            Policy::FixedPriority => {
                let (budget, period) = (self.quantum_ms, 2 * self.quantum_ms);
                // What EL2 takes for the sleeper is in that one's time.
                let rest = budget - 1;
                format!(
                    "kind = \"fixed-priority\", servers = [{{ vm = \"rtos\", budget = \"{budget}ms\", period = \"{period}ms\" }}, \
                     {{ vm = \"gpos\", budget = \"{rest}ms\", period = \"{period}ms\" }}]"
                )
            }
            Policy::Table => {
                let (quantum, frame) = (self.quantum_ms, 2 * self.quantum_ms);
                format!(
                    "kind = \"table\", major_frame = \"{frame}ms\", slots = [{{ vm = \"rtos\", start = \"0ms\", length = \"{quantum}ms\" }}, \
                     {{ vm = \"gpos\", start = \"{quantum}ms\", length = \"{quantum}ms\" }}]"
                )
            }
            _ => format!("kind = \"round-robin\", quantum = \"{}ms\"", self.quantum_ms),
        };
        let rule = match self.policy {
            Policy::Preempt => "preempt = true\n".to_owned(),
            Policy::Admit => {
                format!("preempt = true\nrate = {}\nburst = {}\n", ADMITTED.0, ADMITTED.1)
            }
            Policy::Defer | Policy::FixedPriority | Policy::Table => String::new(),
        };
        let mut lines = String::new();
        for line in line.into_iter().chain(self.audio.then_some(SECOND_LINE)) {
            let _ = write!(lines, "\n[[irq]]\nline = {line}\nvm = \"gpos\"\n{rule}");
        }
        format!(
            "platform = \"qemu-virt\"\n{}\n[[vm]]\nname = \"gpos\"\ncpus = [0, 1]\nmemory = \"4MiB\"\nticks = \"lose\"\n\
             image = {{ elf = \"responder\", args = \"role=loaded report=4{raised}{second}\" }}\n\
             devices = {devices:?}\n{generator}\
             \n[[core]]\nid = 0\nschedule = {{ {schedule} }}\n{lines}",
            sleeper(self.sleeps)
        )
    }

    /// Returns the longest that a sleep can take, in ms: to the sleeper's second tick, under the
    /// supply that the analysis computes. None if interrupts can take the core without a limit.
    #[must_use]
    pub fn bound_ms(&self) -> Option<f64> {
        let file =
            SystemFile::parse(Path::new("mobivmm"), &self.toml(), &Catalog::default()).ok()?;
        let timing = file.timing();
        let rtos = timing.vms.iter().position(|vm| vm.name == "rtos")?;
        let supply = supply(timing, Entity::Vm(rtos)).ok()??.2;
        if supply.unprotected() {
            return None;
        }
        let (tick, notice) = (Nanos(TICK_MS * 1_000_000), Nanos(NOTICE_US * 1000));
        let own = Nanos(2 * tick.0 + notice.0);
        let window = supply.nth_tick(2, tick, notice).or_else(|| supply.window_for(own))?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let ms = window.0 as f64 / 1e6;
        Some(ms)
    }
}

/// Runs a system and reads what its sleeper says.
fn measure(
    name: &str,
    (text, qemu_args): (&str, Vec<OsString>),
    directory: &Path,
    environment: &Environment,
) -> Result<Response> {
    let system = directory.join(name).with_extension("toml");
    fs::write(&system, text).context(|| format!("write {}", system.display()))?;
    let checked = weir_image::check(&system, None, environment)?;
    let options = Options {
        no_build: true,
        deterministic: true,
        qemu_args,
        interrupt: watch_signals()?,
        ..Options::new(environment.clone())
    };
    let outcome = run(&checked, &options, &mut Silent)?;
    if outcome.status != GOOD {
        let why = outcome.trouble.unwrap_or_else(|| summary(&outcome.report));
        let logs = outcome.directory.display();
        let text = format!("{}: {why}\nlogs: {logs}", system.display());
        return Err(Failure { status: outcome.status, text });
    }
    let log = |vm: &str| {
        let log = outcome.directory.join(vm).with_extension("log");
        fs::read_to_string(&log).context(|| format!("read {}", log.display()))
    };
    let mut response = log("rtos")?.lines().find_map(response);
    if let (Some(response), Ok(said)) = (&mut response, log("gpos")) {
        response.came = said.lines().rev().find_map(came);
    }
    // Its logs are only in the way.
    let _ = fs::remove_dir_all(&outcome.directory);
    response
        .ok_or_else(|| Failure::system(format!("{}: no response was measured", system.display())))
}

/// `sleeper: 40 sleeps, response avg 35123 max 40001 us, 81 ticks`
fn response(line: &str) -> Option<Response> {
    let numbers = line.strip_prefix("sleeper: ")?;
    let mut numbers = numbers.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
    let [_, avg, max] = [numbers.next()?, numbers.next()?, numbers.next()?];
    Some(Response {
        avg: f64::from(avg) / 1000.0,
        max: f64::from(max) / 1000.0,
        came: None,
        bound: None,
    })
}

/// `loaded: 8 ticks, 81 interrupts, 9 of the second line, in 161000 us`, as interrupts in 10 ms.
fn came(line: &str) -> Option<[f64; 2]> {
    let numbers = line.strip_prefix("loaded: ")?;
    let mut numbers = numbers.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
    let [_, all @ .., us] =
        [numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?].map(f64::from);
    let all: [f64; 2] = all;
    (us > 0.0).then(|| all.map(|count| count * 10_000.0 / us))
}

/// Runs the whole experiment.
pub(crate) fn mobivmm(request: &Request) -> Result<Outcome> {
    let environment = &request.environment;
    let programs = Programs::new(environment, false);
    programs.hypervisor(environment, false)?;
    programs.guests(environment, &["responder".to_owned(), "station".to_owned()])?;
    programs.icount_shim(environment)?;
    let sleeps = if request.quick { 12 } else { 40 };
    let intervals: &[u32] =
        if request.quick { &[1_000, 20_000] } else { &[500, 1_000, 2_000, 5_000, 10_000, 20_000] };
    let mut curves = vec![
        (Policy::Preempt, 20, false),
        (Policy::Preempt, 20, true),
        (Policy::Preempt, 10, true),
        (Policy::Admit, 20, true),
        (Policy::Defer, 20, true),
        (Policy::FixedPriority, 20, true),
        (Policy::Table, 20, true),
    ];
    if request.quick {
        curves.retain(|(policy, quantum, audio)| {
            *policy != Policy::Preempt || (*quantum, *audio) == (20, false)
        });
    }
    // With a storm that takes the core each time the sleeper would never be done.
    let intervals = |policy| {
        let storm = (policy != Policy::Preempt).then_some(STORM_US);
        storm.into_iter().chain(intervals.iter().copied())
    };
    let points = curves.iter().map(|(policy, ..)| intervals(*policy).count()).sum::<usize>();
    let bar = Bar::new("running", (2 + points) as u64);
    let run = |name: &str, text: &str, qemu_args: Vec<OsString>| {
        let response = measure(name, (text, qemu_args), &request.directory, environment);
        bar.add(1);
        response
    };
    let alone = format!(
        "platform = \"qemu-virt\"\n{}\n[[core]]\nid = 0\nschedule = {{ kind = \"round-robin\", quantum = \"20ms\" }}\n",
        sleeper(sleeps)
    );
    let alone = run("alone", &alone, Vec::new())?;
    let quiet =
        Point { policy: Policy::Defer, quantum_ms: 20, audio: false, interval_us: None, sleeps };
    let shared = run("shared", &quiet.toml(), Vec::new())?;
    let mut points = Vec::new();
    for (policy, quantum_ms, audio) in curves {
        for interval_us in intervals(policy) {
            let point = Point { policy, quantum_ms, audio, interval_us: Some(interval_us), sleeps };
            let audio = if audio { "-audio" } else { "" };
            let name = format!("{}-{quantum_ms}{audio}-{interval_us}", policy.name());
            let devices = match point.first() {
                First::Frames(_) => hub(),
                First::None | First::Storm => Vec::new(),
            };
            let bound = point.bound_ms();
            let response = run(&name, &point.toml(), devices)?;
            points.push((point, Response { bound, ..response }));
        }
    }
    drop(bar);
    Ok(told(&Measured { alone, shared, points }))
}

/// All that was measured.
#[derive(Clone, Debug)]
struct Measured {
    alone: Response,
    shared: Response,
    points: Vec<(Point, Response)>,
}

fn told(measured: &Measured) -> Outcome {
    let Measured { alone, shared, points } = measured;
    let ratio = shared.avg / alone.avg;
    let mut text = format!(
        "Table I: a 10 ms sleep takes\n  alone   {:.1} ms (paper 17.6)\n  shared  {:.1} ms (paper 37.5)\n  ratio   {ratio:.2} (paper 2.13)\n\n\
         {:16} {:>8} {:>6} {:>12} {:>9} {:>9} {:>9}   interrupts in 10 ms\n",
        alone.avg,
        shared.avg,
        "policy",
        "quantum",
        "audio",
        "interval ms",
        "avg ms",
        "max ms",
        "bound ms",
    );
    let (mut curves, mut sources) = (Vec::new(), Vec::new());
    for (point, response) in points {
        let Point { policy, quantum_ms, audio, interval_us, .. } = *point;
        let interval_ms = f64::from(interval_us.unwrap_or(0)) / 1000.0;
        let bound = response.bound;
        let shown = bound.map_or_else(|| "none".to_owned(), |bound| format!("{bound:.1}"));
        let dealt = response.came.map_or_else(String::new, |[first, second]| {
            if audio { format!("{first:.1} and {second:.1}") } else { format!("{first:.1}") }
        });
        let _ = writeln!(
            text,
            "{:16} {quantum_ms:>5} ms {:>6} {interval_ms:>12} {:>9.1} {:>9.1} {shown:>9}   {dealt}",
            policy.name(),
            if audio { "yes" } else { "no" },
            response.avg,
            response.max,
        );
        curves.push(json!({
            "quantum_ms": quantum_ms,
            "audio": audio,
            "policy": policy.name(),
            "interval_ms": interval_ms,
            "response_ms": { "avg": response.avg, "max": response.max },
            "bound_ms": bound,
        }));
        sources.push(json!({
            "quantum_ms": quantum_ms,
            "audio": audio,
            "policy": policy.name(),
            "interval_ms": interval_ms,
            "network": response.came.map(|came| came[0]),
            "second": response.came.map(|came| came[1]),
        }));
    }
    let table1: Value = json!({ "alone_ms": alone.avg, "shared_ms": shared.avg });
    let json = json!({ "table1": table1, "curves": curves, "interrupts_per_10ms": sources });
    Outcome { json, text, statements: stated(measured), files: Vec::new() }
}

/// Milliseconds of an interval in us.
fn ms(us: u32) -> f64 {
    f64::from(us) / 1000.0
}

/// What the paper says, and what is claimed beyond it.
fn stated(measured: &Measured) -> Vec<Statement> {
    let Measured { alone, shared, points } = measured;
    let mut all = vec![
        TABLE1.says(
            "alone",
            "a 10 ms sleep of a VM alone",
            Relation::Within(ALONE_MS, TABLE_TOLERANCE),
            [alone.avg],
        ),
        TABLE1.says(
            "shared",
            "the same beside another VM",
            Relation::Within(SHARED_MS, TABLE_TOLERANCE),
            [shared.avg],
        ),
        TABLE1.says(
            "added",
            "what the other VM adds",
            Relation::Within(SHARED_MS - ALONE_MS, TABLE_TOLERANCE),
            [shared.avg - alone.avg],
        ),
    ];
    all = all.into_iter().map(|statement| statement.unit("ms")).collect();
    all.push(TABLE1.says(
        "ratio",
        "the ratio of the two",
        Relation::Within(SHARED_MS / ALONE_MS, TABLE_TOLERANCE),
        [shared.avg / alone.avg],
    ));
    all.extend(preempted(points));
    all.extend(sources(points));
    all.extend(limited(points));
    all
}

/// The points of a curve, by falling interval.
fn curve(
    points: &[(Point, Response)],
    policy: Policy,
    quantum_ms: u64,
    audio: bool,
) -> Vec<(u32, Response)> {
    let mut its: Vec<_> = points
        .iter()
        .filter(|(p, _)| (p.policy, p.quantum_ms, p.audio) == (policy, quantum_ms, audio))
        .filter_map(|(point, response)| Some((point.interval_us?, *response)))
        .collect();
    its.sort_by_key(|(interval, _)| std::cmp::Reverse(*interval));
    its
}

/// Figures 8, 9 and 11: interrupts that take the core.
fn preempted(points: &[(Point, Response)]) -> Vec<Statement> {
    let fig8 = curve(points, Policy::Preempt, 20, false);
    let fig9 = curve(points, Policy::Preempt, 20, true);
    let mut all = figure8(&fig8);
    all.extend(figure9(&fig8, &fig9));
    for (us, response) in curve(points, Policy::Preempt, 10, true) {
        all.push(FIGURE11.says(
            format!("fig11-{us}"),
            format!(
                "at {} ms a quantum of 10 ms makes a sleep shorter than one of 20 ms: ratio",
                ms(us)
            ),
            Relation::Below(1.0),
            one(at(&fig9, us).map(|long| response.avg / long)),
        ));
    }
    all
}

/// A value, if it was measured.
fn one(value: Option<f64>) -> Vec<f64> {
    value.into_iter().collect()
}

/// The mean of a curve's point.
fn at(curve: &[(u32, Response)], us: u32) -> Option<f64> {
    curve.iter().find(|(interval, _)| *interval == us).map(|(_, response)| response.avg)
}

/// Figure 8: network interrupts alone.
fn figure8(fig8: &[(u32, Response)]) -> Vec<Statement> {
    let mut all = Vec::new();
    let until_most = || fig8.iter().filter(|(us, _)| *us >= FIG8_MOST_US);
    all.push(
        FIGURE8
            .says(
                "fig8-rises",
                "a sleep gets no shorter as the interval of network interrupts falls to 1 ms",
                Relation::NotFalling(FIG8_SLACK_MS),
                until_most().map(|(_, response)| response.avg).collect::<Vec<_>>(),
            )
            .unit("ms"),
    );
    let first = until_most().next().map(|(us, response)| (*us, response.avg));
    if let Some((us, avg)) = first {
        all.push(
            FIGURE8
                .says(
                    "fig8-least",
                    format!("a sleep at the longest interval, {} ms", ms(us)),
                    Relation::Near(FIG8_MS.0, FIG8_READ_MS),
                    [avg],
                )
                .unit("ms"),
        );
    }
    let most = at(fig8, FIG8_MOST_US);
    all.push(
        FIGURE8
            .says(
                "fig8-most",
                "a sleep at an interval of 1 ms",
                Relation::Near(FIG8_MS.1, FIG8_READ_MS),
                one(most),
            )
            .unit("ms"),
    );
    all.push(FIGURE8.says(
        "fig8-ratio",
        "the ratio of the two",
        Relation::Within(FIG8_MS.1 / FIG8_MS.0, FIG8_RATIO),
        one(most.zip(first).map(|(most, (_, first))| most / first)),
    ));
    let ends = first.zip(most);
    for (us, response) in until_most().skip(1).filter(|(us, _)| *us != FIG8_MOST_US) {
        let beyond = ends.map(|((_, first), most)| {
            let (least, most) = (first.min(most), first.max(most));
            (least - response.avg).max(response.avg - most).max(0.0)
        });
        all.push(
            FIGURE8
                .says(
                    format!("fig8-{us}"),
                    format!(
                        "a sleep at {} ms is between those at the ends: beyond them by",
                        ms(*us)
                    ),
                    Relation::AtMost(FIG8_SLACK_MS),
                    one(beyond),
                )
                .unit("ms"),
        );
    }
    all
}

/// Figure 9, with a second source, and where both curves fall.
fn figure9(fig8: &[(u32, Response)], fig9: &[(u32, Response)]) -> Vec<Statement> {
    let mut all = Vec::new();
    for (id, source, curve) in [("fig8-dip", FIGURE8, fig8), ("fig9-dip", FIGURE9, fig9)] {
        if let Some(dip) = at(curve, FIG8_DIP_US) {
            let shorter = at(curve, FIG8_MOST_US).map(|most| most - dip);
            all.push(
                source
                    .says(
                        id,
                        "a sleep becomes shorter from 1 ms to 0.5 ms: by",
                        Relation::AtLeast(FIG8_READ_MS),
                        one(shorter),
                    )
                    .unit("ms"),
            );
        }
    }
    let longer: Vec<_> = fig9
        .iter()
        .filter_map(|(us, response)| Some((*us, response.avg - at(fig8, *us)?)))
        .collect();
    for (us, longer) in &longer {
        all.push(
            FIGURE9
                .says(
                    format!("fig9-{us}"),
                    format!(
                        "at {} ms a second source makes a sleep no shorter: longer by",
                        ms(*us)
                    ),
                    Relation::AtLeast(-FIG8_SLACK_MS),
                    [*longer],
                )
                .unit("ms"),
        );
    }
    if !fig9.is_empty() {
        let sum: f64 = longer.iter().map(|(_, longer)| longer).sum();
        all.push(
            FIGURE9
                .says(
                    "fig9-overall",
                    "a second source makes a sleep longer in the mean over the intervals: by",
                    Relation::AtLeast(FIG8_SLACK_MS / 2.0),
                    [sum / f64::from(longer.len() as u32)],
                )
                .unit("ms"),
        );
        let others = fig9.iter().filter(|(us, _)| *us != FIG8_MOST_US);
        let others = others.map(|(_, response)| response.avg).fold(f64::NAN, f64::max);
        all.push(FIGURE9.says(
            "fig9-most",
            "with a second source a sleep is longest at 1 ms: longer than the longest other by",
            Relation::AtLeast(-FIG8_SLACK_MS),
            one(at(fig9, FIG8_MOST_US).map(|most| most - others)),
        ).unit("ms"));
    }
    all
}

/// Figure 10: interrupts of the second source that the loaded VM deals with in 10 ms.
fn sources(points: &[(Point, Response)]) -> Vec<Statement> {
    let mut all = Vec::new();
    let second = |policy: Policy, us: u32| {
        let its = curve(points, policy, 20, true);
        let at = its.into_iter().find(|(interval, _)| *interval == us)?;
        at.1.came.map(|came| came[1])
    };
    let preempted = curve(points, Policy::Preempt, 20, true);
    if preempted.iter().any(|(us, _)| *us == FIG8_DIP_US) {
        all.push(FIGURE10.says(
            "fig10-starved",
            "interrupts of the second source in 10 ms, at an interval of 0.5 ms of the first",
            NONE,
            one(second(Policy::Preempt, FIG8_DIP_US)),
        ));
    }
    all.push(FIGURE10.says(
        "fig10-storm",
        "the same beside a storm of the first, where interrupts wait",
        NONE,
        one(second(Policy::Defer, STORM_US)),
    ));
    all
}

/// What weir adds: with a rule, or where interrupts wait, responses have a bound and do not depend
/// on the load.
fn limited(points: &[(Point, Response)]) -> Vec<Statement> {
    let mut all = Vec::new();
    for (point, response) in points {
        let (Some(bound), Some(us)) = (response.bound, point.interval_us) else { continue };
        all.push(
            WEIR.says(
                format!("bound-{}-{us}", point.policy.name()),
                format!(
                    "{} at {} ms: the longest sleep is within the bound of {bound:.1} ms",
                    point.policy.name(),
                    ms(us)
                ),
                Relation::AtMost(bound),
                [response.max],
            )
            .unit("ms"),
        );
    }
    // Where interrupts may take the core now and then, some of the sleeps meet one.
    for (policy, which) in [
        (Policy::Admit, "mean"),
        (Policy::Defer, "longest"),
        (Policy::FixedPriority, "longest"),
        (Policy::Table, "longest"),
    ] {
        let its = points.iter().filter(|(point, _)| point.policy == policy);
        let (least, most) = its
            .map(|(_, response)| if which == "mean" { response.avg } else { response.max })
            .fold((f64::MAX, 0.0_f64), |(a, b), ms| (a.min(ms), b.max(ms)));
        let may = if which == "mean" { 2.0 } else { ms(INDEPENDENT_US) };
        all.push(WEIR.says(
            format!("load-{}", policy.name()),
            format!(
                "{}: the {which} sleep does not depend on the load ({least:.2} to {most:.2} ms): spread",
                policy.name()
            ),
            Relation::AtMost(may),
            [most - least],
        ).unit("ms"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    #[test]
    fn a_report_is_read() {
        let read = response("sleeper: 40 sleeps, response avg 35123 max 40001 us, 81 ticks");
        let read = read.map(|response| (response.avg, response.max));
        assert_eq!(read, Some((35.123, 40.001)));
        assert!(response("loaded: 1 ticks").is_none());
        let came = came("loaded: 8 ticks, 81 interrupts, 9 of the second line, in 162000 us");
        assert_eq!(came, Some([5.0, 90_000.0 / 162_000.0]));
    }

    /// Measurements of a whole run.
    fn good() -> Measured {
        let response = |avg: f64, max: f64, second| Response {
            avg,
            max,
            came: Some([9.0, second]),
            bound: None,
        };
        let mut points = Vec::new();
        let mut add = |policy, quantum_ms, audio, us, response: Response| {
            let interval_us = Some(us);
            points.push((Point { policy, quantum_ms, audio, interval_us, sleeps: 40 }, response));
        };
        let intervals = [500, 1_000, 2_000, 5_000, 10_000, 20_000];
        let fig8 = [41.839, 40.03, 39.806, 39.623, 34.832, 24.287];
        let fig9 = [41.496, 43.167, 41.015, 40.044, 39.598, 39.86];
        let fig11 = [19.924, 20.328, 20.362, 19.116, 19.298, 18.864];
        for (quantum, audio, curve) in [(20, false, fig8), (20, true, fig9), (10, true, fig11)] {
            for (us, avg) in intervals.into_iter().zip(curve) {
                add(Policy::Preempt, quantum, audio, us, response(avg, 60.0, 2.0));
            }
        }
        for policy in [Policy::Admit, Policy::Defer, Policy::FixedPriority, Policy::Table] {
            for us in std::iter::once(STORM_US).chain(intervals) {
                let limited = Response { bound: Some(40.0), ..response(35.18, 39.86, 1.2) };
                add(policy, 20, true, us, limited);
            }
        }
        Measured { alone: response(15.2, 20.0, 0.0), shared: response(35.2, 40.0, 0.0), points }
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(&good(), &DEVIATIONS, stated, |all| {
            let mut values: Vec<&mut dyn Change> = vec![&mut all.alone.avg, &mut all.shared.avg];
            for (_, response) in &mut all.points {
                values.push(&mut response.avg);
                values.push(&mut response.max);
                if let Some([_, second]) = &mut response.came {
                    values.push(second);
                }
            }
            values
        });
    }

    #[test]
    fn only_what_is_limited_has_a_bound() {
        let point = Point {
            policy: Policy::Preempt,
            quantum_ms: 20,
            audio: false,
            interval_us: Some(1),
            sleeps: 1,
        };
        assert!(point.bound_ms().is_none());
        let admit = Point { policy: Policy::Admit, ..point }.bound_ms();
        let defer = Point { policy: Policy::Defer, ..point }.bound_ms();
        let fixed = Point { policy: Policy::FixedPriority, ..point }.bound_ms();
        assert!(admit > defer && defer > Some(40.0), "{admit:?} {defer:?}");
        assert!(fixed > Some(40.0), "{fixed:?}");
        // Two ticks and a bit, in slots of two ticks.
        let table = Point { policy: Policy::Table, ..point }.bound_ms();
        assert!(table > Some(60.0) && table < Some(61.0), "{table:?}");
        assert!(admit < Some(81.0) && defer < Some(41.0), "{admit:?} {defer:?}");
    }

    #[test]
    fn every_system_that_is_printed_passes_the_check() {
        for policy in
            [Policy::Preempt, Policy::Admit, Policy::Defer, Policy::FixedPriority, Policy::Table]
        {
            for interval_us in [STORM_US, 1_000] {
                let point = Point {
                    policy,
                    quantum_ms: 20,
                    audio: true,
                    interval_us: Some(interval_us),
                    sleeps: 1,
                };
                let (path, catalog) = (Path::new("mobivmm"), Catalog::default());
                let file = SystemFile::parse(path, &point.toml(), &catalog).unwrap();
                let checked = weir_analysis::check(file.timing());
                assert!(checked.is_ok(), "{policy:?}: {checked:?}");
            }
        }
    }
}
