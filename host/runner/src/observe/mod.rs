//! Runs a system with every access to memory sent through a model of caches and DRAM banks.

mod picture;
mod record;
mod render;
mod result;
mod symbols;

pub use picture::svg;
pub use record::{AccessTrace, render as render_traces};
pub use render::{NOTHING, render};
pub use result::{
    IntrusionRecord, IsolationSums, LeftOut, MarkRecord, Matrices, ObservationRecord, OwnerRecord,
};

use crate::plugin::Watch;
use crate::report::End;
use crate::run::{Console, Run, RunOptions, adapted, run};
use std::{fs, path::Path};
use weir_image::{Failure, Result, cargo::Programs, failure::Context};
use weir_model::System;
use weir_qemu_plugin::caches::{ObservedAccesses, RecordingLimit};

/// Where the plug-in leaves recordings.
const RECORDINGS: &str = "recordings";

/// What was seen of a system.
pub struct Observation {
    /// The system.
    pub system: System,
    /// The counts.
    pub seen: ObservedAccesses,
    /// The run.
    pub run: Run,
    /// The recordings of VMs.
    pub traces: Vec<AccessTrace>,
    /// The functions of the hypervisor.
    symbols: symbols::Symbols,
}

impl Observation {
    /// Returns what was seen as a JSON result has it.
    #[must_use]
    pub fn record(&self) -> ObservationRecord {
        render::record(self)
    }
}

/// Builds a system to be observed, runs it with the plug-in and returns what the
/// plug-in saw. With a directory and a count, the first accesses of each VM, as many as the count,
/// are recorded there.
///
/// # Errors
///
/// As [`run`]; the environment is at fault if the plug-in saw nothing. The run may have missed
/// lines that it expected.
pub fn observe(
    system: &System,
    options: &RunOptions,
    record: Option<(&Path, u64)>,
    console: &mut dyn Console,
) -> Result<Observation> {
    if let Some((to, _)) = record {
        fs::create_dir_all(to).context(|| format!("make {}", to.display()))?;
    }
    let environment = &options.environment;
    let mut system = adapted(system, options);
    system.hypervisor.observed = true;
    let scratch = tempfile::tempdir().context(|| "make a directory")?;
    let file = |name: &str| scratch.path().join(name);
    let (no_build, all_parts) = (options.no_build, options.all_parts);
    let parts = weir_image::ImageOptions {
        environment: environment.clone(),
        no_build,
        all_parts,
        fixed_seeds: true,
    };
    let built = weir_image::build(&system, &parts)?;
    let elf = Programs::new(environment, true).hypervisor_in(&built.bytes)?;
    let out = Some(file("seen.json"));
    let with_limit = record.map(|(_, most)| RecordingLimit { most, into: file(RECORDINGS) });
    let offsets = record.map_or(Vec::new(), |_| record::offsets(&system, &built.packed.placement));
    let watch = Watch::new(&system, Some(&built.packed), out, no_build, environment)?;
    fs::write(file("system.img"), built.bytes).context(|| "write the image")?;
    let options = RunOptions {
        accept_not_judged: true,
        watch: Some(watch.with_record(with_limit)),
        image_file: Some(file("system.img")),
        ..options.clone()
    };
    let run = run(&system, &options, console)?;
    match ObservedAccesses::read(&file("seen.json")) {
        Ok(seen) => {
            let recordings = file(RECORDINGS);
            let traces = record.map_or(Ok(Vec::new()), |(to, _)| {
                record::write(&system, &offsets, &seen.recorded, &recordings, to)
            })?;
            Ok(Observation { system, seen, run, traces, symbols: symbols::Symbols::read(&elf) })
        }
        Err(error) => {
            let log = run.directory.join("qemu.log");
            let message = fs::read_to_string(&log).unwrap_or_default();
            let message = message.lines().find_map(|line| line.strip_prefix("weir-qemu-plugin: "));
            if message.is_none()
                && run.report.ended_by == End::MachineGone
                && let Some(trouble) = run.trouble
            {
                let text = format!("{trouble}\nwhat the plug-in had seen went with it");
                return Err(Failure { status: run.status, text });
            }
            let why =
                message.map_or_else(|| format!("{error}; see {}", log.display()), str::to_owned);
            Err(Failure::environment(format!("the plug-in saw nothing: {why}")))
        }
    }
}
