//! `weir simulate` as it is called.

use crate::support::checkout;
use serde_json::Value;
use std::{fmt::Write, fs, path::PathBuf, process::Command};

struct Printed {
    status: Option<i32>,
    out: String,
    err: String,
}

fn weir(arguments: &[&str]) -> Printed {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn system(name: &str) -> String {
    checkout::system(name.trim_end_matches(".toml")).to_str().unwrap().to_owned()
}

fn path(directory: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = directory.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

#[test]
fn a_dram_trace_of_row_misses_takes_trc_each() {
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = path(&directory, "trace.txt");
    let mut text = String::from("# another row of bank 0 each time\n\n");
    for row in 0..20_000_u64 {
        writeln!(text, "R {:#x}", row << 17).unwrap();
    }
    fs::write(&file, text).unwrap();
    let printed = weir(&["simulate", "dram", &name, "--memory", "ddr4-2400", "--json"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let json: Value = serde_json::from_str(&printed.out).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["version", "requests", "cycles", "row_hits", "row_conflicts", "mb_per_s"]);
    assert_eq!((json["requests"].as_u64(), json["row_hits"].as_u64()), (Some(20_000), Some(0)));
    let each = json["cycles"].as_f64().unwrap() / 20_000.0;
    let expected = 56.0 / (1.0 - 433.0 / 9364.0);
    assert!((each / expected - 1.0).abs() < 0.003, "{each} {expected}");
    let rate = 64.0 * 20_000.0 * 1e6 / (json["cycles"].as_f64().unwrap() * 833.0);
    assert!((json["mb_per_s"].as_f64().unwrap() - rate).abs() < 0.1);
}

#[test]
fn a_simulation_repeats_and_its_waits_add_up() {
    let file = system("simulate-isolation.toml");
    let call = ["simulate", "run", &file, "--for", "300us", "--warm-up", "1us", "--json"];
    let printed = weir(&call);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_eq!(weir(&call).out, printed.out);
    let warning = "warning: too short: the caches still fill: vm `";
    assert!(printed.err.starts_with(warning), "{}", printed.err);
    let json: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(json["evicted"]["writers"]["critical"], 0);
    for vm in json["vms"].as_array().unwrap() {
        let waited = vm["waited_for_ps"].as_object().unwrap().values();
        let waited: u64 = waited.map(|wait| wait.as_u64().unwrap()).sum();
        let delay = vm["delay_ps"].as_u64().unwrap();
        assert!(delay > 0 && delay == waited, "{delay} {waited}");
    }
    let table = weir(&call[..7]).out;
    assert!(table.contains("slowdown") && table.contains("writers, vCPU 2"), "{table}");
}

#[test]
fn pictures_have_a_line_for_each_vm() {
    let directory = tempfile::tempdir().unwrap();
    let (to, name) = path(&directory, "pictures");
    let file = system("simulate-isolation.toml");
    let printed = weir(&["simulate", "run", &file, "--for", "300us", "--output", &name]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for picture in ["bandwidth.svg", "latency.svg", "arrivals.svg"] {
        let text = fs::read_to_string(to.join(picture)).unwrap();
        assert!(text.starts_with("<svg") && text.contains("writers"), "{picture}");
        assert!(text.contains("critical") && printed.out.contains(picture), "{picture}");
    }
}
