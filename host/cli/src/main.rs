//! The `weir` command: checks, builds, boots and reports systems of virtual machines.

mod analyze;
mod attach;
mod bench;
mod build;
mod calibrate;
mod check;
mod console;
mod demo;
mod documentation;
mod duration;
mod explain;
mod measure;
mod new;
mod observe;
mod plan;
mod platforms;
mod reference;
mod report;
mod reproduce;
mod results;
mod run;
mod setup;
mod simulate;
mod terminal;
mod trace;

use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};
use environment::Environment;
use failure::{CALL, Failure};
use std::{io::Write as _, process::ExitCode};
use weir_image::{self as image, build_id, cargo, environment, failure, output, progress, screen};
use weir_report::coloring;

/// Partitions a board into virtual machines: one TOML file describes the system, one command checks
/// it, one boots it, one reports.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  weir demo\n  weir new my-system\n  weir run my-system/system.toml \
                  --deterministic\n\nThe script ./weir of a checkout has two commands more:\n  \
                  ./weir test   Runs weir's tests\n  ./weir cargo  Calls cargo as the script does, \
                  for developers\n\nExit status: 0 success, 1 the system failed a check, an \
                  expectation or a verdict, 2 wrong call, 3 the environment is incomplete."
)]
struct Command {
    /// When to color what is printed.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: Color,
    #[command(subcommand)]
    verb: Verb,
}

/// When to color what is printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Also in a pipe or a file.
    Always,
    /// Not at all.
    Never,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    New(new::NewArguments),
    Check(check::CheckArguments),
    Analyze(analyze::AnalyzeArguments),
    Plan(plan::PlanArguments),
    Build(build::BuildArguments),
    Run(Box<run::RunArguments>),
    Attach(attach::AttachArguments),
    Observe(observe::ObserveArguments),
    Trace(trace::TraceArguments),
    Report(report::ReportArguments),
    Demo(demo::DemoArguments),
    Explain(explain::ExplainArguments),
    Platforms(platforms::PlatformsArguments),
    Bench(measure::BenchArguments),
    Simulate(simulate::SimulateArguments),
    Reproduce(reproduce::ReproduceArguments),
    Calibrate(calibrate::CalibrateArguments),
    Setup(setup::SetupArguments),
    Completions(documentation::Completions),
    Man(documentation::Directory),
    Reference(documentation::Reference),
    Results(results::Arguments),
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => {
            let text = error.render().ansi().to_string();
            let text = text.trim_end_matches('\n');
            if error.use_stderr() {
                screen::say(text);
                return ExitCode::from(CALL);
            }
            let mut out = screen::stdout();
            let written = writeln!(out, "{text}").and_then(|()| out.flush());
            return written.map_or_else(
                |error| report_failure(&Failure::from(error)),
                |()| ExitCode::SUCCESS,
            );
        }
    };
    anstream::ColorChoice::from(command.color).write_global();
    let environment = Environment::find();
    let result = match &command.verb {
        Verb::New(arguments) => new::run(arguments),
        Verb::Check(arguments) => check::run(arguments, &environment),
        Verb::Analyze(arguments) => analyze::run(arguments, &environment),
        Verb::Plan(arguments) => plan::run(arguments, &environment),
        Verb::Build(arguments) => build::run(arguments, &environment),
        Verb::Run(arguments) => run::run(arguments, &environment),
        Verb::Attach(arguments) => attach::run(arguments, &environment),
        Verb::Observe(arguments) => observe::run(arguments, &environment),
        Verb::Trace(arguments) => trace::run(arguments, &environment),
        Verb::Report(arguments) => report::run(arguments, &environment),
        Verb::Demo(arguments) => demo::run(arguments, &environment),
        Verb::Explain(arguments) => explain::run(arguments),
        Verb::Platforms(arguments) => platforms::run(arguments),
        Verb::Bench(arguments) => measure::run(arguments, &environment),
        Verb::Simulate(arguments) => simulate::run(arguments, &environment),
        Verb::Reproduce(arguments) => reproduce::run(arguments, &environment),
        Verb::Calibrate(arguments) => calibrate::run(arguments, &environment),
        Verb::Setup(arguments) => setup::run(arguments, &environment),
        Verb::Completions(arguments) => documentation::completions(arguments, Command::command()),
        Verb::Man(arguments) => documentation::man(arguments, Command::command()),
        Verb::Reference(arguments) => documentation::reference(arguments, Command::command()),
        Verb::Results(arguments) => results::run(arguments, &environment),
    };
    let status =
        result.map_or_else(|failure: Failure| report_failure(&failure), |()| ExitCode::SUCCESS);
    explain::hint();
    status
}

/// Prints a failure on standard error and returns its exit status.
fn report_failure(failure: &Failure) -> ExitCode {
    if !failure.text.is_empty() {
        let red = anstyle::AnsiColor::Red.on_default().bold();
        screen::say(format_args!("{red}error:{red:#} {}", failure.text));
    }
    ExitCode::from(failure.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_an_example() {
        let command = Command::command();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let name = verb.get_name();
            let below = verb.get_subcommands().filter_map(clap::Command::get_after_help);
            let help: String =
                below.chain(verb.get_after_help()).map(ToString::to_string).collect();
            assert!(help.contains("Example") && help.contains(&format!("  weir {name}")), "{name}");
        }
    }
}
