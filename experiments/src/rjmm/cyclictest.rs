//! rjmm, section IV-C, Figures 3 and 4: a thread that wakes each millisecond, as `cyclictest` does.
//!
//! The paper prints two numbers, by how much separate banks lower the mean and the greatest latency.
//! They depend on what Linux does at a wake-up, which the model does not have: the order is judged
//! here, and the numbers where the real `cyclictest` runs (`linux`).

use super::{Division, PAPER, QUICK_SEEDS, SEEDS, Stressor, WEIR, board_of, printed};
use crate::memory::{Spread, each_by_seed, simulate};
use crate::{
    ExperimentOutcome, ExperimentRequest, figures,
    statement::{
        ClaimSource, Deviation,
        Relation::{Above, AtLeast, AtMost},
        Statement, statements,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_image::{Failure, Result};
use weir_report::Picture;
use weir_simulator::SimulatedBoard;

const FIGURE_3: ClaimSource = PAPER.at("IV-C, Figure 3");
const FIGURE_4: ClaimSource = PAPER.at("IV-C, Figure 4");

/// Latencies are compared at each of these thousandths of the wake-ups.
const SHARES: [u64; 19] =
    [50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800, 850, 900, 950];
/// In us: the L2 is full after 1 ms next to the slower stressor.
const WARM_UP_US: u64 = 2500;
/// Twenty wake-ups, or five in a quick call.
pub(super) const LENGTH_US: u64 = 20_000;
const QUICK_LENGTH_US: u64 = 5_000;
/// "No difference": up to this share.
const SAME: f64 = 0.05;

/// A thread and its surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakePoint {
    /// The accesses of the other VM.
    pub stressor: Stressor,
    /// The division of memory.
    pub division: Division,
}

/// The latencies of a run's wake-ups, in ns.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WakeLatencies {
    /// The least.
    pub least: f64,
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub most: f64,
    /// The latency that each twentieth of the wake-ups does not exceed, from the first to the
    /// nineteenth.
    pub twentieths: Vec<f64>,
}

/// The runs of a point, one for each seed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WakeRuns {
    /// The thread and its surroundings.
    #[serde(flatten)]
    pub point: WakePoint,
    /// The latencies by seed.
    pub latencies_ns: Vec<WakeLatencies>,
}

/// The figures of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CyclictestFigures {
    /// All runs.
    pub runs: Vec<WakeRuns>,
}

fn points() -> Vec<WakePoint> {
    let mut all = Vec::new();
    for stressor in Stressor::BOTH {
        let divisions = [
            Division::Shared,
            Division::Banks,
            Division::Colors,
            Division::SharedWide,
            Division::BanksWide,
        ];
        all.extend(divisions.map(|division| WakePoint { stressor, division }));
    }
    let pauses = |division| WakePoint { stressor: Stressor::Pauses, division };
    all.extend([Division::Shared, Division::Banks].map(pauses));
    all
}

fn run_one(point: WakePoint, seed: u64, length_us: u64) -> Result<WakeLatencies> {
    let board = board_of(point.division, point.stressor, "kind = \"cyclictest\"")?;
    latencies(&board, seed, length_us)
}

/// Simulates a board whose first VM is a thread that wakes.
#[expect(clippy::cast_precision_loss, reason = "times of less than 2^52 ns")]
pub(super) fn latencies(
    board: &SimulatedBoard,
    seed: u64,
    length_us: u64,
) -> Result<WakeLatencies> {
    let outcome = simulate(board, seed, WARM_UP_US, length_us)?;
    let jobs = outcome.vms[0].jobs.as_ref().filter(|jobs| jobs.ended > 0);
    let response = &jobs.ok_or_else(|| Failure::system("no thread wakes".to_owned()))?.response;
    Ok(WakeLatencies {
        least: response.at_most_ns(0) as f64,
        mean: response.mean().0 as f64 / 1000.0,
        most: response.most_ns() as f64,
        twentieths: SHARES.map(|share| response.at_most_ns(share) as f64).to_vec(),
    })
}

/// The whole experiment.
pub(crate) fn cyclictest(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let (seeds, length) =
        if request.quick { (QUICK_SEEDS, QUICK_LENGTH_US) } else { (SEEDS, LENGTH_US) };
    let runs = each_by_seed(&points(), seeds, |point, seed| run_one(point, seed, length))?;
    let runs = runs.into_iter().map(|(point, latencies_ns)| WakeRuns { point, latencies_ns });
    let measured = CyclictestFigures { runs: runs.collect() };
    let file = picture(&measured).write(request.directory.join("fig3.svg"))?;
    Ok(ExperimentOutcome {
        text: format!("{}\n\n{NOTES}", printed(&measured.cells())),
        statements: stated(&measured),
        json: figures(measured),
        files: vec![file],
    })
}

const NOTES: &str = "Latencies in us: mean of the seeds with the least and the greatest. The thread \
                     reads 64 lines in random order, each after the one before, and nothing else: \
                     the model has no\ninstructions of Linux, so that only the order is compared \
                     with the paper.\n";

impl CyclictestFigures {
    fn of(&self, point: WakePoint) -> &[WakeLatencies] {
        let found = self.runs.iter().find(|runs| runs.point == point);
        found.map_or(&[], |runs| &runs.latencies_ns)
    }

    /// A value of the latencies over the seeds, in us.
    #[must_use]
    pub fn us(&self, point: WakePoint, value: impl Fn(&WakeLatencies) -> f64) -> Spread {
        let values: Vec<_> = self.of(point).iter().map(|one| value(one) / 1000.0).collect();
        Spread::of(&values)
    }

    /// By how many percent of shared memory's a value is lower with this division.
    #[must_use]
    pub fn reduction(&self, point: WakePoint, value: fn(&WakeLatencies) -> f64) -> Spread {
        let shared = WakePoint { division: point.division.without(), ..point };
        let pairs = self.of(shared).iter().zip(self.of(point));
        let each: Vec<_> =
            pairs.map(|(shared, own)| 100.0 * (1.0 - value(own) / value(shared))).collect();
        Spread::of(&each)
    }

    /// By how many us the latencies at each share of the wake-ups are lower, in the mean of the
    /// seeds: the least of them.
    fn least_gain_us(&self, stressor: Stressor) -> f64 {
        let at = |division, place: usize| {
            let of = |one: &WakeLatencies| one.twentieths.get(place).copied().unwrap_or(f64::NAN);
            self.us(WakePoint { stressor, division }, of).mean
        };
        let gains =
            (0..SHARES.len()).map(|place| at(Division::Shared, place) - at(Division::Banks, place));
        let gains: Vec<_> = gains.collect();
        // `min` passes over what is no number.
        if gains.iter().any(|gain| gain.is_nan()) {
            return f64::NAN;
        }
        gains.into_iter().fold(f64::NAN, f64::min)
    }
}

/// The known deviations.
pub(crate) static DEVIATIONS: [Deviation; 1] = [Deviation {
    id: "stressor-never-pauses",
    reason: "the model's other VM accesses its memory without a pause, so that no wake-up finds its \
             lines; where it pauses, the first wake-up of a pause brings them back and the others \
             find them, as on a Linux that also does other things",
    tested_by: &["minimum-pauses"],
    of: &[("minimum-reads", AtLeast(0.5)), ("minimum-writes", AtLeast(0.5))],
}];

fn stated(measured: &CyclictestFigures) -> Vec<Statement> {
    let mut all = Vec::new();
    let least =
        |stressor, division| measured.us(WakePoint { stressor, division }, |one| one.least).mean;
    let apart = |stressor| {
        (1.0 - least(stressor, Division::Banks) / least(stressor, Division::Shared)).abs()
    };
    for stressor in Stressor::BOTH {
        let name = stressor.name();
        let of = |division, value| measured.reduction(WakePoint { stressor, division }, value);
        let mean = |division| of(division, |one| one.mean);
        let most = of(Division::Banks, |one| one.most);
        all.extend(statements![
            FIGURE_3, "distribution-{name}",
            "next to a VM that {name}, the latencies are lower with separate banks at each \
             twentieth of the wake-ups: by at least"
                => Above(0.0), [measured.least_gain_us(stressor)], "us";
            FIGURE_4, "mean-{name}",
            "next to a VM that {name}, separate banks lower the mean latency, with each seed: by"
                => Above(0.0), [mean(Division::Banks).least], "%";
            FIGURE_4, "maximum-{name}",
            "next to a VM that {name}, separate banks lower the greatest latency, with each seed: by"
                => Above(0.0), [most.least], "%";
            FIGURE_4, "minimum-{name}",
            "next to a VM that {name}, the least latencies make no difference: apart by"
                => AtMost(SAME), [apart(stressor)];
            WEIR, "colors-{name}",
            "next to a VM that {name}, separate colors with shared banks lower the mean as much as \
             separate banks: apart by"
                => AtMost(1.0), [(mean(Division::Banks).mean - mean(Division::Colors).mean).abs()],
                "%";
            WEIR, "wide-{name}",
            "next to a VM that {name}, separate banks with a shared L2 lower the mean by a part of \
             what the board's separate banks do"
                => AtMost(0.5), [mean(Division::BanksWide).mean / mean(Division::Banks).mean];
        ]);
    }
    all.extend(statements![
        WEIR, "minimum-pauses",
        "next to a VM that pauses, the least latencies make no difference: apart by"
            => AtMost(SAME), [apart(Stressor::Pauses)];
    ]);
    all
}

impl CyclictestFigures {
    /// Returns the rows of the table of latencies, the header first.
    #[must_use]
    pub fn cells(&self) -> Vec<Vec<String>> {
        let header =
            ["other VM", "memory", "least, us", "mean, us", "greatest, us", "mean, lower by %"];
        let mut all = vec![header.map(str::to_owned).to_vec()];
        for WakeRuns { point, .. } in &self.runs {
            let us = |value: fn(&WakeLatencies) -> f64| self.us(*point, value).text(2);
            let reduction = self.reduction(*point, |one| one.mean).text(1);
            all.push(vec![
                point.stressor.name().to_owned(),
                point.division.name().to_owned(),
                us(|one| one.least),
                us(|one| one.mean),
                us(|one| one.most),
                if point.division.is_shared() { "-".to_owned() } else { reduction },
            ]);
        }
        all
    }
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn picture(measured: &CyclictestFigures) -> Picture<'static> {
    let mut lines = Vec::new();
    for stressor in Stressor::BOTH {
        for division in [Division::Shared, Division::Banks, Division::Colors] {
            let point = WakePoint { stressor, division };
            let at = |place: usize| {
                let of = move |one: &WakeLatencies| one.twentieths[place];
                (measured.us(point, of), SHARES[place] as f64 / 10.0)
            };
            let places = || 0..SHARES.len();
            let name = format!("{}, other VM {}", division.name(), stressor.name());
            let low = places().map(|place| (at(place).0.least, at(place).1));
            let high = places().rev().map(|place| (at(place).0.most, at(place).1));
            let mean = places().map(|place| (at(place).0.mean, at(place).1)).collect();
            lines.push((name.clone(), mean));
            lines.push((format!("spread, {name}"), low.chain(high).collect()));
        }
    }
    Picture { x: "latency, us", y: "wake-ups of at most this latency, %", lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    /// Returns values like those of the model.
    fn good() -> CyclictestFigures {
        let of = |least: f64, mean: f64, most: f64| {
            let twentieths = (1..=19).map(|share| least + (most - least) * f64::from(share) / 20.0);
            vec![WakeLatencies { least, mean, most, twentieths: twentieths.collect() }]
        };
        let latencies = |point: WakePoint| match (point.stressor, point.division) {
            (Stressor::Pauses, Division::Shared) => of(400.0, 5000.0, 14_000.0),
            (_, Division::Banks | Division::Colors) => of(400.0, 500.0, 600.0),
            (_, Division::BanksWide) => of(7600.0, 9500.0, 13_500.0),
            _ => of(8000.0, 10_000.0, 14_000.0),
        };
        let runs = points().into_iter();
        let runs = runs.map(|point| WakeRuns { point, latencies_ns: latencies(point) });
        CyclictestFigures { runs: runs.collect() }
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(&good(), &DEVIATIONS, stated, |measured| {
            let each = measured.runs.iter_mut().flat_map(|runs| &mut runs.latencies_ns);
            let values = each.flat_map(|one| {
                let WakeLatencies { least, mean, most, twentieths } = one;
                [least, mean, most].into_iter().chain(twentieths)
            });
            values.map(|value| value as &mut dyn Change).collect()
        });
    }

    #[test]
    fn latencies_that_were_not_measured_fail() {
        let mut measured = good();
        let lost = WakePoint { stressor: Stressor::Reads, division: Division::Banks };
        measured.runs.retain(|runs| runs.point != lost);
        let statements = stated(&measured);
        let failing = statements.iter().filter(|one| !one.relation.holds(&one.own));
        let failing: Vec<_> = failing.map(|one| one.id.as_str()).collect();
        let all = ["distribution", "mean", "maximum", "minimum", "colors", "wide"];
        // The least latencies next to a VM that writes are a known deviation.
        let expected: Vec<_> = all.map(|id| format!("{id}-reads")).into_iter().collect();
        assert_eq!(failing[..6], expected.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(failing[6..], ["minimum-writes"]);
    }
}
