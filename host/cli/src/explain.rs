//! `weir explain`: what a diagnostic means and what to change.

use crate::{
    failure::{Failure, Result},
    run::show::table,
    screen,
};
use serde_json::{Value, json};
use std::{fmt::Write as _, io::Write as _, sync::OnceLock};
use weir_model::{Code, Example, Explanation, Faults, explain, explanations, similar_code};

/// Explains diagnostics: why the rule exists, an example that breaks it, and the fix.
///
/// Without a code, lists all codes with their titles.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir explain W0105\n  weir explain core-taken unknown-key\n  weir explain\n\nExit status: 0 explained, 2 there is no such code."
)]
pub struct Arguments {
    /// Codes or names of diagnostics, such as W0105 or core-taken.
    codes: Vec<String>,
    /// Print the pages as JSON.
    #[arg(long)]
    json: bool,
}

/// The first code of this process that was printed with a fault.
static FIRST: OnceLock<Code> = OnceLock::new();

/// Records that faults are printed.
pub fn record(faults: &Faults) {
    if let Some(fault) = faults.0.first() {
        let _ = FIRST.set(fault.code);
    }
}

/// Prints which command explains the faults that were printed, if there were any.
pub fn hint() {
    if let Some(code) = FIRST.get() {
        screen::say(format_args!("For more about a code: weir explain {code}"));
    }
}

/// Carries the verb out.
pub fn run(arguments: &Arguments) -> Result {
    let found: std::result::Result<Vec<_>, _> = arguments
        .codes
        .iter()
        .map(|code| explain(code).ok_or_else(|| Failure::call(unknown(code))))
        .collect();
    let found = found?;
    let mut out = screen::stdout();
    if arguments.json {
        let list: Vec<Value> = if found.is_empty() {
            explanations().map(describe).collect()
        } else {
            found.into_iter().map(describe).collect()
        };
        writeln!(out, "{:#}", json!({ "version": 1, "diagnostics": list }))?;
    } else if found.is_empty() {
        write!(out, "{}", list())?;
    } else {
        let width = screen::columns().map_or(PAGE_WIDTH, |width| PAGE_WIDTH.min(width.into()));
        let pages: Vec<_> = found.into_iter().map(|page| rendered(page, width)).collect();
        write!(out, "{}", pages.join("\n"))?;
    }
    Ok(())
}

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

/// Paragraphs with lines of at most `width` columns. A longer word has a line of its own.
fn wrapped(prose: &str, width: usize) -> String {
    let mut text = String::new();
    for paragraph in prose.split("\n\n") {
        if !text.is_empty() {
            text.push('\n');
        }
        let mut column = 0;
        for word in paragraph.split_whitespace() {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > width {
                text.push('\n');
                column = 0;
            } else if column > 0 {
                text.push(' ');
                column += 1;
            }
            text.push_str(word);
            column += length;
        }
        text.push('\n');
    }
    text
}

fn describe(page: &Explanation) -> Value {
    json!({
        "code": page.code.to_string(),
        "name": page.code.name(),
        "topic": page.topic,
        "title": page.title,
        "cause": page.cause,
        "example": page.example.text,
        "fix": page.fix,
        "fixed": page.fixed.map(|example| example.text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{analyze, plan};
    use std::path::Path;
    use weir_model::{Timing, check_text};

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

    /// Codes that a verb reports after the file's own check, with what finds them.
    const ANALYZED: [(Code, fn(&str) -> Vec<Code>); 15] = [
        (Code::FlowLimit, analyzed),
        (Code::NoOverheads, analyzed),
        (Code::NoSupply, analyzed),
        (Code::FlowDeadlineMissed, judged),
        (Code::IrqNoWcet, analyzed),
        (Code::ScheduleLimit, analyzed),
        (Code::ServerLate, analyzed),
        (Code::NoSchedule, analyzed),
        (Code::TaskCore, analyzed),
        (Code::TaskNotScheduled, analyzed),
        (Code::TaskDeadlineMissed, judged),
        (Code::MemoryBandwidth, judged),
        (Code::PlanBudget, planned),
        (Code::PlatformPlanned, built),
        (Code::NotEnforced, built),
    ];

    fn timing(text: &str) -> Timing {
        Timing::from_text(Path::new("system.toml"), text).unwrap_or_else(|faults| {
            panic!("{text}\n{faults}");
        })
    }

    fn codes(faults: &[weir_model::Fault]) -> Vec<Code> {
        faults.iter().map(|fault| fault.code).collect()
    }

    fn analyzed(text: &str) -> Vec<Code> {
        let question = analyze::Question::default();
        match analyze::Analysis::of(&timing(text), &question) {
            Ok(analysis) => codes(&analysis.open),
            Err(faults) => codes(&faults.0),
        }
    }

    fn judged(text: &str) -> Vec<Code> {
        analyze::check(&timing(text)).err().map_or(Vec::new(), |faults| codes(&faults.0))
    }

    fn planned(text: &str) -> Vec<Code> {
        plan::open::check(&timing(text)).err().map_or(Vec::new(), |faults| codes(&faults))
    }

    fn built(text: &str) -> Vec<Code> {
        let catalog =
            weir_model::Catalog { guests: vec!["control".to_owned()], ..Default::default() };
        let system = check_text(Path::new("system.toml"), text, &catalog)
            .unwrap_or_else(|faults| panic!("{text}\n{faults}"));
        let found = [system.can_run(), system.carried_out()];
        found.into_iter().filter_map(std::result::Result::err).flat_map(|f| codes(&f.0)).collect()
    }

    #[test]
    fn examples_of_the_analysis_are_refused_and_fixes_are_not() {
        let mut wrong = Vec::new();
        for (code, find) in ANALYZED {
            let page = explain(code.name()).expect("a page");
            let found = find(&page.example.file());
            if !found.contains(&code) {
                wrong.push(format!("{code:?} gives {found:?}"));
            }
            if page.fixed.is_some_and(|fixed| find(&fixed.file()).contains(&code)) {
                wrong.push(format!("{code:?} is not fixed"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
