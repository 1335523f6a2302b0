//! `weir reproduce`: tables and figures of the papers, computed again and compared with what was published.

mod isolation;
mod memory;
mod mobivmm;
mod rt_virtio;
pub mod statement;
pub mod throttling;

use crate::{
    environment::Environment,
    failure::{Context, Failure, Result},
    output, screen,
};
use serde_json::{Value, json};
use statement::{Deviation, Judged, Statement, VERSION};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};
use weir_report::table;

/// Computes a table or figure of a paper again, compares it with the published one and says where they differ.
///
/// Without a name it lists the experiments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir reproduce\n  weir reproduce rt-virtio-table3\n  weir reproduce rt-virtio-fig5 -o fig5\n\nExit status: 0 if each statement holds or is a listed deviation, 1 if not, 2 if the call is wrong."
)]
pub struct Arguments {
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

struct Experiment {
    name: &'static str,
    what: &'static str,
    run: fn(&Request) -> Result<Outcome>,
    /// Statements of it that are known not to hold.
    deviations: &'static [Deviation],
}

static EXPERIMENTS: [Experiment; 8] = [
    Experiment {
        name: "bao-throttling-budgets",
        what: "programs beside three memory stressors with memory budgets of three periods, with colors and without, on the model of the memory",
        run: memory::budgets::budgets,
        deviations: &memory::budgets::DEVIATIONS,
    },
    Experiment {
        name: "isolation",
        what: "cache lines and DRAM rows that VMs take from each other, with colors and banks and without, and a VM's share of the cache",
        run: isolation::isolation,
        deviations: &[],
    },
    Experiment {
        name: "mobivmm",
        what: "how long a sleep takes beside another VM on the core and its interrupts: Table I, Figures 8, 9 and 11, and with admission",
        run: mobivmm::mobivmm,
        deviations: &mobivmm::DEVIATIONS,
    },
    Experiment {
        name: "rt-virtio-dma",
        what: "bandwidth of a DMA engine by chunk and QoS level, Figure 4 and Table I, on the model of the memory",
        run: memory::dma::bandwidth,
        deviations: &memory::dma::DEVIATIONS,
    },
    Experiment {
        name: "rt-virtio-fig3",
        what: "bandwidth of USTRESS over the memory budget, on the model of the memory",
        run: memory::ustress::fig3,
        deviations: &memory::ustress::DEVIATIONS,
    },
    Experiment {
        name: "rt-virtio-table3",
        what: "smallest period of one flow, four cases, in both readings of the equations",
        run: rt_virtio::table3,
        deviations: &rt_virtio::TABLE3_DEVIATIONS,
    },
    Experiment {
        name: "rt-virtio-fig5",
        what: "share of schedulable flow sets over utilization, 18 curves of 20 points",
        run: rt_virtio::fig5,
        deviations: &[],
    },
    Experiment {
        name: "throttling",
        what: "memory budgets seen from outside: bounds, rates, arrival curves, what each regulator gives and what it costs at EL2",
        run: throttling::throttling,
        deviations: &throttling::paths::DEVIATIONS,
    },
];

/// What an experiment is asked.
pub struct Request {
    /// Where its files go; it exists.
    pub directory: PathBuf,
    /// Random sets at each point.
    pub sets: Option<u32>,
    /// A small part is enough.
    pub quick: bool,
    /// The checkout and the tools.
    pub environment: Environment,
}

/// What came out.
pub struct Outcome {
    /// For a program.
    pub json: Value,
    /// For a person.
    pub text: String,
    /// What is judged.
    pub statements: Vec<Statement>,
    /// Files that were written.
    pub files: Vec<PathBuf>,
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    let mut out = screen::stdout();
    let experiment = arguments.experiment.as_deref();
    let Some(experiment) = EXPERIMENTS.iter().find(|each| Some(each.name) == experiment) else {
        if arguments.json {
            let list =
                EXPERIMENTS.iter().map(|each| json!({ "name": each.name, "what": each.what }));
            writeln!(out, "{:#}", list.collect::<Value>())?;
        } else {
            let mut rows = table(["experiment", ""]);
            for each in &EXPERIMENTS {
                rows.add_row([each.name, each.what]);
            }
            writeln!(out, "{rows}")?;
        }
        return Ok(());
    };
    if let Some(directory) = &arguments.output {
        output::check_name("-o", directory)?;
    }
    let otherwise = || environment.build().join("reproduce").join(experiment.name);
    let directory = arguments.output.clone().unwrap_or_else(otherwise);
    fs::create_dir_all(&directory).context(|| format!("create {}", directory.display()))?;
    let outcome = (experiment.run)(&Request {
        directory,
        sets: arguments.sets,
        quick: arguments.quick,
        environment: environment.clone(),
    })?;
    let judged = Judged::new(outcome.statements, experiment.deviations, !arguments.quick);
    if arguments.json {
        let mut json = json!({ "version": VERSION, "experiment": experiment.name });
        json["statements"] = judged.json();
        json["as_expected"] = judged.failures.is_empty().into();
        json["failures"] = judged.failures.clone().into();
        if let (Value::Object(all), Value::Object(more)) = (&mut json, outcome.json) {
            all.extend(more);
        }
        json["files"] = outcome.files.iter().map(|file| file.display().to_string()).collect();
        writeln!(out, "{json:#}")?;
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

/// Writes a file of an experiment's.
fn write(file: &Path, contents: &str) -> Result {
    fs::write(file, contents).context(|| format!("write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use statement::{Relation, Source};

    #[test]
    fn a_statement_that_does_not_hold_ends_with_status_1() {
        let source = Source { paper: "paper", place: "Table I" };
        let judged = |own: f64| {
            let statement = source.says("a", "a", Relation::Within(100.0, 0.01), [own]);
            Judged::new(vec![statement], &[], true)
        };
        assert!(conclude("x", &judged(100.5)).is_ok());
        let failure = conclude("x", &judged(98.0)).expect_err("a failure");
        assert_eq!(failure.status, crate::failure::SYSTEM);
        assert!(failure.text.contains("a: 98 (100 within 1 %)"), "{}", failure.text);
    }

    #[test]
    fn deviations_have_a_reason_and_name_a_statement_once() {
        for experiment in &EXPERIMENTS {
            let mut named: Vec<_> =
                experiment.deviations.iter().flat_map(|each| each.of).map(|(id, _)| id).collect();
            let all = named.len();
            named.sort_unstable();
            named.dedup();
            assert_eq!(named.len(), all, "{}", experiment.name);
            for deviation in experiment.deviations {
                assert!(
                    deviation.reason.len() > 20 && !deviation.of.is_empty(),
                    "{}",
                    deviation.id
                );
            }
        }
    }
}
