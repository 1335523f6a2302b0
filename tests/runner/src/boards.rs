//! The stage qemu on several boards: what the tests report, and the table of all results.

use crate::report::{Case, Outcome};
use std::{collections::BTreeSet, time::Duration};

/// The variable that names the board of a test; `tests/end-to-end/support/board.rs` reads it.
pub const BOARD: &str = "WEIR_TEST_PLATFORM";
/// Begins the lines of which the runner learns what a test did.
pub const MARK: &str = "weir test: ";
/// Why a test that passed has no result on a board.
const NO_SYSTEM: &str = "it runs no system of qemu-virt";
/// The rest of the page's first sentence, and what the table means.
const ABOUT: &str = " --table FILE` wrote this page.
Systems of `qemu-virt` run on each board by `--platform`, with nothing else changed. A test is not
applicable if only that board refuses its system; the reason is weir's. Tests that run no such
system are left out.

";

/// Returns whether a test can have a result on a board: the others run no system.
pub fn is_of_systems(name: &str) -> bool {
    name.starts_with("qemu_")
}

/// Returns the outcome on a board of a test with this output. A test that is not applicable ends
/// its process.
pub fn outcome_on_board(output: &str, outcome: Outcome) -> Outcome {
    match self::outcome(output, outcome) {
        Outcome::Passed if marks(output).next().is_none() => {
            Outcome::NotApplicable(NO_SYSTEM.to_owned())
        }
        outcome => outcome,
    }
}

/// Returns the outcome of a test with this output, which can be that it is not applicable.
pub fn outcome(output: &str, outcome: Outcome) -> Outcome {
    let reason = marks(output).find_map(|mark| mark.strip_prefix("not applicable: "));
    reason.map_or(outcome, |reason| Outcome::NotApplicable(reason.to_owned()))
}

fn marks(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| line.split_once(MARK).map(|(_, mark)| mark))
}

/// Returns the name of a test binary on a board.
pub fn binary_on(binary: &str, board: &str) -> String {
    format!("{binary} on {board}")
}

/// Returns whether a test ran no system, so that no board has a result of it.
pub fn is_idle(case: &Case) -> bool {
    matches!(&case.outcome, Outcome::NotApplicable(reason) if reason == NO_SYSTEM)
}

/// Returns the result on a board of a test that is known to run no system.
pub fn idle_case(binary: &str, name: &str, board: &str) -> Case {
    let outcome = Outcome::NotApplicable(NO_SYSTEM.to_owned());
    Case { binary: binary_on(binary, board), name: name.to_owned(), outcome, took: Duration::ZERO }
}

/// Returns the results by board as a page in Markdown.
pub fn table(cases: &[Case], boards: &[String]) -> String {
    let of = |board: &String| {
        let end = binary_on("", board);
        cases.iter().filter(move |case| case.binary.ends_with(&end))
    };
    let row = |first: &str, cells: &[String]| format!("| {first} | {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(boards.len() + 1));
    let count = |first: &str, is: fn(&Outcome) -> bool| {
        let counts = |case: &&Case| !is_idle(case) && is(&case.outcome);
        let count = |board| of(board).filter(counts).count().to_string();
        row(first, &boards.iter().map(count).collect::<Vec<_>>())
    };
    let mut lines = vec![
        "# QEMU suite by board\n\n`./weir test qemu --platform ".to_owned(),
        boards.join(","),
        ABOUT.to_owned(),
        row("", boards),
        rule.clone(),
        count("passed", |outcome| *outcome == Outcome::Passed),
        count("not applicable", |outcome| matches!(outcome, Outcome::NotApplicable(_))),
        count("failed", |outcome| matches!(outcome, Outcome::Failed(_))),
        "\n".to_owned(),
        row("test", boards),
        rule,
    ];
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    for name in names {
        let on = |board| of(board).find(|case| case.name == name);
        let found: Vec<_> = boards.iter().filter_map(on).collect();
        // Where no board runs a system, or the runner was interrupted, a row says nothing.
        if found.len() == boards.len() && !found.iter().all(|case| is_idle(case)) {
            let cells: Vec<_> = found.into_iter().map(|case| cell(&case.outcome)).collect();
            lines.push(row(name, &cells));
        }
    }
    lines.concat()
}

fn cell(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::Failed(_) => "**failed**".to_owned(),
        Outcome::Ignored => "ignored".to_owned(),
        Outcome::NotApplicable(reason) => {
            let harmless = |text: &str| text.replace('|', "\\|");
            format!("not applicable: {}", harmless(reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::case;

    #[test]
    fn a_test_reports_its_board_and_its_reason() {
        let ran = "x\nweir test: ran on zcu102\n";
        assert_eq!(outcome_on_board(ran, Outcome::Passed), Outcome::Passed);
        let failed = Outcome::Failed("why".to_owned());
        assert_eq!(outcome_on_board(ran, failed.clone()), failed);
        // With --nocapture the harness's own line is not complete.
        let refused = "test x ... weir test: ran on b\nweir test: not applicable: no PCI\n";
        let reason = Outcome::NotApplicable("no PCI".to_owned());
        assert_eq!(outcome_on_board(refused, failed.clone()), reason);
        let none = Outcome::NotApplicable(NO_SYSTEM.to_owned());
        assert_eq!(outcome_on_board("", Outcome::Passed), none);
        // Tests of a board by name report its absence only.
        assert_eq!(outcome(refused, failed), reason);
        assert_eq!(outcome("", Outcome::Passed), Outcome::Passed);
    }

    #[test]
    fn the_table_has_a_column_for_each_board() {
        let on = |board, outcome| Case { binary: binary_on("x", board), ..case("t", outcome, 1) };
        let cases = [
            on("a", Outcome::Passed),
            on("b", Outcome::NotApplicable("no | here".to_owned())),
            Case { name: "u".to_owned(), ..on("a", outcome_on_board("", Outcome::Passed)) },
            idle_case("x", "u", "b"),
        ];
        let text = table(&cases, &["a".to_owned(), "b".to_owned()]);
        assert!(text.contains("\n|  | a | b |\n|---|---|---|\n| passed | 1 | 0 |\n"), "{text}");
        assert!(text.contains("\n| not applicable | 0 | 1 |\n"), "{text}");
        assert!(text.ends_with("\n| t | passed | not applicable: no \\| here |\n"), "{text}");
    }
}
