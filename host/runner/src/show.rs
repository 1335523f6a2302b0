//! The summary of a run.

use super::{
    findings::Finding,
    report::{Counted, End, FlowRun, FrameCounts, RunReport, VmRun, WITHOUT_BROKER},
};
use std::fmt::Write as _;
use weir_report::TextTable;
use weir_units::Nanos;

/// Returns a table of any width.
fn table(header: impl IntoIterator<Item: AsRef<str>>) -> TextTable {
    TextTable::new(header).for_file()
}

/// Faults of a VM that the summary shows one by one.
const FAULTS_SHOWN: usize = 3;

/// Returns a virtual time of `time_ns` in seconds, with its unit.
#[must_use]
pub fn seconds(time_ns: u64) -> String {
    format!("{}.{:06} s", time_ns / 1_000_000_000, time_ns / 1_000 % 1_000_000)
}

/// Returns the counts that are not zero, the greatest first, one per line.
pub fn counts<K: AsRef<str>>(counts: impl IntoIterator<Item = (K, u64)>) -> String {
    let mut counts: Vec<(K, u64)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.as_ref().cmp(b.0.as_ref())));
    let lines: Vec<String> =
        counts.iter().map(|(name, count)| format!("{count} {}", name.as_ref())).collect();
    if lines.is_empty() { "-".into() } else { lines.join("\n") }
}

/// A count, or a dash.
fn or_dash(count: Option<u64>) -> String {
    count.map_or_else(|| "-".into(), |count| count.to_string())
}

/// The latencies of the flows' packets, with deadline, bound and verdict.
fn flows(flows: &[FlowRun]) -> TextTable {
    let mut rows = table([
        "flow",
        "packets",
        "lost",
        "late",
        "min ns",
        "p50 ns",
        "p99 ns",
        "max ns",
        "deadline ns",
        "bound ns",
        "max/bound",
        "verdict",
    ]);
    for flow in flows {
        let latency = flow.latency_ns;
        rows.add_row([
            flow.name.clone(),
            flow.packets.to_string(),
            match flow.dropped {
                Some(times) if times > 0 => format!("{}, dropped {times} times", flow.lost),
                _ => flow.lost.to_string(),
            },
            flow.late.to_string(),
            or_dash(latency.map(|latency| latency.min)),
            or_dash(latency.and_then(|latency| latency.p50)),
            or_dash(latency.and_then(|latency| latency.p99)),
            or_dash(latency.map(|latency| latency.max)),
            or_dash(flow.deadline_ns),
            or_dash(flow.bound_ns),
            of_bound(latency.map(|latency| latency.max), flow.bound_ns),
            verdict(flow.finding.as_ref()),
        ]);
    }
    rows
}

/// Returns an observed maximum as a part of its bound.
fn of_bound(max: Option<u64>, bound: Option<u64>) -> String {
    let part = |(max, bound): (u64, u64)| {
        let permille = u128::from(max) * 1000 / u128::from(bound.max(1));
        format!("{}.{:03}", permille / 1000, permille % 1000)
    };
    max.zip(bound).map_or_else(|| "-".into(), part)
}

fn verdict(finding: Option<&Finding>) -> String {
    finding.map_or_else(|| "-".into(), |finding| finding.verdict.to_string())
}

/// The line that gives the reason of a verdict.
fn reason(text: &mut String, name: &str, finding: &Finding) {
    if !finding.reason.is_empty() {
        let _ = writeln!(text, "{name}: {}: {}", finding.verdict, finding.reason);
    }
}

/// What the table of the flows leaves open: the reasons of verdicts, which packet took longest, and
/// until when packets were counted.
fn about_flows(report: &RunReport) -> String {
    let mut text = String::new();
    for flow in &report.flows {
        let name = format!("flow {}", flow.name);
        if let Some(finding) = &flow.finding {
            reason(&mut text, &name, finding);
        }
        if let Some(latency) = flow.latency_ns.filter(|latency| latency.max_packet > 0) {
            let _ = writeln!(
                text,
                "{name}: the longest was packet {} of {}, which arrived at {}",
                latency.max_packet,
                flow.packets.max(latency.max_packet),
                seconds(latency.max_arrived_ns)
            );
        }
    }
    match report.flows_counted() {
        Counted::ToTheEnd => {}
        Counted::Never => {
            let _ = writeln!(text, "no counts of some flows came before the run ended");
        }
        Counted::Until(counted) => {
            let _ = writeln!(
                text,
                "the flows' counts are as of {}, the last that came: later packets are not in them",
                seconds(counted)
            );
        }
    }
    text
}

/// How vCPUs used their memory budgets, with the reasons of verdicts.
fn budgets(vms: &[VmRun]) -> String {
    let mut rows = table([
        "budget",
        "accesses",
        "period",
        "periods",
        "throttled",
        "max used",
        "max above limit",
        "overshoot",
        "exceeded",
        "verdict",
    ]);
    let mut text = String::new();
    for vm in vms {
        for budget in &vm.budgets {
            let counts = match budget.counts {
                "all" => String::new(),
                counts => format!(" {counts}"),
            };
            let name = format!("{}/{}{counts}", vm.name, budget.vcpu);
            reason(&mut text, &format!("budget of {name}"), &budget.finding);
            rows.add_row([
                name,
                budget.budget.to_string(),
                Nanos(budget.period_ns).to_string(),
                budget.periods.to_string(),
                budget.throttled_periods.to_string(),
                budget.max_used.to_string(),
                budget.max_beyond.to_string(),
                or_dash(budget.overshoot),
                budget.exceeded_periods.to_string(),
                budget.finding.verdict.to_string(),
            ]);
        }
    }
    format!("{rows}\n{text}")
}

/// How soon VMs had the core for their interrupts, with the reasons of verdicts.
fn interrupts(vms: &[VmRun]) -> String {
    let mut rows = table([
        "interrupt",
        "VM",
        "delivered",
        "late",
        "max ns",
        "deadline ns",
        "bound ns",
        "max/bound",
        "verdict",
    ]);
    let mut text = String::new();
    for vm in vms {
        for line in &vm.interrupts {
            reason(&mut text, &format!("interrupt {} of {}", line.intid, vm.name), &line.finding);
            rows.add_row([
                line.intid.to_string(),
                vm.name.clone(),
                line.delivered.to_string(),
                line.late.to_string(),
                line.max_ns.to_string(),
                line.deadline_ns.to_string(),
                or_dash(line.bound_ns),
                of_bound(Some(line.max_ns), line.bound_ns),
                line.finding.verdict.to_string(),
            ]);
        }
    }
    format!("{rows}\n{text}")
}

/// What VMs reported of their tasks, with the reasons of verdicts.
fn tasks(vms: &[VmRun]) -> String {
    let mut rows = table([
        "task",
        "VM",
        "activations",
        "missed",
        "max ns",
        "deadline ns",
        "bound ns",
        "max/bound",
        "verdict",
    ]);
    let mut text = String::new();
    for vm in vms {
        for task in &vm.tasks {
            reason(&mut text, &format!("task {} of {}", task.name, vm.name), &task.finding);
            rows.add_row([
                task.name.clone(),
                vm.name.clone(),
                or_dash(task.activations),
                or_dash(task.misses),
                or_dash(task.observed_max_ns),
                task.deadline_ns.to_string(),
                or_dash(task.bound_ns),
                of_bound(task.observed_max_ns, task.bound_ns),
                task.finding.verdict.to_string(),
            ]);
        }
    }
    format!("{rows}\n{text}")
}

/// The first faults of a VM, with address and cause.
fn faults(vm: &VmRun) -> String {
    let mut text = String::new();
    for fault in vm.faults.iter().take(FAULTS_SHOWN) {
        let mut line = format!(
            "fault of {}/{} at {}: {}: address {}, pc {}: {}",
            vm.name,
            fault.vcpu,
            seconds(fault.time_ns),
            fault.kind,
            fault.address,
            fault.pc,
            fault.meaning
        );
        if let Some(meaning) = &fault.guest_meaning {
            let _ = write!(line, "; the guest's last exception: {meaning}, at {}", fault.guest_elr);
        }
        let _ = writeln!(text, "{line}");
    }
    let more = vm.fault_counts.values().sum::<u64>().saturating_sub(FAULTS_SHOWN as u64);
    if more > 0 {
        let _ = writeln!(text, "{more} more faults of {}: see hypervisor.log", vm.name);
    }
    text
}

/// The line with the verdict on the whole run; empty if nothing is judged.
fn conclusion(report: &RunReport) -> String {
    let Some(verdict) = report.verdict else { return String::new() };
    let words = verdict.replace('-', " ");
    match words.as_str() {
        "holds" => "verdict: holds\n".into(),
        _ => format!("verdict: {words} ({})\n", report.verdict_of.join(", ")),
    }
}

/// The outcomes of the frames of the VMs' network devices.
fn frames<'a>(vms: impl Iterator<Item = (&'a String, FrameCounts)>) -> TextTable {
    let mut rows = table(["network", "sent", "received", "over rate", "refused", "missed"]);
    for (name, FrameCounts { sent, received, over_rate, refused, missed }) in vms {
        let counts = [sent, received, over_rate, refused, missed].map(|count| count.to_string());
        rows.add_row([name.clone()].into_iter().chain(counts));
    }
    rows
}

/// The summary of a run: a table of the VMs, what was missed and why it ended. Its lines have any
/// length: [`weir_report::fitted`] fits them to the terminal.
#[must_use]
pub fn summary(report: &RunReport) -> String {
    let mut rows =
        table(["VM", "state", "restarts", "exits", "interrupts", "expected", "faults", "refused"]);
    for vm in &report.vms {
        let met = vm.expect.iter().filter(|expected| expected.met).count();
        rows.add_row([
            vm.name.clone(),
            vm.state.name().into(),
            vm.restarts.to_string(),
            or_dash(vm.exit_count()),
            or_dash(vm.injected),
            if vm.expect.is_empty() { "-".into() } else { format!("{met} of {}", vm.expect.len()) },
            counts(vm.fault_counts.iter().map(|(name, count)| (name, *count))),
            counts(vm.denials.iter().map(|(name, count)| (name, *count))),
        ]);
    }
    let mut text = format!("{rows}\n");
    for vm in &report.vms {
        for missed in vm.expect.iter().filter(|expected| !expected.met) {
            let _ = writeln!(text, "missed: {} did not print \"{}\"", vm.name, missed.text);
        }
        if vm.started_without_broker {
            let _ = writeln!(text, "{}: {WITHOUT_BROKER}", vm.name);
        }
        if vm.console.dropped > 0 {
            let _ = writeln!(text, "{}: {} console bytes lost", vm.name, vm.console.dropped);
        }
        text += &faults(vm);
    }
    if report.vms.iter().any(|vm| !vm.tasks.is_empty()) {
        text += &tasks(&report.vms);
    }
    if report.vms.iter().any(|vm| !vm.interrupts.is_empty()) {
        text += &interrupts(&report.vms);
    }
    if report.vms.iter().any(|vm| !vm.budgets.is_empty()) {
        text += &budgets(&report.vms);
    }
    if !report.flows.is_empty() {
        let _ = writeln!(text, "{}", flows(&report.flows));
        text += &about_flows(report);
    }
    if let Some(engine) = &report.engine {
        let _ = writeln!(text, "{engine}");
    }
    let ports = || report.vms.iter().filter_map(|vm| Some((&vm.name, vm.frames?)));
    if ports().next().is_some() {
        let _ = writeln!(text, "{}", frames(ports()));
    }
    if report.totals.damaged_frames > 0 {
        let _ = writeln!(text, "frames damaged on the wire: {}", report.totals.damaged_frames);
    }
    if report.board_resets > 0 {
        let _ = writeln!(
            text,
            "the board was reset {} times: everything is counted from the last start",
            report.board_resets
        );
    }
    if report.totals.records_lost > 0 {
        let _ = writeln!(
            text,
            "{} of the hypervisor's records were lost: single events are missing, counts are not",
            report.totals.records_lost
        );
    }
    if let Some(board) = &report.memory {
        let _ = writeln!(text, "memory timing of {board} was charged to the cores");
    }
    text += &conclusion(report);
    let why = match report.ended_by {
        End::AllMet => "every expected line was seen",
        End::TimeOver => "the time is over",
        End::SystemStop => "the system ended itself",
        End::Interrupted => "interrupted",
        End::MachineGone => "the machine was gone before the system ended",
        End::Silent => "the machine fell silent",
    };
    let _ = if report.started {
        write!(text, "{why}, {} after the hypervisor's start", seconds(report.time_ns))
    } else {
        write!(text, "{why}; the hypervisor never reported its start")
    };
    text
}
