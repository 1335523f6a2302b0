//! `weir why`: the parts of a packet's latency, of a task's response time, or of a period of a
//! memory budget.

use crate::{
    environment::Environment,
    failure::{Failure, Result},
    screen,
};
use std::{io::Write as _, path::PathBuf};
use weir_report::{
    REPORT, trace,
    why::{Subject, WhyQuery, why},
};

/// Shows where the time of a packet, a task's activation, or a period of a memory budget went in a
/// run.
///
/// The parts sum to the latency of the packet, to the response time of the activation, or to the
/// length of the period. Each has its VM, its core and the term of the bound that covers it. Without a subject it explains the worst one of
/// the run: first what does not hold, then the greatest ratio of maximum and bound.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "weir why [OPTIONS] [RUN] [flow FLOW | task TASK | budget VM[/VCPU]]",
    after_help = "Examples:\n  \
        weir why\n  \
        weir why flow messages\n  \
        weir why runs/2026-01-31T12-00-00Z flow messages --packet 9\n  \
        weir why task control --activation 12\n  \
        weir why budget memory-stressor --period 3\n  \
        weir why --json | jq '.parts[] | select(.term == null)'\n\n\
        Exit status: 0 good, 1 the run shows nothing to explain, 2 the call is wrong."
)]
pub struct WhyArguments {
    /// The run: its directory or its name in runs/ (default: the newest run), and the subject.
    #[arg(value_name = "[RUN] KIND NAME", num_args = 0..=3)]
    words: Vec<String>,
    /// The packet of a flow, by its number in the report and in `weir trace`. Default: the one with
    /// the longest latency.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packet: Option<u64>,
    /// The activation of a task, by its number in the report. Default: the one with the longest
    /// response time.
    #[arg(long, value_name = "N", conflicts_with_all = ["packet", "period"],
        value_parser = clap::value_parser!(u64).range(1..))]
    activation: Option<u64>,
    /// The period of a memory budget, counted from 1. Default: the one that was throttled for the
    /// longest time.
    #[arg(long, value_name = "N", conflicts_with = "packet",
        value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl WhyArguments {
    /// Returns the run, if the call names one, and the subject.
    fn subject(&self) -> Result<(Option<PathBuf>, Option<Subject>)> {
        let words: Vec<_> = self.words.iter().map(String::as_str).collect();
        let (run, kind, name) = match words[..] {
            [] => return Ok((None, None)),
            [kind @ ("flow" | "task" | "budget")] => {
                let text = format!("`{kind}` needs a name: weir why {kind} NAME");
                return Err(Failure::call(text));
            }
            [run, kind @ ("flow" | "task" | "budget")]
                if !matches!(run, "flow" | "task" | "budget") =>
            {
                let text = format!("`{kind}` needs a name: weir why {run} {kind} NAME");
                return Err(Failure::call(text));
            }
            [run] => return Ok((Some(run.into()), None)),
            [kind, name] => (None, kind, name),
            [run, kind, name] => (Some(run.into()), kind, name),
            _ => return Err(Failure::call("more words than RUN and one subject")),
        };
        if name.is_empty() || run.as_ref().is_some_and(|run: &PathBuf| run.as_os_str().is_empty()) {
            return Err(Failure::call("the name of a run or of a subject is empty"));
        }
        let name = name.to_owned();
        let subject = match kind {
            "flow" => Subject::Flow(name),
            "task" => Subject::Task(name),
            "budget" => Subject::Budget(name),
            other => {
                let text = format!("{other}: a subject is `flow`, `task` or `budget`, and a name");
                return Err(Failure::call(text));
            }
        };
        Ok((run, Some(subject)))
    }
}

/// Carries the verb out.
pub fn run(arguments: &WhyArguments, environment: &Environment) -> Result {
    let (run, subject) = arguments.subject()?;
    if arguments.packet.is_some() && !matches!(subject, Some(Subject::Flow(_))) {
        return Err(Failure::call("--packet needs a flow: weir why flow NAME --packet N"));
    }
    if arguments.activation.is_some() && !matches!(subject, Some(Subject::Task(_))) {
        return Err(Failure::call("--activation needs a task: weir why task NAME --activation N"));
    }
    if arguments.period.is_some() && !matches!(subject, Some(Subject::Budget(_))) {
        return Err(Failure::call("--period needs a budget: weir why budget VM --period N"));
    }
    let runs = environment.runs();
    let path = match &run {
        Some(run) => trace::find(run, &runs)?,
        None => trace::newest(&runs, REPORT)?,
    };
    let query = WhyQuery {
        subject,
        number: arguments.packet.or(arguments.activation).or(arguments.period),
    };
    let report = why(&trace::directory(&path), &query)?;
    let mut out = screen::stdout();
    if arguments.json {
        writeln!(out, "{:#}", weir_report::versioned(report))?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(())
}
