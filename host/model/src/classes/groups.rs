//! Named groups of colors and banks: those of the file and those of its platform.

use super::numbers;
use super::part::{Part, shortened};
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, File};
use crate::keys::page_classes::Group as RawGroup;
use crate::object::Object;
use crate::table::At;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use weir_paging::classes::PageClasses;

/// A name for colors and banks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Group {
    /// The name.
    pub name: String,
    /// Its colors, if it is one of colors.
    pub colors: Option<BTreeSet<u16>>,
    /// Its banks, if it is one of banks.
    pub banks: Option<BTreeSet<u16>>,
}

/// Longest name in bytes.
const NAME_LIMIT: usize = 31;
/// More than the number of page classes.
const LIMIT: usize = 256;

/// The first number that the board doesn't have, and what it has.
pub(crate) fn beyond(
    part: Part,
    classes: &PageClasses,
    numbers: &BTreeSet<u16>,
) -> Option<(u16, String)> {
    let count = part.count(classes);
    let number = *numbers.range(count..).next()?;
    let split = classes.banks_in_group();
    let help = if part == Part::Banks && split > 1 {
        format!(
            "each page lies in {split} banks, so {count} groups of {split} can be chosen: 0 to {}",
            count - 1
        )
    } else {
        format!("it has {} 0 to {}", part.many(), count - 1)
    };
    Some((number, help))
}

/// Groups with their names and numbers read. A refused group has no numbers; its users are not
/// refused again.
pub(crate) fn all<'a>(
    raw: &'a [RawGroup],
    file: &File,
    faults: &mut Faults,
) -> Vec<(&'a RawGroup, Group)> {
    if let Some(extra) = raw.get(LIMIT) {
        let message = format!("[[group]]: {} groups (weir supports {LIMIT})", raw.len());
        let fault = Fault::new(Code::TooMany, file, extra.name.span.clone(), message);
        faults.push(fault.label("one too many").help("remove groups that no VM uses"));
    }
    let mut seen: HashMap<&str, &At<String>> = HashMap::new();
    let mut groups = Vec::new();
    for group in raw.iter().take(LIMIT) {
        name(&group.name, file, faults);
        if let Some(first) = seen.insert(&group.name.value, &group.name) {
            let message = format!("{}: two groups have this name", Object::group(&group.name));
            let fault = Fault::new(Code::Twice, file, group.name.span.clone(), message);
            let fault = fault.label("second").and(first.span.clone(), "first");
            faults.push(fault.help("write another `name` for one"));
            seen.insert(&first.value, first);
            continue;
        }
        if group.colors.is_none() && group.banks.is_none() {
            let message = format!("{}: no `colors` and no `banks`", Object::group(&group.name));
            let fault = Fault::new(Code::Empty, file, group.name.span.clone(), message);
            faults.push(fault.label("this").help("add colors = \"0-3\", or banks = \"0-3\""));
        }
        let mut read = |part: Part, text: &Option<At<String>>| {
            let At { value, span } = text.as_ref()?;
            let numbers = numbers::parse(value);
            if numbers.is_none() {
                let message = format!(
                    "{}: {} = {:?} is not a list of numbers",
                    Object::group(&group.name),
                    part.many(),
                    shortened(value)
                );
                let fault = Fault::new(Code::BadNumbers, file, span.clone(), message).label("this");
                faults.push(fault.help("write numbers and ranges, like \"0-3,8\""));
            }
            Some(numbers.unwrap_or_default())
        };
        let (colors, banks) = (read(Part::Colors, &group.colors), read(Part::Banks, &group.banks));
        groups.push((group, Group { name: group.name.value.clone(), colors, banks }));
    }
    groups
}

/// A group's name can't be taken for numbers or for `"auto"`.
fn name(name: &At<String>, file: &File, faults: &mut Faults) {
    let At { value, span } = name;
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let wrong = if value.is_empty() {
        "`name` is empty".to_owned()
    } else if value == "auto" {
        "`name` is the word that leaves a choice to weir".to_owned()
    } else if value.len() > NAME_LIMIT {
        format!("`name` has {} bytes (weir supports {NAME_LIMIT})", value.len())
    } else if let Some(bad) = value.chars().find(|c| !good(*c)) {
        format!("`name` has {bad:?} in it")
    } else if !value.starts_with(|first: char| first.is_ascii_alphabetic()) {
        "`name` does not begin with a letter, as if it were numbers".to_owned()
    } else {
        return;
    };
    let message = format!("{}: {wrong}", Object::group(value));
    let fault = Fault::new(Code::NameInvalid, file, span.clone(), message).label("this");
    faults.push(fault.help("use 1 to 31 characters of a-z, A-Z, 0-9, `-` and `_`, a letter first"));
}
