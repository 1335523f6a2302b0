//! The tables of docs/results/reproduce.md, from what `weir reproduce NAME --json` printed.

use super::Rows;
use weir_experiments::{
    ExperimentReport,
    coverage::paper_results,
    isolation::IsolationFigures,
    mobivmm::{MobivmmFigures, SleepPoint},
    statement::{DeviationRecord, StatementCounts, StatementKind, StatementRecord},
    throttling::{GridRun, ThrottlingFigures, WindowFigures},
    xen_throttling::{BandwidthFigures, CompensationChanges, CriticalFigures, Spread},
};
use weir_report::units;

/// Counts statements by their verdicts.
fn counts<'a>(statements: impl Iterator<Item = &'a StatementRecord>) -> StatementCounts {
    statements.map(|statement| statement.verdict).collect()
}

/// Returns the statements of a kind of one experiment.
fn of_kind(
    experiment: &ExperimentReport,
    kind: StatementKind,
) -> impl Iterator<Item = &StatementRecord> {
    experiment.statements.iter().filter(move |it| it.kind == kind)
}

/// How many statements of each experiment hold, by kind, and in total.
pub(super) fn experiments(all: &[ExperimentReport]) -> Rows {
    let header =
        ["experiment", "computed by", "kind", "statements", "hold", "known deviations", "fail"];
    let mut rows = Rows::new(&header, 3);
    let mut add = |name: String, method: &str, kind: StatementKind, counts: StatementCounts| {
        let StatementCounts { statements, hold, known_deviations, fail } = counts;
        let mut row = vec![name, method.to_owned(), kind.name().to_owned()];
        row.extend([statements, hold, known_deviations, fail].map(|it| it.to_string()));
        rows.row(&row);
    };
    for experiment in all {
        let method = experiment.method.name();
        for kind in StatementKind::ALL {
            let counts = counts(of_kind(experiment, kind));
            if counts.statements > 0 {
                add(format!("`{}`", experiment.experiment), method, kind, counts);
            }
        }
    }
    for kind in StatementKind::ALL {
        let statements = all.iter().flat_map(|experiment| of_kind(experiment, kind));
        add("all".to_owned(), "", kind, counts(statements));
    }
    rows
}

/// The tables and figures with results in the papers, each with its experiment, how many of its
/// published statements hold, and what is missing.
pub(super) fn coverage(all: &[ExperimentReport]) -> Rows {
    let header = [
        "paper",
        "table or figure",
        "shows",
        "experiment",
        "computed by",
        "missing",
        "hold",
        "known deviations",
    ];
    let mut rows = Rows::new(&header, 6);
    for (paper, result) in paper_results() {
        let [none_yet, methods] = result.computed_by();
        let names: Vec<_> = result.experiments().map(|each| format!("`{}`", each.name)).collect();
        let experiments = if names.is_empty() { none_yet } else { names.join(", ") };
        let published = all.iter().flat_map(|it| of_kind(it, StatementKind::Published));
        let its = counts(published.filter(|it| it.paper == paper && is_on(it, result.place)));
        let cell =
            |count: usize| if its.statements == 0 { "-".to_owned() } else { count.to_string() };
        let [place, shows, missing] = [result.place, result.shows, result.missing];
        rows.row(&[
            paper.to_owned(),
            place.to_owned(),
            shows.to_owned(),
            experiments,
            methods,
            missing.to_owned(),
            cell(its.hold),
            cell(its.known_deviations),
        ]);
    }
    rows
}

/// Returns whether a statement is on a table or figure: its place ends with it, behind a section if
/// there is one.
pub(super) fn is_on(statement: &StatementRecord, place: &str) -> bool {
    statement.place.rsplit(", ").next() == Some(place)
}

/// The statements with published numbers that a parameter was fitted to.
pub(super) fn fitted(all: &[ExperimentReport]) -> Rows {
    let mut rows = Rows::new(&["experiment", "statement", "place", "fitted"], 4);
    for experiment in all {
        for StatementRecord { id, paper, place, fitted, .. } in &experiment.statements {
            let Some(fitted) = fitted else { continue };
            rows.row(&[
                format!("`{}`", experiment.experiment),
                format!("`{id}`"),
                format!("{paper}, {place}"),
                fitted.clone(),
            ]);
        }
    }
    rows
}

/// The listed deviations, each with its reason and the statements that it explains.
pub(super) fn deviations(all: &[ExperimentReport]) -> Rows {
    let header = ["experiment", "deviation", "statements", "why", "tested by"];
    let mut rows = Rows::new(&header, 5);
    for experiment in all {
        let mut found: Vec<(&DeviationRecord, u32)> = Vec::new();
        for deviation in experiment.statements.iter().filter_map(|it| it.deviation.as_ref()) {
            match found.iter_mut().find(|(one, _)| *one == deviation) {
                Some((_, statements)) => *statements += 1,
                None => found.push((deviation, 1)),
            }
        }
        for (DeviationRecord { id, reason, tested_by }, statements) in found {
            let tests: Vec<_> = tested_by.iter().map(|test| format!("`{test}`")).collect();
            rows.row(&[
                format!("`{}`", experiment.experiment),
                format!("`{id}`"),
                statements.to_string(),
                reason.clone(),
                if tests.is_empty() { "not tested".to_owned() } else { tests.join(", ") },
            ]);
        }
    }
    rows
}

/// Lines and rows that VMs and weir take from each other.
pub(super) fn isolation(report: &ExperimentReport) -> Rows {
    let header = ["", "between VMs", "weir from VMs", "VMs from weir"];
    let mut rows = Rows::new(&header, 1);
    for (id, what) in [
        ("lines-shared", "cache lines, shared"),
        ("lines-divided", "cache lines, with `colors`"),
        ("rows-shared", "rows closed, shared"),
        ("rows-divided", "rows closed, with `banks`"),
    ] {
        let own = |of: &str| {
            let id = format!("{id}-{of}");
            let statement = report.statements.iter().find(|it| it.id == id);
            let own = statement.and_then(|it| it.own.first());
            own.map_or_else(|| "-".to_owned(), |own| format!("{own:.0}"))
        };
        rows.row(&[what.to_owned(), own("vms"), own("by-weir"), own("of-weir")]);
    }
    rows
}

/// L2 misses per hundred loads over the working set.
#[expect(clippy::cast_precision_loss, reason = "a walk has less than 2^53 loads")]
pub(super) fn cache_share(figures: &IsolationFigures) -> Rows {
    let curves = &figures.cache_share;
    let mut header = vec!["working set, KiB"];
    header.extend(curves.iter().map(|curve| curve.name.as_str()));
    let mut rows = Rows::new(&header, 0);
    let first = curves.first().into_iter().flat_map(|curve| &curve.points);
    for (place, point) in first.enumerate() {
        let mut row = vec![units::count(point.bytes >> 10)];
        row.extend(curves.iter().map(|curve| {
            curve.points.get(place).map_or_else(
                || "-".to_owned(),
                |point| format!("{:.1}", 100.0 * point.l2_misses as f64 / point.loads as f64),
            )
        }));
        rows.row(&row);
    }
    rows
}

/// What comes beyond budgets, by what counts them.
pub(super) fn overshoot(figures: &ThrottlingFigures) -> Rows {
    let header = ["counted by", "guest", "runs", "allowed", "observed", "rate, off by at most, %"];
    let mut rows = Rows::new(&header, 2);
    let of = |run: &GridRun| {
        let guest = format!("`{}`", run.guest);
        let other = run.console_on_other_core;
        let guest = if other { guest + ", console on another core" } else { guest };
        [format!("`{}`", run.source), guest]
    };
    let mut kinds: Vec<[String; 2]> = Vec::new();
    for kind in figures.runs.iter().map(of) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for kind in kinds {
        let runs = || figures.runs.iter().filter(|run| of(run) == kind);
        let most = |value: fn(&GridRun) -> u64| units::count(runs().map(value).max().unwrap_or(0));
        let [allowed, observed] =
            [most(|run| run.overshoot_allowed), most(|run| run.overshoot_max)];
        let rate = runs().map(|run| run.rate_error.abs()).fold(0.0, f64::max);
        let runs = runs().count().to_string();
        let [counted, guest] = kind;
        rows.row(&[counted, guest, runs, allowed, observed, format!("{:.4}", 100.0 * rate)]);
    }
    rows
}

/// Lines a period that a core gets which always wants more.
pub(super) fn regulators(figures: &ThrottlingFigures) -> Rows {
    let mut rows = Rows::new(&["regulator", "budget", "without", "with"], 1);
    let Some(all) = &figures.regulators else { return rows };
    let (memguard, compensation, pool) = (&all.memguard, &all.compensation, &all.pool);
    let mut add = |what: &str, budget: u64, without: f64, with: f64| {
        #[expect(
            clippy::cast_sign_loss,
            clippy::cast_possible_truncation,
            reason = "a small count"
        )]
        let lines = |lines: f64| units::count(lines.round() as u64);
        rows.row(&[what.to_owned(), units::count(budget), lines(without), lines(with)]);
    };
    let reclaim = "MemGuard next to a partly busy VM: reclaim";
    add(reclaim, memguard.budget, memguard.alone, memguard.reclaim);
    add("the same with spare sharing", memguard.budget, memguard.alone, memguard.spare);
    for WindowFigures { window, on, .. } in &compensation.windows {
        let what =
            format!("compensation in {window} periods, next to a critical VM that needs nothing");
        add(&what, compensation.budget, compensation.off, *on);
    }
    let even = "one busy vCPU of two: the pool instead of the even split";
    add(even, pool.budget, pool.even, pool.pool);
    rows
}

/// How long a sleep of 10 ms takes next to a VM with interrupts.
pub(super) fn sleeps(figures: &MobivmmFigures) -> Rows {
    let header = [
        "policy",
        "quantum, ms",
        "second source",
        "mean, ms",
        "mean in a storm, ms",
        "observed maximum, ms",
        "bound, ms",
    ];
    let mut rows = Rows::new(&header, 1);
    let none = || "-".to_owned();
    let table1 = figures.table1;
    for (mean, what) in
        [(table1.alone_ms, "alone"), (table1.shared_ms, "next to a VM without interrupts")]
    {
        let mean = format!("{mean:.1}");
        rows.row(&[what.to_owned(), "20".to_owned(), none(), mean, none(), none(), none()]);
    }
    let curves = &figures.curves;
    for (place, first) in curves.iter().enumerate() {
        if curves[..place].iter().any(|earlier| earlier.conditions == first.conditions) {
            continue;
        }
        let points = || curves.iter().filter(|point| point.conditions == first.conditions);
        // A storm's interrupts come at intervals of some microseconds.
        let is_storm = |point: &&SleepPoint| point.interval_ms < 0.1;
        let means = || points().filter(|it| !is_storm(it)).map(|it| it.response_ms.avg);
        let [least, most] = [means().fold(f64::MAX, f64::min), means().fold(0.0, f64::max)];
        let storm = points().find(is_storm).map(|it| it.response_ms.avg);
        let longest = points().map(|it| it.response_ms.max).fold(0.0, f64::max);
        rows.row(&[
            format!("`{}`", first.conditions.policy),
            units::count(first.conditions.quantum_ms),
            if first.conditions.audio { "yes" } else { "no" }.to_owned(),
            format!("{least:.1} to {most:.1}"),
            storm.map_or_else(none, |storm| format!("{storm:.1}")),
            format!("{longest:.1}"),
            first.bound_ms.map_or_else(|| "none".to_owned(), |bound| format!("{bound:.1}")),
        ]);
    }
    rows
}

/// Bandwidths and times of programs with a budget and without.
pub(super) fn xen_bandwidth(figures: &BandwidthFigures) -> Rows {
    let header = ["program", "budget", "MB/ms", "at most in 1 ms", "time, s", "published, s"];
    let mut rows = Rows::new(&header, 2);
    for one in &figures.programs {
        let time = figures.times.iter().find(|it| it.program == one.program);
        let [time, published] = match (time, one.throttled) {
            (Some(time), true) => [time.throttled_s.text(1), format!("{:.1}", time.published_s)],
            (Some(time), false) => [format!("{:.1}", time.free_s), format!("{:.1}", time.free_s)],
            (None, _) => ["-", "-"].map(str::to_owned),
        };
        let budget = if one.throttled { "91 MB/s" } else { "none" };
        rows.row(&[
            one.program.clone(),
            budget.to_owned(),
            one.mean.text(3),
            one.most.text(3),
            time,
            published,
        ]);
    }
    rows
}

/// The time of critical programs next to others.
pub(super) fn xen_critical(figures: &CriticalFigures) -> Rows {
    let header = ["critical", "next to", "its budget, MB/s", "jobs", "time, alone = 1"];
    let mut rows = Rows::new(&header, 2);
    for one in &figures.times {
        let budget = one.budget_mb_per_s.map_or_else(|| "none".to_owned(), units::count);
        let [critical, other] = [&one.critical, &one.other].map(Clone::clone);
        rows.row(&[critical, other, budget, one.jobs.to_string(), one.time.text(3)]);
    }
    rows
}

/// The changes that compensation makes.
pub(super) fn xen_compensation(figures: &CompensationChanges) -> Rows {
    let header = ["critical", "throttled", "its budget, MB/s", "gain, %", "critical slower by, %"];
    let mut rows = Rows::new(&header, 2);
    for one in &figures.changes {
        let [critical, other] = [&one.critical, &one.other].map(Clone::clone);
        let [gain, slower] = [one.gain, one.slower].map(|it: Spread| it.percent().text(1));
        rows.row(&[critical, other, units::count(one.budget_mb_per_s), gain, slower]);
    }
    rows
}

/// Rows of cells, the header first; the first columns are text, as many as `text`.
pub(super) fn cells(text: usize, all: &[Vec<String>]) -> Rows {
    let Some((header, all)) = all.split_first() else { return Rows::new(&[], 0) };
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    let mut rows = Rows::new(&header, text);
    for row in all {
        rows.row(row);
    }
    rows
}
