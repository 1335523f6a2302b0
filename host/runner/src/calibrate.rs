//! The runs behind the table.

use crate::{
    lab::{Lab, STRESSOR, Seen},
    measure::hungry,
};
use schemars::JsonSchema;
use serde::Serialize;
use weir_image::{Failure, Result, progress::CountBar};
use weir_units::Nanos;

/// Budgets that are tried: powers of two from here on, as long as one core can spend them.
const FIRST_BUDGET: u64 = 16;
/// Periods that are tried, in ns.
const PERIODS: [u64; 7] = [10_000, 15_000, 20_000, 30_000, 50_000, 100_000, 200_000];
/// Lines of a memory stressor's pass.
const LINES: u64 = STRESSOR / 64;
/// A budget that no core can spend in a period; counters of a PMU may have 32 bits.
const UNLIMITED: u64 = 1 << 31;
/// A run takes so many lines at least, of each memory stressor.
const LEAST: u64 = 8 * LINES;
/// And so many periods at most.
const MOST_PERIODS: u64 = 3_000;

/// The result of one run with a budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CalibrationPoint {
    /// The period of the budget, in ns.
    #[serde(rename = "period_ns")]
    pub period: u64,
    /// The budget, in lines per period.
    pub budget: u64,
    /// The mean of the measured lines per period.
    pub measured: f64,
    /// The most lines in a period above the budget.
    pub overshoot: u64,
}

impl CalibrationPoint {
    /// Returns the relative excess of the measured over the nominal bandwidth; negative below it.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    #[must_use]
    pub fn off(&self) -> f64 {
        self.measured / self.budget as f64 - 1.0
    }

    fn is_kept(&self, tolerance: u64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a percentage")]
        let tolerance = tolerance as f64 / 100.0;
        self.off().abs() <= tolerance
    }
}

/// The result of a calibration.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Calibrated {
    /// The cores that were busy together.
    pub cores: Vec<usize>,
    /// The period of `saturation`, `one_core` and `budgets`, in ns.
    #[serde(rename = "period_ns")]
    pub period: u64,
    /// Lines that all cores move together in a period, without budgets.
    pub saturation: u64,
    /// Lines that the first core moves alone in a period, without a budget.
    pub one_core: u64,
    /// The least of the tested budgets from which on each is kept within the tolerance, in lines
    /// per `period`.
    pub min_accesses: u64,
    /// The least of the tested periods from which on each is kept within the tolerance, in ns.
    #[serde(rename = "min_period_ns")]
    pub min_period: u64,
    /// The most lines above a budget in a period, observed over all runs.
    pub overshoot: u64,
    /// The budgets that were tried, in `period`.
    pub budgets: Vec<CalibrationPoint>,
    /// The periods that were tried, each with a budget of half of what the core can do.
    pub periods: Vec<CalibrationPoint>,
}

/// Calibrates for `cores`, all of which have a VM, with budgets a period of `period` ns; bandwidths
/// within `tolerance` percent are equal.
///
/// # Errors
///
/// The system is at fault if no stressor was ever busy or no budget keeps to the tolerance; else as
/// [`Lab::run`].
pub fn calibrate(
    lab: &Lab<'_>,
    cores: &[usize],
    period: u64,
    tolerance: u64,
) -> Result<Calibrated> {
    let Some(&first) = cores.first() else {
        return Err(Failure::system("the system has no VM to calibrate for"));
    };
    let bar = CountBar::new("running", 2 + 10 + PERIODS.len() as u64);
    let one_core = unlimited(lab, &[first], period)?;
    bar.add(1);
    let saturation = unlimited(lab, cores, period)?;
    bar.add(1);
    let mut periods = Vec::new();
    for period_tried in PERIODS.into_iter().filter(|period| *period >= lab.min_period()) {
        let budget = (one_core * period_tried / period / 2).max(1);
        periods.push(limited(lab, first, period_tried, budget)?);
        bar.add(1);
    }
    let min_period = kept_from(&periods, "period", tolerance)?.period;
    is_kept(period, min_period, tolerance)?;
    let mut budgets = Vec::new();
    let mut budget = FIRST_BUDGET;
    while budget <= one_core / 2 {
        budgets.push(limited(lab, first, period, budget)?);
        bar.add(1);
        budget *= 2;
    }
    Ok(Calibrated {
        cores: cores.to_vec(),
        period,
        saturation,
        one_core,
        min_accesses: kept_from(&budgets, "budget", tolerance)?.budget,
        min_period,
        overshoot: budgets.iter().chain(&periods).map(|point| point.overshoot).max().unwrap_or(0),
        budgets,
        periods,
    })
}

/// The first of `points` from which on all are kept.
fn kept_from(points: &[CalibrationPoint], what: &str, tolerance: u64) -> Result<CalibrationPoint> {
    let bad = points.iter().rposition(|point| !point.is_kept(tolerance));
    points.get(bad.map_or(0, |bad| bad + 1)).copied().ok_or_else(|| {
        Failure::system(format!(
            "no {what} is kept within {tolerance} %: allow more by --tolerance, or try a longer \
             --period"
        ))
    })
}

/// Whether the table's own period is one of those that are kept: else it would refuse all budgets
/// that are planned by it.
fn is_kept(period: u64, least: u64, tolerance: u64) -> Result {
    if period >= least {
        return Ok(());
    }
    let (period, least) = (Nanos(period), Nanos(least));
    Err(Failure::call(format!(
        "budgets in periods of {period} are not kept within {tolerance} %, those of {least} and \
         more are: --period {least}, or allow more by --tolerance"
    )))
}

/// Memory stressors on these cores, each with the same budget.
fn run(
    lab: &Lab<'_>,
    name: &str,
    cores: &[usize],
    (budget, period): (u64, u64),
    passes: u64,
) -> Result<Seen> {
    // Without debt: what is counted beyond a budget shows.
    let bandwidth = format!(
        "accesses = {budget}, period = \"{}\", source = \"{}\", debt = false, overcommit = true",
        Nanos(period),
        lab.source()
    );
    lab.stressors(name, "", cores, passes, &bandwidth)
}

/// Lines in `period` ns of memory stressors on these cores that nothing holds back.
fn unlimited(lab: &Lab<'_>, cores: &[usize], period: u64) -> Result<u64> {
    let name = format!("free-{}", cores.len());
    let seen = run(lab, &name, cores, (UNLIMITED, period), 48)?;
    let lines = seen.together(cores, period)?;
    #[expect(clippy::cast_sign_loss, reason = "counts are not negative")]
    let lines = lines as u64;
    Ok(lines)
}

/// One memory stressor with a budget.
fn limited(lab: &Lab<'_>, core: usize, period: u64, budget: u64) -> Result<CalibrationPoint> {
    let lines = LEAST.min(MOST_PERIODS * budget);
    let name = format!("budget-{period}-{budget}");
    // Its first pass is printed.
    let passes = lines.div_ceil(LINES) + 1;
    let seen = run(lab, &name, &[core], (budget, period), passes)?;
    let ledger = seen.core(core)?;
    let range = hungry(&ledger.periods, |counts| counts.refills, u64::MAX);
    let used: Vec<u64> =
        ledger.periods[range].iter().skip(1).map(|period| period.counts.refills).collect();
    // A core that can't spend its budget was never suspended: all its periods count.
    let used = if used.len() < 3 {
        let all = ledger.periods.iter().map(|period| period.counts.refills);
        all.skip(ledger.periods.len() / 2).collect()
    } else {
        used
    };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let measured = used.iter().sum::<u64>() as f64 / used.len().max(1) as f64;
    let most = used.iter().copied().max().unwrap_or(0);
    Ok(CalibrationPoint { period, budget, measured, overshoot: most.saturating_sub(budget) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_beyond_the_least_kept_one_is_kept() {
        let points = [(1, 104.0), (2, 106.0), (3, 103.0), (4, 101.0)].map(|(period, measured)| {
            CalibrationPoint { period, budget: 100, measured, overshoot: 0 }
        });
        assert_eq!(kept_from(&points, "period", 5).map(|point| point.period).ok(), Some(3));
        assert_eq!(kept_from(&points, "period", 7).map(|point| point.period).ok(), Some(1));
        let none = kept_from(&points[..2], "budget", 5).expect_err("the last one is not kept");
        assert!(none.text.contains("no budget is kept within 5 %"), "{}", none.text);
    }

    #[test]
    fn a_table_is_for_a_period_that_is_kept() {
        assert!(is_kept(30_000, 30_000, 5).is_ok());
        let refused = is_kept(20_000, 30_000, 5).expect_err("shorter");
        assert!(refused.text.contains("--period 30us"), "{}", refused.text);
    }

    #[test]
    fn a_point_is_kept_within_the_tolerance() {
        let point = |measured| CalibrationPoint { period: 1, budget: 100, measured, overshoot: 0 };
        assert!(point(104.9).is_kept(5) && point(95.1).is_kept(5));
        assert!(!point(105.1).is_kept(5) && !point(94.9).is_kept(5));
    }
}
