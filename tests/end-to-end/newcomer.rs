//! The commands of the README work as written.

use crate::support::{Fake, SYSTEM, capture};
use serde_json::Value;

#[test]
fn a_new_system_is_analyzed_and_planned() {
    let readme = include_str!("../../README.md");
    let fake = Fake::new(SYSTEM, "");
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
