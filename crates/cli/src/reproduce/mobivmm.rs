//! mobivmm, VI: how long a 10 ms sleep of one VM takes beside another on its core, under round robin and interrupts that take the core at once
//! (Table I, Figures 8, 9 and 11), and what admission and other schedules make of it.
//!
//! Both guests have a tick of 10 ms, and lose those that fall due while they are off the core, as MobiVMM's do. The interrupts are those of a network
//! device that the loaded VM drives, for frames that a generator on another core sends it by a device of its own on the same hub of QEMU's. The second source,
//! which stands for audio, is a physical line of lower priority that the loaded VM's second vCPU raises on a core of its own, every 5 ms. A storm is such a line, too:
//! no driver takes frames as fast as that.

use super::{Outcome, Request};
use crate::{
    analyze::time::supply,
    cargo::Programs,
    environment::Environment,
    failure::{Context, Failure, GOOD, Result},
    image,
    progress::Bar,
    run,
};
use serde_json::{Value, json};
use std::{ffi::OsString, fmt::Write as _, fs, path::Path};
use weir_analysis::Nanos;
use weir_config::{Timing, timing::Runner};

/// Milliseconds of a tick of both guests, and of the sleep.
const TICK_MS: u64 = 10;
/// Microseconds between two interrupts of the second source.
const SECOND_US: u32 = 5_000;
/// Interrupts a second that may take the core, where they are admitted by a rule, and how many at once.
const ADMITTED: (u64, u64) = (5, 1);
/// The interval, in microseconds, that stands for a storm: a line is raised again as fast as a core can.
const STORM_US: u32 = 1;
/// By how much the longest of some sleeps may differ from load to load where none of it takes the core: the phases, and EL2's own time for the
/// interrupts, in microseconds. Most of it is QEMU's: who waits for a lock of a VM that storms waits for the other core's slice of 30 us.
const INDEPENDENT_US: u32 = 1_000;
/// What the sleeper needs besides its ticks until it has noticed, in microseconds: also such waits, when it gets the core.
const NOTICE_US: u64 = 500;

/// The loaded VM's network device and the generator's: the slot on PCI, and QEMU's name of the port of the hub.
const PORTS: [(u32, &str); 2] = [(2, "loaded"), (3, "generator")];
/// The line of the loaded VM's: INTA of slot 2 on QEMU's bus.
const NETWORK_LINE: u32 = 37;
/// The line of the storm, of QEMU's clock, and that of the second source, of its GPIO.
const STORM_LINE: u32 = 34;
const SECOND_LINE: u32 = 39;

/// How VMs share the core, and what interrupts may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Round robin, every interrupt takes the core for the rest of the turn (mobivmm).
    Preempt,
    /// The same for a few interrupts a second.
    Admit,
    /// Interrupts wait for their VM's turn.
    Defer,
    /// Half of the time for the sleeper, which goes first, and all but a millisecond of the rest for the other.
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

/// A run.
#[derive(Clone, Copy, Debug)]
struct Point {
    policy: Policy,
    quantum_ms: u64,
    audio: bool,
    /// Microseconds between two interrupts; none: there are none.
    interval_us: Option<u32>,
    sleeps: u32,
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
    /// Interrupts of each source that the loaded VM dealt with in 10 ms, if it was there long enough to say (mobivmm, Figure 10).
    came: Option<[f64; 2]>,
}

fn sleeper(sleeps: u32) -> String {
    format!(
        "\n[[vm]]\nname = \"rtos\"\ncpus = [0]\nmemory = \"4MiB\"\nticks = \"lose\"\n\
         image = {{ elf = \"guests/responder\", args = \"role=sleeper sleeps={sleeps}\" }}\n\
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

    fn toml(&self) -> String {
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
                     image = {{ elf = \"guests/station\", args = \"to={} frames={} interval_us={us} at_once=1\" }}\n\
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
                    "kind = \"table\", frame = \"{frame}ms\", slots = [{{ vm = \"rtos\", start = \"0ms\", length = \"{quantum}ms\" }}, \
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
             image = {{ elf = \"guests/responder\", args = \"role=loaded report=4{raised}{second}\" }}\n\
             devices = {devices:?}\n{generator}\
             \n[[core]]\nid = 0\nschedule = {{ {schedule} }}\n{lines}",
            sleeper(self.sleeps)
        )
    }

    /// The longest that a sleep can take, in milliseconds: to the sleeper's second tick, under the supply that `weir analyze` computes.
    fn bound_ms(&self) -> Option<f64> {
        let timing = Timing::from_text(Path::new("mobivmm"), &self.toml()).ok()?;
        let rtos = timing.vms.iter().position(|vm| vm.name == "rtos")?;
        let (_, _, supply) = supply(&timing, Runner::Vm(rtos)).ok()??;
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
    let options = image::Options { no_build: true, ..image::Options::default() };
    let arguments = run::Arguments {
        image: options,
        deterministic: true,
        quiet: true,
        qemu_args,
        ..run::Arguments::of(system.clone())
    };
    let outcome = run::perform(&arguments, environment)?;
    if outcome.status != GOOD {
        let why = outcome.trouble.unwrap_or_else(|| run::show::summary(&outcome.report));
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
    Some(Response { avg: f64::from(avg) / 1000.0, max: f64::from(max) / 1000.0, came: None })
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

/// The whole experiment.
pub fn mobivmm(request: &Request) -> Result<Outcome> {
    let environment = &request.environment;
    let programs = Programs::new(environment, false);
    programs.hypervisor(environment, false)?;
    programs.guests(environment, &["responder".to_owned(), "station".to_owned()])?;
    programs.steady(environment)?;
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
            points.push((point, run(&name, &point.toml(), devices)?));
        }
    }
    drop(bar);
    Ok(told(alone, shared, &points))
}

fn told(alone: Response, shared: Response, points: &[(Point, Response)]) -> Outcome {
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
    let mut misses = Vec::new();
    if !(1.8..=2.5).contains(&ratio) {
        misses.push(format!("sharing makes a sleep {ratio:.2} times as long, not about 2.13"));
    }
    let (mut curves, mut sources) = (Vec::new(), Vec::new());
    for (point, response) in points {
        let Point { policy, quantum_ms, audio, interval_us, .. } = *point;
        let interval_ms = f64::from(interval_us.unwrap_or(0)) / 1000.0;
        let bound = point.bound_ms();
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
        if bound.is_some_and(|bound| response.max > bound) {
            misses.push(format!(
                "{} at {interval_ms} ms: {:.1} ms exceed the bound",
                policy.name(),
                response.max
            ));
        }
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
    misses.extend(unexpected(points));
    let table1: Value = json!({ "alone_ms": alone.avg, "shared_ms": shared.avg });
    let json = json!({ "table1": table1, "curves": curves, "interrupts_per_10ms": sources });
    Outcome { json, text, misses, files: Vec::new() }
}

/// What the curves say against the paper, and against what is claimed beyond it.
fn unexpected(points: &[(Point, Response)]) -> Vec<String> {
    let mut misses = Vec::new();
    let of = |policy: Policy, quantum: u64, audio: bool| {
        let its = points.iter().filter(move |(point, _)| {
            (point.policy, point.quantum_ms, point.audio) == (policy, quantum, audio)
        });
        its.map(|(_, response)| response.avg).collect::<Vec<_>>()
    };
    let preempted = of(Policy::Preempt, 20, false);
    if preempted.first() <= preempted.last() {
        misses
            .push("more interrupts that take the core do not make the response longer".to_owned());
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
        let may = if which == "mean" { 2.0 } else { f64::from(INDEPENDENT_US) / 1000.0 };
        if most - least > may {
            misses.push(format!(
                "{}: the {which} response depends on the load, {least:.2} to {most:.2} ms",
                policy.name()
            ));
        }
    }
    let mean = |its: &[f64]| its.iter().sum::<f64>() / f64::from(its.len().max(1) as u32);
    let (long, short) = (of(Policy::Preempt, 20, true), of(Policy::Preempt, 10, true));
    if !short.is_empty() && mean(&short) >= mean(&long) {
        misses.push("a shorter quantum does not make the response shorter".to_owned());
    }
    // Figure 10: the second source gets less where the first leaves the guest little time for it.
    let second = |interval_us: u32| {
        let mut its = points.iter().filter(|(point, _)| {
            (point.policy, point.audio, point.interval_us)
                == (Policy::Defer, true, Some(interval_us))
        });
        its.next()?.1.came.map(|came| came[1])
    };
    if let (Some(starved), Some(calm)) = (second(STORM_US), second(20_000))
        && starved >= calm
    {
        misses.push(format!(
            "the second source has {starved:.1} interrupts in 10 ms beside a storm of the first, {calm:.1} without"
        ));
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let read = response("sleeper: 40 sleeps, response avg 35123 max 40001 us, 81 ticks");
        let read = read.map(|response| (response.avg, response.max));
        assert_eq!(read, Some((35.123, 40.001)));
        assert!(response("loaded: 1 ticks").is_none());
        let came = came("loaded: 8 ticks, 81 interrupts, 9 of the second line, in 162000 us");
        assert_eq!(came, Some([5.0, 90_000.0 / 162_000.0]));
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
                let timing = Timing::from_text(Path::new("mobivmm"), &point.toml()).unwrap();
                let checked = crate::analyze::check(&timing);
                assert!(checked.is_ok(), "{policy:?}: {checked:?}");
            }
        }
    }
}
