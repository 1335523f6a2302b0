//! `weir bench`: measures the overheads of weir.

use crate::{
    bench::{
        engine, flows,
        hypervisor::{Needs, Systems, Used, measure},
        lines, mapping, simulator,
    },
    build, build_id,
    cargo::Programs,
    environment::Environment,
    failure::{Context, Failure, GOOD, Result, SYSTEM},
    progress::CountBar,
    run::options,
    screen,
};
use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};
use weir_abi::Features;
use weir_experiments::{statement::Judged, throttling::paths};
use weir_image::features_of;
use weir_model::platform::Machine;
use weir_runner::{
    Lab, RunOptions, SilentConsole, elf::LinkedHypervisor, plugin::plugin_arguments, show::summary,
    watch_signals,
};

/// Measures the overheads of weir.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir bench hypervisor\n  weir bench hypervisor --json\n  weir bench mapping\n  weir bench simulator\n  weir bench flows\n  weir bench engine\n  weir bench lines"
)]
pub struct BenchArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Instructions at EL2 for each thing that a guest asks of it, its boot, its sections and its
    /// largest symbols.
    ///
    /// Counted from outside by a plug-in of QEMU, under instruction counting: the same figures each
    /// time.
    #[command(after_help = "Example:\n  weir bench hypervisor --json")]
    Hypervisor {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Instructions to build a VM's page tables from 1 to 256 MiB of colored pages, compared to
    /// contiguous pages and 2 MiB blocks.
    ///
    /// The hypervisor's own code, counted in QEMU: the same figures each time. The limit is 5 %
    /// more.
    #[command(after_help = "Example:\n  weir bench mapping --json")]
    Mapping {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Latencies of the systems with flows, phases of a packet, and round trips.
    ///
    /// Runs each system of the tests that has flows in QEMU, under instruction counting.
    #[command(after_help = "Example:\n  weir bench flows --json")]
    Flows {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Messages by the ZCU102's DMA engine and by a core, as in rt-virtio's Tables II and III.
    ///
    /// Runs systems in QEMU, under instruction counting: phases of a packet, and latencies and
    /// bounds of four flows, compared with the published ones.
    #[command(after_help = "Example:\n  weir bench engine --json")]
    Engine {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Lines of code of each crate that is linked into the hypervisor, counted by cloc.
    ///
    /// Without tests and without Rust's own library. Needs the program cloc.
    #[command(after_help = "Example:\n  weir bench lines --json")]
    Lines {
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Simulated DRAM requests and cache accesses per second of host time, on one core. Use a
    /// release build.
    ///
    /// JSON has the quickest round's figures, as other work on the machine only slows rounds down,
    /// and the median's.
    #[command(
        after_help = "Examples:\n  weir bench simulator\n  weir bench simulator --requests 10000000 --json"
    )]
    Simulator {
        /// Number of DRAM requests of each kind in all rounds; ten times as many cache hits.
        #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
        requests: u64,
        /// In how many rounds.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        rounds: u64,
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Carries the verb out.
pub fn run(arguments: &BenchArguments, environment: &Environment) -> Result {
    match arguments.what {
        What::Hypervisor { json } => hypervisor(json, environment),
        What::Mapping { json } => mapping::run(json, environment),
        What::Flows { json } => flows::run(json, environment),
        What::Engine { json } => engine::run(json, environment),
        What::Lines { json } => lines::run(json, environment),
        What::Simulator { requests, rounds, json } => simulator::run(requests, rounds, json),
    }
}

fn hypervisor(json: bool, environment: &Environment) -> Result {
    let scratch = environment.build().join("bench");
    fs::create_dir_all(&scratch).context(|| format!("create {}", scratch.display()))?;
    let one_vcpu = environment.system(BOOTS)?;
    let figures = measure(Needs {
        scratch: &scratch,
        systems: &Systems {
            paths: environment.system("probe-4")?,
            one_vcpu: [
                one_vcpu.clone(),
                with_memory(&one_vcpu, "64MiB", &scratch)?,
                with_memory(&one_vcpu, "256MiB", &scratch)?,
            ],
            shared: environment.system("shared")?,
            frames: environment.system("frames")?,
            flow: environment.system("flows-exact")?,
            others: ["flows-shared", "flows-mesh", "phoenix"]
                .map(|name| environment.system(name))
                .into_iter()
                .collect::<Result<_>>()?,
        },
        run: |system: &Path, out: &Path| boot(system, out, environment),
    })?;
    let lab = Lab::new(environment, &scratch)?;
    let budgets = paths::run(&lab, false, &CountBar::new("running", paths::runs(false)))?;
    let judged = Judged::new(paths::statements(&budgets), &[], true);
    let mut out = screen::stdout();
    if json {
        let mut figures = serde_json::to_value(&figures).context(|| "write the figures")?;
        figures["budgets"] = paths::json(&budgets);
        figures["build"] = build_id::of_checkout().into();
        writeln!(out, "{:#}", weir_report::versioned(figures))?;
    } else {
        writeln!(out, "{}", figures.table())?;
        writeln!(out, "{}", paths::text(&budgets))?;
        for failure in &judged.failures {
            writeln!(out, "does not hold: {failure}")?;
        }
        for above in figures.above_peer() {
            writeln!(out, "{above}")?;
        }
    }
    if judged.failures.is_empty() { Ok(()) } else { Err(Failure::reported(SYSTEM)) }
}

/// Writes a copy of a system of one VM with other memory to `scratch` and returns the copy.
fn with_memory(system: &Path, memory: &str, scratch: &Path) -> Result<PathBuf> {
    let read = || format!("read {}", system.display());
    let text = fs::read_to_string(system).context(read)?;
    let copy = scratch.join(format!("probe-1-{memory}.toml"));
    let line = |line: &str| {
        let is_it = line.starts_with("memory = ");
        if is_it { format!("memory = {memory:?}\n") } else { format!("{line}\n") }
    };
    let text: String = text.lines().map(line).collect();
    fs::write(&copy, text).context(|| format!("write {}", copy.display()))?;
    Ok(copy)
}

/// The beginning of the names of systems that only boot. Their hypervisor has the parts that they
/// use, as `weir build` makes it; the others' has all.
const BOOTS: &str = "probe-1";

/// Runs a system of the benchmark with the plug-in, which writes its report to `out`.
fn boot(file: &Path, out: &Path, environment: &Environment) -> Result<Used> {
    let programs = Programs::new(environment, false);
    let system =
        build::checked(file, &build::BuildOptions::default(), Machine::Qemu, false, environment)?;
    let all_parts = !file.file_stem().is_some_and(|name| name.to_string_lossy().starts_with(BOOTS));
    let parts = if all_parts { Features::ALL } else { features_of(&system) };
    let hypervisor = programs.hypervisor(environment, &system.platform, parts)?;
    let hypervisor = LinkedHypervisor::read(&hypervisor)?;
    let plugin = programs.plugin(environment)?;
    let qemu = plugin_arguments(&plugin, &hypervisor, out, None);
    let options = RunOptions {
        deterministic: true,
        unsliced: true,
        all_parts,
        qemu_args: qemu.iter().map(Into::into).collect(),
        interrupt: watch_signals()?,
        ..options(&system, environment)
    };
    let outcome = weir_runner::run(&system, &options, &mut SilentConsole)?;
    if outcome.status == GOOD {
        let run = outcome.directory.join("run.json");
        let text = fs::read(&run).context(|| format!("read {}", run.display()))?;
        let run: Value = serde_json::from_slice(&text).context(|| "read run.json")?;
        let image_bytes = run["image_bytes"].as_u64().unwrap_or_default();
        return Ok(Used { hypervisor, image_bytes });
    }
    let why = outcome.trouble.unwrap_or_else(|| summary(&outcome.report));
    let logs = outcome.directory.display();
    Err(Failure {
        status: outcome.status,
        text: format!("{}: {why}\nlogs: {logs}", file.display()),
    })
}
