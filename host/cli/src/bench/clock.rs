//! `weir bench clock`: how fast the emulated clock is, by quantum and number of busy cores.

use crate::{
    build,
    environment::Environment,
    failure::{Context, Failure, INTERRUPTED, Result},
    progress::Spinner,
    run::options,
    screen,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};
use weir_model::platform::Machine;
use weir_report::table;
use weir_runner::{RunOptions, SilentConsole, watch_signals};

/// The columns of the table, on the terminal and in the documentation.
pub const HEADER: [&str; 4] = ["quantum ns", "busy cores", "host s per virtual s", "MIPS"];
/// The quanta.
const QUANTA: [u64; 3] = [0, 100, 1000];
/// The numbers of busy cores.
const CORES: [u64; 4] = [1, 2, 4, 8];
/// The virtual times of two runs: their difference is without QEMU's start.
pub const TIMES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];

/// The speed of a machine whose cores are all busy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClockSpeed {
    /// The most by which the clocks of two running cores may be apart, in ns.
    quantum_ns: u64,
    /// The number of cores.
    cores: u64,
    /// Seconds of the host for a second of virtual time.
    host_s_per_virtual_s: f64,
    /// Millions of instructions of all cores in a second of the host.
    mips: u64,
}

/// Measures and prints. Figures depend on the host and its load.
pub fn run(json: bool, environment: &Environment) -> Result {
    let scratch = environment.build().join("bench");
    fs::create_dir_all(&scratch).context(|| format!("create {}", scratch.display()))?;
    let spinner = Spinner::new("measuring the clock".into());
    let mut speeds = Vec::new();
    for quantum_ns in QUANTA {
        for cores in CORES {
            let file = scratch.join(format!("busy-{cores}.toml"));
            fs::write(&file, system(cores)).context(|| format!("write {}", file.display()))?;
            speeds.push(speed(&file, quantum_ns, cores, environment)?);
        }
    }
    drop(spinner);
    let mut out = screen::stdout();
    if json {
        writeln!(out, "{:#}", weir_report::versioned(&speeds))?;
        return Ok(());
    }
    let mut rows = table(HEADER);
    for speed in &speeds {
        rows.add_row([
            speed.quantum_ns.to_string(),
            speed.cores.to_string(),
            format!("{:.2}", speed.host_s_per_virtual_s),
            speed.mips.to_string(),
        ]);
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

/// A system of VMs that never sleep, one on each core.
pub fn system(cores: u64) -> String {
    let mut text = "platform = \"qemu-virt\"\n".to_owned();
    for core in 0..cores {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n[[vm]]\nname = \"busy{core}\"\ncpus = [{core}]\nmemory = \"2MiB\"\n\
             image = {{ elf = \"context\", args = \"rounds=100000000 spin=2000 seed={core}\" }}\n"
        );
    }
    text
}

fn speed(
    file: &Path,
    quantum_ns: u64,
    cores: u64,
    environment: &Environment,
) -> Result<ClockSpeed> {
    let build_options = build::BuildOptions::default();
    let system = build::checked(file, &build_options, Machine::Qemu, false, environment)?;
    let mut took = Vec::new();
    // The first one builds and fills the host's caches.
    for time in [TIMES[0], TIMES[0], TIMES[1]] {
        let options = RunOptions {
            accept_not_judged: true,
            time: Some(time),
            quantum: Some(Duration::from_nanos(quantum_ns)),
            interrupt: watch_signals()?,
            ..options(&system, environment)
        };
        let started = Instant::now();
        let outcome = weir_runner::run(&system, &options, &mut SilentConsole)?;
        if outcome.status == INTERRUPTED {
            return Err(Failure::reported(INTERRUPTED));
        }
        took.push(started.elapsed());
    }
    let virtual_time = TIMES[1].saturating_sub(TIMES[0]);
    let host = took[2].saturating_sub(took[1]).max(Duration::from_nanos(1));
    // An instruction of a core is a nanosecond of its virtual time.
    let instructions = u128::from(cores) * virtual_time.as_nanos();
    Ok(ClockSpeed {
        quantum_ns,
        cores,
        host_s_per_virtual_s: host.as_secs_f64() / virtual_time.as_secs_f64(),
        mips: u64::try_from(instructions * 1000 / host.as_nanos()).unwrap_or(u64::MAX),
    })
}
