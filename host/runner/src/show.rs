//! The summary of a run.

use super::{
    findings::Finding,
    report::{
        CoreRun, Counted, DeniedOperation, FlowRun, FrameCounts, RunReport, VmRun, WITHOUT_BROKER,
    },
};
use std::{collections::BTreeSet, fmt::Write as _};
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
        "throttled time",
        "max used",
        "max above limit",
        "overshoot",
        "exceeded",
        "verdict",
    ]);
    let mut text = String::new();
    for vm in vms {
        for budget in &vm.budgets {
            let counts = match budget.counts.as_str() {
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
                Nanos(budget.throttled_ns).to_string(),
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

/// The switches on the cores that VMs share, next to the longest that is stated.
fn cores(cores: &[CoreRun]) -> TextTable {
    let mut rows = table(["shared core", "switches", "longest ns", "stated ns"]);
    for core in cores {
        rows.add_row([
            core.core.to_string(),
            or_dash(core.switches),
            or_dash(core.max_switch_ns),
            or_dash(core.stated_switch_ns),
        ]);
    }
    rows
}

/// The first refused operation of each kind, with its cause.
fn denied(vm: &VmRun) -> String {
    let mut text = String::new();
    let mut kinds = BTreeSet::new();
    for DeniedOperation { time_ns, vcpu, kind, cause, pc, .. } in &vm.denied {
        if kinds.insert(kind) {
            let (name, at) = (&vm.name, seconds(*time_ns));
            let _ = writeln!(text, "refused of {name}/{vcpu} at {at}: {kind}: {cause}, pc {pc}");
        }
    }
    text
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

/// Missed activations of a task that the summary shows one by one.
const MISSES_SHOWN: usize = 3;

/// The activations of tasks, with the reasons of verdicts and the first that missed deadlines.
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
            let name = format!("task {} of {}", task.name, vm.name);
            reason(&mut text, &name, &task.finding);
            for missed in task.missed.iter().take(MISSES_SHOWN) {
                let (number, response) = (missed.activation, missed.response_ns);
                let at = seconds(missed.release_ns);
                // Writing to a string does not fail.
                let _ = writeln!(
                    text,
                    "{name}: activation {number}, released at {at}, took {response} ns; {} \
                     releases got none",
                    missed.skipped
                );
            }
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
    if verdict.holds() {
        return format!("verdict: {verdict}\n");
    }
    format!("verdict: {verdict} ({})\n", report.verdict_of.join(", "))
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
        text += &denied(vm);
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
    if !report.cores.is_empty() {
        let _ = writeln!(text, "{}", cores(&report.cores));
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
    let why = report.ended_by.words();
    let _ = if report.started {
        write!(text, "{why}, {} after the hypervisor's start", seconds(report.time_ns))
    } else {
        write!(text, "{why}; the hypervisor never reported its start")
    };
    text
}
