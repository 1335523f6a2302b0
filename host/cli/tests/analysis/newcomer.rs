//! What README and docs tell a newcomer to type works as it is typed.

use super::fake;
use crate::support::say;
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
    assert_eq!(say(fake.weir().args(["new", "my-system"])).status, Some(0));
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
        let said = say(fake.weir().args(&arguments));
        assert_eq!(said.status, Some(0), "{command}: {}", said.err);
    }
    let said = say(fake.weir().args(["analyze", file, "--json"]));
    let json: Value = serde_json::from_str(&said.out).expect("JSON");
    assert!(json["holds"] == true && json["time"]["tasks"][0]["response_ns"].is_u64(), "{json}");
    // Nothing is invented for a board of which nobody knows when its memory saturates, and that is
    // said.
    let said = say(fake.weir().args(["plan", file]));
    assert_eq!(said.out, fake.read(file));
    assert!(said.err.contains("budgets were not chosen") && said.err.contains("[saturation]"));
    assert!(said.err.contains("colors were not chosen"), "{}", said.err);
    // Colors are chosen all the same.
    let asked = fake
        .read(file)
        .replace("memory = \"16MiB\"", "memory = \"16MiB\"\nworking_set = \"16KiB\"");
    fake.write(file, asked.as_bytes());
    let said = say(fake.weir().args(["plan", file]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(said.out.contains("colors = \"0") && !said.out.contains("budget"), "{}", said.out);
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
        let said = say(fake.weir().args([verb, "x.toml"]));
        assert_eq!(said.status, Some(0), "{verb}: {}", said.err);
    }
    // Without the board that knows them, what to add is said.
    let bare = example.replace("platform = \"zcu102\"", "");
    assert_ne!(bare, example);
    fake.write("x.toml", bare.as_bytes());
    let said = say(fake.weir().args(["analyze", "x.toml"]));
    assert_eq!(said.status, Some(1));
    assert!(
        said.out.contains("add [overheads] with") && said.out.contains("zcu102"),
        "{}",
        said.out
    );
    let said = say(fake.weir().args(["plan", "x.toml"]));
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("[overheads]") && said.err.contains("zcu102"), "{}", said.err);
}
