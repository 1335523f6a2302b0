//! `weir bench memory`: loads next to writers on the emulated clock with a board's memory timing,
//! the same in the simulator, and the speed.

use crate::{
    bench::clock,
    build,
    environment::Environment,
    failure::{Context, Failure, INTERRUPTED, Result},
    progress::Spinner,
    run::options,
    screen,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};
use weir_model::{System, platform::Machine};
use weir_report::table;
use weir_runner::{Run, RunOptions, SilentConsole, watch_signals};
use weir_simulator::{Simulation, Span};
use weir_units::Nanos;

/// The columns of the table, on the terminal and in the documentation.
pub const HEADER: [&str; 8] = [
    "memory",
    "writers",
    "load ns",
    "simulated ns",
    "load/simulated",
    "host s per virtual s",
    "few misses",
    "without memory",
];
/// The memories.
const MEMORIES: [&str; 2] = ["gem5", "zcu102"];
/// The board of the runs, for both memories, as QEMU has no machine like gem5's:
/// `boards/gem5/README.md` compares the same runs with gem5.
const PLATFORM: &str = "zcu102";
/// The most writers.
const WRITERS: u64 = 3;
/// The virtual times of two runs: their difference is without QEMU's start.
const TIMES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(30)];
/// The same of runs that seldom miss.
const BUSY_TIMES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// More rounds than any run has.
const ENDLESS: u64 = 100_000_000;
/// The simulator's measurement, and the time before it.
const SPAN: Span = Span { warm_up: Nanos(10_000_000), length: Nanos(10_000_000), seed: 1 };

/// Loads that each need the one before, through 2 MiB, next to VMs that write 4 MiB each.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemoryCost {
    /// The memory, as of `weir run --memory`.
    pub memory: String,
    /// The number of VMs that write.
    pub writers: u64,
    /// The mean time of a load in `weir run --memory`, in ns, without that of its instructions.
    pub load_ns: u64,
    /// The mean time of a load in `weir simulate`, in ns.
    pub simulated_ns: f64,
    /// Seconds of the host for a second of virtual time, with memory timing.
    pub host_s_per_virtual_s: f64,
    /// The same with as many cores that seldom miss their first level.
    pub host_s_per_virtual_s_few_misses: f64,
    /// The same of these without memory timing.
    pub host_s_per_virtual_s_without: f64,
}

/// Measures and prints. The times of the host depend on it and its load.
pub fn run(json: bool, environment: &Environment) -> Result {
    let scratch = environment.build().join("bench");
    fs::create_dir_all(&scratch).context(|| format!("create {}", scratch.display()))?;
    let spinner = Spinner::new("measuring memory timing".into());
    let mut costs = Vec::new();
    for memory in MEMORIES {
        for writers in 0..=WRITERS {
            let file = scratch.join(format!("walk-{memory}-{writers}.toml"));
            costs.push(cost(&file, memory, writers, environment)?);
        }
    }
    drop(spinner);
    let mut out = screen::stdout();
    if json {
        writeln!(out, "{:#}", weir_report::versioned(&costs))?;
        return Ok(());
    }
    let mut rows = table(HEADER);
    for cost in &costs {
        rows.add_row([
            cost.memory.clone(),
            cost.writers.to_string(),
            cost.load_ns.to_string(),
            format!("{:.1}", cost.simulated_ns),
            format!("{:.3}", ratio(cost.load_ns, cost.simulated_ns)),
            format!("{:.1}", cost.host_s_per_virtual_s),
            format!("{:.1}", cost.host_s_per_virtual_s_few_misses),
            format!("{:.1}", cost.host_s_per_virtual_s_without),
        ]);
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

/// The ratio of a run's load to the simulated one.
#[expect(clippy::cast_precision_loss, reason = "a load takes less than a millisecond")]
pub fn ratio(load_ns: u64, simulated_ns: f64) -> f64 {
    load_ns as f64 / simulated_ns
}

/// A VM that makes so many loads, and VMs that write. The workloads are the same accesses for the
/// simulator.
fn system(writers: u64, loads: u64) -> String {
    let mut text = format!(
        "platform = \"{PLATFORM}\"\n\n[[vm]]\nname = \"walk\"\ncpus = [0]\nmemory = \"8MiB\"\n\
         image = {{ elf = \"memory-stressor\", \
         args = \"mode=walk size=2097152 upto=2097152 loads={loads}\" }}\n\
         expect = [\"memory-stressor: walked\"]\n\
         workload = {{ kind = \"latency\", size = \"2MiB\" }}\n"
    );
    for writer in 1..=writers {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n[[vm]]\nname = \"writer{writer}\"\ncpus = [{writer}]\nmemory = \"8MiB\"\n\
             image = {{ elf = \"memory-stressor\", args = \"mode=write size=4194304 passes=0\" }}\n\
             workload = {{ kind = \"write\", size = \"4MiB\" }}\n"
        );
    }
    text
}

fn cost(file: &Path, memory: &str, writers: u64, environment: &Environment) -> Result<MemoryCost> {
    let checked = |text: String| {
        fs::write(file, text).context(|| format!("write {}", file.display()))?;
        build::checked(file, &build::BuildOptions::default(), Machine::Qemu, false, environment)
    };
    let whole = checked(system(writers, 1 << 16))?;
    let [plain, charged] = [None, Some(memory)].map(|memory| load(&whole, memory, environment));
    let (plain, charged) = (plain?, charged?);
    // The simulator takes the board of the memory, as the numbers of DRAM banks must agree.
    let options = build::BuildOptions { platform: Some(memory.to_owned()), ..Default::default() };
    let modeled = build::checked(file, &options, Machine::Board, false, environment)?;
    let simulation = Simulation::new(&modeled, Some(memory), &[], SPAN);
    let simulated = simulation.and_then(|simulation| simulation.simulate(&simulation.board));
    let simulated = simulated.map_err(|error| Failure::system(error.0))?;
    let walk = simulated.vms.first().map_or(0, |vm| vm.latency.mean().0);
    let endless = checked(system(writers, 1 << 30))?;
    let misses = speed(&endless, Some(memory), &TIMES, environment)?;
    let busy = checked(clock::system(writers + 1, ENDLESS))?;
    let few = speed(&busy, Some(memory), &BUSY_TIMES, environment)?;
    let without = speed(&busy, None, &BUSY_TIMES, environment)?;
    Ok(MemoryCost {
        memory: memory.to_owned(),
        writers,
        load_ns: charged.saturating_sub(plain),
        simulated_ns: f64::from(u32::try_from(walk).unwrap_or(u32::MAX)) / 1000.0,
        host_s_per_virtual_s: misses,
        host_s_per_virtual_s_few_misses: few,
        host_s_per_virtual_s_without: without,
    })
}

fn in_qemu(
    system: &System,
    memory: Option<&str>,
    time: Option<Duration>,
    environment: &Environment,
) -> Result<Run> {
    let options = RunOptions {
        accept_not_judged: true,
        time,
        memory: memory.map(str::to_owned),
        interrupt: watch_signals()?,
        ..options(system, environment)
    };
    let outcome = weir_runner::run(system, &options, &mut SilentConsole)?;
    if outcome.status == INTERRUPTED {
        return Err(Failure::reported(INTERRUPTED));
    }
    Ok(outcome)
}

/// The mean time of a load and its instructions, in ns.
fn load(system: &System, memory: Option<&str>, environment: &Environment) -> Result<u64> {
    let run = in_qemu(system, memory, None, environment)?;
    let log = run.directory.join("walk.log");
    let text = fs::read_to_string(&log).context(|| format!("read {}", log.display()))?;
    let line = text.lines().find_map(|line| line.trim_end().strip_suffix(" ns each"));
    let number = line.and_then(|line| line.rsplit_once(", ")?.1.parse().ok());
    number.ok_or_else(|| Failure::system(format!("{} has no time of a load", log.display())))
}

/// The seconds of the host for a second of virtual time, from two runs of these times.
fn speed(
    system: &System,
    memory: Option<&str>,
    times: &[Duration; 2],
    environment: &Environment,
) -> Result<f64> {
    let mut took = Vec::new();
    // The first one builds and fills the host's caches.
    for time in [times[0], times[0], times[1]] {
        let started = Instant::now();
        in_qemu(system, memory, Some(time), environment)?;
        took.push(started.elapsed());
    }
    let host = took[2].saturating_sub(took[1]);
    Ok(host.as_secs_f64() / times[1].saturating_sub(times[0]).as_secs_f64())
}
