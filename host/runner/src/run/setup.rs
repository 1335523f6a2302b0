//! The preparation of a run in QEMU: the system, and the machine.

use super::options::RunOptions;
use crate::{
    qemu::{EmulatedClock, MachineSetup, Parked},
    ram,
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use weir_abi::PAGE;
use weir_image::{Environment, Failure, Result, failure::Context};
use weir_model::{System, bare_device_tree, platform::Platform};
use weir_simulator::MemoryModel;
use weir_units::{Bytes, Nanos, Pa};

/// The heartbeat of a run that waits for lines or counts, if the system has none: the machine may
/// be silent while it waits, and time is known from its records only.
const WAITING: Nanos = Nanos(1_000_000_000);

/// Returns a heartbeat that comes soon after `limit`: the runner knows virtual time only from
/// records of the machine, and guests can be silent.
fn beat_behind(heartbeat: Option<Nanos>, limit: Duration) -> Nanos {
    const MILLISECOND: u64 = 1_000_000;
    let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    // The hypervisor counts in 32 bits.
    let behind = Nanos(limit.saturating_add(1).min(u32::MAX.into()) * MILLISECOND);
    heartbeat.map_or(behind, |heartbeat| heartbeat.min(behind))
}

/// Changes `system` for a run that ends at `limit` of virtual time: the hypervisor sends a record
/// soon after it.
fn end_at(system: &mut System, limit: Duration) {
    let hypervisor = &mut system.hypervisor;
    hypervisor.heartbeat = Some(beat_behind(hypervisor.heartbeat, limit));
}

/// Returns whether the run ends when the expected lines have been printed.
fn ends_with_a_line(options: &RunOptions, system: &System) -> bool {
    !options.keep_running && system.vms.iter().any(|vm| !vm.expect.is_empty())
}

/// Returns whether the hypervisor in QEMU reports the time now and then.
pub(super) fn has_heartbeat(options: &RunOptions, system: &System) -> bool {
    options.serial.is_none() && system.hypervisor.heartbeat.is_some()
}

/// Returns whether the run continues after the last expected line until the counts of the flows
/// arrive. QEMU is not asked for them, because a request arrives at a time of the host.
pub(super) fn awaits_counts(options: &RunOptions, system: &System) -> bool {
    ends_with_a_line(options, system) && has_heartbeat(options, system) && system.has_flows()
}

/// Returns the system with what only this run needs.
pub(crate) fn adapted(system: &System, options: &RunOptions) -> System {
    let mut system = system.clone();
    if let Some(limit) = options.time {
        end_at(&mut system, limit);
    }
    if ends_with_a_line(options, &system) {
        system.hypervisor.heartbeat.get_or_insert(WAITING);
    }
    system
}

/// Returns QEMU's machine, with an SMMU if a VM has PCI functions.
fn machine(system: &System, plain: &str) -> String {
    let smmu = system.platform().smmu.as_ref().and_then(|smmu| smmu.machine.as_deref());
    match smmu {
        Some(smmu) if system.vms.iter().any(|vm| !vm.functions.is_empty()) => {
            format!("{plain},{smmu}")
        }
        _ => plain.to_owned(),
    }
}

/// Returns the cores that no image of `system` starts from the board's spin table. An image file
/// can be of another system.
fn parked(system: &System, options: &RunOptions) -> Option<Parked> {
    let platform = system.platform();
    // Without firmware weir's code of EL3 has the rest of the table's page.
    if platform.starts_in_el3 || options.image_file.is_some() {
        return None;
    }
    let table = platform.spin_table?;
    // The model has checked that nothing else is in the table's page.
    let code = Pa((table.0 | (PAGE - 1)) - 7);
    Some(Parked { code, cores: system.cores_needed()..system.machine_cores() })
}

/// Returns the setup of QEMU.
pub(super) fn setup(system: &System, options: &RunOptions) -> Result<MachineSetup> {
    let platform = system.platform();
    let qemu = platform.qemu.as_ref().ok_or_else(|| {
        Failure::call(format!(
            "QEMU has no machine for {}: build the image with `weir build`, start it on the board, \
             and listen by --serial",
            platform.name
        ))
    })?;
    Ok(MachineSetup {
        machine: machine(system, &qemu.machine),
        cpu: qemu.cpu.clone(),
        cores: system.machine_cores(),
        parked: parked(system, options),
        memory: ram::size(
            Bytes(platform.ram_in_qemu().iter().map(|piece| piece.size.0).sum()),
            &options.qemu_args,
        )?,
        device_tree: None,
        extra: options.qemu_args.clone(),
    })
}

/// Writes the device tree of a machine that generates none into `directory`, and returns its file.
pub(super) fn device_tree(platform: &Platform, directory: &Path) -> Result<Option<PathBuf>> {
    if platform.qemu.as_ref().is_none_or(|qemu| qemu.device_tree) {
        return Ok(None);
    }
    let file = directory.join("bare.dtb");
    let tree = bare_device_tree(&platform.description);
    fs::write(&file, tree).context(|| format!("write {}", file.display()))?;
    Ok(Some(file))
}

/// Returns the masks of the DRAM's bank bits with which a board's memory is charged: those of the
/// platform, on which the page classes rest; none, for those of the memory itself, if the memory has
/// another number of banks and the system divides none.
fn banks(system: &System, board: &str) -> Result<Vec<u64>> {
    let refuse = |error: String| {
        Failure::call(format!("--memory {board} does not fit {}: {error}", system.platform().name))
    };
    let memory = MemoryModel::find(board).map_err(|error| refuse(error.to_string()))?;
    let masks = system.division.geometry.banks.into_iter();
    let own: Vec<u64> = masks.take_while(|&mask| mask != 0).collect();
    let cores = system.machine_cores();
    match memory.stalls(cores, &own) {
        Ok(_) => Ok(own),
        Err(error) if system.division.divided => Err(refuse(error)),
        Err(_) => memory.stalls(cores, &[]).map(|_| Vec::new()).map_err(refuse),
    }
}

/// Returns the emulated clock, which QEMU preloads.
pub(super) fn clock(
    options: &RunOptions,
    system: &System,
    environment: &Environment,
) -> Result<EmulatedClock> {
    let mut clock =
        EmulatedClock::open(&environment.clock()?, options.quantum.map(super::nanoseconds))?;
    if let Some(board) = &options.memory {
        clock.charge(board, banks(system, board)?);
    }
    Ok(clock)
}
