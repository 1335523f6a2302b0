//! `weir bench board`: the values of a board file that weir measures.

use crate::{
    cargo::replace,
    environment::Environment,
    failure::{Context, Failure, Result},
    output,
    run::LineArguments,
    screen,
};
use std::{fs, io::Write, path::PathBuf};
use weir_experiments::board::{BoardFigures, BoardRequest, directory, measure};
use weir_report::board_file::with_tables;

/// Options of `weir bench board`.
#[derive(Debug, clap::Args)]
pub struct BoardArguments {
    /// The board.
    #[arg(long, value_name = "PLATFORM", default_value = "qemu-virt")]
    platform: String,
    #[command(flatten)]
    line: LineArguments,
    /// Write the tables into this board file, in place of its own.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(arguments: &BoardArguments, environment: &Environment) -> Result {
    let old = match &arguments.output {
        Some(file) => {
            output::check_name("-o", file)?;
            if file.exists() { read(file)? } else { String::new() }
        }
        None => String::new(),
    };
    let line = arguments.line.line();
    let figures = measure(&BoardRequest {
        platform: &arguments.platform,
        line: line.as_ref(),
        directory: &directory(environment)?,
        environment,
    })?;
    let mut out = screen::stdout();
    if arguments.json {
        writeln!(out, "{:#}", weir_report::versioned(figures.to_json()))?;
    } else {
        writeln!(out, "{}", figures.text())?;
    }
    let Some(file) = &arguments.output else {
        if !arguments.json {
            write!(out, "{}", figures.to_toml(true))?;
        }
        return Ok(());
    };
    let tables = figures.to_toml(old.contains("sharing]"));
    let new = with_tables(&old, &tables, BoardFigures::keeps)
        .map_err(|error| Failure::call(format!("{} is no TOML: {error}", file.display())))?;
    replace(file, new.as_bytes())?;
    if !arguments.json {
        if figures.larger.is_none() && old.contains("larger = ") {
            let why = "the board has too few cores for tests/systems/flows-mesh.toml";
            writeln!(out, "`larger` stays as it was: {why}")?;
        }
        writeln!(out, "{}", file.display())?;
    }
    Ok(())
}

/// Reads a board file before the measurement, which takes long.
fn read(file: &PathBuf) -> Result<String> {
    let text = fs::read_to_string(file).context(|| format!("read {}", file.display()))?;
    with_tables(&text, "", |_| true)
        .map_err(|error| Failure::call(format!("{} is no TOML: {error}", file.display())))?;
    Ok(text)
}
