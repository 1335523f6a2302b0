//! `weir bench`: measures the overheads of weir.

use crate::{
    bench::{
        hypervisor::{Needs, Systems, measure},
        mapping, simulator,
    },
    build,
    cargo::Programs,
    environment::Environment,
    failure::{Context, Failure, GOOD, Result, SYSTEM},
    progress::Bar,
    run::options,
    screen,
};
use std::{io::Write, path::Path};
use weir_abi::Features;
use weir_experiments::{statement::Judged, throttling::paths};
use weir_runner::{
    Lab, Options, Silent, elf::LinkedHypervisor, lab::qemu_virt, show::summary, watch_signals,
};

/// Measures the overheads of weir.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir bench hypervisor\n  weir bench hypervisor --json\n  weir bench mapping\n  weir bench simulator"
)]
pub struct Arguments {
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
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    match arguments.what {
        What::Hypervisor { json } => hypervisor(json, environment),
        What::Mapping { json } => mapping::run(json, environment),
        What::Simulator { requests, rounds, json } => simulator::run(requests, rounds, json),
    }
}

fn hypervisor(json: bool, environment: &Environment) -> Result {
    let programs = Programs::new(environment, false);
    let board = qemu_virt()?;
    let minimal = programs.hypervisor(environment, &board, Features::NONE)?;
    let minimal = LinkedHypervisor::read(&minimal)?.sizes;
    let hypervisor = programs.hypervisor(environment, &board, Features::ALL)?;
    let figures = measure(Needs {
        hypervisor: &LinkedHypervisor::read(&hypervisor)?,
        plugin: &programs.plugin(environment)?,
        scratch: &environment.build().join("bench"),
        systems: &Systems {
            paths: environment.system("probe-4")?,
            one_vcpu: environment.system("probe-1")?,
            four_vcpus: environment.system("probe-4")?,
            shared: environment.system("shared")?,
            frames: environment.system("frames")?,
        },
        run: |system: &Path, qemu: &[String]| boot(system, qemu, environment),
    })?;
    let scratch = environment.build().join("bench");
    let lab = Lab::new(environment, &scratch)?;
    let budgets = paths::run(&lab, false, &Bar::new("running", paths::runs(false)))?;
    let judged = Judged::new(paths::statements(&budgets), &paths::DEVIATIONS, true);
    let mut out = screen::stdout();
    if json {
        let mut figures = serde_json::to_value(&figures).context(|| "write the figures")?;
        figures["budgets"] = paths::json(&budgets);
        figures["minimal"] = serde_json::to_value(minimal).context(|| "write the figures")?;
        writeln!(out, "{:#}", weir_report::versioned(figures))?;
    } else {
        writeln!(out, "{}", figures.table())?;
        writeln!(out, "executable sections without optional parts: {} bytes\n", minimal.text)?;
        writeln!(out, "{}", paths::text(&budgets))?;
        for failure in &judged.failures {
            writeln!(out, "does not hold: {failure}")?;
        }
        for above in figures.above_peer() {
            writeln!(out, "{above}")?;
        }
    }
    if judged.failures.is_empty() { Ok(()) } else { Err(Failure::said(SYSTEM)) }
}

/// Runs a system of the benchmark with the plug-in.
fn boot(file: &Path, qemu: &[String], environment: &Environment) -> Result {
    let system = build::checked(file, &build::Options::default(), false, environment)?;
    let options = Options {
        deterministic: true,
        unsliced: true,
        all_parts: true,
        qemu_args: qemu.iter().map(Into::into).collect(),
        interrupt: watch_signals()?,
        ..options(&system, environment)
    };
    let outcome = weir_runner::run(&system, &options, &mut Silent)?;
    if outcome.status == GOOD {
        return Ok(());
    }
    let why = outcome.trouble.unwrap_or_else(|| summary(&outcome.report));
    let logs = outcome.directory.display();
    Err(Failure {
        status: outcome.status,
        text: format!("{}: {why}\nlogs: {logs}", file.display()),
    })
}
