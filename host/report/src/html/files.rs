//! Reads the files of a run that its page is made of.

use crate::{
    REPORT,
    trace::file::{self, Trace},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};
use weir_image::{Failure, Result};
use weir_model::{open_regular, read_text};
use weir_trace::record::RecordKind;

/// The longest `report.json` or `run.json`, in bytes: longer files are refused.
const LONGEST: u64 = 64 << 20;
/// The lines of a console that a page has.
const LINES: usize = 20;
/// The bytes of a console in which these lines are searched.
const TAIL: u64 = 8192;
/// The name of what depends on the host in the directory of a run.
pub(super) const RECORD: &str = "run.json";

/// The files of a run, for [`html`](crate::html()).
#[derive(Clone, Debug, Default)]
pub struct RunFiles {
    /// The name of the run's directory.
    pub run: String,
    /// `report.json`.
    pub report: Value,
    /// `run.json`; `null` if the run left none that can be read.
    pub record: Value,
    /// The ends of the VMs' consoles.
    pub consoles: Vec<ConsoleTail>,
    /// What `trace.bin` has; none if the run left none.
    pub trace: Option<TraceCounts>,
}

/// The last lines of a console.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleTail {
    /// The name of the log with the whole console.
    pub log: String,
    /// The last lines.
    pub lines: Vec<String>,
    /// Bytes of the log before these lines.
    pub before: u64,
}

/// The records of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Records by the name of their kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Records that were lost.
    pub lost: u64,
    /// Why the trace cannot be read, or its damage.
    pub damage: Option<String>,
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
    /// The call is wrong if there is no `report.json`, or if it is not JSON. Other files may be
    /// missing or damaged: the page states it.
    pub fn read(directory: &Path) -> Result<Self> {
        let report: Value =
            serde_json::from_str(&read_run_file(directory, REPORT)?).map_err(|error| {
                let path = directory.join(REPORT);
                Failure::call(format!(
                    "{} is damaged: {error}; run the system again",
                    path.display()
                ))
            })?;
        let record = read_run_file(directory, RECORD).ok();
        let record = record.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let vms = report["vms"].as_array().into_iter().flatten();
        // A name in a damaged report must not lead out of the directory.
        let names = vms.filter_map(|vm| vm["name"].as_str()).filter(|name| !name.contains('/'));
        let consoles = names.filter_map(|name| tail(directory, console_log(name))).collect();
        let run = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let run = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let trace = directory.join(file::NAME).exists().then(|| count(directory));
        Ok(Self { run, report, record, consoles, trace })
    }

    /// Returns the files of a run's directory that a page must not replace: all but pages.
    #[must_use]
    pub fn inputs(directory: &Path) -> Vec<PathBuf> {
        let files = fs::read_dir(directory).into_iter().flatten().flatten();
        let files = files.map(|entry| entry.path());
        files.filter(|path| path.extension().is_none_or(|suffix| suffix != "html")).collect()
    }
}

/// Reads a text that a run writes into its directory when it ends.
///
/// # Errors
///
/// The call is wrong if the file is missing, longer than 64 MiB or not UTF-8.
pub fn read_run_file(directory: &Path, name: &str) -> Result<String> {
    let path = directory.join(name);
    read_text(&path, LONGEST).map_err(|error| {
        Failure::call(format!(
            "cannot read {}: {error}; a run writes this file when it ends: the run still goes on, \
             was killed, or is of an older weir",
            path.display()
        ))
    })
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

/// Counts the records of a trace.
fn count(directory: &Path) -> TraceCounts {
    let mut counts = TraceCounts::default();
    let mut read = || -> Result<Option<String>> {
        let mut trace = Trace::open(directory)?;
        counts.lost = trace.facts.lost;
        while let Some(record) = trace.next_record()? {
            let kind = RecordKind::from_number(record.kind).map_or("unknown", RecordKind::name);
            *counts.kinds.entry(kind).or_default() += 1;
        }
        Ok(trace.damage())
    };
    counts.damage = read().unwrap_or_else(|failure| Some(failure.text));
    counts
}
