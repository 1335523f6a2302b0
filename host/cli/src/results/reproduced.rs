//! The tables of docs/results/reproduce.md, from what `weir reproduce NAME --json` printed.

use super::{Rows, grouped};
use serde_json::Value;
use weir_experiments::{
    ExperimentReport,
    coverage::paper_results,
    statement::{
        DeviationRecord, StatementCounts, StatementKind, StatementRecord, StatementVerdict,
    },
};

/// The values of a list in an object; none if it has no such list.
pub(super) fn list<'a>(json: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + Clone {
    json[key].as_array().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A count; a dash if there is none.
fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), grouped)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// Counts statements by their verdicts.
fn counts<'a>(statements: impl Iterator<Item = &'a StatementRecord>) -> StatementCounts {
    let mut counts = StatementCounts::default();
    for statement in statements {
        counts.statements += 1;
        match statement.verdict {
            StatementVerdict::Holds => counts.hold += 1,
            StatementVerdict::Known => counts.known_deviations += 1,
            StatementVerdict::Fails | StatementVerdict::Obsolete => counts.fail += 1,
        }
    }
    counts
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
pub(super) fn cache_share(json: &Value) -> Rows {
    let curves: Vec<_> = list(json, "cache_share").collect();
    let names: Vec<_> = curves.iter().map(|curve| text(&curve["name"])).collect();
    let mut header = vec!["working set, KiB"];
    header.extend(names.iter().map(String::as_str));
    let mut rows = Rows::new(&header, 0);
    let first = curves.first().into_iter().flat_map(|curve| list(curve, "points"));
    for (place, point) in first.enumerate() {
        let mut row = vec![grouped(point["bytes"].as_u64().unwrap_or_default() >> 10)];
        row.extend(curves.iter().map(|curve| {
            let point = &curve["points"][place];
            format!("{:.1}", 100.0 * number(&point["l2_misses"]) / number(&point["loads"]))
        }));
        rows.row(&row);
    }
    rows
}

/// What comes beyond budgets, by what counts them.
pub(super) fn overshoot(json: &Value) -> Rows {
    let header = ["counted by", "guest", "runs", "allowed", "observed", "rate, off by at most, %"];
    let mut rows = Rows::new(&header, 2);
    let of = |run: &Value| {
        let other = run["console_on_other_core"] == true;
        let guest = format!("`{}`", text(&run["guest"]));
        let guest = if other { guest + ", console on another core" } else { guest };
        [format!("`{}`", text(&run["source"])), guest]
    };
    let mut kinds: Vec<[String; 2]> = Vec::new();
    for kind in list(json, "runs").map(of) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for kind in kinds {
        let runs = || list(json, "runs").filter(|run| of(run) == kind);
        let most = |key: &str| runs().filter_map(|run| run[key].as_u64()).max();
        let [allowed, observed] = ["overshoot_allowed", "overshoot_max"].map(most);
        let rate = runs().map(|run| number(&run["rate_error"]).abs()).fold(0.0, f64::max);
        let [counted, guest] = kind.clone();
        rows.row(&[
            counted,
            guest,
            runs().count().to_string(),
            allowed.map_or_else(|| "-".to_owned(), grouped),
            observed.map_or_else(|| "-".to_owned(), grouped),
            format!("{:.4}", 100.0 * rate),
        ]);
    }
    rows
}

/// Lines a period that a core gets which always wants more.
pub(super) fn regulators(json: &Value) -> Rows {
    let mut rows = Rows::new(&["regulator", "budget", "without", "with"], 1);
    let all = &json["regulators"];
    for (regulator, without, with, what) in [
        ("memguard", "alone", "reclaim", "MemGuard next to a partly busy VM: reclaim"),
        ("memguard", "alone", "spare", "the same with spare sharing"),
        ("compensation", "off", "on", "compensation next to a critical VM that needs nothing"),
        ("pool", "even", "pool", "one busy vCPU of two: the pool instead of the even split"),
    ] {
        let figures = &all[regulator];
        #[expect(
            clippy::cast_sign_loss,
            clippy::cast_possible_truncation,
            reason = "a small count"
        )]
        let lines = |key: &str| grouped(number(&figures[key]).round() as u64);
        rows.row(&[what.to_owned(), count(&figures["budget"]), lines(without), lines(with)]);
    }
    rows
}

/// How long a sleep of 10 ms takes next to a VM with interrupts.
pub(super) fn sleeps(json: &Value) -> Rows {
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
    for (key, what) in [("alone_ms", "alone"), ("shared_ms", "next to a VM without interrupts")] {
        let mean = format!("{:.1}", number(&json["table1"][key]));
        rows.row(&[what.to_owned(), "20".to_owned(), none(), mean, none(), none(), none()]);
    }
    let same =
        |a: &Value, b: &Value| ["policy", "quantum_ms", "audio"].iter().all(|k| a[k] == b[k]);
    let curves: Vec<_> = list(json, "curves").collect();
    for (place, first) in curves.iter().enumerate() {
        if curves[..place].iter().any(|earlier| same(earlier, first)) {
            continue;
        }
        let points = || curves.iter().filter(|point| same(point, first));
        // A storm's interrupts come at intervals of some microseconds.
        let is_storm = |point: &&&&Value| number(&point["interval_ms"]) < 0.1;
        let mean = |point: &&Value| number(&point["response_ms"]["avg"]);
        let means = || points().filter(|point| !is_storm(&point)).map(mean);
        let [least, most] = [means().fold(f64::MAX, f64::min), means().fold(0.0, f64::max)];
        let storm = points().find(|point| is_storm(&point)).map(mean);
        let longest = points().map(|it| number(&it["response_ms"]["max"])).fold(0.0, f64::max);
        let bound = first["bound_ms"].as_f64();
        rows.row(&[
            format!("`{}`", text(&first["policy"])),
            count(&first["quantum_ms"]),
            if first["audio"] == true { "yes" } else { "no" }.to_owned(),
            format!("{least:.1} to {most:.1}"),
            storm.map_or_else(none, |storm| format!("{storm:.1}")),
            format!("{longest:.1}"),
            bound.map_or_else(|| "none".to_owned(), |bound| format!("{bound:.1}")),
        ]);
    }
    rows
}
