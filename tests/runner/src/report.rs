//! Results of tests, and how a person reads them.

use std::{fs, path::Path, time::Duration};

/// Lines of a failure that the terminal shows; the log has all of them.
const SHOWN: usize = 60;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// Why, or the output of the test.
    Failed(String),
    Ignored,
    /// The reason why a board cannot run it.
    NotApplicable(String),
}

/// One test, or a stage that counts as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The test binary, such as `weir-cli::qemu_flows`.
    pub binary: String,
    pub name: String,
    pub outcome: Outcome,
    /// Zero if unknown.
    pub took: Duration,
}

#[derive(Debug)]
pub struct StageReport {
    pub name: &'static str,
    pub cases: Vec<Case>,
    pub took: Duration,
    /// Test binaries that run as one process each, with their times.
    pub binaries: Vec<(String, Duration)>,
    /// A further line.
    pub note: Option<String>,
    /// A signal ended the stage early.
    pub interrupted: bool,
}

impl StageReport {
    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.cases.iter().filter(|case| is(&case.outcome)).count()
    }

    pub fn passed(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Passed)
    }

    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    pub fn ignored(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Ignored)
    }

    pub fn not_applicable(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::NotApplicable(_)))
    }

    /// The stage's line without its name.
    pub fn line(&self) -> String {
        let (passed, failed) = (self.passed(), self.failed());
        let mut parts = vec![format!("{passed} passed")];
        if failed > 0 {
            parts.push(format!("{failed} failed"));
        }
        if self.ignored() > 0 {
            parts.push(format!("{} ignored", self.ignored()));
        }
        if self.not_applicable() > 0 {
            parts.push(format!("{} not applicable", self.not_applicable()));
        }
        parts.push(format!("{} s", self.took.as_secs()));
        let result = match (self.interrupted, failed) {
            (true, _) => "interrupted",
            (false, 0) => "ok",
            (false, _) => "FAILED",
        };
        let note = self.note.iter().map(|note| format!("\n        {note}"));
        format!("{result}, {}{}", parts.join(", "), note.collect::<String>())
    }

    /// The failures, each with the end of its output, and where the whole output is.
    pub fn details(&self, log: &Path) -> String {
        let failures = self.cases.iter().filter_map(|case| match &case.outcome {
            Outcome::Failed(why) => Some((title(&case.binary, &case.name), why)),
            Outcome::Passed | Outcome::Ignored | Outcome::NotApplicable(_) => None,
        });
        let texts = failures.map(|(title, why)| title + "\n" + &indented(&tail(why, SHOWN)));
        texts.collect::<String>() + &format!("(log: {})\n", log.display())
    }
}

fn title(binary: &str, name: &str) -> String {
    [binary, name].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns the last lines of `text`.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Returns the last lines of the file at `log`.
pub fn log_tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    tail(&String::from_utf8_lossy(&bytes), SHOWN)
}

/// Moves each line to the right.
pub fn indented(text: &str) -> String {
    text.lines().flat_map(|line| ["    ", line, "\n"]).collect()
}

/// Returns the ten longest tests and test binaries as lines; none if no time is known.
pub fn slowest(reports: &[StageReport]) -> String {
    let cases = reports.iter().flat_map(|report| &report.cases);
    let tests = cases.filter(|case| !case.name.is_empty() && case.took > Duration::ZERO);
    let mut all: Vec<(Duration, String)> =
        tests.map(|case| (case.took, title(&case.binary, &case.name))).collect();
    let binaries = reports.iter().flat_map(|report| &report.binaries);
    all.extend(binaries.map(|(name, took)| (*took, format!("{name} (unit tests)"))));
    all.sort_by_key(|entry| std::cmp::Reverse(entry.0));
    if all.is_empty() {
        return String::new();
    }
    let line =
        |(took, name): &(Duration, String)| format!("  {:6.1} s  {name}\n", took.as_secs_f64());
    "slowest:\n".to_owned() + &all.iter().take(10).map(line).collect::<String>()
}

/// Results that tests make up.
#[cfg(test)]
pub mod examples {
    use super::*;

    pub fn case(name: &str, outcome: Outcome, seconds: u64) -> Case {
        let took = Duration::from_secs(seconds);
        Case { binary: "x".into(), name: name.into(), outcome, took }
    }

    pub fn report(cases: Vec<Case>) -> StageReport {
        let took = Duration::from_secs(5);
        StageReport {
            name: "qemu",
            cases,
            took,
            binaries: Vec::new(),
            note: None,
            interrupted: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        examples::{case, report},
        *,
    };

    #[test]
    fn a_stage_is_one_line() {
        let good = report(vec![case("a", Outcome::Passed, 1), case("b", Outcome::Ignored, 0)]);
        assert_eq!(good.line(), "ok, 1 passed, 1 ignored, 5 s");
        let bad = report(vec![case("a", Outcome::Failed("boom\n".into()), 1)]);
        assert_eq!(bad.line(), "FAILED, 0 passed, 1 failed, 5 s");
        assert_eq!(bad.details(Path::new("l")), "x a\n    boom\n(log: l)\n");
    }

    #[test]
    fn the_ten_slowest_come_longest_first() {
        let cases = (1..=12).map(|n| case(&format!("t{n}"), Outcome::Passed, n)).collect();
        let text = slowest(&[report(cases)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[1]), (11, "    12.0 s  x t12"));
        assert_eq!(slowest(&[report(vec![case("a", Outcome::Passed, 0)])]), "");
    }
}
