//! `weir report`: the summary of a run, its page, or what it has measured.

use crate::{
    cargo::replace,
    environment::Environment,
    failure::{Failure, Result},
    output, screen,
};
use serde_json::Value;
use std::{
    io::Write as _,
    path::{Path, PathBuf},
};
use weir_model::timing::Origin;
use weir_report::{
    REPORT, RunFiles, SUMMARY,
    overheads::{MeasuredOverheads, OverheadsToml, measured},
    trace,
};

/// Prints the summary of a run, writes it as a page, or prints how long the phases of its packets
/// took.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir report\n  \
        weir report runs/2026-01-31T12-00-00Z --json\n  \
        weir report runs/2026-01-31T12-00-00Z --html evidence.html\n  \
        weir report --overheads\n  \
        weir report --overheads runs/2026-01-31T12-00-00Z -o overheads.toml\n  \
        weir analyze system.toml --overheads overheads.toml\n\n\
        Exit status: 0 good (the summary has the verdict of the run), 1 no packet has arrived \
        in the run or its trace is damaged, 2 the call is wrong.")]
pub struct ReportArguments {
    /// Print the time of each phase of a packet, by the names of rt-virtio's Table II.
    #[arg(long)]
    overheads: bool,
    /// The run: its directory, its name in runs/, or its trace.bin. Default: the newest run.
    run: Option<PathBuf>,
    /// Write the overheads to this file: the table `[overheads]` of a platform file, with its
    /// origin. `weir analyze --overheads` and `[broker] overheads` read it as well.
    #[arg(short, long, value_name = "FILE", requires = "overheads")]
    output: Option<PathBuf>,
    /// Write the report as one HTML page: verdict, reasons, identity, limits and observed maxima.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["overheads", "json"])]
    html: Option<PathBuf>,
    /// Also the packets of this run. May be given several times.
    #[arg(long, value_name = "RUN", requires = "overheads")]
    with: Vec<PathBuf>,
    /// With -o: the run of a larger system. Its values are written as `larger`, for steps that
    /// search flows or VMs.
    #[arg(long, value_name = "RUN", requires = "output")]
    larger: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(arguments: &ReportArguments, environment: &Environment) -> Result {
    let runs = environment.runs();
    if let Some(output) = &arguments.html {
        return page(arguments, output, &runs);
    }
    if !arguments.overheads {
        return summary(arguments, &runs);
    }
    let path = match &arguments.run {
        Some(run) => trace::find(run, &runs)?,
        None => trace::newest(&runs, trace::file::NAME)?,
    };
    let find = |run: &PathBuf| trace::find(run, &runs);
    let larger = arguments.larger.as_ref().map(find).transpose()?;
    let with = arguments.with.iter().map(find).collect::<Result<Vec<_>>>()?;
    let read = [&path].into_iter().chain(&with).chain(&larger).flat_map(|run| trace::files(run));
    output::check(arguments.output.as_deref(), read)?;
    let (mut overheads, mut origin) = measured(&path)?;
    for path in with {
        let (other, other_origin) = measured(&path)?;
        add_origin(&mut origin, &other_origin)?;
        overheads.merge(other);
    }
    let larger = larger.map(|path| measured(&path)).transpose()?;
    if let Some((_, larger)) = &larger {
        add_origin(&mut origin, larger)?;
    }
    let larger = larger.map(|(larger, _)| larger);
    origin.command += "; weir report --overheads";
    if let Some(file) = &arguments.output {
        if let Some(why) = overheads.unfit() {
            return Err(Failure::system(why));
        }
        if let Some(why) = larger.as_ref().and_then(MeasuredOverheads::unfit_as_larger) {
            return Err(Failure::system(why));
        }
        let table = OverheadsToml { name: "overheads", origin: &origin, larger: larger.as_ref() };
        let text = overheads.to_toml(&table);
        replace(file, text.as_bytes())?;
    }
    let mut out = screen::stdout();
    if arguments.json {
        writeln!(out, "{:#}", weir_report::versioned(overheads.record()))?;
    } else if arguments.output.is_none() {
        write!(out, "{overheads}")?;
    }
    Ok(())
}

/// Adds the command of another run, which has to be of the same build.
fn add_origin(origin: &mut Origin, other: &Origin) -> Result {
    if other.build != origin.build {
        let text = "the runs are of different builds of the hypervisor: repeat the older ones";
        return Err(Failure::system(text.to_owned()));
    }
    origin.command = format!("{}; {}", origin.command, other.command);
    Ok(())
}

/// Writes the page of a run. If the trace is damaged, the page states it and the call fails.
fn page(arguments: &ReportArguments, output: &Path, runs: &Path) -> Result {
    let directory = directory(arguments, runs, REPORT)?;
    let inputs = RunFiles::inputs(&directory);
    output::check(Some(output), inputs)?;
    let files = RunFiles::read(&directory)?;
    replace(output, weir_report::html(&files)?.as_bytes())?;
    match files.trace.and_then(|trace| trace.damage) {
        Some(damage) => Err(Failure::system(format!("{}: {damage}", directory.display()))),
        None => Ok(()),
    }
}

/// Returns the directory of a run: the one that the call names, or the newest with a file `name`.
fn directory(arguments: &ReportArguments, runs: &Path, name: &str) -> Result<PathBuf> {
    let path = match &arguments.run {
        Some(run) => trace::find(run, runs)?,
        None => trace::newest(runs, name)?,
    };
    Ok(trace::directory(&path))
}

/// Prints the summary of a run, or its report as JSON.
fn summary(arguments: &ReportArguments, runs: &Path) -> Result {
    let name = if arguments.json { REPORT } else { SUMMARY };
    let directory = directory(arguments, runs, name)?;
    let text = weir_report::read_run_file(&directory, name)?;
    if arguments.json && !serde_json::from_str::<Value>(&text).is_ok_and(|json| json.is_object()) {
        return Err(Failure::call(format!(
            "{} is damaged: it is not a JSON object; run the system again",
            directory.join(name).display()
        )));
    }
    let text = if arguments.json { text } else { weir_report::fitted(&text) };
    screen::stdout().write_all(text.as_bytes())?;
    Ok(())
}
