//! Recordings that a VM's vCPUs replay, see [`weir_memory::recording`]. Offsets count from the
//! start of the VM's RAM.

use crate::error::SimulationError;
use std::{path::Path, sync::Arc};
use weir_memory::recording::{RecordedAccess, RecordingLine};
use weir_model::timing::{Workload, WorkloadKind};

/// The trace that each vCPU of a VM replays.
pub(crate) type Traces = Vec<Arc<[RecordedAccess]>>;

/// The longest file that is read: ten million accesses.
const MOST_BYTES: u64 = 1 << 27;

/// The traces of a VM of so many vCPUs and bytes of RAM, if its workload is one: the file's
/// accesses below `vcpu N` are that vCPU's, and those above the first such line are each one's.
pub(crate) fn read(
    system: &Path,
    (vm, vcpus, ram): (&str, usize, u64),
    workload: Option<&Workload>,
) -> Result<Traces, SimulationError> {
    let Some(name) =
        workload.filter(|w| w.kind == WorkloadKind::Trace).and_then(|w| w.file.as_ref())
    else {
        return Ok(Vec::new());
    };
    let path = system.parent().unwrap_or(Path::new("")).join(name);
    let shown = path.display();
    let text = weir_model::read_text(&path, MOST_BYTES)
        .map_err(|error| SimulationError(format!("{vm}'s trace {shown}: {error}")))?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(SimulationError(format!(
            "{shown}:{}: the last line has no end, as if the file were cut short: end it",
            text.lines().count()
        )));
    }
    let mut traces = vec![Vec::new(); vcpus];
    let mut vcpus_of = 0..vcpus;
    for (line, number) in text.lines().zip(1..) {
        let bad = |why: &dyn std::fmt::Display| SimulationError(format!("{shown}:{number}: {why}"));
        match RecordingLine::parse(line).map_err(|error| bad(&error))? {
            Some(RecordingLine::Vcpu(vcpu)) if vcpu >= vcpus => {
                return Err(bad(&format!(
                    "`vcpu {vcpu}`: {vm} has {vcpus}, and the first of them is vcpu 0"
                )));
            }
            Some(RecordingLine::Vcpu(vcpu)) => vcpus_of = vcpu..vcpu + 1,
            Some(RecordingLine::Access(step)) if step.at >= ram => {
                return Err(bad(&format!(
                    "the offset {:#x} is behind {vm}'s RAM, which has {}",
                    step.at,
                    weir_units::Bytes(ram)
                )));
            }
            Some(RecordingLine::Access(step)) => {
                traces[vcpus_of.clone()].iter_mut().for_each(|trace| trace.push(step));
            }
            None => {}
        }
    }
    if traces.iter().all(Vec::is_empty) {
        return Err(SimulationError(format!("{vm}'s trace {shown} has no accesses")));
    }
    Ok(traces.into_iter().map(Into::into).collect())
}
