//! Memory budgets, observed from outside of the machine: bounds and rates after bao-throttling and
//! xen-throttling, over four periods and three budgets each, with both counters; the shape of the
//! traffic; the share that each regulator gives, and its cost at EL2.
//!
//! Counts are the plug-in's own, of the guests' instructions or of the lines that the model of the
//! caches moves. From EL2 come only the times at which periods began.

mod curves;
mod grid;
pub mod paths;
mod regulators;

use super::{
    ExperimentOutcome, ExperimentRequest,
    statement::{ClaimSource, Paper, Statement},
};
use serde_json::json;
use weir_image::{Result, progress::CountBar};
use weir_runner::Lab;

const WEIR: ClaimSource = ClaimSource::own("docs/results/reproduce.md, Memory budgets");
const XEN: ClaimSource = Paper("xen-throttling").at("IV-B, Figure 5");

/// The whole experiment.
///
/// # Errors
///
/// As [`Lab::run`].
pub fn throttling(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let lab = Lab::new(&request.environment, &request.directory)?;
    let mut runs = grid::runs(request.quick) + paths::runs(request.quick) + regulators::UNREGULATED;
    if !request.quick {
        runs += curves::RUNS + regulators::RUNS;
    }
    let bar = CountBar::new("running", runs);
    let points = grid::run(&lab, request.quick, &bar)?;
    let mut statements: Vec<Statement> =
        points.iter().flat_map(grid::GridPoint::statements).collect();
    let mut json = json!({ "runs": points.iter().map(grid::GridPoint::json).collect::<Vec<_>>() });
    let mut text = grid::text(&points);
    let mut files = Vec::new();
    let mut findings = regulators::Findings::default();
    if !request.quick {
        let shapes = curves::run(&lab, &request.directory, &bar)?;
        text = format!("{text}\n{}", shapes.text());
        statements.extend(shapes.statements());
        json["shapes"] = shapes.json();
        files.extend(shapes.files);
        findings = regulators::run(&lab, &bar)?;
        json["regulators"] = std::mem::take(&mut findings.json);
    }
    json["unregulated_overhead"] = regulators::unregulated(&lab, &bar, &mut findings)?.into();
    text = format!("{text}{}", findings.text);
    statements.extend(findings.statements);
    let paths = paths::run(&lab, request.quick, &bar)?;
    json["el2_instructions"] = json!(paths::record(&paths));
    json["compiler"] = lab.compiler().into();
    text = format!("{text}\n{}\ncompiled by {}", paths::text(&paths), lab.compiler());
    statements.extend(paths::statements(&paths));
    drop(bar);
    Ok(ExperimentOutcome { json, text, statements, files })
}
