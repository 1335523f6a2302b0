//! The verbs `analyze`, `check` and `plan` as calls of the library.

use crate::checkout;
use serde_json::{Value, json};
use std::path::Path;
use weir_analysis::{
    BytesPerSec, CheckRules, Conflict, Options, Plan, PlanError, PlanOptions, Report,
    verdict::Verdict::{self, DoesNotHold},
};
use weir_model::{Catalog, Fault, Faults, SystemFile, check_text};

/// The catalog with the guests of the checkout.
pub fn guests() -> Catalog {
    Catalog { guests: checkout::guests(), ..Catalog::default() }
}

/// The catalog for texts: `bin = "guest.bin"` is no file.
fn catalog() -> Catalog {
    Catalog { bins: vec!["guest.bin".to_owned()], ..Catalog::default() }
}

fn report(text: &str, options: &Options) -> Result<Report, Faults> {
    let file = SystemFile::parse(Path::new("x.toml"), text, &catalog())?;
    weir_analysis::analyze(&file, options)
}

/// Analyzes a text: the verdict, which faults of the text make negative, and the report in JSON.
pub fn analyze_with(text: &str, options: &Options) -> (Option<Verdict>, Value) {
    match report(text, options) {
        Ok(report) => (report.verdict, json!(report)),
        Err(faults) => (Some(DoesNotHold), json!({ "faults": faults.records() })),
    }
}

pub fn at(bandwidth: u64) -> Options {
    Options { bandwidth: Some(BytesPerSec(bandwidth)), ..Options::default() }
}

pub fn analyze(text: &str) -> (Option<Verdict>, Value) {
    analyze_with(text, &Options::default())
}

/// A line for each fault: code, message, suggestion.
fn lines<'a>(faults: impl IntoIterator<Item = &'a Fault>) -> String {
    let line = |fault: &Fault| format!("{}: {}\n", fault.code, fault.note());
    faults.into_iter().map(line).collect()
}

/// Returns the line in the text of each reason for which it does not hold.
pub fn places(text: &str) -> Vec<usize> {
    let report = report(text, &Options::default()).expect("a report");
    report.causes().map(|fault| fault.record().line).collect()
}

/// Analyzes a text: the verdict, and why it does not hold, with suggestions.
pub fn causes(text: &str) -> (Option<Verdict>, String) {
    match report(text, &Options::default()) {
        Ok(report) => (report.verdict, lines(report.causes())),
        Err(faults) => (Some(DoesNotHold), lines(&faults.0)),
    }
}

/// Checks a text by these rules: the notes, or a line for each fault.
pub fn check_by(rules: CheckRules, text: &str) -> Result<String, String> {
    let system = check_text(Path::new("x.toml"), text, &catalog());
    let notes = system.and_then(|system| rules.judge(&system));
    notes.map(|notes| notes.join("\n")).map_err(|faults| lines(&faults.0))
}

/// Checks a text as `weir check` and `weir build` do.
pub fn check(text: &str) -> Result<String, String> {
    check_by(CheckRules::default(), text)
}

pub fn plan_within(max_steps: u64, text: &str) -> Result<Plan, PlanError> {
    let file = SystemFile::parse(Path::new("x.toml"), text, &catalog());
    let options = PlanOptions { max_steps, progress: None };
    weir_analysis::plan(&file.map_err(PlanError::Faults)?, &options)
}

/// Plans a text, or returns in words why not or why the plan is not judged.
pub fn plan(text: &str) -> Result<Plan, String> {
    match plan_within(PlanOptions::default().max_steps, text) {
        Ok(plan) if plan.report.verdict == Some(Verdict::NotJudged) => {
            let missing = plan.report.not_judged.iter().map(ToString::to_string);
            Err(missing.collect::<Vec<_>>().join("\n"))
        }
        Ok(plan) => Ok(plan),
        Err(PlanError::Faults(faults)) => Err(lines(&faults.0)),
        Err(other) => Err(other.to_string()),
    }
}

/// The text of a plan.
pub fn planned(text: &str) -> String {
    let plan = plan(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    plan.file.text().to_owned()
}

/// Why a text has no plan.
pub fn conflict(text: &str) -> Conflict {
    match plan_within(PlanOptions::default().max_steps, text) {
        Err(PlanError::Conflict(conflict)) => conflict,
        other => panic!("{other:?}"),
    }
}
