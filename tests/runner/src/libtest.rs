//! The output of Rust's test harness.

use crate::report::{Case, Outcome};
use std::time::Duration;

/// Numbers of a line `test result: ..`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
}

/// Reads the names in the output of `--list --format terse`.
pub fn listed(output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Adds up the results in `output`; none if a harness never came to its result.
pub fn counts(output: &str) -> Option<Counts> {
    let results = output.lines().filter_map(|line| line.split("test result: ").nth(1));
    results.map(result).reduce(|a, b| Counts {
        passed: a.passed + b.passed,
        failed: a.failed + b.failed,
        ignored: a.ignored + b.ignored,
    })
}

/// Reads `ok. 3 passed; 0 failed; 1 ignored; ..`.
fn result(line: &str) -> Counts {
    let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    let before = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words[at.checked_sub(1)?].parse().ok()
    };
    let number = |name| before(name).unwrap_or_default();
    Counts { passed: number("passed"), failed: number("failed"), ignored: number("ignored") }
}

/// Reads the results of single tests of `binary`. The harness does not print their times.
pub fn cases(binary: &str, output: &str) -> Vec<Case> {
    let results = output.lines().filter_map(|line| {
        let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        let outcome = match result {
            "ok" => Outcome::Passed,
            "FAILED" => Outcome::Failed(failure(output, name)),
            _ if result.starts_with("ignored") => Outcome::Ignored,
            _ => return None,
        };
        let name = name.trim_end_matches(" - should panic").to_owned();
        Some(Case { binary: binary.to_owned(), name, outcome, took: Duration::ZERO })
    });
    results.collect()
}

/// Returns what a single test printed with `--nocapture`, without what the harness adds.
pub fn own_output(output: &str) -> String {
    let lines = output.lines().skip_while(|line| line.is_empty() || line.starts_with("running "));
    let own = lines.take_while(|line| *line != "failures:");
    own.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Returns the most informative line of a failure: the panic message, else the last line.
pub fn message(why: &str) -> &str {
    let mut lines = why.lines().skip_while(|line| !line.contains(" panicked at "));
    lines.nth(1).or(why.lines().last()).unwrap_or_default()
}

/// Returns what the harness printed of the failed test `name`.
fn failure(output: &str, name: &str) -> String {
    let heading = format!("---- {} stdout ----", name.trim_end_matches(" - should panic"));
    let lines = output.lines().skip_while(|line| *line != heading).skip(1);
    let own = lines.take_while(|line| !line.starts_with("---- ") && *line != "failures:");
    own.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 3 tests
test a::good ... ok
test a::slow ... ignored, takes long
test bad ... FAILED

failures:

---- bad stdout ----

thread 'bad' panicked at src/lib.rs:3:5:
boom

failures:
    bad

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test src/lib.rs - x (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    #[test]
    fn results_are_read() {
        assert_eq!(counts(OUTPUT), Some(Counts { passed: 2, failed: 1, ignored: 1 }));
        assert_eq!(counts("running 3 tests\nSegmentation fault\n"), None);
        let cases = cases("x", OUTPUT);
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["a::good", "a::slow", "bad", "src/lib.rs - x (line 3)"]);
        let text = "thread 'bad' panicked at src/lib.rs:3:5:\nboom";
        assert_eq!(cases[2].outcome, Outcome::Failed(text.to_owned()));
        assert_eq!(cases[1].outcome, Outcome::Ignored);
    }

    #[test]
    fn output_before_the_result_does_not_hide_it() {
        // With --nocapture, a test's last line may be incomplete.
        let output =
            "test x ... partial lineok\n\nprinttest result: ok. 1 passed; 0 failed; 0 ignored";
        assert_eq!(counts(output), Some(Counts { passed: 1, failed: 0, ignored: 0 }));
    }

    #[test]
    fn a_failure_is_shown_without_the_harness() {
        let output = "\nrunning 1 test\nhello\n\nthread 'x' (3) panicked at a.rs:1:2:\nboom\n\
                      note: y\ntest x ... FAILED\n\nfailures:\n\nfailures:\n    x\n\n\
                      test result: FAILED. 0 passed";
        let own = own_output(output);
        let expected =
            "hello\n\nthread 'x' (3) panicked at a.rs:1:2:\nboom\nnote: y\ntest x ... FAILED";
        assert_eq!(own, expected);
        assert_eq!(message(&own), "boom");
        assert_eq!(message("out\nkilled"), "killed");
    }

    #[test]
    fn only_tests_are_listed() {
        assert_eq!(listed("a::b: test\nc: benchmark\nd: test\n"), ["a::b", "d"]);
    }
}
