//! The commands in README and docs work as written.

use super::fake;
use crate::support::capture;
use serde_json::Value;
use std::{fs, path::Path};

/// A document of the checkout.
fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_new_system_is_analyzed_and_planned() {
    let readme = document("README.md");
    let fake = fake();
    assert_eq!(capture(fake.weir().args(["new", "my-system"])).status, Some(0));
    let file = "my-system/system.toml";
    let commands: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.trim().strip_prefix("./weir "))
        .filter(|line| line.starts_with("analyze ") || line.starts_with("plan "))
        .map(|line| line.split('#').next().unwrap_or(line))
        .collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let arguments: Vec<&str> = command.split_whitespace().collect();
        assert!(arguments.contains(&file), "{command}");
        let printed = capture(fake.weir().args(&arguments));
        assert_eq!(printed.status, Some(0), "{command}: {}", printed.err);
    }
    let printed = capture(fake.weir().args(["analyze", file, "--json"]));
    let json: Value = serde_json::from_str(&printed.out).expect("JSON");
    assert!(json["holds"] == true && json["time"]["tasks"][0]["response_ns"].is_u64(), "{json}");
    // Nothing is invented for a board without a known saturation, and this is reported.
    let printed = capture(fake.weir().args(["plan", file]));
    assert_eq!(printed.out, fake.read(file));
    assert!(
        printed.err.contains("budgets were not chosen") && printed.err.contains("[saturation]")
    );
    assert!(printed.err.contains("colors were not chosen"), "{}", printed.err);
    // Colors are chosen all the same.
    let asked = fake
        .read(file)
        .replace("memory = \"16MiB\"", "memory = \"16MiB\"\nworking_set = \"16KiB\"");
    fake.write(file, asked.as_bytes());
    let printed = capture(fake.weir().args(["plan", file]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(
        printed.out.contains("colors = \"0") && !printed.out.contains("budget"),
        "{}",
        printed.out
    );
}

#[test]
fn the_documented_example_holds_and_is_planned() {
    let text = document("docs/reference/system-description.md");
    let section = text.split_once("## A file for analysis only").expect("the section").1;
    let example = section.split_once("```toml\n").expect("an example").1;
    let example = example.split_once("```").expect("its end").0;
    let fake = fake();
    fake.write("x.toml", example.as_bytes());
    for verb in ["analyze", "plan"] {
        let printed = capture(fake.weir().args([verb, "x.toml"]));
        assert_eq!(printed.status, Some(0), "{verb}: {}", printed.err);
    }
    // Without the board that has them, the keys to add are printed.
    let bare = example.replace("platform = \"zcu102\"", "");
    assert_ne!(bare, example);
    fake.write("x.toml", bare.as_bytes());
    let printed = capture(fake.weir().args(["analyze", "x.toml"]));
    assert_eq!(printed.status, Some(1));
    assert!(
        printed.out.contains("add [overheads] with") && printed.out.contains("zcu102"),
        "{}",
        printed.out
    );
    let printed = capture(fake.weir().args(["plan", "x.toml"]));
    assert_eq!(printed.status, Some(1));
    assert!(
        printed.err.contains("[overheads]") && printed.err.contains("zcu102"),
        "{}",
        printed.err
    );
}
