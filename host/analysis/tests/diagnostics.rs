//! The examples of the codes that the analysis, the search or `weir build` report.

use crate::examples;
use std::path::Path;
use weir_analysis::{Options, PlanError, PlanOptions, analyze, plan};
use weir_model::{Catalog, Code, Fault, Faults, SystemFile, check_text, explain};

/// Returns the codes that a system file is refused with.
type Reporter = fn(&str) -> Vec<Code>;

/// Each code with what reports it.
const REPORTED: [(Code, Reporter); 12] = [
    (Code::AnalysisLimit, analyzed),
    (Code::NoOverheads, analyzed),
    (Code::IrqNoWcet, analyzed),
    (Code::NoSupply, analyzed),
    (Code::FlowDeadlineMissed, analyzed),
    (Code::ServerLate, analyzed),
    (Code::NoSchedule, analyzed),
    (Code::TaskCore, analyzed),
    (Code::TaskDeadlineMissed, analyzed),
    (Code::MemoryBandwidth, analyzed),
    (Code::PlanBudget, planned),
    (Code::NotEnforced, built),
];

fn catalog() -> Catalog {
    Catalog { guests: vec!["control".to_owned()], ..Catalog::default() }
}

fn codes<'a>(faults: impl IntoIterator<Item = &'a Fault>) -> Vec<Code> {
    faults.into_iter().map(|fault| fault.code).collect()
}

fn system_file(text: &str) -> SystemFile {
    SystemFile::parse(Path::new("system.toml"), text, &catalog())
        .unwrap_or_else(|faults| panic!("{text}\n{faults}"))
}

fn analyzed(text: &str) -> Vec<Code> {
    match analyze(&system_file(text), &Options::default()) {
        Ok(report) => codes(report.faults.iter().chain(report.causes())),
        Err(faults) => codes(&faults.0),
    }
}

fn planned(text: &str) -> Vec<Code> {
    match plan(&system_file(text), &PlanOptions::default()) {
        Err(PlanError::Faults(Faults(faults))) => codes(&faults),
        _ => Vec::new(),
    }
}

fn built(text: &str) -> Vec<Code> {
    let system = check_text(Path::new("system.toml"), text, &catalog())
        .unwrap_or_else(|faults| panic!("{text}\n{faults}"));
    codes(&system.unbuilt())
}

#[test]
fn examples_of_analysis_are_refused_and_fixes_not() {
    let mut wrong = Vec::new();
    for (code, report) in REPORTED {
        let page = explain(code.name()).expect("a page");
        let found = report(&examples::file(&page.example));
        if !found.contains(&code) {
            wrong.push(format!("{code:?} gives {found:?}"));
        }
        if page.fixed.is_some_and(|fixed| report(&examples::file(&fixed)).contains(&code)) {
            wrong.push(format!("{code:?} is not fixed"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
