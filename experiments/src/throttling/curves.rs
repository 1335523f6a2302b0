//! The shape of a throttled VM's arrivals (xen-throttling, Figure 5), and what all VMs together
//! take of the memory.

use super::{
    WEIR, XEN,
    grid::{POLL_LINES, measured},
};
use crate::{
    statement::{
        Relation::{AtLeast, AtMost, Within},
        Statement, statements,
    },
    write,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use weir_analysis::Nanos;
use weir_image::{Failure, Result, progress::CountBar};
use weir_qemu_plugin::ledger::Period;
use weir_report::trace::curve::{ArrivalCurves, CurveQuery};
use weir_runner::lab::{Job, Lab, LabVm, Seen};

/// The memory stressor's period, in ns, and its budget; it spends that in a tenth of the period.
const PERIOD: u64 = 100_000;
const BUDGET: u64 = 5_000;
/// Points of a curve in each period, and periods.
const PARTS: u32 = 4;
const PERIODS: u32 = 10;
/// A curve is a staircase if so much of it rises in the parts around multiples of the period, the
/// last of one and the first of the next, and none if no more than that does.
const STEEP: f64 = 0.9;
const EVEN: f64 = 0.6;
/// The polling interval of a core without a budget.
const POLL: u64 = 10_000;

/// The budgets of three memory stressors are together this part of what the stressors move without
/// budgets.
const GRANTED: f64 = 2.0 / 3.0;
/// The cores run concurrently, so that three of them move three times what one does. They do not
/// start at the same time.
const STARTS: f64 = 0.1;

/// How many runs that is.
pub const RUNS: u64 = 5;

/// The shapes of the traffic in a JSON result.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShapeFigures {
    /// The arrivals of one VM.
    pub arrivals: ArrivalShape,
    /// The lines that several VMs move.
    pub traffic: TrafficShape,
}

/// The arrival curve of a VM with a budget.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ArrivalShape {
    /// The period in ns.
    pub period_ns: u64,
    /// The budget.
    pub budget: u64,
    /// The places where the curve rises.
    pub rise_at_multiples: RiseShares,
}

/// The share of the rise at multiples of the period.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RiseShares {
    /// With the budget.
    pub throttled: f64,
    /// Without.
    pub free: f64,
    /// The points of the curve in each period.
    pub parts: u32,
}

/// The lines that memory stressors move in a period.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TrafficShape {
    /// The period in ns.
    pub period_ns: u64,
    /// The budgets of all together.
    pub saturation: u64,
    /// The budget of each.
    pub budget_of_each: u64,
    /// With budgets.
    pub throttled: f64,
    /// Without.
    pub free: f64,
    /// One without a budget.
    pub free_alone: f64,
}

/// The results.
#[derive(Clone, Debug)]
pub struct Shapes {
    /// The share of the rise at multiples of the period, with the budget and without.
    rise: [f64; 2],
    /// What all VMs may take together in a period, and each of them.
    saturation: u64,
    share: u64,
    /// What three memory stressors moved in a period, with budgets and without.
    moved: [f64; 2],
    /// What one moved without a budget.
    moved_by_one: f64,
    /// The most that each of them took beyond its budget.
    overshoots: Vec<f64>,
    /// Pictures and points.
    pub files: Vec<PathBuf>,
}

impl Shapes {
    /// The statements about them.
    #[expect(clippy::cast_precision_loss, reason = "small constants")]
    pub fn statements(&self) -> Vec<Statement> {
        let Self { saturation, .. } = self;
        let granted = *saturation as f64;
        let [throttled, free] = self.moved;
        // The paper describes the staircase. That there is none without a budget is the control.
        statements![
            XEN, "staircase",
            "the throttled stressor's arrival curve is a staircase: share of its rise around \
             multiples of the period"
                => AtLeast(STEEP), [self.rise[0]];
            WEIR, "no-staircase",
            "the arrival curve without a budget is none: share of its rise around multiples of the \
             period"
                => AtMost(EVEN), [self.rise[1]];
            WEIR, "traffic-throttled",
            "lines that three memory stressors with {saturation} in all move in a period"
                => AtMost(granted * 1.001), [throttled];
            WEIR, "traffic-given", "the same: they get what their budgets are"
                => AtLeast(granted * 0.99), [throttled];
            WEIR, "traffic-free",
            "lines that they move in a period without budgets: three times those of one alone"
                => Within(3.0 * self.moved_by_one, STARTS), [free];
            WEIR, "traffic-overshoot", "the most that each of them takes beyond its budget"
                => AtMost(POLL_LINES as f64), self.overshoots.clone();
        ]
    }

    /// For a person.
    pub fn text(&self) -> String {
        let Self { saturation, share, .. } = self;
        format!(
            "arrival curves over {PERIODS} periods of {} us: {:.1} % of the throttled one rises \
             around the periods' multiples, {:.1} % of the other\nthree memory stressors, of a \
             memory that takes {saturation} lines in {0} us: {:.1} with budgets of {share}, {:.1} \
             without\n",
            PERIOD / 1000,
            100.0 * self.rise[0],
            100.0 * self.rise[1],
            self.moved[0],
            self.moved[1],
        )
    }

    /// Returns the shapes as a JSON result has them.
    pub fn record(&self) -> ShapeFigures {
        let [throttled, free] = self.rise;
        let arrivals = ArrivalShape {
            period_ns: PERIOD,
            budget: BUDGET,
            rise_at_multiples: RiseShares { throttled, free, parts: PARTS },
        };
        let traffic = TrafficShape {
            period_ns: PERIOD,
            saturation: self.saturation,
            budget_of_each: self.share,
            throttled: self.moved[0],
            free: self.moved[1],
            free_alone: self.moved_by_one,
        };
        ShapeFigures { arrivals, traffic }
    }
}

/// A budget that is never spent, so that there are counts for each period.
fn wide(period: u64) -> String {
    let period = Nanos(period);
    format!("accesses = 100000000, period = \"{period}\"{COUNTER_PAGE}")
}

fn narrow(budget: u64, keys: &str) -> String {
    format!("accesses = {budget}, period = \"{}\"{keys}", Nanos(PERIOD))
}

const COUNTER_PAGE: &str = ", source = \"counter-page\", overcommit = true";

/// Runs it; pictures go to `directory`.
pub fn run(lab: &Lab<'_>, directory: &Path, bar: &CountBar) -> Result<Shapes> {
    let one = |name: &str, bandwidth: &str, passes: u64| {
        let args = format!("mode=read size=0x200000 passes={passes}");
        let vm = LabVm {
            name: "memory-stressor",
            cpus: "[1]",
            guest: ("memory-stressor", &args),
            bandwidth,
        };
        let seen = lab.run(name, &lab.system("", &[vm.toml()]), Job::Traffic);
        bar.add(1);
        seen
    };
    let throttled = one("curve-throttled", &narrow(BUDGET, COUNTER_PAGE), 16)?;
    let free = one("curve-free", &wide(POLL), 40)?;
    let mut files = Vec::new();
    let mut shares = Vec::new();
    for (name, seen) in [("throttled", &throttled), ("free", &free)] {
        let (share, file) = shape(seen, &directory.join(format!("arrivals-{name}")))?;
        shares.push(share);
        files.extend(file);
    }
    let _ = throttled.forget();
    let _ = free.forget();
    let rise = [shares[0], shares[1]];
    let Together { saturation, share, moved, moved_by_one, overshoots } = together(lab, bar)?;
    Ok(Shapes { rise, saturation, share, moved, moved_by_one, overshoots, files })
}

/// The share of a curve's rise that is around multiples of the period; its picture and its points
/// are written.
fn shape(seen: &Seen, file: &Path) -> Result<(f64, [PathBuf; 2])> {
    let answer = ArrivalCurves::to(&CurveQuery {
        runs: vec![seen.directory.clone()],
        vms: vec!["memory-stressor".to_owned()],
        between: later_half(seen)?,
        window: Some(Nanos(PERIOD * u64::from(PERIODS))),
        points: PARTS * PERIODS,
    })?;
    let files = [file.with_extension("svg"), file.with_extension("csv")];
    let csv = answer.csv();
    for (file, contents) in files.iter().zip([&answer.svg()?, &csv]) {
        write(file, contents)?;
    }
    // series, window, at most, recorded, at least
    let recorded = csv.lines().skip(1).filter_map(|line| line.split(',').nth(3)?.parse().ok());
    let recorded: Vec<u64> = recorded.collect();
    let share = rise(&recorded, PARTS as usize);
    Ok((share.ok_or_else(|| Failure::system("an arrival curve is empty"))?, files))
}

/// From when to when, in ns: the memory stressor's last half, as in the first it starts and prints.
fn later_half(seen: &Seen) -> Result<(u64, u64)> {
    let periods = &seen.core(1)?.periods;
    let busy = |period: &Period| period.counts.refills > 0;
    let busy = periods.iter().position(busy).zip(periods.iter().rposition(busy));
    let between = busy.and_then(|(first, last)| {
        let begun = seen.boundaries.get(&1)?;
        Some((*begun.get(usize::midpoint(first, last))?, *begun.get(last)?))
    });
    between.ok_or_else(|| Failure::system("the memory stressor made no accesses"))
}

/// Of a curve at `parts` points in each period, the share of its rise in the first part of each. Of
/// the first period that part holds what came at once.
fn rise(curve: &[u64], parts: usize) -> Option<f64> {
    let steps = (0..curve.len()).map(|point| {
        let before = point.checked_sub(1).map_or(0, |before| curve[before]);
        ((point + 1) % parts < 2, curve[point].saturating_sub(before))
    });
    let (mut first, mut all) = (0, 0);
    for (is_first, step) in steps {
        first += if is_first { step } else { 0 };
        all += step;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    (all > 0).then(|| first as f64 / all as f64)
}

/// What three memory stressors take together; see [`Shapes`].
struct Together {
    saturation: u64,
    share: u64,
    moved: [f64; 2],
    moved_by_one: f64,
    overshoots: Vec<f64>,
}

/// One memory stressor and three without budgets, and then three with budgets that add up to what
/// the memory is said to take.
fn together(lab: &Lab<'_>, bar: &CountBar) -> Result<Together> {
    const CORES: [usize; 3] = [1, 2, 3];
    let run = |name: &str, saturation: &str, cores: &[usize], bandwidth: &str| {
        let seen = lab.stressors(name, saturation, cores, 48, bandwidth);
        bar.add(1);
        seen
    };
    let free =
        |name: &str, cores: &[usize]| run(name, "", cores, &wide(PERIOD))?.together(cores, PERIOD);
    let moved_by_one = free("traffic-alone", &CORES[..1])?;
    let free = free("traffic-free", &CORES)?;
    #[expect(clippy::cast_sign_loss, reason = "counts are not negative")]
    let share = (free * GRANTED) as u64 / CORES.len() as u64;
    let saturation = share * CORES.len() as u64;
    let table = format!(
        "\n[saturation]\nperiod = \"{}\"\nline = \"64B\"\n\
         points = [{{ accesses = {saturation}, dma = \"0B/s\" }}]\n",
        Nanos(PERIOD)
    );
    // Without overcommit: `weir check` has added the budgets up.
    let name = "traffic-throttled";
    let seen = run(name, &table, &CORES, &narrow(share, ", source = \"counter-page\""))?;
    let (mut throttled, mut overshoots) = (0.0, Vec::new());
    for core in CORES {
        let one = measured(name, &seen, core, |counts| counts.refills, share, PERIOD)?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        overshoots.push(one.overshoot_max as f64);
        throttled += rate(one.total, one.periods);
    }
    Ok(Together { saturation, share, moved: [throttled, free], moved_by_one, overshoots })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn rate(lines: u64, periods: u64) -> f64 {
    lines as f64 / periods.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    #[test]
    fn each_statement_can_fail() {
        let good = Shapes {
            rise: [0.99, 0.5],
            saturation: 72_000,
            share: 24_000,
            moved: [71_990.0, 108_000.0],
            moved_by_one: 37_000.0,
            overshoots: vec![300.0, 250.0, 310.0],
            files: Vec::new(),
        };
        each_can_fail(&good, &[], Shapes::statements, |shapes| {
            let all = shapes.rise.iter_mut().chain(&mut shapes.moved).chain(&mut shapes.overshoots);
            all.map(|value| value as &mut dyn Change).collect()
        });
    }

    #[test]
    fn a_staircase_rises_at_once_and_a_line_evenly() {
        let stairs: Vec<u64> = (0..32).map(|point| 100 * (1 + point / 8)).collect();
        let line: Vec<u64> = (1..=32).map(|point| 50 * point).collect();
        let of = |curve: &[u64]| rise(curve, 8).expect("it rises");
        assert!((of(&stairs) - 1.0).abs() < 1e-12 && (of(&line) - 0.25).abs() < 1e-12);
        assert_eq!(rise(&[0, 0], 8), None);
    }
}
