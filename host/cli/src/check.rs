//! `weir check`: all faults of a system, or its VMs and memory map.

use crate::{
    analyze::render,
    cargo::replace,
    coloring,
    environment::Environment,
    failure::{Failure, GOOD, Result, SYSTEM},
    image::{self, Estimate, Guess, source},
    output, screen,
};
use serde_json::{Value, json};
use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
};
use weir_analysis::{CheckRules, system::supplies};
use weir_model::{
    Fault, Faults, Image, MapOwner, Placement, Row, SocketBus, System, Vm,
    pci::AssignedFunction,
    platform::Machine,
    timing::{DEFAULT_PORT, Flow},
};
use weir_report::{TextTable, table};

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
        weir check examples/demo/demo.toml --output map.svg\n\n\
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
    /// Draw the board's page classes and their owners as SVG; of one system file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Carries the verb out.
pub fn run(arguments: &CheckArguments, environment: &Environment) -> Result {
    if arguments.output.is_some() && arguments.files.len() > 1 {
        return Err(Failure::call("--output draws one system: give one file".to_owned()));
    }
    let files: Vec<&Path> = arguments.files.iter().map(PathBuf::as_path).collect();
    if let Some(map) = &arguments.output {
        let inputs = output::inputs(files.iter().copied(), arguments.platform.as_deref());
        output::check("--output", map, &inputs)?;
    }
    if let Some(platform) = &arguments.platform {
        image::check_platform(platform)?;
    }
    let mut out = screen::stdout();
    let mut status = GOOD;
    let mut results = Vec::new();
    for file in &arguments.files {
        let checked = image::load(file, arguments.platform.as_deref(), Machine::Board, environment);
        let mut guessed = Vec::new();
        let checked = checked.and_then(|system| {
            let rules = CheckRules {
                planning: arguments.planning,
                ignore_verdict: arguments.ignore_verdict,
            };
            let judged = rules.judge(&system);
            let estimate = Estimate::of(&system, environment);
            let placement = estimate.placement(&system);
            guessed = estimate.guessed;
            match (placement, judged) {
                (Ok(placement), Ok(notes)) => Ok((system, placement, notes)),
                (placement, judged) => {
                    let found = [placement.err(), judged.err()];
                    Err(Faults(found.into_iter().flatten().flat_map(|faults| faults.0).collect()))
                }
            }
        });
        if let (Some(map), Ok((system, placement, _))) = (&arguments.output, &checked) {
            let svg = coloring::svg(system, placement);
            replace(map, svg.as_bytes())?;
        }
        match checked {
            Ok((system, placement, notes)) if arguments.json => {
                let mut described = describe(file, &system, &placement);
                described["guessed_images"] = guessed.iter().map(Guess::json).collect();
                described["not_built"] = not_built(&system).into();
                described["notes"] = notes.into();
                results.push(described);
            }
            Ok((system, placement, notes)) => {
                writeln!(out, "{}: good, for {}", file.display(), system.platform.name)?;
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
                if let Some(supply) = supplies(&system.timing) {
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
                    let mut refused = refusal(file, &faults);
                    refused["guessed_images"] = guessed.iter().map(Guess::json).collect();
                    results.push(refused);
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
        writeln!(stdout(), "{:#}", weir_report::versioned(Value::from(results)))?;
    }
    if status == GOOD { Ok(()) } else { Err(Failure::reported(status)) }
}

/// What `weir build` refuses of a system that is good for planning.
fn not_built(system: &System) -> Vec<String> {
    system.unbuilt().iter().map(Fault::note).collect()
}

/// Which sizes are guessed, in words.
fn guess_note(guessed: &[Guess]) -> String {
    let list: Vec<_> = guessed.iter().map(ToString::to_string).collect();
    format!("sizes guessed: {}", list.join(", "))
}

/// The JSON for a file that does not check.
pub fn refusal(file: &Path, faults: &Faults) -> Value {
    json!({ "file": file.display().to_string(), "good": false, "faults": faults.to_json() })
}

/// The devices of the board that a VM gets, as its file may name them.
fn devices(vm: &Vm) -> Vec<String> {
    let paths = vm.devices.iter().map(|device| device.path.clone());
    paths.chain(vm.functions.iter().map(AssignedFunction::name)).collect()
}

fn describe(file: &Path, system: &System, map: &Placement) -> Value {
    let vms = system.vms.iter().map(|vm| {
        json!({
            "name": vm.name,
            "cores": vm.cpus.iter().map(|core| core.0).collect::<Vec<_>>(),
            "memory": vm.memory.iter().map(|piece| json!({
                "base": format!("{:#x}", piece.base.0),
                "bytes": piece.size.0,
            })).collect::<Vec<_>>(),
            "image": source(vm.image.source()),
            "initrd": vm.image.initrd().map(source),
            "devices": devices(vm),
            "expect": vm.expect,
        })
    });
    let carried = system.timing.flows.iter().filter(|_| system.has_flows());
    let flows = carried.enumerate().map(|(index, flow)| {
        json!({
            "name": flow.name,
            "from": system.vms[flow.from].name,
            "to": receivers(system, flow),
            "cid": system.destination(index).0,
            "port": flow.port.unwrap_or(DEFAULT_PORT),
        })
    });
    json!({
        "file": file.display().to_string(),
        "good": true,
        "faults": [],
        "system": image::name(system),
        "platform": system.platform.name,
        "cores": system.cores_needed(),
        "console_core": system.hypervisor.console_core.0,
        "vms": vms.collect::<Vec<_>>(),
        "flows": flows.collect::<Vec<_>>(),
        "division": coloring::json(system, map),
        "placement": placement(map),
        "shared_cores": supplies(&system.timing).map_or_else(|| json!([]), |supply| json!(supply.cores)),
    })
}

/// A memory map as JSON: a list of pieces by address.
pub fn placement(map: &Placement) -> Value {
    let owner = |owner: &MapOwner| match owner {
        MapOwner::Vm(_, name) => Value::from(name.as_str()),
        MapOwner::Hypervisor => "weir".into(),
        MapOwner::Free => Value::Null,
    };
    let row = |row: &Row| {
        json!({
            "address": format!("{:#x}", row.address.0),
            "bytes": row.size.0,
            "owner": owner(&row.owner),
            "end": format!("{:#x}", row.end.0),
            "page_classes": row.classes.map(|classes| classes.to_string()),
            "ipa": row.ipa.map(|ipa| format!("{:#x}", ipa.0)),
            "what": row.what,
        })
    };
    map.rows.iter().map(row).collect()
}

/// The names of a flow's receivers.
fn receivers(system: &System, flow: &Flow) -> Vec<String> {
    flow.to.iter().map(|&to| system.vms[to].name.clone()).collect()
}

/// The address that each flow's sender connects to, and how both ends see their devices.
fn flows(system: &System) -> String {
    let mut rows = table(["flow", "from", "to", "the sender connects to"]);
    let on = |vm: usize| {
        let vm = &system.vms[vm];
        let bus = if vm.socket == Some(SocketBus::Pci) { " (PCI)" } else { "" };
        format!("{}{bus}", vm.name)
    };
    for (index, flow) in system.timing.flows.iter().enumerate() {
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
