//! `weir reproduce`: tables and figures of the papers, computed again and compared with what was
//! published.

use crate::{
    build_id,
    environment::Environment,
    failure::{Context, Failure, Result},
    screen,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::{fs, io::Write, path::PathBuf};
use weir_experiments::{EXPERIMENTS, Experiment, ExperimentRequest, statement::Judged};
use weir_report::{table, versioned};

/// Computes a table or figure of a paper again, compares it with the published one and reports
/// where they differ.
///
/// Without a name it lists the experiments.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir reproduce\n  \
        weir reproduce rt-virtio-table3\n  \
        weir reproduce rt-virtio-fig5 -o fig5\n\n\
        Exit status: 0 if each statement holds or is a listed deviation, 1 if not, 2 if the \
        call is wrong.")]
pub struct ReproduceArguments {
    /// The experiment.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(EXPERIMENTS.iter().map(|each| each.name)))]
    experiment: Option<String>,
    /// Where to write tables and pictures; without it `build/reproduce/EXPERIMENT`.
    #[arg(short, long, value_name = "DIR", requires = "experiment")]
    output: Option<PathBuf>,
    /// Random sets at each point, where an experiment has some.
    #[arg(long, requires = "experiment", value_parser = clap::value_parser!(u32).range(1..=1_000_000), allow_negative_numbers = true)]
    sets: Option<u32>,
    /// A small part of it, where an experiment has one.
    #[arg(long, requires = "experiment")]
    quick: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// An experiment in the list of them.
#[derive(Serialize, JsonSchema)]
pub struct ExperimentRecord {
    /// The name of the experiment.
    name: &'static str,
    /// What it computes again.
    what: &'static str,
}

/// Carries the verb out.
pub fn run(arguments: &ReproduceArguments, environment: &Environment) -> Result {
    let mut out = screen::stdout();
    let experiment = arguments.experiment.as_deref();
    let Some(experiment) = EXPERIMENTS.iter().find(|each| Some(each.name) == experiment) else {
        if arguments.json {
            let record = |each: &Experiment| ExperimentRecord { name: each.name, what: each.what };
            let list: Vec<_> = EXPERIMENTS.iter().map(record).collect();
            writeln!(out, "{:#}", versioned(list))?;
        } else {
            let mut rows = table(["experiment", ""]);
            for each in &EXPERIMENTS {
                rows.add_row([each.name, each.what]);
            }
            writeln!(out, "{rows}")?;
        }
        return Ok(());
    };
    let otherwise = || environment.build().join("reproduce").join(experiment.name);
    let directory = arguments.output.clone().unwrap_or_else(otherwise);
    fs::create_dir_all(&directory).context(|| format!("create {}", directory.display()))?;
    let outcome = experiment.run(&ExperimentRequest {
        directory,
        sets: arguments.sets,
        quick: arguments.quick,
        environment: environment.clone(),
    })?;
    let judged = Judged::new(outcome.statements, experiment.deviations, !arguments.quick);
    if arguments.json {
        let mut json = json!({ "experiment": experiment.name });
        if experiment.runs_systems {
            json["build"] = build_id::of_checkout().into();
        }
        json["statements"] = judged.json();
        json["as_expected"] = judged.failures.is_empty().into();
        json["failures"] = judged.failures.clone().into();
        if let (Value::Object(all), Value::Object(more)) = (&mut json, outcome.json) {
            all.extend(more);
        }
        // Relative to the checkout: results are kept, and must not depend on its place.
        let root = environment.root()?;
        let files = outcome.files.iter().map(|file| file.strip_prefix(root).unwrap_or(file));
        json["files"] = files.map(|file| file.display().to_string()).collect();
        writeln!(out, "{:#}", versioned(json))?;
    } else {
        writeln!(out, "{}\n\n{}", outcome.text.trim_end(), judged.text().trim_end())?;
        for file in &outcome.files {
            writeln!(out, "{}", file.display())?;
        }
    }
    conclude(experiment.name, &judged)
}

/// Fails unless each statement holds or is a listed deviation.
fn conclude(name: &str, judged: &Judged) -> Result {
    if judged.failures.is_empty() {
        return Ok(());
    }
    Err(Failure::system(format!("{name}: not as expected:\n  {}", judged.failures.join("\n  "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_experiments::statement::{ClaimSource, Relation};

    #[test]
    fn a_statement_that_does_not_hold_ends_with_status_1() {
        let source = ClaimSource { paper: "paper", place: "Table I" };
        let judged = |own: f64| {
            let statement = source.says("a", "a", Relation::Within(100.0, 0.01), [own]);
            Judged::new(vec![statement], &[], true)
        };
        assert!(conclude("x", &judged(100.5)).is_ok());
        let failure = conclude("x", &judged(98.0)).expect_err("a failure");
        assert_eq!(failure.status, crate::failure::SYSTEM);
        assert!(failure.text.contains("a: 98 (100 within 1 %)"), "{}", failure.text);
    }
}
