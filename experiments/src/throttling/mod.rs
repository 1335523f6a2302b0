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

pub use curves::ShapeFigures;
pub use grid::GridRun;
pub use regulators::{RegulatorFigures, WindowFigures};

use super::{
    ExperimentOutcome, ExperimentRequest, figures,
    statement::{ClaimSource, Paper, Statement},
};
use serde::{Deserialize, Serialize};
use weir_image::{Result, progress::CountBar};
use weir_runner::Lab;

const WEIR: ClaimSource = ClaimSource::own("docs/results/reproduce.md, Memory budgets");
const XEN: ClaimSource = Paper("xen-throttling").at("IV-B, Figure 5");
const XEN_RULE: ClaimSource = Paper("xen-throttling").at("III-C");

/// The figures of the experiment. A quick call has no shapes and no regulators.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThrottlingFigures {
    /// The runs with budgets.
    pub runs: Vec<GridRun>,
    /// The shape of the traffic.
    pub shapes: Option<ShapeFigures>,
    /// The lines that each regulator gives.
    pub regulators: Option<RegulatorFigures>,
    /// By how much a VM without a budget is slower while another is throttled, as a share.
    pub unregulated_overhead: f64,
    /// The instructions of the regulators at EL2.
    pub el2_instructions: paths::BudgetPaths,
    /// The compiler of the hypervisor.
    pub compiler: String,
}

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
    let (mut shape_figures, mut regulator_figures) = (None, None);
    let mut text = grid::text(&points);
    let mut files = Vec::new();
    let mut findings = regulators::Findings::default();
    if !request.quick {
        let shapes = curves::run(&lab, &request.directory, &bar)?;
        text = format!("{text}\n{}", shapes.text());
        statements.extend(shapes.statements());
        shape_figures = Some(shapes.record());
        files.extend(shapes.files);
        findings = regulators::run(&lab, &bar)?;
        regulator_figures = Some(std::mem::take(&mut findings.figures));
    }
    let unregulated_overhead = regulators::unregulated(&lab, &bar, &mut findings)?;
    text = format!("{text}{}", findings.text);
    statements.extend(findings.statements);
    let paths = paths::run(&lab, request.quick, &bar)?;
    text = format!("{text}\n{}\ncompiled by {}", paths::text(&paths), lab.compiler());
    statements.extend(paths::statements(&paths));
    drop(bar);
    let json = figures(ThrottlingFigures {
        runs: points.iter().map(grid::GridPoint::record).collect(),
        shapes: shape_figures,
        regulators: regulator_figures,
        unregulated_overhead,
        el2_instructions: paths::record(&paths),
        compiler: lab.compiler().to_owned(),
    });
    Ok(ExperimentOutcome { json, text, statements, files })
}
