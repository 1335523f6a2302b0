//! `weir explain`: what a diagnostic means and what to change.

use schemars::JsonSchema;
use serde::Serialize;
use std::{fmt::Write as _, io::Write as _};
use weir_image::{
    failure::{Failure, Result},
    first_rendered, screen,
};
use weir_model::{Example, Explanation, ExplanationRecord, explain, explanations, similar_code};
use weir_report::{columns, table, wrap};

/// Explains diagnostics: why the rule exists, an example that breaks it, and the fix.
///
/// Without a code, lists all codes with their titles.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir explain W0105\n  \
        weir explain core-taken unknown-key\n  \
        weir explain\n\n\
        Exit status: 0 explained, 2 there is no such code.")]
pub struct ExplainArguments {
    /// Codes or names of diagnostics, such as W0105 or core-taken.
    codes: Vec<String>,
    /// Print the pages as JSON.
    #[arg(long)]
    json: bool,
}

/// Explained diagnostics.
#[derive(Serialize, JsonSchema)]
pub struct Explained {
    /// The pages of the codes that were asked for, or all.
    diagnostics: Vec<ExplanationRecord>,
}

/// Prints which command explains the faults that were printed, if there were any.
pub fn hint() {
    if let Some(code) = first_rendered() {
        screen::say(format_args!("For more about a code: weir explain {code}"));
    }
}

/// Carries the verb out.
pub fn run(arguments: &ExplainArguments) -> Result {
    let found: std::result::Result<Vec<_>, _> = arguments
        .codes
        .iter()
        .map(|code| explain(code).ok_or_else(|| Failure::call(unknown(code))))
        .collect();
    let found = found?;
    let mut out = screen::stdout();
    if arguments.json {
        let diagnostics = if found.is_empty() {
            explanations().map(Explanation::record).collect()
        } else {
            found.into_iter().map(Explanation::record).collect()
        };
        writeln!(out, "{:#}", weir_report::versioned(Explained { diagnostics }))?;
    } else if found.is_empty() {
        write!(out, "{}", list())?;
    } else {
        let width = columns().map_or(PAGE_WIDTH, |width| PAGE_WIDTH.min(width.into()));
        let pages: Vec<_> = found.into_iter().map(|page| rendered(page, width)).collect();
        write!(out, "{}\n{}", pages.join("\n"), wrapped(HIDDEN, width))?;
    }
    Ok(())
}

/// What examples leave out.
const HIDDEN: &str = "Examples leave out what every system has: `platform = \"qemu-virt\"`, the \
                      VMs `a` on core 0 and `b` on core 1, and of a VM `name`, `cpus`, `memory` \
                      and `image`.";

/// Widest line of prose, in columns.
const PAGE_WIDTH: usize = 100;

/// The message for `code`, which there is not.
fn unknown(code: &str) -> String {
    let near = similar_code(code).map_or_else(
        || "`weir explain` lists all of them".to_owned(),
        |near| format!("the most similar is `{near}`"),
    );
    format!("there is no diagnostic `{code}`; {near}")
}

/// All codes by topic.
fn list() -> String {
    let mut text = String::new();
    let mut pages = explanations().peekable();
    while let Some(first) = pages.peek().map(|page| page.topic) {
        let mut rows = table(["code", "name", "title"]);
        while let Some(page) = pages.next_if(|page| page.topic == first) {
            rows.add_row([&page.code.to_string(), page.code.name(), page.title]);
        }
        let gap = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{gap}{first}\n\n{rows}");
    }
    text
}

/// A page for a terminal of `width` columns.
fn rendered(page: &Explanation, width: usize) -> String {
    let Explanation { code, title, cause, example, fix, fixed, .. } = page;
    let mut text = wrapped(&format!("{code} {}: {title}", code.name()), width);
    let _ = write!(text, "\n{}", wrapped(cause, width));
    let _ = write!(text, "\nExample that is refused:\n\n{}", indented(example));
    let _ = write!(text, "\nFix:\n\n{}", wrapped(fix, width));
    if let Some(fixed) = fixed {
        let _ = write!(text, "\n{}", indented(fixed));
    }
    text
}

/// A code block.
fn indented(example: &Example) -> String {
    let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
    example.text.lines().map(line).collect()
}

/// Returns paragraphs with lines of at most `width` columns.
fn wrapped(prose: &str, width: usize) -> String {
    let paragraphs = prose.split("\n\n").map(|text| wrap(text, Some(width), [0, 0]));
    paragraphs.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Code;

    #[test]
    fn codes_and_names_are_found() {
        let page = |text: &str| explain(text).map(|page| page.code);
        for text in ["W0105", "w0105", "core-taken", " Core-Taken "] {
            assert_eq!(page(text), Some(Code::CoreTaken), "{text}");
        }
        for text in ["", "0105", "W105", "W9999", "core"] {
            assert_eq!(page(text), None, "{text}");
        }
        assert!(unknown("core-take").contains("`core-taken`"), "{}", unknown("core-take"));
        assert!(unknown("w01o5").contains("`W0105`"), "{}", unknown("w01o5"));
        assert!(unknown("something else").contains("lists all"));
    }

    #[test]
    fn prose_fits_the_terminal() {
        for page in explanations() {
            for width in [40, 80, PAGE_WIDTH] {
                let cause = wrapped(page.cause, width);
                assert!(
                    cause.lines().all(|line| line.chars().count() <= width || !line.contains(' ')),
                    "{cause}"
                );
            }
            assert!(rendered(page, 80).contains(page.code.name()));
        }
        assert_eq!(wrapped("a bc def\nghi\n\nj", 6), "a bc\ndef\nghi\n\nj\n");
        let rows = list().lines().filter(|line| line.trim_start().starts_with("W0")).count();
        assert_eq!(rows, explanations().count());
    }
}
