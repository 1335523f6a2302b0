//! rt-virtio, section V-A.1 and Figure 3: writes that each open another row of one bank, from cores
//! with growing budgets.

use crate::memory::{board, each, mb_per_s, simulate};
use crate::{
    ExperimentOutcome, ExperimentRequest,
    statement::{
        ClaimSource, Deviation, Paper,
        Relation::{Above, AtMost, Within},
        Statement, statements,
    },
};
use serde_json::json;
use weir_image::Result;
use weir_report::Picture;

const MEMORY: &str = "zcu102";
const WEIR: ClaimSource = ClaimSource::own("docs/explanation/simulation.md");
const PAPER: Paper = Paper("rt-virtio");
const TEXT: ClaimSource = PAPER.at("V-A.1");
const FIGURE3: ClaimSource = PAPER.at("V-A.1, Figure 3");
const TABLE1: ClaimSource = PAPER.at("Table I");
/// MB/s of all cores at saturation.
const SATURATED: f64 = 960.0;
/// The sum of three budgets at which they are saturated.
const SATURATING: u64 = 225;
/// What a budget of one line a period is worth: a refill and a write-back in 30 us, in MB/s.
const A_LINE: f64 = 128.0 / 30.0;
/// Table I: a core's budget, and what it reaches alone.
const ALONE: [(u64, f64); 6] =
    [(50, 220.0), (55, 244.0), (60, 264.0), (65, 286.0), (70, 308.0), (75, 330.0)];
/// Table I: the budget of each of three cores, and what each of them reaches.
const TOGETHER: [(u64, f64); 6] =
    [(50, 220.0), (55, 244.0), (60, 264.0), (65, 286.0), (70, 308.0), (75, 318.0)];
/// Budgets below the smallest useful one.
const SMALL: [u64; 4] = [10, 20, 30, 40];

/// The known deviations.
pub static DEVIATIONS: [Deviation; 1] = [Deviation {
    id: "thirty-lines-end-with-the-period",
    reason: "without debt what passes until the interrupt is a whole number of lines: the model's \
             core spends 30 lines and those just before the next period begins, so that next to \
             nothing passes",
    tested_by: &[],
    of: &[("misbehaves-30", AtMost(0.05))],
}];

/// A run: how many cores, the budget of each (0: none), and whether an overshoot is taken off the
/// next budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    cores: u64,
    budget: u64,
    debt: bool,
}

/// Until each core has gone once through its array, so that every line that goes is a dirty one, in
/// us.
const fn warm_up(point: Point) -> u64 {
    let lines_per_ms =
        if point.budget == 0 { FULL } else { point.budget * point.cores * 1000 / 30 };
    let lines = LINES * point.cores;
    lines * 1000 / if lines_per_ms < FULL { lines_per_ms } else { FULL }
}

/// Lines of a core's array, and a few more.
const LINES: u64 = 70_000;
/// Lines that all cores together bring in in a millisecond, without budgets.
const FULL: u64 = 7000;

struct Reached {
    mb_per_s: f64,
    /// The most in a period.
    most: u64,
}

fn system(point: Point) -> String {
    let cores: Vec<_> = (0..point.cores).map(|core| core.to_string()).collect();
    let budget = point.budget;
    let bandwidth = format!(
        "memory_budget = {{ accesses = {budget}, period = \"30us\", event = \"l2d-refill\", scope \
         = \"vcpu\", overcommit = true }}"
    );
    format!(
        "platform = \"zcu102\"\ndram = \"banks-on-top\"\n[hypervisor]\nbanks = \"1\"\n[[vm]]\n\
         name = \"ustress\"\ncpus = [{}]\nmemory = \"64MiB\"\nbanks = \"0\"\n\
         image = {{ elf = \"memory-stressor\" }}\n\
         workload = {{ kind = \"row-miss\", size = \"4MiB\" }}\n{}\n",
        cores.join(", "),
        if budget == 0 { String::new() } else { bandwidth }
    )
}

fn run_one(point: Point, quick: bool) -> Result<Reached> {
    let board = board(&system(point), MEMORY, &[])?;
    // `weir check` refuses budgets as small as some of these without debt, and reports why: this is
    // shown here.
    let board = if point.debt { board } else { board.without_debt() };
    let outcome = simulate(&board, 1, warm_up(point), if quick { 600 } else { 3000 })?;
    let most = outcome.vms[0].budgets.iter().map(|budget| budget.most.reads).max();
    Ok(Reached { mb_per_s: mb_per_s(&outcome, 0), most: most.unwrap_or(0) })
}

/// Figure 3, and the two columns of Table I for cores alone.
pub fn fig3(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let free = |cores| Point { cores, budget: 0, debt: true };
    let three = |budget| Point { cores: 3, budget, debt: true };
    let sums: Vec<u64> = (50..=100).step_by(if request.quick { 25 } else { 5 }).collect();
    let mut points: Vec<Point> = (1..=4).map(free).collect();
    points.extend(sums.iter().map(|budget| three(*budget)));
    let (apart, small_ones) =
        if request.quick { (&ALONE[4..], &SMALL[3..]) } else { (&ALONE[..], &SMALL[..]) };
    points.extend(apart.iter().map(|(budget, _)| Point { cores: 1, budget: *budget, debt: false }));
    for debt in [true, false] {
        points.extend(small_ones.iter().map(|budget| Point { cores: 1, budget: *budget, debt }));
    }
    let results = each(&points, |point| run_one(*point, request.quick))?;
    let of = |point: Point| {
        let at = points.iter().position(|other| *other == point).unwrap_or(0);
        &results[at]
    };
    let measured = Measured {
        free: [1, 2, 3, 4].map(|cores| of(free(cores)).mb_per_s),
        sums: sums.iter().map(|&budget| (budget, of(three(budget)).mb_per_s)).collect(),
        alone: apart
            .iter()
            .map(|&(budget, _)| (budget, of(Point { cores: 1, budget, debt: false }).mb_per_s))
            .collect(),
        small: small_ones
            .iter()
            .map(|&budget| {
                let mb = |debt| of(Point { cores: 1, budget, debt }).mb_per_s;
                (budget, [mb(false), mb(true)])
            })
            .collect(),
    };
    let picture = Picture {
        x: "sum of Q, refills in 30 us",
        y: "MB/s, refills and write-backs",
        lines: vec![
            ("model, 3 cores".to_owned(), of_sums(&sums, |budget| of(three(budget)).mb_per_s)),
            ("Q x 128 B / 30 us".to_owned(), of_sums(&sums, |budget| to_f64(3 * budget) * A_LINE)),
            (
                "published".to_owned(),
                TOGETHER
                    .iter()
                    .map(|(budget, mb)| (to_f64(3 * budget), 3.0 * mb))
                    .chain([(to_f64(SATURATING), SATURATED)])
                    .collect(),
            ),
        ],
    };
    let file = picture.write(request.directory.join("fig3.svg"))?;
    let notes = "fitted: row_change of boards/zcu102/memory.toml, to three cores without budgets. \
                 The cores alone are run without debt, as MemGuard in Jailhouse is: what passes \
                 until the interrupt is not taken off.\n";
    let least: Vec<_> = small_ones.iter().map(|&budget| json!({ "budget": budget, "most": of(Point { cores: 1, budget, debt: false }).most })).collect();
    Ok(ExperimentOutcome {
        json: json!({ "below_the_least_budget": least }),
        text: notes.to_owned(),
        statements: stated(&measured),
        files: vec![file],
    })
}

/// The judged values, in MB/s.
#[derive(Clone, Debug)]
struct Measured {
    /// Without budgets, by the number of cores.
    free: [f64; 4],
    /// All of three cores, by the budget of each.
    sums: Vec<(u64, f64)>,
    /// A core alone without debt, by its budget.
    alone: Vec<(u64, f64)>,
    /// The same for small budgets, without debt and with it.
    small: Vec<(u64, [f64; 2])>,
}

/// Measured and nominal bandwidth "differ" by more than this share: Table I's own differ by up to 4
/// %, and its values may be missed by 5 %.
const DIFFERS: f64 = 0.09;
/// "Stable", "linear", "saturated": up to this share.
const SAME: f64 = 0.02;
/// The parameter that was fitted to 960 MB/s of three cores.
const ROW_CHANGE: &str = "row_change in boards/zcu102/memory.toml";
/// What a budget with debt may be off by in the long run.
const EXACT: f64 = 0.01;

fn stated(measured: &Measured) -> Vec<Statement> {
    let mut all: Vec<Statement> = Vec::new();
    // The model was fitted to the bandwidth of three cores, so others are judged relative to that.
    let three = measured.free[2];
    for (cores, own) in (1..).zip(measured.free) {
        if cores == 3 {
            let free = statements![
                TEXT, "free-{cores}", "{cores} cores without budgets"
                    => Within(SATURATED, 0.01), [own], "MB/s";
            ];
            all.extend(free.into_iter().map(|one| one.fitted(ROW_CHANGE)));
        } else {
            let plural = if cores == 1 { "" } else { "s" };
            all.extend(statements![
                TEXT, "free-{cores}",
                "the bandwidth without budgets remains stable: {cores} core{plural} with \
                 {own:.1} MB/s, off from 3 cores by a share of"
                    => AtMost(SAME), [(own / three - 1.0).abs()];
            ]);
        }
    }
    for &(budget, own) in &measured.alone {
        let Some((_, published)) = ALONE.iter().find(|one| one.0 == budget) else { continue };
        all.extend(statements![
            TABLE1, "alone-{budget}", "1 core with a budget of {budget}"
                => Within(*published, 0.05), [own], "MB/s";
        ]);
    }
    for &(budget, own) in &measured.sums {
        let sum = 3 * budget;
        if let Some((_, published)) = TOGETHER.iter().find(|one| one.0 == budget) {
            all.extend(statements![
                TABLE1, "each-{budget}", "each of 3 cores with a budget of {budget}"
                    => Within(*published, 0.05), [own / 3.0], "MB/s";
            ]);
        }
        if sum >= SATURATING {
            all.extend(statements![
                FIGURE3, "saturated-{sum}",
                "3 cores with budgets of {sum} in all are saturated: they move {own:.1} MB/s, off \
                 from 3 cores without budgets by a share of"
                    => AtMost(SAME), [(own / three - 1.0).abs()];
            ]);
        }
    }
    let nominal = |budget: u64, own: f64| [(own / (to_f64(budget) * A_LINE) - 1.0).abs()];
    let linear = measured.sums.iter().filter(|(budget, _)| 3 * budget <= SATURATING);
    // 128 B for each line of the budgets; at 225 that is the 960 MB/s of the paper.
    let off = linear.map(|&(budget, own)| (own / (to_f64(3 * budget) * A_LINE) - 1.0).abs());
    all.extend(statements![
        FIGURE3, "linear", "linear up to a sum of {SATURATING}: off from 128 B for each line"
            => AtMost(SAME), off.collect::<Vec<_>>();
    ]);
    for &(budget, own) in &measured.alone {
        all.extend(statements![
            TEXT, "enforced-{budget}",
            "a budget of {budget} is enforced: off from the nominal bandwidth"
                => AtMost(DIFFERS), nominal(budget, own);
        ]);
    }
    for &(budget, [without, with]) in &measured.small {
        all.extend(statements![
            TEXT, "misbehaves-{budget}",
            "a budget of {budget}, below 50, is not enforced: off from the nominal bandwidth"
                => Above(DIFFERS), nominal(budget, without);
            WEIR, "debt-{budget}",
            "with debt, a budget of {budget} is enforced: off from the nominal bandwidth"
                => AtMost(EXACT), nominal(budget, with);
        ]);
    }
    all
}

fn of_sums(sums: &[u64], value: impl Fn(u64) -> f64) -> Vec<(f64, f64)> {
    sums.iter().map(|budget| (to_f64(3 * budget), value(*budget))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    /// Returns the model's values.
    fn good() -> Measured {
        let nominal = |budget: u64, more: f64| to_f64(budget) * A_LINE * more;
        Measured {
            free: [959.9, 958.4, 958.2, 958.5],
            sums: (50..=100)
                .step_by(5)
                .map(|budget| (budget, nominal(3 * budget, 1.0).min(958.5)))
                .collect(),
            alone: vec![
                (50, 218.5),
                (55, 255.2),
                (60, 276.5),
                (65, 297.7),
                (70, 307.8),
                (75, 341.0),
            ],
            small: [(10, 1.49), (20, 1.25), (30, 1.01), (40, 1.12)]
                .map(|(budget, more)| (budget, [nominal(budget, more), nominal(budget, 1.0)]))
                .into(),
        }
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(&good(), &DEVIATIONS, stated, |all| {
            let mut values: Vec<&mut dyn Change> = Vec::new();
            for mb in &mut all.free {
                values.push(mb);
            }
            for (_, mb) in all.sums.iter_mut().chain(&mut all.alone) {
                values.push(mb);
            }
            for (_, [without, with]) in &mut all.small {
                values.push(without);
                values.push(with);
            }
            values
        });
    }
}
