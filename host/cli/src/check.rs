//! `weir check`: all faults of a system, or its VMs and memory map.

use crate::{
    analyze::render,
    cargo::replace,
    coloring,
    environment::Environment,
    failure::{Failure, GOOD, Result, SYSTEM},
    image::{self, Guess, source},
    output, screen,
};
use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
};
use weir_analysis::{CheckRules, system::supplies};
use weir_model::{Image, Placement, SocketBus, System, platform::Machine, timing::DEFAULT_PORT};
use weir_report::{
    TextTable,
    check::{Checked, CheckedFile, Judged, RefusedFile, devices, not_built},
    plan::SystemPlan,
    table,
};

/// Checks system files: all their faults at once, each with its place in the file and what to write
/// instead; or, if there are none, the VMs and the memory map.
///
/// `weir build` and `weir run` refuse exactly the same systems. Images are taken as they were built
/// or fetched last. The size of one that is not there yet is guessed, and the
/// output marks it; the map of `weir build` is final.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir check examples/demo/demo.toml\n  \
        weir check --json tests/systems/*.toml\n  \
        weir check examples/demo/demo.toml --output plan.svg\n\n\
        Exit status: 0 no faults, 1 faults, 2 the call is wrong, such as a file that can't be \
        read.")]
pub struct CheckArguments {
    /// The system files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Take this platform instead of the files'.
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<String>,
    /// Accept what this version only plans or analyzes: platforms that it does not run on, and
    /// rules that it does not enforce.
    #[arg(long)]
    planning: bool,
    /// Accept a system with timing that does not hold; `weir build` and `weir run` have the same
    /// option.
    #[arg(long)]
    ignore_verdict: bool,
    /// Print the result as JSON: one object for each file, in a list.
    #[arg(long)]
    json: bool,
    /// Draw the plan as SVG: cores, memory, flows and devices, and page classes if memory is divided.
    /// For one system file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Carries the verb out.
pub fn run(arguments: &CheckArguments, environment: &Environment) -> Result {
    if arguments.output.is_some() && arguments.files.len() > 1 {
        return Err(Failure::call("--output draws one system: give one file".to_owned()));
    }
    let files = arguments.files.iter().map(PathBuf::as_path);
    let platform = arguments.platform.as_deref().map(Path::new);
    output::check(arguments.output.as_deref(), files.chain(platform))?;
    if let Some(platform) = &arguments.platform {
        image::check_platform(platform)?;
    }
    let mut out = screen::stdout();
    let mut status = GOOD;
    let mut results = Vec::new();
    for file in &arguments.files {
        let rules =
            CheckRules { planning: arguments.planning, ignore_verdict: arguments.ignore_verdict };
        let read = image::load(file, arguments.platform.as_deref(), Machine::Board, environment);
        let Judged { result, guessed } = Judged::of(read, rules, environment);
        if let (Some(map), Ok(Checked { system, placement, .. })) = (&arguments.output, &result) {
            let svg = weir_report::plan_svg(&SystemPlan::of(system, placement))?;
            replace(map, svg.as_bytes())?;
        }
        match result {
            Ok(checked) if arguments.json => {
                let record = CheckedFile::of(file, checked, guessed);
                results.push(serde_json::to_value(record).unwrap_or_default());
            }
            Ok(Checked { system, placement, notes }) => {
                writeln!(out, "{}: good, for {}", file.display(), system.platform().name)?;
                writeln!(out, "{}", vms(&system))?;
                if system.has_flows() {
                    writeln!(out, "{}", flows(&system))?;
                }
                writeln!(out, "{}\n", map(&placement))?;
                if !guessed.is_empty() {
                    writeln!(out, "{}; the map of `weir build` is final\n", guess_note(&guessed))?;
                }
                writeln!(out, "{}", coloring::report(&system, &placement))?;
                for refused in not_built(&system) {
                    writeln!(out, "`weir build` and `weir run` refuse it: {refused}\n")?;
                }
                if let Some(supply) = supplies(&system) {
                    write!(out, "{}", render::time(&supply))?;
                }
                for note in notes {
                    writeln!(out, "{note}")?;
                }
            }
            Err(faults) => {
                // A system with faults is the stronger news.
                if status != SYSTEM {
                    status = image::exit_status(&faults);
                }
                if arguments.json {
                    let refused = RefusedFile::new(file, &faults).with_guesses(guessed);
                    results.push(serde_json::to_value(refused).unwrap_or_default());
                } else {
                    out.flush()?;
                    writeln!(screen::stderr(), "{}: {}", file.display(), image::rendered(&faults))?;
                    if !guessed.is_empty() {
                        writeln!(
                            screen::stderr(),
                            "{}; `weir build` knows\n",
                            guess_note(&guessed)
                        )?;
                    }
                }
            }
        }
    }
    if arguments.json {
        writeln!(stdout(), "{:#}", weir_report::versioned(results))?;
    }
    if status == GOOD { Ok(()) } else { Err(Failure::reported(status)) }
}

/// Which sizes are guessed, in words.
fn guess_note(guessed: &[Guess]) -> String {
    let list: Vec<_> = guessed.iter().map(ToString::to_string).collect();
    format!("sizes guessed: {}", list.join(", "))
}

/// The address that each flow's sender connects to, and how both ends see their devices.
fn flows(system: &System) -> String {
    let mut rows = table(["flow", "from", "to", "the sender connects to"]);
    let on = |vm: usize| {
        let vm = &system.vms[vm];
        let bus = if vm.socket == Some(SocketBus::Pci) { " (PCI)" } else { "" };
        format!("{}{bus}", vm.name)
    };
    for (index, flow) in system.flows.iter().enumerate() {
        let to: Vec<_> = flow.to.iter().map(|&to| on(to)).collect();
        let port = flow.port.unwrap_or(DEFAULT_PORT);
        rows.add_row([
            flow.name.clone(),
            on(flow.from),
            to.join(", "),
            format!("{}:{port}", system.destination(index)),
        ]);
    }
    rows.to_string()
}

/// The memory map.
pub fn map(placement: &Placement) -> TextTable {
    let (header, numbers) = placement.header();
    let mut rows = table(header).with_numbers(0..numbers);
    placement.table().for_each(|row| rows.add_row(row));
    rows
}

fn vms(system: &System) -> String {
    let mut rows = table(["VM", "cores", "memory", "image", "devices", "expected"]);
    for vm in &system.vms {
        let list = |items: Vec<String>| {
            if items.is_empty() { "-".into() } else { items.join("\n") }
        };
        let kind = match vm.image {
            Image::Elf { .. } => "elf",
            Image::Bin { .. } => "bin",
            Image::Linux { .. } => "linux",
        };
        let cores: Vec<String> = vm.cpus.iter().map(|core| core.0.to_string()).collect();
        rows.add_row([
            vm.name.clone(),
            cores.join(", "),
            list(
                vm.memory.iter().map(|piece| format!("{} at {}", piece.size, piece.base)).collect(),
            ),
            format!("{kind} {}", source(vm.image.source())),
            list(devices(vm)),
            vm.expect.len().to_string(),
        ]);
    }
    rows.to_string()
}
