//! `weir simulate`: what QEMU can't show, on a model of the board's memory.

mod compare;
mod dram;
mod draw;
mod sweep;
mod system;
mod tell;
mod values;

use crate::{
    environment::Environment,
    failure::{Failure, Result},
    output,
};
use std::path::PathBuf;
use sweep::{Axis, Shard};
pub use tell::mb_per_s;
use weir_units::Nanos;

/// Runs a system on a timing model of its board's caches and DRAM.
///
/// Of each VM it takes what `[vm.workload]` says that its vCPUs do to memory. Their pages lie where `weir build` puts them, and their budgets
/// are enforced by the regulators of the hypervisor. The same call prints the same bytes.
///
/// With --dram-trace it runs DRAM requests instead: one is offered in each memory clock, in order, and held while it is refused. Lines are
/// `R 0xADDRESS` or `W 0xADDRESS`; empty lines and those that begin with # are passed over.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir simulate tests/systems/simulate-isolation.toml\n  weir simulate tests/systems/simulate-isolation.toml --compare\n  weir simulate --dram-trace requests.txt --platform ddr4-2400 --json\n\nExit status: 0 good, 1 the system, trace or memory file is at fault, 2 the call is."
)]
pub struct Arguments {
    /// The system file.
    #[arg(required_unless_present_any = ["dram_trace", "merge"], conflicts_with = "dram_trace")]
    system: Option<PathBuf>,
    /// A file of DRAM requests.
    #[arg(long, value_name = "FILE", requires = "platform", conflicts_with_all = ["compare", "output", "length", "warm_up", "seed"])]
    dram_trace: Option<PathBuf>,
    /// The memory: a name that weir knows (ddr4-2400, zcu102, zcu104, rpi4, qemu-virt, athlon64x2, arm11mpcore), or the path of a memory file. Without it that of the system's platform.
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<String>,
    /// Another value for a key: of the memory file (caches.l2_misses=2), of the system file (vm.NAME.memory_budget.accesses=600,
    /// flow.NAME.size=4KiB, dma.bandwidth=485MB/s, hypervisor.colors=0-1, dram=banks-on-top), or the seed.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    values: Vec<(String, String)>,
    /// How long to look, in virtual time.
    #[arg(long = "for", value_name = "TIME", default_value = "5ms", value_parser = time)]
    length: Nanos,
    /// Virtual time before that, which is not looked at: caches begin to fill in it, and those of large workloads are not full after it.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = time)]
    warm_up: Nanos,
    /// Of the walks' orders and of random replacement.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Show the system also without its budgets, without its colors and banks, and with neither.
    #[arg(long)]
    compare: bool,
    /// A key with several values: all combinations of all such keys are simulated, on all cores, each printed as a line of JSON.
    #[arg(long, value_name = "KEY=VALUES", value_parser = Axis::parse, conflicts_with_all = ["compare", "dram_trace"])]
    sweep: Vec<Axis>,
    /// Only each Nth point of the sweep, from the Ith on.
    #[arg(long, value_name = "I/N", value_parser = Shard::parse, requires = "sweep")]
    shard: Option<Shard>,
    /// Where the sweep's lines go; a file that an earlier call has left is gone on with.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Join the files that the shards of a sweep wrote.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["system", "sweep", "dram_trace", "compare"])]
    merge: Vec<PathBuf>,
    /// Draw bandwidth over time, latencies and arrival curves, each as an SVG file in this directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["compare", "sweep", "dram_trace", "merge"])]
    svg: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

fn assignment(text: &str) -> std::result::Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, like caches.l2_misses=2")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// What a person waits for: a second is some minutes of host time.
const LONGEST: Nanos = Nanos(1_000_000_000);

fn time(text: &str) -> std::result::Result<Nanos, String> {
    let time = Nanos::parse(text).ok().filter(|time| time.0 > 0 && *time <= LONGEST);
    time.ok_or_else(|| "write a time up to a second, like 5ms".to_owned())
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    if let (Some(trace), Some(platform)) = (&arguments.dram_trace, &arguments.platform) {
        return dram::run(trace, platform, &arguments.values, arguments.json);
    }
    if arguments.output.is_some() && arguments.sweep.is_empty() && arguments.merge.is_empty() {
        return Err(Failure::call(
            "--output is where the lines of --sweep or --merge go: add one of them",
        ));
    }
    let read = arguments.system.iter().chain(&arguments.merge).map(PathBuf::as_path);
    let inputs = output::inputs(read, arguments.platform.as_deref());
    if let Some(out) = &arguments.output {
        if arguments.merge.is_empty() {
            // Whether it can be written is seen when it is locked: another call may be at it.
            output::check_apart("--output", out, &inputs)?;
        } else {
            output::check("--output", out, &inputs)?;
        }
    }
    if !arguments.merge.is_empty() {
        return sweep::merge(&arguments.merge, arguments.output.as_deref());
    }
    let Some(file) = &arguments.system else {
        return Err(Failure::call("name a system file, or a trace with --dram-trace"));
    };
    if let Some(directory) = &arguments.svg {
        output::check_in("--svg", directory, draw::NAMES.map(str::to_owned), &inputs)?;
    }
    if !arguments.sweep.is_empty() {
        return sweep::run(file, arguments, environment);
    }
    let values = &arguments.values;
    let simulation = system::Simulation::new(file, arguments, values, environment)?;
    if arguments.compare {
        compare::run(&simulation, arguments.json)
    } else {
        system::run(&simulation, arguments.svg.as_deref(), arguments.json)
    }
}
