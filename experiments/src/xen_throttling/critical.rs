//! xen-throttling, Figure 4: the time of a critical program next to a throttled one.
//!
//! The paper prints neither the budget nor the period of this figure: the bandwidth is that of
//! Figures 5 and 6, and the period is assumed. It prints no time of a program alone either.

use super::{ASSUMED_PERIOD_US, BUDGET_MB_PER_S, Budget, MEMORY_MB_PER_MS, PAPER, Program, Runs};
use super::{MB_PER_S, PROGRAMS, WEIR, board_of, seeds};
use crate::memory::with_band;
use crate::memory::{Spread, each_by_seed};
use crate::{
    ExperimentOutcome, ExperimentRequest, figures,
    statement::{
        ClaimSource,
        Relation::{Above, AtMost},
        Statement, statements,
    },
};
use serde::{Deserialize, Serialize};
use weir_image::{Failure, Result};
use weir_report::{Picture, table};
use weir_simulator::{Span, run_until_each};
use weir_units::Nanos;

const FIGURE_4: ClaimSource = PAPER.at("IV-A, Figure 4");

/// "Within 9 %".
const WITHIN: f64 = 0.09;
/// The deadline of mcf, in s.
const DEADLINE_S: f64 = 11.4;
/// Jobs of mcf for each seed: 200 in all, as in the paper.
const JOBS: u64 = 20;
/// Jobs of mcf where the paper shows none, for each seed: as long as a pass of lbm.
const FEW: u64 = 4;
/// "Stable": its mean differs by at most this between other programs, in times of it alone.
const STABLE: f64 = 0.03;

/// Budgets of lbm next to mcf, in MB/s, for the picture.
const BUDGETS: [u64; 5] = [BUDGET_MB_PER_S, 300, 600, 900, 1200];

/// A critical program next to another one, or alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    critical: Program,
    other: Option<Program>,
    /// MB/s of the other program.
    budget: Option<u64>,
}

const fn alone(critical: Program) -> Point {
    Point { critical, other: None, budget: None }
}

const fn free(critical: Program, other: Program) -> Point {
    Point { critical, other: Some(other), budget: None }
}

const fn throttled(critical: Program, other: Program, budget: u64) -> Point {
    Point { critical, other: Some(other), budget: Some(budget) }
}

fn points(quick: bool) -> Vec<Point> {
    let criticals = if quick { &PROGRAMS[..1] } else { &PROGRAMS };
    let mut all = Vec::new();
    for &critical in criticals {
        all.push(alone(critical));
        for other in PROGRAMS {
            all.extend([free(critical, other), throttled(critical, other, BUDGET_MB_PER_S)]);
        }
    }
    all.extend(BUDGETS[1..].iter().map(|&budget| throttled(Program::Mcf, Program::Lbm, budget)));
    all
}

impl Point {
    /// The number of jobs for each seed, and the accesses of a job: of mcf more than three periods,
    /// so that jobs meet different numbers of the other program's bursts, and of the others a pass
    /// through all phases.
    fn jobs(self) -> (u64, u64) {
        let is_figures = self.budget == Some(BUDGET_MB_PER_S);
        match self.critical {
            Program::Mcf => (if is_figures { JOBS } else { FEW }, 45_000),
            critical => (1, critical.accesses()),
        }
    }

    /// The times of jobs that follow each other, in ps.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn times(self, seed: u64) -> Result<Vec<f64>> {
        let budget = self.budget.map(|mb_per_s| Budget {
            mb_per_s,
            period_us: ASSUMED_PERIOD_US,
            compensated: false,
        });
        let mut all = vec![Runs { program: self.critical, budget: None }];
        all.extend(self.other.map(|program| Runs { program, budget }));
        let (jobs, accesses) = self.jobs();
        // The first job fills the caches.
        let ends: Vec<_> = (1..=jobs + 1).map(|job| job * accesses).collect();
        let span = Span { warm_up: Nanos(0), length: Nanos((jobs + 1) * 50_000_000), seed };
        let marks = run_until_each(&board_of(&all)?, span, 0, &ends);
        let marks = marks.map_err(|error| Failure::system(error.to_string()))?;
        let late = || Failure::system(format!("{}: too slow", self.critical.name()));
        let at: Option<Vec<_>> = marks.iter().map(|mark| mark.map(|mark| mark.at.0)).collect();
        Ok(at.ok_or_else(late)?.windows(2).map(|ends| (ends[1] - ends[0]) as f64).collect())
    }
}

/// The times of each point in ps: of all jobs of all seeds.
#[derive(Clone, Debug)]
struct Measured(Vec<(Point, Vec<f64>)>);

impl Measured {
    /// The times relative to the mean alone.
    fn of(&self, point: Point) -> Spread {
        let times = |point| {
            let found = self.0.iter().find(|(its, _)| *its == point);
            found.map_or(&[][..], |(_, times)| times)
        };
        let alone = Spread::of(times(alone(point.critical))).mean;
        Spread::of(&times(point).iter().map(|time| time / alone).collect::<Vec<_>>())
    }

    fn mean(&self, point: Point) -> f64 {
        self.of(point).mean
    }
}

/// The times of critical programs in a JSON result, alone = 1.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CriticalFigures {
    /// The times next to each program.
    pub times: Vec<CriticalTime>,
}

/// The time of a critical program next to another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CriticalTime {
    /// The critical program.
    pub critical: String,
    /// The other program.
    pub other: String,
    /// The budget of the other one in MB/s; none if it has none.
    pub budget_mb_per_s: Option<u64>,
    /// Jobs that were measured.
    pub jobs: usize,
    /// The time of a job, alone = 1.
    pub time: Spread,
}

/// The whole experiment.
pub fn critical(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let times = each_by_seed(&points(request.quick), seeds(request.quick), Point::times)?;
    let times = times.into_iter().map(|(point, times)| (point, times.concat()));
    let measured = Measured(times.collect());
    let file = picture(&measured).write(request.directory.join("fig4.svg"))?;
    let record = record(&measured);
    Ok(ExperimentOutcome {
        text: format!("{}\n\n{NOTES}", text(&record)),
        json: figures(record),
        statements: stated(request.quick, &measured),
        files: vec![file],
    })
}

const NOTES: &str = "Mean of all jobs of all seeds with the least and the greatest, in times of \
                     the program alone. Assumed: the budget, which\nthe paper prints for Figures 5 \
                     and 6, and that mcf alone takes 11.4 s / 1.09: the longest time after which a \
                     job\nthat is slower by 9 % keeps its deadline.\n";

fn text(CriticalFigures { times }: &CriticalFigures) -> String {
    let mut rows = table(["critical", "next to", "its MB/s", "jobs", "time, alone = 1"]);
    for CriticalTime { critical, other, budget_mb_per_s, jobs, time } in times {
        rows.add_row([
            critical.clone(),
            other.clone(),
            budget_mb_per_s.map_or("unlimited".to_owned(), |mb| mb.to_string()),
            jobs.to_string(),
            time.text(3),
        ]);
    }
    rows.to_string()
}

fn record(measured: &Measured) -> CriticalFigures {
    let of = |(point, times): &(Point, Vec<f64>)| {
        let other = point.other?;
        Some(CriticalTime {
            critical: point.critical.name().to_owned(),
            other: other.name().to_owned(),
            budget_mb_per_s: point.budget,
            jobs: times.len(),
            time: measured.of(*point),
        })
    };
    CriticalFigures { times: measured.0.iter().filter_map(of).collect() }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn picture(measured: &Measured) -> Picture<'static> {
    let at =
        |&budget: &u64| (budget as f64, measured.of(throttled(Program::Mcf, Program::Lbm, budget)));
    let mut lines: Vec<_> =
        with_band("429.mcf next to 470.lbm", &BUDGETS.iter().map(at).collect::<Vec<_>>()).into();
    let unlimited = measured.mean(free(Program::Mcf, Program::Lbm));
    let ends = [BUDGETS[0], BUDGETS[BUDGETS.len() - 1]].map(|budget| budget as f64);
    lines.push(("no budget".to_owned(), ends.map(|budget| (budget, unlimited)).into()));
    let limit = vec![(BUDGET_MB_PER_S as f64, 1.0 + WITHIN)];
    lines.push(("published: within 9 %".to_owned(), limit));
    Picture { x: "budget of 470.lbm, MB/s", y: "time of 429.mcf, alone = 1", lines }
}

fn stated(quick: bool, measured: &Measured) -> Vec<Statement> {
    let next_to =
        |critical| PROGRAMS.map(|other| measured.mean(throttled(critical, other, BUDGET_MB_PER_S)));
    let apart = |means: [f64; 3]| {
        if means.iter().any(|mean| mean.is_nan()) {
            return f64::NAN;
        }
        means.iter().copied().fold(f64::MIN, f64::max)
            - means.iter().copied().fold(f64::MAX, f64::min)
    };
    let mut all = Vec::new();
    for other in PROGRAMS {
        let (id, name) = (other.id(), other.name());
        let its = measured.of(throttled(Program::Mcf, other, BUDGET_MB_PER_S));
        all.extend(statements![
            FIGURE_4, "within-{id}",
            "mcf next to {name} with a budget is slower than alone by 9 % at most, on average"
                => AtMost(WITHIN), [its.mean - 1.0];
            FIGURE_4, "deadline-{id}",
            "the longest of all jobs of mcf (200 with ten seeds) next to {name} with a budget \
             keeps the deadline, if mcf takes 11.4 s / 1.09 alone"
                => AtMost(DEADLINE_S), [its.most * DEADLINE_S / (1.0 + WITHIN)], "s";
        ]);
    }
    // One line of 64 B at 3 MB/ms for each of the budget's accesses.
    let assumed = MB_PER_S / (MEMORY_MB_PER_MS * 1000.0);
    let lbm = free(Program::Mcf, Program::Lbm);
    all.extend(statements![
        FIGURE_4, "pessimistic",
        "the interference is less than the budget assumes: mcf next to lbm is slower by less than \
         if each line of the budget delayed it by its time at 3 MB/ms"
            => AtMost(assumed), next_to(Program::Mcf).map(|mean| mean - 1.0);
        WEIR, "unlimited-mean",
        "without a budget, mcf next to lbm is slower than alone by more than 9 %, so that the \
         budget is the reason for less"
            => Above(WITHIN), [measured.mean(lbm) - 1.0];
        WEIR, "unlimited-deadline",
        "without a budget, the longest job of mcf next to lbm misses the deadline"
            => Above(DEADLINE_S), [measured.of(lbm).most * DEADLINE_S / (1.0 + WITHIN)], "s";
    ]);
    for critical in if quick { &PROGRAMS[..1] } else { &PROGRAMS[..] } {
        let (id, name) = (critical.id(), critical.name());
        all.extend(statements![
            FIGURE_4, "stable-{id}",
            "the time of {name} is stable, whichever program is next to it: means apart by"
                => AtMost(STABLE), [apart(next_to(*critical))];
            FIGURE_4, "low-{id}",
            "the time of {name} is kept low next to each program: slower than alone by"
                => AtMost(WITHIN), next_to(*critical).map(|mean| mean - 1.0);
        ]);
        // Those of GemsFDTD are so far apart that their delays fit in between.
        if *critical != Program::Gems {
            let unlimited = PROGRAMS.map(|other| measured.mean(free(*critical, other)));
            all.extend(statements![
                WEIR, "unlimited-{id}",
                "without a budget, the time of {name} depends on the program next to it: means \
                 apart by"
                    => Above(STABLE), [apart(unlimited)];
            ]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    /// Returns the model's values.
    fn good() -> Measured {
        let time = |point: &Point| match (point.other, point.budget) {
            (None, _) => 1.0,
            (Some(_), Some(BUDGET_MB_PER_S)) => 1.01,
            (Some(_), Some(_)) => 1.1,
            (Some(Program::Lbm), None) => 1.16,
            (Some(_), None) => 1.08,
        };
        Measured(points(false).into_iter().map(|point| (point, vec![1e9 * time(&point)])).collect())
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(
            &good(),
            &[],
            |all| stated(false, all),
            |all| {
                let times = all.0.iter_mut().flat_map(|(_, times)| times);
                times.map(|time| time as &mut dyn Change).collect()
            },
        );
    }

    #[test]
    fn a_time_that_was_not_measured_fails() {
        let mut all = good();
        all.0.retain(|(point, _)| *point != throttled(Program::Mcf, Program::Gems, 91));
        let is_lost = |statement: &&Statement| !statement.relation.holds(&statement.own);
        let lost: Vec<_> =
            stated(false, &all).iter().filter(is_lost).map(|one| one.id.clone()).collect();
        assert_eq!(lost, ["within-gems", "deadline-gems", "pessimistic", "stable-mcf", "low-mcf"]);
    }
}
