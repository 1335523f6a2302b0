//! The report of a run as one HTML page, for people who attach it to evidence.

mod draft;
mod fields;
mod files;
mod judged;
mod page;
mod system;

use crate::{JSON_VERSION, REPORT};
use draft::Draft;
use fields::{Fields, damaged, left};
pub use files::{ConsoleTail, RunFiles, TraceCounts, console_log, read_run_file};
use page::{Page, class};
use std::collections::{BTreeMap, BTreeSet};
use weir_analysis::verdict::Verdict;
use weir_image::Result;

/// The head up to the title. The policy lets a browser load and run nothing.
const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width\">\n\
    <meta http-equiv=\"Content-Security-Policy\" \
    content=\"default-src 'none'; style-src 'unsafe-inline'\">\n";

/// Returns the report of a run as one HTML page, without scripts and other files: verdict with
/// reasons and assumptions, identity, expected lines, limits against observed maxima, counts and
/// warnings. Text of the run is escaped.
///
/// # Errors
///
/// The call is wrong if the report is damaged or of another version. That `run.json`, the trace or
/// a console is missing or damaged is a warning on the page.
///
/// # Examples
///
/// ```
/// use serde_json::json;
/// use weir_report::RunFiles;
///
/// let report = json!({
///     "version": 1, "system": "demo", "platform": "qemu-virt", "started": true,
///     "ended_by": "time-over", "time_ns": 9000, "clock": "emulated", "verdict": null,
///     "verdict_of": [], "vms": [], "totals": { "expected": 0, "met": 0 },
///     "hypervisor": ["<script>alert(1)</script>"],
/// });
/// let page = weir_report::html(&RunFiles { report, ..RunFiles::default() })?;
/// assert!(page.contains("Verdict: not judged"));
/// assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
/// # Ok::<(), weir_image::Failure>(())
/// ```
///
/// The page of a run: `weir_report::html(&RunFiles::read(&run.directory)?)`.
pub fn html(files: &RunFiles) -> Result<String> {
    let mut report = files.report.clone();
    let mut draft = Draft::default();
    let head = Head::read(&mut Fields::new(&mut report, REPORT.to_owned())?, &mut draft)?;
    let mut fields = Fields::new(&mut report, REPORT.to_owned())?;
    system::identity(files, &head.facts(files), &mut draft);
    judged::sections(&mut fields, &mut draft)?;
    head.compare(&draft)?;
    let limits = draft.limits()?;
    system::vms(&mut fields, &mut draft)?;
    system::rest(files, &mut fields, &mut draft)?;
    let mut not_shown = BTreeMap::new();
    left(&report, REPORT, &mut not_shown);

    let mut page = Page::default();
    head.write(&mut page, &draft);
    page.append(&limits);
    page.append(&draft.body);
    page.element("h2", "", "Not on this page");
    let paths = not_shown.iter().map(|(path, count)| format!("{path}: {count} values"));
    let files = [
        "the consoles up to their ends: the .log file of each VM",
        "events in words: hypervisor.log; each record: trace.bin, by `weir trace`",
        "causes without an exit: report.json",
        "the system file, as it was run: system.toml; its analysis: `weir analyze system.toml`",
    ];
    page.list(paths.chain(files.map(str::to_owned)));
    page.markup("</body>\n</html>\n");
    Ok(page.into_text())
}

/// The values of a report that do not belong to one VM or flow.
struct Head {
    system: String,
    platform: String,
    ended: &'static str,
    time_ns: u64,
    verdict: Option<Verdict>,
    verdict_of: Vec<String>,
    expected: (u64, u64),
}

impl Head {
    /// Reads these values, and adds their warnings and assumptions.
    fn read(report: &mut Fields<'_>, draft: &mut Draft) -> Result<Self> {
        let version = report.count("version")?;
        if version != u64::from(JSON_VERSION) {
            let what = format!("is of version {version}, and this weir reads {JSON_VERSION}");
            return Err(damaged(REPORT, &what));
        }
        if !report.is("started")? {
            draft.warnings.push("the hypervisor never reported its start".to_owned());
        }
        let clock = report.text("clock")?;
        draft.assumptions.push(clock_in_words(&clock)?.to_owned());
        if let Some(board) = report.take("memory")?.as_str() {
            draft.assumptions.push(format!(
                "The time of the caches and the DRAM of {board}, by a model, is charged to the \
                 cores in addition."
            ));
        }
        let (ended, is_good) = end_in_words(&report.text("ended_by")?)?;
        if !is_good {
            draft.warnings.push(ended.to_owned());
        }
        let resets = report.count("board_resets")?;
        if resets > 0 {
            let text = "times: everything is counted from the last start";
            draft.warnings.push(format!("the board was reset {resets} {text}"));
        }
        let totals = report.object("totals")?;
        let count = |key| totals.as_ref().and_then(|totals| totals.peek(key)).unwrap_or_default();
        let expected = (count("met"), count("expected"));
        Ok(Self {
            system: report.text("system")?,
            platform: report.text("platform")?,
            ended,
            time_ns: report.count("time_ns")?,
            verdict: report.verdict()?,
            verdict_of: report.texts("verdict_of")?,
            expected,
        })
    }

    /// Compares the verdict with the findings.
    fn compare(&self, draft: &Draft) -> Result {
        let most_severe = judged::most_severe(draft);
        let of = draft.findings.iter().filter(|(_, verdict, _)| Some(*verdict) == most_severe);
        let of: BTreeSet<&str> = of.map(|(name, ..)| name.as_str()).collect();
        if most_severe == self.verdict && of == self.verdict_of.iter().map(String::as_str).collect()
        {
            return Ok(());
        }
        Err(damaged(REPORT, "has a `verdict` that is not that of its parts"))
    }

    /// Returns the rows of the identity that `report.json` has.
    fn facts(&self, files: &RunFiles) -> [(&'static str, String); 4] {
        [
            ("system", self.system.clone()),
            ("platform", self.platform.clone()),
            ("run", files.run.clone()),
            ("end", format!("{}, at {} ns after the hypervisor's start", self.ended, self.time_ns)),
        ]
    }

    /// Writes the head of the page: verdict, reasons, warnings and assumptions.
    fn write(&self, page: &mut Page, draft: &Draft) {
        let verdict = self.verdict.unwrap_or(Verdict::NotJudged);
        let Self { system, platform, expected: (met, expected), .. } = self;
        page.markup(HEAD);
        page.element("title", "", &format!("{system} on {platform}: {verdict}"));
        page.markup("<style>\n");
        page.markup(include_str!("style.css"));
        page.markup("</style>\n</head>\n<body>\n");
        page.element("h1", "", &format!("{system} on {platform}"));
        page.markup("<p>");
        page.element("strong", class(verdict), &format!("Verdict: {verdict}"));
        let lines = Verdict::of(met == expected);
        let text = format!("Expected lines: {met} of {expected} printed");
        page.element(
            "strong",
            class(if *expected == 0 { Verdict::NotJudged } else { lines }),
            &text,
        );
        let warnings = draft.warnings.len();
        let calm = if warnings == 0 { Verdict::Holds } else { Verdict::NotJudged };
        page.element("strong", class(calm), &format!("Warnings: {warnings}"));
        page.markup("</p>\n");
        let reasons = draft.findings.iter().filter(|(_, verdict, _)| !verdict.holds());
        let reasons: Vec<_> =
            reasons.map(|(name, verdict, why)| format!("{name}: {verdict}: {why}")).collect();
        match self.verdict {
            None => page.element(
                "p",
                "",
                "The system has no flow with a limit, no memory budget, no task and no interrupt \
                 with a deadline: nothing is judged.",
            ),
            Some(_) if reasons.is_empty() => {
                page.element("p", "", "Every flow, budget, task and interrupt kept its limits.");
            }
            Some(_) => page.list(reasons),
        }
        for (title, texts) in [("Warnings", &draft.warnings), ("Assumptions", &draft.assumptions)] {
            if !texts.is_empty() {
                page.element("h2", "", title);
                page.list(texts);
            }
        }
    }
}

/// Returns what the time of a run is.
fn clock_in_words(clock: &str) -> Result<&'static str> {
    Ok(match clock {
        "emulated" => {
            "Times are those of the emulated clock: 1 ns for each instruction, on cores that run \
             concurrently. The run is no evidence about a board."
        }
        "board" => "Times are the board's.",
        _ => {
            return Err(damaged(REPORT, "has an unknown `clock`"));
        }
    })
}

/// Returns why a run ended, and whether it ended as planned.
fn end_in_words(end: &str) -> Result<(&'static str, bool)> {
    Ok(match end {
        "all-met" => ("every expected line was seen", true),
        "time-over" => ("the time is over", true),
        "system-stop" => ("the system ended itself", true),
        "interrupted" => ("the run was interrupted", false),
        "machine-gone" => ("the machine was gone before the system ended", false),
        "silent" => ("the machine fell silent", false),
        _ => return Err(damaged(REPORT, "has an unknown `ended_by`")),
    })
}

#[cfg(test)]
mod tests;
