//! The reproductions of what papers measured of memory in time, as they are called.

use serde_json::Value;
use std::{collections::BTreeMap, fs, process::Command};

/// What a quick call of an experiment prints, and the names of the files that it writes.
fn reproduce(name: &str) -> (Value, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["reproduce", name, "--quick", "--json", "--output"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let files = fs::read_dir(directory.path()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    (serde_json::from_slice(&output.stdout).unwrap(), files)
}

/// The experiment's statements by their name.
fn statements(json: &Value) -> BTreeMap<&str, &Value> {
    assert_eq!((&json["version"], &json["as_expected"]), (&1.into(), &true.into()), "{json}");
    let all = json["statements"].as_array().expect("statements").iter();
    let all: BTreeMap<_, _> = all.map(|one| (one["id"].as_str().expect("a name"), one)).collect();
    for (id, one) in &all {
        assert!(one["paper"].is_string() && one["place"].is_string(), "{id}: {one}");
        let verdict = one["verdict"].as_str().expect("a verdict");
        assert_eq!(verdict == "known deviation", one["deviation"].is_object(), "{id}: {one}");
        assert!(["holds", "known deviation"].contains(&verdict), "{id}: {one}");
    }
    all
}

/// Statements with a published value, by whether a parameter was fitted to it.
fn published(statements: &BTreeMap<&str, &Value>, fitted: bool) -> usize {
    let its = |one: &&&Value| one["published"].is_f64() && one["fitted"] == fitted;
    statements.values().filter(its).count()
}

#[test]
fn ustress_is_fitted_once_and_checked_on_others() {
    let (json, files) = reproduce("rt-virtio-fig3");
    let all = statements(&json);
    assert!(published(&all, true) == 1 && published(&all, false) >= 8, "{json}");
    // The value of Table I for three cores, not the bandwidth of the regulator's budget.
    assert_eq!(all["each-50"]["published"], 220.0);
    let nominal = 50.0 * 128.0 / 30.0;
    let own = all["each-50"]["own"][0].as_f64().expect("a number");
    assert!((own - nominal).abs() < 2.0, "{}", all["each-50"]);
    assert!(files.contains(&"fig3.svg".to_owned()), "{files:?}");
}

#[test]
fn the_dma_is_fitted_twice_and_checked_on_others() {
    let (json, files) = reproduce("rt-virtio-dma");
    let all = statements(&json);
    assert!(published(&all, true) == 3 && published(&all, false) >= 7, "{json}");
    // Next to three cores the engine is judged, and known to be slower than on the chip.
    let throttled_dma = all["dma-next-to-cores"];
    assert_eq!(
        (&throttled_dma["published"], &throttled_dma["verdict"]),
        (&1074.0.into(), &"known deviation".into())
    );
    assert_eq!(throttled_dma["deviation"]["id"], "unregulated-dma");
    assert_eq!(all["cores-50"]["verdict"], "holds");
    assert!(files.contains(&"dma.csv".to_owned()), "{files:?}");
}

#[test]
fn periods_of_one_bandwidth_agree_with_colors() {
    let (json, _) = reproduce("bao-throttling-budgets");
    let all = statements(&json);
    let verdict = |id: &str| all[id]["verdict"].as_str().expect("a verdict");
    assert_eq!(verdict("periods-colors-susan-edges-large-4000"), "holds");
    let without = all["periods-susan-edges-large-4000"];
    assert_eq!(without["verdict"], "known deviation", "{without}");
    let reason = without["deviation"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("brings its lines back"), "{without}");
    for id in [
        "budgets-susan-edges-large",
        "colors-susan-edges-large",
        "together-budget-susan-edges-large-4000",
    ] {
        assert_eq!(verdict(id), "holds", "{id}");
    }
    assert_eq!(verdict("together-colors-susan-edges-large-4000"), "known deviation");
}
