//! A run's pictures.

use crate::failure::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};
use weir_report::Picture;
use weir_simulator::{LINE, Outcome, Simulated, VmOutcome, arrival_curve};

/// The files that [`write()`] may write.
const BANDWIDTH: &str = "bandwidth.svg";
const LATENCY: &str = "latency.svg";
const ARRIVALS: &str = "arrivals.svg";
const RESPONSES: &str = "responses.svg";

/// Writes bandwidth over time, distributions of latencies and arrival curves into a directory.
#[expect(clippy::cast_precision_loss, reason = "for pictures")]
pub fn write(directory: &Path, result: &Simulated) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(directory).context(|| format!("create {}", directory.display()))?;
    let Outcome { vms, slice_ns, .. } = &result.outcome;
    let slice = *slice_ns as f64;
    let bandwidth = |vm: &VmOutcome| -> Vec<(f64, f64)> {
        let rate = |lines: u64| (lines * LINE) as f64 * 1e3 / slice;
        let slices = (0_u32..).zip(&vm.slices);
        slices.map(|(at, lines)| ((f64::from(at) + 0.5) * slice / 1e3, rate(*lines))).collect()
    };
    let latency = |vm: &VmOutcome| -> Vec<(f64, f64)> {
        let share = |share: u64| (vm.latency.at_most_ns(share) as f64, share as f64 / 10.0);
        (0..=1000).step_by(5).map(share).collect()
    };
    let arrivals = |vm: &VmOutcome| -> Vec<(f64, f64)> {
        arrival_curve(vm)
            .pairs()
            .into_iter()
            .map(|[length, lines]| (length as f64 / 1e3, lines as f64))
            .collect()
    };
    let picture = |name: &str, x, y, of: &dyn Fn(&VmOutcome) -> Vec<(f64, f64)>| {
        let working = vms.iter().filter(|vm| vm.accesses > 0);
        let lines = working.map(|vm| (vm.name.clone(), of(vm))).collect();
        Picture { x, y, lines }.write(directory.join(name))
    };
    let responses = |vm: &VmOutcome| -> Vec<(f64, f64)> {
        let Some(jobs) = vm.jobs.as_ref().filter(|jobs| jobs.ended > 0) else { return Vec::new() };
        let share =
            |share: u64| (jobs.response.at_most_ns(share) as f64 / 1e3, share as f64 / 10.0);
        (0..=1000).step_by(5).map(share).collect()
    };
    let mut files = vec![
        picture(BANDWIDTH, "us", "MB/s", &bandwidth)?,
        picture(LATENCY, "latency, ns", "of the accesses, %", &latency)?,
        picture(ARRIVALS, "length of the window, us", "refills at most", &arrivals)?,
    ];
    if vms.iter().any(|vm| vm.jobs.is_some()) {
        files.push(picture(RESPONSES, "response, us", "of the jobs, %", &responses)?);
    }
    Ok(files)
}
