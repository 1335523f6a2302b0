//! `weir bench board`: the values of a board file that weir measures.

use crate::{
    cargo::replace, environment::Environment, failure::Result, run::LineArguments, screen,
};
use std::{io::Write, path::PathBuf};
use weir_experiments::board::{BoardRequest, measure};
use weir_model::platform::Platform;
use weir_report::board_file::{TableFile, WithTables};

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
    let output = arguments.output.as_deref();
    let file = output.map(TableFile::read).transpose()?;
    if let (Some(file), Some(board)) = (&file, Platform::named(&arguments.platform)) {
        file.is_of(&board.name)?;
    }
    let line = arguments.line.line();
    let figures =
        measure(&BoardRequest { platform: &arguments.platform, line: line.as_ref(), environment })?;
    let mut out = screen::stdout();
    if arguments.json {
        writeln!(out, "{:#}", weir_report::versioned(figures.to_json()))?;
    } else {
        writeln!(out, "{}", figures.text())?;
    }
    let Some((path, file)) = output.zip(file) else {
        if !arguments.json {
            write!(out, "{}", figures.to_toml(|table| table != "saturation"))?;
        }
        return Ok(());
    };
    let WithTables { text, removed } = file.with(&figures.to_toml(|table| file.has(table)))?;
    replace(path, text.as_bytes())?;
    if !removed.is_empty() {
        let removed = removed.join(", ");
        screen::say(format_args!("taken out, because this does not measure them: {removed}"));
    }
    if !arguments.json {
        let has_larger = file.has("overheads.larger") || file.has("emulated.overheads.larger");
        if figures.larger.is_none() && has_larger {
            let why = "the board has too few cores for tests/systems/flows-mesh.toml";
            writeln!(out, "`larger` stays as it was: {why}")?;
        }
        if figures.has_rates() {
            let what = if file.has("saturation") {
                "`chunks` of [saturation] has the sizes that were measured, and no others"
            } else {
                "the rates of the DMA engine by chunk size are not written: the file has no \
                 [saturation], which `weir calibrate -o` writes"
            };
            writeln!(out, "{what}")?;
        }
        let table = figures.sharing_table();
        if !file.has(table) && !figures.has_sharing() {
            let why = "which also needs `interrupt` and `entry`: those are not measured";
            writeln!(out, "the switch is not written: the file has no [{table}], {why}")?;
        }
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}
