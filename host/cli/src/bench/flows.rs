//! `weir bench flows`: the flows, tasks, interrupts and budgets of systems that run, the phases of
//! a packet, and round trips.

use crate::{
    build, build_id,
    environment::Environment,
    failure::{Context, Failure, Result},
    progress::CountBar,
    run::options,
    screen,
};
use serde_json::{Value, json};
use std::{fs, io::Write, iter::zip, path::Path, time::Duration};
use weir_analysis::system::quiet_bounds;
use weir_model::{Timing, platform::Machine};
use weir_report::{overheads::measured, table, trace::file::NAME};
use weir_runner::{
    Run, RunOptions, SilentConsole,
    findings::Finding,
    report::{FlowRun, VmRun},
    watch_signals,
};

/// A system that runs.
pub(super) struct Case {
    name: &'static str,
    /// Another platform than the file's.
    platform: Option<&'static str>,
    /// The virtual time after which a run ends that does not end itself.
    time: Option<Duration>,
    /// Whether a system runs that the analysis does not accept.
    ignores_verdict: bool,
    /// Whether the time of the platform's caches and DRAM is charged.
    has_memory: bool,
}

impl Case {
    const fn new(name: &'static str) -> Self {
        Self { name, platform: None, time: None, ignores_verdict: false, has_memory: false }
    }

    pub(super) const fn on(name: &'static str, platform: &'static str) -> Self {
        Self { platform: Some(platform), ..Self::new(name) }
    }

    /// Returns the case, which runs also if the analysis does not accept it.
    pub(super) const fn unjudged(self) -> Self {
        Self { ignores_verdict: true, ..self }
    }

    /// Returns the case with the time of the platform's caches and DRAM.
    pub(super) const fn charged(self) -> Self {
        Self { has_memory: true, ..self }
    }

    const fn ended_after(name: &'static str, seconds: u64) -> Self {
        Self { time: Some(Duration::from_secs(seconds)), ..Self::new(name) }
    }
}

const SYSTEMS: [Case; 23] = [
    Case::new("flows-exact"),
    Case::new("flows-overheads"),
    Case::new("flows-mesh"),
    Case::new("flows-mmio"),
    Case::on("flows-mmio", "qemu-virt-gicv2"),
    Case::on("flows-mmio", "zcu102"),
    Case::new("flows-pci"),
    Case::new("flows-pci-mmio"),
    Case::new("flows-many"),
    Case::ended_after("flows-multicast", 2),
    Case::new("flows-pingpong"),
    Case::new("flows-colored"),
    Case::new("flows-linux"),
    Case::new("flows-pci-linux"),
    Case::new("flows-linux-linux"),
    Case::new(LINUX_PING),
    Case::new("flows-linux-socat"),
    Case::new("flows-linux-suspend"),
    Case::ended_after("flows-shared", 1),
    Case::ended_after("setpoints", 3),
    Case::ended_after("mixed", 3),
    Case::ended_after("demo", 3),
    Case::ended_after("line", 1),
];
const PHASES: &str = "flows-overheads";
const PING: &str = "flows-pingpong";
const LINUX_PING: &str = "flows-linux-latency";

/// Runs all of them and prints the figures.
pub fn run(json: bool, environment: &Environment) -> Result {
    let bar = CountBar::new("running", SYSTEMS.len() as u64);
    let (mut systems, mut round_trips, mut phases) = (Vec::new(), Vec::new(), Value::Null);
    for case in SYSTEMS {
        let Case { name, platform, .. } = case;
        let file = environment.system(name)?;
        let outcome = exactly(&file, &case, environment)?;
        let directory = &outcome.directory;
        let quiet = quiet_bounds(&load(&file, platform, Machine::Qemu, environment)?);
        let flows: Vec<_> = zip(&outcome.report.flows, quiet).map(described).collect();
        systems.push(json!({
            "system": name,
            "platform": platform,
            "status": outcome.status,
            "ended_by": outcome.report.ended_by,
            "verdict": outcome.report.verdict,
            "flows": flows,
            "others": outcome.report.vms.iter().flat_map(others).collect::<Vec<_>>(),
        }));
        if name == PHASES {
            phases = json!(measured(&directory.join(NAME))?.0.record());
        }
        if name == PING || name == LINUX_PING {
            round_trips.push(round_trip(name, &directory.join("ping.log"))?);
        }
        bar.add(1);
    }
    drop(bar);
    let figures = json!({
        "build": build_id::of_checkout(),
        "systems": systems,
        "phases": phases,
        "round_trips": round_trips,
    });
    let mut out = screen::stdout();
    if json {
        writeln!(out, "{:#}", weir_report::versioned(figures))?;
        return Ok(());
    }
    let mut flows = table([
        "system",
        "run's status",
        "flow",
        "packets",
        "lost",
        "late",
        "deadline, ns",
        "bound, ns",
        "quiet bound, ns",
        "observed max, ns",
        "verdict",
    ]);
    let mut others = table(OTHERS.map(|(heading, _)| heading));
    for system in figures["systems"].as_array().into_iter().flatten() {
        for flow in system["flows"].as_array().into_iter().flatten() {
            let keys = [
                "name",
                "packets",
                "lost",
                "late",
                "deadline_ns",
                "bound_ns",
                "quiet_bound_ns",
                "observed_max_ns",
                "verdict",
            ];
            let mut row = vec![shown(&system["system"]), shown(&system["status"])];
            row.extend(keys.map(|key| shown(&flow[key])));
            flows.add_row(row);
        }
        for other in system["others"].as_array().into_iter().flatten() {
            let cell = |key| if key == "system" { &system[key] } else { &other[key] };
            others.add_row(OTHERS.map(|(_, key)| shown(cell(key))));
        }
    }
    writeln!(out, "{flows}\n{others}")?;
    Ok(())
}

/// The columns of tasks, interrupts and memory budgets, with their keys.
const OTHERS: [(&str, &str); 9] = [
    ("system", "system"),
    ("VM", "vm"),
    ("kind", "kind"),
    ("name", "name"),
    ("count", "count"),
    ("deadline or budget", "limit"),
    ("bound", "bound"),
    ("observed max", "observed_max"),
    ("verdict", "verdict"),
];

/// A value in a cell.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        value => value.to_string(),
    }
}

/// Returns what a run showed of a flow, with the verdict and its reason; both are null for a flow
/// without deadline and bound. `quiet_bound_ns` is the part of the bound that the other VMs have no
/// part in.
fn described((flow, quiet_bound_ns): (&FlowRun, Option<u64>)) -> Value {
    let finding = flow.finding.as_ref();
    json!({
        "name": flow.name,
        "packets": flow.packets,
        "lost": flow.lost,
        "late": flow.late,
        "deadline_ns": flow.deadline_ns,
        "bound_ns": flow.bound_ns,
        "quiet_bound_ns": quiet_bound_ns,
        "observed_max_ns": flow.observed_max_ns,
        "verdict": finding.map(|finding| finding.verdict.key()),
        "reason": finding.map(|finding| &finding.reason),
    })
}

/// Returns what a run showed of a VM's tasks and interrupts, in ns, and memory budgets, in accesses
/// per period: the deadline or budget, the bound on the response time, the delay or the accesses,
/// and the observed maximum.
fn others(vm: &VmRun) -> Vec<Value> {
    let row = |kind: &str,
               name: String,
               count: Option<u64>,
               figures: [Option<u64>; 3],
               finding: &Finding| {
        let [limit, bound, observed_max] = figures;
        json!({
            "vm": vm.name, "kind": kind, "name": name, "count": count, "limit": limit,
            "bound": bound, "observed_max": observed_max, "verdict": finding.verdict.key(),
        })
    };
    let tasks = vm.tasks.iter().map(|task| {
        let figures = [Some(task.deadline_ns), task.bound_ns, task.observed_max_ns];
        row("task", task.name.clone(), task.activations, figures, &task.finding)
    });
    let interrupts = vm.interrupts.iter().map(|line| {
        let figures = [Some(line.deadline_ns), line.bound_ns, Some(line.max_ns)];
        row("interrupt", line.intid.to_string(), Some(line.delivered), figures, &line.finding)
    });
    let budgets = vm.budgets.iter().map(|budget| {
        let bound = budget.overshoot.and_then(|overshoot| budget.budget.checked_add(overshoot));
        let figures = [Some(budget.budget), bound, Some(budget.max_used)];
        let name = format!("vCPU {}, {}", budget.vcpu, budget.counts);
        row("budget", name, Some(budget.periods), figures, &budget.finding)
    });
    tasks.chain(interrupts).chain(budgets).collect()
}

/// Returns the timing of a system on its board or on `platform`, or on that one's emulation.
pub(super) fn load(
    file: &Path,
    platform: Option<&str>,
    machine: Machine,
    environment: &Environment,
) -> Result<Timing> {
    let loaded = weir_image::load(file, platform, machine, environment);
    Ok(loaded.map_err(|faults| weir_image::refused(&faults))?.timing)
}

/// Runs the system of a file as `case` says. Two runs are alike.
pub(super) fn exactly(file: &Path, case: &Case, environment: &Environment) -> Result<Run> {
    let platform = case.platform.map(str::to_owned);
    let memory = platform.clone().filter(|_| case.has_memory);
    let build_options = build::BuildOptions {
        platform,
        ignore_verdict: case.ignores_verdict,
        ..build::BuildOptions::default()
    };
    let system = build::checked(file, &build_options, Machine::Qemu, false, environment)?;
    let options = RunOptions {
        accept_not_judged: true,
        keep_running: true,
        time: case.time,
        memory,
        interrupt: watch_signals()?,
        ..options(&system, environment)
    };
    let outcome = weir_runner::run(&system, &options, &mut SilentConsole)?;
    if !outcome.report.started {
        let why = outcome.trouble.unwrap_or_else(|| "the hypervisor did not start".to_owned());
        let logs = outcome.directory.display();
        return Err(Failure::system(format!("{}: {why}\nlogs: {logs}", file.display())));
    }
    Ok(outcome)
}

/// Reads `.. round trips of 64 bytes: min 1, avg 2, max 3 ns, ..` in a console.
fn round_trip(system: &str, console: &Path) -> Result<Value> {
    let text = fs::read(console).context(|| format!("read {}", console.display()))?;
    let text = String::from_utf8_lossy(&text);
    let times = text.lines().find_map(times).ok_or_else(|| {
        Failure::system(format!("{system}: no round trips in {}", console.display()))
    })?;
    let [min, avg, max] = times;
    Ok(json!({ "system": system, "min_ns": min, "avg_ns": avg, "max_ns": max }))
}

fn times(line: &str) -> Option<[u64; 3]> {
    let (_, rest) = line.split_once(" bytes: min ")?;
    let (min, rest) = rest.split_once(", avg ")?;
    let (avg, rest) = rest.split_once(", max ")?;
    let (max, _) = rest.split_once(" ns")?;
    Some([min.parse().ok()?, avg.parse().ok()?, max.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_round_trips_is_read() {
        let line =
            "ping: 1000 round trips of 64 bytes: min 24010, avg 24233, max 30921 ns, 0 wrong";
        assert_eq!(times(line), Some([24_010, 24_233, 30_921]));
        assert_eq!(times("ping: 10 round trips"), None);
    }
}
