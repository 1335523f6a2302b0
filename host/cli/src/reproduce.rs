//! `weir reproduce`: tables and figures of the papers, computed again and compared with what was
//! published.

use crate::{
    build_id,
    environment::Environment,
    failure::{Context, Failure, INTERRUPTED, Result},
    screen,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fs, io::Write, path::PathBuf};
use weir_experiments::{
    EXPERIMENTS, Experiment, ExperimentReport, ExperimentRequest, Method,
    coverage::{PaperResult, paper_results},
    statement::{Judged, StatementCounts, StatementKind},
};
use weir_report::{table, versioned};

/// Computes a table or figure of a paper again, compares it with the published one and reports
/// where they differ.
///
/// Without a name it lists the experiments.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("which").args(["experiment", "all"])),
    after_help = "Examples:\n  \
        weir reproduce\n  \
        weir reproduce --list\n  \
        weir reproduce rt-virtio-table3\n  \
        weir reproduce rt-virtio-fig5 -o fig5\n  \
        weir reproduce --all --quick\n\n\
        Exit status: 0 if each statement holds or is a listed deviation, 1 if not, 2 if the \
        call is wrong."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch on the command line")]
pub struct ReproduceArguments {
    /// The experiment.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(EXPERIMENTS.iter().map(|each| each.name)))]
    experiment: Option<String>,
    /// Run all experiments, one after the other.
    #[arg(long)]
    all: bool,
    /// Of all experiments only each Nth, from the Ith on.
    #[arg(long, value_name = "I/N", value_parser = Shard::parse, requires = "all",
        conflicts_with = "experiment")]
    shard: Option<Shard>,
    /// List the tables and figures with results in the papers, each with the experiment that
    /// computes it and what is missing.
    #[arg(long, conflicts_with = "which")]
    list: bool,
    /// Where to write tables and pictures; without it `build/reproduce/EXPERIMENT`.
    #[arg(short, long, value_name = "DIR", requires = "experiment")]
    output: Option<PathBuf>,
    /// Random sets at each point, where an experiment has some.
    #[arg(long, requires = "experiment", value_parser = clap::value_parser!(u32).range(1..=1_000_000), allow_negative_numbers = true)]
    sets: Option<u32>,
    /// A small part of it, where an experiment has one.
    #[arg(long, requires = "which")]
    quick: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// One nth of the experiments: each nth one from a place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    place: usize,
    count: usize,
}

impl Shard {
    /// Reads `2/8`: the second of eight. The error is the suggestion.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let help = || "write I/N, like 2/8, with I from 1 to N".to_owned();
        let (place, count) = text.split_once('/').ok_or_else(help)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| help());
        let (place, count) = (number(place)?, number(count)?);
        if !(1..=count).contains(&place) {
            return Err(help());
        }
        Ok(Self { place: place - 1, count })
    }

    /// Returns whether it has the experiment of this index.
    const fn has(self, index: usize) -> bool {
        index % self.count == self.place
    }
}

/// An experiment in the list of them.
#[derive(Serialize, JsonSchema)]
pub struct ExperimentRecord {
    /// The name of the experiment.
    name: &'static str,
    /// The way in which its figures are computed: `real-binary`, `simulator` or `analysis`.
    method: Method,
    /// What it computes again.
    what: &'static str,
}

/// The result of several experiments.
#[derive(Serialize, JsonSchema)]
pub struct AllReproduced {
    /// The experiments.
    experiments: Vec<ExperimentReport>,
    /// The counts of each kind of statement in all of them.
    counts: BTreeMap<StatementKind, StatementCounts>,
    /// Tables and figures with results in the papers that have an experiment.
    results_with_experiment: usize,
    /// Tables and figures with results in the papers.
    results: usize,
}

/// A table or figure with results in a paper.
#[derive(Serialize, JsonSchema)]
pub struct PaperResultRecord {
    /// The name of the paper.
    paper: &'static str,
    /// The table or figure.
    place: &'static str,
    /// What the paper shows there.
    shows: &'static str,
    /// The experiments that compute it or a part of it; empty if there is none yet.
    experiments: Vec<&'static str>,
    /// The ways in which they compute it: `real-binary`, `simulator` or `analysis`.
    methods: Vec<Method>,
    /// The part that no experiment judges; empty if nothing is missing, or without an experiment.
    missing: &'static str,
}

impl PaperResultRecord {
    fn new((paper, result): (&'static str, &'static PaperResult)) -> Self {
        let PaperResult { place, shows, missing, .. } = *result;
        let experiments = result.experiments().map(|each| each.name).collect();
        let mut methods: Vec<_> = result.experiments().map(|each| each.method).collect();
        methods.dedup();
        Self { paper, place, shows, experiments, methods, missing }
    }
}

/// Carries the verb out.
pub fn run(arguments: &ReproduceArguments, environment: &Environment) -> Result {
    if arguments.list {
        return list(arguments.json);
    }
    if arguments.all {
        return all(arguments, environment);
    }
    let experiment = arguments.experiment.as_deref();
    let Some(experiment) = EXPERIMENTS.iter().find(|each| Some(each.name) == experiment) else {
        return experiments(arguments.json);
    };
    let done = Reproduced::new(experiment, arguments, environment)?;
    let mut out = screen::stdout();
    if arguments.json {
        writeln!(out, "{:#}", versioned(&done.report))?;
    } else {
        write!(out, "{}", done.text)?;
    }
    conclude(experiment.name, &done.judged)
}

/// Lists the experiments.
fn experiments(json: bool) -> Result {
    let mut out = screen::stdout();
    if json {
        let record = |each: &Experiment| {
            let Experiment { name, method, what, .. } = *each;
            ExperimentRecord { name, method, what }
        };
        let list: Vec<_> = EXPERIMENTS.iter().map(record).collect();
        writeln!(out, "{:#}", versioned(list))?;
    } else {
        let mut rows = table(["experiment", "computed by", ""]);
        for each in &EXPERIMENTS {
            rows.add_row([each.name, each.method.name(), each.what]);
        }
        writeln!(out, "{rows}")?;
    }
    Ok(())
}

/// Lists the tables and figures with results.
fn list(json: bool) -> Result {
    let mut out = screen::stdout();
    if json {
        let list: Vec<_> = paper_results().map(PaperResultRecord::new).collect();
        writeln!(out, "{:#}", versioned(list))?;
        return Ok(());
    }
    let mut rows = table(["paper", "table or figure", "experiment", "computed by", "missing"]);
    for (paper, result) in paper_results() {
        let [experiments, methods] = result.computed_by();
        let [place, missing] = [result.place, result.missing].map(str::to_owned);
        rows.add_row([paper.to_owned(), place, experiments, methods, missing]);
    }
    let [with, of] = covered();
    writeln!(out, "{rows}\n{with} of {of} tables and figures with results have an experiment")?;
    Ok(())
}

/// Returns how many tables and figures have an experiment, and how many there are.
fn covered() -> [usize; 2] {
    let has_some = |(_, result): &(&str, &PaperResult)| result.experiments().next().is_some();
    [paper_results().filter(has_some).count(), paper_results().count()]
}

/// Runs all experiments, or those of the shard, and shows the counts of each kind of statement.
fn all(arguments: &ReproduceArguments, environment: &Environment) -> Result {
    let number = EXPERIMENTS.len();
    if arguments.shard.is_some_and(|shard| !(0..number).any(|at| shard.has(at))) {
        return Err(Failure::call(format!(
            "--shard has none of the {number} experiments: write I/N with N up to {number}"
        )));
    }
    let mut out = screen::stdout();
    let mut of_each = Vec::new();
    let mut counts = BTreeMap::<StatementKind, StatementCounts>::new();
    let mut failed = Vec::new();
    let chosen = EXPERIMENTS.iter().enumerate();
    for (_, experiment) in chosen.filter(|(at, _)| arguments.shard.is_none_or(|it| it.has(*at))) {
        let done = match Reproduced::new(experiment, arguments, environment) {
            Ok(done) => done,
            Err(failure) if failure.status == INTERRUPTED => return Err(failure),
            Err(failure) => {
                // The others are not lost by it.
                failed.push(format!("{}: {}", experiment.name, failure.text));
                continue;
            }
        };
        for kind in StatementKind::ALL {
            *counts.entry(kind).or_default() += done.judged.counts(kind);
        }
        failed.extend(conclude(experiment.name, &done.judged).err().map(|failure| failure.text));
        if arguments.json {
            of_each.push(done.report);
        } else {
            writeln!(out, "{}, {}\n\n{}", experiment.name, experiment.method.name(), done.text)?;
        }
    }
    let [with, of] = covered();
    if arguments.json {
        let all = AllReproduced {
            experiments: of_each,
            counts,
            results_with_experiment: with,
            results: of,
        };
        writeln!(out, "{:#}", versioned(all))?;
    } else {
        writeln!(out, "in {}:", if arguments.shard.is_some() { "this shard" } else { "all" })?;
        for (kind, sum) in counts {
            writeln!(out, "{:11}  {sum}", kind.name())?;
        }
        writeln!(out, "{with} of {of} tables and figures with results have an experiment")?;
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::system(failed.join("\n"))) }
}

/// An experiment that was run.
struct Reproduced {
    judged: Judged,
    report: ExperimentReport,
    text: String,
}

impl Reproduced {
    /// Runs an experiment and judges its statements.
    fn new(
        experiment: &'static Experiment,
        arguments: &ReproduceArguments,
        environment: &Environment,
    ) -> Result<Self> {
        environment.sources()?;
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
        let figures = match outcome.json {
            Value::Object(figures) => figures,
            _ => Map::new(),
        };
        // Relative to the checkout: results are kept, and must not depend on its place.
        let root = environment.sources()?;
        let files = outcome.files.iter().map(|file| file.strip_prefix(root).unwrap_or(file));
        let build = build_id::of_checkout().filter(|_| experiment.runs_systems());
        let report = ExperimentReport {
            experiment: experiment.name.to_owned(),
            method: experiment.method,
            build: build.map(str::to_owned),
            counts: judged.all_counts(),
            statements: judged.records(),
            as_expected: judged.failures.is_empty(),
            failures: judged.failures.clone(),
            figures,
            files: files.map(|file| file.display().to_string()).collect(),
        };
        let mut text = format!("{}\n\n{}\n", outcome.text.trim_end(), judged.text().trim_end());
        text.extend(outcome.files.iter().map(|file| format!("{}\n", file.display())));
        Ok(Self { judged, report, text })
    }
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
    use weir_experiments::statement::{Paper, Relation};

    #[test]
    fn a_shard_has_each_nth_experiment() {
        let second = Shard::parse("2/3").expect("a shard");
        assert_eq!((0..8).filter(|index| second.has(*index)).collect::<Vec<_>>(), [1, 4, 7]);
        for bad in ["0/8", "9/8", "1", "a/b", "1/0"] {
            assert!(Shard::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_statement_that_does_not_hold_ends_with_status_1() {
        let source = Paper("paper").at("Table I");
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
