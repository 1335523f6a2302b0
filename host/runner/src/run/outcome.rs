//! The verdicts of a run, and its exit status.

use super::options::RunOptions;
use crate::{
    findings::{BudgetFinding, Clock},
    judge,
    observed::{BudgetKey, LineKey, ObservedTrace},
    record::RunRecord,
    report::{End, RunReport, State, VmRun},
};
use std::{fmt::Write as _, path::PathBuf, process::ExitStatus};
use weir_analysis::verdict::Verdict;
use weir_image::{
    Result,
    failure::{ENVIRONMENT, GOOD, INTERRUPTED, SYSTEM},
};
use weir_model::System;
use weir_report::trace::file::Trace;
use weir_units::Events;

/// Adds the verdicts to a report. `trace` is the file of the run's records, if it exists.
pub(super) fn judge_report(
    report: &mut RunReport,
    options: &RunOptions,
    system: &System,
    trace: Option<PathBuf>,
) -> Result {
    let tasks = judge::tasks(system);
    let is_shared = !system.cores.is_empty();
    let has_rules = |vm: &VmRun| !(vm.budgets.is_empty() && vm.interrupts.is_empty());
    let is_judged = !tasks.is_empty() || report.vms.iter().any(has_rules);
    let needs_trace = is_shared || is_judged || !report.flows.is_empty();
    let mut observed = None;
    if let Some(path) = trace.filter(|_| needs_trace) {
        let of = |vm: u8| report.vms.get(usize::from(vm));
        let overshoot = |key: BudgetKey| {
            let is_it = |budget: &&BudgetFinding| judge::budget_key(key.0, budget) == Some(key);
            of(key.0)?.budgets.iter().find(is_it)?.overshoot.map(Events)
        };
        let deadline = |(vm, intid): LineKey| {
            let line = of(vm)?.interrupts.iter().find(|line| line.intid == intid.0)?;
            Some(line.deadline_ns)
        };
        let sharers = judge::sharers(system);
        let sharer = |flow: u32| sharers.get(usize::try_from(flow).ok()?).copied().flatten();
        let mut trace = Trace::open(&path)?;
        observed = Some(ObservedTrace::read(&mut trace, &tasks, overshoot, deadline, sharer)?);
    }
    report.cores = judge::cores(system, observed.as_ref());
    report.memory.clone_from(&options.memory);
    judge::judge(report, observed.as_ref(), clock(options));
    Ok(())
}

/// Returns the time that a run's latencies are measured in.
fn clock(options: &RunOptions) -> Clock {
    if options.serial.is_some() { Clock::Board } else { Clock::Emulated }
}

/// Returns what the verdicts on a run rest on, as `weir analyze` has it in `assumed`.
pub(super) fn assumed(system: &System) -> Vec<String> {
    let sources = system.memory_sources();
    sources
        .into_iter()
        .chain(system.not_enforced().into_iter().map(|fault| fault.message))
        .collect()
}

/// Returns the exit status of a run, and the text that is printed in addition to the summary.
pub(super) fn status(
    report: &RunReport,
    options: &RunOptions,
    trouble: Option<String>,
    qemu: Option<ExitStatus>,
    record: &RunRecord,
) -> (u8, Option<String>) {
    let missed = report.totals.met < report.totals.expected;
    let open = report.verdict == Some(Verdict::NotJudged) && !options.accept_not_judged;
    let failed = report.verdict == Some(Verdict::DoesNotHold);
    let status = match report.ended_by {
        End::AllMet => GOOD,
        End::Interrupted => INTERRUPTED,
        End::TimeOver => {
            if missed || !report.started {
                SYSTEM
            } else {
                GOOD
            }
        }
        End::SystemStop => {
            let halted = report.vms.iter().any(|vm| vm.state == State::Halted);
            let judged = report.totals.expected > 0;
            if missed || (halted && !judged) { SYSTEM } else { GOOD }
        }
        End::Silent => SYSTEM,
        // If the hypervisor refuses an image, it powers the machine off, and QEMU succeeds.
        End::MachineGone if qemu.is_some_and(|status| status.success()) => SYSTEM,
        End::MachineGone => ENVIRONMENT,
    };
    let status = if status == GOOD && (failed || open) { SYSTEM } else { status };
    let mut text = trouble.unwrap_or_default();
    if failed || open {
        let verdict = if failed { Verdict::DoesNotHold } else { Verdict::NotJudged };
        let what = report.verdict_of.join(", ");
        let _ = write!(text, "{}{verdict}: {what}", if text.is_empty() { "" } else { "\n" });
    }
    if open {
        text.push_str("\nhelp: supply what is missing, or accept it with --accept-not-judged");
    }
    if report.ended_by == End::MachineGone && report.clock != Clock::Board {
        let how = qemu.map_or_else(
            || "QEMU closed its console".into(),
            |status| format!("QEMU ended ({status})"),
        );
        let when = if report.started { "while the system ran" } else { "before the system ran" };
        let _ = write!(text, "{}{how} {when}", if text.is_empty() { "" } else { "\n" });
        for line in &report.hypervisor {
            let _ = write!(text, "\n  the hypervisor said: {line}");
        }
        let said = record.tail("qemu.log", 10);
        for line in &said {
            let _ = write!(text, "\n  QEMU said: {line}");
        }
        if said.iter().any(|line| line.contains("-plugin")) {
            text += "\n  the emulated clock is a plug-in, for which QEMU is built with \
                     `--enable-plugins`, as Debian's and Ubuntu's are: set WEIR_QEMU to such a one";
        }
    }
    if report.ended_by == End::Silent && report.clock == Clock::Board {
        for line in record.tail("hypervisor.log", 5) {
            // Without the time.
            let line = line.split_once("] ").map_or(line.as_str(), |(_, line)| line);
            let _ = write!(text, "\n  the board said: {line}");
        }
    }
    (status, (!text.is_empty()).then_some(text))
}
