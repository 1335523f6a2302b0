//! rt-virtio, section V-A.1 and Figure 3: writes that each open another row of one bank, from cores with growing budgets.

use super::{Row, Statement, Use, board, mb_per_s, outcome, simulate, with};
use crate::{
    failure::Result,
    picture::Picture,
    progress::Bar,
    reproduce::{Outcome, Request},
};
use rayon::prelude::*;
use serde_json::json;

const MEMORY: &str = "zcu102";
/// MB/s of all cores at saturation.
const SATURATED: f64 = 960.0;
/// What a budget of one line a period is worth: a refill and a write-back in 30 us, in MB/s.
const A_LINE: f64 = 128.0 / 30.0;
/// Table I: a core's budget, and what it reaches alone.
const ALONE: [(u64, f64); 6] =
    [(50, 220.0), (55, 244.0), (60, 264.0), (65, 286.0), (70, 308.0), (75, 330.0)];
/// Budgets below the smallest useful one.
const SMALL: [u64; 4] = [10, 20, 30, 40];

/// A run: how many cores, the budget of each (0: none), and whether an overshoot is taken off the next budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    cores: u64,
    budget: u64,
    debt: bool,
}

/// Until each core has gone once through its array, so that every line that goes is a dirty one, in us.
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
        "bandwidth = {{ budget = {budget}, period = \"30us\", event = \"l2d-refill\", scope = \"vcpu\", overcommit = true }}"
    );
    format!(
        "platform = \"zcu102\"\ndram = \"banks-on-top\"\n[hypervisor]\nbanks = \"1\"\n\
         [[vm]]\nname = \"ustress\"\ncpus = [{}]\nmemory = \"64MiB\"\nbanks = \"0\"\nimage = {{ elf = \"guests/hog\" }}\n\
         workload = {{ kind = \"row-miss\", size = \"4MiB\" }}\n{}\n",
        cores.join(", "),
        if budget == 0 { String::new() } else { bandwidth }
    )
}

fn run_one(point: Point, quick: bool) -> Result<Reached> {
    let board = board(&system(point), MEMORY, &[])?;
    // `weir check` refuses budgets as small as some of these without debt, and says why: that is what is shown here.
    let board = if point.debt { board } else { board.without_debt() };
    let outcome = simulate(&board, warm_up(point), if quick { 600 } else { 3000 })?;
    let most = outcome.vms[0].budgets.iter().map(|budget| budget.most.reads).max();
    Ok(Reached { mb_per_s: mb_per_s(&outcome, 0), most: most.unwrap_or(0) })
}

/// Figure 3, and the two columns of Table I for cores alone.
pub fn fig3(request: &Request) -> Result<Outcome> {
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
    let bar = Bar::new("simulating", points.len() as u64);
    let results: Vec<_> = points
        .par_iter()
        .map(|point| {
            let result = run_one(*point, request.quick);
            bar.add(1);
            result
        })
        .collect::<Result<_>>()?;
    drop(bar);
    let of = |point: Point| {
        let at = points.iter().position(|other| *other == point).unwrap_or(0);
        &results[at]
    };
    let row = |what: String, published, model, for_| Row { what, published, model, for_ };
    let mut rows = vec![row(
        "3 cores without budgets, MB/s".to_owned(),
        SATURATED,
        of(free(3)).mb_per_s,
        Use::Fitted(0.01),
    )];
    for cores in [1, 2, 4] {
        let model = of(free(cores)).mb_per_s;
        let what = format!("{cores} cores without budgets, MB/s");
        rows.push(row(what, SATURATED, model, Use::Checked(0.02)));
    }
    for &(budget, published) in apart {
        let model = of(Point { cores: 1, budget, debt: false }).mb_per_s;
        let what = format!("1 core, Q = {budget}, MB/s");
        rows.push(row(what, published, model, Use::Checked(0.05)));
    }
    for &budget in &sums {
        let model = of(three(budget)).mb_per_s;
        let published = (to_f64(3 * budget) * A_LINE).min(SATURATED);
        let what = format!("3 cores, sum of Q = {}, MB/s", 3 * budget);
        rows.push(row(what, published, model, Use::Checked(0.05)));
    }
    rows.push(row(
        "each of 3 cores at Q = 75, MB/s".to_owned(),
        318.0,
        of(three(75)).mb_per_s / 3.0,
        Use::Checked(0.05),
    ));
    let statements = [small(small_ones, &of)];
    let picture = Picture {
        x: "sum of Q, refills in 30 us",
        y: "MB/s, refills and write-backs",
        lines: vec![
            ("model, 3 cores".to_owned(), of_sums(&sums, |budget| of(three(budget)).mb_per_s)),
            ("Q x 128 B / 30 us".to_owned(), of_sums(&sums, |budget| to_f64(3 * budget) * A_LINE)),
            ("published: saturation".to_owned(), vec![(225.0, SATURATED)]),
        ],
    };
    let file = picture.write(request.directory.join("fig3.svg"))?;
    let notes = "fitted: row_change of platforms/zcu102-memory.toml, to the first row. The figure's line is what its text says of it: linear up to \
                 960 MB/s at 225.\nThe cores alone are run without debt, as MemGuard in Jailhouse is: what passes until the interrupt is not taken off.\n";
    let mut all = outcome(&request.directory, "fig3", &rows, &statements, notes)?;
    all.files.push(file);
    let least: Vec<_> = small_ones.iter().map(|&budget| json!({ "budget": budget, "most": of(Point { cores: 1, budget, debt: false }).most })).collect();
    Ok(with(all, "below_the_least_budget", json!(least)))
}

/// "Any Q below 50 misbehaves": what the model says of it.
fn small<'a>(budgets: &[u64], of: &impl Fn(Point) -> &'a Reached) -> Statement {
    let each = budgets.iter().map(|&budget| {
        let point = |debt| Point { cores: 1, budget, debt };
        let over = |debt| 100.0 * (of(point(debt)).mb_per_s / (to_f64(budget) * A_LINE) - 1.0);
        format!("Q = {budget}: {:+.0} % without debt, {:+.0} % with", over(false), over(true))
    });
    Statement {
        what: "budgets below 50 are not enforced well: what passes until the interrupt weighs more the smaller they are".to_owned(),
        found: each.collect::<Vec<_>>().join(", "),
        holds: None,
        differs: None,
    }
}

fn of_sums(sums: &[u64], value: impl Fn(u64) -> f64) -> Vec<(f64, f64)> {
    sums.iter().map(|budget| (to_f64(3 * budget), value(*budget))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
