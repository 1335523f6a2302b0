//! The page of a run.

use super::{
    figures::{self, ColoredPart},
    files::{ConsoleTail, RunFiles},
    judged::{self, JudgedRow},
    trace,
};
use crate::{
    figure::Figure,
    plan::SystemPlan,
    run::{Clock, FlowRun, RunFacts, RunReport, State, TaskFinding, VmRun},
    trace::file::Trace,
    why::{ExplainedRun, Subject, WhyQuery, WhyReport},
};
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap, path::Path};
use weir_analysis::verdict::Verdict;
use weir_image::Result;

/// The most flows, tasks and budgets, of each, with a time line: the flows and tasks with the
/// greatest ratios and the budgets with the longest throttled periods.
const TIME_LINES: usize = 8;

/// The values of the template of a run.
#[derive(Debug, Serialize)]
pub(super) struct RunPage<'a> {
    run: &'a str,
    report: &'a RunReport,
    facts: Vec<(&'static str, String)>,
    packages: Vec<String>,
    verdict_key: &'static str,
    verdict_words: String,
    lines_verdict: &'static str,
    ended: &'static str,
    rows: Vec<JudgedRow>,
    warnings: Vec<String>,
    assumptions: Vec<String>,
    plan: Vec<Figure>,
    events: Vec<Event>,
    events_left_out: Vec<String>,
    latencies: Vec<Figure>,
    budgets: Vec<Figure>,
    exits: Option<Figure>,
    engine: Option<String>,
    consoles: &'a [ConsoleTail],
    kinds: BTreeMap<&'static str, u64>,
}

/// The worst packet of a flow, activation of a task, or period of a budget.
#[derive(Debug, Serialize)]
struct Event {
    figure: Figure,
    parts: Vec<ColoredPart>,
    notes: Vec<String>,
}

impl<'a> RunPage<'a> {
    /// Collects the values of a run.
    pub fn of(files: &'a RunFiles) -> Result<Self> {
        let report = &files.report;
        let rows = judged::rows(report);
        let (verdict_key, verdict_words) = judged::verdict(report, &rows)?;
        let met = Verdict::of(report.totals.met == report.totals.expected);
        let is_expected = report.totals.expected > 0;
        let WorstEvents { events, left_out, failures } = worst_events(files, &rows);
        let mut warnings = warnings(files);
        warnings.extend(failures);
        let latencies = report
            .flows
            .iter()
            .enumerate()
            .filter_map(|(place, flow)| figures::latencies(flow, format!("latencies-{place}")));
        Ok(Self {
            run: &files.run,
            report,
            facts: files.facts.as_ref().map_or_else(Vec::new, identity),
            packages: packages(files.facts.as_ref()),
            verdict_key,
            verdict_words,
            lines_verdict: if is_expected { met.key() } else { judged::NO_LIMITS },
            ended: report.ended_by.words(),
            warnings,
            assumptions: assumptions(files),
            plan: files.plan.as_ref().map_or_else(Vec::new, SystemPlan::figures),
            events,
            events_left_out: left_out,
            latencies: latencies.chain(figures::responses(report)).collect(),
            budgets: budgets(files),
            exits: figures::exits(&report.vms, report.time_ns),
            engine: report.engine.as_ref().map(ToString::to_string),
            consoles: &files.consoles,
            kinds: files.trace.kinds.clone(),
            rows,
        })
    }
}

/// Returns what was run, by which weir, where and when.
fn identity(facts: &RunFacts) -> Vec<(&'static str, String)> {
    let words = |words: &[String]| (!words.is_empty()).then(|| words.join(" "));
    let number = |value: Option<u64>, unit: &str| value.map(|value| format!("{value} {unit}"));
    let rows = [
        ("system file", facts.system.clone()),
        ("date", facts.started.clone()),
        ("command", words(&facts.command)),
        ("weir", facts.weir.clone()),
        ("hypervisor build", facts.hypervisor_build.clone()),
        ("image", facts.image_id.clone()),
        ("size of the image", number(facts.image_bytes, "bytes")),
        ("CRC-32C of the image", facts.image_crc32.clone()),
        ("QEMU", facts.qemu.clone()),
        ("QEMU's command", words(&facts.qemu_command)),
        ("QEMU's end", facts.qemu_status.clone()),
        ("serial line", facts.serial.clone()),
        ("limit of the time", number(facts.limit_ns, "ns")),
        ("quantum", number(facts.quantum_ns, "ns")),
        ("time on the host", facts.seconds.map(|seconds| format!("{seconds:.1} s"))),
    ];
    rows.into_iter().filter_map(|(title, value)| Some((title, value?))).collect()
}

fn packages(facts: Option<&RunFacts>) -> Vec<String> {
    let packages = facts.and_then(|facts| facts.debian_packages.as_ref());
    let packages = packages.into_iter().flatten();
    packages.map(|package| format!("{} {}", package.name, package.version)).collect()
}

/// Returns what the verdict rests on.
fn assumptions(files: &RunFiles) -> Vec<String> {
    let report = &files.report;
    let mut all = vec![
        match report.clock {
            Clock::Emulated => {
                "Times are those of the emulated clock: 1 ns for each instruction, on cores that \
                 run concurrently. The run is no evidence about a board."
            }
            Clock::Board => "Times are the board's.",
        }
        .to_owned(),
    ];
    if let Some(board) = &report.memory {
        all.push(format!(
            "The time of the caches and the DRAM of {board}, by a model, is charged to the cores \
             in addition."
        ));
    }
    if report.vms.iter().any(|vm| !vm.tasks.is_empty()) {
        all.push("The verdict on a task is as good as the marks of its guest.".to_owned());
    }
    let Some(facts) = &files.facts else {
        all.push("run.json does not have those of the system file.".to_owned());
        return all;
    };
    all.extend(facts.assumed.iter().cloned());
    for table in &facts.overheads {
        let of = match table.same_build {
            Some(true) => "this build",
            Some(false) => "another build",
            None => "an unknown build",
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        all.push(format!(
            "Bounds of flows rest on the overheads of {}: {}, {}, of {of} of the hypervisor ({}).",
            table.file,
            text(&table.command),
            text(&table.date),
            text(&table.build)
        ));
    }
    all
}

/// Returns what went wrong in the run, or is missing.
fn warnings(files: &RunFiles) -> Vec<String> {
    let RunFiles { report, facts, .. } = files;
    let mut all = Vec::new();
    let mut warn_if = |condition: bool, text: String| {
        if condition {
            all.push(text);
        }
    };
    warn_if(!report.started, "the hypervisor never reported its start".to_owned());
    warn_if(!report.ended_by.is_planned(), report.ended_by.words().to_owned());
    let resets = report.board_resets;
    warn_if(
        resets > 0,
        format!("the board was reset {resets} times: everything is counted from the last start"),
    );
    let totals = &report.totals;
    let damaged = totals.damaged_frames;
    warn_if(damaged > 0, format!("{damaged} frames of the wire were damaged"));
    let lost = totals.records_lost;
    warn_if(lost > 0, format!("{lost} of the hypervisor's records were lost"));
    for core in &report.cores {
        let pair = core.max_switch_ns.zip(core.stated_switch_ns);
        warn_if(
            pair.is_some_and(|(longest, stated)| longest > stated),
            format!("core {}: a switch took longer than the stated one", core.core),
        );
    }
    for flow in &report.flows {
        let name = &flow.name;
        let lost = flow.lost;
        let text = format!("flow {name}: {lost} packets were dropped at a reset of an end");
        warn_if(lost > 0, text);
        let dropped = flow.dropped.unwrap_or(0);
        warn_if(
            dropped > 0,
            format!(
                "flow {name}: {dropped} times this receiver was dropped because it delayed others"
            ),
        );
        warn_if(flow.counted_ns.is_none(), format!("flow {name}: no counts arrived"));
    }
    all.extend(report.vms.iter().flat_map(vm_warnings));
    all.extend(file_warnings(files, facts.as_ref()));
    all
}

fn vm_warnings(vm: &VmRun) -> Vec<String> {
    let mut all = Vec::new();
    for line in vm.expect.iter().filter(|line| !line.met) {
        all.push(format!("did not print \"{}\"", line.text));
    }
    if matches!(vm.state, State::Halted | State::NotStarted) {
        all.push(format!("{} at the end", vm.state.name()));
    }
    if !vm.fault_counts.is_empty() {
        let kinds: Vec<_> =
            vm.fault_counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        all.push(format!("faults: {}", kinds.join(", ")));
    }
    if vm.started_without_broker {
        let text = "started before the broker of its flows was ready; no bound contains the wait";
        all.push(text.to_owned());
    }
    if vm.exits.is_none() || vm.injected.is_none() {
        all.push("the counters of a vCPU did not arrive".to_owned());
    }
    if vm.console.dropped > 0 {
        all.push(format!("{} console bytes lost", vm.console.dropped));
    }
    if vm.records_lost > 0 {
        all.push(format!(
            "{} records of its events lost: single events are missing, counts are not",
            vm.records_lost
        ));
    }
    all.into_iter().map(|text| format!("{}: {text}", vm.name)).collect()
}

/// Returns the warnings about files of the run that are missing or damaged.
fn file_warnings(files: &RunFiles, facts: Option<&RunFacts>) -> Vec<String> {
    let mut all = Vec::new();
    if facts.is_none() {
        all.push(
            "run.json is missing or damaged: the build, QEMU, the date and the command are not \
             known"
                .to_owned(),
        );
    }
    if files.plan.is_none() {
        let text = "plan.json is missing or damaged: the page does not show the plan";
        all.push(text.to_owned());
    }
    let traced = facts.and_then(|facts| facts.trace.as_ref());
    if !files.has_trace {
        let why = traced.and_then(|trace| trace.absent.as_ref());
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        all.push(format!("the run has no trace.bin{why}"));
    } else if let Some(damage) = &files.trace.damage {
        all.push(format!("trace.bin: {damage}"));
    }
    let records: u64 = files.trace.kinds.values().sum();
    let stated = traced.and_then(|trace| trace.records).filter(|_| files.has_trace);
    if let Some(stated) = stated.filter(|stated| *stated != records) {
        all.push(format!("trace.bin has {records} records; run.json states {stated}"));
    }
    if files.trace.lost > 0 {
        all.push(format!("trace.bin: {} records were overwritten", files.trace.lost));
    }
    for vm in &files.report.vms {
        let log = super::console_log(&vm.name);
        if !files.consoles.iter().any(|console| console.log == log) {
            all.push(format!("{log} is missing: this page has nothing of this console"));
        }
    }
    all
}

/// Returns the figures of the memory budgets.
fn budgets(files: &RunFiles) -> Vec<Figure> {
    let mut all = Vec::new();
    for vm in &files.report.vms {
        for budget in &vm.budgets {
            let of = files.trace.budgets.iter().find(|used| {
                (&used.vm, used.vcpu, used.accesses)
                    == (&vm.name, budget.vcpu, budget.counts.as_str())
            });
            if let Some(used) = of {
                let id = format!("budget-{}", all.len());
                let what = (vm.name.as_str(), budget, used);
                all.push(figures::budget(what, files.report.time_ns, id));
            }
        }
    }
    all
}

/// The time lines of a run.
#[derive(Default)]
struct WorstEvents {
    events: Vec<Event>,
    /// The numbers of flows, tasks and budgets without a time line, in words.
    left_out: Vec<String>,
    /// Why time lines are missing.
    failures: Vec<String>,
}

/// Returns the time lines of the longest packet of each flow, of the longest response of each task
/// and of the longest throttled period of each budget, at most [`TIME_LINES`] of each.
fn worst_events(files: &RunFiles, rows: &[JudgedRow]) -> WorstEvents {
    let mut found = WorstEvents::default();
    if let Some(directory) = files.directory.as_deref().filter(|_| files.has_trace)
        && let Err(failure) = time_lines(directory, files, rows, &mut found)
    {
        found.failures.push(format!("no time lines: {}", failure.text));
    }
    found
}

fn time_lines(
    directory: &Path,
    files: &RunFiles,
    rows: &[JudgedRow],
    found: &mut WorstEvents,
) -> Result<()> {
    let report = &files.report;
    let ratio = |name: String| {
        rows.iter().find(|row| row.name == name).and_then(|row| row.ratio).unwrap_or(0.0)
    };
    let of_flow = |flow: &FlowRun| ratio(format!("flow {}", flow.name));
    let of_task =
        |(vm, task): &(&VmRun, &TaskFinding)| ratio(format!("task {} of {}", task.name, vm.name));
    let mut flows: Vec<_> = report.flows.iter().filter(|flow| flow.packets > 0).collect();
    flows.sort_by(|a, b| of_flow(b).total_cmp(&of_flow(a)));
    let tasks = report.vms.iter().flat_map(|vm| vm.tasks.iter().map(move |task| (vm, task)));
    let mut tasks: Vec<_> = tasks.filter(|(_, task)| task.activations.is_some()).collect();
    tasks.sort_by(|a, b| of_task(b).total_cmp(&of_task(a)));
    let budgets = report.vms.iter().flat_map(|vm| vm.budgets.iter().map(move |own| (vm, own)));
    let mut budgets: Vec<_> = budgets.filter(|(_, budget)| budget.throttled_ns > 0).collect();
    budgets.sort_by_key(|(_, budget)| Reverse(budget.max_throttled_ns));
    let counts =
        [(flows.len(), "flows"), (tasks.len(), "tasks"), (budgets.len(), "throttled budgets")];
    for (count, what) in counts {
        if count > TIME_LINES {
            found.left_out.push(format!("{TIME_LINES} of {count} {what}"));
        }
    }
    let flows = flows.into_iter().take(TIME_LINES).map(|flow| Subject::Flow(flow.name.clone()));
    let tasks = tasks.into_iter().take(TIME_LINES);
    let tasks = tasks.map(|(vm, task)| Subject::Task(format!("{}/{}", vm.name, task.name)));
    let budgets = budgets.into_iter().take(TIME_LINES).map(|(vm, budget)| {
        Subject::Budget(format!("{}/{}/{}", vm.name, budget.vcpu, budget.counts))
    });
    let mut run = ExplainedRun::of(directory, report.clone());
    let mut explained: Vec<(WhyReport, (u64, u64))> = Vec::new();
    for subject in flows.chain(tasks).chain(budgets) {
        match run.why(&WhyQuery { subject: Some(subject), number: None }) {
            Ok(report) => {
                explained.extend(figures::window(&report).map(|window| (report, window)));
            }
            Err(failure) => found.failures.push(format!("no time line: {}", failure.text)),
        }
    }
    let windows: Vec<_> = explained.iter().map(|(_, window)| *window).collect();
    let mut trace = Trace::open(directory)?;
    let vms: Vec<_> = trace.facts.vms.iter().map(|vm| vm.name.clone()).collect();
    let lanes = trace::lanes(&mut trace, &windows)?;
    let unknown = SystemPlan::default();
    let plan = files.plan.as_ref().unwrap_or(&unknown);
    let event = |(place, ((why, window), lanes)): (usize, ((WhyReport, _), Vec<trace::Lane>))| {
        let parts = figures::parts(&why);
        let id = format!("event-{place}");
        let figure = figures::time_line((&why, &parts), (window, &lanes), (plan, &vms), id);
        Event { figure, parts, notes: why.notes }
    };
    found.events = explained.into_iter().zip(lanes).enumerate().map(event).collect();
    Ok(())
}
