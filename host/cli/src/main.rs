//! The `weir` command: checks, builds, boots and reports systems of virtual machines.

mod analyze;
mod attach;
mod bench;
mod build;
mod calibrate;
mod check;
mod console;
mod demo;
mod doctor;
mod documentation;
mod duration;
mod explain;
mod measure;
mod new;
mod observe;
mod package;
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
#[cfg(test)]
mod tests;
mod trace;
mod why;

use clap::{ColorChoice, CommandFactory as _, Parser, Subcommand};
use environment::Environment;
use failure::{CALL, Failure, Result};
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
    after_help = "Examples:\n  weir demo\n  weir new my-system\n  weir run my-system/system.toml\n\n\
                  The script ./weir of a checkout has two commands more:\n  ./weir test   Runs weir's tests\n  ./weir cargo  Calls cargo as the script does, \
                  for developers\n\nExit status: 0 success, 1 the system failed a check, an \
                  expectation or a verdict, 2 wrong call, 3 the environment is incomplete."
)]
struct Command {
    /// When to color what is printed.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    #[command(subcommand)]
    verb: Verb,
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
    Why(why::WhyArguments),
    Report(report::ReportArguments),
    Demo(demo::DemoArguments),
    Explain(explain::ExplainArguments),
    Platforms(platforms::PlatformsArguments),
    Bench(measure::BenchArguments),
    Simulate(simulate::SimulateArguments),
    Reproduce(reproduce::ReproduceArguments),
    Calibrate(calibrate::CalibrateArguments),
    Setup(setup::SetupArguments),
    Doctor(doctor::DoctorArguments),
    Package(package::PackageArguments),
    Completions(documentation::Completions),
    Man(documentation::Directory),
    Reference(documentation::Reference),
    Results(results::Arguments),
}

impl Verb {
    /// Carries the verb out.
    fn run(&self, environment: &Environment) -> Result {
        match self {
            Self::New(arguments) => new::run(arguments),
            Self::Check(arguments) => check::run(arguments, environment),
            Self::Analyze(arguments) => analyze::run(arguments, environment),
            Self::Plan(arguments) => plan::run(arguments, environment),
            Self::Build(arguments) => build::run(arguments, environment),
            Self::Run(arguments) => run::run(arguments, environment),
            Self::Attach(arguments) => attach::run(arguments, environment),
            Self::Observe(arguments) => observe::run(arguments, environment),
            Self::Trace(arguments) => trace::run(arguments, environment),
            Self::Why(arguments) => why::run(arguments, environment),
            Self::Report(arguments) => report::run(arguments, environment),
            Self::Demo(arguments) => demo::run(arguments, environment),
            Self::Explain(arguments) => explain::run(arguments),
            Self::Platforms(arguments) => platforms::run(arguments),
            Self::Bench(arguments) => measure::run(arguments, environment),
            Self::Simulate(arguments) => simulate::run(arguments, environment),
            Self::Reproduce(arguments) => reproduce::run(arguments, environment),
            Self::Calibrate(arguments) => calibrate::run(arguments, environment),
            Self::Setup(arguments) => setup::run(arguments, environment),
            Self::Doctor(arguments) => doctor::run(arguments, environment),
            Self::Package(arguments) => package::run(arguments, environment, Command::command()),
            Self::Completions(arguments) => {
                documentation::completions(arguments, Command::command())
            }
            Self::Man(arguments) => documentation::man(arguments, Command::command()),
            Self::Reference(arguments) => documentation::reference(arguments, Command::command()),
            Self::Results(arguments) => results::run(arguments, environment),
        }
    }
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
    let color = match command.color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    };
    color.write_global();
    let environment = Environment::find();
    let result = command.verb.run(&environment);
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
