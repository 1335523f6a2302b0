//! mobivmm, VI: how long a 10 ms sleep of one VM takes next to another on its core, under round
//! robin and interrupts that preempt (Table I, Figures 8, 9 and 11), and with admission rules and
//! other schedules.
//!
//! Both guests have a tick of 10 ms, and lose ticks that are due while they are off the core, as
//! MobiVMM's do. The interrupts are those of a network device that the loaded VM drives. A
//! generator on another core sends the frames for it through a second device on the same hub of
//! QEMU. The second source, which stands for audio, is a physical line of lower priority. The
//! loaded VM's second vCPU, which runs on a separate core, raises it every 5 ms. A storm is such a
//! line, too: no driver takes frames at this rate.

mod measure;
pub(crate) mod paper;
mod statements;
mod system;

use crate::{ExperimentOutcome, ExperimentRequest, figures};
use measure::{Measured, Response, measure};
use serde::{Deserialize, Serialize};
use statements::statements;
use std::{ffi::OsString, fmt::Write as _};
use system::{First, Point, Policy, STORM_US, hub, sleeper};
use weir_abi::Features;
use weir_image::{Result, cargo::Programs, progress::CountBar};
use weir_runner::lab::qemu_virt;

/// The figures of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MobivmmFigures {
    /// Table I.
    pub table1: SleepTimes,
    /// A point of Figures 8 to 11 each.
    pub curves: Vec<SleepPoint>,
    /// The interrupts of the other VM's devices.
    pub interrupts_per_10ms: Vec<InterruptCounts>,
}

/// The mean time of a sleep of 10 ms, in ms.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SleepTimes {
    /// On a core of its own.
    pub alone_ms: f64,
    /// Next to a VM without interrupts.
    pub shared_ms: f64,
}

/// The conditions of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SleepConditions {
    /// The quantum in ms.
    pub quantum_ms: u64,
    /// True if the other VM has a second source of interrupts.
    pub audio: bool,
    /// The policy for the interrupts.
    pub policy: String,
}

/// A sleep of 10 ms next to a VM with interrupts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SleepPoint {
    /// The conditions.
    #[serde(flatten)]
    pub conditions: SleepConditions,
    /// The time between two interrupts in ms; 0 for none.
    pub interval_ms: f64,
    /// The time of the sleep.
    pub response_ms: SleepResponse,
    /// The bound in ms, if there is one.
    pub bound_ms: Option<f64>,
}

/// The times of sleeps, in ms.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SleepResponse {
    /// The mean.
    pub avg: f64,
    /// The maximum.
    pub max: f64,
}

/// The interrupts in 10 ms of the other VM's devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterruptCounts {
    /// The conditions.
    #[serde(flatten)]
    pub conditions: SleepConditions,
    /// The time between two interrupts in ms; 0 for none.
    pub interval_ms: f64,
    /// Those of the network device.
    pub network: Option<f64>,
    /// Those of the second source.
    pub second: Option<f64>,
}

/// Runs the whole experiment.
pub(crate) fn mobivmm(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let environment = &request.environment;
    let programs = Programs::new(environment, false);
    programs.hypervisor(environment, &qemu_virt()?, Features::ALL)?;
    programs.guests(environment, &["responder".to_owned(), "station".to_owned()])?;
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
    // With a storm that always preempts, the sleeper would never finish.
    let intervals = |policy| {
        let storm = (policy != Policy::Preempt).then_some(STORM_US);
        storm.into_iter().chain(intervals.iter().copied())
    };
    let points = curves.iter().map(|(policy, ..)| intervals(*policy).count()).sum::<usize>();
    let bar = CountBar::new("running", (2 + points) as u64);
    let run = |name: &str, text: &str, qemu_args: Vec<OsString>| {
        let response = measure(name, (text, qemu_args), &request.directory, environment);
        bar.add(1);
        response
    };
    let alone = format!(
        "platform = \"qemu-virt\"\n{}\n[[core]]\nid = 0\n\
         schedule = {{ kind = \"round-robin\", quantum = \"20ms\" }}\n",
        sleeper(sleeps)
    );
    let alone = run("alone", &alone, Vec::new())?;
    let quiet =
        Point { policy: Policy::Defer, quantum_ms: 20, audio: false, interval_us: None, sleeps };
    let shared = run("shared", &quiet.toml(), Vec::new())?;
    let mut points = Vec::new();
    for (policy, quantum_ms, audio) in curves {
        for interval_us in intervals(policy) {
            // A sleep that interrupts lengthen takes one turn or two: its mean needs more of them.
            let sleeps = if policy == Policy::Preempt { 5 * sleeps } else { sleeps };
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
    Ok(outcome(&Measured { alone, shared, points }))
}

/// Returns the figures as JSON and as text, with the statements.
fn outcome(measured: &Measured) -> ExperimentOutcome {
    let Measured { alone, shared, points } = measured;
    let ratio = shared.avg / alone.avg;
    let mut text = format!(
        "Table I: a 10 ms sleep takes\n  alone   {:.1} ms (paper 17.6)\n  \
         shared  {:.1} ms (paper 37.5)\n  ratio   {ratio:.2} (paper 2.13)\n\n\
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
    let (mut curves, mut interrupts_per_10ms) = (Vec::new(), Vec::new());
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
            "{:16} {quantum_ms:>5} ms {:>6} {interval_ms:>12} {:>9.1} {:>9.1} {shown:>9}   \
             {dealt}",
            policy.name(),
            if audio { "yes" } else { "no" },
            response.avg,
            response.max,
        );
        let conditions = SleepConditions { quantum_ms, audio, policy: policy.name().to_owned() };
        curves.push(SleepPoint {
            conditions: conditions.clone(),
            interval_ms,
            response_ms: SleepResponse { avg: response.avg, max: response.max },
            bound_ms: bound,
        });
        interrupts_per_10ms.push(InterruptCounts {
            conditions,
            interval_ms,
            network: response.came.map(|came| came[0]),
            second: response.came.map(|came| came[1]),
        });
    }
    let table1 = SleepTimes { alone_ms: alone.avg, shared_ms: shared.avg };
    let json = figures(MobivmmFigures { table1, curves, interrupts_per_10ms });
    ExperimentOutcome { json, text, statements: statements(measured), files: Vec::new() }
}
