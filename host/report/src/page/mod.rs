//! Pages: a run, the plan of a system, and a comparison of two runs. Each is one HTML file without
//! scripts and other files, made by the templates in `templates/` from typed results.

mod compare;
mod figures;
mod files;
mod judged;
mod run;
#[cfg(test)]
mod tests;
mod trace;

use crate::{figure::Figure, plan::SystemPlan, units};
pub use files::{RunFiles, console_log};
use minijinja::{
    Environment, Error, Output, State, UndefinedBehavior, Value, context, escape_formatter,
};
use serde::Serialize;
use weir_image::{Failure, Result};
use weir_model::printable;

/// The templates by their names.
const TEMPLATES: [(&str, &str); 7] = [
    ("page.html", include_str!("templates/page.html")),
    ("macros.html", include_str!("templates/macros.html")),
    ("run.html", include_str!("templates/run.html")),
    ("plan.html", include_str!("templates/plan.html")),
    ("compare.html", include_str!("templates/compare.html")),
    ("plan.svg.html", include_str!("templates/plan.svg.html")),
    ("style.css", include_str!("templates/style.css")),
];

/// Returns the templates with the formats of their numbers. A field that a result does not have is
/// an error.
fn environment() -> std::result::Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_keep_trailing_newline(true);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_formatter(format_value);
    for (name, text) in TEMPLATES {
        environment.add_template(name, text)?;
    }
    environment.add_filter("count", units::count);
    environment.add_filter("time", units::time);
    environment.add_filter("bytes", units::bytes);
    Ok(environment)
}

/// Writes a value of a template. Text is escaped; its control characters and bidirectional
/// formatting are shown as `\u{1b}`.
fn format_value(
    out: &mut Output<'_>,
    state: &State<'_, '_>,
    value: &Value,
) -> std::result::Result<(), Error> {
    match value.as_str() {
        Some(text) if !value.is_safe() => {
            escape_formatter(out, state, &Value::from(printable(text).into_owned()))
        }
        _ => escape_formatter(out, state, value),
    }
}

/// Renders a template.
fn render(template: &str, context: impl Serialize) -> Result<String> {
    let render = || environment()?.get_template(template)?.render(context);
    render().map_err(|error| {
        Failure::environment(format!("cannot write a page by the template {template}: {error:#}"))
    })
}

/// Returns the page of a run: verdict and reasons, figures, and tables.
///
/// # Errors
///
/// The call is wrong if the parts of the report contradict its verdict. Files of the run that are
/// missing or damaged are warnings on the page.
///
/// # Examples
///
/// ```no_run
/// use std::path::Path;
/// use weir_report::{RunFiles, run_page};
///
/// # fn main() -> weir_image::Result {
/// let page = run_page(&RunFiles::read(Path::new("runs/2026-01-31T12-00-00Z"))?)?;
/// assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("<script"));
/// # Ok(())
/// # }
/// ```
pub fn run_page(files: &RunFiles) -> Result<String> {
    render("run.html", run::RunPage::of(files)?)
}

/// Returns the page that compares two runs: verdicts, bounds, observed maxima, and what differs in
/// their systems.
///
/// # Errors
///
/// As [`run_page`].
pub fn comparison_page(before: &RunFiles, after: &RunFiles) -> Result<String> {
    render("compare.html", compare::ComparisonPage::of(before, after)?)
}

/// Returns the page of the plan of a system. `guessed` names the parts of its image whose sizes are
/// estimates, on which addresses depend; `refused` has the reasons for which `weir check` refuses
/// the system.
///
/// # Errors
///
/// The environment is at fault if the page cannot be written.
pub fn plan_page(plan: &SystemPlan, guessed: &[String], refused: &[String]) -> Result<String> {
    render("plan.html", context! { plan, guessed, refused, figures => plan.figures() })
}

/// Returns the plan of a system as one picture. It does not depend on what is built.
///
/// # Errors
///
/// As [`plan_page`].
pub fn plan_svg(plan: &SystemPlan) -> Result<String> {
    /// Pixels for the title of the picture, and of each figure.
    const TITLES: (f64, f64) = (40.0, 30.0);
    #[derive(Serialize)]
    struct Placed {
        top: f64,
        figure: Figure,
    }
    let mut height = TITLES.0;
    let place = |figure: Figure| {
        let top = height + TITLES.1;
        height = top + figure.height + 10.0;
        Placed { top, figure }
    };
    let figures: Vec<_> = plan.stable_figures().into_iter().map(place).collect();
    render("plan.svg.html", context! { plan, figures, height })
}
