//! Reads the files of a run that its page is made of.

use super::trace::TraceView;
use crate::{
    SYSTEM,
    plan::{PLAN, SystemPlan},
    run::{RunFacts, RunReport, read_json, read_report, read_run_file},
    trace::file::{self, Trace},
};
use serde::Serialize;
use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};
use weir_image::Result;
use weir_model::open_regular;

/// The lines of a console that a page has.
const LINES: usize = 20;
/// The bytes of a console in which these lines are searched.
const TAIL: u64 = 8192;

/// The files of a run, for [`run_page`](crate::run_page).
#[derive(Clone, Debug)]
pub struct RunFiles {
    /// The name of the run's directory.
    pub run: String,
    /// `report.json`.
    pub report: RunReport,
    /// `run.json`; none if the run left none that can be read.
    pub(super) facts: Option<RunFacts>,
    /// `plan.json`; none if the run left none that can be read.
    pub(super) plan: Option<SystemPlan>,
    /// `system.toml`; none if the run left none that can be read.
    pub(super) system: Option<String>,
    /// The ends of the VMs' consoles.
    pub(super) consoles: Vec<ConsoleTail>,
    /// True if there is a `trace.bin`.
    pub(super) has_trace: bool,
    /// The view of `trace.bin`.
    pub(super) trace: TraceView,
    /// The run's directory; none if the files were not read from one.
    pub(super) directory: Option<PathBuf>,
}

/// The last lines of a console.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ConsoleTail {
    /// The name of the log with the whole console.
    pub log: String,
    /// The last lines.
    pub lines: Vec<String>,
    /// Bytes of the log before these lines.
    pub before: u64,
}

/// Returns the name of the log of a VM's console: `NAME.log`, unless that is a log of weir's own.
#[must_use]
pub fn console_log(vm: &str) -> String {
    if ["hypervisor", "qemu"].contains(&vm) { format!("{vm}.vm.log") } else { format!("{vm}.log") }
}

impl RunFiles {
    /// Reads the files in the directory of a run.
    ///
    /// # Errors
    ///
    /// As [`read_report`]. Other files may be missing or damaged: the page states it.
    pub fn read(directory: &Path) -> Result<Self> {
        let report = read_report(directory)?;
        // A name in a damaged report must not lead out of the directory.
        let names = report.vms.iter().map(|vm| &vm.name).filter(|name| !name.contains('/'));
        let consoles = names.filter_map(|name| tail(directory, console_log(name))).collect();
        let run = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let run = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let has_trace = directory.join(file::NAME).exists();
        let trace = match Trace::open(directory) {
            _ if !has_trace => TraceView::default(),
            Ok(mut trace) => TraceView::read(&mut trace, report.time_ns),
            Err(failure) => TraceView { damage: Some(failure.text), ..TraceView::default() },
        };
        Ok(Self {
            run,
            facts: RunFacts::read(directory),
            plan: read_json(directory, PLAN),
            system: read_run_file(directory, SYSTEM).ok(),
            consoles,
            has_trace,
            trace,
            directory: Some(directory.to_owned()),
            report,
        })
    }

    /// Returns the damage of the trace; none if the trace is whole, or there is none.
    #[must_use]
    pub fn trace_damage(&self) -> Option<&str> {
        self.trace.damage.as_deref()
    }

    /// Returns the files of a run's directory that a page must not replace: all but pages.
    #[must_use]
    pub fn inputs(directory: &Path) -> Vec<PathBuf> {
        let files = fs::read_dir(directory).into_iter().flatten().flatten();
        let files = files.map(|entry| entry.path());
        files.filter(|path| path.extension().is_none_or(|suffix| suffix != "html")).collect()
    }
}

/// Reads the end of a console.
fn tail(directory: &Path, log: String) -> Option<ConsoleTail> {
    let mut file = open_regular(&directory.join(&log)).ok()?;
    let length = file.limit();
    let mut bytes = Vec::new();
    file.get_mut().seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let end = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let lines: Vec<&[u8]> = end.rsplit(|byte| *byte == b'\n').take(LINES).collect();
    let shown: usize = lines.iter().map(|line| line.len() + 1).sum();
    let shown = shown - 1 + (bytes.len() - end.len());
    let text = |line: &&[u8]| String::from_utf8_lossy(line).trim_end_matches('\r').to_owned();
    let lines = lines.iter().rev().map(text).collect();
    Some(ConsoleTail { log, lines, before: length.saturating_sub(shown as u64) })
}
