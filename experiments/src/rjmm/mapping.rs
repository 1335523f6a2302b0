//! rjmm, section IV-B and Table II: the time that it takes to map a VM's memory, of contiguous pages
//! and of pages that are chosen.
//!
//! The guest `mapping` runs the hypervisor's own code on QEMU's board, without the hypervisor,
//! under instruction counting, and reads the PMU's INST_RETIRED, which QEMU then counts exactly.

use super::{PAPER, WEIR, printed};
use crate::{
    ExperimentOutcome, ExperimentRequest, figures,
    statement::{
        ClaimSource, Deviation,
        Relation::{AtLeast, AtMost, Near},
        Statement, statements,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_image::{
    Environment, Failure, Result, cargo::Programs, failure::Context, progress::Spinner,
};

/// The guest.
const GUEST: &str = "mapping";
/// Seconds that QEMU may take; it needs less than one.
const TIME: &str = "120";

const TABLE_2: ClaimSource = PAPER.at("IV-B, Table II");
/// Table II: sizes in MiB, and the increase of the time in percent.
const INCREASES: [(u64, f64); 5] = [(1, 45.0), (4, 45.0), (16, 41.0), (64, 41.0), (256, 41.0)];
/// Section IV-B: the mapping takes this much more at each size, in percent.
const MORE_THAN: f64 = 40.0;
/// The distance that counts as near an increase, in percent of the time: that of the paper's own.
const NEAR: f64 = 4.0;

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
    /// Instructions to map contiguous pages, each by a call of its own.
    pub native_instructions_by_calls: u64,
    /// Instructions to choose and map pages of four colors, each by a call of its own.
    pub colored_instructions_by_calls: u64,
    /// The ratio of these two.
    pub ratio_by_calls: f64,
}

/// Builds the guest and measures each size.
///
/// # Errors
///
/// The environment is at fault if the guest or QEMU cannot run, or does not print the counts.
pub fn measure(environment: &Environment) -> Result<Vec<MappingCost>> {
    let guests = Programs::new(environment, false).guests(environment, &[GUEST.to_owned()])?;
    let _spinner = Spinner::new("counting instructions".to_owned());
    let mut command = environment.counting_qemu(TIME);
    command.args(["-M", "virt,gic-version=3", "-cpu", "cortex-a53", "-m", "64M"]);
    command.args(["-serial", "stdio", "-kernel"]).arg(&guests[GUEST]);
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

/// Reads a line of the guest.
fn parse(line: &str) -> Option<MappingCost> {
    let (mib, rest) = line.strip_prefix("mapping: ")?.split_once(" MiB: one page class ")?;
    let (native, rest) = rest.split_once(", four colors ")?;
    let (colored, rest) = rest.split_once(", blocks ")?;
    let (blocks, rest) = rest.split_once(", by calls ")?;
    let (native_by_calls, colored_by_calls) = rest.split_once(" and ")?;
    let pair = |text: &str| -> Option<(u64, u64)> {
        let (setup, mapping) = text.split_once('+')?;
        Some((setup.parse().ok()?, mapping.parse().ok()?))
    };
    let (native, colored) = (pair(native)?, pair(colored)?);
    let by_calls = (native_by_calls.parse().ok()?, colored_by_calls.parse().ok()?);
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
        native_instructions_by_calls: by_calls.0,
        colored_instructions_by_calls: by_calls.1,
        ratio_by_calls: ratio(by_calls.1, by_calls.0),
    })
}

/// The figures of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MappingFigures {
    /// A row for each size.
    pub rows: Vec<MappingCost>,
}

/// The whole experiment.
pub(crate) fn mapping(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let rows = measure(&request.environment)?;
    let measured = MappingFigures { rows };
    Ok(ExperimentOutcome {
        text: format!("{}\n\n{NOTES}", printed(&measured.cells())),
        statements: stated(&measured),
        json: figures(measured),
        files: Vec::new(),
    })
}

const NOTES: &str = "Increase of the instructions that map pages of four colors over those that map \
                     contiguous pages; the paper has times. weir chooses the pages first, by a list \
                     that repeats.\nBy calls: each page is chosen and mapped by itself.\n";

impl MappingFigures {
    /// The increase at a size in percent: with the choice of the pages, and of calls for each page.
    fn increases(&self, mib: u64) -> [f64; 2] {
        let row = self.rows.iter().find(|row| row.mib == mib);
        let percent =
            |ratio: fn(&MappingCost) -> f64| row.map_or(f64::NAN, |row| 100.0 * (ratio(row) - 1.0));
        [percent(|row| row.ratio_with_setup), percent(|row| row.ratio_by_calls)]
    }

    /// Returns the rows of the table of increases, the header first.
    #[must_use]
    pub fn cells(&self) -> Vec<Vec<String>> {
        let header = ["MiB", "paper, %", "weir, %", "weir, page by page, %"];
        let row = |(mib, published): (u64, f64)| {
            let [whole, by_calls] = self.increases(mib).map(|percent| format!("{percent:.1}"));
            vec![mib.to_string(), format!("{published:.0}"), whole, by_calls]
        };
        let header = header.map(str::to_owned).to_vec();
        std::iter::once(header).chain(INCREASES.into_iter().map(row)).collect()
    }
}

/// The known deviations.
pub(crate) static DEVIATIONS: [Deviation; 1] = [Deviation {
    id: "chosen-by-a-list",
    reason: "weir makes a list of the places at which its pages repeat once for each VM and fills \
             whole tables from it, so that a page more costs as much as a contiguous one; where \
             each page is chosen and mapped by itself, each costs more, as in the paper",
    tested_by: &["by-calls-1", "by-calls-4", "by-calls-16", "by-calls-64", "by-calls-256"],
    of: &[
        ("increase-1", Near(47.0, 15.0)),
        ("increase-4", Near(24.0, 8.0)),
        ("increase-16", Near(10.0, 4.0)),
        ("increase-64", Near(4.3, 2.0)),
        ("increase-256", Near(2.6, 1.0)),
    ],
}];

fn stated(measured: &MappingFigures) -> Vec<Statement> {
    let each = INCREASES.into_iter().flat_map(|(mib, published)| {
        let [whole, by_calls] = measured.increases(mib);
        statements![
            TABLE_2, "increase-{mib}", "{mib} MiB of chosen pages take longer to map: by"
                => Near(published, NEAR), [whole], "%";
            WEIR, "by-calls-{mib}",
            "{mib} MiB of which each page is chosen and mapped by itself take longer: by"
                => AtLeast(MORE_THAN), [by_calls], "%";
        ]
    });
    let mut all: Vec<_> = each.collect();
    let largest = INCREASES.map(|(mib, _)| measured.increases(mib)[0]);
    all.extend(statements![
        WEIR, "per-page", "a page more costs next to nothing: increase at 64 and 256 MiB"
            => AtMost(6.0), largest[3..].to_vec(), "%";
    ]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    #[test]
    fn a_line_of_the_guest_is_a_row() {
        let line = "mapping: 64 MiB: one page class 100+2000, four colors 300+2100, blocks 90, by \
                    calls 500 and 750";
        let row = parse(line).unwrap();
        assert_eq!(
            (row.mib, row.native_setup_instructions, row.native_instructions),
            (64, 100, 2000)
        );
        assert_eq!((row.colored_setup_instructions, row.colored_instructions), (300, 2100));
        assert!((row.ratio - 1.05).abs() < 1e-12 && row.block_instructions == 90);
        assert!((row.ratio_with_setup - 2400.0 / 2100.0).abs() < 1e-12);
        assert!((row.ratio_by_calls - 1.5).abs() < 1e-12);
        assert_eq!(parse("mapping: done"), None);
        assert_eq!(parse(&line.replace("2000", "x")), None);
        assert_eq!(parse(&line.replace(" and 750", "")), None);
    }

    /// Returns values like those of the guest.
    fn good() -> MappingFigures {
        let row = |(mib, ratio_with_setup): (u64, f64)| MappingCost {
            mib,
            native_instructions: 0,
            colored_instructions: 0,
            ratio: 1.0,
            ratio_with_setup,
            native_setup_instructions: 0,
            colored_setup_instructions: 0,
            block_instructions: 0,
            native_instructions_by_calls: 0,
            colored_instructions_by_calls: 0,
            ratio_by_calls: 2.1,
        };
        let ratios = [(1, 1.373), (4, 1.194), (16, 1.081), (64, 1.035), (256, 1.022)];
        MappingFigures { rows: ratios.map(row).to_vec() }
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(&good(), &DEVIATIONS, stated, |measured| {
            let rows = measured.rows.iter_mut();
            let values = rows.flat_map(|row| [&mut row.ratio_with_setup, &mut row.ratio_by_calls]);
            values.map(|value| value as &mut dyn Change).collect()
        });
    }
}
