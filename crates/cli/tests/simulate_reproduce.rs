//! The reproductions of what papers measured of memory in time, as they are called.
#![allow(missing_docs, reason = "tests")]

use serde_json::Value;
use std::{fs, process::Command};

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

/// Finds the object with the experiment's rows.
fn body(json: &Value) -> &Value {
    match json {
        Value::Object(map) if map.contains_key("rows") => json,
        Value::Object(map) => map.values().map(body).find(|v| !v.is_null()).unwrap_or(&Value::Null),
        Value::Array(items) => {
            items.iter().map(body).find(|v| !v.is_null()).unwrap_or(&Value::Null)
        }
        _ => &Value::Null,
    }
}

/// Rows by what their published value was for, each within its tolerance.
fn rows(body: &Value, use_: &str) -> usize {
    let rows = body["rows"].as_array().unwrap().iter().filter(|row| row["use"] == use_);
    rows.inspect(|row| {
        let (off, most) = (row["off"].as_f64().unwrap(), row["tolerance"].as_f64());
        assert!(most.is_none_or(|most| off.abs() <= most), "{row}");
        let ratio = row["model"].as_f64().unwrap() / row["published"].as_f64().unwrap();
        assert!((ratio - 1.0 - off).abs() < 1e-9, "{row}");
    })
    .count()
}

#[test]
fn ustress_is_fitted_to_one_number_and_checked_on_others() {
    let (json, files) = reproduce("rt-virtio-fig3");
    let body = body(&json);
    assert!(rows(body, "fitted") == 1 && rows(body, "checked") >= 3, "{body}");
    assert!(files.contains(&"fig3.svg".to_owned()), "{files:?}");
}

#[test]
fn the_dma_is_fitted_to_two_chunks_and_checked_on_the_others() {
    let (json, files) = reproduce("rt-virtio-dma");
    let body = body(&json);
    assert!(rows(body, "fitted") >= 2 && rows(body, "checked") >= 3, "{body}");
    assert!(files.contains(&"dma.csv".to_owned()), "{files:?}");
}

#[test]
fn periods_of_one_bandwidth_are_alike_with_colors_and_known_to_differ_without() {
    let (json, _) = reproduce("bao-throttling-budgets");
    let statements = body(&json)["statements"].as_array().unwrap();
    let of = |text: &str| {
        let mut found = statements.iter().filter(|s| s["what"].as_str().unwrap().contains(text));
        found.next().unwrap_or_else(|| panic!("{text}: {statements:?}"))
    };
    let colors = of("with colors: the same bandwidth");
    assert!(colors["holds"] == true && colors["known_to_differ"].is_null(), "{colors}");
    let without = of("susan-edges-large: the same bandwidth");
    assert_eq!(without["holds"], false, "{without}");
    assert!(without["known_to_differ"].as_str().unwrap().contains("brings its lines back"));
    for text in ["the lower the budget", "colors alone reduce"] {
        assert_eq!(of(text)["holds"], true, "{text}");
    }
    let together = of("together beat each alone");
    assert_eq!(together["holds"], false, "{together}");
    let found = together["found"].as_str().unwrap();
    assert!(found.contains(" beats ") && found.contains(" ties with "), "{together}");
    assert!(together["known_to_differ"].as_str().unwrap().contains("colors alone leave"));
}
