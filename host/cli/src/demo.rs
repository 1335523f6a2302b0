//! `weir demo`: real-time Linux, a bare-metal control loop and an attacker on one board.

use crate::{
    build,
    console::Screen,
    environment::Environment,
    failure::{Failure, GOOD, Result},
    run::{messages, options},
};
use std::{fmt::Write as _, io::Write, time::Duration};
use weir_model::platform::Machine;
use weir_report::table;
use weir_runner::{
    RunOptions, RunReport,
    report::{State, VmRun},
    show::{counts, seconds},
    watch_signals,
};

/// The system, in the checkout.
const SYSTEM: &str = "examples/demo/demo.toml";
/// When to give up.
const LIMIT: Duration = Duration::from_secs(115);

const BEFORE: &str = "\
Three virtual machines on one board of four cores, each with its own memory and cores:
  control  a bare-metal loop that must run every millisecond, and measures how late it is
  linux    Debian's real-time Linux on two cores, running cyclictest
  attacker executes a list of attacks; weir stops each, reports its cause and restarts the VM
The first two must not notice the third.
";
/// The part for a checkout.
const BUILDS: &str = "The first call builds weir and its guests, for minutes.\n";

/// Boots the demonstration in QEMU: a bare-metal control loop, real-time Linux and an attacker,
/// concurrently; ends by itself with a table of the results of each.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weir demo")]
pub struct DemoArguments {
    /// Print the report as JSON; everything else goes to standard error.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: build::BuildOptions,
}

/// Carries the verb out.
pub fn run(arguments: &DemoArguments, environment: &Environment) -> Result {
    let mut out = messages(arguments.json);
    let builds = if environment.installation().is_some() { "" } else { BUILDS };
    writeln!(out, "{BEFORE}{builds}")?;
    out.flush()?;
    let interrupt = watch_signals()?;
    let file = environment.root()?.join(SYSTEM);
    let system =
        build::checked(&file, &arguments.image, Machine::Qemu, arguments.json, environment)?;
    let options = RunOptions {
        no_build: arguments.image.no_build,
        all_parts: arguments.image.all_parts,
        time: Some(LIMIT),
        // The emulated clock: a busy host must not make the control loop late.
        interrupt,
        ..options(&system, environment)
    };
    let mut console = Screen::new(messages(arguments.json), &system).with_events(true);
    let outcome = weir_runner::run(&system, &options, &mut console)?;
    drop(console);
    if arguments.json {
        writeln!(std::io::stdout(), "{:#}", outcome.report.json())?;
    }
    writeln!(out, "\n{}", account(&outcome.report))?;
    writeln!(out, "logs and report: {}", outcome.directory.display())?;
    out.flush()?;
    if outcome.status == GOOD {
        return Ok(());
    }
    Err(Failure { status: outcome.status, text: outcome.trouble.unwrap_or_default() })
}

fn role(vm: &str) -> &'static str {
    match vm {
        "control" => "1 ms control loop",
        "linux" => "real-time Linux",
        "attacker" => "attacker",
        _ => "guest",
    }
}

fn result(vm: &VmRun) -> String {
    let met = vm.expect.iter().filter(|expected| expected.met).count();
    let all = vm.expect.len();
    match vm.state {
        _ if met < all => format!("failed: {met} of {all} expected lines"),
        State::NotStarted => "never started".into(),
        _ if vm.fault_counts.is_empty() => "unharmed".into(),
        _ => "contained".into(),
    }
}

fn account(report: &RunReport) -> String {
    let mut rows = table(["VM", "role", "result", "restarts", "attacks stopped"]);
    for vm in &report.vms {
        let faults = vm.fault_counts.iter().map(|(name, count)| (name.as_str(), *count));
        let denials = vm.denials.iter().map(|(name, count)| (name.as_str(), *count));
        rows.add_row([
            vm.name.clone(),
            role(&vm.name).into(),
            result(vm),
            vm.restarts.to_string(),
            counts(faults.chain(denials)),
        ]);
    }
    let mut text = format!("{rows}\n");
    for vm in &report.vms {
        for expected in &vm.expect {
            let _ = match expected.time_ns {
                Some(time) => {
                    writeln!(text, "{} at {}: {}", vm.name, seconds(time), expected.text)
                }
                None => writeln!(text, "{}: never printed \"{}\"", vm.name, expected.text),
            };
        }
    }
    text
}
