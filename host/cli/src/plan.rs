//! `weir plan`: the cheapest setting in which a system holds, proven by `weir analyze`.

use crate::{
    analyze::{headline, status},
    cargo::replace,
    environment::Environment,
    failure::{Failure, GOOD, Result},
    image, output,
    progress::Spinner,
    screen,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{fmt::Write as _, io::Write, path::PathBuf};
use weir_analysis::{
    Bytes, BytesPerSec, Choices, Conflict, CoreChoice, Nanos, PlanError, PlanOptions, Report,
    ScheduleChoice,
    verdict::{Missing, Verdict},
};
use weir_model::{Faults, SystemFile};
use weir_report::{check::RefusedFile, paragraph, versioned};

/// Chooses what a system file leaves open: schedules of shared cores, colors, banks, memory budgets,
/// DMA bandwidth and chunk. All its demands hold then, and best effort is left the most memory
/// bandwidth; `weir analyze` proves it.
///
/// The result is the input with the choices written into it, comments kept. Demands are
/// `criticality`, `memory_budget = { required = .. }`, `working_set`, `[[vm.task]]` and `[[flow]]`;
/// values in the file are kept. If demands conflict, a minimal set that conflicts is named,
/// with what there is too little of.
///
/// A core in the `cpus` of several VMs that has no `[[core]]` gets servers of fixed priority, or a
/// time table where these do not fit: the least time with which the tasks and flows of each VM hold,
/// and the rest for VMs without demands.
///
/// Memory budgets are the least in which all tasks hold, also where a task waits for a replenishment of
/// its VM's budget, and best effort gets the most that leaves the tasks in time. No budget is
/// larger than what the memory takes (`[saturation]`) or the VM's cores can use in the period.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir plan system.toml\n  \
        weir plan system.toml -o planned.toml\n  \
        weir plan system.toml --json\n\n\
        Exit status: 0 planned, 1 there is no plan (or none was found within the effort, or \
        something of it is not judged), 2 the call is wrong, such as a file that can't be read, \
        3 the plan can't be written.")]
pub struct PlanArguments {
    /// The system file.
    file: PathBuf,
    /// Write the planned system here instead of printing it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Effort limit of the whole search, in steps of about 1 ns.
    ///
    /// If it is spent before a plan is found, there is no answer. If it is spent on the search for
    /// a minimal set of conflicting demands, the reported set can be larger than minimal.
    #[arg(long, value_name = "STEPS", default_value_t = 10_000_000_000)]
    max_steps: u64,
    /// Exit with status 0 also where something of the plan is not judged because an input is
    /// missing.
    #[arg(long)]
    accept_not_judged: bool,
    /// Print what was chosen, its analysis and the planned file as JSON.
    #[arg(long)]
    json: bool,
}

/// A plan for a system file.
#[derive(Serialize, JsonSchema)]
pub struct Planned<'a> {
    /// The name of the system file.
    file: &'a str,
    /// The choices.
    plan: &'a Choices,
    /// The analysis of the planned file.
    analysis: &'a Report,
    /// Its verdict.
    verdict: Option<Verdict>,
    /// What is not judged, and how to supply what is missing for it.
    not_judged: &'a [Missing],
    /// The file that was written.
    output: Option<String>,
    /// The values that were not chosen, and what it takes to have them chosen.
    left_out: &'a [String],
    /// The text of the planned file.
    toml: &'a str,
}

/// A system file without a plan.
#[derive(Serialize, JsonSchema)]
pub struct Unplanned {
    /// The name of the system file.
    file: String,
    /// The plan: always none.
    plan: (),
    /// Why there is none; none if the search was given up.
    conflict: Option<Conflict>,
    /// Whether the effort of `--max-steps` was spent before a plan was found or excluded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gave_up: bool,
}

/// Carries the verb out.
pub fn run(arguments: &PlanArguments, environment: &Environment) -> Result {
    let path = &arguments.file;
    let name = path.display().to_string();
    output::check(arguments.output.as_deref(), [path])?;
    let refused = |faults: &Faults| {
        if arguments.json {
            writeln!(screen::stdout(), "{}", versioned(RefusedFile::new(path, faults)))?;
        }
        Err(image::refused(faults))
    };
    let file = match SystemFile::load(path, &image::catalog(environment)) {
        Ok(file) => file,
        Err(faults) => return refused(&faults),
    };
    let spinner = Spinner::new("planning".to_owned());
    let progress = |questions: u64, left: u64| {
        let left = left >> 20;
        spinner.say(format!("planning: {questions} questions, {left} million steps left"));
    };
    let options = PlanOptions { max_steps: arguments.max_steps, progress: Some(&progress) };
    let planned = weir_analysis::plan(&file, &options);
    drop(spinner);
    let plan = match planned {
        Ok(plan) => plan,
        Err(PlanError::Faults(faults)) => return refused(&faults),
        Err(PlanError::Conflict(conflict)) => {
            let text = render(&conflict);
            if arguments.json {
                let none =
                    Unplanned { file: name, plan: (), conflict: Some(conflict), gave_up: false };
                writeln!(screen::stdout(), "{}", versioned(none))?;
            }
            return Err(Failure::system(text));
        }
        Err(PlanError::GaveUp) => {
            if arguments.json {
                let none = Unplanned { file: name, plan: (), conflict: None, gave_up: true };
                writeln!(screen::stdout(), "{}", versioned(none))?;
            }
            let effort = arguments.max_steps;
            return Err(Failure::system(format!(
                "given up: within {effort} steps no plan was found, and none was excluded; allow \
                 more with --max-steps"
            )));
        }
    };
    if let Some(output) = &arguments.output {
        replace(output, plan.file.text().as_bytes())?;
    }
    for what in &plan.left_out {
        write!(screen::stderr(), "{}", paragraph(&format!("{name}: "), what))?;
    }
    for missing in &plan.report.not_judged {
        let label = format!("{name}: not judged: ");
        write!(screen::stderr(), "{}", paragraph(&label, &missing.to_string()))?;
    }
    let mut out = screen::stdout();
    if arguments.json {
        let planned = Planned {
            file: &name,
            plan: &plan.choices,
            analysis: &plan.report,
            verdict: plan.report.verdict,
            not_judged: &plan.report.not_judged,
            output: arguments.output.as_ref().map(|output| output.display().to_string()),
            left_out: &plan.left_out,
            toml: plan.file.text(),
        };
        writeln!(out, "{}", versioned(planned))?;
    } else if let Some(output) = &arguments.output {
        write!(out, "{}", summary(&plan.choices))?;
        writeln!(out, "{}: {}", output.display(), headline(&plan.report))?;
    } else {
        write!(out, "{}", plan.file.text())?;
    }
    let verdict = plan.report.verdict.unwrap_or(Verdict::Holds);
    match status(verdict, arguments.accept_not_judged) {
        GOOD => Ok(()),
        status => Err(Failure::reported(status)),
    }
}

/// The choices in a few lines.
fn summary(choices: &Choices) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for CoreChoice { id, schedule } in &choices.cores {
        let of =
            |vm: &str, time: u64, period: u64| format!("{vm} {} in {}", Nanos(time), Nanos(period));
        let (times, how): (Vec<_>, _) = match schedule {
            ScheduleChoice::FixedPriority { servers } => {
                let times = servers.iter();
                let times = times.map(|it| of(&it.vm, it.budget_ns, it.period_ns));
                (times.collect(), "by falling priority")
            }
            ScheduleChoice::Table { major_frame_ns, slots } => {
                let times = slots.iter().map(|slot| of(&slot.vm, slot.length_ns, *major_frame_ns));
                (times.collect(), "by a time table")
            }
        };
        let _ = writeln!(text, "core {id}: {}, {how}", times.join(", "));
    }
    for vm in &choices.vms {
        if let Some((budget, period)) = vm.budget.zip(vm.period_ns.map(Nanos)) {
            let _ = writeln!(text, "{}: {budget} accesses in {period}", vm.name);
        }
    }
    let dma = BytesPerSec(choices.dma_bandwidth);
    if let Some(chunk) = choices.chunk.map(Bytes) {
        let _ = writeln!(text, "DMA: {dma} in chunks of {chunk}");
    } else if choices.has_flows {
        let _ = writeln!(text, "DMA: {dma} for best effort");
    }
    if let Some((accesses, period)) = choices.best_effort_budget.zip(choices.period) {
        let _ = writeln!(text, "best effort: {accesses} accesses in {period}");
    }
    text
}

/// So many of a long list of demands are shown.
const SHOWN: usize = 16;

/// Why there is no plan.
fn render(conflict: &Conflict) -> String {
    let mut text = String::from("there is no plan: ");
    // Writing to a string does not fail.
    if conflict.demands.is_empty() {
        text.push_str(
            "what the file and the platform give already (least budgets, budgets, DMA bandwidth) \
             is too much",
        );
    } else {
        text.push_str("these demands cannot be met together");
    }
    for demand in conflict.demands.iter().take(SHOWN) {
        let _ = write!(text, "\n  {demand}");
    }
    if conflict.demands.len() > SHOWN {
        let _ = write!(text, "\n  and {} more; --json has all", conflict.demands.len() - SHOWN);
    }
    for shortage in &conflict.shortages {
        let _ = write!(text, "\n{}", shortage.text);
    }
    if !conflict.minimal {
        text.push_str(
            "\nperhaps fewer of these demands conflict: the effort was spent before that was known \
             (--max-steps)",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_shown_in_short() {
        let of = |demands: usize, minimal: bool| {
            let demands = (0..demands).map(|index| format!("flow f{index}")).collect();
            render(&Conflict { demands, minimal, shortages: Vec::new() })
        };
        assert!(of(0, true).contains("the file and the platform give already"));
        assert_eq!(
            of(2, true),
            "there is no plan: these demands cannot be met together\n  flow f0\n  flow f1"
        );
        let long = of(18, false);
        assert!(long.contains("flow f15\n  and 2 more; --json has all\n"), "{long}");
        assert!(long.ends_with("the effort was spent before that was known (--max-steps)"));
    }
}
