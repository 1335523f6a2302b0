//! `weir bench engine`: messages by the ZCU102's DMA engine and by a core, in QEMU, compared with
//! Tables II and III of rt-virtio.

use super::{
    copies,
    flows::{Case, exactly, load},
};
use crate::{
    build_id,
    environment::Environment,
    failure::{Context, Failure, Result, SYSTEM},
    progress::CountBar,
    screen,
};
use serde_json::{Value, json};
use std::{fs, io::Write, path::Path};
use weir_analysis::{
    Nanos, check,
    system::{OtherVms, quiet_bounds},
    verdict::Verdict,
};
use weir_experiments::{Table3Flow, table3_flows, write_changed};
use weir_model::{
    platform::Machine,
    timing::{Overhead, Timing},
};
use weir_report::{overheads::measured, table, trace::file::NAME};
use weir_runner::report::FlowRun;

pub const PLATFORM: &str = "zcu102";
/// The system in which a core copies.
const BY_CORE: &str = "flows-overheads";
/// The system in which the engine moves.
const BY_ENGINE: &str = "flows-engine";
/// A flow of Table III, and what the others have instead.
pub const TABLE3: &str = "flows-table3";
pub const SIZE: &str = "12288";
const BANDWIDTH: &str = "\"148MB/s\"";
const PERIOD: &str = "period = \"150us\"";
const SENT: &str = "period_ns=150000";
pub const MOVED: [(&str, &str); 2] =
    [("dma", "path = \"dma\"\nengine_from = \"0B\""), ("broker", "path = \"broker\"")];
/// What a period allows for of the other VMs. The paper's analysis knows none that misbehave.
const OTHERS: [OtherVms; 2] = [OtherVms::Quiet, OtherVms::Active];

/// Runs all of them and prints the figures.
pub fn run(json: bool, environment: &Environment) -> Result {
    let scratch = environment.build().join("bench");
    fs::create_dir_all(&scratch).context(|| format!("create {}", scratch.display()))?;
    let flows = table3_flows();
    let runs = flows.len() * OTHERS.len() + copies::SIZES.len();
    let bar = CountBar::new("running", (3 + runs * MOVED.len()) as u64);
    let phases = phases(environment, &bar)?;
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for flow in &flows {
        let mut row = flow.to_json();
        let mut runs = Vec::new();
        for (moved, others) in MOVED.into_iter().flat_map(|moved| OTHERS.map(|of| (moved, of))) {
            let found = latencies(flow, moved, others, &scratch, environment)?;
            if found["verdict"] != Verdict::Holds.key() {
                failures.push(format!("{}: {found}", name(flow, moved.0)));
            }
            runs.push(found);
            bar.add(1);
        }
        row["runs"] = runs.into();
        rows.push(row);
    }
    let copies = copies::measure(&scratch.join("copies.toml"), environment, &bar)?;
    drop(bar);
    let figures = json!({
        "build": build_id::of_checkout(),
        "table2": phases,
        "table3": rows,
        "copies": copies,
    });
    let mut out = screen::stdout();
    if json {
        writeln!(out, "{:#}", weir_report::versioned(figures))?;
    } else {
        print(&figures, &mut out)?;
        for failure in &failures {
            writeln!(out, "does not hold: {failure}")?;
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::reported(SYSTEM)) }
}

/// The columns of Table II, by their keys in a row.
const COLUMNS: [(&str, &str); 4] = [
    ("paper", "rt-virtio"),
    ("core", "core copies"),
    ("engine", "engine moves"),
    ("memory", "core copies, memory timing"),
];

/// Table II: each phase as published, when a core copies, when the engine moves, and when a core
/// copies with the time of the board's caches and DRAM.
fn phases(environment: &Environment, bar: &CountBar) -> Result<Vec<Value>> {
    let of = |case, name| {
        let run = exactly(&environment.system(name)?, &case, environment)?;
        bar.add(1);
        Ok::<_, Failure>(json!(measured(&run.directory.join(NAME))?.0.record()))
    };
    let plain = |name| of(Case::on(name, PLATFORM), name);
    let (core, engine) = (plain(BY_CORE)?, plain(BY_ENGINE)?);
    let memory = of(Case::on(BY_CORE, PLATFORM).charged(), BY_CORE)?;
    let by_engine = environment.system(BY_ENGINE)?;
    // The board's own table is the paper's; that of its emulation is not.
    let board = load(&by_engine, Some(PLATFORM), Machine::Board, environment)?;
    Ok(table2(&board.overheads, [&core, &engine, &memory]))
}

/// The rows of Table II.
fn table2(published: &[Overhead], measured: [&Value; 3]) -> Vec<Value> {
    let phases = |of: &Value| of["phases"].as_array().cloned().unwrap_or_default();
    let range = |phase: &Value| {
        let ns = &phase["ns"];
        let has_any = phase["count"].as_u64().is_some_and(|count| count > 0);
        let open = phase["max_or_more"] == true;
        has_any.then(|| json!({ "min": ns["min"], "max": ns["max"], "max_or_more": open }))
    };
    let [core, engine, memory] = measured.map(phases);
    let row = |((core, engine), memory): ((Value, Value), Value)| {
        let paper = published.iter().find(|one| core["name"] == one.name);
        json!({
            "name": core["name"],
            "action": core["action"],
            "paper": paper.map(|one| json!({ "min": one.min.0, "max": one.max.0 })),
            "core": range(&core),
            "engine": range(&engine),
            "memory": range(&memory),
        })
    };
    core.into_iter().zip(engine).zip(memory).map(row).collect()
}

/// Runs a flow of Table III by a data path, with the shortest period that weir's analysis accepts
/// for the emulated board next to such `others`.
fn latencies(
    flow: &Table3Flow,
    (path, keys): (&str, &str),
    others: OtherVms,
    scratch: &Path,
    environment: &Environment,
) -> Result<Value> {
    let size = (flow.kib * 1024).to_string();
    let bandwidth = format!("\"{}MB/s\"", flow.megabytes_per_sec);
    let name = name(flow, path);
    let mut changes = vec![(SIZE, &*size), (BANDWIDTH, &bandwidth), (MOVED[0].1, keys)];
    let file = scratch.join(name).with_extension("toml");
    let write =
        |changes: &[_]| write_changed(&environment.system(TABLE3)?, changes.iter().copied(), &file);
    write(&changes)?;
    let timing = load(&file, Some(PLATFORM), Machine::Qemu, environment)?;
    let (period, quiet) = shortest_period(timing, others)
        .ok_or_else(|| Failure::system(format!("{}: no period is long enough", file.display())))?;
    let with_period = format!("period = \"{period}ns\"");
    let sent = format!("period_ns={period}");
    changes.extend([(PERIOD, &*with_period), (SENT, &sent)]);
    write(&changes)?;
    let case = Case::on(TABLE3, PLATFORM);
    let case = if quiet.is_some() { case.unjudged() } else { case };
    let run = exactly(&file, &case, environment)?;
    let found = run.report.flows.first();
    Ok(found.map_or(Value::Null, |run| described(path, period, quiet, run)))
}

/// The bound of the system's one flow next to VMs that do nothing, if it is within its deadline.
fn quiet_bound(timing: &Timing) -> Option<u64> {
    let deadline = timing.flows.first()?.deadline?;
    let bound = quiet_bounds(timing).into_iter().next()??;
    (bound <= deadline.0).then_some(bound)
}

/// The file's name for a flow of Table III by a data path.
fn name(flow: &Table3Flow, path: &str) -> String {
    format!("{TABLE3}-{}-{}-{path}", flow.megabytes_per_sec, flow.kib)
}

/// Describes the run of a flow. If it has a bound next to `quiet` VMs, that judges it, and else the
/// run's own finding does.
fn described(path: &str, period: u64, quiet: Option<u64>, run: &FlowRun) -> Value {
    let verdict = match quiet {
        None => run.finding.as_ref().map(|finding| finding.verdict),
        Some(bound) if run.observed_max_ns <= bound && run.lost + run.late == 0 => {
            Some(Verdict::Holds)
        }
        Some(_) => Some(Verdict::DoesNotHold),
    };
    json!({
        "path": path,
        "others": if quiet.is_some() { "quiet" } else { "active" },
        "period_ns": period,
        "packets": run.packets,
        "lost": run.lost,
        "late": run.late,
        "observed_max_ns": run.observed_max_ns,
        "bound_ns": quiet.or(run.bound_ns),
        "verdict": verdict.map(Verdict::key),
    })
}

/// Returns the shortest period, which is the deadline, too, with which a system of one flow holds
/// next to such `others`, in ns, and the flow's bound then if they are quiet. By halving: a longer
/// period is never worse.
fn shortest_period(mut timing: Timing, others: OtherVms) -> Option<(u64, Option<u64>)> {
    let mut judged = |period: u64| {
        for flow in &mut timing.flows {
            (flow.period, flow.deadline) = (Some(Nanos(period)), Some(Nanos(period)));
        }
        match others {
            OtherVms::Quiet => quiet_bound(&timing).map(Some),
            OtherVms::Active => check(&timing).is_ok().then_some(None),
        }
    };
    let (mut bad, mut good) = (0, 1 << 30);
    let mut quiet = judged(good)?;
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        match judged(middle) {
            Some(bound) => (good, quiet) = (middle, bound),
            None => bad = middle,
        }
    }
    Some((good, quiet))
}

/// The header of Table II: two columns of text, then a minimum and a maximum of each column.
pub fn header() -> Vec<String> {
    let ranges =
        COLUMNS.iter().flat_map(|(_, what)| ["min", "max"].map(|of| format!("{what}, {of}")));
    [String::new(), "phase".to_owned()].into_iter().chain(ranges).collect()
}

/// A row of Table II; `number` writes its numbers.
pub fn row(phase: &Value, number: impl Fn(&Value) -> String) -> Vec<String> {
    let text = |key: &str| phase[key].as_str().unwrap_or_default().to_owned();
    let ranges = COLUMNS.iter().flat_map(|(key, _)| {
        let range = &phase[*key];
        let more = if range["max_or_more"] == true { " or more" } else { "" };
        [number(&range["min"]), number(&range["max"]) + more]
    });
    [text("name"), text("action")].into_iter().chain(ranges).collect()
}

/// The phases that a packet of one chunk has in both systems, up to the interrupt for its receiver,
/// and the wake-up of weir's broker, which is on their way.
const ON_THE_WAY: [&str; 12] =
    ["hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "wake"];

/// The row of Table II that sums up what a packet of one chunk takes.
pub fn sum<'a>(phases: impl Iterator<Item = &'a Value> + Clone) -> Value {
    let phases = phases.filter(|phase| ON_THE_WAY.iter().any(|name| phase["name"] == *name));
    let of = |column: &str| {
        let sum = |end: &str| -> Option<u64> {
            let ends = phases.clone().filter_map(|phase| phase[column][end].as_u64());
            ends.reduce(|sum, one| sum + one)
        };
        json!({ "min": sum("min"), "max": sum("max") })
    };
    let mut sum = json!({ "name": "sum", "action": "a packet of one chunk: hc to ip, and wake" });
    for (column, _) in COLUMNS {
        sum[column] = of(column);
    }
    sum
}

fn print(figures: &Value, out: &mut impl Write) -> Result {
    let mut rows = table(header());
    let phases = figures["table2"].as_array().into_iter().flatten();
    for phase in phases.clone().chain([&sum(phases)]) {
        let number = |value: &Value| value.as_u64().map_or("-".to_owned(), |ns| ns.to_string());
        rows.add_row(row(phase, number));
    }
    writeln!(out, "{rows}")?;
    let header = [
        "B/s",
        "bytes",
        "path",
        "other VMs",
        "period, ns",
        "packets",
        "lost",
        "observed max, ns",
        "bound, ns",
        "verdict",
    ];
    let mut rows = table(header);
    for flow in figures["table3"].as_array().into_iter().flatten() {
        for run in flow["runs"].as_array().into_iter().flatten() {
            let text =
                |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let mut row = vec![text(&flow["bandwidth"]), text(&flow["size"])];
            let keys = [
                "path",
                "others",
                "period_ns",
                "packets",
                "lost",
                "observed_max_ns",
                "bound_ns",
                "verdict",
            ];
            row.extend(keys.map(|key| text(&run[key])));
            rows.add_row(row);
        }
    }
    writeln!(out, "{rows}")?;
    let mut rows = table(copies_header());
    for copy in figures["copies"].as_array().into_iter().flatten() {
        rows.add_row(copies_row(copy, ToString::to_string));
    }
    writeln!(out, "{rows}")?;
    match copies::crossover(&figures["copies"]) {
        Some(from) => writeln!(out, "the engine takes no longer from {from} bytes on")?,
        None => writeln!(out, "the core is faster for each of these sizes")?,
    }
    Ok(())
}

/// The header of the table of copies by size.
pub fn copies_header() -> [&'static str; 5] {
    ["bytes", "core copies, ns", "engine: calls, ns", "engine: transfer, ns", "engine, ns"]
}

/// A row of that table; `number` writes its numbers.
pub fn copies_row(copy: &Value, number: impl Fn(&Value) -> String) -> [String; 5] {
    ["size", "core_ns", "engine_calls_ns", "engine_transfer_ns", "engine_ns"]
        .map(|key| number(&copy[key]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::timing::MeasuredOn;

    #[test]
    fn a_phase_has_what_was_published_and_measured() {
        let published = [Overhead {
            name: "ip",
            min: Nanos(797),
            max: Nanos(828),
            measured_on: MeasuredOn::Other,
        }];
        let phases = |count: u64| {
            let ns = json!({ "min": 2, "avg": 3, "median": 3, "max": 4 });
            let phase = |name: &str, count: u64| {
                json!({
                    "name": name, "action": "act", "count": count, "ns": ns, "max_or_more": false,
                })
            };
            json!({ "phases": [phase("ip", count), phase("wake", 1)] })
        };
        let range = json!({ "min": 2, "max": 4, "max_or_more": false });
        let [ip, wake] = &table2(&published, [&phases(0), &phases(1), &phases(0)])[..] else {
            panic!("two phases")
        };
        assert_eq!(ip["paper"], json!({ "min": 797, "max": 828 }));
        assert_eq!(
            (&ip["core"], &ip["engine"], &ip["memory"]),
            (&Value::Null, &range, &Value::Null)
        );
        assert_eq!((&wake["paper"], &wake["core"]), (&Value::Null, &range));
    }

    #[test]
    fn the_sum_has_what_is_on_a_packet_s_way() {
        let phase = |name: &str, max: u64| {
            let (paper, core) = (json!({ "min": 1, "max": max }), json!({ "min": 2, "max": 3 }));
            json!({ "name": name, "paper": paper, "core": core })
        };
        let phases = [phase("hc", 10), phase("br", 100), phase("wake", 1000), phase("copy", 1)];
        let sum = sum(phases.iter());
        assert_eq!(sum["paper"], json!({ "min": 2, "max": 1010 }));
        assert_eq!((&sum["core"]["min"], &sum["engine"]["max"]), (&json!(4), &Value::Null));
        assert_eq!(row(&sum, ToString::to_string)[0], "sum");
    }

    #[test]
    fn the_system_of_table_3_has_what_is_changed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let copy = scratch.path().join("copy.toml");
        let changes = [(PERIOD, "period = \"9us\""), (SIZE, "4096"), (BANDWIDTH, "\"485MB/s\"")];
        let changes = changes.into_iter().chain([(MOVED[0].1, MOVED[1].1)]);
        let system = Environment::find().system(TABLE3).expect("a checkout");
        write_changed(&system, changes, &copy).expect("a copy");
        let text = fs::read_to_string(&copy).expect("text");
        assert!(text.contains("bytes=4096000 ") && text.contains("period = \"9us\""), "{text}");
    }
}
