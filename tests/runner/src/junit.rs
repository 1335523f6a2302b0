//! The results as JUnit XML, for CI servers.

use crate::{
    libtest,
    report::{Case, Outcome, StageReport, tail},
};
use std::fmt::Write as _;

/// Lines of a failure's output in the file.
const LINES: usize = 400;

/// Returns the document.
pub fn document(reports: &[StageReport]) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n".to_owned();
    for report in reports {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            r#"  <testsuite name="{}" tests="{}" failures="{}" skipped="{}" time="{:.3}">"#,
            report.name,
            report.cases.len(),
            report.failed(),
            report.ignored() + report.not_applicable(),
            report.took.as_secs_f64()
        );
        for case in &report.cases {
            text += &element(case, report.name);
        }
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn element(case: &Case, stage: &str) -> String {
    let or_stage = |name: &str| escaped(if name.is_empty() { stage } else { name });
    let head = format!(
        r#"    <testcase classname="{}" name="{}" time="{:.3}""#,
        or_stage(&case.binary),
        or_stage(&case.name),
        case.took.as_secs_f64()
    );
    match &case.outcome {
        Outcome::Passed => head + "/>\n",
        Outcome::Ignored => head + "><skipped/></testcase>\n",
        Outcome::NotApplicable(reason) => {
            head + &format!("><skipped message=\"{}\"/></testcase>\n", escaped(reason))
        }
        Outcome::Failed(why) => {
            let (message, why) = (escaped(libtest::message(why)), escaped(&tail(why, LINES)));
            head + &format!("><failure message=\"{message}\">{why}</failure></testcase>\n")
        }
    }
}

/// Returns `text` for XML, which has no place for control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::{case, report};

    #[test]
    fn failures_are_escaped() {
        let report = report(vec![
            case("good", Outcome::Passed, 1),
            case("bad", Outcome::Failed("a < \"b\" & \u{1b}[0m\nmore".into()), 1),
            case("not", Outcome::Ignored, 1),
        ]);
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites>
  <testsuite name=\"qemu\" tests=\"3\" failures=\"1\" skipped=\"1\" time=\"5.000\">
    <testcase classname=\"x\" name=\"good\" time=\"1.000\"/>
    <testcase classname=\"x\" name=\"bad\" time=\"1.000\"><failure message=\"more\">a &lt; &quot;b&quot; &amp; \u{fffd}[0m
more</failure></testcase>
    <testcase classname=\"x\" name=\"not\" time=\"1.000\"><skipped/></testcase>
  </testsuite>
</testsuites>
";
        assert_eq!(document(&[report]), expected);
    }
}
