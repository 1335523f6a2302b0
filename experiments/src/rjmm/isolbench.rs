//! rjmm, section IV-D and Figure 5: `IsolBench` reads 16 to 128 KiB.

use super::{Division, PAPER, QUICK_SEEDS, SEEDS, Stressor, WEIR, board_of, printed};
use crate::memory::{Spread, each_by_seed, simulate, with_band};
use crate::{
    ExperimentOutcome, ExperimentRequest, figures,
    statement::{
        ClaimSource,
        Relation::{self, Above, AtLeast, AtMost, Near},
        Statement, statements,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_image::{Failure, Result};
use weir_report::Picture;

const FIGURE_5: ClaimSource = PAPER.at("IV-D, Figure 5");
const DESIGN: ClaimSource = PAPER.at("III");
const OVERHEAD: ClaimSource = PAPER.at("IV-B");

/// The paper's sizes of the data, in KiB.
const SIZES: [u64; 8] = [16, 32, 48, 64, 80, 96, 112, 128];
/// The least and the greatest size, of which the controls and a quick call are: their mean is that of
/// all sizes.
const ENDS: [u64; 2] = [16, 128];
/// Table I: the clock.
const CLOCK_GHZ: f64 = 1.5;
/// Section IV-D: the speed that is gained, in the mean of the sizes, in percent.
const GAIN: f64 = 1.5;
/// The distance that counts as near it: half of it, as the paper leaves open what its other VM does.
const NEAR: f64 = 0.75;
/// The step was chosen of three by the published gain.
const STEP: &str = "the step of 8 bytes, which of three gives this gain: the paper prints none";
/// In us: the L2 is full after 1 ms next to the slower stressor.
const WARM_UP_US: u64 = 1200;
const LENGTH_US: u64 = 1200;

/// The part of a line that one load reads. The paper says that its program reads the memory from
/// one end to the other, and not by which steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Words of the core, of 8 bytes.
    Words,
    /// Words of 4 bytes.
    HalfWords,
    /// One load for each line.
    Lines,
}

impl Step {
    const ALL: [Self; 3] = [Self::Words, Self::HalfWords, Self::Lines];

    /// The name in tables and statements.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Words => "8 bytes",
            Self::HalfWords => "4 bytes",
            Self::Lines => "64 bytes",
        }
    }

    /// The workload for data of a size. A core loads one word a cycle at most.
    fn workload(self, kib: u64) -> String {
        let words = match self {
            Self::Words => 8.0,
            Self::HalfWords => 16.0,
            Self::Lines => 1.0,
        };
        let gap = (words / CLOCK_GHZ).round();
        format!("kind = \"read\", size = \"{kib}KiB\", gap = \"{gap}ns\"")
    }
}

/// A program's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IsolBenchPoint {
    /// The size of the data.
    pub kib: u64,
    /// What a load reads.
    pub step: Step,
    /// What the other VM does.
    pub stressor: Stressor,
    /// How memory is divided.
    pub division: Division,
}

/// The outcomes of a program's runs, one for each seed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct IsolBenchRuns {
    /// The program and its surroundings.
    #[serde(flatten)]
    pub point: IsolBenchPoint,
    /// Mean times of a pass through the data.
    pub pass_ns: Vec<f64>,
    /// DRAM rows that the two VMs closed of each other, all runs together.
    pub rows_closed: f64,
}

/// The figures of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct IsolBenchFigures {
    /// All runs.
    pub runs: Vec<IsolBenchRuns>,
}

fn points(sizes: &[u64], steps: &[Step]) -> Vec<IsolBenchPoint> {
    let mut all = Vec::new();
    let mut add = |kib, step, stressor, divisions: &[Division]| {
        let of = |&division| IsolBenchPoint { kib, step, stressor, division };
        all.extend(divisions.iter().map(of));
    };
    for &kib in sizes {
        add(kib, Step::Words, Stressor::Idle, &[Division::Shared, Division::Banks]);
        for stressor in Stressor::BOTH {
            let divisions = [Division::Shared, Division::Banks, Division::Colors];
            add(kib, Step::Words, stressor, &divisions);
            if ENDS.contains(&kib) {
                add(kib, Step::Words, stressor, &[Division::SharedWide, Division::BanksWide]);
            }
        }
        for &step in steps.iter().filter(|step| **step != Step::Words && ENDS.contains(&kib)) {
            add(kib, step, Stressor::Writes, &[Division::Shared, Division::Banks]);
        }
    }
    all
}

/// Mean time of a pass in ns, and the rows that the VMs closed of each other.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn run_one(point: IsolBenchPoint, seed: u64) -> Result<[f64; 2]> {
    let IsolBenchPoint { kib, step, stressor, division } = point;
    let board = board_of(division, stressor, &step.workload(kib))?;
    let outcome = simulate(&board, seed, WARM_UP_US, LENGTH_US)?;
    let pass = outcome.vms[0].pass.map(|pass| pass.0 as f64 / 1000.0);
    let pass = pass.ok_or_else(|| Failure::system(format!("{kib} KiB: no pass ends")))?;
    Ok([pass, (outcome.closed[0][1] + outcome.closed[1][0]) as f64])
}

impl IsolBenchFigures {
    fn of(&self, point: IsolBenchPoint) -> Option<&IsolBenchRuns> {
        self.runs.iter().find(|runs| runs.point == point)
    }

    /// The gain of speed over memory that is shared, in percent, by seed.
    fn by_seed(&self, point: IsolBenchPoint) -> Vec<f64> {
        let shared = IsolBenchPoint { division: point.division.without(), ..point };
        let (Some(with), Some(without)) = (self.of(point), self.of(shared)) else {
            return Vec::new();
        };
        let pairs = without.pass_ns.iter().zip(&with.pass_ns);
        pairs.map(|(without, with)| 100.0 * (without / with - 1.0)).collect()
    }

    /// The gain of speed over memory that is shared, in percent.
    #[must_use]
    pub fn gain(&self, point: IsolBenchPoint) -> Spread {
        Spread::of(&self.by_seed(point))
    }

    /// The gain in the mean of these sizes; without one of them no number.
    #[must_use]
    pub fn mean_gain(&self, sizes: &[u64], point: IsolBenchPoint) -> Spread {
        let of_sizes: Vec<_> =
            sizes.iter().map(|&kib| self.by_seed(IsolBenchPoint { kib, ..point })).collect();
        let seeds = of_sizes.iter().map(Vec::len).min().unwrap_or(0);
        let mean =
            |seed| Spread::of(&of_sizes.iter().map(|one| one[seed]).collect::<Vec<_>>()).mean;
        Spread::of(&(0..seeds).map(mean).collect::<Vec<_>>())
    }

    /// The rows closed in the runs of all sizes.
    fn rows_closed(&self, sizes: &[u64], point: IsolBenchPoint) -> f64 {
        let of = |&kib: &u64| self.of(IsolBenchPoint { kib, ..point }).map(|runs| runs.rows_closed);
        sizes.iter().map(of).sum::<Option<f64>>().unwrap_or(f64::NAN)
    }
}

/// The whole experiment.
pub(crate) fn isolbench(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let (sizes, steps, seeds) = if request.quick {
        (&ENDS[..], &Step::ALL[..1], QUICK_SEEDS)
    } else {
        (&SIZES[..], &Step::ALL[..], SEEDS)
    };
    let runs = each_by_seed(&points(sizes, steps), seeds, run_one)?;
    let runs = runs.into_iter().map(|(point, values)| IsolBenchRuns {
        point,
        pass_ns: values.iter().map(|[pass, _]| *pass).collect(),
        rows_closed: values.iter().map(|[_, closed]| closed).sum(),
    });
    let measured = IsolBenchFigures { runs: runs.collect() };
    let file = picture(sizes, &measured).write(request.directory.join("fig5.svg"))?;
    Ok(ExperimentOutcome {
        text: format!("{}\n\n{NOTES}", printed(&measured.cells())),
        statements: stated(sizes, steps, &measured),
        json: figures(measured),
        files: vec![file],
    })
}

const NOTES: &str = "Gain of speed over shared memory in percent: mean of the seeds with the least \
                     and the greatest. A load reads a word of the core, one a cycle at \
                     most: the paper prints no step, and this one was chosen by its gain.\nThe last \
                     columns have other steps, next to a VM that writes.\n";

const fn main_point(stressor: Stressor, division: Division) -> IsolBenchPoint {
    IsolBenchPoint { kib: 0, step: Step::Words, stressor, division }
}

fn stated(sizes: &[u64], steps: &[Step], measured: &IsolBenchFigures) -> Vec<Statement> {
    let mut all = Vec::new();
    for stressor in Stressor::BOTH {
        let name = stressor.name();
        let point = |division| main_point(stressor, division);
        let mean = |division| measured.mean_gain(sizes, point(division)).mean;
        for &kib in sizes {
            let gain = measured.gain(IsolBenchPoint { kib, ..point(Division::Banks) });
            all.extend(statements![
                FIGURE_5, "gain-{name}-{kib}",
                "{kib} KiB next to a VM that {name}: separate banks make the program faster: by"
                    => Above(0.0), [gain.mean], "%";
            ]);
        }
        let gain = statements![
            FIGURE_5, "mean-{name}",
            "next to a VM that {name}, separate banks make the program faster in the mean of the \
             sizes: by"
                => Near(GAIN, NEAR), [mean(Division::Banks)], "%";
        ];
        all.extend(gain.into_iter().map(|one| one.fitted(STEP)));
        let wide = |division| measured.mean_gain(&ENDS, point(division)).mean;
        all.extend(statements![
            WEIR, "colors-{name}",
            "next to a VM that {name}, separate colors with shared banks gain as much as separate \
             banks: apart by"
                => AtMost(0.1), [(mean(Division::Banks) - mean(Division::Colors)).abs()], "%";
            WEIR, "wide-{name}",
            "next to a VM that {name}, separate banks with a shared L2 gain a part of what the \
             board's separate banks gain (16 and 128 KiB)"
                => AtMost(0.5), [wide(Division::BanksWide) / wide(Division::Banks)];
            DESIGN, "rows-{name}",
            "next to a VM that {name}, with separate banks no VM closes a row of the other"
                => Relation::exactly(0.0), [measured.rows_closed(sizes, point(Division::Banks))];
            WEIR, "rows-shared-{name}",
            "next to a VM that {name}, in shared memory the VMs close rows of each other"
                => AtLeast(1000.0), [measured.rows_closed(sizes, point(Division::Shared))];
        ]);
    }
    let quiet = measured.mean_gain(sizes, main_point(Stressor::Idle, Division::Banks)).mean;
    all.extend(statements![
        OVERHEAD, "no-overhead",
        "alone the program is as fast with separate banks: apart by"
            => AtMost(0.1), [quiet.abs()], "%";
    ]);
    for (step, id, relation) in [
        (Step::HalfWords, "half-words", AtMost(GAIN - NEAR)),
        (Step::Lines, "lines", AtLeast(GAIN + NEAR)),
    ] {
        if steps.contains(&step) {
            let point = IsolBenchPoint { step, ..main_point(Stressor::Writes, Division::Banks) };
            let (gain, step) = (measured.mean_gain(&ENDS, point).mean, step.name());
            all.extend(statements![
                WEIR, "{id}",
                "the gain depends on the step, which the paper does not print: with {step}, next to \
                 a VM that writes (16 and 128 KiB)"
                    => relation, [gain], "%";
            ]);
        }
    }
    all
}

impl IsolBenchFigures {
    /// Returns the sizes of the data.
    fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<_> = self.runs.iter().map(|runs| runs.point.kib).collect();
        sizes.dedup();
        sizes
    }

    /// Returns the rows of the table of gains: the header, a row for each size, and the mean.
    #[must_use]
    pub fn cells(&self) -> Vec<Vec<String>> {
        let sizes = self.sizes();
        let columns = columns();
        let columns = || columns.iter().filter(|(_, point)| self.has(&sizes, *point));
        let row = |name: String, gain: &dyn Fn(IsolBenchPoint) -> Spread| {
            let cells = columns().map(|(_, point)| gain(*point).text(2));
            std::iter::once(name).chain(cells).collect::<Vec<_>>()
        };
        let names = columns().map(|(name, _)| name.clone());
        let mut all = vec![std::iter::once("data, KiB".to_owned()).chain(names).collect()];
        all.extend(
            sizes.iter().map(|&kib| {
                row(kib.to_string(), &|point| self.gain(IsolBenchPoint { kib, ..point }))
            }),
        );
        all.push(row("mean".to_owned(), &|point| self.mean_gain(&sizes, point)));
        all
    }

    /// Returns whether a point was run with one of the sizes.
    fn has(&self, sizes: &[u64], point: IsolBenchPoint) -> bool {
        sizes.iter().any(|&kib| self.of(IsolBenchPoint { kib, ..point }).is_some())
    }
}

/// The columns of the table: name and point, of any size.
fn columns() -> Vec<(String, IsolBenchPoint)> {
    let mut all = Vec::new();
    for stressor in Stressor::BOTH {
        for division in [Division::Banks, Division::Colors, Division::BanksWide] {
            let name = format!("{}, other VM {}", division.name(), stressor.name());
            all.push((name, main_point(stressor, division)));
        }
    }
    for step in [Step::HalfWords, Step::Lines] {
        let point = main_point(Stressor::Writes, Division::Banks);
        all.push((
            format!("separate banks, {} a load", step.name()),
            IsolBenchPoint { step, ..point },
        ));
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn picture(sizes: &[u64], measured: &IsolBenchFigures) -> Picture<'static> {
    let x = |kib: u64| kib as f64;
    let mut lines = Vec::new();
    for stressor in Stressor::BOTH {
        let gain =
            |kib, division| measured.gain(IsolBenchPoint { kib, ..main_point(stressor, division) });
        let banks: Vec<_> = sizes.iter().map(|&kib| (x(kib), gain(kib, Division::Banks))).collect();
        let name = format!("separate banks, other VM {}", stressor.name());
        lines.extend(with_band(&name, &banks));
    }
    let middle = sizes.iter().map(|&kib| x(kib)).sum::<f64>() / x(sizes.len() as u64);
    lines.push(("published, mean of the sizes".to_owned(), vec![(middle, GAIN)]));
    Picture { x: "data, KiB", y: "gain of speed, %", lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    /// Returns values like those of the model.
    #[expect(clippy::cast_precision_loss, reason = "small sizes")]
    fn good() -> IsolBenchFigures {
        let runs = points(&SIZES, &Step::ALL).into_iter().map(|point| {
            let kib = point.kib as f64;
            let gain = (kib - 8.0) / 64.0
                * match (point.stressor, point.step) {
                    (Stressor::Idle, _) => 0.0,
                    (_, Step::Words) => 1.2,
                    (_, Step::HalfWords) => 0.2,
                    (_, Step::Lines) => 5.0,
                };
            let slower = match point.division {
                Division::Shared | Division::SharedWide => gain,
                Division::BanksWide => 0.8 * gain,
                Division::Banks | Division::Colors => 0.0,
            };
            let is_disturbed = point.division == Division::Shared;
            IsolBenchRuns {
                point,
                pass_ns: vec![80.0 * kib * (1.0 + slower / 100.0)],
                rows_closed: if is_disturbed { 140.0 } else { 0.0 },
            }
        });
        IsolBenchFigures { runs: runs.collect() }
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(
            &good(),
            &[],
            |measured| stated(&SIZES, &Step::ALL, measured),
            |measured| {
                let values = measured.runs.iter_mut().flat_map(|runs| {
                    let IsolBenchRuns { pass_ns, rows_closed, .. } = runs;
                    pass_ns.iter_mut().chain([rows_closed])
                });
                values.map(|value| value as &mut dyn Change).collect()
            },
        );
    }

    #[test]
    fn a_time_that_was_not_measured_fails() {
        let mut measured = good();
        let lost = IsolBenchPoint { kib: 48, ..main_point(Stressor::Reads, Division::Banks) };
        measured.runs.retain(|runs| runs.point != lost);
        let statements = stated(&SIZES, &Step::ALL, &measured);
        let failing = statements.iter().filter(|one| !one.relation.holds(&one.own));
        let failing: Vec<_> = failing.map(|one| one.id.as_str()).collect();
        assert_eq!(failing, ["gain-reads-48", "mean-reads", "colors-reads", "rows-reads"]);
    }
}
