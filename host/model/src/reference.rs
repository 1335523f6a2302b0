//! The reference pages of system files and board files, made from the declarations of their keys.

use crate::keys::{board, system};
use crate::shape::{Key, Kind, Shape};
use crate::table::Table;
use std::fmt::Write as _;

/// Returns the reference page of system files, as Markdown.
///
/// ```
/// assert!(weir_model::system_reference().contains("## `[[vm]]`"));
/// ```
#[must_use]
pub fn system_reference() -> String {
    page("System file", &system::System::SHAPE)
}

/// Returns the reference page of board files, as Markdown.
///
/// ```
/// assert!(weir_model::board_reference().contains("## `[memory]`"));
/// ```
#[must_use]
pub fn board_reference() -> String {
    page("Board file", &board::Platform::SHAPE)
}

/// The whole page: the keys of the file, then each table in the order in which keys name them.
fn page(title: &str, shape: &Shape) -> String {
    let mut page = format!(
        "# {title}\n\n{}\n\nSizes, durations and rates are strings with a unit: `\"16MiB\"`, `\"30us\"`, `\"485MB/s\"`.\n\
         Addresses and cores are integers: `0x4000_0000`, `3`. Other keys are refused.\n",
        shape.doc.trim_start()
    );
    section(&mut page, "", shape);
    page
}

/// Adds the keys of a table and then the sections of its tables.
fn section(page: &mut String, path: &str, shape: &Shape) {
    page.push_str("\n| key | value | meaning |\n| --- | --- | --- |\n");
    for key in shape.keys {
        let required = if key.required { " Required." } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {}{required} |",
            key.name,
            cell(&value(&key.kind)),
            cell(&key.text())
        );
    }
    for key in shape.keys {
        tables(page, path, key, &key.kind, false);
    }
}

/// Adds the sections of the tables that a key can be.
fn tables(page: &mut String, path: &str, key: &Key, kind: &Kind, listed: bool) {
    let path_of = || {
        let dot = if path.is_empty() { "" } else { "." };
        format!("{path}{dot}{}", key.name)
    };
    let heading = || {
        let path = path_of();
        if listed { format!("[[{path}]]") } else { format!("[{path}]") }
    };
    match kind {
        Kind::List(kind) => tables(page, path, key, kind, true),
        Kind::OneOf(kinds) => {
            for kind in *kinds {
                tables(page, path, key, kind, listed);
            }
        }
        Kind::Table(shape) => {
            let _ = writeln!(page, "\n## `{}`\n\n{}", heading(), shape.doc.trim_start());
            section(page, &path_of(), shape);
        }
        Kind::Variant(shapes) => {
            for shape in *shapes {
                let first = shape.keys.first().map_or("", |key| key.name);
                let _ = writeln!(
                    page,
                    "\n## `{}` with `{first}`\n\n{}",
                    heading(),
                    shape.doc.trim_start()
                );
                section(page, &path_of(), shape);
            }
        }
        _ => {}
    }
}

/// What a value may be.
fn value(kind: &Kind) -> String {
    match kind {
        Kind::Text => "string".into(),
        Kind::Number(0, u64::MAX) => "integer".into(),
        Kind::Number(low, u64::MAX) => format!("integer, at least {low}"),
        Kind::Number(low, high) => format!("integer, {low} to {high}"),
        Kind::Address => "address".into(),
        Kind::Size => "size".into(),
        Kind::Duration => "duration".into(),
        Kind::Rate => "rate".into(),
        Kind::Positive(Kind::Size) => "size above 0".into(),
        Kind::Positive(Kind::Duration) => "duration above 0".into(),
        Kind::Positive(_) => "rate above 0".into(),
        Kind::Source => "string: a kind, a colon and a text".into(),
        Kind::Boolean => "`true` or `false`".into(),
        Kind::Choice(choices) => {
            let quoted: Vec<_> = choices.iter().map(|choice| format!("`\"{choice}\"`")).collect();
            quoted.join(", ")
        }
        Kind::List(kind) => format!("list: {}", value(kind)),
        Kind::Table(_) | Kind::Variant(_) => "table".into(),
        Kind::OneOf(kinds) => {
            let mut values: Vec<_> = kinds.iter().map(value).collect();
            values.dedup();
            values.join(" or ")
        }
    }
}

/// A text within a table of Markdown.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_a_file_is_on_its_page() {
        fn check(page: &str, shape: &Shape) {
            for key in shape.keys {
                assert!(page.contains(&format!("| `{}` | ", key.name)), "{}", key.name);
                kinds(page, &key.kind);
            }
        }
        fn kinds(page: &str, kind: &Kind) {
            match kind {
                Kind::List(kind) => kinds(page, kind),
                Kind::OneOf(all) => all.iter().for_each(|kind| kinds(page, kind)),
                Kind::Table(shape) => check(page, shape),
                Kind::Variant(shapes) => shapes.iter().for_each(|shape| check(page, shape)),
                _ => {}
            }
        }
        check(&system_reference(), &system::System::SHAPE);
        check(&board_reference(), &board::Platform::SHAPE);
    }

    #[test]
    fn tables_are_named_as_a_file_names_them() {
        let page = system_reference();
        for heading in ["\n## `[[vm]]`\n", "\n## `[[vm.task]]`\n", "\n## `[vm.image]` with `elf`\n"]
        {
            assert!(page.contains(heading), "{heading}{page}");
        }
    }
}
