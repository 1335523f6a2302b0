//! `weir bench mapping`: instructions to build a VM's page tables, of colored pages compared to
//! contiguous pages.

use crate::{
    environment::Environment,
    failure::{Failure, Result},
    screen,
};
use std::io::Write;
use weir_experiments::rjmm::mapping::{MappingCost, measure};
use weir_report::table;

/// The columns of the table, on the terminal and in the documentation.
pub const HEADER: [&str; 9] = [
    "MiB",
    "contiguous pages",
    "4 of 16 colors",
    "ratio",
    "set-up",
    "set-up, colored",
    "ratio with it",
    "2 MiB blocks",
    "ratio by calls",
];
/// The most that coloring may cost.
const LIMIT: f64 = 1.05;

/// Measures and prints.
pub fn run(json: bool, environment: &Environment) -> Result {
    let rows = measure(environment)?;
    let mut out = screen::stdout();
    if json {
        writeln!(out, "{:#}", weir_report::versioned(&rows))?;
    } else {
        writeln!(out, "{}", render(&rows))?;
    }
    match rows.iter().find(|row| row.ratio > LIMIT) {
        Some(row) => Err(Failure::system(format!(
            "mapping {} MiB in colors takes {:.3} times the instructions, more than {LIMIT}",
            row.mib, row.ratio
        ))),
        None => Ok(()),
    }
}

fn render(rows: &[MappingCost]) -> String {
    let mut text = table(HEADER);
    for row in rows {
        text.add_row([
            row.mib.to_string(),
            row.native_instructions.to_string(),
            row.colored_instructions.to_string(),
            format!("{:.4}", row.ratio),
            row.native_setup_instructions.to_string(),
            row.colored_setup_instructions.to_string(),
            format!("{:.4}", row.ratio_with_setup),
            row.block_instructions.to_string(),
            format!("{:.4}", row.ratio_by_calls),
        ]);
    }
    format!(
        "{text}\n\
         instructions; set-up: what chooses the pages, before the first is mapped, once for each VM\n\
         by calls: each page is chosen and mapped by a call of its own"
    )
}
