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
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fs, io::Write, iter::zip, path::Path, time::Duration};
use weir_analysis::{system::quiet_bounds, verdict::Verdict};
use weir_model::{System, platform::Machine};
use weir_report::{
    overheads::{OverheadsRecord, measured},
    table,
    trace::file::NAME,
};
use weir_runner::{
    Run, RunOptions, SilentConsole,
    findings::Finding,
    report::{End, FlowRun, VmRun},
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

/// The figures of `weir bench flows`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FlowsBench {
    /// The build of the hypervisor.
    pub build: Option<String>,
    /// The systems, in the order of their runs.
    pub systems: Vec<SystemRun>,
    /// The phases of a packet.
    pub phases: OverheadsRecord,
    /// The round trips of messages.
    pub round_trips: Vec<RoundTrip>,
}

/// The findings of the run of a system.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SystemRun {
    /// The name of the system's file.
    pub system: String,
    /// The board, if it is another than the file's.
    pub platform: Option<String>,
    /// The exit status of the run.
    pub status: u8,
    /// Why the run ended.
    pub ended_by: End,
    /// The verdict on the run.
    pub verdict: Option<Verdict>,
    /// The flows.
    pub flows: Vec<MeasuredFlow>,
    /// The tasks, interrupts and memory budgets.
    pub others: Vec<MeasuredPart>,
}

/// The findings of a run on a flow. A flow without deadline and bound has no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredFlow {
    /// The name of the flow.
    pub name: String,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Packets that arrived after their deadline.
    pub late: u64,
    /// The deadline in ns.
    pub deadline_ns: Option<u64>,
    /// The bound on the latency in ns.
    pub bound_ns: Option<u64>,
    /// The part of the bound that the other VMs have no part in, in ns.
    pub quiet_bound_ns: Option<u64>,
    /// The greatest latency in ns.
    pub observed_max_ns: u64,
    /// The verdict.
    pub verdict: Option<Verdict>,
    /// The reason of a verdict other than `holds`.
    pub reason: Option<String>,
}

/// The findings of a run on a task or an interrupt, in ns, or on a memory budget, in accesses per
/// period.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredPart {
    /// The name of the VM.
    pub vm: String,
    /// The kind: `task`, `interrupt` or `budget`.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The number of activations, interrupts or periods.
    pub count: Option<u64>,
    /// The deadline or the budget.
    pub limit: Option<u64>,
    /// The bound on the response time, the delay or the accesses.
    pub bound: Option<u64>,
    /// The observed maximum.
    pub observed_max: Option<u64>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The round trips of messages of a system, in ns.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoundTrip {
    /// The name of the system's file.
    pub system: String,
    /// The least.
    pub min_ns: u64,
    /// The mean.
    pub avg_ns: u64,
    /// The greatest.
    pub max_ns: u64,
}

/// Runs all of them and prints the figures.
pub fn run(json: bool, environment: &Environment) -> Result {
    let bar = CountBar::new("running", SYSTEMS.len() as u64);
    let (mut systems, mut round_trips, mut phases) = (Vec::new(), Vec::new(), None);
    for case in SYSTEMS {
        let Case { name, platform, .. } = case;
        let file = environment.system(name)?;
        let outcome = exactly(&file, &case, environment)?;
        let directory = &outcome.directory;
        let quiet = quiet_bounds(&load(&file, platform, Machine::Qemu, environment)?);
        systems.push(SystemRun {
            system: name.to_owned(),
            platform: platform.map(str::to_owned),
            status: outcome.status,
            ended_by: outcome.report.ended_by,
            verdict: outcome.report.verdict,
            flows: zip(&outcome.report.flows, quiet).map(MeasuredFlow::new).collect(),
            others: outcome.report.vms.iter().flat_map(MeasuredPart::of).collect(),
        });
        if name == PHASES {
            phases = Some(measured(&directory.join(NAME))?.0.record());
        }
        if name == PING || name == LINUX_PING {
            round_trips.push(round_trip(name, &directory.join("ping.log"))?);
        }
        bar.add(1);
    }
    drop(bar);
    let build = build_id::of_checkout().map(str::to_owned);
    let phases = phases.ok_or_else(|| Failure::system(format!("{PHASES} did not run")))?;
    let report = FlowsBench { build, systems, phases, round_trips };
    let mut out = screen::stdout();
    if json {
        writeln!(out, "{:#}", weir_report::versioned(report))?;
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
    let mut others = table([
        "system",
        "VM",
        "kind",
        "name",
        "count",
        "deadline or budget",
        "bound",
        "observed max",
        "verdict",
    ]);
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    for system in &report.systems {
        for flow in &system.flows {
            flows.add_row([
                system.system.clone(),
                system.status.to_string(),
                flow.name.clone(),
                flow.packets.to_string(),
                flow.lost.to_string(),
                flow.late.to_string(),
                number(flow.deadline_ns),
                number(flow.bound_ns),
                number(flow.quiet_bound_ns),
                flow.observed_max_ns.to_string(),
                flow.verdict.map_or("-", Verdict::key).to_owned(),
            ]);
        }
        for part in &system.others {
            others.add_row([
                system.system.clone(),
                part.vm.clone(),
                part.kind.clone(),
                part.name.clone(),
                number(part.count),
                number(part.limit),
                number(part.bound),
                number(part.observed_max),
                part.verdict.key().to_owned(),
            ]);
        }
    }
    writeln!(out, "{flows}\n{others}")?;
    Ok(())
}

impl MeasuredFlow {
    fn new((flow, quiet_bound_ns): (&FlowRun, Option<u64>)) -> Self {
        let finding = flow.finding.as_ref();
        Self {
            name: flow.name.clone(),
            packets: flow.packets,
            lost: flow.lost,
            late: flow.late,
            deadline_ns: flow.deadline_ns,
            bound_ns: flow.bound_ns,
            quiet_bound_ns,
            observed_max_ns: flow.observed_max_ns,
            verdict: finding.map(|finding| finding.verdict),
            reason: finding.map(|finding| finding.reason.clone()),
        }
    }
}

impl MeasuredPart {
    /// The tasks, interrupts and memory budgets of a VM.
    fn of(vm: &VmRun) -> Vec<Self> {
        let row = |kind: &str,
                   name: String,
                   count: Option<u64>,
                   [limit, bound, observed_max]: [Option<u64>; 3],
                   finding: &Finding| Self {
            vm: vm.name.clone(),
            kind: kind.to_owned(),
            name,
            count,
            limit,
            bound,
            observed_max,
            verdict: finding.verdict,
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
}

/// Returns a system on its board or on `platform`, or on that one's emulation.
pub(super) fn load(
    file: &Path,
    platform: Option<&str>,
    machine: Machine,
    environment: &Environment,
) -> Result<System> {
    let loaded = weir_image::load(file, platform, machine, environment);
    loaded.map_err(|faults| weir_image::refused(&faults))
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
fn round_trip(system: &str, console: &Path) -> Result<RoundTrip> {
    let text = fs::read(console).context(|| format!("read {}", console.display()))?;
    let text = String::from_utf8_lossy(&text);
    let times = text.lines().find_map(times).ok_or_else(|| {
        Failure::system(format!("{system}: no round trips in {}", console.display()))
    })?;
    let [min_ns, avg_ns, max_ns] = times;
    Ok(RoundTrip { system: system.to_owned(), min_ns, avg_ns, max_ns })
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
