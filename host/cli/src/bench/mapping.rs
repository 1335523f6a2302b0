//! `weir bench mapping`: instructions to build a VM's page tables, of colored pages compared to
//! contiguous pages.
//!
//! The guest `mapping` runs the hypervisor's own code on QEMU's board, without the hypervisor,
//! under instruction counting, and reads the PMU's INST_RETIRED, which QEMU then counts exactly.

use crate::{
    bench::counting_qemu,
    cargo::Programs,
    environment::Environment,
    failure::{Context, Failure, Result},
    progress::Spinner,
    screen,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::Write;
use weir_report::table;

/// The columns of the table, on the terminal and in the documentation.
pub const HEADER: [&str; 8] = [
    "MiB",
    "contiguous pages",
    "4 of 16 colors",
    "ratio",
    "set-up",
    "set-up, colored",
    "ratio with it",
    "2 MiB blocks",
];
/// The guest.
const GUEST: &str = "mapping";
/// The most that coloring may cost.
const LIMIT: f64 = 1.05;
/// Seconds that QEMU may take; it needs less than one.
const TIME: &str = "120";

/// The instructions that map memory of a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MappingCost {
    /// The size in MiB.
    pub mib: u64,
    /// Instructions to map contiguous pages, page by page.
    pub native_instructions: u64,
    /// Instructions to map pages of four colors of sixteen, page by page.
    pub colored_instructions: u64,
    /// The ratio of `colored_instructions` to `native_instructions`.
    pub ratio: f64,
    /// The same ratio with the instructions that choose the pages.
    pub ratio_with_setup: f64,
    /// Instructions that choose the pages before, of one page class.
    pub native_setup_instructions: u64,
    /// Instructions that choose the pages before, of four colors.
    pub colored_setup_instructions: u64,
    /// Instructions to map blocks of 2 MiB where they fit.
    pub block_instructions: u64,
}

/// Measures and prints.
pub fn run(json: bool, environment: &Environment) -> Result {
    let guests = Programs::new(environment, false).guests(environment, &[GUEST.to_owned()])?;
    let rows = measure(environment, guests[GUEST].as_os_str())?;
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

fn measure(environment: &Environment, guest: &std::ffi::OsStr) -> Result<Vec<MappingCost>> {
    let _spinner = Spinner::new("counting instructions".to_owned());
    let mut command = counting_qemu(TIME, environment);
    command.args(["-M", "virt,gic-version=3", "-cpu", "cortex-a53", "-m", "64M"]);
    command.args(["-serial", "stdio", "-kernel"]).arg(guest);
    let output = command.output().context(|| "start QEMU (WEIR_QEMU selects the program)")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !stdout.lines().any(|line| line.trim_end() == "mapping: done") {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::environment(format!(
            "the guest {GUEST} did not finish ({}):\n{stdout}{errors}",
            output.status
        )));
    }
    let lines = stdout.lines().map(str::trim_end).filter(|line| line.contains(" MiB: "));
    let row = |line: &str| {
        let unknown = || Failure::environment(format!("the guest {GUEST} printed `{line}`"));
        parse(line).ok_or_else(unknown)
    };
    lines.map(row).collect()
}

/// A line of the guest's: `mapping: 64 MiB: one page class 1490+167405, four colors 18764+168102,
/// blocks 912`.
fn parse(line: &str) -> Option<MappingCost> {
    let (mib, rest) = line.strip_prefix("mapping: ")?.split_once(" MiB: one page class ")?;
    let (native, rest) = rest.split_once(", four colors ")?;
    let (colored, blocks) = rest.split_once(", blocks ")?;
    let pair = |text: &str| -> Option<(u64, u64)> {
        let (setup, mapping) = text.split_once('+')?;
        Some((setup.parse().ok()?, mapping.parse().ok()?))
    };
    let (native, colored) = (pair(native)?, pair(colored)?);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let ratio = |colored: u64, native: u64| colored as f64 / native as f64;
    Some(MappingCost {
        mib: mib.parse().ok()?,
        native_instructions: native.1,
        colored_instructions: colored.1,
        ratio: ratio(colored.1, native.1),
        ratio_with_setup: ratio(colored.0 + colored.1, native.0 + native.1),
        native_setup_instructions: native.0,
        colored_setup_instructions: colored.0,
        block_instructions: blocks.parse().ok()?,
    })
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
        ]);
    }
    format!(
        "{text}\n\
         instructions; set-up: what chooses the pages, before the first is mapped, once for each VM"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_guests_is_a_row() {
        let row =
            parse("mapping: 64 MiB: one page class 100+2000, four colors 300+2100, blocks 90")
                .unwrap();
        assert_eq!(
            (row.mib, row.native_setup_instructions, row.native_instructions),
            (64, 100, 2000)
        );
        assert_eq!((row.colored_setup_instructions, row.colored_instructions), (300, 2100));
        assert!((row.ratio - 1.05).abs() < 1e-12 && row.block_instructions == 90);
        assert!((row.ratio_with_setup - 2400.0 / 2100.0).abs() < 1e-12);
        assert_eq!(parse("mapping: done"), None);
        assert_eq!(parse("mapping: 1 MiB: one page class 1+x, four colors 3+4, blocks 5"), None);
    }
}
