//! `weir analyze`: whether a system holds its timing, before it runs.

pub mod render;

use crate::{
    build_id,
    environment::Environment,
    failure::{CALL, Failure, GOOD, Result, SYSTEM},
    image, screen,
};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    io::Write,
    path::{Path, PathBuf},
};
use weir_analysis::{
    BytesPerSec, Options, Report,
    flows::{Effort, MAX_BANDWIDTH, Reading},
    verdict::Verdict,
};
use weir_model::{Catalog, FaultRecord, Faults, SystemFile};

/// Bounds the flows, budgets, tasks and interrupts of systems, and compares the bounds with what
/// the files demand.
///
/// Only the parts of a system file that concern time and bandwidth are read: images and cores may
/// be missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir analyze flows.toml\n  \
        weir analyze flows.toml --model table3\n  \
        weir analyze tests/systems/flows-many.toml --overheads overheads.toml\n  \
        weir analyze --json a.toml b.toml\n\n\
        Exit status: 0 all holds, 1 something does not hold or is not judged, 2 the call is \
        wrong: a file can't be read, or contains nothing that can be judged, 3 the answer can't \
        be written.")]
pub struct AnalyzeArguments {
    /// The system files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Model of Eq. 20 and 22 of rt-virtio: as printed, or as its Table III was computed (474 ns
    /// less, optimistic).
    #[arg(long, value_enum, default_value = "printed")]
    model: ReadingName,
    /// Take overheads from this file, a TOML file with `[overheads]` or a `platform` that has them,
    /// before those of the system and its platform, and so the bandwidth of the copy that it was
    /// measured with.
    #[arg(long, value_name = "FILE")]
    overheads: Option<PathBuf>,
    /// Take this bandwidth, in bytes/s or with a unit like 485MB/s, instead of `[dma]` `bandwidth`.
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    bandwidth: Option<BytesPerSec>,
    /// Effort limit of one answer, in evaluations of one flow's demand (about 1 ns each).
    #[arg(long, value_name = "STEPS", default_value_t = Effort::default().0, allow_negative_numbers = true)]
    max_steps: u64,
    /// Exit with status 0 also where something is not judged because an input is missing.
    #[arg(long)]
    accept_not_judged: bool,
    /// Print the result as JSON, one line for each file.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ReadingName {
    Printed,
    Table3,
}

impl ReadingName {
    fn reading(self) -> Reading {
        match self {
            Self::Printed => Reading::Printed,
            Self::Table3 => Reading::Table3,
        }
    }
}

fn rate(text: &str) -> std::result::Result<BytesPerSec, String> {
    let rate = text.parse().ok().map(BytesPerSec).or_else(|| BytesPerSec::parse(text).ok());
    match rate {
        None => Err("write a whole number of bytes/s, or one with a unit like 485MB/s".to_owned()),
        Some(BytesPerSec(0)) => Err("nothing moves at 0 B/s: write at least 1".to_owned()),
        Some(rate) if rate.0 > MAX_BANDWIDTH => {
            Err(format!("the analysis takes bandwidths up to {MAX_BANDWIDTH} B/s (1 PiB/s)"))
        }
        Some(rate) => Ok(rate),
    }
}

/// Carries the verb out.
pub fn run(arguments: &AnalyzeArguments, environment: &Environment) -> Result {
    let mut status = GOOD;
    let catalog = image::catalog(environment);
    let given = arguments.overheads.as_deref();
    let given = given.map(|path| overheads(path, &catalog)).transpose()?;
    let options = Options {
        reading: arguments.model.reading(),
        bandwidth: arguments.bandwidth,
        effort: Effort(arguments.max_steps),
        build: build_id::of_checkout().map(str::to_owned),
    };
    let answer = |path: &PathBuf| {
        let mut file = SystemFile::load(path, &catalog)?;
        if let Some(given) = &given {
            file.prefer_overheads(given);
        }
        weir_analysis::analyze(&file, &options)
    };
    // Results come out as they are needed, however many files there are.
    for files in arguments.files.chunks(64) {
        let answers: Vec<_> = files.par_iter().map(answer).collect();
        for (file, answer) in files.iter().zip(answers) {
            let answered = show(file, &answer, arguments)?;
            // A system that does not hold is the stronger news.
            if status != SYSTEM && answered != GOOD {
                status = answered;
            }
        }
    }
    if status == GOOD { Ok(()) } else { Err(Failure::reported(status)) }
}

/// The overheads of a file that was given for them.
fn overheads(path: &Path, catalog: &Catalog) -> Result<SystemFile> {
    let file = SystemFile::load(path, catalog).map_err(|faults| image::refused(&faults))?;
    if file.system().overheads.is_empty() {
        let text = format!(
            "{} has no overheads: add [overheads] with hc = {{ min = 939, max = 949 }} and so on in ns, or name a platform that has them",
            path.display()
        );
        return Err(Failure::call(text));
    }
    Ok(file)
}

/// What a file must contain to be judged.
const NOTHING: &str = "nothing to judge: there is no [[flow]] other than best effort, no `memory_budget` of a VM, no [[vm.task]], no [[irq]] with a `deadline` and no [[core]]";

/// The analysis of a file with faults.
#[derive(Serialize, JsonSchema)]
pub struct RefusedAnalysis {
    /// The name of the system file.
    file: String,
    /// Whether everything holds: always false.
    holds: bool,
    /// The verdict: always `does-not-hold`.
    verdict: Verdict,
    /// The bounds of the flows: always none.
    flows: (),
    /// The faults of the file.
    faults: Vec<FaultRecord>,
}

/// The analysis of a file.
#[derive(Serialize, JsonSchema)]
pub struct AnalyzedFile<'a> {
    /// The name of the system file.
    file: String,
    /// The report.
    #[serde(flatten)]
    report: &'a Report,
    /// Why there is nothing to judge.
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing: Option<&'static str>,
}

/// Prints an answer; returns the status for it.
fn show(
    file: &Path,
    answer: &std::result::Result<Report, Faults>,
    &AnalyzeArguments { json, accept_not_judged, .. }: &AnalyzeArguments,
) -> Result<u8> {
    let mut out = screen::stdout();
    let name = file.display();
    match answer {
        Ok(report) if json => {
            let nothing = report.verdict.is_none().then_some(NOTHING);
            let line = AnalyzedFile { file: name.to_string(), report, nothing };
            writeln!(out, "{}", weir_report::versioned(line))?;
        }
        Ok(Report { verdict: None, .. }) => {
            out.flush()?;
            writeln!(screen::stderr(), "{name}: {NOTHING}")?;
        }
        Ok(report) => write!(out, "{name}: {}\n{}", headline(report), render::report(report))?,
        Err(faults) if json => {
            let line = RefusedAnalysis {
                file: name.to_string(),
                holds: false,
                verdict: Verdict::DoesNotHold,
                flows: (),
                faults: faults.records(),
            };
            writeln!(out, "{}", weir_report::versioned(line))?;
        }
        Err(faults) => {
            out.flush()?;
            writeln!(screen::stderr(), "{name}: {}", image::rendered(faults))?;
        }
    }
    Ok(match answer {
        Err(faults) => image::exit_status(faults),
        Ok(report) => report.verdict.map_or(CALL, |verdict| status(verdict, accept_not_judged)),
    })
}

/// Returns the verdict on a file in words.
pub fn headline(report: &Report) -> String {
    match report.verdict {
        Some(Verdict::Holds) => "all holds".to_owned(),
        Some(other) => other.to_string(),
        None => "nothing to judge".to_owned(),
    }
}

/// Returns the exit status for a verdict.
pub fn status(verdict: Verdict, accept_not_judged: bool) -> u8 {
    match verdict {
        Verdict::Holds => GOOD,
        Verdict::NotJudged if accept_not_judged => GOOD,
        Verdict::NotJudged | Verdict::DoesNotHold => SYSTEM,
    }
}
