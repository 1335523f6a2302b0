//! xen-throttling, Figures 7 and 8: compensation in windows of two periods, and the rule of section
//! III-C for longer ones.
//!
//! The paper prints neither the budget nor the period of these figures: several budgets are
//! simulated, and the period is assumed.

use super::{ASSUMED_PERIOD_US, BUDGET_MB_PER_S, Budget, PAPER, Program, Runs, WEIR};
use super::{PROGRAMS, board_of, seeds};
use crate::memory::with_band;
use crate::memory::{Spread, each_by_seed, simulate};
use crate::{
    ExperimentOutcome, ExperimentRequest, figures,
    statement::{
        ClaimSource,
        Relation::{self, Above, AtMost, Near},
        Statement, statements,
    },
};
use serde::{Deserialize, Serialize};
use weir_budget::{Counts, Event, GroupBudget, Regulate, Regulator, RegulatorKind, Setting};
use weir_image::Result;
use weir_report::{Picture, table};
use weir_units::Nanos;

const RULE: ClaimSource = PAPER.at("III-C");
const FIGURE_7: ClaimSource = PAPER.at("IV-C, Figure 7");
const FIGURE_8: ClaimSource = PAPER.at("IV-C, Figure 8");
const REGULATORS: ClaimSource = ClaimSource::own("docs/explanation/regulators.md, Compensation");

/// "By up to 20 %".
const UP_TO: f64 = 0.2;
/// What the greatest gain may be off by: the rates of two of the three programs are assumed.
const UP_TO_NEAR: f64 = 0.05;
/// "Slightly": no more than what the budget leaves of the interference (section IV-A).
const SLIGHTLY: f64 = 0.09;
/// A gain or a loss that is none.
const NONE: f64 = 0.005;

/// Budgets in MB/s.
const BUDGETS: [u64; 5] = [BUDGET_MB_PER_S, 700, 1100, 1500, 1900];
const QUICK_BUDGETS: [u64; 2] = [BUDGET_MB_PER_S, 1500];
/// Whole windows.
const LENGTH_US: u64 = 20_000;

/// A critical program and the one that is throttled, with a budget in MB/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    critical: Program,
    other: Program,
    budget: u64,
}

const PAIRS: [(Program, Program); 4] = [
    (PROGRAMS[0], Program::Lbm),
    (PROGRAMS[1], Program::Lbm),
    (PROGRAMS[2], Program::Lbm),
    (Program::Mcf, Program::Gems),
];

fn points(quick: bool) -> Vec<Point> {
    let (pairs, budgets) =
        if quick { (&PAIRS[..1], &QUICK_BUDGETS[..]) } else { (&PAIRS[..], &BUDGETS[..]) };
    let of = |&(critical, other): &(Program, Program)| {
        budgets.iter().map(move |&budget| Point { critical, other, budget })
    };
    pairs.iter().flat_map(of).collect()
}

/// The changes that compensation makes with one seed.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// By how much more the throttled program does, as a share.
    gain: f64,
    /// By how much longer the critical one takes, as a share.
    slower: f64,
}

impl Point {
    /// Until the throttled program has filled its L2, so that each line that comes evicts one:
    /// whole windows, in us.
    const fn warm_up_us(self) -> u64 {
        if self.budget < BUDGETS[1] { 8_000 } else { 2_000 }
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn change(self, seed: u64) -> Result<Change> {
        let run = |compensated| {
            let period_us = ASSUMED_PERIOD_US;
            let budget = Budget { mb_per_s: self.budget, period_us, compensated };
            let all = [
                Runs { program: self.critical, budget: Some(budget.unlimited()) },
                Runs { program: self.other, budget: Some(budget) },
            ];
            let outcome = simulate(&board_of(&all)?, seed, self.warm_up_us(), LENGTH_US)?;
            Ok::<_, weir_image::Failure>([0, 1].map(|vm| outcome.vms[vm].accesses as f64))
        };
        let ([critical, other], [critical_with, other_with]) = (run(false)?, run(true)?);
        Ok(Change { gain: other_with / other - 1.0, slower: critical / critical_with - 1.0 })
    }
}

/// The most of a critical VM's accesses that others delay in a window of periods, in budgets, over
/// all ways in which it makes no access, Q or 2 Q in each of them: the sum of min(A, U).
fn most_delayed(window: u32, delayed: impl Fn(&[u64]) -> f64) -> f64 {
    let ways = (0..3_u64.pow(window))
        .map(|way| (0..window).map(|period| way / 3_u64.pow(period) % 3).collect::<Vec<_>>());
    ways.map(|critical| delayed(&critical)).fold(f64::NAN, f64::max)
}

/// The rule as the paper prints it: what was not used is added to the budget until the window ends.
#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn by_the_paper(critical: &[u64]) -> f64 {
    let (mut budget, mut delayed) = (1, 0);
    for &used in critical {
        delayed += used.min(budget);
        budget += 1_u64.saturating_sub(used);
    }
    delayed as f64
}

/// The regulator of weir, with another VM that uses all that it gets.
#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn by_weir(critical: &[u64]) -> f64 {
    const Q: u64 = 100;
    const PERIOD: Nanos = Nanos(1000);
    let window = critical.len() as u32;
    let group = GroupBudget::new();
    let its = Setting { publish: true, ..Setting::new(PERIOD, Counts::NEVER, 0, 1) };
    let other = Setting {
        kind: RegulatorKind::Compensation,
        window,
        critical_vcpus: 1,
        ..Setting::new(PERIOD, Counts::one(Q), 0, 1)
    };
    let [mut its, mut other] = [its, other].map(|setting| Regulator::new(&setting));
    let reads = |reads| Counts { reads, writes: 0 };
    let (mut now, mut used, mut taken) = (Nanos(0), 0, 0);
    its.step(&group, now, Counts::ZERO, Event::Start);
    let mut verdict = other.step(&group, now, Counts::ZERO, Event::Start);
    // Before the first whole window the critical VM uses all.
    let before = vec![2; window as usize - 1];
    let mut delayed = 0;
    for (at, budgets) in before.iter().chain(critical).enumerate() {
        used += budgets * Q;
        let begun = taken;
        while verdict.run {
            taken = verdict.limit.reads;
            verdict = other.step(&group, now, reads(taken), Event::Count);
        }
        if at >= before.len() {
            delayed += (budgets * Q).min(taken - begun);
        }
        now = Nanos(now.0 + PERIOD.0);
        its.step(&group, now, reads(used), Event::Period);
        verdict = other.step(&group, now, reads(taken), Event::Period);
    }
    delayed as f64 / Q as f64
}

/// The results.
#[derive(Clone, Debug)]
struct Measured {
    changes: Vec<(Point, Vec<Change>)>,
    /// The most that is delayed in windows of two and of three periods, in budgets: by the paper's
    /// rule and by weir.
    by_the_paper: [f64; 2],
    by_weir: [f64; 2],
}

impl Measured {
    fn of(&self, point: Point, value: fn(&Change) -> f64) -> Spread {
        let found = self.changes.iter().find(|(its, _)| *its == point);
        let values = found.into_iter().flat_map(|(_, changes)| changes.iter().map(value));
        Spread::of(&values.collect::<Vec<_>>())
    }

    fn gain(&self, point: Point) -> f64 {
        self.of(point, |change| change.gain).mean
    }

    fn slower(&self, point: Point) -> f64 {
        self.of(point, |change| change.slower).mean
    }

    /// The points of a pair of programs.
    fn of_pair(&self, (critical, other): (Program, Program)) -> Vec<Point> {
        let points = self.changes.iter().map(|(point, _)| *point);
        points.filter(|point| point.critical == critical && point.other == other).collect()
    }
}

/// Windows that are judged, in periods.
const WINDOWS: [u32; 2] = [2, 3];

/// The changes by compensation in a JSON result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompensationChanges {
    /// The changes of each pair of programs at each budget.
    pub changes: Vec<CompensationChange>,
}

/// The changes of a pair of programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompensationChange {
    /// The critical program.
    pub critical: String,
    /// The throttled one.
    pub other: String,
    /// Its budget in MB/s.
    pub budget_mb_per_s: u64,
    /// By how much more the throttled one does, as a share.
    pub gain: Spread,
    /// By how much longer the critical one takes, as a share.
    pub slower: Spread,
}

/// The whole experiment.
pub fn compensation(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let changes = each_by_seed(&points(request.quick), seeds(request.quick), Point::change)?;
    let measured = Measured {
        changes,
        by_the_paper: WINDOWS.map(|window| most_delayed(window, by_the_paper)),
        by_weir: WINDOWS.map(|window| most_delayed(window, by_weir)),
    };
    let pictures = [
        ("fig7.svg", picture(&measured, "gain of the throttled program, %", |it| it.gain, UP_TO)),
        ("fig8.svg", picture(&measured, "loss of the critical program, %", |it| it.slower, 0.0)),
    ];
    let files = pictures.map(|(name, picture)| picture.write(request.directory.join(name)));
    let record = record(&measured);
    Ok(ExperimentOutcome {
        text: format!("{}\n\n{NOTES}", text(&record)),
        json: figures(record),
        statements: stated(&measured),
        files: files.into_iter().collect::<Result<_>>()?,
    })
}

const NOTES: &str = "In percent, mean of all seeds with the least and the greatest. A budget \
                     returns nothing where the critical program uses\nmore than it in each period, \
                     and nothing is gained where the other one needs no more than its budget.\n";

fn text(CompensationChanges { changes }: &CompensationChanges) -> String {
    let mut rows = table(["critical", "throttled", "its MB/s", "gains %", "critical slower by %"]);
    for change in changes {
        rows.add_row([
            change.critical.clone(),
            change.other.clone(),
            change.budget_mb_per_s.to_string(),
            change.gain.percent().text(1),
            change.slower.percent().text(1),
        ]);
    }
    rows.to_string()
}

fn record(measured: &Measured) -> CompensationChanges {
    let of = |(point, _): &(Point, Vec<Change>)| CompensationChange {
        critical: point.critical.name().to_owned(),
        other: point.other.name().to_owned(),
        budget_mb_per_s: point.budget,
        gain: measured.of(*point, |change| change.gain),
        slower: measured.of(*point, |change| change.slower),
    };
    CompensationChanges { changes: measured.changes.iter().map(of).collect() }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn picture(
    measured: &Measured,
    y: &'static str,
    value: fn(&Change) -> f64,
    published: f64,
) -> Picture<'static> {
    let mut lines = Vec::new();
    for pair in PAIRS {
        let at = |point: &Point| (point.budget as f64, measured.of(*point, value).percent());
        let name = format!("{} next to {}", pair.1.name(), pair.0.name());
        let all: Vec<_> = measured.of_pair(pair).iter().map(at).collect();
        if !all.is_empty() {
            lines.extend(with_band(&name, &all));
        }
    }
    if published > 0.0 {
        let most = vec![(BUDGET_MB_PER_S as f64, 100.0 * published)];
        lines.push(("published: up to 20 %, at a budget that is not printed".to_owned(), most));
    }
    Picture { x: "budget of the throttled program, MB/s", y, lines }
}

fn stated(measured: &Measured) -> Vec<Statement> {
    let mut all = Vec::new();
    let points = || measured.changes.iter().map(|(point, _)| *point);
    // `max` passes over what is no number.
    let gains: Vec<_> = points().map(|point| measured.gain(point)).collect();
    let is_measured = gains.iter().all(|gain| !gain.is_nan());
    let most = gains.iter().copied().fold(f64::NAN, f64::max);
    let least = points().filter(|point| point.budget == BUDGET_MB_PER_S);
    all.extend(statements![
        FIGURE_7, "up-to",
        "compensation improves the throttled program by up to 20 %: the greatest gain of all pairs \
         and budgets"
            => Near(UP_TO, UP_TO_NEAR), [if is_measured { most } else { f64::NAN }];
        WEIR, "none-at-91",
        "a budget of 91 MB/s returns nothing next to these critical programs, each of which uses \
         more than that in each period: gain"
            => AtMost(NONE), least.map(|point| measured.gain(point).abs()).collect::<Vec<_>>();
    ]);
    let mut slower = Vec::new();
    for pair in PAIRS {
        let its = measured.of_pair(pair);
        let by_gain = |a: &&Point, b: &&Point| measured.gain(**a).total_cmp(&measured.gain(**b));
        let Some(best) = its.iter().max_by(by_gain) else { continue };
        let id = format!("{}-{}", pair.1.id(), pair.0.id());
        let names = format!("{} next to {}", pair.1.name(), pair.0.name());
        slower.push(measured.slower(*best));
        all.extend(statements![
            FIGURE_7, "gain-{id}", "{names}: compensation improves its performance: by at least"
                => Above(NONE), [measured.gain(*best)];
            FIGURE_8, "slightly-{id}",
            "{names}: the critical program takes longer only slightly, at each budget: by"
                => AtMost(SLIGHTLY),
                its.iter().map(|point| measured.slower(*point)).collect::<Vec<_>>();
        ]);
    }
    // GemsFDTD alone is not delayed: its accesses come at intervals in which a delay fits.
    all.extend(statements![
        FIGURE_8, "slower",
        "critical programs take longer overall, where the other one gains most: by, in the mean"
            => Above(NONE), [Spread::of(&slower).mean];
    ]);
    let [two, three] = measured.by_the_paper;
    all.extend(statements![
        RULE, "window-2",
        "in two periods a critical VM suffers 2 Q at most, whatever it does: most by the paper's \
         rule and by weir's regulator, over all ways to use none, Q or 2 Q in a period"
            => Relation::exactly(2.0), [two, measured.by_weir[0]], "Q";
        REGULATORS, "rule-3",
        "in windows of three periods, which the paper allows, its rule lets it suffer 4 Q"
            => Relation::exactly(4.0), [three], "Q";
        REGULATORS, "regulator-3", "weir's regulator keeps to 3 Q"
            => AtMost(3.0), [measured.by_weir[1]], "Q";
    ]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{self, each_can_fail};

    /// Returns the model's values.
    fn good() -> Measured {
        let change = |point: &Point| match point.budget {
            1500 => Change { gain: 0.18, slower: 0.0052 },
            _ => Change { gain: 0.0, slower: 0.0 },
        };
        Measured {
            changes: points(false).into_iter().map(|it| (it, vec![change(&it)])).collect(),
            by_the_paper: [2.0, 4.0],
            by_weir: [2.0, 3.0],
        }
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(&good(), &[], stated, |all| {
            let mut values: Vec<&mut dyn tests::Change> = Vec::new();
            for change in all.changes.iter_mut().flat_map(|(_, changes)| changes) {
                values.extend([&mut change.gain as &mut dyn tests::Change, &mut change.slower]);
            }
            for most in all.by_the_paper.iter_mut().chain(&mut all.by_weir) {
                values.push(most);
            }
            values
        });
    }

    #[test]
    fn three_periods_break_the_papers_rule_and_not_weirs() {
        assert!((by_the_paper(&[0, 2, 2]) - 4.0).abs() < 1e-9);
        assert!((by_weir(&[0, 2, 2]) - 3.0).abs() < 1e-9, "{}", by_weir(&[0, 2, 2]));
        // A silent critical VM leaves half as much again in two periods.
        assert!((by_weir(&[0, 2]) - 2.0).abs() < 1e-9);
        assert!((most_delayed(2, by_weir) - 2.0).abs() < 1e-9);
    }
}
