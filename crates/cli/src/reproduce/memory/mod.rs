//! What papers measured of memory in time, on the model of `weir simulate`. The model's parameters stand in the memory file, one set for
//! all experiments; each row says whether its published value is one that a parameter was fitted to, or one that is checked.

pub mod budgets;
pub mod dma;
pub mod ustress;

use super::{Outcome, write};
use crate::{
    failure::{Failure, Result},
    run::show::table,
};
use serde_json::{Value, json};
use std::{fmt::Write as _, path::Path};
use weir_config::{Catalog, Sizes, check_text, place_all};
use weir_policy::Nanos;
use weir_sim::{Board, Memory, Outcome as Simulated, Span};

/// What a published value is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    /// A parameter of the memory file was fitted to it; it must come out within this share.
    Fitted(f64),
    /// Nothing was fitted to it; it must come out within this share.
    Checked(f64),
    /// It is shown beside the model's value, which may be anything.
    Shown,
}

impl Use {
    const fn name(self) -> &'static str {
        match self {
            Self::Fitted(_) => "fitted",
            Self::Checked(_) => "checked",
            Self::Shown => "shown",
        }
    }

    const fn tolerance(self) -> Option<f64> {
        match self {
            Self::Fitted(share) | Self::Checked(share) => Some(share),
            Self::Shown => None,
        }
    }
}

/// A published value and the model's.
#[derive(Clone, Debug)]
struct Row {
    what: String,
    published: f64,
    model: f64,
    for_: Use,
}

impl Row {
    fn off(&self) -> f64 {
        self.model / self.published - 1.0
    }

    fn miss(&self) -> Option<String> {
        let most = self.for_.tolerance()?;
        (self.off().abs() > most || self.off().is_nan()).then(|| {
            format!(
                "{}: {:.1} for {} ({:+.1} %, at most {:.1} %)",
                self.what,
                self.model,
                self.published,
                100.0 * self.off(),
                100.0 * most
            )
        })
    }
}

/// A statement of a paper's text, and whether it holds for the model.
#[derive(Clone, Debug)]
struct Statement {
    what: String,
    found: String,
    /// `None`: it is only shown.
    holds: Option<bool>,
    /// Why the model is known to differ, where it is: then it is said, and no miss.
    differs: Option<&'static str>,
}

/// Tables, CSV and misses of an experiment.
fn outcome(
    directory: &Path,
    name: &str,
    rows: &[Row],
    statements: &[Statement],
    notes: &str,
) -> Result<Outcome> {
    let mut text = String::new();
    if !rows.is_empty() {
        let mut shown = table(["", "published", "model", "off by", "published value is"]);
        for row in rows {
            let tolerance = row.for_.tolerance().map_or(String::new(), |share| {
                format!(", within {} %", (share * 1000.0).round() / 10.0)
            });
            shown.add_row([
                row.what.clone(),
                row.published.to_string(),
                format!("{:.1}", row.model),
                format!("{:+.1} %", 100.0 * row.off()),
                format!("{}{tolerance}", row.for_.name()),
            ]);
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "{shown}");
    }
    for statement in statements {
        let verdict = match statement.holds {
            Some(true) => "holds",
            Some(false) => "DOES NOT HOLD",
            None => "shown",
        };
        let known = match statement {
            Statement { holds: Some(false), differs: Some(why), .. } => format!("; known: {why}"),
            _ => String::new(),
        };
        let _ = writeln!(text, "{verdict}: {} ({}){known}", statement.what, statement.found);
    }
    let _ = write!(text, "{notes}");
    let mut csv = String::from("what,published,model,off,use\n");
    for row in rows {
        let _ = writeln!(
            csv,
            "\"{}\",{},{:.2},{:.4},{}",
            row.what,
            row.published,
            row.model,
            row.off(),
            row.for_.name()
        );
    }
    let file = directory.join(format!("{name}.csv"));
    write(&file, &csv)?;
    let is_miss =
        |statement: &&Statement| statement.holds == Some(false) && statement.differs.is_none();
    let false_ones = statements.iter().filter(is_miss);
    let misses = rows.iter().filter_map(Row::miss);
    let misses = misses.chain(false_ones.map(|s| format!("{}: {}", s.what, s.found))).collect();
    let json = json!({
        "rows": rows.iter().map(|row| json!({
            "what": row.what, "published": row.published, "model": row.model, "off": row.off(),
            "use": row.for_.name(), "tolerance": row.for_.tolerance(),
        })).collect::<Vec<_>>(),
        "statements": statements.iter().map(|statement| json!({
            "what": statement.what, "found": statement.found, "holds": statement.holds,
            "known_to_differ": statement.differs,
        })).collect::<Vec<_>>(),
    });
    Ok(Outcome { json, text, misses, files: vec![file] })
}

/// The board of a system that an experiment wrote, on a memory file with some other values.
fn board(text: &str, memory: &str, values: &[(&str, String)]) -> Result<Board> {
    let catalog = Catalog { guests: vec!["hog".to_owned()], ..Catalog::default() };
    let system = check_text(Path::new("experiment.toml"), text, &catalog)
        .map_err(|faults| Failure::system(faults.to_string()))?;
    let vms = system.vms.len();
    let sizes = Sizes { image: 4 << 20, hypervisor: 1 << 20, pristine: vec![1 << 20; vms] };
    let placement =
        place_all(&system, &sizes).map_err(|faults| Failure::system(faults.to_string()))?;
    let values: Vec<_> =
        values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let memory = Memory::find_with(memory, &values);
    let memory = memory.map_err(|error| Failure::system(error.to_string()))?;
    Board::new(&system, &placement, &memory).map_err(|error| Failure::system(error.to_string()))
}

fn simulate(board: &Board, warm_up_us: u64, length_us: u64) -> Result<Simulated> {
    let span = Span { warm_up: Nanos(warm_up_us * 1000), length: Nanos(length_us * 1000), seed: 1 };
    weir_sim::run(board, span).map_err(|error| Failure::system(error.to_string()))
}

/// Megabytes a second that a VM moves.
fn mb_per_s(outcome: &Simulated, vm: usize) -> f64 {
    crate::simulate::mb_per_s(&outcome.vms[vm], outcome.span_ns)
}

/// Puts a value of the experiment's own into its JSON.
fn with(mut outcome: Outcome, key: &str, value: Value) -> Outcome {
    outcome.json[key] = value;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_off_by_more_than_it_may_is_a_miss() {
        let row = |model, for_| Row { what: "x".to_owned(), published: 100.0, model, for_ };
        assert_eq!(row(102.9, Use::Checked(0.03)).miss(), None);
        assert_eq!(row(150.0, Use::Shown).miss(), None);
        let miss = row(96.9, Use::Fitted(0.03)).miss().unwrap_or_default();
        assert_eq!(miss, "x: 96.9 for 100 (-3.1 %, at most 3.0 %)");
        assert!(row(f64::NAN, Use::Fitted(0.5)).miss().is_some());
    }
}
