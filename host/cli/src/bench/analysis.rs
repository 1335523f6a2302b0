//! `weir bench analysis`: how long verdict and least bandwidth take on random flow sets.

use crate::{failure::Result, progress::Bar, screen};
use serde_json::json;
use std::io::Write;
use weir_analysis::{bench, flows::Effort};
use weir_report::table;

/// Always the same sets.
const SEED: u64 = 1;

/// Measures and prints the distribution.
pub fn run(sets: u32, json: bool) -> Result {
    let timing = {
        let bar = Bar::new("analyzing", u64::from(sets));
        bench::analysis(sets as usize, SEED, Effort::default(), |done| {
            if done.is_multiple_of(256) {
                bar.add(256);
            }
        })
    };
    let mut out = screen::stdout();
    if json {
        let figures = json!({
            "sets": timing.sets,
            "median_ns": timing.median_ns,
            "p95_ns": timing.p95_ns,
            "max_ns": timing.max_ns,
            "schedulable": timing.schedulable,
            "gave_up": timing.gave_up,
        });
        writeln!(out, "{:#}", weir_report::versioned(figures))?;
        return Ok(());
    }
    let mut rows = table(["share of the sets", "took at most us"]);
    for (thousandths, share) in [
        (10, "1 %"),
        (250, "25 %"),
        (500, "50 % (median)"),
        (750, "75 %"),
        (950, "95 %"),
        (990, "99 %"),
        (999, "99.9 %"),
        (1000, "all"),
    ] {
        let ns = timing.at(thousandths);
        rows.add_row([share.to_owned(), format!("{}.{}", ns / 1000, ns % 1000 / 100)]);
    }
    writeln!(out, "{rows}")?;
    writeln!(
        out,
        "{} sets, {} schedulable at the bandwidth asked, {} given up",
        timing.sets, timing.schedulable, timing.gave_up
    )?;
    if cfg!(debug_assertions) {
        writeln!(out, "this build is not optimized: the times mean little")?;
    }
    Ok(())
}
