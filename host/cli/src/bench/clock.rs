//! `weir bench clock`: how fast the emulated clock is, by quantum and number of busy cores, next to
//! QEMU's own instruction counting.

use crate::{
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
use weir_image::ImageOptions;
use weir_model::{System, platform::Machine};
use weir_report::table;
use weir_runner::{RunOptions, SilentConsole, watch_signals};

/// The columns of the table, on the terminal and in the documentation.
pub const HEADER: [&str; 5] =
    ["quantum ns", "busy cores", "host s per virtual s", "MIPS", "MIPS by icount"];
/// The quanta.
const QUANTA: [u64; 3] = [0, 100, 1000];
/// The numbers of busy cores.
const CORES: [u64; 4] = [1, 2, 4, 8];
/// The rounds of two runs, about 25 ms and 125 ms: their difference is without QEMU's start.
const ROUNDS: [u64; 2] = [4_500, 22_500];
/// Each is run so many times, of which the shortest counts.
const TIMES: u32 = 2;
/// Seconds that a run under instruction counting may take; it needs a few.
const LIMIT: &str = "600";

/// The speed of a machine whose cores are all busy.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClockSpeed {
    /// The most by which the clocks of two running cores may be apart, in ns.
    pub quantum_ns: u64,
    /// The number of cores.
    pub cores: u64,
    /// Seconds of the host for a second of virtual time.
    pub host_s_per_virtual_s: f64,
    /// Millions of instructions of all cores in a second of the host.
    pub mips: u64,
    /// The same for the same work under QEMU's instruction counting (`-icount shift=0,sleep=off`),
    /// which runs one core at a time on one clock for all.
    pub counting_mips: u64,
}

/// Measures and prints. Figures depend on the host and its load.
pub fn run(json: bool, environment: &Environment) -> Result {
    let scratch = environment.build().join("bench");
    fs::create_dir_all(&scratch).context(|| format!("create {}", scratch.display()))?;
    let spinner = Spinner::new("measuring the clock".into());
    let mut speeds = Vec::new();
    for cores in CORES {
        let mut works = Vec::new();
        for rounds in ROUNDS {
            let file = scratch.join(format!("busy-{cores}-{rounds}.toml"));
            fs::write(&file, system(cores, rounds))
                .context(|| format!("write {}", file.display()))?;
            let options = build::BuildOptions::default();
            works.push(build::checked(&file, &options, Machine::Qemu, false, environment)?);
        }
        let mut counting = Vec::new();
        for work in &works {
            counting.push(by_instruction_counting(work, &scratch, environment)?);
        }
        for quantum_ns in QUANTA {
            speeds.push(speed(&works, quantum_ns, cores, &counting, environment)?);
        }
    }
    drop(spinner);
    speeds.sort_by_key(|speed| speed.quantum_ns);
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
            speed.counting_mips.to_string(),
        ]);
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

/// A system of VMs that never sleep, one on each core, and each of which turns itself off after so
/// many rounds.
pub fn system(cores: u64, rounds: u64) -> String {
    // A run of which nothing is heard for long is ended.
    let mut text = "platform = \"qemu-virt\"\n\n[hypervisor]\nheartbeat = \"1ms\"\n".to_owned();
    for core in 0..cores {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n[[vm]]\nname = \"busy{core}\"\ncpus = [{core}]\nmemory = \"2MiB\"\n\
             image = {{ elf = \"context\", args = \"rounds={rounds} spin=2000 seed={core}\" }}\n"
        );
    }
    text
}

/// Measures both works by the emulated clock. `counting` has their times by instruction counting.
fn speed(
    works: &[System],
    quantum_ns: u64,
    cores: u64,
    counting: &[Duration],
    environment: &Environment,
) -> Result<ClockSpeed> {
    let (mut took, mut virtual_ns) = (Vec::new(), Vec::new());
    for work in works {
        let options = RunOptions {
            accept_not_judged: true,
            quantum: Some(Duration::from_nanos(quantum_ns)),
            interrupt: watch_signals()?,
            ..options(work, environment)
        };
        let mut time_ns = 0;
        took.push(shortest(|| {
            let outcome = weir_runner::run(work, &options, &mut SilentConsole)?;
            if outcome.status == INTERRUPTED {
                return Err(Failure::reported(INTERRUPTED));
            }
            time_ns = outcome.good(&work.path)?.report.time_ns;
            Ok(())
        })?);
        virtual_ns.push(time_ns);
    }
    let host = difference(&took);
    let virtual_time = Duration::from_nanos(virtual_ns[1].saturating_sub(virtual_ns[0]));
    // An instruction of a core is a nanosecond of its virtual time.
    let instructions = u128::from(cores) * virtual_time.as_nanos();
    let mips =
        |host: Duration| u64::try_from(instructions * 1000 / host.as_nanos()).unwrap_or(u64::MAX);
    Ok(ClockSpeed {
        quantum_ns,
        cores,
        host_s_per_virtual_s: host.as_secs_f64() / virtual_time.as_secs_f64(),
        mips: mips(host),
        counting_mips: mips(difference(counting)),
    })
}

/// Returns the shortest time of the host that `run` takes.
fn shortest(mut run: impl FnMut() -> Result) -> Result<Duration> {
    let mut shortest = Duration::MAX;
    for _ in 0..TIMES {
        let started = Instant::now();
        run()?;
        shortest = shortest.min(started.elapsed());
    }
    Ok(shortest)
}

/// The difference of two times of the host, at least 1 ns.
fn difference(took: &[Duration]) -> Duration {
    took[1].saturating_sub(took[0]).max(Duration::from_nanos(1))
}

/// Runs a system to its end by QEMU's instruction counting, and returns the time of the host.
fn by_instruction_counting(
    work: &System,
    scratch: &Path,
    environment: &Environment,
) -> Result<Duration> {
    let options = ImageOptions {
        environment: environment.clone(),
        no_build: false,
        all_parts: false,
        fixed_seeds: true,
    };
    let image = scratch.join("busy.img");
    let built = weir_image::build(work, &options)?.bytes;
    fs::write(&image, built).context(|| format!("write {}", image.display()))?;
    let qemu = work.platform().qemu.as_ref();
    let qemu = qemu.ok_or_else(|| Failure::system("qemu-virt has no machine".to_owned()))?;
    let mut command = environment.counting_qemu(LIMIT);
    command.args(["-M", &qemu.machine, "-cpu", &qemu.cpu]);
    command.args(["-smp", &work.machine_cores().to_string()]);
    let memory: u64 = work.platform().ram_in_qemu().iter().map(|piece| piece.size.0 >> 20).sum();
    command.args(["-m", &format!("{memory}M"), "-serial", "null"]);
    command.args(["-no-reboot", "-kernel"]).arg(&image);
    shortest(|| {
        let output = command.output().context(|| "start QEMU (WEIR_QEMU selects the program)")?;
        if output.status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let path = work.path.display();
        Err(Failure::environment(format!(
            "{path} did not end under instruction counting ({}):\n{errors}",
            output.status
        )))
    })
}
