//! bao-throttling, section 4.3: programs of a benchmark suite beside a guest whose three cores read and write more than the L2 holds.
//!
//! The thesis gives these figures without numbers: what its text says of them is checked. Budgets count BUS_ACCESS, here in lines, for each
//! core.

use super::{Statement, board, outcome, simulate, with};
use crate::{
    failure::{Failure, Result},
    picture::Picture,
    progress::Bar,
    reproduce::{Outcome, Request},
    run::show::table,
};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write as _;
use weir_sim::Board;

const MEMORY: &str = "zcu104";
/// Programs that need the L2, and one that does not.
const PROGRAMS: [&str; 3] = ["qsort-large", "susan-edges-large", "bitcount-small"];
/// Its data is larger than its half of the L2: colors cost it more than they gain where the budget is low.
const TOO_LARGE: &str = "qsort-large";
/// The program of a quick call, and its budget.
const QUICK: ([&str; 1], [u64; 1]) = (["susan-edges-large"], [4000]);
/// Why periods matter to the model, and colors to that program.
const PERIODS: &str = "in the model a program brings its lines back into the L2 in the hog's pauses, and gains more from few long ones";
const HALF: &str = "the program's 1.2 MB don't fit its half of the L2";
const TIE: &str = "colors alone leave the hog nothing to slow such a program by in the model, so that a budget can add nothing to them";
const INSENSITIVE: &str = "bitcount-small";
/// Budgets of each core in a millisecond; those of other periods are in proportion.
const BUDGETS: [u64; 3] = [1000, 4000, 15_000];
const PERIODS_US: [u64; 3] = [100, 1000, 10_000];
/// A whole number of all periods.
const WARM_UP_US: u64 = 10_000;
const LENGTH_US: u64 = 50_000;
/// Of a quick call.
const QUICK_LENGTH_US: u64 = 30_000;
/// Periods make no difference if what they add to the time of the program alone differs by less than this share of that time.
const SAME: f64 = 0.06;
/// The same with colors, where nothing else is left that could differ: less than rounding.
const SAME_WITH_COLORS: f64 = 0.005;
/// Times that differ by less than this share are a tie: it is what is printed of them.
const TIED: f64 = 0.001;
/// What rounding and random replacement may add.
const NOISE: f64 = 0.01;

/// A run: the program, what of the hog's budgets (in a millisecond) and periods, and whether colors are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    program: &'static str,
    hog: bool,
    colors: bool,
    /// Budget in a millisecond, and the period in us.
    budget: Option<(u64, u64)>,
}

fn points(programs: &[&'static str], budgets: &[u64]) -> Vec<Point> {
    let mut all = Vec::new();
    for &program in programs {
        let point = |hog, colors, budget| Point { program, hog, colors, budget };
        for colors in [false, true] {
            all.push(point(false, colors, None));
            all.push(point(true, colors, None));
        }
        if program == INSENSITIVE {
            continue;
        }
        for &budget in budgets {
            for period in PERIODS_US {
                all.push(point(true, false, Some((budget, period))));
                if program != TOO_LARGE || period == 1000 {
                    all.push(point(true, true, Some((budget, period))));
                }
            }
        }
    }
    all
}

fn of(point: Point) -> Result<Board> {
    let bandwidth = point.budget.map_or(String::new(), |(budget, period)| {
        format!(
            "bandwidth = {{ budget = {}, period = \"{period}us\", event = \"bus-access\", scope = \"vcpu\", overcommit = true }}\n",
            budget * period / 1000
        )
    });
    let text = format!(
        "platform = \"zcu104\"\n[hypervisor]\ncolors = \"14-15\"\n\
         [[vm]]\nname = \"linux\"\ncpus = [0]\nmemory = \"8MiB\"\ncolors = \"0-6\"\nimage = {{ elf = \"guests/hog\" }}\n\
         workload = {{ kind = \"kernel\", kernel = \"{}\" }}\n\
         [[vm]]\nname = \"hog\"\ncpus = [1, 2, 3]\nmemory = \"8MiB\"\ncolors = \"7-13\"\nimage = {{ elf = \"guests/hog\" }}\n\
         workload = {{ kind = \"read-write\", size = \"2056KiB\" }}\n{bandwidth}",
        point.program
    );
    let board = board(&text, MEMORY, &[])?;
    let board = if point.colors { board } else { board.undivided() };
    Ok(if point.hog { board } else { board.alone(0) })
}

/// Time of the program, in ps.
fn run_one(point: Point, quick: bool) -> Result<u64> {
    let length = if quick { QUICK_LENGTH_US } else { LENGTH_US };
    let outcome = simulate(&of(point)?, WARM_UP_US, length)?;
    let pass = outcome.vms[0].pass.map(|pass| pass.0);
    pass.ok_or_else(|| Failure::system(format!("{} does not end", point.program)))
}

struct Table {
    points: Vec<Point>,
    times: Vec<u64>,
}

impl Table {
    /// Time of a program relative to its own alone without colors.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn time(&self, point: Point) -> f64 {
        let at = |wanted: Point| {
            let at = self.points.iter().position(|point| *point == wanted);
            at.map_or(f64::NAN, |at| self.times[at] as f64)
        };
        at(point) / at(Point { hog: false, colors: false, budget: None, ..point })
    }

    fn with(&self, program: &'static str, colors: bool, budget: Option<(u64, u64)>) -> f64 {
        self.time(Point { program, hog: true, colors, budget })
    }
}

/// The whole experiment.
pub fn budgets(request: &Request) -> Result<Outcome> {
    let (programs, budgets) =
        if request.quick { (&QUICK.0[..], &QUICK.1[..]) } else { (&PROGRAMS[..], &BUDGETS[..]) };
    let points = points(programs, budgets);
    let bar = Bar::new("simulating", points.len() as u64);
    let measured = points
        .par_iter()
        .map(|point| {
            let result = run_one(*point, request.quick);
            bar.add(1);
            result
        })
        .collect::<Result<_>>()?;
    drop(bar);
    let all = Table { points, times: measured };
    let mut statements = Vec::new();
    for &program in programs.iter().filter(|program| **program != INSENSITIVE) {
        statements.extend(said_of(program, budgets, &all));
    }
    if !request.quick {
        statements.push(insensitive(&all));
    }
    let lines = programs.iter().filter(|program| **program != INSENSITIVE).flat_map(|program| {
        [false, true].map(|colors| {
            #[expect(clippy::cast_precision_loss, reason = "small counts")]
            let line =
                budgets.iter().map(|b| (*b as f64, all.with(program, colors, Some((*b, 1000)))));
            let name = if colors { "budget and colors" } else { "budget" };
            (format!("{program}, {name}"), line.collect())
        })
    });
    let picture =
        Picture { x: "budget of each core in 1 ms", y: "time, alone = 1", lines: lines.collect() };
    let file = picture.write(request.directory.join("budgets.svg"))?;
    let mut out = outcome(&request.directory, "budgets", &[], &statements, NOTES)?;
    out.text = format!("{}\n{}", tell(programs, budgets, &all), out.text);
    out.files.push(file);
    Ok(with(out, "times", times(&all)))
}

const NOTES: &str = "Time of each program, alone and without colors = 1. Nothing was fitted to these figures, for which the thesis prints no numbers; the programs are\n\
                     weir's own, with estimated instructions between their accesses, so that sizes of overheads are not comparable. qsort-large's 1.2 MB\n\
                     don't fit its half of the L2: colors alone make it slower, and where the budget is low they add that to what the budget leaves.\n";

/// The same bandwidth at all periods: what the thesis says, and the same with colors, which leave the periods nothing to make a
/// difference by.
fn periods(program: &'static str, budget: u64, all: &Table) -> Vec<Statement> {
    let of = |colors: bool, with: &str, share: f64, differs| {
        let times = PERIODS_US.map(|period| all.with(program, colors, Some((budget, period))));
        let (least, most) =
            (times.into_iter().fold(f64::MAX, f64::min), times.into_iter().fold(0.0, f64::max));
        Statement {
            what: format!(
                "{program}{with}: the same bandwidth ({budget} a ms) at periods of 0.1, 1 and 10 ms gives the same overhead"
            ),
            found: times.map(|time| format!("{time:.3}")).join(", "),
            holds: Some(most - least <= share * least),
            differs,
        }
    };
    let mut statements = vec![of(false, "", SAME, Some(PERIODS))];
    if program != TOO_LARGE {
        statements.push(of(true, ", with colors", SAME_WITH_COLORS, None));
    }
    statements
}

fn said_of(program: &'static str, budgets: &[u64], all: &Table) -> Vec<Statement> {
    let time = |colors, budget| all.with(program, colors, budget);
    let interf = time(false, None);
    let mut statements = Vec::new();
    for &budget in budgets {
        statements.extend(periods(program, budget, all));
    }
    let by_budget: Vec<f64> =
        budgets.iter().map(|b| time(false, Some((*b, 1000)))).chain([interf]).collect();
    statements.push(Statement {
        what: format!(
            "{program}: the lower the budget, the lower the overhead, and lower than without one"
        ),
        found: by_budget.iter().map(|time| format!("{time:.3}")).collect::<Vec<_>>().join(", "),
        holds: Some(by_budget.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + NOISE))),
        differs: None,
    });
    let colors = time(true, None);
    statements.push(Statement {
        what: format!("{program}: colors alone reduce the interference"),
        found: format!("{colors:.3} for {interf:.3}"),
        holds: Some(colors < interf),
        differs: None,
    });
    let both: Vec<_> = budgets
        .iter()
        .map(|b| (time(true, Some((*b, 1000))), time(false, Some((*b, 1000)))))
        .collect();
    statements.push(together(program, budgets, &both, colors));
    statements
}

/// How one time compares with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    Beats,
    Ties,
    Loses,
}

impl Against {
    fn new(time: f64, other: f64) -> Self {
        if time < other * (1.0 - TIED) {
            Self::Beats
        } else if time <= other * (1.0 + TIED) {
            Self::Ties
        } else {
            Self::Loses
        }
    }

    const fn said(self) -> &'static str {
        match self {
            Self::Beats => "beats",
            Self::Ties => "ties with",
            Self::Loses => "loses to",
        }
    }
}

/// Budget and colors together against each alone; `both` has for each budget the time with colors and the one without.
fn together(program: &str, budgets: &[u64], both: &[(f64, f64)], colors: f64) -> Statement {
    let each =
        |&(both, budget): &(f64, f64)| [Against::new(both, budget), Against::new(both, colors)];
    let all: Vec<_> = both.iter().flat_map(each).collect();
    let found = both.iter().map(|times| {
        let (both, budget) = times;
        let [first, second] = each(times).map(Against::said);
        format!("{both:.3} {first} {budget:.3} and {second} {colors:.3}")
    });
    Statement {
        what: format!("{program}: budget and colors together beat each alone, at {budgets:?} a ms"),
        found: found.collect::<Vec<_>>().join("; "),
        holds: Some(all.iter().all(|against| *against == Against::Beats)),
        differs: if program == TOO_LARGE {
            Some(HALF)
        } else {
            (!all.contains(&Against::Loses)).then_some(TIE)
        },
    }
}

fn insensitive(all: &Table) -> Statement {
    let least = PROGRAMS.iter().filter(|program| **program != INSENSITIVE);
    let least = least.map(|program| all.with(program, false, None)).fold(f64::MAX, f64::min);
    let own = all.with(INSENSITIVE, false, None);
    Statement {
        what: format!("{INSENSITIVE} is affected far less than the others"),
        found: format!("{own:.3}, the others {least:.3} or more"),
        holds: Some(own - 1.0 < (least - 1.0) / 4.0),
        differs: None,
    }
}

fn tell(programs: &[&'static str], budgets: &[u64], all: &Table) -> String {
    let mut columns =
        vec![String::new(), "solo-col".to_owned(), "interf".to_owned(), "interf-col".to_owned()];
    for budget in budgets {
        columns.extend(PERIODS_US.map(|period| format!("{budget}/ms\n{period} us")));
        columns.push(format!("{budget}/ms\ncol"));
    }
    let mut rows = table(columns);
    for &program in programs {
        let alone = all.time(Point { program, hog: false, colors: true, budget: None });
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
            "hog": point.hog,
            "colors": point.colors,
            "budget_in_1_ms": point.budget.map(|(budget, _)| budget),
            "period_us": point.budget.map(|(_, period)| period),
            "time": all.time(*point),
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tie_is_no_win_and_a_loss_is_not_known() {
        let of = |both: f64| together("susan-edges-large", &[4000], &[(both, 1.15)], 1.0);
        let beaten = of(0.99);
        assert_eq!(
            (beaten.holds, beaten.found.as_str()),
            (Some(true), "0.990 beats 1.150 and beats 1.000")
        );
        for tied in [0.9996, 1.0, 1.0004] {
            let tied = of(tied);
            assert_eq!((tied.holds, tied.differs), (Some(false), Some(TIE)));
            assert!(tied.found.ends_with(" beats 1.150 and ties with 1.000"));
        }
        let lost = of(1.002);
        assert_eq!((lost.holds, lost.differs), (Some(false), None));
        assert_eq!(lost.found, "1.002 beats 1.150 and loses to 1.000");
    }
}
