//! The example of the documentation.

use crate::{
    checkout,
    support::{analyze, plan},
};
use std::fs;
use weir_analysis::verdict::Verdict::{Holds, NotJudged};

#[test]
fn the_documented_example_holds_and_is_planned() {
    let page = checkout::root().join("docs/reference/system-description.md");
    let text = fs::read_to_string(page).expect("a page");
    let section = text.split_once("## A file for analysis only").expect("the section").1;
    let example = section.split_once("```toml\n").expect("an example").1;
    let example = example.split_once("```").expect("its end").0;
    assert_eq!(analyze(example).0, Some(Holds));
    plan(example).unwrap();
    // Without the board that has them, the keys to add are named.
    let bare = example.replace("platform = \"zcu102\"", "");
    assert_ne!(bare, example);
    let (verdict, json) = analyze(&bare);
    let missing = json["not_judged"].to_string();
    assert_eq!(verdict, Some(NotJudged));
    assert!(missing.contains("add [overheads] with") && missing.contains("zcu102"), "{missing}");
    let refused = plan(&bare).unwrap_err();
    assert!(refused.contains("[overheads]") && refused.contains("zcu102"), "{refused}");
}
