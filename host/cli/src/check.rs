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
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
};
use weir_analysis::{
    CheckRules,
    system::{CoreSupply, supplies},
};
use weir_model::{
    Fault, FaultRecord, Faults, Image, MapRecord, Placement, RamPiece, SocketBus, System, Vm,
    pci::AssignedFunction,
    platform::{Machine, MemoryRecord},
    timing::{DEFAULT_PORT, Flow},
};
use weir_report::{TextTable, coloring::DivisionRecord, plan::SystemPlan, table};

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
            let svg = weir_report::plan_svg(&SystemPlan::of(system, placement))?;
            replace(map, svg.as_bytes())?;
        }
        match checked {
            Ok((system, placement, notes)) if arguments.json => {
                let described = describe(file, (&system, &placement), notes, guessed);
                results.push(serde_json::to_value(described).unwrap_or_default());
            }
            Ok((system, placement, notes)) => {
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
                    let refused = RefusedFile::new(file, &faults);
                    let refused = RefusedFile { guessed_images: Some(guessed), ..refused };
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

/// What `weir build` refuses of a system that is good for planning.
fn not_built(system: &System) -> Vec<String> {
    system.unbuilt().iter().map(Fault::note).collect()
}

/// Which sizes are guessed, in words.
fn guess_note(guessed: &[Guess]) -> String {
    let list: Vec<_> = guessed.iter().map(ToString::to_string).collect();
    format!("sizes guessed: {}", list.join(", "))
}

/// A system file with faults.
#[derive(Serialize, JsonSchema)]
pub struct RefusedFile {
    /// The name of the system file.
    pub file: String,
    /// Whether it has no faults: always false.
    pub good: bool,
    /// Its faults.
    pub faults: Vec<FaultRecord>,
    /// Of `weir check`: the parts of the image with estimated sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guessed_images: Option<Vec<Guess>>,
}

impl RefusedFile {
    /// Returns the result for a file that has these faults.
    pub fn new(file: &Path, faults: &Faults) -> Self {
        let file = file.display().to_string();
        Self { file, good: false, faults: faults.records(), guessed_images: None }
    }
}

/// A system file without faults.
#[derive(Serialize, JsonSchema)]
pub struct CheckedFile {
    /// The name of the system file.
    file: String,
    /// Whether it has no faults: always true.
    good: bool,
    /// Its faults: always empty.
    faults: Vec<FaultRecord>,
    /// The name of the system file without its extension.
    system: String,
    /// The platform.
    platform: String,
    /// The number of cores that the system needs.
    cores: usize,
    /// The core that has the console.
    console_core: u8,
    /// The VMs in the order of the file.
    vms: Vec<CheckedVm>,
    /// The flows in the order of the file.
    flows: Vec<CheckedFlow>,
    /// The owners of page classes.
    division: DivisionRecord,
    /// The memory map.
    placement: Vec<MapRecord>,
    /// The supply of each shared core.
    shared_cores: Vec<CoreSupply>,
    /// The parts of the image with estimated sizes, which are not built or fetched yet.
    guessed_images: Vec<Guess>,
    /// What `weir build` refuses, with `--planning`.
    not_built: Vec<String>,
    /// The notes of the analysis.
    notes: Vec<String>,
}

/// A VM of a checked system.
#[derive(Serialize, JsonSchema)]
struct CheckedVm {
    /// The name of the VM.
    name: String,
    /// The core of each vCPU.
    cores: Vec<u8>,
    /// Its RAM.
    memory: Vec<MemoryRecord>,
    /// The source of its image: a path, or the name of a program.
    image: String,
    /// The source of its initial RAM disk.
    initrd: Option<String>,
    /// The devices of the board that it gets.
    devices: Vec<String>,
    /// The lines that are expected of it.
    expect: Vec<String>,
}

/// A flow of a checked system.
#[derive(Serialize, JsonSchema)]
struct CheckedFlow {
    /// The name of the flow.
    name: String,
    /// The VM that sends.
    from: String,
    /// The VMs that receive.
    to: Vec<String>,
    /// The context identifier (CID) that the sender connects to.
    cid: u64,
    /// The port that the sender connects to.
    port: u32,
}

/// The devices of the board that a VM gets, as its file may name them.
fn devices(vm: &Vm) -> Vec<String> {
    let paths = vm.devices.iter().map(|device| device.path.clone());
    paths.chain(vm.functions.iter().map(AssignedFunction::name)).collect()
}

/// Returns the result for a file without faults, with its guesses and notes.
fn describe(
    file: &Path,
    (system, map): (&System, &Placement),
    notes: Vec<String>,
    guessed: Vec<Guess>,
) -> CheckedFile {
    let vm = |vm: &Vm| CheckedVm {
        name: vm.name.clone(),
        cores: vm.cpus.iter().map(|core| core.0).collect(),
        memory: vm
            .memory
            .iter()
            .map(|RamPiece { base, size }| MemoryRecord {
                base: format!("{:#x}", base.0),
                bytes: size.0,
            })
            .collect(),
        image: source(vm.image.source()),
        initrd: vm.image.initrd().map(source),
        devices: devices(vm),
        expect: vm.expect.clone(),
    };
    let carried = system.flows.iter().filter(|_| system.has_flows());
    let flow = |(index, flow): (usize, &Flow)| CheckedFlow {
        name: flow.name.clone(),
        from: system.vms[flow.from].name.clone(),
        to: receivers(system, flow),
        cid: system.destination(index).0,
        port: flow.port.unwrap_or(DEFAULT_PORT),
    };
    CheckedFile {
        file: file.display().to_string(),
        good: true,
        faults: Vec::new(),
        system: image::name(system),
        platform: system.platform().name.clone(),
        cores: system.cores_needed(),
        console_core: system.hypervisor.console_core.0,
        vms: system.vms.iter().map(vm).collect(),
        flows: carried.enumerate().map(flow).collect(),
        division: coloring::record(system, map),
        placement: map.records(),
        shared_cores: supplies(system).map_or_else(Vec::new, |supply| supply.cores),
        guessed_images: guessed,
        not_built: not_built(system),
        notes,
    }
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
