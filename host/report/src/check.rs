//! The check of a system: its faults, or its VMs, flows and memory map.

use crate::coloring::{self, DivisionRecord};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use weir_analysis::{
    CheckRules,
    system::{CoreSupply, supplies},
};
use weir_image::{Environment, Estimate, Guess, name, source};
use weir_model::{
    Fault, FaultRecord, Faults, MapRecord, Placement, RamPiece, System, Vm,
    pci::AssignedFunction,
    platform::MemoryRecord,
    timing::{DEFAULT_PORT, Flow},
};

/// A system without faults.
pub struct Checked {
    /// The system.
    pub system: System,
    /// The estimated place of everything in it.
    pub placement: Placement,
    /// The notes of the analysis.
    pub notes: Vec<String>,
}

/// The result of a check.
pub struct Judged {
    /// The system, or all its faults.
    pub result: Result<Checked, Faults>,
    /// The parts of the image with estimated sizes.
    pub guessed: Vec<Guess>,
}

impl Judged {
    /// Judges a system that was read: by `rules`, and by where the parts of its image lie. Images
    /// are taken as they were built or fetched last; the size of a missing one is estimated.
    #[must_use]
    pub fn of(read: Result<System, Faults>, rules: CheckRules, environment: &Environment) -> Self {
        let system = match read {
            Ok(system) => system,
            Err(faults) => return Self { result: Err(faults), guessed: Vec::new() },
        };
        let judged = rules.judge(&system);
        let estimate = Estimate::of(&system, environment);
        let placement = estimate.placement(&system);
        let result = match (placement, judged) {
            (Ok(placement), Ok(notes)) => Ok(Checked { system, placement, notes }),
            (placement, judged) => {
                let found = [placement.err(), judged.err()];
                Err(Faults(found.into_iter().flatten().flat_map(|faults| faults.0).collect()))
            }
        };
        Self { result, guessed: estimate.guessed }
    }
}

/// Returns what `weir build` refuses of a system that is good for planning.
#[must_use]
pub fn not_built(system: &System) -> Vec<String> {
    system.unbuilt().iter().map(Fault::note).collect()
}

/// A system file with faults.
#[derive(Serialize, JsonSchema)]
pub struct RefusedFile {
    /// The name of the system file.
    file: String,
    /// Whether it has no faults: always false.
    good: bool,
    /// Its faults.
    faults: Vec<FaultRecord>,
    /// Of `weir check`: the parts of the image with estimated sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    guessed_images: Option<Vec<Guess>>,
}

impl RefusedFile {
    /// Returns the result for a file that has these faults.
    #[must_use]
    pub fn new(file: &Path, faults: &Faults) -> Self {
        let file = file.display().to_string();
        Self { file, good: false, faults: faults.records(), guessed_images: None }
    }

    /// Adds the parts of the image with estimated sizes.
    #[must_use]
    pub fn with_guesses(self, guessed: Vec<Guess>) -> Self {
        Self { guessed_images: Some(guessed), ..self }
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

/// Returns the devices of the board that a VM gets, as its file may name them.
#[must_use]
pub fn devices(vm: &Vm) -> Vec<String> {
    let paths = vm.devices.iter().map(|device| device.path.clone());
    paths.chain(vm.functions.iter().map(AssignedFunction::name)).collect()
}

impl CheckedFile {
    /// Returns the result for a file without faults, with the parts of its image that have
    /// estimated sizes.
    #[must_use]
    pub fn of(file: &Path, checked: Checked, guessed: Vec<Guess>) -> Self {
        let Checked { system, placement, notes } = checked;
        let (system, placement) = (&system, &placement);
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
            to: flow.to.iter().map(|&to| system.vms[to].name.clone()).collect(),
            cid: system.destination(index).0,
            port: flow.port.unwrap_or(DEFAULT_PORT),
        };
        Self {
            file: file.display().to_string(),
            good: true,
            faults: Vec::new(),
            system: name(system),
            platform: system.platform().name.clone(),
            cores: system.cores_needed(),
            console_core: system.hypervisor.console_core.0,
            vms: system.vms.iter().map(vm).collect(),
            flows: carried.enumerate().map(flow).collect(),
            division: coloring::record(system, placement),
            placement: placement.records(),
            shared_cores: supplies(system).map_or_else(Vec::new, |supply| supply.cores),
            guessed_images: guessed,
            not_built: not_built(system),
            notes,
        }
    }
}
