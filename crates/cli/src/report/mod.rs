//! `weir report`: what a run has measured.

mod overheads;

use crate::{
    environment::Environment,
    failure::{Context, Failure, Result},
    output,
    trace::{self, file::Trace},
};
use overheads::Overheads;
use serde_json::Value;
use std::{fs, io::Write as _, path::PathBuf};

/// Shows what a run has measured: the phases of the packets of its flows.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir report --overheads\n  weir report --overheads runs/2026-01-31T12-00-00Z -o overheads.toml\n  weir analyze system.toml --overheads overheads.toml\n\nExit status: 0 good, 1 no packet has arrived in the run or its trace is damaged, 2 the call is wrong."
)]
pub struct Arguments {
    /// How long each phase of a packet took, by the names of rt-virtio's Table II.
    #[arg(long, required = true)]
    overheads: bool,
    /// The run: its directory, its name in runs/, or its trace.bin; without it the newest one that left a trace.
    run: Option<PathBuf>,
    /// Write the overheads to this file, as `weir analyze --overheads` and `[broker] overheads` read them.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    let runs = environment.runs();
    let path = match &arguments.run {
        Some(run) => trace::find(run, &runs),
        None => trace::newest(&runs)?,
    };
    if let Some(output) = &arguments.output {
        let read = trace::read(&path);
        output::check("-o", output, &read.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    }
    let mut trace = Trace::open(&path)?;
    let directory = if path.is_dir() { Some(path.as_path()) } else { path.parent() };
    // A trace alone, without what else its run left, is of unknown time.
    let run = directory.and_then(|directory| fs::read(directory.join("run.json")).ok());
    let run: Value = run.and_then(|run| serde_json::from_slice(&run).ok()).unwrap_or_default();
    let counted = run["deterministic"] == true;
    let overheads = Overheads::of(&mut trace, counted)?;
    if let Some(file) = &arguments.output {
        if let Some(why) = overheads.unfit() {
            return Err(Failure::system(why.to_owned()));
        }
        let text = overheads.to_toml(run["system"].as_str().unwrap_or("?"));
        fs::write(file, text).context(|| format!("write {}", file.display()))?;
    }
    let mut out = anstream::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", overheads.to_json())?;
    } else if arguments.output.is_none() {
        write!(out, "{overheads}")?;
    }
    Ok(())
}
