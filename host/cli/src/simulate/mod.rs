//! `weir simulate`: what QEMU can't show, on a model of the board's memory.

mod compare;
mod dram;
mod draw;
mod tables;
#[cfg(test)]
mod tests;

pub use self::{compare::Variant, dram::DramRun};
use crate::{
    environment::Environment,
    failure::{Failure, Result},
    image, screen,
};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
};
use weir_model::{Faults, System, check_text, edited, platform::Machine};
use weir_report::paragraph;
use weir_simulator::{Simulation, SimulationError, SimulationRecord, Span, Values};
use weir_units::Nanos;

/// Simulates a system on a timing model of its board's caches and DRAM.
///
/// `[vm.workload]` of each VM describes the memory accesses of its vCPUs. Pages lie where `weir
/// build` puts them, and the regulators of the hypervisor enforce the budgets. The same call prints
/// the same bytes.
#[derive(Debug, clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  weir simulate run tests/systems/simulate-isolation.toml\n  weir simulate dram requests.txt --memory ddr4-2400 --json\n\nMany simulations with other values: weir.sweep of the Python package\n\nExit status: 0 good, 1 the system, trace or memory file is at fault, 2 the call is."
)]
pub struct SimulateArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Run(SimulateRunArguments),
    Dram(DramArguments),
}

/// The simulated system, and the measurement interval.
#[derive(Debug, clap::Args)]
struct Model {
    /// The system file.
    system: PathBuf,
    /// The memory: a name that weir knows (ddr4-2400, zcu102, zcu104, rpi4, gem5, qemu-virt,
    /// athlon64x2, arm11mpcore), or the path of a memory file. Default: that of the system's
    /// platform.
    #[arg(long, value_name = "MEMORY")]
    memory: Option<String>,
    /// Another value for a key: of the memory file (caches.l2_misses=2), of the system file
    /// (vm.NAME.memory_budget.accesses=600, flow.NAME.size=4KiB, dma.bandwidth=485MB/s,
    /// hypervisor.colors=0-1, dram=banks-on-top), or the seed.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    values: Vec<(String, String)>,
    /// The measurement interval, in virtual time.
    #[arg(long = "for", value_name = "TIME", default_value = "5ms", value_parser = time)]
    length: Nanos,
    /// Virtual time before the measurement interval. Caches begin to fill in it; those of large
    /// workloads are not full after it.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = time)]
    warm_up: Nanos,
    /// The seed of the walks' orders and of random replacement.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Simulates one system.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir simulate run tests/systems/simulate-isolation.toml\n  \
        weir simulate run tests/systems/simulate-isolation.toml --warm-up 7ms --compare\n  \
        weir simulate run tests/systems/simulate-isolation.toml --output plots")]
struct SimulateRunArguments {
    #[command(flatten)]
    model: Model,
    /// Simulate the system also without its budgets, without its colors and banks, and without
    /// both.
    #[arg(long, conflicts_with = "output")]
    compare: bool,
    /// Draw bandwidth over time, latencies and arrival curves, each as an SVG file in this
    /// directory.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs a trace of DRAM requests on a bare DRAM.
///
/// Offers one request in each memory clock, in order, and holds it while it is refused. A line is
/// `R 0xADDRESS` or `W 0xADDRESS`; empty lines and those that begin with # are skipped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weir simulate dram requests.txt --memory ddr4-2400 --json")]
struct DramArguments {
    /// The file of requests.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The memory: a name that weir knows (ddr4-2400, zcu102, ..), or the path of a memory file.
    #[arg(long, value_name = "MEMORY")]
    memory: String,
    /// Another value for a key of the memory file (dram.clock_ps=833).
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    values: Vec<(String, String)>,
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
pub fn run(arguments: &SimulateArguments, environment: &Environment) -> Result {
    match &arguments.verb {
        Verb::Run(arguments) => simulate(arguments, environment),
        Verb::Dram(DramArguments { trace, memory, values, json }) => {
            dram::run(trace, memory, values, *json)
        }
    }
}

fn simulate(arguments: &SimulateRunArguments, environment: &Environment) -> Result {
    let simulation = simulation(&arguments.model, environment)?;
    if arguments.compare {
        return compare::run(&simulation, arguments.json);
    }
    let result = simulation.together_and_alone().map_err(failed)?;
    warn(result.too_short.as_ref())?;
    let directory = arguments.output.as_deref();
    let files = directory.map_or(Ok(Vec::new()), |directory| draw::write(directory, &result))?;
    let mut out = screen::stdout();
    if arguments.json {
        let mut all = SimulationRecord::of(&result);
        if directory.is_some() {
            all.files = Some(files.iter().map(|file| file.display().to_string()).collect());
        }
        writeln!(out, "{:#}", weir_report::versioned(all))?;
    } else {
        tables::tables(&mut out, &result)?;
        for file in files {
            writeln!(out, "{}", file.display())?;
        }
    }
    Ok(())
}

/// Reads the system and finds its memory.
fn simulation(model: &Model, environment: &Environment) -> Result<Simulation> {
    let Model { system: file, memory, values, length, warm_up, seed } = model;
    let values = Values::new(values).map_err(Failure::call)?;
    let reported = |faults: &Faults| {
        screen::say(format_args!("{faults}"));
        Failure::reported(image::exit_status(faults))
    };
    let system = load(file, &values, environment)?.map_err(|faults| reported(&faults))?;
    let seed = values.seed.unwrap_or(*seed);
    let span = Span { warm_up: *warm_up, length: *length, seed };
    Simulation::new(&system, memory.as_deref(), &values.memory, span).map_err(failed)
}

/// Reads and checks the system with other values for some of its keys.
fn load(
    file: &Path,
    values: &Values,
    environment: &Environment,
) -> Result<std::result::Result<System, Faults>> {
    if values.system.is_empty() {
        return Ok(image::load(file, None, Machine::Board, environment));
    }
    let text = weir_model::read_text(file, weir_model::TEXT_LIMIT)
        .map_err(|error| Failure::call(format!("cannot read {}: {error}", file.display())))?;
    let catalog = image::catalog(environment);
    Ok(edited(file, &text, &values.system).and_then(|text| check_text(file, &text, &catalog)))
}

/// Warns that a run is too short, if there is a reason.
fn warn(too_short: Option<&String>) -> Result {
    if let Some(why) = too_short {
        write!(screen::stderr(), "{}", paragraph("warning: too short: ", why))?;
    }
    Ok(())
}

/// Returns the failure of a system that can't be simulated.
fn failed(error: SimulationError) -> Failure {
    Failure::system(error.0)
}
