//! Experiments that need no QEMU, as `weir reproduce` runs them.
#![allow(missing_docs, reason = "tests")]

use serde_json::Value;
use std::{collections::BTreeMap, fs};
use weir_experiments::{EXPERIMENTS, ExperimentRequest, statement::Judged};
use weir_image::Environment;

/// The figures of an experiment with so many sets, or of a small part of it, its judged statements,
/// and the names and contents of its files.
fn run(name: &str, sets: Option<u32>) -> (Value, Value, BTreeMap<String, String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let request = ExperimentRequest {
        directory: directory.path().to_owned(),
        sets,
        quick: sets.is_none(),
        environment: Environment::find(),
    };
    let experiment = EXPERIMENTS.iter().find(|each| each.name == name).expect("an experiment");
    let outcome = experiment.run(&request).expect("an outcome");
    let files = outcome.files.iter().map(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        (name, fs::read_to_string(file).expect("a file"))
    });
    let judged = Judged::new(outcome.statements, experiment.deviations, sets.is_some());
    assert_eq!(judged.failures, [""; 0]);
    let statements = serde_json::to_value(judged.records()).expect("JSON");
    (outcome.json, statements, files.collect())
}

/// The verdicts on the statements with names that begin so.
fn verdicts(judged: &Value, id: &str) -> Vec<String> {
    let statements = judged.as_array().expect("statements").iter();
    let its = statements.filter(|one| one["id"].as_str().expect("a name").starts_with(id));
    its.map(|one| one["verdict"].as_str().expect("a verdict").to_owned()).collect()
}

/// The equations as printed do not give Table III: that is listed, and no statement fails.
#[test]
fn table_iii_is_computed_by_both_models() {
    let (json, judged, _) = run("rt-virtio-table3", Some(1));
    let column = |key: &str| -> Vec<u64> {
        let rows = json["rows"].as_array().expect("rows").iter();
        rows.map(|row| row[key].as_u64().expect("a number")).collect()
    };
    assert_eq!(column("printed_ns"), [37_407, 103_645, 18_177, 45_954]);
    assert_eq!(column("table3_ns"), [36_933, 103_171, 17_703, 45_480]);
    assert_eq!(verdicts(&judged, "table3-"), ["holds"; 4]);
    assert_eq!(verdicts(&judged, "printed-"), ["known deviation"; 4]);
    // The reading was chosen by the periods, so they do not judge it.
    let all = statements(&judged);
    assert_eq!(all.values().filter(|one| one["fitted"].is_string()).count(), 4);
    assert!(all["table3-148-4"]["kind"] == "own" && all["printed-148-4"]["kind"] == "published");
}

/// Separate code decides the sets and where U' = 1 lies.
#[test]
fn figure_5_has_the_same_sets_each_time() {
    let (json, judged, files) = run("rt-virtio-fig5", Some(3));
    assert_eq!(json["curves"].as_array().map(Vec::len), Some(18));
    for id in ["cliff-", "sets-", "compared-"] {
        assert_eq!(verdicts(&judged, id), ["holds"; 18], "{id}");
    }
    for (id, kind) in [("cliff", "cross-check"), ("compared", "own")] {
        assert_eq!(statements(&judged)[&*format!("{id}-150-3-4")]["kind"], kind, "{id}");
    }
    assert_eq!(statements(&judged)["bandwidth-3-4"]["kind"], "published");
    for curve in json["curves"].as_array().expect("curves") {
        assert_eq!(curve["points"].as_array().map(Vec::len), Some(20), "{curve}");
    }
    assert!(files["fig5.svg"].contains("</svg>"));
    let (again, _, files_again) = run("rt-virtio-fig5", Some(3));
    assert_eq!((json, files), (again, files_again));
}

/// The experiment's statements by their name.
fn statements(judged: &Value) -> BTreeMap<&str, &Value> {
    let all = judged.as_array().expect("statements").iter();
    let all: BTreeMap<_, _> = all.map(|one| (one["id"].as_str().expect("a name"), one)).collect();
    for (id, one) in &all {
        assert!(one["paper"].is_string() && one["place"].is_string(), "{id}: {one}");
        let verdict = one["verdict"].as_str().expect("a verdict");
        assert_eq!(verdict == "known deviation", one["deviation"].is_object(), "{id}: {one}");
        assert!(["holds", "known deviation"].contains(&verdict), "{id}: {one}");
        let kind = one["kind"].as_str().expect("a kind");
        assert!(["published", "cross-check", "own"].contains(&kind), "{id}: {one}");
        assert!(one["fitted"].is_null() || kind == "own", "{id}: {one}");
    }
    all
}

/// Statements with a published value, by whether a parameter was fitted to it.
fn published(statements: &BTreeMap<&str, &Value>, fitted: bool) -> usize {
    let its = |one: &&&Value| one["published"].is_f64() && one["fitted"].is_string() == fitted;
    statements.values().filter(its).count()
}

#[test]
fn ustress_is_fitted_once_and_checked_on_others() {
    let (_, json, files) = run("rt-virtio-fig3", None);
    let all = statements(&json);
    assert!(published(&all, true) == 1 && published(&all, false) >= 4, "{json}");
    // The value of Table I for three cores, not the bandwidth of the regulator's budget.
    assert_eq!(all["each-50"]["published"], 220.0);
    let nominal = 50.0 * 128.0 / 30.0;
    let own = all["each-50"]["own"][0].as_f64().expect("a number");
    assert!((own - nominal).abs() < 2.0, "{}", all["each-50"]);
    assert!(files.contains_key("fig3.svg"), "{files:?}");
}

#[test]
fn the_dma_is_fitted_twice_and_checked_on_others() {
    let (_, json, files) = run("rt-virtio-dma", None);
    let all = statements(&json);
    assert!(published(&all, true) == 4 && published(&all, false) >= 7, "{json}");
    // Next to three cores the engine is judged, and known to be slower than on the chip.
    let throttled_dma = all["dma-next-to-cores"];
    assert_eq!(
        (&throttled_dma["published"], &throttled_dma["verdict"]),
        (&1074.0.into(), &"known deviation".into())
    );
    assert_eq!(throttled_dma["deviation"]["id"], "unregulated-dma");
    assert_eq!(all["cores-50"]["verdict"], "holds");
    assert!(files.contains_key("fig4.svg"), "{files:?}");
}

#[test]
fn periods_of_one_bandwidth_agree_out_of_step() {
    let (_, json, _) = run("bao-throttling-budgets", None);
    let all = statements(&json);
    let verdict = |id: &str| all[id]["verdict"].as_str().expect("a verdict");
    for id in [
        "out-of-step-susan-edges-large-4000",
        "periods-colors-susan-edges-large-4000",
        "budgets-susan-edges-large-1000",
        "colors-susan-edges-large",
        "together-budget-susan-edges-large-4000",
        "together-colors-susan-edges-large-4000",
    ] {
        assert_eq!(verdict(id), "holds", "{id}");
    }
    let in_step = all["periods-susan-edges-large-4000"];
    assert_eq!(in_step["verdict"], "known deviation", "{in_step}");
    let reason = in_step["deviation"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("stay in step"), "{in_step}");
}

#[test]
fn dma_channels_slow_a_program_with_their_number() {
    let (json, judged, files) = run("bao-throttling-dma", None);
    let all = statements(&judged);
    for id in ["lpd", "fpd", "fpd-less", "both", "regulated-20", "regulated-10"] {
        let one = all[&*format!("{id}-bitcount-small")];
        assert_eq!((&one["verdict"], &one["kind"]), (&"holds".into(), &"published".into()), "{id}");
    }
    // The one number that the thesis prints, and the run without the suspected cause.
    let linked = all["linked-20-bitcount-small"];
    assert_eq!(
        (&linked["published"], &linked["verdict"]),
        (&1.25.into(), &"known deviation".into())
    );
    assert_eq!(all["lists-bitcount-small"]["verdict"], "holds");
    assert!(json["times"].as_array().is_some_and(|times| times.len() > 20), "{json}");
    assert!(files.contains_key("fig5-1-bitcount-small.svg"), "{files:?}");
}

#[test]
fn channels_behind_one_tbu_cost_translations() {
    let (json, judged, files) = run("bao-throttling-tlb", None);
    let all = statements(&judged);
    for id in ["rising-simple-64", "rising-linked-64", "linked-64", "order", "lost-interference"] {
        let one = all[id];
        assert_eq!((&one["verdict"], &one["kind"]), (&"holds".into(), &"published".into()), "{id}");
    }
    assert!(all["alone"]["fitted"].is_string(), "{}", all["alone"]);
    assert_eq!(json["table_5_1"].as_array().map(Vec::len), Some(5));
    assert!(files.contains_key("fig5-4.svg") && files.contains_key("fig5-9.svg"), "{files:?}");
}

/// gcc's published mean rate and times contradict each other: a program that has the rate in a
/// quarter of its time has the times.
#[test]
fn programs_have_the_published_rates() {
    let (json, judged, files) = run("xen-throttling-bandwidth", None);
    let all = statements(&judged);
    for (id, kind) in [
        ("order-mcf", "published"),
        ("limit-gcc", "published"),
        ("linear-lbm", "published"),
        ("staircase-lbm-dense", "own"),
        ("time-gcc-quarter", "own"),
        ("time-lbm", "own"),
    ] {
        let one = all[id];
        assert_eq!((&one["verdict"], &one["kind"]), (&"holds".into(), &kind.into()), "{id}");
    }
    let gcc = all["time-gcc"];
    assert_eq!((&gcc["published"], &gcc["verdict"]), (&7.0.into(), &"known deviation".into()));
    assert_eq!(gcc["deviation"]["tested_by"], serde_json::json!(["time-gcc-quarter"]));
    assert_eq!(json["programs"].as_array().map(Vec::len), Some(9));
    assert!(files.contains_key("fig3.svg") && files.contains_key("fig6-arrivals.svg"), "{files:?}");
}

/// Without a budget the critical program is slower than the paper allows.
#[test]
fn a_budget_keeps_the_deadline_of_a_critical_program() {
    let (json, judged, files) = run("xen-throttling-critical", None);
    let all = statements(&judged);
    for id in ["within-lbm", "deadline-lbm", "pessimistic", "stable-mcf"] {
        let one = all[id];
        assert_eq!((&one["verdict"], &one["kind"]), (&"holds".into(), &"published".into()), "{id}");
    }
    assert_eq!(all["unlimited-mean"]["verdict"], "holds");
    assert!(json["times"].as_array().is_some_and(|times| times.len() >= 6), "{json}");
    assert!(files["fig4.svg"].contains("<polygon"), "the spread is an area");
}

#[test]
fn compensation_returns_what_a_program_leaves() {
    let (json, judged, files) = run("xen-throttling-compensation", None);
    let all = statements(&judged);
    for id in ["gain-lbm-mcf", "slower", "slightly-lbm-mcf", "window-2", "rule-3"] {
        assert_eq!(all[id]["verdict"], "holds", "{id}");
    }
    assert_eq!(json["changes"].as_array().map(Vec::len), Some(2));
    assert!(files.contains_key("fig7.svg") && files.contains_key("fig8.svg"), "{files:?}");
}

#[test]
fn separate_colors_gain_as_much_as_separate_banks() {
    let (json, judged, files) = run("rjmm-isolbench", None);
    let all = statements(&judged);
    for (id, kind) in [
        ("gain-reads-128", "published"),
        ("mean-writes", "own"),
        ("rows-writes", "published"),
        ("colors-reads", "own"),
        ("wide-reads", "own"),
    ] {
        let one = all[id];
        assert_eq!((&one["verdict"], &one["kind"]), (&"holds".into(), &kind.into()), "{id}");
    }
    assert!(json["runs"].as_array().is_some_and(|runs| runs.len() > 10), "{json}");
    assert!(files["fig5.svg"].contains("</svg>"));
}

#[test]
fn wake_ups_are_faster_with_separate_parts() {
    let (_, judged, files) = run("rjmm-cyclictest", None);
    let all = statements(&judged);
    for id in ["distribution-reads", "mean-writes", "maximum-reads", "colors-reads"] {
        assert_eq!(all[id]["verdict"], "holds", "{id}");
    }
    // It is known to differ next to a VM that never pauses, and why.
    assert_eq!(all["minimum-reads"]["verdict"], "known deviation");
    assert_eq!(all["minimum-pauses"]["verdict"], "holds");
    assert!(files["fig3.svg"].contains("</svg>"));
}
