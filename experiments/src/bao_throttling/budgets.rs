//! bao-throttling, section 4.3: programs of a benchmark suite next to a guest with three cores that
//! read and write more than the L2 holds.
//!
//! The thesis gives these figures without numbers: the statements of its text about them are
//! checked. Budgets count BUS_ACCESS, here in lines, for each core.

use super::{MEMORY, PAPER};
use crate::memory::{board, each, simulate};
use crate::{
    ExperimentOutcome, ExperimentRequest,
    statement::{
        ClaimSource, Deviation,
        Relation::{AtLeast, AtMost, Below, Near, RisingBy},
        Statement, statements,
    },
};
use serde_json::{Value, json};
use std::fmt::Write as _;
use weir_image::{Failure, Result};
use weir_report::{Picture, table};
use weir_simulator::SimulatedBoard;

/// Programs that need the L2, and one that does not, with both of its inputs.
const PROGRAMS: [&str; 4] =
    ["qsort-large", "susan-edges-large", "bitcount-small", "bitcount-large"];
/// Its data is larger than its half of the L2: colors cost it more than they gain where the budget
/// is low.
const TOO_LARGE: &str = "qsort-large";
/// The program of a quick call, and its budgets.
const QUICK: ([&str; 1], [u64; 2]) = (["susan-edges-large"], [4000, 15_000]);
const INSENSITIVE: [&str; 2] = ["bitcount-small", "bitcount-large"];
/// Budgets of each core in a millisecond; those of other periods are in proportion.
const BUDGETS: [u64; 3] = [1000, 4000, 15_000];
const PERIODS_US: [u64; 3] = [100, 1000, 10_000];
/// A whole number of all periods.
const WARM_UP_US: u64 = 10_000;
const LENGTH_US: u64 = 50_000;
/// Of a quick call.
const QUICK_LENGTH_US: u64 = 30_000;
/// Periods make no difference if what they add to the time of the program alone differs by less
/// than this share of that time.
const SAME: f64 = 0.06;
/// Times that differ by less than this share are a tie: it is what is printed of them.
const TIED: f64 = 0.001;
/// "Significantly", "more": at least by this, in times of the program alone. It is what random
/// replacement may add.
const MORE: f64 = 0.01;

const FIGURE_4_7: ClaimSource = PAPER.at("4.3.2, Figure 4.7");
const FIGURE_4_8: ClaimSource = PAPER.at("4.3.2, Figure 4.8");
const FIGURE_4_9: ClaimSource = PAPER.at("4.3.2, Figure 4.9");
const FIGURE_4_10: ClaimSource = PAPER.at("4.3.2, Figure 4.10");
const WEIR: ClaimSource = ClaimSource::own("docs/explanation/simulation.md");
const FIGURE_4_13: ClaimSource = PAPER.at("4.3.2, Figure 4.13");

/// The known deviations, each with the values of the model.
pub static DEVIATIONS: [Deviation; 3] = [
    Deviation {
        id: "streams-in-step",
        reason: "the memory stressor's three cores walk through their arrays from line to line and \
                 begin together in each period, so that in the model they stay in step and meet in \
                 the same banks, the more the shorter the period; with lines in random order they \
                 do not",
        tested_by: &[
            "out-of-step-qsort-large-4000",
            "out-of-step-qsort-large-15000",
            "out-of-step-susan-edges-large-4000",
            "out-of-step-susan-edges-large-15000",
            "out-of-step-budgets-qsort-large-100",
            "out-of-step-budgets-susan-edges-large-100",
        ],
        of: &[
            ("periods-qsort-large-4000", Near(0.125, 0.02)),
            ("periods-qsort-large-15000", Near(0.223, 0.03)),
            ("periods-susan-edges-large-4000", Near(0.083, 0.02)),
            ("periods-susan-edges-large-15000", Near(0.137, 0.03)),
            ("periods-colors-susan-edges-large-15000", Near(0.152, 0.03)),
            ("budgets-qsort-large-100", Near(-0.074, 0.03)),
            ("budgets-susan-edges-large-100", Near(-0.004, 0.01)),
        ],
    },
    Deviation {
        id: "half-is-too-small",
        reason: "the program's 1.2 MB do not fit its half of the L2: colors cost it more than they \
                 gain where the budget is low; a program that fits its half gains by both",
        tested_by: &[
            "together-budget-susan-edges-large-1000",
            "together-budget-susan-edges-large-4000",
        ],
        of: &[
            ("together-budget-qsort-large-1000", Near(1.145, 0.03)),
            ("together-budget-qsort-large-4000", Near(1.049, 0.02)),
        ],
    },
    Deviation {
        id: "short-recordings",
        reason: "the recording of the small input has 50,000 accesses, so that the first touches of \
                 its process are half of its time; in the longer one of the large input they are not",
        tested_by: &["insensitive-bitcount-large"],
        of: &[("insensitive-bitcount-small", Near(0.962, 0.05))],
    },
];

/// A run: the program, what of the memory stressor's budgets (in a millisecond) and periods, and
/// whether colors are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    program: &'static str,
    stressor: bool,
    colors: bool,
    /// Budget in a millisecond, and the period in us.
    budget: Option<(u64, u64)>,
    /// The memory stressor goes from line to line, or else to lines in random order.
    in_step: bool,
}

fn points(programs: &[&'static str], budgets: &[u64]) -> Vec<Point> {
    let mut all = Vec::new();
    for &program in programs {
        let point =
            |stressor, colors, budget| Point { program, stressor, colors, budget, in_step: true };
        for colors in [false, true] {
            all.push(point(false, colors, None));
            all.push(point(true, colors, None));
        }
        if INSENSITIVE.contains(&program) {
            continue;
        }
        let out_of_step = |budget| Point { in_step: false, ..point(true, false, budget) };
        all.push(out_of_step(None));
        for &budget in budgets {
            for period in PERIODS_US {
                all.push(point(true, false, Some((budget, period))));
                all.push(out_of_step(Some((budget, period))));
                if program != TOO_LARGE || period == 1000 {
                    all.push(point(true, true, Some((budget, period))));
                }
            }
        }
    }
    all
}

/// The thesis's stressor, and one whose cores do not go from line to line.
const IN_STEP: &str = "kind = \"read-write\"";
const OUT_OF_STEP: &str = "kind = \"profile\", phases = [{ accesses = 60000, writes = 50 }]";

fn of(point: Point) -> Result<SimulatedBoard> {
    let bandwidth = point.budget.map_or(String::new(), |(budget, period)| {
        format!(
            "memory_budget = {{ accesses = {}, period = \"{period}us\", event = \"bus-access\", \
             scope = \"vcpu\", overcommit = true }}\n",
            budget * period / 1000
        )
    });
    let text = format!(
        "platform = \"zcu104\"\n[hypervisor]\ncolors = \"14-15\"\n[[vm]]\nname = \"linux\"\n\
         cpus = [0]\nmemory = \"8MiB\"\ncolors = \"0-6\"\nimage = {{ elf = \"memory-stressor\" }}\n\
         workload = {{ kind = \"kernel\", kernel = \"{}\" }}\n[[vm]]\nname = \"memory-stressor\"\n\
         cpus = [1, 2, 3]\nmemory = \"8MiB\"\ncolors = \"7-13\"\n\
         image = {{ elf = \"memory-stressor\" }}\n\
         workload = {{ {}, size = \"2056KiB\" }}\n{bandwidth}",
        point.program,
        if point.in_step { IN_STEP } else { OUT_OF_STEP }
    );
    let board = board(&text, MEMORY, &[])?;
    let board = if point.colors { board } else { board.undivided() };
    Ok(if point.stressor { board } else { board.alone(0) })
}

/// Time of the program, in ps.
fn run_one(point: Point, quick: bool) -> Result<f64> {
    let length = if quick { QUICK_LENGTH_US } else { LENGTH_US };
    let outcome = simulate(&of(point)?, 1, WARM_UP_US, length)?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let pass = outcome.vms[0].pass.map(|pass| pass.0 as f64);
    pass.ok_or_else(|| Failure::system(format!("{} does not end", point.program)))
}

#[derive(Clone, Debug)]
struct Table {
    points: Vec<Point>,
    times: Vec<f64>,
}

impl Table {
    /// Time of a program relative to its own alone without colors.
    fn time(&self, point: Point) -> f64 {
        let at = |wanted: Point| {
            let at = self.points.iter().position(|point| *point == wanted);
            at.map_or(f64::NAN, |at| self.times[at])
        };
        let alone = Point { stressor: false, colors: false, budget: None, in_step: true, ..point };
        at(point) / at(alone)
    }

    fn with(&self, program: &'static str, colors: bool, budget: Option<(u64, u64)>) -> f64 {
        self.time(Point { program, stressor: true, colors, budget, in_step: true })
    }

    /// Next to a stressor whose cores are out of step.
    fn out_of_step(&self, program: &'static str, budget: Option<(u64, u64)>) -> f64 {
        let point = Point { program, stressor: true, colors: false, budget, in_step: false };
        self.time(point)
    }
}

/// The whole experiment.
pub fn budgets(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let (programs, budgets) =
        if request.quick { (&QUICK.0[..], &QUICK.1[..]) } else { (&PROGRAMS[..], &BUDGETS[..]) };
    let points = points(programs, budgets);
    let measured = each(&points, |point| run_one(*point, request.quick))?;
    let all = Table { points, times: measured };
    let statements = stated(programs, budgets, &all);
    let lines =
        programs.iter().filter(|program| !INSENSITIVE.contains(program)).flat_map(|program| {
            [false, true].map(|colors| {
                #[expect(clippy::cast_precision_loss, reason = "small counts")]
                let line = budgets
                    .iter()
                    .map(|b| (*b as f64, all.with(program, colors, Some((*b, 1000)))));
                let name = if colors { "budget and colors" } else { "budget" };
                (format!("{program}, {name}"), line.collect())
            })
        });
    let picture =
        Picture { x: "budget of each core in 1 ms", y: "time, alone = 1", lines: lines.collect() };
    let file = picture.write(request.directory.join("budgets.svg"))?;
    Ok(ExperimentOutcome {
        json: json!({ "times": times(&all) }),
        text: format!("{}\n\n{NOTES}", tables(programs, budgets, &all)),
        statements,
        files: vec![file],
    })
}

const NOTES: &str = "Time of each program, alone and without colors = 1. Nothing was fitted to \
                     these figures, for which the thesis prints no numbers; the programs are\n\
                     weir's own, with estimated instructions between their accesses, so that sizes \
                     of overheads are not comparable. qsort-large's 1.2 MB\ndon't fit its half of \
                     the L2: colors alone make it slower, and where the budget is low they add \
                     that to what the budget leaves.\n";

/// The statements of the thesis' text about its figures, which print no numbers.
fn stated(programs: &[&'static str], budgets: &[u64], all: &Table) -> Vec<Statement> {
    let needy = || programs.iter().copied().filter(|program| !INSENSITIVE.contains(program));
    let mut statements: Vec<_> =
        needy().flat_map(|program| of_program(program, budgets, all)).collect();
    let least = needy().map(|program| all.with(program, false, None)).fold(f64::NAN, f64::min);
    for program in INSENSITIVE.into_iter().filter(|program| programs.contains(program)) {
        let own = all.with(program, false, None);
        statements.extend(statements![
            FIGURE_4_7, "insensitive-{program}",
            "{program} is affected far less than the others: share of the least of theirs"
                => AtMost(0.25), [(own - 1.0) / (least - 1.0)];
        ]);
    }
    if INSENSITIVE.iter().all(|program| programs.contains(program)) {
        let [small, large] = INSENSITIVE.map(|program| all.with(program, false, None));
        statements.extend(statements![
            FIGURE_4_7, "small-inputs",
            "bitcount suffers more with its small input than with its large one: by"
                => AtLeast(MORE), [small - large];
        ]);
    }
    statements
}

/// The share by which the greatest of these times is longer than the least; no number if one was
/// not measured, which `min` and `max` pass over.
fn spread(times: [f64; 3]) -> f64 {
    if times.iter().any(|time| time.is_nan()) {
        return f64::NAN;
    }
    let most = times.into_iter().fold(f64::NAN, f64::max);
    most / times.into_iter().fold(f64::NAN, f64::min) - 1.0
}

/// The statements on periods of one bandwidth, and on budgets at one period.
fn of_periods(program: &'static str, budgets: &[u64], all: &Table) -> Vec<Statement> {
    let mut statements = Vec::new();
    for &budget in budgets {
        let times = PERIODS_US.map(|period| all.out_of_step(program, Some((budget, period))));
        let shown = times.map(|time| format!("{time:.3}")).join(", ");
        statements.extend(statements![
            WEIR, "out-of-step-{program}-{budget}",
            "{program}, stressors out of step: the same bandwidth ({budget} a ms) at periods of \
             0.1, 1 and 10 ms gives the same overhead ({shown}): spread"
                => AtMost(SAME), [spread(times)];
        ]);
    }
    // `min` passes over what is no number.
    let least_step = |time: &dyn Fn(Option<(u64, u64)>) -> f64, period| {
        let each = budgets.iter().map(|budget| Some((*budget, period))).chain([None]).map(time);
        let each: Vec<f64> = each.collect();
        let steps = each.windows(2).map(|pair| pair[1] - pair[0]);
        if each.iter().any(|time| time.is_nan()) {
            f64::NAN
        } else {
            steps.fold(f64::NAN, f64::min)
        }
    };
    for period in PERIODS_US {
        let in_step = least_step(&|budget| all.with(program, false, budget), period);
        let out_of_step = least_step(&|budget| all.out_of_step(program, budget), period);
        statements.extend(statements![
            FIGURE_4_8, "budgets-{program}-{period}",
            "{program}, period of {period} us: the lower the budget ({budgets:?}, none), the lower \
             the overhead: least step"
                => AtLeast(MORE), [in_step];
            WEIR, "out-of-step-budgets-{program}-{period}",
            "{program}, period of {period} us, stressors out of step: the lower the budget \
             ({budgets:?}, none), the lower the overhead: least step"
                => AtLeast(MORE), [out_of_step];
        ]);
    }
    statements
}

fn of_program(program: &'static str, budgets: &[u64], all: &Table) -> Vec<Statement> {
    let time = |colors, budget| all.with(program, colors, budget);
    let mut statements = of_periods(program, budgets, all);
    for &budget in budgets {
        for colors in [false, true] {
            if colors && program == TOO_LARGE {
                continue;
            }
            let times = PERIODS_US.map(|period| time(colors, Some((budget, period))));
            let shown = times.map(|time| format!("{time:.3}")).join(", ");
            let (source, id, with) = if colors {
                (FIGURE_4_10, "periods-colors", ", with colors")
            } else {
                (FIGURE_4_8, "periods", "")
            };
            statements.extend(statements![
                source, "{id}-{program}-{budget}",
                "{program}{with}: the same bandwidth ({budget} a ms) at periods of 0.1, 1 and 10 \
                 ms gives the same overhead ({shown}): spread"
                    => AtMost(SAME), [spread(times)];
            ]);
        }
    }
    let interf = time(false, None);
    let colors = time(true, None);
    let alone =
        all.time(Point { program, stressor: false, colors: true, budget: None, in_step: true });
    let with_budget = |colors| move |budget: &u64| time(colors, Some((*budget, 1000)));
    statements.extend(statements![
        FIGURE_4_7, "colors-{program}",
        "{program}: colors alone reduce the interference significantly: by"
            => AtLeast(MORE), [interf - colors];
        FIGURE_4_7, "solo-colors-{program}", "{program} alone takes longer with colors: by"
            => AtLeast(MORE), [alone - 1.0];
    ]);
    for &budget in budgets {
        let (both, alone) = (time(true, Some((budget, 1000))), time(false, Some((budget, 1000))));
        for (id, what, other) in
            [("budget", "the budget alone", alone), ("colors", "colors alone", colors)]
        {
            statements.extend(statements![
                FIGURE_4_9, "together-{id}-{program}-{budget}",
                "{program}: colors and a budget of {budget} a ms together beat {what}: share of \
                 its time"
                    => Below(1.0 - TIED), [both / other];
            ]);
        }
    }
    if let Some(most) = budgets.iter().copied().max().filter(|_| budgets.len() > 1) {
        let gap = |budget: &u64| with_budget(false)(budget) - with_budget(true)(budget);
        statements.extend(statements![
            FIGURE_4_9, "high-budget-{program}",
            "{program}: a budget of {most} a ms alone is worse than colors alone: by"
                => AtLeast(MORE), [time(false, Some((most, 1000))) - colors];
            FIGURE_4_13, "gap-{program}",
            "{program}: what colors add to a budget grows with it ({budgets:?})"
                => RisingBy(MORE), budgets.iter().map(gap).collect::<Vec<_>>();
        ]);
    }
    statements
}

fn tables(programs: &[&'static str], budgets: &[u64], all: &Table) -> String {
    let mut columns =
        vec![String::new(), "solo-col".to_owned(), "interf".to_owned(), "interf-col".to_owned()];
    for budget in budgets {
        columns.extend(PERIODS_US.map(|period| format!("{budget}/ms\n{period} us")));
        columns.push(format!("{budget}/ms\ncol"));
    }
    let mut rows = table(columns);
    for &program in programs {
        let alone =
            all.time(Point { program, stressor: false, colors: true, budget: None, in_step: true });
        let mut row = vec![program.to_owned()];
        let mut add = |time: f64| {
            row.push(if time.is_nan() { "-".to_owned() } else { format!("{time:.2}") });
        };
        add(alone);
        add(all.with(program, false, None));
        add(all.with(program, true, None));
        for &budget in budgets {
            for period in PERIODS_US {
                add(all.with(program, false, Some((budget, period))));
            }
            add(all.with(program, true, Some((budget, 1000))));
        }
        rows.add_row(row);
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(text, "{rows}");
    text
}

fn times(all: &Table) -> Value {
    let each = all.points.iter().map(|point| {
        json!({
            "program": point.program,
            "stressor": point.stressor,
            "colors": point.colors,
            "budget_in_1_ms": point.budget.map(|(budget, _)| budget),
            "in_step": point.in_step,
            "period_us": point.budget.map(|(_, period)| period),
            "time": all.time(*point),
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    /// Returns the model's values.
    fn good() -> Table {
        let points = points(&PROGRAMS, &BUDGETS);
        let time = |point: &Point| {
            let of = |qsort: f64, susan: f64| match point.program {
                "bitcount-small" if point.stressor => 1.490,
                "bitcount-large" if point.stressor => 1.111,
                "bitcount-small" | "bitcount-large" => 1.0,
                TOO_LARGE => qsort,
                _ => susan,
            };
            let out_of_step = |of: &dyn Fn(f64, f64) -> f64| match point.budget {
                None => of(1.960, 1.557),
                Some((1000, _)) => of(1.060, 1.030),
                Some((4000, 10_000)) => of(1.139, 1.077),
                Some((4000, _)) => of(1.185, 1.115),
                Some((_, 10_000)) => of(1.484, 1.281),
                Some(_) => of(1.541, 1.328),
            };
            if !point.in_step {
                return out_of_step(&of);
            }
            match (point.stressor, point.colors, point.budget) {
                (false, false, _) => 1.0,
                (false, true, _) => of(1.204, 1.017),
                (true, false, None) => of(1.825, 1.509),
                (true, true, None) => of(1.536, 1.221),
                (true, true, Some((1000, 10_000))) => of(1.232, 1.023),
                (true, true, Some((1000, _))) => of(1.232, 1.032),
                (true, true, Some((4000, 100))) => of(1.299, 1.088),
                (true, true, Some((4000, 1000))) => of(1.299, 1.067),
                (true, true, Some((4000, _))) => of(1.299, 1.054),
                (true, true, Some((_, 100))) => of(1.507, 1.335),
                (true, true, Some((_, 1000))) => of(1.507, 1.169),
                (true, true, Some(_)) => of(1.507, 1.158),
                (true, false, Some((1000, 10_000))) => of(1.058, 1.024),
                (true, false, Some((1000, 1000))) => of(1.076, 1.048),
                (true, false, Some((1000, _))) => of(1.081, 1.048),
                (true, false, Some((4000, 100))) => of(1.278, 1.164),
                (true, false, Some((4000, 1000))) => of(1.238, 1.132),
                (true, false, Some((4000, _))) => of(1.137, 1.075),
                (true, false, Some((_, 100))) => of(1.899, 1.513),
                (true, false, Some((_, 1000))) => of(1.623, 1.372),
                (true, false, Some(_)) => of(1.553, 1.330),
            }
        };
        let times = points.iter().map(time).collect();
        Table { points, times }
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(
            &good(),
            &DEVIATIONS,
            |all| stated(&PROGRAMS, &BUDGETS, all),
            |all| all.times.iter_mut().map(|time| time as &mut dyn Change).collect(),
        );
    }

    #[test]
    fn a_time_that_was_not_measured_fails() {
        let mut all = good();
        let lost = |p: &Point| p.budget == Some((15_000, 100)) && !p.colors && p.in_step;
        let place = all.points.iter().position(lost);
        all.times[place.expect("a point")] = f64::NAN;
        let failing: Vec<_> = stated(&PROGRAMS, &BUDGETS, &all)
            .into_iter()
            .filter(|statement| statement.own.iter().any(|own| own.is_nan()))
            .map(|statement| statement.id)
            .collect();
        assert_eq!(failing, ["budgets-qsort-large-100", "periods-qsort-large-15000"]);
    }
}
